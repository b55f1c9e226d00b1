//! The options that say what is measured, under the names fio's users know.

use crate::command::guest::GuestPlace;
use crate::lineup;
use crate::stats;
use crate::traits::Ends;
use crate::trial::{Arm, CacheState, Choice, Direction, Limits};
use crate::workload;
use clap::{Args, ValueEnum};
use majorfault::trace::{Trace, TracedFile};
use majorfault::{Bytes, Error, Given, Nanos, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// fio's `rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Sequential reads
    Read,
    /// Random reads
    Randread,
    /// Sequential writes
    Write,
    /// Random writes
    Randwrite,
    /// Sequential reads and writes
    #[value(name = "rw", alias = "readwrite")]
    Mixed,
    /// Random reads and writes
    #[value(name = "randrw")]
    RandMixed,
}

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// Direction and order of the accesses
    #[arg(long, value_enum, default_value = "randread", help_heading = "Workload")]
    pub rw: Rw,
    /// Reads among a hundred accesses of rw and randrw [default: 50]
    #[arg(long, value_name = "PERCENT", help_heading = "Workload")]
    pub rwmixread: Option<u8>,
    /// Writes among a hundred accesses of rw and randrw
    #[arg(long, value_name = "PERCENT", conflicts_with = "rwmixread", help_heading = "Workload")]
    pub rwmixwrite: Option<u8>,
    /// Make what was written durable after every N writes (fsync)
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub fsync: Option<u64>,
    /// Make what was written durable after every N writes (fdatasync: without the file's times)
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub fdatasync: Option<u64>,
    /// Of a job file only this section; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub section: Vec<String>,
    /// An option of fio for every job of a job file, over what the file says: OPTION=VALUE; may be repeated
    #[arg(long, value_name = "OPTION", help_heading = "Workload")]
    pub set: Vec<String>,
    /// Order of the accesses, where it is neither sequential nor uniform: NAME[:key=value,...], see `majorfault list workloads`
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub workload: Option<String>,
    /// Replay the accesses recorded by `majorfault trace`, on the file that was traced unless another is named
    #[arg(long, value_name = "FILE", conflicts_with = "workload", help_heading = "Workload")]
    pub trace: Option<PathBuf>,
    /// Bytes of one access [default: 4k; 64 for strided]
    #[arg(long, alias = "blocksize", help_heading = "Workload")]
    pub bs: Option<Bytes>,
    /// Accesses kept in flight by each thread, where the method has a queue
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Workload")]
    pub iodepth: u32,
    /// Threads [default: 1, or as many as were traced]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Workload")]
    pub numjobs: Option<u32>,
    /// Seed of the order (and of the content of made files)
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub randseed: u64,
    /// End each run after this time [default: 1s with --runs, else 500ms; for the steady state half of it]
    #[arg(long, value_name = "TIME", help_heading = "Workload")]
    pub runtime: Option<Nanos>,
    /// End each run after this number of accesses, counted over all threads
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub number_ios: Option<u64>,
    /// When the workload is done, start it again until the runtime is over [default for random orders]
    #[arg(long, alias = "time_based", help_heading = "Workload")]
    pub time_based: bool,

    /// How much of the file is used, or the size of the file to make [default: the whole file, or 1g]
    #[arg(long, help_heading = "Data")]
    pub size: Option<Bytes>,
    /// Where the range that is used begins in each file
    #[arg(long, default_value_t = Bytes(0), help_heading = "Data")]
    pub offset: Bytes,
    /// Bytes taken from one file before the next one follows, where there are several
    #[arg(long, default_value_t = Bytes::mib(1), help_heading = "Data")]
    pub stripe: Bytes,
    /// Number of files to make
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Data")]
    pub nrfiles: u32,
    /// Directory for the file to make; it must be on a disk [default: /var/tmp]
    #[arg(long, alias = "directory", help_heading = "Data")]
    pub dir: Option<PathBuf>,
    /// Write to the files named; their content is lost
    #[arg(long, help_heading = "Data")]
    pub allow_overwrite: bool,

    /// Memory limit, page cache included; `none` for no limit [default: none, or a quarter of the size where a file is made]
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = "Conditions")]
    pub memory: Option<Memory>,
    #[command(flatten)]
    pub place: GuestPlace,
    /// State of the page cache when each run starts: cold, warm, warm:pages, hot:FRACTION or asis [default: cold; where random
    /// reads would soon find the file in memory, both the first pass and the steady state]
    #[arg(long, value_name = "STATE", help_heading = "Conditions")]
    pub cache: Option<CacheState>,
    /// An access method or peer: NAME[:key=value,...], see `majorfault list methods`; may be repeated
    /// [default: every method that suits the workload]
    #[arg(long, short, value_name = "NAME", help_heading = "Conditions")]
    pub method: Vec<String>,
    /// The method that you use now: the first line says how much faster the best one is. NAME[:key=value,...]
    /// [default: mmap without a hint, or pread where mmap takes no part]
    #[arg(long, value_name = "NAME", help_heading = "Conditions")]
    pub baseline: Option<String>,
    /// Another program to measure beside the methods: fio[:key=value,...], see `majorfault list peers`
    #[arg(long, value_name = "NAME", conflicts_with = "no_peer", help_heading = "Conditions")]
    pub peer: Vec<String>,
    /// Do not measure other programs (fio)
    #[arg(long, help_heading = "Conditions")]
    pub no_peer: bool,
    /// Exactly so many runs of each method, interleaved; a verdict needs six [default: as many as the answer takes, within --time]
    #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Conditions")]
    pub runs: Option<u32>,
    /// Time for the whole measurement: methods that are surely behind are stopped early, and it ends when the answer is sure
    #[arg(long, value_name = "TIME", default_value = "60s", conflicts_with = "runs", help_heading = "Conditions")]
    pub time: Nanos,
    /// Count cycles, cache and TLB misses also where that makes every wait longer, as some hypervisors do: for the counts,
    /// not for the times
    #[arg(long, help_heading = "Conditions")]
    pub hardware_counters: bool,
    /// Time between two samples of the timeline [default: 250ms, less for runs of less than 2.5 s, down to 100ms]
    #[arg(long, value_name = "TIME", help_heading = "Conditions")]
    pub interval: Option<Nanos>,
}

