//! The verdict of a group: which method is best here, by how much, with whom it is tied, and the evidence why.
//!
//! A lead counts when the paired ratios exclude 1 and exceed the smallest detectable effect; else it is a tie. There is
//! no winner among survivors: none is named while a method that could lead has too few valid runs.

use super::answer::{self, FirstLines};
use super::derive::{self, Formula};
use super::{ArmSummary, Group, Role, State, race, words};
use crate::stats::{self, PairedRatio, Told};

/// Factor from which on a difference of evidence is worth a sentence.
const NOTABLE: f64 = 1.5;

/// Shootdowns a second below which they explain nothing.
const FEW_SHOOTDOWNS: f64 = 100.0;

/// Which method is best, and what that rests on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// Whether there is one.
    pub standing: Standing,
    /// Name of the best method; `None` without a verdict.
    pub best: Option<String>,
    /// Methods that cannot be told apart from it.
    pub tied: Vec<String>,
    /// The best one's throughput against each of those.
    pub leads_of_tied: Vec<PairedRatio>,
    /// The best method that is not tied, and the best's throughput against it.
    pub runner_up: Option<(String, PairedRatio)>,
    /// All of it in one sentence.
    pub sentence: String,
    /// What the counters say about the reason.
    pub evidence: Vec<String>,
    /// The first lines of a report.
    pub answer: FirstLines,
}

/// Whether a verdict can be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It is given.
    Judged,
    /// The runs are valid, and too few.
    RunMore,
    /// Runs that it would need are not valid.
    NotValid,
    /// No method was measured.
    #[default]
    Nothing,
}

/// Judges a ranked group.
pub fn of(group: &Group<'_>) -> Ranking {
    let mut verdict = match standing(group) {
        Standing::Nothing => without(Standing::Nothing, nothing(group)),
        Standing::NotValid => without(Standing::NotValid, not_valid(group)),
        Standing::RunMore => without(Standing::RunMore, run_more(group)),
        Standing::Judged => judged(group),
    };
    verdict.answer = answer::of(group, &verdict);
    verdict
}

fn without(standing: Standing, sentence: String) -> Ranking {
    Ranking { standing, sentence, ..Ranking::default() }
}

/// Valid runs that a method needs before it is judged: as many as were made, up to what an interval needs.
fn needed(group: &Group<'_>) -> usize {
    group.repetitions.min(stats::LEAST)
}

fn standing(group: &Group<'_>) -> Standing {
    let candidates = || group.arms.iter().filter(|arm| arm.role == Role::Method);
    let is_spoiled = |arm: &ArmSummary<'_>| match arm.state {
        State::Invalid(_) => true,
        State::Measured(_) => arm.stopped.is_none() && arm.used.len() < needed(group),
        State::Missing(_) | State::Failed(_) => false,
    };
    let Some(best) = group.best() else {
        return if candidates().any(is_spoiled) { Standing::NotValid } else { Standing::Nothing };
    };
    // What was stopped was surely behind when it was, though its few runs cover less than a verdict's.
    let tells_nothing = |arm: &ArmSummary<'_>| {
        arm.stopped.is_none() && best.against(arm).is_none_or(|lead| lead.told() == Told::RunMore)
    };
    match () {
        () if candidates().any(is_spoiled) => Standing::NotValid,
        () if best.used.len() < stats::LEAST || group.methods().skip(1).any(tells_nothing) => Standing::RunMore,
        () => Standing::Judged,
    }
}

