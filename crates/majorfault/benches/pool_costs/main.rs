//! What the pool costs beside the bytes: `cargo bench -p majorfault --bench pool_costs`.
//!
//! Start, flush of nothing, and a miss, for files of 1 GiB, 64 GiB and 1 TiB behind 64 MiB of memory (the reader below gives
//! zeros at once); durable writes through [`PooledFile`] beside pwrite(2) and fdatasync(2) and beside `uring`, on a file in
//! /var/tmp that the page cache holds, and one that it does not; reads of resident pages beside a raw pointer. Arms take turns, six times; shown are the median, and the least and the
//! most. `-- writes`, `-- sizes`, `-- resident`, `-- shared` (what many threads cost each other) or `-- words` (what
//! is kept for pages that are not in memory, which no run without it has) runs one part, `--runs N` takes other counts.
#![allow(clippy::incompatible_msrv, reason = "the oldest Rust builds the library, not its benches")]

mod resident;
#[path = "../rows/mod.rs"]
mod rows;
mod shared;
mod words;

use majorfault::access::{Filler, Reader, Visitor};
use majorfault::pool::{Pool, PoolLayout, PooledFile};
use majorfault::{Error, Extent, Given, Layout, Target, methods};
use rows::{Row, note, print};
use std::fs::{File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const PAGE: usize = 4096;
const GIB: u64 = 1 << 30;
const SIZES: [(&str, u64); 3] = [("1 GiB", GIB), ("64 GiB", 64 * GIB), ("1 TiB", 1024 * GIB)];

/// A device without latency: zeros.
struct Zeros;

impl Reader for Zeros {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<(), Error> {
        for (index, extent) in extents.iter().enumerate() {
            visitor.submitted(index);
            if visitor.see(index, &[0; PAGE][..extent.length]).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(Zeros))
    }
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// Nanoseconds that this thread had a processor, to a tick: neighbours on the machine do not count.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc");
    text.split(' ').next().expect("a number").parse().expect("a number")
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    status("VmRSS:")
}

/// Bytes of this process, by a name of proc_pid_status(5).
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn sizes(rows: &mut Vec<Row>) {
    for (name, length) in SIZES {
        let before = resident();
        let began = Instant::now();
        let pool = Pool::new(length, PoolLayout::default()).expect("address space");
        note(rows, format!("start, {name}"), "ms", began.elapsed().as_secs_f64() * 1e3);
        note(rows, format!("start, resident, {name}"), "MiB", resident().saturating_sub(before) as f64 / 1048576.0);

        let mut handle = pool.handle(Box::new(Zeros));
        let began = Instant::now();
        (0..10).for_each(|_| handle.flush().expect("nothing to be written"));
        note(rows, format!("flush of nothing, {name}"), "us", began.elapsed().as_secs_f64() * 1e5);

        let (mut draws, pages) = (Draws(7), pool.page_count());
        let mut misses = |count: u32| {
            (0..count).for_each(|_| drop(handle.pin(draws.below(pages)).expect("a page")));
        };
        // Full first: what comes from then on evicts.
        misses(20_000);
        let began = processor_ns();
        misses(30_000);
        note(rows, format!("a miss without its read, {name}"), "cpu us", (processor_ns() - began) / 3e7);
    }
}

const MIB_WRITTEN: u64 = 64;

/// The pages that are written, in order.
fn pages(random: bool) -> (Vec<u64>, f64) {
    match random {
        false => ((0..MIB_WRITTEN * 256).collect(), MIB_WRITTEN as f64),
        true => {
            let mut draws = Draws(11);
            ((0..4096).map(|_| draws.below(MIB_WRITTEN * 256)).collect(), 16.0)
        }
    }
}

fn by_pwrite(path: &Path, pages: &[u64], bytes: &[u8]) -> f64 {
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    let began = Instant::now();
    pages.iter().for_each(|number| file.write_all_at(bytes, number * PAGE as u64).expect("room"));
    file.sync_data().expect("the device");
    began.elapsed().as_secs_f64()
}

fn by_pool(path: &Path, pages: &[u64], bytes: &[u8]) -> f64 {
    let file = PooledFile::open(path).expect("the file");
    let began = Instant::now();
    pages.iter().for_each(|number| file.write_at(number * PAGE as u64, bytes).expect("room"));
    file.sync().expect("the device");
    began.elapsed().as_secs_f64()
}

struct Copies<'a>(&'a [u8]);

