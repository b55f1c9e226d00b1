//! Programs that are started for the watch: nothing of theirs, nor of the processes that they start, is missed without a word.
#![allow(unsafe_code, reason = "the planted programs map and advise as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod plants;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::os::unix::fs::FileExt;
use world::{Said, World, facility};

/// What the kernel maps at once around a fault.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 256;

/// Runs of the same: five, or as many as MAJORFAULT_BEGINNINGS says.
fn runs() -> usize {
    std::env::var("MAJORFAULT_BEGINNINGS").map_or(5, |runs| runs.parse().expect("a number of runs"))
}

/// Not a test: the planted program, when it is started as one.
#[test]
fn plant() {
    plants::grow();
}

fn samples() -> bool {
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// A cached file of 256 blocks for the program `touch`.
fn world() -> World {
    let world = World::new();
    let file = std::fs::File::create(world.path("data")).unwrap();
    // Page by page: a large write makes large folios, which are mapped at once.
    (0..BLOCK * BLOCKS).step_by(4096).for_each(|at| file.write_all_at(&[1; 4096], at as u64).unwrap());
    std::fs::write(world.path("placed"), "").unwrap();
    world
}

/// Runs `majorfault WORDS -- sh -c SCRIPT`, where `touch` in the script is a program that touches each block of the file once.
fn run(world: &World, words: &[&str], script: &str) -> Said {
    let program = std::env::current_exe().unwrap();
    let touch = format!("touch() {{ {} plant --exact > touched.txt; }}; ", program.display());
    let script = touch + script;
    let dir = world.path("");
    let variables = [("MAJORFAULT_PLANT", "touch"), ("MAJORFAULT_PLANT_DIR", dir.to_str().unwrap())];
    world.majorfault_with(&[words, &["--", "sh", "-c", &script]].concat(), &variables)
}

/// The offsets in the file that the trace has, and its last line.
fn traced(world: &World) -> (Vec<u64>, String) {
    let trace = majorfault::trace::Trace::read(&world.path("t.flt")).unwrap();
    let text = world.text("t.flt");
    let is_data =
        |file: &&majorfault::trace::TracedFile| file.path.as_ref().is_some_and(|path| path.ends_with("/data"));
    let extents = trace.files.iter().filter(is_data).flat_map(|file| file.extents()).flatten();
    (extents.map(|extent| extent.offset).collect(), text.lines().last().unwrap().to_owned())
}

#[test]
fn the_accesses_of_a_child_are_all_recorded_from_the_first_one_on() {
    if !samples() {
        return;
    }
    let world = world();
    let every_block: Vec<u64> = (0..BLOCKS as u64).map(|block| block * BLOCK as u64).collect();
    for _ in 0..runs() {
        let said = run(&world, &["trace", "-o", "t.flt"], "touch; true");

        assert_eq!(said.code, Some(0), "{}", said.errors);
        assert_eq!(traced(&world), (every_block.clone(), "end".to_owned()), "{}", said.errors);
    }
}

#[test]
fn the_reads_of_a_child_by_calls_are_all_recorded_in_their_order_and_length() {
    let reads = majorfault::observe::file_reads::FILE_READS.met();
    if !samples() || !facility("file reads", reads.map_err(|missing| missing.to_string())) {
        return;
    }
    let world = world();

    let said = run(&world, &["trace", "-o", "t.flt"], "MAJORFAULT_READS=1 touch; true");

    let backwards: Vec<u64> = (0..BLOCKS as u64).rev().map(|block| block * BLOCK as u64).collect();
    assert_eq!(traced(&world), (backwards, "end".to_owned()), "{}", said.errors);
    let run = format!(" {} 12288 -{BLOCK} {BLOCKS}\n", (BLOCKS - 1) * BLOCK);
    assert!(world.text("t.flt").contains(&run), "{}", world.text("t.flt"));
}

#[test]
fn children_in_the_background_are_recorded_too() {
    if !samples() {
        return;
    }
    let world = world();

    let said = run(&world, &["trace", "-o", "t.flt"], "touch & touch & wait");

    let (offsets, end) = traced(&world);
    assert_eq!((offsets.len(), end.as_str()), (2 * BLOCKS, "end"), "{}", said.errors);
}

#[test]
fn only_the_process_itself_is_recorded_where_that_is_asked_for() {
    if !samples() {
        return;
    }
    let world = world();

    let said = run(&world, &["trace", "-o", "t.flt", "--no-tree"], "touch; true");

    assert_eq!(traced(&world), (Vec::new(), "end".to_owned()), "{}", said.errors);
}

#[test]
fn a_trace_that_lost_faults_says_so_on_its_last_line() {
    if !samples() {
        return;
    }
    let world = world();

    // Nobody reads the rings meanwhile, which hold 6500 faults for each processor.
    let processors = std::thread::available_parallelism().unwrap().get();
    let often = format!("kill -STOP $PPID; MAJORFAULT_TOUCHES={} touch; kill -CONT $PPID", 40 * processors);
    let said = run(&world, &["trace", "-o", "t.flt"], &often);

    let (offsets, end) = traced(&world);
    let lost: u64 = end.strip_prefix("end lacks ").unwrap_or_else(|| panic!("{end}: {}", said.errors)).parse().unwrap();
    assert!(said.errors.contains(&format!("{lost} faults and reads were lost")), "{}", said.errors);
    let touched = (40 * processors * BLOCKS) as u64;
    assert!(lost + offsets.len() as u64 >= touched, "{lost} and {} of {touched}", offsets.len());
}

#[test]
fn processes_that_run_on_when_the_program_has_ended_are_told() {
    if !samples() {
        return;
    }
    let world = world();

    let said = run(&world, &["trace", "-o", "t.flt"], "sleep 60 > /dev/null 2>&1 & echo $! > sleeper");

    world.shell("kill $(cat sleeper)");
    assert!(said.errors.contains("1 processes that the program started run on"), "{}", said.errors);
}

#[test]
fn the_doctor_sees_every_fault_of_a_child_that_ends_at_once() {
    if !samples() {
        return;
    }
    let world = world();
    for _ in 0..runs() {
        let said = run(&world, &["doctor", "--for", "60s", "--json"], "touch; true");

        assert_eq!(said.code, Some(0), "{}", said.errors);
        let report = said.json();
        let others = report["processes"].as_array().unwrap().iter();
        let files = others.chain([&report]).flat_map(|process| process["files"].as_array().unwrap());
        let data = files.filter(|file| file["path"].as_str().unwrap().ends_with("/data"));
        assert_eq!(data.map(|file| file["faults"].as_u64().unwrap()).sum::<u64>(), BLOCKS as u64, "{report:#}");
        assert_eq!(report["faults"]["lost"], 0);
    }
}

#[test]
fn assist_sees_every_fault_of_a_child_that_ends_at_once() {
    if !samples() {
        return;
    }
    let world = world();

    for _ in 0..runs() {
        let said = run(&world, &["assist", "--json"], "touch; true");

        let begin = said.errors.find('{').unwrap_or_else(|| panic!("{}", said.errors));
        let report: serde_json::Value = serde_json::from_str(&said.errors[begin..]).unwrap();
        let files = report["files"].as_array().unwrap();
        let data = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
        assert_eq!(data.map(|file| file["faults"].as_u64().unwrap()), Some(BLOCKS as u64), "{report:#}");
        assert_eq!(report["samples_lost"], 0);
    }
}

#[test]
fn the_processes_of_a_cgroup_are_watched_by_its_path() {
    if !samples() {
        return;
    }
    let limit = match majorfault_lab::place::MemoryLimit::create(majorfault::Bytes(1 << 30)) {
        Ok(limit) => limit,
        Err(missing) => {
            facility("a memory limit", Err(missing.to_string()));
            return;
        }
    };
    let world = World::new();
    let plant = plants::Plant::start_in(&world, "strided", |pid| limit.add(pid).unwrap());
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", plant.pid())).unwrap();
    let own = groups.lines().find(|line| line.contains("majorfault")).unwrap();
    let path = own.rsplit(':').next().unwrap();

    let said = world.majorfault(&["doctor", "--cgroup", path, "--for", "1s", "--json"]);

    let report = said.json();
    assert_eq!(report["target"]["pid"], plant.pid(), "{report:#}");
    assert!(report["faults"]["major"].as_u64() > Some(50), "{report:#}");
    assert_eq!((said.code, report["processes"].as_array().unwrap().len()), (Some(0), 0));
}

#[test]
fn groups_that_are_not_there_are_named_with_what_to_do() {
    let world = World::new();
    for (words, says) in [
        (["--cgroup", "/no/such"], "there is no cgroup /no/such; "),
        (["--unit", "no-such"], "there is no cgroup of the unit no-such.service; see systemctl status"),
        (["--container", "0123456789ab"], "there is no cgroup of the container 0123456789ab; give its number"),
    ] {
        for command in ["doctor", "trace", "assist"] {
            let said = world.majorfault(&[&[command], &words[..]].concat());

            assert!(said.errors.contains(says) && said.code == Some(2), "{command}: {}", said.errors);
        }
    }
}
