//! Claims as data: tests that must all hold, each a named figure of cells beside a range.
//!
//! `majorfault reproduce --list --json` prints them, so that anybody can judge the records again by other means.

use super::figure::Figure;
use super::samples::{Gap, Samples, digits};
use super::verdict::{Verdict, Why};
use crate::record::Record;
use crate::stats::{self, Beside, LEAST};

/// What a claim comes to.
pub struct Claim {
    /// Preconditions of the test, each with the reason to give where it is not met.
    pub needs: &'static [(Test, &'static str)],
    /// All must hold.
    pub tests: &'static [Test],
}

/// A figure, or two beside each other, and the range in which they must lie.
pub struct Test {
    /// What is compared.
    pub what: What,
    /// The least and the most; infinite where there is none.
    pub range: [f64; 2],
    /// What its star does not stand for, though such cells are run.
    pub except: &'static [&'static str],
}

/// What is compared with a range.
pub enum What {
    /// A fact: every run must show it, and one is enough.
    EveryRun(Of),
    /// A possibility: one run that shows it is enough; that none does needs six runs.
    SomeRun(Of),
    /// The median of a figure, with its interval.
    Figure(Of),
    /// The median of the differences first - second, paired by repetition.
    Difference(Of, Of),
    /// The median of the ratios first / second, paired by repetition.
    Ratio(Of, Of),
}

/// A figure of a cell.
#[derive(Clone, Copy)]
pub struct Of {
    /// Where it is from.
    pub cells: Cells,
    /// Which one.
    pub figure: Figure,
    /// Less counts as this much: a ratio over nothing would be none.
    pub at_least: f64,
}

/// Which cell.
#[derive(Clone, Copy)]
pub enum Cells {
    /// This one. A star at the end stands for the rest of a name: every cell that fits is tested, and within a test it
    /// stands for the same rest.
    One(&'static str),
    /// The one of these with the least median of the figure. In each repetition it is chosen by the others, so that luck
    /// does not choose.
    Least(&'static [&'static str]),
}

/// What a test gave.
#[derive(Debug, PartialEq)]
pub enum TestResult {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// It is not told.
    Open(Verdict),
}

/// A figure of one cell.
pub const fn of(cell: &'static str, figure: Figure) -> Of {
    Of { cells: Cells::One(cell), figure, at_least: f64::NEG_INFINITY }
}

/// A count of one cell; below one it counts as one.
pub const fn count(cell: &'static str, figure: Figure) -> Of {
    Of { cells: Cells::One(cell), figure, at_least: 1.0 }
}

/// The least of several cells.
pub const fn least(cells: &'static [&'static str], figure: Figure) -> Of {
    Of { cells: Cells::Least(cells), figure, at_least: f64::NEG_INFINITY }
}

/// So much or more.
pub const fn from(low: f64) -> [f64; 2] {
    [low, f64::INFINITY]
}

/// So much or less.
pub const fn up_to(high: f64) -> [f64; 2] {
    [f64::NEG_INFINITY, high]
}

impl Test {
    /// The ratio of two figures.
    pub const fn ratio(first: Of, second: Of, range: [f64; 2]) -> Test {
        Test { what: What::Ratio(first, second), range, except: &[] }
    }

    /// The same without the cells whose star would stand for one of these.
    pub const fn except(self, rests: &'static [&'static str]) -> Test {
        Test { except: rests, ..self }
    }

    /// One figure.
    pub const fn figure(of: Of, range: [f64; 2]) -> Test {
        Test { what: What::Figure(of), range, except: &[] }
    }

    /// The difference of two figures.
    pub const fn difference(first: Of, second: Of, range: [f64; 2]) -> Test {
        Test { what: What::Difference(first, second), range, except: &[] }
    }

    /// A fact that every run shows.
    pub const fn every_run(of: Of, range: [f64; 2]) -> Test {
        Test { what: What::EveryRun(of), range, except: &[] }
    }

    /// What some run shows.
    pub const fn some_run(of: Of, range: [f64; 2]) -> Test {
        Test { what: What::SomeRun(of), range, except: &[] }
    }

    fn sides(&self) -> Vec<Of> {
        match &self.what {
            What::EveryRun(only) | What::SomeRun(only) | What::Figure(only) => vec![*only],
            What::Difference(first, second) | What::Ratio(first, second) => vec![*first, *second],
        }
    }
}

