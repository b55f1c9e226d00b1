//! The jobs of a stage, at once: a thread for each, with its files, its order, its pace and its commits.
//!
//! Jobs on the same files share what is opened, so that one pool or mapping serves them. A method that keeps transfers in
//! flight gets the reads of a window before its writes; the others get every access in its order.

#[cfg(test)]
mod crash;
mod pace;
mod thread;

use crate::data::MadeContent;
use crate::record::{Answer, CacheEvidence, JobRun, Latency, Outcome};
use crate::run::check::{self, Check};
use crate::run::drive::Driven;
use crate::run::message::Ended;
use crate::run::meter::buckets;
use crate::run::page_cache;
use crate::trial::{CacheState, Choice, EndsWith, Job, Trial};
use majorfault::access::{Class, Method, Opened, Reader};
use majorfault::sys::clock::monotonic;
use majorfault::sys::{cache, read};
use majorfault::{Bytes, Extent, Layout, Nanos, Result, Target, methods, prefetch};
use pace::Flows;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use thread::{JobThread, RanJob};

/// Files that several jobs have in common, and which jobs.
pub struct Share {
    target: Arc<Target>,
    jobs: Vec<usize>,
}

/// What is open for a stage.
pub struct OpenStage {
    method: &'static Method,
    /// For each job its reader.
    readers: Vec<Box<dyn Reader>>,
    targets: Vec<Arc<Target>>,
    settings: BTreeMap<String, String>,
    notes: Vec<String>,
}

/// A stage that ran, with its files still open.
pub struct RanStage<'a> {
    trial: &'a Trial,
    began: Nanos,
    stage: OpenStage,
    ran: Vec<RanJob>,
    generation: u64,
}

/// What is known when the files are closed.
pub struct ClosedStage {
    /// When the accesses began.
    pub began: Nanos,
    /// What each thread did.
    pub driven: Vec<Driven>,
    jobs: Vec<JobRun>,
    answer: Answer,
    settings: BTreeMap<String, String>,
    notes: Vec<String>,
}

/// The files of the stage, opened once for all jobs that have the same.
///
/// Errors: those of `open`.
pub fn shares(trial: &Trial, open: impl Fn(&Layout, &[PathBuf]) -> Result<Arc<Target>>) -> Result<Vec<Share>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, job) in trial.jobs.iter().enumerate() {
        match groups.iter_mut().find(|group| trial.jobs[group[0]].files == job.files) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    let share = |jobs: Vec<usize>| {
        let all = || jobs.iter().map(|number| &trial.jobs[*number]);
        let first = &trial.jobs[jobs[0]];
        let count = first.files.len() as u64;
        let layout = Layout {
            offset: Bytes(0),
            size: Some(Bytes(first.file_bytes * count)),
            stripe: if count == 1 { Bytes::mib(1) } else { Bytes(first.file_bytes) },
            write: all().any(Job::writes),
        };
        let files: Vec<PathBuf> = first.files.iter().map(|file| trial.data.files[*file].clone()).collect();
        Ok(Share { target: open(&layout, &files)?, jobs })
    };
    groups.into_iter().map(share).collect()
}

/// Brings the page cache of all files into the state asked for.
///
/// Errors: Io.
pub fn prepare(shares: &[Share], state: CacheState) -> Result<(CacheEvidence, Vec<String>)> {
    let mut notes = Vec::new();
    for share in shares {
        notes.extend(page_cache::prepare(&share.target, state)?.1);
    }
    // Looked at when all are prepared: several may hold the same file.
    let mut all = CacheEvidence { resident_before_bytes: Some(0), ..CacheEvidence::default() };
    for share in shares {
        let found = page_cache::evidence(&share.target);
        let sum = all.resident_before_bytes.zip(found.resident_before_bytes);
        all.resident_before_bytes = sum.map(|(one, other)| one + other);
        all.source = found.source;
    }
    Ok((all, notes))
}

/// Opens the files by the method, and a reader for each job.
///
/// Errors: those of the method.
pub fn open(trial: &Trial, choice: &Choice, shares: Vec<Share>) -> Result<OpenStage> {
    let method = methods::named(&choice.name)?;
    let mut stage = OpenStage {
        method,
        readers: Vec::new(),
        targets: shares.iter().map(|share| Arc::clone(&share.target)).collect(),
        settings: BTreeMap::new(),
        notes: Vec::new(),
    };
    let mut readers: Vec<(usize, Box<dyn Reader>)> = Vec::new();
    for Share { target, jobs } in shares {
        let depth = jobs.iter().map(|number| trial.jobs[*number].iodepth).max().unwrap_or(1);
        let given = choice.at_depth(method.depth, depth);
        let Opened { reader, settings, notes, .. } = prefetch::open(method, target, &given.given())?;
        for number in &jobs[1..] {
            readers.push((*number, reader.sibling()?));
        }
        readers.push((jobs[0], reader));
        stage.settings = settings.0;
        stage.notes.extend(notes);
    }
    readers.sort_by_key(|(number, _)| *number);
    stage.readers = readers.into_iter().map(|(_, reader)| reader).collect();
    Ok(stage)
}

