//! Everything faulted in when the file is opened (MADV_POPULATE_READ): no faults later, all waiting first.

use crate::prefetch::{Ahead, By, Policy};

pub(super) const POLICY: Policy = Policy {
    name: "populate",
    summary: "the whole mapping faulted in at opening; mmap only",
    // Never together with advice=random: the kernel then populates by reads of 4 KiB, one at a time.
    underneath: &[("populate", "read"), ("advice", "normal")],
    by: By::Caller,
    budget: Ahead::Memory,
    params: Vec::new,
    start: None,
};