impl Claim {
    /// The verdict of these samples, which are of one session, and the least number of runs that a test rests on.
    pub fn judge(&self, samples: &Samples<'_>) -> (Verdict, usize) {
        for (need, reason) in self.needs {
            match judge(need, samples).into_iter().find(|(outcome, _)| *outcome != TestResult::Holds) {
                Some((TestResult::Fails, runs)) => return (Verdict::CannotTest((*reason).to_owned()), runs),
                Some((TestResult::Open(open), runs)) => return (open, runs),
                _ => {}
            }
        }
        let found: Vec<(TestResult, usize)> = self.tests.iter().flat_map(|test| judge(test, samples)).collect();
        let runs = found.iter().map(|(_, runs)| *runs).min().unwrap_or(0);
        (together(found.into_iter().map(|(outcome, _)| outcome).collect()), runs)
    }

    /// The median of what the first test puts beside its range, of the first cell that a star stands for: the number to follow over
    /// time. `None` where no run has it.
    pub fn followed(&self, samples: &Samples<'_>) -> Option<f64> {
        let test = self.tests.first()?;
        let sides = test.sides();
        let rest = rests(test, &sides, samples).into_iter().next()?;
        compared(&test.what, &values(&sides, &rest, samples).ok()?).least.as_deref().and_then(stats::median)
    }
}

/// All must hold; one that surely fails is enough for a no; what cannot be tested comes before what was not run, and that
/// before what is undecided.
fn together(outcomes: Vec<TestResult>) -> Verdict {
    if outcomes.contains(&TestResult::Fails) {
        return Verdict::DoesNotHold;
    }
    let mut open: Vec<Verdict> = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome {
            TestResult::Open(open) => Some(open),
            _ => None,
        })
        .collect();
    // Stable: among equals the first test speaks.
    open.sort_by_key(|open| (!matches!(open, Verdict::CannotTest(_)), open.was_run()));
    open.into_iter().next().unwrap_or(Verdict::Holds)
}

/// What a test gives, once for each rest of a name that its star stands for, with the runs each rests on.
fn judge(test: &Test, samples: &Samples<'_>) -> Vec<(TestResult, usize)> {
    let sides = test.sides();
    let rests = rests(test, &sides, samples);
    if rests.is_empty() {
        return vec![(TestResult::Open(Gap::NotRun("no cell of that name".to_owned()).into()), 0)];
    }
    rests.iter().map(|rest| judge_one(test, &sides, rest, samples)).collect()
}

/// What the star of the first side can stand for; nothing at all where there is no star.
fn rests(test: &Test, sides: &[Of], samples: &Samples<'_>) -> Vec<String> {
    match sides.first().map(|side| side.cells) {
        Some(Cells::One(name)) if name.ends_with('*') => {
            let begin = name.trim_end_matches('*');
            let fits = samples.names().filter_map(|cell| cell.strip_prefix(begin));
            fits.filter(|rest| !test.except.contains(rest)).map(str::to_owned).collect()
        }
        _ => vec![String::new()],
    }
}

/// Values by repetition: the least and the most that each can be in truth.
type Values = Vec<(u32, [f64; 2])>;

fn judge_one(test: &Test, sides: &[Of], rest: &str, samples: &Samples<'_>) -> (TestResult, usize) {
    let values = match values(sides, rest, samples) {
        Ok(values) => values,
        Err(gap) => return (TestResult::Open(gap.into()), 0),
    };
    let found = match (&test.what, values.as_slice()) {
        (What::EveryRun(_), [only]) => return (every_run(only, test.range), only.len()),
        (What::SomeRun(_), [only]) => return (some_run(only, test.range), only.len()),
        (what, values) => compared(what, values),
    };
    (found.beside(test.range), found.runs)
}

fn values(sides: &[Of], rest: &str, samples: &Samples<'_>) -> Result<Vec<Values>, Gap> {
    sides.iter().map(|side| side.values(rest, samples)).collect()
}

/// What stands beside the range: a figure, or two of them as one.
fn compared(what: &What, values: &[Values]) -> Bounds {
    match (what, values) {
        (_, [only]) => Bounds::of(only.iter().map(|(_, bounds)| *bounds), Measure::Plain),
        (What::Difference(..), [first, second]) => {
            Bounds::of(paired(first, second).map(|(a, b)| [a[0] - b[1], a[1] - b[0]]), Measure::Plain)
        }
        (_, [first, second]) => {
            let positive = paired(first, second).filter(|(_, b)| b[0] > 0.0);
            Bounds::of(positive.map(|(a, b)| [a[0] / b[1], a[1] / b[0]]), Measure::Ratio)
        }
        _ => Bounds::of(std::iter::empty(), Measure::Plain),
    }
}

