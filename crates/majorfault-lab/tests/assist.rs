//! Prefetching for planted programs: what has a stride is read ahead, what has none is left alone.
#![allow(unsafe_code, reason = "the planted programs map and advise as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod plants;
/// The bench's judgement of its tool: a bench has no tests of its own.
#[path = "../benches/assist/said.rs"]
mod said;
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
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// What was done for the data of a planted program.
fn assisted(name: &str) -> Value {
    data(&assisted_with(name, &[]))
}

/// What was done for a planted program in 3 s.
fn assisted_with(name: &str, more: &[&str]) -> Value {
    let world = World::new();
    let plant = Plant::start(&world, name);
    let pid = plant.pid().to_string();

    let said = world.majorfault(&[&["assist", &pid, "--for", "3s", "--json"], more].concat());

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(plant.runs(), "the program was harmed");
    said.json()
}

/// What of it was done for the program's data.
fn data(json: &Value) -> Value {
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
fn what_was_learnt_is_kept_for_the_next_run_and_nothing_else_is_overwritten() {
    if !samples() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (profile, other) = (dir.path().join("profile.json"), dir.path().join("other"));
    std::fs::write(&other, "my data").unwrap();
    let learnt = || -> Value { serde_json::from_str(&std::fs::read_to_string(&profile).unwrap()).unwrap() };
    let stride = |file: &Value| learnt()["strides"][file["path"].as_str().unwrap()].clone();

    let first = data(&assisted_with("column", &["--learn", profile.to_str().unwrap()]));
    assert_eq!(stride(&first), 256 << 10);
    let again = data(&assisted_with("column", &["--learn", profile.to_str().unwrap()]));
    assert_eq!((&again["stride_bytes"], stride(&again)), (&(256 << 10).into(), (256 << 10).into()));

    let world = World::new();
    let said = world.majorfault(&["assist", "1", "--learn", other.to_str().unwrap()]);
    assert!(said.code == Some(2) && said.errors.contains("is no profile"), "{:?} {}", said.code, said.errors);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "my data");
}

fn file_reads() -> bool {
    let found = majorfault::observe::file_reads::FILE_READS.met();
    samples() && facility("file reads", found.map_err(|missing| missing.to_string()))
}

#[test]
fn rows_that_calls_read_are_read_ahead_and_used_and_scattered_ones_are_left_alone() {
    if !file_reads() {
        return;
    }
    let (rows, lookups) = (assisted("read_rows"), assisted("read_lookups"));

    let (asked, used) = (number(&rows, "read_ahead_bytes"), number(&rows, "used_bytes"));
    assert!(asked > 4 << 20 && used * 10 > asked * 8 && number(&rows, "faults") == 0, "{rows:#}");
    assert!(number(&lookups, "read_calls") > 100 && number(&lookups, "read_ahead_bytes") < 1 << 20, "{lookups:#}");
}

#[test]
fn no_more_is_read_each_second_than_the_rate() {
    if !samples() {
        return;
    }
    let json = assisted_with("column", &["--rate", "128k"]);

    let file = data(&json);
    assert_eq!(file["stride_bytes"], 256 << 10, "{file:#}");
    let seconds = json["length_ns"].as_u64().unwrap().div_ceil(1_000_000_000);
    // The first second's bytes may be read at once; the last request may be one page too much.
    let most = (seconds + 1) * (128 << 10) + 4096;
    let read = number(&file, "read_ahead_bytes");
    assert!(read > 64 << 10 && read <= most, "{read} of {most}: {file:#}");
}

#[test]
fn the_budget_is_half_of_the_free_memory_at_most() {
    use majorfault::files::{Layout, Target};
    let world = World::new();
    world.file("data", 4096);
    let target = std::sync::Arc::new(Target::open(&[world.path("data")], &Layout::default()).unwrap());
    let method = majorfault::methods::named("mmap").unwrap();

    let opened = majorfault::prefetch::open(method, target, &"policy=learned,budget=1024t".parse().unwrap()).unwrap();

    let free_kib = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free_kib = free_kib.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap().trim();
    let free_bytes = free_kib.trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    let budget = opened.settings.get("budget").unwrap().parse::<majorfault::Bytes>().unwrap().0;
    // Between the two looks others may have taken some.
    assert!(budget > 0 && budget < free_bytes / 4 * 3, "{budget} of {free_bytes}");
    assert!(opened.notes.iter().any(|note| note.contains("half of the free memory")), "{:?}", opened.notes);
}

/// A tool of the bench that says this and ends with this code.
fn tool(said: &str, code: i32) -> std::process::Output {
    let script = format!("echo '{said}'; echo no rights >&2; exit {code}");
    std::process::Command::new("sh").args(["-c", &script]).output().unwrap()
}

