//! Few blocks often, many rarely: the skew of keys in stores. The frequent blocks lie apart, as they would.

use super::{Drawn, Plan, Space, Workload};
use faultline::params::{Given, Params};
use faultline::{Error, Result};
use rand_distr::{Distribution, Zipf};

pub(super) const WORKLOAD: Workload = Workload {
    name: "zipf",
    summary: "random blocks, few of them often: keys of a store, a hot set",
    params: ZipfParams::declared,
    plan,
};

faultline::params! {
    /// How skewed the draw is.
    struct ZipfParams {
        /// Exponent of the law: the n-th block is n^theta times rarer than the first. 1.1 is a common model of keys.
        theta: f64 = 1.1,
    }
}

/// A prime larger than any number of blocks that divides none of them: multiplying by it scatters ranks one to one.
const SCATTER: u128 = 11_400_714_785_074_694_791;

fn plan(space: &Space, given: &Given) -> Result<Box<dyn Plan>> {
    let ZipfParams { theta } = ZipfParams::from_given(given)?;
    space.check()?;
    let law = Zipf::new(space.blocks() as f64, theta)
        .map_err(|why| Error::Invalid(format!("theta={theta}: {why}; legal is a number from 0 on")))?;
    let (space, mut random) = (*space, space.random());
    let left = space.blocks() / u64::from(space.threads);
    let draw = move || {
        let rank = law.sample(&mut random) as u128 - 1;
        space.extent((rank * SCATTER % u128::from(space.blocks())) as u64)
    };
    Ok(Box::new(Drawn { left, draw }))
}
