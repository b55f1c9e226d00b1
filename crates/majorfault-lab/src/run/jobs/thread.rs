//! One job's thread: accesses from its plan, in batches that end where it has to commit, to wait or to think.

use super::Ways;
use super::pace::{Clock, Flows, is_slowed, sleep};
use crate::data::{MadeContent, sum_words};
use crate::record::{Latency, WayRun};
use crate::run::check::Check;
use crate::run::drive::Driven;
use crate::run::meter::{Meter, Until, WayTally, buckets};
use crate::trial::{CacheState, Job, READS, Trial, WRITES};
use crate::workload::{Access, JobPlan};
use hdrhistogram::Histogram;
use majorfault::access::{Class, Filler, Method, Reader, Visitor};
use majorfault::sys::cache::{self, FileAdvice};
use majorfault::sys::clock::monotonic;
use majorfault::{Error, Extent, Nanos, Result};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Accesses of the longest batch.
const BATCH: u64 = 4096;

/// Accesses of a window, for each one in flight: long enough that filling and draining a queue twice hardly shows.
const WINDOW: u64 = 32;

/// Written extents for each one that is kept and read back.
const KEEP_ONE_IN: u64 = 61;

/// The thread of one job.
pub struct JobThread<'a> {
    job: &'a Job,
    number: usize,
    method: &'static Method,
    paths: Vec<&'a Path>,
    /// Open where commits or dropping need them.
    files: Vec<File>,
    reader: Box<dyn Reader>,
    plan: Result<JobPlan<'a>>,
    /// An access that was planned and has to wait.
    pending: Option<Access>,
    /// Files that leave the page cache before the next access: the job passes over them again.
    passed: Vec<usize>,
    /// Whether they do.
    drops: bool,
    check: Check,
    content: MadeContent,
    generation: u64,
    ways: &'a Ways,
    /// Accesses made for the flow.
    flowed: u64,
    /// Number of the next access.
    first: u64,
    writes: u64,
    since_commit: u64,
    written: Vec<Extent>,
    commits: Histogram<u64>,
    interval: Nanos,
}

/// What a thread did, with its reader still open.
pub struct RanJob {
    /// As any other thread.
    pub driven: Driven,
    /// Reads and writes.
    pub ways: [WayTally; 2],
    /// How long each commit took.
    pub commits: Histogram<u64>,
    /// From its own start to its end.
    pub wall_ns: u64,
    /// The job's reader.
    pub reader: Box<dyn Reader>,
}

/// The thread's state that the reader's callbacks change.
struct Hands<'a, 'b> {
    meter: &'a mut Meter<'b>,
    check: &'a mut Check,
    accesses: &'a [(u64, Extent)],
    /// Bytes of each file: content is known by the place in a file.
    file_bytes: u64,
    content: MadeContent,
    generation: u64,
    /// When everything was written that is then made durable.
    all_written: Nanos,
}

impl Hands<'_, '_> {
    fn in_file(&self, index: usize) -> Extent {
        let (_, extent) = self.accesses[index];
        Extent { offset: extent.offset % self.file_bytes, ..extent }
    }
}

impl Visitor for Hands<'_, '_> {
    fn submitted(&mut self, index: usize) {
        self.meter.submitted(index);
    }

    fn arrived(&mut self, index: usize) {
        self.meter.arrived(index);
    }

    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        let (number, _) = self.accesses[index];
        self.check.note(number, self.in_file(index), sum_words(bytes));
        self.meter.ended(index, bytes.len())
    }
}

impl Filler for Hands<'_, '_> {
    fn submitted(&mut self, index: usize) {
        self.meter.submitted(index);
    }

    fn written(&mut self, index: usize) {
        self.meter.written(index);
    }

    fn all_written(&mut self) {
        self.all_written = monotonic();
    }

    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        let extent = self.in_file(index);
        // Whole words are a condition of jobs that write, checked before they start.
        let _ = match self.generation {
            0 => self.content.fill_words(extent, bytes),
            generation => self.content.fill(extent, generation, bytes),
        };
        self.meter.filled(index, bytes.len())
    }
}

