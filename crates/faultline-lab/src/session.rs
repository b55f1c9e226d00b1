//! A comparison: the same workload through several arms, repeated in turns, each run a record on disk as it ends.

use crate::experiment::Planned;
use crate::record::{Answer, Cell, Finding, Gate, Outcome, Record};
use crate::run::{self, check};
use crate::trial::{Arm, Trial};
use faultline::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{Read, Write};
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

/// The records of these files, in order; compressed by gzip or plain.
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

/// First bytes of what gzip compressed (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether a file begins as one that gzip compressed; one that cannot be read does not.
pub fn is_compressed(path: &Path) -> bool {
    let mut first = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok_and(|()| first == GZIP)
}

fn read_text(path: &Path) -> Result<String> {
    let read = || -> std::io::Result<String> {
        let mut bytes = Vec::new();
        match path == Path::new("-") {
            true => std::io::stdin().read_to_end(&mut bytes)?,
            false => File::open(path)?.read_to_end(&mut bytes)?,
        };
        let mut text = String::new();
        match bytes.starts_with(&GZIP) {
            true => MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text)?,
            false => bytes.as_slice().read_to_string(&mut text)?,
        };
        Ok(text)
    };
    read().map_err(|error| Error::io("read records", path, error))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;
    use flate2::{Compression, write::GzEncoder};

    fn lines(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|record| [serde_json::to_vec(record).unwrap(), b"\n".to_vec()].concat()).collect()
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_records_are_read_as_plain_ones_also_in_several_members() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("a.jsonl"), dir.path().join("a.jsonl.gz"));
        let records: Vec<Record> = (0..3).map(|turn| Run::of("mmap").repetition(turn).record()).collect();
        fs::write(&plain, lines(&records)).unwrap();
        fs::write(&packed, [compressed(&lines(&records[..1])), compressed(&lines(&records[1..]))].concat()).unwrap();

        assert_eq!(load(std::slice::from_ref(&packed)).unwrap(), records);
        assert_eq!(load(std::slice::from_ref(&plain)).unwrap(), records);
        assert!(is_compressed(&packed) && !is_compressed(&plain));
    }

    #[test]
    fn compressed_records_that_end_early_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl.gz");
        let whole = compressed(&lines(&[Run::of("mmap").record()]));
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();

        let error = load(&[path]).unwrap_err().to_string();

        assert!(error.contains("read records") && error.contains("a.jsonl.gz"), "{error}");
    }
}
