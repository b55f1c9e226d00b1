//! The verdict of a group: which method is best here, by how much, with whom it is tied, and the evidence why.
//!
//! A lead counts when the paired ratios exclude 1 and exceed the smallest detectable effect; else it is a tie.

use super::derive::{self, Formula};
use super::{ArmSummary, Group, words};
use crate::stats::{Comparison, Told};

/// Factor from which on a difference of evidence is worth a sentence.
const NOTABLE: f64 = 1.5;

/// Shootdowns a second below which they explain nothing.
const FEW_SHOOTDOWNS: f64 = 100.0;

/// Who won.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Name of the best method; `None` where no method was measured.
    pub best: Option<String>,
    /// Methods that cannot be told apart from it.
    pub tied: Vec<String>,
    /// The best method that is not tied, and the best's throughput against it.
    pub runner_up: Option<(String, Comparison)>,
    /// All of it in one sentence.
    pub sentence: String,
    /// What the counters say about the reason.
    pub evidence: Vec<String>,
}

/// Judges a ranked group.
pub fn of(group: &Group<'_>) -> Verdict {
    let Some(best) = group.best() else {
        return Verdict { sentence: nothing(group), ..Verdict::default() };
    };
    let lead = |arm: &ArmSummary<'_>| best.against(arm).map(|lead| (arm.name.clone(), lead));
    let leads: Vec<(String, Comparison)> = group.methods().skip(1).filter_map(lead).collect();
    let (tied, behind): (Vec<_>, Vec<_>) = leads.into_iter().partition(|(_, lead)| lead.told() == Told::Tie);
    let runner_up = behind.into_iter().next();
    let sentence = sentence(best, &tied, runner_up.as_ref(), group);
    let names = tied.into_iter().map(|(name, _)| name).collect();
    Verdict { best: Some(best.name.clone()), tied: names, runner_up, sentence, evidence: evidence(group, best) }
}

fn nothing(group: &Group<'_>) -> String {
    let arms = group.arms.len();
    format!("no verdict: none of {arms} arm(s) is a method with valid figures; the reasons stand beside them")
}

fn sentence(
    best: &ArmSummary<'_>,
    tied: &[(String, Comparison)],
    runner_up: Option<&(String, Comparison)>,
    group: &Group<'_>,
) -> String {
    let lead = runner_up.map(|(name, lead)| format!("{} the throughput of {name}", words::factor(&lead.ratio)));
    match (tied, lead) {
        ([], None) => format!("{} is the only method with valid figures", best.name),
        ([], Some(lead)) if group.repetitions < 2 => {
            format!("{} was fastest: {lead}, in a single run; only more runs tell whether by luck", best.name)
        }
        ([], Some(lead)) => format!("{} is fastest here: {lead}", best.name),
        (tied, lead) => {
            let names: Vec<String> =
                std::iter::once(best.name.clone()).chain(tied.iter().map(|(name, _)| name.clone())).collect();
            let tie = format!("{} cannot be told apart here ({})", words::list(&names), below(tied));
            lead.map_or(tie.clone(), |lead| format!("{tie}; {} has {lead}", best.name))
        }
    }
}

/// The difference that would have been noticed: the largest among the ties, or what they differed by.
fn below(tied: &[(String, Comparison)]) -> String {
    let effect = |lead: &Comparison| lead.detectable.unwrap_or(0.0).max(lead.ratio.median - 1.0);
    let largest = tied.iter().map(|(_, lead)| effect(lead)).fold(0.0, f64::max);
    format!("<= {}", words::percent(largest))
}

/// What is compared to explain a lead: a formula, and how a difference is said.
struct Reason {
    formula: &'static Formula,
    /// Below this of the slower arm it explains nothing.
    least: f64,
    says: fn(&str, &str, &str, &str) -> String,
}

