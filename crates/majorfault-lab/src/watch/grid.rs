//! Faults over time, in bounded memory: bins double their width when a fault lies beyond the last one.
//!
//! Neither the size of a file nor the length of a watch (it may be interrupted) is known beforehand.

use std::collections::BTreeMap;
use std::time::Duration;

/// Bins along each axis.
pub const BINS: u64 = 128;

/// The narrowest useful bins: a millisecond and a page.
const LEAST_NS: u64 = 1_000_000;
const LEAST_BYTES: u64 = 4096;

/// Faults of one file, counted by time and offset.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Width of a bin of time, the first of which begins with the watch.
    pub bin_ns: u64,
    /// Width of a bin of offsets, the first of which begins with the file.
    pub bin_bytes: u64,
    /// Faults by the numbers of their bins of time and offset; only bins that have some.
    pub cells: BTreeMap<(u64, u64), u64>,
}

/// Faults and waits of the process, counted by time.
#[derive(Clone, Debug)]
pub struct FaultTimeline {
    /// Width of a bin, the first of which begins with the watch.
    pub bin_ns: u64,
    /// The counts of each bin.
    pub bins: Vec<Moment>,
}

/// The counts of one bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Faults that began.
    pub faults: u64,
    /// Of these, in files.
    pub in_files: u64,
    /// Nanoseconds that threads waited, summed over threads; a wait is divided among the bins that it lasts through.
    pub waited_ns: u64,
}

/// The width of bins that, doubled often enough, cover exactly `length` with all bins.
fn narrowest(length: Duration) -> u64 {
    let mut bin_ns = (length.as_nanos() as u64).div_ceil(BINS).max(1);
    while bin_ns / 2 >= LEAST_NS {
        bin_ns = bin_ns.div_ceil(2);
    }
    bin_ns
}

impl Grid {
    /// An empty grid for a watch of `length`.
    pub fn new(length: Duration) -> Grid {
        Grid { bin_ns: narrowest(length), bin_bytes: LEAST_BYTES, cells: BTreeMap::new() }
    }

    /// Counts a fault this many nanoseconds after the beginning.
    pub fn add(&mut self, at_ns: u64, offset: u64) {
        self.add_many(at_ns, offset, 1);
    }

    /// Counts a fault that stands for `count`.
    pub fn add_many(&mut self, at_ns: u64, offset: u64, count: u64) {
        self.cover(at_ns);
        while offset / self.bin_bytes >= BINS {
            self.bin_bytes *= 2;
            self.merge(|(time, place)| (time, place / 2));
        }
        *self.cells.entry((at_ns / self.bin_ns, offset / self.bin_bytes)).or_default() += count;
    }

    /// Multiplies all counts.
    pub fn scale(&mut self, factor: f64) {
        self.cells.values_mut().for_each(|count| *count = (*count as f64 * factor).round() as u64);
    }

    /// Widens the bins of time until one covers this moment.
    pub fn cover(&mut self, at_ns: u64) {
        while at_ns / self.bin_ns >= BINS {
            self.bin_ns *= 2;
            self.merge(|(time, place)| (time / 2, place));
        }
    }

    fn merge(&mut self, into: impl Fn((u64, u64)) -> (u64, u64)) {
        for (cell, count) in std::mem::take(&mut self.cells) {
            *self.cells.entry(into(cell)).or_default() += count;
        }
    }
}

impl FaultTimeline {
    /// An empty timeline for a watch of `length`.
    pub fn new(length: Duration) -> FaultTimeline {
        FaultTimeline { bin_ns: narrowest(length), bins: Vec::new() }
    }

    /// The counts of this moment.
    pub fn at(&mut self, at_ns: u64) -> &mut Moment {
        self.cover(at_ns);
        &mut self.bins[(at_ns / self.bin_ns) as usize]
    }

    /// Multiplies the counts of faults; waits stay.
    pub fn scale(&mut self, factor: f64) {
        for moment in &mut self.bins {
            for count in [&mut moment.faults, &mut moment.in_files] {
                *count = (*count as f64 * factor).round() as u64;
            }
        }
    }

    /// Adds a wait from one moment to another.
    pub fn wait(&mut self, from_ns: u64, to_ns: u64) {
        self.cover(to_ns);
        let mut from_ns = from_ns;
        while from_ns < to_ns {
            let next_ns = ((from_ns / self.bin_ns + 1) * self.bin_ns).min(to_ns);
            self.at(from_ns).waited_ns += next_ns - from_ns;
            from_ns = next_ns;
        }
    }

    /// Widens the bins until one covers this moment.
    pub fn cover(&mut self, at_ns: u64) {
        while at_ns / self.bin_ns >= BINS {
            self.bin_ns *= 2;
            self.bins = self.bins.chunks(2).map(|pair| pair.iter().copied().fold(Moment::default(), sum)).collect();
        }
        let needed = (at_ns / self.bin_ns) as usize + 1;
        self.bins.resize(self.bins.len().max(needed), Moment::default());
    }
}

