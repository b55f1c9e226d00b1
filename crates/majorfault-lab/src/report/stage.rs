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
