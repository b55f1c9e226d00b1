//! Each access decides the next: a list, a tree, a graph on disk. Nothing can be in flight ahead.

use super::{Plan, Space, Workload};
use crate::data::mix;
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Extent, Result};

pub(super) const WORKLOAD: Workload = Workload {
    name: "chase",
    summary: "the bytes read decide the next block: a list or a tree on disk, one access at a time",
    params: ChaseParams::declared,
    ends: Ends::Endless,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct: |space, _, accesses| Some(space.distinct_of_draws(accesses)),
    fio: None,
    plan,
};

majorfault::params! {
    /// A chase has no settings of its own.
    struct ChaseParams {}
}

struct Chase {
    space: Space,
    step: u64,
    left: u64,
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let ChaseParams {} = ChaseParams::from_given(given)?;
    space.check()?;
    let left = space.blocks() / u64::from(space.threads);
    Ok(Box::new(Chase { space: *space, step: mix(space.seed ^ (u64::from(space.thread) << 32)), left }))
}

impl Plan for Chase {
    fn next(&mut self, seen: u64, room: usize, batch: &mut Vec<Extent>) {
        if self.left == 0 || room == 0 {
            return;
        }
        self.left -= 1;
        // The step is mixed in so that content that repeats cannot close a short circle.
        self.step = self.step.wrapping_add(1);
        batch.push(self.space.extent(mix(seen ^ mix(self.step)) % self.space.blocks()));
    }
}
