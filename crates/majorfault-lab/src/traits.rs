//! What the kinds of a trial declare of themselves, in the form in which a record keeps it.
//!
//! Gates and reports read these and know no kind by its name: a new workload or method cannot be forgotten there. What is
//! not known is `None`, and never counts as fine.

use majorfault::access;
use serde::{Deserialize, Serialize};

/// What an arm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Reaches no file; its time is the harness's own.
    Control,
    /// A mapped file.
    Mapped,
    /// System calls into buffers.
    Explicit,
    /// A buffer pool of its own.
    Pool,
    /// Another program.
    Peer,
    /// A fixed sequence of steps with files of its own.
    Procedure,
}

/// Whether an order ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// After one pass: a scan, a column, a recorded run. Measured as one pass where the user does not say otherwise.
    OnePass,
    /// Never in itself: random draws. Measured for a time where the user does not say otherwise.
    Endless,
}

/// How places follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each lies behind the one before.
    Ascending,
    /// In no order that a disk or read-ahead could use.
    Scattered,
}

/// What is known of a run's kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// What the arm is.
    pub class: Class,
    /// Whether the arm reads past the page cache, with the settings given.
    pub direct: bool,
    /// Transfers that each thread keeps in flight; `None` where the arm has no queue.
    pub depth: Option<u32>,
    /// Whether the workload's order ends.
    pub ends: Ends,
    /// How its places follow each other.
    pub order: Order,
    /// Bytes of the distinct blocks that this run's accesses are expected to reach; `None` where the workload cannot tell.
    pub distinct_bytes: Option<u64>,
    /// Whether the arm makes the machine swap, so that swapping is no disturbance.
    #[serde(default, skip_serializing_if = "is_no")]
    pub swaps: bool,
}

impl From<access::Class> for Class {
    fn from(class: access::Class) -> Class {
        match class {
            access::Class::Control => Class::Control,
            access::Class::Mapped => Class::Mapped,
            access::Class::Explicit => Class::Explicit,
            access::Class::Pool => Class::Pool,
        }
    }
}

fn is_no(swaps: &bool) -> bool {
    !swaps
}
