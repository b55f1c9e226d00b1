//! A comparison: the same workload through several arms, repeated in turns, each run a record on disk as it ends.

use crate::experiment::Planned;
use crate::record::{By, Cell, Outcome, Record};
use crate::run::{self, gates};
use crate::trial::{Arm, Trial};
use faultline::{Error, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// A name for a new session: when it began, and who makes it.
pub fn name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", now.as_secs(), std::process::id())
}

/// What is compared.
pub struct Comparison {
    /// The trial that all arms share; its own arm and repetition are replaced.
    pub trial: Trial,
    /// Who takes part.
    pub arms: Vec<Arm>,
    /// How often each runs.
    pub repetitions: u32,
}

/// Runs the arms in turns, so that a change of the machine's mood meets all of them. Each repetition begins one arm
/// later than the one before, so that none is always first. `ended` gets each record as it is complete.
///
/// An arm that cannot run, or failed, is not tried again. A repetition in which others disturbed an arm is followed by
/// another one of all arms, for at most as many as were asked for. Ends early, with what there is, when the session is
/// stopped.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn interleave(
    comparison: &Comparison,
    session: &run::Session<'_>,
    mut ended: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let count = comparison.arms.len();
    for repetition in 0..comparison.repetitions.saturating_mul(2) {
        if undisturbed(&records, repetition) >= comparison.repetitions {
            break;
        }
        for turn in 0..count {
            let arm = &comparison.arms[(turn + repetition as usize) % count];
            let gave_up = |record: &Record| record.trial.arm == *arm && !runs_again(&record.outcome);
            if records.iter().any(gave_up) {
                continue;
            }
            if session.stop.load(Ordering::Relaxed) {
                return Ok(records);
            }
            let trial = Trial { arm: arm.clone(), repetition, ..comparison.trial.clone() };
            let mut record = run::run(&trial, session)?;
            record.planned = Some(comparison.repetitions);
            gates::beside(&records, &mut record);
            ended(&record)?;
            records.push(record);
        }
    }
    Ok(records)
}

/// Runs the cells of one experiment in turns, as [`interleave`] does arms. `is_done` says which are not run again.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn grid(
    cell: &Cell,
    planned: &[Planned],
    repetitions: u32,
    session: &run::Session<'_>,
    is_done: impl Fn(&Cell, u32) -> bool,
    mut ended: impl FnMut(Option<Record>) -> Result<()>,
) -> Result<()> {
    let mut gave_up: Vec<&str> = Vec::new();
    for repetition in 0..repetitions {
        for turn in 0..planned.len() {
            let Planned { name, trial } = &planned[(turn + repetition as usize) % planned.len()];
            if session.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let cell = Cell { name: name.clone(), ..cell.clone() };
            if gave_up.contains(&name.as_str()) || is_done(&cell, repetition) {
                ended(None)?;
                continue;
            }
            let seed = trial.seed.wrapping_add(u64::from(repetition));
            let mut record = run::run(&Trial { repetition, seed, ..trial.clone() }, session)?;
            if !runs_again(&record.outcome) {
                gave_up.push(name);
            }
            record.cell = Some(cell);
            ended(Some(record))?;
        }
    }
    Ok(())
}

/// How many of the first `repetitions` others left in peace. What is wrong with the set-up is so in every repetition.
fn undisturbed(records: &[Record], repetitions: u32) -> u32 {
    let is_disturbed = |record: &Record| record.spoilers().any(|gate| gate.by == By::Others) && !record.is_control();
    let of = |repetition: u32| records.iter().filter(move |record| record.trial.repetition == repetition);
    (0..repetitions).filter(|repetition| !of(*repetition).any(is_disturbed)).count() as u32
}

fn runs_again(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done | Outcome::Interrupted)
}

/// A file that takes one record a line.
pub struct Records {
    file: File,
    path: PathBuf,
}

impl Records {
    /// Appends to `path`, or begins the session's own file below the user's state directory.
    ///
    /// Errors: Io, with the directory that could not be made or written.
    pub fn create(path: Option<&Path>, session: &str) -> Result<Records> {
        let path = path.map_or_else(|| state_dir().join(format!("{session}.jsonl")), Path::to_owned);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| unwritable(dir, error))?;
        }
        let file = File::options().create(true).append(true).open(&path).map_err(|error| unwritable(&path, error))?;
        Ok(Records { file, path })
    }

    /// Adds one record as one line.
    ///
    /// Errors: Io (full disk).
    pub fn add(&mut self, record: &Record) -> Result<()> {
        let mut line =
            serde_json::to_vec(record).map_err(|why| Error::Invalid(format!("a record cannot be written: {why}")))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| unwritable(&self.path, error))
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::io("keep the records", path, error).with_remedy("name a writable file with --records")
}

/// `$XDG_STATE_HOME/faultline/runs`, by default below ~/.local/state; the temporary directory for users without a home.
fn state_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(std::env::temp_dir).join("faultline/runs")
}

/// The records of these files, in order.
///
/// Errors: Io; Invalid where a line is not a record, or of a newer format.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for path in paths {
        let text = read_text(path)?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            records.push(parse(path, number, line)?);
        }
    }
    if records.is_empty() {
        return Err(Error::Invalid("there is no record in the files named; faultline compare makes some".to_owned()));
    }
    Ok(records)
}

fn read_text(path: &Path) -> Result<String> {
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { fs::read_to_string(path) };
    text.map_err(|error| Error::io("read records", path, error))
}

fn parse(path: &Path, number: u32, line: &str) -> Result<Record> {
    let record: Record = serde_json::from_str(line).map_err(|why| {
        Error::Invalid(format!("{} line {number} is not a record of faultline: {why}", path.display()))
    })?;
    if record.format > crate::record::FORMAT {
        return Err(Error::Invalid(format!(
            "{} line {number} has format {}, this faultline reads up to {}; use a newer one",
            path.display(),
            record.format,
            crate::record::FORMAT
        )));
    }
    Ok(record)
}
