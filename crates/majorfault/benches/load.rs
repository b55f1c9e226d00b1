//! Loading a mapped file as a whole, until the program has touched each page: `cargo bench -p majorfault --bench load`.
//!
//! Ways that take turns, each cold: `MappedFile::load`, the same of a mapping with huge pages, `dd` through the page cache and
//! `vmtouch -t` (both then mapped), and `uring` past the page cache into buffers of its own (1 MiB at a time, 16 in flight), which has to touch
//! nothing else. The touch of every page is inside the clock. A file of 2 GiB (`--mib N`) in /var/tmp, six turns (`--runs N`).
//!
//! In a virtual machine free memory may be the host's again (free page reporting hands it back within seconds), and the first touch of it costs
//! the host's time without a fault in the guest. So as much memory is written and freed right before each way begins.

mod rows;

use majorfault::access::Opened;
use majorfault::map::MappedFile;
use majorfault::{Extent, Uring};
use rows::{Row, note, print};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// One byte of each page.
fn touch(map: &MappedFile, length: usize) {
    let bytes = map.bytes(0..length).expect("the whole file");
    let sum: u64 = (0..length).step_by(PAGE).filter_map(|at| bytes.get(at)).map(u64::from).sum();
    std::hint::black_box(sum);
}

fn by_load(map: &MappedFile, length: usize) {
    let report = map.load(&mut |_, _| ()).expect("the file is loaded");
    assert_eq!(report.left_bytes, 0, "memory is too short for this file");
    touch(map, length);
}

fn by_command(command: &mut Command, path: &Path, length: usize) {
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the command");
    assert!(ended.success(), "{command:?} ended with {ended}");
    touch(&MappedFile::open(path).expect("a mapping"), length);
}

fn by_uring(opened: &mut Opened, length: usize) {
    let extents: Vec<Extent> =
        (0..length / MIB).map(|block| Extent { offset: (block * MIB) as u64, length: MIB }).collect();
    let mut sum = 0;
    let read = opened.visit(&extents, |_, bytes| {
        sum += bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>();
    });
    read.expect("the file is read");
    std::hint::black_box(sum);
}

const OURS: [&str; 2] = ["load", "load, huge pages"];
const PEERS: [&str; 3] = ["uring", "dd", "vmtouch"];

/// Does it the way of this name. None where that is not installed.
fn by(name: &str, path: &Path, length: usize) -> Option<()> {
    match name {
        "load" => by_load(&MappedFile::open(path).expect("a mapping"), length),
        "load, huge pages" => {
            by_load(&MappedFile::options().huge_pages().open(path).expect("a mapping"), length);
        }
        "uring" => by_uring(&mut Uring::options().depth(16).open(path).expect("io_uring"), length),
        "dd" => {
            let of = format!("if={}", path.display());
            by_command(Command::new("dd").args([&of, "of=/dev/null", "bs=1M"]), path, length);
        }
        _ => {
            Command::new("vmtouch").arg(path).stdout(Stdio::null()).status().ok()?;
            by_command(Command::new("vmtouch").arg("-t").arg(path), path, length);
        }
    }
    Some(())
}

/// Memory that the host backs, freed, so that what comes next gets it.
fn warm(length: usize) {
    let mut memory = Vec::<u8>::with_capacity(length);
    memory.resize(length, 1);
    std::hint::black_box(&memory);
}

/// Processor seconds of this process and the children that it waited for.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let after = stat.rsplit_once(')').expect("a name in brackets").1;
    let ticks: f64 = after.split_whitespace().skip(11).take(4).map(|ticks| ticks.parse::<f64>().expect("ticks")).sum();
    ticks / 100.0
}

fn make(path: &Path, length: usize) -> File {
    let mut file = File::create(path).expect("a file in /var/tmp");
    let block: Vec<u8> = (0..MIB).map(|index| ((index * 31) >> 3) as u8).collect();
    (0..length / MIB).for_each(|_| file.write_all(&block).expect("room in /var/tmp"));
    file.sync_all().expect("data on the disk");
    file
}

fn turn(rows: &mut Vec<Row>, turn: usize, file: &File, path: &Path, length: usize) {
    let names = [OURS.as_slice(), &PEERS].concat();
    for index in 0..names.len() {
        let name = names[(index + turn) % names.len()];
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
        warm(length + length / 4);
        let (began, spent) = (Instant::now(), processor());
        if by(name, path, length).is_some() {
            let took = began.elapsed().as_secs_f64();
            note(rows, name.to_owned(), "GiB/s", length as f64 / took / f64::from(1 << 30));
            note(rows, format!("{name}, processor"), "s", processor() - spent);
        }
    }
}

fn main() {
    let length = rows::number("--mib", 2048) * MIB;
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("data");
    let file = make(&path, length);
    let mut rows = Vec::new();
    for number in 0..rows::number("--runs", 6) {
        turn(&mut rows, number, &file, &path, length);
    }
    for name in OURS {
        let best =
            |run: usize| PEERS.iter().filter_map(|peer| rows::runs(&rows, peer).get(run)).copied().fold(0.0, f64::max);
        let ratios: Vec<f64> = rows::runs(&rows, name).iter().enumerate().map(|(run, rate)| rate / best(run)).collect();
        ratios.into_iter().for_each(|ratio| note(&mut rows, format!("{name} / best of the peers"), "x", ratio));
    }
    print(&rows);
}
