//! Watches a process and brings together what is known of it. Reads only; the process is never stopped or changed.

use super::advice::Advice;
use super::evidence::{Calls, Deep, Evidence, Faults, FileMapping, Group, Huge, Machine, MappedFile, Process, Target};
use crate::place;
use crate::process::files::{self, Mount};
use crate::process::{check, closed, has_ended, raise_descriptor_limit};
use faultline::observe::pattern::{self, Access};
use faultline::observe::places::{FileId, Place, Places};
use faultline::observe::sampler::{Sampler, Seen};
use faultline::observe::{CgroupDir, Kind, Observer, Scene, Snapshot};
use faultline::proc::{number, smaps};
use faultline::{Missing, Result};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks into the rings, at most and at least.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1));

/// Pause between two looks at counters, sizes and status.
const LEVELS: Duration = Duration::from_millis(100);

/// Latest faults of a file that are kept.
const LATEST: usize = 32 << 10;

/// Different pages of a file that are counted; beyond it the number stays.
const MOST_PAGES: usize = 1 << 20;

/// Files that are opened to look at their size and cache.
const MOST_FILES: usize = 256;

/// Descriptors that are looked at.
const MOST_DESCRIPTORS: usize = 256;

/// Looks at details, at most, and the pause between two, where a file with so many faults is not mapped just now.
const DEEP_LOOKS: usize = 5;
const DEEP_PAUSE: Duration = Duration::from_millis(7);
const MANY_FAULTS: u64 = 64;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long; shorter where the process ends.
    pub length: Duration,
    /// Whether smaps is read at the end, which may stall the process for milliseconds for each mapped GiB.
    pub deep: bool,
}

/// Watches process `pid`. Ends early when it ends, or when `stop` is raised.
///
/// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
pub fn gather(pid: u32, options: Options, stop: &AtomicBool) -> Result<Evidence> {
    check(pid)?;
    let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
    raise_descriptor_limit();
    let mut watch = Watch::new(pid, places);
    let began = Instant::now();
    let mut levels_at = began;
    let mut pause = PAUSE.0;
    while began.elapsed() < options.length && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(pause.min(options.length.saturating_sub(began.elapsed())));
        pause = watch.drain(pause);
        if levels_at.elapsed() >= LEVELS {
            levels_at = Instant::now();
            watch.levels();
        }
        if has_ended(pid) {
            watch.ended = true;
            break;
        }
    }
    watch.drain(pause);
    watch.levels();
    watch.ended |= has_ended(pid);
    Ok(watch.into_evidence(began.elapsed(), options.deep))
}

/// A watch in progress.
struct Watch {
    pid: u32,
    places: Places,
    sampler: Option<Sampler>,
    advice: Option<Advice>,
    observer: Observer,
    first: Snapshot,
    last: Snapshot,
    faults: Faults,
    threads: HashSet<u32>,
    tallies: HashMap<FileId, Tally>,
    tracks: HashMap<FileId, Track>,
    calls: [Option<Calls>; 2],
    process: Process,
    target: Target,
    group: Option<Group>,
    mounts: Vec<Mount>,
    missing: Vec<Missing>,
    ended: bool,
}

/// Faults of one file.
#[derive(Default)]
struct Tally {
    faults: u64,
    major: u64,
    waits: u64,
    waited_ns: u64,
    pages: HashSet<u64>,
    latest: VecDeque<Access>,
}

/// A file whose size is watched.
struct Track {
    file: Option<File>,
    size_bytes: Option<u64>,
    shrunk: Option<(u64, u64)>,
}

impl Watch {
    fn new(pid: u32, places: Places) -> Watch {
        let found = place::of_process(pid);
        let scene = Scene {
            pid: Some(pid),
            cgroup: found.as_ref().map(|(dir, _)| dir.clone()),
            files: data_paths(pid, &places),
        };
        let mut observer = Observer::open(&scene);
        let mut missing = Vec::new();
        let sampler = Sampler::open(pid).map_err(|gap| missing.push(gap)).ok();
        let advice = Advice::open(pid).map_err(|gap| missing.push(gap)).ok();
        missing.extend(observer.missing().iter().cloned());
        let first = observer.read();
        let mut watch = Watch {
            pid,
            places,
            sampler,
            advice,
            observer,
            last: first.clone(),
            first,
            faults: Faults::default(),
            threads: HashSet::new(),
            tallies: HashMap::new(),
            tracks: HashMap::new(),
            calls: [calls(pid); 2],
            process: Process::default(),
            target: target(pid),
            group: found.map(|(dir, limit)| group(&dir, limit.map(|bytes| bytes.0))),
            mounts: files::mounts(pid),
            missing,
            ended: false,
        };
        watch.levels();
        watch
    }

