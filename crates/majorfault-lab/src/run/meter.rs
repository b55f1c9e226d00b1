//! The clock of one thread's accesses: counts by interval, latency histograms, the moment to stop.

use crate::record::{Buckets, ThreadRun};
use hdrhistogram::Histogram;
use majorfault::Nanos;
use majorfault::sys::clock::monotonic;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Below this mean, reading the clock (20-40 ns) at every access would be a visible share of it.
const TIME_EACH_FROM: Nanos = Nanos(2_000);

/// Accesses faster than this are timed by sampling.
const SPARSE: u64 = 16;

/// Two significant digits: 1 % wide buckets, small records.
const DIGITS: u8 = 2;

/// When a thread has to end.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// The common start of all threads.
    pub began: Nanos,
    /// No access begins after this moment.
    pub deadline: Option<Nanos>,
    /// No more accesses than these.
    pub accesses: u64,
    /// Raised when another thread failed or the user wants to stop.
    pub stop: &'a AtomicBool,
    /// Raised when this thread alone has to end.
    pub own: &'a AtomicBool,
}

/// Accesses of one interval of the timeline.
#[derive(Clone)]
pub struct Interval {
    /// How many ended in it.
    pub accesses: u64,
    /// How long they took.
    pub latency: Histogram<u64>,
}

/// What went one way.
#[derive(Clone)]
pub struct WayTally {
    /// Accesses.
    pub accesses: u64,
    /// Bytes.
    pub bytes: u64,
    /// How long they took.
    pub latency: Histogram<u64>,
}

/// The clock of one thread.
pub struct Meter<'a> {
    until: Until<'a>,
    interval: Nanos,
    accesses: u64,
    bytes: u64,
    /// One access in so many is timed: 1 or [`SPARSE`].
    timed_one_in: u64,
    /// Accesses until the next reading of the clock.
    countdown: u64,
    /// The last reading of the clock.
    now: Nanos,
    /// When each extent of the current batch was submitted, for methods that say so; 0 is "not said".
    submitted: Vec<Nanos>,
    /// When each was seen to have arrived, likewise.
    arrived: Vec<Nanos>,
    /// When each timed extent that is being written was filled; 0 is "is not timed, or written".
    filled: Vec<Nanos>,
    intervals: Vec<Interval>,
    /// Which way the current batch goes, and what was counted when it began.
    way: (usize, u64, u64),
    ways: [WayTally; 2],
}

impl WayTally {
    fn new() -> WayTally {
        WayTally { accesses: 0, bytes: 0, latency: Interval::new().latency }
    }
}

impl Interval {
    fn new() -> Interval {
        let latency = Histogram::new(DIGITS).expect("two digits are a legal precision");
        Interval { accesses: 0, latency }
    }

    /// Adds another thread's same interval.
    pub fn merge(&mut self, other: &Interval) {
        self.accesses += other.accesses;
        // Automatic resizing makes this infallible.
        let _ = self.latency.add(&other.latency);
    }
}

