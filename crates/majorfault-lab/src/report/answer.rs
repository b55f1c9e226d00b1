//! The first lines of a report: which method, how many times as fast as what the reader has now, and how sure that is.
//!
//! What the reader has now is the arm that `--baseline` names, else the common default: mmap without a hint, or plain
//! buffered reads where mapping takes no part.

use super::verdict::{Ranking, Standing, unseen};
use super::{ArmSummary, Group, Role, State, words};
use crate::stats::{PairedRatio, Told};
use crate::traits::Class;
use crate::trial::Arm;

/// What the reader asked, answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirstLines {
    /// Which method, and how many times as fast as the baseline; or why nothing can be said.
    pub says: String,
    /// Ties with the best and the next best, where the first line has not named them.
    pub rank: Option<String>,
    /// What the best one is compared with, and how that was chosen.
    pub basis: Option<String>,
    /// The baseline's name, and the best one's throughput against it where both have figures.
    pub baseline: Option<(String, Option<PairedRatio>)>,
}

/// Answers for a group with this verdict.
pub fn of(group: &Group<'_>, verdict: &Ranking) -> FirstLines {
    let baseline = baseline(group);
    let lead = baseline.and_then(|arm| group.best()?.against(arm));
    let named = baseline.map(|arm| (arm.name.clone(), lead));
    match (verdict.standing, group.best()) {
        (Standing::Judged, Some(best)) => FirstLines {
            says: says(best, baseline.filter(|arm| arm.is_measured()), verdict),
            rank: rank(best, baseline, verdict),
            basis: baseline.map(|arm| basis(group, arm)),
            baseline: named,
        },
        _ => FirstLines { says: verdict.sentence.clone(), baseline: named, ..FirstLines::default() },
    }
}

/// The arm that the reader has now: named, or the common default; it may have no figures.
pub fn baseline<'g, 'a>(group: &'g Group<'a>) -> Option<&'g ArmSummary<'a>> {
    let of = |is: fn(&ArmSummary<'_>) -> bool| group.arms.iter().find(|arm| arm.role == Role::Method && is(arm));
    match named(group) {
        Some(named) => group.arms.iter().find(|arm| arm.records[0].trial.arm == *named),
        None => of(is_plain_mapping).or_else(|| of(is_plain_read)),
    }
}

fn named<'a>(group: &Group<'a>) -> Option<&'a Arm> {
    group.arms.iter().flat_map(|arm| &arm.records).find_map(|record| record.baseline.as_ref())
}

/// A mapping with no hint, no policy and nothing populated.
fn is_plain_mapping(arm: &ArmSummary<'_>) -> bool {
    let Arm::Method(choice) = &arm.records[0].trial.arm else { return false };
    let is_default = |(key, value): (&String, &String)| key == "advice" && value == "normal";
    arm.class() == Some(Class::Mapped) && choice.given.iter().all(is_default)
}

/// One read after the other through the page cache.
fn is_plain_read(arm: &ArmSummary<'_>) -> bool {
    arm.class() == Some(Class::Explicit) && !arm.is_direct() && arm.depth().is_none()
}

fn says(best: &ArmSummary<'_>, baseline: Option<&ArmSummary<'_>>, verdict: &Ranking) -> String {
    let next = verdict.runner_up.as_ref();
    match baseline.and_then(|arm| Some((arm, best.against(arm)?))) {
        Some((arm, lead)) if arm.name != best.name && lead.told() == Told::Apart => {
            format!("{} is fastest here: {}", best.name, against(&lead, &arm.name))
        }
        Some((arm, _)) if arm.name != best.name || !verdict.tied.is_empty() => {
            format!("no method is measurably faster than {} here", arm.name)
        }
        _ => match next {
            Some((name, lead)) => format!("{} is fastest here: {}", best.name, against(lead, name)),
            None if verdict.tied.is_empty() => format!("{} is the only method with valid figures", best.name),
            None => format!("no method is measurably faster than {} here", best.name),
        },
    }
}

/// `10.8 x as fast as pread (97 % interval 9.81–11.2 x, 6 runs of each)`.
fn against(lead: &PairedRatio, name: &str) -> String {
    format!("{} as fast as {name} ({})", words::times(lead.ratio.median), words::sure(&lead.ratio))
}

