//! madvise(2), typed, and process_madvise(2) on this process with many ranges in one call.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::Missing;
use crate::sys::map::Mapping;
use rustix::mm::{Advice as Kind, madvise as rustix_madvise};
use std::ops::Range;

/// Advice about mapped pages. None of it changes the content of a shared file mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Back to the default: read-around on faults.
    Normal,
    /// No read-ahead; since Linux 6.3 reclaim also ignores accesses through the mapping.
    Random,
    /// A longer read-ahead; accesses do not count as use either.
    Sequential,
    /// Read into the page cache now, at most one read-ahead window (measured: 8 MiB of 256 MiB).
    WillNeed,
    /// Forget the page table entries; the pages stay cached.
    DontNeed,
    /// Use huge pages where possible.
    HugePage,
    /// Do not use huge pages.
    NoHugePage,
    /// Fault in for reading, with errors (Linux 5.14).
    PopulateRead,
    /// Fault in for writing, with errors (Linux 5.14).
    PopulateWrite,
    /// Replace the pages by huge pages now (Linux 6.1).
    Collapse,
    /// First to be reclaimed (Linux 5.4).
    Cold,
    /// Reclaim now (Linux 5.4).
    PageOut,
    /// Read ahead by the distance that faults show (no released kernel; kernel/series of this project).
    Strided,
}

/// Linux 6.1; the C library musl does not name it.
const MADV_COLLAPSE: libc::c_int = 25;

/// Number of the advice in kernel/series, the first that Linux 6.12 has free.
const MADV_STRIDED: libc::c_int = 26;

/// Whether this kernel has the patches of kernel/series.
///
/// Asked by a counter of theirs: the number alone may come to mean another thing in a later Linux.
///
/// Errors: Missing, with the way to such a kernel.
pub fn strided_is_here() -> std::result::Result<(), Missing> {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    match counters.lines().any(|line| line.starts_with("strided_ra_learn ")) {
        true => Ok(()),
        false => Err(Missing::new(
            "strided advice",
            "no released kernel has MADV_STRIDED",
            "majorfault kernel build strided; then add --place guest:kernel=strided",
        )),
    }
}

impl Advice {
    fn kind(self) -> std::result::Result<Kind, libc::c_int> {
        Ok(match self {
            Advice::Normal => Kind::Normal,
            Advice::Random => Kind::Random,
            Advice::Sequential => Kind::Sequential,
            Advice::WillNeed => Kind::WillNeed,
            Advice::DontNeed => Kind::LinuxDontNeed,
            Advice::HugePage => Kind::LinuxHugepage,
            Advice::NoHugePage => Kind::LinuxNoHugepage,
            Advice::PopulateRead => Kind::LinuxPopulateRead,
            Advice::PopulateWrite => Kind::LinuxPopulateWrite,
            Advice::Cold => Kind::LinuxCold,
            Advice::PageOut => Kind::LinuxPageOut,
            Advice::Collapse => return Err(MADV_COLLAPSE),
            Advice::Strided => return Err(MADV_STRIDED),
        })
    }

    /// The first kernel that knows the advice, where not every supported kernel does.
    fn since(self) -> &'static str {
        match self {
            Advice::PopulateRead | Advice::PopulateWrite => "Linux 5.14",
            Advice::Collapse => "Linux 6.1",
            Advice::Cold | Advice::PageOut => "Linux 5.4",
            _ => "a kernel with transparent huge pages",
        }
    }
}

/// Gives `advice` for `length` bytes of `mapping` from `at` on, rounded out to whole pages.
///
/// Errors: Invalid (outside the mapping), Io; EINVAL where this kernel or file system does not know the advice.
pub fn madvise(mapping: &Mapping, at: usize, length: usize, advice: Advice) -> Result<()> {
    if at.checked_add(length).is_none_or(|end| end > mapping.length()) {
        return Err(Error::Invalid(format!(
            "advice for {length} bytes at {at} passes the end of a mapping of {} bytes",
            mapping.length()
        )));
    }
    let page = rustix::param::page_size();
    let begin = at / page * page;
    let (address, length) = (mapping.as_mut_ptr().wrapping_add(begin), at + length - begin);
    let given = match advice.kind() {
        // SAFETY: the range lies inside a live mapping, and none of these advices changes bytes of a file mapping.
        Ok(kind) => unsafe { rustix_madvise(address.cast(), length, kind) }.map_err(std::io::Error::from),
        // SAFETY: as above.
        Err(number) => match unsafe { libc::madvise(address.cast(), length, number) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        },
    };
    given.map_err(|error| {
        let unknown = error.raw_os_error() == Some(libc::EINVAL);
        let said = Error::io(format!("give advice {advice:?} for {length} mapped bytes"), "madvise", error);
        if unknown {
            said.with_remedy(format!("this advice needs {} and a file system that supports it", advice.since()))
        } else {
            said
        }
    })
}

