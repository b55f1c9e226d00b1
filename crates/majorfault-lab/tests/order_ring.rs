//! The ring between supervisor and agent, run by loom through every order of their steps: each order that was rung for is done once and in
//! turn, and the agent never sleeps over one.

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use majorfault_lab::launch::agent::ring::{AgentAdvice, NUMBERS, Number, Order, OrderRing, Slot};
use std::sync::atomic::Ordering;

/// loom's numbers, wrapped: neither they nor the traits are of this crate.
struct Checked32(AtomicU32);
struct Checked64(AtomicU64);

impl Number for Checked32 {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    fn add(&self, value: u32, order: Ordering) {
        self.0.fetch_add(value, order);
    }
}

impl Slot for Checked64 {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

/// Shared memory, and the kernel's futex on the bell: it looks at the number and sleeps in one step, as seen by who wakes.
struct Memory {
    numbers: [Checked32; NUMBERS],
    slots: Vec<Checked64>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Memory {
    fn new(slots: usize) -> Arc<Memory> {
        Arc::new(Memory {
            numbers: std::array::from_fn(|_| Checked32(AtomicU32::new(0))),
            slots: (0..slots).map(|_| Checked64(AtomicU64::new(0))).collect(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn ring(&self) -> OrderRing<'_, Checked32, Checked64> {
        OrderRing { numbers: &self.numbers, slots: &self.slots }
    }

    fn sleep(&self, heard: u32) {
        let sleepers = self.sleepers.lock().unwrap();
        // Relaxed, as the kernel's look is: the lock orders it against who wakes.
        if self.numbers[2].load(Ordering::Relaxed) == heard {
            drop(self.woken.wait(sleepers).unwrap());
        }
    }

    fn wake(&self) {
        let _sleepers = self.sleepers.lock().unwrap();
        self.woken.notify_one();
    }
}

fn order(first: u64) -> Order {
    Order { first, pages: 1, advice: AgentAdvice::WillNeed }
}

/// The agent's loop, until it has done so many.
fn agent(memory: &Memory, count: usize) -> Vec<u64> {
    let (ring, mut at, mut done) = (memory.ring(), 0, Vec::new());
    loop {
        let heard = ring.heard();
        at = ring.work(at, |order| done.push(order.first));
        if done.len() >= count {
            return done;
        }
        memory.sleep(heard);
    }
}

#[test]
fn an_order_that_was_rung_for_is_never_slept_over() {
    loom::model(|| {
        let memory = Memory::new(4);
        let agent = thread::spawn({
            let memory = Arc::clone(&memory);
            move || agent(&memory, 2)
        });

        for first in [1, 2] {
            assert!(memory.ring().post(order(first)));
            memory.ring().ring();
            memory.wake();
        }

        assert_eq!(agent.join().unwrap(), [1, 2]);
        assert!(memory.ring().is_done());
    });
}

#[test]
fn a_slot_is_filled_again_only_when_its_order_is_done() {
    loom::model(|| {
        let memory = Memory::new(1);
        assert!(memory.ring().post(order(1)));
        memory.ring().ring();
        let agent = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                let mut done = Vec::new();
                let at = memory.ring().work(0, |order| done.push(order.first));
                memory.ring().work(at, |order| done.push(order.first));
                done
            }
        });

        let is_posted = memory.ring().post(order(2));

        let mut done = agent.join().unwrap();
        memory.ring().work(0, |order| done.push(order.first));
        assert_eq!(done, if is_posted { vec![1, 2] } else { vec![1] });
    });
}
