//! What slows a job down: rates, thinking, shares of what all do.

use crate::trial::{Job, Pace, READS, WRITES};
use majorfault::Nanos;
use majorfault::sys::clock::monotonic;
use rand::Rng;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest time in which nobody looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How long a job that is ahead of its share waits.
const AHEAD: Duration = Duration::from_micros(100);

/// When the next access may begin.
pub struct Clock {
    pace: Pace,
    /// When the next one is due: a read, a write.
    due: [Nanos; 2],
    random: Pcg64,
    /// Accesses since the last time to think.
    since: u64,
}

impl Clock {
    /// A clock for `job` from `began` on.
    pub fn new(job: &Job, began: Nanos) -> Clock {
        Clock { pace: job.pace, due: [began; 2], random: Pcg64::seed_from_u64(job.seed ^ 0x70ac), since: 0 }
    }

    /// Time until an access may begin; none where it may now. One that may is counted.
    pub fn wait(&mut self, side: usize, bytes: usize) -> Option<Duration> {
        let gap = self.gap(side, bytes)?;
        let now = monotonic();
        if self.due[side] > now {
            return Some(Duration::from_nanos(self.due[side].0 - now.0));
        }
        self.due[side] = Nanos(self.due[side].0 + gap);
        None
    }

    /// Nanoseconds that an access takes of its rate.
    fn gap(&mut self, side: usize, bytes: usize) -> Option<u64> {
        let by_count = (self.pace.per_s[side] > 0).then(|| 1e9 / self.pace.per_s[side] as f64);
        let by_bytes =
            (self.pace.bytes_per_s[side] > 0).then(|| bytes as f64 * 1e9 / self.pace.bytes_per_s[side] as f64);
        let mean = by_count
            .into_iter()
            .chain(by_bytes)
            .fold(None, |most: Option<f64>, gap| Some(most.map_or(gap, |most| most.max(gap))))?;
        let drawn = if self.pace.poisson { -(1.0 - self.random.random::<f64>()).ln() } else { 1.0 };
        Some((mean * drawn) as u64)
    }

    /// Accesses until the next time to think; none where there is none.
    pub fn until_thought(&self) -> Option<u64> {
        (self.pace.think_ns > 0).then(|| self.pace.think_every.max(1) - self.since)
    }

    /// Counts accesses, and thinks where it is time.
    pub fn made(&mut self, accesses: u64, goes_on: impl Fn() -> bool) {
        let Some(until) = self.until_thought() else { return };
        if accesses < until {
            self.since += accesses;
            return;
        }
        self.since = 0;
        let began = monotonic();
        while monotonic().0 < began.0 + self.pace.spin_ns.min(self.pace.think_ns) {
            std::hint::spin_loop();
        }
        let spent = monotonic().0 - began.0;
        sleep(Duration::from_nanos(self.pace.think_ns.saturating_sub(spent)), goes_on);
    }
}

/// Sleeps, but wakes up to look whether it still goes on.
pub fn sleep(time: Duration, goes_on: impl Fn() -> bool) {
    let until = monotonic().0 + time.as_nanos() as u64;
    loop {
        let now = monotonic().0;
        if now >= until || !goes_on() {
            return;
        }
        std::thread::sleep(LOOK.min(Duration::from_nanos(until - now)));
    }
}

/// The shares of those jobs that have one.
pub struct Flows {
    accesses: AtomicU64,
    weights: AtomicU64,
}

impl Flows {
    /// Of all jobs of a stage.
    pub fn of(jobs: &[Job]) -> Flows {
        let weights = jobs.iter().map(|job| u64::from(job.pace.flow)).sum();
        // fio's count begins at one.
        Flows { accesses: AtomicU64::new(1), weights: AtomicU64::new(weights) }
    }

    /// Whether a job that has made `own` accesses may make one more; else it waits a while.
    pub fn may(&self, flow: u32, own: u64) -> bool {
        if flow == 0 {
            return true;
        }
        let (all, weights) = (self.accesses.load(Ordering::Relaxed), self.weights.load(Ordering::Relaxed).max(1));
        if u128::from(own) * u128::from(weights) > u128::from(all) * u128::from(flow) {
            return false;
        }
        self.accesses.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A job with this share ended.
    pub fn leave(&self, flow: u32) {
        self.weights.fetch_sub(u64::from(flow), Ordering::Relaxed);
    }

    /// How long a job that may not waits.
    pub fn patience() -> Duration {
        AHEAD
    }
}

/// Whether the job's accesses may have to wait for each other.
pub fn is_slowed(job: &Job) -> bool {
    let Pace { per_s, bytes_per_s, flow, .. } = job.pace;
    flow > 0 || [READS, WRITES].iter().any(|side| per_s[*side] > 0 || bytes_per_s[*side] > 0)
}