impl<'a> Meter<'a> {
    /// A clock that starts now.
    pub fn new(until: Until<'a>, interval: Nanos) -> Meter<'a> {
        Meter {
            until,
            interval,
            accesses: 0,
            bytes: 0,
            timed_one_in: 1,
            countdown: 1,
            now: until.began,
            submitted: Vec::new(),
            arrived: Vec::new(),
            filled: Vec::new(),
            intervals: vec![Interval::new()],
            way: (0, 0, 0),
            ways: [WayTally::new(), WayTally::new()],
        }
    }

    /// Whether another access may begin.
    pub fn goes_on(&self) -> bool {
        self.accesses < self.until.accesses
            && self.until.deadline.is_none_or(|deadline| self.now < deadline)
            && !self.until.stop.load(Ordering::Relaxed)
            && !self.until.own.load(Ordering::Relaxed)
    }

    /// When no further access may begin.
    pub fn deadline(&self) -> Option<Nanos> {
        self.until.deadline
    }

    /// Accesses made so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Accesses that may still be made.
    pub fn room(&self) -> u64 {
        self.until.accesses - self.accesses
    }

    /// A batch begins: forgets submissions, and reads the clock so that making the batch is not part of an access.
    pub fn batch(&mut self) {
        self.submitted.clear();
        self.arrived.clear();
        self.filled.clear();
        self.now = monotonic();
        let mean = self.now.0.saturating_sub(self.until.began.0) / self.accesses.max(1);
        if self.accesses >= 4096 && Nanos(mean) < TIME_EACH_FROM {
            self.timed_one_in = SPARSE;
        }
    }

    /// A batch that goes one way begins: [`READS`](crate::trial::READS) or [`WRITES`](crate::trial::WRITES).
    pub fn batch_of(&mut self, way: usize) {
        self.count_way();
        self.way.0 = way;
        self.batch();
    }

    /// Adds what was counted since the batch began to its way.
    fn count_way(&mut self) {
        let (way, accesses, bytes) = self.way;
        self.ways[way].accesses += self.accesses - accesses;
        self.ways[way].bytes += self.bytes - bytes;
        self.way = (way, self.accesses, self.bytes);
    }

    /// What went each way: reads, writes.
    pub fn ways(&mut self) -> [WayTally; 2] {
        self.count_way();
        self.ways.clone()
    }

    /// The extent `index` of the batch was submitted.
    pub fn submitted(&mut self, index: usize) {
        set(&mut self.submitted, index, monotonic());
    }

    /// The extent `index` of the batch was there, though others may be shown first: its access ends here, as in fio.
    pub fn arrived(&mut self, index: usize) {
        set(&mut self.arrived, index, monotonic());
    }

    /// The access to the extent `index` of the batch ended, having handed over `bytes`.
    #[inline]
    pub fn ended(&mut self, index: usize, bytes: usize) -> ControlFlow<()> {
        match self.count(bytes) {
            true => self.time(index),
            false => ControlFlow::Continue(()),
        }
    }

    /// The bytes of the extent `index` were filled. Its access ends here, or, where it was said to be submitted, when it is
    /// [`written`](Self::written).
    #[inline]
    pub fn filled(&mut self, index: usize, bytes: usize) -> ControlFlow<()> {
        match self.count(bytes) {
            true if said(&self.submitted, index).is_some() => {
                let now = monotonic();
                set(&mut self.filled, index, now);
                self.arrive_at(now);
                self.last_interval().accesses += 1;
                self.flow()
            }
            true => self.time(index),
            false => ControlFlow::Continue(()),
        }
    }

    /// The extent `index` was written.
    pub fn written(&mut self, index: usize) {
        if let Some(since) = said(&self.filled, index) {
            self.filled[index] = Nanos(0);
            self.record(monotonic().0.saturating_sub(since.0));
        }
    }

    /// Counts an access; whether it is timed.
    #[inline]
    fn count(&mut self, bytes: usize) -> bool {
        self.accesses += 1;
        self.bytes += bytes as u64;
        self.countdown -= 1;
        match self.countdown {
            // The next access will be timed, so it has to be known when this one ended.
            1 => self.now = monotonic(),
            0 => return true,
            _ => {}
        }
        self.last_interval().accesses += 1;
        false
    }

    fn time(&mut self, index: usize) -> ControlFlow<()> {
        let now = monotonic();
        let since = said(&self.submitted, index).unwrap_or(self.now);
        let ended = said(&self.arrived, index).unwrap_or(now);
        self.arrive_at(now);
        self.last_interval().accesses += 1;
        self.record(ended.0.saturating_sub(since.0));
        self.flow()
    }

    /// The clock shows `now`: the next timed access is counted from here, in the interval of this moment.
    fn arrive_at(&mut self, now: Nanos) {
        self.now = now;
        self.countdown = self.timed_one_in;
        let number = (now.0.saturating_sub(self.until.began.0) / self.interval.0.max(1)) as usize;
        while self.intervals.len() <= number {
            self.intervals.push(Interval::new());
        }
    }

    /// A timed access took so long.
    fn record(&mut self, lasted: u64) {
        let (weight, lasted) = (self.timed_one_in, lasted.max(1));
        // Automatic resizing makes this infallible; the saturating variant would clamp instead.
        let _ = self.last_interval().latency.record_n(lasted, weight);
        let _ = self.ways[self.way.0].latency.record_n(lasted, weight);
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn last_interval(&mut self) -> &mut Interval {
        self.intervals.last_mut().expect("there is one from the start")
    }

    /// What this thread did, with its intervals and how many accesses stand behind one timed one.
    pub fn finish(self) -> (ThreadRun, Vec<Interval>, u64) {
        let wall_ns = self.now.0.saturating_sub(self.until.began.0);
        (ThreadRun { accesses: self.accesses, bytes: self.bytes, wall_ns }, self.intervals, self.timed_one_in)
    }
}

/// Keeps the moment of the extent `index`.
fn set(moments: &mut Vec<Nanos>, index: usize, moment: Nanos) {
    if moments.len() <= index {
        moments.resize(index + 1, Nanos(0));
    }
    moments[index] = moment;
}

/// The moment of the extent `index`, where the method told one.
fn said(moments: &[Nanos], index: usize) -> Option<Nanos> {
    moments.get(index).copied().filter(|at| at.0 != 0)
}

/// The used buckets of a histogram, by their upper edge.
pub fn buckets(histogram: &Histogram<u64>) -> Buckets {
    Buckets(histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(stop: &AtomicBool) -> Until<'_> {
        Until { began: monotonic(), deadline: None, accesses: 10_000, stop, own: stop }
    }

    #[test]
    fn every_access_is_counted_whether_timed_or_not() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        for _ in 0..10 {
            meter.batch();
            for index in 0..1000 {
                let _ = meter.ended(index, 8);
            }
        }
        let (run, intervals, one_in) = meter.finish();

        assert_eq!((run.accesses, run.bytes), (10_000, 80_000));
        assert_eq!(intervals.iter().map(|interval| interval.accesses).sum::<u64>(), 10_000);
        assert_eq!(one_in, SPARSE, "accesses that do nothing are too fast to time each");
        let weighed: u64 = intervals.iter().map(|interval| interval.latency.len()).sum();
        assert!((10_000 - SPARSE..=10_000 + SPARSE).contains(&weighed), "{weighed}");
    }

    #[test]
    fn the_quota_and_the_stop_end_it() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(Until { accesses: 2, ..until(&stop) }, Nanos::millis(250));

        assert!(meter.ended(0, 8).is_continue());
        assert!(meter.ended(1, 8).is_break());

        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        stop.store(true, Ordering::Relaxed);
        assert!(meter.ended(0, 8).is_break());
    }

