//! The perf events behind a sampler: on which threads they are open, and the rings that they write into.
//!
//! An event that is switched off still costs its thread something: at each fault, and each read, the kernel looks whether somebody wants to
//! know (Linux 6.18 in a guest: 90 to 120 ns a fault with two such events, 27 to 33 ns a read). So the events of a program that faults or
//! reads very often are closed between two windows, and opened again for the next one, on the threads that there are then.

use super::file_reads::{self, ReadPoint};
use super::sampler::{processors, threads};
use crate::needs::Missing;
use crate::sys::perf::Kernel;
use crate::sys::samples::{PerfRecord, Ring, Sampled, Sampling, Stacks, Threads};
use crate::sys::tracepoints::Hit;
use crate::units::Nanos;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

/// Bytes of the ring for faults, for each processor: 6500 faults between two reads. Without special rights
/// (kernel.perf_event_mlock_kb) 512 KiB may be locked for each processor.
const FAULT_RING: usize = 256 << 10;

/// The same where stacks are recorded, which make a record some six times as long.
const STACK_RING: usize = 1 << 20;

/// Bytes of the ring for ended faults and new mappings.
const EVENT_RING: usize = 256 << 10;

/// Bytes of the ring for reads by calls: 12 000 between two readings.
const READ_RING: usize = 1 << 20;

/// Bytes of a record in it.
const HIT_BYTES: usize = 72;

/// Kinds of events for each thread and processor.
const KINDS: usize = 4;

/// Listings of a process's threads until no new one is among them: threads start while others are being opened.
const LISTINGS: usize = 5;

/// Descriptors that are left for other uses.
const SPARE_DESCRIPTORS: u64 = 64;

/// The most threads, times processors, whose events are closed in pauses: opening one takes some 20 us.
const MOST_REOPENED: usize = 128;

/// Records with their times and rings, in the order of their rings.
pub(super) type Batch = Vec<(Nanos, Origin, PerfRecord)>;

/// The ring of a record. Of two records at the same time, the beginning of a fault comes before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Faults,
    Events,
    Reads,
}

/// What events of a kind do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Being {
    /// They sample.
    On,
    /// Ends of minor faults are sampled, beginnings are not: those that are waiting still are seen to their end.
    Ending,
    /// They are open and switched off.
    Off,
    /// There are none.
    Closed,
}

/// The ends of minor faults of a thread, or of those that were started by it, on one processor.
#[derive(Debug)]
struct Ends {
    thread: Option<u32>,
    is_on: bool,
    event: Sampling,
}

impl Ends {
    fn switch(&mut self, on: bool) {
        if self.is_on != on {
            // As in `turn`.
            let _ = self.event.switch(on);
            self.is_on = on;
        }
    }
}

impl Being {
    /// Whether faults, and reads, are sampled as they begin.
    fn sees_beginnings(self) -> bool {
        self == Being::On
    }

    fn sees_ends(self) -> bool {
        matches!(self, Being::On | Being::Ending)
    }
}

/// The events of the threads of some processes.
#[derive(Debug)]
pub(super) struct Events {
    processors: Vec<u32>,
    /// By processor, as far as they are made.
    rings: Vec<Option<Rings>>,
    /// Those of major faults, mappings and processes.
    lasting: Vec<Sampling>,
    /// Those of faults, as they begin.
    faults: (Being, Vec<Sampling>),
    /// Those of minor faults, as they end.
    ends: Vec<Ends>,
    reads: (Being, Vec<Sampling>),
    point: Option<ReadPoint>,
    /// Why reads are not seen, or not of all threads.
    pub lacks_reads: Option<Missing>,
    pub kernel: Kernel,
    stacks: Stacks,
    /// Threads that are followed, as far as they are known, with their processes.
    followed: HashMap<u32, u32>,
    unfollowed: HashSet<u32>,
    /// Records that did not fit: as the rings told, and as the events did that are closed.
    lost: u64,
    closed_lost: u64,
    pub fullest: f64,
}

/// The rings of one processor.
#[derive(Debug)]
struct Rings {
    faults: Ring,
    events: Ring,
    reads: Option<Ring>,
}

