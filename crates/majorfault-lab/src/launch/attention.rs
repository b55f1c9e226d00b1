//! How closely a program is looked at: not at all before memory is short, only at faults that wait while nothing has an order, at all
//! faults while a stream goes on.

use majorfault::Nanos;

/// How long all faults are looked at without finding a stream, where enough of them came.
const TRIAL: Nanos = Nanos(100_000_000);

/// Faults without a stream after which the trial has failed.
const TRIED: u64 = 512;

/// How long at most, where few came.
const LONGEST_TRIAL: Nanos = Nanos(1_000_000_000);

/// The pause after a trial that failed, which doubles with the next.
const PAUSES: std::ops::Range<u64> = 10_000_000..2_000_000_000;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing: memory suffices.
    Calm,
    /// Faults that wait for a device.
    Waits,
    /// All faults.
    All,
}

/// What has been seen since the beginning, or lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Whether memory is short now.
    pub is_short: bool,
    /// Whether waits seem to have an order.
    pub is_promising: bool,
    /// Faults since the beginning.
    pub faults: u64,
    /// Of these, steps of streams that help.
    pub helped: u64,
}

/// Decides what is looked at.
#[derive(Debug)]
pub struct Attention {
    level: Level,
    /// When the level was reached, or a stream last helped, and what had been seen then.
    since: Nanos,
    then: Noticed,
    /// No trial before.
    not_before: Nanos,
    pause: u64,
}

impl Default for Attention {
    fn default() -> Attention {
        let then = Noticed::default();
        Attention { level: Level::Calm, since: Nanos(0), then, not_before: Nanos(0), pause: PAUSES.start }
    }
}

impl Attention {
    /// What is looked at from now on.
    pub fn look(&mut self, now: Nanos, sight: Noticed) -> Level {
        match self.level {
            _ if !sight.is_short => self.level = Level::Calm,
            Level::Calm => self.level = Level::Waits,
            Level::Waits if sight.is_promising && now >= self.not_before => self.begin(now, sight),
            Level::Waits => {}
            Level::All if sight.helped > self.then.helped => {
                self.pause = PAUSES.start;
                self.begin(now, sight);
            }
            Level::All => self.end_trial(now, sight),
        }
        self.level
    }

    fn begin(&mut self, now: Nanos, sight: Noticed) {
        (self.level, self.since, self.then) = (Level::All, now, sight);
    }

    fn end_trial(&mut self, now: Nanos, sight: Noticed) {
        let (took, faults) = (now.0.saturating_sub(self.since.0), sight.faults - self.then.faults);
        if took > LONGEST_TRIAL.0 || took > TRIAL.0 && faults > TRIED {
            self.level = Level::Waits;
            self.not_before = Nanos(now.0 + self.pause);
            self.pause = (2 * self.pause).min(PAUSES.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SHORT: Noticed = Noticed { is_short: true, is_promising: false, faults: 0, helped: 0 };
    const PROMISING: Noticed = Noticed { is_promising: true, ..SHORT };

    #[test]
    fn nothing_is_looked_at_while_memory_suffices() {
        let mut attention = Attention::default();

        assert_eq!(attention.look(Nanos(0), Noticed { is_short: false, ..PROMISING }), Level::Calm);
        assert_eq!(attention.look(Nanos(1), SHORT), Level::Waits);
        assert_eq!(attention.look(Nanos(2), PROMISING), Level::All);
        assert_eq!(attention.look(Nanos(3), Noticed { is_short: false, ..PROMISING }), Level::Calm);
    }

    #[test]
    fn all_faults_are_looked_at_as_long_as_a_stream_helps() {
        let mut attention = Attention::default();
        for sight in [SHORT, PROMISING] {
            attention.look(Nanos(0), sight);
        }

        for second in 1..10 {
            let sight = Noticed { faults: second * 1000, helped: second, ..SHORT };
            assert_eq!(attention.look(Nanos::secs(second), sight), Level::All);
        }
        let sight = Noticed { faults: 10_000, helped: 9, ..SHORT };
        assert_eq!(attention.look(Nanos(9_101 * MS), sight), Level::Waits);
    }

    #[test]
    fn a_trial_lasts_until_faults_have_come() {
        let mut attention = Attention::default();
        for sight in [SHORT, PROMISING] {
            attention.look(Nanos(0), sight);
        }

        assert_eq!(attention.look(Nanos(99 * MS), Noticed { faults: 5000, ..SHORT }), Level::All);
        assert_eq!(attention.look(Nanos(999 * MS), Noticed { faults: 100, ..SHORT }), Level::All);
        assert_eq!(attention.look(Nanos(1001 * MS), Noticed { faults: 100, ..SHORT }), Level::Waits);
    }

    #[test]
    fn each_failed_trial_doubles_the_pause_before_the_next() {
        let mut attention = Attention::default();
        attention.look(Nanos(0), SHORT);
        let (mut now, mut pauses) = (0, Vec::new());

        for round in 1..=10 {
            let failed = now;
            while attention.look(Nanos(now), Noticed { faults: round * 1000, ..PROMISING }) != Level::All {
                now += MS;
            }
            pauses.push((now - failed) / MS);
            now += 101 * MS;
            assert_eq!(attention.look(Nanos(now), Noticed { faults: (round + 1) * 1000, ..SHORT }), Level::Waits);
        }

        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 640, 1280, 2000]);
    }
}
