//! fio with the jobs of a stage: the options that their file gave them, on the files that our methods have.

use super::{Engine, FioParams, Told, cannot};
use crate::record::{Answer, Buckets, JobRun, Latency, Phase, Record, ThreadRun, WayRun};
use crate::trial::{Arm, CacheState, Job, Trial};
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
        // Cold is proven before; what is dropped between passes over a file is dropped by our methods, too.
        format!("--invalidate={}", u8::from(job.drops_cache && trial.cache == CacheState::Cold)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Latency;
    use crate::report::synthetic::Run;
    use crate::trial::{BlockLength, Choice, Commits, EndsWith, JobOrder, Limits, Pace, Turns};
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn job(name: &str, words: &[(&str, &str)]) -> Job {
        let block = BlockLength { bytes: 4096, to_bytes: 4096, percent: 100 };
        Job {
            name: name.to_owned(),
            files: vec![0],
            file_bytes: 1 << 20,
            offset_bytes: 4096,
            range_bytes: 65536,
            io_bytes: 32768,
            loops: 1,
            reads_percent: 100,
            order: JobOrder::Steps { hole_bytes: 0 },
            turns: Turns::RoundRobin(1),
            blocks: [vec![block], vec![block]],
            align_bytes: [4096; 2],
            iodepth: 1,
            limits: Limits { runtime_ns: None, accesses: None, time_based: false },
            commits: Commits::default(),
            pace: Pace::default(),
            delay_ns: 0,
            ramp_ns: 0,
            seed: 9,
            verify: false,
            group: 0,
            ends_with: EndsWith::None,
            drops_cache: false,
            words: words.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect(),
        }
    }

    fn stage(jobs: Vec<Job>, given: &[(&str, &str)]) -> Record {
        let mut record = Run::peer("fio").record();
        let choice = given.iter().fold(Choice::plain("fio"), |choice, (key, value)| choice.with(key, value));
        record.trial.arm = Arm::Peer(choice);
        record.trial.jobs = jobs;
        record
    }

    fn call(record: &Record) -> Result<Vec<String>> {
        let Arm::Peer(choice) = &record.trial.arm else { panic!() };
        command(&record.trial, &FioParams::from_given(&choice.given()).unwrap())
    }

    #[test]
    fn each_job_gets_its_own_words_and_our_files() {
        let jobs =
            vec![job("a", &[("ioengine", "libaio"), ("rw", "read")]), job("b", &[("rw", "randread"), ("direct", "1")])];

        let words = call(&stage(jobs, &[("engine", "job")])).unwrap().join(" ");

        let (before, second) = words.split_once("--name=b").unwrap();
        assert!(
            before
                .starts_with("fio --output-format=json+ --eta=never --readonly --name=a --ioengine=libaio --rw=read "),
            "{before}"
        );
        for part in [before, second] {
            for word in
                ["--filename=/data/majorfault.0", "--offset=4096", "--size=65536", "--io_size=32768", "--invalidate=0"]
            {
                assert!(part.contains(word), "{word} is not in {part}");
            }
            assert!(!part.contains("fadvise_hint"), "its own hints: {part}");
        }
        assert!(second.contains("--direct=1"));
    }

    #[test]
    fn an_engine_that_is_chosen_takes_the_place_of_the_jobs() {
        let jobs = vec![job("a", &[("ioengine", "libaio"), ("direct", "1")])];

        let words = call(&stage(jobs.clone(), &[("engine", "psync"), ("direct", "off")])).unwrap().join(" ");
        let refused = call(&stage(jobs.clone(), &[("engine", "mmap")]));
        let hinted =
            call(&stage(jobs, &[("engine", "mmap"), ("direct", "off"), ("hint", "random")])).unwrap().join(" ");

        assert!(words.contains("--ioengine=psync --direct=0 --fadvise_hint=0") && !words.contains("libaio"), "{words}");
        assert!(matches!(refused, Err(majorfault::Error::Missing(_))), "{refused:?}");
        assert!(hinted.contains("--ioengine=mmap --direct=0 --fadvise_hint=random"), "{hinted}");
    }

    #[test]
    fn jobs_that_write_are_durable_inside_the_clock_and_not_read_only() {
        let writer = Job { reads_percent: 0, ..job("w", &[]) };

        let words = call(&stage(vec![writer], &[("engine", "job")])).unwrap();

        assert!(words.contains(&"--end_fsync=1".to_owned()) && !words.contains(&"--readonly".to_owned()));
    }

    #[test]
    fn what_fio_prints_of_each_job_is_kept_apart() {
        let mut record = stage(vec![job("a", &[]), job("b", &[("fadvise_hint", "0")])], &[("engine", "job")]);
        let side = |ios: u64| {
            format!(
                "{{\"io_bytes\": {}, \"total_ios\": {ios}, \"runtime\": 20, \"lat_ns\": {{\"bins\": {{\"900\": {ios}}}}}}}",
                ios * 4096
            )
        };
        let told = |read, write| {
            format!(
                "{{\"error\": 0, \"read\": {}, \"write\": {}, \"sync\": {{\"total_ios\": 0, \"lat_ns\": {{\"bins\": {{\"70\": 3}}}}}}}}",
                side(read),
                side(write)
            )
        };
        let text = format!("{{\n\"jobs\": [{}, {}]}}", told(1, 2), told(4, 8));

        (super::super::PEER.read_back)(&text, ExitStatus::from_raw(0), &mut record).unwrap();

        let counts: Vec<[u64; 3]> =
            record.jobs.iter().map(|job| [job.read.accesses, job.write.accesses, job.commits.accesses]).collect();
        assert_eq!(counts, [[1, 2, 3], [4, 8, 3]]);
        assert_eq!((record.accesses(), record.phases[0].wall_ns), (15, 20_000_000));
        assert_eq!(record.latency, Latency { timed_one_in: 1, buckets: Buckets(vec![(900, 15)]) });
        assert_eq!(record.settings["engine"], "psync");
        assert!(record.notes.iter().any(|note| note.contains("fadvise_hint=1, its default")), "{:?}", record.notes);
    }

    #[test]
    fn a_job_that_fails_is_found_wherever_it_stands() {
        let mut record = stage(vec![job("a", &[]), job("b", &[])], &[("engine", "job")]);
        let side = r#"{"io_bytes": 0, "total_ios": 0, "runtime": 0}"#;
        let told = |error: i32| format!("{{\"error\": {error}, \"read\": {side}, \"write\": {side}}}");
        let text = format!("{{\n\"jobs\": [{}, {}]}}", told(0), told(28));

        let error = (super::super::PEER.read_back)(&text, ExitStatus::from_raw(0), &mut record).unwrap_err();

        assert!(error.to_string().contains("No space left"), "{error}");
    }
}
