//! `majorfault compare -- COMMAND` as a user calls it: a program of one's own in turns. Times are others' business; asserted
//! are bytes, results, and what is said.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use serde_json::Value;
use world::{Said, World, facility};

/// The document about `command` with these options before it.
fn compared(world: &World, options: &[&str], command: &[&str]) -> (Said, Value) {
    let said = world.majorfault(&[&["compare", "-q", "--json"], options, &["--"], command].concat());
    let document: Value = serde_json::from_str(&said.output).unwrap_or(Value::Null);
    // The one command's, with the document's own version.
    let mut command = document["commands"][0].clone();
    command["format"] = document["format"].clone();
    (said, command)
}

fn way<'d>(document: &'d Value, name: &str) -> &'d Value {
    let ways = document["ways"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    ways.iter().find(|way| way["name"] == name).unwrap_or_else(|| panic!("no {name}: {document:#}"))
}

/// All runs of a way, those that others disturbed, too.
fn runs(way: &Value) -> Vec<Value> {
    [way["runs"].as_array().unwrap().clone(), way["disturbed_runs"].as_array().unwrap().clone()].concat()
}

#[test]
fn every_way_runs_the_program_cold_and_sees_what_it_prints() {
    let world = World::new();
    world.file("data file", 8 << 20);

    let (_, document) = compared(&world, &["--runs", "2"], &["cat", "data file"]);

    assert_eq!(document["format"], "majorfault.programs/2");
    assert_eq!(document["files"], serde_json::json!(["data file"]));
    for name in ["untouched", "assist", "trace", "load"] {
        let way = way(&document, name);
        assert_eq!(way["refused"], Value::Null, "{name}");
        assert_eq!(runs(way).len(), 2, "{name}");
        for run in runs(way) {
            assert_eq!((&run["output_bytes"], &run["exit_code"]), (&(8 << 20).into(), &0.into()), "{name}");
            assert!(run["counters"]["process_read_bytes"].as_u64().unwrap() >= 8 << 20, "cold: {name} {run:#}");
        }
    }
}

#[test]
fn as_it_is_nothing_is_dropped() {
    let world = World::new();
    world.file("data", 8 << 20);

    let (_, document) =
        compared(&world, &["--runs", "1", "--warmup", "1", "--cache", "asis", "--way", "load"], &["cat", "data"]);

    for name in ["untouched", "load"] {
        assert_eq!(runs(way(&document, name))[0]["counters"]["process_read_bytes"], 0, "{name}");
    }
}

#[test]
fn one_run_is_no_verdict_and_the_exit_code_says_so() {
    let (said, document) = compared(&World::new(), &["--runs", "1", "--way", "untouched"], &["true"]);

    assert!(["run_more", "not_valid"].contains(&document["answer"]["kind"].as_str().unwrap()), "{document:#}");
    assert_eq!(said.code, Some(4));
}

#[test]
fn a_way_that_changes_what_is_printed_is_refused() {
    // The parent's command line is longer where the assistant started the program.
    let (_, document) = compared(
        &World::new(),
        &["--runs", "1", "--way", "assist"],
        &["sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline"],
    );

    let why = way(&document, "assist")["refused"].as_str().unwrap_or_else(|| panic!("{document:#}")).to_owned();
    assert!(why.starts_with("it prints something else ("), "{why}");
    assert_eq!(way(&document, "untouched")["refused"], Value::Null);
}

#[test]
fn a_program_that_prints_something_else_each_time_is_no_measure() {
    let (said, document) =
        compared(&World::new(), &["--runs", "2", "--way", "untouched"], &["cat", "/proc/sys/kernel/random/uuid"]);

    assert_eq!((said.code, document["answer"]["kind"].as_str()), (Some(4), Some("no_measure")));
}

#[test]
fn an_exit_code_is_part_of_the_result() {
    let world = World::new();

    let said = world.majorfault(&["compare", "-q", "--runs", "1", "--way", "assist", "--", "sh", "-c", "exit 7"]);

    assert!(said.output.contains("the program ends with exit code 7"), "{}", said.output);
    assert!(!said.output.contains("instead of"), "{}", said.output);
}

#[test]
fn memory_that_is_too_small_refuses_that_turn_alone() {
    let world = World::new();
    let found = world.majorfault(&["probe"]).output.contains("memory limit");
    let limit = if found { Ok(()) } else { Err("no right to limit memory".to_owned()) };
    if !facility("memory limit", limit) {
        return;
    }
    let program = ["sh", "-c", "head -c 40000000 /dev/zero | tail -c 30000000 | wc -c"];

    let (_, document) = compared(&world, &["--runs", "1", "--way", "untouched", "--also-memory", "12m"], &program);

    assert_eq!(way(&document, "untouched, no limit")["refused"], Value::Null);
    let why = way(&document, "untouched, memory 12m")["refused"].as_str().unwrap_or_default().to_owned();
    assert_eq!(why, "the kernel killed it for want of memory; give --memory more");
}

