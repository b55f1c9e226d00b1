//! A whole machine: what loses time in file access is found, told with its files, and examined.
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
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

fn find(list: &Value, is_it: impl Fn(&Value) -> bool) -> &Value {
    list.as_array().unwrap().iter().find(|it| is_it(it)).unwrap_or_else(|| panic!("not found in {list:#}"))
}

#[test]
fn a_process_that_waits_is_told_with_its_file_and_its_group() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "strided");

    let said = world.majorfault(&["top", "--once", "--json", "--every", "1s", "--sample", "32"]);

    let picture = said.json();
    let process = find(&picture["processes"], |it| it["pid"] == plant.pid());
    assert!(process["fault_wait_ns"].as_u64() > Some(0) && process["major_faults"].as_u64() > Some(50), "{process:#}");
    let data = world.path("data");
    let file = find(&picture["files"], |it| it["path"] == data.to_str().unwrap());
    assert!(file["waited_ns"].as_u64() > Some(0) && file["pid"] == plant.pid(), "{file:#}");
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", plant.pid())).unwrap();
    let group = find(&picture["groups"], |it| groups.contains(it["path"].as_str().unwrap()));
    assert!(group["major_faults"].as_u64() >= process["major_faults"].as_u64(), "{group:#}");
    assert!(plant.runs(), "the program was harmed");
}

#[test]
fn the_screen_fits_24_lines_of_100_columns() {
    let world = World::new();
    let said = world.majorfault(&["top", "--once", "--every", "200ms"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.output.starts_with("majorfault top: "), "{}", said.output);
    assert!(said.output.lines().count() <= 24, "{}", said.output);
    assert!(said.output.lines().all(|line| line.chars().count() <= 100), "{}", said.output);
}

#[test]
fn the_worst_processes_of_the_machine_are_examined() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "strided");

    let said = world.majorfault(&["doctor", "--all", "--for", "2s", "--json"]);

    let report = said.json();
    let others = report["processes"].as_array().unwrap().iter();
    let seen: Vec<_> = others.chain([&report]).filter(|it| it["target"]["pid"] == plant.pid()).collect();
    assert_eq!(seen.len(), 1, "{report:#}");
    find(&report["findings"], |finding| finding["rule"] == "fault_stall");
    assert!(plant.runs(), "the program was harmed");
}

#[test]
fn an_interval_that_would_cost_too_much_is_refused() {
    let said = World::new().majorfault(&["top", "--every", "1ms"]);

    assert_eq!(said.code, Some(2));
    assert!(said.errors.contains("give 100ms or more"), "{}", said.errors);
}

#[test]
fn the_nodes_metrics_name_groups_and_no_processes_and_no_files() {
    let world = World::new();
    let plant = Plant::start(&world, "strided");

    let running = world.start_plain(&["doctor", "--all", "--textfile", "node.prom", "--for", "500ms"]);
    let is_there = || world.text_or_empty("node.prom").contains("majorfault_group_major_faults_total{groupname=");
    world.wait_for("the metrics", is_there);
    running.signal("INT");

    let text = world.text("node.prom");
    assert!(!text.contains("pid=") && !text.contains("/data") && !text.contains("# EOF"), "{text}");
    assert!(plant.runs(), "the program was harmed");
}

/// The unit with a program that is surely there in place of ours.
#[test]
fn the_unit_is_one_that_systemd_understands() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/majorfault-doctor.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/majorfault ")).unwrap();
    let world = World::new();
    // Nor is our manual page installed here.
    let there = text.replace("/usr/bin/majorfault", "/bin/true").replace("Documentation=man:majorfault(1)\n", "");
    std::fs::write(world.path("majorfault-doctor.service"), there).unwrap();

    let mut verify = std::process::Command::new("systemd-analyze");
    verify.args(["verify", "majorfault-doctor.service"]).current_dir(world.path(""));
    let Ok(verified) = verify.output() else {
        facility("systemd-analyze", Err("it is not installed".to_owned()));
        return;
    };

    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", String::from_utf8_lossy(&verified.stderr));
    // Its command is one of ours, which ends where it is refused.
    let said =
        world.majorfault(&[&start.split(' ').collect::<Vec<_>>()[..], &["--textfile", "/no/such.prom"]].concat());
    assert!(said.errors.contains("/no/such.prom"), "{}", said.errors);
}
