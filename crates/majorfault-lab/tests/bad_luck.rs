//! `majorfault run` in bad luck, while its program swaps: what it computes and how it ends is unharmed, and the words are clear.

#![allow(unsafe_code, reason = "the planted program forks as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod beyond;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use beyond::{Alone, MIB, alone, group_of, number, outcome, swapped_to, with_swap};
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use world::{Said, World, facility};

const WORDS: usize = 512;

/// Not a test: the program, when it is started as one. It checks every word that it reads, and says so at the end.
#[test]
fn program() {
    let Ok(words) = std::env::var("MAJORFAULT_ILL") else { return };
    let (name, mib) = words.split_once(' ').unwrap();
    let block = filled(mib.parse::<usize>().unwrap() << 20);
    match name {
        "passes" => (0..3).for_each(|_| check(&block, 0)),
        "phases" => phases(&block, 4),
        "threads" => threads(&block, 10_000),
        "storm" => storm(&block, 1000),
        "shrinks" => shrinks(block),
        "endless" => loop {
            check(&block, 0);
        },
        other => panic!("there is no {other}"),
    }
    println!("all words were right");
}

fn word(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A block of so many bytes; each page begins and ends with a word of its own.
fn filled(bytes: usize) -> Vec<u64> {
    let mut block = vec![0; bytes / 8];
    for (page, words) in block.chunks_mut(WORDS).enumerate() {
        (words[0], words[WORDS - 1]) = (word(page), !word(page));
    }
    block
}

/// Checks pages, the first of which has this number.
fn check(pages: &[u64], first: usize) {
    for (page, words) in (first..).zip(pages.chunks(WORDS)) {
        assert_eq!((words[0], words[WORDS - 1]), (word(page), !word(page)), "page {page}");
    }
}

/// A second in order, a second in none, and so on.
fn phases(block: &[u64], count: usize) {
    let pages = block.len() / WORDS;
    let (mut at, mut draw) = (0, 1);
    for phase in 0..count {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) {
            draw = (draw * 1_103_515_245 + 12_345) % (1 << 31);
            at = if phase % 2 == 0 { (at + 1) % pages } else { draw % pages };
            check(&block[at * WORDS..(at + 1) * WORDS], at);
        }
    }
}

/// So many threads at once, each of which checks a part of the block when all are there.
fn threads(block: &[u64], count: usize) {
    let pages = block.len() / WORDS;
    let all = Barrier::new(count);
    let work = &|thread: usize| {
        all.wait();
        let (from, to) = (thread * pages / count, (thread + 1) * pages / count);
        check(&block[from * WORDS..to * WORDS], from);
    };
    std::thread::scope(|scope| {
        for thread in 0..count {
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || work(thread)).unwrap();
        }
    });
}

/// So many processes, twenty at once, each of which reads a part of the block.
fn storm(block: &[u64], count: usize) {
    let part = block.len() / WORDS / 20;
    for turn in 0..count / 20 {
        let children: Vec<i32> = (0..20)
            .map(|child| {
                // SAFETY: the child reads memory and ends; it takes no lock and allocates nothing.
                match unsafe { libc::fork() } {
                    0 => {
                        let pages = &block[child * part * WORDS..(child * part + part.min(8)) * WORDS];
                        let is_right =
                            (child * part..).zip(pages.chunks(WORDS)).all(|(page, words)| words[0] == word(page));
                        // SAFETY: ends this process at once.
                        unsafe { libc::_exit(i32::from(!is_right)) }
                    }
                    pid => pid,
                }
            })
            .collect();
        for pid in children {
            let mut status = 0;
            // SAFETY: `status` is a place for an int, and the process is our child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid, "turn {turn}");
            assert_eq!(status, 0, "turn {turn}");
        }
        check(&block[..part * WORDS], 0);
    }
    check(block, 0);
}

/// Gives half of its block back and waits for the file `go`.
fn shrinks(mut block: Vec<u64>) {
    block.truncate(block.len() / 2);
    block.shrink_to_fit();
    fs::write("small", "").unwrap();
    let began = Instant::now();
    while !Path::new("go").exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    check(&block, 0);
}

