//! A file that can grow, read and written at any byte through a pool: a storage engine's replacement for its own
//! file access.

use super::fill::Content;
use super::{Handle, Metrics, Pool, PoolLayout, queue};
use crate::access::{MethodOptions, PreadOptions};
use crate::error::{Error, Result};
use crate::files::{Layout, Target};
use crate::units::Bytes;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// A file behind a pool, for any number of threads.
///
/// Written bytes are in memory until [`sync`](PooledFile::sync), or until their page is evicted; drop writes nothing,
/// as in a crash.
pub struct PooledFile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
    options: PoolLayout,
    /// The pool over the file at its present length.
    open: RwLock<Open>,
}

crate::params! {
    /// How a file is opened behind a pool.
    #[non_exhaustive]
    pub struct PooledFileOptions {
        /// Memory for pages, exceeded by a batch at most; 64 MiB are small enough for any machine.
        memory: Bytes = Bytes::mib(64),
        /// Bytes of a page: a power of two from 4 KiB to 2 MiB; the page size of the engine above saves reads before writes.
        page: Bytes = Bytes::kib(4),
        /// Pages evicted at once; 256 make one TLB flush on other processors cheap for each page.
        batch: u32 = 256,
    }
}

impl PooledFileOptions {
    /// Opens a file for reading and writing; makes an empty one where there is none. The file is locked (flock(2)) while it
    /// is open.
    ///
    /// Errors: Held (another holder has the lock), Invalid (options that cannot be used), Io (no permission).
    pub fn open(self, path: impl AsRef<Path>) -> Result<PooledFile> {
        let PooledFileOptions { memory, page, batch } = self;
        PooledFile::locked(path.as_ref().to_owned(), PoolLayout { memory, page, batch, ..PoolLayout::default() })
    }
}

struct Open {
    length: u64,
    /// None where the file is empty.
    pool: Option<Pool>,
    /// Handles of threads that are not reading or writing now.
    handles: Mutex<Vec<Handle>>,
}

impl PooledFile {
    /// Options for opening, each at its default.
    pub fn options() -> PooledFileOptions {
        PooledFileOptions::default()
    }

