//! Watches processes and gathers what is known about each. Only reads; no process is ever stopped or changed.

use super::evidence::{Evidence, Watched};
use super::members::Members;
use super::round::{Gaps, Round};
use super::status;
use super::target::{Following, WatchTarget};
use crate::watch::has_ended;
use majorfault::observe::pacing::{Coverage, SHARE};
use majorfault::observe::places::Places;
use majorfault::observe::sampler::{Sampler, Seen};
use majorfault::proc::stat;
use majorfault::sys::clock::monotonic;
use majorfault::{Error, Missing, Nanos, Result};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest and the shortest pause between two readings of the rings.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1));

/// Pause between two readings of counters, sizes and status.
const LEVELS: Duration = Duration::from_millis(100);

/// Pause between two looks for processes that joined a cgroup.
const MEMBERS: Duration = Duration::from_secs(1);

/// The most processes that are reported; of the others, those that waited least, only their number and wait is told.
const MOST_REPORTED: usize = 64;

/// The most processes of a watch with counters of their own; those that come later are seen by their faults.
const MOST_COUNTED: usize = 64;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// How long; less where the process ends.
    pub length: Duration,
    /// Whether to read smaps at the end, which may stall the process for milliseconds for each mapped GiB.
    pub deep: bool,
    /// Whether to tell who faulted, by the stacks of calls; the target must be [followed with them](WatchTarget::with_stacks).
    pub stacks: bool,
    /// Whether to see advice call by call, which makes each system call on the machine some 0.1 us longer meanwhile.
    pub advice: bool,
}

/// Watches the target once. Stops early when it ends, or when `stop` is raised. The process that was named comes first, then those with
/// the longest waits.
///
/// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
pub fn gather(target: WatchTarget, options: WatchOptions, stop: &AtomicBool) -> Result<Vec<Evidence>> {
    Watcher::open(target)?.round(options, stop)
}

/// Processes that are watched, round after round. Rounds follow each other without a gap in the faults.
pub struct Watcher {
    /// The process that was named; none for a group.
    pid: Option<u32>,
    tree: bool,
    members: Option<Members>,
    sampler: std::result::Result<Sampler, Missing>,
    /// The mappings of each process at the beginning of the next round.
    places: HashMap<u32, Places>,
    refused: usize,
    /// The most processes with counters of their own.
    most_counted: usize,
    /// Before sampling has begun: when the processes were first looked at, and how often they had faulted.
    before: Option<(Nanos, u64)>,
    /// Records lost before this round.
    lost: u64,
    /// End of the last round.
    since: Nanos,
}

/// The processes of a round.
struct Crowd {
    rounds: HashMap<u32, Round>,
    options: WatchOptions,
    most_counted: usize,
    since: Nanos,
}

impl Watcher {
    /// Starts to watch the target.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
    pub fn open(target: WatchTarget) -> Result<Watcher> {
        let is_held = !target.is_started();
        let (pid, tree, members) = (target.named(), target.has_tree(), target.members());
        let (sampler, places, refused) = match target.follow_sparingly(SHARE) {
            Ok(Following { sampler, places, refused }) => (Ok(sampler), places, refused),
            // Without the right to sample much else can still be seen.
            Err(Error::Missing(gap)) => {
                let pid = pid.ok_or_else(|| Error::Missing(gap.clone()))?;
                super::check(pid)?;
                let places = Places::of(pid).map_err(|error| super::closed(pid, &error))?;
                (Err(gap), HashMap::from([(pid, places)]), 0)
            }
            Err(error) => return Err(error),
        };
        let before = is_held.then(|| (monotonic(), faults_of(places.keys())));
        Ok(Watcher {
            pid,
            tree,
            members,
            sampler,
            places,
            refused,
            most_counted: MOST_COUNTED,
            before,
            lost: 0,
            since: monotonic(),
        })
    }

    /// The same, by their faults alone: their counters, files' sizes and cached bytes are not read.
    ///
    /// Errors: as [`open`](Self::open).
    pub fn open_light(target: WatchTarget) -> Result<Watcher> {
        Ok(Watcher { most_counted: 0, ..Watcher::open(target)? })
    }

    /// The process that was named, or the first one of a group.
    pub fn target(&self) -> Watched {
        let first = self.pid.or_else(|| self.places.keys().min().copied());
        status::target(first.unwrap_or_default())
    }

