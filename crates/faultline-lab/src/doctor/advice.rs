//! The advice calls of the watched process, brought to the files they are for.

use super::evidence::{AdviceSeen, WillNeed};
use crate::process::files;
use faultline::Missing;
use faultline::observe::advice_calls::{AdviceCall, AdviceCalls, Named, Range};
use faultline::observe::places::{FileId, Place, Places};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

/// Files whose calls are kept, and calls of each whose length is.
const MOST_FILES: usize = 256;
const MOST_CALLS: usize = 16 << 10;

/// A watch of advice in progress.
pub(super) struct Advice {
    pid: u32,
    calls: AdviceCalls,
    counts: BTreeMap<Named, u64>,
    asked: HashMap<FileId, Asked>,
    latest: HashMap<FileId, Named>,
    populates: HashMap<FileId, u64>,
    unresolved: u64,
}

/// What was asked of one file.
struct Asked {
    path: String,
    file: File,
    size_bytes: u64,
    lengths: Vec<(u64, Named)>,
}

impl Advice {
    /// Watches the calls of `pid`.
    ///
    /// Errors: Missing, as [`AdviceCalls::open`] has it.
    pub(super) fn open(pid: u32) -> Result<Advice, Missing> {
        Ok(Advice {
            pid,
            calls: AdviceCalls::open(pid)?,
            counts: BTreeMap::new(),
            asked: HashMap::new(),
            latest: HashMap::new(),
            populates: HashMap::new(),
            unresolved: 0,
        })
    }

    /// Takes the calls since the last time; `places` knows the mappings made until now.
    pub(super) fn read(&mut self, places: &mut Places) {
        let mut calls = Vec::new();
        self.calls.read(|call| calls.push(call));
        let pid = self.pid;
        // A descriptor may stand for another file at the next time.
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

    /// Keeps advice that says how a mapped file is used; the allocator's own is passed over without a look at mappings.
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

    /// Adds a call that asks for reading to its file; none where that is not known.
    fn ask(&mut self, call: &AdviceCall, places: &mut Places, known: &mut HashMap<i32, Option<FileId>>) -> Option<()> {
        let (id, offset, length) = match call.range {
            Range::Memory { address, length } => {
                let (id, offset) = within_one_file(places, address, length)?;
                self.note_mapped(id, places)?;
                (id, offset, length)
            }
            Range::File { descriptor, offset, length } => {
                let id = (*known.entry(descriptor).or_insert_with(|| self.note_descriptor(descriptor)))?;
                // posix_fadvise(2): zero is to the end of the file.
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

    /// The latest advice on the order of accesses to mappings of this file.
    pub(super) fn latest(&self, id: FileId) -> Option<&'static str> {
        self.latest.get(&id).map(|advice| advice.word())
    }

    /// Calls that populated mappings of this file.
    pub(super) fn populates(&self, id: FileId) -> u64 {
        self.populates.get(&id).copied().unwrap_or(0)
    }

    /// What was seen.
    pub(super) fn into_evidence(self) -> AdviceSeen {
        let mut calls: Vec<(&'static str, u64)> = Vec::new();
        for (advice, count) in self.counts {
            // Numbers without a name share one.
            match calls.iter_mut().find(|(word, _)| *word == advice.word()) {
                Some((_, sum)) => *sum += count,
                None => calls.push((advice.word(), count)),
            }
        }
        calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut will_need: Vec<WillNeed> =
            self.asked.into_iter().filter_map(|(id, asked)| asked.into_evidence(id)).collect();
        will_need.sort_by(|a, b| b.longest_bytes.cmp(&a.longest_bytes).then_with(|| a.path.cmp(&b.path)));
        AdviceSeen {
            calls,
            will_need,
            unresolved: self.unresolved,
            lost: self.calls.lost(),
            unfollowed: self.calls.unfollowed(),
        }
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

/// Whether it says in which order pages will be touched: one of those replaces another.
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
        let is_beyond_a_gap = |it: &&faultline::proc::maps::Vma| {
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
}
