//! Mapped files with checks: alignment and page sizes are verified, advice is typed by what it can destroy, truncation is an
//! error instead of a dead process, loading shows progress, and residency can be asked for before a thread waits.
//!
//! Anybody may change a file at any time, so safe code reads mapped bytes by copy, through a [`View`]. Slices of them need a
//! promise that only the program can give: [`MappedFile::assume_stable`].
//!
//! ```no_run
//! use majorfault::map::MappedFile;
//!
//! let model = MappedFile::options().huge_pages().open("/data/model.bin")?;
//! model.load(&mut |done, all| eprintln!("{done} of {all} bytes"))?;
//! let header = model.get(0..4096)?;
//! println!("{} bytes, magic {:?}", model.len(), header.value::<u32>(0));
//! # Ok::<(), majorfault::Error>(())
//! ```

mod advise;
mod ahead;
mod load;
pub mod memmap2;
mod stable;
#[cfg(feature = "async")]
mod waiting;

use crate::error::{Error, Result};
use crate::observe;
use crate::prefetch::Follower;
use crate::proc::smaps::MappedSizes;
use crate::sys::advice::{self, Advice};
use crate::sys::cache;
use crate::sys::fault::Guarded;
use crate::sys::map::{Access, MapOptions, Mapping, Placement};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub use crate::sys::view::{Chunks, Plain, View};
pub use advise::{Destructive, Harmless};
pub use load::LoadReport;
pub use stable::{Stable, StableMut};
#[cfg(feature = "async")]
pub use waiting::{AsyncMap, Waiting};

/// How a file is mapped.
#[derive(Clone, Debug)]
pub struct MapFileOptions {
    access: Access,
    huge_pages: bool,
    advice: Option<Harmless>,
    range: Option<Range<u64>>,
}

/// A file, or a part of one, mapped into memory; unmapped on drop.
///
/// Its bytes may change while they are read, whenever somebody writes the file. That holds for a copy-on-write mapping as well:
/// pages not yet written show the file. So bytes are read by copy ([`View`], [`read`](MappedFile::read)) and written by copy
/// ([`write`](MappedFile::write)); slices need the promise of [`assume_stable`](MappedFile::assume_stable).
#[derive(Debug)]
pub struct MappedFile {
    map: Guarded,
    file: File,
    path: PathBuf,
    /// Where the mapping begins in the file; a multiple of the page size.
    start: u64,
    /// Bytes before the requested range, which may begin inside a page.
    lead: usize,
    length: usize,
    notes: Vec<String>,
    /// What reads ahead of the accesses.
    ahead: Option<Mutex<Follower>>,
}

/// What [`MappedFile::try_get`] found, as a [`View`], or [`Stable::try_get`], as a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGet<B> {
    /// The bytes are in memory now; reading them does not wait for the device, unless they are evicted in between.
    Ready(B),
    /// Some of them are not in memory.
    NotResident,
}

impl Default for MapFileOptions {
    fn default() -> MapFileOptions {
        MapFileOptions { access: Access::Read, huge_pages: false, advice: None, range: None }
    }
}

impl MapFileOptions {
    /// Writable, and changes stay in this process; the file is opened read-only.
    pub fn copy_on_write(mut self) -> MapFileOptions {
        self.access = Access::Copy;
        self
    }

    /// Writable, and changes go to the file.
    pub fn write_shared(mut self) -> MapFileOptions {
        self.access = Access::Write;
        self
    }

    /// Placed so that 2 MiB pages fit, with advice to use them. [`MappedFile::page_sizes`] returns what the kernel really
    /// granted.
    pub fn huge_pages(mut self) -> MapFileOptions {
        self.huge_pages = true;
        self
    }

    /// This advice is given when the file is mapped.
    pub fn advice(mut self, advice: Harmless) -> MapFileOptions {
        self.advice = Some(advice);
        self
    }

    /// Only these bytes of the file. They may begin and end anywhere.
    pub fn range(mut self, range: Range<u64>) -> MapFileOptions {
        self.range = Some(range);
        self
    }