/// What is run: a planted program with a block of so many MiB. It leaves its number in the file `pid`.
fn planted(name: &str, mib: u64) -> String {
    let own = std::env::current_exe().unwrap();
    let program = format!("exec {} program --exact --nocapture", own.display());
    format!("echo $$ > pid.new; mv pid.new pid; export MAJORFAULT_ILL='{name} {mib}'; {program}")
}

/// Runs it within so many MiB.
fn run(world: &World, memory: u64, script: &str, more: &[&str]) -> Said {
    let memory = format!("{memory}m");
    world.majorfault(&[&["run", "--memory", &memory, "--json"], more, &["--", "sh", "-c", script]].concat())
}

fn is_right(said: &Said) {
    assert_eq!(said.code, Some(0), "{}\n{}", said.output, said.errors);
    assert!(said.output.contains("all words were right\n"), "{}", said.output);
}

fn swapped(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Waits until the program swaps; its number.
fn swapping(world: &World) -> u32 {
    world.wait_for("the program", || world.path("pid").exists());
    let pid = world.text("pid").trim().parse().unwrap();
    world.wait_for("swapping", || swapped(pid) > 4 * MIB);
    pid
}

#[test]
fn phases_that_change_each_second_do_no_harm() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = run(&alone.world, 32, &planted("phases", 56), &[]);

    is_right(&said);
    assert!(number(&outcome(&said), "/watched/faults") > 0, "{}", said.errors);
}

#[test]
fn ten_thousand_threads_beyond_memory_do_no_harm() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = run(&alone.world, 384, &planted("threads", 128), &[]);

    is_right(&said);
}

#[test]
fn a_fork_storm_beyond_memory_does_no_harm() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = run(&alone.world, 32, &planted("storm", 48), &[]);

    is_right(&said);
    assert!(number(&outcome(&said), "/most_swapped_bytes") > 8 * MIB, "{}", said.errors);
}

#[test]
fn swap_that_is_taken_away_from_who_fits_again_does_no_harm() {
    let Some((alone, swap)) = with_swap() else { return };
    let world = &alone.world;
    let running = world.start_plain(&["run", "--memory", "48m", "--json", "--", "sh", "-c", &planted("shrinks", 72)]);
    world.wait_for("the program's half", || world.path("small").exists());

    drop(swap);

    assert!(!swapped_to(&world.path("")));
    fs::write(world.path("go"), "").unwrap();
    is_right(&running.finish());
}

#[test]
fn swap_that_is_taken_away_from_who_needs_it_is_told_as_the_cause() {
    let Some((alone, swap)) = with_swap() else { return };
    let world = &alone.world;
    let running = world.start_plain(&["run", "--memory", "32m", "--", "sh", "-c", &planted("endless", 64)]);
    swapping(world);

    drop(swap);

    if swapped_to(&world.path("")) {
        // The kernel could not, and nobody is harmed.
        return ends(&alone, running);
    }
    let said = running.finish();
    assert_eq!(said.code, Some(137), "{}", said.errors);
    assert!(said.errors.contains("swap was taken away while it ran"), "{}", said.errors);
}

/// Takes the program's end from it.
fn ends(alone: &Alone, running: world::Running) {
    let pid: i32 = alone.world.text("pid").trim().parse().unwrap();
    // The kernel may have been first.
    alone.world.shell(&format!("kill -9 {pid} 2>/dev/null"));
    assert_eq!(running.finish().code, Some(137));
}

#[test]
fn a_disk_without_room_for_the_swap_file_is_told_before_anything_begins() {
    let Some(alone) = alone() else { return };
    let world = &alone.world;
    if !facility("a loop mount", world.mount_small_disk("disk", 32 * MIB)) {
        return;
    }

    let said = run(world, 32, "touch begun", &["--swap-file", "disk:64m"]);

    said.fails(125, "free and not 64m");
    assert!(said.errors.contains("name another directory, or a size"), "{}", said.errors);
    assert!(!world.path("begun").exists());
    assert_eq!(left_on(&world.path("disk")), ["lost+found"]);
}

