//! Guests and kernels as users meet them. What needs neither QEMU nor a kernel runs always; a guest is booted where both
//! are here.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::fs;
use std::os::unix::fs::FileExt;
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

/// Whether the guest of this process has come so far that the kernel was started: its console is a file of ours.
fn boots(pid: u32) -> bool {
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let files = opened.filter(|entry| entry.metadata().is_ok() && entry.path().is_file());
    let mut heads = files.filter_map(|entry| {
        let mut head = vec![0; 4096];
        let length = fs::File::open(entry.path()).ok()?.read_at(&mut head, 0).ok()?;
        Some(String::from_utf8_lossy(&head[..length]).into_owned())
    });
    heads.any(|head| head.contains("Booting from ROM"))
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
        .args(["kernel", "run", "--place", &place, "--", "compare", "--size", "16m", "-m", "null", "--no-peer"])
        // Longer than the guest is waited for: it does not end by itself.
        .args(["--rw", "randread", "--runtime", "600s", "--runs", "1"])
        .spawn()
        .unwrap();
    until("a guest boots", || boots(child.id()));

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

/// What our builds call instead of make(1): notes that it was called, and leaves what a build leaves.
const MAKE: &str = r#"#!/bin/sh
echo "$@" >>"$CALLS"
for word in "$@"; do case "$word" in O=*) out=${word#O=} ;; esac; done
case "$*" in
*tinyconfig*) : >"$out/.config" ;;
*olddefconfig*) [ -z "${DROPS-}" ] || { grep -v "$DROPS" "$out/.config" >"$out/c"; mv "$out/c" "$out/.config"; } ;;
*bzImage*)
    [ -z "${BREAKS-}" ] || { echo "mm/strided.c:1: error: no such thing" >&2; exit 2; }
    echo "  CC      mm/strided.o"
    mkdir -p "$out/arch/x86/boot"
    echo kernel >"$out/arch/x86/boot/bzImage"
    ;;
esac
"#;

/// A world in which a source is there and make(1) is ours; `None` where apt does not know the source.
fn workshop(test: &str) -> Option<(World, String, String)> {
    let policy = Command::new("apt-cache").args(["policy", "linux-source-6.12"]).env("LC_ALL", "C").output().ok();
    let policy = policy.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).map(str::to_owned);
    let tools =
        ["flex", "bison", "bc", "perl", "gcc"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok());
    let (Some(version), true, true) = (version, tools, std::path::Path::new("/usr/include/libelf.h").exists()) else {
        eprintln!(
            "SKIPPED {test}: needs apt with linux-source-6.12; apt-get install gcc flex bison bc perl libelf-dev"
        );
        return None;
    };
    let world = World::new();
    let source = world.path(&format!("kernels/sources/linux-source-6.12_{}", version.replace(['~', ':', '/'], "_")));
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("Makefile"), "").unwrap();
    fs::create_dir(world.path("bin")).unwrap();
    fs::write(world.path("bin/make"), MAKE).unwrap();
    world.shell("chmod +x bin/make");
    let path = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    let root = world.path("kernels").display().to_string();
    Some((world, path, root))
}

#[test]
fn a_kernel_is_built_once_and_listed() {
    let Some((world, path, root)) = workshop("a_kernel_is_built_once_and_listed") else { return };
    let calls = world.path("calls").display().to_string();
    let with = [("PATH", path.as_str()), ("MAJORFAULT_KERNELS", &root), ("CALLS", &calls)];

    world.majorfault_with(&["kernel", "build", "plain", "-q"], &with).ends_with(&[0]);
    world.majorfault_with(&["kernel", "build", "plain", "-q"], &with).ends_with(&[0]);

    assert_eq!(world.text("calls").lines().count(), 3, "{}", world.text("calls"));
    let listed = world.majorfault_with(&["kernel", "list", "--json"], &with).json();
    assert_eq!(listed[0]["variant"], "plain");
    let image = listed[0]["image"].as_str().unwrap();
    assert_eq!(fs::read_to_string(image).unwrap(), "kernel\n");
    assert!(fs::read_to_string(image.replace("bzImage", "config")).unwrap().contains("CONFIG_VIRTIO_BLK=y"));
}

#[test]
fn an_option_that_the_source_does_not_keep_is_named() {
    let Some((world, path, root)) = workshop("an_option_that_the_source_does_not_keep_is_named") else { return };
    let calls = world.path("calls").display().to_string();
    let with = [("PATH", path.as_str()), ("MAJORFAULT_KERNELS", &root), ("CALLS", &calls), ("DROPS", "CONFIG_FS_DAX=")];

    let said = world.majorfault_with(&["kernel", "build", "plain", "-q"], &with);

    said.fails(2, "CONFIG_FS_DAX=y did not stay");
    assert!(!world.text("calls").contains("bzImage"), "{}", world.text("calls"));
}

#[test]
fn a_compilers_error_is_shown_and_nothing_is_listed() {
    let Some((world, path, root)) = workshop("a_compilers_error_is_shown_and_nothing_is_listed") else { return };
    let calls = world.path("calls").display().to_string();
    let with = [("PATH", path.as_str()), ("MAJORFAULT_KERNELS", &root), ("CALLS", &calls), ("BREAKS", "yes")];

    world.majorfault_with(&["kernel", "build", "plain", "-q"], &with).fails(2, "mm/strided.c:1: error: no such thing");

    assert_eq!(world.majorfault_with(&["kernel", "list", "--json"], &with).json(), serde_json::json!([]));
}

#[test]
fn a_series_that_does_not_apply_names_patch_and_file() {
    let Some((world, path, root)) = workshop("a_series_that_does_not_apply_names_patch_and_file") else { return };
    let with = [("PATH", path.as_str()), ("MAJORFAULT_KERNELS", root.as_str())];

    let said = world.majorfault_with(&["kernel", "build", "strided", "-q"], &with);

    said.fails(2, "0001-mm-add-MADV_STRIDED.patch does not apply to this source");
}
