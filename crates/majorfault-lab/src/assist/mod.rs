//! Prefetching for a running program from outside: its page faults and read calls are watched, their order is recognised, and what comes
//! next is read into the page cache that both share. The program is not stopped or changed.

mod allowance;
mod call_quota;
mod json;
mod profile;
mod reader;
mod rows;
mod terminal;

pub use json::document;
pub use profile::Profile;
pub use terminal::print;

use crate::watch::faults::{Faults, FileFault, FileRead, Happened};
use crate::watch::files;
use crate::watch::target::WatchTarget;
use allowance::Allowance;
use call_quota::CallQuota;
use majorfault::files::{Layout, Target};
use majorfault::observe::places::{FileId, Places};
use majorfault::prefetch::{self, Follower};
use majorfault::sys::cache;
use majorfault::trace::Trace;
use majorfault::{Error, Given, Missing, Result};
use reader::{FileReader, Reach};
pub use reader::{PAGE, ReadCounts};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pauses between two looks: while the next faults matter, while there are some, and the longest one, while nothing happens. The
/// rings hold 6500 faults.
const ALERT: Duration = Duration::from_micros(300);
const WATCHFUL: Duration = Duration::from_millis(3);
const IDLE: Duration = Duration::from_millis(5);

/// Requests for one reader before the next reader's turn, and how long turns last before faults are looked at again:
/// requests wait where the device's queue is full.
const REQUESTS: usize = 32;
const TURN: Duration = Duration::from_millis(1);

/// Files of this size and larger are helped with where calls read them; the kernel reads smaller ones whole, or nearly.
const LEAST_READ: u64 = 1 << 20;

/// The most files that are remembered as too small, or unknown.
const MOST_LEFT: usize = 1 << 16;

/// How often the program's processor time is read; it is lost when the program ends.
const ASKED: Duration = Duration::from_millis(50);

/// The reason for files that a trace does not name.
const NOT_TRACED: &str = "not in the trace";

/// The most files that are followed: each takes a descriptor.
const MOST_FILES: usize = 256;

/// The most readers (one thread in one file) that are followed.
const MOST_READERS: usize = 4096;

