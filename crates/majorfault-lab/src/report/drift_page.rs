//! Drift as a page.

use super::drift::Drift;
use super::drift_tell::{head, row};
use super::html;
use majorfault::Result;
use minijinja::{Value, context};

/// The page.
///
/// Errors: Invalid where the template cannot be filled, which is a mistake of ours.
pub fn page(drift: &Drift) -> Result<String> {
    let claim = |claim: &super::drift::ClaimSides| {
        let seen = claim.seen();
        let side = |it: &super::drift::ClaimSide| context! { cells => row(it), flips => it.flips().next().is_some() };
        let sides: Vec<Value> = seen.iter().map(side).collect();
        context! { id => claim.row.id, says => claim.row.says, published => claim.row.published, sides }
    };
    let claims: Vec<Value> = drift.claims().map(claim).collect();
    html::fill("drift.html", include_str!("drift.html"), context! { lines => head(drift), claims })
}
