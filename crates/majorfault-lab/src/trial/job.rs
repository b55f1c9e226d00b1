//! One job of a stage: what one thread does, in the words of fio's job files, as a plain value.
//!
//! A stage is a trial with jobs: all of them begin together, each with files, offsets, blocks, mix and pace of its own. What the
//! options mean is said by fio's HOWTO (fio 3.33, readwrite, random_distribution, fsync, rate, thinktime).

use super::Limits;
use serde::{Deserialize, Serialize};

/// Index of what is kept for reads in a pair.
pub const READS: usize = 0;

/// Index of what is kept for writes in a pair.
pub const WRITES: usize = 1;

/// What one thread of a stage does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The section's name.
    pub name: String,
    /// Its files, as places in the trial's list.
    pub files: Vec<usize>,
    /// Bytes of each of its files.
    pub file_bytes: u64,
    /// Where the range that is used begins in each file.
    pub offset_bytes: u64,
    /// Length of that range in each file.
    pub range_bytes: u64,
    /// Bytes to move in one loop, over all its files (`io_size`).
    pub io_bytes: u64,
    /// How often (`loops`).
    pub loops: u64,
    /// Reads among a hundred accesses (`rwmixread`): 100 only reads, 0 only writes.
    pub reads_percent: u8,
    /// Which place follows which.
    pub order: JobOrder,
    /// Which file follows which.
    pub turns: Turns,
    /// Bytes of an access: of reads, of writes.
    pub blocks: [Vec<BlockLength>; 2],
    /// What random places are multiples of: of reads, of writes (`blockalign`).
    pub align_bytes: [u64; 2],
    /// Accesses in flight, where the method has a queue.
    pub iodepth: u32,
    /// When it ends, beside its bytes.
    pub limits: Limits,
    /// When what was written is made durable.
    pub commits: Commits,
    /// What slows it down.
    pub pace: Pace,
    /// Time before its first access (`startdelay`).
    pub delay_ns: u64,
    /// Time that is run but not measured (`ramp_time`).
    pub ramp_ns: u64,
    /// Seed of its order.
    pub seed: u64,
    /// Whether what was written is read again at the end (`verify`).
    pub verify: bool,
    /// The jobs that are told together (`new_group`).
    pub group: u32,
    /// Which jobs end when this one does (`exitall`, `exit_what`).
    pub ends_with: EndsWith,
    /// Whether its files leave the page cache before each pass over them (`invalidate`, and not `direct`).
    #[serde(default)]
    pub drops_cache: bool,
    /// Its options as fio takes them, for fio as a peer; without those that say where files are.
    pub words: Vec<(String, Option<String>)>,
}

/// Which place of a file follows which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    /// One behind the other, so many bytes left out between them (`rw=read:4k`); negative goes backwards.
    Steps {
        /// Bytes added to the place after each access.
        hole_bytes: i64,
    },
    /// Drawn.
    Draws {
        /// The distribution: of reads, of writes.
        laws: [Law; 2],
        /// Accesses for each draw (`rw=randread:8`).
        run: u32,
        /// Whether the accesses of a run go to the same place, not one behind the other (`rw_sequencer=identical`).
        identical: bool,
        /// Whether each block comes once before any comes again (no `norandommap`).
        once: bool,
    },
}

/// A `random_distribution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// Each block as likely as any other.
    Uniform,
    /// The n-th block n^theta times rarer than the first; the frequent ones lie apart.
    Zipf(f64),
    /// A power law with this share; the frequent blocks lie apart.
    Pareto(f64),
    /// The mean of twelve uniform draws, moved by up to this percentage of the range.
    Normal(f64),
    /// So much percent of the accesses to so much percent of the range, one zone behind the other.
    Zoned(Vec<(u8, u8)>),
    /// So much percent of the accesses to so many bytes.
    ZonedBytes(Vec<(u8, u64)>),
    /// These blocks, again and again.
    Listed(Vec<u64>),
}

/// Which jobs end when one does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndsWith {
    /// None.
    #[default]
    None,
    /// Those of its group.
    Group,
    /// All of the stage.
    Stage,
}

/// Which file of several follows which (`file_service_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// The next one after so many accesses.
    RoundRobin(u32),
    /// The next one when one is done.
    Sequential,
    /// Drawn, for so many accesses.
    Drawn(u32),
}

/// A length that accesses have, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLength {
    /// Bytes of the shortest access.
    pub bytes: u64,
    /// Bytes of the longest one: lengths between are multiples of the shortest (`bsrange`).
    pub to_bytes: u64,
    /// Accesses of this length in a hundred.
    pub percent: u8,
}

/// When what was written is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commits {
    /// After so many writes; 0 is never.
    pub every: u64,
    /// Whether the file's times and length count, too (`fsync`), or only the bytes (`fdatasync`).
    pub metadata: bool,
    /// At the end of the job (`end_fsync`).
    pub at_end: bool,
}

/// What slows a job down. Zeros are no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Accesses a second: reads, writes (`rate_iops`).
    pub per_s: [u64; 2],
    /// Bytes a second: reads, writes (`rate`).
    pub bytes_per_s: [u64; 2],
    /// Whether accesses come at random moments of that mean (`rate_process=poisson`).
    pub poisson: bool,
    /// Time without accesses (`thinktime`).
    pub think_ns: u64,
    /// Of it, time spent computing (`thinktime_spin`).
    pub spin_ns: u64,
    /// Accesses between two such times (`thinktime_blocks`).
    pub think_every: u64,
    /// Its share of the accesses of those jobs that have one (`flow`).
    pub flow: u32,
}

impl Job {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.reads_percent < 100
    }

    /// Whether it reads.
    pub fn reads(&self) -> bool {
        self.reads_percent > 0 || self.verify
    }

    /// The longest access.
    pub fn longest_block(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| block.to_bytes).max().unwrap_or(0)
    }

    /// Whether every access, wherever it lies, is made of whole pieces of `unit` bytes.
    pub fn is_made_of(&self, unit: u64) -> bool {
        let sides = [(READS, self.reads()), (WRITES, self.writes())];
        let used = || sides.iter().filter(|(_, used)| *used).map(|(side, _)| *side);
        let lengths = used().flat_map(|side| &self.blocks[side]).all(|block| block.bytes.is_multiple_of(unit));
        let places = match &self.order {
            JobOrder::Steps { hole_bytes } => hole_bytes.unsigned_abs().is_multiple_of(unit),
            JobOrder::Draws { .. } => used().all(|side| self.align_bytes[side].is_multiple_of(unit)),
        };
        lengths && places && self.offset_bytes.is_multiple_of(unit) && self.file_bytes.is_multiple_of(unit)
    }
}

impl Pace {
    /// Whether nothing slows it down.
    pub fn is_free(&self) -> bool {
        *self == Pace { think_every: self.think_every, poisson: self.poisson, ..Pace::default() }
    }
}
