//! Claims on a shared mapping, run by loom through every order of steps of two threads, and by shuttle through random schedules
//! of three: bytes that are changed are nobody else's meanwhile.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use majorfault::sys::claims::{Kind, Slot};
use majorfault::sys::page_state::Word;
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

/// Bytes 0 and 1, which loom watches for unordered accesses, and a slot for each thread.
struct Shared {
    slots: Vec<Slot<Modelled>>,
    bytes: [UnsafeCell<u64>; 2],
}

// The cells are only reached under claims, which is what is checked.
#[allow(unsafe_code, reason = "loom checks what this asserts")]
// SAFETY: the model fails where two threads reach a cell without order.
unsafe impl Sync for Shared {}
#[allow(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Send for Shared {}

fn shared(threads: usize) -> Arc<Shared> {
    let word = || Modelled(loom::sync::atomic::AtomicU64::new(0));
    Arc::new(Shared {
        slots: (0..threads).map(|_| Slot::new(word)).collect(),
        bytes: [(); 2].map(|()| UnsafeCell::new(0)),
    })
}

impl Shared {
    /// Claims a byte as the thread of this number, and uses it where that was granted.
    #[allow(unsafe_code, reason = "loom's cell gives raw pointers and checks the access")]
    fn act(&self, number: usize, byte: usize, kind: Kind) {
        let range = byte as u64..byte as u64 + 1;
        let others = self.slots.iter().enumerate().filter(|(index, _)| *index != number).map(|(_, slot)| slot);
        if self.slots[number].claim(&range, kind, number as u64 + 1, others).is_err() {
            return;
        }
        match kind {
            // SAFETY: claimed; loom checks it.
            Kind::Shared => self.bytes[byte].with(|value| assert!(unsafe { *value } < 10)),
            // SAFETY: claimed; loom checks it.
            Kind::Exclusive => self.bytes[byte].with_mut(|value| unsafe { *value += 1 }),
        }
        self.slots[number].release();
    }
}

/// Each thread does its claims one after the other.
fn explore(threads: &'static [&'static [(usize, Kind)]]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = shared(threads.len());
        let act = |(number, acts): (usize, &'static &'static [(usize, Kind)])| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || acts.iter().for_each(|(byte, kind)| shared.act(number, *byte, *kind)))
        };
        let running: Vec<_> = threads.iter().enumerate().map(act).collect();
        running.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

const READ: Kind = Kind::Shared;
const CHANGE: Kind = Kind::Exclusive;

#[test]
fn two_that_change_the_same_byte_never_do_it_at_once() {
    explore(&[&[(0, CHANGE)], &[(0, CHANGE)]]);
}

#[test]
fn what_is_shown_is_not_changed() {
    explore(&[&[(0, READ)], &[(0, CHANGE)]]);
}

#[test]
fn claims_that_follow_each_other_in_one_slot_are_not_confused() {
    explore(&[&[(0, CHANGE), (1, CHANGE)], &[(1, CHANGE), (0, READ)]]);
}

/// Three threads and random schedules: too many orders to try them all.
mod scheduled {
    use super::{CHANGE, Kind, READ, Slot, Word};
    use shuttle::sync::atomic::AtomicU64;
    use shuttle::thread;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

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

    /// Slots, and for each of two bytes how many read it and how many change it now.
    struct Shared {
        slots: Vec<Slot<Scheduled>>,
        users: [[AtomicU64; 2]; 2],
    }

    impl Shared {
        fn act(&self, number: usize, byte: usize, kind: Kind) {
            let range = byte as u64..byte as u64 + 1;
            let others = self.slots.iter().enumerate().filter(|(index, _)| *index != number).map(|(_, slot)| slot);
            if self.slots[number].claim(&range, kind, number as u64 + 1, others).is_err() {
                return;
            }
            let [readers, writers] = &self.users[byte];
            let own = if kind == READ { readers } else { writers };
            own.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            let found = (readers.load(Ordering::SeqCst), writers.load(Ordering::SeqCst));
            assert!(found.1 == 0 || found == (0, 1), "{found:?} at once");
            own.fetch_sub(1, Ordering::SeqCst);
            self.slots[number].release();
        }
    }

    fn all_at_once() {
        let slot = || Slot::new(|| Scheduled(AtomicU64::new(0)));
        let users = [(); 2].map(|()| [(); 2].map(|()| AtomicU64::new(0)));
        let shared = Arc::new(Shared { slots: (0..3).map(|_| slot()).collect(), users });
        let acts = [[(0, READ), (1, CHANGE)], [(0, CHANGE), (1, READ)], [(1, CHANGE), (0, CHANGE)]];
        let act = |(number, acts): (usize, [(usize, Kind); 2])| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                (0..3).for_each(|_| acts.iter().for_each(|(byte, kind)| shared.act(number, *byte, *kind)))
            })
        };
        let running: Vec<_> = acts.into_iter().enumerate().map(act).collect();
        running.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn no_random_schedule_brings_two_together() {
        shuttle::check_random(all_at_once, 2000);
    }

    #[test]
    fn no_schedule_of_few_preemptions_brings_two_together() {
        shuttle::check_pct(all_at_once, 2000, 3);
    }
}
