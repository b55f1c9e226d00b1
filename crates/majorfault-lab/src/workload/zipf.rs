//! Few blocks often, many rarely: the skew of keys in stores. The frequent blocks lie apart, as they would.

use super::{Drawn, FioOrder, Plan, Space, Workload};
use crate::traits::{Ends, Order};
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Error, Result};
use rand_distr::{Distribution, Zipf};

pub(super) const WORKLOAD: Workload = Workload {
    name: "zipf",
    summary: "random blocks, few of them often: keys of a store, a hot set",
    params: ZipfParams::declared,
    ends: Ends::Endless,
    order: Order::Scattered,
    block: Bytes::kib(4),
    distinct,
    fio: Some(fio),
    plan,
};

majorfault::params! {
    /// How skewed the draw is.
    struct ZipfParams {
        /// Exponent of the law: the n-th block is n^theta times rarer than the first. 1.1 is a common model of keys.
        theta: f64 = 1.1,
    }
}

/// A prime larger than any number of blocks that divides none of them: multiplying by it scatters ranks one to one.
const SCATTER: u128 = 11_400_714_785_074_694_791;

/// Ranks whose probability is summed one by one; beyond, it hardly changes from one to the next.
const EXACT: u64 = 10_000;

/// How much longer each step of ranks is than the one before, beyond [`EXACT`].
const STEP: f64 = 1.02;

/// The sum over all ranks of the chance that one of `accesses` draws meets the rank: p = rank^-theta / sum of all.
fn distinct(space: &Space, given: &Given, accesses: u64) -> Option<u64> {
    let ZipfParams { theta } = ZipfParams::from_given(given).ok()?;
    let weight = |rank: f64| rank.powf(-theta);
    let steps = steps(space.blocks());
    let sum: f64 = steps.iter().map(|(rank, count)| weight(*rank) * count).sum();
    let met = |rank: f64| 1.0 - (accesses as f64 * (-weight(rank) / sum).ln_1p()).exp();
    // A law with one rank has p = 1, whose logarithm of the rest is minus infinity.
    let met = |rank: f64| if accesses == 0 { 0.0 } else { met(rank) };
    let blocks: f64 = steps.iter().map(|(rank, count)| met(*rank) * count).sum();
    Some((blocks * space.block as f64) as u64)
}

/// Ranks 1 to `blocks` as pairs of a rank and how many ranks it stands for.
fn steps(blocks: u64) -> Vec<(f64, f64)> {
    let mut steps: Vec<(f64, f64)> = (1..=blocks.min(EXACT)).map(|rank| (rank as f64, 1.0)).collect();
    let (mut from, end) = (EXACT as f64 + 0.5, blocks as f64 + 0.5);
    while from < end {
        let to = (from * STEP).min(end);
        steps.push(((from * to).sqrt(), to - from));
        from = to;
    }
    steps
}

fn fio(given: &Given) -> Result<FioOrder> {
    Ok(FioOrder::Random(format!("zipf:{}", ZipfParams::from_given(given)?.theta)))
}

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let ZipfParams { theta } = ZipfParams::from_given(given)?;
    space.check()?;
    let law = Zipf::new(space.blocks() as f64, theta)
        .map_err(|why| Error::Invalid(format!("theta={theta}: {why}; legal is a number from 0 on")))?;
    let (space, mut random) = (*space, space.random());
    let left = space.blocks() / u64::from(space.threads);
    // The same place as by the prime itself, from factors that fit one division of 64 bits where the file is not huge.
    let blocks = u128::from(space.blocks());
    let scatter = SCATTER % blocks;
    let draw = move || {
        let rank = law.sample(&mut random) as u128 - 1;
        space.extent((rank * scatter % blocks) as u64)
    };
    Ok(Box::new(Drawn { left, draw }))
}
