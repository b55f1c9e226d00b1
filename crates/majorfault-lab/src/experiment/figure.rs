//! The figures that rows are judged by: what a record says in one number, each with a name that scripts know, too.
//!
//! Definitions are short enough to be made a second time from the name alone; `tools/verdicts.py` does.

use crate::record::{Answer, Record};
use crate::stats;

/// A number that a record gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Seconds of the visit.
    Seconds,
    /// Seconds of all phases: what a user pays, preparation included.
    Total,
    /// Accesses a second of all phases.
    PerSecond,
    /// Seconds of all phases for each byte that the program got.
    PerByte,
    /// Bytes that the program got or gave for each nanosecond of the visit: GB a second.
    BytesPerNs,
    /// Accesses of all threads.
    Accesses,
    /// Page faults of the visit, minor and major.
    Faults,
    /// What a counter grew by in the visit, or a level at its end.
    Counter(&'static str),
    /// What a procedure counted itself.
    Own(&'static str),
    /// Pages that the process had the device read, for each access.
    PagesRead,
    /// Bytes that the process had the device read, for each byte that the program got.
    ReadPerByte,
    /// Share of a timeline in which the device read at less than half of its median rate; two intervals at each end, which
    /// hold a peer's start and end, are left out. At least five must be left.
    BelowHalf,
    /// Accesses an interval once memory was full, over those before; medians.
    LevelAfter,
    /// The lowest half second once memory was full, over the level before.
    LevelLowest,
    /// Shootdowns a second before memory was full.
    ShootdownsBefore,
    /// The same from then on.
    ShootdownsAfter,
    /// Of the pages reclaimed (by kswapd, by the machine's processes, by the limit), the share that kswapd took.
    KswapdShare,
    /// Processor time of kswapd, as a share of the visit's time.
    KswapdBusy,
    /// Devices under the files, by what the record says of them.
    Devices,
    /// Bytes of data for each byte of the memory limit.
    DataOverMemory,
    /// 1 where every byte of the data was read once and was right, 0 where not.
    WholeAndRight,
}

/// The row of /proc/interrupts that hypervisors and newer processors bypass.
pub(super) const SHOOTDOWNS: &str = "tlb_shootdowns";

/// Requests to other processors to flush, by the kernel's tracepoint, of this process; nothing hides them.
const REQUESTS: &str = "tlb_flush_remote_send_ipi";

/// How a remark of the machine ends by which that row may miss flushes (`majorfault::observe::hidden_flushes`).
pub(super) const HIDES: &str = "counts too few";

/// How the remark of an emulated guest ends ([`crate::place::guest::remark`]).
pub(super) const EMULATED: &str = "counts are exact and times are not";

/// Share of the limit from which on memory is full.
const FULL: f64 = 0.95;

impl Figure {
    /// Its name, for people and for scripts: a formula where it has one, of sums and at most one quotient. A counter's
    /// growth is that of the visit.
    pub fn name(self) -> String {
        match self {
            Figure::Counter(name) => format!("counter {name}"),
            Figure::Own(name) => format!("own {name}"),
            other => other.formula().to_owned(),
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Figure::Seconds => "seconds visit",
            Figure::Total => "seconds total",
            Figure::PerSecond => "accesses / seconds total",
            Figure::PerByte => "seconds total / bytes",
            Figure::BytesPerNs => "bytes / ns visit",
            Figure::Accesses => "accesses",
            Figure::Faults => "counter minor_faults + counter major_faults",
            Figure::Counter(name) | Figure::Own(name) => name,
            Figure::PagesRead => "counter process_read_bytes / 4096 accesses",
            Figure::ReadPerByte => "counter process_read_bytes / bytes",
            Figure::BelowHalf => "share below half the median rate",
            Figure::LevelAfter => "level after full memory",
            Figure::LevelLowest => "lowest half second after full memory",
            Figure::ShootdownsBefore => "shootdowns a second before full memory",
            Figure::ShootdownsAfter => "shootdowns a second after full memory",
            Figure::KswapdShare => {
                "counter pgsteal_kswapd / counter pgsteal_kswapd + counter pgsteal_direct + counter cgroup_reclaimed_pages"
            }
            Figure::KswapdBusy => "counter kswapd_ns / ns visit",
            Figure::Devices => "devices",
            Figure::DataOverMemory => "size / memory limit",
            Figure::WholeAndRight => "whole and right",
        }
    }

    /// Its value; `None` where the record does not tell.
    pub fn of(self, record: &Record) -> Option<f64> {
        match self {
            Figure::Seconds => Some(record.phase("visit")?.wall_ns as f64 / 1e9),
            Figure::Total => total_s(record),
            Figure::PerSecond => Some(record.accesses() as f64 / total_s(record).filter(|seconds| *seconds > 0.0)?),
            Figure::PerByte => per(total_s(record)?, record.bytes() as f64),
            Figure::BytesPerNs => per(record.bytes() as f64, record.phase("visit")?.wall_ns as f64),
            Figure::Accesses => Some(record.accesses() as f64),
            Figure::Faults => Some(visited(record, "minor_faults")? + visited(record, "major_faults")?),
            Figure::Counter(name) => visited(record, name),
            Figure::Own(name) => record.figures.get(name).map(|value| *value as f64),
            Figure::PagesRead => per(visited(record, "process_read_bytes")?, record.accesses() as f64 * 4096.0),
            Figure::ReadPerByte => per(visited(record, "process_read_bytes")?, record.bytes() as f64),
            Figure::BelowHalf => below_half(record),
            Figure::LevelAfter => levels(record).map(|[before, after, _]| after / before),
            Figure::LevelLowest => levels(record).map(|[before, _, lowest]| lowest / before),
            Figure::ShootdownsBefore => rates(record, SHOOTDOWNS).map(|[before, _]| before),
            Figure::ShootdownsAfter => rates(record, SHOOTDOWNS).map(|[_, after]| after),
            Figure::KswapdShare => kswapd_share(record),
            Figure::KswapdBusy => per(visited(record, "kswapd_ns")?, record.phase("visit")?.wall_ns as f64),
            Figure::Devices => devices_of(record),
            Figure::DataOverMemory => per(record.trial.data.size_bytes as f64, record.trial.memory_bytes? as f64),
            Figure::WholeAndRight => {
                Some(f64::from(record.answer == Answer::Checked && record.bytes() == record.trial.data.size_bytes))
            }
        }
    }

    /// The least and the most that it can be in truth: the same, unless the machine hides what it counts.
    ///
    /// A hidden shootdown was asked for: the most is the tracepoint's requests times the other processors, and without the
    /// tracepoint there is no most (infinity).
    pub fn bounds(self, record: &Record) -> Option<[f64; 2]> {
        let least = self.of(record)?;
        let is_hidden = record.machine.remarks.iter().any(|remark| remark.contains(HIDES));
        let requests = match self {
            Figure::Counter(SHOOTDOWNS) => visited(record, REQUESTS),
            Figure::ShootdownsBefore => rates(record, REQUESTS).map(|[before, _]| before),
            Figure::ShootdownsAfter => rates(record, REQUESTS).map(|[_, after]| after),
            _ => return Some([least, least]),
        };
        let others = f64::from(record.machine.cpus.saturating_sub(1));
        let most = requests.map_or(f64::INFINITY, |requests| least.max(requests * others));
        Some([least, if is_hidden { most } else { least }])
    }

    /// Whether it rests on how long something took, so that an emulated machine cannot tell it: parts of it are slowed by
    /// unlike factors.
    pub fn is_time(self) -> bool {
        match self {
            Figure::Seconds
            | Figure::Total
            | Figure::PerSecond
            | Figure::PerByte
            | Figure::BytesPerNs
            | Figure::BelowHalf
            | Figure::LevelAfter
            | Figure::LevelLowest
            | Figure::ShootdownsBefore
            | Figure::ShootdownsAfter
            | Figure::KswapdBusy => true,
            Figure::Counter(name) | Figure::Own(name) => name.ends_with("_ns"),
            Figure::Accesses
            | Figure::Faults
            | Figure::PagesRead
            | Figure::ReadPerByte
            | Figure::KswapdShare
            | Figure::Devices
            | Figure::DataOverMemory
            | Figure::WholeAndRight => false,
        }
    }

    /// Whether the record is of an emulated machine and this a time.
    pub fn is_untold_by(self, record: &Record) -> bool {
        self.is_time() && record.machine.remarks.iter().any(|remark| remark.contains(EMULATED))
    }

    /// Whether a machine may hide what it counts.
    pub fn may_be_hidden(self) -> bool {
        matches!(self, Figure::Counter(SHOOTDOWNS) | Figure::ShootdownsBefore | Figure::ShootdownsAfter)
    }
}

fn visited(record: &Record, counter: &str) -> Option<f64> {
    record.phase("visit")?.counters.get(counter).map(|value| *value as f64)
}

fn total_s(record: &Record) -> Option<f64> {
    (!record.phases.is_empty()).then(|| record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum())
}

fn per(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn kswapd_share(record: &Record) -> Option<f64> {
    let kswapd = visited(record, "pgsteal_kswapd")?;
    per(kswapd, kswapd + visited(record, "pgsteal_direct")? + visited(record, "cgroup_reclaimed_pages")?)
}

/// Readings of a growing counter with their times, from the start of the visit on.
fn readings(record: &Record, counter: &str) -> Option<Vec<(i64, f64)>> {
    let values = record.timeline.counters.get(counter)?.iter().zip(&record.timeline.at_ns);
    Some(values.filter_map(|(value, at)| Some((*at, (*value)? as f64))).filter(|(at, _)| *at >= 0).collect())
}

fn devices_of(record: &Record) -> Option<f64> {
    let mut devices: Vec<u64> = record.files[0].iter().map(|file| file.device).collect();
    devices.sort_unstable();
    devices.dedup();
    (!devices.is_empty()).then_some(devices.len() as f64)
}

fn below_half(record: &Record) -> Option<f64> {
    let points = readings(record, "device_read_bytes")?;
    // Two samples at one moment tell no rate.
    let apart = points.windows(2).filter(|pair| pair[1].0 - pair[0].0 > 50_000_000);
    let rates: Vec<f64> = apart.map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0) as f64).collect();
    let inner = rates.get(2..rates.len().checked_sub(2)?).filter(|inner| inner.len() >= 5)?;
    let half = stats::median(inner)? / 2.0;
    Some(inner.iter().filter(|rate| **rate < half).count() as f64 / inner.len() as f64)
}

