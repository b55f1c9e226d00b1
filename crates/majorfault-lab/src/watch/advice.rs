//! The advice calls of the watched process, by the files that they are for.

use super::evidence::{AdviceSeen, WillNeed};
use crate::watch::files;
use majorfault::Missing;
use majorfault::observe::advice_calls::{AdviceCall, AdviceCalls, Named, Range};
use majorfault::observe::places::{FileId, Place, Places};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

/// The most files with their calls kept, and the most calls of each with their length kept.
const MOST_FILES: usize = 256;
const MOST_CALLS: usize = 16 << 10;

/// A watch of advice calls.
pub(super) struct AdviceWatch {
    calls: AdviceCalls,
    book: Book,
}

/// The calls so far, by file.
#[derive(Default)]
struct Book {
    pid: u32,
    counts: BTreeMap<Named, u64>,
    asked: HashMap<FileId, Asked>,
    latest: HashMap<FileId, Named>,
    populates: HashMap<FileId, u64>,
    unresolved: u64,
}

/// The calls for one file.
struct Asked {
    path: String,
    file: File,
    size_bytes: u64,
    lengths: Vec<(u64, Named)>,
}

impl AdviceWatch {
    /// Watches the calls of `pid`.
    ///
    /// Errors: Missing, as for [`AdviceCalls::open`].
    pub(super) fn open(pid: u32) -> Result<AdviceWatch, Missing> {
        Ok(AdviceWatch { calls: AdviceCalls::open(pid)?, book: Book { pid, ..Book::default() } })
    }

    /// Takes the calls since the last time; `places` knows the mappings made so far.
    pub(super) fn read(&mut self, places: &mut Places) {
        let mut calls = Vec::new();
        self.calls.read(|call| calls.push(call));
        self.book.take(&calls, places);
    }

    /// The latest advice about the order of accesses to mappings of this file.
    pub(super) fn latest(&self, id: FileId) -> Option<&'static str> {
        self.book.latest.get(&id).map(|advice| advice.word())
    }

    /// The number of calls that populated mappings of this file.
    pub(super) fn populates(&self, id: FileId) -> u64 {
        self.book.populates.get(&id).copied().unwrap_or(0)
    }

    /// The advice seen.
    pub(super) fn into_evidence(self) -> AdviceSeen {
        let (lost, unfollowed) = (self.calls.lost(), self.calls.unfollowed());
        AdviceSeen { lost, unfollowed, ..self.book.into_evidence() }
    }
}

impl Book {
    /// Takes these calls; `places` knows the mappings made so far.
    fn take(&mut self, calls: &[AdviceCall], places: &mut Places) {
        let pid = self.pid;
        // A descriptor may mean another file the next time.
        let mut known = HashMap::new();
        for call in calls.iter().filter(|call| call.process == pid) {
            *self.counts.entry(call.advice).or_default() += 1;
            if call.advice.will_need() {
                let is_known = self.ask(call, places, &mut known).is_some();
                self.unresolved += u64::from(!is_known);
            } else if let Range::Memory { address, .. } = call.range {
                self.hear(call.advice, address, places);
            }
        }
    }

    /// Keeps advice about how a mapped file is used; the allocator's own is skipped without a lookup of mappings.
    fn hear(&mut self, advice: Named, address: u64, places: &mut Places) {
        let is_populate = matches!(advice.word(), "MADV_POPULATE_READ" | "MADV_POPULATE_WRITE");
        if !is_populate && !is_of_order(advice) {
            return;
        }
        let Place::File(id, _) = places.locate(address) else { return };
        match is_populate {
            true => *self.populates.entry(id).or_default() += 1,
            false => drop(self.latest.insert(id, advice)),
        }
    }

    /// Adds a call that asks for reading to its file; none where the file is not known.
    fn ask(&mut self, call: &AdviceCall, places: &mut Places, known: &mut HashMap<i32, Option<FileId>>) -> Option<()> {
        let (id, offset, length) = match call.range {
            Range::Memory { address, length } => {
                let (id, offset) = within_one_file(places, address, length)?;
                self.note_mapped(id, places)?;
                (id, offset, length)
            }
            Range::File { descriptor, offset, length } => {
                let id = (*known.entry(descriptor).or_insert_with(|| self.note_descriptor(descriptor)))?;
                // posix_fadvise(2): zero means to the end of the file.
                (id, offset, if length == 0 && call.advice != Named::ReadAhead { u64::MAX } else { length })
            }
        };
        let asked = self.asked.get_mut(&id)?;
        if asked.lengths.len() < MOST_CALLS {
            let bytes = length.min(asked.size_bytes.saturating_sub(offset));
            asked.lengths.push((bytes, call.advice));
        }
        Some(())
    }

