//! What was asked: first pass or steady state, and how often each block was visited. And what a cold figure is of, where
//! most of it came from the cache.

use super::{ArmSummary, Group, Role, derive, words};
use crate::record::Question;
use crate::trial::{CacheState, Direction};
use majorfault::units::grouped;

/// Visits to each block from which on a figure is mostly that of later ones.
const REVISITED: f64 = 2.0;

/// Device bytes per byte wanted below which the page cache served most of a run.
const SERVED: f64 = 0.5;

/// The heading of a group: the question, and visits to each block; `None` where the number of distinct blocks is not known.
pub fn heading(group: &Group<'_>) -> Option<String> {
    let visits = visits(group)?;
    let trial = group.trial;
    let blocks = match trial.data.size_bytes / trial.block_bytes.max(1) {
        few @ ..1000 => few.to_string(),
        many => grouped(many as f64),
    };
    let what = match group.question() {
        Some(Question::FirstPass) => "First pass, cold: each block once, in random order".to_owned(),
        Some(Question::SteadyState) => "Steady state: random blocks of the file in memory".to_owned(),
        None => {
            let way = if trial.direction == Direction::Write { "write" } else { "read" };
            format!("{} {way}, cache {}", trial.workload, trial.cache)
        }
    };
    Some(format!("{what} ({} to each block reached, of {blocks})", said(visits)))
}

/// The least and the most visits to a distinct block, over the arms' medians; the control visits none.
pub fn visits(group: &Group<'_>) -> Option<[f64; 2]> {
    let of_arms = group.arms.iter().filter(|arm| arm.role != Role::Control && !arm.used.is_empty());
    let visits: Vec<f64> = of_arms.filter_map(|arm| arm.median(&derive::VISITS)).collect();
    let least = visits.iter().copied().min_by(f64::total_cmp)?;
    Some([least, visits.iter().copied().max_by(f64::total_cmp)?])
}

/// `1.00 visits`, `1.02 to 39.7 visits`.
fn said([least, most]: [f64; 2]) -> String {
    let (least, most) = (words::ratio(least), words::ratio(most));
    if least == most { format!("{least} visits") } else { format!("{least} to {most} visits") }
}

/// What is to be known of figures called cold that are mostly the cache's.
pub fn remark(group: &Group<'_>) -> Option<String> {
    if group.trial.cache != CacheState::Cold || group.trial.direction != Direction::Read {
        return None;
    }
    let is_served = |arm: &&ArmSummary<'_>| {
        let visited = arm.median(&derive::VISITS).is_some_and(|visits| visits >= REVISITED);
        visited && arm.median(&derive::READ_AMPLIFICATION).is_some_and(|read| read < SERVED)
    };
    let served: Vec<&ArmSummary<'_>> =
        group.arms.iter().filter(|arm| arm.role != Role::Control && arm.is_measured()).filter(is_served).collect();
    let first = served.first()?;
    let visits = words::ratio(first.median(&derive::VISITS)?);
    let others = match served.len() - 1 {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        others => format!(" and {others} others"),
    };
    Some(format!(
        "cold is the first visit only: {}{others} came to each block {visits} times, so that most of the figure is the page \
         cache's; without --cache, --workload, --time-based and --number-ios the first pass and the steady state are told apart",
        first.name
    ))
}
