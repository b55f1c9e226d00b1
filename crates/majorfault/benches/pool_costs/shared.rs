//! What threads share in the pool, seen from outside: misses without their reads and pins of pages in memory, by 1, 2, 8 and 64
//! threads. The processor time of each operation tells what sharing costs on these processors; a wait is a thread that slept
//! because another one had the lock.

use super::resident::Ones;
use super::{Draws, GIB, PAGE, Row, Zeros, note};
use majorfault::Bytes;
use majorfault::pool::{Pool, PoolLayout};
use std::sync::Barrier;
use std::time::Instant;

const THREADS: [u64; 4] = [1, 2, 8, 64];
const MISSES: u64 = 128_000;
const PINS: u64 = 2_000_000;
/// Pages that the pool of pins holds.
const HELD: u64 = 16_384;

/// Processor seconds of the process, and how often its threads slept.
fn spent() -> (f64, f64) {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
    let waits = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse::<f64>().ok()
    });
    (spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9, waits.sum())
}

/// Lets each thread do its share of `all` once every thread is ready; notes what each operation cost.
fn together(rows: &mut Vec<Row>, name: &str, all: u64, threads: u64, act: impl Fn(u64, u64, &Barrier) + Sync) {
    let (ready, done, gone) =
        (threads as usize + 1, Barrier::new(threads as usize + 1), Barrier::new(threads as usize + 1));
    let barrier = Barrier::new(ready);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (act, barrier, done, gone) = (&act, &barrier, &done, &gone);
            scope.spawn(move || {
                act(thread, all / threads, barrier);
                done.wait();
                // The counts of a thread go with it.
                gone.wait();
            });
        }
        let (before, waits) = spent();
        barrier.wait();
        let began = Instant::now();
        done.wait();
        let (took, (after, waits_after)) = (began.elapsed().as_secs_f64(), spent());
        gone.wait();
        let each = all as f64;
        note(rows, format!("{name}, {threads} threads"), "cpu ns", (after - before) * 1e9 / each);
        note(rows, format!("{name}, {threads} threads, rate"), "M/s", each / took / 1e6);
        note(rows, format!("{name}, {threads} threads, waits for each"), "", (waits_after - waits) / each);
    });
}

pub fn shared(rows: &mut Vec<Row>) {
    for threads in THREADS {
        let pool = Pool::new(64 * GIB, PoolLayout::default()).expect("address space");
        let pages = pool.page_count();
        // Full first: what comes from then on evicts.
        let mut first = pool.handle(Box::new(Zeros));
        (0..20_000).for_each(|page| drop(first.pin(page).expect("a page")));
        together(rows, "a miss without its read", MISSES, threads, |thread, count, ready| {
            let (mut handle, mut draws) = (pool.handle(Box::new(Zeros)), Draws(thread + 1));
            ready.wait();
            (0..count).for_each(|_| drop(handle.pin(draws.below(pages)).expect("a page")));
        });

        let held = PoolLayout::default().memory(Bytes(2 * HELD * PAGE as u64));
        let pool = Pool::new(HELD * PAGE as u64, held).expect("address space");
        pool.handle(Box::new(Ones)).fetch(&(0..HELD).collect::<Vec<_>>()).expect("all of it");
        together(rows, "a pin of a page in memory", PINS, threads, |thread, count, ready| {
            let (mut handle, mut draws) = (pool.handle(Box::new(Zeros)), Draws(thread + 1));
            ready.wait();
            (0..count).for_each(|_| drop(handle.pin(draws.below(HELD)).expect("a page")));
        });
    }
}