/// How to help.
#[derive(Clone, Debug)]
pub struct AssistOptions {
    /// When to stop; none means when the program ends.
    pub length: Option<Duration>,
    /// The most bytes read ahead and not yet touched, for each thread and file.
    pub budget: u64,
    /// Rows ahead of a stride.
    pub rows: u64,
    /// The most bytes read ahead each second.
    pub rate: Option<u64>,
    /// A trace of an earlier run, and its path: only the files that it names are read ahead.
    pub trace: Option<(PathBuf, Trace)>,
    /// What earlier runs have shown.
    pub profile: Profile,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Assisted {
    /// How long it helped.
    pub length: Duration,
    /// Whether the program ended.
    pub ended: bool,
    /// Faults seen.
    pub faults: u64,
    /// Of these, those in files.
    pub in_files: u64,
    /// Reads by calls seen.
    pub reads: u64,
    /// Why reads by calls were not seen.
    pub no_reads: Option<Missing>,
    /// Faults lost because they did not fit into the rings.
    pub lost: u64,
    /// Threads that could not be followed.
    pub unfollowed: usize,
    /// Processor time of the assistant.
    pub own_time: Duration,
    /// Processor time of the program meanwhile; zero where the program ended before it was read.
    pub program_time: Duration,
    /// By file, those with the most bytes read ahead first.
    pub files: Vec<AssistedFile>,
}

/// What was done for a file.
#[derive(Clone, Debug, Default)]
pub struct AssistedFile {
    /// Its path when it was first seen.
    pub path: String,
    /// Faults in it.
    pub faults: u64,
    /// Reads of it by calls, as far as they were looked at.
    pub reads: u64,
    /// Faults that waited for the device.
    pub waits: u64,
    /// Nanoseconds that threads waited for them in total.
    pub waited_ns: u64,
    /// Threads that faulted in it, or read it.
    pub threads: usize,
    /// Totals over all threads; the stride is that of the thread that read most.
    pub tally: ReadCounts,
    /// The stride that was followed over pages which nobody else had read.
    pub proved: Option<u64>,
    /// Why the program could not be helped with this file.
    pub refused: Option<String>,
    /// Why rows near each other were left alone in it.
    pub near_rows: Option<Missing>,
}

/// Helps the target's processes, until it ends, the time is over or `stop` is raised.
///
/// Errors: as `doctor` (no such process, no rights); Missing where its faults cannot be seen.
pub fn assist(target: WatchTarget, options: AssistOptions, stop: &AtomicBool) -> Result<Assisted> {
    let pid = target.named().unwrap_or_default();
    let faults = Faults::of(target)?;
    Ok(Help { pid, options, ..Help::default() }.run(faults, stop))
}

#[derive(Default)]
struct Help {
    pid: u32,
    options: AssistOptions,
    files: HashMap<FileId, Followed>,
    readers: HashMap<(u32, FileId), FileReader>,
    /// Reads by calls that found what was read ahead for them.
    gained: u64,
    /// Files that calls read, and that are left alone.
    left: HashSet<FileId>,
    allowance: Allowance,
    /// Readers for which more is to be read ahead.
    busy: VecDeque<(u32, FileId)>,
    /// Whether a reader waits for the next faults.
    alert: bool,
    outcome: Assisted,
}

impl Default for AssistOptions {
    fn default() -> AssistOptions {
        AssistOptions {
            length: None,
            budget: 8 << 20,
            rows: 1024,
            rate: None,
            trace: None,
            profile: Profile::default(),
        }
    }
}

/// A file that the program maps.
struct Followed {
    outcome: AssistedFile,
    /// What its readers are made from; none where we cannot read the file.
    base: Option<(Arc<Target>, Follower, Reach)>,
    /// A stride that one of its threads has, or had in an earlier run.
    known: Option<u64>,
}

impl Followed {
    fn refuse(&mut self, error: &Error) {
        self.outcome.refused = Some(error.to_string());
        self.base = None;
    }
}

impl Help {
    fn run(&mut self, mut faults: Faults, stop: &AtomicBool) -> Assisted {
        let began = Instant::now();
        let own_before = own_time();
        let program_before = program_time(self.pid).unwrap_or_default();
        let mut program_after = program_before;
        let (mut pause, mut asked_at, mut replenished) = (ALERT, began, began);
        let mut quota = CallQuota::new(began);
        self.allowance = Allowance::of(self.options.rate);
        while !stop.load(Ordering::Relaxed) && self.options.length.is_none_or(|length| began.elapsed() < length) {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            self.allowance.grow(std::mem::replace(&mut replenished, Instant::now()).elapsed());
            let seen = faults.read(|happened, places| self.see(happened, places));
            self.outcome.faults += seen;
            self.pump();
            if let Some(on) = quota.turn(Instant::now(), self.outcome.reads - self.gained) {
                faults.switch_reads(on);
            }
            pause = self.pause_after(pause, seen);
            if asked_at.elapsed() >= ASKED {
                asked_at = Instant::now();
                program_after = program_time(self.pid).unwrap_or(program_after);
            }
            self.outcome.ended = faults.has_ended();
            if self.outcome.ended {
                break;
            }
        }
        // What it did last is told, though nobody can be helped any more.
        self.outcome.faults += faults.read(|happened, places| self.see(happened, places));
        program_after = program_time(self.pid).unwrap_or(program_after);
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.length = began.elapsed();
        outcome.lost = faults.lost();
        outcome.unfollowed = faults.unfollowed();
        outcome.no_reads = faults.lacks_reads().cloned();
        outcome.own_time = own_time().saturating_sub(own_before);
        outcome.program_time = program_after.saturating_sub(program_before);
        outcome.files = self.by_file();
        outcome
    }

    /// The pause before the next look, after one of this length that was followed by so many faults.
    fn pause_after(&mut self, pause: Duration, seen: u64) -> Duration {
        match std::mem::take(&mut self.alert) {
            _ if !self.busy.is_empty() => Duration::ZERO,
            true => ALERT,
            false if seen > 0 => WATCHFUL,
            false => (pause * 5 / 4).min(IDLE),
        }
    }

    fn see(&mut self, happened: Happened, places: &HashMap<u32, Places>) {
        match happened {
            Happened::Fault(fault) => {
                self.outcome.in_files += 1;
                self.follow(fault, places);
            }
            Happened::Read(read) => {
                self.outcome.reads += 1;
                self.follow_read(read);
            }
            Happened::Waited(id, waited) => {
                if let Some(file) = self.files.get_mut(&id) {
                    file.outcome.waits += 1;
                    file.outcome.waited_ns += waited.map_or(0, |waited| waited.0);
                }
            }
        }
    }

