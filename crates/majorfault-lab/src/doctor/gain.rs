//! The most that a remedy can gain, from the time that threads wait now.

use super::rule::Gain;
use crate::watch::evidence::{Evidence, MappedFile};

/// Gains below this are not worth mentioning.
const LEAST: f64 = 1.05;

/// Share of its threads' time that the program waits in faults of `file`; always below 1.
pub fn waiting(evidence: &Evidence, file: &MappedFile) -> f64 {
    let threads = file.order.map_or(1, |order| order.threads.max(1)) as f64;
    (file.waited_ns as f64 / evidence.watched.as_nanos().max(1) as f64 / threads).clamp(0.0, 0.99)
}

/// How many times as fast the program would be without any waiting in faults of the file.
pub fn at_most(gain: Gain, evidence: &Evidence, file: &MappedFile) -> Option<f64> {
    if gain == Gain::Unknown {
        return None;
    }
    let gain = 1.0 / (1.0 - waiting(evidence, file));
    (gain >= LEAST).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A watch of 4 s.
    fn at(waited_ns: u64, threads: Option<usize>) -> Evidence {
        use majorfault::observe::pattern::{Pattern, Recognised};
        let order =
            threads.map(|threads| Recognised { pattern: Pattern::Random, confidence: 0.9, threads, repeats: 0 });
        let file = MappedFile { path: "/x".to_owned(), waited_ns, order, ..MappedFile::default() };
        Evidence { watched: Duration::from_secs(4), files: vec![file], ..Evidence::default() }
    }

    fn gain(evidence: &Evidence) -> Option<f64> {
        at_most(Gain::Waits, evidence, &evidence.files[0])
    }

    #[test]
    fn a_program_that_waits_for_three_quarters_of_its_time_gains_four_times_at_most() {
        assert_eq!(gain(&at(3_000_000_000, None)), Some(4.0));
    }

    #[test]
    fn where_nobody_can_tell_the_gain_it_is_not_told() {
        let evidence = at(3_000_000_000, None);

        assert_eq!(at_most(Gain::Unknown, &evidence, &evidence.files[0]), None);
    }

    #[test]
    fn the_time_is_that_of_all_threads_that_faulted() {
        let share = |threads| {
            let evidence = at(2_000_000_000, threads);
            waiting(&evidence, &evidence.files[0])
        };

        assert_eq!((share(None), share(Some(1)), share(Some(4)), share(Some(0))), (0.5, 0.5, 0.125, 0.5));
    }

    #[test]
    fn no_program_waits_for_more_than_99_hundredths_of_its_time() {
        assert!((gain(&at(400_000_000_000, None)).unwrap() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_below_5_percent_is_not_worth_a_word() {
        assert_eq!(gain(&at(190_000_000, None)), None);
        assert!(gain(&at(191_000_000, None)).is_some_and(|gain| (1.05..1.051).contains(&gain)));
    }
}
