//! The ring of a pool's pages in memory and the set of its dirty ones, run by loom through the orders of steps of two and three
//! threads, and by shuttle through random schedules of six: no page is evicted twice, forgotten, or left unwritten by a flush.

use majorfault::sys::page_state::{
    Became, Leave, NEW, Refused, Seen, Word, enter, lock, lock_dirty, lock_marked, pass, unlock, unshare,
};
use majorfault::sys::resident::{ClockRing, Dirty, Lock};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A pool of pages that are one number each, before a device, once for each model checker: both have the same names.
macro_rules! modelled {
    ($model:ident) => {
        mod $model {
            use super::*;
            use ::$model::sync::Mutex;
            use ::$model::sync::atomic::{AtomicU64, fence};
            pub use ::$model::thread;

            pub struct Checked(AtomicU64);

            impl Word for Checked {
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
                    fence(order);
                }
            }

            pub struct Locked<V>(Mutex<V>);

            impl<V> Lock for Locked<V> {
                type Value = V;
                fn with<T>(&self, act: impl FnOnce(&mut V) -> T) -> T {
                    act(&mut self.0.lock().unwrap())
                }
            }

            pub struct Page {
                word: Checked,
                memory: AtomicU64,
                device: AtomicU64,
                /// Changes that are over.
                pub changes: AtomicU64,
            }

            pub struct Modelled {
                pub pages: Vec<Page>,
                ring: ClockRing<Locked<VecDeque<u64>>>,
                dirty: Dirty<Locked<BTreeSet<u64>>>,
            }

            impl Modelled {
                pub fn new(count: usize) -> Arc<Modelled> {
                    let zero = || AtomicU64::new(0);
                    let page = |_| Page {
                        word: Checked(AtomicU64::new(NEW)),
                        memory: AtomicU64::new(GARBAGE),
                        device: zero(),
                        changes: zero(),
                    };
                    Arc::new(Modelled {
                        pages: (0..count).map(page).collect(),
                        ring: ClockRing::over(Locked(Mutex::default())),
                        dirty: Dirty::over(Locked(Mutex::default())),
                    })
                }

                fn fill(&self, number: u64) {
                    let page = &self.pages[number as usize];
                    page.memory.store(page.device.load(Ordering::Relaxed), Ordering::Relaxed);
                }

                /// Reads a page, bringing it where it is not there; nothing where somebody holds it.
                pub fn read(&self, number: u64) {
                    let page = &self.pages[number as usize];
                    let Ok(entered) = enter(&page.word) else { return };
                    let came = entered == Became::Filler;
                    if came {
                        self.fill(number);
                        unlock(&page.word, Leave::Reading, false);
                    }
                    assert_ne!(page.memory.load(Ordering::Relaxed), GARBAGE, "evicted while it was held");
                    unshare(&page.word);
                    if came {
                        self.ring.arrive([number]);
                    }
                }

                /// Adds one to a page, unless somebody holds it.
                pub fn change(&self, number: u64) {
                    let page = &self.pages[number as usize];
                    let Ok(locked) = lock(&page.word) else { return };
                    if locked.was_evicted {
                        self.fill(number);
                        self.ring.arrive([number]);
                    }
                    page.memory.store(page.memory.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if !locked.dirty {
                        self.dirty.insert(number);
                    }
                    unlock(&page.word, Leave::Free, true);
                    page.changes.fetch_add(1, Ordering::SeqCst);
                }

                fn write(&self, number: u64) {
                    let page = &self.pages[number as usize];
                    page.device.store(page.memory.load(Ordering::Relaxed), Ordering::Relaxed);
                    self.dirty.remove([number]);
                }

                /// Evicts up to `wanted` pages, written first where they are dirty.
                pub fn evict(&self, wanted: usize) {
                    let mut taken = Vec::new();
                    self.ring.sweep(wanted, |number| {
                        let word = &self.pages[number as usize].word;
                        let locked = (pass(word) == Seen::Marked).then(|| lock_marked(word).ok()).flatten();
                        taken.extend(locked.map(|locked| (number, locked.dirty)));
                        locked.is_some()
                    });
                    for (number, dirty) in taken {
                        if dirty {
                            self.write(number);
                        }
                        let page = &self.pages[number as usize];
                        page.memory.store(GARBAGE, Ordering::Relaxed);
                        unlock(&page.word, Leave::Evicted, false);
                    }
                }

                /// Writes what is dirty; every change that was over before is on the device afterwards.
                pub fn flush(&self) {
                    let promised: Vec<u64> =
                        self.pages.iter().map(|page| page.changes.load(Ordering::SeqCst)).collect();
                    for number in self.dirty.now() {
                        let word = &self.pages[number as usize].word;
                        loop {
                            match lock_dirty(word) {
                                Ok(_) => {
                                    self.write(number);
                                    unlock(word, Leave::Free, false);
                                }
                                Err(Refused::Evicted) => {}
                                Err(Refused::Busy) => {
                                    thread::yield_now();
                                    continue;
                                }
                            }
                            break;
                        }
                    }
                    for (page, promised) in self.pages.iter().zip(promised) {
                        let written = page.device.load(Ordering::SeqCst);
                        assert!(written >= promised, "{promised} changes were over, {written} are written");
                    }
                }

                /// Checks, with nobody at work, that the lists say what the states say and that no change was lost.
                pub fn agrees(&self) {
                    let (mut resident, mut changed) = (Vec::new(), Vec::new());
                    for (page, number) in self.pages.iter().zip(0..) {
                        let locked = lock(&page.word).unwrap();
                        resident.extend((!locked.was_evicted).then_some(number));
                        changed.extend(locked.dirty.then_some(number));
                        let now = if locked.was_evicted { &page.device } else { &page.memory };
                        assert_eq!(now.load(Ordering::SeqCst), page.changes.load(Ordering::SeqCst), "changes");
                    }
                    let mut named = Vec::new();
                    self.ring.sweep(100, |number| {
                        named.push(number);
                        true
                    });
                    named.sort_unstable();
                    assert_eq!((named, self.dirty.now()), (resident, changed), "in memory, and dirty");
                }
            }
        }
    };
}

