//! Any block as likely as any other, each draw independent (fio's `rw=randread` with `norandommap`).

use super::{Drawn, FioOrder, Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Result};
use rand::Rng;

pub(super) const WORKLOAD: Workload = Workload {
    name: "uniform",
    summary: "random blocks, each as likely as any other: the worst case of caches and read-ahead",
    params: UniformParams::declared,
    ends: Ends::Endless,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct: |space, _, accesses| Some(space.distinct_of_draws(accesses)),
    fio: Some(|_| Ok(FioOrder::Random("random".to_owned()))),
    plan,
};

majorfault::params! {
    /// A uniform draw has no settings of its own.
    struct UniformParams {}
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let UniformParams {} = UniformParams::from_given(given)?;
    space.check()?;
    let (space, mut random) = (*space, space.random());
    // Divided once, and not at each draw.
    let blocks = space.blocks();
    let left = blocks / u64::from(space.threads);
    Ok(Box::new(Drawn { left, draw: move || space.extent(random.random_range(0..blocks)) }))
}