/// Between two samples of the timeline, where nobody says: a tenth of a run's time, within these.
const INTERVALS: [Nanos; 2] = [Nanos(100_000_000), Nanos(250_000_000)];

/// The shortest that is taken.
const SHORTEST_INTERVAL: Nanos = Nanos(1_000_000);

/// A memory limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The machine as it is.
    Unlimited,
    /// This much.
    Limit(Bytes),
}

fn memory(text: &str) -> std::result::Result<Memory, String> {
    match text {
        "none" => Ok(Memory::Unlimited),
        _ => text.parse().map(Memory::Limit).map_err(|why: majorfault::units::ParseError| why.to_string()),
    }
}

impl CompareOptions {
    /// Which way bytes go.
    pub fn direction(&self) -> Direction {
        match self.rw {
            Rw::Read | Rw::Randread => Direction::Read,
            Rw::Write | Rw::Randwrite | Rw::Mixed | Rw::RandMixed => Direction::Write,
        }
    }

    /// Whether it takes jobs to do it: reads and writes in one run, commits, options of fio.
    pub fn is_for_jobs(&self) -> bool {
        matches!(self.rw, Rw::Mixed | Rw::RandMixed)
            || self.fsync.is_some()
            || self.fdatasync.is_some()
            || !self.set.is_empty()
    }

    /// Whether its accesses end in themselves.
    pub fn is_random(&self) -> bool {
        matches!(self.rw, Rw::Randread | Rw::Randwrite | Rw::RandMixed)
    }

    /// The order, checked.
    ///
    /// Errors: Invalid for an unknown name or parameter.
    pub fn workload(&self) -> Result<Choice> {
        if let Some(path) = &self.trace {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let Some(text) = path.to_str() else {
                return Err(Error::Invalid(format!(
                    "the name of the trace {} is not UTF-8; give it a link with a plain name",
                    path.display()
                )));
            };
            let given = BTreeMap::from([("file".to_owned(), text.to_owned())]);
            return Ok(Choice { name: "trace".to_owned(), given });
        }
        let Some(text) = &self.workload else {
            return Ok(Choice::plain(match self.rw {
                Rw::Read | Rw::Write | Rw::Mixed => "sequential",
                Rw::Randread | Rw::Randwrite | Rw::RandMixed => "uniform",
            }));
        };
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let given: Given = parameters.parse()?;
        given.only(&(workload::named(name)?.params)())?;
        Ok(Choice { name: name.to_owned(), given: given.0 })
    }

