//! Page faults of other threads as samples: perf_event_open(2) with a ring that is read in batches.
//!
//! The kernel writes records at the head; the reader frees them by moving the tail (linux/perf_event.h, perf_event_mmap_page).
//! No thread is woken: the watermark is never reached, the reader polls.
#![allow(unsafe_code)]

use super::perf::{self, ATTR_SIZE_VER5, Attr, EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL, INHERIT, Kernel};
use crate::units::Nanos;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bits of perf_event_attr: records of mappings (executable ones, then all others, in their longer form), of forks and
/// exits, a watermark in bytes, thread and time on every record, a chosen clock.
const MMAP: u64 = 1 << 8;
const TASK: u64 = 1 << 13;
pub(super) const WATERMARK: u64 = 1 << 14;
const MMAP_DATA: u64 = 1 << 17;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
pub(super) const USE_CLOCKID: u64 = 1 << 25;

/// PERF_SAMPLE_TID, TIME, ADDR: the fields of a sample, in this order.
const SAMPLE_FIELDS: u64 = 1 << 1 | 1 << 2 | 1 << 3;

/// PERF_SAMPLE_IP, before the others. Ends of minor faults leave it out; they differ by their shorter length.
const SAMPLE_INSTRUCTION: u64 = 1;

/// Bytes of a sample without the instruction, after the header.
const SHORT_SAMPLE: usize = 24;

/// PERF_EVENT_IOC_SET_OUTPUT: _IO('$', 5).
const SET_OUTPUT: libc::c_ulong = 0x2405;

/// Types of records.
pub(super) const LOST: u32 = 2;
const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
const MAPPED: u32 = 10;

/// Where the head, the tail and the place of the data are in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;

/// What is sampled; every occurrence gives a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Every page fault as it begins (PERF_COUNT_SW_PAGE_FAULTS).
    Faults,
    /// Page faults that waited for a device, as they end (PERF_COUNT_SW_PAGE_FAULTS_MAJ); with them new mappings and
    /// new processes.
    MajorFaults,
    /// Page faults that started no read, as they end (PERF_COUNT_SW_PAGE_FAULTS_MIN). They include faults that waited for a read
    /// already under way (since Linux 6.6).
    MinorFaults,
}

/// A record of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerfRecord {
    /// A fault began, or a major one ended.
    Fault {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// CLOCK_MONOTONIC.
        at: Nanos,
        /// The byte that was touched.
        address: u64,
        /// The instruction that touched it.
        instruction: u64,
    },
    /// A minor fault ended.
    MinorEnded {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// CLOCK_MONOTONIC.
        at: Nanos,
        /// The byte that was touched.
        address: u64,
    },
    /// The process mapped something.
    Mapped {
        /// The process.
        process: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
        /// Offset in the file of the first byte.
        offset: u64,
        /// Device of the file, major and minor number; zero for anonymous memory.
        device: (u32, u32),
        /// Inode of the file; zero for anonymous memory.
        inode: u64,
        /// Its path when it was opened, or the kernel's placeholder (`//anon`).
        path: String,
    },
    /// A new process or thread.
    Forked {
        /// The process of the new thread or process.
        process: u32,
        /// The process that started it; the same for a new thread.
        parent: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
    },
    /// So many records were lost because they did not fit.
    Lost(u64),
}

/// An event of one thread on one processor; closed on drop.
#[derive(Debug)]
pub struct Sampling {
    pub(super) fd: OwnedFd,
}

