//! The doctor before programs that others wrote: databases and libraries on a cold disk, and healthy ones.
#![allow(unsafe_code, reason = "programs are told to end with the test that starts them")]

mod programs;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use programs::{Program, has_module, has_program};
use serde_json::Value;
use world::{World, facility};

fn samples() -> bool {
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// Findings as "rule severity scope", the scope's directory left out.
fn findings(report: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let short = |finding: &Value| {
        let scope = text(&finding["scope"]);
        format!("{} {}", text(&finding["rule"]), scope.rsplit('/').next().unwrap())
    };
    report["findings"].as_array().unwrap().iter().map(short).collect()
}

/// The remedy of a rule's finding about a file.
fn remedy(report: &Value, rule: &str, file: &str) -> String {
    let all = report["findings"].as_array().unwrap();
    let is = |found: &&Value| found["rule"] == rule && found["scope"].as_str().unwrap().ends_with(file);
    let found = all.iter().find(is).unwrap_or_else(|| panic!("{rule} of {file} is not found:\n{report:#}"));
    found["remedy"].as_str().unwrap().to_owned()
}

/// The rules whose findings the first finding explains.
fn explained(report: &Value) -> Vec<String> {
    let all = report["findings"][0]["consequences"].as_array().unwrap();
    all.iter().map(|it| it["rule"].as_str().unwrap().to_owned()).collect()
}

/// The order of the faults in a file.
fn order(report: &Value, file: &str) -> Value {
    let is = |it: &&Value| it["path"].as_str().unwrap().ends_with(file);
    let found = report["files"].as_array().unwrap().iter().find(is);
    found.unwrap_or_else(|| panic!("{file} is not listed:\n{report:#}"))["order"]["pattern"].clone()
}

/// Raises nothing, not even a note, while all was looked at; `is_seen` says by the report that what the program does was
/// among it. Where faults cannot be seen, to raise nothing would be no news.
fn raises_nothing(world: &World, program: Program, is_seen: fn(&Value) -> bool) {
    if let Some(report) = healthy_report(world, program, is_seen, "note") {
        assert_eq!(findings(&report), [] as [String; 0], "{report:#}");
    }
}

/// The same where a note of one rule may be raised.
fn raises_no_more_than_a_note(world: &World, program: Program, is_seen: fn(&Value) -> bool, rule: &str) {
    let Some(report) = healthy_report(world, program, is_seen, "warning") else { return };
    let is_other = |finding: &String| finding.split(' ').next() != Some(rule);
    let others: Vec<String> = findings(&report).into_iter().filter(is_other).collect();

    assert_eq!(others, [] as [String; 0], "{report:#}");
}

/// The report of a whole watch of a program with nothing as bad as `least`; none (listed as skipped) where no faults are seen.
fn healthy_report(world: &World, mut program: Program, is_seen: fn(&Value) -> bool, least: &str) -> Option<Value> {
    if !samples() {
        return None;
    }
    let said = program.examined(world, &["--deep", "--fail-on", least]);
    let report = said.json();

    assert!(is_complete(&report) && is_seen(&report), "not all was seen: {report:#}");
    assert_eq!(said.code, Some(0), "{}\n{}", said.output, said.errors);
    Some(report)
}

/// Whether the report is of a whole watch with faults, calls and smaps.
fn is_complete(report: &Value) -> bool {
    let lacks = |what: &str| report["missing"].as_array().unwrap().iter().any(|gap| gap["what"] == what);
    let is_told = !report["faults"].is_null() && !report["calls"].is_null();
    is_told
        && !lacks("advice in force and page sizes")
        && report["watched_ns"].as_u64() >= Some(1_900_000_000)
        && report["target"]["ended"] == false
}

/// Whether a file of this name is mapped.
fn maps(report: &Value, name: &str) -> bool {
    report["files"].as_array().unwrap().iter().any(|file| file["path"].as_str().is_some_and(|it| it.ends_with(name)))
}

/// Whether read calls returned some MiB.
fn reads(report: &Value) -> bool {
    report["calls"]["read_call_bytes"].as_u64() >= Some(4 << 20)
}

/// Whether it was there at all: programs that do nothing.
fn is_idle(report: &Value) -> bool {
    report["process"]["mappings"].as_u64() > Some(0) && report["faults"]["in_files"].as_u64() < Some(100)
}

#[test]
fn random_rows_of_a_cold_sqlite_table_wait_and_flood() {
    if !(samples() && has_module("sqlite3", "python3")) {
        return;
    }
    let world = World::new();
    let mut program = Program::script(&world, "sqlite_cold.py", &[]);

    let report = program.examined(&world, &[]).json();

    assert_eq!(order(&report, "/data.db")["name"], "random", "{report:#}");
    assert!(remedy(&report, "read_ahead_flood", "/data.db").contains("PRAGMA mmap_size=0"), "{report:#}");
    assert_eq!(explained(&report), ["fault_stall"], "{report:#}");
    assert_eq!(findings(&report).len(), 1, "more than that is a false alarm: {report:#}");
}

#[test]
fn random_keys_of_a_cold_lmdb_map_wait_and_flood() {
    if !(samples() && has_module("lmdb", "python3-lmdb")) {
        return;
    }
    let world = World::new();
    let mut program = Program::script(&world, "lmdb_lookups.py", &["cold"]);

    let report = program.examined(&world, &[]).json();

    assert_eq!(order(&report, "/data.mdb")["name"], "random", "{report:#}");
    assert!(remedy(&report, "read_ahead_flood", "/data.mdb").contains("MDB_NORDAHEAD"), "{report:#}");
    assert_eq!(explained(&report), ["fault_stall"], "{report:#}");
    assert_eq!(findings(&report).len(), 1, "more than that is a false alarm: {report:#}");
}

#[test]
fn lmdb_opened_as_the_doctor_says_floods_no_more() {
    if !(samples() && has_module("lmdb", "python3-lmdb")) {
        return;
    }
    let world = World::new();
    let mut program = Program::script(&world, "lmdb_lookups.py", &["cold_nordahead"]);

    let report = program.examined(&world, &[]).json();

    assert_eq!(findings(&report), ["fault_stall data.mdb"], "{report:#}");
    assert!(remedy(&report, "fault_stall", "/data.mdb").contains("LMDB: look up from many threads"), "{report:#}");
}

#[test]
fn columns_of_a_cold_numpy_matrix_wait_with_the_stride_of_a_row() {
    if !(samples() && has_module("numpy", "python3-numpy")) {
        return;
    }
    let world = World::new();
    let mut program = Program::script(&world, "numpy_memmap.py", &["cold_columns"]);

    let report = program.examined(&world, &[]).json();

    // Long read-ahead makes huge folios, of which each maps two rows.
    let stride = order(&report, "/matrix.bin")["stride_bytes"].clone();
    assert!(stride == 1 << 20 || stride == 2 << 20, "{report:#}");
    assert_eq!(findings(&report), ["read_ahead_flood matrix.bin"], "{report:#}");
    let remedy = remedy(&report, "read_ahead_flood", "/matrix.bin");
    assert!(remedy.starts_with("ask for the next 64 steps") && remedy.contains("numpy: m._mmap.madvise"), "{report:#}");
}

/// A Redis server with 300 MB, that listens on a socket file only.
fn redis(world: &World) -> Option<Program> {
    if !(has_program("redis-server", "redis-server") && has_program("redis-cli", "redis-tools")) {
        return None;
    }
    let arguments = ["--port", "0", "--unixsocket", "socket", "--save", "", "--rdbcompression", "no"];
    let server = Program::start(world, "redis-server", &arguments);
    world.wait_for("redis", || world.path("socket").exists());
    let fill = "for i=1,330000 do redis.call('SET','k'..i,string.rep('x',900)..i) end";
    assert!(world.shell(&format!("redis-cli -s socket EVAL \"{fill}\" 0 >/dev/null")));
    Some(server)
}

/// A client that sends the same command for ever.
fn client(world: &World, pause: &str, command: &[&str]) -> Program {
    Program::start(world, "redis-cli", &[&["-s", "socket", "-r", "-1", "-i", pause], command].concat())
}

/// The report of a time in which it forked: where the machine is busy, one save may last longer than we watch.
fn while_forking(server: &mut Program, world: &World) -> Value {
    let mut reports = (0..10).map(|_| server.examined(world, &[]).json());
    reports.find(|report| report["faults"]["forks"] != 0).expect("it never forked")
}

#[test]
fn an_idle_redis_raises_no_more_than_a_note_on_its_large_heap_of_small_pages() {
    let world = World::new();
    let Some(server) = redis(&world) else { return };

    raises_no_more_than_a_note(&world, server, is_idle, "huge_off");
}

#[test]
fn a_redis_that_only_saves_raises_nothing_and_one_that_is_written_to_forks_dearly() {
    if !samples() {
        return;
    }
    let world = World::new();
    let Some(mut server) = redis(&world) else { return };

    let _saves = client(&world, "0.3", &["BGSAVE"]);
    let quiet = while_forking(&mut server, &world);
    let write = "for i=1,5000 do redis.call('SETRANGE','k'..math.random(330000),7,'y') end";
    let _writes = client(&world, "0.01", &["EVAL", write, "0"]);
    let written = while_forking(&mut server, &world);

    assert_eq!(findings(&quiet), [] as [String; 0], "{quiet:#}");
    assert_eq!(findings(&written), ["fork_large process"], "{written:#}");
}

#[test]
fn warm_lmdb_lookups_raise_nothing() {
    if has_module("lmdb", "python3-lmdb") {
        let world = World::new();
        raises_nothing(&world, Program::script(&world, "lmdb_lookups.py", &["warm"]), |report| {
            maps(report, "/data.mdb")
        });
    }
}

#[test]
fn warm_numpy_rows_raise_nothing() {
    if has_module("numpy", "python3-numpy") {
        let world = World::new();
        raises_nothing(&world, Program::script(&world, "numpy_memmap.py", &["warm_rows"]), |report| {
            maps(report, "/matrix.bin")
        });
    }
}

#[test]
fn a_warm_sqlite_table_raises_no_more_than_a_note_on_copies() {
    if !has_program("sqlite3", "sqlite3") {
        return;
    }
    let world = World::new();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50000)";
    let made =
        format!("CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB); INSERT INTO t {rows} SELECT i, randomblob(1000)");
    assert!(world.shell(&format!("sqlite3 data.db '{made} FROM n'")));
    // Fifty thousand passes over the table: far longer than anybody waits.
    let is_seen: [fn(&Value) -> bool; 2] = [reads, |report| maps(report, "/data.db")];
    for (mapped, is_seen) in ["0", "1000000000"].into_iter().zip(is_seen) {
        let passes = format!("{rows} SELECT count(substr(t.v, 500, 1)) FROM n CROSS JOIN t");
        let query = format!("PRAGMA mmap_size={mapped}; {passes}");
        let program = Program::start(&world, "sqlite3", &["data.db", &query]);
        raises_no_more_than_a_note(&world, program, is_seen, "double_buffering");
    }
}

