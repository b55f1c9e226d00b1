//! Numbers in a random order of which nothing is kept in memory.

use crate::data::mix;

/// The numbers below a count in an order of its own, each once: a Feistel network of four rounds (Luby and Rackoff 1988), walked
/// until the number is below (Black and Rogaway 2002).
#[derive(Clone, Copy)]
pub(super) struct Shuffle {
    count: u64,
    key: u64,
}

impl Shuffle {
    pub fn new(count: u64, key: u64) -> Shuffle {
        Shuffle { count, key }
    }

    /// Numbers that it orders.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number at this place of the order; `place` is below the count.
    pub fn at(&self, place: u64) -> u64 {
        let half = (64 - self.count.leading_zeros()).div_ceil(2).max(1);
        let mut number = self.round_trip(place, half);
        while number >= self.count {
            number = self.round_trip(number, half);
        }
        number
    }

    /// Another order of the same numbers.
    pub fn again(&mut self) {
        self.key = mix(self.key);
    }

    fn round_trip(&self, number: u64, half: u32) -> u64 {
        let mask = (1 << half) - 1;
        let (left, right) = (0..4).fold((number >> half, number & mask), |(left, right), round| {
            (right, left ^ (mix(self.key ^ right ^ (round << 60)) & mask))
        });
        left << half | right
    }
}
