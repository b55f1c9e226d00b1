//! Only what the kernel reads ahead by itself: the baseline of every other policy.

use crate::prefetch::{Ahead, By, Policy};

pub(super) const POLICY: Policy = Policy {
    name: "none",
    summary: "only what the kernel reads ahead by itself",
    underneath: &[],
    by: By::Caller,
    budget: Ahead::Bytes(0),
    params: Vec::new,
    start: None,
};
