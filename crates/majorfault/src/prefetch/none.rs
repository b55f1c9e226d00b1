//! Nothing beyond what the kernel does by itself: what every other policy is compared with.

use crate::prefetch::{Ahead, By, Policy};

pub(super) const POLICY: Policy = Policy {
    name: "none",
    summary: "nothing but what the kernel reads ahead by itself",
    underneath: &[],
    by: By::Caller,
    budget: Ahead::Bytes(0),
    params: Vec::new,
    start: None,
};
