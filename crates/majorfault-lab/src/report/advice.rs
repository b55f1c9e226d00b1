//! Advice from what was measured in one group (SOURCES S2.advice is the list of questions, never the answer).
//!
//! Each rule looks at the ranked arms and says what to do and the numbers that say so, or nothing. A setting that was
//! not measured is not advised.

use super::derive::{self, Formula};
use super::verdict::Standing;
use super::{ArmSummary, Group, race, words};
use crate::stats::{self, PairedRatio, Told};
use crate::traits::Class;
use crate::trial::Direction;

/// An mmap within this share of the best method is good enough: it saves its user buffers and code.
const GOOD_ENOUGH: f64 = 0.9;

/// Below this share of the best one, mmap is the wrong method for the workload.
const NOT_GOOD_ENOUGH: f64 = 0.8;

/// Gain from which on a setting is worth typing.
const WORTH: f64 = 1.1;

/// Device bytes per byte wanted from which on read-ahead is called waste.
const WASTE: f64 = 4.0;

/// Smallest detectable effect above which more repetitions are advised.
const COARSE: f64 = 0.2;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What to do.
    pub says: String,
    /// The measured reason.
    pub because: String,
}

/// Every rule, in the order of what is read first.
const RULES: &[fn(&Group<'_>) -> Option<Suggestion>] = &[
    mmap_is_fine,
    leave_mmap,
    set_the_hint,
    stop_read_ahead,
    deepen_the_queue,
    bypass_or_keep_the_cache,
    mind_the_tail,
    repeat,
];

/// What every rule that applies says.
pub fn of(group: &Group<'_>) -> Vec<Suggestion> {
    match group.verdict.standing {
        Standing::Judged => RULES.iter().filter_map(|rule| rule(group)).collect(),
        // Figures without a verdict decide nothing; only how to get one is known.
        Standing::RunMore => repeat(group).into_iter().collect(),
        // What spoiled the runs stands with its remedy among the group's troubles.
        Standing::NotValid | Standing::Nothing => Vec::new(),
    }
}

fn advice(says: String, because: String) -> Option<Suggestion> {
    Some(Suggestion { says, because })
}

fn is_mmap(arm: &ArmSummary<'_>) -> bool {
    arm.class() == Some(Class::Mapped)
}

fn is_explicit(arm: &ArmSummary<'_>) -> bool {
    arm.class() == Some(Class::Explicit)
}

fn best_of<'g, 'a>(group: &'g Group<'a>, is: impl Fn(&ArmSummary<'a>) -> bool) -> Option<&'g ArmSummary<'a>> {
    group.methods().find(|arm| is(arm))
}

/// `first` against `second` where it is not a tie, and by how much. Whom a race stopped was behind every one that it went on with.
fn gain(first: &ArmSummary<'_>, second: &ArmSummary<'_>) -> Option<PairedRatio> {
    let was_stopped = first.stopped.is_none() && second.stopped.is_some();
    first.against(second).filter(|gain| gain.told() == Told::Apart || was_stopped && gain.ratio.median > 1.0)
}

/// `2.31 x [2.20–2.45] the throughput of pread`.
fn gained(gain: &PairedRatio, other: &ArmSummary<'_>) -> String {
    format!("{} the throughput of {}", words::factor(&gain.ratio), other.name)
}

/// Both figures, where both are known: `page faults an access: 1.02 instead of 0.00`.
fn figures(formula: &Formula, what: &str, one: &ArmSummary<'_>, other: &ArmSummary<'_>) -> Option<String> {
    let (one, other) = (one.median(formula)?, other.median(formula)?);
    Some(format!("{what}: {} instead of {}", (formula.number)(one), (formula.number)(other)))
}

/// `because`, and the counters behind it.
fn with_figures(because: String, figures: &[Option<String>]) -> String {
    let known: Vec<String> = figures.iter().flatten().cloned().collect();
    if known.is_empty() { because } else { format!("{because}; {}", words::list(&known)) }
}

/// `the range of 1.00 GiB fits the memory limit of 2.00 GiB` or the contrary.
fn fit(group: &Group<'_>) -> Option<String> {
    let (size, limit) = (group.trial.data.size_bytes, group.trial.memory_bytes?);
    let (size_words, limit_words) = (words::bytes(size as f64), words::bytes(limit as f64));
    let says = if size <= limit { "fits" } else { "does not fit" };
    Some(format!("the range of {size_words} {says} the memory limit of {limit_words}"))
}

fn mmap_is_fine(group: &Group<'_>) -> Option<Suggestion> {
    let (best, mmap) = (group.best()?, best_of(group, is_mmap)?);
    best_of(group, |arm| !is_mmap(arm))?;
    let share = mmap.against(best)?;
    let share_words = words::with_interval(&share.ratio, words::ratio);
    let size = fit(group).map(|says| format!("; {says}")).unwrap_or_default();
    match share.ratio.median {
        _ if mmap.name == best.name => {
            let other = best_of(group, |arm| !is_mmap(arm))?;
            let lead = mmap.against(other)?;
            let says = match lead.told() {
                Told::Apart => format!("map the file: {} serves this workload best", mmap.name),
                _ => format!("map the file if that is convenient: no method is measurably faster than {}", mmap.name),
            };
            advice(says, format!("{}{size}", gained(&lead, other)))
        }
        median if median >= GOOD_ENOUGH => advice(
            format!("{} is good enough here if mapping is convenient for you", mmap.name),
            format!("it reaches {share_words} of {}{size}", best.name),
        ),
        _ => None,
    }
}

fn leave_mmap(group: &Group<'_>) -> Option<Suggestion> {
    let (best, mmap) = (group.best()?, best_of(group, is_mmap)?);
    let lead = gain(best, mmap)?;
    if is_mmap(best) || lead.ratio.median < 1.0 / NOT_GOOD_ENOUGH {
        return None;
    }
    let what = if group.trial.direction == Direction::Write { "write" } else { "read" };
    let counted = [
        figures(&derive::CPU, "processor time an access", best, mmap),
        figures(&derive::FAULTS, "page faults an access", best, mmap),
        fit(group),
    ];
    advice(format!("{what} with {} instead of mmap", best.name), with_figures(gained(&lead, mmap), &counted))
}

/// The best hint against none, wherever mmap stands.
fn set_the_hint(group: &Group<'_>) -> Option<Suggestion> {
    let plain = best_of(group, is_plain_mmap)?;
    let hinted = best_of(group, is_mmap)?;
    let lead = gain(hinted, plain).filter(|lead| lead.ratio.median >= WORTH)?;
    let hint = hinted.name.strip_prefix("mmap ").unwrap_or(&hinted.name);
    let counted =
        [figures(&derive::READ_AMPLIFICATION, "bytes read from the device for each byte asked for", hinted, plain)];
    advice(format!("where you keep mmap, set {hint}"), with_figures(gained(&lead, plain), &counted))
}

fn is_plain_mmap(arm: &ArmSummary<'_>) -> bool {
    is_mmap(arm) && matches!(arm.setting("advice"), None | Some("normal")) && !arm.name.contains("populate")
}

/// Wasted read-ahead, and the measured ways around it.
fn stop_read_ahead(group: &Group<'_>) -> Option<Suggestion> {
    let read = |arm: &ArmSummary<'_>| arm.median(&derive::READ_AMPLIFICATION);
    let waster = group
        .methods()
        .filter(|arm| read(arm).is_some_and(|each| each > WASTE))
        .max_by(|one, other| read(one).total_cmp_to(read(other)))?;
    let frugal: Vec<String> = group
        .methods()
        .filter(|arm| read(arm).is_some_and(|each| each <= WASTE / 2.0))
        .filter_map(|arm| Some((arm, gain(arm, waster).filter(|lead| lead.ratio.median >= WORTH)?)))
        .take(3)
        .map(|(arm, lead)| format!("{} ({})", arm.name, words::times(lead.ratio.median)))
        .collect();
    if frugal.is_empty() {
        return None;
    }
    let window = group.machine.read_ahead_kb.map(|kb| format!(", with read_ahead_kb={kb}")).unwrap_or_default();
    advice(
        format!("avoid read-ahead for this order of accesses: {}", words::list(&frugal)),
        format!("{} read {} the bytes asked for from the device{window}", waster.name, words::times(read(waster)?)),
    )
}

/// Orders figures that may be unknown.
trait TotalCmp {
    fn total_cmp_to(&self, other: Option<f64>) -> std::cmp::Ordering;
}

impl TotalCmp for Option<f64> {
    fn total_cmp_to(&self, other: Option<f64>) -> std::cmp::Ordering {
        self.unwrap_or(f64::NEG_INFINITY).total_cmp(&other.unwrap_or(f64::NEG_INFINITY))
    }
}

fn deepen_the_queue(group: &Group<'_>) -> Option<Suggestion> {
    let queued =
        best_of(group, |arm| is_explicit(arm) && arm.is_direct() && arm.depth().is_some_and(|depth| depth > 1))?;
    let single = best_of(group, |arm| is_explicit(arm) && arm.is_direct() && arm.depth().is_none())?;
    let lead = gain(queued, single).filter(|lead| lead.ratio.median >= WORTH)?;
    let depth = queued.depth()?;
    let threads = group.trial.threads;
    advice(
        format!("keep {depth} accesses in flight: {}", queued.name),
        format!(
            "{} with {}",
            gained(&lead, single),
            if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") }
        ),
    )
}

/// Whether the page cache helps explicit I/O here.
fn bypass_or_keep_the_cache(group: &Group<'_>) -> Option<Suggestion> {
    let explicit = |arm: &ArmSummary<'_>, direct: bool| !is_mmap(arm) && arm.is_direct() == direct;
    let (direct, buffered) = (best_of(group, |arm| explicit(arm, true))?, best_of(group, |arm| explicit(arm, false))?);
    let says = |lead: PairedRatio, words: &str, one: &ArmSummary<'_>, other: &ArmSummary<'_>| {
        let counted =
            figures(&derive::READ_AMPLIFICATION, "bytes read from the device for each byte asked for", one, other);
        let because = with_figures(gained(&lead, other), &[counted]);
        (lead.ratio.median >= WORTH).then(|| Suggestion { says: format!("{words}: {}", one.name), because })
    };
    let bypass =
        gain(direct, buffered).and_then(|lead| says(lead, "bypass the page cache (O_DIRECT)", direct, buffered));
    let keep =
        || gain(buffered, direct).and_then(|lead| says(lead, "keep the page cache for explicit I/O", buffered, direct));
    bypass.or_else(keep)
}

/// Another method may be better where the slowest accesses matter.
fn mind_the_tail(group: &Group<'_>) -> Option<Suggestion> {
    let tail = |arm: &ArmSummary<'_>| derive::percentile(&arm.latency, 0.99).filter(|ns| *ns > 0);
    let best = group.best()?;
    let calm = group.methods().filter(|arm| tail(arm).is_some()).min_by_key(|arm| tail(arm))?;
    let (ours, theirs) = (tail(best)? as f64, tail(calm)? as f64);
    if ours < theirs * 2.0 {
        return None;
    }
    let share = calm.against(best)?;
    let at = format!("at {} of its throughput", words::percent(share.ratio.median));
    advice(
        format!("use {} where the slowest accesses matter more than throughput ({at})", calm.name),
        format!(
            "99 % of its accesses end within {}, with {} within {}",
            words::nanos(theirs),
            best.name,
            words::nanos(ours)
        ),
    )
}

fn repeat(group: &Group<'_>) -> Option<Suggestion> {
    let best = group.best()?;
    let second = group.methods().skip(1).find(|arm| arm.stopped.is_none())?;
    let found = best.against(second)?;
    let more = match group.race {
        Some(race) => format!("--time {}", race::more_time(race)),
        None => format!("--runs {} or more", stats::LEAST),
    };
    match (found.told(), found.detectable) {
        (Told::RunMore, _) => advice(
            format!("make more runs: {more}"),
            format!(
                "the interval of {} covers {}, and a verdict needs {}",
                words::runs(found.ratio.samples),
                words::percent(found.ratio.coverage),
                words::percent(stats::WANTED)
            ),
        ),
        (Told::Tie, Some(effect)) if effect > COARSE => advice(
            format!("make more runs to separate {} from {}", best.name, second.name),
            format!("{} pairs of runs show only differences above {}", found.ratio.samples, words::percent(effect)),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Record;
    use crate::report::synthetic::{Run, repeated, repeated_by};
    use crate::report::{Summary, counters};

    fn says(records: &[Record]) -> Vec<String> {
        let summary = Summary::of(records);
        summary.groups[0].advice.iter().map(|advice| format!("{} | {}", advice.says, advice.because)).collect()
    }

    /// Three runs that read `amplification` device bytes for each byte wanted.
    fn reading(arm: &str, per_second: u64, amplification: u64) -> Vec<Record> {
        repeated_by(&Run::of(arm).counter(counters::PROCESS_READ, per_second * 4096 * amplification), per_second, 6)
    }

    #[test]
    fn mmap_close_to_the_best_is_called_good_enough() {
        let found = says(&[repeated("mmap advice=normal", 96_000, 6), repeated("pread", 100_000, 6)].concat());

        assert!(found[0].starts_with("mmap advice=normal is good enough here"), "{found:?}");
        assert!(found[0].contains("it reaches 0.96"), "{found:?}");
    }

    #[test]
    fn mmap_far_behind_is_left_with_the_measured_factor() {
        let found = says(&[repeated("mmap advice=random", 10_000, 6), repeated("direct", 40_000, 6)].concat());

        assert!(found[0].starts_with("read with direct instead of mmap | 4.00 x [4.00–4.00]"), "{found:?}");
    }

    #[test]
    fn wasted_read_ahead_names_the_measured_ways_around_it() {
        let records = [
            reading("mmap advice=normal", 1_000, 64),
            reading("mmap advice=random", 10_000, 1),
            reading("direct", 20_000, 1),
        ];

        let found = says(&records.concat());

        let waste = found.iter().find(|says| says.starts_with("avoid read-ahead")).unwrap();
        assert!(waste.contains("direct (20.0 x) and mmap advice=random (10.0 x)"), "{waste}");
        assert!(waste.contains("mmap advice=normal read 64.0 x the bytes asked for"), "{waste}");
        assert!(
            found.iter().any(|says| says.starts_with("where you keep mmap, set advice=random | 10.0 x")),
            "{found:?}"
        );
    }

    #[test]
    fn nothing_is_advised_that_was_not_measured() {
        assert_eq!(says(&reading("mmap advice=normal", 1_000, 64)), Vec::<String>::new());
    }

    #[test]
    fn a_deep_queue_is_advised_with_its_gain_over_one_access_at_a_time() {
        let records = [repeated("uring depth=32 direct=on", 96_000, 6), repeated("direct", 12_000, 6)];

        let found = says(&records.concat());

        let deep = "keep 32 accesses in flight: uring depth=32 direct=on | 8.00 x [8.00–8.00] the throughput of direct";
        assert!(found[0].starts_with(deep), "{found:?}");
    }

    #[test]
    fn a_single_run_is_advised_to_be_repeated() {
        let found = says(&[repeated("pread", 1_000, 1), repeated("direct", 2_000, 1)].concat());

        assert!(found.iter().any(|says| says.starts_with("make more runs: --runs 6 or more")), "{found:?}");
    }
}
