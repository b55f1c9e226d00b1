//! Each block once, in random order; each thread its own share of the blocks (fio's `rw=randread` as it is without `norandommap`).

use super::{FioOrder, Plan, Shuffle, Space, Workload};
use crate::data::mix;
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Extent, Result};

pub(super) const WORKLOAD: Workload = Workload {
    name: "permutation",
    summary: "each block once, in random order: the first pass of lookups over a cold file",
    params: PermutationParams::declared,
    ends: Ends::OnePass,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct: |space, _, accesses| Some(accesses.min(space.blocks()) * space.block as u64),
    fio: Some(|_| Ok(FioOrder::Once)),
    plan,
};

majorfault::params! {
    /// A permutation has no settings of its own.
    struct PermutationParams {}
}

struct Permutation {
    space: Space,
    /// Of all blocks, for all threads alike.
    order: Shuffle,
    /// Numbers of the order that are this thread's.
    left: std::ops::Range<u64>,
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let PermutationParams {} = PermutationParams::from_given(given)?;
    space.check()?;
    let order = Shuffle::new(space.blocks(), mix(space.seed));
    Ok(Box::new(Permutation { space: *space, order, left: space.share(space.blocks()) }))
}

impl Plan for Permutation {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        let next = self.left.by_ref().take(room);
        batch.extend(next.map(|number| self.space.extent(self.order.at(number))));
    }
}
