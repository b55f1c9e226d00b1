//! Advice about another process's memory: process_madvise(2) by a pidfd (Linux 5.10).
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Advice that another process may be given: none of it changes a byte of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAdvice {
    /// Read in what is swapped out. The caller waits for memory, and not for the device.
    WillNeed,
    /// Write out and free, as if the pages were the least recently used.
    PageOut,
}

/// A process by its pidfd, which never means a later process with the same number.
#[derive(Debug)]
pub struct OtherProcess {
    pidfd: OwnedFd,
}

impl OtherProcess {
    /// The process `pid`.
    ///
    /// Errors: ESRCH (no such process, or a thread's number).
    pub fn open(pid: u32) -> io::Result<OtherProcess> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(OtherProcess { pidfd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Gives the advice for ranges of its addresses, which are whole pages; returns the bytes that the kernel took.
    ///
    /// Errors: EPERM (no CAP_SYS_NICE, or another user's process), ESRCH (ended), ENOMEM (a range is not mapped), EINVAL (advice that this
    /// kernel or the memory does not take).
    pub fn advise(&self, ranges: &[Range<u64>], advice: RemoteAdvice) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec { iov_base: range.start as *mut _, iov_len: (range.end - range.start) as usize })
            .collect();
        let number = match advice {
            RemoteAdvice::WillNeed => libc::MADV_WILLNEED,
            RemoteAdvice::PageOut => libc::MADV_PAGEOUT,
        };
        // SAFETY: the vector is live and has the length given. Its addresses are the other process's: the kernel checks them, and neither
        // advice changes a byte.
        let advised = unsafe {
            let pidfd = self.pidfd.as_raw_fd();
            libc::syscall(libc::SYS_process_madvise, pidfd, vectors.as_ptr(), vectors.len(), number, 0u32)
        };
        u64::try_from(advised).map_err(|_| io::Error::last_os_error())
    }

    /// Waits until the process has ended, at most so long; whether it has.
    pub fn wait_end(&self, most: Duration) -> bool {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        // An interruption by a signal ends the wait early, as a caller that looks for signals wants it.
        poll(&mut fds, Some(&most)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_a_process_is_waited_for_and_no_longer_than_asked() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let other = OtherProcess::open(child.id()).unwrap();

        assert!(!other.wait_end(Duration::from_millis(1)));
        drop(child.stdin.take());
        assert!(other.wait_end(Duration::from_secs(60)));

        child.wait().unwrap();
        let ranges = std::slice::from_ref(&(0x1000..0x2000));
        let refused = other.advise(ranges, RemoteAdvice::WillNeed).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        assert!(OtherProcess::open(u32::MAX / 4).is_err());
        assert!(OtherProcess::open(u32::MAX).is_err());
    }
}