/// Drops the page table entries of many ranges of `mapping` in one call (process_madvise with MADV_DONTNEED on oneself;
/// Linux 6.13, TLB flushes batched since 6.16). Returns the bytes advised.
///
/// Errors: Invalid (a range outside the mapping, more than 1024 ranges), Io (EINVAL or EPERM before Linux 6.13).
pub fn process_madvise_dont_need(mapping: &Mapping, ranges: &[(usize, usize)]) -> Result<usize> {
    let inside = |&(at, length): &(usize, usize)| at.checked_add(length).is_some_and(|end| end <= mapping.length());
    if ranges.len() > libc::UIO_MAXIOV as usize || !ranges.iter().all(inside) {
        return Err(Error::Invalid(format!(
            "{} ranges: more than 1024, or one lies outside the mapping",
            ranges.len()
        )));
    }
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|&(at, length)| libc::iovec { iov_base: mapping.as_mut_ptr().wrapping_add(at).cast(), iov_len: length })
        .collect();
    // SAFETY: the vector is live and has the length given; its ranges lie inside a live mapping.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, vectors.as_ptr(), vectors.len(), libc::MADV_DONTNEED, 0u32)
    };
    usize::try_from(advised)
        .map_err(|_| Error::io("drop many mapped ranges at once", "process_madvise", std::io::Error::last_os_error()))
}

/// PIDFD_SELF_THREAD_GROUP of linux/pidfd.h (Linux 6.14).
const PIDFD_SELF: libc::c_int = -10001;

/// Announces ranges of addresses (MADV_WILLNEED): up to 1024 by one process_madvise(2), before Linux 6.14 one by one. Returns the
/// bytes that the kernel took; a range that it refuses does not keep it from the next.
///
/// The caller has rounded the ranges to pages. Nothing changes but what is cached, whatever lies at the addresses.
pub fn announce(ranges: &[Range<usize>]) -> u64 {
    let vectors: Vec<libc::iovec> =
        ranges.iter().map(|range| libc::iovec { iov_base: range.start as *mut _, iov_len: range.len() }).collect();
    vectors.chunks(libc::UIO_MAXIOV as usize).map(announce_some).sum()
}

/// The same for as many ranges as one call takes.
fn announce_some(mut ranges: &[libc::iovec]) -> u64 {
    let mut taken = 0;
    while let Some(first) = ranges.first() {
        let advised = announce_together(ranges);
        if advised == 0 {
            // Refused, or there is no such call: the first one alone, and then the others.
            taken += announce_alone(first);
            ranges = &ranges[1..];
            continue;
        }
        taken += advised as u64;
        ranges = after(ranges, advised);
    }
    taken
}

/// What is left of `ranges` after their first `bytes`. A range taken in part counts as taken: the kernel stops at one that it refuses.
fn after(ranges: &[libc::iovec], mut bytes: usize) -> &[libc::iovec] {
    let is_taken = |range: &&libc::iovec| {
        let is_taken = bytes > 0;
        bytes = bytes.saturating_sub(range.iov_len);
        is_taken
    };
    &ranges[ranges.iter().take_while(is_taken).count()..]
}

fn announce_together(ranges: &[libc::iovec]) -> usize {
    // Asked once: before Linux 6.14 each range would cost a call in vain.
    static IS_HERE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    if !*IS_HERE.get_or_init(|| announced(&[]) == 0) {
        return 0;
    }
    usize::try_from(announced(ranges)).unwrap_or(0)
}

/// The bytes taken; negative where the call was refused.
fn announced(ranges: &[libc::iovec]) -> libc::c_long {
    // SAFETY: the vector is live and has the length given; the advice changes no byte, and the kernel checks the addresses.
    unsafe {
        libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, ranges.as_ptr(), ranges.len(), libc::MADV_WILLNEED, 0u32)
    }
}

