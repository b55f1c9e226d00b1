//! The counts of one file during the watch: its faults and its size.

use super::grid::Grid;
use crate::watch::files;
use majorfault::observe::pattern::Access;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::time::Duration;

/// Latest faults of a file that are kept.
const LATEST: usize = 32 << 10;

/// The most different pages of a file that are counted; beyond that the number stays.
const MOST_PAGES: usize = 1 << 20;

/// Faults of one file.
pub struct Tally {
    /// Faults.
    pub faults: u64,
    /// Of these, those that started a read.
    pub major: u64,
    /// Of these, those that waited.
    pub waits: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Major faults whose beginning was not seen, and the number and time of those whose was.
    pub untimed: u64,
    timed: (u64, u64),
    /// Numbers of the pages that faulted.
    pub pages: HashSet<u64>,
    /// The latest faults, oldest first.
    pub latest: VecDeque<Access>,
    /// All, by time and offset.
    pub grid: Grid,
}

/// A file with its size watched.
pub struct Track {
    /// The file, where we could open it.
    pub file: Option<File>,
    /// Its size at the last reading.
    pub size_bytes: Option<u64>,
    /// Size before and after, where it became shorter.
    pub shrunk: Option<(u64, u64)>,
    /// Bytes of it in the page cache at the last reading, and bytes added since the first (evictions are not deducted); only
    /// where faults cannot be seen.
    cached: Option<(u64, u64)>,
}

impl Tally {
    /// Nothing yet, in a watch of `length`.
    pub fn new(length: Duration) -> Tally {
        let (pages, latest, grid) = (HashSet::new(), VecDeque::new(), Grid::new(length));
        Tally { faults: 0, major: 0, waits: 0, waited_ns: 0, untimed: 0, timed: (0, 0), pages, latest, grid }
    }

    /// Counts a fault this many nanoseconds after the beginning of the watch.
    #[cfg(test)]
    pub fn add(&mut self, access: Access, at_ns: u64) {
        self.add_many(access, at_ns, 1);
    }

    /// Counts a fault that stands for `count` of the file.
    pub fn add_many(&mut self, access: Access, at_ns: u64, count: u64) {
        self.faults += count;
        self.grid.add_many(at_ns, access.offset, count);
        if self.pages.len() < MOST_PAGES {
            self.pages.insert(access.offset / 4096);
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(access);
    }

    /// Counts a fault that waited, and that stands for `count` of the file.
    pub fn wait(&mut self, waited_ns: Option<u64>, major: bool, count: u64) {
        self.waits += count;
        self.major += u64::from(major);
        match waited_ns {
            Some(waited_ns) => {
                self.waited_ns += waited_ns * count;
                if major {
                    self.timed = (self.timed.0 + 1, self.timed.1 + waited_ns);
                }
            }
            None => self.untimed += u64::from(major),
        }
    }

    /// Multiplies the counts of faults; those of waits stay.
    pub fn scale(&mut self, factor: f64) {
        self.faults = (self.faults as f64 * factor).round() as u64;
        self.grid.scale(factor);
    }

    /// Gives the major faults whose beginning fell into a pause the mean time of the others; returns what was added.
    pub fn complete(&mut self) -> u64 {
        let (count, sum_ns) = self.timed;
        let added_ns =
            if count == 0 { 0 } else { (u128::from(sum_ns) * u128::from(self.untimed) / u128::from(count)) as u64 };
        (self.untimed, self.waited_ns) = (0, self.waited_ns + added_ns);
        added_ns
    }
}

impl Track {
    /// Starts with the present size.
    pub fn of(file: Option<File>) -> Track {
        Track { size_bytes: size(file.as_ref()), file, shrunk: None, cached: None }
    }

    /// Reads how much of the file is cached: all that can be seen of its reading where faults cannot. Costs up to a
    /// millisecond for each cached GiB, so pause between two calls.
    pub fn look_at_cache(&mut self) {
        let Some(now) = self.file.as_ref().and_then(files::cached_bytes) else { return };
        let (before, came) = self.cached.unwrap_or((now, 0));
        self.cached = Some((now, came + now.saturating_sub(before)));
    }

    /// Bytes added to the page cache, where that was read.
    pub fn came_bytes(&self) -> Option<u64> {
        self.cached.map(|(_, came)| came)
    }