fn rank(best: &ArmSummary<'_>, baseline: Option<&ArmSummary<'_>>, verdict: &Ranking) -> Option<String> {
    let tie = (!verdict.tied.is_empty()).then(|| {
        let names = words::list(&verdict.tied);
        format!("{names} cannot be told apart from {} ({})", best.name, unseen(&verdict.leads_of_tied))
    });
    // The first line is about the next best where the best one is the baseline, or there is none with figures.
    let is_said = |name: &str| match baseline.filter(|arm| arm.is_measured()) {
        Some(arm) => arm.name == name || (arm.name == best.name && verdict.tied.is_empty()),
        None => true,
    };
    let next = verdict.runner_up.as_ref().filter(|(name, _)| !is_said(name));
    let next = next.map(|(name, lead)| {
        let times = words::times(lead.ratio.median);
        format!("next best: {name} ({} is {times} as fast, {})", best.name, words::sure(&lead.ratio))
    });
    let parts: Vec<String> = tie.into_iter().chain(next).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn basis(group: &Group<'_>, arm: &ArmSummary<'_>) -> String {
    let name = &arm.name;
    let chosen = match named(group) {
        Some(_) => format!("{name} is what --baseline names"),
        None => format!("{name} stands for what programs do by default; name what yours does with --baseline METHOD"),
    };
    match &arm.state {
        State::Measured(_) => chosen,
        State::Missing(_) => format!("{chosen}; it cannot run here"),
        State::Failed(_) => format!("{chosen}; it failed"),
        State::Invalid(_) => format!("{chosen}; it has no valid run"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::report::Summary;
    use crate::report::synthetic::{Run, repeated, repeated_by};

    fn answer(records: &[Record]) -> FirstLines {
        let summary = Summary::of(records);
        summary.groups[0].verdict.answer.clone()
    }

    fn measured() -> [Vec<Record>; 4] {
        [
            repeated("mmap advice=normal", 100, 6),
            repeated("mmap advice=random", 4_000, 6),
            repeated("pread", 5_000, 6),
            repeated("uring depth=32", 143_000, 6),
        ]
    }

    #[test]
    fn the_best_is_compared_with_plain_mmap_where_nobody_says_what_they_have() {
        let answer = answer(&measured().concat());

        assert_eq!(
            answer.says,
            "uring depth=32 is fastest here: 1\u{a0}430 x as fast as mmap advice=normal \
             (97 % interval 1\u{a0}430–1\u{a0}430 x, 6 runs of each)"
        );
        assert_eq!(
            answer.rank.unwrap(),
            "next best: pread (uring depth=32 is 28.6 x as fast, 97 % interval 28.6–28.6 x, 6 runs of each)"
        );
        let basis =
            "mmap advice=normal stands for what programs do by default; name what yours does with --baseline METHOD";
        assert_eq!(answer.basis.unwrap(), basis);
        assert_eq!(answer.baseline.unwrap().0, "mmap advice=normal");
    }

    #[test]
    fn without_mmap_it_is_compared_with_plain_reads() {
        let [_, _, pread, uring] = measured();

        let answer = answer(&[uring, pread, repeated("direct", 4_000, 6)].concat());

        assert!(answer.says.starts_with("uring depth=32 is fastest here: 28.6 x as fast as pread ("), "{answer:?}");
        assert_eq!(answer.rank, None);
    }

    #[test]
    fn a_baseline_that_was_named_is_what_it_is_compared_with() {
        let named = Arm::Method(crate::trial::Choice::plain("mmap").with("advice", "random"));
        let mut records = measured().concat();
        records.iter_mut().for_each(|record| record.baseline = Some(named.clone()));

        let answer = answer(&records);

        assert!(answer.says.contains("35.8 x as fast as mmap advice=random ("), "{answer:?}");
        assert_eq!(answer.basis.unwrap(), "mmap advice=random is what --baseline names");
    }

    #[test]
    fn who_has_the_best_already_is_told_what_the_next_best_is() {
        let answer = answer(&[repeated("mmap", 9_000, 6), repeated("pread", 3_000, 6)].concat());

        assert!(answer.says.starts_with("mmap is fastest here: 3.00 x as fast as pread ("), "{answer:?}");
        assert_eq!(answer.rank, None);
    }

    #[test]
    fn a_baseline_that_is_tied_with_the_best_is_no_reason_to_change() {
        let turns = |arm: &str, accesses: [u64; 6]| -> Vec<Record> {
            (0..).zip(accesses).map(|(at, each)| Run::of(arm).accesses(each).repetition(at).record()).collect()
        };
        let fast = turns("pread", [1_000, 1_050, 980, 1_010, 1_030, 990]);
        let mmap = turns("mmap", [1_020, 990, 1_000, 1_020, 1_000, 1_000]);

        let answer = answer(&[fast, mmap, repeated("direct", 100, 6)].concat());

        assert_eq!(answer.says, "no method is measurably faster than mmap here");
        assert!(answer.rank.as_deref().unwrap().starts_with("mmap cannot be told apart from pread (less than "));
        assert!(answer.rank.unwrap().contains("; next best: direct (pread is "));
    }

    #[test]
    fn a_baseline_that_failed_is_said_to_have_failed() {
        let failed = vec![Run::of("mmap").failed("SIGBUS").record()];

        let answer = answer(&[failed, repeated("pread", 1_000, 6), repeated("direct", 4_000, 6)].concat());

        assert!(answer.says.starts_with("direct is fastest here: 4.00 x as fast as pread ("), "{answer:?}");
        assert!(answer.basis.unwrap().ends_with("; it failed"));
        assert_eq!(answer.baseline, Some(("mmap".to_owned(), None)));
    }

    #[test]
    fn without_a_verdict_the_first_line_says_why() {
        let spoiled = repeated_by(&Run::of("mmap").spoiled("busy"), 1_000, 6);

        let answer = answer(&[spoiled, repeated("pread", 3_000, 6)].concat());

        assert_eq!(answer.says, "NOT VALID: cold in 6 of 12 runs; no winner is named");
        assert_eq!((answer.rank, answer.basis), (None, None));
    }
}
