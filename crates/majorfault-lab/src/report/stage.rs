//! The jobs of a stage: what each of them read, wrote and made durable by each method.

use super::{ArmSummary, Group, derive, words};
use crate::record::{JobRun, WayRun};
use crate::trial::Job;

/// The titles of a row's figures.
pub const TITLES: [&str; 8] =
    ["job", "method", "reads/s", "read", "writes/s", "written", "commits/s", "p99 of\ncommits"];

/// Which jobs of which stage these figures are of; none where the group is not of a job file.
pub fn heading(group: &Group<'_>) -> Option<String> {
    let jobs = &group.trial.jobs;
    if jobs.is_empty() || group.trial.stage.is_empty() {
        return None;
    }
    let names: Vec<String> = names(jobs)
        .into_iter()
        .map(|name| match jobs.iter().filter(|job| job.name == name).count() {
            1 => name.to_owned(),
            count => format!("{name} x {count}"),
        })
        .collect();
    Some(format!("{}: {}", group.trial.stage, names.join(", ")))
}

/// A row for each job and each method with figures, of the method's typical run; nothing where the first table says all.
pub fn rows(group: &Group<'_>) -> Vec<[String; 8]> {
    let jobs = &group.trial.jobs;
    let is_simple = |job: &Job| job.writes() != job.reads() && job.commits.every == 0;
    let names = names(jobs);
    if names.len() < 2 && jobs.iter().all(is_simple) {
        return Vec::new();
    }
    let of_job = |name: &&str| {
        let arms = group.arms.iter().filter(|arm| !arm.used.is_empty());
        arms.filter_map(|arm| row(arm, name)).collect::<Vec<_>>()
    };
    names.iter().flat_map(of_job).collect()
}

/// Each name once, in its order.
fn names(jobs: &[Job]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for job in jobs {
        if !names.contains(&job.name.as_str()) {
            names.push(&job.name);
        }
    }
    names
}

