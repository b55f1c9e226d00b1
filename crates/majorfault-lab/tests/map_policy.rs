//! `majorfault run --map-policy`: what an unmodified program's mappings are told, and that it sees nothing of it.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "the planted program maps and advises as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::fs::{self, File};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use world::{Said, World, facility};

const KIB: usize = 1 << 10;

/// Not a test: the program, when it is started as one. It maps files and says what the kernel knows of the mappings.
#[test]
fn program() {
    let Ok(what) = std::env::var("MAJORFAULT_MAPS") else { return };
    match what.as_str() {
        "files" => ["large", "small"].into_iter().for_each(|name| tell(name, map(name))),
        "cached" => {
            // The second part of the file alone, whose place in the file is not its place in memory.
            let file = File::open("large").unwrap();
            let (length, offset) = (512 * KIB, 512 * KIB as i64);
            // SAFETY: a new mapping of an open file.
            let at =
                unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset) };
            let pages = cached(at, length);
            map("large");
            println!("second half {pages:?}");
            println!("whole {:?}", cached(map("large"), 1024 * KIB));
        }
        "wishes" => {
            let at = map("large");
            // SAFETY: a mapping of this length, and addresses that are none.
            let [here, nowhere] =
                [at, null_mut()].map(|at| unsafe { libc::madvise(at, 1024 * KIB, libc::MADV_RANDOM) });
            println!("advice {here} {nowhere} {}", Error::last_os_error().raw_os_error().unwrap());
            // SAFETY: as above.
            let posix = unsafe { libc::posix_madvise(null_mut(), 1024 * KIB, libc::POSIX_MADV_RANDOM) };
            println!("posix {posix}");
            tell("large", at);
        }
        "mistakes" => {
            // SAFETY: a descriptor that is none, and no length: both are refused.
            let failed = [(4096, 12345), (0, 0)].map(|(length, file)| {
                // SAFETY: no address is asked for, so nothing that is mapped is replaced.
                let at = unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file, 0) };
                (at == libc::MAP_FAILED, Error::last_os_error().raw_os_error().unwrap())
            });
            println!("mistakes {failed:?}");
            std::process::exit(7);
        }
        other => panic!("there is no {other}"),
    }
}

fn map(name: &str) -> *mut libc::c_void {
    let file = File::open(name).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    // SAFETY: a new mapping of an open file.
    let at = unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

/// Which pages of a mapping are in the page cache, once reads of them have ended.
fn cached(at: *mut libc::c_void, length: usize) -> Vec<usize> {
    let mut there = vec![0u8; length / 4096];
    std::thread::sleep(std::time::Duration::from_millis(300));
    // SAFETY: a mapping of this length, and a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(at, length, there.as_mut_ptr()) }, 0);
    there.iter().enumerate().filter(|(_, byte)| **byte & 1 == 1).map(|(page, _)| page).collect()
}

/// The flags of the mapping and how much of it is there, from /proc/self/smaps.
fn tell(name: &str, at: *mut libc::c_void) {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let here = text.split_once(&format!("{:x}-", at as usize)).unwrap().1;
    let of = |key: &str| here.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
    println!("{name}: {}; there: {}", of("VmFlags:"), of("Rss:"));
}

/// Runs the program with these options before it, beside two files of 1 MiB and 64 KiB.
fn run(options: &[&str], what: &str) -> Said {
    let world = World::new();
    for (name, length) in [("large", 1024 * KIB), ("small", 64 * KIB)] {
        fs::write(world.path(name), vec![7; length]).unwrap();
    }
    let own = std::env::current_exe().unwrap();
    let script = format!("export MAJORFAULT_MAPS={what}; exec {} program --exact --nocapture", own.display());
    let said = world.majorfault(&[&["run", "--quiet"], options, &["--", "sh", "-c", &script]].concat());
    assert!(said.errors.is_empty() || options.contains(&"--memory"), "{}", said.errors);
    said
}

fn line<'s>(said: &'s Said, name: &str) -> &'s str {
    said.output.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{}", said.output))
}

#[test]
fn files_are_told_to_be_read_at_random_but_for_short_ones() {
    let said = run(&["--map-policy", "random"], "files");

    assert!(line(&said, "large").contains(" rr"), "{}", said.output);
    assert!(!line(&said, "small").contains(" rr"), "{}", said.output);
}

#[test]
fn files_are_told_to_take_large_pages() {
    let found = fs::metadata("/sys/kernel/mm/transparent_hugepage").map_err(|error| error.to_string());
    if !facility("large pages", found.map(drop)) {
        return;
    }
    let said = run(&["--map-policy", "huge"], "files");

    assert!(line(&said, "large").contains(" hg"), "{}", said.output);
}

#[test]
fn files_are_read_in_whole_when_they_are_mapped() {
    let said = run(&["--map-policy", "load"], "files");

    assert!(line(&said, "large").ends_with("there: 1024 kB"), "{}", said.output);
    assert!(line(&said, "small").ends_with("there: 0 kB"), "{}", said.output);
}

