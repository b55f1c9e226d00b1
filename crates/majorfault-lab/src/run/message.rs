//! What the watching process and the worker tell each other: one JSON value a line, over the worker's pipes.

use crate::record::{Answer, CacheEvidence, JobRun, Latency, Outcome, ThreadRun, Timeline};
use crate::trial::Trial;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first line to the worker; each later one is a [`Signal`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// What to do.
    pub trial: Trial,
    /// A program to become once the cache is prepared, instead of running the trial: a peer.
    pub program: Vec<String>,
}

/// A word to the worker while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The counters are read; begin the next phase.
    Go,
    /// End the visit now and report what there is.
    Stop,
}

/// A line from the worker. After `Ready` and each `Phase` it waits for a [`Signal`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The page cache is as the trial wants it.
    Ready {
        /// What is in it.
        cache: CacheEvidence,
        /// What did not happen as asked.
        notes: Vec<String>,
    },
    /// A phase ended.
    Phase {
        /// `open`, `visit` or `close`.
        name: String,
        /// When it began.
        began_ns: u64,
        /// How long it took.
        wall_ns: u64,
    },
    /// The end; the worker exits.
    Done(Box<Ended>),
}

/// All that the worker knows at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// Settings in force.
    pub settings: BTreeMap<String, String>,
    /// What did not happen as asked.
    pub notes: Vec<String>,
    /// One per thread.
    pub threads: Vec<ThreadRun>,
    /// Accesses and latencies by interval; the counters are the watcher's part.
    pub timeline: Timeline,
    /// Latencies of the whole run.
    pub latency: Latency,
    /// How long accesses waited until they were sent.
    pub queueing: Latency,
    /// Whether the bytes were right.
    pub answer: Answer,
    /// What a procedure counted itself.
    #[serde(default)]
    pub figures: BTreeMap<String, u64>,
    /// One for each job of a stage.
    #[serde(default)]
    pub jobs: Vec<JobRun>,
}

impl Ended {
    /// An end without figures.
    pub fn without_figures(outcome: Outcome) -> Ended {
        Ended {
            outcome,
            settings: BTreeMap::new(),
            notes: Vec::new(),
            threads: Vec::new(),
            timeline: Timeline::default(),
            latency: Latency::default(),
            queueing: Latency::default(),
            answer: Answer::Unchecked("nothing was read".to_owned()),
            figures: BTreeMap::new(),
            jobs: Vec::new(),
        }
    }
}