impl Events {
    /// None yet.
    pub fn new(kernel: Kernel, stacks: Stacks) -> Events {
        let processors = processors();
        let (point, lacks_reads) = match ReadPoint::find() {
            Ok(point) => (Some(point), None),
            Err(missing) => (None, Some(missing)),
        };
        Events {
            rings: processors.iter().map(|_| None).collect(),
            processors,
            lasting: Vec::new(),
            faults: (Being::On, Vec::new()),
            ends: Vec::new(),
            reads: (Being::On, Vec::new()),
            point,
            lacks_reads,
            kernel,
            stacks,
            followed: HashMap::new(),
            unfollowed: HashSet::new(),
            lost: 0,
            closed_lost: 0,
            fullest: 0.0,
        }
    }

    /// Follows the threads of `pid` that are not followed yet, and what they will start; returns the number of them. What is in the
    /// rings meanwhile goes into `batch`.
    ///
    /// Errors: EACCES or EPERM (rights), ESRCH (no such process).
    pub fn add(&mut self, pid: u32, batch: &mut Batch) -> io::Result<usize> {
        let mut added = 0;
        for _ in 0..LISTINGS {
            let is_new = |thread: &u32| !self.followed.contains_key(thread) && !self.unfollowed.contains(thread);
            let new: Vec<u32> = threads(pid)?.into_iter().filter(is_new).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                added += usize::from(self.add_thread(pid, thread)?);
            }
            // Threads that were started meanwhile by followed ones are followed, and the rings say which.
            self.collect(batch);
        }
        Ok(added)
    }

    /// Whether the thread is followed now; it may have ended, or be beyond the limit.
    fn add_thread(&mut self, process: u32, thread: u32) -> io::Result<bool> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let open = KINDS * (self.lasting.len() + 2 * self.processors.len());
        if open as u64 > limit.saturating_sub(SPARE_DESCRIPTORS) && !self.followed.is_empty() {
            self.unfollowed.insert(thread);
            return Ok(false);
        }
        match self.follow(Threads::Running(thread)) {
            Ok(()) => Ok(self.followed.insert(thread, process).is_none()),
            // Threads end; a thread that ended is no reason not to follow the others.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) && !self.followed.is_empty() => {
                self.unfollowed.insert(thread);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens all events of these threads on each processor.
    ///
    /// Errors: those of [`Sampling::of`], and of [`Ring::new`].
    pub fn follow(&mut self, threads: Threads) -> io::Result<()> {
        self.make_rings()?;
        for (processor, rings) in self.processors.iter().zip(self.rings.iter().flatten()) {
            let major = Sampling::of(Sampled::MajorFaults, threads, *processor, self.kernel, self.stacks)?;
            major.write_into(&rings.events)?;
            self.lasting.push(major);
        }
        self.open_faults(threads)?;
        self.open_reads(threads);
        Ok(())
    }

    fn make_rings(&mut self) -> io::Result<()> {
        let of_faults = if self.stacks == Stacks::Recorded { STACK_RING } else { FAULT_RING };
        for (processor, rings) in self.processors.iter().zip(&mut self.rings).filter(|(_, rings)| rings.is_none()) {
            let ring = |bytes| Ring::new(Sampling::of_nothing(*processor)?, bytes);
            *rings = Some(Rings { faults: ring(of_faults)?, events: ring(EVENT_RING)?, reads: None });
        }
        Ok(())
    }

    /// Opens the events of faults that may pause.
    fn open_faults(&mut self, threads: Threads) -> io::Result<()> {
        if self.faults.0 == Being::Closed {
            return Ok(());
        }
        for (processor, rings) in self.processors.iter().zip(self.rings.iter().flatten()) {
            let open = |what, is_on: bool, ring: &Ring| -> io::Result<Sampling> {
                let event = Sampling::of(what, threads, *processor, self.kernel, self.stacks)?;
                if !is_on {
                    event.switch(false)?;
                }
                event.write_into(ring)?;
                Ok(event)
            };
            self.faults.1.push(open(Sampled::Faults, self.faults.0.sees_beginnings(), &rings.faults)?);
            let is_on = self.faults.0.sees_ends();
            let thread = if let Threads::Running(thread) = threads { Some(thread) } else { None };
            self.ends.push(Ends { thread, is_on, event: open(Sampled::MinorFaults, is_on, &rings.events)? });
        }
        Ok(())
    }

    /// Opens the reads of these threads, where that is permitted: without them all else is seen.
    fn open_reads(&mut self, threads: Threads) {
        let Some(point) = self.point.as_ref().filter(|_| self.reads.0 != Being::Closed) else { return };
        let (being, reading) = (self.reads.0, &mut self.reads.1);
        let mut open = |processor: u32, rings: &mut Rings| -> io::Result<()> {
            let event = point.sample(threads, processor)?;
            if !being.sees_beginnings() {
                event.switch(false)?;
            }
            if rings.reads.is_none() {
                rings.reads = Some(Ring::new(Sampling::of_nothing(processor)?, READ_RING)?);
            }
            if let Some(ring) = &rings.reads {
                event.write_into(ring)?;
            }
            reading.push(event);
            Ok(())
        };
        let each = self.processors.iter().zip(self.rings.iter_mut().flatten());
        let opened = each.map(|(processor, rings)| open(*processor, rings)).collect::<io::Result<Vec<()>>>();
        // A thread may end meanwhile.
        if let Some(error) = opened.err().filter(|error| error.raw_os_error() != Some(libc::ESRCH)) {
            // Those that are followed go on, and their rings are to be read.
            self.lacks_reads = Some(file_reads::refused(&error));
        }
    }

    /// What a pause should make of the events, where the threads fault and read so often that open ones cost them something.
    pub fn cheapest(&self) -> Being {
        match self.followed.len() * self.processors.len() <= MOST_REOPENED {
            true => Being::Closed,
            false => Being::Off,
        }
    }

    /// Switches the faults that may pause, and the reads. What is in the rings of threads that were opened meanwhile goes into `batch`.
    pub fn switch(&mut self, faults: Being, reads: Being, batch: &mut Batch) {
        let opens = |was: Being, is: Being| was == Being::Closed && is != Being::Closed;
        let (opens_faults, opens_reads) = (opens(self.faults.0, faults), opens(self.reads.0, reads));
        // Opening takes its time: they begin together, when all are open.
        self.turn_faults(if opens_faults { Being::Off } else { faults });
        self.turn_reads(if opens_reads { Being::Off } else { reads });
        if opens_faults || opens_reads {
            self.open_again(opens_faults, opens_reads, batch);
            self.turn_faults(faults);
            self.turn_reads(reads);
        }
    }

    /// Opens them on all threads that there are.
    fn open_again(&mut self, faults: bool, reads: bool, batch: &mut Batch) {
        for _ in 0..LISTINGS {
            if self.reopen(faults, reads, batch) {
                return;
            }
            // A thread that started meanwhile may have inherited events, or not: once more, for all.
            self.close(faults, reads);
        }
        // They start faster than events are opened.
        self.reopen(faults, reads, batch);
    }

    fn turn_faults(&mut self, being: Being) {
        if being == Being::Closed && self.faults.0 != being {
            self.close(true, false);
        }
        turn(&self.faults.1, self.faults.0.sees_beginnings(), being.sees_beginnings());
        self.ends.iter_mut().for_each(|ends| ends.switch(being.sees_ends()));
        self.faults.0 = being;
    }

    /// While ends alone are sampled: goes on with those of these threads; whether others are left out, which takes events of each one's own.
    pub fn keep_ends(&mut self, threads: &[u32]) -> bool {
        let own = |thread: &u32| self.ends.iter().any(|ends| ends.thread == Some(*thread));
        let are_own = self.faults.0 == Being::Ending && threads.iter().all(own);
        if are_own {
            let is_kept = |ends: &Ends| ends.thread.is_some_and(|thread| threads.contains(&thread));
            self.ends.iter_mut().for_each(|ends| ends.switch(is_kept(ends)));
        }
        are_own
    }

    fn turn_reads(&mut self, being: Being) {
        if being == Being::Closed && self.reads.0 != being {
            self.close(false, true);
        }
        turn(&self.reads.1, self.reads.0.sees_beginnings(), being.sees_beginnings());
        self.reads.0 = being;
    }

    fn close(&mut self, faults: bool, reads: bool) {
        let lost = |events: &[Sampling]| events.iter().filter_map(Sampling::lost).sum::<u64>();
        if faults {
            self.closed_lost +=
                lost(&self.faults.1) + self.ends.iter().filter_map(|ends| ends.event.lost()).sum::<u64>();
            self.faults.1.clear();
            self.ends.clear();
        }
        if reads {
            self.closed_lost += lost(&self.reads.1);
            let events = std::mem::take(&mut self.reads.1);
            turn(&events, true, false);
            // The kernel waits for all who are in the tracepoint, some 40 ms.
            let close = std::thread::Builder::new().name("majorfault-close".to_owned());
            drop(close.spawn(move || drop(events)));
        }
    }

    /// Opens them on all threads; whether no thread was started meanwhile.
    fn reopen(&mut self, faults: bool, reads: bool, batch: &mut Batch) -> bool {
        let known: Vec<(u32, u32)> = self.followed.iter().map(|(thread, process)| (*thread, *process)).collect();
        for (thread, process) in &known {
            // Its number may be another one's by now.
            if !Path::new(&format!("/proc/{process}/task/{thread}")).exists() {
                self.followed.remove(thread);
                continue;
            }
            let threads = Threads::Running(*thread);
            // Whose events can be opened no more has ended, but for descriptors.
            if faults && self.open_faults(threads).is_err_and(|error| error.raw_os_error() != Some(libc::ESRCH)) {
                self.unfollowed.insert(*thread);
            }
            if reads {
                self.open_reads(threads);
            }
        }
        self.collect(batch);
        self.followed.keys().all(|thread| known.iter().any(|(known, _)| known == thread))
    }

    /// Takes what is in the rings; returns the number of faults and reads on the processor that has most of them.
    pub fn collect(&mut self, batch: &mut Batch) -> u64 {
        self.fullest = 0.0;
        let mut busiest = 0;
        for Rings { faults, events, reads } in self.rings.iter_mut().flatten() {
            let (before, mut sampled) = (batch.len(), 0);
            for (ring, origin) in [(faults, Origin::Faults), (events, Origin::Events)] {
                let (lost, followed) = (&mut self.lost, &mut self.followed);
                let bytes = ring.drain(|record| match record {
                    PerfRecord::Lost(count) => *lost += count,
                    PerfRecord::Forked { thread, process, at, .. } => {
                        followed.insert(thread, process);
                        batch.push((at, origin, record));
                    }
                    PerfRecord::Exited { thread, at, .. } => {
                        followed.remove(&thread);
                        batch.push((at, origin, record));
                    }
                    PerfRecord::Fault { at, .. }
                    | PerfRecord::MinorEnded { at, .. }
                    | PerfRecord::Executed { at, .. }
                    | PerfRecord::Read { at, .. }
                    | PerfRecord::Mapped { at, .. } => batch.push((at, origin, record)),
                });
                self.fullest = self.fullest.max(bytes as f64 / ring.size() as f64);
                if origin == Origin::Faults {
                    sampled = (batch.len() - before) as u64;
                }
            }
            if let (Some(ring), Some(point)) = (reads, &self.point) {
                let before = batch.len();
                let begun = |hit: Hit<'_>| Some((hit.at, Origin::Reads, point.record(&hit)?));
                self.lost += ring.drain_hits(|hit| batch.extend(begun(hit)));
                let hits = batch.len() - before;
                self.fullest = self.fullest.max((hits * HIT_BYTES) as f64 / ring.size() as f64);
                sampled += hits as u64;
            }
            busiest = busiest.max(sampled);
        }
        busiest
    }

    /// Records lost so far because they did not fit into the rings. Asks the kernel for each event, so not all the time.
    pub fn lost(&self) -> u64 {
        let all = self
            .lasting
            .iter()
            .chain(&self.faults.1)
            .chain(&self.reads.1)
            .chain(self.ends.iter().map(|ends| &ends.event));
        // A record of a loss comes with the next record that fits: after the last one nobody says so.
        let told = all.map(Sampling::lost).sum::<Option<u64>>().unwrap_or(0);
        told.saturating_add(self.closed_lost).max(self.lost)
    }

    /// Threads that are followed now, as far as that is known.
    pub fn threads(&self) -> usize {
        self.followed.len()
    }

    /// Threads that existed and are not followed, because descriptors are limited.
    pub fn unfollowed(&self) -> usize {
        self.unfollowed.len()
    }
}

