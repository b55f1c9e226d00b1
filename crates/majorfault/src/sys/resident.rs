//! Which pages of a buffer pool are in memory, in the order that the clock looks at them, and which of them are dirty: what
//! evicting and flushing walk instead of all pages of the files.
//!
//! Who takes a number out of the [`ClockRing`] alone may evict its page, and puts it back unless it did. Who holds a page alone
//! notes in [`Dirty`] that it was changed, or written. Both stand on any lock, so that a model checker runs these very lines
//! with its own (`tests/resident.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A value that one thread at a time reaches; loom and shuttle have their own.
pub trait Lock {
    /// What it keeps.
    type Value;
    /// Calls `act` with the value, once nobody else has it.
    fn with<T>(&self, act: impl FnOnce(&mut Self::Value) -> T) -> T;
}

impl<V> Lock for Mutex<V> {
    type Value = V;
    fn with<T>(&self, act: impl FnOnce(&mut V) -> T) -> T {
        // Nothing below panics half-way through a change.
        act(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Pages that the clock takes out of the ring at a time, so that it looks at their states without the lock.
const STEP: usize = 64;

/// Numbers of the pages in memory: where the clock's hand stands is the front, and pages arrive behind it.
#[derive(Debug, Default)]
pub struct ClockRing<L = Mutex<VecDeque<u64>>>(L);

impl<L: Lock<Value = VecDeque<u64>>> ClockRing<L> {
    /// A ring over a lock of an empty queue.
    pub fn over(numbers: L) -> ClockRing<L> {
        ClockRing(numbers)
    }

    /// Puts these behind the hand: pages that were just filled, or that were taken and stay.
    pub fn arrive(&self, numbers: impl IntoIterator<Item = u64>) {
        self.0.with(|ring| ring.extend(numbers));
    }

    /// Moves the hand on, until `take` said of `wanted` pages that it takes them, or all were passed twice: once to be marked,
    /// once to be taken. What is taken is out of the ring. Returns how many.
    ///
    /// Pages that other threads' hands are at just now are not passed. A `take` that panics leaves the pages of its step out
    /// of the ring.
    pub fn sweep(&self, wanted: usize, mut take: impl FnMut(u64) -> bool) -> usize {
        let mut left = 2 * self.0.with(|ring| ring.len());
        let mut taken = 0;
        while taken < wanted && left > 0 {
            let count = STEP.min(wanted - taken).min(left);
            let mut step: Vec<u64> = self.0.with(|ring| ring.drain(..count.min(ring.len())).collect());
            if step.is_empty() {
                break;
            }
            left -= step.len();
            step.retain(|number| {
                let takes = take(*number);
                taken += usize::from(takes);
                !takes
            });
            if !step.is_empty() {
                self.arrive(step);
            }
        }
        taken
    }

    /// Pages in the ring.
    pub fn len(&self) -> usize {
        self.0.with(|ring| ring.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Numbers of the pages that were changed since they were last written, in the order of the files.
#[derive(Debug, Default)]
pub struct Dirty<L = Mutex<BTreeSet<u64>>> {
    numbers: L,
    /// How many, for those who only ask whether there are any.
    count: AtomicU64,
}

impl<L: Lock<Value = BTreeSet<u64>>> Dirty<L> {
    /// A set over a lock of an empty one.
    pub fn over(numbers: L) -> Dirty<L> {
        Dirty { numbers, count: AtomicU64::new(0) }
    }

    /// Notes a page that its only holder changed, before it lets go.
    pub fn insert(&self, number: u64) {
        self.numbers.with(|dirty| {
            dirty.insert(number);
            self.count.store(dirty.len() as u64, Ordering::Relaxed);
        });
    }

    /// Notes pages that their only holder wrote, before it lets go.
    pub fn remove(&self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.with(|dirty| {
            numbers.into_iter().for_each(|number| _ = dirty.remove(&number));
            self.count.store(dirty.len() as u64, Ordering::Relaxed);
        });
    }

    /// Those that are dirty now, ascending: every page whose change was over before this was asked and that was not written
    /// since.
    pub fn now(&self) -> Vec<u64> {
        self.numbers.with(|dirty| dirty.iter().copied().collect())
    }

    /// How many there are, or were a moment ago.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are none, or were none a moment ago.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(numbers: std::ops::Range<u64>) -> ClockRing {
        let ring: ClockRing = ClockRing::default();
        ring.arrive(numbers);
        ring
    }

    /// What is in the ring, from the hand on.
    fn content(ring: &ClockRing) -> Vec<u64> {
        ring.0.with(|ring| ring.iter().copied().collect())
    }

    #[test]
    fn the_hand_goes_on_where_it_stood_and_what_stays_is_behind_it() {
        let ring = ring(0..6);

        let taken = ring.sweep(2, |number| number % 2 == 1);

        assert_eq!((taken, content(&ring)), (2, vec![4, 5, 0, 2]));
        ring.arrive([9]);
        assert_eq!((ring.sweep(1, |_| true), content(&ring)), (1, vec![5, 0, 2, 9]));
    }

    #[test]
    fn every_page_is_passed_twice_and_no_more_where_none_can_be_taken() {
        let ring = ring(0..200);
        let mut passed = [0; 200];

        let taken = ring.sweep(1000, |number| {
            passed[number as usize] += 1;
            false
        });

        assert_eq!((taken, passed), (0, [2; 200]));
        assert_eq!(content(&ring), (0..200).collect::<Vec<u64>>());
    }

    #[test]
    fn no_more_are_taken_than_wanted() {
        let ring = ring(0..200);

        assert_eq!((ring.sweep(70, |_| true), ring.len()), (70, 130));
        assert_eq!((ring.sweep(0, |_| true), ring.len()), (0, 130));
        assert_eq!((ring.sweep(1000, |_| true), ring.is_empty()), (130, true));
    }

    #[test]
    fn other_threads_use_the_ring_while_a_hand_looks_at_its_pages() {
        let ring = ring(0..3);

        let taken = ring.sweep(2, |number| {
            ring.arrive([100 + number]);
            number > 0
        });

        assert_eq!((taken, content(&ring)), (2, vec![100, 101, 0, 102]));
    }

    #[test]
    fn a_page_is_dirty_once_until_it_is_written() {
        let dirty: Dirty = Dirty::default();
        [7, 3, 7, 5].into_iter().for_each(|number| dirty.insert(number));
        assert_eq!((dirty.now(), dirty.len()), (vec![3, 5, 7], 3));

        dirty.remove([5, 4]);

        assert_eq!((dirty.now(), dirty.len(), dirty.is_empty()), (vec![3, 7], 2, false));
        dirty.remove([3, 7]);
        assert!(dirty.is_empty());
    }
}
