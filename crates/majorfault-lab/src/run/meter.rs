//! The clock of one thread's accesses: counts by interval, latency histograms, the moment to stop.

use crate::record::{Buckets, ThreadRun};
use hdrhistogram::Histogram;
use majorfault::Nanos;
use majorfault::sys::clock::monotonic;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// From which accesses on their mean is believed.
const SURE: u64 = 4096;

/// Accesses for each one that is timed, where they take less than this on average: reading the clock twice (20-40 ns each) is to
/// be no visible share of them. Primes, so that what comes round every so many accesses (the first one of a page) is timed as
/// often as any other.
const SPARSE: [(Nanos, u64); 2] = [(Nanos(200), 61), (Nanos(2_000), 17)];

/// Where the accesses since the last timed one took longer than this, the next one is timed: none goes on for long beyond the end.
const LATE: Nanos = Nanos::millis(1);

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

/// What a thread did.
pub struct Metered {
    /// Counts and time.
    pub run: ThreadRun,
    /// By interval.
    pub intervals: Vec<Interval>,
    /// Accesses for each one that was timed.
    pub timed_one_in: u64,
    /// How long accesses waited until they were sent; empty for methods that do not tell.
    pub queueing: Histogram<u64>,
}

/// Accesses of which the last one is timed, for all of them.
#[derive(Clone, Copy)]
struct Window {
    left: u64,
    length: u64,
}

/// What an access is to its window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The last one: it is timed.
    Timed,
    /// The one before: when it ends the timed one begins.
    Before,
    /// Any other.
    Other,
}

impl Window {
    const fn of(length: u64) -> Window {
        Window { left: length, length }
    }

    #[inline]
    fn pass(&mut self) -> Turn {
        self.left -= 1;
        match self.left {
            0 => Turn::Timed,
            1 => Turn::Before,
            _ => Turn::Other,
        }
    }
}

/// The moments of one access to a queue; 0 is "not said".
#[derive(Clone, Copy, Default)]
struct Sent {
    /// Accesses that it stands for; 0 where it is not timed.
    weight: u64,
    submitted: Nanos,
    arrived: Nanos,
    filled: Nanos,
}

/// The clock of one thread.
pub struct Meter<'a> {
    until: Until<'a>,
    interval: Nanos,
    accesses: u64,
    bytes: u64,
    /// Of the accesses, those that an interval has.
    counted: u64,
    timed_one_in: u64,
    window: Window,
    /// The last reading of the clock.
    now: Nanos,
    /// When an access was timed last, or the batch began.
    looked: Nanos,
    /// Whether the method tells when an access is submitted.
    queues: bool,
    /// Submissions have windows of their own, as they end in any order.
    to_send: Window,
    /// Since when the next submission waits.
    sent: Nanos,
    queueing: Histogram<u64>,
    /// Those of the current batch that are timed, by index.
    timed: Vec<Sent>,
    intervals: Vec<Interval>,
    /// Which way the current batch goes, and what was counted when it began.
    way: (usize, u64, u64),
    ways: [WayTally; 2],
}

fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("two digits are a legal precision")
}

impl WayTally {
    fn new() -> WayTally {
        WayTally { accesses: 0, bytes: 0, latency: histogram() }
    }
}

