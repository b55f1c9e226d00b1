//! The same place of every row: one column of a row-oriented file (SOURCES S4.column).

use super::{FioOrder, Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Error, Extent, Result};
use std::ops::Range;

pub(super) const WORKLOAD: Workload = Workload {
    name: "strided",
    summary: "one block at the same place of every row: a column of a row-oriented file",
    params: StridedParams::declared,
    ends: Ends::OnePass,
    order: Order::Ascending,
    block: Bytes(64),
    distinct,
    fio: Some(fio),
    plan,
};

majorfault::params! {
    /// The rows.
    struct StridedParams {
        /// Bytes from one row to the next. 256 KiB is beyond what read-ahead can bridge, so that its waste shows.
        stride: Bytes = Bytes::kib(256),
    }
}

struct Strided {
    stride: u64,
    block: usize,
    rows: Range<u64>,
}

/// Rows that the space holds.
fn rows(space: &Space, stride: Bytes) -> u64 {
    space.length.checked_sub(space.block as u64).map_or(0, |room| room / stride.0 + 1)
}

fn distinct(space: &Space, given: &Given, accesses: u64) -> Option<u64> {
    let StridedParams { stride } = StridedParams::from_given(given).ok()?;
    Some(accesses.min(rows(space, stride)) * space.block as u64)
}

fn fio(given: &Given) -> Result<FioOrder> {
    Ok(FioOrder::Steps(Some(StridedParams::from_given(given)?.stride.0)))
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let StridedParams { stride } = StridedParams::from_given(given)?;
    space.check()?;
    if stride.0 < space.block as u64 {
        return Err(Error::Invalid(format!("a stride of {stride} is shorter than the block of {} bytes", space.block)));
    }
    let rows = rows(space, stride);
    if rows < u64::from(space.threads) {
        return Err(Error::Invalid(format!(
            "{} bytes are too short for {} thread(s) with a stride of {stride}; there are {rows} rows",
            space.length, space.threads
        )));
    }
    Ok(Box::new(Strided { stride: stride.0, block: space.block, rows: space.share(rows) }))
}

impl Plan for Strided {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        let rows = self.rows.by_ref().take(room);
        batch.extend(rows.map(|row| Extent { offset: row * self.stride, length: self.block }));
    }
}