    /// The file whose accesses are replayed, where that is asked for.
    ///
    /// Errors: Io, Invalid (not a trace).
    pub fn traced(&self) -> Result<Option<TracedFile>> {
        let Some(path) = &self.trace else { return Ok(None) };
        Trace::read(path)?.file(None, None).cloned().map(Some)
    }

    /// Bytes of one access.
    pub fn block(&self) -> Result<Bytes> {
        Ok(self.bs.unwrap_or(workload::named(&self.workload()?.name)?.block))
    }

    /// The state of the page cache where nothing more is said.
    pub fn cache(&self) -> CacheState {
        self.cache.unwrap_or(CacheState::Cold)
    }

    /// The number of runs where it was fixed, or must be.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(stats::LEAST as u32)
    }

    /// Whether how the accesses meet the page cache was left to us: random reads, with nothing said about their order, their number
    /// or the cache.
    pub fn leaves_the_question_open(&self) -> bool {
        let is_said = self.workload.is_some() || self.trace.is_some() || self.cache.is_some();
        self.rw == Rw::Randread && !is_said && !self.time_based && self.number_ios.is_none()
    }

    /// How long a run takes where nothing is said of it.
    fn usual_runtime(&self) -> Nanos {
        Nanos::millis(if self.runs.is_some() { 1000 } else { 500 })
    }

    /// When each run ends.
    pub fn limits(&self) -> Result<Limits> {
        let is_endless = workload::named(&self.workload()?.name)?.ends == Ends::Endless;
        let runtime = match (self.runtime, self.number_ios) {
            (None, Some(_)) => None,
            (runtime, _) => Some(runtime.unwrap_or(self.usual_runtime()).0),
        };
        let time_based = self.time_based || (is_endless && runtime.is_some());
        Ok(Limits { runtime_ns: runtime, accesses: self.number_ios, time_based })
    }

    /// Nanoseconds between two samples of the timeline of runs that end after `runtime_ns`, where they do.
    pub fn interval_ns(&self, runtime_ns: Option<u64>) -> u64 {
        let [shortest, longest] = INTERVALS;
        let usual = runtime_ns.map_or(longest.0, |run| (run / 10).clamp(shortest.0, longest.0));
        self.interval.map_or(usual, |interval| interval.0.max(SHORTEST_INTERVAL.0))
    }

    /// The arms to compare.
    ///
    /// Errors: Invalid for an unknown name or parameter.
    pub fn arms(&self) -> Result<Vec<Arm>> {
        let named =
            |texts: &[String]| texts.iter().map(|text| lineup::arm(text, self.iodepth)).collect::<Result<Vec<_>>>();
        let methods = match self.method.as_slice() {
            [] => lineup::usual(self.direction(), self.iodepth),
            texts => named(texts)?,
        };
        let peers = match (self.peer.as_slice(), self.method.as_slice()) {
            ([], []) => lineup::peers(),
            (texts, _) => named(texts)?,
        };
        let stays = |arm: &Arm| !self.no_peer || matches!(arm, Arm::Method(_));
        let arms: Vec<Arm> = methods.into_iter().chain(peers).filter(stays).collect();
        if arms.is_empty() {
            return Err(Error::Invalid("--no-peer leaves nothing to compare; name a --method".to_owned()));
        }
        Ok(arms)
    }

    /// The method that the user has now, where they named it; it takes part, and joins `arms` where it was not among them.
    ///
    /// Errors: Invalid for an unknown name or parameter.
    pub fn baseline(&self, arms: &mut Vec<Arm>) -> Result<Option<Arm>> {
        let join = |text: &String| lineup::join(arms, lineup::arm(text, self.iodepth)?);
        self.baseline.as_ref().map(join).transpose()
    }
}
