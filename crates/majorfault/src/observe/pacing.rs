//! When faults are sampled and when not, so that a program loses no more of its time than a given share.
//!
//! Every sampled fault costs its thread [`COST`]. A purse is filled by the share of the time that may be lost, and each fault is
//! paid from it; while it is empty, faults go unsampled. So a program with few faults is seen wholly, and one with
//! many in windows, each of which stands for the pause before it, too. What is within a window is complete and in order.

use crate::units::Nanos;

/// What a sampled fault costs the thread that faults, both its records: 0.5 to 2 us were seen on Linux 6.18 in a guest, most where other
/// programs use the caches.
pub const COST: Nanos = Nanos(2500);

/// Share of a processor's time that sampling may take.
pub const SHARE: f64 = 0.01;

/// The most that is saved up, so that a short program and the beginning of a flood are seen wholly: 8000 faults, or 0.4 % of the
/// doctor's five seconds.
const PURSE_NS: f64 = 20e6;

/// From here on what was empty is full enough to see everything again: 1000 faults.
const FILLED_NS: f64 = PURSE_NS / 8.0;

/// The length of a window.
pub const WINDOW: Nanos = Nanos(400_000);

/// What a program that was started for the watch begins with: 40 000 faults. Its beginning comes once.
const FIRST_PURSE_NS: f64 = 100e6;

/// The shortest pause. A window in which the program did not run costs nothing, and says little.
const SHORTEST_PAUSE_NS: f64 = 20e6;

/// The longest pause: a change of the program's behaviour is seen after it.
const LONGEST_PAUSE_NS: f64 = 2e9;

/// What a pause saves, as a multiple of what switching takes: as much remains for faults, else a program that faults a little less often than
/// can be paid for would be seen in windows for ever, because switching spends what the pauses save.
const SWITCHING: f64 = 2.0;

/// Faults from which on it is known how often a program faults: fewer may be one burst.
const KNOWN: u64 = 400;

/// Normal quantile of an interval that holds the true value in 95 % of the cases.
const NORMAL: f64 = 1.96;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// Sampling goes on.
    On,
    /// Sampling pauses for this long.
    Pause(Nanos),
}

/// Decides by the faults seen so far.
#[derive(Clone, Debug)]
pub struct Pacing {
    share: f64,
    purse_ns: f64,
    /// Up to where the purse is filled.
    at: Nanos,
    /// Whether the purse was empty, and is not yet [filled](FILLED_NS) again: so long the program may go on as before at any moment.
    is_sparing: bool,
    /// What the last switching on and off took.
    switching_ns: f64,
}

/// How much of the time was sampled, and how well the rest is known from it.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    on_ns: f64,
    paused_ns: f64,
    paused_squared: f64,
    /// Faults each second in the windows after a pause: their number, sum and sum of squares.
    windows: f64,
    rates: f64,
    rates_squared: f64,
    estimate: f64,
    samples: f64,
}

impl Pacing {
    /// Pays at most this share of a processor's time, from `now` on.
    pub fn new(share: f64, now: Nanos) -> Pacing {
        Pacing { share, purse_ns: PURSE_NS, at: now, is_sparing: false, switching_ns: 0.0 }
    }

    /// The same for a program that starts: its beginning is seen wholly.
    pub fn of_started(share: f64, now: Nanos) -> Pacing {
        Pacing { purse_ns: FIRST_PURSE_NS, ..Pacing::new(share, now) }
    }

    /// The same for programs that faulted so often in the time before, `over`: with windows from the first moment on where that is too much.
    pub fn knowing(share: f64, now: Nanos, faults: u64, over: Nanos) -> Pacing {
        match faults >= KNOWN && (faults * COST.0) as f64 > share * over.0 as f64 {
            true => Pacing { purse_ns: 0.0, is_sparing: true, ..Pacing::new(share, now) },
            false => Pacing::new(share, now),
        }
    }

    /// Pays for the faults up to `now`, on the processor with the most; `extra` is what switching on and off took.
    pub fn pay(&mut self, now: Nanos, faults: u64, extra: Nanos) -> NextTurn {
        let passed = now.0.saturating_sub(self.at.0) as f64;
        self.at = now;
        if extra.0 > 0 {
            self.switching_ns = extra.0 as f64;
        }
        let spent = faults as f64 * COST.0 as f64 + extra.0 as f64;
        let filled = (self.purse_ns + passed * self.share).min(PURSE_NS).max(self.purse_ns);
        self.purse_ns = filled - spent;
        self.is_sparing = self.purse_ns < if self.is_sparing { FILLED_NS } else { 0.0 };
        if !self.is_sparing {
            return NextTurn::On;
        }
        // What cannot be paid back within the longest pause is forgiven: else one burst would blind us for minutes.
        let needed_ns = (-self.purse_ns).max(self.switching_ns * SWITCHING) / self.share;
        let pause = needed_ns.clamp(SHORTEST_PAUSE_NS, LONGEST_PAUSE_NS);
        self.purse_ns = self.purse_ns.max(-LONGEST_PAUSE_NS * self.share);
        NextTurn::Pause(Nanos(pause as u64))
    }
}

