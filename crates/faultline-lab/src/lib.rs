//! The lab: trials of access methods on files, run in places, observed by counters, kept as records, told as reports.
//!
//! One way through: `workload -> access method -> counters -> record -> report, verdict, advice`.

pub mod data;
pub mod record;
pub mod trial;
pub mod workload;