impl Interval {
    fn new() -> Interval {
        Interval { accesses: 0, latency: histogram() }
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
            counted: 0,
            timed_one_in: 1,
            window: Window::of(1),
            now: until.began,
            looked: until.began,
            queues: false,
            to_send: Window::of(1),
            sent: until.began,
            queueing: histogram(),
            timed: Vec::new(),
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
        self.timed.clear();
        self.queues = false;
        self.now = monotonic();
        (self.looked, self.sent) = (self.now, self.now);
        let mean = Nanos(self.now.0.saturating_sub(self.until.began.0) / self.accesses.max(1));
        let sparse = SPARSE.iter().find(|(below, _)| self.accesses >= SURE && mean < *below);
        self.timed_one_in = sparse.map_or(1, |(_, one_in)| *one_in).max(self.timed_one_in);
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

    /// The extent `index` of the batch was submitted. Since the one before it was, it was the next, and waited: for a slot of the
    /// queue, or for room in the pool.
    #[inline]
    pub fn submitted(&mut self, index: usize) {
        self.queues = true;
        match self.to_send.pass() {
            Turn::Other => {}
            Turn::Before => self.sent = monotonic(),
            Turn::Timed => self.submitted_timed(index),
        }
    }

    fn submitted_timed(&mut self, index: usize) {
        let (now, weight) = (monotonic(), self.to_send.length);
        if self.timed.len() <= index {
            self.timed.resize(index + 1, Sent::default());
        }
        self.timed[index] = Sent { weight, submitted: now, ..Sent::default() };
        // Automatic resizing makes this infallible.
        let _ = self.queueing.record_n(now.0.saturating_sub(self.sent.0).max(1), weight);
        self.sent = now;
        self.to_send = Window::of(self.timed_one_in);
    }

    /// The extent `index` of the batch was there, though others may be shown first: its access ends here, as in fio.
    #[inline]
    pub fn arrived(&mut self, index: usize) {
        if let Some(sent) = self.timed.get_mut(index).filter(|sent| sent.weight > 0) {
            sent.arrived = monotonic();
        }
    }

    /// The access to the extent `index` of the batch ended, having handed over `bytes`.
    #[inline]
    pub fn ended(&mut self, index: usize, bytes: usize) -> ControlFlow<()> {
        match self.count(bytes) {
            Turn::Other if !self.queues => ControlFlow::Continue(()),
            turn => self.end(turn, index),
        }
    }

    /// The bytes of the extent `index` were filled. Its access ends here, or, where it was said to be submitted, when it is
    /// [`written`](Self::written).
    #[inline]
    pub fn filled(&mut self, index: usize, bytes: usize) -> ControlFlow<()> {
        match self.count(bytes) {
            turn if self.queues => {
                if let Some(sent) = self.timed.get_mut(index).filter(|sent| sent.weight > 0) {
                    sent.filled = monotonic();
                }
                self.look(turn)
            }
            Turn::Other => ControlFlow::Continue(()),
            turn => self.end(turn, index),
        }
    }

    /// The extent `index` was written.
    #[inline]
    pub fn written(&mut self, index: usize) {
        if let Some(sent) = self.timed.get_mut(index).filter(|sent| sent.filled.0 != 0) {
            let Sent { weight, filled, .. } = std::mem::take(sent);
            self.record(monotonic().0.saturating_sub(filled.0), weight);
        }
    }

    /// Counts an access.
    #[inline]
    fn count(&mut self, bytes: usize) -> Turn {
        self.accesses += 1;
        self.bytes += bytes as u64;
        self.window.pass()
    }

    /// An access ended whose end matters to the clock, or that may be one of a queue's that are timed.
    fn end(&mut self, turn: Turn, index: usize) -> ControlFlow<()> {
        let (since, weight) = (self.now, self.window.length);
        let flow = self.look(turn);
        if self.queues {
            if let Some(sent) = self.timed.get_mut(index).map(std::mem::take).filter(|sent| sent.weight > 0) {
                let ended = match (sent.arrived, turn) {
                    (Nanos(0), Turn::Timed) => self.now,
                    (Nanos(0), _) => monotonic(),
                    (arrived, _) => arrived,
                };
                self.record(ended.0.saturating_sub(sent.submitted.0), sent.weight);
            }
        } else if turn == Turn::Timed {
            self.record(self.now.0.saturating_sub(since.0), weight);
        }
        flow
    }

    /// Reads the clock where it is the turn for it: whether to go on.
    fn look(&mut self, turn: Turn) -> ControlFlow<()> {
        match turn {
            Turn::Other => return ControlFlow::Continue(()),
            // The next access will be timed, so it has to be known when this one ended.
            Turn::Before => {
                self.now = monotonic();
                return ControlFlow::Continue(());
            }
            Turn::Timed => {}
        }
        let now = monotonic();
        let is_late = now.0.saturating_sub(self.looked.0) > LATE.0;
        self.window = Window::of(if is_late { 1 } else { self.timed_one_in });
        (self.now, self.looked) = (now, now);
        let number = (now.0.saturating_sub(self.until.began.0) / self.interval.0.max(1)) as usize;
        // Those before this one are of the interval of the last reading.
        self.count_interval(1);
        while self.intervals.len() <= number {
            self.intervals.push(Interval::new());
        }
        self.count_interval(0);
        if self.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Adds all accesses but the last `but` to the last interval.
    fn count_interval(&mut self, but: u64) {
        let more = self.accesses - but - self.counted;
        self.counted += more;
        self.last_interval().accesses += more;
    }

    /// A timed access took so long, and stands for so many.
    fn record(&mut self, lasted: u64, weight: u64) {
        let lasted = lasted.max(1);
        // Automatic resizing makes this infallible; the saturating variant would clamp instead.
        let _ = self.last_interval().latency.record_n(lasted, weight);
        let _ = self.ways[self.way.0].latency.record_n(lasted, weight);
    }

    fn last_interval(&mut self) -> &mut Interval {
        self.intervals.last_mut().expect("there is one from the start")
    }

    /// What this thread did.
    pub fn finish(mut self) -> Metered {
        self.count_interval(0);
        let wall_ns = self.now.0.saturating_sub(self.until.began.0);
        let run = ThreadRun { accesses: self.accesses, bytes: self.bytes, wall_ns };
        let Meter { intervals, timed_one_in, queueing, .. } = self;
        Metered { run, intervals, timed_one_in, queueing }
    }
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
        let Metered { run, intervals, timed_one_in, queueing } = meter.finish();

        assert_eq!((run.accesses, run.bytes), (10_000, 80_000));
        assert_eq!(intervals.iter().map(|interval| interval.accesses).sum::<u64>(), 10_000);
        assert!(timed_one_in > 1, "accesses that do nothing are too fast to time each");
        let weighed: u64 = intervals.iter().map(|interval| interval.latency.len()).sum();
        assert!((10_000 - timed_one_in..=10_000).contains(&weighed), "{weighed}");
        assert!(queueing.is_empty(), "nobody said that one waited");
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
        let submitted = meter.timed[1].submitted;
        while monotonic().0 < submitted.0 + 1_000_000 {}
        let _ = meter.ended(0, 8);
        let _ = meter.ended(1, 8);
        let Metered { intervals, .. } = meter.finish();

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
        let filled = meter.timed[1].filled;
        while monotonic().0 < filled.0 + 1_000_000 {}
        (0..2).for_each(|index| meter.written(index));
        meter.written(0);
        let Metered { run, intervals, .. } = meter.finish();

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
        let Metered { run, intervals, .. } = meter.finish();

        assert_eq!((run.accesses, intervals.last().unwrap().latency.len()), (1, 1));
    }

    #[test]
    fn an_access_lasts_until_it_arrived_not_until_it_was_shown() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        meter.submitted(0);
        meter.arrived(0);
        let Sent { submitted, arrived, .. } = meter.timed[0];
        while monotonic().0 < arrived.0 + 5_000_000 {}
        let _ = meter.ended(0, 8);
        let Metered { intervals, .. } = meter.finish();

        let latency = &intervals.last().unwrap().latency;
        let lasted = arrived.0 - submitted.0;
        assert!(latency.max() <= lasted + lasted / 50 + 1, "{} ns, {lasted} until it arrived", latency.max());
    }