const REASONS: [Reason; 5] = [
    Reason {
        formula: &derive::READ_AMPLIFICATION,
        least: 1.2,
        says: |slow, theirs, best, ours| {
            format!(
                "{slow} read {theirs} bytes from the device per byte wanted, {best} {ours}: read-ahead of what nobody wanted"
            )
        },
    },
    Reason {
        formula: &derive::FAULTS,
        least: 0.05,
        says: |slow, theirs, best, ours| format!("{slow} took {theirs} page faults an access, {best} {ours}"),
    },
    Reason {
        formula: &derive::SHOOTDOWN_RATE,
        least: FEW_SHOOTDOWNS,
        says: |slow, theirs, best, ours| format!("TLB shootdowns: {theirs} with {slow}, {ours} with {best}"),
    },
    Reason {
        formula: &derive::CPU,
        least: 200.0,
        says: |slow, theirs, best, ours| {
            format!("an access cost {theirs} of processor time with {slow}, {ours} with {best}")
        },
    },
    Reason {
        formula: &derive::SETUP_SHARE,
        least: 0.2,
        says: |slow, theirs, best, ours| {
            format!("setup (open and close) took {theirs} of the time of {slow}, {ours} of {best}")
        },
    },
];

/// For each reason, the arm in which it shows most against the best one.
fn evidence(group: &Group<'_>, best: &ArmSummary<'_>) -> Vec<String> {
    REASONS.iter().filter_map(|reason| strongest(reason, group, best)).collect()
}

fn strongest(reason: &Reason, group: &Group<'_>, best: &ArmSummary<'_>) -> Option<String> {
    let Reason { formula, least, says } = reason;
    let ours = best.median(formula)?;
    let slower = group.methods().skip(1).filter(|arm| best.against(arm).is_some_and(|lead| lead.told() != Told::Tie));
    let shown = slower.filter_map(|arm| Some((arm, arm.median(formula)?)));
    let (arm, theirs) = shown
        .filter(|(_, theirs)| theirs >= least && *theirs >= ours * NOTABLE)
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(says(&arm.name, &(formula.number)(theirs), &best.name, &(formula.number)(ours)))
}

#[cfg(test)]
mod tests {
    use crate::report::synthetic::{Run, repeated, repeated_by};
    use crate::report::{Summary, counters};

    #[test]
    fn a_clear_lead_names_the_winner_and_the_factor_with_its_interval() {
        let records = [repeated("direct", 40_000, 3), repeated("mmap advice=random", 20_000, 3)].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert!(
            verdict
                .sentence
                .starts_with("direct is fastest here: 2.00 x [2.00–2.00] the throughput of mmap advice=random")
        );
        assert!(verdict.tied.is_empty());
    }

    #[test]
    fn what_differs_less_than_its_spread_is_called_a_tie() {
        let fast: Vec<_> = (0..3)
            .map(|n| Run::of("mmap advice=random").accesses([1_000, 1_050, 980][n]).repetition(n as u32).record())
            .collect();
        let same: Vec<_> =
            (0..3).map(|n| Run::of("pread").accesses([1_020, 990, 1_000][n]).repetition(n as u32).record()).collect();
        let slow = repeated("mmap advice=normal", 100, 3);
        let records = [fast, same, slow].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert!(verdict.sentence.contains("cannot be told apart here (<= "), "{}", verdict.sentence);
        assert_eq!(verdict.tied.len(), 1);
        assert_eq!(verdict.runner_up.as_ref().unwrap().0, "mmap advice=normal");
    }

    #[test]
    fn one_run_claims_no_certainty() {
        let records = [repeated("direct", 40_000, 1), repeated("pread", 20_000, 1)].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert_eq!(
            verdict.sentence,
            "direct was fastest: 2.00 x the throughput of pread, in a single run; only more runs tell whether by luck"
        );
    }

    #[test]
    fn the_evidence_names_what_differs_between_the_best_and_the_slower_ones() {
        let reading = |arm: &str, per_second: u64, bytes_each: u64| {
            repeated_by(&Run::of(arm).counter(counters::DEVICE_READ, per_second * bytes_each), per_second, 3)
        };
        let records = [reading("mmap", 1_000, 4_096 * 64), reading("direct", 90_000, 4_096)].concat();

        let evidence = &Summary::of(&records).groups[0].verdict.evidence;

        let says =
            "mmap read 64.0 bytes from the device per byte wanted, direct 1.00: read-ahead of what nobody wanted";
        assert_eq!(evidence, &[says]);
    }

    #[test]
    fn without_a_valid_method_there_is_no_winner() {
        let records = [repeated("null", 1_000_000, 2), vec![Run::of("mmap").failed("SIGBUS").record()]].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert_eq!(verdict.best, None);
        assert!(verdict.sentence.starts_with("no verdict"));
    }
}