modelled!(loom);
modelled!(shuttle);

/// What is in memory where nothing was filled in.
const GARBAGE: u64 = u64::MAX;

type Step = fn(&loom::Modelled);

/// Runs these threads over two pages in memory, of which the second is dirty, through all orders of few preemptions.
fn beside(threads: &'static [Step]) {
    from(
        |pool| {
            pool.read(0);
            pool.change(1);
        },
        threads,
    );
}

/// Runs these threads over two pages that `start` prepared.
fn from(start: Step, threads: &'static [Step]) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let pool = loom::Modelled::new(2);
        start(&pool);
        let begin = |step: &Step| {
            let (pool, step) = (Arc::clone(&pool), *step);
            loom::thread::spawn(move || step(&pool))
        };
        let others: Vec<_> = threads[1..].iter().map(begin).collect();

        threads[0](&pool);

        others.into_iter().for_each(|other| other.join().unwrap());
        pool.agrees();
    });
}

fn evict_all(pool: &loom::Modelled) {
    pool.evict(2);
}

fn evict_one(pool: &loom::Modelled) {
    pool.evict(1);
}

fn read_first(pool: &loom::Modelled) {
    pool.read(0);
}

fn read_both(pool: &loom::Modelled) {
    pool.read(0);
    pool.read(1);
}

fn change_first(pool: &loom::Modelled) {
    pool.change(0);
}

fn change_second(pool: &loom::Modelled) {
    pool.change(1);
}

fn flush(pool: &loom::Modelled) {
    pool.flush();
}

#[test]
fn two_hands_of_the_clock_take_no_page_twice() {
    beside(&[evict_all, evict_all]);
    beside(&[evict_one, evict_all]);
}

#[test]
fn a_page_that_comes_while_the_clock_goes_is_in_the_ring_once() {
    beside(&[evict_all, read_both]);
    beside(&[read_both, evict_all]);
}

#[test]
fn a_page_that_another_thread_brought_and_changed_meanwhile_is_not_filled_again() {
    const NOTHING: Step = |_| ();
    from(NOTHING, &[read_first, change_first]);
    from(NOTHING, &[change_first, read_first]);
    from(NOTHING, &[read_first, read_first]);
    from(NOTHING, &[change_first, read_first, evict_one]);
}

#[test]
fn a_flush_writes_every_change_that_was_over() {
    beside(&[flush, change_first]);
    beside(&[change_second, flush]);
    beside(&[flush, evict_all]);
    beside(&[flush, flush]);
}

#[test]
fn a_page_changed_while_it_is_evicted_is_in_the_lists_or_in_neither() {
    beside(&[change_second, evict_all]);
    beside(&[evict_all, change_first]);
}

fn all_at_once() {
    let pool = shuttle::Modelled::new(5);
    let run = |step: fn(&shuttle::Modelled, u64), first: u64| {
        let pool = Arc::clone(&pool);
        shuttle::thread::spawn(move || (0..10).for_each(|turn| step(&pool, (first + turn * 2) % 5)))
    };
    let evict: fn(&shuttle::Modelled, u64) = |pool, number| pool.evict(1 + number as usize % 3);
    let flush: fn(&shuttle::Modelled, u64) = |pool, _| pool.flush();
    let threads = [
        run(shuttle::Modelled::change, 0),
        run(shuttle::Modelled::change, 1),
        run(shuttle::Modelled::read, 2),
        run(evict, 0),
        run(evict, 1),
        run(flush, 0),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    pool.agrees();
}

#[test]
fn no_random_schedule_parts_the_lists_from_the_states() {
    ::shuttle::check_random(all_at_once, 1500);
}

#[test]
fn no_schedule_of_few_preemptions_parts_the_lists_from_the_states() {
    ::shuttle::check_pct(all_at_once, 1500, 3);
}
