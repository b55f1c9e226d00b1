//! The reads by calls of one process, by file.

use super::evidence::ReadFile;
use super::files;
use super::tally::Tally;
use majorfault::observe::pattern::{self, Access, Pattern, Recognised};
use majorfault::observe::places::FileId;
use majorfault::observe::sampler::ReadCall;
use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

/// The most files that are told apart; of further ones nothing is kept.
const MOST_FILES: usize = 1024;

/// The most files that are kept open for their size; others are counted by their identity.
const MOST_OPEN: usize = 128;

/// The most threads whose last read of a file is remembered; then all are forgotten.
const MOST_THREADS: usize = 4096;

/// Reads of a file from which on it is looked up: most small files are opened, read and closed faster than anybody can look.
const LOOKED_UP: u64 = 4;

/// Share of the calls that go on where the thread's last one ended which makes it a scan, whatever the length of the calls.
const SCAN: f64 = 0.6;

/// Reads by file.
#[derive(Default)]
pub struct ReadTally {
    length: Duration,
    files: HashMap<FileId, Reading>,
    open: usize,
}

/// The reads of one file.
struct Reading {
    tally: Tally,
    pages: u64,
    /// Calls seen, and those that went on where the thread's last one ended.
    seen: u64,
    continued: u64,
    /// The page after the last read of each thread.
    ends: HashMap<u32, u64>,
    /// With its path; none before it was looked up, and where that was in vain.
    file: Option<(String, File)>,
    is_looked_up: bool,
}

impl ReadTally {
    /// Nothing yet, in a watch of `length`.
    pub fn new(length: Duration) -> ReadTally {
        ReadTally { length, files: HashMap::new(), open: 0 }
    }

    /// Counts a call that stands for `count`, this many nanoseconds after the beginning of the watch.
    pub fn add(&mut self, call: ReadCall, at_ns: u64, count: u64) {
        let id = FileId { device: call.device, inode: call.inode };
        if self.files.len() >= MOST_FILES && !self.files.contains_key(&id) {
            return;
        }
        let reading = self.files.entry(id).or_insert_with(|| Reading::new(self.length));
        let page = rustix::param::page_size() as u64;
        let (first, last) = call.pages;
        let access = Access { thread: call.thread, offset: first.saturating_mul(page) };
        reading.tally.add_many(access, at_ns, count);
        reading.follow(call.thread, call.pages);
        reading.pages =
            reading.pages.saturating_add(last.saturating_sub(first).saturating_add(1).saturating_mul(count));
        if !reading.is_looked_up && reading.tally.latest.len() as u64 >= LOOKED_UP && self.open < MOST_OPEN {
            reading.is_looked_up = true;
            reading.file = files::open_by_id(call.process, id);
            self.open += usize::from(reading.file.is_some());
        }
    }

    /// All on one time axis, which ends here.
    pub fn cover(&mut self, last_ns: u64) {
        self.files.values_mut().for_each(|reading| reading.tally.grid.cover(last_ns));
    }

    /// What is known about each file.
    pub fn into_files(self) -> Vec<ReadFile> {
        let mut files: Vec<ReadFile> = self.files.into_iter().map(|(id, reading)| reading.into_file(id)).collect();
        files.sort_by_key(|file| (std::cmp::Reverse(file.calls), file.id.inode));
        files
    }
}

impl Reading {
    fn new(length: Duration) -> Reading {
        let (tally, ends) = (Tally::new(length), HashMap::new());
        Reading { tally, pages: 0, seen: 0, continued: 0, ends, file: None, is_looked_up: false }
    }

    fn follow(&mut self, thread: u32, (first, last): (u64, u64)) {
        if self.ends.len() >= MOST_THREADS {
            self.ends.clear();
        }
        let next = last.saturating_add(1);
        // A call that ends within a page has the next one begin in the same page.
        let goes_on = self.ends.insert(thread, next).is_some_and(|end| first <= end && end <= next && first + 1 >= end);
        self.seen += 1;
        self.continued += u64::from(goes_on);
    }

    /// The order: long calls, one after the other, are no stride.
    fn order(&self, latest: &[Access]) -> Recognised {
        let share = self.continued as f64 / self.seen.max(1) as f64;
        match share >= SCAN {
            true => Recognised {
                pattern: Pattern::Sequential,
                confidence: share,
                threads: self.ends.len(),
                repeats: pattern::recognise(latest).repeats,
            },
            false => pattern::recognise(latest),
        }
    }