#[test]
fn preparing_runs_before_each_run_and_its_failure_ends_the_comparison() {
    let world = World::new();

    compared(&world, &["--runs", "2", "--way", "untouched", "--prepare", "echo ran >>prepared"], &["true"]);

    assert!(world.text("prepared").lines().count() >= 2);
    let (said, _) = compared(&world, &["--runs", "2", "--prepare", "exit 5"], &["true"]);
    said.fails(2, "--prepare exit 5 ended with exit status: 5");
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    let world = World::new();

    compared(&world, &[], &["no-such-program"]).0.fails(2, "there is no program no-such-program");
    compared(&world, &["nothing"], &["true"]).0.fails(2, "nothing is no file");
    compared(&world, &["--bs", "4k"], &["true"]).0.fails(2, "cannot be used with");
    compared(&world, &["--way", "magic"], &["true"]).0.fails(2, "there is no way magic");
    compared(&world, &["--cache", "warm"], &["true"]).0.fails(2, "--cache asis --warmup 1 runs it warm");
    let said = world.majorfault(&["compare", "--way", "load"]);
    assert_eq!(said.code, Some(2), "{}", said.errors);
}

#[test]
fn the_load_needs_to_know_the_files() {
    let (_, document) = compared(&World::new(), &["--runs", "1", "--way", "load"], &["true"]);

    assert_eq!(way(&document, "load")["refused"], "no file of the program is known; name files before --");
}

#[test]
fn an_interrupt_ends_the_program_and_leaves_nothing_behind() {
    let world = World::new();
    let running = world.start_plain(&["compare", "-q", "--runs", "9", "--", "sh", "-c", "echo $$ >pid; sleep 600"]);
    world.wait_for("the program", || !world.text_or_empty("pid").is_empty());
    let program = format!("/proc/{}", world.text("pid").trim());

    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(130), "{}", said.errors);
    world.wait_for("the program's end", || !std::path::Path::new(&program).exists());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn each_choice_of_parameters_is_a_command_and_every_run_is_exported() {
    let world = World::new();
    let exports = ["--export-csv", "runs.csv", "--export-json", "runs.json", "--export-markdown", "runs.md"];
    let given = ["-L", "first", "a,b", "-L", "second", "x,y", "--runs", "1", "--way", "load", "-q"];
    for name in ["a-x", "a-y", "b-x", "b-y"] {
        std::fs::write(world.path(name), name.repeat(100)).unwrap();
    }

    let said = world.majorfault(&[&["compare"], &given[..], &exports, &["--", "cat", "{first}-{second}"]].concat());

    said.ends_with(&[4]);
    let lines: Vec<String> = world.text("runs.csv").lines().map(str::to_owned).collect();
    let header = "first,second,way,repetition,counts,seconds,exit_code,major_faults,read_bytes,processor_s";
    assert_eq!((lines[0].as_str(), lines.len()), (header, 9), "{lines:?}");
    assert!(lines[8].starts_with("b,y,load,0,"), "{}", lines[8]);
    let document: Value = serde_json::from_str(&world.text("runs.json")).unwrap();
    let variants = document["commands"].as_array().unwrap();
    assert_eq!(variants[2]["parameters"], serde_json::json!({"first": "b", "second": "x"}));
    assert_eq!(
        (&variants[2]["program"], &variants[2]["files"]),
        (&serde_json::json!(["cat", "b-x"]), &serde_json::json!(["b-x"]))
    );
    let beside: Vec<&Value> = document["between"].as_array().unwrap().iter().map(|way| &way["name"]).collect();
    assert_eq!((beside.len(), beside[2]), (4, &Value::from("first=b, second=x: untouched")));
    assert_eq!(
        document["between"][2]["runs"].as_array().unwrap().len()
            + document["between"][2]["disturbed_runs"].as_array().unwrap().len(),
        1
    );
    assert!(world.text("runs.md").contains("| first=a, second=y: load |"), "{}", world.text("runs.md"));
    assert_eq!(
        world.text("runs.md").matches("| first=a, second=y: untouched |").count(),
        2,
        "{}",
        world.text("runs.md")
    );
    let between = said.output.split("The command with each choice of parameters").nth(1).unwrap();
    assert!(between.contains("first=b, second=y: untouched"), "{between}");
}

#[test]
fn an_export_never_takes_the_place_of_another_file() {
    let world = World::new();
    std::fs::write(world.path("mine.csv"), "my,own,table\n").unwrap();
    let call = ["compare", "--runs", "1", "--way", "untouched", "-q", "--export-csv", "mine.csv", "--", "true"];

    world.majorfault(&call).fails(2, "is not an export of majorfault compare");
    assert_eq!(world.text("mine.csv"), "my,own,table\n");
    let again = ["compare", "--runs", "1", "--way", "untouched", "-q", "--export-csv", "runs.csv", "--", "true"];
    world.majorfault(&again).ends_with(&[4]);
    world.majorfault(&again).ends_with(&[4]);

    assert_eq!(world.text("runs.csv").lines().count(), 2, "an export of ours is replaced");
    let read = ["compare", "-L", "n", "mine", "-q", "--force", "--export-csv", "mine.csv", "--", "cat", "{n}.csv"];
    world.majorfault(&read).fails(2, "mine.csv");
    assert_eq!(world.text("mine.csv"), "my,own,table\n", "what the program reads is no output, whatever is forced");
}

#[test]
fn a_list_of_values_that_the_command_does_not_take_is_refused_before_anything_runs() {
    let world = World::new();

    world.majorfault(&["compare", "-L", "n", "1,2", "--", "touch", "made"]).fails(2, "write the name in braces");

    assert!(!world.path("made").exists());
}
