//! Formulas by name: everything a report computes from one record, each with what it says and where it comes from.
//!
//! Records hold what was seen; only these lines turn it into rates and ratios.

use super::{counters, words};
use crate::record::{Buckets, Record};
use crate::trial::Direction;
use std::collections::BTreeMap;

/// A figure computed from one record.
#[derive(Debug)]
pub struct Formula {
    /// Name in JSON.
    pub name: &'static str,
    /// Name over a column.
    pub title: &'static str,
    /// What is divided by what, and whose it is.
    pub says: &'static str,
    /// How it is written for people.
    pub number: fn(f64) -> String,
    /// The value; `None` where the record lacks what it needs.
    pub of: fn(&Record) -> Option<f64>,
}

/// Accesses a second, setup included.
pub const THROUGHPUT: Formula = Formula {
    name: "throughput_per_s",
    title: "accesses/s",
    says: "accesses of all threads / wall time of open + visit + close; populating and unmapping are inside the clock",
    number: words::per_second,
    of: |record| per(record.accesses() as f64, total_s(record)),
};

/// Bytes a second, setup included.
pub const BANDWIDTH: Formula = Formula {
    name: "bandwidth_bytes_per_s",
    title: "bytes/s",
    says: "bytes handed to the program / wall time of open + visit + close",
    number: words::bytes_per_second,
    of: |record| per(record.bytes() as f64, total_s(record)),
};

/// Accesses a second of the visit alone.
pub const VISIT_THROUGHPUT: Formula = Formula {
    name: "visit_throughput_per_s",
    title: "visit alone",
    says: "accesses of all threads / wall time of the visit alone, for comparison with tools that time only that",
    number: words::per_second,
    of: |record| per(record.accesses() as f64, phase_s(record, "visit")),
};

/// Share of the time that was not the visit.
pub const SETUP_SHARE: Formula = Formula {
    name: "setup_share",
    title: "setup",
    says: "wall time of open + close / wall time of all phases",
    number: words::percent,
    of: |record| per(total_s(record) - phase_s(record, "visit"), total_s(record)),
};

/// Device bytes per byte wanted.
pub const READ_AMPLIFICATION: Formula = Formula {
    name: "read_amplification",
    title: "device/wanted",
    says: "bytes that the run itself read from the device (/proc/PID/io, with the children of a peer) / bytes the program \
           asked for, repeats included; below 1 the page cache helped",
    number: words::ratio,
    of: |record| {
        (record.trial.direction == Direction::Read).then(|| per(device_bytes(record)?, record.bytes() as f64))?
    },
};

/// Device bytes per byte of distinct blocks.
pub const REREADING: Formula = Formula {
    name: "device_bytes_per_distinct_byte",
    title: "device/distinct",
    says: "bytes that the run read from the device / bytes of distinct blocks visited (counted for orders that visit a \
           block once, expected for random draws); above 1 is read-ahead or reading again",
    number: words::ratio,
    of: |record| per(device_bytes(record)?, record.traits.as_ref()?.distinct_bytes? as f64),
};

/// Accesses per distinct block.
pub const VISITS: Formula = Formula {
    name: "visits_per_block",
    title: "visits",
    says: "accesses / distinct blocks that they reached (counted for orders that visit a block once, expected for random \
           draws); what a cold cache costs is in the first visit only",
    number: words::ratio,
    of: |record| per(record.bytes() as f64, record.traits.as_ref()?.distinct_bytes? as f64),
};

/// Written device bytes per byte written.
pub const WRITE_AMPLIFICATION: Formula = Formula {
    name: "write_amplification",
    title: "device/written",
    says: "bytes that the run made dirty in the page cache or wrote past it (/proc/PID/io) / bytes the program wrote; what \
           the file system writes for itself is not in it",
    number: words::ratio,
    of: |record| {
        let written = counters::growth(record, counters::PROCESS_WRITTEN)?;
        (record.trial.direction == Direction::Write && !record.is_control())
            .then(|| per(written as f64, record.bytes() as f64))?
    },
};

/// Device bytes of the run.
pub const DEVICE_BYTES: Formula = Formula {
    name: "device_read_bytes",
    title: "device bytes",
    says: "bytes that the run itself read from the device in open + visit + close",
    number: words::bytes,
    of: device_bytes,
};

