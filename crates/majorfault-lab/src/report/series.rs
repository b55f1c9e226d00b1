//! The timeline of one record as series over seconds: rates between samples of totals, levels as they were.

use super::counters;
use crate::record::Record;

/// The share of the memory limit at which the page cache counts as full: beyond it the kernel reclaims.
const FULL: f64 = 0.97;

/// Values over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(pub Vec<(f64, f64)>);

impl Series {
    /// The largest value, or 0.
    pub fn peak(&self) -> f64 {
        self.0.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// Mean of the values from `from_s` on; `None` of nothing.
    pub fn mean_from(&self, from_s: f64) -> Option<f64> {
        let values: Vec<f64> = self.0.iter().filter(|(at, _)| *at >= from_s).map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Whether there is something to draw.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Accesses a second in each whole interval, at its middle. The last interval is left out where the visit ended in it.
pub fn throughput(record: &Record) -> Series {
    let interval_s = record.timeline.interval_ns as f64 / 1e9;
    if interval_s <= 0.0 {
        return Series::default();
    }
    let whole = record.phase("visit").map_or(u64::MAX, |visit| visit.wall_ns / record.timeline.interval_ns);
    let counts = record.timeline.accesses.iter().take(usize::try_from(whole).unwrap_or(usize::MAX));
    let points = counts.enumerate().map(|(at, count)| ((at as f64 + 0.5) * interval_s, *count as f64 / interval_s));
    Series(points.collect())
}

/// Growth a second of the sum of these totals between one sample and the next, at the middle between both.
pub fn rate(record: &Record, names: &[&str]) -> Series {
    let Series(sums) = level(record, names);
    let pairs = sums.iter().zip(sums.iter().skip(1)).filter(|((before, _), (after, _))| after > before);
    let points =
        pairs.map(|((before, low), (after, high))| ((before + after) / 2.0, (high - low).max(0.0) / (after - before)));
    Series(points.filter(|(at, _)| *at >= 0.0).collect())
}

/// The sum of these counters at each sample; a sample that lacks one of those the record has is left out.
pub fn level(record: &Record, names: &[&str]) -> Series {
    let readings: Vec<&Vec<Option<u64>>> =
        names.iter().filter_map(|name| record.timeline.counters.get(*name)).collect();
    if readings.is_empty() {
        return Series::default();
    }
    let sum = |index: usize| -> Option<f64> {
        readings.iter().map(|reading| reading.get(index).copied().flatten().map(|value| value as f64)).sum()
    };
    let moments = record.timeline.at_ns.iter().enumerate();
    Series(moments.filter_map(|(index, at)| Some((*at as f64 / 1e9, sum(index)?))).collect())
}

/// When memory was full, in seconds of the visit: the cgroup first came near its limit, or, without a limit, pages were
/// first reclaimed. `None`: never, or not known.
pub fn full_at(record: &Record) -> Option<f64> {
    let usage = level(record, &[counters::CGROUP_BYTES]);
    match record.trial.memory_bytes {
        Some(limit) if !usage.is_empty() => first(&usage, |bytes| bytes >= limit as f64 * FULL),
        _ => first(&reclaim(record), |pages| pages > 0.0),
    }
}

/// Pages freed a second: from the cgroup, where there is a limit; else by kswapd and by the allocating threads; pages
/// looked at where freed ones are not counted.
pub fn reclaim(record: &Record) -> Series {
    let from_cgroup = rate(record, &[counters::RECLAIMED_CGROUP]);
    if record.trial.memory_bytes.is_some() && !from_cgroup.is_empty() {
        return from_cgroup;
    }
    let freed = rate(record, &[counters::RECLAIMED_KSWAPD, counters::RECLAIMED_DIRECT]);
    if freed.is_empty() { rate(record, &[counters::SCANNED_KSWAPD, counters::SCANNED_DIRECT]) } else { freed }
}

fn first(series: &Series, holds: impl Fn(f64) -> bool) -> Option<f64> {
    series.0.iter().find(|(_, value)| holds(*value)).map(|(at, _)| at.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn totals_become_rates_between_samples() {
        let record = Run::of("mmap").sampled("tlb_shootdowns", &[1_000, 1_100, 1_400, 1_400]).record();

        assert_eq!(rate(&record, &["tlb_shootdowns"]), Series(vec![(0.125, 400.0), (0.375, 1_200.0), (0.625, 0.0)]));
    }

    #[test]
    fn an_interval_the_visit_ended_in_is_not_a_dip() {
        let record = Run::of("mmap").phases_ms(0, 600, 0).timeline(&[250, 250, 100]).record();

        assert_eq!(throughput(&record), Series(vec![(0.125, 1_000.0), (0.375, 1_000.0)]));
    }

    #[test]
    fn memory_is_full_when_the_cgroup_first_comes_near_its_limit() {
        let usage = [100 << 20, 180 << 20, 250 << 20, 256 << 20];

        let limited = Run::of("mmap").memory(256 << 20).sampled(counters::CGROUP_BYTES, &usage);

        assert_eq!(full_at(&limited.clone().record()), Some(0.5));
        assert_eq!(full_at(&limited.memory(1 << 30).record()), None);
    }

    #[test]
    fn without_a_limit_memory_is_full_when_pages_are_first_reclaimed() {
        let record = Run::of("mmap").sampled(counters::RECLAIMED_KSWAPD, &[5, 5, 5, 900]).record();

        assert_eq!(full_at(&record), Some(0.625));
    }

    #[test]
    fn a_counter_going_backwards_is_no_negative_rate() {
        let record = Run::of("mmap").sampled("tlb_shootdowns", &[9, 3]).record();

        assert_eq!(rate(&record, &["tlb_shootdowns"]), Series(vec![(0.125, 0.0)]));
    }
}
