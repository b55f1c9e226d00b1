//! A comparison: the same workload through several arms, repeated in turns, each run a record on disk as it ends.

use crate::experiment::Planned;
use crate::record::{Answer, Cell, Finding, Gate, Outcome, Record};
use crate::run::{self, check};
use crate::trial::{Arm, Trial};
use faultline::{Error, Result};
use std::fs;
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
/// An arm that cannot run, or failed, is not tried again. Ends early, with what there is, when the session is stopped.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn interleave(
    comparison: &Comparison,
    session: &run::Session<'_>,
    mut ended: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let count = comparison.arms.len();
    for repetition in 0..comparison.repetitions {
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
            compare_digests(&records, &mut record);
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

fn runs_again(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done | Outcome::Interrupted)
}

/// On a user's file nobody knows the right answer, but all arms must have seen the same.
fn compare_digests(earlier: &[Record], record: &mut Record) {
    let Answer::Digests(own) = &record.answer else { return };
    let others = earlier.iter().filter_map(|other| match &other.answer {
        Answer::Digests(theirs) if other.outcome == Outcome::Done => Some((other, theirs)),
        _ => None,
    });
    let mut compared = 0;
    for (other, theirs) in others {
        compared += 1;
        if let Some((thread, bucket)) = check::first_difference(own, theirs) {
            let says = format!(
                "saw other bytes than {} (thread {thread}, accesses from {}); is the file being written?",
                other.trial.arm,
                bucket as u64 * check::BUCKET
            );
            record.gates.push(Gate { name: "answer".to_owned(), finding: Finding::Spoiled, says });
            return;
        }
    }
    let says = format!("the digests equal those of {compared} earlier run(s) as far as both got");
    record.gates.push(Gate { name: "answer".to_owned(), finding: Finding::Fine, says });
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