    /// Reads the rings; gives the pause until the next time.
    fn drain(&mut self, pause: Duration) -> Duration {
        let sampler = self.sampler.take();
        let fullness = sampler.map_or(0.0, |mut sampler| {
            sampler.read(|seen| self.see(seen));
            let fullness = sampler.fullness();
            self.sampler = Some(sampler);
            fullness
        });
        // After the faults, among which new mappings are told.
        if let Some(advice) = &mut self.advice {
            advice.read(&mut self.places);
        }
        match fullness {
            full if full > 0.25 => (pause / 2).max(PAUSE.1),
            full if full < 0.05 => (pause * 2).min(PAUSE.0),
            _ => pause,
        }
    }

    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Fault { process, thread, address, .. } if process == self.pid => {
                self.faults.seen += 1;
                self.threads.insert(thread);
                match self.places.locate(address) {
                    Place::File(id, offset) => {
                        self.faults.in_files += 1;
                        self.tallies.entry(id).or_default().add(Access { thread, offset });
                    }
                    Place::Anonymous => self.faults.anonymous += 1,
                    Place::Unknown => self.faults.unresolved += 1,
                }
            }
            Seen::Waited { process, address, waited, major, .. } if process == self.pid => {
                self.faults.major += u64::from(major);
                // Long faults in anonymous memory clear huge pages; nobody waits for a device.
                if let Place::File(id, _) = self.places.locate(address) {
                    let waited_ns = waited.map_or(0, |waited| waited.0);
                    self.faults.waits += 1;
                    self.faults.waited_ns += waited_ns;
                    let tally = self.tallies.entry(id).or_default();
                    tally.major += u64::from(major);
                    tally.waits += 1;
                    tally.waited_ns += waited_ns;
                }
            }
            Seen::Mapped(mapped) if mapped.process == self.pid => {
                self.faults.mapped += 1;
                self.faults.mapped_files += u64::from(mapped.inode != 0);
                self.places.note(mapped);
            }
            Seen::Forked { parent, .. } if parent == self.pid => self.faults.forks += 1,
            _ => {}
        }
    }

    /// What changes slowly: counters, status, sizes of files. Each keeps its last value when the process is gone.
    fn levels(&mut self) {
        let now = self.observer.read();
        for (last, now) in self.last.values.iter_mut().zip(&now.values) {
            *last = now.or(*last);
        }
        self.calls[1] = calls(self.pid).or(self.calls[1]);
        self.places.refresh();
        if let Some(process) = process(self.pid, self.places.mappings().len() as u64) {
            self.process = process;
        }
        for vma in self.places.mappings().iter().filter(|vma| vma.is_file()) {
            let id = FileId { device: vma.device, inode: vma.inode };
            if self.tracks.len() < MOST_FILES && !self.tracks.contains_key(&id) {
                let file = files::open(self.pid, &vma.path, id);
                self.tracks.insert(id, Track { size_bytes: size(file.as_ref()), file, shrunk: None });
            }
        }
        for track in self.tracks.values_mut() {
            track.look();
        }
    }

    fn into_evidence(mut self, watched: Duration, deep: bool) -> Evidence {
        let details = if deep && !self.ended { self.deep() } else { Vec::new() };
        let huge = (!details.is_empty()).then(|| huge(&details));
        if let Some(sampler) = &self.sampler {
            self.faults.lost = sampler.lost();
            self.faults.unfollowed = sampler.unfollowed();
        }
        self.faults.threads = self.threads.len();
        let files = self.mapped_files(&details);
        let advice = self.advice.take().map(Advice::into_evidence);
        Evidence {
            watched,
            process: self.process.clone(),
            calls: grown(self.calls),
            faults: self.sampler.is_some().then(|| self.faults.clone()),
            advice,
            files,
            descriptors: files::descriptors(self.pid, MOST_DESCRIPTORS),
            counters: self.counters(),
            machine: machine(),
            huge,
            target: self.target,
            group: self.group,
            missing: self.missing,
            ended: self.ended,
        }
    }

    /// Details of all mappings. A program that maps anew for each scan may be between two of them: it is looked at again.
    fn deep(&mut self) -> Vec<smaps::Detail> {
        let path = format!("/proc/{}/smaps", self.pid);
        let mut details = Vec::new();
        for _ in 0..DEEP_LOOKS {
            match fs::read(&path) {
                Ok(bytes) => details = smaps::details(&String::from_utf8_lossy(&bytes)),
                Err(error) => {
                    let reason = format!("{path}: {}", error.kind());
                    self.missing.push(Missing::new("advice in force and page sizes", reason, ""));
                    return Vec::new();
                }
            }
            let mapped: HashSet<FileId> =
                details.iter().map(|it| FileId { device: it.vma.device, inode: it.vma.inode }).collect();
            if self.tallies.iter().all(|(id, tally)| tally.faults < MANY_FAULTS || mapped.contains(id)) {
                break;
            }
            std::thread::sleep(DEEP_PAUSE);
        }
        details
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let values = self.first.values.iter().zip(&self.last.values);
        let pairs = self.observer.counters().zip(values);
        pairs
            .filter_map(|(counter, (first, last))| match counter.kind {
                Kind::Total => Some((counter.name, (*last)?.saturating_sub((*first)?))),
                Kind::Level => Some((counter.name, (*last)?)),
            })
            .collect()
    }

    /// Files mapped at the end, and those that were while we watched and faulted.
    fn mapped_files(&mut self, details: &[smaps::Detail]) -> Vec<MappedFile> {
        let deep: HashMap<u64, &smaps::Detail> = details.iter().map(|detail| (detail.vma.start, detail)).collect();
        let mut files: HashMap<FileId, MappedFile> = HashMap::new();
        // One look for both, where there are details: mappings come and go.
        let known: Vec<_> = match details {
            [] => self.places.mappings().to_vec(),
            details => details.iter().map(|detail| detail.vma.clone()).collect(),
        };
        for vma in known.iter().filter(|vma| vma.is_file()) {
            let id = FileId { device: vma.device, inode: vma.inode };
            let file =
                files.entry(id).or_insert_with(|| MappedFile { id, deleted: vma.deleted, ..MappedFile::default() });
            file.mappings.push(FileMapping { vma: vma.clone(), deep: deep.get(&vma.start).map(|it| deep_of(it)) });
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
        }
        if let Some(tally) = self.tallies.remove(&file.id) {
            file.faults = tally.faults;
            file.major = tally.major;
            file.waits = tally.waits;
            file.waited_ns = tally.waited_ns;
            file.touched_pages = tally.pages.len() as u64;
            file.latest = tally.latest.into();
            file.order = Some(pattern::recognise(&file.latest));
        }
        file
    }
}

