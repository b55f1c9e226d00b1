//! The most that a remedy can gain, from the time that threads wait now.

use super::patient::{Patient, Seat};
use super::rule::Gain;
use crate::watch::evidence::{Evidence, MappedFile};

/// Gains below this are not worth mentioning.
const LEAST: f64 = 1.05;

/// No program is taken to wait for more of its time than this.
const MOST: f64 = 0.99;

/// Share of its time that the program waits in faults of `file`; always below 1.
pub fn waiting(evidence: &Evidence, file: &MappedFile) -> f64 {
    let patient = Patient { processes: std::slice::from_ref(evidence) };
    patient.waiting(&[Seat { process: 0, evidence, file }]).min(MOST)
}

/// How many times as fast the program would be without its waiting, but for the share of it that remains with the remedy.
pub fn at_most(gain: Gain, waiting: Option<f64>, remains: f64) -> Option<f64> {
    let waiting = waiting.filter(|_| gain == Gain::Waits)?;
    let gain = 1.0 / (1.0 - waiting.min(MOST) * (1.0 - remains));
    (gain >= LEAST).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A watch of 4 s.
    fn at(waited_ns: u64, threads: usize) -> f64 {
        use majorfault::observe::pattern::{Pattern, Recognised};
        let order = Some(Recognised { pattern: Pattern::Random, confidence: 0.9, threads, repeats: 0 });
        let file = MappedFile { path: "/x".to_owned(), waited_ns, order, ..MappedFile::default() };
        let evidence = Evidence { watched: Duration::from_secs(4), ..Evidence::default() };
        waiting(&evidence, &file)
    }

    #[test]
    fn a_program_that_waits_for_three_quarters_of_its_time_gains_four_times_at_most() {
        assert_eq!(at_most(Gain::Waits, Some(0.75), 0.0), Some(4.0));
    }

    #[test]
    fn what_the_remedy_still_waits_for_is_not_gained() {
        assert_eq!(at_most(Gain::Waits, Some(0.75), 1.0 / 3.0), Some(2.0));
        assert_eq!(at_most(Gain::Waits, Some(0.75), 1.0), None);
        assert_eq!(at_most(Gain::Waits, Some(0.75), 3.0), None, "it would lose, and is no gain");
    }

    #[test]
    fn where_nobody_can_tell_the_gain_it_is_not_told() {
        assert_eq!(at_most(Gain::Unknown, Some(0.75), 0.0), None);
        assert_eq!(at_most(Gain::Failure, Some(0.75), 0.0), None);
        assert_eq!(at_most(Gain::Waits, None, 0.0), None);
    }

    #[test]
    fn the_time_is_that_of_all_threads_that_faulted() {
        assert_eq!((at(2_000_000_000, 1), at(2_000_000_000, 4), at(2_000_000_000, 0)), (0.5, 0.125, 0.5));
    }

    #[test]
    fn no_program_waits_for_more_than_99_hundredths_of_its_time() {
        assert_eq!(at(400_000_000_000, 1), 0.99);
        assert!((at_most(Gain::Waits, Some(1.0), 0.0).unwrap() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_below_5_percent_is_not_worth_a_word() {
        assert_eq!(at_most(Gain::Waits, Some(0.047), 0.0), None);
        assert!(at_most(Gain::Waits, Some(0.048), 0.0).is_some_and(|gain| (1.05..1.051).contains(&gain)));
    }
}
