//! Lists of row numbers, each list going up: what `take(indices)` of a data frame does.

use super::{Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Error, Extent, Result};
use rand::Rng;
use rand_pcg::Pcg64;

pub(super) const WORKLOAD: Workload = Workload {
    name: "gather",
    summary: "lists of random blocks, each list in ascending order: an index lookup of a data frame",
    params: GatherParams::declared,
    ends: Ends::Endless,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct: |space, _, accesses| Some(space.distinct_of_draws(accesses)),
    fio: None,
    plan,
};

majorfault::params! {
    /// The lists.
    struct GatherParams {
        /// Blocks of one list, known before the first is read. 1024 is a usual batch of a query engine.
        indices: u64 = 1024,
    }
}

struct Gather {
    space: Space,
    random: Pcg64,
    left: u64,
    indices: u64,
    /// The rest of the current list, last first.
    list: Vec<u64>,
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let GatherParams { indices } = GatherParams::from_given(given)?;
    space.check()?;
    if indices == 0 {
        return Err(Error::Invalid("indices=0: a list has at least one block".to_owned()));
    }
    let left = space.blocks() / u64::from(space.threads);
    Ok(Box::new(Gather { space: *space, random: space.random(), left, indices, list: Vec::new() }))
}

impl Gather {
    fn draw_list(&mut self) {
        let count = self.indices.min(self.left);
        self.left -= count;
        let blocks = self.space.blocks();
        self.list.extend((0..count).map(|_| self.random.random_range(0..blocks)));
        self.list.sort_unstable_by(|a, b| b.cmp(a));
    }
}

impl Plan for Gather {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        if self.list.is_empty() {
            self.draw_list();
        }
        // A list is one batch at most: the next one is not known before this one is used.
        let rest = self.list.len().saturating_sub(room);
        batch.extend(self.list.drain(rest..).rev().map(|block| self.space.extent(block)));
    }
}