#[test]
fn the_parts_that_a_trace_names_are_read_when_they_are_mapped_and_no_others() {
    let world = World::new();
    fs::write(world.path("large"), vec![7; 1024 * KIB]).unwrap();
    let large = File::open(world.path("large")).unwrap();
    large.sync_all().unwrap();
    let mut trace = majorfault::trace::Writer::create(&world.path("hot.flt")).unwrap();
    let number = trace.file(world.path("large").to_str(), 1024 * KIB as u64);
    for offset in [0, 200 * 4096, 201 * 4096 + 5] {
        trace.run(number, 1, majorfault::trace::Run::of(majorfault::Extent { offset, length: 64 }));
    }
    trace.finish().unwrap();
    // SAFETY: an open descriptor; the file is clean, so that its pages can leave the cache.
    assert_eq!(unsafe { libc::posix_fadvise(large.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    let own = std::env::current_exe().unwrap();
    let script = format!("export MAJORFAULT_MAPS=cached; exec {} program --exact --nocapture", own.display());

    let said = world.majorfault(&["run", "--map-policy", "hot=hot.flt", "--", "sh", "-c", &script]);

    assert_eq!(line(&said, "second half"), "second half [72, 73]", "{}{}", said.output, said.errors);
    assert_eq!(line(&said, "whole"), "whole [0, 200, 201]", "{}", said.output);
    assert!(said.errors.contains("12k of 1 file that the trace names"), "{}", said.errors);
}

#[test]
fn a_trace_of_which_nothing_is_left_is_told_before_the_program_begins() {
    let world = World::new();
    fs::write(world.path("large"), vec![7; 100]).unwrap();
    let mut trace = majorfault::trace::Writer::create(&world.path("hot.flt")).unwrap();
    let number = trace.file(world.path("large").to_str(), 4096);
    trace.run(number, 1, majorfault::trace::Run::of(majorfault::Extent { offset: 0, length: 64 }));
    trace.finish().unwrap();
    let run = |trace: &str| world.majorfault(&["run", "--map-policy", trace, "--", "sh", "-c", "echo begun"]);

    let [changed, gone, none] = ["hot=hot.flt", "hot=gone.flt", "hot"].map(run);

    assert_eq!([changed.code, gone.code, none.code], [Some(125), Some(125), Some(2)]);
    assert!(changed.errors.contains("it has another length now; record the trace again"), "{}", changed.errors);
    assert!(gone.errors.contains("gone.flt"), "{}", gone.errors);
    assert!(none.errors.contains("there is no policy hot; there are random, no-random, huge, load, hot=TRACE.flt"));
    assert!([changed, gone, none].iter().all(|said| !said.output.contains("begun")));
}

#[test]
fn a_file_that_half_of_the_memory_does_not_hold_is_not_read_in() {
    let world = World::new();
    fs::write(world.path("large"), vec![7; 17 << 20]).unwrap();
    fs::write(world.path("small"), vec![7; 15 << 20]).unwrap();
    let own = std::env::current_exe().unwrap();
    let script = format!("export MAJORFAULT_MAPS=files; exec {} program --exact --nocapture", own.display());

    let said =
        world.majorfault(&["run", "--quiet", "--memory", "32m", "--map-policy", "load", "--", "sh", "-c", &script]);

    if said.code == Some(125) {
        facility("a memory limit", Err(said.errors));
        return;
    }
    assert!(line(&said, "large").ends_with("there: 0 kB"), "{}", said.output);
    assert!(line(&said, "small").ends_with("there: 15360 kB"), "{}", said.output);
}

#[test]
fn a_wish_for_random_reading_is_not_passed_on_and_mistakes_in_it_are_told_as_ever() {
    let (usual, said) = (run(&["--map-policy", "huge"], "wishes"), run(&["--map-policy", "no-random"], "wishes"));

    assert!(line(&usual, "large").contains(" rr"), "{}", usual.output);
    assert!(!line(&said, "large").contains(" rr"), "{}", said.output);
    assert_eq!(line(&said, "advice"), format!("advice 0 -1 {}", libc::ENOMEM));
    assert_eq!(line(&said, "posix"), format!("posix {}", libc::ENOMEM));
}

#[test]
fn mistakes_of_the_program_and_its_exit_code_are_its_own() {
    let said = run(&["--map-policy", "random"], "mistakes");

    let mistakes = [(true, libc::EBADF), (true, libc::EINVAL)];
    assert_eq!((line(&said, "mistakes"), said.code), (format!("mistakes {mistakes:?}").as_str(), Some(7)));
}

#[test]
fn the_library_is_gone_when_the_program_has_ended() {
    let said = World::new().majorfault(&["run", "--map-policy", "random", "--", "sh", "-c", "echo $LD_PRELOAD"]);

    let library = std::path::Path::new(said.output.trim());
    assert!(library.ends_with("libmajorfault_policy.so"), "{}", said.output);
    assert!(!library.parent().unwrap().exists());
    assert!(said.errors.contains("MADV_RANDOM"), "{}", said.errors);
}

#[test]
fn without_memory_or_policy_nothing_begins_and_neither_does_help_without_memory() {
    let world = World::new();

    let [neither, help] = [&["run", "--", "true"][..], &["run", "--map-policy", "random", "--agent", "--", "true"]]
        .map(|words| world.majorfault(words));

    assert_eq!((neither.code, help.code), (Some(2), Some(2)));
    assert!(neither.errors.contains("--memory"), "{}", neither.errors);
}