    fn into_file(self, id: FileId) -> ReadFile {
        let latest: Vec<Access> = self.tally.latest.iter().copied().collect();
        let order = self.order(&latest);
        let (path, file) = self.file.unzip();
        ReadFile {
            id,
            path: path.unwrap_or_default(),
            size_bytes: file.as_ref().and_then(|file| file.metadata().ok()).map(|meta| meta.len()),
            cached_bytes: file.as_ref().and_then(files::cached_bytes),
            calls: self.tally.faults,
            bytes: self.pages.saturating_mul(rustix::param::page_size() as u64),
            begun_pages: self.tally.pages.len() as u64,
            order: Some(order),
            latest,
            grid: Some(self.tally.grid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::Nanos;
    use std::os::unix::fs::MetadataExt;

    fn call(inode: u64, device: (u32, u32), first: u64, pages: u64) -> ReadCall {
        ReadCall {
            process: std::process::id(),
            thread: 7,
            at: Nanos(0),
            device,
            inode,
            pages: (first, first + pages - 1),
        }
    }

    #[test]
    fn calls_are_counted_by_file_with_their_bytes() {
        let mut reads = ReadTally::new(Duration::from_secs(1));

        reads.add(call(5, (8, 1), 10, 2), 0, 1);
        reads.add(call(5, (8, 1), 10, 1), 0, 3);
        reads.add(call(6, (8, 1), 0, 1), 0, 1);

        let files = reads.into_files();
        let page = rustix::param::page_size() as u64;
        let told: Vec<_> = files.iter().map(|it| (it.id.inode, it.calls, it.bytes, it.begun_pages)).collect();
        assert_eq!(told, [(5, 4, 5 * page, 1), (6, 1, page, 1)]);
        assert_eq!((files[0].path.as_str(), files[0].size_bytes), ("", None));
    }

    #[test]
    fn a_file_is_named_from_its_fourth_read_on_while_it_is_open() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let meta = file.as_file().metadata().unwrap();
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let mut reads = ReadTally::new(Duration::from_secs(1));

        (0..3).for_each(|page| reads.add(call(meta.ino(), device, page, 1), 0, 1));
        assert!(reads.files.values().all(|it| it.file.is_none()));
        reads.add(call(meta.ino(), device, 3, 1), 0, 1);

        let files = reads.into_files();
        assert_eq!((files[0].path.as_str(), files[0].size_bytes), (file.path().to_str().unwrap(), Some(1 << 20)));
    }

    /// The order of calls of so many pages, at these ones.
    fn order(pages: u64, firsts: impl Iterator<Item = u64>) -> Pattern {
        let mut reads = ReadTally::new(Duration::from_secs(1));
        firsts.for_each(|first| reads.add(call(5, (8, 1), first, pages), 0, 1));
        reads.into_files()[0].order.unwrap().pattern
    }

    #[test]
    fn long_calls_one_after_the_other_are_a_scan_and_with_gaps_a_stride() {
        assert_eq!(order(256, (0..100).map(|call| call * 256)), Pattern::Sequential);
        assert_eq!(order(257, (0..100).map(|call| call * 256)), Pattern::Sequential, "a page is read in two parts");
        assert_eq!(order(255, (0..100).map(|call| call * 256)), Pattern::Strided(1 << 20));
        assert_eq!(order(512, (0..100).map(|call| call * 256)), Pattern::Strided(1 << 20), "half of it is read again");
    }

    #[test]
    fn it_is_a_scan_where_six_tenths_of_the_calls_go_on() {
        let jumps = |going: u64| {
            (0..100).map(move |call| if call % 100 <= going { call * 256 } else { (call * 7919) % 1009 * 4096 })
        };

        assert_eq!(order(256, jumps(60)), Pattern::Sequential);
        assert_ne!(order(256, jumps(59)), Pattern::Sequential);
    }

    #[test]
    fn files_beyond_1024_are_not_kept() {
        let mut reads = ReadTally::new(Duration::from_secs(1));

        (0..1025).for_each(|inode| reads.add(call(inode, (8, 1), 0, 1), 0, 1));
        reads.add(call(0, (8, 1), 0, 1), 0, 1);

        let files = reads.into_files();
        assert_eq!((files.len(), files[0].id.inode, files[0].calls), (1024, 0, 2));
    }
}
