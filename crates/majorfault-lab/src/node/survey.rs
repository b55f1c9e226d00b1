//! Looks at the machine again and again: a cheap pass over all processes each time, and the faults of the worst between two passes.

use super::group::{self, GroupLoss};
use super::loss::{Loss, between};
use super::pass::{Pass, Pressure};
use crate::watch::evidence::Evidence;
use crate::watch::gather::{WatchOptions, Watcher};
use crate::watch::target::WatchTarget;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks at whether to stop.
const STOP: Duration = Duration::from_millis(50);

/// The most files that are told.
const MOST_FILES: usize = 32;

/// What was lost on the machine in an interval.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// How long it was.
    pub length: Duration,
    /// Every process, worst first.
    pub processes: Vec<Loss>,
    /// Every group with a loss, worst first.
    pub groups: Vec<GroupLoss>,
    /// The files that sampled processes waited for, worst first.
    pub files: Vec<FileLoss>,
    /// Time in which tasks of the machine waited.
    pub pressure: Pressure,
    /// Processes whose faults were sampled.
    pub sampled: Vec<u32>,
    /// Why no faults could be sampled.
    pub gap: Option<String>,
    /// What was seen of the sampled processes.
    pub evidence: Vec<Evidence>,
    /// Processor time that this survey took, in nanoseconds.
    pub own_cpu_ns: u64,
}

/// What was lost in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLoss {
    /// Its path, as the process sees it.
    pub path: String,
    /// The process that waited longest for it.
    pub pid: u32,
    /// Nanoseconds that threads waited.
    pub waited_ns: u64,
    /// Faults that started a read.
    pub major: u64,
}

/// A machine that is looked at again and again.
pub struct Survey<'w> {
    wanted: Box<dyn Fn(u32) -> bool + 'w>,
    /// The most processes whose faults are sampled.
    worst: usize,
    before: Pass,
    own_before: Duration,
    watcher: Option<Watcher>,
    watched: BTreeSet<u32>,
    gap: Option<String>,
}

impl<'w> Survey<'w> {
    /// Begins with a pass over the processes that are wanted; the faults of `worst` of them will be sampled.
    pub fn new(wanted: impl Fn(u32) -> bool + 'w, worst: usize) -> Survey<'w> {
        let own = std::process::id();
        let wanted: Box<dyn Fn(u32) -> bool + 'w> = Box::new(move |pid| pid != own && wanted(pid));
        let before = Pass::take(&wanted);
        let (watcher, watched) = (None, BTreeSet::new());
        Survey { wanted, worst, before, own_before: own_time(), watcher, watched, gap: None }
    }

    /// The interval that ends after `length`, or when `stop` is raised.
    pub fn next(&mut self, length: Duration, stop: &AtomicBool) -> Picture {
        let evidence = self.watch(length, stop);
        let after = Pass::take(&self.wanted);
        let mut processes = between(&self.before, &after);
        let files = join(&mut processes, &evidence);
        let groups = groups(&processes);
        let own = own_time();
        let picture = Picture {
            length: Duration::from_nanos(after.at.0.saturating_sub(self.before.at.0)),
            pressure: after.pressure.since(self.before.pressure),
            sampled: self.watched.iter().copied().collect(),
            gap: self.gap.clone(),
            own_cpu_ns: own.saturating_sub(self.own_before).as_nanos() as u64,
            processes,
            groups,
            files,
            evidence,
        };
        (self.before, self.own_before) = (after, own);
        self.choose(&picture.processes);
        picture
    }

    /// Watches the chosen processes for so long; waits where there are none.
    fn watch(&mut self, length: Duration, stop: &AtomicBool) -> Vec<Evidence> {
        let began = Instant::now();
        let options = WatchOptions { length, deep: false, stacks: false, advice: false };
        let seen = self.watcher.as_mut().and_then(|watcher| watcher.round(options, stop).ok());
        while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(STOP.min(length.saturating_sub(began.elapsed())));
        }
        seen.unwrap_or_default()
    }

