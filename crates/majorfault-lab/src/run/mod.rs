//! Runs trials: a worker process in its place does the work, this process watches it from outside and writes the record.
//!
//! The watcher is not in the memory-limited place, so its own sampling is neither slowed down by reclaim nor counted
//! as the trial's. It reads all counters at each phase boundary, while the worker waits outside the clock, and on
//! the timeline during the visit.

pub mod check;
mod drive;
pub mod gates;
mod jobs;
pub mod message;
mod meter;
pub mod page_cache;
mod watch;
pub mod worker;

use crate::kinds;
use crate::peer;
use crate::place::MemoryLimit;
use crate::place::child;
use crate::record::{self, Answer, CacheEvidence, Latency, Outcome, Record, Timeline};
use crate::trial::{Arm, Trial};
use majorfault::{Error, Result};
use message::Assignment;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the runs of one call of the tool have in common.
pub struct Session<'a> {
    /// Name of the session, in every record of it.
    pub name: String,
    /// The machine, looked at once.
    pub machine: record::Machine,
    /// Raised when the user wants to stop.
    pub stop: &'a AtomicBool,
}

/// Whether every job of a stage has room for its accesses.
///
/// Errors: Invalid.
pub fn check_jobs(trial: &Trial) -> Result<()> {
    trial.jobs.iter().try_for_each(|job| crate::workload::JobPlan::new(job).map(drop))
}

/// Runs `trial` once. Whatever goes wrong with the trial is in the record.
///
/// Errors: only where no worker can be started at all.
pub fn run(trial: &Trial, session: &Session<'_>) -> Result<Record> {
    let mut record = blank(trial, session);
    let program = match program(trial) {
        Ok(program) => program,
        Err(outcome) => return Ok(Record { outcome, ..record }),
    };
    let limit = match trial.memory_bytes.map(|bytes| MemoryLimit::create(majorfault::Bytes(bytes))).transpose() {
        Ok(limit) => limit,
        Err(missing) => return Ok(Record { outcome: Outcome::Missing(missing.into()), ..record }),
    };
    let worker = child::start_worker(limit.as_ref())?;
    let order = Assignment { trial: trial.clone(), program: program.unwrap_or_default() };
    watch::watch(&order, worker, limit.as_ref(), session, &mut record)?;
    record.traits = kinds::traits(trial, &record.settings, record.accesses());
    if record.outcome == Outcome::Done || record.outcome == Outcome::Interrupted {
        record.gates.extend(gates::all(&record));
        if let Answer::Wrong { first_offset, count } = record.answer {
            record.outcome = Outcome::Failed(format!(
                "{count} access(es) gave wrong bytes, the first at offset {first_offset}; do not trust this method here"
            ));
        }
    }
    Ok(record)
}

/// The peer's command line, where the arm is a peer.
fn program(trial: &Trial) -> std::result::Result<Option<Vec<String>>, Outcome> {
    let Arm::Peer(choice) = &trial.arm else { return Ok(None) };
    let found = peer::named(&choice.name).and_then(|peer| (peer.command)(trial, choice));
    found.map(Some).map_err(|error| match error {
        Error::Missing(missing) => Outcome::Missing(missing.into()),
        other => Outcome::Failed(other.to_string()),
    })
}

/// What makes these records: name, version and commit.
pub fn tool() -> String {
    format!("majorfault {} ({})", env!("CARGO_PKG_VERSION"), env!("MAJORFAULT_COMMIT"))
}

fn blank(trial: &Trial, session: &Session<'_>) -> Record {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Record {
        format: record::FORMAT,
        tool: tool(),
        session: session.name.clone(),
        began_unix_s: now.as_secs(),
        trial: trial.clone(),
        machine: session.machine.clone(),
        traits: kinds::traits(trial, &Default::default(), 0),
        settings: Default::default(),
        outcome: Outcome::Failed("it did not begin".to_owned()),
        phases: Vec::new(),
        threads: Vec::new(),
        timeline: Timeline { interval_ns: trial.interval_ns, ..Timeline::default() },
        latency: Latency::default(),
        queueing: Latency::default(),
        answer: Answer::Unchecked("nothing was read".to_owned()),
        cache: CacheEvidence::default(),
        files: Default::default(),
        gates: Vec::new(),
        missing: Vec::new(),
        notes: Vec::new(),
        figures: Default::default(),
        jobs: Vec::new(),
        cell: None,
        baseline: None,
        question: None,
        race: None,
        command: None,
    }
}
