//! Reads of pages that are all in memory: some bytes of a random page of 256 MiB, each way beside a raw pointer into private
//! memory of small pages, as the pool's is. One thread and two, each with an order of its own.

use super::{Draws, PAGE, Row, note};
use majorfault::pool::{Handle, Pool, PoolLayout};
use majorfault::{Bytes, Extent, access::Reader, access::Visitor};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const PAGES: usize = 65_536;

/// Reads of one arm in one turn, over all threads.
const READS: usize = 2_000_000;

/// Pages full of ones.
pub struct Ones;

impl Reader for Ones {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<(), majorfault::Error> {
        let ones = vec![1; extents.iter().map(|extent| extent.length).max().unwrap_or(0)];
        for (index, extent) in extents.iter().enumerate() {
            visitor.submitted(index);
            if visitor.see(index, &ones[..extent.length]).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>, majorfault::Error> {
        Ok(Box::new(Ones))
    }
}

/// The same pages in a pool and without one.
pub struct Resident {
    pool: Pool,
    /// Small pages of private memory.
    raw: &'static [u64],
    /// A word for each page, for what a hold costs at least.
    words: Vec<AtomicU64>,
}

impl Resident {
    pub fn new() -> Resident {
        let options = PoolLayout::default().memory(Bytes((PAGES * PAGE) as u64));
        let pool = Pool::new((PAGES * PAGE) as u64, options).expect("a pool");
        pool.handle(Box::new(Ones)).fetch(&(0..PAGES as u64).collect::<Vec<_>>()).expect("all of it");
        let words = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        Resident { pool, raw: small_pages(), words }
    }

    /// Each arm once, in the order of this turn.
    pub fn measure(&self, rows: &mut Vec<Row>, turn: usize) {
        for (threads, lines) in [(1, 1), (2, 1), (1, PAGE / 64), (2, PAGE / 64)] {
            let arms: [(&str, &dyn Fn() -> f64); 6] = [
                ("raw pointer", &|| timed(threads, lines, || |page| self.by_pointer(page, lines))),
                ("two atomic operations", &|| timed(threads, lines, || |page| self.by_counting(page, lines))),
                ("Pool::optimistic", &|| timed(threads, lines, || self.by_optimistic(lines))),
                ("Pool::peek", &|| timed(threads, lines, || |page| self.by_peek(page, lines))),
                ("Pool::try_pin", &|| timed(threads, lines, || |page| self.by_try_pin(page, lines))),
                ("Handle::pin", &|| timed(threads, lines, || by_handle(self.pool.handle(Box::new(Ones)), lines))),
            ];
            let mut found = [0.0; 6];
            for index in 0..arms.len() {
                let arm = (index + turn) % arms.len();
                found[arm] = arms[arm].1();
            }
            let name = format!("resident, {} B, {threads} thread{}", lines * 64, if threads > 1 { "s" } else { "" });
            note(rows, format!("{name}, raw pointer"), "ns", found[0]);
            for arm in 1..arms.len() {
                note(rows, format!("{name}, {}", arms[arm].0), "x raw", found[arm] / found[0]);
            }
        }
    }

    #[allow(unsafe_code, reason = "the raw pointer to be compared with has to be raw")]
    fn by_pointer(&self, page: usize, lines: usize) -> u64 {
        // SAFETY: there are `PAGES` pages.
        sum(unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(page * PAGE / 8), lines * 8) })
    }

    fn by_counting(&self, page: usize, lines: usize) -> u64 {
        let word = &self.words[page];
        let found = word.load(Ordering::Relaxed);
        // A hold depends on the state found: no addition can take it.
        let held = word.compare_exchange(found, found + 1, Ordering::Acquire, Ordering::Relaxed);
        let sum = self.by_pointer(page, lines);
        word.fetch_sub(u64::from(held.is_ok()), Ordering::Release);
        sum
    }

    fn by_optimistic(&self, lines: usize) -> impl FnMut(usize) -> u64 {
        let pages = self.pool.optimistic();
        move |page| match lines {
            1 => loop {
                if let Ok(words) = pages.words::<8>(page as u64, 0) {
                    return sum(&words);
                }
            },
            _ => loop {
                let Ok(seen) = pages.page(page as u64) else { continue };
                let sum = (0..lines).fold(0, |total: u64, line| total.wrapping_add(sum(&seen.words::<8>(line * 64))));
                if seen.is_undisturbed() {
                    return sum;
                }
            },
        }
    }

    fn by_peek(&self, page: usize, lines: usize) -> u64 {
        loop {
            let Ok(seen) = self.pool.peek(page as u64) else { continue };
            let sum = (0..lines).fold(0, |total: u64, line| total.wrapping_add(sum(&seen.words::<8>(line * 64))));
            if seen.is_undisturbed() {
                return sum;
            }
        }
    }

    fn by_try_pin(&self, page: usize, lines: usize) -> u64 {
        loop {
            let Ok(held) = self.pool.try_pin(page as u64) else { continue };
            return sum_bytes(&held[..lines * 64]);
        }
    }
}

fn by_handle(mut handle: Handle, lines: usize) -> impl FnMut(usize) -> u64 {
    move |page| sum_bytes(&handle.pin(page as u64).expect("a page in memory")[..lines * 64])
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |total, word| total.wrapping_add(*word))
}

fn sum_bytes(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |total, word| total.wrapping_add(u64::from_le_bytes(*word)))
}

/// Nanoseconds a read of one thread; each thread makes its own reader.
fn timed<R: FnMut(usize) -> u64>(threads: usize, lines: usize, reader: impl Fn() -> R + Sync) -> f64 {
    let rounds = if lines == 1 { READS } else { READS / 8 } / threads;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let reader = &reader;
            scope.spawn(move || {
                let (mut read, mut draws, mut total) = (reader(), Draws(thread as u64 + 1), 0u64);
                for _ in 0..rounds {
                    total = total.wrapping_add(read(draws.below(PAGES as u64) as usize));
                }
                black_box(total);
            });
        }
    });
    began.elapsed().as_secs_f64() * 1e9 / rounds as f64
}

/// Private memory like the pool's: small pages, wherever the kernel found them.
#[allow(unsafe_code, reason = "the raw pointer to be compared with has to be raw")]
fn small_pages() -> &'static [u64] {
    // SAFETY: fresh private memory, filled before anybody reads it, and never unmapped.
    unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let address = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, protection, flags, -1, 0);
        assert_ne!(address, libc::MAP_FAILED);
        libc::madvise(address, PAGES * PAGE, libc::MADV_NOHUGEPAGE);
        let words = std::slice::from_raw_parts_mut(address.cast::<u64>(), PAGES * PAGE / 8);
        words.fill(1);
        words
    }
}
