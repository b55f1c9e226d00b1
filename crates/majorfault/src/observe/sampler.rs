//! The page faults of running processes, one by one: which thread touched which address, when, and how long it waited.
//!
//! Uses perf_event_open(2) on every thread and processor, inherited by the threads and processes they start; one ring for each
//! processor, read in batches by the caller. No process is ever stopped, and no thread is woken for an event: each fault takes some
//! 0.5 to 1.7 us longer, unless the sampler is [paced](Sampler::pace).
//!
//! A program that is started for the watch is seen from its first instruction on: its events are opened on the thread that will
//! start it, inherited by the new process and switched on by its exec. (A ring of one event for all processors would be enough for one
//! thread, but the kernel allows no ring for inherited events except by processor.)
//!
//! What read calls take from the page cache is seen as well where that is permitted (see [`file_reads`](super::file_reads)).

use super::fault_events::{Batch, Being, Events, Origin};
use super::file_reads::Stretches;
use super::pacing::{Coverage, NextTurn, Pacing, WINDOW};
use crate::needs::{Missing, Need, Probe};
use crate::sys::clock::monotonic;
use crate::sys::perf::Kernel;
use crate::sys::samples::{PerfRecord, Sampled, Sampling, Threads};
use crate::units::Nanos;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

pub use crate::sys::samples::Stacks;

/// A fault that took this long has waited. Faults that find their page take 0.3 to 3 us.
pub const WAIT: Nanos = Nanos(20_000);

/// Faults and reads a second from which on events that are only switched off cost a program more than 0.2 % of its time.
const OFTEN: f64 = 40_000.0;

/// Ends of faults that are looked at, at most, after a window for those that wait still, where that costs threads that do not wait.
const MOST_ENDS: u64 = 400;

/// Until faults that wait are ended, rings are read so often.
const NAP: Duration = Duration::from_millis(2);

/// The shortest pause after which events are opened anew, and the window then.
const REOPENED_PAUSE: Nanos = Nanos(200_000_000);
const REOPENED_WINDOW: Nanos = Nanos(2_000_000);

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
        /// Return addresses, of the innermost call first; empty unless [stacks](Stacks) are recorded.
        callers: Vec<u64>,
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
    /// A call reads pages of a file, from the page cache or through it; told once for each call, when its first page is there.
    Read(ReadCall),
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
    /// A process became another program, with new memory.
    Executed {
        /// The process.
        process: u32,
        /// Time, CLOCK_MONOTONIC.
        at: Nanos,
        /// Its name from now on, cut to 15 bytes.
        name: String,
    },
}

/// A read by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// When its first page was there, CLOCK_MONOTONIC.
    pub at: Nanos,
    /// Device of the file, major and minor number.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// The first page (of the size of the machine's pages) and the last one.
    pub pages: (u64, u64),
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

/// Samples the page faults of processes until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    /// When it was made: nothing is sampled before.
    opened: Nanos,
    events: Events,
    are_reads_on: bool,
    stretches: Stretches,
    /// The last fault that each thread began, from which its wait is measured.
    begun: HashMap<u32, Begun>,
    /// Ends of minor faults seen in this pause.
    ends: u64,
    batch: Batch,
    pace: Option<Pace>,
}

/// A fault whose end has not been seen.
#[derive(Clone, Copy, Debug)]
struct Begun {
    address: u64,
    at: Nanos,
    /// Where it began in a window that is over: the faults of the program for which it stands. Without such faults, no wait would be seen that is
    /// longer than a window; those for pages that are being read already are minor faults, since Linux 6.7.
    weight: Option<f64>,
}

/// Where the sampler is between sampling and pausing.
#[derive(Debug)]
struct Pace {
    share: f64,
    pacing: Pacing,
    coverage: Coverage,
    /// None while sampling goes on; when it shall go on otherwise.
    until: Option<Nanos>,
    /// Since when it is so.
    since: Nanos,
    /// The pause before.
    pause: Nanos,
    /// Whether there was one.
    has_paused: bool,
    /// What it makes of the events.
    being: Being,
}

