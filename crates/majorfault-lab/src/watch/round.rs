//! One round of a watch: counts what the sampler shows, and reads what changes slowly.

use super::advice::AdviceWatch;
use super::blocked::Blocked;
use super::details;
use super::evidence::{
    Calls, Evidence, FaultCounts, FileMapping, Group, MappedFile, NEARLY_ALL, Process, Stack, Watched,
};
use super::gather::WatchOptions;
use super::grid::FaultTimeline;
use super::reads::ReadTally;
use super::stacks::StackTally;
use super::status;
use super::tally::{Tally, Track};
use crate::place;
use crate::watch::files;
use majorfault::observe::pacing::Coverage;
use majorfault::observe::pattern::{self, Access};
use majorfault::observe::places::{FileId, Place, Places};
use majorfault::observe::sampler::Seen;
use majorfault::observe::{Kind, Observer, Scene, Snapshot};
use majorfault::proc::mounts::Mount;
use majorfault::proc::smaps;
use majorfault::sys::clock::monotonic;
use majorfault::{Missing, Nanos};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The most files that are opened for their size and cached bytes.
const MOST_FILES: usize = 256;

/// The most descriptors that are examined.
const MOST_DESCRIPTORS: usize = 256;

/// Readings of cached bytes take at most a twentieth of the time: each costs more, the more is cached.
const CACHE_SHARE: u32 = 20;

/// Fewer read calls are no reason to miss their order.
const FEWEST_READS: u64 = 100;

/// What the sampler knows to have missed in a round.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Records that did not fit.
    pub lost: u64,
    /// Threads that were not followed.
    pub unfollowed: usize,
    /// How much of the time was sampled.
    pub coverage: Coverage,
}

/// A round in progress.
pub struct Round {
    pid: u32,
    length: Duration,
    since: Nanos,
    places: Places,
    advice: Option<AdviceWatch>,
    /// None for a process that has just been forked: most of them end soon.
    counters: Option<Counters>,
    faults: FaultCounts,
    timeline: FaultTimeline,
    threads: HashSet<u32>,
    /// Nanoseconds that each thread waited in files.
    waiting: HashMap<u32, u64>,
    /// Sum of the squares of what was waited by those that stand for several.
    waited_squares: f64,
    /// Waits in files that were seen themselves.
    waits_seen: u64,
    blocked: Blocked,
    tallies: HashMap<FileId, Tally>,
    tracks: HashMap<FileId, Track>,
    /// Files that calls read, and why that is not seen.
    reads: ReadTally,
    no_reads: Option<Missing>,
    /// None where nobody asked for them.
    stacks: Option<StackTally>,
    calls: [Option<Calls>; 2],
    process: Process,
    target: Watched,
    group: Option<Group>,
    mounts: Vec<Mount>,
    missing: Vec<Missing>,
    /// Whether faults cannot be seen.
    is_blind: bool,
    cache_not_before: Instant,
    /// What a fault that stands for several left over when it was counted in whole numbers.
    rest: f64,
    /// Whether the process has ended.
    pub ended: bool,
}

/// The counters of a process, from a first reading on.
struct Counters {
    observer: Observer,
    first: Snapshot,
    last: Snapshot,
}

impl Counters {
    fn open(scene: &Scene) -> Counters {
        let mut observer = Observer::open_cheap(scene);
        let first = observer.read();
        Counters { observer, last: first.clone(), first }
    }

    /// Each keeps its last value when the process is gone.
    fn read(&mut self) {
        let now = self.observer.read();
        for (last, now) in self.last.values.iter_mut().zip(&now.values) {
            *last = now.or(*last);
        }
    }

    /// Growth of totals, and levels, by name.
    fn values(&self) -> Vec<(&'static str, u64)> {
        let values = self.first.values.iter().zip(&self.last.values);
        let pairs = self.observer.counters().zip(values);
        pairs
            .filter_map(|(counter, (first, last))| match counter.kind {
                Kind::Total => Some((counter.name, (*last)?.saturating_sub((*first)?))),
                Kind::Level => Some((counter.name, (*last)?)),
            })
            .collect()
    }
}

impl Round {
    /// Starts a round at the moment `since`; `gap` is the reason why faults cannot be seen.
    pub fn new(pid: u32, places: Places, gap: Option<&Missing>, options: WatchOptions, since: Nanos) -> Round {
        let mut round = Round::of_new(pid, places, options, since);
        round.missing.extend(gap.cloned());
        round.is_blind = gap.is_some();
        round.open_all(options.advice);
        round.levels();
        round
    }