impl Tally {
    fn add(&mut self, access: Access) {
        self.faults += 1;
        if self.pages.len() < MOST_PAGES {
            self.pages.insert(access.offset / 4096);
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(access);
    }
}

impl Track {
    fn look(&mut self) {
        let now = size(self.file.as_ref());
        if let (Some(before), Some(now)) = (self.size_bytes, now)
            && now < before
        {
            self.shrunk = Some((before, now));
        }
        self.size_bytes = now.or(self.size_bytes);
    }
}

fn size(file: Option<&File>) -> Option<u64> {
    Some(file?.metadata().ok()?.len())
}

/// Mapped files that hold data; those are looked at by the counters of files and devices.
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

fn deep_of(detail: &smaps::Detail) -> Deep {
    Deep {
        random: detail.has(b"rr"),
        sequential: detail.has(b"sr"),
        huge_wanted: detail.has(b"hg"),
        resident_bytes: detail.sizes.resident_bytes,
        huge_bytes: detail.sizes.huge_bytes(),
    }
}

fn huge(details: &[smaps::Detail]) -> Huge {
    let anonymous = details.iter().filter(|it| !it.vma.is_file() && it.vma.is_private() && it.vma.length() >= 2 << 20);
    anonymous.fold(Huge::default(), |sum, it| Huge {
        anonymous_bytes: sum.anonymous_bytes + it.sizes.resident_bytes,
        huge_bytes: sum.huge_bytes + it.sizes.anonymous_huge_bytes,
        wanted_bytes: sum.wanted_bytes + if it.has(b"hg") { it.sizes.resident_bytes } else { 0 },
    })
}

fn target(pid: u32) -> Target {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
    Target { pid, name: text(read("comm")), command: text(read("cmdline")) }
}

fn process(pid: u32, mappings: u64) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| number(&status, key).map(|kib| kib << 10);
    // A zombie has a status without memory.
    let resident_bytes = bytes("VmRSS")?;
    Some(Process {
        threads: number(&status, "Threads").unwrap_or(1),
        resident_bytes,
        anonymous_bytes: bytes("RssAnon").unwrap_or(0),
        page_table_bytes: bytes("VmPTE").unwrap_or(0),
        mappings,
    })
}

fn calls(pid: u32) -> Option<Calls> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    Some(Calls {
        read_call_bytes: number(&text, "rchar")?,
        read_calls: number(&text, "syscr")?,
        device_bytes: number(&text, "read_bytes")?,
    })
}

fn grown([before, after]: [Option<Calls>; 2]) -> Option<Calls> {
    let (before, after) = before.zip(after)?;
    Some(Calls {
        read_call_bytes: after.read_call_bytes.saturating_sub(before.read_call_bytes),
        read_calls: after.read_calls.saturating_sub(before.read_calls),
        device_bytes: after.device_bytes.saturating_sub(before.device_bytes),
    })
}

fn group(dir: &CgroupDir, limit_bytes: Option<u64>) -> Group {
    let (CgroupDir::V1(path) | CgroupDir::V2(path)) = dir;
    Group { path: path.display().to_string(), limit_bytes }
}

fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let bytes = |key: &str| number(&meminfo, key).unwrap_or(0) << 10;
    let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut version = release.split(['.', '-']).map_while(|part| part.parse().ok());
    Machine {
        kernel: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        memory_bytes: bytes("MemTotal"),
        available_bytes: bytes("MemAvailable"),
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        huge_pages: thp.split(['[', ']']).nth(1).unwrap_or("absent").to_owned(),
        most_mappings: read("/proc/sys/vm/max_map_count").trim().parse().unwrap_or(65530),
    }
}