fn paired<'v>(first: &'v Values, second: &'v Values) -> impl Iterator<Item = ([f64; 2], [f64; 2])> + 'v {
    first.iter().filter_map(|(repetition, a)| {
        let (_, b) = second.iter().find(|(other, _)| other == repetition)?;
        Some((*a, *b))
    })
}

fn every_run(values: &Values, [low, high]: [f64; 2]) -> TestResult {
    let count = |is_so: &dyn Fn(&[f64; 2]) -> bool| values.iter().filter(|(_, bounds)| is_so(bounds)).count();
    let shown = count(&|[least, most]| *least >= low && *most <= high);
    let broken = count(&|[least, most]| *most < low || *least > high);
    let hidden = values.iter().map(|(_, bounds)| bounds).find(|[least, most]| least != most);
    match (values.len(), hidden) {
        (all, _) if broken == all => TestResult::Fails,
        (all, _) if shown == all => TestResult::Holds,
        (_, Some([least, most])) => TestResult::Open(Verdict::CannotTest(hidden_between(*least, Some(*most)))),
        (all, _) => TestResult::Open(Verdict::Undecided(Why::RunsContradict(format!("{shown} of {all} show it")))),
    }
}

fn some_run(values: &Values, [low, high]: [f64; 2]) -> TestResult {
    match values.iter().any(|(_, [least, most])| *least >= low && *most <= high) {
        true => TestResult::Holds,
        false if values.len() >= LEAST => TestResult::Fails,
        false => TestResult::Open(Verdict::Undecided(Why::TooFew(format!("none of {} shows it", values.len())))),
    }
}

fn hidden_between(least: f64, most: Option<f64>) -> String {
    let most = most.filter(|most| most.is_finite()).map_or_else(|| "any number".to_owned(), digits);
    format!("what is counted may be hidden here: between {} and {most}", digits(least))
}

impl Of {
    /// Its values in the valid runs. What is missing is told by the first cell.
    fn values(&self, rest: &str, samples: &Samples<'_>) -> Result<Values, Gap> {
        let found = match self.cells {
            Cells::One(name) => self.of_cell(&format!("{}{rest}", name.trim_end_matches('*')), samples),
            Cells::Least(names) => self.of_least(names, samples),
        };
        if !found.is_empty() {
            return Ok(found);
        }
        let first = match self.cells {
            Cells::One(name) => format!("{}{rest}", name.trim_end_matches('*')),
            Cells::Least(names) => names.first().copied().unwrap_or_default().to_owned(),
        };
        Err(samples.gap(&first).unwrap_or_else(|| samples.uncounted(&first, self.figure)))
    }

    fn of_cell(&self, cell: &str, samples: &Samples<'_>) -> Values {
        let value = |record: &Record| {
            let bounds = self.figure.bounds(record).filter(|_| !self.figure.is_untold_by(record))?;
            Some((record.trial.repetition, bounds.map(|bound| bound.max(self.at_least))))
        };
        samples.valid(cell).filter_map(value).collect()
    }

    fn of_least(&self, names: &[&str], samples: &Samples<'_>) -> Values {
        let cells: Vec<Values> = names.iter().map(|name| self.of_cell(name, samples)).collect();
        let mut repetitions: Vec<u32> = cells.iter().flatten().map(|(repetition, _)| *repetition).collect();
        repetitions.sort_unstable();
        repetitions.dedup();
        let chosen = |repetition: u32| {
            let others = |values: &Values| -> Option<f64> {
                let rest = values.iter().filter(|(other, _)| *other != repetition);
                stats::median(&rest.map(|(_, bounds)| bounds[0]).collect::<Vec<_>>())
            };
            let least =
                cells.iter().filter_map(|values| Some((others(values)?, values))).min_by(|a, b| a.0.total_cmp(&b.0))?;
            least.1.iter().find(|(own, _)| *own == repetition).copied()
        };
        repetitions.into_iter().filter_map(chosen).collect()
    }
}

/// The smallest difference that counts.
#[derive(Clone, Copy)]
enum Measure {
    /// By the interval alone.
    Plain,
    /// By the interval and the smallest detectable effect.
    Ratio,
}

/// Which end of a range.
#[derive(Clone, Copy)]
enum Edge {
    Low(f64),
    High(f64),
}

/// What is compared, twice: as little and as much as it can be in truth; `None` where that has no end.
struct Bounds {
    least: Option<Vec<f64>>,
    most: Option<Vec<f64>>,
    runs: usize,
    is_hidden: bool,
    measure: Measure,
}

