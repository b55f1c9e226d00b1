//! A record: all that one run of a trial gave, as one line of JSON. Written once, never edited; reports read nothing else.
//!
//! Everything stored was seen: integers in base units, no means, no ratios. What is derived is derived in `report`.

use crate::traits::{Class, Traits};
use crate::trial::{Arm, Trial};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this format; raised when a reader of the old one would misread the new one.
///
/// 3: arms of a race have different numbers of runs, which a reader of format 2 takes for lost ones.
pub const FORMAT: u32 = 3;

/// What stands for a hypervisor that does not give its name.
pub const UNNAMED_HYPERVISOR: &str = "unnamed";

/// One run of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] when it was written.
    pub format: u32,
    /// What wrote it, with version.
    pub tool: String,
    /// Same for all records of one call of the tool; they were interleaved and may be compared.
    pub session: String,
    /// Seconds since 1970 when the run began.
    pub began_unix_s: u64,
    /// What was to be done.
    pub trial: Trial,
    /// Where it was done.
    pub machine: Machine,
    /// What the kinds of the trial declare of themselves; `None` where one of them is not known here.
    #[serde(default)]
    pub traits: Option<Traits>,
    /// The arm's settings in force, defaults filled in.
    pub settings: BTreeMap<String, String>,
    /// How it ended.
    pub outcome: Outcome,
    /// open, visit, close: what was inside the clock, in order. Empty where the run failed before.
    pub phases: Vec<Phase>,
    /// One per thread.
    pub threads: Vec<ThreadRun>,
    /// What happened when.
    pub timeline: Timeline,
    /// How long accesses took, over the whole run.
    pub latency: Latency,
    /// How long each access of a queue waited as the next one, until it was sent: for a slot of the queue, or for room in the
    /// pool. No part of the latency; empty for methods without a queue, and for peers.
    #[serde(default, skip_serializing_if = "Latency::is_empty")]
    pub queueing: Latency,
    /// What is known of the correctness of the bytes seen.
    pub answer: Answer,
    /// What the page cache held before and after.
    pub cache: CacheEvidence,
    /// The trial's files before and after, in their order; empty where they were not looked at.
    #[serde(default)]
    pub files: [Vec<FileState>; 2],
    /// Each condition for believing the figures, with what was found.
    pub gates: Vec<Gate>,
    /// Counters that could not be read, with reason and remedy.
    pub missing: Vec<MissingFacility>,
    /// What did not happen as asked, in sentences.
    pub notes: Vec<String>,
    /// What a procedure counted itself; the unit ends the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, u64>,
    /// What each job of a stage did, in the order of the trial's jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobRun>,
    /// Which cell of which experiment it is, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// The arm that its session's user has now, where they named it (`--baseline`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Arm>,
    /// Which of two questions about the same accesses it answers, where its session asked both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The race it is a run of; `None` where each arm runs as often as was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<Race>,
    /// The command that it is a run of, as a shell reads it, where the trial does not hold all of that: a job file is changed by options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// One of two questions about random reads of a file that fits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What the first pass over the cold file costs: each block once.
    FirstPass,
    /// What a read costs from then on, while the file is in memory.
    SteadyState,
}

/// What a race had decided before a run of it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Race {
    /// Time within which rounds are begun, over all questions of the session.
    pub time_ns: u64,
    /// Arms that were stopped before this run, in the order in which they were.
    pub stopped: Vec<StoppedArm>,
}

/// An arm that a race runs no more, because it is surely behind the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoppedArm {
    /// The arm.
    pub arm: Arm,
    /// Rounds in which it ran.
    pub rounds: u32,
}

/// The place of a run in an experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// The experiment's id: `S2`.
    pub experiment: String,
    /// The cell's name within it: `mmap random`.
    pub name: String,
    /// `quick`, `standard` or `full`.
    pub scale: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// To its end.
    Done,
    /// The arm cannot run here; a facility is missing.
    Missing(MissingFacility),
    /// With this error.
    Failed(String),
    /// Ended by the user half-way; the figures are of the part that ran.
    Interrupted,
}

