//! What is known of a race from its records: who is surely behind, whether the answer is sure, what was cut short.

use super::verdict::Standing;
use super::{ArmSummary, Group, Role, State, answer, words};
use crate::record::Race;
use crate::stats::race::{self, LOOKS};
use crate::trial::Arm;
use majorfault::Nanos;

/// Arms that need not run any more: surely behind the best, and neither the baseline nor the control.
pub fn behind(group: &Group<'_>) -> Vec<Arm> {
    let Some(best) = group.best() else { return Vec::new() };
    let baseline = answer::baseline(group).map(|arm| arm.name.as_str());
    let others: Vec<&ArmSummary<'_>> = group
        .arms
        .iter()
        .filter(|arm| arm.role != Role::Control && arm.is_measured() && arm.name != best.name)
        .collect();
    let leads: Vec<Vec<f64>> = others.iter().map(|arm| crate::stats::ratios(&best.pairs(arm))).collect();
    let found = others.iter().zip(race::behind(&leads)).filter(|(_, is_behind)| *is_behind);
    let goes_on = |arm: &ArmSummary<'_>| arm.stopped.is_none() && Some(arm.name.as_str()) != baseline;
    found.filter(|(arm, _)| goes_on(arm)).map(|(arm, _)| arm.records[0].trial.arm.clone()).collect()
}

/// Whether more rounds would not change the answer, as far as one may ask after so many.
pub fn is_over(group: &Group<'_>) -> bool {
    if !LOOKS.contains(&group.repetitions) {
        return false;
    }
    match group.verdict.standing {
        Standing::Judged => undecided(group) == 0,
        Standing::Nothing => true,
        // Six runs in turns of which none is valid: the next will not be.
        Standing::NotValid => group.arms.iter().any(|arm| matches!(arm.state, State::Invalid(_))),
        Standing::RunMore => false,
    }
}

/// Methods whose distance to the best may still matter.
fn undecided(group: &Group<'_>) -> usize {
    let Some(best) = group.best() else { return 0 };
    let is_open =
        |arm: &&ArmSummary<'_>| arm.stopped.is_none() && best.against(arm).is_none_or(|lead| !race::settled(&lead));
    group.methods().skip(1).filter(is_open).count()
}

/// What was cut short in a race, and why it ended; `None` where each arm ran as often as was asked.
pub fn cut_short(group: &Group<'_>) -> Option<String> {
    let race = group.race?;
    let parts: Vec<String> = stopped(group).into_iter().chain(ended(group, race)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `7 of 12 stopped as surely behind after 3 to 4 runs`.
fn stopped(group: &Group<'_>) -> Option<String> {
    let rounds: Vec<u32> = group.arms.iter().filter_map(|arm| arm.stopped).collect();
    let (least, most) = (rounds.iter().min()?, rounds.iter().max()?);
    let after = if least == most { words::runs(*least as usize) } else { format!("{least} to {most} runs") };
    Some(format!("{} of {} stopped after {after}, surely behind", rounds.len(), group.arms.len()))
}

fn ended(group: &Group<'_>, race: &Race) -> Option<String> {
    if group.verdict.standing != Standing::Judged {
        return None;
    }
    let runs = words::runs(group.repetitions);
    Some(match undecided(group) {
        0 => format!("the others ended after {runs}, as the answer was sure"),
        open => {
            let what = if open == 1 { "1 method is".to_owned() } else { format!("{open} methods are") };
            format!("time was up after {runs} of the others; {what} undecided (--time {})", more_time(race))
        }
    })
}

/// Twice the time that a race was given, as `--time` takes it.
pub fn more_time(race: &Race) -> Nanos {
    Nanos(race.time_ns.saturating_mul(2))
}
