//! What the abstraction itself costs: `cargo bench -p majorfault --bench access`.
//!
//! - `null/...`: nanoseconds for each extent of a visit that reads nothing; the floor under every other figure.
//! - `warm scan/...`: 256 MiB of cached file summed through the `mmap` method, and through a bare loop over a mapping made
//!   with plain mmap(2), in turns; the two should be equal.
//! - `hints/...`: processor time of announcing a row that is not cached, one row a call and 32.
#![allow(clippy::incompatible_msrv, reason = "the oldest Rust builds the library, not its benches")]
#![allow(unsafe_code, reason = "the bare loop to be compared with has to be bare")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use majorfault::access::{Reader, Urgency};
use majorfault::{Extent, Given, Layout, Target, methods};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

const FILE: usize = 256 << 20;
const BLOCK: usize = 4096;

fn reader(name: &str) -> (Box<dyn Reader>, tempfile::TempDir) {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; FILE]).expect("room for 256 MiB in /var/tmp");
    let target = Target::open(&[path], &Layout::default()).expect("the file just made");
    // SAFETY: nobody else knows the file.
    let target = unsafe { target.assume_unchanged() };
    let opened = (methods::named(name).expect(name).open)(Arc::new(target), &Given::none()).expect(name);
    (opened.reader, dir)
}

fn extents() -> Vec<Extent> {
    (0..FILE / BLOCK).map(|number| Extent { offset: (number * BLOCK) as u64, length: BLOCK }).collect()
}

/// The words of a page, added: what a reader of 4 KiB would do at least.
fn sum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn null(criterion: &mut Criterion) {
    let (mut reader, _dir) = reader("null");
    let extents = extents();
    let mut group = criterion.benchmark_group("null");
    group.measurement_time(Duration::from_secs(2));
    for batch in [1, 64] {
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_with_input(BenchmarkId::new("extents a call", batch), &batch, |bencher, &batch| {
            let mut at = 0;
            bencher.iter(|| {
                at = if at + 2 * batch < extents.len() { at + batch } else { 0 };
                let visited = reader.visit(&extents[at..at + batch], &mut |_: usize, bytes: &[u8]| {
                    black_box(bytes);
                });
                black_box(visited.is_ok());
            });
        });
    }
    group.finish();
}

fn warm_scan(criterion: &mut Criterion) {
    let (mut reader, dir) = reader("mmap");
    let file = std::fs::File::open(dir.path().join("data")).expect("the file just made");
    // SAFETY: a fresh mapping, read only, of a file that nobody changes meanwhile.
    let bare = unsafe {
        let address = libc::mmap(std::ptr::null_mut(), FILE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(address, libc::MAP_FAILED);
        std::slice::from_raw_parts(address.cast::<u8>(), FILE)
    };
    let extents = extents();
    let mut group = criterion.benchmark_group("warm scan");
    group.throughput(Throughput::Bytes(FILE as u64)).sample_size(30).measurement_time(Duration::from_secs(3));
    group.bench_function("bare loop", |bencher| {
        // Known at run time only, as in a program that takes it from its user.
        let block = black_box(BLOCK);
        bencher.iter(|| bare.chunks_exact(block).fold(0u64, |all, page| all.wrapping_add(black_box(sum(page)))))
    });
    group.bench_function("mmap method", |bencher| {
        bencher.iter(|| {
            let mut all = 0u64;
            let visited = reader.visit(&extents, &mut |_: usize, bytes: &[u8]| {
                all = all.wrapping_add(black_box(sum(bytes)));
            });
            visited.expect("a cached file");
            all
        })
    });
    group.finish();
}

fn hints(criterion: &mut Criterion) {
    let (mut reader, dir) = reader("mmap");
    let file = std::fs::File::open(dir.path().join("data")).expect("the file just made");
    file.sync_all().expect("data on the disk");
    let rows: Vec<Extent> = extents().into_iter().step_by(16).collect();
    let mut group = criterion.benchmark_group("hints");
    group.throughput(Throughput::Elements(rows.len() as u64)).sample_size(20).measurement_time(Duration::from_secs(8));
    for together in [1, 32] {
        group.bench_with_input(BenchmarkId::new("rows a call", together), &together, |bencher, &together| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| announced(&mut *reader, &file, &rows, together)).sum());
        });
    }
    group.finish();
}

/// Processor time of announcing these rows, none of them cached.
fn announced(reader: &mut dyn Reader, file: &std::fs::File, rows: &[Extent], together: usize) -> Duration {
    let now = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).expect("a time");
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    let began = now();
    rows.chunks(together).for_each(|some| reader.will_need(some, Urgency::Soon).expect("hints"));
    now() - began
}

criterion_group!(benches, null, warm_scan, hints);
criterion_main!(benches);