    /// Opens and maps.
    ///
    /// Errors: Io (missing, no permission, max_map_count), Invalid (an empty file, a range outside it).
    pub fn open(self, path: impl AsRef<Path>) -> Result<MappedFile> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        self.map(file, path)
    }

    fn open_file(&self, path: &Path) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(self.access == Access::Write)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .map_err(|error| Error::io("open the file", path, error))
    }

    /// Maps a file that is already open; `path` is used in messages.
    ///
    /// Errors: as [`open`](MapFileOptions::open).
    pub fn map(self, file: File, path: impl Into<PathBuf>) -> Result<MappedFile> {
        self.map_file(file, path.into())
    }

    fn map_file(&self, file: File, path: PathBuf) -> Result<MappedFile> {
        let size = file.metadata().map_err(|error| Error::io("look at the file", &path, error))?.len();
        let Range { start, end } = self.range.clone().unwrap_or(0..size);
        let name = path.display();
        if size == 0 {
            return Err(Error::Invalid(format!("{name} has no bytes to map; name a file that is not empty")));
        }
        if end > size || start >= size {
            return Err(Error::Invalid(format!(
                "the range from byte {start} to byte {end} passes the end of {name}, which has {size} bytes"
            )));
        }
        if start >= end {
            return Err(Error::Invalid(format!(
                "the range from byte {start} to byte {end} is empty; map one byte at least"
            )));
        }
        let page = rustix::param::page_size() as u64;
        let lead = (start % page) as usize;
        let length = (end - start) as usize;
        let placement = if self.huge_pages { Placement::Congruent } else { Placement::Anywhere };
        let options = MapOptions { access: self.access, placement, populate: false };
        let map = Mapping::new(&file, start - lead as u64, lead + length, &options)?;
        let mut notes: Vec<String> = map.misplaced(placement).into_iter().collect();
        if self.huge_pages {
            // Refused where the kernel has no huge pages; small ones will do.
            notes.extend(advice::madvise(&map, 0, map.length(), Advice::HugePage).err().map(|error| error.to_string()));
        }
        let map = Guarded::new(map);
        if !map.guard().is_active() {
            notes.push(
                "mapped unguarded: too many guarded mappings exist, so a truncation would raise SIGBUS".to_owned(),
            );
        }
        let mapped = MappedFile { map, file, path, start: start - lead as u64, lead, length, notes, ahead: None };
        if let Some(advice) = self.advice {
            mapped.advise(0..length, advice)?;
        }
        Ok(mapped)
    }
}

impl MappedFile {
    /// Options for mapping; by default the whole file, read-only, wherever the kernel chooses.
    pub fn options() -> MapFileOptions {
        MapFileOptions::default()
    }

    /// Maps the whole file for reading.
    ///
    /// Errors: as [`MapFileOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<MappedFile> {
        MappedFile::options().open(path)
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false: an empty range cannot be mapped.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Requests that were not granted, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether 2 MiB pages can be used: address and file offset agree modulo 2 MiB.
    pub fn is_aligned(&self) -> bool {
        self.map.mapping().is_congruent()
    }

