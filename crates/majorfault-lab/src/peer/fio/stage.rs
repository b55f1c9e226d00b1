//! fio with the jobs of a stage: the options that their file gave them, on the files that our methods have.

use super::{Engine, FioParams, Told, cannot};
use crate::record::{Answer, Buckets, JobRun, Latency, Phase, Record, ThreadRun, WayRun};
use crate::trial::{Arm, Job, Trial};
use majorfault::Result;
use majorfault::params::{Params, Value};
use std::collections::BTreeMap;

/// Options of a job that the peer's own parameters take the place of.
const OF_ENGINE: &[&str] = &["ioengine", "direct", "buffered"];

/// Whether the job goes past the page cache.
pub(super) fn is_direct(job: &Job) -> bool {
    let mut direct = false;
    for (name, value) in &job.words {
        let is_on = value.as_deref() != Some("0");
        match name.as_str() {
            "direct" => direct = is_on,
            "buffered" => direct = !is_on,
            _ => {}
        }
    }
    direct
}

/// The call: each job with its name, its words and its files.
///
/// Errors: Missing, where fio cannot do it.
pub(super) fn command(trial: &Trial, params: &FioParams) -> Result<Vec<String>> {
    let mut words = vec!["fio".to_owned(), "--output-format=json+".to_owned(), "--eta=never".to_owned()];
    if !trial.jobs.iter().any(Job::writes) {
        words.push("--readonly".to_owned());
    }
    for job in &trial.jobs {
        words.extend(of_job(trial, job, params)?);
    }
    Ok(words)
}

fn of_job(trial: &Trial, job: &Job, params: &FioParams) -> Result<Vec<String>> {
    let files = job.files.iter().map(|file| trial.data.files[*file].to_string_lossy().replace(':', "\\:"));
    let is_own = params.engine == Engine::Job;
    let given = job.words.iter().filter(|(name, _)| is_own || !OF_ENGINE.contains(&name.as_str()));
    let mut words = vec![format!("--name={}", job.name)];
    words.extend(given.map(|(name, value)| match value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    }));
    if !is_own {
        let direct = params.direct.is_on();
        let engine = super::engine(params);
        if direct && params.engine == Engine::Mmap {
            return Err(cannot("its mmap engine has no direct mode", "use fio:engine=mmap,direct=off"));
        }
        words.extend([format!("--ioengine={engine}"), format!("--direct={}", u8::from(direct))]);
    }
    words.extend(hint(params).map(|word| format!("--fadvise_hint={word}")));
    let count = job.files.len() as u64;
    words.extend([
        format!("--filename={}", files.collect::<Vec<_>>().join(":")),
        format!("--offset={}", job.offset_bytes),
        format!("--size={}", job.range_bytes * count),
        format!("--io_size={}", job.io_bytes),
        format!("--randseed={}", job.seed),
        "--invalidate=0".to_owned(),
        "--thread".to_owned(),
        "--lat_percentiles=1".to_owned(),
        "--allow_file_create=0".to_owned(),
    ]);
    // A stage of other jobs' groups is one stage here.
    words.extend((job.group > 0).then(|| "--new_group".to_owned()));
    // Durable inside the clock, as our own writes.
    words.extend(job.writes().then(|| "--end_fsync=1".to_owned()));
    Ok(words)
}

/// What fio tells the kernel: as chosen, or nothing where it is not as the job says.
fn hint(params: &FioParams) -> Option<&'static str> {
    let usual = if params.engine == Engine::Job { None } else { Some("0") };
    super::hint_word(params.hint).or(usual)
}

/// Whether fio's own hints are in force for a job that goes through the page cache.
fn is_hinted(job: &Job) -> bool {
    let last = job.words.iter().rev().find(|(name, _)| matches!(name.as_str(), "fadvise_hint" | "fadvise"));
    !is_direct(job) && last.is_none_or(|(_, value)| value.as_deref() != Some("0"))
}

/// Puts what fio printed of each job into the record.
pub(super) fn read_back(printed: &[Told], record: &mut Record) {
    let jobs = record.trial.jobs.iter().zip(printed);
    record.jobs = jobs.map(|(job, told)| job_run(job, told)).collect();
    record.threads = record.jobs.iter().map(thread).collect();
    let longest =
        record.jobs.iter().zip(&record.trial.jobs).map(|(run, job)| run.wall_ns + job.delay_ns).max().unwrap_or(0);
    record.phases = vec![Phase {
        name: "visit".to_owned(),
        began_ns: record.timeline.began_ns,
        wall_ns: longest,
        counters: BTreeMap::new(),
    }];
    record.latency = added(record.jobs.iter().flat_map(|job| [&job.read.latency, &job.write.latency]));
    record.answer = Answer::Unchecked("fio does not hand its bytes over".to_owned());
    let Arm::Peer(choice) = &record.trial.arm else { return };
    let Ok(params) = FioParams::from_given(&choice.given()) else { return };
    if hint(&params).is_none() && record.trial.jobs.iter().any(is_hinted) {
        record.notes.push(
            "fio told the kernel whether the order is random or sequential (fadvise_hint=1, its default), as our arms with that advice; \
             hint=none stands beside those without"
                .to_owned(),
        );
    }
    let engine = match params.engine {
        Engine::Job => engines(&record.trial.jobs),
        _ => super::engine(&params).to_owned(),
    };
    let direct = if params.engine == Engine::Job { "job" } else { &params.direct.text() };
    record.settings = BTreeMap::from([("engine".to_owned(), engine), ("direct".to_owned(), direct.to_owned())]);
}

/// The engines that jobs name, each once.
fn engines(jobs: &[Job]) -> String {
    let of_job = |job: &Job| {
        let named = job.words.iter().rev().find(|(name, _)| name == "ioengine").and_then(|(_, value)| value.clone());
        named.unwrap_or_else(|| "psync".to_owned())
    };
    let mut names: Vec<String> = jobs.iter().map(of_job).collect();
    names.sort();
    names.dedup();
    names.join("+")
}

fn job_run(job: &Job, told: &Told) -> JobRun {
    let way =
        |side: &super::Side| WayRun { accesses: side.total_ios, bytes: side.io_bytes, latency: side.lat_ns.latency() };
    let wall_ms = told.read.runtime.max(told.write.runtime);
    JobRun {
        name: job.name.clone(),
        wall_ns: wall_ms.saturating_mul(1_000_000),
        read: way(&told.read),
        write: way(&told.write),
        commits: WayRun {
            accesses: told.sync.total_ios.max(told.sync.lat_ns.count()),
            bytes: 0,
            latency: told.sync.lat_ns.latency(),
        },
    }
}

fn thread(job: &JobRun) -> ThreadRun {
    let JobRun { read, write, wall_ns, .. } = job;
    ThreadRun {
        accesses: read.accesses.saturating_add(write.accesses),
        bytes: read.bytes.saturating_add(write.bytes),
        wall_ns: *wall_ns,
    }
}

fn added<'a>(all: impl Iterator<Item = &'a Latency>) -> Latency {
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for (edge, count) in all.flat_map(|one| &one.buckets.0) {
        let sum = sums.entry(*edge).or_default();
        *sum = sum.saturating_add(*count);
    }
    Latency { timed_one_in: u64::from(!sums.is_empty()), buckets: Buckets(sums.into_iter().collect()) }
}
