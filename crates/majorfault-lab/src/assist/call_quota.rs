//! How many of the program's read calls are looked at: a program that finds everything cached may read a million times each second, and each
//! read that is looked at costs it more than a microsecond. Reads that found what was read ahead for them do not count: they gained much more.

use std::time::{Duration, Instant};

/// The most read calls that are looked at in a [`TERM`]; where there are more, nobody looks for a term, then for two, four, up to [`LONGEST`].
const MOST: u64 = 1_000;
const TERM: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(3_200);

/// Whether read calls are looked at.
#[derive(Debug)]
pub struct CallQuota {
    since: Instant,
    /// Calls that had been seen then.
    before: u64,
    is_on: bool,
    rest: Duration,
}

impl CallQuota {
    /// From now on.
    pub fn new(now: Instant) -> CallQuota {
        CallQuota { since: now, before: 0, is_on: true, rest: TERM }
    }

    /// Whether to look at them from now on, where that changes; `seen` is the number of calls that were seen in vain so far.
    pub fn turn(&mut self, now: Instant, seen: u64) -> Option<bool> {
        let (was_on, passed) = (self.is_on, now.duration_since(self.since));
        match was_on {
            true if seen - self.before > MOST => *self = CallQuota { since: now, is_on: false, ..*self },
            true if passed >= TERM => *self = CallQuota { before: seen, ..CallQuota::new(now) },
            false if passed >= self.rest => {
                *self = CallQuota { since: now, before: seen, is_on: true, rest: (2 * self.rest).min(LONGEST) };
            }
            _ => {}
        }
        (self.is_on != was_on).then_some(self.is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_1000_calls_nobody_looks_for_ever_longer_times_until_there_are_fewer() {
        let began = Instant::now();
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut quota = CallQuota::new(began);

        assert_eq!((quota.turn(at(1), 1_000), quota.turn(at(2), 1_001)), (None, Some(false)));
        assert_eq!((quota.turn(at(101), 1_001), quota.turn(at(102), 1_002)), (None, Some(true)));
        assert_eq!((quota.turn(at(103), 2_002), quota.turn(at(104), 2_003)), (None, Some(false)));
        assert_eq!((quota.turn(at(303), 2_003), quota.turn(at(304), 2_003)), (None, Some(true)));
        // A term with few of them.
        assert_eq!((quota.turn(at(404), 3_000), quota.turn(at(405), 4_001)), (None, Some(false)));
        assert_eq!((quota.turn(at(504), 4_001), quota.turn(at(505), 4_001)), (None, Some(true)));
    }

    #[test]
    fn the_longest_rest_is_3200_ms() {
        let began = Instant::now();
        let (mut quota, mut now, mut seen, mut rests) = (CallQuota::new(began), began, 0, Vec::new());
        for _ in 0..8 {
            seen += 1_001;
            assert_eq!(quota.turn(now, seen), Some(false));
            rests.push(quota.rest.as_millis());
            now += quota.rest;
            assert_eq!(quota.turn(now, seen), Some(true));
        }

        assert_eq!(rests, [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
    }
}
