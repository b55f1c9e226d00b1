//! The records of one experiment, asked by cell, and what a row's judge says of them.

use crate::record::{Outcome, Record};
use crate::stats::{self, Estimate};
use std::collections::BTreeMap;

/// What was found of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not.
    DoesNotHold,
    /// It cannot be tested here, for this reason.
    CannotTest(String),
    /// It is a figure rather than a claim: ours stands beside it.
    Measured,
    /// It is a system rather than a claim, and ours is this command.
    Built(String),
}

/// A row's verdict with what it rests on.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Our figure, with its interval.
    pub ours: String,
    /// The counter behind it.
    pub evidence: String,
    /// What the same work without the suspected cause gave.
    pub control: String,
}

/// What was found, or the judgement that it cannot be.
pub type Found<T> = std::result::Result<T, Judged>;

/// A figure of one record.
pub type Figure<'f> = &'f dyn Fn(&Record) -> Option<f64>;

/// The records of an experiment by cell.
pub struct Samples<'a> {
    cells: BTreeMap<&'a str, Vec<&'a Record>>,
}

impl Judged {
    /// A verdict with our figure.
    pub fn new(verdict: Verdict, ours: impl Into<String>) -> Judged {
        Judged { verdict, ours: ours.into(), evidence: String::new(), control: String::new() }
    }

    /// The same with the counter behind it.
    pub fn because(mut self, evidence: impl Into<String>) -> Judged {
        self.evidence = evidence.into();
        self
    }

    /// The same with the control beside it.
    pub fn control(mut self, control: impl Into<String>) -> Judged {
        self.control = control.into();
        self
    }

    /// It cannot be tested here.
    pub fn cannot(reason: impl Into<String>) -> Judged {
        Judged::new(Verdict::CannotTest(reason.into()), "")
    }

    /// It is a system, and this is ours.
    pub fn built(command: &str) -> Judged {
        Judged::new(Verdict::Built(command.to_owned()), "")
    }
}

impl Verdict {
    /// In the words of the ledger.
    pub fn words(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds here",
            Verdict::DoesNotHold => "does not hold here",
            Verdict::CannotTest(_) => "cannot be tested here",
            Verdict::Measured => "measured",
            Verdict::Built(_) => "built",
        }
    }
}

impl<'a> Samples<'a> {
    /// The records of `experiment` among `records`.
    pub fn of(experiment: &str, records: &'a [Record]) -> Samples<'a> {
        let mut cells: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records {
            if let Some(cell) = record.cell.as_ref().filter(|cell| cell.experiment == experiment) {
                cells.entry(&cell.name).or_default().push(record);
            }
        }
        Samples { cells }
    }

    /// The names of the cells that were run.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.cells.keys().copied()
    }

    /// The runs of a cell that may be believed.
    pub fn valid(&self, cell: &str) -> impl Iterator<Item = &'a Record> {
        self.cells.get(cell).into_iter().flatten().copied().filter(|record| record.is_valid())
    }

    /// Why a cell has no figures; `None` where it has.
    pub fn gap(&self, cell: &str) -> Option<String> {
        let Some(records) = self.cells.get(cell) else {
            return Some(format!("\"{cell}\" was not run"));
        };
        if records.iter().any(|record| record.is_valid()) {
            return None;
        }
        let reason = |record: &&Record| match &record.outcome {
            Outcome::Missing(missing) => {
                let remedy = if missing.remedy.is_empty() { String::new() } else { format!("; {}", missing.remedy) };
                format!("{}: {}{remedy}", missing.what, missing.reason)
            }
            Outcome::Failed(why) => format!("\"{cell}\" failed: {why}"),
            Outcome::Interrupted => format!("\"{cell}\" was interrupted"),
            Outcome::Done => format!("\"{cell}\" is not valid: {}", record.spoiled().collect::<Vec<_>>().join(", ")),
        };
        records.first().map(reason)
    }

    /// The figure of a cell: median with interval.
    pub fn figure(&self, cell: &str, figure: Figure<'_>) -> Found<Estimate> {
        let samples: Vec<f64> = self.valid(cell).filter_map(figure).collect();
        let nothing = || Judged::cannot(self.gap(cell).unwrap_or_else(|| format!("\"{cell}\" did not count it")));
        stats::estimate(&samples).ok_or_else(nothing)
    }

    /// The figure of cell `a` over that of cell `b`, paired by repetition.
    pub fn ratio(&self, a: &str, b: &str, figure: Figure<'_>) -> Found<Estimate> {
        self.ratio_of((a, figure), (b, figure))
    }

    /// One figure over another, of the same or of two cells, paired by repetition.
    pub fn ratio_of(&self, a: (&str, Figure<'_>), b: (&str, Figure<'_>)) -> Found<Estimate> {
        for (cell, _) in [a, b] {
            if let Some(gap) = self.gap(cell) {
                return Err(Judged::cannot(gap));
            }
        }
        let pairs: Vec<(f64, f64)> = self
            .valid(a.0)
            .filter_map(|first| {
                let second = self.valid(b.0).find(|other| other.trial.repetition == first.trial.repetition)?;
                Some((a.1(first)?, b.1(second)?))
            })
            .collect();
        let nothing =
            || Judged::cannot(format!("\"{}\" and \"{}\" have no repetition in common that counted it", a.0, b.0));
        stats::compare(&pairs).map(|found| found.ratio).ok_or_else(nothing)
    }
}