impl Bounds {
    fn of(values: impl Iterator<Item = [f64; 2]>, measure: Measure) -> Bounds {
        let values: Vec<[f64; 2]> = values.collect();
        let side = |which: usize| -> Option<Vec<f64>> {
            values.iter().map(|bounds| Some(bounds[which]).filter(|bound| bound.is_finite())).collect()
        };
        Bounds {
            least: side(0),
            most: side(1),
            runs: values.len(),
            is_hidden: values.iter().any(|bounds| bounds[0] != bounds[1]),
            measure,
        }
    }

    /// It fails where it lies outside even with all that may be hidden, and holds where it lies inside even so.
    fn beside(&self, [low, high]: [f64; 2]) -> TestResult {
        if self.runs < LEAST {
            let says = format!("{} of the {LEAST} that a verdict needs", self.runs);
            return TestResult::Open(Verdict::Undecided(Why::TooFew(says)));
        }
        let (least, most) = (self.least.as_deref(), self.most.as_deref());
        let is_outside = self.is_outside(most, Edge::Low(low)) || self.is_outside(least, Edge::High(high));
        let is_inside = self.is_inside(least, Edge::Low(low)) && self.is_inside(most, Edge::High(high));
        match (is_outside, is_inside) {
            (true, _) => TestResult::Fails,
            (_, true) => TestResult::Holds,
            _ if self.is_hidden => TestResult::Open(Verdict::CannotTest(self.hidden())),
            _ => TestResult::Open(Verdict::Undecided(self.between([low, high]))),
        }
    }

    fn is_inside(&self, values: Option<&[f64]>, edge: Edge) -> bool {
        match (edge, self.measure) {
            (Edge::Low(threshold) | Edge::High(threshold), _) if threshold.is_infinite() => true,
            (Edge::Low(low), Measure::Plain) => interval(values).is_some_and(|[from, _]| from >= low),
            (Edge::High(high), Measure::Plain) => interval(values).is_some_and(|[_, to]| to <= high),
            (Edge::Low(low), Measure::Ratio) => ratio(values, low) == Some(Beside::Above),
            (Edge::High(high), Measure::Ratio) => ratio(values, high) == Some(Beside::Below),
        }
    }

    fn is_outside(&self, values: Option<&[f64]>, edge: Edge) -> bool {
        match (edge, self.measure) {
            (Edge::Low(threshold) | Edge::High(threshold), _) if threshold.is_infinite() => false,
            (Edge::Low(low), Measure::Plain) => interval(values).is_some_and(|[_, to]| to < low),
            (Edge::High(high), Measure::Plain) => interval(values).is_some_and(|[from, _]| from > high),
            (Edge::Low(low), Measure::Ratio) => ratio(values, low) == Some(Beside::Below),
            (Edge::High(high), Measure::Ratio) => ratio(values, high) == Some(Beside::Above),
        }
    }

    fn hidden(&self) -> String {
        let middle = |values: &Option<Vec<f64>>| values.as_deref().and_then(stats::median);
        hidden_between(middle(&self.least).unwrap_or(0.0), middle(&self.most))
    }

    fn between(&self, [low, high]: [f64; 2]) -> Why {
        let found = self.least.as_deref().and_then(stats::estimate);
        let [from, to] = found.and_then(|found| found.interval).unwrap_or([f64::NAN; 2]);
        let median = found.map_or(f64::NAN, |found| found.median);
        let beside =
            |edge: f64| format!("{} [{}–{}] beside {}", digits(median), digits(from), digits(to), digits(edge));
        match [low, high].into_iter().find(|edge| from <= *edge && *edge <= to) {
            Some(edge) => Why::HoldsThreshold(beside(edge)),
            None => Why::BelowDetectable(beside(if low.is_finite() { low } else { high })),
        }
    }
}

fn interval(values: Option<&[f64]>) -> Option<[f64; 2]> {
    stats::estimate(values?)?.interval
}