/// Page faults per access.
pub const FAULTS: Formula = Formula {
    name: "faults_per_access",
    title: "faults",
    says: "minor + major faults of the process / accesses",
    number: words::ratio,
    of: |record| each(record, &[counters::MINOR_FAULTS, counters::MAJOR_FAULTS]),
};

/// Faults that waited for the device, per access.
pub const MAJOR_FAULTS: Formula = Formula {
    name: "major_faults_per_access",
    title: "major faults",
    says: "major faults of the process / accesses",
    number: words::ratio,
    of: |record| each(record, &[counters::MAJOR_FAULTS]),
};

/// Shootdowns per access.
pub const SHOOTDOWNS: Formula = Formula {
    name: "shootdowns_per_access",
    title: "shootdowns/access",
    says: "TLB shootdown interrupts of the whole machine / accesses",
    number: words::ratio,
    of: |record| each(record, &[counters::SHOOTDOWNS]),
};

/// Shootdowns per second.
pub const SHOOTDOWN_RATE: Formula = Formula {
    name: "shootdowns_per_s",
    title: "shootdowns/s",
    says: "TLB shootdown interrupts of the whole machine / wall time of open + visit + close",
    number: words::per_second,
    of: |record| per(counters::growth(record, counters::SHOOTDOWNS)? as f64, total_s(record)),
};

/// Processor time of an access.
pub const CPU: Formula = Formula {
    name: "cpu_ns_per_access",
    title: "CPU/access",
    says: "user + system time of the process / accesses; work of kernel threads (kswapd) is not in it",
    number: words::nanos,
    of: |record| each(record, &[counters::USER_NS, counters::SYSTEM_NS]),
};

/// Context switches per access.
pub const SWITCHES: Formula = Formula {
    name: "switches_per_access",
    title: "switches",
    says: "voluntary + involuntary context switches of the process / accesses",
    number: words::ratio,
    of: |record| each(record, &[counters::WAITS, counters::PREEMPTIONS]),
};

/// Refaults per access.
pub const REFAULTS: Formula = Formula {
    name: "refaults_per_access",
    title: "refaults",
    says: "evicted file pages that were needed again / accesses",
    number: words::ratio,
    of: |record| each(record, &[counters::REFAULTS]),
};

/// Share of the mapped bytes that huge entries map.
pub const HUGE_SHARE: Formula = Formula {
    name: "huge_page_share",
    title: "huge pages",
    says: "bytes mapped by 2 MiB entries / bytes mapped, at the end of the visit (/proc/PID/smaps)",
    number: words::percent,
    of: |record| {
        let mapped = counters::growth(record, counters::MAPPED)?;
        per(counters::growth(record, counters::MAPPED_HUGE)? as f64, mapped as f64)
    },
};

/// Every formula, in the order of the page's tables.
pub const ALL: &[&Formula] = &[
    &THROUGHPUT,
    &BANDWIDTH,
    &VISIT_THROUGHPUT,
    &SETUP_SHARE,
    &CPU,
    &FAULTS,
    &MAJOR_FAULTS,
    &READ_AMPLIFICATION,
    &REREADING,
    &VISITS,
    &DEVICE_BYTES,
    &WRITE_AMPLIFICATION,
    &SHOOTDOWNS,
    &SHOOTDOWN_RATE,
    &REFAULTS,
    &SWITCHES,
    &HUGE_SHARE,
];

/// Upper edge in nanoseconds of the bucket in which the share `quantile` of accesses had ended; `None` of nothing.
pub fn percentile(buckets: &Buckets, quantile: f64) -> Option<u64> {
    let total: u128 = buckets.0.iter().map(|(_, count)| u128::from(*count)).sum();
    let wanted = ((total as f64 * quantile).ceil() as u128).clamp(1, total.max(1));
    let mut ended = 0;
    buckets.0.iter().find_map(|(edge, count)| {
        ended += u128::from(*count);
        (ended >= wanted).then_some(*edge)
    })
}

/// The histograms of several runs as one.
pub fn merged<'a>(histograms: impl Iterator<Item = &'a Buckets>) -> Buckets {
    let mut sum: BTreeMap<u64, u64> = BTreeMap::new();
    for (edge, count) in histograms.flat_map(|buckets| &buckets.0) {
        let bucket = sum.entry(*edge).or_default();
        *bucket = bucket.saturating_add(*count);
    }
    Buckets(sum.into_iter().filter(|(_, count)| *count > 0).collect())
}

