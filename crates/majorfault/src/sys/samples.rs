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

/// Bits of perf_event_attr: off until switched on, records of mappings (executable ones, then all others, in their longer form),
/// of names (with a mark where an exec gave them), on from the next exec, records of forks and exits, a watermark in bytes,
/// thread and time on every record, a chosen clock.
const DISABLED: u64 = 1;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
pub(super) const WATERMARK: u64 = 1 << 14;
const MMAP_DATA: u64 = 1 << 17;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
pub(super) const USE_CLOCKID: u64 = 1 << 25;

/// PERF_SAMPLE_TID, TIME, ADDR: the fields of a sample, in this order.
const SAMPLE_FIELDS: u64 = 1 << 1 | 1 << 2 | 1 << 3;

/// PERF_SAMPLE_IP, before the others. Ends of minor faults leave it out; they differ by their shorter length.
const SAMPLE_INSTRUCTION: u64 = 1;

/// Bytes of a sample without the instruction, after the header.
const SHORT_SAMPLE: usize = 24;

/// PERF_SAMPLE_CALLCHAIN, after the others: a number and as many addresses, among them marks of context, which are above any address.
const SAMPLE_STACK: u64 = 1 << 5;
const FIRST_MARK: u64 = -4095i64 as u64;

/// Where the number of addresses of a stack stands in a sample.
const STACK: usize = 32;

/// The kernel's part of a stack is left out.
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;

/// PERF_EVENT_IOC_ENABLE, DISABLE, SET_OUTPUT: _IO('$', 0), 1 and 5.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// PERF_FORMAT_LOST (Linux 6.0): reading an event tells how many of its records did not fit, also where no later record says so.
const FORMAT_LOST: u64 = 1 << 4;

/// PERF_RECORD_MISC_COMM_EXEC: the name was given by an exec.
const BY_EXEC: u16 = 1 << 13;

/// Types of records.
pub(super) const LOST: u32 = 2;
const NAMED: u32 = 3;
const EXIT: u32 = 4;
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

/// Whether samples of faults tell who called the function that faulted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// Only the instruction is told.
    #[default]
    LeftOut,
    /// Return addresses by frame pointers, which programs built without them do not have: their stacks end after the first function,
    /// or name wrong callers. Costs each fault another 0.2 to 1 us.
    Recorded,
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
        /// Return addresses, of the innermost call first; empty unless stacks are recorded.
        callers: Vec<u64>,
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
        /// The new thread; of a new process its first one, which has the process's number.
        thread: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
    },
    /// The process became another program: none of its mappings is left.
    Executed {
        /// The process.
        process: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
        /// Its name from now on, cut to 15 bytes.
        name: String,
    },
    /// A thread ended.
    Exited {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
    },
    /// A call read pages of a file through the page cache, or went on to read.
    Read {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
        /// Device of the file, major and minor number.
        device: (u32, u32),
        /// Inode of the file.
        inode: u64,
        /// The first page that is still to be read, and the last one.
        pages: (u64, u64),
    },
    /// So many records were lost because they did not fit.
    Lost(u64),
}

/// The threads that an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// This one, and those that it starts from now on.
    Running(u32),
    /// The processes that the calling thread starts, each from its first exec on, and those that they start. The calling thread
    /// itself is not sampled: it runs no other program.
    Started,
}

/// An event of one thread on one processor; closed on drop.
#[derive(Debug)]
pub struct Sampling {
    pub(super) fd: OwnedFd,
}

impl Sampling {
    /// Samples `what` of these threads, while on processor `cpu`.
    ///
    /// Errors: EACCES or EPERM (rights), ESRCH (no such thread), EMFILE.
    pub fn of(what: Sampled, threads: Threads, cpu: u32, kernel: Kernel, stacks: Stacks) -> io::Result<Sampling> {
        let mut attr = attributes(what, kernel);
        if what == Sampled::Faults && stacks == Stacks::Recorded {
            attr.sample_type |= SAMPLE_STACK;
            attr.flags |= EXCLUDE_CALLCHAIN_KERNEL;
        }
        Sampling::open(attr, threads, cpu)
    }

