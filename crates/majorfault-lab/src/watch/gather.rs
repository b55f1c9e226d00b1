//! Watches a process and gathers what is known about it. Only reads; the process is never stopped or changed.

use super::evidence::{Evidence, Watched};
use super::round::Round;
use super::status;
use crate::watch::{check, closed, has_ended, raise_descriptor_limit};
use majorfault::observe::places::Places;
use majorfault::observe::sampler::Sampler;
use majorfault::sys::clock::monotonic;
use majorfault::{Missing, Nanos, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest and the shortest pause between two readings of the rings.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1));

/// Pause between two readings of counters, sizes and status.
const LEVELS: Duration = Duration::from_millis(100);

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// How long; less where the process ends.
    pub length: Duration,
    /// Whether to read smaps at the end, which may stall the process for milliseconds for each mapped GiB.
    pub deep: bool,
    /// Whether to see advice call by call, which makes each system call on the machine some 0.1 us longer meanwhile.
    pub advice: bool,
}

/// Watches process `pid` once. Stops early when it ends, or when `stop` is raised.
///
/// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
pub fn gather(pid: u32, options: WatchOptions, stop: &AtomicBool) -> Result<Evidence> {
    Watcher::open(pid)?.round(options, stop)
}

/// A process that is watched, round after round. Rounds follow each other without a gap in the faults.
pub struct Watcher {
    pid: u32,
    /// For the first round; later rounds read the mappings again, because they change.
    places: Option<Places>,
    sampler: std::result::Result<Sampler, Missing>,
    /// Records lost before this round.
    lost: u64,
    /// End of the last round.
    since: Nanos,
}

impl Watcher {
    /// Starts to watch process `pid`.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread, ended already), Missing (another user's process).
    pub fn open(pid: u32) -> Result<Watcher> {
        check(pid)?;
        let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
        raise_descriptor_limit();
        Ok(Watcher { pid, places: Some(places), sampler: Sampler::open(pid), lost: 0, since: monotonic() })
    }

    /// The process.
    pub fn target(&self) -> Watched {
        status::target(self.pid)
    }

    /// What was seen since the last round. Stops early when the process ends, or when `stop` is raised.
    ///
    /// Errors: Invalid where the process ended before this round, Missing where it now belongs to another user.
    pub fn round(&mut self, options: WatchOptions, stop: &AtomicBool) -> Result<Evidence> {
        let pid = self.pid;
        let places = self.places.take().map_or_else(|| Places::of(pid), Ok).map_err(|error| closed(pid, &error))?;
        let mut round = Round::new(pid, places, self.sampler.as_ref().err(), options, self.since);
        let mut levels_at = Instant::now();
        let mut pause = PAUSE.0;
        while self.elapsed() < options.length && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(pause.min(options.length.saturating_sub(self.elapsed())));
            pause = self.drain(&mut round, pause);
            if levels_at.elapsed() >= LEVELS {
                levels_at = Instant::now();
                round.levels();
            }
            if has_ended(pid) {
                round.ended = true;
                break;
            }
        }
        self.drain(&mut round, pause);
        round.levels();
        round.ended |= has_ended(pid);
        let watched = self.elapsed();
        self.since = monotonic();
        let faults = self.sampler.as_ref().ok().map(|sampler| round.seen(sampler, self.lost));
        self.lost = self.sampler.as_ref().map_or(0, Sampler::lost);
        Ok(round.into_evidence(watched, faults, options.deep))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic().0.saturating_sub(self.since.0))
    }

    /// Reads the rings; returns the pause until the next time.
    fn drain(&mut self, round: &mut Round, pause: Duration) -> Duration {
        let fullness = self.sampler.as_mut().map_or(0.0, |sampler| {
            sampler.read(|seen| round.see(seen));
            sampler.fullness()
        });
        round.read_advice();
        match fullness {
            full if full > 0.25 => (pause / 2).max(PAUSE.1),
            full if full < 0.05 => (pause * 2).min(PAUSE.0),
            _ => pause,
        }
    }
}