impl Sampler {
    /// Samples every thread of `pid`, and the threads and processes that they will start.
    ///
    /// Needs one descriptor for each of three kinds of events, each thread and each processor. Where the limit (RLIMIT_NOFILE)
    /// is lower, the threads beyond it are counted by [`unfollowed`](Sampler::unfollowed).
    ///
    /// Errors: Missing without the rights (names the sysctl or capability that would help), without perf in the kernel,
    /// or without the process.
    pub fn open(pid: u32) -> Result<Sampler, Missing> {
        Sampler::permitted(Stacks::LeftOut, |sampler| match sampler.add(pid)? {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        })
        .map_err(|error| refused(pid, &error))
    }

    /// The same, but minor faults are seen only after [`begin`](Sampler::begin): as long as nobody reads, sampling would cost the
    /// process its time for nothing. At most `share` of a processor's time is taken then, see [`pace`](Sampler::pace).
    ///
    /// Errors: as [`open`](Sampler::open).
    pub fn open_held(pid: u32, share: f64, stacks: Stacks) -> Result<Sampler, Missing> {
        Sampler::permitted(stacks, |sampler| {
            sampler.pace(share);
            sampler.hold();
            match sampler.add(pid)? {
                0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                _ => Ok(()),
            }
        })
        .map_err(|error| refused(pid, &error))
    }

    /// Samples the processes that the calling thread starts from now on, each from its first exec on, and those that they start. The
    /// calling thread must live as long as the sampler.
    ///
    /// Errors: Missing, as [`open`](Sampler::open).
    pub fn of_started(stacks: Stacks) -> Result<Sampler, Missing> {
        Sampler::permitted(stacks, |sampler| sampler.events.follow(Threads::Started))
            .map_err(|error| refused(std::process::id(), &error))
    }

    /// A sampler that `begin` could open its first events in, with the kernel's own faults where that is permitted.
    fn permitted(stacks: Stacks, begin: impl Fn(&mut Sampler) -> io::Result<()>) -> io::Result<Sampler> {
        let with = |kernel| {
            let mut sampler = Sampler::empty(kernel, stacks);
            begin(&mut sampler).map(|()| sampler)
        };
        match with(Kernel::Counted) {
            // Faults of the kernel itself (copies from a mapping in write(2), say) need more rights than those of user
            // code.
            Err(error) if is_refused(&error) => with(Kernel::LeftOut),
            other => other,
        }
    }

    fn empty(kernel: Kernel, stacks: Stacks) -> Sampler {
        Sampler {
            opened: monotonic(),
            events: Events::new(kernel, stacks),
            are_reads_on: true,
            stretches: Stretches::default(),
            begun: HashMap::new(),
            ends: 0,
            batch: Vec::new(),
            pace: None,
        }
    }

    /// Follows the threads of `pid` that are not followed yet, and what they will start; returns the number of them. Threads beyond
    /// the limit of descriptors are counted by [`unfollowed`](Sampler::unfollowed).
    ///
    /// Errors: EACCES or EPERM (rights), ESRCH (no such process).
    pub fn add(&mut self, pid: u32) -> io::Result<usize> {
        self.events.add(pid, &mut self.batch)
    }

    /// Why reads by calls are not seen, or not of all threads; none where they are.
    pub fn lacks_reads(&self) -> Option<&Missing> {
        self.events.lacks_reads.as_ref()
    }

    /// Goes on seeing reads by calls, or leaves them out for a while: of a program that reads a million times each second from the page cache,
    /// each read takes twice as long meanwhile.
    pub fn switch_reads(&mut self, on: bool) {
        self.are_reads_on = on;
        let paused = self.pace.as_ref().filter(|pace| pace.until.is_some()).map(|pace| pace.being);
        self.switch(paused.unwrap_or(Being::On));
    }

