//! Loading a mapped file as a whole: windows populated by several threads, as far as memory allows.

use super::MappedFile;
use crate::error::{Error, Result};
use crate::headroom;
use crate::sys::advice::{self, Advice};
use crate::sys::cache::{self, FileAdvice};
use crate::sys::map::{MapOptions, Mapping, Placement};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes populated by one call: enough to keep a device busy, small enough to show progress and to stop.
const WINDOW: usize = 16 << 20;

/// Windows read at the same time; read-ahead within each fills the device's queue.
const THREADS: usize = 4;

/// The first kernel whose faults read ahead by huge pages where a mapping wants these, whatever `read_ahead_kb` says (mm/filemap.c,
/// do_sync_mmap_readahead).
const READS_HUGE: (u32, u32) = (5, 18);

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
        self.bring(at, length);
        match advice::madvise(self.map.mapping(), at, length, Advice::PopulateRead) {
            Ok(()) => Ok(()),
            Err(error) if error.errno() == Some(libc::EINVAL) => self.touch(at, length),
            Err(error) if matches!(error.errno(), Some(libc::EFAULT | libc::EHWPOISON | libc::EIO)) => {
                Err(self.truncated(at.saturating_sub(self.lead)))
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the window into the page cache. Only a hint: what it cannot do is done, or told, by the populating that follows.
    ///
    /// A mapping of its own wants huge pages: the kernel then reads 2 MiB into one huge page, which costs a twentieth of the processor
    /// time of small ones. The advice would stay with the user's mapping, where each later fault would read 2 MiB.
    fn bring(&self, at: usize, length: usize) {
        let offset = self.start + at as u64;
        if kernel().is_none_or(|version| version < READS_HUGE) {
            // Starts reads beyond the read-ahead of a fault, by small pages.
            let _ = cache::fadvise(&self.file, offset, length as u64, FileAdvice::WillNeed);
            return;
        }
        let options = MapOptions { placement: Placement::Congruent, ..MapOptions::default() };
        let Ok(window) = Mapping::new(&self.file, offset, length, &options) else { return };
        let _ = advice::madvise(&window, 0, length, Advice::HugePage)
            .and_then(|()| advice::madvise(&window, 0, length, Advice::PopulateRead));
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

/// The first two numbers of the kernel's version, if it has such.
fn kernel() -> Option<(u32, u32)> {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
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
    fn a_load_leaves_the_mapping_without_advice() {
        let file = TestFile::on_disk(100 * PAGE);
        let map = MappedFile::open(file.path()).unwrap();

        map.load(&mut |_, _| ()).unwrap();

        let begin = format!("{:x}-", map.map.mapping().as_ptr() as usize);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = smaps.split_once(&begin).unwrap().1;
        let flags = own.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(!flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
    }

    #[test]
    fn a_file_that_begins_anywhere_and_fills_no_window_is_loaded_as_a_whole() {
        let file = TestFile::on_disk(WINDOW + 7 * PAGE);
        file.file().sync_all().unwrap();
        cache::fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let map = MappedFile::options().range(PAGE as u64..(WINDOW + 6 * PAGE + 5) as u64).open(file.path()).unwrap();

        let report = map.load(&mut |_, _| ()).unwrap();

        assert_eq!(report.left_bytes, 0);
        assert_eq!(map.page_sizes().unwrap().resident_bytes, (WINDOW + 6 * PAGE) as u64);
    }

    #[test]
    fn a_kernels_version_is_read_whatever_stands_behind_it() {
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("5.4.0-1-amd64"), Some((5, 4)));
        assert_eq!(version("6.1-rc2"), Some((6, 1)));
        assert_eq!((version("x"), version(""), version("6")), (None, None, None));
    }

    #[test]
    fn a_file_truncated_meanwhile_is_an_error() {
        let file = TestFile::on_disk(100 * PAGE);
        let map = MappedFile::open(file.path()).unwrap();
        file.file().set_len(PAGE as u64).unwrap();

        assert!(matches!(map.load(&mut |_, _| ()), Err(Error::Truncated { .. })));
    }
}