/// A script of healthy.py.
fn healthy(mode: &str, is_seen: fn(&Value) -> bool) {
    if has_module("mmap", "python3") {
        let world = World::new();
        raises_nothing(&world, Program::script(&world, "healthy.py", &[mode]), is_seen);
    }
}

#[test]
fn an_idle_python_raises_nothing() {
    healthy("idle", is_idle);
}

#[test]
fn reading_a_cold_file_from_start_to_end_raises_nothing() {
    healthy("read", reads);
}

#[test]
fn a_cold_scan_that_read_ahead_keeps_before_raises_nothing() {
    healthy("scan", |report| report["faults"]["in_files"].as_u64() >= Some(100));
}

#[test]
fn making_many_objects_raises_nothing() {
    healthy("objects", |report| report["faults"]["anonymous"].as_u64() >= Some(100));
}

#[test]
fn tools_that_read_cached_files_again_and_again_raise_no_more_than_a_note_on_that() {
    let world = World::new();
    world.file("data", 128 << 20);
    let again = ["data"; 500];
    for (name, first) in [("gzip", "-1c"), ("sha256sum", "-b"), ("grep", "-c\nno such line")] {
        if has_program(name, name) {
            let arguments: Vec<&str> = first.split('\n').chain(again).collect();
            raises_no_more_than_a_note(&world, Program::start(&world, name, &arguments), reads, "double_buffering");
        }
    }
}

#[test]
fn a_tail_that_follows_raises_nothing() {
    let world = World::new();
    world.file("data", 16 << 20);
    raises_nothing(&world, Program::start(&world, "tail", &["-f", "data"]), is_idle);
}