    /// Opens an event of these threads on one processor, which tells what it lost where the kernel can.
    pub(super) fn open(mut attr: Attr, threads: Threads, cpu: u32) -> io::Result<Sampling> {
        attr.read_format = FORMAT_LOST;
        let thread = match threads {
            Threads::Running(thread) => thread,
            Threads::Started => {
                attr.flags |= DISABLED | ENABLE_ON_EXEC;
                0
            }
        };
        let opened = match perf::open(&attr, thread, cpu as i32) {
            // Before Linux 6.0: losses are told by records alone.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                perf::open(&Attr { read_format: 0, ..attr }, thread, cpu as i32)
            }
            other => other,
        };
        opened.map(|fd| Sampling { fd })
    }

    /// An event that never happens, for the rings that others write into. It needs no rights, and costs nobody anything.
    ///
    /// Errors: ENOSYS, EOPNOTSUPP (no perf in the kernel), EACCES (perf events are forbidden altogether), EMFILE.
    pub fn of_nothing(cpu: u32) -> io::Result<Sampling> {
        let attr = Attr {
            kind: 1, // PERF_TYPE_SOFTWARE
            size: ATTR_SIZE_VER5,
            config: 9, // PERF_COUNT_SW_DUMMY
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | WATERMARK | USE_CLOCKID,
            wakeup_events: u32::MAX,
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        perf::open(&attr, 0, cpu as i32).map(|fd| Sampling { fd })
    }

    /// Goes on sampling, or pauses; so do the events that children and new threads have inherited.
    ///
    /// Errors: those of ioctl(2).
    pub fn switch(&self, on: bool) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the request takes a plain number.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), if on { ENABLE } else { DISABLE }, 0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Records of it and of the events inherited from it that did not fit into the ring; none before Linux 6.0.
    pub fn lost(&self) -> Option<u64> {
        let mut bytes = [0u8; 16];
        let length = rustix::io::read(&self.fd, &mut bytes).ok()?;
        (length == 16).then(|| u64::from_ne_bytes(std::array::from_fn(|index| bytes[8 + index])))
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

/// What the kernel is asked for.
fn attributes(what: Sampled, kernel: Kernel) -> Attr {
    let (config, fields, also) = match what {
        Sampled::Faults => (2, SAMPLE_INSTRUCTION, 0),
        Sampled::MajorFaults => (6, SAMPLE_INSTRUCTION, MMAP | MMAP_DATA | MMAP2 | TASK | COMM | COMM_EXEC),
        Sampled::MinorFaults => (5, 0, 0),
    };
    let exclude = if kernel == Kernel::LeftOut { EXCLUDE_KERNEL } else { 0 };
    Attr {
        kind: 1, // PERF_TYPE_SOFTWARE
        size: ATTR_SIZE_VER5,
        config,
        sample_period: 1,
        sample_type: SAMPLE_FIELDS | fields,
        flags: INHERIT | EXCLUDE_HYPERVISOR | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID | exclude | also,
        wakeup_events: u32::MAX, // as a watermark: never
        clock_id: libc::CLOCK_MONOTONIC,
        ..Attr::default()
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

    /// The event that it was made for.
    pub fn event(&self) -> &Sampling {
        &self.event
    }

    /// Bytes of the data area.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Shows every record written since the last time, oldest first, and frees their space. Returns their bytes.
    pub fn drain(&mut self, mut see: impl FnMut(PerfRecord)) -> usize {
        self.drain_bytes(|(kind, misc), bytes| parse(kind, misc, bytes).into_iter().for_each(&mut see))
    }

    /// The same with each record's type and further bits, and its bytes after the header.
    pub(super) fn drain_bytes(&mut self, mut see: impl FnMut((u32, u16), &[u8])) -> usize {
        let head = self.place(HEAD).load(Ordering::Acquire);
        let begin = self.place(TAIL).load(Ordering::Relaxed);
        let mut tail = begin;
        while tail < head {
            let mut header = [0; 8];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_ne_bytes([header[4], header[5]]);
            let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            // An impossible length would loop for ever: give up the rest.
            if length < 8 || length as u64 > head - tail {
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(length - 8, 0);
            self.copy(tail + 8, &mut record);
            see((kind, misc), &record);
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
fn parse(kind: u32, misc: u16, bytes: &[u8]) -> Option<PerfRecord> {
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
            callers: callers(bytes).unwrap_or_default(),
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
        // pid ppid tid ptid time, as for exits.
        FORK => {
            let (process, parent, thread) = (half(0)?, half(4)?, half(8)?);
            Some(PerfRecord::Forked { process, parent, thread, at: Nanos(word(16)?) })
        }
        EXIT => Some(PerfRecord::Exited { process: half(0)?, thread: half(8)?, at: Nanos(word(16)?) }),
        NAMED if misc & BY_EXEC != 0 => {
            // pid tid name..., then pid tid time by SAMPLE_ID_ALL.
            let name = bytes.get(8..bytes.len().checked_sub(16)?)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let at = Nanos(word(bytes.len() - 8)?);
            Some(PerfRecord::Executed { process: half(0)?, at, name: String::from_utf8_lossy(name).into_owned() })
        }
        LOST => Some(PerfRecord::Lost(word(8)?)),
        _ => None,
    }
}

/// The return addresses of a sample: without the first address where it is the instruction. It is another one where the kernel faulted on
/// behalf of the program.
fn callers(bytes: &[u8]) -> Option<Vec<u64>> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    let (count, rest) = bytes.get(STACK..)?.split_at_checked(8)?;
    let count = usize::try_from(word(count)?).ok()?;
    let instruction = word(bytes.get(..8)?)?;
    let mut addresses =
        rest.chunks_exact(8).take(count).filter_map(word).filter(|address| *address < FIRST_MARK).peekable();
    addresses.next_if_eq(&instruction);
    Some(addresses.collect())
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
                let _ = parse(kind, BY_EXEC, &whole[..length]);
            }
        }
        assert_eq!(parse(SAMPLE, 0, &whole[..31]), None);
        assert!(parse(SAMPLE, 0, &whole[..32]).is_some());
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
            parse(MAPPED, 0, &bytes)
        else {
            panic!("not read")
        };

        assert_eq!((process, at, address, length, offset), (7, Nanos(5), 0x7000, 0x2000, 0x1000));
        assert_eq!((device, inode, path.as_str()), ((254, 1), 99, "/a b"));
    }

    #[test]
    fn the_callers_of_a_fault_are_told_without_the_kernels_marks_and_the_function_itself() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let user = -512i64 as u64;
        let told = |stack: &[u64]| match parse(SAMPLE, 0, &words(&[&[0x10, 0x7, 5, 0x99], stack].concat())) {
            Some(PerfRecord::Fault { instruction: 0x10, callers, .. }) => callers,
            other => panic!("{other:?}"),
        };

        assert_eq!(told(&[4, user, 0x10, 0x20, 0x30]), [0x20, 0x30]);
        assert_eq!(told(&[2, user, 0x10]), []);
        assert_eq!(told(&[3, user, 0x40, 0x50]), [0x40, 0x50], "the instruction is the kernel's");
        assert_eq!(told(&[9, user, 0x10, 0x20]), [0x20], "a number that is too large");
        assert_eq!(told(&[]), [], "no stack was asked for");
    }

    #[test]
    fn a_name_counts_where_an_exec_gave_it() {
        let mut bytes = Vec::new();
        [7u32, 8].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(b"cat\0\0\0\0\0");
        bytes.extend([0; 8]);
        bytes.extend(5u64.to_ne_bytes());

        let executed = PerfRecord::Executed { process: 7, at: Nanos(5), name: "cat".to_owned() };
        assert_eq!(parse(NAMED, BY_EXEC, &bytes), Some(executed));
        assert_eq!(parse(NAMED, 0, &bytes), None);
    }

    #[test]
    fn a_new_thread_and_an_ended_one_are_told_by_their_numbers() {
        let mut bytes = Vec::new();
        [7u32, 6, 9, 8].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(5u64.to_ne_bytes());

        let forked = PerfRecord::Forked { process: 7, parent: 6, thread: 9, at: Nanos(5) };
        assert_eq!(parse(FORK, 0, &bytes), Some(forked));
        assert_eq!(parse(EXIT, 0, &bytes), Some(PerfRecord::Exited { process: 7, thread: 9, at: Nanos(5) }));
    }

    proptest! {
        #[test]
        fn any_bytes_of_any_kind_are_taken_without_panic(kind in 0u32..24, misc: u16, bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = parse(kind, misc, &bytes);
        }
    }
}