#[test]
fn a_run_of_the_bench_counts_only_where_its_tool_ended_well() {
    let well = r#"{"ended": true, "faults": 9, "own_cpu_ns": 7}"#;

    let counted = said::document("assist", &tool(well, 0)).unwrap();
    assert_eq!(said::own_cpu_ns(&counted), 7.0);
    for code in [1, 2, 3] {
        let why = said::document("assist", &tool(well, code)).unwrap_err();
        assert!(why.starts_with(&format!("assist failed: exit status: {code}\nno rights")), "{why}");
    }
    assert!(said::document("assist", &tool("", 0)).unwrap_err().contains("said no document"));
}

#[test]
fn a_run_of_the_bench_counts_only_where_its_tool_saw_faults_to_the_end() {
    let why = |said: &str| said::document("assist", &tool(said, 0)).unwrap_err();

    assert!(why(r#"{"ended": true, "faults": 0}"#).contains("saw no fault"));
    assert!(why(r#"{"ended": false, "faults": 9}"#).contains("left before the program ended"));
}

#[test]
fn the_doctor_in_the_bench_ends_with_code_2_and_does_not_tell_its_time() {
    let report = r#"{"target": {"ended": true}, "faults": {"seen": 9}}"#;

    assert!(said::own_cpu_ns(&said::document("doctor", &tool(report, 2)).unwrap()).is_nan());
    assert!(said::document("doctor", &tool(report, 0)).is_err());
    let blind = r#"{"target": {"ended": true}, "faults": null}"#;
    assert!(said::document("doctor", &tool(blind, 2)).unwrap_err().contains("saw no fault"));
}

#[test]
fn strides_of_the_bench_count_where_one_run_read_ahead() {
    let read = |bytes: u64| serde_json::json!({ "files": [{ "read_ahead_bytes": 0 }, { "read_ahead_bytes": bytes }] });

    assert_eq!(said::helped("assist", "64k", &[read(0), read(4096)]), Ok(()));
    let why = said::helped("assist", "64k", &[read(0), read(0)]).unwrap_err();
    assert_eq!(why, "assist read nothing ahead of the stride 64k in 2 runs");
    assert!(said::helped("assist", "64k", &[]).is_err());
    for order in ["sequential", "random", "chase"] {
        assert_eq!(said::helped("assist", order, &[read(0)]), Ok(()));
    }
    assert_eq!(said::helped("doctor", "64k", &[read(0)]), Ok(()));
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

    let said = world.majorfault(&["assist", "--", "sh", "-c", "sleep 0.2; echo hello; exit 7"]);

    assert_eq!((said.code, said.output.as_str()), (Some(7), "hello\n"), "{}", said.errors);
    assert_eq!(world.majorfault(&["assist", "--", "sh", "-c", "kill -TERM $$"]).code, Some(128 + 15));
    world.majorfault(&["assist", "--", "no-such-program"]).fails(2, "could not start the program");
}

#[test]
fn who_cannot_be_helped_is_told_in_words() {
    let world = World::new();

    world.majorfault(&["assist", "4194303"]).fails(2, "there is no process 4194303");
    world.majorfault(&["assist", "2"]).fails(2, "kernel thread");
    world.majorfault(&["assist", "1", "--budget", "4k"]).fails(2, "give 64k or more");
    let Some(said) = world.as_nobody(&["assist", &std::process::id().to_string(), "--for", "100ms"]) else { return };
    said.fails(3, "it belongs to user 0, and majorfault runs as user 65534");
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
    let said = world.majorfault(&["trace", "-o", "random.flt", "--", "python3", "random.py"]);
    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.errors.contains("/data: "), "{}", said.errors);
    Some(world)
}

#[test]
fn a_traced_order_is_read_ahead_on_the_next_run() {
    let Some(world) = recorded() else { return };

    let said = world.majorfault(&["assist", "--trace", "random.flt", "--json", "--", "python3", "random.py"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let from = said.errors.find('{').unwrap();
    let json: Value = serde_json::from_str(&said.errors[from..]).unwrap();
    let file = json["files"].as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
    let file = file.unwrap_or_else(|| panic!("{json:#}"));
    // Without the trace nothing is read ahead of such an order. How far ahead we are is a matter of the machine's load.
    let (asked, used) = (number(file, "read_ahead_bytes"), number(file, "used_bytes"));
    assert!(asked > 300 * 4096 && asked < 3300 * 4096, "{file:#}");
    assert!(used * 10 > asked * 9, "{file:#}");
}

#[test]
fn a_trace_is_a_workload_of_compare() {
    let Some(world) = recorded() else { return };

    let said = world.majorfault(&[
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
        "--runtime",
        "60s",
        "--records",
        "records.jsonl",
    ]);

    said.ends_with(&[0, 4]);
    for record in world.records() {
        let accesses =
            record["threads"].as_array().unwrap().iter().map(|it| it["accesses"].as_u64().unwrap()).sum::<u64>();
        assert!((2800..3100).contains(&accesses), "{accesses}: {}", record["trial"]["workload"]);
    }
    world.majorfault(&["compare", "--trace", "random.py"]).fails(2, "random.py cannot be replayed");
}
