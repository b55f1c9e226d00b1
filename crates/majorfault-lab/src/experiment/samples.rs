//! The records of one experiment in one session, asked by cell.

use super::figure::Figure;
use super::verdict::{Verdict, Why};
use crate::record::{GateFinding, Outcome, Record};
use crate::stats::{self, Estimate, WANTED};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Why a cell has no figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Gap {
    /// It cannot have one here.
    Cannot(String),
    /// It was not made in this session.
    NotRun(String),
    /// No run counts; more may.
    NoRun(String),
}

/// What was found, or why nothing was.
pub type Found<T> = std::result::Result<T, Gap>;

/// Notes to a verdict.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Our figure, with its interval.
    pub ours: String,
    /// The counter behind it.
    pub evidence: String,
    /// What the same work without the suspected cause gave.
    pub control: String,
}

/// The runs of the cells that a row looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// How many were made.
    pub made: usize,
    /// How many of them do not count.
    pub refused: usize,
    /// Why not: how often each reason was given, with an example.
    pub reasons: Vec<String>,
    /// How many of those that count carry a note (a busy machine, processor time taken by the hypervisor).
    pub noted: usize,
    /// What was noted.
    pub notes: BTreeSet<String>,
    /// Remarks on the machine.
    pub remarks: BTreeSet<String>,
}

/// The records of an experiment by cell. Remembers which cells were asked for.
pub struct Samples<'a> {
    cells: BTreeMap<&'a str, Vec<&'a Record>>,
    asked: RefCell<BTreeSet<String>>,
    first: RefCell<Option<usize>>,
}

impl Shown {
    /// Our figure.
    pub fn new(ours: impl Into<String>) -> Shown {
        Shown { ours: ours.into(), ..Shown::default() }
    }

    /// The same with the counter behind it.
    pub fn because(mut self, evidence: impl Into<String>) -> Shown {
        self.evidence = evidence.into();
        self
    }

    /// The same with the control beside it.
    pub fn control(mut self, control: impl Into<String>) -> Shown {
        self.control = control.into();
        self
    }
}

impl Gap {
    /// What stands in a table instead of a figure.
    pub fn short(&self) -> &'static str {
        match self {
            Gap::Cannot(_) => "not here",
            Gap::NotRun(_) => "not run",
            Gap::NoRun(_) => "none counts",
        }
    }
}

impl From<Gap> for Verdict {
    fn from(gap: Gap) -> Verdict {
        match gap {
            Gap::Cannot(why) => Verdict::CannotTest(why),
            Gap::NotRun(why) => Verdict::Undecided(Why::NotRun(why)),
            Gap::NoRun(why) => Verdict::Undecided(Why::NoRun(why)),
        }
    }
}

impl<'a> Samples<'a> {
    /// The records of `experiment` among `records`, which are of one session.
    pub fn of(experiment: &str, records: &[&'a Record]) -> Samples<'a> {
        let mut cells: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records {
            if let Some(cell) = record.cell.as_ref().filter(|cell| cell.experiment == experiment) {
                cells.entry(&cell.name).or_default().push(record);
            }
        }
        Samples { cells, asked: RefCell::default(), first: RefCell::default() }
    }

    /// Whether there is no record at all.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The names of the cells that were run.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.cells.keys().copied()
    }

    /// The runs of a cell that may be believed.
    pub fn valid(&self, cell: &str) -> impl Iterator<Item = &'a Record> {
        self.asked.borrow_mut().insert(cell.to_owned());
        self.cells.get(cell).into_iter().flatten().copied().filter(|record| record.is_valid())
    }

    /// Why a cell has no run that counts; `None` where it has.
    pub fn gap(&self, cell: &str) -> Option<Gap> {
        let Some(records) = self.cells.get(cell) else {
            return Some(Gap::NotRun(format!("\"{cell}\"")));
        };
        if records.iter().any(|record| record.is_valid()) {
            return None;
        }
        let spoiled = records.iter().find(|record| record.outcome == Outcome::Done);
        Some(match (spoiled, records.first().map(|record| &record.outcome)) {
            (Some(record), _) => Gap::NoRun(format!(
                "all runs of \"{cell}\" were refused: {}",
                record.spoiled().collect::<Vec<_>>().join(", ")
            )),
            (_, Some(Outcome::Missing(missing))) => Gap::Cannot(missing_words(missing)),
            (_, Some(Outcome::Failed(why))) => Gap::Cannot(format!("\"{cell}\" failed: {why}")),
            _ => Gap::NoRun(format!("\"{cell}\" was interrupted")),
        })
    }

    /// Why runs that count do not tell a figure: what they say is missing.
    pub fn uncounted(&self, cell: &str, figure: Figure) -> Gap {
        if self.valid(cell).any(|record| figure.is_untold_by(record)) {
            return Gap::Cannot(format!("the machine was emulated, which tells no time (\"{}\")", figure.name()));
        }
        let missing: BTreeSet<String> =
            self.valid(cell).flat_map(|record| &record.missing).map(missing_words).collect();
        let missing = missing.into_iter().collect::<Vec<_>>().join("; ");
        let beside = if missing.is_empty() { missing } else { format!("; not here: {missing}") };
        Gap::Cannot(format!("\"{cell}\" has no figure \"{}\"{beside}", figure.name()))
    }