fn sum(one: Moment, other: Moment) -> Moment {
    Moment {
        faults: one.faults + other.faults,
        in_files: one.in_files + other.in_files,
        waited_ns: one.waited_ns + other.waited_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn bins_fill_the_time_that_was_asked_for_and_less_where_it_is_cut_short() {
        let mut whole = Grid::new(Duration::from_secs(5));
        let mut cut = whole.clone();

        whole.add(5 * SECOND - 1, 0);
        cut.add(SECOND, 0);

        assert_eq!(whole.cells.keys().next(), Some(&(127, 0)));
        let (time, _) = cut.cells.keys().next().unwrap();
        assert!((64..128).contains(time), "{time}");
    }

    #[test]
    fn offsets_far_out_make_bins_wider_and_lose_no_fault() {
        let mut grid = Grid::new(Duration::from_secs(1));

        grid.add(0, 0);
        grid.add(0, 5000);
        grid.add(0, 1 << 30);

        assert_eq!(grid.bin_bytes, 1 << 24);
        assert_eq!(grid.cells.into_iter().collect::<Vec<_>>(), [((0, 0), 2), ((0, 64), 1)]);
    }

    #[test]
    fn a_wait_is_shared_by_the_bins_it_lasts_through() {
        let mut timeline = FaultTimeline { bin_ns: 100, bins: Vec::new() };

        timeline.wait(250, 460);

        let waited: Vec<u64> = timeline.bins.iter().map(|moment| moment.waited_ns).collect();
        assert_eq!(waited, [0, 0, 50, 100, 60]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_bin_lies_outside(faults in prop::collection::vec((0..1u64 << 40, any::<u64>()), 0..50)) {
            let mut grid = Grid::new(Duration::from_secs(1));
            let mut timeline = FaultTimeline::new(Duration::from_secs(1));

            for (at_ns, offset) in &faults {
                grid.add(*at_ns, offset / 2);
                timeline.at(*at_ns).faults += 1;
                timeline.wait(at_ns / 2, *at_ns);
            }

            prop_assert_eq!(grid.cells.values().sum::<u64>(), faults.len() as u64);
            prop_assert!(grid.cells.keys().all(|(time, place)| *time < BINS && *place < BINS));
            prop_assert!(timeline.bins.len() <= BINS as usize);
            prop_assert_eq!(timeline.bins.iter().map(|it| it.faults).sum::<u64>(), faults.len() as u64);
            let waited: u64 = faults.iter().map(|(at_ns, _)| at_ns - at_ns / 2).sum();
            prop_assert_eq!(timeline.bins.iter().map(|it| it.waited_ns).sum::<u64>(), waited);
        }
    }

    #[test]
    fn bins_begin_as_narrow_as_a_millisecond_is_worth_and_fill_the_watch_when_doubled() {
        let bin_ns = |length| Grid::new(length).bin_ns;

        assert_eq!(bin_ns(Duration::from_millis(128)), 1_000_000);
        assert_eq!(bin_ns(Duration::from_millis(256)), 1_000_000);
        assert_eq!(bin_ns(Duration::from_nanos(255_999_872)), 1_999_999, "half of it would be less than a millisecond");
        assert_eq!(bin_ns(Duration::from_secs(128)), 1_953_125);
        assert_eq!(bin_ns(Duration::ZERO), 1);
    }

    #[test]
    fn the_last_bin_is_the_128th() {
        let mut grid = Grid::new(Duration::from_millis(128));

        grid.add(127_999_999, 128 * 4096 - 1);
        assert_eq!((grid.bin_ns, grid.bin_bytes), (1_000_000, 4096));
        assert_eq!(grid.cells.keys().next(), Some(&(127, 127)));

        grid.add(128_000_000, 128 * 4096);
        assert_eq!((grid.bin_ns, grid.bin_bytes), (2_000_000, 8192));
        assert_eq!(grid.cells.into_iter().collect::<Vec<_>>(), [((63, 63), 1), ((64, 64), 1)]);
    }

    #[test]
    fn moments_that_are_joined_add_all_they_have() {
        let mut timeline = FaultTimeline { bin_ns: 1, bins: vec![Moment { faults: 1, in_files: 2, waited_ns: 3 }; 3] };

        timeline.cover(128);

        assert_eq!((timeline.bin_ns, timeline.bins.len()), (2, 65));
        assert_eq!(timeline.bins[0], Moment { faults: 2, in_files: 4, waited_ns: 6 });
        assert_eq!(timeline.bins[1], Moment { faults: 1, in_files: 2, waited_ns: 3 });
        assert_eq!(timeline.bins[2], Moment::default());
    }

    #[test]
    fn a_watch_without_a_fault_has_a_bin_for_each_moment() {
        let mut timeline = FaultTimeline::new(Duration::from_millis(128));

        timeline.cover(127_999_999);
        assert_eq!(timeline.bins.len(), 128);
        timeline.cover(0);
        assert_eq!(timeline.bins.len(), 128);
    }

    #[test]
    fn a_wait_that_ends_with_a_bin_is_in_no_other() {
        let mut timeline = FaultTimeline { bin_ns: 100, bins: Vec::new() };

        timeline.wait(100, 200);

        let waited: Vec<u64> = timeline.bins.iter().map(|moment| moment.waited_ns).collect();
        assert_eq!(waited, [0, 100, 0]);
    }
}
