//! The advice that a running process gives the kernel, call by call: madvise(2), posix_fadvise(2) and readahead(2), with range
//! and kind of advice.
//!
//! Uses the tracepoints at the entry of these system calls (syscalls:sys_enter_*) as perf samples, for every thread and processor,
//! inherited by the threads they start; one ring for each processor. The process is never stopped, and no thread is woken.
//! A call is seen when it begins, so a call that fails is seen as well. Calls of 32-bit programs, advice through io_uring, and
//! process_madvise(2) by other processes are not seen.

use super::sampler::{is_refused, processors, reason, remedy, threads};
use crate::needs::{Missing, Need, Probe};
use crate::proc::tracefs::{self, Tracepoint};
use crate::sys::perf::Kernel;
use crate::sys::samples::{Ring, Sampling, Threads};
use crate::sys::tracepoints::Hit;
use crate::units::Nanos;
use std::io;

pub use super::advice_named::Named;

/// Bytes of the ring of each processor: some 800 calls between two reads. Faults need the locked memory more.
const RING: usize = 64 << 10;

/// Descriptors that are left for other uses.
const SPARE_DESCRIPTORS: u64 = 64;

/// The facility that is missing where these calls cannot be seen.
const WHAT: &str = "advice calls one by one";

/// Advice calls with their arguments, by tracepoints.
pub const ADVICE_CALLS: Need =
    Need { name: "advice calls", summary: "the ranges that a process gives advice for, call by call", probe };

/// One call, seen when it began; whether it succeeded is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceCall {
    /// The process; a child's number where the child was forked during the watch.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// Time of the call, CLOCK_MONOTONIC.
    pub at: Nanos,
    /// The range that the call names.
    pub range: Range,
    /// The kind of advice.
    pub advice: Named,
}

/// The range that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Memory: madvise(2).
    Memory {
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// A part of a file: posix_fadvise(2), readahead(2).
    File {
        /// The descriptor.
        descriptor: i32,
        /// First byte.
        offset: u64,
        /// Bytes; 0 is to the end of the file for posix_fadvise(2), and nothing for readahead(2).
        length: u64,
    },
}

/// The call that a tracepoint stands for.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Madvise,
    Fadvise,
    ReadAhead,
}

/// The tracepoints and the calls that they stand for.
const ENTRIES: [(Entry, &str); 3] = [
    (Entry::Madvise, "syscalls/sys_enter_madvise"),
    (Entry::Fadvise, FADVISE),
    (Entry::ReadAhead, "syscalls/sys_enter_readahead"),
];

/// Tracepoints have the names of the kernel's functions, and those of younger architectures are the ones for two halves.
const FADVISE: &str =
    if cfg!(target_arch = "x86_64") { "syscalls/sys_enter_fadvise64" } else { "syscalls/sys_enter_fadvise64_64" };

/// Sees the advice calls of one process until it is dropped.
#[derive(Debug)]
pub struct AdviceCalls {
    points: Vec<(Entry, Tracepoint)>,
    rings: Vec<Ring>,
    /// Events other than those that own a ring.
    _events: Vec<Sampling>,
    unfollowed: usize,
    lost: u64,
    batch: Vec<AdviceCall>,
}

impl AdviceCalls {
    /// Watches every thread of `pid` and the threads that they will start.
    ///
    /// Needs one descriptor for each of three calls, each thread and each processor; threads beyond the limit (RLIMIT_NOFILE)
    /// are counted by [`unfollowed`](AdviceCalls::unfollowed). While such a tracepoint is on, every system call of every process of
    /// the machine takes the kernel's slower entry: some 100 ns more (measured on Linux 6.18).
    ///
    /// Errors: Missing where tracefs is not readable or perf events are not permitted (with the remedy), or without the process.
    pub fn open(pid: u32) -> Result<AdviceCalls, Missing> {
        let points = points()?;
        let with = |kernel| AdviceCalls::with(pid, &points, kernel);
        match with(Kernel::Counted) {
            // Entries of system calls count as user code, so they are seen even where the kernel is left out.
            Err(error) if is_refused(&error) => with(Kernel::LeftOut),
            other => other,
        }
        .map_err(|error| refused(pid, &error))
    }