    /// What was seen since the last round, of each process. Stops early when all have ended, or when `stop` is raised.
    ///
    /// Errors: Invalid where all have ended before this round.
    pub fn round(&mut self, options: WatchOptions, stop: &AtomicBool) -> Result<Vec<Evidence>> {
        let mut crowd = self.crowd(options);
        self.begin(&mut crowd);
        let (mut levels_at, mut members_at) = (Instant::now(), Instant::now());
        let mut pause = PAUSE.0;
        while self.elapsed() < options.length && !stop.load(Ordering::Relaxed) {
            let nap = self.sampler.as_ref().map_or(pause, |sampler| sampler.nap(pause));
            std::thread::sleep(nap.min(options.length.saturating_sub(self.elapsed())));
            pause = self.drain(&mut crowd, pause);
            if self.sampler.as_ref().is_ok_and(Sampler::has_paused) {
                crowd.look();
            }
            if levels_at.elapsed() >= LEVELS {
                levels_at = Instant::now();
                crowd.levels();
            }
            if members_at.elapsed() >= MEMBERS {
                members_at = Instant::now();
                self.welcome(&mut crowd);
            }
            if crowd.has_ended() {
                break;
            }
        }
        self.drain(&mut crowd, pause);
        // What follows takes its time, in which nobody reads.
        if let Ok(sampler) = &mut self.sampler
            && sampler.has_paused()
        {
            sampler.hold();
        }
        crowd.levels();
        crowd.has_ended();
        self.told(crowd)
    }

    /// The processes at the beginning of a round.
    fn crowd(&mut self, options: WatchOptions) -> Crowd {
        let (most_counted, since) = (self.most_counted, self.since);
        let mut crowd = Crowd { rounds: HashMap::new(), options, most_counted, since };
        let gap = self.sampler.as_ref().err();
        let lacks_reads = self.sampler.as_ref().ok().and_then(Sampler::lacks_reads);
        for (pid, places) in std::mem::take(&mut self.places) {
            let round = match crowd.rounds.len() < self.most_counted || self.pid == Some(pid) {
                true => Round::new(pid, places, gap, options, self.since).lacking_reads(lacks_reads),
                false => Round::of_new(pid, places, options, self.since),
            };
            crowd.rounds.insert(pid, round);
        }
        crowd
    }

    /// Begins to sample. The first watch begins now where the processes ran before; otherwise it has begun already.
    fn begin(&mut self, crowd: &mut Crowd) {
        let Ok(sampler) = &mut self.sampler else { return };
        let before = self.before.take();
        match before {
            Some((at, faults)) => {
                let grown = faults_of(crowd.rounds.keys()).saturating_sub(faults);
                sampler.begin(grown, Nanos(monotonic().0.saturating_sub(at.0)));
            }
            None => sampler.resume(),
        }
        if before.is_some() {
            (self.since, self.lost) = (monotonic(), sampler.lost());
            crowd.begin(self.since);
        }
        // The first window is read at once: it tells how often the processes fault.
        self.drain(crowd, PAUSE.0);
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic().0.saturating_sub(self.since.0))
    }

    /// Reads the rings; returns the pause until the next time.
    fn drain(&mut self, crowd: &mut Crowd, pause: Duration) -> Duration {
        let only = self.pid.filter(|_| !self.tree);
        let fullness = self.sampler.as_mut().map_or(0.0, |sampler| {
            sampler.read_weighted(|seen, weight| crowd.see(seen, weight, only));
            sampler.fullness()
        });
        crowd.rounds.values_mut().for_each(Round::read_advice);
        match fullness {
            full if full > 0.25 => (pause / 2).max(PAUSE.1),
            full if full < 0.05 => (pause * 2).min(PAUSE.0),
            _ => pause,
        }
    }

    /// Follows the processes that joined a group since.
    fn welcome(&mut self, crowd: &mut Crowd) {
        let (Some(members), Ok(sampler)) = (&self.members, &mut self.sampler) else { return };
        for pid in members.pids().into_iter().filter(|pid| !crowd.rounds.contains_key(pid)).collect::<Vec<_>>() {
            match (sampler.add(pid), Places::of(pid)) {
                (Ok(_), Ok(places)) => drop(crowd.rounds.insert(pid, crowd.newborn(pid, places))),
                _ => self.refused += usize::from(!has_ended(pid)),
            }
        }
    }

    /// The evidence of the processes, and what begins the next round.
    fn told(&mut self, crowd: Crowd) -> Result<Vec<Evidence>> {
        let watched = self.elapsed();
        self.since = monotonic();
        let gaps = self.gaps();
        let mut rounds: Vec<Round> = crowd.rounds.into_values().collect();
        self.places = rounds.iter().filter(|round| !round.ended).map(|round| (round.pid(), round.places())).collect();
        rounds.sort_by_key(|round| (self.pid != Some(round.pid()), Reverse((round.waited_ns(), round.in_files()))));
        let others = rounds.split_off(MOST_REPORTED.min(rounds.len()));
        let deep = crowd.options.deep;
        let evidence = |mut round: Round| {
            let faults = gaps.as_ref().map(|gaps| round.seen(gaps));
            round.into_evidence(watched, faults, deep)
        };
        let mut told: Vec<Evidence> = rounds.into_iter().map(evidence).collect();
        if let Some(first) = told.first_mut() {
            first.missing.extend(left_out(&others, self.refused));
        }
        match told.is_empty() {
            true => Err(Error::Invalid("all processes have ended before they could be watched".to_owned())),
            false => Ok(told),
        }
    }

    /// What the sampler missed in this round; none where it sees nothing.
    fn gaps(&mut self) -> Option<Gaps> {
        let sampler = self.sampler.as_mut().ok()?;
        let lost = sampler.lost();
        let before = std::mem::replace(&mut self.lost, lost);
        let coverage: Coverage = sampler.coverage();
        Some(Gaps { lost: lost.saturating_sub(before), unfollowed: sampler.unfollowed(), coverage })
    }
}

