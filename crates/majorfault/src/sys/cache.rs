//! The page cache of a file: what it holds (cachestat, mincore), and advice about it (posix_fadvise).
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::{Missing, Need, Probe};
use rustix::fs::{Advice, fadvise as rustix_fadvise};
use rustix::io::Errno;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

/// Number of cachestat(2), the same on every architecture that has it.
const SYS_CACHESTAT: libc::c_long = 451;

/// Bytes per call of mincore(2).
const MINCORE_WINDOW: u64 = 1 << 30;

/// cachestat(2), Linux 6.5.
pub const CACHESTAT: Need =
    Need { name: "cachestat", summary: "how much of a file is cached, dirty, or was evicted, in one call", probe };

/// Pages of a range by their state in the page cache; see cachestat(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// In the cache, those under writeback included.
    pub cached: u64,
    /// Dirty and not yet being written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Once cached and evicted since.
    pub evicted: u64,
    /// Evicted so recently that reading them again would mean thrashing.
    pub recently_evicted: u64,
}

/// Advice for a range of a file; see posix_fadvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAdvice {
    /// Back to the default read-ahead.
    Normal,
    /// Read-ahead twice as far.
    Sequential,
    /// No read-ahead.
    Random,
    /// Read it into the cache now, without waiting.
    WillNeed,
    /// Drop its clean pages that nobody maps.
    DontNeed,
    /// Do not count its use as use (since Linux 6.3).
    NoReuse,
}

/// The pages of `length` bytes from `offset` on, by state; a length of 0 means up to the end of the file.
///
/// One call whatever the length; takes some 200 ns, and 1 ms for each cached GiB of small pages. The user must own the file
/// or be allowed to write it.
///
/// Errors: Missing before Linux 6.5, Io (EPERM for other users' files).
pub fn cachestat(file: &File, offset: u64, length: u64) -> Result<CacheStat> {
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    let range = Range { offset, length };
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live values of the layout that cachestat(2) defines, and flags must be 0.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0u32) };
    match result {
        0 => Ok(stat),
        _ => Err(refused(std::io::Error::last_os_error())),
    }
}

fn refused(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            Missing::new("cachestat", "the kernel has no cachestat(2)", "use Linux 6.5 or newer").into()
        }
        _ => Error::io("ask how much of the file is cached", "cachestat", error),
    }
}

fn probe() -> Probe {
    let own = File::open("/proc/self/exe").map_err(|error| Missing::new("cachestat", error.to_string(), ""))?;
    match cachestat(&own, 0, 0) {
        Err(Error::Missing(missing)) => Err(missing),
        // A user who does not own our program's file can still have the call.
        _ => Ok("cachestat(2) works".to_owned()),
    }
}

/// Bytes of `length` from `offset` on that are in the page cache, rounded out to whole pages, and the call that reported it:
/// cachestat where it is available, otherwise mincore.
///
/// Errors: Io; Missing where neither call may answer (another user's file, before Linux 6.5 or not writable).
pub fn resident(file: &File, offset: u64, length: u64) -> Result<(u64, &'static str)> {
    match cachestat(file, offset, length) {
        Ok(stat) => Ok((stat.cached * rustix::param::page_size() as u64, "cachestat")),
        Err(_) => mincore(file, offset, length).map(|bytes| (bytes, "mincore")),
    }
}

/// The same by mincore(2), window by window. The kernel answers truthfully only to users who own the file or may write it, and
/// says "all resident" to others; so this function does not ask for them.
///
/// Errors: Missing for a file of another user; Io.
pub fn mincore(file: &File, offset: u64, length: u64) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata().map_err(|error| Error::io("look at the file", "fstat", error))?;
    let own = rustix::process::geteuid();
    if !own.is_root() && own.as_raw() != meta.uid() {
        return Err(Missing::new(
            "residency of the file",
            "the kernel reports it only to the file's owner",
            "run as the file's owner, or as root",
        )
        .into());
    }
    let page = rustix::param::page_size() as u64;
    let (mut begin, end) = (offset / page * page, offset + length);
    let mut resident = 0;
    while begin < end {
        let window = MINCORE_WINDOW.min(end - begin);
        resident += mincore_window(file, begin, window as usize)? * page;
        begin += window;
    }
    Ok(resident)
}

fn mincore_window(file: &File, offset: u64, length: usize) -> Result<u64> {
    let map = super::map::Mapping::new(file, offset, length, &super::map::MapOptions::default())?;
    let mut states = vec![0u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: the range is exactly the live mapping, and `states` has one byte for each of its pages.
    let result = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), length, states.as_mut_ptr()) };
    match result {
        0 => Ok(states.iter().filter(|state| *state & 1 == 1).count() as u64),
        _ => Err(Error::io("ask which pages are cached", "mincore", std::io::Error::last_os_error())),
    }
}

/// Gives `advice` for `length` bytes from `offset` on; a length of 0 means up to the end of the file.
///
/// Errors: Io (ESPIPE for anything but a file).
pub fn fadvise(file: &File, offset: u64, length: u64, advice: FileAdvice) -> Result<()> {
    let kind = match advice {
        FileAdvice::Normal => Advice::Normal,
        FileAdvice::Sequential => Advice::Sequential,
        FileAdvice::Random => Advice::Random,
        FileAdvice::WillNeed => Advice::WillNeed,
        FileAdvice::DontNeed => Advice::DontNeed,
        FileAdvice::NoReuse => Advice::NoReuse,
    };
    rustix_fadvise(file, offset, NonZeroU64::new(length), kind)
        .map_err(|error: Errno| Error::io(format!("give advice {advice:?} for the file"), "posix_fadvise", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn what_was_read_is_resident_and_what_was_dropped_is_not() {
        let file = TestFile::on_disk(64 * PAGE);
        file.file().sync_all().unwrap();

        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let dropped = resident(file.file(), 0, 64 * PAGE as u64).unwrap();
        std::fs::read(file.path()).unwrap();
        let read = resident(file.file(), 0, 64 * PAGE as u64).unwrap();

        assert_eq!((dropped.0, read.0), (0, 64 * PAGE as u64));
    }

    #[test]
    fn mincore_and_cachestat_agree() {
        let file = TestFile::on_disk(64 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        // Without read-ahead, so that exactly these pages are read.
        fadvise(file.file(), 0, 0, FileAdvice::Random).unwrap();
        for page in [3, 10, 40] {
            crate::sys::read::pread_exact(file.file(), &mut [0; PAGE], page * PAGE as u64).unwrap();
        }

        let by_mincore = mincore(file.file(), 0, 64 * PAGE as u64).unwrap();

        assert_eq!(by_mincore, 3 * PAGE as u64);
        if let Ok(stat) = cachestat(file.file(), 0, 64 * PAGE as u64) {
            assert_eq!(stat.cached * PAGE as u64, by_mincore);
        }
    }
}
