//! The first thing that a user runs, as they run it: what it must show on any machine, busy or not.
//!
//! Left out of the other tests because it takes a minute: `test.sh` runs it at its end; `test.sh --release` runs it as a user builds it.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use serde_json::Value;
use world::World;

fn gates(record: &Value) -> &[Value] {
    record["gates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_control(record: &Value) -> bool {
    record["trial"]["arm"]["method"]["name"] == "null"
}

/// What spoiled a run, other than a neighbour.
fn own_faults(records: &[Value]) -> Vec<String> {
    let spoiled = records.iter().flat_map(gates).filter(|gate| gate["finding"] == "spoiled");
    let ours = spoiled.filter(|gate| gate["by"] != "others");
    ours.map(|gate| format!("{}: {}", gate["name"], gate["says"])).collect()
}

fn is_disturbed(records: &[Value]) -> bool {
    records.iter().flat_map(gates).any(|gate| gate["finding"] == "spoiled")
}

#[test]
#[ignore = "takes a minute: cargo test --release --test first_run -- --ignored"]
fn a_comparison_without_any_word_shows_answers_records_gates_and_a_page() {
    let world = World::new();

    let said = world.majorfault(&["compare", "--quiet", "--records", "records.jsonl", "--report", "page.html"]);

    let records = world.records();
    assert_eq!(own_faults(&records), Vec::<String>::new(), "{}", said.output);
    said.ends_with(if is_disturbed(&records) { &[0, 4] } else { &[0] });
    for record in records.iter().filter(|record| record["trial"]["arm"]["method"].is_object()) {
        let arm = &record["trial"]["arm"]["method"];
        assert_eq!(record["outcome"], "done", "{arm}");
        assert!(is_control(record) || record["answer"] == "checked", "{arm}: {}", record["answer"]);
    }
    assert_gates_live(&records);
    // Those that are surely behind are stopped after three runs.
    assert_each_ran(
        &records,
        if is_disturbed(&records) { 1 } else { 3 },
        &["null", "mmap", "pread", "direct", "uring"],
    );
    let page = world.text("page.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.trim_end().ends_with("</html>"));
    assert!(said.output.contains("Measured on"), "{}", said.output);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

/// Each run was asked whether it began cold, read from the device, had neighbours, and saw the right bytes.
fn assert_gates_live(records: &[Value]) {
    for record in records.iter().filter(|record| record["trial"]["arm"]["method"].is_object() && !is_control(record)) {
        for name in ["cold", "device bytes", "busy machine", "answer"] {
            let is_asked = gates(record).iter().any(|gate| gate["name"] == name);
            assert!(is_asked, "{}: nobody asked for \"{name}\"", record["trial"]["arm"]["method"]);
        }
    }
}

fn assert_each_ran(records: &[Value], times: usize, methods: &[&str]) {
    for name in methods {
        let runs = records.iter().filter(|record| record["trial"]["arm"]["method"]["name"] == *name).count();
        assert!(runs >= times, "{name} ran {runs} times");
    }
}

#[test]
fn a_neighbour_is_no_fault_of_ours_and_anything_else_is() {
    let gate = |name: &str, finding: &str, by: &str| serde_json::json!({ "gates": [{ "name": name, "finding": finding, "says": "so", "by": by }] });
    let fine = gate("cold", "fine", "setup");

    assert_eq!(own_faults(&[gate("busy machine", "spoiled", "others"), fine.clone()]), Vec::<String>::new());
    assert_eq!(own_faults(&[gate("cold", "spoiled", "setup")]), ["\"cold\": \"so\""]);
    assert!(is_disturbed(&[gate("steal", "spoiled", "others")]) && !is_disturbed(&[fine]));
}
