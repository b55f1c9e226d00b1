//! Records in the shape of fio's `--output-format=json+`, so that programs that read fio's results read ours.
//!
//! fio's names and units (fio 3.x, stat.c): bandwidth in KiB/s as `bw`, in bytes as `bw_bytes`; runtime in ms;
//! percentiles as `"99.000000"`. What fio has no name for is under `"majorfault"`.

use super::{counters, derive};
use crate::record::{Buckets, JobRun, Outcome, Record, WayRun};
use crate::traits::Order;
use crate::trial::{Direction, Job, JobOrder};
use serde_json::{Map, Value, json};

/// fio's default `percentile_list`.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// One document with one job for each record, or for each job of a record's stage.
pub fn document(records: &[Record]) -> Value {
    let began = records.iter().map(|record| record.began_unix_s).min().unwrap_or(0);
    json!({
        "fio version": records.first().map_or("majorfault", |record| record.tool.as_str()),
        "timestamp": began,
        "timestamp_ms": began.saturating_mul(1000),
        "jobs": records.iter().flat_map(jobs).collect::<Vec<_>>(),
    })
}

/// What went one way in a record.
struct Way<'a> {
    accesses: u64,
    bytes: u64,
    wall_ns: u64,
    latency: Option<&'a Buckets>,
    /// Accesses and bytes a second where they are not those of `wall_ns`.
    rates: Option<[f64; 2]>,
}

fn jobs(record: &Record) -> Vec<Value> {
    if record.jobs.is_empty() {
        return vec![whole(record)];
    }
    let of_job = |(run, plan): (&JobRun, &Job)| {
        let way = |way: &'_ WayRun| traffic(&Way::of(way, run.wall_ns), &[]);
        let mut told = job(record, &format!("{} ({})", run.name, record.trial.arm), [way(&run.read), way(&run.write)]);
        told["job options"]["rw"] = json!(rw_of(job_order(plan), plan.reads_percent));
        told["job_runtime"] = json!(run.wall_ns / 1_000_000);
        told["sync"] =
            json!({ "total_ios": run.commits.accesses, "lat_ns": latency(Some(&run.commits.latency.buckets)) });
        told
    };
    record.jobs.iter().zip(&record.trial.jobs).map(of_job).collect()
}

/// A record of one workload, which goes one way.
fn whole(record: &Record) -> Value {
    // Rates include setup, as everywhere in our reports; fio's own time the accesses alone (`majorfault.visit` has those).
    let rates = [&derive::THROUGHPUT, &derive::BANDWIDTH].map(|formula| (formula.of)(record).unwrap_or(0.0));
    let way = Way {
        accesses: record.accesses(),
        bytes: record.bytes(),
        wall_ns: wall_ns(record),
        latency: Some(&record.latency.buckets),
        rates: Some(rates),
    };
    let series: Vec<f64> = super::series::throughput(record).0.into_iter().map(|(_, level)| level).collect();
    let (used, idle) = (traffic(&way, &series), traffic(&Way::none(), &[]));
    let ways = match record.trial.direction {
        Direction::Read => [used, idle],
        Direction::Write => [idle, used],
    };
    job(record, &record.trial.arm.to_string(), ways)
}

fn job(record: &Record, name: &str, [read, write]: [Value; 2]) -> Value {
    let elapsed = wall_ns(record);
    let cpu = |name| counters::growth(record, name).map_or(0.0, |ns| 100.0 * ns as f64 / (elapsed as f64).max(1.0));
    let counted = |name| counters::growth(record, name).unwrap_or(0);
    json!({
        "jobname": name,
        "groupid": 0,
        "error": i32::from(!matches!(record.outcome, Outcome::Done | Outcome::Interrupted)),
        "eta": 0,
        "elapsed": elapsed.div_ceil(1_000_000_000),
        "job options": options(record),
        "read": read,
        "write": write,
        "trim": traffic(&Way::none(), &[]),
        "sync": { "total_ios": 0, "lat_ns": latency(None) },
        "job_runtime": elapsed / 1_000_000,
        "usr_cpu": cpu(counters::USER_NS),
        "sys_cpu": cpu(counters::SYSTEM_NS),
        "ctx": counted(counters::WAITS).saturating_add(counted(counters::PREEMPTIONS)),
        "majf": counted(counters::MAJOR_FAULTS),
        "minf": counted(counters::MINOR_FAULTS),
        "latency_depth": record.trial.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "majorfault": extras(record),
    })
}