    #[test]
    fn a_submitted_access_lasts_from_its_submission() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        meter.submitted(1);
        let submitted = meter.submitted[1];
        while monotonic().0 < submitted.0 + 1_000_000 {}
        let _ = meter.ended(0, 8);
        let _ = meter.ended(1, 8);
        let (_, intervals, _) = meter.finish();

        let latency = &intervals.last().unwrap().latency;
        assert!(latency.max() >= 1_000_000, "measured from the submission, not from the end of access 0");
    }

    #[test]
    fn a_write_that_is_in_flight_lasts_until_it_is_written_and_not_until_it_is_filled() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        for index in 0..2 {
            meter.submitted(index);
            let _ = meter.filled(index, 8);
        }
        let filled = meter.filled[1];
        while monotonic().0 < filled.0 + 1_000_000 {}
        (0..2).for_each(|index| meter.written(index));
        meter.written(0);
        let (run, intervals, _) = meter.finish();

        let latency = &intervals.last().unwrap().latency;
        assert_eq!((run.accesses, latency.len()), (2, 2), "each once");
        assert!(latency.min() >= 1_000_000 * 99 / 100, "{}", latency.min());
    }

    #[test]
    fn who_is_not_said_to_be_submitted_ends_when_it_is_filled() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        let _ = meter.filled(0, 8);
        meter.written(0);
        let (run, intervals, _) = meter.finish();

        assert_eq!((run.accesses, intervals.last().unwrap().latency.len()), (1, 1));
    }

    #[test]
    fn an_access_lasts_until_it_arrived_not_until_it_was_shown() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        meter.submitted(0);
        meter.arrived(0);
        let (submitted, arrived) = (meter.submitted[0], meter.arrived[0]);
        while monotonic().0 < arrived.0 + 5_000_000 {}
        let _ = meter.ended(0, 8);
        let (_, intervals, _) = meter.finish();

        let latency = &intervals.last().unwrap().latency;
        let lasted = arrived.0 - submitted.0;
        assert!(latency.max() <= lasted + lasted / 50 + 1, "{} ns, {lasted} until it arrived", latency.max());
    }
}
