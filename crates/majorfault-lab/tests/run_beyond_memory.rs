//! Programs beyond memory: what they print and how they end is theirs, streams are read in ahead, others are left alone; and bad luck.

#![allow(unsafe_code, reason = "the planted program locks memory as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod beyond;
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "../benches/beyond_memory/patterns.rs"]
mod patterns;
mod with_agent;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use beyond::{MIB, alone, group_of, number, outcome, sum, swapped_to, with_swap};
use std::fs;
use std::path::Path;
use std::process::Command;
use world::{Said, World, facility};

/// Not a test: the program, when it is started as one.
#[test]
fn program() {
    let Ok(words) = std::env::var("MAJORFAULT_PATTERN") else { return };
    let (name, bytes) = words.split_once(' ').unwrap();
    if name == "locked" {
        return locked(bytes.parse().unwrap());
    }
    if name == "forked" {
        return forked(bytes.parse().unwrap());
    }
    if name == "leaving" {
        patterns::run("seqread", bytes.parse().unwrap()).unwrap();
        // SAFETY: shares nothing less than before. The agent leaves all the same.
        assert_eq!(unsafe { libc::unshare(0) }, 0);
        return patterns::run("seqread", bytes.parse().unwrap()).unwrap();
    }
    patterns::run(name, bytes.parse().unwrap()).unwrap();
}