/// Switches events that were on or not.
fn turn(events: &[Sampling], was: bool, on: bool) {
    for event in events.iter().filter(|_| was != on) {
        // An event of a thread that has ended cannot be switched, and need not be.
        let _ = event.switch(on);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::FAULT_SAMPLES;
    use super::*;
    use crate::observe::file_reads::FILE_READS;
    use crate::sys::map::{MapOptions, Mapping};
    use crate::test_files::{PAGE, TestFile};
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn skipped(test: &str, need: &crate::Need) -> bool {
        need.met().inspect_err(|missing| eprintln!("SKIPPED {test}: {missing}")).is_err()
    }

    fn of_this_process() -> (Events, Batch) {
        let (mut events, mut batch) = (Events::new(Kernel::LeftOut, Stacks::LeftOut), Batch::new());
        events.add(std::process::id(), &mut batch).unwrap();
        (events, batch)
    }

    #[test]
    fn reads_that_cannot_be_followed_are_told_and_those_that_are_go_on() {
        let test = "reads_that_cannot_be_followed_are_told_and_those_that_are_go_on";
        if skipped(test, &FAULT_SAMPLES) || skipped(test, &FILE_READS) {
            return;
        }
        let file = TestFile::on_disk(4 * PAGE);
        let inode = file.file().metadata().unwrap().ino();
        let (mut events, mut batch) = of_this_process();

        // No machine has such a processor.
        events.processors = vec![1 << 20];
        events.open_reads(Threads::Running(std::process::id()));
        file.file().read_exact_at(&mut [0; PAGE], PAGE as u64).unwrap();
        events.collect(&mut batch);

        let is_ours =
            |record: &PerfRecord| matches!(record, PerfRecord::Read { inode: of, pages: (1, 1), .. } if *of == inode);
        assert!(events.lacks_reads.is_some());
        assert_eq!(batch.iter().filter(|(_, _, record)| is_ours(record)).count(), 1);
    }

    /// The pages of a file that this thread, and one that was started in a pause, touched before, in and after it.
    fn touched_around_a_pause(pause: Being) -> Vec<u64> {
        let file = TestFile::on_disk(256 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 256 * PAGE, &MapOptions::default()).unwrap();
        let guarded = crate::sys::fault::Guarded::new(mapping);
        let base = guarded.mapping().as_ptr() as u64;
        let touch = |page: usize| {
            std::hint::black_box(guarded.view(page * PAGE, 1).get(0));
        };
        let (mut events, mut batch) = of_this_process();

        touch(0);
        events.switch(pause, pause, &mut batch);
        touch(64);
        let (asks, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || told.iter().for_each(touch));
            events.switch(Being::On, Being::On, &mut batch);
            touch(128);
            asks.send(192).unwrap();
            drop(asks);
        });
        events.collect(&mut batch);
        batch.sort_by_key(|(at, origin, _)| (*at, *origin));

        let page = |(_, origin, record): &(Nanos, Origin, PerfRecord)| match record {
            PerfRecord::Fault { address, .. } if *origin == Origin::Faults => {
                Some(address.checked_sub(base)? / PAGE as u64).filter(|page| *page < 256)
            }
            _ => None,
        };
        batch.iter().filter_map(page).collect()
    }

    #[test]
    fn what_is_touched_in_a_pause_is_not_seen_and_threads_started_in_it_are_afterwards() {
        if skipped("what_is_touched_in_a_pause_is_not_seen", &FAULT_SAMPLES) {
            return;
        }

        assert_eq!(touched_around_a_pause(Being::Off), [0, 128, 192]);
        assert_eq!(touched_around_a_pause(Being::Closed), [0, 128, 192]);
    }

    /// The pages whose faults were seen to begin (1000 more) and to end, of this thread (0, 64, 128) and of another one (32 more): first while all is sampled, then while ends
    /// alone are, at last while those of this thread alone are. Whether that can be.
    fn ended_pages() -> (Vec<u64>, bool) {
        let file = TestFile::on_disk(256 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 256 * PAGE, &MapOptions::default()).unwrap();
        let guarded = crate::sys::fault::Guarded::new(mapping);
        let base = guarded.mapping().as_ptr() as u64;
        let touch = |page: usize| {
            std::hint::black_box(guarded.view(page * PAGE, 1).get(0));
        };
        let (asks, told) = std::sync::mpsc::sync_channel(0);
        let (ready, done) = std::sync::mpsc::sync_channel(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                told.iter().for_each(|page| {
                    touch(page);
                    ready.send(()).unwrap();
                });
            });
            let (mut events, mut batch) = of_this_process();
            let both = |page: usize| {
                touch(page);
                asks.send(page + 32).unwrap();
                done.recv().unwrap();
            };
            both(0);
            events.switch(Being::Ending, Being::Off, &mut batch);
            both(64);
            let is_kept = events.keep_ends(&[rustix::thread::gettid().as_raw_pid().cast_unsigned()]);
            both(128);
            events.collect(&mut batch);
            drop(asks);
            batch.sort_by_key(|(at, origin, _)| (*at, *origin));
            // What else this process touches, such as code, may lie behind the file.
            let within = |address: u64| Some(address.checked_sub(base)? / PAGE as u64).filter(|page| *page < 256);
            let page = |(_, origin, record): &(Nanos, Origin, PerfRecord)| match record {
                PerfRecord::MinorEnded { address, .. } => within(*address),
                PerfRecord::Fault { address, .. } if *origin == Origin::Faults => Some(within(*address)? + 1000),
                _ => None,
            };
            let pages = batch.iter().filter_map(page).collect();
            (pages, is_kept)
        })
    }

    #[test]
    fn ends_alone_are_seen_of_all_threads_or_of_those_that_are_named() {
        if skipped("ends_alone_are_seen_of_all_threads_or_of_those_that_are_named", &FAULT_SAMPLES) {
            return;
        }

        assert_eq!(ended_pages(), (vec![1000, 0, 1032, 32, 64, 96, 128], true));
        let (mut events, mut batch) = of_this_process();
        events.switch(Being::Ending, Being::Off, &mut batch);
        assert!(!events.keep_ends(&[u32::MAX]), "a thread without events of its own");
    }

    #[test]
    fn closed_events_are_gone_and_those_of_few_threads_are_closed() {
        if skipped("closed_events_are_gone", &FAULT_SAMPLES) {
            return;
        }
        let (mut events, mut batch) = of_this_process();
        let (lasting, each) = (events.lasting.len(), events.processors.len());
        let open = |events: &Events| (events.faults.1.len(), events.lasting.len(), events.reads.1.len());

        events.switch(Being::Closed, Being::Closed, &mut batch);
        assert_eq!(open(&events), (0, lasting, 0));
        events.switch(Being::On, Being::Closed, &mut batch);
        assert!(matches!(open(&events), (2.., same, 0) if same == lasting));

        events.followed = (0..(MOST_REOPENED / each) as u32).map(|thread| (thread, 1)).collect();
        assert_eq!(events.cheapest(), Being::Closed);
        events.followed.insert(u32::MAX, 1);
        assert_eq!(events.cheapest(), Being::Off);
    }

    #[test]
    fn what_closed_events_lost_stays_counted() {
        if skipped("what_closed_events_lost_stays_counted", &FAULT_SAMPLES) {
            return;
        }
        let file = TestFile::on_disk(PAGE);
        let (mut events, mut batch) = of_this_process();
        // More faults than the ring takes: each touch begins anew.
        for _ in 0..3 * FAULT_RING / 40 {
            let mapping = Mapping::new(file.file(), 0, PAGE, &MapOptions::default()).unwrap();
            std::hint::black_box(mapping.word(0));
        }
        let lost = events.lost();

        events.switch(Being::Closed, Being::Closed, &mut batch);

        assert!(lost > 0 && events.lost() >= lost, "{lost} {}", events.lost());
    }

    #[test]
    fn a_thread_whose_number_is_another_processs_is_not_opened() {
        if skipped("a_thread_whose_number_is_another_processs_is_not_opened", &FAULT_SAMPLES) {
            return;
        }
        let (mut events, mut batch) = of_this_process();
        // This thread, told to be of process 1.
        let own = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        events.followed = HashMap::from([(own, 1)]);

        events.switch(Being::Closed, Being::Closed, &mut batch);
        events.switch(Being::On, Being::On, &mut batch);

        assert!(!events.followed.contains_key(&own));
    }
}