/// When memory was full for the first time, in nanoseconds of the visit.
fn full_at(record: &Record) -> Option<i64> {
    let limit = record.trial.memory_bytes? as f64;
    let usage = readings(record, "cgroup_usage_bytes")?;
    usage.iter().find(|(_, bytes)| *bytes >= FULL * limit).map(|(at, _)| *at)
}

/// Level before memory was full, level afterwards, and the lowest stretch of half a second, of accesses an interval.
/// At least three intervals must lie before, ten after.
fn levels(record: &Record) -> Option<[f64; 3]> {
    let interval = record.timeline.interval_ns.max(1);
    let full = full_at(record)? as u64 / interval;
    // The last interval is cut short by the end of the run.
    let series: Vec<f64> = record.timeline.accesses.iter().map(|count| *count as f64).collect();
    let (before, after) = series.get(..series.len().checked_sub(1)?)?.split_at_checked(full as usize)?;
    if before.len() < 3 || after.len() < 10 {
        return None;
    }
    let stretch = (500_000_000 / interval).max(1) as usize;
    let sums = after.windows(stretch).map(|window| window.iter().sum::<f64>() / stretch as f64);
    Some([
        stats::median(before).filter(|level| *level > 0.0)?,
        stats::median(after)?,
        sums.fold(f64::INFINITY, f64::min),
    ])
}

