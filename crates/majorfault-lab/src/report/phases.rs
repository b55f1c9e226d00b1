//! What happened when memory became full: the three phases of CIDR 2022 (SOURCES S2.collapse), looked for on a timeline.
//!
//! From a throughput series and the moment memory was full to levels: the median before, dips after, the median of
//! the second half after. Medians, because single intervals of a shared disk differ by a factor.

use super::series::Series;
use super::{counters, series, words};
use crate::record::Record;
use crate::traits::Class;

/// Below this share of the lower of both levels an interval is in a dip.
const DIP: f64 = 0.5;

/// Below this share of the level before, the level after counts as fallen.
const FALLEN: f64 = 0.8;

/// Below this share of the level before, the run never came back from its dip.
const LOST: f64 = 0.05;

/// Intervals needed on each side of the moment; medians of fewer say nothing.
const LEAST: usize = 2;

/// A stretch of time at a much lower level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dip {
    /// When it began, in seconds of the visit.
    pub at_s: f64,
    /// How long it lasted.
    pub for_s: f64,
    /// Its median, in accesses a second.
    pub level: f64,
}

/// What a timeline shows around the moment when memory was full.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Memory was never full while it ran.
    NeverFull,
    /// It was full, but too few intervals lie before or after.
    TooShort {
        /// When it was full.
        full_at_s: f64,
    },
    /// Levels on both sides.
    Levels(Levels),
}

/// Levels before and after memory was full, in accesses a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// When it was full, in seconds of the visit.
    pub full_at_s: f64,
    /// Median before.
    pub before: f64,
    /// Median of the second half of what came after.
    pub after: f64,
    /// The longest dip.
    pub dip: Option<Dip>,
    /// Other dips.
    pub more_dips: usize,
}

impl Levels {
    /// Whether it dipped or stayed lower.
    pub fn collapsed(&self) -> bool {
        self.dip.is_some() || self.after < self.before * FALLEN
    }
}

/// What `throughput` shows around `full_at_s`.
pub fn shape(throughput: &Series, full_at_s: Option<f64>) -> Shape {
    let Some(full_at_s) = full_at_s else { return Shape::NeverFull };
    let (before, after): (Vec<_>, Vec<_>) = throughput.0.iter().copied().partition(|(at, _)| *at < full_at_s);
    // The first interval holds the start of the threads.
    let settled = if before.len() > LEAST { &before[1..] } else { &before[..] };
    let second_half = &after[(after.len() / 2).min(after.len().saturating_sub(LEAST))..];
    let (Some(level_before), Some(level_after)) = (level(settled), level(second_half)) else {
        return Shape::TooShort { full_at_s };
    };
    let lost = level_after < level_before * LOST;
    let floor = DIP * if lost { level_before } else { level_before.min(level_after) };
    let mut dips = dips(&after, floor);
    dips.sort_by(|one, other| other.for_s.total_cmp(&one.for_s));
    let levels = Levels {
        full_at_s,
        before: level_before,
        after: level_after,
        dip: dips.first().copied(),
        more_dips: dips.len().saturating_sub(1),
    };
    Shape::Levels(levels)
}

/// The sentence about one record; `explicit` is the steady level of explicit I/O beside it, by name.
///
/// `None` where the record has no timeline, or where nothing was to be expected and nothing happened.
pub fn sentence(record: &Record, explicit: Option<(&str, f64)>) -> Option<String> {
    let throughput = series::throughput(record);
    if throughput.is_empty() || record.is_control() {
        return None;
    }
    match shape(&throughput, series::full_at(record)) {
        Shape::NeverFull => never_full(record),
        Shape::TooShort { full_at_s } => {
            let when = words::seconds(full_at_s);
            Some(format!(
                "memory full at {when}; too few samples before and after to compare; make the runs longer (--runtime)"
            ))
        }
        Shape::Levels(levels) if levels.collapsed() => Some(collapse(&levels, explicit)),
        Shape::Levels(levels) => is_mapped(record).then(|| steady(&levels, record)),
    }
}

fn level(points: &[(f64, f64)]) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    crate::stats::median(&values).filter(|_| points.len() >= LEAST)
}

/// Runs of intervals below `floor`; a single interval above it does not end a dip.
fn dips(points: &[(f64, f64)], floor: f64) -> Vec<Dip> {
    let step = points.windows(2).next().map_or(0.0, |pair| pair[1].0 - pair[0].0);
    let low: Vec<usize> = (0..points.len()).filter(|index| points[*index].1 < floor).collect();
    let runs = low.chunk_by(|one, next| next - one <= 2);
    let dip = |run: &[usize]| -> Option<Dip> {
        let (first, last) = (*run.first()?, *run.last()?);
        let levels: Vec<f64> = run.iter().map(|index| points[*index].1).collect();
        let for_s = (last - first + 1) as f64 * step;
        Some(Dip { at_s: points[first].0 - step / 2.0, for_s, level: crate::stats::median(&levels)? })
    };
    runs.filter_map(dip).collect()
}

