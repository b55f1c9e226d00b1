//! Loading a mapped file of 4 GiB as a whole, beside the device's own speed: `cargo bench -p majorfault --bench load`.
//!
//! In turns, cold each time: the file read once through `uring` past the page cache, 1 MiB at a time, 16 in flight; and
//! `MappedFile::load`, after which every page is touched. Prints the median of the ratios, their range, and the major
//! faults of the touching. Needs 4 GiB of memory and of /var/tmp.

use majorfault::access::{Reader, Visitor};
use majorfault::map::MappedFile;
use majorfault::{Extent, Given, Layout, Target, methods};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

const BYTES: usize = 4 << 30;
const BLOCK: usize = 1 << 20;
const ROUNDS: usize = 5;

/// Takes a word of each block.
struct First(u64);

impl Visitor for First {
    fn see(&mut self, _: usize, bytes: &[u8]) -> ControlFlow<()> {
        self.0 ^= u64::from(bytes[0]);
        ControlFlow::Continue(())
    }
}

fn main() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("data");
    let mut file = File::create(&path).expect("a file in /var/tmp");
    let block: Vec<u8> = (0..BLOCK).map(|index| ((index * 31) >> 3) as u8).collect();
    (0..BYTES / BLOCK).for_each(|_| file.write_all(&block).expect("4 GiB of room in /var/tmp"));
    file.sync_all().expect("data on the disk");

    let target = Arc::new(Target::open(std::slice::from_ref(&path), &Layout::default()).expect("the file just made"));
    let given = Given::none().with("depth", 16);
    let mut device = (methods::named("uring").expect("uring").open)(target, &given).expect("io_uring").reader;
    let mut ratios: Vec<f64> = (0..ROUNDS).map(|round| turn(round, device.as_mut(), &file, &path)).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, middle, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!("load / device: {middle:.2} [{least:.2}-{most:.2}] of {ROUNDS} rounds");
}

/// One round; how much of the device's bandwidth the load had.
fn turn(round: usize, device: &mut dyn Reader, file: &File, path: &std::path::Path) -> f64 {
    let extents: Vec<Extent> =
        (0..BYTES / BLOCK).map(|block| Extent { offset: (block * BLOCK) as u64, length: BLOCK }).collect();
    let began = Instant::now();
    device.visit(&extents, &mut First(0)).expect("the file is read");
    let read = began.elapsed().as_secs_f64();

    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    let map = MappedFile::open(path).expect("a mapping");
    let began = Instant::now();
    let report = map.load(&mut |_, _| ()).expect("the file is loaded");
    let load = began.elapsed().as_secs_f64();
    let before = major_faults();
    let bytes = map.bytes(0..BYTES).expect("the whole file");
    let sum: u64 = (0..bytes.len()).step_by(4096).filter_map(|at| bytes.get(at)).map(u64::from).sum();
    std::hint::black_box(sum);
    let faults = major_faults() - before;

    let speed = |seconds: f64| BYTES as f64 / seconds / f64::from(1 << 30);
    println!(
        "round {round}: device {:.2} GiB/s, load {:.2} GiB/s ({} bytes left out), then {faults} major faults",
        speed(read),
        speed(load),
        report.left_bytes
    );
    read / load
}

fn major_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let after = stat.rsplit_once(')').expect("a name in brackets").1;
    after.split_whitespace().nth(9).and_then(|faults| faults.parse().ok()).expect("majflt, proc_pid_stat(5)")
}
