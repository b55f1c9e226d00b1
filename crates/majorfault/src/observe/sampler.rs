//! The page faults of a running process, one by one: which thread touched which address, when, and how long it waited.
//!
//! Uses perf_event_open(2) on every thread and processor, inherited by the threads they start; one ring for each processor,
//! read in batches by the caller. The process is never stopped, and no thread is woken for an event: each fault takes some
//! 0.1 to 0.4 us longer.

use crate::needs::{Missing, Need, Probe};
use crate::sys::perf::Kernel;
use crate::sys::samples::{PerfRecord, Ring, Sampled, Sampling};
use crate::units::Nanos;
use std::collections::HashMap;
use std::io;

/// Bytes of the ring for faults, for each processor: 6500 faults between two reads. Without special rights
/// (kernel.perf_event_mlock_kb) 512 KiB may be locked for each processor.
const FAULT_RING: usize = 256 << 10;

/// Bytes of the ring for ended faults and new mappings.
const EVENT_RING: usize = 256 << 10;

/// Kinds of events for each thread and processor.
const KINDS: usize = 3;

/// A fault that took this long has waited. Faults that find their page take 0.3 to 3 us.
pub const WAIT: Nanos = Nanos(20_000);

/// Descriptors that are left for other uses.
const SPARE_DESCRIPTORS: u64 = 64;

/// Page faults with their addresses, by perf.
pub const FAULT_SAMPLES: Need =
    Need { name: "fault samples", summary: "the addresses at which a process faults, fault by fault", probe };

/// An event of a watched process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A page fault began.
    Fault {
        /// The process; a child's number where the child was forked during the watch.
        process: u32,
        /// The thread.
        thread: u32,
        /// Time of the fault, CLOCK_MONOTONIC.
        at: Nanos,
        /// The byte that was touched.
        address: u64,
        /// The instruction that touched it.
        instruction: u64,
    },
    /// A fault that had to wait has ended: it started a read (major), or took longer than [`WAIT`], as when it waits for
    /// a read that is already under way. It was reported as `Fault` before.
    Waited {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// When it ended, CLOCK_MONOTONIC.
        at: Nanos,
        /// The byte that was touched.
        address: u64,
        /// Since the fault began; none where its beginning was not seen.
        waited: Option<Nanos>,
        /// Whether it started a read.
        major: bool,
    },
    /// The process mapped something.
    Mapped(Mapped),
    /// A process was forked (not a thread).
    Forked {
        /// The new process.
        process: u32,
        /// Its parent.
        parent: u32,
        /// Time of the fork, CLOCK_MONOTONIC.
        at: Nanos,
    },
}

/// A mapping that was made during the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The process.
    pub process: u32,
    /// Time of the mapping, CLOCK_MONOTONIC.
    pub at: Nanos,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Device of the file, major and minor number.
    pub device: (u32, u32),
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Path of the file; `//anon` for anonymous memory.
    pub path: String,
}

/// Samples the page faults of one process until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    rings: Vec<Rings>,
    /// Events other than those that own a ring.
    _events: Vec<Sampling>,
    kernel: Kernel,
    threads: usize,
    unfollowed: usize,
    lost: u64,
    /// The last fault that each thread began, from which its wait is measured.
    begun: HashMap<u32, (u64, Nanos)>,
    batch: Vec<(Nanos, Origin, PerfRecord)>,
    fullest: f64,
}

/// The rings of one processor.
#[derive(Debug)]
struct Rings {
    faults: Ring,
    events: Ring,
}

/// The ring of a record. Of two records at the same time, the beginning of a fault comes before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Faults,
    Events,
}