    /// The bytes of `range`, to be read by copy. One call faults them in, so that the caller waits here and not at each page.
    ///
    /// Costs a system call, and reading the pages that are not in memory.
    ///
    /// Errors: Invalid (outside the mapping), Truncated (the file is shorter now, or a page cannot be read).
    pub fn get(&self, range: Range<usize>) -> Result<View<'_>> {
        let (at, length) = self.place(&range)?;
        self.touched(at, length)?;
        self.fault_in(&range)?;
        self.unseen(&range)
    }

    /// The bytes of `range`, to be read by copy, without touching them. Each page that is not in memory is faulted in when it is
    /// read; a page that is gone reads as zeros, so call [`check`](MappedFile::check) afterwards.
    ///
    /// Errors: Invalid (outside the mapping), Truncated (a page was already gone).
    pub fn bytes(&self, range: Range<usize>) -> Result<View<'_>> {
        let (at, length) = self.place(&range)?;
        self.seen(at, length)?;
        self.unseen(&range)
    }

    /// The same without the policy's knowledge.
    fn unseen(&self, range: &Range<usize>) -> Result<View<'_>> {
        let (at, length) = self.place(range)?;
        self.check()?;
        Ok(self.map.view(at, length))
    }

    /// Copies the bytes from `at` on into `into`, and fills it. If the file is written meanwhile, the copy may be torn: see
    /// [`View`].
    ///
    /// Errors: Invalid (outside the mapping), Truncated (a page was gone; parts of `into` are zeros then).
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<()> {
        let range = at..at.saturating_add(into.len());
        let (begin, length) = self.place(&range)?;
        self.touched(begin, length)?;
        self.unseen(&range)?.read(0, into);
        self.check()
    }

    /// The bytes of `range`, to be read by copy, if all are in memory by cachestat(2) or mincore(2). For threads that must
    /// not wait.
    ///
    /// Costs a system call, 0.2 us for a page.
    ///
    /// Errors: Invalid (outside the mapping), Truncated.
    pub fn try_get(&self, range: Range<usize>) -> Result<TryGet<View<'_>>> {
        match self.is_resident(&range)? {
            true => self.unseen(&range).map(TryGet::Ready),
            false => Ok(TryGet::NotResident),
        }
    }

    /// Writes `bytes` from `at` on; others see them where the file is mapped by
    /// [`write_shared`](MapFileOptions::write_shared), perhaps half written.
    ///
    /// Errors: Invalid (outside the mapping, or mapped read-only), Truncated.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let (at, _) = self.place(&(at..at.saturating_add(bytes.len())))?;
        self.map.write(at, bytes);
        self.check()
    }

    fn check_writable(&self) -> Result<()> {
        if self.map.mapping().is_writable() {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} is mapped read-only; map it with copy_on_write or write_shared",
            self.path.display()
        )))
    }

    fn fault_in(&self, range: &Range<usize>) -> Result<()> {
        let (at, length) = self.place(range)?;
        if length == 0 {
            return Ok(());
        }
        match advice::madvise(self.map.mapping(), at, length, Advice::PopulateRead) {
            // EFAULT: the pages are now past the file's end; EHWPOISON or EIO: they are unreadable.
            Err(error) if matches!(error.errno(), Some(libc::EFAULT | libc::EHWPOISON | libc::EIO)) => {
                Err(self.truncated(range.start))
            }
            // Before Linux 5.14 the pages are faulted in as they are read.
            _ => Ok(()),
        }
    }

    fn is_resident(&self, range: &Range<usize>) -> Result<bool> {
        let (at, length) = self.place(range)?;
        if length == 0 {
            return Ok(true);
        }
        let page = rustix::param::page_size();
        let begin = at / page * page;
        let whole = (at + length).next_multiple_of(page) - begin;
        let (resident, _) = cache::resident(&self.file, self.start + begin as u64, whole as u64)?;
        Ok(resident >= whole as u64)
    }

    /// Returns once all changes are on the device (msync, then fsync). Does nothing for other mappings.
    ///
    /// Errors: Io (EIO: some changes are lost; the kernel reports it once), Truncated.
    pub fn sync(&self) -> Result<()> {
        self.map.mapping().sync()?;
        self.file.sync_all().map_err(|error| Error::io("make the file durable", &self.path, error))?;
        self.check()
    }

    /// Fails if a page of the mapping was found missing: the file was truncated under it, or is unreadable.
    pub fn check(&self) -> Result<()> {
        match self.map.guard().gone() {
            None => Ok(()),
            Some(gone) => Err(Error::Truncated { path: self.path.clone(), offset: self.start + gone as u64 }),
        }
    }

    /// Bytes of the mapping by the size of the pages that map them, as the kernel reports it.
    ///
    /// Walks the page table: milliseconds for each GiB in memory.
    ///
    /// Errors: Io.
    pub fn page_sizes(&self) -> Result<MappedSizes> {
        let shown = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file)))
            .unwrap_or_else(|_| self.path.clone());
        let shown = shown.to_string_lossy().into_owned();
        observe::mapped_sizes(std::process::id(), |path| path == shown)
    }

    /// Replaces the mapping's pages by huge pages now, and returns how many bytes are mapped by huge pages afterwards.
    ///
    /// Errors: Io (names the first kernel that can, Linux 6.1, or what the file system lacks).
    pub fn collapse(&self) -> Result<MappedSizes> {
        advice::madvise(self.map.mapping(), 0, self.map.mapping().length(), Advice::Collapse)?;
        self.page_sizes()
    }

    fn truncated(&self, at: usize) -> Error {
        let size = self.file.metadata().map_or(0, |meta| meta.len());
        Error::Truncated { path: self.path.clone(), offset: size.max(self.start + (self.lead + at) as u64) }
    }

    /// Where `range` lies in the mapping.
    fn place(&self, range: &Range<usize>) -> Result<(usize, usize)> {
        if range.start > range.end || range.end > self.length {
            return Err(Error::Invalid(format!(
                "the bytes {} to {} are not in the mapping, which has {}",
                range.start, range.end, self.length
            )));
        }
        Ok((self.lead + range.start, range.end - range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cache::{FileAdvice, fadvise};
    use crate::test_files::{PAGE, TestFile};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn any_range_of_a_file_can_be_mapped_and_read() {
        let file = TestFile::on_disk(10 * PAGE + 77);
        for range in [0..file.length() as u64, 5..6, 4095..4097, 3 * PAGE as u64 + 1..file.length() as u64] {
            let map = MappedFile::options().range(range.clone()).open(file.path()).unwrap();

            let wanted = &file.content()[range.start as usize..range.end as usize];
            assert_eq!(map.get(0..map.len()).unwrap().to_vec(), wanted);
            assert!(matches!(map.get(0..map.len() + 1), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn a_range_that_cannot_be_mapped_is_told_by_what_is_wrong_with_it() {
        let file = TestFile::on_disk(100);
        let name = file.path().display().to_string();
        let told = |range| MappedFile::options().range(range).open(file.path()).unwrap_err().to_string();

        assert_eq!(
            MappedFile::open("/dev/null").unwrap_err().to_string(),
            "/dev/null has no bytes to map; name a file that is not empty"
        );
        assert_eq!(told(7..7), "the range from byte 7 to byte 7 is empty; map one byte at least");
        assert_eq!(
            told(0..101),
            format!("the range from byte 0 to byte 101 passes the end of {name}, which has 100 bytes")
        );
        assert_eq!(
            told(100..100),
            format!("the range from byte 100 to byte 100 passes the end of {name}, which has 100 bytes")
        );
        assert!(MappedFile::options().range(99..100).open(file.path()).is_ok());
    }

    #[test]
    fn a_truncated_file_is_an_error_by_every_way() {
        let file = TestFile::on_disk(16 * PAGE);
        let map = MappedFile::open(file.path()).unwrap();
        file.file().set_len(4 * PAGE as u64).unwrap();

        assert!(matches!(map.get(8 * PAGE..9 * PAGE), Err(Error::Truncated { .. })));
        assert!(map.get(0..4 * PAGE).is_ok(), "what is there can still be read");
        let mut gone = [1; PAGE];
        map.bytes(8 * PAGE..9 * PAGE).unwrap().read(0, &mut gone);
        assert_eq!(gone, [0; PAGE], "what is gone reads as zeros");
        assert!(matches!(map.read(12 * PAGE, &mut gone), Err(Error::Truncated { .. })));
        assert!(matches!(map.check(), Err(Error::Truncated { offset, .. }) if offset == 8 * PAGE as u64));
    }

    #[test]
    fn fifty_thousand_truncations_crash_nobody() {
        const TRUNCATIONS: u64 = 50_000;
        let file = TestFile::on_disk(16 * PAGE);
        let ended = AtomicBool::new(false);
        let (whole, cut) = (AtomicU64::new(0), AtomicU64::new(0));
        let read = |seed: u64| {
            let mut draws = (0..).scan(seed, |state: &mut u64, _: u64| {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Some(*state >> 33)
            });
            let mut draw = |below: u64| draws.next().unwrap_or(0) % below;
            while !ended.load(Ordering::Relaxed) {
                let Ok(mut map) = MappedFile::options().copy_on_write().open(file.path()) else { continue };
                for _ in 0..8 {
                    let (from, to) = (draw(map.len() as u64) as usize, draw(map.len() as u64) as usize);
                    let range = from.min(to)..from.max(to) + 1;
                    let mut bytes = vec![0; range.len()];
                    let outcome = match draw(3) {
                        0 => map.get(range).map(|view| assert!(!view.is_empty())),
                        1 => map.read(range.start, &mut bytes),
                        _ => map.write(range.start, &bytes),
                    };
                    match outcome.and_then(|()| map.check()) {
                        Ok(()) => whole.fetch_add(1, Ordering::Relaxed),
                        Err(Error::Truncated { .. }) => cut.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                }
            }
        };

        std::thread::scope(|scope| {
            for seed in 1..4 {
                let read = &read;
                scope.spawn(move || read(seed));
            }
            for turn in 0..TRUNCATIONS {
                file.file().set_len(turn * 7919 % (16 * PAGE as u64)).unwrap();
                file.file().set_len(16 * PAGE as u64).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });

        let (whole, cut) = (whole.into_inner(), cut.into_inner());
        assert!(whole > 1000 && cut > 100, "{whole} read as a whole, {cut} found cut");
    }

    #[test]
    fn what_is_not_in_memory_is_not_waited_for() {
        let file = TestFile::on_disk(64 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let map = MappedFile::options().advice(Harmless::Random).open(file.path()).unwrap();

        assert!(matches!(map.try_get(0..64 * PAGE).unwrap(), TryGet::NotResident));
        map.get(0..64 * PAGE).unwrap();
        let TryGet::Ready(view) = map.try_get(0..64 * PAGE).unwrap() else { panic!("not there") };
        assert_eq!(view.to_vec(), file.content());
    }

    #[test]
    fn changes_go_where_they_were_asked_to() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut own = MappedFile::options().copy_on_write().open(file.path()).unwrap();
        own.write(0, &[0; 4]).unwrap();
        assert_eq!(own.get(0..4).unwrap().to_vec(), [0; 4]);
        assert_eq!(std::fs::read(file.path()).unwrap(), file.content());

        let mut shared = MappedFile::options().write_shared().open(file.path()).unwrap();
        shared.write(PAGE, &[7; 4]).unwrap();
        assert!(matches!(shared.write(4 * PAGE - 1, &[7; 2]), Err(Error::Invalid(_))));
        assert!(matches!(shared.write(usize::MAX, &[7; 2]), Err(Error::Invalid(_))));
        shared.sync().unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap()[PAGE..PAGE + 4], [7; 4]);

        let mut reading = MappedFile::open(file.path()).unwrap();
        assert!(matches!(reading.write(0, &[1]), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_view_shows_what_another_mapping_of_the_file_writes() {
        let file = TestFile::on_disk(4 * PAGE);
        let (reading, private) =
            (MappedFile::open(file.path()).unwrap(), MappedFile::options().copy_on_write().open(file.path()).unwrap());
        let mut writing = MappedFile::options().write_shared().open(file.path()).unwrap();
        let views = [reading.get(0..PAGE).unwrap(), private.get(0..PAGE).unwrap()];

        writing.write(5, b"changed").unwrap();

        for view in views {
            assert_eq!(view.part(5..12).to_vec(), b"changed");
        }
    }

    #[test]
    fn huge_pages_are_placed_to_fit_and_told_as_they_are() {
        let file = TestFile::on_disk(600 * PAGE);
        let map = MappedFile::options().huge_pages().open(file.path()).unwrap();
        map.get(0..map.len()).unwrap();

        assert!(map.is_aligned());
        let sizes = map.page_sizes().unwrap();
        assert_eq!(sizes.resident_bytes, 600 * PAGE as u64);
        assert!(sizes.huge_bytes() <= sizes.resident_bytes);
    }
}