impl<'a> JobThread<'a> {
    /// The thread of the trial's job `number`.
    pub fn new(
        trial: &'a Trial,
        number: usize,
        method: &'static Method,
        reader: Box<dyn Reader>,
        check: Check,
        generation: u64,
        ways: &'a Ways,
    ) -> JobThread<'a> {
        let job = &trial.jobs[number];
        JobThread {
            job,
            number,
            method,
            paths: job.files.iter().map(|file| trial.data.files[*file].as_path()).collect(),
            files: Vec::new(),
            reader,
            plan: JobPlan::new(job),
            pending: None,
            passed: Vec::new(),
            drops: job.drops_cache && trial.cache == CacheState::Cold,
            check,
            content: trial.content(),
            generation,
            ways,
            flowed: 0,
            first: 0,
            writes: 0,
            since_commit: 0,
            written: Vec::new(),
            commits: Histogram::new(2).expect("two digits are a legal precision"),
            interval: trial.interval(),
        }
    }

    /// Runs for the ramp's time; nothing of it is kept but the place in the order.
    pub fn ramp(&mut self, began: Nanos, stop: &AtomicBool) {
        let mut meter = Meter::new(self.until(began, began, Some(self.job.ramp_ns), u64::MAX, stop), self.interval);
        if self.accesses(&mut meter, began, stop).is_err() {
            self.ways.stops[self.number].store(true, Ordering::Relaxed);
        }
        self.commits.reset();
        self.written.clear();
    }

    /// Runs the job to its end.
    pub fn run(mut self, began: Nanos, stop: &AtomicBool) -> RanJob {
        let own_start = Nanos(began.0 + self.job.delay_ns);
        let runs = || !stop.load(Ordering::Relaxed);
        sleep(Duration::from_nanos(own_start.0.saturating_sub(monotonic().0)), runs);
        let accesses = self.job.limits.accesses.unwrap_or(u64::MAX);
        let until = self.until(began, own_start, self.job.limits.runtime_ns, accesses, stop);
        let mut meter = Meter::new(until, self.interval);
        let outcome = self.accesses(&mut meter, own_start, stop).and_then(|()| self.at_end(&mut meter));
        let error = outcome.err();
        if error.is_some() {
            stop.store(true, Ordering::Relaxed);
        }
        let wall_ns = monotonic().0.saturating_sub(own_start.0);
        let ways = meter.ways();
        let metered = meter.finish();
        let JobThread { check, written, commits, reader, .. } = self;
        RanJob { driven: Driven { metered, check, written, error }, ways, commits, wall_ns, reader }
    }

    fn until<'s>(&self, began: Nanos, from: Nanos, time: Option<u64>, accesses: u64, stop: &'s AtomicBool) -> Until<'s>
    where
        'a: 's,
    {
        let deadline = time.map(|time| Nanos(from.0.saturating_add(time)));
        Until { began, deadline, accesses, stop, own: &self.ways.stops[self.number] }
    }

    fn accesses(&mut self, meter: &mut Meter<'_>, from: Nanos, stop: &AtomicBool) -> Result<()> {
        let mut clock = Clock::new(self.job, from);
        let mut batch = Vec::new();
        while meter.goes_on() {
            batch.clear();
            if !self.gather(meter, &mut clock, &mut batch, stop)? {
                return Ok(());
            }
            self.issue(meter, &batch)?;
            self.commit_where_due()?;
            let own = &self.ways.stops[self.number];
            clock.made(batch.len() as u64, || !stop.load(Ordering::Relaxed) && !own.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// The next accesses that may be made together; false at the end of the order.
    fn gather(
        &mut self,
        meter: &mut Meter<'_>,
        clock: &mut Clock,
        batch: &mut Vec<Access>,
        stop: &AtomicBool,
    ) -> Result<bool> {
        let slowed = is_slowed(self.job);
        let most = self.most(clock, slowed).min(meter.room());
        self.drop_passed()?;
        while (batch.len() as u64) < most {
            let Some(next) = self.planned()? else { return Ok(!batch.is_empty()) };
            if !self.passed.is_empty() {
                if !batch.is_empty() {
                    self.pending = Some(next);
                    return Ok(true);
                }
                self.drop_passed()?;
            }
            if slowed {
                let wait = self.wait(clock, next);
                if let Some(wait) = wait {
                    self.pending = Some(next);
                    if !batch.is_empty() {
                        return Ok(true);
                    }
                    let left = meter.deadline().map_or(u64::MAX, |deadline| deadline.0.saturating_sub(monotonic().0));
                    let own = &self.ways.stops[self.number];
                    let runs = || !stop.load(Ordering::Relaxed) && !own.load(Ordering::Relaxed);
                    sleep(wait.min(Duration::from_nanos(left)), runs);
                    meter.batch();
                    if !meter.goes_on() {
                        return Ok(false);
                    }
                    continue;
                }
            }
            self.since_commit += u64::from(next.side == WRITES);
            batch.push(next);
            if self.is_commit_due() {
                break;
            }
        }
        Ok(true)
    }

    /// The access that had to wait, or the next of the order; none at its end.
    fn planned(&mut self) -> Result<Option<Access>> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        let plan = self.plan.as_mut().map_err(|why| Error::Invalid(why.to_string()))?;
        let next = plan.next();
        let again = plan.began_again();
        if self.drops {
            self.passed.extend(again);
        }
        Ok(next)
    }

    /// Lets the files that are passed over again leave the page cache, as fio does before each pass.
    fn drop_passed(&mut self) -> Result<()> {
        if self.passed.is_empty() {
            return Ok(());
        }
        self.open_files("drop what is cached")?;
        let Job { file_bytes, offset_bytes, range_bytes, .. } = *self.job;
        for file in std::mem::take(&mut self.passed) {
            let offset = file as u64 * file_bytes + offset_bytes;
            // A page that is mapped does not leave.
            self.reader.done_with(&[Extent { offset, length: range_bytes as usize }])?;
            cache::fadvise(&self.files[file], offset_bytes, range_bytes, FileAdvice::DontNeed)?;
        }
        Ok(())
    }

    /// Time until this access may be made; none where it may now.
    fn wait(&mut self, clock: &mut Clock, next: Access) -> Option<Duration> {
        if let Some(wait) = clock.wait(next.side, next.extent.length) {
            return Some(wait);
        }
        match self.ways.flows.may(self.job.pace.flow, self.flowed) {
            true => {
                self.flowed += 1;
                None
            }
            false => Some(Flows::patience()),
        }
    }

    /// Accesses of the next batch at most.
    fn most(&self, clock: &Clock, slowed: bool) -> u64 {
        let depth = u64::from(self.job.iodepth.max(1));
        let window = if slowed { depth } else { (WINDOW * depth).min(BATCH) };
        clock.until_thought().map_or(window, |until| window.min(until))
    }

    fn is_commit_due(&self) -> bool {
        self.job.commits.every > 0 && self.since_commit >= self.job.commits.every
    }

    fn commit_where_due(&mut self) -> Result<()> {
        if self.is_commit_due() {
            self.since_commit = 0;
            return self.commit();
        }
        Ok(())
    }

    /// Makes durable what was written, and counts that.
    fn commit(&mut self) -> Result<()> {
        let began = monotonic();
        match (self.job.commits.metadata, self.method.class) {
            (true, Class::Explicit) => self.sync_all()?,
            _ => self.reader.sync()?,
        }
        self.committed(began);
        Ok(())
    }

    /// Counts a commit that was asked for at `began` and has ended.
    fn committed(&mut self, began: Nanos) {
        let _ = self.commits.record(monotonic().0.saturating_sub(began.0).max(1));
        #[cfg(test)]
        self.ways.acknowledged.iter().for_each(|tell| tell(self.writes));
    }

    /// fsync of every file: the times, too.
    fn sync_all(&mut self) -> Result<()> {
        let to = "make the writes durable";
        self.open_files(to)?;
        self.files.iter().try_for_each(File::sync_all).map_err(|error| Error::io(to, self.paths[0], error))
    }

    /// Opens the job's files, for calls that its reader has not.
    fn open_files(&mut self, to: &'static str) -> Result<()> {
        if self.files.is_empty() {
            let opened = self.paths.iter().map(File::open).collect::<std::io::Result<_>>();
            self.files = opened.map_err(|error| Error::io(to, self.paths[0], error))?;
        }
        Ok(())
    }

    /// What follows the last access.
    fn at_end(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        if self.job.verify && self.job.writes() {
            self.verify(meter)?;
        }
        if self.job.commits.at_end && self.job.writes() {
            self.commit()?;
        }
        Ok(())
    }

    /// Reads again what was written, in the same order.
    fn verify(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        let mut plan = JobPlan::verifying(self.job)?;
        if self.drops {
            // What is read again is to come from the device, as in fio.
            self.reader.sync()?;
            self.passed = (0..self.paths.len()).collect();
            self.drop_passed()?;
        }
        let mut left = self.writes;
        while left > 0 && meter.goes_on() {
            let most = left.min(BATCH).min(meter.room());
            let batch: Vec<Access> = plan.by_ref().take(most as usize).collect();
            if batch.is_empty() {
                return Ok(());
            }
            left -= batch.len() as u64;
            self.issue(meter, &batch)?;
        }
        Ok(())
    }

    /// Makes the accesses: in their order, or the reads before the writes where a queue is kept full.
    fn issue(&mut self, meter: &mut Meter<'_>, batch: &[Access]) -> Result<()> {
        let numbered: Vec<(u64, Access)> = (self.first..).zip(batch.iter().copied()).collect();
        self.first += batch.len() as u64;
        if self.method.depth.is_some() {
            for side in [READS, WRITES] {
                let same: Vec<(u64, Access)> =
                    numbered.iter().copied().filter(|(_, access)| access.side == side).collect();
                self.go(meter, side, &same)?;
            }
            return Ok(());
        }
        for run in numbered.chunk_by(|(_, one), (_, other)| one.side == other.side) {
            self.go(meter, run[0].1.side, run)?;
        }
        Ok(())
    }

    fn go(&mut self, meter: &mut Meter<'_>, side: usize, accesses: &[(u64, Access)]) -> Result<()> {
        if accesses.is_empty() || !meter.goes_on() {
            return Ok(());
        }
        // The commit that ends these writes is asked for with them, where there is a queue; not where it is to have the file's times.
        let commits = self.is_commit_due() && self.method.depth.is_some() && !self.job.commits.metadata;
        let before = meter.accesses();
        meter.batch_of(side);
        let extents: Vec<Extent> = accesses.iter().map(|(_, access)| access.extent).collect();
        let numbered: Vec<(u64, Extent)> = accesses.iter().map(|(number, access)| (*number, access.extent)).collect();
        let mut hands = Hands {
            meter,
            check: &mut self.check,
            accesses: &numbered,
            file_bytes: self.job.file_bytes,
            content: self.content,
            generation: self.generation,
            all_written: Nanos(0),
        };
        match side {
            READS => self.reader.visit(&extents, &mut hands)?,
            _ if commits => self.reader.update_and_sync(&extents, &mut hands)?,
            _ => self.reader.update(&extents, &mut hands)?,
        }
        let since = hands.all_written;
        if side == WRITES {
            let made = meter.accesses() - before;
            let kept = (self.writes..self.writes + made).zip(&extents).filter(|(number, _)| number % KEEP_ONE_IN == 0);
            self.written.extend(kept.map(|(_, extent)| *extent));
            self.writes += made;
            if commits {
                self.since_commit = 0;
                self.committed(since);
            }
        }
        Ok(())
    }
}

/// What invalidate does not reach.
const KEPT: &str =
    "invalidate: the files leave the page cache before each pass over them; what the pool holds stays in it";

/// As a record keeps it.
pub fn way(tally: &WayTally, one_in: u64) -> WayRun {
    let timed_one_in = if tally.accesses > 0 { one_in } else { 0 };
    WayRun {
        accesses: tally.accesses,
        bytes: tally.bytes,
        latency: Latency { timed_one_in, buckets: buckets(&tally.latency) },
    }
}

/// What did not happen to the letter, in sentences.
pub fn remarks(trial: &Trial, method: &Method) -> Vec<String> {
    let is_mixed = trial.jobs.iter().any(|job| job.writes() && job.reads_percent > 0);
    let commits = trial.jobs.iter().any(|job| job.commits.every > 0 && job.commits.metadata);
    let window = "reads and writes of a window of 32 times the depth: the reads were made before the writes";
    let data = "fsync: the bytes were made durable as by fdatasync; the file's times were not waited for";
    let order = (is_mixed && method.depth.is_some()).then(|| window.to_owned());
    let metadata = (commits && !matches!(method.class, Class::Explicit | Class::Control)).then(|| data.to_owned());
    let passes = |job: &Job| job.limits.time_based || job.loops > 1;
    let keeps = trial.cache == CacheState::Cold && trial.jobs.iter().any(|job| job.drops_cache && passes(job));
    let kept = (keeps && method.class == Class::Pool).then(|| KEPT.to_owned());
    order.into_iter().chain(metadata).chain(kept).collect()
}