fn judged(group: &Group<'_>) -> Ranking {
    let Some(best) = group.best() else { return without(Standing::Nothing, nothing(group)) };
    let leads: Vec<(&ArmSummary<'_>, PairedRatio)> =
        group.methods().skip(1).filter_map(|arm| Some((arm, best.against(arm)?))).collect();
    let (tied, behind): (Vec<_>, Vec<_>) =
        leads.into_iter().partition(|(arm, lead)| arm.stopped.is_none() && lead.told() == Told::Tie);
    let named = |leads: Vec<(&ArmSummary<'_>, PairedRatio)>| -> Vec<(String, PairedRatio)> {
        leads.into_iter().map(|(arm, lead)| (arm.name.clone(), lead)).collect()
    };
    let (tied, behind) = (named(tied), named(behind));
    let runner_up = behind.into_iter().next();
    let sentence = sentence(best, &tied, runner_up.as_ref());
    let (tied, leads_of_tied) = tied.into_iter().unzip();
    Ranking {
        standing: Standing::Judged,
        best: Some(best.name.clone()),
        tied,
        leads_of_tied,
        runner_up,
        sentence,
        evidence: evidence(group, best),
        answer: FirstLines::default(),
    }
}

fn nothing(group: &Group<'_>) -> String {
    let arms = group.arms.len();
    format!("no verdict: none of {arms} arm(s) is a method with valid figures; the reasons are listed below")
}

/// What spoiled the runs; no winner is named.
fn not_valid(group: &Group<'_>) -> String {
    let reasons: Vec<String> = group
        .troubles
        .iter()
        .map(|trouble| format!("{} in {} of {} runs", trouble.gate, trouble.runs, group.runs()))
        .collect();
    let reasons = if reasons.is_empty() { "runs were interrupted".to_owned() } else { words::list(&reasons) };
    format!("NOT VALID: {reasons}; no winner is named")
}

/// Which method leads so far, and how many runs a verdict needs.
fn run_more(group: &Group<'_>) -> String {
    let runs = words::runs(group.repetitions);
    let least = stats::LEAST;
    let need = match group.race {
        Some(race) => format!(
            "NO VERDICT YET: {runs} of each method in the time given, a verdict needs {least} (--time {})",
            race::more_time(race)
        ),
        None => format!("NO VERDICT YET: {runs} of each method, a verdict needs {least} (--runs {least})"),
    };
    let Some(best) = group.best() else { return need };
    let baseline = answer::baseline(group).filter(|arm| arm.is_measured() && arm.name != best.name);
    let second = baseline.or_else(|| group.methods().nth(1));
    let Some(second) = second else { return format!("{need}; {} is the only method", best.name) };
    match best.against(second) {
        Some(lead) => {
            format!("{need}; so far {} has {} the throughput of {}", best.name, words::factor(&lead.ratio), second.name)
        }
        None => format!("{need}; {} and {} have no repetition in common", best.name, second.name),
    }
}

fn sentence(
    best: &ArmSummary<'_>,
    tied: &[(String, PairedRatio)],
    runner_up: Option<&(String, PairedRatio)>,
) -> String {
    let lead = runner_up.map(|(name, lead)| format!("{} the throughput of {name}", words::factor(&lead.ratio)));
    match (tied, lead) {
        ([], None) => format!("{} is the only method with valid figures", best.name),
        ([], Some(lead)) => format!("{} is fastest here: {lead}", best.name),
        (tied, lead) => {
            let leads: Vec<PairedRatio> = tied.iter().map(|(_, lead)| *lead).collect();
            let names: Vec<String> =
                std::iter::once(best.name.clone()).chain(tied.iter().map(|(name, _)| name.clone())).collect();
            let tie = format!("{} cannot be told apart here ({})", words::list(&names), unseen(&leads));
            lead.map_or(tie.clone(), |lead| format!("{tie}; {} has {lead}", best.name))
        }
    }
}

/// The difference that would not have been noticed: the largest among the ties, or what they differed by.
pub(super) fn unseen(tied: &[PairedRatio]) -> String {
    let effect = |lead: &PairedRatio| lead.detectable.unwrap_or(0.0).max(lead.ratio.median - 1.0);
    let largest = tied.iter().map(effect).fold(0.0, f64::max);
    match largest {
        effect if effect >= 1.0 => format!("less than {} would not show", words::times(1.0 + effect)),
        effect => format!("less than {} would not show", words::percent(effect)),
    }
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
                "{slow} read {theirs} x the bytes asked for from the device, {best} {ours} x: read-ahead that nobody used"
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
    let is_behind = |arm: &&ArmSummary<'_>| {
        arm.stopped.is_some() || best.against(arm).is_some_and(|lead| lead.told() == Told::Apart)
    };
    let slower = group.methods().skip(1).filter(is_behind);
    let shown = slower.filter_map(|arm| Some((arm, arm.median(formula)?)));
    let (arm, theirs) = shown
        .filter(|(_, theirs)| theirs >= least && *theirs >= ours * NOTABLE)
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(says(&arm.name, &(formula.number)(theirs), &best.name, &(formula.number)(ours)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::report::synthetic::{Run, repeated, repeated_by};
    use crate::report::{Summary, counters};
    use crate::stats::Estimate;

    #[test]
    fn a_clear_lead_names_the_winner_and_the_factor_with_its_interval() {
        let records = [repeated("direct", 40_000, 6), repeated("mmap advice=random", 20_000, 6)].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert!(
            verdict
                .sentence
                .starts_with("direct is fastest here: 2.00 x [2.00–2.00] the throughput of mmap advice=random")
        );
        assert!(verdict.tied.is_empty());
    }

    /// Runs of an arm with these accesses, one a repetition.
    fn runs(arm: &str, accesses: &[u64]) -> Vec<Record> {
        (0..).zip(accesses).map(|(at, accesses)| Run::of(arm).accesses(*accesses).repetition(at).record()).collect()
    }

    fn verdict(records: &[Record]) -> Ranking {
        Summary::of(records).groups[0].verdict.clone()
    }

    #[test]
    fn what_differs_less_than_its_spread_is_called_a_tie() {
        let fast = runs("mmap advice=random", &[1_000, 1_050, 980, 1_010, 1_030, 990]);
        let same = runs("pread", &[1_020, 990, 1_000, 1_020, 1_000, 1_000]);
        let slow = repeated("mmap advice=normal", 100, 6);

        let verdict = verdict(&[fast, same, slow].concat());

        assert!(verdict.sentence.contains("pread cannot be told apart here (less than "), "{}", verdict.sentence);
        assert!(verdict.sentence.contains(" % would not show); "), "{}", verdict.sentence);
        assert_eq!(verdict.tied, ["pread"]);
        assert_eq!(verdict.runner_up.as_ref().unwrap().0, "mmap advice=normal");
        assert_eq!(verdict.best.as_deref(), Some("mmap advice=random"));
    }

    #[test]
    fn a_difference_that_could_not_show_is_a_factor_where_it_is_large() {
        let wild = runs("mmap", &[100, 9_000, 300, 20_000, 50, 4_000]);
        let calm = repeated("pread", 1_000, 6);

        let verdict = verdict(&[wild, calm].concat());

        assert!(verdict.sentence.ends_with(" x would not show)"), "{}", verdict.sentence);
    }

    #[test]
    fn the_runner_up_is_the_best_of_those_behind_and_not_the_last() {
        let records = [repeated("direct", 40_000, 6), repeated("pread", 20_000, 6), repeated("mmap", 100, 6)].concat();

        let verdict = verdict(&records);

        assert_eq!(verdict.runner_up.unwrap().0, "pread");
    }

    #[test]
    fn too_few_runs_name_no_winner_and_say_how_many_would() {
        let records = [repeated("direct", 40_000, 5), repeated("pread", 20_000, 5)].concat();

        let verdict = verdict(&records);

        let says = "NO VERDICT YET: 5 runs of each method, a verdict needs 6 (--runs 6); so far direct has 2.00 x \
                    [2.00–2.00, 5 runs: 94 %] the throughput of pread";
        assert_eq!((verdict.standing, verdict.best, verdict.sentence.as_str()), (Standing::RunMore, None, says));
    }

    #[test]
    fn the_leader_so_far_stands_beside_what_the_user_has_now_else_beside_the_next() {
        let so_far = |rates: [(&str, u64); 3]| {
            let records: Vec<Record> = rates.iter().flat_map(|(arm, rate)| repeated(arm, *rate, 5)).collect();
            let sentence = verdict(&records).sentence;
            sentence.split("so far ").nth(1).unwrap().split(" [").next().unwrap().to_owned()
                + sentence.rsplit(" the throughput of").next().unwrap()
        };

        assert_eq!(so_far([("direct", 40_000), ("uring", 20_000), ("mmap", 10_000)]), "direct has 4.00 x mmap");
        assert_eq!(so_far([("mmap", 40_000), ("uring", 20_000), ("direct", 10_000)]), "mmap has 2.00 x uring");
    }

    #[test]
    fn the_only_method_needs_six_runs_as_well() {
        assert_eq!(verdict(&repeated("direct", 40_000, 5)).standing, Standing::RunMore);

        let six = verdict(&repeated("direct", 40_000, 6));

        assert_eq!(
            (six.standing, six.sentence.as_str()),
            (Standing::Judged, "direct is the only method with valid figures")
        );
    }

    #[test]
    fn nobody_wins_among_survivors() {
        let survivor = repeated("mmap", 1_000, 6);
        let spoiled = |repetition| Run::of("uring").accesses(400_000).repetition(repetition).spoiled("busy").record();
        let fast: Vec<Record> = (0..6).map(spoiled).collect();

        let verdict = verdict(&[survivor, fast].concat());

        assert_eq!((verdict.standing, verdict.best), (Standing::NotValid, None));
        assert_eq!(verdict.sentence, "NOT VALID: cold in 6 of 12 runs; no winner is named");
    }

    #[test]
    fn a_method_with_fewer_valid_runs_than_a_verdict_needs_forbids_a_winner() {
        let mut records = [repeated("mmap", 1_000, 6), repeated("uring", 2_000, 6)].concat();
        records[3] = Run::of("mmap").repetition(3).spoiled("busy").record();

        assert_eq!(verdict(&records).standing, Standing::NotValid);
    }

    #[test]
    fn a_disturbed_run_that_was_made_again_does_not_matter() {
        let disturbed = Run::of("mmap").repetition(3).spoiled("busy").record();
        let records = [repeated("mmap", 1_000, 6), vec![disturbed], repeated("uring", 2_000, 6)].concat();

        let summary = Summary::of(&records);

        assert_eq!(summary.groups[0].repetitions, 6);

        assert_eq!(summary.groups[0].verdict.best.as_deref(), Some("uring"));
        assert!(summary.groups[0].is_valid());
    }

    #[test]
    fn a_method_that_failed_or_is_not_here_cannot_lead() {
        let missing = Run::of("uring").missing("io_uring", "refused", "allow it").record();
        let failed = Run::of("pread").failed("EIO").record();
        let records = [repeated("mmap", 1_000, 6), repeated("direct", 2_000, 6), vec![missing, failed]].concat();

        assert_eq!(verdict(&records).best.as_deref(), Some("direct"));
    }

    #[test]
    fn a_spoiled_peer_or_control_forbids_no_winner() {
        let peer = Run::peer("fio").spoiled("busy").record();
        let control = Run::of("null").spoiled("busy").record();
        let records = [repeated("mmap", 1_000, 6), repeated("direct", 2_000, 6), vec![peer, control]].concat();

        assert_eq!(verdict(&records).best.as_deref(), Some("direct"));
    }

    #[test]
    fn without_any_spoiled_or_measured_method_nothing_is_said_to_be_invalid() {
        let records = vec![Run::of("uring").missing("io_uring", "refused", "allow it").record()];

        assert_eq!(verdict(&records).standing, Standing::Nothing);
    }

    #[test]
    fn a_tie_is_no_evidence() {
        let same = |arm: &str, bytes_each: u64| {
            repeated_by(&Run::of(arm).counter(counters::PROCESS_READ, 1_000 * bytes_each), 1_000, 6)
        };

        let verdict = verdict(&[same("mmap", 4_096 * 64), same("direct", 4_096)].concat());

        assert_eq!(verdict.evidence, Vec::<String>::new());
    }

    #[test]
    fn the_evidence_names_what_differs_between_the_best_and_the_slower_ones() {
        let reading = |arm: &str, per_second: u64, bytes_each: u64| {
            repeated_by(&Run::of(arm).counter(counters::PROCESS_READ, per_second * bytes_each), per_second, 6)
        };
        let records = [reading("mmap", 1_000, 4_096 * 64), reading("direct", 90_000, 4_096)].concat();

        let evidence = &Summary::of(&records).groups[0].verdict.evidence;

        let says = "mmap read 64.0 x the bytes asked for from the device, direct 1.00 x: read-ahead that nobody used";
        assert_eq!(evidence, &[says]);
    }

    #[test]
    fn what_differs_by_less_than_half_is_no_evidence() {
        let reading = |arm: &str, per_second: u64, bytes_each: u64| {
            repeated_by(&Run::of(arm).counter(counters::PROCESS_READ, per_second * bytes_each), per_second, 6)
        };
        let records = [reading("mmap", 1_000, 4_096 * 12), reading("direct", 90_000, 4_096 * 10)].concat();

        assert_eq!(verdict(&records).evidence, Vec::<String>::new());
    }

    #[test]
    fn what_a_tie_leaves_unseen_is_the_larger_of_its_lead_and_of_what_the_pairs_could_show() {
        let ratio = |median: f64| Estimate { median, interval: Some([1.0, 1.5]), coverage: 0.97, samples: 6 };
        let tied = |median: f64, detectable: f64| {
            unseen(&[PairedRatio { ratio: ratio(median), detectable: Some(detectable) }])
        };

        assert_eq!(tied(1.04, 0.03), "less than 4 % would not show");
        assert_eq!(tied(1.02, 0.03), "less than 3 % would not show");
    }

    #[test]
    fn without_a_valid_method_there_is_no_winner() {
        let records = [repeated("null", 1_000_000, 2), vec![Run::of("mmap").failed("SIGBUS").record()]].concat();

        let verdict = &Summary::of(&records).groups[0].verdict;

        assert_eq!(verdict.best, None);
        assert!(verdict.sentence.starts_with("no verdict"));
    }
}
