//! From front to end; each thread its own contiguous share (fio's `rw=read`).

use super::{FioOrder, Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Extent, Result};
use std::ops::Range;

pub(super) const WORKLOAD: Workload = Workload {
    name: "sequential",
    summary: "from front to end, each thread its own share: a scan, a load",
    params: SequentialParams::declared,
    ends: Ends::OnePass,
    order: Order::Ascending,
    block: Bytes::kib(4),
    distinct: |space, _, accesses| Some(accesses.min(space.blocks()) * space.block as u64),
    fio: Some(|_| Ok(FioOrder::Steps(None))),
    plan,
};

majorfault::params! {
    /// A scan has no settings of its own.
    struct SequentialParams {}
}

struct Sequential {
    space: Space,
    blocks: Range<u64>,
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let SequentialParams {} = SequentialParams::from_given(given)?;
    space.check()?;
    Ok(Box::new(Sequential { space: *space, blocks: space.share(space.blocks()) }))
}

impl Plan for Sequential {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        batch.extend(self.blocks.by_ref().take(room).map(|block| self.space.extent(block)));
    }
}