impl Sampling {
    /// Samples `what` of `thread`, and of the threads and processes it starts from now on, while on processor `cpu`.
    ///
    /// Errors: EACCES or EPERM (rights), ESRCH (no such thread), EMFILE.
    pub fn of(what: Sampled, thread: u32, cpu: u32, kernel: Kernel) -> io::Result<Sampling> {
        let (config, fields, also) = match what {
            Sampled::Faults => (2, SAMPLE_INSTRUCTION, 0),
            Sampled::MajorFaults => (6, SAMPLE_INSTRUCTION, MMAP | MMAP_DATA | MMAP2 | TASK),
            Sampled::MinorFaults => (5, 0, 0),
        };
        let exclude = if kernel == Kernel::LeftOut { EXCLUDE_KERNEL } else { 0 };
        let attr = Attr {
            kind: 1, // PERF_TYPE_SOFTWARE
            size: ATTR_SIZE_VER5,
            config,
            sample_period: 1,
            sample_type: SAMPLE_FIELDS | fields,
            flags: INHERIT | EXCLUDE_HYPERVISOR | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID | exclude | also,
            wakeup_events: u32::MAX, // as a watermark: never
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        perf::open(&attr, thread, cpu as i32).map(|fd| Sampling { fd })
    }

    /// Sends its records to `ring` from now on; both must be on the same processor.
    ///
    /// Errors: EINVAL where they are not.
    pub fn write_into(&self, ring: &Ring) -> io::Result<()> {
        // SAFETY: both descriptors are open, and the request takes a descriptor as its number.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SET_OUTPUT, ring.event.fd.as_raw_fd()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The memory that the kernel writes records of one processor into; unmapped on drop.
#[derive(Debug)]
pub struct Ring {
    event: Sampling,
    base: *mut u8,
    mapped: usize,
    data: usize,
    size: usize,
    /// One record, reassembled where it wraps around the end.
    record: Vec<u8>,
}

// SAFETY: the ring owns its memory; nothing in it is bound to the thread that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of at most `bytes` (a power of two, in pages) for `event`; smaller where the user may lock less.
    ///
    /// Errors: EPERM where not even one page may be locked (kernel.perf_event_mlock_kb, `ulimit -l`).
    pub fn new(event: Sampling, bytes: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let mut size = bytes.next_power_of_two().max(page);
        loop {
            let mapped = page + size;
            // SAFETY: a new shared mapping at an address of the kernel's choice.
            let result = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    mapped,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    event.fd.as_fd(),
                    0,
                )
            };
            match result {
                Ok(base) => {
                    let mut ring =
                        Ring { event, base: base.cast(), mapped, data: page, size, record: Vec::with_capacity(256) };
                    ring.data = ring.place(DATA_OFFSET).load(Ordering::Relaxed) as usize;
                    return Ok(ring);
                }
                Err(rustix::io::Errno::PERM) if size > page => size /= 2,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bytes of the data area.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Shows every record written since the last time, oldest first, and frees their space. Returns their bytes.
    pub fn drain(&mut self, mut see: impl FnMut(PerfRecord)) -> usize {
        self.drain_bytes(|kind, bytes| parse(kind, bytes).into_iter().for_each(&mut see))
    }

    /// The same with each record's type and its bytes after the header.
    pub(super) fn drain_bytes(&mut self, mut see: impl FnMut(u32, &[u8])) -> usize {
        let head = self.place(HEAD).load(Ordering::Acquire);
        let begin = self.place(TAIL).load(Ordering::Relaxed);
        let mut tail = begin;
        while tail < head {
            let mut header = [0; 8];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            // An impossible length would loop for ever: give up the rest.
            if length < 8 || length as u64 > head - tail {
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(length - 8, 0);
            self.copy(tail + 8, &mut record);
            see(kind, &record);
            self.record = record;
            tail += length as u64;
        }
        // The copies must be complete before the kernel may write there again.
        fence(Ordering::SeqCst);
        self.place(TAIL).store(head, Ordering::Release);
        (head - begin) as usize
    }

    /// One of the words of the first page.
    fn place(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped while `self` lives, `at` is inside it and a multiple of 8; the kernel reads
        // and writes these words as wholes.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    /// Copies bytes from position `at` on, around the end where they wrap.
    fn copy(&self, at: u64, into: &mut [u8]) {
        let begin = at as usize & (self.size - 1);
        let first = into.len().min(self.size - begin);
        // SAFETY: the data area is mapped with `size` bytes from `data` on; the kernel does not write between tail and
        // head. Both parts stay within the area: a record is never longer than it.
        unsafe {
            let data = self.base.add(self.data);
            std::ptr::copy_nonoverlapping(data.add(begin), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(first), (into.len() - first).min(self.size));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.mapped) };
    }
}

/// The fields of a record after its header; `None` for kinds that were not requested, and for records that are too short.
fn parse(kind: u32, bytes: &[u8]) -> Option<PerfRecord> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    match kind {
        SAMPLE if bytes.len() == SHORT_SAMPLE => Some(PerfRecord::MinorEnded {
            process: half(0)?,
            thread: half(4)?,
            at: Nanos(word(8)?),
            address: word(16)?,
        }),
        SAMPLE => Some(PerfRecord::Fault {
            instruction: word(0)?,
            process: half(8)?,
            thread: half(12)?,
            at: Nanos(word(16)?),
            address: word(24)?,
        }),
        MAPPED => {
            // pid tid addr len pgoff maj min ino generation prot flags name..., then pid tid time by SAMPLE_ID_ALL.
            let name = bytes.get(64..bytes.len().checked_sub(16)?)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            Some(PerfRecord::Mapped {
                process: half(0)?,
                at: Nanos(word(bytes.len() - 8)?),
                address: word(8)?,
                length: word(16)?,
                offset: word(24)?,
                device: (half(32)?, half(36)?),
                inode: word(40)?,
                path: String::from_utf8_lossy(name).into_owned(),
            })
        }
        FORK => Some(PerfRecord::Forked { process: half(0)?, parent: half(4)?, at: Nanos(word(16)?) }),
        LOST => Some(PerfRecord::Lost(word(8)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_cut_short_is_no_record() {
        let whole: Vec<u8> = (0..120).collect();
        for kind in 0..20 {
            for length in 0..whole.len() {
                let _ = parse(kind, &whole[..length]);
            }
        }
        assert_eq!(parse(SAMPLE, &whole[..31]), None);
        assert!(parse(SAMPLE, &whole[..32]).is_some());
    }

    #[test]
    fn a_mapping_is_read_with_its_name() {
        let mut bytes = Vec::new();
        [7u32, 8].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        for word in [0x7000u64, 0x2000, 0x1000] {
            bytes.extend(word.to_ne_bytes());
        }
        [254u32, 1].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        for word in [99u64, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"/a b\0\0\0\0");
        bytes.extend([0; 8]);
        bytes.extend(5u64.to_ne_bytes());

        let Some(PerfRecord::Mapped { process, at, address, length, offset, device, inode, path }) =
            parse(MAPPED, &bytes)
        else {
            panic!("not read")
        };

        assert_eq!((process, at, address, length, offset), (7, Nanos(5), 0x7000, 0x2000, 0x1000));
        assert_eq!((device, inode, path.as_str()), ((254, 1), 99, "/a b"));
    }

    proptest! {
        #[test]
        fn any_bytes_of_any_kind_are_taken_without_panic(kind in 0u32..24, bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = parse(kind, &bytes);
        }
    }
}
