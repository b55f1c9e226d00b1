//! A file that can grow, read and written at any byte through a pool: a storage engine's replacement for its own
//! file access.

use super::fill::Content;
use super::{Handle, Metrics, Pool, PoolLayout};
use crate::access::{DirectOptions, MethodOptions, PreadOptions};
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
        let direct = is_whole.then(|| DirectOptions::default().open_target(Arc::clone(&target)).ok()).flatten();
        let reader = direct.map_or_else(|| PreadOptions::default().open_target(Arc::clone(&target)), Ok)?;
        // No more memory than the file could use: the budget is meant for the file at its largest.
        let least = Bytes(16 * options.page.0);
        let options = PoolLayout { memory: options.memory.max(least), ..options };
        let pool = Pool::new(length, options)?;
        let handles = Mutex::new(vec![pool.handle(reader.reader)]);
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
    use crate::error::ErrorKind;
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
}
