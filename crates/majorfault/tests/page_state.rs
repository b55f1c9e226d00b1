//! The states of a pool's page, run by loom through every order of steps of three threads.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use majorfault::sys::page_state::{
    Became, Leave, NEW, Seen, Word, begin, enter, is_undisturbed, lock, lock_dirty, lock_marked, pass, share, unlock,
    unshare,
};
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
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
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
    if enter(&page.word).ok()? == Became::Filler {
        write(page, value);
        unlock(&page.word, Leave::Reading, false);
    }
    let found = read(page);
    unshare(&page.word);
    Some(found)
}

/// Marks, and evicts what it marked before; what is evicted is overwritten, as the kernel would with zeros.
fn evict(page: &Page) {
    if pass(&page.word) == Seen::Marked && lock_marked(&page.word).is_ok() {
        write(page, 0);
        unlock(&page.word, Leave::Evicted, false);
    }
}

/// Every order of steps with at most `bound` preemptions: all orders of three threads would take minutes.
fn few_preemptions(bound: usize, steps: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.check(steps);
}

#[test]
fn three_threads_and_two_pages_never_see_anothers_bytes() {
    few_preemptions(3, || {
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

/// A page of two words that are read without holding it.
struct Pair {
    word: Modelled,
    values: [loom::sync::atomic::AtomicU64; 2],
}

impl Pair {
    /// In memory and free.
    fn new() -> Arc<Pair> {
        let one = || loom::sync::atomic::AtomicU64::new(1);
        let word = Modelled(loom::sync::atomic::AtomicU64::new(NEW));
        lock(&word).unwrap();
        unlock(&word, Leave::Free, false);
        Arc::new(Pair { word, values: [one(), one()] })
    }

    /// Sets both words as the page's writer, where nobody holds it.
    fn change(&self, value: u64) {
        if lock(&self.word).is_ok() {
            self.values.iter().for_each(|word| word.store(value, Ordering::Relaxed));
            unlock(&self.word, Leave::Free, true);
        }
    }

    /// Reads both without holding; `None` where somebody disturbed it.
    fn read(&self) -> Option<[u64; 2]> {
        let version = begin(&self.word).ok()?;
        let seen = [self.values[0].load(Ordering::Relaxed), self.values[1].load(Ordering::Relaxed)];
        is_undisturbed(&self.word, version).then_some(seen)
    }
}

fn reads_no_half(pair: &Pair) {
    let seen = pair.read();
    assert!(seen.is_none_or(|[one, other]| one == other), "{seen:?}");
}

/// Runs `first` beside `others`. Loom runs `first` up to its end before anything else, and then looks for orders that could
/// matter, but a thread's own look at a word hides those of others before it: who is first makes a difference.
fn pair_beside(first: fn(&Pair), others: &'static [fn(&Pair)]) {
    few_preemptions(3, move || {
        let pair = Pair::new();
        let begin = |other: &fn(&Pair)| {
            let (pair, other) = (Arc::clone(&pair), *other);
            thread::spawn(move || other(&pair))
        };
        let threads: Vec<_> = others.iter().map(begin).collect();

        first(&pair);

        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn change(pair: &Pair) {
    pair.change(2);
}

fn mark(pair: &Pair) {
    pass(&pair.word);
}

#[test]
fn half_of_a_change_is_never_believed() {
    pair_beside(reads_no_half, &[change]);
    pair_beside(change, &[reads_no_half]);
}

#[test]
fn a_page_that_the_clock_marked_after_a_change_is_read_with_the_change() {
    fn change_and_mark(pair: &Pair) {
        change(pair);
        mark(pair);
    }
    pair_beside(change_and_mark, &[reads_no_half]);
    pair_beside(change, &[mark, reads_no_half]);
}

#[test]
fn a_version_that_was_read_before_a_change_is_not_that_of_the_page_after_it() {
    loom::model(|| {
        let pair = Pair::new();
        let its = Arc::clone(&pair);
        let first = begin(&pair.word).unwrap();
        let writer = thread::spawn(move || its.change(2));
        writer.join().unwrap();

        assert!(!is_undisturbed(&pair.word, first));
        assert_eq!(pair.read(), Some([2, 2]), "the change is seen once its writer let go");
    });
}

/// Runs two users of a page in memory beside each other, each of them first; loom fails where they reach its bytes without
/// order.
fn beside(one: fn(&Page), other: fn(&Page)) {
    for (first, second) in [(one, other), (other, one)] {
        loom::model(move || {
            let pages = pages();
            unlock_filled(&pages[0]);
            let theirs = Arc::clone(&pages);
            let thread = thread::spawn(move || second(&theirs[0]));

            first(&pages[0]);

            thread.join().unwrap();
        });
    }
}

fn unlock_filled(page: &Page) {
    lock(&page.word).unwrap();
    write(page, 7);
    unlock(&page.word, Leave::Free, false);
}

fn read_shared(page: &Page) {
    if share(&page.word).is_ok() {
        let _ = read(page);
        unshare(&page.word);
    }
}

fn change_locked(page: &Page) {
    if lock(&page.word).is_ok() {
        write(page, 8);
        unlock(&page.word, Leave::Free, true);
    }
}

fn write_behind(page: &Page) {
    if lock_dirty(&page.word).is_ok() {
        let _ = read(page);
        unlock(&page.word, Leave::Free, false);
    }
}

#[test]
fn a_reader_and_a_writer_never_reach_a_page_at_once() {
    beside(read_shared, change_locked);
}

#[test]
fn a_writer_comes_after_the_reads_of_several_readers() {
    few_preemptions(2, || {
        let pages = pages();
        unlock_filled(&pages[0]);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let pages = Arc::clone(&pages);
                thread::spawn(move || read_shared(&pages[0]))
            })
            .collect();

        change_locked(&pages[0]);

        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn two_writers_never_reach_a_page_at_once() {
    beside(change_locked, change_locked);
}

#[test]
fn what_was_changed_is_written_behind_as_it_is() {
    beside(write_behind, change_locked);
}

#[test]
fn a_reader_that_came_with_the_bytes_is_waited_for() {
    fn fill_and_read(page: &Page) {
        if lock(&page.word).is_ok() {
            write(page, 9);
            unlock(&page.word, Leave::Reading, false);
            let _ = read(page);
            unshare(&page.word);
        }
    }
    beside(fill_and_read, change_locked);
    beside(fill_and_read, evict);
}