fn collapse(levels: &Levels, explicit: Option<(&str, f64)>) -> String {
    let Levels { full_at_s, before, after, dip, more_dips } = levels;
    let mut parts = vec![format!("memory full at {}", words::seconds(*full_at_s))];
    if let Some(Dip { at_s, for_s, level }) = dip {
        let late = if at_s - full_at_s > 1.0 { format!(" at {}", words::seconds(*at_s)) } else { String::new() };
        let more = if *more_dips > 0 { format!(", {more_dips} more such") } else { String::new() };
        let to = words::percent(level / before.max(f64::MIN_POSITIVE));
        parts.push(format!("fell to {to} for {}{late}{more}", words::seconds(*for_s)));
    }
    let own = words::percent(after / before.max(f64::MIN_POSITIVE));
    parts.push(match explicit.filter(|(_, level)| *level > 0.0) {
        Some((name, level)) => {
            format!("then {} of {name} ({own} of its own level before)", words::percent(after / level))
        }
        None => format!("then {own} of its level before"),
    });
    parts.join("; ")
}

fn steady(levels: &Levels, record: &Record) -> String {
    let held = words::percent(levels.after / levels.before.max(f64::MIN_POSITIVE));
    let evidence = Evidence::after(record, levels.full_at_s).sentence();
    let full = words::seconds(levels.full_at_s);
    format!("no collapse: memory full at {full}, then {held} of the level before; {evidence}")
}

/// Only of mapped files is a collapse expected; of the others silence is enough.
fn is_mapped(record: &Record) -> bool {
    record.class() == Some(Class::Mapped)
}

fn never_full(record: &Record) -> Option<String> {
    let used = series::level(record, &[counters::CGROUP_BYTES]).peak();
    let limit = record.trial.memory_bytes?;
    let used = words::bytes(used);
    is_mapped(record)
        .then(|| format!("no collapse: memory never filled ({used} of {} used)", words::bytes(limit as f64)))
}

/// Rates after memory was full: what a collapse would have been made of.
struct Evidence {
    shootdowns: Option<f64>,
    reclaimed: Option<f64>,
    direct: Option<f64>,
    refaults: Option<f64>,
    cpus: u32,
}

impl Evidence {
    fn after(record: &Record, from_s: f64) -> Evidence {
        let mean = |names: &[&str]| series::rate(record, names).mean_from(from_s);
        Evidence {
            shootdowns: mean(&[counters::SHOOTDOWNS]),
            reclaimed: series::reclaim(record).mean_from(from_s),
            // At the limit of a cgroup the threads themselves reclaim.
            direct: mean(&[counters::RECLAIMED_CGROUP]).or_else(|| mean(&[counters::RECLAIMED_DIRECT])),
            refaults: mean(&[counters::REFAULTS]),
            cpus: record.machine.cpus,
        }
    }