fn row(arm: &ArmSummary<'_>, name: &str) -> Option<[String; 8]> {
    let record = arm.typical()?;
    let copies: Vec<&JobRun> = record.jobs.iter().filter(|job| job.name == name).collect();
    let rate = |way: fn(&JobRun) -> u64| {
        let sum: f64 =
            copies.iter().filter(|job| job.wall_ns > 0).map(|job| way(job) as f64 * 1e9 / job.wall_ns as f64).sum();
        (sum > 0.0).then_some(sum)
    };
    let shown = |value: Option<f64>, number: fn(f64) -> String| value.map_or_else(|| words::UNKNOWN.to_owned(), number);
    let commits: Vec<&WayRun> = copies.iter().map(|job| &job.commits).collect();
    let slow = derive::percentile(&derive::merged(commits.iter().map(|way| &way.latency.buckets)), 0.99);
    Some([
        name.to_owned(),
        arm.name.clone(),
        shown(rate(|job| job.read.accesses), words::count),
        shown(rate(|job| job.read.bytes), words::bytes_per_second),
        shown(rate(|job| job.write.accesses), words::count),
        shown(rate(|job| job.write.bytes), words::bytes_per_second),
        shown(rate(|job| job.commits.accesses), words::count),
        slow.map_or_else(|| words::UNKNOWN.to_owned(), |ns| words::nanos(ns as f64)),
    ])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Buckets, JobRun, Latency, WayRun};
    use crate::report::Summary;
    use crate::report::synthetic::Run;
    use crate::trial::{BlockLength, Commits, Direction, EndsWith, JobOrder, Limits, Pace, Turns};
    use majorfault::Nanos;

    pub(crate) fn job(name: &str, reads_percent: u8) -> Job {
        let block = BlockLength { bytes: 4096, to_bytes: 4096, percent: 100 };
        Job {
            name: name.to_owned(),
            files: vec![0],
            file_bytes: 1 << 20,
            offset_bytes: 0,
            range_bytes: 1 << 20,
            io_bytes: 1 << 20,
            loops: 1,
            reads_percent,
            order: JobOrder::Steps { hole_bytes: 0 },
            turns: Turns::Sequential,
            blocks: [vec![block], vec![block]],
            align_bytes: [4096; 2],
            iodepth: 1,
            limits: Limits { runtime_ns: None, accesses: None, time_based: false },
            commits: Commits::default(),
            pace: Pace::default(),
            delay_ns: 0,
            ramp_ns: 0,
            seed: 1,
            verify: false,
            group: 0,
            ends_with: EndsWith::None,
            drops_cache: false,
            words: Vec::new(),
        }
    }

    fn run(name: &str, reads: u64, writes: u64, commits: u64) -> JobRun {
        let way = |accesses: u64| WayRun {
            accesses,
            bytes: accesses * 4096,
            latency: Latency { timed_one_in: 1, buckets: Buckets(vec![(1_000_000, accesses)]) },
        };
        JobRun {
            name: name.to_owned(),
            wall_ns: 500_000_000,
            read: way(reads),
            write: way(writes),
            commits: way(commits),
        }
    }

    #[test]
    fn copies_of_a_job_are_added_up_and_jobs_are_told_apart() {
        let record = Run::of("pread").edit(|record| {
            record.trial.stage = "a.fio, stage 2 of 3".to_owned();
            record.trial.jobs = vec![job("r", 100), job("r", 100), job("w", 0)];
            record.jobs = vec![run("r", 100, 0, 0), run("r", 300, 0, 0), run("w", 0, 50, 5)];
        });
        let records = [record.record()];
        let summary = Summary::of(&records);

        assert_eq!(heading(&summary.groups[0]).unwrap(), "a.fio, stage 2 of 3: r x 2, w");
        let page = crate::report::html::page(&summary).unwrap();
        assert!(page.contains("<td>800</td><td>3.12 MiB&#x2f;s</td>"), "{page}");
        let rows = rows(&summary.groups[0]);
        assert_eq!(rows[0], ["r", "pread", "800", "3.12 MiB/s", "–", "–", "–", "–"]);
        assert_eq!(rows[1], ["w", "pread", "–", "–", "100", "400 KiB/s", "10", "1 ms"]);
    }

    #[test]
    fn a_trial_of_jobs_ends_when_the_last_one_does_where_each_only_reads_for_a_time() {
        let timed = |reads, delay_ns: u64, runtime_ns| Job {
            delay_ns,
            limits: Limits { runtime_ns, accesses: None, time_based: false },
            ..job("j", reads)
        };
        let longest = |jobs| Run::of("pread").edit(|record| record.trial.jobs = jobs).record().trial.longest();

        assert_eq!(longest(vec![timed(100, 5, Some(10)), timed(100, 0, Some(12))]), Some(Nanos(15)));
        assert_eq!(longest(vec![timed(100, 0, Some(10)), timed(100, 0, None)]), None);
        assert_eq!(longest(vec![timed(99, 0, Some(10))]), None, "what it wrote is made durable after its time");
        let plain = Run::of("pread").record().trial;
        assert_eq!(plain.longest(), plain.limits.runtime_ns.map(Nanos));
        let writes = Run::of("pread").edit(|record| record.trial.direction = Direction::Write).record().trial;
        assert_eq!(writes.longest(), None);
    }

    #[test]
    fn one_job_that_only_reads_needs_no_second_table() {
        let records = [Run::of("pread").edit(|record| record.trial.jobs = vec![job("r", 100), job("r", 100)]).record()];
        let mixed = [Run::of("pread").edit(|record| record.trial.jobs = vec![job("r", 50)]).record()];

        assert!(rows(&Summary::of(&records).groups[0]).is_empty());
        assert!(heading(&Summary::of(&records).groups[0]).is_none(), "no file named it");
        assert!(!rows(&Summary::of(&mixed).groups[0]).is_empty() || mixed[0].jobs.is_empty());
    }
}
