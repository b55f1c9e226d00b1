//! The same place of every row: one column of a row-oriented file (SOURCES S4.column).

use super::{FioOrder, Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Error, Extent, Missing, Result};
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
        /// Blocks of each row, one after the other, at equal distances.
        columns: u32 = 1,
    }
}

impl StridedParams {
    /// Bytes from one column to the next.
    fn gap(&self) -> u64 {
        self.stride.0 / u64::from(self.columns.max(1))
    }

    /// Rows that the space holds whole.
    fn rows(&self, space: &Space) -> u64 {
        let row = self.gap() * u64::from(self.columns.max(1) - 1) + space.block as u64;
        space.length.checked_sub(row).map_or(0, |room| room / self.stride.0 + 1)
    }
}

struct Strided {
    stride: u64,
    gap: u64,
    columns: u64,
    block: usize,
    /// Blocks of this thread, counted from the first row's first.
    blocks: Range<u64>,
}

fn distinct(space: &Space, given: &Given, accesses: u64) -> Option<u64> {
    let params = StridedParams::from_given(given).ok()?;
    Some(accesses.min(params.rows(space) * u64::from(params.columns)) * space.block as u64)
}

fn fio(given: &Given) -> Result<FioOrder> {
    let StridedParams { stride, columns } = StridedParams::from_given(given)?;
    if columns > 1 {
        let reason = "fio has no option for the order of several columns";
        return Err(Missing::new("the peer fio", reason, "leave columns out, and it takes part").into());
    }
    Ok(FioOrder::Steps(Some(stride.0)))
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let params = StridedParams::from_given(given)?;
    let StridedParams { stride, columns } = params;
    space.check()?;
    if columns == 0 {
        return Err(Error::Invalid("columns=0: a row has at least one".to_owned()));
    }
    if stride.0 < space.block as u64 {
        return Err(Error::Invalid(format!("a stride of {stride} is shorter than the block of {} bytes", space.block)));
    }
    if params.gap() < space.block as u64 {
        return Err(Error::Invalid(format!(
            "{columns} columns of {} bytes do not fit a stride of {stride}; legal are 1 to {}",
            space.block,
            stride.0 / space.block as u64
        )));
    }
    let rows = params.rows(space);
    if rows < u64::from(space.threads) {
        return Err(Error::Invalid(format!(
            "{} bytes are too short for {} thread(s) with a stride of {stride}; there are {rows} rows",
            space.length, space.threads
        )));
    }
    let (share, columns) = (space.share(rows), u64::from(columns));
    let blocks = share.start * columns..share.end * columns;
    Ok(Box::new(Strided { stride: stride.0, gap: params.gap(), columns, block: space.block, blocks }))
}

impl Plan for Strided {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        let Strided { stride, gap, columns, block, .. } = *self;
        let at = |number: u64| number / columns * stride + number % columns * gap;
        batch.extend(self.blocks.by_ref().take(room).map(|number| Extent { offset: at(number), length: block }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space { length: 10_000, block: 64, threads: 1, thread: 0, seed: 1 };

    fn offsets(space: &Space, columns: u32) -> Vec<u64> {
        let given = Given::none().with("stride", 1000).with("columns", columns);
        let mut batch = Vec::new();
        plan(space, &given).unwrap().next(0, 1000, &mut batch);
        batch.iter().map(|extent| extent.offset).collect()
    }

    #[test]
    fn columns_of_a_row_come_one_after_the_other_and_threads_share_whole_rows() {
        assert_eq!(offsets(&SPACE, 1), (0..10).map(|row| row * 1000).collect::<Vec<_>>());
        assert_eq!(offsets(&Space { length: 2564, ..SPACE }, 2), [0, 500, 1000, 1500, 2000, 2500]);
        assert_eq!(offsets(&Space { length: 2563, ..SPACE }, 2), [0, 500, 1000, 1500], "rows are whole");
        assert_eq!(offsets(&Space { threads: 5, thread: 1, ..SPACE }, 2), [2000, 2500, 3000, 3500]);
    }

    #[test]
    fn columns_that_do_not_fit_a_row_are_refused() {
        let refused = |columns| {
            let given = Given::none().with("stride", 1000).with("columns", columns);
            plan(&SPACE, &given).err().unwrap().to_string()
        };

        assert!(refused(16).contains("legal are 1 to 15"), "{}", refused(16));
        assert!(refused(0).contains("at least one"));
        assert_eq!(offsets(&SPACE, 15).len(), 150);
    }
}