fn per(amount: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| amount / of)
}

fn each(record: &Record, names: &[&str]) -> Option<f64> {
    per(counters::growth_of_any(record, names)? as f64, record.accesses() as f64)
}

fn phase_s(record: &Record, name: &str) -> f64 {
    record.phase(name).map_or(0.0, |phase| phase.wall_ns as f64 / 1e9)
}

fn total_s(record: &Record) -> f64 {
    record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum()
}

/// What the run itself made the device read, a peer's children included; never what the device did for others.
fn device_bytes(record: &Record) -> Option<f64> {
    let bytes = counters::growth(record, counters::PROCESS_READ)?;
    (!record.is_control()).then_some(bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn setup_is_inside_the_clock() {
        let record = Run::of("mmap").accesses(1_000).phases_ms(900, 100, 0).record();

        assert_eq!((THROUGHPUT.of)(&record), Some(1_000.0));
        assert_eq!((VISIT_THROUGHPUT.of)(&record), Some(10_000.0));
        assert_eq!((SETUP_SHARE.of)(&record), Some(0.9));
    }

    #[test]
    fn read_amplification_is_device_bytes_per_byte_wanted_and_none_of_the_control() {
        let run = |arm| Run::of(arm).block(64).accesses(1_000).counter(counters::PROCESS_READ, 64_000 * 64);

        assert_eq!((READ_AMPLIFICATION.of)(&run("mmap").record()), Some(64.0));
        assert_eq!((READ_AMPLIFICATION.of)(&run("null").record()), None);
    }

    #[test]
    fn write_amplification_is_bytes_written_per_byte_changed_of_runs_that_write() {
        let run = |arm, direction| {
            let run = Run::of(arm).block(64).accesses(1_000).counter(counters::PROCESS_WRITTEN, 64_000 * 3);
            run.edit(|record| record.trial.direction = direction).record()
        };

        assert_eq!((WRITE_AMPLIFICATION.of)(&run("mmap", Direction::Write)), Some(3.0));
        assert_eq!((WRITE_AMPLIFICATION.of)(&run("mmap", Direction::Read)), None);
        assert_eq!((WRITE_AMPLIFICATION.of)(&run("null", Direction::Write)), None);
    }

    #[test]
    fn histograms_are_added_bucket_by_bucket_and_empty_buckets_go() {
        let runs = [Buckets(vec![(100, 0), (200, 5)]), Buckets(vec![(200, 2), (400, 1)])];

        assert_eq!(merged(runs.iter()).0, [(200, 7), (400, 1)]);
    }

    #[test]
    fn faults_are_minor_and_major_ones_and_unknown_where_not_counted() {
        let run =
            Run::of("mmap").accesses(1_000).counter(counters::MINOR_FAULTS, 200).counter(counters::MAJOR_FAULTS, 800);

        assert_eq!((FAULTS.of)(&run.record()), Some(1.0));
        assert_eq!((FAULTS.of)(&Run::of("pread").record()), None);
    }

    #[test]
    fn a_peer_that_repeats_its_counters_in_each_phase_is_counted_once() {
        let record = Run::peer("fio").accesses(100).phases_ms(1, 1, 1).counter(counters::MAJOR_FAULTS, 100).record();

        assert_eq!((MAJOR_FAULTS.of)(&record), Some(1.0));
    }

    #[test]
    fn percentiles_are_upper_edges_of_buckets() {
        let buckets = Buckets(vec![(100, 90), (1_000, 9), (10_000, 1)]);

        let found = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|quantile| percentile(&buckets, quantile));

        assert_eq!(found, [Some(100), Some(100), Some(100), Some(1_000), Some(10_000), Some(10_000)]);
        assert_eq!(percentile(&Buckets::default(), 0.5), None);
    }

    #[test]
    fn nothing_is_divided_by_a_run_that_did_nothing() {
        let empty = Run::of("mmap").accesses(0).phases_ms(0, 0, 0).record();

        assert!(ALL.iter().all(|formula| (formula.of)(&empty).is_none_or(f64::is_finite)));
        assert_eq!((THROUGHPUT.of)(&empty), None);
    }
}