    fn with(pid: u32, points: &[(Entry, Tracepoint)], kernel: Kernel) -> io::Result<AdviceCalls> {
        let threads = threads(pid)?;
        let processors = processors();
        let followed = threads.len().min(room() / (points.len() * processors.len()));
        if followed == 0 {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mut calls = AdviceCalls {
            points: points.to_vec(),
            rings: Vec::new(),
            _events: Vec::new(),
            unfollowed: threads.len() - followed,
            lost: 0,
            batch: Vec::new(),
        };
        for processor in processors {
            calls.follow(&threads[..followed], processor, kernel)?;
        }
        Ok(calls)
    }

    /// Opens the tracepoints of every thread on one processor, all into the ring that the first of them owns.
    fn follow(&mut self, threads: &[u32], processor: u32, kernel: Kernel) -> io::Result<()> {
        let mut own: Option<Ring> = None;
        for (thread, (_, point)) in threads.iter().flat_map(|thread| self.points.iter().map(move |it| (thread, it))) {
            let event = match Sampling::of_tracepoint(point.id, Threads::Running(*thread), processor, kernel) {
                Ok(event) => event,
                // Threads end; a thread that ended is no reason not to follow the others.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(error),
            };
            match &own {
                None => own = Some(Ring::new(event, RING)?),
                Some(ring) => {
                    event.write_into(ring)?;
                    self._events.push(event);
                }
            }
        }
        self.rings.push(own.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?);
        Ok(())
    }

    /// Shows every call since the last time, in order of time. Costs the process nothing.
    pub fn read(&mut self, see: impl FnMut(AdviceCall)) {
        let AdviceCalls { points, rings, lost, batch, .. } = self;
        for ring in rings {
            *lost += ring.drain_hits(|hit| batch.extend(call(points, &hit)));
        }
        batch.sort_by_key(|call| call.at);
        batch.drain(..).for_each(see);
    }

    /// Calls lost so far because they did not fit into the rings.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Threads that exist and are not followed, because descriptors are limited.
    pub fn unfollowed(&self) -> usize {
        self.unfollowed
    }
}

/// The call behind a hit.
fn call(points: &[(Entry, Tracepoint)], hit: &Hit<'_>) -> Option<AdviceCall> {
    let (entry, point) = points.iter().find(|(_, point)| point.id == hit.id)?;
    let field = |name| point.value(name, hit.fields);
    // An int is widened to a register: its upper half has no meaning.
    let int = |name| Some(field(name)? as i32);
    let file = |length| Some(Range::File { descriptor: int("fd")?, offset: field("offset")?, length: field(length)? });
    let (range, advice) = match entry {
        Entry::Madvise => {
            (Range::Memory { address: field("start")?, length: field("len_in")? }, Named::Madvise(int("behavior")?))
        }
        Entry::Fadvise => (file("len")?, Named::Fadvise(int("advice")?)),
        Entry::ReadAhead => (file("count")?, Named::ReadAhead),
    };
    Some(AdviceCall { process: hit.process, thread: hit.thread, at: hit.at, range, advice })
}

/// Descriptors that may still be opened.
fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    limit.saturating_sub(SPARE_DESCRIPTORS).saturating_sub(open) as usize
}

fn points() -> Result<Vec<(Entry, Tracepoint)>, Missing> {
    let all = ENTRIES.map(|(entry, name)| Tracepoint::named(name).map(|point| (entry, point)).ok_or_else(|| no(name)));
    all.into_iter().collect()
}

