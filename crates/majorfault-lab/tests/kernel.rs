//! Guests and kernels as users meet them. What needs neither QEMU nor a kernel runs always; a guest is booted where both
//! are here.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};
use world::World;

/// The variants and names of kernels that are built here.
fn kernels() -> Vec<String> {
    let root = std::env::var("MAJORFAULT_KERNELS").unwrap_or_else(|_| "/var/tmp/majorfault-kernel".to_owned());
    let dirs = fs::read_dir(format!("{root}/kernels")).into_iter().flatten().flatten();
    dirs.filter_map(|dir| dir.file_name().into_string().ok()).collect()
}

/// A kernel to boot, or the reason to skip.
fn kernel(test: &str) -> Option<String> {
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").output().is_ok();
    match (has_qemu, kernels().into_iter().next()) {
        (false, _) => eprintln!("SKIPPED {test}: no QEMU; apt-get install qemu-system-x86"),
        (_, None) => eprintln!("SKIPPED {test}: no kernel is built; majorfault kernel fetch"),
        (true, kernel) => return kernel,
    }
    None
}

#[test]
fn a_place_that_is_none_is_refused_with_those_that_are() {
    let world = World::new();

    world.majorfault(&["compare", "--place", "moon"]).fails(2, "legal is guest");
    world.majorfault(&["compare", "--place", "guest:cpus=0"]).fails(2, "1 to 64");
    world.majorfault(&["reproduce", "S1", "--place", "guest:pmem=3"]).fails(2, "multiples of 2m");
}

#[test]
fn a_file_of_the_host_is_not_in_a_guest() {
    let world = World::new();
    world.file("data", 4096);

    world.majorfault(&["compare", "data", "--place", "guest"]).fails(2, "data is a file of this machine");
}

#[test]
fn without_qemu_the_package_is_named() {
    let world = World::new();

    let said = world.majorfault_with(&["compare", "--place", "guest"], &[("PATH", "/nowhere")]);

    said.fails(3, "apt-get install qemu-system-x86");
}

#[test]
fn a_kernel_that_is_not_built_is_missing_with_the_command_that_builds_it() {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        eprintln!("SKIPPED a_kernel_that_is_not_built_is_missing: no QEMU; apt-get install qemu-system-x86");
        return;
    }
    let world = World::new();
    let none = world.path("kernels");
    let none = none.to_str().unwrap();

    let said = world.majorfault_with(&["kernel", "test", "column"], &[("MAJORFAULT_KERNELS", none)]);

    said.fails(3, "majorfault kernel build strided");
}

#[test]
fn the_first_process_is_nobody_elses_to_be() {
    World::new().majorfault(&["kernel", "init"]).fails(2, "majorfault starts it there");
}

#[test]
fn no_kernel_is_listed_where_none_is_built_and_the_command_is_named() {
    let world = World::new();
    let none = world.path("kernels");

    let said = world.majorfault_with(&["kernel", "list"], &[("MAJORFAULT_KERNELS", none.to_str().unwrap())]);

    said.ends_with(&[0]);
    assert!(said.output.contains("majorfault kernel build plain"), "{}", said.output);
}

#[test]
fn a_guest_runs_a_trial_and_its_records_come_back() {
    let Some(kernel) = kernel("a_guest_runs_a_trial_and_its_records_come_back") else { return };
    let world = World::new();
    let place = format!("guest:kernel={kernel},memory=512m,disk=256m,cpus=2");
    let small = ["--size", "4m", "--number-ios", "50", "--runs", "1", "--memory", "none", "--no-peer"];
    let arms = ["-m", "null", "-m", "mmap", "-m", "pread", "--records", "records.jsonl", "--output-format", "json"];

    let said = world.majorfault(&[&["compare", "--place", &place], &small[..], &arms[..]].concat());

    let records = fs::read_to_string(world.path("records.jsonl")).unwrap_or_else(|_| panic!("{}", said.errors));
    let records: Vec<serde_json::Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Where neighbours keep the processors busy, a run is made again.
    assert!(records.len() >= 3, "{}", said.errors);
    for record in &records {
        assert_eq!(record["outcome"], "done", "{record}");
        assert_eq!(record["machine"]["cpus"], 2);
        let remarks = record["machine"]["remarks"].to_string();
        assert!(remarks.contains("guest of QEMU") && remarks.contains(&kernel), "{remarks}");
    }
    let mapped: Vec<_> = records.iter().filter(|record| record["answer"] == "checked").collect();
    assert!(mapped.len() >= 2, "{records:?}");
}

/// Whether a process with this word in its command line lives.
fn lives(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| {
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("qemu-system") && line.contains(word)
    })
}

/// Waits until a thing is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_majorfault_leaves_no_guest_behind() {
    let Some(kernel) = kernel("a_killed_majorfault_leaves_no_guest_behind") else { return };
    // The size of the memory tells this guest from others.
    let place = format!("guest:kernel={kernel},memory=317m,disk=64m,cpus=1,accel=tcg");
    let mut child = Command::new(env!("CARGO_BIN_EXE_majorfault"))
        .args(["kernel", "run", "--place", &place, "--", "list", "methods"])
        .spawn()
        .unwrap();
    until("a guest runs", || lives("size=317M") || child.try_wait().unwrap().is_some());

    child.kill().unwrap();
    child.wait().unwrap();

    until("the guest is gone", || !lives("size=317M"));
}

#[test]
fn a_guest_that_lacks_an_option_says_which_and_ends() {
    let Some(kernel) = kernel("a_guest_that_lacks_an_option_says_which_and_ends") else { return };
    let world = World::new();
    // A command line of the kernel cannot be given by users; a file system that the kernel does not have can.
    if kernel.ends_with("-stock") {
        let place = format!("guest:kernel={kernel},memory=512m,disk=64m,delay_ms=10");
        world
            .majorfault(&["kernel", "run", "--place", &place, "--", "list", "methods"])
            .fails(2, "it needs CONFIG_DM_DELAY and CONFIG_DM_INIT");
    } else {
        eprintln!("SKIPPED a_guest_that_lacks_an_option: our own kernels have all; majorfault kernel fetch");
    }
}

#[test]
fn a_program_that_fails_in_the_guest_fails_here_with_its_code() {
    let Some(kernel) = kernel("a_program_that_fails_in_the_guest_fails_here_with_its_code") else { return };
    let world = World::new();
    let place = format!("guest:kernel={kernel},memory=512m,disk=64m");

    let said = world.majorfault(&["kernel", "run", "--place", &place, "--", "compare", "no-such-file"]);

    said.fails(2, "could not open the file (no-such-file");
}
