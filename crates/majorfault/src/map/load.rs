//! Loading a mapped file as a whole: windows populated by several threads, as far as memory allows.

use super::MappedFile;
use crate::error::{Error, Result};
use crate::headroom;
use crate::sys::advice::{self, Advice};
use crate::sys::cache::{self, FileAdvice};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes populated by one call: enough to keep a device busy, small enough to show progress and to stop.
const WINDOW: usize = 64 << 20;

/// Windows read at the same time; read-ahead within each fills the device's queue.
const THREADS: usize = 4;

/// Share of the free memory that loading leaves free.
const SPARE: u64 = 16;

/// What [`MappedFile::load`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Bytes loaded, from the beginning on.
    pub loaded_bytes: u64,
    /// Bytes left out because memory would not hold them.
    pub left_bytes: u64,
}

impl MappedFile {
    /// Brings the whole mapping into memory and into the page table, window by window, from several threads; `progress`
    /// gets the bytes done and the total. Stops where the cgroup's or the machine's free memory would be used
    /// up, and returns how much was left out: loading more would evict what was loaded first.
    ///
    /// Afterwards the program touches the loaded part without a major fault, until it is evicted.
    ///
    /// Errors: Truncated, Io.
    pub fn load(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LoadReport> {
        let all = self.map.mapping().length();
        let resident = cache::resident(&self.file, self.start, all as u64).map_or(0, |(bytes, _)| bytes);
        let free = headroom::free_bytes();
        let room = (free - free / SPARE).saturating_add(resident);
        let wanted = all.min(usize::try_from(room).unwrap_or(usize::MAX));
        let windows = wanted.div_ceil(WINDOW);
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let progress = Mutex::new(progress);
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(windows) {
                scope.spawn(|| {
                    loop {
                        let window = next.fetch_add(1, Ordering::Relaxed);
                        if window >= windows {
                            return;
                        }
                        let at = window * WINDOW;
                        let length = WINDOW.min(wanted - at);
                        if let Err(error) = self.load_window(at, length) {
                            next.store(windows, Ordering::Relaxed);
                            if let Ok(mut failed) = failed.lock() {
                                failed.get_or_insert(error);
                            }
                            return;
                        }
                        let done = done.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
                        if let Ok(mut progress) = progress.lock() {
                            progress(done.min(self.length as u64), self.length as u64);
                        }
                    }
                });
            }
        });
        match failed.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(LoadReport { loaded_bytes: wanted as u64, left_bytes: (all - wanted) as u64 }),
        }
    }

    fn load_window(&self, at: usize, length: usize) -> Result<()> {
        // Starts reads beyond the read-ahead of a fault; only a hint, so a refusal does no harm.
        let _ = cache::fadvise(&self.file, self.start + at as u64, length as u64, FileAdvice::WillNeed);
        match advice::madvise(self.map.mapping(), at, length, Advice::PopulateRead) {
            Ok(()) => Ok(()),
            Err(error) if error.errno() == Some(libc::EINVAL) => self.touch(at, length),
            Err(error) if matches!(error.errno(), Some(libc::EFAULT | libc::EHWPOISON | libc::EIO)) => {
                Err(self.truncated(at.saturating_sub(self.lead)))
            }
            Err(error) => Err(error),
        }
    }

    /// Before Linux 5.14: a byte of each page.
    fn touch(&self, at: usize, length: usize) -> Result<()> {
        let step = rustix::param::page_size();
        for page in (at..at + length).step_by(step) {
            std::hint::black_box(self.map.view(page, 1).get(0));
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn a_loaded_file_is_resident_and_mapped_as_a_whole() {
        let file = TestFile::on_disk(2000 * PAGE);
        file.file().sync_all().unwrap();
        cache::fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        let mut told = 0;

        let report = map.load(&mut |done, _| told = done).unwrap();

        assert_eq!(report, LoadReport { loaded_bytes: 2000 * PAGE as u64, left_bytes: 0 });
        assert_eq!(told, 2000 * PAGE as u64);
        assert_eq!(map.page_sizes().unwrap().resident_bytes, 2000 * PAGE as u64);
    }

    #[test]
    fn a_file_truncated_meanwhile_is_an_error() {
        let file = TestFile::on_disk(100 * PAGE);
        let map = MappedFile::open(file.path()).unwrap();
        file.file().set_len(PAGE as u64).unwrap();

        assert!(matches!(map.load(&mut |_, _| ()), Err(Error::Truncated { .. })));
    }
}
