//! Prefetching for planted programs: what has a stride is read ahead, what has none is left alone.
#![allow(unsafe_code, reason = "the planted programs map and advise as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod plants;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use plants::Plant;
use serde_json::Value;
use world::{World, facility};

/// Not a test: the planted program, when it is started as one.
#[test]
fn plant() {
    plants::grow();
}

fn samples() -> bool {
    facility("fault samples", faultline::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// What was done for the data of a planted program.
fn assisted(name: &str) -> Value {
    let world = World::new();
    let plant = Plant::start(&world, name);

    let said = world.faultline(&["assist", &plant.pid().to_string(), "--for", "3s", "--json"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(plant.runs(), "the program was harmed");
    let json = said.json();
    let files = json["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
    file.unwrap_or_else(|| panic!("{json:#}")).clone()
}

fn number(file: &Value, key: &str) -> u64 {
    file[key].as_u64().unwrap_or_else(|| panic!("{key}: {file:#}"))
}

#[test]
fn a_stride_is_read_ahead_and_used() {
    if !samples() {
        return;
    }
    let file = assisted("column");

    assert_eq!(file["stride_bytes"], 256 << 10, "{file:#}");
    let (asked, used) = (number(&file, "read_ahead_bytes"), number(&file, "used_bytes"));
    assert!(asked > 4 << 20 && used * 10 > asked * 8, "{file:#}");
}

#[test]
fn nothing_is_read_for_random_accesses() {
    if !samples() {
        return;
    }
    let file = assisted("flood");

    assert!(number(&file, "faults") > 100, "{file:#}");
    assert_eq!(number(&file, "read_ahead_bytes"), 0, "{file:#}");
}

#[test]
fn little_is_read_for_a_scan() {
    if !samples() {
        return;
    }
    let file = assisted("cold_scan");

    let scanned = number(&file, "faults") * (64 << 10);
    assert!(scanned > 64 << 20, "{file:#}");
    assert!(number(&file, "read_ahead_bytes") * 20 <= scanned, "{file:#}");
}

#[test]
fn a_program_that_is_started_keeps_its_output_and_its_exit_code() {
    let world = World::new();

    let said = world.faultline(&["assist", "--", "sh", "-c", "sleep 0.2; echo hello; exit 7"]);

    assert_eq!((said.code, said.output.as_str()), (Some(7), "hello\n"), "{}", said.errors);
    assert_eq!(world.faultline(&["assist", "--", "sh", "-c", "kill -TERM $$"]).code, Some(128 + 15));
    world.faultline(&["assist", "--", "no-such-program"]).fails(2, "could not start the program");
}

#[test]
fn who_cannot_be_helped_is_told_in_words() {
    let world = World::new();

    world.faultline(&["assist", "4194303"]).fails(2, "there is no process 4194303");
    world.faultline(&["assist", "2"]).fails(2, "kernel thread");
    world.faultline(&["assist", "1", "--budget", "4k"]).fails(2, "give 64k or more");
    let Some(said) = world.as_nobody(&["assist", &std::process::id().to_string(), "--for", "100ms"]) else { return };
    said.fails(3, "it belongs to user 0, we are user 65534");
}

#[test]
fn an_interrupted_assistant_says_what_it_did_and_leaves_the_program_running() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "column");

    let running = world.start_plain(&["assist", &plant.pid().to_string(), "--json"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert_eq!(said.json()["ended"], false);
    assert!(plant.runs());
}

/// A program that maps `data` and touches it in an order without a law, the same each time.
const SCRIPT: &str = "import mmap,os,random\nf=open('data','rb'); os.posix_fadvise(f.fileno(),0,0,os.POSIX_FADV_DONTNEED)\n\
                      m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); m.madvise(mmap.MADV_RANDOM); random.seed(3)\n\
                      print(sum(m[random.randrange(len(m)//4096)*4096] for i in range(3000)))\n";

fn recorded() -> Option<World> {
    let world = World::new();
    let found = if world.shell("python3 -c 1") { Ok(()) } else { Err("no python3".to_owned()) };
    if !samples() || !facility("python3", found) {
        return None;
    }
    world.file("data", 128 << 20);
    world.shell("sync");
    std::fs::write(world.path("random.py"), SCRIPT).unwrap();
    let said = world.faultline(&["trace", "-o", "random.flt", "--", "python3", "random.py"]);
    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.errors.contains("/data: "), "{}", said.errors);
    Some(world)
}

#[test]
fn a_traced_order_is_read_ahead_on_the_next_run() {
    let Some(world) = recorded() else { return };

    let said = world.faultline(&["assist", "--trace", "random.flt", "--json", "--", "python3", "random.py"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let from = said.errors.find('{').unwrap();
    let json: Value = serde_json::from_str(&said.errors[from..]).unwrap();
    let file = json["files"].as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
    let file = file.unwrap_or_else(|| panic!("{json:#}"));
    assert!(number(file, "used_bytes") > 2000 * 4096, "{file:#}");
    assert!(number(file, "read_ahead_bytes") < 3300 * 4096, "{file:#}");
}

#[test]
fn a_trace_is_a_workload_of_compare() {
    let Some(world) = recorded() else { return };

    let said = world.faultline(&[
        "compare",
        "-q",
        "--json",
        "--trace",
        "random.flt",
        "-m",
        "mmap:advice=random",
        "-m",
        "pread",
        "--no-peer",
        "--runs",
        "1",
        "--records",
        "records.jsonl",
    ]);

    said.ends_with(&[0, 4]);
    for record in world.records() {
        let accesses =
            record["threads"].as_array().unwrap().iter().map(|it| it["accesses"].as_u64().unwrap()).sum::<u64>();
        assert!((2800..3100).contains(&accesses), "{accesses}: {}", record["trial"]["workload"]);
    }
    world.faultline(&["compare", "--trace", "random.py"]).fails(2, "is no trace that can be replayed");
}