    /// Starts a round of a process that has just been forked, with its faults alone.
    pub fn of_new(pid: u32, places: Places, options: WatchOptions, since: Nanos) -> Round {
        Round {
            pid,
            length: options.length,
            since,
            places,
            advice: None,
            counters: None,
            faults: FaultCounts::default(),
            timeline: FaultTimeline::new(options.length),
            threads: HashSet::new(),
            waiting: HashMap::new(),
            waited_squares: 0.0,
            waits_seen: 0,
            blocked: Blocked::new(),
            tallies: HashMap::new(),
            tracks: HashMap::new(),
            reads: ReadTally::new(options.length),
            no_reads: None,
            stacks: options.stacks.then(StackTally::default),
            calls: [None; 2],
            process: Process::default(),
            target: Watched { pid, ..Watched::default() },
            group: None,
            mounts: Vec::new(),
            missing: Vec::new(),
            is_blind: false,
            cache_not_before: Instant::now(),
            rest: 0.0,
            ended: false,
        }
    }

    /// The same where reads by calls are not seen.
    pub fn lacking_reads(self, gap: Option<&Missing>) -> Round {
        Round { no_reads: gap.cloned(), ..self }
    }

    /// Opens everything else that is watched of a process.
    fn open_all(&mut self, advice: bool) {
        let pid = self.pid;
        let found = place::of_process(pid);
        let cgroup = found.as_ref().map(|(dir, _)| dir.clone());
        let files = data_paths(pid, &self.places);
        if advice {
            self.advice = AdviceWatch::open(pid).map_err(|gap| self.missing.push(gap)).ok();
        }
        let counters = Counters::open(&Scene { pid: Some(pid), cgroup, files, ..Scene::default() });
        self.missing.extend(counters.observer.missing().iter().cloned());
        self.counters = Some(counters);
        self.calls = [status::calls(pid); 2];
        self.target = status::target(pid);
        self.group = found.map(|(dir, limit)| status::group(&dir, limit.map(|bytes| bytes.0)));
        self.mounts = files::mounts(pid);
    }

    /// The round begins at this time, not earlier; its counters as well.
    pub fn begin(&mut self, since: Nanos) {
        self.since = since;
        self.calls[0] = status::calls(self.pid);
        if let Some(counters) = &mut self.counters {
            counters.first = counters.observer.read();
        }
    }

    /// The mappings of a process that this one forked at that time.
    pub fn forked(&self, child: u32, at: Nanos) -> Places {
        self.places.forked(child, at)
    }

    /// Its mappings, for the next round.
    pub fn places(&self) -> Places {
        self.places.clone()
    }

    /// Whole numbers whose sum is that of the weights.
    fn whole(&mut self, weight: f64) -> u64 {
        let exact = weight + self.rest;
        self.rest = exact.fract();
        exact as u64
    }

    /// Counts what the sampler shows.
    #[cfg(test)]
    pub fn see(&mut self, seen: Seen) {
        self.see_weighted(seen, 1.0);
    }

    /// The same for what stands for several events of the process.
    pub fn see_weighted(&mut self, seen: Seen, weight: f64) {
        match seen {
            Seen::Fault { process, thread, at, address, instruction, callers } if process == self.pid => {
                let count = self.whole(weight);
                let file = self.fault(Access { thread, offset: address }, at, count);
                if let Some((file, stacks)) = file.zip(self.stacks.as_mut()) {
                    stacks.fault(thread, file, [vec![instruction], callers].concat(), count);
                }
            }
            Seen::Waited { process, thread, at, address, waited, major } if process == self.pid => {
                let count = if major { 1 } else { self.whole(weight) };
                self.faults.major += u64::from(major);
                self.wait(Access { thread, offset: address }, at, (waited, major), count);
            }
            Seen::Read(call) if call.process == self.pid => {
                let (count, at_ns) = (self.whole(weight), self.moment(call.at));
                self.reads.add(call, at_ns, count);
            }
            Seen::Mapped(mapped) if mapped.process == self.pid => {
                self.faults.mapped += 1;
                self.faults.mapped_files += u64::from(mapped.inode != 0);
                self.places.note(mapped);
            }
            Seen::Forked { parent, .. } if parent == self.pid => self.faults.forks += 1,
            Seen::Executed { process, at, name } if process == self.pid => {
                self.places.execute(at);
                self.target = Watched { command: name.clone(), name, ..self.target };
            }
            _ => {}
        }
    }

