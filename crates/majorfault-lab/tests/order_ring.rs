//! The ring between supervisor and agent, run by loom through every order of their steps: each order that was rung for is done once and in
//! turn, and the agent never sleeps over one.

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use majorfault_lab::launch::agent::ring::{AgentAdvice, AgentOrder, NUMBERS, Number, OrderRing, OrderSlot};
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

impl OrderSlot for Checked64 {
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
    is_over: AtomicU32,
}

impl Memory {
    fn new(slots: usize) -> Arc<Memory> {
        Arc::new(Memory {
            numbers: std::array::from_fn(|_| Checked32(AtomicU32::new(0))),
            slots: (0..slots).map(|_| Checked64(AtomicU64::new(0))).collect(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
            is_over: AtomicU32::new(0),
        })
    }

    fn ring(&self) -> OrderRing<'_, Checked32, Checked64> {
        OrderRing { numbers: &self.numbers, slots: &self.slots }
    }

    fn sleep(&self, bell: &Checked32, heard: u32) {
        let sleepers = self.sleepers.lock().unwrap();
        // Relaxed, as the kernel's look is: the lock orders it against who wakes.
        if bell.load(Ordering::Relaxed) == heard {
            drop(self.woken.wait(sleepers).unwrap());
        }
    }

    fn wake(&self) {
        let _sleepers = self.sleepers.lock().unwrap();
        self.woken.notify_one();
    }

    /// An agent that serves until it is over; what it did.
    fn serve(memory: &Arc<Memory>) -> thread::JoinHandle<Vec<u64>> {
        let memory = Arc::clone(memory);
        thread::spawn(move || {
            let (is_over, mut done) = (|| memory.is_over.load(Ordering::Acquire) != 0, Vec::new());
            memory.ring().serve(is_over, |order| done.push(order.first), |bell, heard| memory.sleep(bell, heard));
            done
        })
    }

    fn end(&self) {
        self.is_over.store(1, Ordering::Release);
        self.ring().ring(|_| self.wake());
    }
}

fn order(first: u64) -> AgentOrder {
    AgentOrder { first, pages: 1, advice: AgentAdvice::WillNeed }
}

#[test]
fn an_order_that_was_rung_for_is_never_slept_over() {
    loom::model(|| {
        let memory = Memory::new(2);
        let agent = Memory::serve(&memory);

        assert!(memory.ring().post(order(1)));
        memory.ring().ring(|_| memory.wake());
        // Nobody rings again before it is done: where the agent slept, this would wait for ever.
        while !memory.ring().is_done() {
            thread::yield_now();
        }

        memory.end();
        assert_eq!(agent.join().unwrap(), [1]);
    });
}

#[test]
fn an_agent_that_sleeps_hears_that_it_is_over() {
    loom::model(|| {
        let memory = Memory::new(2);
        let agent = Memory::serve(&memory);

        memory.end();

        assert_eq!(agent.join().unwrap(), Vec::<u64>::new());
    });
}

#[test]
fn a_slot_is_filled_again_only_when_its_order_is_done() {
    loom::model(|| {
        let memory = Memory::new(1);
        assert!(memory.ring().post(order(1)));
        let agent = Memory::serve(&memory);

        let is_posted = memory.ring().post(order(2));

        memory.end();
        let done = agent.join().unwrap();
        // When it is over, the rest is left.
        let possible: &[&[u64]] = if is_posted { &[&[1], &[1, 2]] } else { &[&[], &[1]] };
        assert!(possible.contains(&done.as_slice()), "{is_posted} {done:?}");
    });
}