    /// Reads the size again.
    pub fn look(&mut self) {
        let now = size(self.file.as_ref());
        if let (Some(before), Some(now)) = (self.size_bytes, now)
            && now < before
        {
            self.shrunk = Some((before, now));
        }
        self.size_bytes = now.or(self.size_bytes);
    }
}

fn size(file: Option<&File>) -> Option<u64> {
    Some(file?.metadata().ok()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_and_pages_once() {
        let mut tally = Tally::new(Duration::from_secs(1));

        [0, 4095, 4096].into_iter().for_each(|offset| tally.add(Access { thread: 1, offset }, 0));

        assert_eq!((tally.faults, tally.pages.len(), tally.latest.len()), (3, 2, 3));
        assert_eq!(tally.grid.cells.values().sum::<u64>(), 3);
    }

    #[test]
    fn a_file_begins_without_faults_and_waits() {
        let Tally { faults, major, waits, waited_ns, .. } = Tally::new(Duration::from_secs(1));

        assert_eq!((faults, major, waits, waited_ns), (0, 0, 0, 0));
    }

    #[test]
    fn a_fault_that_stands_for_several_counts_as_many() {
        let mut tally = Tally::new(Duration::from_secs(1));

        tally.add_many(Access { thread: 1, offset: 0 }, 0, 7);
        tally.wait(Some(10), false, 7);

        assert_eq!((tally.faults, tally.pages.len(), tally.latest.len()), (7, 1, 1));
        assert_eq!((tally.waits, tally.waited_ns, tally.major), (7, 70, 0));
        assert_eq!(tally.grid.cells.values().sum::<u64>(), 7);
    }

    #[test]
    fn reads_whose_beginning_was_not_seen_are_taken_to_last_as_long_as_the_others() {
        let mut tally = Tally::new(Duration::from_secs(1));
        [Some(10), Some(30), None, None, None].into_iter().for_each(|waited| tally.wait(waited, true, 1));
        tally.wait(Some(1000), false, 1);

        assert_eq!((tally.complete(), tally.waited_ns, tally.major, tally.waits), (60, 1100, 5, 6));
        assert_eq!(tally.complete(), 0);
        let mut unknown = Tally::new(Duration::from_secs(1));
        unknown.wait(None, true, 1);
        assert_eq!((unknown.complete(), unknown.waited_ns), (0, 0));
    }

    #[test]
    fn what_is_scaled_keeps_its_waits() {
        let mut tally = Tally::new(Duration::from_secs(1));
        tally.add_many(Access { thread: 1, offset: 0 }, 0, 10);
        tally.wait(Some(5), true, 1);

        tally.scale(2.5);

        assert_eq!((tally.faults, tally.waits, tally.waited_ns, tally.major), (25, 1, 5, 1));
        assert_eq!(tally.grid.cells.values().sum::<u64>(), 25);
    }

    #[test]
    fn a_million_different_pages_are_told_apart() {
        let mut tally = Tally::new(Duration::from_secs(1));
        tally.pages = (0..(1 << 20) - 1).collect();

        tally.add(Access { thread: 1, offset: 1 << 40 }, 0);
        assert_eq!(tally.pages.len(), 1 << 20);
        tally.add(Access { thread: 1, offset: 2 << 40 }, 0);
        assert_eq!((tally.pages.len(), tally.faults), (1 << 20, 2));
    }

    #[test]
    fn the_latest_32768_faults_are_kept() {
        let mut tally = Tally::new(Duration::from_secs(1));

        (0..32_769).for_each(|offset| tally.add(Access { thread: 1, offset }, 0));

        assert_eq!((tally.faults, tally.latest.len()), (32_769, 32_768));
        assert_eq!((tally.latest[0].offset, tally.latest[32_767].offset), (1, 32_768));
    }

    #[test]
    fn a_file_that_became_shorter_is_reported_with_both_lengths_though_it_grew_again() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut track = Track::of(Some(file.try_clone().unwrap()));
        track.look();
        assert_eq!(track.shrunk, None);

        for length in [4096, 16384] {
            file.set_len(length).unwrap();
            track.look();
        }

        assert_eq!((track.shrunk, track.size_bytes), (Some((8192, 4096)), Some(16384)));
    }

    #[test]
    fn a_file_that_could_not_be_opened_has_no_size() {
        let mut track = Track::of(None);

        track.look();
        track.look_at_cache();

        assert_eq!((track.size_bytes, track.shrunk, track.came_bytes()), (None, None, None));
    }

    #[test]
    fn what_came_into_the_cache_is_counted_from_the_first_look_on() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        let mut track = Track::of(Some(file.try_clone().unwrap()));
        assert_eq!(track.came_bytes(), None);
        track.look_at_cache();
        assert_eq!(track.came_bytes(), Some(0));

        file.write_all_at(&[1; 4096], 8192).unwrap();
        track.look_at_cache();

        assert_eq!(track.came_bytes(), Some(4096));
        file.write_all_at(&[1; 8192], 12_288).unwrap();
        track.look_at_cache();
        assert_eq!(track.came_bytes(), Some(12_288));
    }
}
