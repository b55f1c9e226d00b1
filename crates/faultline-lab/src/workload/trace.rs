//! The accesses that were recorded of a program, in each thread's order.

use super::{Plan, Space, Workload};
use faultline::params::{Given, Params};
use faultline::trace::Trace;
use faultline::{Error, Extent, Result};
use std::path::Path;

pub(super) const WORKLOAD: Workload = Workload {
    name: "trace",
    summary: "one block at each place of a recorded trace, see `faultline trace`; threads as recorded, or dealt out",
    params: TraceParams::declared,
    plan,
};

faultline::params! {
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

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let TraceParams { file, of } = TraceParams::from_given(given)?;
    space.check()?;
    if file.is_empty() {
        return Err(Error::Invalid("the workload trace needs file=PATH; record one with `faultline trace`".to_owned()));
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
    Ok(Box::new(Recorded(extents.into_iter())))
}

impl Plan for Recorded {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        batch.extend(self.0.by_ref().take(room));
    }
}
