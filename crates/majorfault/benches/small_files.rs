//! Many small files, each read whole, by several ways that take turns: `cargo bench -p majorfault --bench small_files`.
//!
//! 20 000 files of 4 to 64 KiB in /var/tmp (`--files N`), cached and not (posix_fadvise takes each out of the page cache; names and inodes stay
//! cached), by one thread and by two that share the files. Every byte is summed, and every way must find the same sum. Shown are the
//! time and the processor time a file, and those of plain reading (open, fstat, pread, close) in the same turn by them: the median, the
//! least and the most of six turns (`--runs N`); `-- warm` or `-- cold` runs one part.
#![allow(clippy::incompatible_msrv, reason = "the oldest Rust builds the library, not its benches")]
#![allow(unsafe_code, reason = "files are mapped over each other, as no safe interface does")]

mod rows;

use majorfault::small_files::{ManyAtATime, SmallFiles};
use rows::{Row, note, print};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const KIB: [usize; 8] = [4, 8, 12, 16, 24, 32, 48, 64];
const LONGEST: usize = 64 << 10;
/// Mappings that are taken down together.
const TOGETHER: usize = 64;
/// Threads for each one of the other ways, where files are read by threads.
const READERS: usize = 8;

fn sum(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn open(path: &PathBuf) -> (File, usize) {
    let file = File::open(path).expect("a file just made");
    let length = file.metadata().expect("its length").len() as usize;
    (file, length)
}

fn read(path: &PathBuf, buffer: &mut [u8]) -> u64 {
    let (file, length) = open(path);
    // One byte more than there is: a file that grew would be noticed.
    assert_eq!(file.read_at(&mut buffer[..length + 1], 0).expect("its bytes"), length);
    sum(&buffer[..length])
}

fn by_pread(paths: &[PathBuf]) -> u64 {
    let mut buffer = vec![0; LONGEST + 1];
    paths.iter().fold(0u64, |all, path| all.wrapping_add(read(path, &mut buffer)))
}

/// As search tools do: more threads than processors, each takes the next file.
fn by_threads(paths: &[PathBuf]) -> u64 {
    let next = AtomicUsize::new(0);
    let reader = || {
        let (mut buffer, mut all) = (vec![0; LONGEST + 1], 0u64);
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            all = all.wrapping_add(read(path, &mut buffer));
        }
        all
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        readers.into_iter().fold(0u64, |all, reader| all.wrapping_add(reader.join().expect("a sum")))
    })
}

fn by_mmap(paths: &[PathBuf]) -> u64 {
    paths.iter().fold(0u64, |all, path| {
        let (file, length) = open(path);
        // SAFETY: a new mapping wherever there is room, unmapped below; nobody changes the file.
        unsafe {
            let at = mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0).expect("a mapping");
            let found = sum(std::slice::from_raw_parts(at.cast(), length));
            munmap(at, length).expect("our own mapping");
            all.wrapping_add(found)
        }
    })
}

/// Into places next to each other, which are taken down by one call.
fn by_mmap_together(paths: &[PathBuf]) -> u64 {
    const ALL: usize = TOGETHER * LONGEST;
    let empty = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: address space of our own; what is mapped by MAP_FIXED lies inside it, and is read before it goes.
    unsafe {
        let places = mmap_anonymous(ptr::null_mut(), ALL, ProtFlags::empty(), empty).expect("address space");
        let found = paths.iter().enumerate().fold(0u64, |all, (number, path)| {
            let (file, length) = open(path);
            let place = number % TOGETHER;
            let at = places.byte_add(place * LONGEST);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            mmap(at, length, ProtFlags::READ, flags, &file, 0).expect("a mapping");
            let found = sum(std::slice::from_raw_parts(at.cast(), length));
            if place == TOGETHER - 1 {
                mmap_anonymous(places, ALL, ProtFlags::empty(), empty | MapFlags::FIXED).expect("our own range");
            }
            all.wrapping_add(found)
        });
        munmap(places, ALL).expect("our own range");
        found
    }
}

fn by(way: ManyAtATime, paths: &[PathBuf]) -> u64 {
    let mut all = 0u64;
    let mut files = SmallFiles::options().way(way).open().expect("io_uring with direct descriptors");
    let visited = files.visit(paths, |_, content| all = all.wrapping_add(sum(content.expect("a file's bytes"))));
    visited.expect("a ring that works");
    all
}

