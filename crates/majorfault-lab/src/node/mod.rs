//! A whole machine: which of its processes, groups and files lose most time in file access.
//!
//! First a cheap pass over /proc, whose counters every process has anyway; then the faults of the few worst are sampled, because only
//! they tell the files and how long was waited. `pass` reads, `loss` compares two passes, `survey` watches, `tell` and `metrics` print.

pub mod alerts;
pub mod group;
pub mod loss;
pub mod metrics;
pub mod pass;
pub mod survey;
pub mod tell;
