//! The states of a pool's pages under random schedules of more threads and pages than every order can be tried for:
//! readers, writers and the clock, with a device behind them. No change may be lost, and nobody may be disturbed.

use majorfault::sys::page_state::{Leave, NEW, Refused, Seen, Word, lock, lock_marked, pass, share, unlock, unshare};
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGES: usize = 5;

/// shuttle's word, wrapped: neither it nor the trait is of this crate.
struct Scheduled(AtomicU64);

impl Word for Scheduled {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, Ordering::Relaxed)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fence(order: Ordering) {
        shuttle::sync::atomic::fence(order);
    }
}

struct Page {
    word: Scheduled,
    memory: AtomicU64,
    device: AtomicU64,
    changes: AtomicU64,
}

/// What is in memory where nothing was filled in.
const GARBAGE: u64 = u64::MAX;

impl Page {
    fn new() -> Page {
        let word = Scheduled(AtomicU64::new(NEW));
        Page { word, memory: AtomicU64::new(GARBAGE), device: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }

    fn get(&self) -> u64 {
        self.memory.load(Ordering::SeqCst)
    }

    fn set(&self, value: u64) {
        self.memory.store(value, Ordering::SeqCst);
    }

    fn change(&self) {
        let Ok(locked) = lock(&self.word) else { return };
        if locked.was_evicted {
            self.set(self.device.load(Ordering::SeqCst));
        }
        let before = self.get();
        thread::yield_now();
        self.set(before + 1);
        self.changes.fetch_add(1, Ordering::SeqCst);
        unlock(&self.word, Leave::Free, true);
    }

    fn read(&self) {
        match share(&self.word) {
            Ok(()) => {}
            Err(Refused::Busy) => return,
            Err(Refused::Evicted) => {
                let Ok(locked) = lock(&self.word) else { return };
                if locked.was_evicted {
                    self.set(self.device.load(Ordering::SeqCst));
                }
                unlock(&self.word, Leave::Reading, locked.dirty);
            }
        }
        let first = self.get();
        thread::yield_now();
        assert_eq!((first, first != GARBAGE), (self.get(), true), "changed or evicted while it was held");
        unshare(&self.word);
    }

    fn evict(&self) {
        if pass(&self.word) != Seen::Marked {
            return;
        }
        let Ok(locked) = lock_marked(&self.word) else { return };
        if locked.dirty {
            self.device.store(self.get(), Ordering::SeqCst);
        }
        self.set(GARBAGE);
        unlock(&self.word, Leave::Evicted, false);
    }
}

fn all_at_once() {
    let pages: Arc<Vec<Page>> = Arc::new((0..PAGES).map(|_| Page::new()).collect());
    let run = |step: fn(&Page), first: usize| {
        let pages = Arc::clone(&pages);
        thread::spawn(move || (0..3 * PAGES).for_each(|turn| step(&pages[(first + turn * 2) % PAGES])))
    };
    let threads =
        [run(Page::change, 0), run(Page::change, 1), run(Page::read, 2), run(Page::read, 0), run(Page::evict, 0)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    for page in pages.iter() {
        let is_evicted = share(&page.word) == Err(Refused::Evicted);
        let value = if is_evicted { page.device.load(Ordering::SeqCst) } else { page.get() };
        assert_eq!(value, page.changes.load(Ordering::SeqCst), "a change was lost");
    }
}

#[test]
fn no_random_schedule_loses_a_change() {
    shuttle::check_random(all_at_once, 1500);
}

#[test]
fn no_schedule_of_few_preemptions_loses_a_change() {
    shuttle::check_pct(all_at_once, 1500, 3);
}
