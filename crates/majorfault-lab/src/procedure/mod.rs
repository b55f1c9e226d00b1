//! Procedures: what an experiment does that is not a workload on one file, step by step, in the worker.
//!
//! Each is a file with a `const` [`Procedure`]; [`ALL`] names them once. A procedure does its steps as phases of its
//! [`Stage`]: the clock runs inside a phase and stands between them, while the watcher reads the counters. The phase that
//! is compared is called `visit`. A procedure checks its own answers and fails on a wrong one.

pub mod bwa;
mod evict;
mod hint;
pub mod many_files;
mod memory_file;
pub mod prefault;
mod stream_beside;
mod will_need;
mod write_mapped;

use crate::record::ThreadRun;
use majorfault::params::Param;
use majorfault::sys::clock::monotonic;
use majorfault::{Error, Given, Nanos, Need, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every procedure.
pub const ALL: &[&Procedure] = &[
    &many_files::PROCEDURE,
    &evict::PROCEDURE,
    &write_mapped::PROCEDURE,
    &hint::PROCEDURE,
    &prefault::PROCEDURE,
    &will_need::PROCEDURE,
    &stream_beside::PROCEDURE,
    &bwa::PROCEDURE,
];

/// A fixed sequence of steps.
pub struct Procedure {
    /// Name in records.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What must be here for it.
    pub needs: &'static [&'static Need],
    /// Whether it makes the machine swap, so that swapping is no disturbance.
    pub swaps: bool,
    /// Its parameters.
    pub params: fn() -> Vec<Param>,
    /// Does it.
    ///
    /// Errors: Invalid (unknown parameter), Missing, Io; Invalid for a wrong answer.
    pub run: fn(&Given, &mut Stage<'_>) -> Result<()>,
}

/// The procedure of this name.
///
/// Errors: Invalid, listing the names there are.
pub fn named(name: &str) -> Result<&'static Procedure> {
    ALL.iter().copied().find(|procedure| procedure.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|procedure| procedure.name).collect();
        Error::Invalid(format!("there is no procedure \"{name}\"; there are {}", names.join(", ")))
    })
}

/// Told at the end of a phase: its name, when it began, when it ended.
type Boundary<'a> = &'a mut dyn FnMut(&str, Nanos, Nanos);

/// Where a procedure runs.
pub struct Stage<'a> {
    dir: PathBuf,
    boundary: Boundary<'a>,
    told: ProcedureReport,
}

/// What a procedure returns, apart from its phases.
#[derive(Default)]
pub struct ProcedureReport {
    /// What it counted itself; the unit ends the name.
    pub figures: BTreeMap<String, u64>,
    /// What did not happen as asked.
    pub notes: Vec<String>,
    /// Its accesses.
    pub threads: Vec<ThreadRun>,
}

impl<'a> Stage<'a> {
    /// A stage with its files below `dir` that tells each phase to `boundary`.
    pub fn new(dir: PathBuf, boundary: Boundary<'a>) -> Stage<'a> {
        Stage { dir, boundary, told: ProcedureReport::default() }
    }

    /// The directory, or the file, that the experiment made for it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Does `work` with the clock running.
    pub fn phase<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = monotonic();
        let done = work()?;
        let ended = monotonic();
        // Things that `done` holds stay as they are while the watcher looks.
        (self.boundary)(name, began, ended);
        Ok(done)
    }

    /// Keeps a figure.
    pub fn figure(&mut self, name: &str, value: u64) {
        self.told.figures.insert(name.to_owned(), value);
    }

    /// A figure that was kept.
    pub fn kept(&self, name: &str) -> Option<u64> {
        self.told.figures.get(name).copied()
    }

    /// Keeps a sentence.
    pub fn note(&mut self, says: impl Into<String>) {
        self.told.notes.push(says.into());
    }

    /// Accesses made in the visit, and their bytes.
    pub fn accessed(&mut self, accesses: u64, bytes: u64) {
        self.told.threads = vec![ThreadRun { accesses, bytes, wall_ns: 0 }];
    }

    /// What was kept.
    pub fn told(self) -> ProcedureReport {
        self.told
    }
}

/// A file without a name in `dir`.
fn unnamed_in(dir: &Path) -> Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let opened = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
    opened.map(std::fs::File::from).map_err(|error| {
        Error::io("make a file without a name", dir, error).with_remedy("name another directory with --dir")
    })
}

/// A thread of this process that only spins, so that TLB flushes have a processor to interrupt; ends on drop.
struct Company {
    end: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Company {
    fn start() -> Company {
        use std::sync::atomic::{AtomicBool, Ordering};
        let end = std::sync::Arc::new(AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Company { end, thread: Some(thread) }
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs a procedure here, on small parameters; its phases' names.
    pub fn run(name: &str, given: &str, dir: &Path) -> Result<(Vec<String>, ProcedureReport)> {
        let mut phases = Vec::new();
        let mut boundary = |name: &str, _: Nanos, _: Nanos| phases.push(name.to_owned());
        let mut stage = Stage::new(dir.to_owned(), &mut boundary);
        (named(name)?.run)(&given.parse()?, &mut stage)?;
        let told = stage.told();
        Ok((phases, told))
    }

    #[test]
    fn every_procedure_refuses_a_parameter_it_does_not_have() {
        for procedure in ALL {
            let refused = run(procedure.name, "nonsense=1", Path::new("/var/tmp"));

            assert!(matches!(refused, Err(Error::Invalid(_))), "{}", procedure.name);
        }
    }
}