    /// Counts a fault at an address; returns the file that it is in.
    fn fault(&mut self, Access { thread, offset: address }: Access, at: Nanos, count: u64) -> Option<FileId> {
        let at_ns = self.moment(at);
        let place = self.places.locate_at(address, at);
        let moment = self.timeline.at(at_ns);
        moment.faults += count;
        self.faults.seen += count;
        self.threads.insert(thread);
        match place {
            Place::File(id, offset) => {
                moment.in_files += count;
                self.faults.in_files += count;
                self.tally(id).add_many(Access { thread, offset }, at_ns, count);
                return Some(id);
            }
            Place::Anonymous => self.faults.anonymous += count,
            Place::Unknown => self.faults.unresolved += count,
        }
        None
    }

    /// Counts a fault that has waited at an address.
    fn wait(&mut self, access: Access, at: Nanos, (waited, major): (Option<Nanos>, bool), count: u64) {
        // Long faults in anonymous memory clear huge pages; no thread waits for a device.
        let Place::File(id, offset) = self.places.locate_at(access.offset, at) else { return };
        let ended_ns = self.moment(at);
        let waited_ns = waited.map(|waited| waited.0);
        self.faults.waits += count;
        self.waits_seen += 1;
        self.faults.waited_ns += waited_ns.unwrap_or(0) * count;
        *self.waiting.entry(access.thread).or_default() += waited_ns.unwrap_or(0) * count;
        self.waited_squares += if count > 1 { ((waited_ns.unwrap_or(0) * count) as f64).powi(2) } else { 0.0 };
        if let Some(waited_ns) = waited_ns {
            if let Some(stacks) = &mut self.stacks {
                stacks.wait(access.thread, Nanos(waited_ns), count);
            }
            self.timeline.wait(self.moment(Nanos(at.0.saturating_sub(waited_ns))), ended_ns);
        }
        let tally = self.tally(id);
        tally.wait(waited_ns, major, count);
        if waited.is_none() {
            // It began in a pause: its place in the order is known all the same.
            tally.add_many(Access { offset, ..access }, ended_ns, 0);
        }
    }

    /// Counts the advice calls since the last time. Called after the faults, which report new mappings.
    pub fn read_advice(&mut self) {
        if let Some(advice) = &mut self.advice {
            advice.read(&mut self.places);
        }
    }

    /// Nanoseconds since the beginning of the round. What comes after its end belongs to its last bin.
    fn moment(&self, at: Nanos) -> u64 {
        at.0.saturating_sub(self.since.0).min((self.length.as_nanos() as u64).saturating_sub(1))
    }

    fn tally(&mut self, id: FileId) -> &mut Tally {
        self.tallies.entry(id).or_insert_with(|| Tally::new(self.length))
    }

    /// Reads what changes slowly: counters, status, sizes of files. Each keeps its last value when the process is gone.
    pub fn levels(&mut self) {
        match &mut self.counters {
            Some(counters) => counters.read(),
            // It has lived long enough to be worth it.
            None => self.open_all(false),
        }
        self.calls[1] = status::calls(self.pid).or(self.calls[1]);
        if self.target.name.is_empty() || self.target.command == self.target.name {
            let target = status::target(self.pid);
            self.target = if target.name.is_empty() { std::mem::take(&mut self.target) } else { target };
        }
        self.places.refresh();
        if let Some(process) = status::process(self.pid, self.places.mappings().len() as u64) {
            self.process = process;
        }
        for vma in self.places.mappings().iter().filter(|vma| vma.is_file()) {
            let id = FileId { device: vma.device, inode: vma.inode };
            if self.tracks.len() < MOST_FILES && !self.tracks.contains_key(&id) {
                let file = files::open(self.pid, &vma.path, id);
                self.tracks.insert(id, Track::of(file));
            }
        }
        self.tracks.values_mut().for_each(Track::look);
        if self.is_blind && Instant::now() >= self.cache_not_before {
            let began = Instant::now();
            self.tracks.values_mut().for_each(Track::look_at_cache);
            self.cache_not_before = Instant::now() + began.elapsed() * CACHE_SHARE;
        }
    }

