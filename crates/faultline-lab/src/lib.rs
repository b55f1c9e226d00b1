//! The lab: trials of access methods on files, run in places, observed by counters, kept as records, told as reports.
//!
//! One way through: `workload -> access method -> counters -> record -> report, verdict, advice`.

pub mod record;
pub mod report;
pub mod stats;
pub mod trial;