    /// From now on samples only as much as costs at most `share` of a processor's time (see [`pacing`](super::pacing)). Major faults are
    /// all seen at their end, whatever the pace; without their beginning where that fell into a pause.
    pub fn pace(&mut self, share: f64) {
        let since = self.opened;
        let (pacing, coverage) = (Pacing::of_started(share, since), Coverage::default());
        self.pace = Some(Pace {
            share,
            pacing,
            coverage,
            until: None,
            since,
            pause: Nanos(0),
            has_paused: false,
            being: Being::On,
        });
    }

    /// Pauses until [`resume`](Sampler::resume), because nobody will read for a while. Call [`read`](Sampler::read) before.
    pub fn hold(&mut self) {
        if let Some(pace) = self.pace.as_mut().filter(|pace| pace.until.is_none()) {
            (pace.since, pace.until, pace.being) = (monotonic(), Some(Nanos(u64::MAX)), Being::Off);
            self.forget_waiting();
            self.switch(Being::Off);
        }
    }

    /// Begins after [`open_held`](Sampler::open_held): what was before does not belong to the watch. So often the
    /// processes faulted in the time before, `over`.
    pub fn begin(&mut self, faults: u64, over: Nanos) {
        self.go_on(Some((faults, over)));
    }

    /// Goes on after [`hold`](Sampler::hold).
    pub fn resume(&mut self) {
        self.go_on(None);
    }

    fn go_on(&mut self, fresh: Option<(u64, Nanos)>) {
        if self.pace.as_ref().is_none_or(|pace| pace.until != Some(Nanos(u64::MAX))) {
            return;
        }
        self.events.collect(&mut self.batch);
        self.forget_waiting();
        self.switch(Being::On);
        let now = monotonic();
        if fresh.is_some() {
            let is_sampled = |record: &PerfRecord| {
                matches!(record, PerfRecord::Fault { .. } | PerfRecord::MinorEnded { .. } | PerfRecord::Read { .. })
            };
            self.batch.retain(|(_, _, record)| !is_sampled(record));
        }
        if let Some(pace) = &mut self.pace {
            pace.pause = if fresh.is_some() { Nanos(0) } else { Nanos(now.0.saturating_sub(pace.since.0)) };
            (pace.since, pace.until) = (now, None);
            match fresh {
                Some((faults, over)) => pace.pacing = Pacing::knowing(pace.share, now, faults, over),
                // Only the time since is to be paid from.
                None => drop(pace.pacing.pay(now, 0, Nanos(0))),
            }
        }
        while monotonic().0 < now.0 + WINDOW.0 {
            std::hint::spin_loop();
        }
    }