impl Sampler {
    /// Samples every thread of `pid` and the threads that they will start.
    ///
    /// Needs one descriptor for each of three kinds of events, each thread and each processor. Where the limit (RLIMIT_NOFILE)
    /// is lower, the threads beyond it are counted by [`unfollowed`](Sampler::unfollowed).
    ///
    /// Errors: Missing without the rights (names the sysctl or capability that would help), without perf in the kernel,
    /// or without the process.
    pub fn open(pid: u32) -> Result<Sampler, Missing> {
        match Sampler::with(pid, Kernel::Counted) {
            // Faults of the kernel itself (copies from a mapping in write(2), say) need more rights than those of user
            // code.
            Err(error) if is_refused(&error) => Sampler::with(pid, Kernel::LeftOut),
            other => other,
        }
        .map_err(|error| refused(pid, &error))
    }

    fn with(pid: u32, kernel: Kernel) -> io::Result<Sampler> {
        let threads = threads(pid)?;
        let processors = processors();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let room = limit.saturating_sub(SPARE_DESCRIPTORS) / (KINDS * processors.len()) as u64;
        let followed = threads.len().min(room.max(1) as usize);
        let mut sampler = Sampler {
            rings: Vec::new(),
            _events: Vec::new(),
            kernel,
            threads: followed,
            unfollowed: threads.len() - followed,
            lost: 0,
            begun: HashMap::new(),
            batch: Vec::new(),
            fullest: 0.0,
        };
        for processor in processors {
            sampler.follow(&threads[..followed], processor)?;
        }
        Ok(sampler)
    }

    /// Opens all events of every thread on one processor, all into the rings that the first of them own.
    fn follow(&mut self, threads: &[u32], processor: u32) -> io::Result<()> {
        let mut own: Option<Rings> = None;
        for thread in threads {
            let open = |what| Sampling::of(what, *thread, processor, self.kernel);
            let all = open(Sampled::Faults)
                .and_then(|faults| Ok((faults, open(Sampled::MajorFaults)?, open(Sampled::MinorFaults)?)));
            let (faults, major, minor) = match all {
                Ok(all) => all,
                // Threads end; a thread that ended is no reason not to follow the others.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(error),
            };
            match &own {
                None => {
                    let rings = Rings { faults: Ring::new(faults, FAULT_RING)?, events: Ring::new(major, EVENT_RING)? };
                    minor.write_into(&rings.events)?;
                    self._events.push(minor);
                    own = Some(rings);
                }
                Some(rings) => {
                    faults.write_into(&rings.faults)?;
                    major.write_into(&rings.events)?;
                    minor.write_into(&rings.events)?;
                    self._events.extend([faults, major, minor]);
                }
            }
        }
        self.rings.push(own.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?);
        Ok(())
    }

    /// Shows everything since the last time, in order of time, and returns the number of faults.
    ///
    /// Call it often enough: see [`fullness`](Sampler::fullness). Costs the process nothing.
    pub fn read(&mut self, mut see: impl FnMut(Seen)) -> u64 {
        self.collect();
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_by_key(|(at, origin, _)| (*at, *origin));
        let mut faults = 0;
        for (_, origin, record) in batch.drain(..) {
            let Some(seen) = self.translate(origin, record) else { continue };
            faults += u64::from(matches!(seen, Seen::Fault { .. }));
            see(seen);
        }
        self.batch = batch;
        faults
    }

    fn collect(&mut self) {
        self.fullest = 0.0;
        for Rings { faults, events } in &mut self.rings {
            for (ring, origin) in [(faults, Origin::Faults), (events, Origin::Events)] {
                let batch = &mut self.batch;
                let bytes = ring.drain(|record| match record {
                    PerfRecord::Lost(count) => self.lost += count,
                    PerfRecord::Fault { at, .. }
                    | PerfRecord::MinorEnded { at, .. }
                    | PerfRecord::Mapped { at, .. }
                    | PerfRecord::Forked { at, .. } => batch.push((at, origin, record)),
                });
                self.fullest = self.fullest.max(bytes as f64 / ring.size() as f64);
            }
        }
    }

