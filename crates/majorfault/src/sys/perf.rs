//! perf_event_open(2), as far as counting needs it; `samples` has what sampling needs.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;

/// Size of the attribute structure in its first published form; kernels accept every known size.
pub(super) const ATTR_SIZE_VER5: u32 = 112;

/// Count disabled until enabled; count threads and children started later; leave out the kernel; leave out the
/// hypervisor. Bits of perf_event_attr.
pub(super) const INHERIT: u64 = 1 << 1;
pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(super) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Values come with the time enabled and the time running, to scale counters that shared the hardware.
const READ_TIMES: u64 = 1 | 2;

/// PERF_EVENT_IOC_SET_FILTER: _IOW('$', 6, char *).
const SET_FILTER: libc::Ioctl = 0x4008_2406;

/// perf_event_attr of linux/perf_event.h, as far as version 5.
#[repr(C)]
#[derive(Default)]
pub(super) struct Attr {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_events: u32,
    pub(super) breakpoint_type: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clock_id: i32,
    pub(super) sample_regs_intr: u64,
    pub(super) aux_watermark: u32,
    pub(super) sample_max_stack: u16,
    pub(super) reserved: u16,
}

/// perf_event_open(2) for the thread `thread` on processor `cpu`, or on any (-1).
pub(super) fn open(attr: &Attr, thread: u32, cpu: i32) -> io::Result<OwnedFd> {
    let close_on_exec = 8u64; // PERF_FLAG_FD_CLOEXEC
    let thread = thread as libc::pid_t;
    // SAFETY: the attribute is live and as long as its size says; the others are plain numbers.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), thread, cpu, -1i32, close_on_exec)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A generic hardware event (PERF_TYPE_HARDWARE) by its number.
    Hardware(u64),
    /// A generic cache event (PERF_TYPE_HW_CACHE) by its number.
    HardwareCache(u64),
    /// A tracepoint (PERF_TYPE_TRACEPOINT) by its id in tracefs.
    Tracepoint(u64),
}

/// A counter of one process; closed on drop.
#[derive(Debug)]
pub struct Count {
    fd: OwnedFd,
}

/// Whether what the kernel does on behalf of the process is counted as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Yes; with perf_event_paranoid > 1 this needs CAP_PERFMON.
    Counted,
    /// No.
    LeftOut,
}

impl Count {
    /// Counts `event` in the process `pid` and the threads and children it starts from now on, on any processor.
    ///
    /// Errors: EACCES or EPERM (rights), ENOENT (no such event here), ESRCH (no such process).
    pub fn of(event: Event, pid: u32, kernel: Kernel) -> io::Result<Count> {
        let (kind, config) = match event {
            Event::Hardware(config) => (0, config),
            Event::Tracepoint(config) => (2, config),
            Event::HardwareCache(config) => (3, config),
        };
        let exclude = if kernel == Kernel::LeftOut { EXCLUDE_KERNEL } else { 0 };
        let attr = Attr {
            kind,
            size: ATTR_SIZE_VER5,
            config,
            read_format: READ_TIMES,
            flags: INHERIT | EXCLUDE_HYPERVISOR | exclude,
            ..Attr::default()
        };
        open(&attr, pid, -1).map(|fd| Count { fd })
    }

    /// Counts only those events of the tracepoint for which `filter` holds, such as `reason == 1`.
    ///
    /// Errors: EINVAL where the filter does not fit the event's fields.
    pub fn filter(&self, filter: &str) -> io::Result<()> {
        let filter = CString::new(filter)?;
        // SAFETY: the request takes a string, which lives for the call.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Events so far, scaled up by enabled over running time where the counter shared the hardware.
    ///
    /// Errors: those of read(2).
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0u8; 24];
        let length = rustix::io::read(self.as_fd(), &mut bytes)?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
        let [value, enabled, running] = [word(0), word(8), word(16)];
        match (length, running) {
            (24, 0) => Ok(value),
            (24, _) if enabled == running => Ok(value),
            (24, _) => Ok((u128::from(value) * u128::from(enabled) / u128::from(running)) as u64),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
