//! The states of a pool's page, run by loom through every order of steps of three threads.

use faultline::sys::page_state::{
    Leave, NEW, Refused, Seen, Word, begin, is_undisturbed, lock, lock_marked, pass, share,
};
use faultline::sys::page_state::{unlock, unshare};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering;

/// loom's word, wrapped: neither it nor the trait is of this crate.
struct Modelled(loom::sync::atomic::AtomicU64);

impl Word for Modelled {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, Ordering::Relaxed)
    }
}

/// A page whose bytes loom watches for unordered accesses.
struct Page {
    word: Modelled,
    bytes: UnsafeCell<u64>,
}

// The cell is only reached by holders, which is what is checked.
#[allow(unsafe_code, reason = "loom checks what this asserts")]
// SAFETY: the model fails where two threads reach the cell without order.
unsafe impl Sync for Page {}
#[allow(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Send for Page {}

fn pages() -> Arc<[Page; 2]> {
    let page = || Page { word: Modelled(loom::sync::atomic::AtomicU64::new(NEW)), bytes: UnsafeCell::new(0) };
    Arc::new([page(), page()])
}

#[allow(unsafe_code, reason = "loom's cell gives raw pointers and checks the access")]
fn write(page: &Page, value: u64) {
    // SAFETY: the caller is the page's writer; loom checks it.
    page.bytes.with_mut(|bytes| unsafe { *bytes = value });
}

#[allow(unsafe_code, reason = "as above")]
fn read(page: &Page) -> u64 {
    // SAFETY: the caller is a reader of the page; loom checks it.
    page.bytes.with(|bytes| unsafe { *bytes })
}

/// Reads the page's value, filling it first where it is evicted; `None` where somebody holds it.
fn use_page(page: &Page, value: u64) -> Option<u64> {
    match share(&page.word) {
        Ok(()) => {
            let found = read(page);
            unshare(&page.word);
            Some(found)
        }
        Err(Refused::Evicted) => {
            let locked = lock(&page.word).ok()?;
            if locked.was_evicted {
                write(page, value);
            }
            unlock(&page.word, Leave::Reading, false);
            let found = read(page);
            unshare(&page.word);
            Some(found)
        }
        Err(Refused::Busy) => None,
    }
}

/// Marks, and evicts what it marked before; what is evicted is overwritten, as the kernel would with zeros.
fn evict(page: &Page) {
    if pass(&page.word) == Seen::Marked && lock_marked(&page.word).is_ok() {
        write(page, 0);
        unlock(&page.word, Leave::Evicted, false);
    }
}

#[test]
fn three_threads_and_two_pages_never_see_anothers_bytes() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pages = pages();
        let users: Vec<_> = [[0, 1], [1, 0]]
            .into_iter()
            .map(|order| {
                let pages = Arc::clone(&pages);
                thread::spawn(move || {
                    for number in order {
                        let found = use_page(&pages[number], 10 + number as u64);
                        assert!(found.is_none_or(|value| value == 10 + number as u64), "{found:?}");
                    }
                })
            })
            .collect();
        for page in [0, 1, 0, 1] {
            evict(&pages[page]);
        }
        users.into_iter().for_each(|user| user.join().unwrap());
    });
}

#[test]
fn a_disturbed_reading_without_holding_is_noticed() {
    loom::model(|| {
        let word = Arc::new(Modelled(loom::sync::atomic::AtomicU64::new(0)));
        let value = Arc::new([loom::sync::atomic::AtomicU64::new(1), loom::sync::atomic::AtomicU64::new(1)]);
        let (its_word, its_value) = (Arc::clone(&word), Arc::clone(&value));
        let writer = thread::spawn(move || {
            if lock(&*its_word).is_ok() {
                // As vmcache and every seqlock: the lock is seen before what is written under it.
                loom::sync::atomic::fence(Ordering::Release);
                its_value[0].store(2, Ordering::Relaxed);
                its_value[1].store(2, Ordering::Relaxed);
                unlock(&*its_word, Leave::Free, true);
            }
        });
        if let Ok(version) = begin(&*word) {
            let seen = [value[0].load(Ordering::Relaxed), value[1].load(Ordering::Relaxed)];
            loom::sync::atomic::fence(Ordering::Acquire);
            if is_undisturbed(&*word, version) {
                assert_eq!(seen[0], seen[1], "half of a change was believed");
            }
        }
        writer.join().unwrap();
    });
}
