//! Records in the shape of fio's `--output-format=json`, so that programs that read fio's results read ours.
//!
//! fio's names and units (fio 3.x, stat.c): bandwidth in KiB/s as `bw`, in bytes as `bw_bytes`; runtime in ms;
//! percentiles as `"99.000000"`. What fio has no name for is under `"majorfault"`.

use super::{counters, derive};
use crate::record::{Outcome, Record};
use crate::traits::Order;
use crate::trial::Direction;
use serde_json::{Map, Value, json};

/// fio's default `percentile_list`.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// One document with one job for each record.
pub fn document(records: &[Record]) -> Value {
    let began = records.iter().map(|record| record.began_unix_s).min().unwrap_or(0);
    json!({
        "fio version": records.first().map_or("majorfault", |record| record.tool.as_str()),
        "timestamp": began,
        "timestamp_ms": began.saturating_mul(1000),
        "jobs": records.iter().map(job).collect::<Vec<_>>(),
    })
}

fn job(record: &Record) -> Value {
    let (used, idle) = match record.trial.direction {
        Direction::Read => ("read", "write"),
        Direction::Write => ("write", "read"),
    };
    let elapsed = wall_ns(record);
    let cpu = |name| counters::growth(record, name).map_or(0.0, |ns| 100.0 * ns as f64 / (elapsed as f64).max(1.0));
    let counted = |name| counters::growth(record, name).unwrap_or(0);
    json!({
        "jobname": record.trial.arm.to_string(),
        "groupid": 0,
        "error": i32::from(!matches!(record.outcome, Outcome::Done | Outcome::Interrupted)),
        "elapsed": elapsed.div_ceil(1_000_000_000),
        "job options": options(record),
        used: traffic(record),
        idle: empty(),
        "job_runtime": elapsed / 1_000_000,
        "usr_cpu": cpu(counters::USER_NS),
        "sys_cpu": cpu(counters::SYSTEM_NS),
        "ctx": counted(counters::WAITS).saturating_add(counted(counters::PREEMPTIONS)),
        "majf": counted(counters::MAJOR_FAULTS),
        "minf": counted(counters::MINOR_FAULTS),
        "majorfault": extras(record),
    })
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
    match (record.trial.direction, is_ascending) {
        (Direction::Read, true) => "read",
        (Direction::Read, false) => "randread",
        (Direction::Write, true) => "write",
        (Direction::Write, false) => "randwrite",
    }
}

/// Rates include setup, as everywhere in our reports; fio's own time the accesses alone (`majorfault.visit` has those).
fn traffic(record: &Record) -> Value {
    let bandwidth = (derive::BANDWIDTH.of)(record).unwrap_or(0.0);
    json!({
        "io_bytes": record.bytes(),
        "io_kbytes": record.bytes() / 1024,
        "bw_bytes": bandwidth as u64,
        "bw": (bandwidth / 1024.0) as u64,
        "iops": (derive::THROUGHPUT.of)(record).unwrap_or(0.0),
        "runtime": wall_ns(record) / 1_000_000,
        "total_ios": record.accesses(),
        "short_ios": 0,
        "drop_ios": 0,
        "clat_ns": latency(record),
    })
}

fn empty() -> Value {
    json!({
        "io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0,
        "short_ios": 0, "drop_ios": 0,
        "clat_ns": { "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 },
    })
}

/// From the buckets' upper edges, so that each value is at most one percent too high.
fn latency(record: &Record) -> Value {
    let buckets = &record.latency.buckets;
    let total: f64 = buckets.0.iter().map(|(_, count)| *count as f64).sum();
    let weighed = |value: &dyn Fn(f64) -> f64| {
        buckets.0.iter().map(|(edge, count)| value(*edge as f64) * *count as f64).sum::<f64>() / total.max(1.0)
    };
    let mean = weighed(&|edge| edge);
    let percentiles: Map<String, Value> = PERCENTILES
        .iter()
        .filter_map(|percent| Some((format!("{percent:.6}"), json!(derive::percentile(buckets, percent / 100.0)?))))
        .collect();
    json!({
        "min": derive::percentile(buckets, 0.0).unwrap_or(0),
        "max": derive::percentile(buckets, 1.0).unwrap_or(0),
        "mean": mean,
        "stddev": weighed(&|edge| (edge - mean).powi(2)).sqrt(),
        "N": total as u64,
        "percentile": percentiles,
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
