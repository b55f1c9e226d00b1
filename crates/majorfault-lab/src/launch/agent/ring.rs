//! Orders of the supervisor for the agent within a program: a ring in memory that both have, with one writer and one reader.
//!
//! ```text
//! numbers (32 bits):  sign  thread  bell  next  refused …       64 bytes
//! slots   (64 bits):  0 where nothing is ordered, else          504 slots
//!                     | 63: 1 | 62–61: advice | 60–44: pages | 43–0: first page |
//! ```
//!
//! The supervisor fills slots, then rings the bell; the agent reads the bell, empties slots, and sleeps (futex(2)) as long as the bell is
//! as it was read. So an order that was rung for is never slept over. Needs `core` alone, and any atomic numbers: these very lines are
//! compiled into the agent, and run by a model checker (`tests/order_ring.rs`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the whole.
pub const BYTES: usize = 4096;

/// Numbers at its beginning.
pub const NUMBERS: usize = 16;

/// What the first number says when the ring is one of these.
pub const SIGN: u32 = 0x4d46_0001;

/// Page numbers of a process end here: addresses have 56 bits at most.
const LAST_PAGE: u64 = 1 << 44;

/// Pages of one order are fewer.
const MOST_PAGES: u64 = 1 << 17;

/// Set in each order, so that none is 0.
const ORDERED: u64 = 1 << 63;

/// What stands in the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEntry {
    /// [`SIGN`], from when the agent is ready.
    Sign = 0,
    /// The agent's thread.
    Thread = 1,
    /// Changed when there are new orders; what the agent sleeps on.
    Bell = 2,
    /// The slot that is filled next; the supervisor's own.
    Next = 3,
    /// Slots whose content was no order.
    Refused = 4,
}

/// Advice that the agent gives, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAdvice {
    /// Read in what is swapped out.
    WillNeed = 0,
    /// Write out and free.
    PageOut = 1,
}

/// Advice for some pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentOrder {
    /// The number of the first page.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// What for.
    pub advice: AgentAdvice,
}

impl AgentOrder {
    /// As it stands in a slot; `None` where these are no pages of a process, or too many for one order.
    pub fn word(self) -> Option<u64> {
        let AgentOrder { first, pages, advice } = self;
        let fits = pages > 0 && pages < MOST_PAGES && first < LAST_PAGE && first + pages <= LAST_PAGE;
        fits.then_some(ORDERED | (advice as u64) << 61 | pages << 44 | first)
    }

    /// The order in a slot; `None` where that is none.
    pub fn read(word: u64) -> Option<AgentOrder> {
        let advice = match word >> 61 {
            0b100 => AgentAdvice::WillNeed,
            0b101 => AgentAdvice::PageOut,
            _ => return None,
        };
        let order = AgentOrder { first: word & (LAST_PAGE - 1), pages: word >> 44 & (MOST_PAGES - 1), advice };
        // What does not become the same word again is out of range.
        (order.word() == Some(word)).then_some(order)
    }
}

/// An atomic number of 32 bits; a model checker has its own.
pub trait Number {
    /// Reads.
    fn load(&self, order: Ordering) -> u32;
    /// Writes.
    fn store(&self, value: u32, order: Ordering);
    /// Adds.
    fn add(&self, value: u32, order: Ordering);
}

/// An atomic word of 64 bits; a model checker has its own.
pub trait OrderSlot {
    /// Reads.
    fn load(&self, order: Ordering) -> u64;
    /// Writes.
    fn store(&self, value: u64, order: Ordering);
}

impl Number for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }
    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }
    fn add(&self, value: u32, order: Ordering) {
        self.fetch_add(value, order);
    }
}

impl OrderSlot for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

/// The ring, wherever it lies. There is one writer and one reader.
#[derive(Clone, Copy, Debug)]
pub struct OrderRing<'a, N, S> {
    /// See [`RingEntry`].
    pub numbers: &'a [N; NUMBERS],
    /// Orders.
    pub slots: &'a [S],
}