/// Whether an estimate lies in a range: it does where its whole interval does, it does not where none of it does.
pub fn within(found: &Estimate, [low, high]: [f64; 2]) -> Verdict {
    let [from, to] = found.interval.unwrap_or([found.median; 2]);
    match () {
        () if from >= low && to <= high => Verdict::Holds,
        () if to < low || from > high => Verdict::DoesNotHold,
        () => {
            let edge = if from < low { low } else { high };
            Verdict::CannotTest(format!(
                "the interval {} to {} holds the threshold {}; run more, --scale full",
                digits(from),
                digits(to),
                digits(edge)
            ))
        }
    }
}

/// A number in three digits.
pub fn digits(value: f64) -> String {
    faultline::units::three_digits(value)
}

/// `2.67 x [2.59–2.81]`
pub fn times(found: &Estimate) -> String {
    match found.interval {
        Some([low, high]) => format!("{} x [{}–{}]", digits(found.median), digits(low), digits(high)),
        None => format!("{} x (one run)", digits(found.median)),
    }
}

/// `834 ms [820–850]`
pub fn milliseconds(found: &Estimate) -> String {
    let [median, low, high] =
        [found.median, found.interval.map_or(0.0, |it| it[0]), found.interval.map_or(0.0, |it| it[1])]
            .map(|seconds| digits(seconds * 1e3));
    match found.interval {
        Some(_) => format!("{median} ms [{low}–{high}]"),
        None => format!("{median} ms (one run)"),
    }
}

/// Seconds of one phase.
pub fn phase_s(name: &'static str) -> impl Fn(&Record) -> Option<f64> {
    move |record| Some(record.phase(name)?.wall_ns as f64 / 1e9)
}

/// Seconds of all phases.
pub fn total_s(record: &Record) -> Option<f64> {
    (!record.phases.is_empty()).then(|| record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum())
}

/// Accesses a second, preparation included.
pub fn per_second(record: &Record) -> Option<f64> {
    total_s(record).filter(|seconds| *seconds > 0.0).map(|seconds| record.accesses() as f64 / seconds)
}

/// What counters grew by together in one phase.
pub fn counted(phase: &'static str, names: &'static [&'static str]) -> impl Fn(&Record) -> Option<f64> {
    move |record| {
        let counters = &record.phase(phase)?.counters;
        names.iter().map(|name| counters.get(*name).map(|value| *value as f64)).sum()
    }
}

/// A figure that a procedure counted.
pub fn own(name: &'static str) -> impl Fn(&Record) -> Option<f64> {
    move |record| record.figures.get(name).map(|value| *value as f64)
}

/// Page faults of the visit.
pub const FAULTS: &[&str] = &["minor_faults", "major_faults"];

/// Whichever way it went.
pub fn either(result: Found<Judged>) -> Judged {
    result.unwrap_or_else(|cannot| cannot)
}
