//! What the pool costs when everything is resident: `cargo bench -p majorfault --bench pool`.
//!
//! One cache line, or all, of a random page, from a pool of 256 MiB: through a raw pointer into a mapping of the same size, through
//! an optimistic look, and pinned; with one thread and with two, each reading all pages in its own order.
#![allow(clippy::incompatible_msrv, reason = "the oldest Rust builds the library, not its benches")]
#![allow(unsafe_code, reason = "the raw pointer to be compared with has to be raw")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use majorfault::pool::{Pool, PoolLayout};
use majorfault::{Bytes, Given, Layout, Target, methods};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 65_536;

/// A page number for each draw, in an order that no prefetcher knows.
fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize % PAGES
}

/// Time of `rounds` calls of `read` in each of `threads` threads.
fn timed(threads: u64, rounds: u64, read: impl Fn(usize) -> u64 + Sync) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let read = &read;
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut sum = 0u64;
                for _ in 0..rounds {
                    sum = sum.wrapping_add(read(draw(&mut state)));
                }
                black_box(sum);
            });
        }
    });
    began.elapsed()
}

fn resident(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; PAGES * PAGE]).expect("room for 256 MiB in /var/tmp");
    let target = Arc::new(Target::open(std::slice::from_ref(&path), &Layout::default()).expect("the file just made"));
    let below = (methods::named("pread").expect("pread").open)(target, &Given::none()).expect("pread").reader;
    let options = PoolLayout::default().memory(Bytes((PAGES * PAGE) as u64));
    let pool = Pool::new((PAGES * PAGE) as u64, options).expect("a pool");
    pool.handle(below).fetch(&(0..PAGES as u64).collect::<Vec<_>>()).expect("all of it");

    let file = std::fs::File::open(&path).expect("the file just made");
    // SAFETY: a fresh mapping, read only, of a file that nobody changes meanwhile.
    let raw = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let address = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0);
        assert_ne!(address, libc::MAP_FAILED);
        std::slice::from_raw_parts(address.cast::<u64>(), PAGES * PAGE / 8)
    };

    // The same in memory like the pool's: small pages, wherever the kernel found them.
    // SAFETY: fresh private memory, filled before anybody reads it.
    let anonymous = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let address = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, protection, flags, -1, 0);
        assert_ne!(address, libc::MAP_FAILED);
        libc::madvise(address, PAGES * PAGE, libc::MADV_NOHUGEPAGE);
        let words = std::slice::from_raw_parts_mut(address.cast::<u64>(), PAGES * PAGE / 8);
        words.fill(1);
        &*words
    };

    let mut group = criterion.benchmark_group("resident");
    group.throughput(Throughput::Elements(1)).measurement_time(Duration::from_secs(2)).sample_size(30);
    for (threads, bytes) in [(1, 64), (2, 64), (1, PAGE), (2, PAGE)] {
        let id = |name: &str| BenchmarkId::new(name, format!("{bytes} bytes, {threads} thread(s)"));
        for (name, words) in [("raw pointer", raw), ("raw pointer, small pages", anonymous)] {
            group.bench_function(id(name), |bencher| {
                bencher.iter_custom(|rounds| {
                    timed(threads, rounds, |page| sum(words[page * PAGE / 8..].iter().take(bytes / 8).copied()))
                })
            });
        }
        group.bench_function(id("optimistic"), |bencher| {
            bencher.iter_custom(|rounds| {
                timed(threads, rounds, |page| {
                    loop {
                        let Ok(seen) = pool.peek(page as u64) else { continue };
                        let sum = sum((0..bytes / 64).flat_map(|line| seen.words::<8>(line * 64)));
                        if seen.is_undisturbed() {
                            return sum;
                        }
                    }
                })
            })
        });
        group.bench_function(id("pinned"), |bencher| {
            bencher.iter_custom(|rounds| {
                timed(threads, rounds, |page| {
                    loop {
                        let Ok(held) = pool.try_pin(page as u64) else { continue };
                        let (words, _) = held[..bytes].as_chunks::<8>();
                        return sum(words.iter().map(|word| u64::from_le_bytes(*word)));
                    }
                })
            })
        });
    }
    group.finish();
}

fn sum(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, u64::wrapping_add)
}

criterion_group!(benches, resident);
criterion_main!(benches);