    /// Whether the program faults so often that sampling has paused.
    pub fn has_paused(&self) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.has_paused)
    }

    /// How much of the time was sampled since the last call.
    pub fn coverage(&mut self) -> Coverage {
        self.pace.as_mut().map(|pace| std::mem::take(&mut pace.coverage)).unwrap_or_default()
    }

    /// How long to wait until the next reading, where `longest` is what the caller would wait by itself.
    pub fn nap(&self, longest: Duration) -> Duration {
        let Some(pace) = &self.pace else { return longest };
        let Some(until) = pace.until else { return longest };
        let longest = if self.waits() { longest.min(NAP) } else { longest };
        longest.min(Duration::from_nanos(until.0.saturating_sub(monotonic().0).max(100_000)))
    }

    /// Shows everything since the last time, in order of time, and returns the number of faults.
    ///
    /// Call it often enough: see [`fullness`](Sampler::fullness). Costs the process nothing.
    pub fn read(&mut self, mut see: impl FnMut(Seen)) -> u64 {
        self.read_weighted(|seen, _| see(seen))
    }

    /// The same, with the number of events of the program that each one shown stands for: above one where the sampler is paced and
    /// the program faults often. A major fault's end always stands for itself.
    pub fn read_weighted(&mut self, mut see: impl FnMut(Seen, f64)) -> u64 {
        let is_window = self.open_window();
        let from = self.pace.as_ref().map_or(Nanos(0), |pace| pace.since);
        let is_on = self.pace.as_ref().is_none_or(|pace| pace.until.is_none());
        // Before the rings are read: what comes into them meanwhile belongs to the next stretch, or else to none.
        let now = monotonic();
        if is_window {
            // The program is not to pay for the time that reading takes.
            self.switch(Being::Ending);
        }
        // Twice: what a record of one ring follows was written to another ring before it, perhaps after that one was read. What only
        // the second reading brought waits for its own second reading, else an exec would be seen after the mappings made since.
        let first = self.events.collect(&mut self.batch);
        let horizon = self.batch.iter().map(|(at, ..)| *at).max();
        let busiest = first + self.events.collect(&mut self.batch);
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_by_key(|(at, origin, _)| (*at, *origin));
        let later = batch.split_off(batch.partition_point(|(at, ..)| Some(*at) <= horizon));
        let is_sampled = |at: Nanos| is_on && at >= from;
        let sampled = batch.iter().filter(|(at, origin, _)| *origin == Origin::Faults && is_sampled(*at)).count();
        // A thread that waits for a device does not feel what recording that takes.
        let has_read = |origin: Origin, record: &PerfRecord| {
            origin == Origin::Events && matches!(record, PerfRecord::Fault { .. })
        };
        let waited = batch.iter().filter(|(_, origin, record)| has_read(*origin, record)).count();
        let called = batch.iter().filter(|(at, origin, _)| *origin == Origin::Reads && is_sampled(*at)).count();
        let busiest = busiest.saturating_sub(waited as u64);
        let ended = batch.iter().filter(|(.., record)| matches!(record, PerfRecord::MinorEnded { .. })).count() as u64;
        self.ends += if is_on { 0 } else { ended };
        let weight = self.turn(now, sampled as u64, (sampled + called) as u64, busiest);
        let mut faults = 0;
        for (at, origin, record) in batch.drain(..) {
            match self.translate(origin, record) {
                Some((seen @ Seen::Fault { .. }, _)) if is_sampled(at) => {
                    faults += 1;
                    see(seen, weight);
                }
                Some((seen @ Seen::Waited { major: false, .. }, Some(of_window))) => see(seen, of_window),
                Some((seen @ (Seen::Waited { major: false, .. } | Seen::Read(_)), _)) if is_sampled(at) => {
                    see(seen, weight)
                }
                // Between two windows they come from programs that were just started.
                None | Some((Seen::Fault { .. } | Seen::Waited { major: false, .. } | Seen::Read(_), _)) => {}
                Some((seen, _)) => see(seen, 1.0),
            }
        }
        self.await_ends(is_on.then_some((from, weight)), &later);
        batch.extend(later);
        self.batch = batch;
        faults
    }

    /// In a pause: goes on with the ends of faults as long as some of a window wait. `ended` is the window that is just over, and what its
    /// faults stand for; `later` is yet to be looked at.
    fn await_ends(&mut self, ended: Option<(Nanos, f64)>, later: &Batch) {
        let Some(being) = self.pace.as_ref().filter(|pace| pace.until.is_some()).map(|pace| pace.being) else { return };
        if let Some((from, weight)) = ended {
            let is_of_window = |begun: &&mut Begun| begun.weight.is_none() && begun.at >= from;
            self.begun.values_mut().filter(is_of_window).for_each(|begun| begun.weight = Some(weight));
        }
        let ends_later = |thread: u32| {
            later
                .iter()
                .any(|(.., record)| matches!(record, PerfRecord::MinorEnded { thread: of, .. } if *of == thread))
        };
        let is_over = |(thread, begun): (&u32, &Begun)| begun.weight.is_none() || ends_later(*thread);
        let waiting: Vec<u32> = self.begun.iter().filter(|entry| !is_over(*entry)).map(|(thread, _)| *thread).collect();
        if waiting.is_empty() {
            self.switch(being);
        } else if !self.events.keep_ends(&waiting) && self.ends > MOST_ENDS {
            self.forget_waiting();
            self.switch(being);
        }
    }

    /// Whether faults of a window that is over have not ended yet.
    fn waits(&self) -> bool {
        self.begun.values().any(|begun| begun.weight.is_some())
    }

    fn forget_waiting(&mut self) {
        self.begun.retain(|_, begun| begun.weight.is_none());
    }

    /// Samples for a short while, where a pause is over; whether it was.
    ///
    /// Without sleeping: a sleeper is woken late on a busy machine, and the program would pay for it.
    fn open_window(&mut self) -> bool {
        let Some(until) = self.pace.as_ref().and_then(|pace| pace.until).filter(|until| monotonic() >= *until) else {
            return false;
        };
        debug_assert!(until != Nanos(u64::MAX));
        let takes = monotonic();
        self.switch(Being::On);
        let began = monotonic();
        let mut window = WINDOW;
        if let Some(pace) = &mut self.pace {
            pace.pause = Nanos(began.0.saturating_sub(pace.since.0));
            (pace.since, pace.until) = (began, None);
            match pace.being {
                Being::Closed => window = REOPENED_WINDOW,
                // Switching interrupts the processors that run the program, off as well as on.
                _ => drop(pace.pacing.pay(began, 0, Nanos(2 * began.0.saturating_sub(takes.0)))),
            }
        }
        while monotonic().0 < began.0 + window.0 {
            std::hint::spin_loop();
        }
        true
    }

    /// Ends a stretch of sampling, and begins a pause where it is time to; returns what each fault of the stretch stands for.
    fn turn(&mut self, now: Nanos, faults: u64, sampled: u64, busiest: u64) -> f64 {
        let Some(mut pace) = self.pace.take_if(|pace| pace.until.is_none()) else { return 1.0 };
        let on = Nanos(now.0.saturating_sub(pace.since.0));
        let weight = pace.coverage.note(pace.pause, on, faults);
        // An end is one of the two records of a fault.
        let busiest = busiest + std::mem::take(&mut self.ends) / 2;
        (pace.pause, pace.since) = (Nanos(0), now);
        if let NextTurn::Pause(mut pause) = pace.pacing.pay(now, busiest, Nanos(0)) {
            pace.being = self.being(sampled as f64 / on.0.max(1) as f64 * 1e9);
            if pace.being == Being::Closed {
                pause = pause.max(REOPENED_PAUSE);
            }
            self.switch(Being::Ending);
            (pace.until, pace.has_paused) = (Some(Nanos(now.0 + pause.0)), true);
        } else {
            self.switch(Being::On);
        }
        self.pace = Some(pace);
        weight
    }

    /// What a pause makes of the events of processes that fault and read so often each second.
    fn being(&self, rate: f64) -> Being {
        if rate >= OFTEN { self.events.cheapest() } else { Being::Off }
    }

    /// Switches the events that may pause: the reads, too, unless they are left out anyhow.
    fn switch(&mut self, being: Being) {
        let of_reads = if self.are_reads_on { being } else { self.events.cheapest() };
        self.events.switch(being, of_reads, &mut self.batch);
    }

    /// What a record says; with what a wait stands for, where it began in a window that is over.
    fn translate(&mut self, origin: Origin, record: PerfRecord) -> Option<(Seen, Option<f64>)> {
        let seen = match (record, origin) {
            (PerfRecord::Fault { process, thread, at, address, instruction, callers }, Origin::Faults) => {
                self.begun.insert(thread, Begun { address, at, weight: None });
                Seen::Fault { process, thread, at, address, instruction, callers }
            }
            (PerfRecord::Fault { process, thread, at, address, .. }, Origin::Events) => {
                let waited = self.end(thread, address).map(|begun| since(begun.at, at));
                Seen::Waited { process, thread, at, address, waited, major: true }
            }
            (PerfRecord::MinorEnded { process, thread, at, address }, _) => {
                let begun = self.end(thread, address)?;
                let waited = Some(since(begun.at, at)).filter(|waited| *waited >= WAIT)?;
                return Some((
                    Seen::Waited { process, thread, at, address, waited: Some(waited), major: false },
                    begun.weight,
                ));
            }
            (PerfRecord::Read { process, thread, at, device, inode, pages }, _) => {
                let call = ReadCall { process, thread, at, device, inode, pages };
                self.stretches.begins(thread, device, inode, pages).then_some(Seen::Read(call))?
            }
            (PerfRecord::Mapped { process, at, address, length, offset, device, inode, path }, _) => {
                Seen::Mapped(Mapped { process, at, address, length, offset, device, inode, path })
            }
            (PerfRecord::Forked { process, parent, at, .. }, _) if process != parent => {
                Seen::Forked { process, parent, at }
            }
            (PerfRecord::Executed { process, at, name }, _) => Seen::Executed { process, at, name },
            (PerfRecord::Exited { thread, .. }, _) => {
                self.begun.remove(&thread);
                return None;
            }
            _ => return None,
        };
        Some((seen, None))
    }

    /// The fault of a thread that has ended.
    fn end(&mut self, thread: u32, address: u64) -> Option<Begun> {
        // One end for each beginning: the next fault at the same address may have begun in a pause.
        self.begun.get(&thread).filter(|begun| begun.address == address)?;
        self.begun.remove(&thread)
    }

    /// Records lost so far because they did not fit into the rings. Asks the kernel for each event, so not all the time.
    pub fn lost(&self) -> u64 {
        self.events.lost()
    }

    /// How full the fullest ring was at the last reading, from 0 to 1. Above one half, read twice as often.
    pub fn fullness(&self) -> f64 {
        self.events.fullest
    }

    /// Threads that are followed now, as far as that is known.
    pub fn threads(&self) -> usize {
        self.events.threads()
    }

    /// Threads that existed and are not followed, because descriptors are limited.
    pub fn unfollowed(&self) -> usize {
        self.events.unfollowed()
    }

    /// Whether faults that happen in the kernel on behalf of the process are seen as well.
    pub fn kernel(&self) -> Kernel {
        self.events.kernel
    }
}