impl Filler for Copies<'_> {
    fn fill(&mut self, _: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        bytes.chunks_mut(PAGE).for_each(|page| page.copy_from_slice(self.0));
        ControlFlow::Continue(())
    }
}

fn by_uring(path: &Path, pages: &[u64], bytes: &[u8]) -> f64 {
    let layout = Layout { write: true, ..Layout::default() };
    let target = Arc::new(Target::open(&[path.to_owned()], &layout).expect("the file"));
    let mut reader = (methods::named("uring").expect("uring").open)(target, &Given::none()).expect("io_uring").reader;
    let together = if pages[1] == pages[0] + 1 { 64 } else { 1 };
    let extent = |some: &[u64]| Extent { offset: some[0] * PAGE as u64, length: some.len() * PAGE };
    let extents: Vec<Extent> = pages.chunks(together).map(extent).collect();
    let began = Instant::now();
    reader.update(&extents, &mut Copies(bytes)).expect("room");
    reader.sync().expect("the device");
    began.elapsed().as_secs_f64()
}

type Arm = fn(&Path, &[u64], &[u8]) -> f64;

const ARMS: [(&str, Arm); 3] =
    [("pwrite + fdatasync", by_pwrite), ("PooledFile", by_pool), ("uring, bytes at hand", by_uring)];

/// Puts the file into the page cache, or out of it: both arms that write past it and those that write into it find it as said.
fn leave(path: &Path, is_cached: bool) {
    let file = File::open(path).expect("the file");
    file.sync_data().expect("the device");
    match is_cached {
        true => drop(std::fs::read(path).expect("the file")),
        false => rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("no dirty pages"),
    }
}

fn writes(rows: &mut Vec<Row>, path: &Path, turn: usize) {
    for (state, is_cached) in [("not cached", false), ("cached", true)] {
        for (order, random) in [("sequential", false), ("random 4 KiB", true)] {
            let (pages, mib) = pages(random);
            let mut rates = [0.0; ARMS.len()];
            for index in 0..ARMS.len() {
                let which = (index + turn) % ARMS.len();
                let (name, arm) = ARMS[which];
                let bytes = vec![(turn * 7 + index) as u8; PAGE];
                leave(path, is_cached);
                rates[which] = mib / arm(path, &pages, &bytes);
                note(rows, format!("durable, {order}, {state}, {name}"), "MiB/s", rates[which]);
            }
            let [by_pwrite, by_pool, by_uring] = rates;
            note(rows, format!("durable, {order}, {state}, PooledFile / pwrite"), "x", by_pool / by_pwrite);
            note(rows, format!("durable, {order}, {state}, PooledFile / uring"), "x", by_pool / by_uring);
        }
    }
}

const PARTS: [&str; 5] = ["sizes", "writes", "resident", "shared", "words"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked =
        |part: &str| !words.iter().any(|word| PARTS.contains(&word.as_str())) || words.iter().any(|word| word == part);
    let runs = rows::number("--runs", 6);
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; (MIB_WRITTEN << 20) as usize]).expect("room in /var/tmp");
    File::open(&path).and_then(|file| file.sync_all()).expect("the device");
    let mut rows = Vec::new();
    let resident = asked("resident").then(resident::Resident::new);
    for turn in 0..runs {
        if asked("sizes") {
            sizes(&mut rows);
        }
        if asked("writes") {
            writes(&mut rows, &path, turn);
        }
        if asked("shared") {
            shared::shared(&mut rows);
        }
        // Page tables of hundreds of MiB: only where it is asked for.
        if words.iter().any(|word| word == "words") {
            words::words(&mut rows);
        }
        if let Some(resident) = &resident {
            resident.measure(&mut rows, turn);
        }
    }
    print(&rows);
}