/// A facility that is not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingFacility {
    /// The facility.
    pub what: String,
    /// What was found instead.
    pub reason: String,
    /// What would help.
    pub remedy: String,
}

/// The machine and the settings that decide about files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Type of the file system under the first file.
    pub filesystem: String,
    /// Device under the first file; empty where there is none.
    pub device: String,
    /// The device's `queue/read_ahead_kb`.
    pub read_ahead_kb: Option<u64>,
    /// The device's `queue/max_sectors_kb`.
    pub max_sectors_kb: Option<u64>,
    /// Whether the device says that it rotates.
    pub rotational: Option<bool>,
    /// `transparent_hugepage/enabled`, the one in force.
    pub thp: String,
    /// `classic` or `mglru`.
    pub lru: String,
    /// `v1`, `v2` or `none`: the interface of the memory cgroup.
    pub cgroup: String,
    /// The hypervisor's name, empty on bare metal; [`UNNAMED_HYPERVISOR`] where it gives none.
    pub hypervisor: String,
    /// Bytes of swap in use and in all.
    pub swap_bytes: [u64; 2],
    /// Why the files lie in memory though they look like files on a disk (a loop device, a disk of memory); `None` where
    /// they do not, or that cannot be seen.
    #[serde(default)]
    pub in_memory: Option<String>,
    /// Anything else that decides: `invlpgb`, paravirtual flush, mitigations off.
    pub remarks: Vec<String>,
}

/// One part of the run inside the clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `open` (map, populate, register), `visit` (the accesses), `close` (sync, unmap).
    pub name: String,
    /// Time of CLOCK_MONOTONIC when it began.
    pub began_ns: u64,
    /// How long it took; waiting for the observer between phases is not in it.
    pub wall_ns: u64,
    /// What each counter grew by (totals) or was at the end (levels).
    pub counters: BTreeMap<String, u64>,
}

/// One thread of the visit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRun {
    /// Accesses made.
    pub accesses: u64,
    /// Bytes handed to the program.
    pub bytes: u64,
    /// From the common start to this thread's last access.
    pub wall_ns: u64,
}

/// What one job of a stage did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// Its section's name.
    pub name: String,
    /// From its own start to its last access.
    pub wall_ns: u64,
    /// What it read.
    pub read: WayRun,
    /// What it wrote.
    pub write: WayRun,
    /// How often what it had written was made durable, and how long each time took.
    pub commits: WayRun,
}

/// Accesses that went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayRun {
    /// How many.
    pub accesses: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took.
    pub latency: Latency,
}

/// What happened when, on one clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Time of CLOCK_MONOTONIC at the start of the visit; every `at_ns` below counts from there.
    pub began_ns: u64,
    /// Length of one interval of `accesses`.
    pub interval_ns: u64,
    /// Accesses ended in each interval, over all threads. Empty for a peer that does not tell.
    pub accesses: Vec<u64>,
    /// Latency histogram of each interval.
    pub latency: Vec<Buckets>,
    /// When each sample of the counters was taken, from the start of the visit; the first may be before it.
    pub at_ns: Vec<i64>,
    /// The raw reading of each counter at these moments; `None` where it could not be read. Totals grow.
    pub counters: BTreeMap<String, Vec<Option<u64>>>,
}

/// A histogram: upper edge of each used bucket in nanoseconds, and its count; two significant digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets(pub Vec<(u64, u64)>);

/// How long accesses took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Accesses for each one that was timed: 1, or more where the clock would cost more than the access. 0: none was timed.
    pub timed_one_in: u64,
    /// Their histogram.
    pub buckets: Buckets,
}