/// What a counter grew by a second, before memory was full and from then on.
fn rates(record: &Record, counter: &str) -> Option<[f64; 2]> {
    let points = readings(record, counter)?;
    let full = full_at(record)?;
    let middle = points.iter().position(|(at, _)| *at >= full)?;
    let rate = |part: &[(i64, f64)]| {
        let (from, to) = (part.first()?, part.last()?);
        per((to.1 - from.1) * 1e9, (to.0 - from.0) as f64)
    };
    Some([rate(&points[..=middle])?, rate(&points[middle..])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FileState;
    use crate::report::synthetic::Run;

    /// A run whose memory of 100 MiB is full after nine intervals of a quarter second.
    fn filling() -> Run {
        let usage: Vec<u64> = (1..=30).map(|step| (step * 10).min(100) << 20).collect();
        Run::of("mmap advice=random").memory(100 << 20).sampled("cgroup_usage_bytes", &usage)
    }

    #[test]
    fn devices_are_those_of_the_files_each_once() {
        let on = |devices: &[u64]| {
            let file = |device: &u64| FileState { device: *device, inode: 1, size_bytes: 1, modified_ns: 0 };
            let files = devices.iter().map(file).collect();
            devices_of(&Run::of("mmap").edit(|record| record.files[0] = files).record())
        };

        assert_eq!((on(&[7, 7]), on(&[7, 8, 7]), on(&[])), (Some(1.0), Some(2.0), None));
    }

    #[test]
    fn levels_are_told_on_both_sides_of_full_memory() {
        let accesses: Vec<u64> = [vec![1000; 9], vec![10; 3], vec![500; 18]].concat();
        let record = filling().timeline(&accesses).record();

        assert_eq!(levels(&record), Some([1000.0, 500.0, 10.0]));
        assert_eq!(Figure::LevelAfter.of(&record), Some(0.5));
        assert_eq!(Figure::LevelLowest.of(&record), Some(0.01));
    }

    #[test]
    fn the_last_interval_which_the_end_cuts_short_is_no_collapse() {
        let accesses: Vec<u64> = [vec![1000; 9], vec![500; 20], vec![0]].concat();

        assert_eq!(Figure::LevelLowest.of(&filling().timeline(&accesses).record()), Some(0.5));
    }

    #[test]
    fn bytes_for_a_nanosecond_are_those_of_the_visit_alone() {
        let run = Run::of("mmap").block(8192).accesses(1_000).phases_ms(5, 4, 3);

        // 8 192 000 bytes in 4 ms.
        assert_eq!(Figure::BytesPerNs.of(&run.record()), Some(2.048));
    }

    #[test]
    fn a_level_of_nothing_before_is_no_level() {
        let record = filling().timeline(&[0; 30]).record();

        assert_eq!(Figure::LevelAfter.of(&record), None);
    }

    #[test]
    fn shootdowns_are_told_on_both_sides_of_full_memory() {
        // 9 intervals make 2.25 s; then 20 intervals of 100 in 5 s.
        let counts: Vec<u64> = (0..30u64).map(|step| step.min(9) + step.saturating_sub(9) * 100).collect();
        let record = filling().sampled(SHOOTDOWNS, &counts).record();

        assert_eq!(Figure::ShootdownsBefore.of(&record), Some(4.0));
        assert_eq!(Figure::ShootdownsAfter.of(&record), Some(400.0));
    }

    #[test]
    fn a_device_that_pauses_is_below_half_for_that_share() {
        let steps = [vec![0, 0], vec![100; 8], vec![10, 10], vec![0, 0]].concat();
        let grown: Vec<u64> =
            std::iter::once(0).chain(steps.iter().scan(0, |sum, step| Some((*sum += step, *sum).1))).collect();
        let record = Run::peer("fio").sampled("device_read_bytes", &grown).record();

        assert_eq!(Figure::BelowHalf.of(&record), Some(0.2));
    }

    #[test]
    fn hidden_shootdowns_lie_between_the_row_and_the_requests() {
        let run = Run::of("mmap").counter(SHOOTDOWNS, 7).counter(REQUESTS, 20).edit(|record| record.machine.cpus = 3);
        let hidden = run.clone().edit(|record| record.machine.remarks = vec![format!("it {HIDES}")]);
        let untold = hidden.clone().edit(|record| record.phases[1].counters.retain(|name, _| name != REQUESTS));
        let bounds = |run: Run| Figure::Counter(SHOOTDOWNS).bounds(&run.record()).unwrap();

        assert_eq!(bounds(run), [7.0, 7.0]);
        assert_eq!(bounds(hidden), [7.0, 40.0]);
        assert_eq!(bounds(untold), [7.0, f64::INFINITY]);
    }

    #[test]
    fn the_remark_that_hides_flushes_is_known_by_its_end() {
        if let Some(remark) = majorfault::observe::hidden_flushes() {
            assert!(remark.contains(HIDES), "{remark}");
        }
    }
}