    /// Opens a file for reading and writing, with every option at its default.
    ///
    /// Errors: as [`PooledFileOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<PooledFile> {
        PooledFile::options().open(path)
    }

    fn locked(path: PathBuf, options: PoolLayout) -> Result<PooledFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| Error::io("open for writing", &path, error))?;
        // File systems without locks do without.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let reason = "two pools over one file would undo each other's writes".to_owned();
            return Err(Error::Held { path, reason });
        }
        let length = file.metadata().map_err(|error| Error::io("look at", &path, error))?.len();
        let open = RwLock::new(Open::over(&path, length, options)?);
        Ok(PooledFile { path, _file: file, options, open })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.shared().length
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `bytes` from the file's `offset` on.
    ///
    /// Errors: Invalid (past the end), and those of reading.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        self.each_page(offset, bytes.len(), Content::Needed, |handle, number, within, part| {
            let page = handle.pin(number)?;
            bytes[done..done + part].copy_from_slice(&page[within..within + part]);
            done += part;
            Ok(())
        })
    }

    /// Writes `bytes` at `offset`, inside the file.
    ///
    /// Errors: Invalid (past the end), and those of reading where a page is changed in part.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        self.each_page(offset, bytes.len(), Content::Replaced, |handle, number, within, part| {
            let put = |page: &mut [u8]| page[within..within + part].copy_from_slice(&bytes[done..done + part]);
            if part == handle.pool.shared.extent(number).length {
                handle.replace(number, put)?;
            } else {
                handle.change(number, put)?;
            }
            done += part;
            Ok(())
        })
    }

    /// Returns once everything written so far is on the device.
    ///
    /// Errors: the first write that failed since the last report.
    pub fn sync(&self) -> Result<()> {
        let open = self.shared();
        let Some(mut handle) = open.take()? else { return Ok(()) };
        let synced = handle.sync();
        open.put_back(handle);
        synced
    }

    /// Makes the file longer, with zeros, or shorter. Writes all dirty pages and starts an empty pool, so call it seldom
    /// and with large steps.
    ///
    /// Errors: as [`sync`](PooledFile::sync); Io (full disk).
    pub fn set_len(&self, length: u64) -> Result<()> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        // By a sync: this pool ends here, and with it the memory of a sync that failed.
        if let Some(mut handle) = open.take()? {
            let synced = handle.sync();
            open.put_back(handle);
            synced?;
        }
        let file = OpenOptions::new().write(true).open(&self.path);
        let set = file.and_then(|file| file.set_len(length).and_then(|()| file.sync_all()));
        if set.is_err() {
            open.pool.iter().for_each(Pool::distrust);
        }
        set.map_err(|error| Error::io(format!("make it {length} bytes long"), &self.path, error))?;
        *open = Open::over(&self.path, length, self.options)?;
        Ok(())
    }

    /// What the pool did since the file last changed its length; zeros where the file is empty.
    pub fn metrics(&self) -> Metrics {
        self.shared().pool.as_ref().map(Pool::metrics).unwrap_or_default()
    }

    fn shared(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each` with every page of a range: its number, where the range begins in it, and how much of the range lies there.
    /// Pages that must keep their content in part are read before.
    fn each_page(
        &self,
        offset: u64,
        length: usize,
        content: Content,
        mut each: impl FnMut(&mut Handle, u64, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let open = self.shared();
        if offset.checked_add(length as u64).is_none_or(|end| end > open.length) {
            return Err(Error::Invalid(format!(
                "{length} bytes at {offset} do not lie within the {} bytes of {}",
                open.length,
                self.path.display()
            )));
        }
        let Some(mut handle) = open.take()? else { return Ok(()) };
        let page = handle.pool.page_size() as u64;
        let mut done = 0;
        let mut outcome = Ok(());
        if content == Content::Needed && length as u64 > page {
            let pages = offset / page..(offset + length as u64).div_ceil(page);
            // Many at a time; pages that are evicted again meanwhile are read one by one.
            outcome = handle.fetch(&pages.collect::<Vec<_>>());
        }
        while done < length && outcome.is_ok() {
            let at = offset + done as u64;
            let (number, within) = (at / page, (at % page) as usize);
            let part = (page as usize - within).min(length - done);
            outcome = each(&mut handle, number, within, part);
            done += part;
        }
        open.put_back(handle);
        outcome
    }
}

impl Open {
    fn over(path: &Path, length: u64, options: PoolLayout) -> Result<Open> {
        if length == 0 {
            return Ok(Open { length, pool: None, handles: Mutex::default() });
        }
        let layout = Layout { write: true, ..Layout::default() };
        let target = Arc::new(Target::open(&[path.to_owned()], &layout)?);
        // Past the page cache only where the last page is whole; a partial page could not be written that way.
        let is_whole = length % options.page.0.max(4096) == 0;
        let direct = is_whole.then(|| queue::batched(&target).ok()).flatten();
        let reader = direct.map_or_else(|| Ok(PreadOptions::default().open_target(target)?.reader), Ok::<_, Error>)?;
        // No more room than the file could use: a budget is for the largest it will be.
        let least = Bytes(16 * options.page.0);
        let options = PoolLayout { memory: options.memory.max(least), ..options };
        let pool = Pool::new(length, options)?;
        let handles = Mutex::new(vec![pool.handle(reader)]);
        Ok(Open { length, pool: Some(pool), handles })
    }

    /// A handle for this thread: a free one, or a new sibling. None where the file is empty.
    fn take(&self) -> Result<Option<Handle>> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        // One handle always stays, to make siblings from.
        match (handles.pop(), handles.len()) {
            (Some(last), 0) => {
                let sibling = last.reader.sibling();
                handles.push(last);
                sibling.map(|reader| Some(pool.handle(reader)))
            }
            (free, _) => Ok(free),
        }
    }

    fn put_back(&self, handle: Handle) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}

impl std::fmt::Debug for PooledFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PooledFile").field("path", &self.path).field("length", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::DirectOptions;
    use crate::error::ErrorKind;
    use crate::sys::cache::{self, FileAdvice, fadvise};
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn another_length_does_not_make_a_failed_sync_forgotten() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = PooledFile::open(dir.path().join("data")).unwrap();
        file.set_len(1 << 20).unwrap();
        file.shared().pool.as_ref().unwrap().distrust();

        let told = file.set_len(2 << 20).unwrap_err();

        assert!(told.to_string().contains("an earlier sync failed"), "{told}");
        assert_eq!(told.kind(), ErrorKind::Ended);
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Ended);
    }

    /// A file of `length` known bytes, in a pool of 16 pages.
    fn pooled(length: usize) -> (TestFile, PooledFile) {
        let file = TestFile::on_disk(length);
        let pooled = PooledFile::options().memory(Bytes(16 * PAGE as u64)).batch(4).open(file.path()).unwrap();
        (file, pooled)
    }

    #[test]
    fn a_write_of_a_part_leaves_the_rest_of_its_pages() {
        for length in [40 * PAGE, 40 * PAGE + 123] {
            // Inside a page, across two, a page and a bit on either side, at the end.
            for (at, count) in [(5 * PAGE + 100, 50), (8 * PAGE - 3, 6), (10 * PAGE - 1, PAGE + 2), (length - 7, 7)] {
                let (file, pooled) = pooled(length);

                pooled.write_at(at as u64, &vec![0; count]).unwrap();
                pooled.sync().unwrap();

                let mut expected = file.content().to_vec();
                expected[at..at + count].fill(0);
                assert!(std::fs::read(file.path()).unwrap() == expected, "{count} bytes at {at} of {length}");
            }
        }
    }

    #[test]
    fn a_range_past_the_end_is_refused_and_nothing_of_it_written() {
        let (file, pooled) = pooled(3 * PAGE + 5);
        let end = file.length() as u64;
        for (at, count) in [(end - 1, 2), (end, 1), (0, file.length() + 1), (u64::MAX, 1), (u64::MAX - 1, 5)] {
            let written = pooled.write_at(at, &vec![0; count]);
            let read = pooled.read_at(at, &mut vec![0; count]);

            assert!(matches!(written, Err(Error::Invalid(_))), "{count} at {at}: {written:?}");
            assert!(matches!(read, Err(Error::Invalid(_))), "{count} at {at}: {read:?}");
        }
        pooled.write_at(end, &[]).unwrap();
        pooled.sync().unwrap();

        assert!(std::fs::read(file.path()).unwrap() == file.content());
    }

    #[test]
    fn whole_pages_are_written_without_reading_them_and_the_last_one_too() {
        let (_file, pooled) = pooled(2 * PAGE + 5);

        pooled.write_at(PAGE as u64, &[0; PAGE + 5]).unwrap();
        let metrics = pooled.metrics();
        pooled.write_at(1, &[0]).unwrap();

        assert_eq!((metrics.misses, pooled.metrics().misses), (0, 1));
    }

    #[test]
    fn any_reads_and_writes_are_those_of_a_file() {
        let mut state = 5u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let (file, pooled) = pooled(40 * PAGE);
        let mut content = file.content().to_vec();
        for turn in 0..3000 {
            let at = draw(content.len());
            let count = 1 + draw((content.len() - at).min(3 * PAGE));
            match draw(40) {
                0 => {
                    let length = (20 + draw(40)) * PAGE + draw(2) * draw(PAGE);
                    pooled.set_len(length as u64).unwrap();
                    content.resize(length, 0);
                    assert_eq!(pooled.len(), length as u64);
                }
                1 => {
                    pooled.sync().unwrap();
                    assert!(std::fs::read(file.path()).unwrap() == content, "turn {turn}");
                }
                2..20 => {
                    let bytes = vec![turn as u8; count];
                    pooled.write_at(at as u64, &bytes).unwrap();
                    content[at..at + count].copy_from_slice(&bytes);
                }
                _ => {
                    let mut bytes = vec![0; count];
                    pooled.read_at(at as u64, &mut bytes).unwrap();
                    assert!(bytes == content[at..at + count], "turn {turn}: {count} bytes at {at}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_open_is_not_opened_again() {
        let (file, pooled) = pooled(PAGE);

        let refused = PooledFile::open(file.path()).unwrap_err();

        assert!(refused.to_string().contains("is open elsewhere"), "{refused}");
        drop(pooled);
        assert!(PooledFile::open(file.path()).is_ok());
    }

    #[test]
    fn a_file_is_empty_as_long_as_it_has_no_length() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = PooledFile::open(dir.path().join("data")).unwrap();
        assert!(file.is_empty());
        file.read_at(0, &mut []).unwrap();
        file.sync().unwrap();

        file.set_len(1).unwrap();

        assert!(!file.is_empty() && file.len() == 1);
        assert!(format!("{file:?}").ends_with("/data\", length: 1 }"), "{file:?}");
    }

    #[test]
    fn the_options_are_those_that_were_given() {
        let file = TestFile::on_disk(80 * PAGE);
        let page = Bytes::kib(8);
        let evicted_by = |batch: u32| {
            let pooled =
                PooledFile::options().memory(Bytes(32 * page.0)).page(page).batch(batch).open(file.path()).unwrap();
            (0..33).for_each(|number| pooled.read_at(number * page.0, &mut [0]).unwrap());
            (pooled.metrics().misses, pooled.metrics().evicted)
        };

        assert_eq!(
            [1, 3, 4, 100].map(evicted_by),
            [1, 3, 4, 4].map(|gone| (33, gone)),
            "an eighth of the pool at most"
        );
    }

    #[test]
    fn bytes_are_written_and_read_in_their_order_across_pages() {
        let (file, pooled) = pooled(8 * PAGE + 50);
        let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at % 249) as u8).collect();

        pooled.write_at(2 * PAGE as u64 + 77, &bytes).unwrap();

        let mut expected = file.content().to_vec();
        expected[2 * PAGE + 77..5 * PAGE + 77].copy_from_slice(&bytes);
        let mut all = vec![0; 8 * PAGE + 50];
        pooled.read_at(0, &mut all).unwrap();
        assert!(all == expected);
    }

    #[test]
    fn several_pages_are_read_at_once_and_one_by_itself() {
        let (_file, pooled) = pooled(40 * PAGE);
        let read = |first: usize, length: usize| {
            pooled.read_at((first * PAGE) as u64, &mut vec![0; length]).unwrap();
            (pooled.metrics().misses, pooled.metrics().hits)
        };

        assert_eq!(read(0, PAGE), (1, 0));
        assert_eq!(read(2, 2 * PAGE), (3, 2), "they were there when each was taken");
        assert_eq!(read(6, PAGE + 1), (5, 4));
    }

    #[test]
    fn a_file_of_whole_pages_is_read_past_the_page_cache_and_another_through_it() {
        let is_cached = |length: usize| {
            let file = TestFile::on_disk(length);
            file.file().sync_all().unwrap();
            let pooled = PooledFile::options().open(file.path()).unwrap();
            fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
            pooled.read_at(0, &mut [0]).unwrap();
            cache::resident(file.file(), 0, length as u64).unwrap().0 > 0
        };
        if DirectOptions::default().open_target(TestFile::on_disk(PAGE).target(true)).is_err() {
            eprintln!("SKIPPED a_file_of_whole_pages_is_read_past_the_page_cache: no O_DIRECT in /var/tmp");
            return;
        }

        assert!(!is_cached(8 * PAGE) && is_cached(8 * PAGE + 1));
    }

    #[test]
    fn a_pool_has_room_for_sixteen_pages_however_little_memory_is_given() {
        let file = TestFile::on_disk(40 * PAGE);
        let pooled = PooledFile::options().memory(Bytes(1)).open(file.path()).unwrap();

        (0..16).for_each(|page| pooled.read_at(page * PAGE as u64, &mut [0]).unwrap());

        assert_eq!((pooled.metrics().resident, pooled.metrics().evicted), (16, 0));
    }

    #[test]
    fn calls_one_after_the_other_share_a_handle() {
        let (_file, pooled) = pooled(8 * PAGE);

        (0..8).for_each(|page| pooled.read_at(page * PAGE as u64, &mut [0]).unwrap());
        (0..8).for_each(|page| pooled.write_at(page * PAGE as u64, &[0]).unwrap());
        pooled.sync().unwrap();

        assert_eq!(
            pooled.shared().handles.lock().unwrap().len(),
            2,
            "that one, and the one that siblings are made from"
        );
    }
}