impl Coverage {
    /// Notes a stretch of sampling with its faults, after a pause (zero where there was none). Returns the faults of the program for
    /// which each of them stands.
    pub fn note(&mut self, pause: Nanos, on: Nanos, faults: u64) -> f64 {
        let (pause_ns, on_ns) = (pause.0 as f64, on.0.max(1) as f64);
        self.on_ns += on_ns;
        let weight = (pause_ns + on_ns) / on_ns;
        self.estimate += faults as f64 * weight;
        self.samples += faults as f64;
        if pause.0 > 0 {
            let rate = faults as f64 / on_ns;
            self.paused_ns += pause_ns;
            self.paused_squared += pause_ns * pause_ns;
            self.windows += 1.0;
            self.rates += rate;
            self.rates_squared += rate * rate;
        }
        weight
    }

    /// Half the width of the 95 % interval of a share of the faults (of a file, say) that is told from those sampled, at most.
    pub fn share_error(&self) -> f64 {
        NORMAL / 2.0 / self.samples.max(1.0).sqrt()
    }

    /// The share of the time in which faults were sampled.
    pub fn share(&self) -> f64 {
        if self.paused_ns > 0.0 { self.on_ns / (self.on_ns + self.paused_ns) } else { 1.0 }
    }

    /// Half the width of the 95 % interval around the estimated number of faults, as a share of it: from how much the windows differ.
    /// None where that cannot be told, because there were fewer than two.
    pub fn error(&self) -> Option<f64> {
        if self.windows == 0.0 || self.estimate == 0.0 {
            return Some(0.0);
        }
        if self.windows < 2.0 {
            return None;
        }
        let mean = self.rates / self.windows;
        let variance = (self.rates_squared / self.windows - mean * mean).max(0.0) * self.windows / (self.windows - 1.0);
        // Each pause is estimated by one window, and the windows' own mean is known from so many.
        let standard = (variance * (self.paused_squared + self.paused_ns * self.paused_ns / self.windows)).sqrt();
        Some(NORMAL * standard / self.estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The share of the time that is on, and what is paid, of a program with so many faults each second.
    fn paced(rate: u64) -> (f64, f64) {
        let mut pacing = Pacing::new(0.01, Nanos(0));
        let (mut now, mut on_ns, mut faults) = (0, 0, 0);
        while now < 60 * SECOND {
            let window = 2_000_000;
            now += window;
            on_ns += window;
            faults += rate * window / SECOND;
            if let NextTurn::Pause(pause) = pacing.pay(Nanos(now), rate * window / SECOND, Nanos(0)) {
                now += pause.0;
                pacing.pay(Nanos(now), 0, Nanos(0));
            }
        }
        (on_ns as f64 / now as f64, faults as f64 * 2500.0 / now as f64)
    }

    #[test]
    fn few_faults_are_all_seen_and_many_cost_no_more_than_the_share() {
        assert_eq!(paced(3_900).0, 1.0);
        let (on, lost) = paced(200_000);
        assert!((0.01..0.04).contains(&on) && (0.005..0.0105).contains(&lost), "{on} {lost}");
    }

    #[test]
    fn the_beginning_of_a_flood_is_seen_wholly() {
        let mut pacing = Pacing::new(0.01, Nanos(0));

        assert_eq!(pacing.pay(Nanos(1_000_000), 7_900, Nanos(0)), NextTurn::On);
        assert!(matches!(pacing.pay(Nanos(2_000_000), 2900, Nanos(0)), NextTurn::Pause(_)));
    }

    #[test]
    fn no_burst_blinds_for_longer_than_two_seconds() {
        let mut pacing = Pacing::new(0.01, Nanos(0));

        assert_eq!(pacing.pay(Nanos(1000), 10_000_000, Nanos(0)), NextTurn::Pause(Nanos(2 * SECOND)));
        assert_eq!(pacing.pay(Nanos(2 * SECOND + 1000), 0, Nanos(0)), NextTurn::Pause(Nanos(20_000_000)));
    }

    #[test]
    fn a_program_that_is_known_to_fault_often_is_seen_in_windows_from_the_first_moment_on() {
        let first =
            |faults, over| Pacing::knowing(0.01, Nanos(0), faults, Nanos(over)).pay(Nanos(400_000), 0, Nanos(0));

        let paused = NextTurn::Pause(Nanos(20_000_000));
        assert_eq!((first(3_900, SECOND), first(4_100, SECOND)), (NextTurn::On, paused));
        // A burst is no rate.
        assert_eq!((first(399, 1_000_000), first(400, 1_000_000)), (NextTurn::On, paused));
    }

    #[test]
    fn after_a_flood_windows_stay_short_until_a_thousand_faults_are_saved() {
        let mut pacing = Pacing::new(0.01, Nanos(0));
        pacing.pay(Nanos(0), 8_001, Nanos(0));

        assert_eq!(pacing.pay(Nanos(SECOND / 4), 0, Nanos(0)), NextTurn::Pause(Nanos(20_000_000)));
        assert_eq!(pacing.pay(Nanos(SECOND / 4 + 300_000), 0, Nanos(0)), NextTurn::On);
    }

    #[test]
    fn a_program_that_starts_is_seen_wholly_for_40_000_faults() {
        let mut pacing = Pacing::of_started(0.01, Nanos(0));

        assert_eq!(pacing.pay(Nanos(1000), 39_000, Nanos(0)), NextTurn::On);
        assert!(matches!(pacing.pay(Nanos(2000), 2000, Nanos(0)), NextTurn::Pause(_)));
    }

    #[test]
    fn switching_is_paid_as_faults_are() {
        let mut pacing = Pacing::new(0.01, Nanos(0));

        let turn = pacing.pay(Nanos(0), 0, Nanos(20_200_000));

        // Twice what it took, at a hundredth of the time.
        assert_eq!(turn, NextTurn::Pause(Nanos(2 * SECOND)));
    }

    #[test]
    fn who_faults_seldom_again_is_soon_seen_wholly_whatever_switching_takes() {
        let mut pacing = Pacing::new(0.01, Nanos(0));
        let (mut now, mut turn) = (0, pacing.pay(Nanos(0), 8_100, Nanos(0)));
        while let NextTurn::Pause(pause) = turn {
            now += pause.0;
            pacing.pay(Nanos(now), 0, Nanos(400_000));
            now += WINDOW.0;
            turn = pacing.pay(Nanos(now), 1, Nanos(0));
            assert!(now < 2 * SECOND);
        }
        // It stays so at three quarters of what can be paid for.
        (1..100).for_each(|tenth| {
            assert_eq!(pacing.pay(Nanos(now + tenth * SECOND / 10), 300, Nanos(0)), NextTurn::On);
        });
    }

    #[test]
    fn a_window_stands_for_the_pause_before_it() {
        let mut coverage = Coverage::default();

        assert_eq!(coverage.note(Nanos(0), Nanos(100), 7), 1.0);
        assert_eq!(coverage.note(Nanos(900), Nanos(100), 7), 10.0);
        assert_eq!(coverage.estimate, 77.0);
        assert!((coverage.share() - 200.0 / 1100.0).abs() < 1e-9);
    }

    #[test]
    fn the_error_grows_with_the_difference_between_windows() {
        let of = |counts: &[u64]| {
            let mut coverage = Coverage::default();
            for count in counts {
                coverage.note(Nanos(900), Nanos(100), *count);
            }
            coverage.error()
        };

        assert_eq!((of(&[]), of(&[5])), (Some(0.0), None));
        assert!(of(&[5, 5, 5, 5]).unwrap() < 1e-6);
        let (small, large) = (of(&[4, 6, 4, 6]).unwrap(), of(&[1, 9, 1, 9]).unwrap());
        // Rates of 0.04 and 0.06: a deviation of 0.01155; four pauses of 900, once each and once together.
        assert!((small - 1.96 * 0.011_547 * 2545.58 / 200.0).abs() < 1e-3, "{small}");
        assert!((large / small - 4.0).abs() < 1e-6);
    }

    #[test]
    fn a_share_is_known_to_a_tenth_from_96_faults() {
        let mut coverage = Coverage::default();
        coverage.note(Nanos(900), Nanos(100), 96);

        assert!((coverage.share_error() - 0.1).abs() < 1e-3);
    }

    #[test]
    fn the_interval_holds_the_true_number_in_most_cases() {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let held = (0..500).filter(|_| {
            let (mut coverage, mut truth) = (Coverage::default(), 0.0);
            for _ in 0..40 {
                // Ten stretches as long as the window, the last of which is the window.
                let counts: Vec<u64> = (0..10).map(|_| 50 + (draw() * 100.0) as u64).collect();
                truth += counts.iter().sum::<u64>() as f64;
                coverage.note(Nanos(900), Nanos(100), counts[9]);
            }
            (coverage.estimate - truth).abs() <= coverage.error().unwrap() * coverage.estimate
        });

        assert!(held.count() >= 460);
    }
}