    fn note_mapped(&mut self, id: FileId, places: &Places) -> Option<()> {
        if !self.asked.contains_key(&id) {
            let path = places.path(id)?.to_owned();
            let file = files::open(self.pid, &path, id)?;
            self.note(id, path, file)?;
        }
        Some(())
    }

    fn note_descriptor(&mut self, descriptor: i32) -> Option<FileId> {
        let (path, id, file) = files::open_descriptor(self.pid, descriptor)?;
        if !self.asked.contains_key(&id) {
            self.note(id, path, file)?;
        }
        Some(id)
    }

    fn note(&mut self, id: FileId, path: String, file: File) -> Option<()> {
        let size_bytes = file.metadata().ok()?.len();
        if self.asked.len() < MOST_FILES {
            self.asked.insert(id, Asked { path, file, size_bytes, lengths: Vec::new() });
        }
        Some(())
    }

    fn into_evidence(self) -> AdviceSeen {
        let mut calls: Vec<(&'static str, u64)> = Vec::new();
        for (advice, count) in self.counts {
            // Numbers without a name share one entry.
            match calls.iter_mut().find(|(word, _)| *word == advice.word()) {
                Some((_, sum)) => *sum += count,
                None => calls.push((advice.word(), count)),
            }
        }
        calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut will_need: Vec<WillNeed> =
            self.asked.into_iter().filter_map(|(id, asked)| asked.into_evidence(id)).collect();
        will_need.sort_by(|a, b| b.longest_bytes.cmp(&a.longest_bytes).then_with(|| a.path.cmp(&b.path)));
        AdviceSeen { calls, will_need, unresolved: self.unresolved, ..AdviceSeen::default() }
    }
}

impl Asked {
    fn into_evidence(mut self, id: FileId) -> Option<WillNeed> {
        self.lengths.sort_unstable();
        let (longest_bytes, advice) = *self.lengths.last()?;
        let mut found = WillNeed {
            id,
            advice: advice.word(),
            calls: self.lengths.len() as u64,
            longest_bytes,
            median_bytes: self.lengths[self.lengths.len() / 2].0,
            read_ahead_kb: files::read_ahead_kb(id.device),
            largest_request_kb: files::largest_request_kb(id.device),
            size_bytes: self.file.metadata().ok().map(|meta| meta.len()),
            cached_bytes: files::cached_bytes(&self.file),
            path: self.path,
            ..WillNeed::default()
        };
        let cap_bytes = found.cap_bytes().unwrap_or(u64::MAX);
        found.beyond_cap = self.lengths.iter().filter(|(bytes, _)| *bytes > cap_bytes).count() as u64;
        Some(found)
    }
}

/// Whether it is about the order in which pages will be touched: such advice replaces other such advice.
fn is_of_order(advice: Named) -> bool {
    matches!(advice.word(), "MADV_NORMAL" | "MADV_RANDOM" | "MADV_SEQUENTIAL")
}

/// The file and offset behind `address`, where all of `length` bytes lie in one file without a gap.
fn within_one_file(places: &mut Places, address: u64, length: u64) -> Option<(FileId, u64)> {
    let Place::File(id, offset) = places.locate(address) else { return None };
    let last = length.saturating_sub(1);
    match places.locate(address.checked_add(last)?) {
        Place::File(end, at) if end == id && at == offset.checked_add(last)? => Some((id, offset)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn asked(lengths: &[u64]) -> WillNeed {
        let program = File::open("/proc/self/exe").unwrap();
        let (path, id, file) = files::open_descriptor(std::process::id(), program.as_raw_fd()).unwrap();
        let lengths = lengths.iter().map(|bytes| (*bytes, Named::ReadAhead)).collect();
        Asked { path, file, size_bytes: 0, lengths }.into_evidence(id).unwrap()
    }

    #[test]
    fn calls_of_a_file_are_summed_up_by_the_longest_and_the_middle_one() {
        let found = asked(&[1 << 40, 4096, 8192]);

        assert_eq!((found.calls, found.longest_bytes, found.median_bytes), (3, 1 << 40, 8192));
        assert_eq!(found.advice, "readahead");
        assert_eq!(found.beyond_cap, u64::from(found.cap_bytes().is_some()));
        assert!(found.size_bytes.unwrap() > 0 && found.path.starts_with('/'));
    }

    #[test]
    fn a_call_for_as_much_as_the_kernel_reads_is_not_beyond_it() {
        let Some(cap) = asked(&[1]).cap_bytes() else { return };

        assert_eq!((asked(&[cap]).beyond_cap, asked(&[cap + 1, cap, cap + 2]).beyond_cap), (0, 2));
    }

    #[test]
    fn a_file_that_nobody_asked_for_is_not_told() {
        let program = File::open("/proc/self/exe").unwrap();
        let (path, id, file) = files::open_descriptor(std::process::id(), program.as_raw_fd()).unwrap();

        assert!(Asked { path, file, size_bytes: 0, lengths: Vec::new() }.into_evidence(id).is_none());
    }

    #[test]
    fn advice_of_an_order_replaces_other_such_advice_only() {
        let words = |value| Named::Madvise(value).word();
        let of_order: Vec<&str> = (0..32).filter(|it| is_of_order(Named::Madvise(*it))).map(words).collect();

        assert_eq!(of_order, ["MADV_NORMAL", "MADV_RANDOM", "MADV_SEQUENTIAL"]);
    }

    #[test]
    fn a_range_is_of_a_file_where_its_last_byte_is_of_the_same_file() {
        let mut places = Places::of(std::process::id()).unwrap();
        let code = within_one_file as *const () as u64;
        let vma = places.mappings().iter().find(|vma| (vma.start..vma.end).contains(&code)).unwrap().clone();
        let (begin, length) = (vma.start, vma.end - vma.start);

        let (id, offset) = within_one_file(&mut places, begin, length).unwrap();
        assert_eq!((id.inode, offset), (vma.inode, vma.offset));
        assert_eq!(within_one_file(&mut places, begin + 4096, 0).unwrap().1, vma.offset + 4096);
        assert_eq!(within_one_file(&mut places, begin, u64::MAX), None);
        let is_beyond_a_gap = |it: &&majorfault::proc::maps::Vma| {
            it.inode == vma.inode && it.start > begin && it.start - it.offset != begin - vma.offset
        };
        if let Some(beyond) = places.mappings().iter().find(is_beyond_a_gap).map(|it| it.start) {
            assert_eq!(
                within_one_file(&mut places, begin, beyond - begin + 1),
                None,
                "the same file, but not one range"
            );
        }
        let stack = std::ptr::from_ref(&code) as u64;
        assert_eq!(within_one_file(&mut places, stack, 1), None);
    }

    /// A file of 1 MiB that this test has open and mapped.
    struct World {
        book: Book,
        places: Places,
        file: tempfile::NamedTempFile,
        id: FileId,
        /// Its address.
        begin: u64,
        _mapped: majorfault::access::Opened,
    }

    impl World {
        fn new() -> World {
            use majorfault::files::{Layout, Target};
            let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let target = Target::open(&[file.path().to_owned()], &Layout::default()).unwrap();
            let mmap = majorfault::methods::named("mmap").unwrap();
            let mapped = (mmap.open)(std::sync::Arc::new(target), &majorfault::Given::none()).unwrap();
            let pid = std::process::id();
            let places = Places::of(pid).unwrap();
            let (_, id, _) = files::open_descriptor(pid, file.as_file().as_raw_fd()).unwrap();
            let begin = places.mappings().iter().find(|vma| vma.inode == id.inode).unwrap().start;
            World { book: Book { pid, ..Book::default() }, places, file, id, begin, _mapped: mapped }
        }

        fn call(&mut self, advice: Named, range: Range) {
            let process = std::process::id();
            let call = AdviceCall { process, thread: 1, at: majorfault::Nanos(0), range, advice };
            self.book.take(&[call], &mut self.places);
        }

        fn advise(&mut self, advice: i32, at: u64, length: u64) {
            let address = self.begin + at;
            self.call(Named::Madvise(advice), Range::Memory { address, length });
        }

        fn ask(&mut self, advice: Named, offset: u64, length: u64) {
            let descriptor = self.file.as_file().as_raw_fd();
            self.call(advice, Range::File { descriptor, offset, length });
        }

        /// The bytes of each call for the file.
        fn lengths(&self) -> Vec<u64> {
            self.book
                .asked
                .get(&self.id)
                .map_or(Vec::new(), |asked| asked.lengths.iter().map(|(bytes, _)| *bytes).collect())
        }
    }

    const NORMAL: i32 = libc::MADV_NORMAL;
    const RANDOM: i32 = libc::MADV_RANDOM;
    const WILL_NEED: Named = Named::Fadvise(libc::POSIX_FADV_WILLNEED);

    #[test]
    fn a_length_of_zero_is_to_the_end_for_posix_fadvise_and_nothing_for_readahead() {
        let mut world = World::new();

        world.ask(WILL_NEED, 4096, 0);
        world.ask(Named::ReadAhead, 4096, 0);
        world.ask(Named::ReadAhead, 4096, 8192);
        world.ask(WILL_NEED, 4096, 8192);

        assert_eq!(world.lengths(), [(1 << 20) - 4096, 0, 8192, 8192]);
        assert_eq!(world.book.unresolved, 0);
    }

    #[test]
    fn bytes_beyond_the_end_of_the_file_are_not_asked_for() {
        let mut world = World::new();

        world.ask(WILL_NEED, (1 << 20) - 4096, 8192);
        world.ask(WILL_NEED, 2 << 20, 8192);

        assert_eq!(world.lengths(), [4096, 0]);
    }

    #[test]
    fn a_mapping_that_is_asked_for_is_its_file() {
        let mut world = World::new();

        world.advise(libc::MADV_WILLNEED, 8192, 16_384);

        assert_eq!((world.lengths(), world.book.unresolved), (vec![16_384], 0));
    }

    #[test]
    fn what_belongs_to_no_file_is_counted_as_such() {
        let mut world = World::new();
        let here = std::process::id();
        let address = std::ptr::from_ref(&here) as u64;

        world.call(Named::Madvise(libc::MADV_WILLNEED), Range::Memory { address, length: 1 });
        world.call(WILL_NEED, Range::File { descriptor: -1, offset: 0, length: 4096 });

        assert_eq!((world.lengths(), world.book.unresolved), (vec![], 2));
    }

    #[test]
    fn the_latest_advice_on_the_order_counts() {
        let mut world = World::new();
        let latest = |world: &World| world.book.latest.get(&world.id).map(|advice| advice.word());

        world.advise(libc::MADV_DONTNEED, 0, 4096);
        assert_eq!(latest(&world), None);
        world.advise(NORMAL, 0, 4096);
        world.advise(RANDOM, 0, 4096);
        world.advise(libc::MADV_DONTNEED, 0, 4096);
        assert_eq!(latest(&world), Some("MADV_RANDOM"));
    }

    #[test]
    fn populates_are_counted_for_each_file() {
        let mut world = World::new();

        world.advise(libc::MADV_POPULATE_READ, 0, 4096);
        world.advise(libc::MADV_POPULATE_WRITE, 0, 4096);
        world.advise(RANDOM, 0, 4096);

        assert_eq!(world.book.populates.get(&world.id), Some(&2));
    }

    #[test]
    fn calls_are_counted_by_name_most_first_and_those_of_other_processes_are_not() {
        let mut world = World::new();
        [RANDOM, 9001, 9002, 9001].into_iter().for_each(|advice| world.advise(advice, 0, 4096));
        let (process, range) = (std::process::id() + 1, Range::Memory { address: world.begin, length: 4096 });
        let other = AdviceCall { process, thread: 1, at: majorfault::Nanos(0), range, advice: Named::Madvise(RANDOM) };
        world.book.take(&[other], &mut world.places);

        let seen = world.book.into_evidence();

        assert_eq!(seen.calls, [("another madvise", 3), ("MADV_RANDOM", 1)]);
        assert!(seen.will_need.is_empty());
    }
}
