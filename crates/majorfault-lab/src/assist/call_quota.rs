//! How many of the program's read calls are looked at: a program that finds everything cached may read a million times each second, and each
//! read that is looked at costs it more than a microsecond. Reads that found what was read ahead for them do not count: they gained much more.

use std::time::{Duration, Instant};

/// The most read calls that are looked at in each [`TERM`]: at about 1.4 us each, 1.4 % of a processor.
const MOST: u64 = 1_000;
const TERM: Duration = Duration::from_millis(100);

/// Whether read calls are looked at.
#[derive(Debug)]
pub struct CallQuota {
    since: Instant,
    /// Calls that had been seen then.
    before: u64,
    is_on: bool,
}

impl CallQuota {
    /// From now on.
    pub fn new(now: Instant) -> CallQuota {
        CallQuota { since: now, before: 0, is_on: true }
    }

    /// Whether to look at them from now on, where that changes; `seen` is the number of calls that were seen in vain so far.
    pub fn turn(&mut self, now: Instant, seen: u64) -> Option<bool> {
        let was_on = self.is_on;
        if now.duration_since(self.since) >= TERM {
            *self = CallQuota { since: now, before: seen, is_on: true };
        } else if seen - self.before > MOST {
            self.is_on = false;
        }
        (self.is_on != was_on).then_some(self.is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_1000_calls_nobody_looks_until_100_ms_are_over() {
        let began = Instant::now();
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut quota = CallQuota::new(began);

        assert_eq!((quota.turn(at(1), 1_000), quota.turn(at(2), 1_001)), (None, Some(false)));
        assert_eq!((quota.turn(at(99), 1_001), quota.turn(at(100), 1_002)), (None, Some(true)));
        assert_eq!((quota.turn(at(101), 2_002), quota.turn(at(102), 2_003)), (None, Some(false)));
    }
}