    /// The faults of this round, with the gaps that the sampler knows of.
    pub fn seen(&mut self, gaps: &Gaps) -> FaultCounts {
        let coverage = &gaps.coverage;
        let mut error = coverage.error();
        if coverage.share() < NEARLY_ALL {
            let is_counted = self.scale_to_kernels_count();
            error = if is_counted { Some(coverage.share_error()) } else { error };
            self.missing.push(estimated(coverage.share(), is_counted, error));
        }
        let added_ns: u64 = self.tallies.values_mut().map(Tally::complete).sum();
        self.faults.waited_ns += added_ns;
        let waited_error = self.waited_error(coverage.share() >= NEARLY_ALL);
        FaultCounts {
            seen: self.faults.seen.max(self.faults.major),
            lost: gaps.lost,
            unfollowed: gaps.unfollowed,
            threads: self.threads.len(),
            waiting_ns: self.waiting.values().copied().filter(|ns| *ns > 0).collect(),
            sampled: Some(coverage.share()),
            error,
            waited_error,
            ..self.faults.clone()
        }
    }

    /// The error of what was waited, which is corrected where looks at the threads tell it: few waits that stand for many tell it badly, and
    /// seldom enough none is among those that are seen.
    fn waited_error(&mut self, are_all_seen: bool) -> Option<f64> {
        if are_all_seen {
            return Some(0.0);
        }
        let watched = self.length.min(Duration::from_nanos(monotonic().0.saturating_sub(self.since.0)));
        let waited_ns = self.faults.waited_ns;
        match self.blocked.waited(watched).filter(|_| self.counted("swap_in_pages") == Some(0)) {
            Some((blocked, error)) if self.waits_seen >= FEWEST_WAITS && waited_ns > 0 => {
                self.scale_waits(blocked.0 as f64 / waited_ns as f64);
                Some(error)
            }
            Some((blocked, error)) => {
                if blocked.0 as f64 * (1.0 - error) >= watched.as_nanos() as f64 * MUCH {
                    self.missing.push(unplaced(blocked, watched, self.waits_seen));
                }
                None
            }
            None => {
                self.limit_waits();
                let error = NORMAL * self.waited_squares.sqrt() / waited_ns as f64;
                Some(error).filter(|error| *error > 0.0)
            }
        }
    }

    fn scale_waits(&mut self, factor: f64) {
        let longest_ns = self.length.as_nanos() as u64;
        let scale = |count: &mut u64| *count = (*count as f64 * factor).round() as u64;
        let FaultCounts { waits, waited_ns, .. } = &mut self.faults;
        [waits, waited_ns].into_iter().for_each(scale);
        for tally in self.tallies.values_mut() {
            [&mut tally.waits, &mut tally.waited_ns].into_iter().for_each(scale);
            tally.waits = tally.waits.max(tally.major);
        }
        self.waiting.values_mut().for_each(|ns| {
            scale(ns);
            *ns = (*ns).min(longest_ns);
        });
    }

    /// Looks at what its threads are blocked in; only needed where not all faults are seen.
    pub fn look(&mut self) {
        self.blocked.look(self.pid);
    }

    /// The growth of a counter in this round.
    fn counted(&self, name: &str) -> Option<u64> {
        self.counters.as_ref()?.values().into_iter().find(|(known, _)| *known == name).map(|it| it.1)
    }

    /// No thread waited longer than it was watched: where few waits stand for many, their sum may be more.
    fn limit_waits(&mut self) {
        let before: u64 = self.waiting.values().sum();
        let longest_ns = self.length.as_nanos() as u64;
        self.waiting.values_mut().for_each(|ns| *ns = (*ns).min(longest_ns));
        let after: u64 = self.waiting.values().sum();
        if after < before {
            let factor = after as f64 / before as f64;
            let limit = |ns: &mut u64| *ns = (*ns as f64 * factor).round() as u64;
            limit(&mut self.faults.waited_ns);
            self.tallies.values_mut().for_each(|tally| limit(&mut tally.waited_ns));
        }
    }