impl<'a, N: Number, S: OrderSlot> OrderRing<'a, N, S> {
    /// One of the numbers.
    pub fn number(&self, entry: RingEntry) -> &'a N {
        &self.numbers[entry as usize]
    }

    /// The writer's: puts an order into the ring, where there is room; the reader sees it when the bell rings.
    pub fn post(&self, order: AgentOrder) -> bool {
        let next = self.number(RingEntry::Next).load(Ordering::Relaxed) as usize;
        let (Some(word), Some(slot)) = (order.word(), self.at(next)) else { return false };
        if slot.load(Ordering::Relaxed) != 0 {
            return false;
        }
        slot.store(word, Ordering::Relaxed);
        self.number(RingEntry::Next).store((next as u32).wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// The writer's: whether the reader has done all that was ordered.
    pub fn is_done(&self) -> bool {
        let next = self.number(RingEntry::Next).load(Ordering::Relaxed) as usize;
        // Orders are done in turn: the last one is the one before `next`.
        self.at(next.wrapping_sub(1)).is_none_or(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    /// The writer's: says that there are orders, or that it is over; `wake` wakes whoever sleeps on the bell.
    pub fn ring(&self, wake: impl FnOnce(&N)) {
        let bell = self.number(RingEntry::Bell);
        // Release: who hears the bell sees the orders.
        bell.add(1, Ordering::Release);
        wake(bell);
    }

    /// The reader's whole life: does what is ordered, and sleeps as long as the bell is as it was heard, until it is over.
    pub fn serve(&self, is_over: impl Fn() -> bool, mut act: impl FnMut(AgentOrder), sleep: impl Fn(&N, u32)) {
        let (bell, mut at) = (self.number(RingEntry::Bell), 0);
        loop {
            // Heard before anything is looked for: what comes later changes it, and there is no sleep.
            let heard = bell.load(Ordering::Acquire);
            if is_over() {
                return;
            }
            at = self.work(at, &mut act);
            sleep(bell, heard);
        }
    }

    /// The reader's: does what is ordered from slot `at` on; returns the slot to go on from.
    fn work(&self, mut at: usize, mut act: impl FnMut(AgentOrder)) -> usize {
        while let Some(slot) = self.at(at) {
            let word = slot.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            match AgentOrder::read(word) {
                Some(order) => act(order),
                None => self.number(RingEntry::Refused).add(1, Ordering::Relaxed),
            }
            slot.store(0, Ordering::Relaxed);
            at = (at + 1) % self.slots.len();
        }
        at
    }

    fn at(&self, number: usize) -> Option<&'a S> {
        self.slots.get(number % self.slots.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: AgentOrder = AgentOrder { first: 0x7_ffff_1234, pages: 256, advice: AgentAdvice::PageOut };

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [
            ORDER,
            AgentOrder { first: 0, pages: 1, advice: AgentAdvice::WillNeed },
            AgentOrder { first: (1 << 44) - 131_071, pages: 131_071, ..ORDER },
        ] {
            assert_eq!(order.word().and_then(AgentOrder::read), Some(order));
        }
        assert_eq!(ORDER.word(), Some(0xa010_0007_ffff_1234));
    }

    #[test]
    fn what_is_no_order_is_refused_by_both_sides() {
        for wrong in [
            AgentOrder { pages: 0, ..ORDER },
            AgentOrder { pages: 1 << 17, ..ORDER },
            AgentOrder { first: 1 << 44, ..ORDER },
            AgentOrder { first: (1 << 44) - 255, ..ORDER },
        ] {
            assert_eq!(wrong.word(), None, "{wrong:?}");
        }
        let good = ORDER.word().unwrap();
        // No order's sign, an advice that is none, no pages, beyond the last page.
        for word in [0, good & !(1 << 63), good | 1 << 62, good & !(0x1_ffff << 44), good | ((1 << 44) - 1)] {
            assert_eq!(AgentOrder::read(word), None, "{word:x}");
        }
    }

    fn memory<const SLOTS: usize>() -> ([AtomicU32; NUMBERS], [AtomicU64; SLOTS]) {
        (std::array::from_fn(|_| AtomicU32::new(0)), std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[test]
    fn orders_are_done_in_turn_and_a_full_ring_takes_none() {
        let (numbers, slots) = memory::<2>();
        let ring = OrderRing { numbers: &numbers, slots: &slots };
        let order = |first| AgentOrder { first, ..ORDER };
        assert!(ring.is_done());

        assert!(ring.post(order(1)) && ring.post(order(2)) && !ring.post(order(3)) && !ring.is_done());
        let mut seen = Vec::new();
        let at = ring.work(0, |order| seen.push(order.first));
        assert!(ring.is_done() && ring.post(order(4)) && !ring.is_done());
        ring.work(at, |order| seen.push(order.first));

        assert_eq!(seen, [1, 2, 4]);
    }

    #[test]
    fn a_slot_that_holds_no_order_is_passed_over_and_counted() {
        let (numbers, slots) = memory::<4>();
        let ring = OrderRing { numbers: &numbers, slots: &slots };
        slots[0].store(77, Ordering::Relaxed);
        ring.number(RingEntry::Next).store(u32::MAX, Ordering::Relaxed);
        assert!(ring.post(ORDER), "at the last slot");
        slots[1].store(ORDER.word().unwrap(), Ordering::Relaxed);

        let mut seen = 0;
        assert_eq!(ring.work(0, |_| seen += 1), 2);

        assert_eq!((seen, ring.number(RingEntry::Refused).load(Ordering::Relaxed)), (1, 1));
    }
}
