//! The doctor before processes that are strange, but legal: shredded, static, stopped, becoming another.
#![allow(unsafe_code, reason = "programs are told to end with the test that starts them")]

mod programs;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use programs::{PYTHON, Program, has_module};
use std::time::{Duration, Instant};
use world::{World, facility};

/// Whether a process may have 60 000 mappings.
fn many_mappings() -> bool {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let is_enough = most.trim().parse::<u64>().is_ok_and(|most| most > 61_000);
    facility("60 000 mappings", if is_enough { Ok(()) } else { Err(format!("vm.max_map_count is {}", most.trim())) })
}

fn samples() -> bool {
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// Two seconds of watching must not take long, though all mappings are looked at ten times each second.
fn shreds_are_examined_in_time(arguments: &[&str], more: &[&str]) {
    if !(has_module("ctypes", "python3") && many_mappings()) {
        return;
    }
    let world = World::new();
    let mut program = Program::script(&world, "shredded.py", arguments);

    let began = Instant::now();
    let said = program.examined(&world, more);
    let elapsed = began.elapsed();

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.json()["process"]["mappings"].as_u64().unwrap() >= 60_000);
    // A wide bound: on a quiet machine it takes 7 s, on one with ten other builds 25 s.
    assert!(elapsed < Duration::from_secs(90), "{elapsed:?}");
    eprintln!("two seconds of 60 000 mappings took {elapsed:?}");
}

#[test]
fn a_process_of_60_000_mappings_is_examined_in_time() {
    shreds_are_examined_in_time(&[], &["--deep"]);
}

#[test]
fn mappings_of_a_file_without_a_name_are_examined_in_time() {
    shreds_are_examined_in_time(&["deleted"], &[]);
}

#[test]
fn a_static_program_is_seen_as_any_other() {
    if !samples() {
        return;
    }
    let world = World::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/static_columns.rs");
    let options = "--edition 2024 -C target-feature=+crt-static -C opt-level=1";
    let built = world.shell(&format!("rustc {options} -o static '{source}' 2>/dev/null"));
    if !facility("static linking", if built { Ok(()) } else { Err("rustc finds no static libc".to_owned()) }) {
        return;
    }
    let mut program = Program::start(&world, world.path("static").to_str().unwrap(), &[]);
    world.wait_for("the data", || world.path("ready").exists());

    let report = program.examined(&world, &[]).json();

    let found = report["findings"].as_array().unwrap().iter().find(|found| found["rule"] == "fault_stall");
    assert!(found.is_some_and(|found| found["scope"].as_str().unwrap().ends_with("/data")), "{report:#}");
}

#[test]
fn a_stopped_process_raises_nothing_and_stays_stopped() {
    if !samples() {
        return;
    }
    let world = World::new();
    let mut program = Program::start(&world, "sleep", &["1000"]);
    assert!(world.shell(&format!("kill -STOP {}", program.pid())));
    world.wait_for("the stop", || state(program.pid()) == "T");

    let said = program.examined(&world, &["--fail-on", "note"]);

    let report = said.json();
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert!(report["faults"]["seen"] == 0 && !report["calls"].is_null(), "not all was seen: {report:#}");
    assert_eq!(said.code, Some(0), "{}\n{}", said.output, said.errors);
    assert_eq!(state(program.pid()), "T");
}

/// The letter of its state in /proc/PID/stat.
fn state(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_process_that_becomes_others_all_the_time_is_watched_to_the_end() {
    let world = World::new();
    std::fs::write(world.path("again.sh"), "sleep 0.05\nexec sh again.sh\n").unwrap();
    let mut program = Program::start(&world, "sh", &["again.sh"]);

    let report = program.examined(&world, &["--deep"]).json();

    assert_eq!(report["target"]["ended"], false, "{report:#}");
    assert!(report["watched_ns"].as_u64().unwrap() >= 1_900_000_000, "{report:#}");
}

#[test]
fn a_file_with_a_strange_name_is_named_as_it_is_and_does_not_move_the_cursor() {
    if !has_module("mmap", "python3") {
        return;
    }
    let world = World::new();
    let name = "a b\n\u{1b}[2J\\c\"'é";
    std::fs::write(world.path(name), vec![7; 32 << 20]).unwrap();
    let script = "import mmap,sys,time; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); \
                  open('ready','w'); time.sleep(1000)";
    let mut program = Program::start(&world, PYTHON, &["-c", script, name]);
    world.wait_for("the mapping", || world.path("ready").exists());

    let report = program.examined(&world, &[]).json();
    let text = world.majorfault(&["doctor", &program.pid().to_string(), "--for", "100ms"]).output;

    let path = world.path(name);
    let file = report["files"].as_array().unwrap().iter().find(|it| it["path"] == path.to_str().unwrap());
    assert_eq!(file.unwrap_or_else(|| panic!("{report:#}"))["size_bytes"], 32 << 20);
    assert!(!text.contains("\u{1b}[2J"), "{text:?}");
}