    /// Windows tell which faults there are, but how many the kernel counts itself: on a busy machine the watcher takes the very
    /// processor that the process would run on.
    ///
    /// Returns whether it did count.
    fn scale_to_kernels_count(&mut self) -> bool {
        let counts = self.counted("minor_faults").zip(self.counted("major_faults"));
        let Some((minor, major)) = counts else { return false };
        if self.faults.seen == 0 || minor + major == 0 {
            return false;
        }
        let factor = (minor + major) as f64 / self.faults.seen as f64;
        let scale = |count: &mut u64| *count = (*count as f64 * factor).round() as u64;
        let FaultCounts { seen, in_files, anonymous, unresolved, .. } = &mut self.faults;
        [seen, in_files, anonymous, unresolved].into_iter().for_each(scale);
        self.tallies.values_mut().for_each(|tally| tally.scale(factor));
        self.timeline.scale(factor);
        true
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether its counters are read, not only its faults.
    pub fn is_counted(&self) -> bool {
        self.counters.is_some()
    }

    /// Nanoseconds that its threads waited in files so far.
    pub fn waited_ns(&self) -> u64 {
        self.faults.waited_ns
    }

    /// Faults in files so far.
    pub fn in_files(&self) -> u64 {
        self.faults.in_files
    }

    /// The evidence at the end.
    pub fn into_evidence(mut self, watched: Duration, faults: Option<FaultCounts>, deep: bool) -> Evidence {
        let details = match self.ended {
            true => Ok(Vec::new()),
            false => {
                details::wanted(deep, self.process.resident_bytes).and_then(|()| details::read(self.pid, &self.tallies))
            }
        };
        let details = details.unwrap_or_else(|gap| {
            self.missing.push(gap);
            Vec::new()
        });
        let huge = (!details.is_empty()).then(|| details::huge(&details));
        // All on one time axis, whenever the last fault of each was.
        let last_ns = self.moment(Nanos(self.since.0 + watched.as_nanos() as u64));
        self.timeline.cover(last_ns);
        self.tallies.values_mut().for_each(|tally| tally.grid.cover(last_ns));
        self.reads.cover(last_ns);
        let files = self.mapped_files(&details);
        let advice = self.advice.take().map(AdviceWatch::into_evidence);
        let stacks = self.stacks_of_code();
        let calls = status::grown(self.calls);
        let is_worth_it = calls.is_some_and(|calls| calls.read_calls >= FEWEST_READS);
        self.missing.extend(self.no_reads.take().filter(|_| is_worth_it));
        Evidence {
            watched,
            process: self.process.clone(),
            calls,
            files,
            reads: std::mem::take(&mut self.reads).into_files(),
            descriptors: self
                .counters
                .as_ref()
                .map(|_| files::descriptors(self.pid, MOST_DESCRIPTORS))
                .unwrap_or_default(),
            counters: self.counters.as_ref().map(Counters::values).unwrap_or_default(),
            machine: status::machine(),
            huge,
            timeline: faults.is_some().then_some(self.timeline),
            faults,
            advice,
            stacks,
            target: self.target,
            group: self.group,
            missing: self.missing,
            ended: self.ended,
        }
    }

    /// The stacks that were recorded, if they were.
    fn stacks_of_code(&mut self) -> Vec<Stack> {
        let Some(stacks) = self.stacks.take() else { return Vec::new() };
        if stacks.left_out() > 0 {
            let reason = format!("{} faults of too many different stacks", stacks.left_out());
            self.missing.push(Missing::new("some stacks", reason, "watch for a shorter time"));
        }
        stacks.into_stacks(&mut self.places)
    }

    /// Files mapped at the end, and files that were mapped during the watch and faulted.
    fn mapped_files(&mut self, details: &[smaps::Detail]) -> Vec<MappedFile> {
        let deep: HashMap<u64, &smaps::Detail> = details.iter().map(|detail| (detail.vma.start, detail)).collect();
        let mut files: HashMap<FileId, MappedFile> = HashMap::new();
        // One reading for both, where there are details: mappings change.
        let known: Vec<_> = match details {
            [] => self.places.mappings().to_vec(),
            details => details.iter().map(|detail| detail.vma.clone()).collect(),
        };
        for vma in known.iter().filter(|vma| vma.is_file()) {
            let id = FileId { device: vma.device, inode: vma.inode };
            let file =
                files.entry(id).or_insert_with(|| MappedFile { id, deleted: vma.deleted, ..MappedFile::default() });
            file.mappings
                .push(FileMapping { vma: vma.clone(), deep: deep.get(&vma.start).map(|it| details::deep_of(it)) });
        }
        for id in self.tallies.keys() {
            files.entry(*id).or_insert_with(|| MappedFile { id: *id, ..MappedFile::default() });
        }
        let mut files: Vec<MappedFile> = files.into_values().map(|file| self.completed(file)).collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.faults, file.mapped_bytes())));
        files
    }

    fn completed(&mut self, mut file: MappedFile) -> MappedFile {
        file.path = self.places.path(file.id).unwrap_or("(gone)").to_owned();
        if let Some(mount) = files::mount_of(&self.mounts, file.id.device) {
            file.filesystem.clone_from(&mount.kind);
            file.mount_options.clone_from(&mount.options);
        }
        file.read_ahead_kb = files::read_ahead_kb(file.id.device);
        if let Some(advice) = &self.advice {
            file.advised = advice.latest(file.id);
            file.populate_calls = advice.populates(file.id);
        }
        if let Some(track) = self.tracks.get(&file.id) {
            file.size_bytes = track.size_bytes;
            file.shrunk = track.shrunk;
            file.cached_bytes = track.file.as_ref().and_then(files::cached_bytes);
            file.came_bytes = track.came_bytes();
            file.reached = files::reached(self.pid, &file.path, file.id).filter(|path| *path != *file.path);
        }
        if let Some(tally) = self.tallies.remove(&file.id) {
            file.faults = tally.faults.max(tally.major);
            file.major = tally.major;
            file.waits = tally.waits;
            file.waited_ns = tally.waited_ns;
            file.touched_pages = tally.pages.len() as u64;
            file.latest = tally.latest.into();
            file.order = Some(pattern::recognise(&file.latest));
            file.grid = Some(tally.grid);
        }
        file
    }
}