    fn follow(&mut self, fault: FileFault, places: &HashMap<u32, Places>) {
        let FileFault { process, thread, file: id, offset, address } = fault;
        if !self.files.contains_key(&id) {
            if self.files.len() >= MOST_FILES {
                return;
            }
            let path = places.get(&process).and_then(|places| places.path(id)).unwrap_or_default().to_owned();
            let file = files::open(process, &path, id);
            let followed = self.open(file.as_ref(), id, path);
            self.files.insert(id, followed);
        }
        let Some(file) = self.files.get_mut(&id) else { return };
        file.outcome.faults += 1;
        let known = file.known;
        self.show(thread, id, |reader| reader.observe(address, offset, known));
    }

    fn follow_read(&mut self, FileRead { process, thread, file: id, extent }: FileRead) {
        if !self.files.contains_key(&id) {
            if self.files.len() >= MOST_FILES || self.left.contains(&id) {
                return;
            }
            let opened = files::open_by_id(process, id);
            let length = opened.as_ref().and_then(|(_, file)| file.metadata().ok()).map_or(0, |meta| meta.len());
            let Some((path, file)) = opened.filter(|_| length >= LEAST_READ) else {
                self.left.extend(Some(id).filter(|_| self.left.len() < MOST_LEFT));
                return;
            };
            let followed = self.open(Some(&file), id, path);
            self.files.insert(id, followed);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.outcome.reads += 1;
            let mut gained = 0;
            self.show(thread, id, |reader| {
                let before = reader.tally.used;
                let wants = reader.observe_read(extent);
                gained = u64::from(reader.tally.used > before);
                Ok(wants)
            });
            self.gained += gained;
        }
    }

    /// Shows something to the reader of a thread in a file.
    fn show(&mut self, thread: u32, id: FileId, what: impl FnOnce(&mut FileReader) -> Result<bool>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some((target, base, reach)) = &mut file.base else { return };
        if !self.readers.contains_key(&(thread, id)) {
            file.outcome.threads += 1;
            if self.readers.len() >= MOST_READERS {
                return;
            }
            // The first reader of a file is the first thread of its trace.
            let Ok(next) = base.sibling() else { return };
            let own = std::mem::replace(base, next);
            let knows = self.options.trace.is_some();
            self.readers.insert((thread, id), FileReader::new(Arc::clone(target), own, knows, *reach));
        }
        let Some(reader) = self.readers.get_mut(&(thread, id)) else { return };
        let wants = what(reader);
        file.known = reader.proved.or(file.known);
        file.outcome.proved = reader.proved.or(file.outcome.proved);
        self.alert |= reader.is_alert();
        match wants {
            Ok(true) if !self.busy.contains(&(thread, id)) => self.busy.push_back((thread, id)),
            Ok(_) => {}
            Err(error) => file.refuse(&error),
        }
    }