/// Passes over a block by a child that was forked and starts no program.
fn forked(bytes: u64) {
    // SAFETY: the child uses the heap, which glibc keeps usable across fork, prints, and ends without running this process's ends.
    match unsafe { libc::fork() } {
        0 => {
            patterns::run("seqread", bytes.try_into().unwrap()).unwrap();
            // SAFETY: ends this child.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the number is live.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
}

/// Memory that the kernel cannot take back: at a limit below it, version 1 gives up.
fn locked(bytes: usize) {
    while std::env::var_os("MAJORFAULT_GO").is_some_and(|go| !Path::new(&go).exists()) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut block: Vec<u8> = Vec::with_capacity(bytes);
    // SAFETY: the range is the block's. Its pages are locked as they are touched.
    assert_eq!(unsafe { libc::mlock2(block.as_ptr().cast(), bytes, libc::MLOCK_ONFAULT as libc::c_uint) }, 0);
    block.resize(bytes, 1);
    println!("{} 1.0 locked", block.iter().map(|byte| u64::from(*byte)).sum::<u64>());
}

/// Runs a pattern on a block of so many MiB, within 32.
fn pattern(world: &World, name: &str, mib: u64, more: &[&str]) -> Said {
    let own = std::env::current_exe().unwrap();
    let usual = ["run", "--memory", "32m", "--json"];
    let program = ["--", own.to_str().unwrap(), "program", "--exact", "--nocapture"];
    let words = format!("{name} {}", mib * MIB);
    world.majorfault_with(&[&usual, more, &program].concat(), &[("MAJORFAULT_PATTERN", &words)])
}

#[test]
fn passes_beyond_memory_are_read_in_ahead_and_what_was_read_is_used() {
    let Some((alone, _swap)) = with_swap() else { return };

    let plain = pattern(&alone.world, "seqread", 64, &["--no-advice"]);
    let helped = pattern(&alone.world, "seqread", 64, &[]);

    assert_eq!(sum(&helped), sum(&plain));
    let (plain, helped) = (outcome(&plain), outcome(&helped));
    let fetched = number(&helped, "/advised/fetched_bytes");
    // How much of it comes in time is a matter of the machine's load, and the bench's: without help nothing is.
    assert!(fetched > 16 * MIB, "{helped:#}");
    assert!(number(&helped, "/advised/used_bytes") * 10 > fetched * 8, "{helped:#}");
    assert!(number(&helped, "/major_faults") < number(&plain, "/major_faults"), "{helped:#}\n{plain:#}");
    assert_eq!(number(&plain, "/advised/fetched_bytes"), 0);
}

#[test]
fn phases_and_places_are_told_and_shown_on_a_page() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = pattern(&alone.world, "seqread", 64, &["--report", "page.html"]);

    sum(&said);
    let told = outcome(&said);
    let kinds: Vec<&str> = told["phases"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"ordered"), "{told:#}");
    let place = told["places"].as_array().unwrap().iter().find(|it| it["advised"]["fetched_bytes"] != 0).unwrap();
    assert!(place["mapping"].as_str().unwrap().starts_with("anonymous mapping of 6"), "{place:#}");
    let sums = |key: &str| -> u64 {
        told["places"].as_array().unwrap().iter().map(|it| it["advised"][key].as_u64().unwrap()).sum()
    };
    for key in ["fetched_bytes", "used_bytes", "paged_out_bytes"] {
        assert_eq!(sums(key), number(&told, &format!("/advised/{key}")), "{key}: {told:#}");
    }
    let swapped = told["timeline"]["swapped_bytes"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).max();
    assert_eq!(swapped, Some(number(&told, "/most_swapped_bytes")));
    let page = alone.world.text("page.html");
    assert!(page.contains("streams, read in ahead") && page.contains("anonymous mapping of 6"), "{page}");
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_the_program_begins() {
    let Some(alone) = alone() else { return };
    fs::write(alone.world.path("mine.html"), "not a page of majorfault").unwrap();

    let run = |page: &str| {
        let usual = ["run", "--memory", "64m", "--report", page, "--", "touch", "begun"];
        alone.world.majorfault(&usual)
    };

    run("nowhere/page.html").fails(125, "nowhere");
    run("mine.html").fails(125, "--force");
    assert!(!alone.world.path("begun").exists());
    assert_eq!(alone.world.text("mine.html"), "not a page of majorfault");
}

#[test]
fn random_accesses_are_left_alone() {
    let Some((alone, _swap)) = with_swap() else { return };

    let helped = pattern(&alone.world, "randrmw", 64, &[]);
    let plain = pattern(&alone.world, "randrmw", 64, &["--no-advice"]);

    assert_eq!(sum(&helped), sum(&plain));
    let helped = outcome(&helped);
    assert!(number(&helped, "/advised/fetched_bytes") < 4 * MIB, "{helped:#}");
    assert_eq!(number(&helped, "/advised/paged_out_bytes"), 0, "{helped:#}");
}

#[test]
fn a_program_that_has_enough_memory_is_not_looked_at() {
    let Some(alone) = alone() else { return };
    // The program's own file is larger than its limit: here its pages come into the cache, at another group's charge.
    pattern(&alone.world, "seqread", 8, &["--no-advice"]);

    let said = outcome(&pattern(&alone.world, "seqread", 8, &[]));

    assert_eq!(number(&said, "/watched/waits_ns") + number(&said, "/watched/all_faults_ns"), 0, "{said:#}");
    assert_eq!(number(&said, "/watched/faults") + number(&said, "/watched/waits"), 0);
}

#[test]
fn processes_that_a_program_starts_are_helped_as_it_is() {
    let Some((alone, _swap)) = with_swap() else { return };
    let own = std::env::current_exe().unwrap();
    let script = format!("sh -c '{} program --exact --nocapture; true'; true", own.display());

    let usual = ["run", "--memory", "32m", "--json", "--", "sh", "-c", &script];
    let words = format!("seqread {}", 64 * MIB);
    let said = alone.world.majorfault_with(&usual, &[("MAJORFAULT_PATTERN", &words)]);

    sum(&said);
    assert!(number(&outcome(&said), "/advised/fetched_bytes") > 16 * MIB, "{}", said.errors);
}

#[test]
fn a_run_within_a_run_has_its_own_limit_and_the_programs_exit_code() {
    let Some(alone) = alone() else { return };
    let own = env!("CARGO_BIN_EXE_majorfault");

    let said = alone.world.majorfault(&[
        "run", "--memory", "64m", "-q", "--", own, "run", "--memory", "32m", "--json", "--", "sh", "-c", "exit 9",
    ]);

    assert_eq!(said.code, Some(9), "{}", said.errors);
    assert_eq!(number(&outcome(&said), "/limit_bytes"), 32 * MIB);
}

#[test]
fn a_program_ends_as_it_ends_and_reads_and_prints_as_it_does() {
    let Some(alone) = alone() else { return };
    let run = |script: &str| alone.world.majorfault(&["run", "--memory", "64m", "-q", "--", "sh", "-c", script]);

    assert_eq!(run("exit 7").code, Some(7));
    assert_eq!(run("kill -9 $$").code, Some(137));
    assert_eq!(run("kill -TERM $$").code, Some(143));
    let said = run("echo out; echo err >&2");
    assert_eq!((said.output.as_str(), said.code), ("out\n", Some(0)));
    assert!(said.errors.contains("err\n"), "{}", said.errors);
    assert!(alone.world.shell(&format!(
        "echo in | {} run --memory 64m -q -- cat 2>/dev/null | grep -qx in",
        env!("CARGO_BIN_EXE_majorfault")
    )));
}

#[test]
fn a_program_that_cannot_be_started_is_told_from_our_own_failures() {
    let Some(alone) = alone() else { return };
    alone.world.file("data", 10);
    let run = |memory: &str, name: &str| alone.world.majorfault(&["run", "--memory", memory, "-q", "--", name]);

    run("64m", "./nothing-here").fails(127, "could not start the program");
    run("64m", "./data").fails(126, "could not start the program");
    run("1m", "true").fails(125, "give 4m or more");
    alone
        .world
        .majorfault(&["run", "--memory", "64m", "--swap-file", "/nowhere", "--", "true"])
        .fails(125, "find the directory");
}

#[test]
fn a_program_has_nothing_of_ours() {
    let Some(alone) = alone() else { return };
    // A shell blocks signals for itself while it starts others, which have its mask of before.
    let list = "ls -l /proc/self/fd | grep -c majorfault; env | grep -c MAJORFAULT; grep -c majorfault /proc/self/maps; \
                grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";

    let within = alone.world.majorfault(&["run", "--memory", "64m", "-q", "--", "sh", "-c", list]);
    let without = Command::new("sh").args(["-c", list]).stdin(std::process::Stdio::null()).output().unwrap();

    assert_eq!(within.output, String::from_utf8(without.stdout).unwrap());
}

#[test]
fn without_swap_the_kill_is_foretold_and_told() {
    let Some(alone) = alone() else { return };
    let has_swap = fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    if !facility("a machine without swap", if has_swap { Err("it has swap".to_owned()) } else { Ok(()) }) {
        return;
    }

    let said = pattern(&alone.world, "seqread", 64, &[]);

    assert_eq!(said.code, Some(137), "{}", said.errors);
    let said = outcome(&said);
    assert!(number(&said, "/oom_kills") > 0, "{said:#}");
    assert!(said["remarks"][0]["found"].as_str().unwrap().contains("will be killed"), "{said:#}");
    assert!(said["remarks"][0]["remedy"].as_str().unwrap().contains("--swap-file DIR"), "{said:#}");
}

/// Whether version 1 limits memory here.
fn is_version_1() -> bool {
    let found = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    facility(
        "cgroup version 1, whose killer is held off",
        if found { Ok(()) } else { Err("it is version 2".to_owned()) },
    )
}

#[test]
fn in_version_1_the_limit_is_raised_for_who_finds_no_memory() {
    let Some((alone, _swap)) = with_swap().filter(|_| is_version_1()) else { return };

    let said = pattern(&alone.world, "locked", 44, &[]);

    assert_eq!(sum(&said), (44 * MIB).to_string());
    let said = outcome(&said);
    assert_eq!(number(&said, "/oom_kills"), 0, "{said:#}");
    let (times, most) = (number(&said, "/limit_raised/times"), number(&said, "/limit_raised/most_bytes"));
    assert!(times >= 6 && (12 * MIB..=24 * MIB).contains(&most), "{said:#}");
}

#[test]
fn in_version_1_the_limit_is_not_raised_by_more_than_a_quarter_and_16_mib() {
    let Some((alone, _swap)) = with_swap().filter(|_| is_version_1()) else { return };

    let said = pattern(&alone.world, "locked", 80, &[]);

    assert_eq!(said.code, Some(137), "{}", said.errors);
    let said = outcome(&said);
    assert!(number(&said, "/oom_kills") > 0 && number(&said, "/limit_raised/most_bytes") <= 24 * MIB, "{said:#}");
}

#[test]
fn in_version_1_nobody_waits_for_ever_where_we_were_killed() {
    let Some((alone, _swap)) = with_swap().filter(|_| is_version_1()) else { return };
    let world = &alone.world;
    let (own, go) = (std::env::current_exe().unwrap(), world.path("go"));
    let script = format!(
        "exec > /dev/null 2>&1; echo $$ > pid.new; mv pid.new pid; MAJORFAULT_GO={} MAJORFAULT_PATTERN='locked {}' exec {} program --exact",
        go.display(),
        80 * MIB,
        own.display()
    );
    let running = world.start_plain(&["run", "--memory", "32m", "-q", "--", "sh", "-c", &script]);
    world.wait_for("the program", || world.path("pid").exists());
    let pid: u32 = world.text("pid").trim().parse().unwrap();
    let control = group_of(pid).join("memory.oom_control");
    let is_held_off = || fs::read_to_string(&control).unwrap().contains("oom_kill_disable 1");
    assert!(is_held_off());

    running.signal("KILL");
    running.finish();

    world.wait_for("the guard", || !is_held_off());
    fs::write(go, "").unwrap();
    world.wait_for("the kernel", || !Path::new(&format!("/proc/{pid}")).exists());
    world.majorfault(&["run", "--memory", "64m", "-q", "--", "true"]);
}

#[test]
fn a_swap_file_is_there_for_the_run_and_gone_after_it() {
    let Some(alone) = alone() else { return };
    let dir = alone.world.path("");

    let place = format!("{}:64m", dir.display());
    let said = alone.world.majorfault(&["run", "--memory", "64m", "--swap-file", &place, "--", "cat", "/proc/swaps"]);

    if !facility("a swap file", if said.code == Some(125) { Err(said.errors.clone()) } else { Ok(()) }) {
        return;
    }
    assert_eq!(said.code, Some(0));
    assert!(said.output.contains("/majorfault-run-") && said.output.contains(".swap"), "{}", said.output);
    assert!(!swapped_to(&dir));
    assert_eq!(alone.world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_program_lives_on_when_we_are_killed_and_the_next_start_cleans_up_after_it() {
    // Where a swap file can be made at all.
    let Some((alone, swap)) = with_swap() else { return };
    drop(swap);
    let world = &alone.world;
    let place = format!("{}:64m", world.path("").display());
    // It does not keep our pipes open.
    let script = "exec > /dev/null 2>&1; echo $$ > pid.new; mv pid.new pid; until test -e go; do sleep 0.05; done; echo done > ended";
    let running = world.start_plain(&["run", "--memory", "64m", "--swap-file", &place, "--", "sh", "-c", script]);
    world.wait_for("the program", || world.path("pid").exists());
    let pid: u32 = world.text("pid").trim().parse().unwrap();
    let group = group_of(pid);

    running.signal("KILL");
    running.finish();

    // Still there, and another start leaves what it needs.
    let other = world.majorfault(&["run", "--memory", "64m", "--", "true"]);
    assert!(other.errors.contains("stays: its program still runs"), "{}", other.errors);
    assert!(group.exists() && swapped_to(&world.path("")) && Path::new(&format!("/proc/{pid}")).exists());
    fs::write(world.path("go"), "").unwrap();
    world
        .wait_for("the program's end", || world.path("ended").exists() && !Path::new(&format!("/proc/{pid}")).exists());

    let next = world.majorfault(&["run", "--memory", "64m", "--", "true"]);

    assert!(next.errors.contains("removed the swap file"), "{}", next.errors);
    assert!(!group.exists() && !swapped_to(&world.path("")));
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn signals_to_us_are_the_programs() {
    let Some(alone) = alone() else { return };
    let world = &alone.world;
    let script = "trap 'exit 42' TERM; touch ready; while :; do sleep 0.05; done";
    let running = world.start_plain(&["run", "--memory", "64m", "-q", "--", "sh", "-c", script]);
    world.wait_for("the program", || world.path("ready").exists());

    running.signal("TERM");

    assert_eq!(running.finish().code, Some(42));
}

#[test]
fn swap_that_is_taken_away_meanwhile_harms_nobody() {
    let Some((alone, swap)) = with_swap() else { return };
    let world = &alone.world;
    let own = std::env::current_exe().unwrap();
    let script = format!("{} program --exact --nocapture", own.display());
    let words = format!("MAJORFAULT_PATTERN=seqrmw {}", 40 * MIB);
    // Within 48 MiB, and without swap too: what was swapped out fits again.
    let running = world.start_plain(&["run", "--memory", "48m", "--json", "--", "env", &words, "sh", "-c", &script]);

    drop(swap);

    let said = running.finish();
    sum(&said);
}

#[test]
fn without_the_right_to_sample_it_is_limited_and_that_is_told() {
    let Some(alone) = alone() else { return };

    let said = alone.world.without_perf(&["run", "--memory", "64m", "--", "sh", "-c", "exit 3"]);

    assert_eq!(said.code, Some(3), "{}", said.errors);
    assert!(
        said.errors.contains("limited only, not helped") && said.errors.contains("perf_event_open"),
        "{}",
        said.errors
    );
}

#[test]
fn without_rights_nothing_begins_and_the_way_is_told() {
    let Some(alone) = alone() else { return };
    let Some(said) = alone.world.as_nobody(&["run", "--memory", "64m", "--", "touch", "begun"]) else { return };

    said.fails(125, "a memory limit is not available here");
    assert!(!alone.world.path("begun").exists());
}

#[test]
fn many_processes_that_come_and_go_are_no_harm() {
    let Some(alone) = alone() else { return };
    let script = "i=0; while [ $i -lt 300 ]; do (true) & i=$((i+1)); done; wait; echo fine";

    let said = alone.world.majorfault(&["run", "--memory", "256m", "-q", "--", "sh", "-c", script]);

    assert_eq!((said.output.as_str(), said.code), ("fine\n", Some(0)), "{}", said.errors);
}