type Arm = fn(&[PathBuf]) -> u64;

const BASE: &str = "pread in order";
const ARMS: [(&str, Arm); 6] = [
    (BASE, by_pread),
    ("pread, 8 threads each", by_threads),
    ("mmap, munmap", by_mmap),
    ("mmap, 64 unmapped together", by_mmap_together),
    ("SmallFiles, chains", |paths| by(ManyAtATime::Chains, paths)),
    ("SmallFiles, hints", |paths| by(ManyAtATime::Hints, paths)),
];

/// Seconds that the process had a processor: neighbours on the machine do not count.
fn processor() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Microseconds a file, and of processor time a file, with the files shared among the threads.
fn time(arm: Arm, paths: &[PathBuf], threads: usize, expected: u64) -> [f64; 2] {
    let (began, spent) = (Instant::now(), processor());
    let found = std::thread::scope(|scope| {
        let shares = paths.chunks(paths.len().div_ceil(threads));
        let shares: Vec<_> = shares.map(|share| scope.spawn(move || arm(share))).collect();
        shares.into_iter().fold(0u64, |all, share| all.wrapping_add(share.join().expect("a sum")))
    });
    let took = [began.elapsed().as_secs_f64(), processor() - spent];
    assert_eq!(found, expected, "a wrong byte");
    took.map(|seconds| seconds * 1e6 / paths.len() as f64)
}

fn cool(paths: &[PathBuf]) {
    for path in paths {
        rustix::fs::fadvise(open(path).0, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    }
}

fn make(dir: &std::path::Path, count: usize) -> (Vec<PathBuf>, u64) {
    let bytes: Vec<u8> = (0..LONGEST).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut expected = 0u64;
    let paths: Vec<PathBuf> = (0..count)
        .map(|number| {
            let path = dir.join(format!("file-{number}"));
            let content = &bytes[..KIB[number * 7919 % KIB.len()] << 10];
            std::fs::write(&path, content).expect("room in /var/tmp");
            expected = expected.wrapping_add(sum(content));
            path
        })
        .collect();
    File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?)).expect("the device");
    (paths, expected)
}

fn turn(rows: &mut Vec<Row>, state: &str, turn: usize, paths: &[PathBuf], expected: u64) {
    for threads in [1, 2] {
        for index in 0..ARMS.len() {
            let (name, arm) = ARMS[(index + turn) % ARMS.len()];
            match state {
                "cold" => cool(paths),
                _ => assert_eq!(by_pread(paths), expected),
            }
            let took = time(arm, paths, threads, expected);
            for (what, took) in WHAT.into_iter().zip(took) {
                note(rows, row(state, threads, name, what), "us", took);
            }
        }
    }
}

const WHAT: [&str; 2] = ["", ", processor"];

fn row(state: &str, threads: usize, name: &str, what: &str) -> String {
    format!("{state}, {threads}: {name}{what}")
}

/// Plain reading's time by each way's time, turn by turn.
fn ratios(rows: &mut Vec<Row>) {
    let mut found = Vec::new();
    let ways = ARMS[1..].iter().flat_map(|arm| WHAT.map(|what| (arm.0, what)));
    let threads = [1, 2].into_iter().flat_map(|threads| ways.clone().map(move |way| (threads, way)));
    for (state, (threads, (name, what))) in
        ["warm", "cold"].into_iter().flat_map(|state| threads.clone().map(move |way| (state, way)))
    {
        let of = |name| rows::runs(rows, &row(state, threads, name, what));
        let pairs = of(BASE).iter().zip(of(name)).map(|(base, took)| base / took);
        found.push((format!("{BASE} / {}", row(state, threads, name, what)), pairs.collect::<Vec<f64>>()));
    }
    for (name, ratios) in found {
        ratios.into_iter().for_each(|ratio| note(rows, name.clone(), "x", ratio));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked = |state: &str| {
        let other = if state == "warm" { "cold" } else { "warm" };
        !words.iter().any(|word| word == other) || words.iter().any(|word| word == state)
    };
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let (paths, expected) = make(dir.path(), rows::number("--files", 20_000));
    let mut rows = Vec::new();
    for number in 0..rows::number("--runs", 6) {
        for state in ["warm", "cold"].into_iter().filter(|state| asked(state)) {
            turn(&mut rows, state, number, &paths, expected);
        }
    }
    ratios(&mut rows);
    print(&rows);
}
