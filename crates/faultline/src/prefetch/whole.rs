//! The whole file, front to back, from the first access on: for files that will be used all over and fit into memory.

use crate::error::Result;
use crate::files::Extent;
use crate::params::Given;
use crate::prefetch::{Ahead, By, Policy, Predictor, Scene};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const POLICY: Policy = Policy {
    name: "whole",
    summary: "the whole file announced front to back at the first access, as far as memory is free",
    underneath: &[("advice", "random")],
    by: By::Helper,
    budget: Ahead::Memory,
    params: Vec::new,
    start: Some(start),
};

/// Bytes announced together, but for the last ones.
const STEP: u64 = 1 << 20;

/// Progress, the same for all threads.
struct Whole {
    length: u64,
    budget: u64,
    /// Bytes announced, from the front.
    edge: Arc<AtomicU64>,
    /// Bytes visited, anywhere.
    visited: Arc<AtomicU64>,
}

fn start(scene: &Scene, given: &Given) -> Result<(Box<dyn Predictor>, Given)> {
    given.only(&[])?;
    let Scene { length, budget, gap: _ } = *scene;
    Ok((Box::new(Whole { length, budget, edge: Arc::default(), visited: Arc::default() }), Given::none()))
}

impl Predictor for Whole {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        if self.edge.load(Ordering::Relaxed) >= self.length {
            return;
        }
        let visited = self.visited.fetch_add(extent.length as u64, Ordering::Relaxed) + extent.length as u64;
        let until = self.length.min(visited.saturating_add(self.budget));
        let worth = |edge: u64| edge < until && (until - edge >= STEP.min(self.budget) || until == self.length);
        let claimed = self.edge.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |edge| worth(edge).then_some(until));
        if let Ok(edge) = claimed {
            wanted.push(Extent { offset: edge, length: (until - edge) as usize });
        }
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        let (edge, visited) = (Arc::clone(&self.edge), Arc::clone(&self.visited));
        Ok(Box::new(Whole { length: self.length, budget: self.budget, edge, visited }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_announce_the_file_once_between_them() {
        let scene = Scene { length: 10 << 20, budget: 4 << 20, gap: 0 };
        let (mut one, _) = start(&scene, &Given::none()).unwrap();
        let mut other = one.sibling().unwrap();
        let mut wanted = Vec::new();

        for block in 0..20 {
            let predictor = if block % 2 == 0 { &mut one } else { &mut other };
            predictor.observe(Extent { offset: block * 524_288, length: 524_288 }, &mut wanted);
        }

        let mut next = 0;
        for extent in wanted {
            assert_eq!(extent.offset, next);
            next += extent.length as u64;
        }
        assert_eq!(next, 10 << 20);
    }
}
