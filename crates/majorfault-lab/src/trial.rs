//! A trial: everything that decides what one run does, as a plain value that a record keeps and a child process reads.

mod job;
mod paths;

use crate::data::MadeContent;
use majorfault::params::Given;
use majorfault::{Bytes, Layout, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub use job::{BlockLength, Commits, EndsWith, Job, JobOrder, Law, Pace, READS, Turns, WRITES};

/// One run of one workload through one access method, in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The files and the range of them that is used.
    pub data: Data,
    /// Which extents, in which order.
    pub workload: Choice,
    /// Which way bytes go.
    pub direction: Direction,
    /// The method, peer or procedure that accesses them.
    pub arm: Arm,
    /// Bytes of one access.
    pub block_bytes: u64,
    /// Threads that access at the same time, each with its own share or its own order.
    pub threads: u32,
    /// Accesses kept in flight by each thread where the method has a queue.
    pub iodepth: u32,
    /// When it ends.
    pub limits: Limits,
    /// Memory limit of the place, page cache included; `None` is the machine as it is.
    pub memory_bytes: Option<u64>,
    /// State of the page cache at the start.
    pub cache: CacheState,
    /// Seed of the order.
    pub seed: u64,
    /// Length of one interval of the timeline.
    pub interval_ns: u64,
    /// Which of the interleaved repetitions this is, from 0.
    pub repetition: u32,
    /// Whether the processor's counters are read also where that makes waits longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_hardware: bool,
    /// The jobs of a stage, one for each thread; then its files and limits are theirs. Empty for one workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// The stage's name, where it is one of several: which jobs of which file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
}

/// The files of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// In order of their turn.
    #[serde(with = "paths")]
    pub files: Vec<PathBuf>,
    /// Where the range begins in each file.
    pub offset_bytes: u64,
    /// Length of the range over all files.
    pub size_bytes: u64,
    /// Bytes from one file before the next one's turn.
    pub stripe_bytes: u64,
    /// Seed of the content, where the tool made the files: then every access is checked against it.
    pub content_seed: Option<u64>,
}

/// A kind by its name, with the parameters given for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Name in the kind's registry.
    pub name: String,
    /// Parameters, by name.
    #[serde(default)]
    pub given: BTreeMap<String, String>,
}

/// What accesses the bytes in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// An access method of the library.
    Method(Choice),
    /// Another program doing the same (fio).
    Peer(Choice),
    /// A fixed sequence of steps that is not made of accesses to one file; it reads its parameters, not the workload.
    Procedure(Choice),
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file; made durable inside the clock.
    Write,
}

/// When a trial ends: at the first of these; the order ends it too, unless it is told to go round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// After this time.
    pub runtime_ns: Option<u64>,
    /// After this number of accesses, over all threads.
    pub accesses: Option<u64>,
    /// Begin again at the end of the order until the time is over (fio's `time_based`).
    pub time_based: bool,
}

/// State of the page cache when the clock starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Nothing of the range cached, proven.
    Cold,
    /// The range read once from front to end in 1 MiB pieces, which leaves large folios where the file system has them.
    Warm,
    /// The range read once page by page in random order, which leaves small folios.
    WarmPages,
    /// The first fraction of the range read as for `Warm`, the rest cold.
    Hot(f64),
    /// Whatever is there.
    AsFound,
}

impl CacheState {
    /// The first part of the range that is in memory when the clock starts; `None` where nobody brings it there.
    pub fn warmed(self) -> Option<f64> {
        match self {
            CacheState::Warm | CacheState::WarmPages => Some(1.0),
            CacheState::Hot(fraction) => Some(fraction),
            CacheState::Cold | CacheState::AsFound => None,
        }
    }
}

impl Trial {
    /// The layout to open its files with.
    pub fn layout(&self) -> Layout {
        Layout {
            offset: Bytes(self.data.offset_bytes),
            size: Some(Bytes(self.data.size_bytes)),
            stripe: Bytes(self.data.stripe_bytes),
            write: self.direction == Direction::Write,
        }
    }

    /// The content that reads expect in made files, and that writes put into any.
    pub fn content(&self) -> MadeContent {
        MadeContent::of(self.data.content_seed.unwrap_or(self.seed))
    }

    /// The time after which it ends at the latest, from its first access on; `None` where only bytes or accesses end it, or where writes
    /// have to become durable after that.
    pub fn longest(&self) -> Option<Nanos> {
        let of_job = |job: &Job| {
            let only_reads = job.reads_percent == 100 && !job.verify;
            Some(job.delay_ns + job.ramp_ns + job.limits.runtime_ns.filter(|_| only_reads)?)
        };
        let only_reads = self.direction == Direction::Read;
        match self.jobs.is_empty() {
            true => self.limits.runtime_ns.filter(|_| only_reads).map(Nanos),
            false => self.jobs.iter().map(of_job).try_fold(0, |longest, time| Some(longest.max(time?))).map(Nanos),
        }
    }

    /// Length of one interval of the timeline.
    pub fn interval(&self) -> Nanos {
        Nanos(self.interval_ns)
    }
}

impl Choice {
    /// The kind `name` with its defaults.
    pub fn plain(name: &str) -> Choice {
        Choice { name: name.to_owned(), given: BTreeMap::new() }
    }

    /// The same with `key` set to `value`.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Choice {
        self.given.insert(key.to_owned(), value.to_string());
        self
    }

    /// The same with `depth` in flight, where the kind has that parameter and was told nothing else.
    pub fn at_depth(&self, parameter: Option<&str>, depth: u32) -> Choice {
        match parameter {
            Some(parameter) if !self.given.contains_key(parameter) => self.clone().with(parameter, depth),
            _ => self.clone(),
        }
    }

    /// The parameters as the library takes them.
    pub fn given(&self) -> Given {
        Given(self.given.clone())
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (key, value) in &self.given {
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arm::Method(choice) | Arm::Peer(choice) | Arm::Procedure(choice) => choice.fmt(f),
        }
    }
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheState::Cold => f.write_str("cold"),
            CacheState::Warm => f.write_str("warm"),
            CacheState::WarmPages => f.write_str("warm:pages"),
            CacheState::Hot(fraction) => write!(f, "hot:{fraction}"),
            CacheState::AsFound => f.write_str("asis"),
        }
    }
}

impl std::str::FromStr for CacheState {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheState, String> {
        let hot = |fraction: &str| fraction.parse::<f64>().ok().filter(|f| (0.0..=1.0).contains(f));
        match text {
            "cold" => Ok(CacheState::Cold),
            "warm" => Ok(CacheState::Warm),
            "warm:pages" => Ok(CacheState::WarmPages),
            "asis" => Ok(CacheState::AsFound),
            _ => text.strip_prefix("hot:").and_then(hot).map(CacheState::Hot).ok_or_else(|| {
                format!("\"{text}\" is not a cache state; legal are cold, warm, warm:pages, hot:0.5, asis")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_state() -> impl Strategy<Value = CacheState> {
        use CacheState::*;
        prop_oneof![Just(Cold), Just(Warm), Just(WarmPages), Just(AsFound), (0.0f64..=1.0).prop_map(Hot)]
    }

    proptest! {
        #[test]
        fn any_text_is_a_cache_state_or_an_error(text in "\\PC*|(cold|warm|hot|asis)?:?[0-9a-z.e-]{0,8}") {
            let _ = text.parse::<CacheState>();
        }

        #[test]
        fn a_cache_state_that_is_printed_reads_back(state in any_state()) {
            prop_assert_eq!(state.to_string().parse(), Ok(state));
        }
    }
}