impl<'a> Way<'a> {
    fn of(way: &'a WayRun, wall_ns: u64) -> Way<'a> {
        let WayRun { accesses, bytes, latency } = way;
        Way { accesses: *accesses, bytes: *bytes, wall_ns, latency: Some(&latency.buckets), rates: None }
    }

    fn none() -> Way<'static> {
        Way { accesses: 0, bytes: 0, wall_ns: 0, latency: None, rates: None }
    }

    fn rates(&self) -> [f64; 2] {
        let per_s = |count: u64| if self.wall_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.wall_ns as f64 };
        self.rates.unwrap_or([per_s(self.accesses), per_s(self.bytes)])
    }
}

fn options(record: &Record) -> Value {
    let trial = &record.trial;
    json!({
        "name": trial.arm.to_string(),
        "rw": rw(record),
        "bs": trial.block_bytes.to_string(),
        "size": trial.data.size_bytes.to_string(),
        "numjobs": trial.threads.to_string(),
        "iodepth": trial.iodepth.to_string(),
        "filename": trial.data.files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":"),
    })
}

fn rw(record: &Record) -> &'static str {
    let is_ascending = record.traits.as_ref().is_some_and(|traits| traits.order == Order::Ascending);
    rw_of(is_ascending, if record.trial.direction == Direction::Read { 100 } else { 0 })
}

fn rw_of(is_ascending: bool, reads_percent: u8) -> &'static str {
    match (reads_percent, is_ascending) {
        (100, true) => "read",
        (100, false) => "randread",
        (0, true) => "write",
        (0, false) => "randwrite",
        (_, true) => "rw",
        (_, false) => "randrw",
    }
}

fn job_order(job: &Job) -> bool {
    matches!(job.order, JobOrder::Steps { .. })
}

/// All that fio says of one direction; `series` are the rates of accesses over time, where they are known.
fn traffic(way: &Way<'_>, series: &[f64]) -> Value {
    let [iops, bandwidth] = way.rates();
    let block = if way.accesses == 0 { 0.0 } else { way.bytes as f64 / way.accesses as f64 };
    // Where nothing is known over time, the one rate stands for it.
    let rates = if series.is_empty() && way.accesses > 0 { vec![iops] } else { series.to_vec() };
    let count = rates.len() as f64;
    let mean = if rates.is_empty() { 0.0 } else { rates.iter().sum::<f64>() / count };
    let deviation = if rates.is_empty() {
        0.0
    } else {
        (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count).sqrt()
    };
    let least = rates.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let most = rates.iter().copied().reduce(f64::max).unwrap_or(0.0);
    let kib = |rate: f64| rate * block / 1024.0;
    json!({
        "io_bytes": way.bytes,
        "io_kbytes": way.bytes / 1024,
        "bw_bytes": bandwidth as u64,
        "bw": (bandwidth / 1024.0) as u64,
        "iops": iops,
        "runtime": way.wall_ns / 1_000_000,
        "total_ios": way.accesses,
        "short_ios": 0,
        "drop_ios": 0,
        // A method's submission is a part of its access.
        "slat_ns": latency(None),
        "clat_ns": latency(way.latency),
        "lat_ns": latency(way.latency),
        "bw_min": kib(least) as u64,
        "bw_max": kib(most) as u64,
        "bw_agg": if rates.is_empty() { 0.0 } else { 100.0 },
        "bw_mean": kib(mean),
        "bw_dev": kib(deviation),
        "bw_samples": rates.len(),
        "iops_min": least as u64,
        "iops_max": most as u64,
        "iops_mean": mean,
        "iops_stddev": deviation,
        "iops_samples": rates.len(),
    })
}