fn announce_alone(range: &libc::iovec) -> u64 {
    // SAFETY: as above.
    match unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_WILLNEED) } {
        0 => range.iov_len as u64,
        _ => 0,
    }
}

/// Gives advice for the mapped addresses of `range`, which the caller has rounded to pages.
///
/// Errors: Io; EINVAL where this kernel does not know the advice.
///
/// # Safety
///
/// The range stays mapped as it is until this returns, and its owner can do without what the advice discards: page table
/// entries, and with [`Advice::DontNeed`] changes of private pages.
pub unsafe fn madvise_at(range: &Range<usize>, advice: Advice) -> Result<()> {
    let number = match advice.kind() {
        Ok(kind) => kind as libc::c_int,
        Err(number) => number,
    };
    // SAFETY: what the caller promises.
    match unsafe { libc::madvise(range.start as *mut _, range.len(), number) } {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Error::io(format!("give advice {advice:?} for {} mapped bytes", range.len()), "madvise", error))
        }
    }
}

/// Gives advice that only changes speed for the mapped addresses of `range`, which the caller has rounded to pages.
///
/// Errors: Invalid (advice that discards), Io.
pub fn advise_at(range: &Range<usize>, advice: Advice) -> Result<()> {
    if !matches!(advice, Advice::Normal | Advice::Random | Advice::Sequential | Advice::WillNeed | Advice::Cold) {
        return Err(Error::Invalid(format!("{advice:?} may discard what lies at the addresses")));
    }
    // SAFETY: these change no byte, whatever lies there.
    unsafe { madvise_at(range, advice) }
}

/// Whether each page of the mapped `range` is in memory, in the lowest bit of its byte; by mincore(2).
///
/// Errors: Io (ENOMEM: a part is not mapped).
pub fn mincore_at(range: &Range<usize>) -> Result<Vec<u8>> {
    let mut states = vec![0u8; range.len().div_ceil(rustix::param::page_size())];
    // SAFETY: the kernel checks the addresses, and `states` has one byte for each page.
    match unsafe { libc::mincore(range.start as *mut _, range.len(), states.as_mut_ptr()) } {
        0 => Ok(states),
        _ => Err(Error::io("ask which pages are in memory", "mincore", std::io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cache::{FileAdvice, fadvise, resident};
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn advice_outside_the_mapping_is_refused() {
        let file = TestFile::on_disk(4 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 4 * PAGE, &Default::default()).unwrap();

        assert!(matches!(madvise(&mapping, PAGE, 4 * PAGE, Advice::Random), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_refused_range_does_not_keep_the_next_from_being_announced() {
        let file = TestFile::on_disk(8 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let mapping = Mapping::new(file.file(), 0, 8 * PAGE, &Default::default()).unwrap();
        let begin = mapping.as_ptr() as usize;
        let ranges = [begin..begin + PAGE, 0..PAGE, begin + 4 * PAGE..begin + 6 * PAGE];

        let taken = announce(&ranges);

        assert_eq!(taken, 3 * PAGE as u64);
        // Pages on their way count as cached by cachestat; mincore tells of them when they have arrived.
        assert!(matches!(resident(file.file(), 0, 8 * PAGE as u64).unwrap(), (12288, "cachestat") | (_, "mincore")));
    }

    #[test]
    fn many_anonymous_ranges_are_dropped_in_one_call() {
        let mapping = Mapping::anonymous(8 * PAGE).unwrap();
        // SAFETY: this test alone uses the mapping.
        unsafe { mapping.bytes_mut(0, 8 * PAGE) }.fill(1);

        match process_madvise_dont_need(&mapping, &[(0, PAGE), (4 * PAGE, PAGE)]) {
            Ok(bytes) => {
                assert_eq!(bytes, 2 * PAGE);
                // SAFETY: as above.
                let bytes = unsafe { mapping.bytes(0, 8 * PAGE) };
                assert_eq!((bytes[0], bytes[PAGE], bytes[4 * PAGE]), (0, 1, 0));
            }
            Err(error) => eprintln!("SKIPPED many_anonymous_ranges_are_dropped_in_one_call: {error}"),
        }
    }
}
