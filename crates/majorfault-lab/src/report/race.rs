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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, StoppedArm};
    use crate::report::Summary;
    use crate::report::synthetic::{Run, repeated};

    /// Records of a race of a minute, in which these arms were stopped after three rounds.
    fn race(records: Vec<Record>, stopped: &[&str]) -> Vec<Record> {
        let arm = |name: &&str| StoppedArm { arm: Run::of(name).record().trial.arm, rounds: 3 };
        let race = Race { time_ns: 60_000_000_000, stopped: stopped.iter().map(arm).collect() };
        records.into_iter().map(|record| Record { race: Some(race.clone()), ..record }).collect()
    }

    /// Runs of an arm with these accesses, one a repetition.
    fn runs(arm: &str, accesses: &[u64]) -> Vec<Record> {
        (0..).zip(accesses).map(|(at, accesses)| Run::of(arm).accesses(*accesses).repetition(at).record()).collect()
    }

    fn names(arms: Vec<Arm>) -> Vec<String> {
        arms.iter().map(Arm::to_string).collect()
    }

    #[test]
    fn whoever_is_behind_is_stopped_but_the_baseline_the_control_and_who_was_stopped_already() {
        let all = [("uring", 90_000), ("direct", 20_000), ("pread", 9_000), ("mmap", 100), ("null", 90_000_000)];
        let records = |rounds| all.iter().flat_map(|(arm, rate)| repeated(arm, *rate, rounds)).collect::<Vec<Record>>();

        let of = |records: &[Record]| names(behind(&Summary::of(records).groups[0]));

        assert_eq!(of(&race(records(2), &[])), Vec::<String>::new());
        assert_eq!(of(&race(records(3), &[])), ["direct", "pread"]);
        assert_eq!(of(&race(records(3), &["pread"])), ["direct"]);
    }

    #[test]
    fn a_stopped_arm_needs_no_more_runs_and_is_never_the_best_though_its_rounds_were_the_quick_ones() {
        let quick = runs("direct", &[80_000, 81_000, 80_500]);
        let best = runs("uring", &[99_000, 100_000, 99_500, 50_000, 51_000, 50_500, 50_000]);
        let mmap = runs("mmap", &[9_000, 9_000, 9_000, 4_500, 4_500, 4_500, 4_500]);
        let records = race([quick, best, mmap].concat(), &["direct"]);

        let summary = Summary::of(&records);

        let group = &summary.groups[0];
        assert_eq!(group.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(), ["uring", "direct", "mmap"]);
        assert_eq!((group.verdict.standing, group.verdict.best.as_deref()), (Standing::Judged, Some("uring")));
        assert_eq!(group.arms[1].stopped, Some(3));
        assert_eq!(group.verdict.runner_up.as_ref().unwrap().0, "direct");
    }

    #[test]
    fn the_same_runs_without_a_race_name_no_winner() {
        let records =
            [repeated("direct", 80_000, 3), repeated("uring", 99_000, 6), repeated("mmap", 9_000, 6)].concat();

        assert_eq!(Summary::of(&records).groups[0].verdict.standing, Standing::NotValid);
        assert_eq!(Summary::of(&race(records, &["direct"])).groups[0].verdict.standing, Standing::Judged);
    }

    #[test]
    fn it_is_over_at_a_look_where_all_is_decided_and_not_between() {
        let over = |rounds| {
            let records = [repeated("uring", 90_000, rounds), repeated("mmap", 9_000, rounds)].concat();
            is_over(&Summary::of(&race(records, &[])).groups[0])
        };

        assert_eq!([5, 6, 7, 9, 13, 25].map(over), [false, true, false, true, true, true]);
    }

    #[test]
    fn what_is_undecided_goes_on_and_is_told_when_time_is_up() {
        let wild = runs("pread", &[90_000, 40_000, 120_000, 60_000, 99_000, 110_000]);
        let records = [repeated("uring", 90_000, 6), wild, repeated("mmap", 900, 6)].concat();
        let records = race([records, repeated("direct", 9_000, 3)].concat(), &["direct"]);

        let summary = Summary::of(&records);

        assert!(!is_over(&summary.groups[0]));
        assert_eq!(
            cut_short(&summary.groups[0]).unwrap(),
            "1 of 4 stopped after 3 runs, surely behind; time was up after 6 runs of the others; 1 method is undecided (--time 120s)"
        );
    }

    #[test]
    fn a_method_without_a_valid_run_in_six_ends_it_without_a_winner() {
        let spoiled: Vec<Record> =
            (0..6).map(|at| Run::of("uring").repetition(at).spoiled("it was cached").record()).collect();
        let records = race([spoiled, repeated("mmap", 900, 6)].concat(), &[]);

        let summary = Summary::of(&records);

        assert!(is_over(&summary.groups[0]) && !summary.groups[0].is_valid());
        assert_eq!(cut_short(&summary.groups[0]), None);
    }

    #[test]
    fn what_was_asked_for_is_cut_short_by_nobody() {
        assert_eq!(cut_short(&Summary::of(&repeated("mmap", 900, 6)).groups[0]), None);
    }
}