fn left_on(disk: &Path) -> Vec<String> {
    let entries = fs::read_dir(disk).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_disk_that_fills_up_meanwhile_leaves_what_is_swapped_alone() {
    let Some(alone) = alone() else { return };
    let world = &alone.world;
    if !facility("a loop mount", world.mount_small_disk("disk", 128 * MIB)) {
        return;
    }
    let script = format!("dd if=/dev/zero of=disk/full bs=1M 2>&1 | grep 'No space'; {}", planted("passes", 56));

    let said = run(world, 32, &script, &["--swap-file", "disk:64m"]);

    if !facility("a swap file on a loop device", if said.code == Some(125) { Err(said.errors.clone()) } else { Ok(()) })
    {
        return;
    }
    is_right(&said);
    assert!(said.output.contains("No space"), "{}", said.output);
    assert!(number(&outcome(&said), "/most_swapped_bytes") > 8 * MIB, "{}", said.errors);
    let mut left = left_on(&world.path("disk"));
    left.sort();
    assert_eq!(left, ["full", "lost+found"]);
}

#[test]
fn a_program_that_swaps_lives_on_when_we_are_killed() {
    let Some((alone, _swap)) = with_swap() else { return };
    let world = &alone.world;
    let script = format!("exec > said 2>&1; {}", planted("phases", 56));
    let running = world.start_plain(&["run", "--memory", "32m", "-q", "--", "sh", "-c", &script]);
    let pid = swapping(world);
    let group = group_of(pid);

    running.signal("KILL");
    running.finish();

    world.wait_for("the program's end", || !Path::new(&format!("/proc/{pid}")).exists());
    let said = world.text("said");
    assert!(!said.contains("panicked"), "{said}");
    // Without us version 1 kills where it would have, though swap is free.
    let kills = fs::read_to_string(group.join("memory.oom_control")).unwrap_or_default();
    let is_killed = kills.lines().any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0");
    assert!(is_killed || said.contains("all words were right\n"), "{said}\n{kills}");
    world.majorfault(&["run", "--memory", "64m", "-q", "--", "true"]);
    assert!(!group.exists());
}

#[test]
fn a_program_that_is_killed_while_it_swaps_leaves_nothing_behind() {
    let Some((alone, swap)) = with_swap() else { return };
    drop(swap);
    let world = &alone.world;
    let place = format!("{}:128m", world.path("").display());
    let script = planted("endless", 56);
    let running =
        world.start_plain(&["run", "--memory", "32m", "--json", "--swap-file", &place, "--", "sh", "-c", &script]);
    let pid = swapping(world);
    let group = group_of(pid);

    assert!(world.shell(&format!("kill -9 {pid}")));

    let said = running.finish();
    assert_eq!(said.code, Some(137));
    assert_eq!(number(&outcome(&said), "/oom_kills"), 0, "it was not the kernel for want of memory");
    assert!(!group.exists() && !swapped_to(&world.path("")));
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_run_within_a_run_may_swap_in_both() {
    let Some((alone, _swap)) = with_swap() else { return };
    let own = env!("CARGO_BIN_EXE_majorfault");
    let inner = format!("exec {own} run --memory 32m -q -- sh -c \"{}\"", planted("passes", 72).replace('$', "\\$"));

    let said = run(&alone.world, 40, &inner, &[]);

    is_right(&said);
}

#[test]
fn beyond_memory_without_the_right_to_sample_the_program_is_the_same_and_the_lack_is_told() {
    let Some((alone, _swap)) = with_swap() else { return };

    let script = planted("passes", 56);
    let said = alone.world.without_perf(&["run", "--memory", "32m", "--json", "--", "sh", "-c", &script]);

    is_right(&said);
    let told = outcome(&said);
    assert!(told["unhelped"].as_str().unwrap().contains("perf_event_open"), "{told:#}");
    assert_eq!(number(&told, "/advised/fetched_bytes"), 0);
}