    /// Reads ahead for the readers that want it, in turns, for a moment.
    fn pump(&mut self) {
        let until = Instant::now() + TURN;
        while let Some((thread, id)) = self.busy.pop_front() {
            let Some(reader) = self.readers.get_mut(&(thread, id)) else { continue };
            match reader.pump(REQUESTS, self.allowance.left()) {
                Ok((bytes, more)) => {
                    self.allowance.spend(bytes);
                    if more {
                        self.busy.push_back((thread, id));
                    }
                }
                Err(error) => {
                    self.readers.remove(&(thread, id));
                    if let Some(file) = self.files.get_mut(&id) {
                        file.refuse(&error);
                    }
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
    }

    /// Opens a file for its readers, or says why that is not possible.
    fn open(&self, file: Option<&File>, id: FileId, path: String) -> Followed {
        let is_traced =
            |(_, trace): &(PathBuf, Trace)| trace.files.iter().any(|file| file.path.as_deref() == Some(&path));
        if !self.options.trace.as_ref().is_none_or(is_traced) {
            let refused = Some(NOT_TRACED.to_owned());
            return Followed {
                outcome: AssistedFile { path, refused, ..AssistedFile::default() },
                base: None,
                known: None,
            };
        }
        let base = file
            .ok_or_else(|| "the file cannot be opened for reading (it is gone, or another user's)".to_owned())
            .and_then(|file| self.base(file, id, &path).map_err(|error| error.to_string()));
        let (refused, known) = (base.as_ref().err().cloned(), self.options.profile.stride(&path));
        Followed { outcome: AssistedFile { path, refused, ..AssistedFile::default() }, base: base.ok(), known }
    }

    fn base(&self, file: &File, id: FileId, path: &str) -> Result<(Arc<Target>, Follower, Reach)> {
        let AssistOptions { budget, rows, .. } = self.options;
        let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let target = Arc::new(Target::open(&[own], &Layout::default())?);
        let given = Given::none().with("budget", budget);
        let (policy, given) = match &self.options.trace {
            Some((trace, _)) => ("trace", given.with("file", trace.display()).with("of", path).with("mode", "replay")),
            None => ("learned", given.with("rows", rows)),
        };
        let learned = prefetch::follow(prefetch::named(policy)?, Arc::clone(&target), &given)?;
        let read_ahead = files::read_ahead_kb(id.device).unwrap_or(128) << 10;
        Ok((target, learned, Reach { rows, budget, read_ahead }))
    }

    fn by_file(&mut self) -> Vec<AssistedFile> {
        let mut most: HashMap<FileId, u64> = HashMap::new();
        for ((_, id), reader) in &self.readers {
            let Some(file) = self.files.get_mut(id) else { continue };
            let (tally, of) = (&mut file.outcome.tally, reader.tally);
            tally.asked += of.asked;
            tally.used += of.used;
            tally.trials += of.trials;
            tally.stopped += of.stopped;
            tally.learned |= of.learned;
            tally.untold += of.untold;
            let most = most.entry(*id).or_default();
            if of.asked >= *most {
                *most = of.asked;
                tally.stride = of.stride;
            }
        }
        for file in self.files.values_mut().filter(|file| file.outcome.tally.untold > 0) {
            file.outcome.near_rows = file.base.as_ref().and_then(|(target, ..)| near_rows(target));
        }
        let mut files: Vec<AssistedFile> = self.files.drain().map(|(_, file)| file.outcome).collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.tally.asked, file.faults + file.reads)));
        files
    }
}

/// Why nothing is read ahead where rows are near each other: only who sees what the page cache holds can tell them from a scan.
fn near_rows(target: &Target) -> Option<Missing> {
    let (reason, remedy) = match cache::cachestat(&target.files()[0].file, 0, PAGE) {
        Ok(_) => return None,
        Err(majorfault::Error::Missing(missing)) => (missing.reason, missing.remedy),
        Err(error) => (error.to_string(), "run assist as the file's owner, or as root".to_owned()),
    };
    Some(Missing::new("telling rows of up to 64 KiB from a scan", reason, remedy))
}

fn own_time() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// User and system time of a process: fields 14 and 15 of /proc/PID/stat, in hundredths of a second.
fn program_time(pid: u32) -> Option<Duration> {
    time_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn time_of(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_ascii_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::Extent;
    use majorfault::trace::{Run, Writer};

    const ROW: u64 = 1 << 20;
    const FILE: FileId = FileId { device: (8, 1), inode: 5 };

    /// Readers of a file without data, one for each of so many threads, that read ahead of any stride.
    fn helping(threads: u32, rate: Option<u64>) -> (Help, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let target = Arc::new(Target::open(&[PathBuf::from(file.path())], &Layout::default()).unwrap());
        let mut help = Help { allowance: Allowance::of(rate), ..Help::default() };
        let reach = Reach { rows: 1024, budget: 8 << 20, read_ahead: 128 << 10 };
        for thread in 0..threads {
            let learned = prefetch::named("learned").unwrap();
            let learned = prefetch::follow(learned, Arc::clone(&target), &Given::none()).unwrap();
            let reader = FileReader::new(Arc::clone(&target), learned, true, reach);
            help.readers.insert((thread, FILE), reader);
        }
        help.files.insert(FILE, Followed { outcome: AssistedFile::default(), base: None, known: None });
        (help, file)
    }

    /// A thread touches a row, and what follows from that is to be read.
    fn touch(help: &mut Help, thread: u32, row: u64) {
        let reader = help.readers.get_mut(&(thread, FILE)).unwrap();
        if reader.observe(row * ROW, row * ROW, None).unwrap() {
            help.busy.push_back((thread, FILE));
        }
    }

    fn bytes_read(help: &Help) -> u64 {
        help.readers.values().map(|reader| reader.tally.asked * PAGE).sum()
    }

    /// Bytes read ahead for two threads in two seconds of 1000 moments each.
    fn read_in_two_seconds(rate: Option<u64>) -> u64 {
        let (mut help, _file) = helping(2, rate);
        for row in 0..2000 {
            help.allowance.grow(Duration::from_millis(1));
            (0..2).for_each(|thread| touch(&mut help, thread, u64::from(thread) * (1 << 18) + row));
            help.pump();
        }
        bytes_read(&help)
    }

    #[test]
    fn no_more_is_read_each_second_than_the_rate() {
        let rate = 256 << 10;

        let read = read_in_two_seconds(Some(rate));

        // The first second's bytes may be read at once; each thread may have begun one page too many.
        assert!(read > 2 * rate && read <= 3 * rate + 2 * PAGE, "{read}");
    }

    #[test]
    fn without_a_rate_every_row_is_read() {
        let read = read_in_two_seconds(None);

        assert!(read >= 2 * 1900 * PAGE, "{read}");
    }

    #[test]
    fn a_file_is_reported_with_the_sums_of_its_threads_and_the_stride_of_the_one_that_read_most() {
        let (mut help, _file) = helping(3, None);
        for (thread, asked, stride) in [(0, 10, 4096), (1, 30, 8192), (2, 20, 16384)] {
            help.readers.get_mut(&(thread, FILE)).unwrap().tally = ReadCounts {
                asked,
                used: 1,
                trials: 2,
                stopped: 3,
                stride: Some(stride),
                learned: thread == 0,
                untold: 0,
            };
        }

        let files = help.by_file();

        let ReadCounts { asked, used, trials, stopped, stride, learned, .. } = files[0].tally;
        assert_eq!((asked, used, trials, stopped, stride, learned), (60, 3, 6, 9, Some(8192), true));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_refused_with_a_reason() {
        let mut help = Help::default();
        let fault = FileFault { process: std::process::id(), thread: 1, file: FILE, offset: 0, address: 0 };

        help.see(Happened::Fault(fault), &HashMap::new());
        help.see(Happened::Waited(FILE, Some(majorfault::Nanos(70))), &HashMap::new());
        help.see(Happened::Waited(FILE, None), &HashMap::new());

        let file = &help.by_file()[0];
        assert_eq!((file.faults, file.waits, file.waited_ns, help.outcome.in_files), (1, 2, 70, 1));
        assert_eq!(
            file.refused.as_deref(),
            Some("the file cannot be opened for reading (it is gone, or another user's)")
        );
    }

    #[test]
    fn more_files_than_256_are_not_followed() {
        let mut help = Help::default();

        for inode in 0..300 {
            let file = FileId { inode, ..FILE };
            let fault = FileFault { process: std::process::id(), thread: 1, file, offset: 0, address: 0 };
            help.see(Happened::Fault(fault), &HashMap::new());
        }

        assert_eq!((help.by_file().len(), help.outcome.in_files), (256, 300));
    }

    /// A fault in our own program, which is mapped.
    fn own_fault(thread: u32) -> (FileFault, HashMap<u32, Places>) {
        let process = std::process::id();
        let mut places = Places::of(process).unwrap();
        let address = own_fault as *const () as u64;
        let majorfault::observe::places::Place::File(file, offset) = places.locate(address) else { panic!("no file") };
        (FileFault { process, thread, file, offset, address }, HashMap::from([(process, places)]))
    }

    #[test]
    fn each_thread_that_faults_in_a_file_has_a_reader() {
        let mut help = Help::default();

        for thread in [1, 2, 1] {
            let (fault, places) = own_fault(thread);
            help.see(Happened::Fault(fault), &places);
        }

        assert_eq!(help.readers.len(), 2);
        let file = &help.by_file()[0];
        assert_eq!((file.faults, file.threads, file.refused.as_deref()), (3, 2, None));
    }

    #[test]
    fn a_file_that_the_trace_does_not_know_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.flt");
        let mut writer = Writer::create(&path).unwrap();
        let number = writer.file(Some("/other"), 1 << 20);
        writer.run(number, 1, Run::of(Extent { offset: 0, length: 4096 }));
        writer.finish().unwrap();
        let trace = Trace::read(&path).unwrap();
        let mut help = Help {
            options: AssistOptions { trace: Some((path, trace)), ..AssistOptions::default() },
            ..Help::default()
        };

        let (fault, places) = own_fault(1);
        help.see(Happened::Fault(fault), &places);

        assert!(help.readers.is_empty());
        let file = &help.by_file()[0];
        assert_eq!(file.refused.as_deref(), Some("not in the trace"));
        assert!(file.path.starts_with('/'), "it is named all the same: {file:?}");
    }

    /// A file without data that our own program maps, and what a fault in it looks like.
    struct Mapped {
        file: tempfile::NamedTempFile,
        _map: majorfault::map::MappedFile,
        address: u64,
        id: FileId,
    }

    impl Mapped {
        fn new(rows: u64) -> Mapped {
            let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            file.as_file().set_len(rows * ROW).unwrap();
            let map = majorfault::map::MappedFile::open(file.path()).unwrap();
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let line = maps.lines().find(|line| line.ends_with(file.path().to_str().unwrap())).unwrap();
            let address = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
            let mut places = Places::of(std::process::id()).unwrap();
            let majorfault::observe::places::Place::File(id, 0) = places.locate(address) else { panic!("{line}") };
            Mapped { file, _map: map, address, id }
        }

        fn places(&self) -> HashMap<u32, Places> {
            let process = std::process::id();
            HashMap::from([(process, Places::of(process).unwrap())])
        }

        fn fault(&self, thread: u32, row: u64) -> Happened {
            let offset = row * ROW;
            let (process, address) = (std::process::id(), self.address + offset);
            Happened::Fault(FileFault { process, thread, file: self.id, offset, address })
        }

        fn read(&self, offset: u64) -> Happened {
            let (process, extent) = (std::process::id(), Extent { offset, length: 8192 });
            Happened::Read(FileRead { process, thread: 1, file: self.id, extent })
        }
    }

    #[test]
    fn rows_that_calls_read_by_a_stride_are_read_ahead_whole_and_a_scan_is_left_to_the_kernel() {
        let pages_asked = |stride: u64| {
            let (data, mut help) = (Mapped::new(64), Help::default());
            for row in 0..32 {
                help.see(data.read(row * stride), &HashMap::new());
                help.pump();
            }
            let file = help.by_file().remove(0);
            assert_eq!((help.outcome.reads, file.reads, file.threads, file.path.is_empty()), (32, 32, 1, false));
            // Rows of two pages, each of which is asked for, or not.
            assert_eq!(help.gained * 2, file.tally.used);
            (file.tally.asked, file.tally.used)
        };

        let (asked, used) = pages_asked(65536);

        assert!(asked > 64 && asked % 2 == 0 && used >= 2 * 20, "{asked} {used}");
        assert_eq!(pages_asked(8192), (0, 0));
    }

    #[test]
    fn a_file_below_1_mib_that_calls_read_is_left_alone() {
        let (data, mut help) = (Mapped::new(1), Help::default());
        data.file.as_file().set_len(ROW - 1).unwrap();
        help.see(data.read(0), &HashMap::new());
        data.file.as_file().set_len(ROW).unwrap();
        help.see(data.read(0), &HashMap::new());
        assert!(help.files.is_empty() && help.left.contains(&data.id));

        help.left.clear();
        help.see(data.read(0), &HashMap::new());

        assert!(help.files.contains_key(&data.id) && help.left.is_empty());
    }

    #[test]
    fn the_rows_after_those_that_faulted_are_read_ahead_for_each_thread_that_waits_its_turn_once() {
        let data = Mapped::new(4096);
        let (mut help, places) = (Help::default(), data.places());

        for row in 0..64 {
            (1..3).for_each(|thread| help.see(data.fault(thread, u64::from(thread) * 1000 + row), &places));
            assert!(help.busy.len() <= 2);
        }
        assert_eq!(help.busy.len(), 2);
        while !help.busy.is_empty() {
            help.pump();
        }

        let file = &help.by_file()[0];
        assert_eq!((file.path.as_str(), file.faults, file.threads), (data.file.path().to_str().unwrap(), 128, 2));
        assert!(file.tally.asked >= 2 * 8 && file.refused.is_none(), "{file:?}");
    }

    #[test]
    fn a_stride_that_one_thread_proved_is_known_to_the_next() {
        let data = Mapped::new(8192);
        let (mut help, places) = (Help::default(), data.places());
        help.see(data.fault(1, 0), &places);
        help.files.get_mut(&data.id).unwrap().known = Some(ROW);

        // Cached below, so that the faults themselves show nothing; an offset within a huge page, as a scan would not fault there.
        help.see(data.fault(1, 1), &places);
        assert_eq!(help.files[&data.id].known, Some(ROW), "a reader that proved nothing takes nothing away");
        help.readers.get_mut(&(1, data.id)).unwrap().proved = Some(2 * ROW);
        help.see(data.fault(1, 2), &places);

        assert_eq!(help.files[&data.id].known, Some(2 * ROW));
    }

    #[test]
    fn a_file_of_the_trace_is_read_ahead_from_the_first_fault_on() {
        let data = Mapped::new(64);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.flt");
        let mut writer = Writer::create(&path).unwrap();
        let number = writer.file(Some(data.file.path().to_str().unwrap()), 64 * ROW);
        // No stride, so that nobody could guess it.
        for row in [0, 9, 3, 40, 17, 60, 5] {
            writer.run(number, 1, Run::of(Extent { offset: row * ROW, length: 4096 }));
        }
        writer.finish().unwrap();
        let trace = Some((path.clone(), Trace::read(&path).unwrap()));
        let mut help = Help { options: AssistOptions { trace, ..AssistOptions::default() }, ..Help::default() };

        help.see(data.fault(1, 0), &data.places());
        help.pump();

        let file = &help.by_file()[0];
        assert_eq!((file.refused.as_deref(), file.tally.asked, file.tally.learned), (None, 6, true));
    }

    #[test]
    fn a_file_is_opened_with_the_users_reach_and_the_read_ahead_of_its_device() {
        let data = Mapped::new(1);
        let options = AssistOptions { rows: 7, budget: 3 << 20, ..AssistOptions::default() };
        let help = Help { options, ..Help::default() };

        let path = data.file.path().to_str().unwrap().to_owned();
        let (target, _, reach) = help.open(Some(data.file.as_file()), data.id, path).base.unwrap();

        let kilobytes = files::read_ahead_kb(data.id.device).unwrap_or(128);
        assert_eq!((reach.rows, reach.budget, reach.read_ahead), (7, 3 << 20, kilobytes * 1024));
        assert_eq!(target.len(), ROW);
    }

    #[test]
    fn a_stride_of_an_earlier_run_is_known_from_the_first_fault_on() {
        let data = Mapped::new(1);
        let path = data.file.path().to_str().unwrap().to_owned();
        let mut profile = Profile::default();
        profile.learn(&[AssistedFile { path: path.clone(), proved: Some(65536), ..AssistedFile::default() }]);
        let help = Help { options: AssistOptions { profile, ..AssistOptions::default() }, ..Help::default() };

        let known = |path| help.open(Some(data.file.as_file()), data.id, path).known;
        assert_eq!((known(path), known("/other".to_owned())), (Some(65536), None));
    }

    #[test]
    fn no_more_readers_than_4096_are_made_and_their_threads_are_counted() {
        let data = Mapped::new(1);
        let (mut help, places) = (Help::default(), data.places());

        (0..4100).for_each(|thread| help.see(data.fault(thread, 0), &places));

        assert_eq!((help.readers.len(), help.by_file()[0].threads), (4096, 4100));
    }

    #[test]
    fn files_come_in_the_order_of_what_was_read_for_them_then_of_their_faults() {
        let mut help = Help::default();
        for (inode, asked, faults) in [(1, 0, 3), (2, 5, 1), (3, 0, 9), (4, 7, 1)] {
            let tally = ReadCounts { asked, ..ReadCounts::default() };
            let outcome = AssistedFile { path: inode.to_string(), faults, tally, ..AssistedFile::default() };
            help.files.insert(FileId { inode, ..FILE }, Followed { outcome, base: None, known: None });
        }

        let order: Vec<String> = help.by_file().into_iter().map(|file| file.path).collect();

        assert_eq!(order, ["4", "2", "3", "1"]);
    }

    #[test]
    fn faults_are_looked_at_soon_where_the_next_ones_matter_and_later_where_nothing_happens() {
        let millis = Duration::from_millis;
        let (mut help, _file) = helping(1, None);

        help.alert = true;
        assert_eq!(help.pause_after(millis(5), 0), Duration::from_micros(300));
        assert_eq!(help.pause_after(millis(5), 1), millis(3), "the alert was for one look");
        assert_eq!(help.pause_after(millis(2), 0), Duration::from_micros(2500));
        assert_eq!(help.pause_after(millis(5), 0), millis(5));
        help.busy.push_back((0, FILE));
        assert_eq!(help.pause_after(millis(5), 0), Duration::ZERO);
    }

    #[test]
    fn a_fault_of_a_reader_that_is_on_to_something_makes_the_next_look_soon() {
        let data = Mapped::new(64);
        let (mut help, places) = (Help::default(), data.places());
        help.see(data.fault(1, 0), &places);
        assert!(!help.alert);

        (1..9).for_each(|row| help.see(data.fault(1, row), &places));
        assert!(help.alert);
        // A thread of which nothing is known yet takes nothing away.
        help.see(data.fault(2, 0), &places);
        assert!(help.alert);
    }

    /// A program that faults in files until it has counted this far, or we are gone.
    struct Program(std::process::Child);

    impl Program {
        fn start(rounds: &str) -> Program {
            let turn = "n=$((n+1)); i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; : $(:)";
            let script = format!("n=0; while [ $n -lt {rounds} ] && kill -0 $PPID; do {turn}; done");
            Program(std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap())
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What was done for a program within these limits; none where faults cannot be seen here.
    fn help_live(test: &str, rounds: &str, length: Option<Duration>, stop: bool) -> Option<Assisted> {
        let program = Program::start(rounds);
        // Its end is not seen as long as nobody waits for it, were it not for the state of a process.
        let options = AssistOptions { length, ..AssistOptions::default() };
        match assist(WatchTarget::running(program.0.id()), options, &AtomicBool::new(stop)) {
            Err(Error::Missing(missing)) => {
                eprintln!("SKIPPED {test}: {missing}");
                None
            }
            other => Some(other.unwrap()),
        }
    }

    #[test]
    fn a_program_is_watched_for_as_long_as_asked_and_its_faults_are_counted() {
        let length = Duration::from_millis(600);
        let test = "a_program_is_watched_for_as_long_as_asked_and_its_faults_are_counted";
        let Some(assisted) = help_live(test, "1000000", Some(length), false) else { return };

        assert!(!assisted.ended && assisted.length >= length, "{assisted:?}");
        assert!(assisted.in_files > 0 && assisted.faults > assisted.in_files, "{assisted:?}");
        assert!(assisted.own_time > Duration::ZERO && assisted.program_time > Duration::ZERO, "{assisted:?}");
        // Neither counts what was used before.
        assert!(assisted.program_time < 2 * assisted.length, "{assisted:?}");
        let of_files: u64 = assisted.files.iter().map(|file| file.faults).sum();
        assert_eq!((of_files, assisted.unfollowed), (assisted.in_files, 0));
    }

    #[test]
    fn it_ends_with_the_program() {
        let Some(assisted) = help_live("it_ends_with_the_program", "20", None, false) else { return };

        assert!(assisted.ended, "{assisted:?}");
    }

    #[test]
    fn it_ends_at_once_where_it_is_told_to() {
        let Some(assisted) = help_live("it_ends_at_once_where_it_is_told_to", "1000000", None, true) else { return };

        assert!(!assisted.ended && assisted.length < Duration::from_secs(60), "{assisted:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_any_more_is_refused_and_gets_no_readers() {
        let data = Mapped::new(1);
        let (mut help, places) = (Help::default(), data.places());
        help.see(data.fault(1, 0), &places);

        help.files.get_mut(&data.id).unwrap().refuse(&Error::Invalid("it is gone".to_owned()));
        help.see(data.fault(2, 0), &places);

        assert_eq!(help.readers.len(), 1);
        let file = &help.by_file()[0];
        assert_eq!((file.refused.as_deref(), file.faults), (Some("it is gone"), 2));
    }

    #[test]
    fn a_process_that_is_not_there_has_no_processor_time_and_is_not_helped() {
        assert_eq!(program_time(u32::MAX), None);
        assert!(program_time(std::process::id()).is_some());
        let nobody = WatchTarget::running(u32::MAX);
        assert!(assist(nobody, AssistOptions::default(), &AtomicBool::new(false)).is_err());
    }

    #[test]
    fn the_processor_time_of_a_program_is_user_and_system_time_in_hundredths_of_a_second() {
        let stat = "77 (a) b) S 1 77 77 0 -1 4194304 100 200 3 4 250 50 7 8 20 0 4 0 123456 1000000 500";

        assert_eq!(time_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(time_of(""), None);
    }
}