impl Latency {
    /// Whether nothing was timed.
    pub fn is_empty(&self) -> bool {
        self.buckets.0.is_empty()
    }
}

/// What is known of the correctness of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Each access was compared with the content that the tool had made; all were right.
    Checked,
    /// This access did not have the bytes it should have: logical offset of the first one, and how many.
    Wrong {
        /// Offset of the first wrong extent.
        first_offset: u64,
        /// How many were wrong.
        count: u64,
    },
    /// A user's file: the digests of each 4096 accesses of each thread, to be compared between arms.
    Digests(Vec<Vec<u64>>),
    /// Not checked, for this reason.
    Unchecked(String),
}

/// What the page cache held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEvidence {
    /// Bytes of the range resident when the clock started; `None` where it can't be known.
    pub resident_before_bytes: Option<u64>,
    /// The same after the run.
    pub resident_after_bytes: Option<u64>,
    /// How it was found out: `cachestat`, `mincore`, or why not.
    pub source: String,
}

/// What tells a file from another, and from itself after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Number of the file system's device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Its length.
    pub size_bytes: u64,
    /// When its content was changed last, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A condition for believing the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// What is looked at: `cold`, `device bytes`, `swap`, `quota`, `busy machine`, `answer`.
    pub name: String,
    /// What was found.
    pub finding: GateFinding,
    /// The sentence with the numbers.
    pub says: String,
    /// What caused it: the set-up, or others.
    #[serde(default)]
    pub by: Cause,
    /// What to do about it; empty where nothing can be done, or nothing is to be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// What caused a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Of how the run was set up: the same command gives the same again.
    #[default]
    Setup,
    /// Of others on the machine: the same command may do better when they are quiet.
    Others,
}

/// What a gate found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateFinding {
    /// As it should be.
    Fine,
    /// Worth knowing; the figures stand.
    Noted,
    /// The figures do not mean what they say.
    Spoiled,
}

impl Record {
    /// Accesses of all threads.
    pub fn accesses(&self) -> u64 {
        self.threads.iter().map(|thread| thread.accesses).sum()
    }

    /// Bytes handed to the program by all threads.
    pub fn bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.bytes).sum()
    }

    /// The phase of this name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// What a growing counter grew by inside the clock, or `None` where no phase has it.
    ///
    /// A peer is watched as one piece, so that only its visit counts; warming comes before the clock.
    pub fn growth(&self, counter: &str) -> Option<u64> {
        let is_peer = matches!(self.trial.arm, Arm::Peer(_));
        let counts = |phase: &&Phase| if is_peer { phase.name == "visit" } else { phase.name != "warm" };
        let phases = self.phases.iter().filter(counts);
        phases.filter_map(|phase| phase.counters.get(counter).copied()).reduce(u64::saturating_add)
    }

    /// What the arm is; `None` where that is not known here.
    pub fn class(&self) -> Option<Class> {
        self.traits.as_ref().map(|traits| traits.class)
    }

    /// Whether it is the arm that does nothing, whose time is the harness's own.
    pub fn is_control(&self) -> bool {
        self.class() == Some(Class::Control)
    }

    /// The gates that spoiled it.
    pub fn spoilers(&self) -> impl Iterator<Item = &Gate> {
        self.gates.iter().filter(|gate| gate.finding == GateFinding::Spoiled)
    }

    /// What spoiled it, in sentences.
    pub fn spoiled(&self) -> impl Iterator<Item = &str> {
        self.spoilers().map(|gate| gate.says.as_str())
    }

    /// Whether it ran to its end and nothing spoiled it.
    pub fn is_valid(&self) -> bool {
        self.outcome == Outcome::Done && self.spoiled().next().is_none()
    }
}

impl From<majorfault::Missing> for MissingFacility {
    fn from(missing: majorfault::Missing) -> MissingFacility {
        let majorfault::Missing { what, reason, remedy, .. } = missing;
        MissingFacility { what, reason, remedy }
    }
}
