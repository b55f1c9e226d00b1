//! Watches a process and brings together what is known of it. Reads only; the process is never stopped or changed.

use super::details;
use super::evidence::{Calls, Evidence, Faults, FileMapping, Group, MappedFile, Process, Target};
use super::status;
use super::tally::{Tally, Track};
use crate::place;
use crate::process::files::{self, Mount};
use crate::process::{check, closed, has_ended, raise_descriptor_limit};
use faultline::observe::pattern::{self, Access};
use faultline::observe::places::{FileId, Place, Places};
use faultline::observe::sampler::{Sampler, Seen};
use faultline::observe::{Kind, Observer, Scene, Snapshot};
use faultline::proc::smaps;
use faultline::{Missing, Result};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks into the rings, at most and at least.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1));

/// Pause between two looks at counters, sizes and status.
const LEVELS: Duration = Duration::from_millis(100);

/// Files that are opened to look at their size and cache.
const MOST_FILES: usize = 256;

/// Descriptors that are looked at.
const MOST_DESCRIPTORS: usize = 256;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long; shorter where the process ends.
    pub length: Duration,
    /// Whether smaps is read at the end, which may stall the process for milliseconds for each mapped GiB.
    pub deep: bool,
}

/// Watches process `pid` once. Ends early when it ends, or when `stop` is raised.
///
/// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
pub fn gather(pid: u32, options: Options, stop: &AtomicBool) -> Result<Evidence> {
    Watcher::open(pid)?.round(options, stop)
}

/// A process under watch, round after round. Faults are seen without a gap between two rounds.
pub struct Watcher {
    pid: u32,
    /// The first round's; later ones look again, for mappings come and go.
    places: Option<Places>,
    sampler: std::result::Result<Sampler, Missing>,
    /// Records lost before this round.
    lost: u64,
    /// End of the last round.
    since: Instant,
}

impl Watcher {
    /// Begins to watch process `pid`.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
    pub fn open(pid: u32) -> Result<Watcher> {
        check(pid)?;
        let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
        raise_descriptor_limit();
        Ok(Watcher { pid, places: Some(places), sampler: Sampler::open(pid), lost: 0, since: Instant::now() })
    }

    /// Who is watched.
    pub fn target(&self) -> Target {
        status::target(self.pid)
    }

    /// What was seen since the last round. Ends early when the process ends, or when `stop` is raised.
    ///
    /// Errors: Invalid where the process ended before this round, Missing where it became another user's.
    pub fn round(&mut self, options: Options, stop: &AtomicBool) -> Result<Evidence> {
        let pid = self.pid;
        let places = self.places.take().map_or_else(|| Places::of(pid), Ok).map_err(|error| closed(pid, &error))?;
        let mut watch = Watch::new(pid, places, self.sampler.as_ref().err());
        let mut levels_at = Instant::now();
        let mut pause = PAUSE.0;
        while self.since.elapsed() < options.length && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(pause.min(options.length.saturating_sub(self.since.elapsed())));
            pause = self.drain(&mut watch, pause);
            if levels_at.elapsed() >= LEVELS {
                levels_at = Instant::now();
                watch.levels();
            }
            if has_ended(pid) {
                watch.ended = true;
                break;
            }
        }
        self.drain(&mut watch, pause);
        watch.levels();
        watch.ended |= has_ended(pid);
        let watched = self.since.elapsed();
        self.since = Instant::now();
        let faults = self.sampler.as_ref().ok().map(|sampler| watch.seen(sampler, self.lost));
        self.lost = self.sampler.as_ref().map_or(0, Sampler::lost);
        Ok(watch.into_evidence(watched, faults, options.deep))
    }

    /// Reads the rings; gives the pause until the next time.
    fn drain(&mut self, watch: &mut Watch, pause: Duration) -> Duration {
        let Ok(sampler) = &mut self.sampler else { return pause };
        sampler.read(|seen| watch.see(seen));
        match sampler.fullness() {
            full if full > 0.25 => (pause / 2).max(PAUSE.1),
            full if full < 0.05 => (pause * 2).min(PAUSE.0),
            _ => pause,
        }
    }
}

/// One round in progress.
struct Watch {
    pid: u32,
    places: Places,
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

impl Watch {
    fn new(pid: u32, places: Places, gap: Option<&Missing>) -> Watch {
        let found = place::of_process(pid);
        let scene = Scene {
            pid: Some(pid),
            cgroup: found.as_ref().map(|(dir, _)| dir.clone()),
            files: data_paths(pid, &places),
        };
        let mut observer = Observer::open(&scene);
        let mut missing = Vec::from_iter(gap.cloned());
        missing.extend(observer.missing().iter().cloned());
        let first = observer.read();
        let mut watch = Watch {
            pid,
            places,
            observer,
            last: first.clone(),
            first,
            faults: Faults::default(),
            threads: HashSet::new(),
            tallies: HashMap::new(),
            tracks: HashMap::new(),
            calls: [status::calls(pid); 2],
            process: Process::default(),
            target: status::target(pid),
            group: found.map(|(dir, limit)| status::group(&dir, limit.map(|bytes| bytes.0))),
            mounts: files::mounts(pid),
            missing,
            ended: false,
        };
        watch.levels();
        watch
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
        self.calls[1] = status::calls(self.pid).or(self.calls[1]);
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
        for track in self.tracks.values_mut() {
            track.look();
        }
    }

    /// The faults of this round, with what the sampler knows of its gaps.
    fn seen(&self, sampler: &Sampler, lost_before: u64) -> Faults {
        Faults {
            lost: sampler.lost().saturating_sub(lost_before),
            unfollowed: sampler.unfollowed(),
            threads: self.threads.len(),
            ..self.faults.clone()
        }
    }

    fn into_evidence(mut self, watched: Duration, faults: Option<Faults>, deep: bool) -> Evidence {
        let details = match deep && !self.ended {
            true => details::read(self.pid, &self.tallies),
            false => Ok(Vec::new()),
        };
        let details = details.unwrap_or_else(|gap| {
            self.missing.push(gap);
            Vec::new()
        });
        let huge = (!details.is_empty()).then(|| details::huge(&details));
        let files = self.mapped_files(&details);
        Evidence {
            watched,
            process: self.process.clone(),
            calls: status::grown(self.calls),
            faults,
            files,
            descriptors: files::descriptors(self.pid, MOST_DESCRIPTORS),
            counters: self.counters(),
            machine: status::machine(),
            huge,
            target: self.target,
            group: self.group,
            missing: self.missing,
            ended: self.ended,
        }
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