/// That minor faults are seen in a part of the time; `is_counted` where the kernel tells their number.
fn estimated(share: f64, is_counted: bool, error: Option<f64>) -> Missing {
    let error = error.map_or("by an error that is not known".to_owned(), |error| format!("+-{:.0} %", 100.0 * error));
    let what =
        if is_counted { "their number is the kernel's, their places are known" } else { "their number is estimated" };
    let why = "there are so many that to see all would slow the program down";
    Missing::new("all minor faults", format!("{why}: {what} from {:.1} % of the time, {error}", 100.0 * share), "")
}

/// Waits seen from which on they tell in which files all are.
const FEWEST_WAITS: u64 = 10;

/// Share of a thread's time, waited in faults of which fewer were seen, from which on that is told.
const MUCH: f64 = 0.1;

/// Normal quantile of an interval that holds the true value in 95 % of the cases.
const NORMAL: f64 = 1.96;

fn unplaced(blocked: Nanos, watched: Duration, seen: u64) -> Missing {
    let share = 100.0 * blocked.0 as f64 / watched.as_nanos() as f64;
    Missing::new(
        "what threads wait for in faults",
        format!("{share:.0} % of a thread's time is waited in faults, and of those that were sampled {seen} waited"),
        "watch for longer: --for 30s",
    )
}