fn since(begun: Nanos, at: Nanos) -> Nanos {
    Nanos(at.0.saturating_sub(begun.0))
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
    let open = |kernel| Sampling::of(Sampled::Faults, Threads::Running(own), 0, kernel, Stacks::LeftOut);
    let found = open(Kernel::Counted).map(|_| "with those of the kernel");
    let found = found.or_else(|_| open(Kernel::LeftOut).map(|_| "of user code"));
    found.map(|which| format!("faults {which} can be sampled")).map_err(|error| refused(own, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::file_reads;
    use crate::sys::map::{MapOptions, Mapping};
    use crate::sys::uffd::Uffd;
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

    /// Serves each fault of `memory` some milliseconds after it began, until all threads are through.
    fn serve_late(uffd: &Uffd, after: Duration, faults: usize) {
        let (mut queue, mut served) = (std::collections::VecDeque::new(), 0);
        while served < faults {
            let mut begun = Vec::new();
            uffd.waiting(&mut begun).unwrap();
            let now = std::time::Instant::now();
            queue.extend(begun.into_iter().map(|address| (now, address)));
            while let Some((_, address)) = queue.pop_front_if(|(began, _)| began.elapsed() >= after) {
                uffd.zero(address & !(PAGE - 1), PAGE).unwrap();
                served += 1;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    #[test]
    fn waits_that_are_longer_than_a_window_are_seen_to_their_end_and_stand_for_those_between_windows() {
        const THREADS: usize = 4;
        const TURNS: usize = 300;
        let test = "waits_that_are_longer_than_a_window_are_seen_to_their_end_and_stand_for_those_between_windows";
        if skipped(test) {
            return;
        }
        if let Err(missing) = crate::sys::uffd::USERFAULTFD.met() {
            return eprintln!("SKIPPED {test}: {missing}");
        }
        let length = THREADS * TURNS * PAGE;
        let memory = Mapping::anonymous(length).unwrap();
        let (uffd, base) = (Uffd::over(&memory).unwrap(), memory.as_ptr() as u64);
        let guarded = crate::sys::fault::Guarded::new(memory);
        let mut sampler = Sampler::open_held(std::process::id(), 0.01, Stacks::LeftOut).unwrap();
        let touch_all = |thread: usize| {
            let mut waited = Duration::ZERO;
            for turn in 0..TURNS {
                // Not all at the same time.
                std::thread::sleep(Duration::from_micros(200 * (1 + thread as u64)));
                let began = std::time::Instant::now();
                std::hint::black_box(guarded.view((thread * TURNS + turn) * PAGE, 1).get(0));
                waited += began.elapsed();
            }
            waited.as_secs_f64()
        };
        let (mut seen_s, mut waits, mut majors) = (0.0, Vec::new(), 0);
        let waited_s: f64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || touch_all(thread))).collect();
            scope.spawn(|| serve_late(&uffd, Duration::from_millis(5), THREADS * TURNS));
            sampler.begin(0, Nanos(0));
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(sampler.nap(Duration::from_millis(20)));
                // As if it faulted so often that it is watched in windows all the time.
                sampler.pace.as_mut().unwrap().pacing = Pacing::knowing(0.01, monotonic(), 10_000, Nanos(1_000_000));
                sampler.read_weighted(|seen, weight| match seen {
                    Seen::Waited { address, waited, major, .. } if address.wrapping_sub(base) < length as u64 => {
                        majors += usize::from(major);
                        waits.extend(waited.filter(|_| !major));
                        seen_s += waited.filter(|_| !major).map_or(0.0, |waited| waited.0 as f64 / 1e9 * weight);
                    }
                    _ => {}
                });
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });

        if majors > 0 {
            return eprintln!("SKIPPED {test}: this kernel counts such waits as major faults, all of which are seen");
        }
        // Some 30 of 1200, each for some 40: their sum is known within a factor, and without those that outlast their window there are none.
        let told = format!("{seen_s} s of {waited_s} s: {} waits", waits.len());
        assert!(
            sampler.coverage().share() < 0.3 && waits.iter().all(|waited| *waited >= Nanos(4_000_000)),
            "{waits:?}"
        );
        assert!((0.1 * waited_s..5.0 * waited_s).contains(&seen_s), "{told}");
    }

    #[test]
    fn reads_by_calls_are_seen_once_each_in_their_order_and_left_out_while_switched_off() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let test = "reads_by_calls_are_seen_once_each_in_their_order_and_left_out_while_switched_off";
        if skipped(test) {
            return;
        }
        if let Err(missing) = file_reads::FILE_READS.met() {
            return eprintln!("SKIPPED {test}: {missing}");
        }
        let file = TestFile::on_disk(1024 * PAGE);
        let inode = file.file().metadata().unwrap().ino();
        let mut sampler = Sampler::open(std::process::id()).unwrap();
        let mut bytes = vec![0; 600 * PAGE];
        let mut read = |page: usize, pages: usize| {
            file.file().read_exact_at(&mut bytes[..pages * PAGE], (page * PAGE) as u64).unwrap();
        };
        [(700, 1), (3, 600), (3, 600), (40, 2)].into_iter().for_each(|(page, pages)| read(page, pages));
        sampler.switch_reads(false);
        read(8, 1);
        sampler.switch_reads(true);
        read(9, 1);
        let mut seen = Vec::new();
        sampler.read(|event| match event {
            Seen::Read(call) if call.inode == inode => seen.push(call.pages),
            _ => {}
        });

        assert_eq!(seen, [(700, 700), (3, 602), (3, 602), (40, 41), (9, 9)]);
        assert_eq!((sampler.lost(), sampler.lacks_reads()), (0, None));
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