    /// The figure of a cell: median with interval.
    pub fn figure(&self, cell: &str, figure: Figure) -> Found<Estimate> {
        let samples: Vec<f64> = self.valid(cell).filter_map(|record| figure.of(record)).collect();
        self.first.borrow_mut().get_or_insert(samples.len());
        let nothing = || self.gap(cell).unwrap_or_else(|| self.uncounted(cell, figure));
        stats::estimate(&samples).ok_or_else(nothing)
    }

    /// The figure of cell `a` over that of cell `b`, paired by repetition.
    pub fn ratio(&self, a: &str, b: &str, figure: Figure) -> Found<Estimate> {
        self.ratio_of((a, figure), (b, figure))
    }

    /// One figure over another, of the same or of two cells, paired by repetition.
    pub fn ratio_of(&self, a: (&str, Figure), b: (&str, Figure)) -> Found<Estimate> {
        for (cell, _) in [a, b] {
            if let Some(gap) = self.gap(cell) {
                return Err(gap);
            }
        }
        let pairs: Vec<(f64, f64)> = self
            .valid(a.0)
            .filter_map(|first| {
                let second = self.valid(b.0).find(|other| other.trial.repetition == first.trial.repetition)?;
                Some((a.1.of(first)?, b.1.of(second)?))
            })
            .collect();
        self.first.borrow_mut().get_or_insert(pairs.len());
        let nothing =
            || Gap::NoRun(format!("\"{}\" and \"{}\" have no repetition in common that counted it", a.0, b.0));
        stats::compare(&pairs).map(|found| found.ratio).ok_or_else(nothing)
    }

    /// Runs behind the first figure that was asked for.
    pub fn behind_first(&self) -> usize {
        self.first.borrow().unwrap_or(0)
    }

    /// The runs of all cells asked for so far.
    pub fn runs(&self) -> Runs {
        let asked = self.asked.borrow();
        let records: Vec<&Record> =
            asked.iter().filter_map(|cell| self.cells.get(cell.as_str())).flatten().copied().collect();
        let valid = records.iter().filter(|record| record.is_valid());
        let noted = |record: &Record| -> Vec<String> {
            let gates = record.gates.iter().filter(|gate| gate.finding == GateFinding::Noted);
            gates.map(|gate| gate.name.clone()).collect()
        };
        Runs {
            made: records.len(),
            refused: records.iter().filter(|record| is_refused(record)).count(),
            reasons: reasons(&records),
            noted: valid.clone().filter(|record| !noted(record).is_empty()).count(),
            notes: valid.clone().flat_map(|record| noted(record)).collect(),
            remarks: valid.flat_map(|record| record.machine.remarks.iter().cloned()).collect(),
        }
    }
}

/// Whether a run was made and does not count. One that could not begin for want of a facility is none.
pub fn is_refused(record: &Record) -> bool {
    !record.is_valid() && !matches!(record.outcome, Outcome::Missing(_))
}

/// Why runs were refused: how often for each reason, with one of its sentences.
pub fn reasons(records: &[&Record]) -> Vec<String> {
    let mut found: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for record in records.iter().filter(|record| is_refused(record)) {
        let gate = record.gates.iter().find(|gate| gate.finding == GateFinding::Spoiled);
        let (name, says) = match (&record.outcome, gate) {
            (Outcome::Failed(why), _) => ("failed", why.as_str()),
            (Outcome::Interrupted, _) => ("interrupted", "by the user"),
            (_, Some(gate)) => (gate.name.as_str(), gate.says.as_str()),
            (_, None) => ("unknown", ""),
        };
        found.entry(name).or_insert((0, says)).0 += 1;
    }
    found.into_iter().map(|(name, (count, says))| format!("{count} x {name} ({says})")).collect()
}

fn missing_words(missing: &crate::record::MissingFacility) -> String {
    let remedy = if missing.remedy.is_empty() { String::new() } else { format!("; {}", missing.remedy) };
    format!("{}: {}{remedy}", missing.what, missing.reason)
}

/// A number as a person reads it.
pub fn digits(value: f64) -> String {
    majorfault::units::grouped(value)
}

/// `2.67 x [2.59–2.81]`; with its coverage where that is less than a verdict needs.
pub fn times(found: &Estimate) -> String {
    format!("{} x{}", digits(found.median), bracket(found, 1.0))
}

/// `834 ms [820–850]`
pub fn milliseconds(found: &Estimate) -> String {
    format!("{} ms{}", digits(found.median * 1e3), bracket(found, 1e3))
}

/// `12.3 [11.9–12.8]`
pub fn plain(found: &Estimate) -> String {
    format!("{}{}", digits(found.median), bracket(found, 1.0))
}

fn bracket(found: &Estimate, factor: f64) -> String {
    let Some([low, high]) = found.interval.map(|ends| ends.map(|end| digits(end * factor))) else {
        return " (one run)".to_owned();
    };
    let covers = if found.coverage < WANTED { format!(": {:.0} %", found.coverage * 100.0) } else { String::new() };
    format!(" [{low}–{high}{covers}]")
}