/// Mapped files that hold data; the counters of files and devices observe them.
fn data_paths(pid: u32, places: &Places) -> Vec<PathBuf> {
    let executable: HashSet<(u64, (u32, u32))> =
        places.mappings().iter().filter(|vma| vma.rights[2] == b'x').map(|vma| (vma.inode, vma.device)).collect();
    let data = places.mappings().iter().filter(|vma| vma.is_file() && !executable.contains(&(vma.inode, vma.device)));
    let mut paths: Vec<PathBuf> = data
        .filter_map(|vma| {
            files::open(pid, &vma.path, FileId { device: vma.device, inode: vma.inode })?;
            Some(PathBuf::from(&vma.path)).filter(|path| path.exists())
        })
        .take(MOST_FILES)
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::observe::sampler::Mapped;

    const SINCE: u64 = 1_000_000_000;

    /// A round of one second that watches this test, without a sampler.
    fn own() -> Round {
        let pid = std::process::id();
        let gap = Missing::new("faults", "a test", "");
        let options = WatchOptions { length: Duration::from_secs(1), deep: false, stacks: false, advice: false };
        Round::new(pid, Places::of(pid).unwrap(), Some(&gap), options, Nanos(SINCE))
    }

    /// An address in a file that this test has mapped: its own program.
    fn in_a_file() -> u64 {
        own as *const () as u64
    }

    /// An address on the stack.
    fn in_memory() -> u64 {
        let here = std::process::id();
        std::ptr::from_ref(&here) as u64
    }

    fn fault(process: u32, address: u64) -> Seen {
        Seen::Fault { process, thread: 7, at: Nanos(SINCE + 5), address, instruction: 0, callers: Vec::new() }
    }

    fn waited(address: u64, waited_ns: Option<u64>, major: bool) -> Seen {
        let (process, waited) = (std::process::id(), waited_ns.map(Nanos));
        Seen::Waited { process, thread: 7, at: Nanos(SINCE + 500_000_000), address, waited, major }
    }

    #[test]
    fn faults_are_told_apart_by_their_place() {
        let mut round = own();
        let pid = std::process::id();

        for address in [in_a_file(), in_a_file(), in_memory(), 0] {
            round.see(fault(pid, address));
        }
        round.see(fault(pid + 1, in_a_file()));

        let FaultCounts { seen, in_files, anonymous, unresolved, waits, .. } = round.faults;
        assert_eq!((seen, in_files, anonymous, unresolved, waits), (4, 2, 1, 1, 0));
        assert_eq!((round.tallies.len(), round.threads.len()), (1, 1));
        assert_eq!(round.tallies.values().next().unwrap().faults, 2);
        assert_eq!((round.timeline.bins[0].faults, round.timeline.bins[0].in_files), (4, 2));
    }

    #[test]
    fn waits_count_in_files_only_and_reads_everywhere() {
        let mut round = own();

        round.see(waited(in_a_file(), Some(3000), true));
        round.see(waited(in_a_file(), Some(4000), false));
        round.see(waited(in_a_file(), None, true));
        round.see(waited(in_memory(), Some(9000), true));

        let FaultCounts { major, waits, waited_ns, seen, .. } = round.faults;
        assert_eq!((major, waits, waited_ns, seen), (3, 3, 7000, 0));
        let tally = round.tallies.values().next().unwrap();
        assert_eq!((tally.major, tally.waits, tally.waited_ns), (2, 3, 7000));
        assert_eq!(round.timeline.bins.iter().map(|moment| moment.waited_ns).sum::<u64>(), 7000);
    }

    #[test]
    fn what_few_waits_stand_for_is_told_with_its_error_and_is_no_longer_than_the_watch() {
        let mut round = own();
        let second = 1_000_000_000;
        let length = round.length.as_nanos() as u64;
        let mut coverage = Coverage::default();
        assert_eq!(round.seen(&Gaps { lost: 0, unfollowed: 0, coverage: coverage.clone() }).waited_error, Some(0.0));
        coverage.note(Nanos(900), Nanos(100), 1);
        let gaps = Gaps { lost: 0, unfollowed: 0, coverage };

        assert_eq!(round.seen(&gaps).waited_error, None);
        round.see(waited(in_a_file(), Some(second / 10), true));
        assert_eq!(round.seen(&gaps).waited_error, None, "those that stand for one are not all");
        round.see_weighted(waited(in_a_file(), Some(second / 100), false), 10.0);
        // One that stands for ten, of twice as much: 1.96 / 2.
        let error = round.seen(&gaps).waited_error.unwrap();
        assert!((error - 0.98).abs() < 1e-6, "{error}");

        round.see_weighted(waited(in_a_file(), Some(length), false), 10.0);
        let seen = round.seen(&gaps);
        assert_eq!((seen.waited_ns, seen.waiting_ns), (length, vec![length]));
        assert_eq!(round.tallies.values().map(|tally| tally.waited_ns).sum::<u64>(), length);
    }

    #[test]
    fn looks_at_blocked_threads_correct_what_few_waits_stand_for_and_are_told_where_none_was_seen() {
        let mut coverage = Coverage::default();
        coverage.note(Nanos(900), Nanos(100), 1);
        let gaps = Gaps { lost: 0, unfollowed: 0, coverage };
        let second = 1_000_000_000;
        let with = |looks: f64| {
            let mut round = own();
            round.blocked = Blocked::looked(&[looks; 50]);
            round
        };
        let mut round = with(3.0);
        (0..10).for_each(|_| round.see_weighted(waited(in_a_file(), Some(second / 1000), false), 10.0));
        let seen = round.seen(&gaps);
        let is_swapping = round.counted("swap_in_pages") != Some(0);
        if is_swapping {
            return eprintln!("SKIPPED: the machine swaps, and what faults wait for is not known to be files");
        }
        assert_eq!((seen.waits, seen.waited_ns, seen.waited_error), (3000, 3 * second, Some(0.0)));
        assert_eq!(seen.waiting_ns, [second]);
        assert_eq!(
            round.tallies.values().map(|tally| (tally.waits, tally.waited_ns)).collect::<Vec<_>>(),
            [(3000, 3 * second)]
        );

        let mut round = with(0.11);
        (0..9).for_each(|_| round.see_weighted(waited(in_a_file(), Some(second / 1000), false), 10.0));
        assert_eq!(round.seen(&gaps).waited_error, None);
        assert!(round.missing.iter().any(|missing| missing.what.contains("wait for in faults")));
        let mut round = with(0.09);
        round.seen(&gaps);
        assert!(!round.missing.iter().any(|missing| missing.what.contains("wait for in faults")));
    }

    #[test]
    fn mappings_and_forks_are_those_of_the_process() {
        let (mut round, pid) = (own(), std::process::id());
        let mapped = |process, inode| {
            let path = "/x".to_owned();
            Seen::Mapped(Mapped {
                process,
                at: Nanos(0),
                address: 0x1000,
                length: 4096,
                offset: 0,
                device: (8, 1),
                inode,
                path,
            })
        };

        [mapped(pid, 0), mapped(pid, 5), mapped(pid, 6), mapped(pid + 1, 5)].into_iter().for_each(|it| round.see(it));
        round.see(Seen::Forked { process: pid + 1, parent: pid, at: Nanos(0) });
        round.see(Seen::Forked { process: pid + 2, parent: pid, at: Nanos(0) });
        round.see(Seen::Forked { process: pid, parent: pid + 1, at: Nanos(0) });

        assert_eq!((round.faults.mapped, round.faults.mapped_files, round.faults.forks), (3, 2, 2));
    }

    #[test]
    fn what_comes_before_or_after_the_round_belongs_to_its_edges() {
        let round = own();

        assert_eq!(round.moment(Nanos(SINCE - 1)), 0);
        assert_eq!(round.moment(Nanos(SINCE + 999_999_999)), 999_999_999);
        assert_eq!(round.moment(Nanos(SINCE + 1_000_000_001)), 999_999_999);
    }

    #[test]
    fn the_evidence_has_what_was_counted_for_each_file() {
        let mut round = own();
        let pid = std::process::id();
        (0..3).for_each(|_| round.see(fault(pid, in_a_file())));
        round.see(waited(in_a_file(), Some(3000), true));
        let faults = round.faults.clone();

        let evidence = round.into_evidence(Duration::from_secs(1), Some(faults), false);

        let file = &evidence.files[0];
        assert_eq!((file.faults, file.major, file.waits, file.waited_ns, file.touched_pages), (3, 1, 1, 3000, 1));
        assert_eq!((file.latest.len(), file.order.is_some(), file.deleted), (3, true, false));
        assert!(file.size_bytes.unwrap() > 0 && !file.is_data() && file.mappings.iter().all(|it| it.deep.is_some()));
        assert_eq!(evidence.timeline.unwrap().bins.iter().map(|moment| moment.faults).sum::<u64>(), 3);
        assert_eq!((evidence.target.pid, evidence.missing[0].reason.as_str()), (pid, "a test"));
        assert!(evidence.huge.is_some() && evidence.advice.is_none(), "a small program's smaps cost little");
    }

    #[test]
    fn files_that_hold_data_are_watched_and_programs_are_not() {
        use majorfault::files::{Layout, Target};
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(4096).unwrap();
        let target = Target::open(&[PathBuf::from(file.path())], &Layout::default()).unwrap();
        let mmap = majorfault::methods::named("mmap").unwrap();
        let _mapped = (mmap.open)(std::sync::Arc::new(target), &majorfault::Given::none()).unwrap();
        let pid = std::process::id();

        let paths = data_paths(pid, &Places::of(pid).unwrap());

        assert!(paths.contains(&PathBuf::from(file.path())), "{paths:?}");
        assert!(!paths.contains(&std::env::current_exe().unwrap()), "{paths:?}");
    }

    #[test]
    fn what_is_mapped_without_a_fault_is_reported_without_an_order() {
        let evidence = own().into_evidence(Duration::from_secs(1), None, false);

        let program = evidence.files.iter().find(|file| !file.mappings.is_empty()).unwrap();
        assert_eq!((program.faults, program.order.is_none()), (0, true));
        assert!(evidence.timeline.is_none() && evidence.faults.is_none());
    }
}
