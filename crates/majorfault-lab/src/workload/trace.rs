//! The accesses that were recorded of a program, in each thread's order.

use super::{Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::trace::Trace;
use majorfault::{Bytes, Error, Extent, Result};
use std::path::Path;

pub(super) const WORKLOAD: Workload = Workload {
    name: "trace",
    summary: "one block at each place of a recorded trace, see `majorfault trace`; threads as recorded, or dealt out",
    params: TraceParams::declared,
    ends: Ends::OnePass,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct,
    fio: None,
    plan,
};

majorfault::params! {
    /// Which trace.
    struct TraceParams {
        /// The trace's path; it must be given.
        file: String = String::new(),
        /// Which of the files in the trace, by the path it had; by default the one with the most accesses.
        of: String = String::new(),
    }
}

/// Extents that are left.
struct Recorded(std::vec::IntoIter<Extent>);

/// Counted: the blocks of every thread's first accesses, overlaps once.
fn distinct(space: &Space, given: &Given, accesses: u64) -> Option<u64> {
    let of_thread = |thread| extents(&Space { thread, ..*space }, given).ok();
    let threads: Vec<Vec<Extent>> = (0..space.threads).map(of_thread).collect::<Option<_>>()?;
    let mut ranges = first(&threads, accesses);
    ranges.sort_unstable();
    let mut covered = 0;
    let mut reached = 0;
    for (from, to) in ranges {
        covered += to.saturating_sub(from.max(reached));
        reached = reached.max(to);
    }
    Some(covered)
}

/// The ranges of the first `accesses` of all threads that take turns; a thread at its end leaves its turns to the others.
fn first(threads: &[Vec<Extent>], accesses: u64) -> Vec<(u64, u64)> {
    let longest = threads.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|turn| threads.iter().filter_map(move |extents| extents.get(turn)));
    let range = |extent: &Extent| (extent.offset, extent.offset + extent.length as u64);
    turns.take(usize::try_from(accesses).unwrap_or(usize::MAX)).map(range).collect()
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    Ok(Box::new(Recorded(extents(space, given)?.into_iter())))
}

/// The accesses of one thread.
fn extents(space: &Space, given: &Given) -> Result<Vec<Extent>> {
    let TraceParams { file, of } = TraceParams::from_given(given)?;
    space.check()?;
    if file.is_empty() {
        return Err(Error::Invalid(
            "the workload trace needs file=PATH; record one with `majorfault trace`".to_owned(),
        ));
    }
    let trace = Trace::read(Path::new(&file))?;
    let recorded = trace.file((!of.is_empty()).then_some(of.as_str()), None)?.extents();
    let block = space.block as u64;
    let inside = |extent: &Extent| extent.offset.checked_add(block).is_some_and(|end| end <= space.length);
    let own = |(number, _): &(usize, _)| *number as u32 % space.threads == space.thread;
    let all = recorded.into_iter().enumerate().filter(own).flat_map(|(_, extents)| extents);
    let extents: Vec<Extent> =
        all.filter(inside).map(|extent| Extent { offset: extent.offset, length: space.block }).collect();
    if extents.is_empty() {
        return Err(Error::Invalid(format!(
            "thread {} of {} finds no access of {file} inside the {} bytes of the data; choose fewer threads, or a \
             longer file",
            space.thread, space.threads, space.length
        )));
    }
    Ok(extents)
}

impl Plan for Recorded {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        batch.extend(self.0.by_ref().take(room));
    }
}