fn no(name: &str) -> Missing {
    match tracefs::is_readable() {
        true => Missing::new(
            WHAT,
            format!("the kernel has no tracepoint {name}"),
            "use a kernel with CONFIG_FTRACE_SYSCALLS=y",
        ),
        false => Missing::new(
            WHAT,
            "tracefs is not mounted, or not readable by this user",
            "run as root; where it is not mounted: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    }
}

fn refused(pid: u32, error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) if !std::path::Path::new(&format!("/proc/{pid}")).exists() => {
            Missing::new(WHAT, format!("there is no process {pid}"), "check the number with ps")
        }
        Some(libc::EACCES | libc::EPERM) => Missing::new(WHAT, reason(), remedy()).told_by(error),
        Some(libc::EMFILE | libc::ENFILE) => {
            Missing::new(WHAT, "too few file descriptors are allowed", "raise the limit: ulimit -n 65536")
        }
        _ => Missing::new(WHAT, format!("perf_event_open(2) failed: {}", error.kind()), "run as root (CAP_PERFMON)"),
    }
}

fn probe() -> Probe {
    let points = points()?;
    let own = std::process::id();
    let own_thread = Threads::Running(own);
    let point = |id, kernel| Sampling::of_tracepoint(id, own_thread, 0, kernel).map(drop);
    let open = |kernel| points.iter().try_for_each(|(_, known)| point(known.id, kernel));
    open(Kernel::Counted).or_else(|_| open(Kernel::LeftOut)).map_err(|error| refused(own, &error))?;
    Ok("madvise, posix_fadvise and readahead can be seen".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::advice::{Advice, madvise};
    use crate::sys::cache::{FileAdvice, fadvise};
    use crate::sys::map::{MapOptions, Mapping};
    use crate::test_files::{PAGE, TestFile};
    use std::os::fd::AsRawFd;

    #[test]
    fn advice_for_memory_and_for_a_file_is_seen_with_its_range() {
        if let Err(missing) = ADVICE_CALLS.met() {
            eprintln!("SKIPPED advice_for_memory_and_for_a_file_is_seen_with_its_range: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        let map = Mapping::new(file.file(), 0, 64 * PAGE, &MapOptions::default()).unwrap();
        let mut calls = AdviceCalls::open(std::process::id()).unwrap();

        madvise(&map, PAGE, 32 * PAGE, Advice::WillNeed).unwrap();
        let thread = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                fadvise(file.file(), 2 * PAGE as u64, 4 * PAGE as u64, FileAdvice::WillNeed).unwrap();
                rustix::thread::gettid().as_raw_pid().cast_unsigned()
            });
            other.join().unwrap()
        });

        let mut seen = Vec::new();
        calls.read(|call| seen.push(call));
        let address = map.as_ptr() as u64 + PAGE as u64;
        let memory = Range::Memory { address, length: 32 * PAGE as u64 };
        let (descriptor, offset) = (file.file().as_raw_fd(), 2 * PAGE as u64);
        let part = Range::File { descriptor, offset, length: 4 * PAGE as u64 };
        let own = |range, advice| seen.iter().filter(|call| (call.range, call.advice) == (range, advice)).count();
        assert_eq!(own(memory, Named::Madvise(libc::MADV_WILLNEED)), 1, "{seen:?}");
        assert_eq!(own(part, Named::Fadvise(libc::POSIX_FADV_WILLNEED)), 1, "{seen:?}");
        let by_thread = seen.iter().find(|call| call.range == part).unwrap();
        assert_eq!((by_thread.process, by_thread.thread), (std::process::id(), thread));
        assert_eq!((calls.lost(), calls.unfollowed()), (0, 0));
    }

    #[test]
    fn a_process_that_is_not_there_is_missing() {
        let missing = AdviceCalls::open(u32::MAX / 4).unwrap_err();

        assert!(missing.reason.contains("there is no process") || missing.reason.contains("trace"), "{missing}");
    }
}