/// Runs all jobs to their ends. `boundary` is told where a phase began and ended, and lets the watcher read the counters.
pub fn run<'a>(
    trial: &'a Trial,
    mut stage: OpenStage,
    began: u64,
    stop: &AtomicBool,
    boundary: &mut dyn FnMut(&str, Nanos, Nanos),
) -> RanStage<'a> {
    let generation = if is_told_by_generation(trial) { began } else { 0 };
    let ways = Ways::of(trial);
    let (ran, began) = run_with(trial, &mut stage, generation, &ways, stop, boundary);
    RanStage { trial, began, stage, ran, generation }
}

/// The threads of all jobs, from their start to their ends.
fn run_with(
    trial: &Trial,
    stage: &mut OpenStage,
    generation: u64,
    ways: &Ways,
    stop: &AtomicBool,
    boundary: &mut dyn FnMut(&str, Nanos, Nanos),
) -> (Vec<RanJob>, Nanos) {
    let gate = Barrier::new(trial.jobs.len() + 1);
    let (ramp, visit) = (OnceLock::new(), OnceLock::new());
    let readers = std::mem::take(&mut stage.readers);
    let has_ramp = trial.jobs.iter().any(|job| job.ramp_ns > 0);
    let method = stage.method;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(readers)
            .map(|(number, reader)| {
                let (gate, ramp, visit) = (&gate, &ramp, &visit);
                scope.spawn(move || {
                    let check = check_of(trial, number, method);
                    let mut thread = JobThread::new(trial, number, method, reader, check, generation, ways);
                    if has_ramp {
                        gate.wait();
                        thread.ramp(*ramp.get_or_init(monotonic), stop);
                        gate.wait();
                        gate.wait();
                    }
                    gate.wait();
                    let ran = thread.run(*visit.get_or_init(monotonic), stop);
                    ways.ended(trial, number);
                    gate.wait();
                    gate.wait();
                    ran
                })
            })
            .collect();
        if has_ramp {
            passed(&gate, &ramp, "warm", boundary);
        }
        let began = passed(&gate, &visit, "visit", boundary);
        let join = |thread: std::thread::ScopedJoinHandle<'_, RanJob>| {
            thread.join().expect("a thread that panics ends the process")
        };
        (threads.into_iter().map(join).collect(), began)
    })
}

/// One phase of all threads: begun, ended, read by the watcher, and on.
fn passed(gate: &Barrier, clock: &OnceLock<Nanos>, name: &str, boundary: &mut dyn FnMut(&str, Nanos, Nanos)) -> Nanos {
    gate.wait();
    let began = *clock.get_or_init(monotonic);
    gate.wait();
    boundary(name, began, monotonic());
    gate.wait();
    began
}

/// What jobs have to do with each other.
pub struct Ways {
    stops: Vec<AtomicBool>,
    flows: Flows,
    /// Told of each commit, and how many writes the job had made.
    #[cfg(test)]
    acknowledged: Option<Box<dyn Fn(u64) + Sync>>,
}

impl Ways {
    fn of(trial: &Trial) -> Ways {
        Ways {
            stops: trial.jobs.iter().map(|_| AtomicBool::new(false)).collect(),
            flows: Flows::of(&trial.jobs),
            #[cfg(test)]
            acknowledged: None,
        }
    }

