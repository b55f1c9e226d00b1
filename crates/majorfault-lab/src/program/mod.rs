//! A user's own program, run in turns: as it is, and in each way that changes something around it without changing it.
//!
//! `Task -> once -> Ran -> Standings -> tell`. The clock runs from the program's first instruction (and the work of the way
//! before it) to its end; what it prints and its exit code must stay the same.

mod once;
mod parameters;
mod standings;
mod tell;
pub mod ways;

pub use once::{Ran, enter, learn, once};
pub use parameters::ParameterValues;
pub use standings::{Standings, counts};
pub use tell::{Compared, csv, document, markdown, print, schema};

use majorfault::Bytes;
use std::ffi::OsString;
use std::path::PathBuf;
use ways::Way;

/// What is run.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The files that it reads, as far as they are known.
    pub files: Vec<PathBuf>,
    /// Whether these files are dropped from the page cache before each run.
    pub is_cold: bool,
    /// A command of the shell that runs before each run, outside the clock.
    pub prepare: Option<OsString>,
    /// Where ways keep what they learn before the first run.
    pub scratch: PathBuf,
}

/// A way of running the program within a memory limit: what takes turns.
#[derive(Clone, Copy)]
pub struct Turn {
    /// What is done around the program.
    pub way: &'static Way,
    /// The limit; `None` is the machine as it is.
    pub memory: Option<Bytes>,
    /// Whether the limit is part of its name: others have another one.
    pub names_memory: bool,
}

impl Turn {
    /// `assist`, or `assist, memory 512m`.
    pub fn name(&self) -> String {
        match (self.names_memory, self.memory) {
            (false, _) => self.way.name.to_owned(),
            (true, Some(bytes)) => format!("{}, memory {bytes}", self.way.name),
            (true, None) => format!("{}, no limit", self.way.name),
        }
    }
}