/// From the buckets' upper edges, so that each value is at most one percent too high. Buckets are fio's `bins` (json+); like fio,
/// no `bins` where nothing was timed.
fn latency(buckets: Option<&Buckets>) -> Value {
    let Some(buckets) = buckets.filter(|buckets| buckets.0.iter().any(|(_, count)| *count > 0)) else {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    };
    let total: f64 = buckets.0.iter().map(|(_, count)| *count as f64).sum();
    let weighed = |value: &dyn Fn(f64) -> f64| {
        buckets.0.iter().map(|(edge, count)| value(*edge as f64) * *count as f64).sum::<f64>() / total.max(1.0)
    };
    let mean = weighed(&|edge| edge);
    let percentiles: Map<String, Value> = PERCENTILES
        .iter()
        .filter_map(|percent| Some((format!("{percent:.6}"), json!(derive::percentile(buckets, percent / 100.0)?))))
        .collect();
    let bins: Map<String, Value> = buckets.0.iter().map(|(edge, count)| (edge.to_string(), json!(count))).collect();
    json!({
        "min": derive::percentile(buckets, 0.0).unwrap_or(0),
        "max": derive::percentile(buckets, 1.0).unwrap_or(0),
        "mean": mean,
        "stddev": weighed(&|edge| (edge - mean).powi(2)).sqrt(),
        "N": total as u64,
        "percentile": percentiles,
        "bins": bins,
    })
}

fn extras(record: &Record) -> Value {
    let figures: Map<String, Value> = derive::ALL
        .iter()
        .filter_map(|formula| Some((formula.name.to_owned(), json!((formula.of)(record)?))))
        .collect();
    json!({
        "session": record.session,
        "repetition": record.trial.repetition,
        "outcome": record.outcome,
        "valid": record.is_valid(),
        "gates": record.gates,
        "cache": record.trial.cache.to_string(),
        "memory_bytes": record.trial.memory_bytes,
        "settings": record.settings,
        "phases": record.phases,
        "figures": figures,
        "machine": record.machine,
    })
}

fn wall_ns(record: &Record) -> u64 {
    record.phases.iter().fold(0, |sum, phase| sum.saturating_add(phase.wall_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn a_record_reads_like_a_job_of_fio() {
        let record = Run::of("pread")
            .accesses(2_000)
            .phases_ms(0, 2_000, 0)
            .latency(&[(100, 98), (200, 2)])
            .counter(counters::USER_NS, 500_000_000)
            .counter(counters::MAJOR_FAULTS, 3);

        let document = document(&[record.record()]);

        let job = &document["jobs"][0];
        assert_eq!(job["jobname"], "pread");
        assert_eq!(job["read"]["io_bytes"], 2_000 * 4_096);
        assert_eq!(job["read"]["iops"], 1_000.0);
        assert_eq!(job["read"]["runtime"], 2_000);
        assert_eq!(job["read"]["clat_ns"]["percentile"]["99.000000"], 200);
        assert_eq!(job["read"]["clat_ns"]["mean"], 102.0);
        assert_eq!((&job["usr_cpu"], &job["majf"]), (&json!(25.0), &json!(3)));
        assert_eq!(job["write"]["total_ios"], 0);
        assert_eq!(job["majorfault"]["valid"], true);
    }

    #[test]
    fn a_run_that_failed_is_a_job_with_an_error() {
        let document = document(&[Run::of("mmap").failed("SIGBUS").record()]);

        assert_eq!(document["jobs"][0]["error"], 1);
    }
}