    /// Samples the worst from now on. Those that are sampled already stay while they are among twice as many: opening costs.
    fn choose(&mut self, processes: &[Loss]) {
        let lossy: Vec<u32> = processes.iter().filter(|loss| loss.is_any()).map(|loss| loss.pid).collect();
        let worst: BTreeSet<u32> = lossy.iter().take(self.worst).copied().collect();
        let still: BTreeSet<u32> = lossy.iter().take(2 * self.worst).copied().collect();
        if self.watcher.is_some()
            && worst.iter().take(1).all(|pid| self.watched.contains(pid))
            && self.watched.is_subset(&still)
        {
            return;
        }
        self.watcher = None;
        self.watched.clear();
        if worst.is_empty() {
            return;
        }
        match Watcher::open_light(WatchTarget::listed(worst.iter().copied().collect())) {
            Ok(watcher) => (self.watcher, self.watched, self.gap) = (Some(watcher), worst, None),
            Err(error) => self.gap = Some(error.to_string()),
        }
    }
}

/// Adds what was sampled to the losses; returns the files, worst first.
fn join(processes: &mut [Loss], evidence: &[Evidence]) -> Vec<FileLoss> {
    let mut files: HashMap<&str, FileLoss> = HashMap::new();
    for seen in evidence {
        let Some(faults) = &seen.faults else { continue };
        if let Some(loss) = processes.iter_mut().find(|loss| loss.pid == seen.target.pid) {
            loss.fault_ns = Some(faults.waited_ns);
        }
        for file in seen.files.iter().filter(|file| file.waited_ns > 0 || file.major > 0) {
            let sum =
                files.entry(&file.path).or_insert_with(|| FileLoss { path: file.path.clone(), ..FileLoss::default() });
            if file.waited_ns >= sum.waited_ns {
                sum.pid = seen.target.pid;
            }
            sum.waited_ns += file.waited_ns;
            sum.major += file.major;
        }
    }
    processes.sort_by_key(|loss| (loss.worst_first(), loss.pid));
    let mut files: Vec<FileLoss> = files.into_values().collect();
    files.sort_by(|a, b| (b.waited_ns, b.major).cmp(&(a.waited_ns, a.major)).then_with(|| a.path.cmp(&b.path)));
    files.truncate(MOST_FILES);
    files
}

fn groups(processes: &[Loss]) -> Vec<GroupLoss> {
    group::sums(processes, group::of)
}

fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processes that lost most in `length`, at most so many.
pub fn worst(wanted: impl Fn(u32) -> bool, most: usize, length: Duration, stop: &AtomicBool) -> Vec<u32> {
    let picture = Survey::new(wanted, 0).next(length, stop);
    picture.processes.iter().filter(|loss| loss.is_any()).take(most).map(|loss| loss.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::evidence::{FaultCounts, MappedFile, Watched};

    fn seen(pid: u32, files: &[(&str, u64)]) -> Evidence {
        let file = |(path, waited_ns): &(&str, u64)| MappedFile {
            path: (*path).to_owned(),
            waited_ns: *waited_ns,
            major: 1,
            ..MappedFile::default()
        };
        let waited_ns = files.iter().map(|(_, waited_ns)| waited_ns).sum();
        let faults = Some(FaultCounts { waited_ns, ..FaultCounts::default() });
        let target = Watched { pid, ..Watched::default() };
        Evidence { target, faults, files: files.iter().map(file).collect(), ..Evidence::default() }
    }

    #[test]
    fn sampled_waits_move_a_process_to_its_place_and_files_are_summed_over_processes() {
        let mut losses = [Loss { pid: 1, major: 9, ..Loss::default() }, Loss { pid: 2, major: 1, ..Loss::default() }];

        let files = join(&mut losses, &[seen(1, &[("/a", 5)]), seen(2, &[("/a", 7), ("/b", 1)])]);

        assert_eq!((losses[0].pid, losses[0].fault_ns, losses[1].fault_ns), (2, Some(8), Some(5)));
        let file = |path: &str, pid, waited_ns, major| FileLoss { path: path.to_owned(), pid, waited_ns, major };
        assert_eq!(files, [file("/a", 2, 12, 2), file("/b", 2, 1, 1)]);
    }

    #[test]
    fn an_interval_ends_at_once_where_the_user_stops_it() {
        let mut survey = Survey::new(|_| false, 4);

        let picture = survey.next(Duration::from_secs(3600), &AtomicBool::new(true));

        assert!(picture.processes.is_empty() && picture.length < Duration::from_secs(3600));
    }
}
