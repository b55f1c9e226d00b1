//! `majorfault run` under version 2 of the cgroups: a guest with Debian's stock kernel and a disk that is swapped to. What it computes is the
//! same as here, nothing is killed, and streams are helped; by counts, because times of a guest are emulated.

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "../benches/beyond_memory/patterns.rs"]
mod patterns;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use serde_json::Value;
use std::process::Command;
use world::{Said, World, facility};

/// Bytes of a program's block, of which half may be in memory.
const BLOCK: usize = 40 << 20;
const LIMIT: &str = "20m";

#[test]
#[ignore = "the program, when it is started as one"]
fn seqread() {
    patterns::run("seqread", BLOCK).unwrap();
}

#[test]
#[ignore = "the program, when it is started as one"]
fn randrmw() {
    patterns::run("randrmw", BLOCK).unwrap();
}

/// A stock kernel of Linux 6, where a guest can be booted.
fn kernel() -> Option<String> {
    let said = World::new().majorfault(&["kernel", "list", "--json"]);
    let listed: Value = serde_json::from_str(&said.output).unwrap_or_default();
    // memory.peak is counted from Linux 5.19 on; a kernel of another processor would need our program for that one.
    let suits = |name: &&str| name.starts_with("6.") && name.ends_with("amd64-stock");
    let names = listed.as_array().into_iter().flatten().filter_map(|kernel| kernel["name"].as_str());
    let name = names.filter(|name| suits(name)).map(str::to_owned).next();
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").output().is_ok();
    let qemu = if has_qemu { Ok(()) } else { Err("apt-get install qemu-system-x86".to_owned()) };
    let fetched = name.as_ref().map(drop).ok_or_else(|| "majorfault kernel fetch".to_owned());
    (facility("guests", qemu) && facility("a stock kernel", fetched)).then_some(name).flatten()
}

/// Runs one of the programs within the limit in a guest.
fn run(kernel: &str, program: &str, more: &[&str]) -> Said {
    let own = std::env::current_exe().unwrap();
    let brought = format!("/brought/{}", own.file_name().unwrap().to_str().unwrap());
    let place = format!("guest:kernel={kernel},cpus=2,memory=768m,disk=64m,swap=256m");
    let guest = [
        "kernel",
        "run",
        "--place",
        &place,
        "--bring",
        own.to_str().unwrap(),
        "--",
        "run",
        "--json",
        "--memory",
        LIMIT,
    ];
    World::new().majorfault(&[&guest, more, &["--", &brought, program, "--exact", "--ignored", "--nocapture"]].concat())
}

/// The sum that a program prints.
fn sum(output: &str) -> String {
    let line = output.lines().find(|line| line.split(' ').count() == 3 && line.contains('.'));
    line.unwrap_or_else(|| panic!("{output}")).split(' ').next().unwrap().to_owned()
}

fn here(program: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let said = Command::new(own).args([program, "--exact", "--ignored", "--nocapture"]).output().unwrap();
    sum(&String::from_utf8(said.stdout).unwrap())
}

/// The outcome of a run in which nobody was killed, and whose program computed what it computes here.
fn outcome(said: &Said, program: &str) -> Value {
    assert_eq!(said.code, Some(0), "{}\n{}", said.output, said.errors);
    assert_eq!(sum(&said.output), here(program));
    let at = said.errors.find("{\n").unwrap_or_else(|| panic!("{}", said.errors));
    let mut told: Value = serde_json::from_str(&said.errors[at..]).unwrap();
    // Hundreds of numbers, in the way of those that are looked at.
    told.as_object_mut().unwrap().remove("timeline");
    assert_eq!((&told["oom_kills"], &told["limit_raised"]["allowed_bytes"]), (&0.into(), &0.into()), "{told:#}");
    assert!(told["most_swapped_bytes"].as_u64().unwrap() > 8 << 20, "{told:#}");
    assert!(told["peak_bytes"].as_u64().unwrap() <= 20 << 20, "{told:#}");
    assert!(told["stalled_ns"].as_u64().is_some_and(|stalled| stalled > 0), "{told:#}");
    told
}

fn number(told: &Value, at: &str) -> u64 {
    told.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at}: {told:#}"))
}

#[test]
fn under_version_2_nobody_is_killed_streams_are_helped_and_others_left_alone() {
    let Some(kernel) = kernel() else { return };

    let plain = outcome(&run(&kernel, "seqread", &["--no-advice"]), "seqread");
    let helped = outcome(&run(&kernel, "seqread", &[]), "seqread");
    let random = outcome(&run(&kernel, "randrmw", &[]), "randrmw");

    let [fetched, used] = ["/advised/fetched_bytes", "/advised/used_bytes"].map(|at| number(&helped, at));
    // How much is read ahead, and in time, is a matter of the machine's load, twice so where it is emulated.
    assert!(fetched > 4 << 20 && used * 10 > fetched * 8, "{helped:#}");
    assert_eq!(number(&plain, "/advised/fetched_bytes"), 0);
    assert!(number(&random, "/advised/fetched_bytes") < 4 << 20, "{random:#}");
}