/// The faults without a read that these processes had so far, by the kernel's count: what seeing them costs is felt.
fn faults_of<'p>(pids: impl Iterator<Item = &'p u32>) -> u64 {
    let of = |pid: &u32| {
        let stat = stat::process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(stat.minor_faults)
    };
    pids.filter_map(of).sum()
}

/// What is not reported of processes.
fn left_out(others: &[Round], refused: usize) -> Vec<Missing> {
    let mut missing = Vec::new();
    if !others.is_empty() {
        let waited_ns: u64 = others.iter().map(Round::waited_ns).sum();
        let reason =
            format!("{} processes that waited least are left out; they waited {}", others.len(), Nanos(waited_ns));
        missing.push(Missing::new("further processes", reason, "name one of them, or a smaller group"));
    }
    if refused > 0 {
        let reason = format!("{refused} processes were not followed: they belong to another user");
        missing.push(Missing::new("further processes", reason, "run as root"));
    }
    missing
}

impl Crowd {
    /// Shows an event to the process that it is of; `only` is the only one that counts.
    fn see(&mut self, seen: Seen, weight: f64, only: Option<u32>) {
        let process = match &seen {
            Seen::Fault { process, .. } | Seen::Waited { process, .. } | Seen::Executed { process, .. } => *process,
            Seen::Mapped(mapped) => mapped.process,
            Seen::Read(call) => call.process,
            Seen::Forked { process, parent, at } => {
                self.fork(*process, (*parent, *at), only);
                *parent
            }
        };
        if only.is_some_and(|only| only != process) {
            return;
        }
        if !self.rounds.contains_key(&process) {
            // Its fork was lost; where it has ended since, nobody knows its mappings.
            let places = Places::of(process).unwrap_or_else(|_| Places::unread(process));
            self.rounds.insert(process, self.newborn(process, places));
        }
        if let Some(round) = self.rounds.get_mut(&process) {
            round.see_weighted(seen, weight);
        }
    }

    /// A process was forked: it has its parent's mappings of that time.
    fn fork(&mut self, child: u32, (parent, at): (u32, Nanos), only: Option<u32>) {
        if only.is_none()
            && let Some(round) = self.rounds.get(&parent)
        {
            let newborn = self.newborn(child, round.forked(child, at));
            self.rounds.insert(child, newborn);
        }
    }

    /// The watch begins at this time, not earlier.
    fn begin(&mut self, since: Nanos) {
        self.since = since;
        self.rounds.values_mut().for_each(|round| round.begin(since));
    }

    fn newborn(&self, pid: u32, places: Places) -> Round {
        Round::of_new(pid, places, self.options, self.since)
    }

    /// Reads what changes slowly of the processes that live.
    fn levels(&mut self) {
        let counted = self.rounds.values().filter(|round| round.is_counted()).count();
        let mut room = self.most_counted.saturating_sub(counted);
        for round in self.rounds.values_mut().filter(|round| !round.ended && !has_ended(round.pid())) {
            let is_new = !round.is_counted();
            if !is_new || room > 0 {
                room -= usize::from(is_new);
                round.levels();
            }
        }
    }

    /// Looks at what the threads of the processes with counters are blocked in.
    fn look(&mut self) {
        self.rounds.values_mut().filter(|round| round.is_counted() && !round.ended).for_each(Round::look);
    }

    /// Whether every process has ended.
    fn has_ended(&mut self) -> bool {
        let gone: HashSet<u32> = self.rounds.keys().copied().filter(|pid| has_ended(*pid)).collect();
        for round in self.rounds.values_mut() {
            round.ended |= gone.contains(&round.pid());
        }
        self.rounds.values().all(|round| round.ended)
    }
}