    /// A meter that times one access of each window of so many.
    fn sparse(stop: &AtomicBool, one_in: u64) -> Meter<'_> {
        let mut meter = Meter::new(until(stop), Nanos::millis(250));
        meter.batch();
        meter.timed_one_in = one_in;
        meter
    }

    #[test]
    fn an_access_of_a_queue_is_timed_where_its_submission_was_and_stands_for_its_window() {
        let stop = AtomicBool::new(false);
        let mut meter = sparse(&stop, 5);
        // The first is timed alone, then the last of every five.
        (0..21).for_each(|index| meter.submitted(index));
        let timed: Vec<usize> =
            (0..21).filter(|index| meter.timed.get(*index).is_some_and(|it| it.weight > 0)).collect();
        assert_eq!(timed, [0, 5, 10, 15, 20]);

        // Shown in an order of their own.
        (0..21).rev().for_each(|index| _ = meter.ended(index, 8));
        let Metered { run, intervals, queueing, .. } = meter.finish();

        assert_eq!((run.accesses, intervals.iter().map(|one| one.accesses).sum::<u64>()), (21, 21));
        assert_eq!(intervals.iter().map(|one| one.latency.len()).sum::<u64>(), 21, "1 + 4 x 5");
        assert_eq!(queueing.len(), 21);
    }

    #[test]
    fn what_waited_to_be_sent_is_told_apart_from_what_was_under_way() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        meter.submitted(0);
        let first = meter.timed[0].submitted;
        while monotonic().0 < first.0 + 2_000_000 {}
        meter.submitted(1);
        let second = meter.timed[1].submitted;
        meter.arrived(1);
        let arrived = meter.timed[1].arrived;
        let _ = meter.ended(1, 8);
        let Metered { intervals, queueing, .. } = meter.finish();

        let (waited, lasted) = (queueing.max(), intervals[0].latency.max());
        assert!(waited >= second.0 - first.0, "from the submission before it: {waited}");
        let under_way = arrived.0 - second.0;
        assert!(lasted <= under_way + under_way / 50 + 1, "the wait is no part of it: {lasted}, {under_way}");
    }

    #[test]
    fn a_batch_that_is_made_is_no_wait_for_a_slot() {
        let stop = AtomicBool::new(false);
        let mut meter = Meter::new(until(&stop), Nanos::millis(250));
        meter.batch();
        meter.submitted(0);
        meter.sent = Nanos(1);
        meter.batch();
        let begun = meter.sent;
        meter.submitted(0);

        assert!(begun.0 > 1 && meter.queueing.max() < monotonic().0 - 1);
    }

    #[test]
    fn after_accesses_that_took_long_the_next_one_is_timed_whatever_was_before() {
        let stop = AtomicBool::new(false);
        let mut meter = sparse(&stop, 61);
        let lengths = |meter: &mut Meter<'_>, looked: Nanos| {
            (meter.looked, meter.window) = (looked, Window::of(1));
            let _ = meter.ended(0, 8);
            meter.window.length
        };

        assert_eq!(lengths(&mut meter, monotonic()), 61);
        assert_eq!(lengths(&mut meter, Nanos(monotonic().0 - LATE.0 - 1)), 1);
        assert_eq!(lengths(&mut meter, monotonic()), 61);
    }

    #[test]
    fn what_comes_round_by_powers_of_two_is_timed_as_often_as_any_other() {
        for (_, one_in) in SPARSE {
            for round in [2, 8, 64, 512] {
                let mut at: Vec<u64> = (1..=round).map(|window| window * one_in % round).collect();
                at.sort_unstable();
                assert_eq!(at, (0..round).collect::<Vec<_>>(), "one in {one_in}, each {round}");
            }
        }
    }
}