    fn translate(&mut self, origin: Origin, record: PerfRecord) -> Option<Seen> {
        match (record, origin) {
            (PerfRecord::Fault { process, thread, at, address, instruction }, Origin::Faults) => {
                self.begun.insert(thread, (address, at));
                Some(Seen::Fault { process, thread, at, address, instruction })
            }
            (PerfRecord::Fault { process, thread, at, address, .. }, Origin::Events) => {
                let waited = self.since_begin(thread, address, at);
                Some(Seen::Waited { process, thread, at, address, waited, major: true })
            }
            (PerfRecord::MinorEnded { process, thread, at, address }, _) => {
                let waited = self.since_begin(thread, address, at).filter(|waited| *waited >= WAIT)?;
                Some(Seen::Waited { process, thread, at, address, waited: Some(waited), major: false })
            }
            (PerfRecord::Mapped { process, at, address, length, offset, device, inode, path }, _) => {
                Some(Seen::Mapped(Mapped { process, at, address, length, offset, device, inode, path }))
            }
            (PerfRecord::Forked { process, parent, at }, _) if process != parent => {
                Some(Seen::Forked { process, parent, at })
            }
            _ => None,
        }
    }

    fn since_begin(&self, thread: u32, address: u64, at: Nanos) -> Option<Nanos> {
        let (_, begun) = self.begun.get(&thread).filter(|(begun, _)| *begun == address)?;
        Some(Nanos(at.0.saturating_sub(begun.0)))
    }

    /// Records lost so far because they did not fit into the rings.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How full the fullest ring was at the last reading, from 0 to 1. Above one half, read twice as often.
    pub fn fullness(&self) -> f64 {
        self.fullest
    }

    /// Threads that were followed from the beginning; the threads that they start are followed as well.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Threads that exist and are not followed, because descriptors are limited.
    pub fn unfollowed(&self) -> usize {
        self.unfollowed
    }

    /// Whether faults that happen in the kernel on behalf of the process are seen as well.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }
}

/// The threads of a process now.
pub(super) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let threads: Vec<u32> = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten().filter_map(number).collect();
    if threads.is_empty() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(threads) }
}

/// Numbers of the processors that are online.
pub(super) fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let listed = list(text.trim());
    if !listed.is_empty() {
        return listed;
    }
    (0..std::thread::available_parallelism().map_or(1, |count| count.get() as u32)).collect()
}

/// Reads `0-3,8`.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok().filter(|last| *last < 1 << 16)?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

pub(super) fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn refused(pid: u32, error: &io::Error) -> Missing {
    let what = "page faults one by one";
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) if !std::path::Path::new(&format!("/proc/{pid}")).exists() => {
            Missing::new(what, format!("there is no process {pid}"), "check the number with ps")
        }
        Some(libc::EACCES | libc::EPERM) => Missing::new(what, reason(), remedy()).told_by(error),
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => {
            Missing::new(what, "the kernel was built without perf events", "use a kernel with CONFIG_PERF_EVENTS=y")
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            Missing::new(what, "too few file descriptors are allowed", "raise the limit: ulimit -n 65536")
        }
        _ => Missing::new(what, format!("perf_event_open(2) failed: {}", error.kind()), ""),
    }
}

fn paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

pub(super) fn reason() -> String {
    match paranoid() {
        Some(level) if level > 2 => {
            format!("kernel.perf_event_paranoid is {level}, which allows perf_event_open(2) only with CAP_PERFMON")
        }
        Some(level) => format!(
            "perf_event_open(2) was refused (kernel.perf_event_paranoid is {level}): the process belongs to another user, \
             or a container's seccomp filter forbids the call"
        ),
        None => "perf_event_open(2) was refused".to_owned(),
    }
}

pub(super) fn remedy() -> &'static str {
    match paranoid() {
        Some(level) if level > 2 => "sysctl kernel.perf_event_paranoid=2, or run with CAP_PERFMON",
        _ => "run as the process's user, or as root (CAP_PERFMON and CAP_SYS_PTRACE)",
    }
}

