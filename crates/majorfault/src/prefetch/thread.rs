//! A helper thread that runs ahead over the extents of the visit itself: the program says what it will read, so nothing is
//! guessed. It gives any order, random ones too, the queue depth that a mapping lacks.

use crate::error::Result;
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};

pub(super) const POLICY: Policy = Policy {
    name: "thread",
    summary: "a helper runs ahead over the extents given to the visit, whatever their order",
    underneath: &[("advice", "random")],
    by: By::Helper,
    budget: Ahead::Bytes(8 << 20),
    params: Thread::declared,
    start: Some(start::<Thread>),
};

crate::params! {
    /// How far ahead.
    #[non_exhaustive]
    pub struct Thread {
        /// Extents ahead; 128 saturate a fast disk with room for delays of the helper thread.
        ahead: u32 = 128,
    }
}

struct ThreadPredictor {
    ahead: usize,
    budget: u64,
    list: Vec<Extent>,
    /// The extent being visited, and the first one not yet wanted.
    position: usize,
    edge: usize,
    /// Bytes between these two.
    bytes: u64,
}

impl PolicyOptions for Thread {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(ThreadPredictor::new(self.ahead as usize, scene.budget)))
    }
}

impl ThreadPredictor {
    fn new(ahead: usize, budget: u64) -> ThreadPredictor {
        ThreadPredictor { ahead, budget, list: Vec::new(), position: 0, edge: 0, bytes: 0 }
    }

    fn step(&mut self) {
        if self.edge > self.position {
            self.bytes -= self.list[self.position].length as u64;
        } else {
            self.edge = self.position + 1;
        }
        self.position += 1;
    }
}

impl Predictor for ThreadPredictor {
    fn announced(&mut self, extents: &[Extent]) {
        self.list.clear();
        self.list.extend_from_slice(extents);
        (self.position, self.edge, self.bytes) = (0, 0, 0);
    }

    fn observe(&mut self, _extent: Extent, wanted: &mut Vec<Extent>) {
        self.step();
        let until = self.list.len().min(self.position + self.ahead);
        // A quarter at a time, so that one call covers many; the rest at the end of the list.
        if until.saturating_sub(self.edge) < self.ahead.div_ceil(4) && until < self.list.len() {
            return;
        }
        while self.edge < until && self.bytes + self.list[self.edge].length as u64 <= self.budget {
            wanted.push(self.list[self.edge]);
            self.bytes += self.list[self.edge].length as u64;
            self.edge += 1;
        }
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(ThreadPredictor::new(self.ahead, self.budget)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extent_but_the_first_is_wanted_once_before_its_visit() {
        let extents: Vec<Extent> = (0..500).map(|n| Extent { offset: n * 7919 % 500 * 4096, length: 4096 }).collect();
        let mut thread = ThreadPredictor::new(16, 1 << 20);
        let mut wanted = Vec::new();

        thread.announced(&extents);
        for (index, extent) in extents.iter().enumerate() {
            thread.observe(*extent, &mut wanted);
            assert!(wanted.len() >= (index + 1).min(499) && wanted.len() <= index + 16);
        }

        assert_eq!(wanted, extents[1..]);
    }

    /// How many extents are wanted at each visit.
    fn wanted(ahead: usize, budget: u64, visits: u64) -> Vec<usize> {
        let extents: Vec<Extent> = (0..visits).map(|n| Extent { offset: n * 65_536, length: 4096 }).collect();
        let mut thread = ThreadPredictor::new(ahead, budget);
        thread.announced(&extents);
        let observe = |extent: &Extent| {
            let mut wanted = Vec::new();
            thread.observe(*extent, &mut wanted);
            wanted.len()
        };
        extents.iter().map(observe).collect()
    }

    #[test]
    fn extents_are_wanted_by_quarters_and_what_is_left_at_the_end() {
        assert_eq!(wanted(8, 1 << 20, 16), [8, 0, 2, 0, 2, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn no_more_than_the_budget_is_wanted_at_a_time() {
        assert_eq!(wanted(8, 3 * 4096, 8), [3, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(wanted(8, 4095, 8), [0; 8]);
    }

    #[test]
    fn a_second_visit_begins_anew() {
        let extents = [0, 1, 2].map(|n| Extent { offset: n * 65_536, length: 4096 });
        let mut thread = ThreadPredictor::new(8, 1 << 20);
        for _ in 0..2 {
            let mut wanted = Vec::new();
            thread.announced(&extents);

            extents.iter().for_each(|extent| thread.observe(*extent, &mut wanted));

            assert_eq!(wanted, extents[1..]);
        }
    }
}