    fn sentence(&self) -> String {
        let rate = |value: Option<f64>, what: &str| Some(format!("{} {what}", words::per_second(value?)));
        let facts = [
            rate(self.reclaimed, "pages reclaimed"),
            rate(self.shootdowns, "shootdowns"),
            rate(self.refaults, "refaults"),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if facts.is_empty() {
            return "shootdowns, reclaim and refaults were not counted here, so the reason is not known".to_owned();
        }
        format!("{}: {}", self.because(), words::list(&facts))
    }

    /// What the rates say of the two causes that the paper names: shootdowns, and reclaim that stalls the threads.
    fn because(&self) -> String {
        let pages = self.reclaimed.filter(|pages| *pages > 0.0);
        let shootdowns = pages.zip(self.shootdowns).map(|(pages, shootdowns)| shootdowns / pages);
        let stalls = pages.zip(self.direct).map(|(pages, direct)| direct / pages);
        match (shootdowns, stalls) {
            (None, _) if pages.is_none() => "because hardly anything was reclaimed".to_owned(),
            (Some(each), _) if each < 0.1 => {
                format!("because eviction needed only {} shootdowns a page", words::count(each))
            }
            (_, Some(direct)) if direct < 0.1 => "because kswapd kept up, threads hardly had to reclaim".to_owned(),
            (Some(each), _) => {
                let each = words::count(each);
                format!("the {each} shootdowns a page did not stop the {} processors", self.cpus)
            }
            _ => "evidence after that moment".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;
    use proptest::prelude::*;

    /// Intervals of 0.25 s: `(how many, accesses a second)` one after another.
    fn levels(stretches: &[(usize, f64)]) -> Series {
        let values = stretches.iter().flat_map(|(length, level)| std::iter::repeat_n(*level, *length));
        Series(values.enumerate().map(|(index, value)| ((index as f64 + 0.5) * 0.25, value)).collect())
    }

    fn found(series: &Series, full_at_s: f64) -> Levels {
        match shape(series, Some(full_at_s)) {
            Shape::Levels(levels) => levels,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_three_phases_of_the_paper_are_found() {
        let paper = levels(&[(12, 900.0), (3, 18.0), (20, 400.0)]);

        let found = found(&paper, 3.0);

        assert_eq!((found.before, found.after), (900.0, 400.0));
        assert_eq!(found.dip, Some(Dip { at_s: 3.0, for_s: 0.75, level: 18.0 }));
        assert_eq!(
            collapse(&found, Some(("direct", 976.0))),
            "memory full at 3.0 s; fell to 2 % for 0.8 s; then 41 % of direct (44 % of its own level before)"
        );
    }

    #[test]
    fn a_single_noisy_interval_neither_splits_a_dip_nor_moves_the_levels() {
        let noisy = levels(&[(8, 900.0), (1, 100.0), (3, 900.0), (4, 20.0), (1, 800.0), (4, 20.0), (20, 500.0)]);

        let found = found(&noisy, 3.0);

        assert_eq!((found.before, found.after, found.more_dips), (900.0, 500.0, 0));
        assert_eq!(found.dip.unwrap().for_s, 9.0 * 0.25);
    }

    #[test]
    fn a_lower_level_without_a_dip_is_a_collapse_too() {
        let lower = found(&levels(&[(10, 1_000.0), (10, 600.0)]), 2.5);

        assert!(lower.collapsed());
        assert_eq!(lower.dip, None);
    }

    #[test]
    fn a_run_that_never_comes_back_is_one_dip_to_the_end() {
        let lost = found(&levels(&[(10, 1_000.0), (20, 5.0)]), 2.5);

        assert_eq!(lost.dip.unwrap().for_s, 5.0);
    }

    #[test]
    fn levels_that_hold_are_explained_by_the_evidence() {
        let run = Run::of("mmap advice=random").memory(64 << 20).phases_ms(0, 5_000, 0).timeline(&[250; 20]);
        let full_at_one_second: Vec<u64> = (0..20).map(|index| if index < 4 { 32 << 20 } else { 64 << 20 }).collect();
        let growing = |per_sample: u64| (0..20).map(|index| index * per_sample).collect::<Vec<u64>>();
        let run = run
            .sampled(counters::CGROUP_BYTES, &full_at_one_second)
            .sampled(counters::RECLAIMED_KSWAPD, &growing(2_500))
            .sampled(counters::SHOOTDOWNS, &growing(50))
            .sampled(counters::REFAULTS, &growing(2_000));

        let says = sentence(&run.record(), None).unwrap();

        assert_eq!(
            says,
            "no collapse: memory full at 1.0 s, then 100 % of the level before; because eviction needed only 0.020 \
             shootdowns a page: 10.0 k/s pages reclaimed, 200/s shootdowns and 8.00 k/s refaults"
        );
    }

    #[test]
    fn an_interval_that_begins_with_full_memory_comes_after_and_two_before_are_enough() {
        let first_of_many = levels(&[(2, 10.0), (1, 99.0), (9, 10.0)]);

        assert_eq!(found(&first_of_many, 0.625).before, 10.0);
    }

    #[test]
    fn the_first_interval_holds_the_start_where_more_than_two_come_before() {
        assert_eq!(found(&levels(&[(1, 1.0), (2, 10.0), (4, 10.0)]), 0.75).before, 10.0);
    }

    #[test]
    fn the_level_after_is_that_of_the_second_half() {
        let falling = levels(&[(4, 500.0), (4, 500.0), (2, 600.0), (2, 300.0)]);

        assert_eq!(found(&falling, 1.0).after, 450.0);
    }

    #[test]
    fn what_lies_on_a_threshold_has_not_fallen() {
        let steady = Levels { full_at_s: 1.0, before: 1_000.0, after: 800.0, dip: None, more_dips: 0 };
        let half = found(&levels(&[(6, 100.0), (4, 50.0), (20, 100.0)]), 1.5);
        let a_twentieth = found(&levels(&[(4, 1_000.0), (20, 50.0)]), 1.0);

        assert!(!steady.collapsed());
        assert!(Levels { after: 799.9, ..steady }.collapsed());
        assert_eq!(half.dip, None);
        assert_eq!(a_twentieth.dip, None, "it fell to another level, and stayed there");
    }

    #[test]
    fn a_late_dip_says_when_and_others_are_counted() {
        let dip = |at_s| Some(Dip { at_s, for_s: 2.0, level: 10.0 });
        let says = |at_s, more_dips| {
            collapse(&Levels { full_at_s: 3.0, before: 1_000.0, after: 500.0, dip: dip(at_s), more_dips }, None)
        };

        assert_eq!(says(4.0, 0), "memory full at 3.0 s; fell to 1 % for 2.0 s; then 50 % of its level before");
        assert_eq!(
            says(4.25, 2),
            "memory full at 3.0 s; fell to 1 % for 2.0 s at 4.2 s, 2 more such; then 50 % of its level before"
        );
    }

    #[test]
    fn a_dip_has_a_beginning_and_a_length() {
        let late = found(&levels(&[(8, 100.0), (4, 10.0), (20, 100.0)]), 1.0);

        assert_eq!(late.dip, Some(Dip { at_s: 2.0, for_s: 1.0, level: 10.0 }));
    }

    #[test]
    fn an_explicit_level_of_nothing_is_no_measure() {
        let fallen = Levels { full_at_s: 3.0, before: 1_000.0, after: 500.0, dip: None, more_dips: 0 };

        assert_eq!(collapse(&fallen, Some(("direct", 0.0))), "memory full at 3.0 s; then 50 % of its level before");
    }

    /// A run of 5 s whose memory was full after one, at these levels before and after.
    fn filled(arm: &str, before: u64, after: u64) -> Record {
        let full: Vec<u64> = (0..20).map(|index| if index < 4 { 32 << 20 } else { 64 << 20 }).collect();
        let accesses: Vec<u64> = (0..20).map(|index| if index < 5 { before } else { after }).collect();
        let run = Run::of(arm).memory(64 << 20).phases_ms(0, 5_000, 0).timeline(&accesses);
        run.sampled(counters::CGROUP_BYTES, &full).record()
    }

    #[test]
    fn a_collapse_is_told_of_every_method_but_the_control_and_its_absence_only_of_mapped_files() {
        let says = |arm, after| sentence(&filled(arm, 250, after), None);

        assert_eq!(says("pread", 100).unwrap(), "memory full at 1.0 s; then 40 % of its level before");
        assert_eq!(says("null", 100), None);
        assert_eq!(says("pread", 250), None);
        assert!(says("mmap", 250).unwrap().starts_with("no collapse: memory full at 1.0 s, then 100 %"));
    }

    #[test]
    fn the_reason_of_no_collapse_is_what_the_counters_show() {
        let because = |reclaimed, shootdowns, direct| {
            Evidence { shootdowns, reclaimed, direct, refaults: None, cpus: 2 }.because()
        };
        let many = Some(1_000.0);

        assert_eq!(because(Some(0.0), many, many), "because hardly anything was reclaimed");
        assert_eq!(because(many, Some(99.0), many), "because eviction needed only 0.099 shootdowns a page");
        assert_eq!(because(many, Some(100.0), Some(99.0)), "because kswapd kept up, threads hardly had to reclaim");
        assert_eq!(
            because(many, Some(500.0), Some(100.0)),
            "the 0.500 shootdowns a page did not stop the 2 processors"
        );
        assert_eq!(because(many, None, Some(100.0)), "evidence after that moment");
        assert_eq!(because(many, None, Some(99.0)), "because kswapd kept up, threads hardly had to reclaim");
    }

    #[test]
    fn memory_that_never_filled_is_the_reason_of_no_collapse() {
        let run = Run::of("mmap").memory(256 << 20).phases_ms(0, 1_000, 0).timeline(&[250; 4]);
        let run = run.sampled(counters::CGROUP_BYTES, &[10 << 20, 20 << 20, 60 << 20, 64 << 20]);

        let says = sentence(&run.clone().record(), None).unwrap();

        assert_eq!(says, "no collapse: memory never filled (64.0 MiB of 256 MiB used)");
    }

    #[test]
    fn the_control_and_peers_without_a_timeline_say_nothing() {
        assert_eq!(sentence(&Run::of("null").timeline(&[1, 1, 1]).record(), None), None);
        assert_eq!(sentence(&Run::peer("fio").record(), None), None);
    }

    proptest! {
        #[test]
        fn any_timeline_has_a_shape(values in prop::collection::vec(0.0f64..1e15, 0..60), full in 0.0f64..20.0) {
            let series = levels(&values.iter().map(|value| (1, *value)).collect::<Vec<_>>());

            if let Shape::Levels(found) = shape(&series, Some(full)) {
                prop_assert!(found.before.is_finite() && found.after.is_finite());
                prop_assert!(found.dip.is_none_or(|dip| dip.at_s >= full - 0.25 && dip.for_s > 0.0));
            }
        }

        #[test]
        fn a_flat_timeline_never_collapses(level in 1.0f64..1e9, before in 3usize..20, after in 2usize..20) {
            let flat = levels(&[(before, level), (after, level)]);

            prop_assert!(!found(&flat, before as f64 * 0.25).collapsed());
        }
    }
}