    /// The job ended: others may have to, and need not keep its share any more.
    fn ended(&self, trial: &Trial, number: usize) {
        let job = &trial.jobs[number];
        self.flows.leave(job.pace.flow);
        let follows = |other: &Job| match job.ends_with {
            EndsWith::None => false,
            EndsWith::Group => other.group == job.group,
            EndsWith::Stage => true,
        };
        for (stop, _) in self.stops.iter().zip(&trial.jobs).filter(|(_, other)| follows(other)) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether what was written can be told from what was there: pages are written whole, and no thread meets the half of another's write.
fn is_told_by_generation(trial: &Trial) -> bool {
    let jobs = &trial.jobs;
    let is_alone = |number: usize, job: &Job| {
        let others = jobs.iter().enumerate().filter(|(other, _)| *other != number);
        !others.into_iter().any(|(_, other)| other.files.iter().any(|file| job.files.contains(file)))
    };
    jobs.iter().all(|job| job.is_made_of(crate::data::PAGE as u64))
        && jobs.iter().enumerate().filter(|(_, job)| job.writes()).all(|(number, job)| is_alone(number, job))
}

fn check_of(trial: &Trial, number: usize, method: &Method) -> Check {
    let job = &trial.jobs[number];
    let is_written =
        || trial.jobs.iter().any(|other| other.writes() && other.files.iter().any(|file| job.files.contains(file)));
    let check = match trial.data.content_seed {
        _ if !job.reads() => Check::MadeContent { content: trial.content(), wrong: 0, first: None },
        Some(_) if !job.is_made_of(8) => Check::Nothing("accesses are not made of whole words"),
        Some(_) => Check::MadeContent { content: trial.content(), wrong: 0, first: None },
        None if is_written() => {
            Check::Nothing("what is read is written at the same time, and its content was not made here")
        }
        None => Check::Digests(Vec::new()),
    };
    match method.class {
        Class::Control => Check::Untold(Box::new(check), "the control does not read the file"),
        _ => check,
    }
}

impl RanStage<'_> {
    /// Makes durable what was written, closes, and reads a sample of it again.
    pub fn close(self) -> ClosedStage {
        let RanStage { trial, began, stage, mut ran, generation } = self;
        let OpenStage { method, targets, settings, mut notes, .. } = stage;
        let mut synced: Vec<&[usize]> = Vec::new();
        for (number, ran) in ran.iter_mut().enumerate() {
            let job = &trial.jobs[number];
            // Readers of the same files share what is dirty.
            if job.writes() && !synced.contains(&job.files.as_slice()) && ran.driven.error.is_none() {
                ran.driven.error = ran.reader.sync().err();
                synced.push(&job.files);
            }
        }
        notes.extend(thread::remarks(trial, method));
        let jobs = trial.jobs.iter().zip(&mut ran).map(|(job, ran)| ran.told(job)).collect();
        let driven: Vec<Driven> = ran.into_iter().map(|ran| ran.driven).collect();
        let answer = answer(trial, &targets, &driven, generation, method);
        ClosedStage { began, driven, jobs, answer, settings, notes }
    }
}

impl ClosedStage {
    /// All that is told but the timeline.
    pub fn told(self, outcome: Outcome) -> Ended {
        let ClosedStage { driven, jobs, answer, settings, notes, .. } = self;
        let threads = driven.into_iter().map(|one| one.metered.run).collect();
        Ended { settings, notes, threads, answer, jobs, ..Ended::without_figures(outcome) }
    }
}

/// What is known of the bytes: those read, and a sample of those written, read again from the device where the cache lets go.
fn answer(trial: &Trial, targets: &[Arc<Target>], driven: &[Driven], generation: u64, method: &Method) -> Answer {
    let read = check::answer(&driven.iter().map(|one| &one.check).collect::<Vec<_>>());
    let writes = trial.jobs.iter().any(Job::writes);
    if !writes || matches!(read, Answer::Wrong { .. }) || method.class == Class::Control {
        return read;
    }
    for file in targets.iter().flat_map(|target| target.files()) {
        let _ = cache::fadvise(&file.file, file.start, file.length, cache::FileAdvice::DontNeed);
    }
    let sample =
        trial.jobs.iter().zip(driven).flat_map(|(job, one)| one.written.iter().map(move |extent| (job, *extent)));
    let is_wrong = |(job, extent): &(&Job, Extent)| !is_written(trial, job, *extent, generation);
    let wrong: Vec<(&Job, Extent)> = sample.filter(is_wrong).collect();
    match wrong.first() {
        Some((_, first)) => Answer::Wrong { first_offset: first.offset, count: wrong.len() as u64 },
        None if generation == 0 => match read {
            Answer::Checked => Answer::Unchecked(
                "bytes read were right; bytes written were those that are there, as jobs share files or write parts of pages".to_owned(),
            ),
            other => other,
        },
        None => read,
    }
}

fn is_written(trial: &Trial, job: &Job, extent: Extent, generation: u64) -> bool {
    let (file, offset) = (extent.offset / job.file_bytes, extent.offset % job.file_bytes);
    let Ok(opened) = std::fs::File::open(&trial.data.files[job.files[file as usize]]) else { return false };
    let mut bytes = vec![0; extent.length];
    if read::pread_exact(&opened, &mut bytes, offset).is_err() {
        return false;
    }
    if generation == 0 {
        let mut wanted = vec![0; extent.length];
        return trial.content().fill_words(Extent { offset, ..extent }, &mut wanted).is_ok() && wanted == bytes;
    }
    MadeContent::page_and_generation(&bytes) == Some((offset / crate::data::PAGE as u64, generation))
}

impl RanJob {
    /// As a record keeps it.
    fn told(&mut self, job: &Job) -> JobRun {
        let one_in = self.driven.metered.timed_one_in;
        let [read, write] = self.ways.each_ref().map(|way| thread::way(way, one_in));
        let commits = crate::record::WayRun {
            accesses: self.commits.len(),
            bytes: 0,
            latency: Latency { timed_one_in: u64::from(!self.commits.is_empty()), buckets: buckets(&self.commits) },
        };
        JobRun { name: job.name.clone(), wall_ns: self.wall_ns, read, write, commits }
    }
}