fn probe() -> Probe {
    let own = std::process::id();
    let found = Sampling::of(Sampled::Faults, own, 0, Kernel::Counted).map(|_| "with those of the kernel");
    let found = found.or_else(|_| Sampling::of(Sampled::Faults, own, 0, Kernel::LeftOut).map(|_| "of user code"));
    found.map(|which| format!("faults {which} can be sampled")).map_err(|error| refused(own, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::{MapOptions, Mapping};
    use crate::test_files::{PAGE, TestFile};

    fn skipped(test: &str) -> bool {
        FAULT_SAMPLES.met().inspect_err(|missing| eprintln!("SKIPPED {test}: {missing}")).is_err()
    }

    #[test]
    fn faults_of_a_mapped_file_are_seen_in_order_with_their_addresses() {
        if skipped("faults_of_a_mapped_file_are_seen_in_order_with_their_addresses") {
            return;
        }
        let file = TestFile::on_disk(1024 * PAGE);
        let guarded =
            crate::sys::fault::Guarded::new(Mapping::new(file.file(), 0, 1024 * PAGE, &MapOptions::default()).unwrap());
        let mut sampler = Sampler::open(std::process::id()).unwrap();
        let bytes = guarded.view(0, 1024 * PAGE);
        let base = guarded.mapping().as_ptr() as u64;
        // Fault-around maps 64 KiB at once: one fault for each touched block.
        let sum =
            (0..64).fold(0u8, |sum, block| sum ^ std::hint::black_box(bytes.get(block * 16 * PAGE + 100)).unwrap());
        let mut offsets = Vec::new();
        sampler.read(|seen| match seen {
            Seen::Fault { address, .. } if (base..base + 1024 * PAGE as u64).contains(&address) => {
                offsets.push(address - base);
            }
            _ => {}
        });

        std::hint::black_box(sum);
        assert!(offsets.is_sorted() && offsets.len() >= 2 && offsets.len() <= 64, "{offsets:?}");
        assert!(offsets.iter().all(|offset| offset % (16 * PAGE as u64) == 100), "{offsets:?}");
        assert_eq!(sampler.lost(), 0);
    }

    #[test]
    fn a_cold_fault_tells_how_long_it_waited_and_a_new_thread_is_followed() {
        if skipped("a_cold_fault_tells_how_long_it_waited_and_a_new_thread_is_followed") {
            return;
        }
        let file = TestFile::on_disk(256 * PAGE);
        file.file().sync_all().unwrap();
        crate::sys::cache::fadvise(file.file(), 0, 0, crate::sys::cache::FileAdvice::DontNeed).unwrap();
        let mut sampler = Sampler::open(std::process::id()).unwrap();
        let (base, thread) = std::thread::scope(|scope| {
            let touch = scope.spawn(|| {
                let mapping = Mapping::new(file.file(), 0, 256 * PAGE, &MapOptions::default()).unwrap();
                let guarded = crate::sys::fault::Guarded::new(mapping);
                std::hint::black_box(guarded.view(200 * PAGE, 1).get(0));
                (guarded.mapping().as_ptr() as u64, rustix::thread::gettid().as_raw_pid().cast_unsigned())
            });
            touch.join().unwrap()
        });
        let (mut waits, mut mapped) = (Vec::new(), Vec::new());
        sampler.read(|seen| match seen {
            Seen::Waited { thread, address, waited, .. } if address == base + 200 * PAGE as u64 => {
                waits.push((thread, waited))
            }
            Seen::Mapped(new) if new.address == base => mapped.push(new),
            _ => {}
        });

        let [(who, Some(waited))] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(who, thread);
        assert!(waited.0 > 0 && waited < Nanos::secs(10));
        assert!(mapped.iter().any(|new| file.path().to_str() == Some(&new.path)), "{mapped:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_missing() {
        let missing = Sampler::open(u32::MAX / 4).unwrap_err();

        assert!(missing.reason.contains("there is no process"), "{missing}");
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(list(""), []);
        assert_eq!(list("x,1-,-"), []);
        assert_eq!(list("0-4294967295"), []);
    }
}