fn ratio(values: Option<&[f64]>, threshold: f64) -> Option<Beside> {
    let ones: Vec<(f64, f64)> = values?.iter().map(|ratio| (*ratio, 1.0)).collect();
    Some(stats::compare(&ones)?.beside(threshold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::figure::SHOOTDOWNS;
    use crate::record::Cell;
    use crate::report::synthetic::Run;

    const REQUESTS: &str = "tlb_flush_remote_send_ipi";
    const SHOT: Figure = Figure::Counter(SHOOTDOWNS);

    fn in_cell(run: Run, name: &str, repetition: u32) -> Run {
        let cell = Cell { experiment: "T".to_owned(), name: name.to_owned(), scale: "standard".to_owned() };
        run.repetition(repetition).edit(|record| record.cell = Some(cell))
    }

    /// A run of a cell for each of these times of the visit, in milliseconds.
    fn lasting(cell: &str, ms: &[u64]) -> Vec<Record> {
        let run = |(turn, ms): (u32, &u64)| in_cell(Run::of("mmap").phases_ms(0, *ms, 0), cell, turn).record();
        (0..).zip(ms).map(run).collect()
    }

    /// A run of a cell for each of these counts of shootdowns, on a machine that hides some of as many requests.
    fn shot(cell: &str, counts: &[(u64, Option<u64>)]) -> Vec<Record> {
        let run = |(turn, (seen, asked)): (u32, &(u64, Option<u64>))| {
            let run = in_cell(Run::of("mmap").counter(SHOOTDOWNS, *seen), cell, turn);
            let run = asked.map_or_else(|| run.clone(), |asked| run.clone().counter(REQUESTS, asked));
            run.edit(|record| record.machine.remarks = vec!["so the row counts too few".to_owned()]).record()
        };
        (0..).zip(counts).map(run).collect()
    }

    fn judged(tests: &'static [Test], records: &[&[Record]]) -> (Verdict, usize) {
        needing(&[], tests, records)
    }

    fn needing(
        needs: &'static [(Test, &'static str)],
        tests: &'static [Test],
        records: &[&[Record]],
    ) -> (Verdict, usize) {
        let records: Vec<&Record> = records.iter().copied().flatten().collect();
        Claim { needs, tests }.judge(&Samples::of("T", &records))
    }

    fn words(found: &(Verdict, usize)) -> String {
        match &found.0 {
            Verdict::Undecided(why) => why.name().to_owned(),
            verdict => verdict.words().to_owned(),
        }
    }

    const TWICE: &[Test] = &[Test::ratio(of("a", Figure::Seconds), of("b", Figure::Seconds), from(2.0))];
    const HALF: &[Test] = &[Test::ratio(of("a", Figure::Seconds), of("b", Figure::Seconds), up_to(0.5))];
    const ABOUT_A_FIFTH: &[Test] = &[Test::ratio(of("a", Figure::Seconds), of("b", Figure::Seconds), [0.65, 0.95])];
    const SIX: &[u64] = &[1000, 1010, 990, 1005, 995, 1000];

    fn ratio(tests: &'static [Test], first: &[u64]) -> String {
        words(&judged(tests, &[&lasting("a", first), &lasting("b", SIX)]))
    }

    #[test]
    fn a_ratio_holds_above_its_threshold_and_fails_below_it() {
        assert_eq!(ratio(TWICE, &[2500; 6]), "holds here");
        assert_eq!(ratio(TWICE, &[1500; 6]), "does not hold here");
        assert_eq!(ratio(HALF, &[400; 6]), "holds here");
        assert_eq!(ratio(HALF, &[600; 6]), "does not hold here");
    }

    #[test]
    fn the_number_to_follow_is_what_the_first_test_compares() {
        let records = [lasting("a", &[2000, 2500, 3000]), lasting("b", &[1000; 3])].concat();
        let followed = |tests: &'static [Test], records: &[Record]| {
            Claim { needs: &[], tests }.followed(&Samples::of("T", &records.iter().collect::<Vec<_>>()))
        };
        const LESS: &[Test] = &[Test::difference(of("a", Figure::Seconds), of("b", Figure::Seconds), from(2.0))];
        const EACH: &[Test] = &[Test::every_run(of("*", Figure::Seconds), from(2.0))];

        assert_eq!(followed(TWICE, &records), Some(2.5));
        assert_eq!(followed(LESS, &records), Some(1.5));
        assert_eq!(followed(EACH, &records), Some(2.5));
        assert_eq!(followed(TWICE, &records[..3]), None);
    }

    #[test]
    fn a_ratio_whose_interval_holds_the_threshold_is_undecided() {
        assert_eq!(ratio(TWICE, &[1800, 2200, 1900, 2100, 1950, 2050]), "the interval holds the threshold");
    }

    #[test]
    fn a_ratio_nearer_than_the_smallest_detectable_effect_is_undecided_though_its_interval_is_clear() {
        assert_eq!(ratio(TWICE, &[2050, 2100, 2050, 2100, 2050, 4000]), "below the smallest detectable effect");
    }

    #[test]
    fn five_pairs_decide_nothing_however_clear_they_are() {
        let found = judged(TWICE, &[&lasting("a", &[9000; 5]), &lasting("b", SIX)]);

        assert_eq!((words(&found).as_str(), found.1), ("too few runs", 5));
    }

    #[test]
    fn a_ratio_must_lie_inside_both_ends_of_its_range() {
        assert_eq!(ratio(ABOUT_A_FIFTH, &[800; 6]), "holds here");
        assert_eq!(ratio(ABOUT_A_FIFTH, &[500; 6]), "does not hold here");
        assert_eq!(ratio(ABOUT_A_FIFTH, &[1100; 6]), "does not hold here");
        assert_eq!(ratio(ABOUT_A_FIFTH, &[900, 1000, 900, 1000, 900, 1000]), "the interval holds the threshold");
    }

    #[test]
    fn runs_are_paired_by_repetition() {
        // Both arms follow the machine's mood; each pair shows 3.
        let second = [600, 500, 400, 300, 200, 100];
        let first: Vec<u64> = second.iter().map(|ms| ms * 3).collect();

        assert_eq!(words(&judged(TWICE, &[&lasting("a", &first), &lasting("b", &second)])), "holds here");
    }

    const A_SECOND: &[Test] = &[Test::figure(of("a", Figure::Seconds), [1.0, 2.0])];

    #[test]
    fn a_figure_is_decided_by_its_whole_interval_ends_included() {
        let of = |ms: &[u64]| words(&judged(A_SECOND, &[&lasting("a", ms)]));

        assert_eq!(of(&[1000, 1500, 2000, 1000, 2000, 1500]), "holds here");
        assert_eq!(of(&[900; 6]), "does not hold here");
        assert_eq!(of(&[2001; 6]), "does not hold here");
        assert_eq!(of(&[900, 1100, 1200, 1300, 1400, 1500]), "the interval holds the threshold");
        assert_eq!(of(&[1500; 5]), "too few runs");
    }

    const A_SECOND_MORE: &[Test] = &[Test::difference(of("a", Figure::Seconds), of("b", Figure::Seconds), up_to(1.0))];

    #[test]
    fn a_difference_is_decided_by_its_whole_interval() {
        let of = |first: &[u64]| words(&judged(A_SECOND_MORE, &[&lasting("a", first), &lasting("b", &[1000; 6])]));

        assert_eq!(of(&[2000; 6]), "holds here");
        assert_eq!(of(&[2001; 6]), "does not hold here");
        assert_eq!(of(&[1900, 2100, 1900, 2100, 1900, 2100]), "the interval holds the threshold");
        assert_eq!(of(&[1000; 5]), "too few runs");
    }

    const FACT: &[Test] = &[Test::every_run(of("a", Figure::Own("granted")), [1.0, 1.0])];

    #[test]
    fn a_fact_needs_one_run_and_all_of_them() {
        let granted = |values: &[u64]| {
            let run = |(turn, value): (u32, &u64)| {
                let own = [("granted".to_owned(), *value)];
                in_cell(Run::of("mmap").edit(|record| record.figures = own.into()), "a", turn)
            };
            let records: Vec<Record> = (0..).zip(values).map(|it| run(it).record()).collect();
            words(&judged(FACT, &[&records]))
        };

        assert_eq!(granted(&[1]), "holds here");
        assert_eq!(granted(&[0]), "does not hold here");
        assert_eq!(granted(&[1, 1, 1]), "holds here");
        assert_eq!(granted(&[1, 0, 1]), "runs contradict each other");
    }

    const CHANCE: &[Test] = &[Test::some_run(of("a", Figure::Seconds), from(2.0))];

    #[test]
    fn what_can_be_needs_one_run_that_shows_it_and_six_that_do_not() {
        let of = |ms: &[u64]| words(&judged(CHANCE, &[&lasting("a", ms)]));

        assert_eq!(of(&[1000, 2000]), "holds here");
        assert_eq!(of(&[1000; 5]), "too few runs");
        assert_eq!(of(&[1000; 6]), "does not hold here");
    }

    #[test]
    fn runs_that_were_refused_decide_nothing() {
        let spoil = |records: Vec<Record>| -> Vec<Record> {
            let spoiled = |record: Record| {
                let run = Run::of("mmap").spoiled("600 MiB were cached");
                Record { gates: run.record().gates, ..record }
            };
            records.into_iter().map(spoiled).collect()
        };
        let fast = lasting("b", SIX);
        let all = judged(TWICE, &[&spoil(lasting("a", &[9000; 6])), &fast]);
        let one = judged(TWICE, &[&lasting("a", &[2500; 5]), &spoil(lasting("a", &[2500; 6]))[5..], &fast]);
        let more = judged(TWICE, &[&lasting("a", &[2500; 6]), &spoil(lasting("a", &[10; 9]))[6..], &fast]);

        assert_eq!((words(&all).as_str(), words(&one).as_str()), ("no run counts", "too few runs"));
        assert!(all.0.reason().contains("600 MiB were cached"), "{}", all.0.reason());
        assert_eq!(words(&more), "holds here");
    }

    #[test]
    fn what_is_not_here_cannot_be_tested_and_what_was_not_run_is_undecided() {
        let missing = in_cell(Run::of("mmap").missing("hugetlbfs", "no page", "reserve some"), "a", 0).record();
        let failed = in_cell(Run::of("mmap").failed("SIGBUS"), "a", 0).record();
        let of = |records: &[Record]| judged(TWICE, &[records, &lasting("b", SIX)]);

        assert_eq!(of(&[missing]).0, Verdict::CannotTest("hugetlbfs: no page; reserve some".to_owned()));
        assert_eq!(of(&[failed]).0, Verdict::CannotTest("\"a\" failed: SIGBUS".to_owned()));
        assert_eq!(words(&of(&[])), "not run in this session");
    }

    const UNCOUNTED: &[Test] = &[Test::figure(of("a", Figure::Counter("cache_references")), from(1.0))];

    #[test]
    fn what_no_run_counted_cannot_be_tested() {
        assert_eq!(words(&judged(UNCOUNTED, &[&lasting("a", SIX)])), "cannot be tested here");
    }

    #[test]
    fn an_emulated_machine_tells_counts_and_no_times() {
        let emulated = |records: Vec<Record>| -> Vec<Record> {
            let remark = crate::place::guest::remark(&"guest".parse().unwrap(), "6.12", "tcg");
            let told = |mut record: Record| {
                record.machine.remarks.push(remark.clone());
                record
            };
            records.into_iter().map(told).collect()
        };
        let slow = emulated(lasting("a", &[9000; 6]));
        let timed = judged(A_SECOND, &[&slow]);

        assert_eq!(words(&timed), "cannot be tested here");
        assert!(timed.0.reason().contains("emulated, which tells no time"), "{}", timed.0.reason());
        assert_eq!(words(&judged(CHANCE, &[&slow])), "cannot be tested here");
        assert_eq!(words(&judged(TWICE, &[&slow, &lasting("b", SIX)])), "cannot be tested here");
        assert_eq!(words(&judged(MANY, &[&emulated(shot("a", &[(200, None); 6]))])), "holds here");
    }

    const MANY: &[Test] = &[Test::figure(of("a", SHOT), from(100.0))];
    const FEW: &[Test] = &[Test::figure(of("a", SHOT), up_to(100.0))];
    const TENFOLD: &[Test] = &[Test::ratio(count("a", SHOT), count("b", SHOT), from(10.0))];

    #[test]
    fn where_counts_may_be_hidden_a_high_one_is_high_and_a_low_one_proves_nothing() {
        let (high, low) = (shot("a", &[(200, None); 6]), shot("a", &[(20, None); 6]));

        assert_eq!(words(&judged(MANY, &[&high])), "holds here");
        assert_eq!(words(&judged(FEW, &[&high])), "does not hold here");
        assert_eq!(words(&judged(MANY, &[&low])), "cannot be tested here");
        assert_eq!(words(&judged(FEW, &[&low])), "cannot be tested here");
    }

    #[test]
    fn a_ratio_of_hidden_counts_is_decided_where_the_requests_bound_it() {
        let many = shot("a", &[(1000, Some(20_000)); 6]);
        let untold = judged(TENFOLD, &[&many, &shot("b", &[(0, None); 6])]);
        let none_asked = judged(TENFOLD, &[&many, &shot("b", &[(0, Some(0)); 6])]);
        let many_asked = judged(TENFOLD, &[&many, &shot("b", &[(0, Some(500)); 6])]);
        let fewer = judged(TENFOLD, &[&shot("a", &[(5, Some(50)); 6]), &shot("b", &[(100, Some(100)); 6])]);

        assert_eq!(words(&untold), "cannot be tested here");
        assert_eq!(words(&none_asked), "holds here");
        assert_eq!(words(&many_asked), "cannot be tested here");
        assert!(many_asked.0.reason().contains("between 2.00 and 20\u{a0}000"), "{}", many_asked.0.reason());
        assert_eq!(words(&fewer), "does not hold here");
    }

    const BOTH: &[Test] = &[
        Test::ratio(of("a", Figure::Seconds), of("b", Figure::Seconds), from(2.0)),
        Test::figure(of("a", Figure::Seconds), from(1.0)),
    ];

    #[test]
    fn one_test_that_surely_fails_is_a_no_and_one_that_is_open_takes_the_yes_away() {
        let of = |first: &[u64], second: &[u64]| words(&judged(BOTH, &[&lasting("a", first), &lasting("b", second)]));

        assert_eq!(of(&[3000; 6], SIX), "holds here");
        assert_eq!(of(&[3000; 6], &[2900; 6]), "does not hold here");
        assert_eq!(of(&[3000; 6], SIX.split_at(5).0), "too few runs");
        assert_eq!(of(&[500; 6], &SIX[..5]), "does not hold here");
    }

    const NEED: &[(Test, &str)] = &[(Test::every_run(of("a", Figure::Seconds), from(1.0)), "too short here")];

    #[test]
    fn a_claim_whose_need_is_not_met_cannot_be_tested_for_that_reason() {
        let of = |ms: &[u64]| needing(NEED, A_SECOND, &[&lasting("a", ms)]).0;

        assert_eq!(of(&[1500; 6]), Verdict::Holds);
        assert_eq!(of(&[900; 6]), Verdict::CannotTest("too short here".to_owned()));
        assert_eq!(of(&[900, 1500, 1500, 1500, 1500, 1500]).words(), "undecided, run more");
    }

    const STARRED: &[Test] = &[Test::ratio(of("a *", Figure::Seconds), of("b *", Figure::Seconds), from(2.0))];

    #[test]
    fn a_star_stands_for_every_cell_that_fits_and_for_the_same_rest_on_both_sides() {
        let fine = [lasting("a x", &[3000; 6]), lasting("b x", SIX)].concat();
        let slow = [lasting("a y", &[3000; 6]), lasting("b y", &[2900; 6])].concat();

        assert_eq!(words(&judged(STARRED, &[&fine])), "holds here");
        assert_eq!(words(&judged(STARRED, &[&fine, &slow])), "does not hold here");
        assert_eq!(words(&judged(STARRED, &[])), "not run in this session");
    }

    const BUT_Y: &[Test] =
        &[Test::ratio(of("a *", Figure::Seconds), of("b *", Figure::Seconds), from(2.0)).except(&["y", "z"])];

    #[test]
    fn a_cell_that_a_claim_excepts_has_no_say_in_it() {
        let fine = [lasting("a x", &[3000; 6]), lasting("b x", SIX)].concat();
        let slow = [lasting("a y", &[3000; 6]), lasting("b y", &[2900; 6])].concat();

        assert_eq!(words(&judged(BUT_Y, &[&fine, &slow])), "holds here");
        assert_eq!(words(&judged(BUT_Y, &[&slow])), "not run in this session");
    }

    const A_AND_C: &[Test] = &[
        Test::ratio(of("a", Figure::Seconds), of("b", Figure::Seconds), from(2.0)),
        Test::figure(of("c", Figure::Seconds), from(1.0)),
    ];

    #[test]
    fn what_was_not_run_is_said_before_what_had_too_few_runs() {
        let few = [lasting("a", &[3000; 5]), lasting("b", &[1000; 5])].concat();

        assert_eq!(words(&judged(A_AND_C, &[&few])), "not run in this session");
    }

    const BEST: &[Test] = &[Test::ratio(least(&["a", "c"], Figure::Seconds), of("b", Figure::Seconds), up_to(0.9))];

    #[test]
    fn the_best_of_several_is_chosen_by_the_other_repetitions() {
        // Each is fast in turn; pairing by repetition would give 0.5 in all of them.
        let lucky =
            [lasting("a", &[500, 1000, 500, 1000, 500, 1000]), lasting("c", &[1000, 500, 1000, 500, 1000, 500])];
        let really = [lasting("a", &[500; 6]), lasting("c", &[1000; 6])];

        assert_eq!(words(&judged(BEST, &[&lucky.concat(), &lasting("b", SIX)])), "does not hold here");
        assert_eq!(words(&judged(BEST, &[&really.concat(), &lasting("b", SIX)])), "holds here");
    }
}
