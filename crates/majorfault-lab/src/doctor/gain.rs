//! What a remedy can gain at most, from the time that is waited now.

use super::Finding;
use crate::watch::evidence::{Evidence, MappedFile};

/// Rules whose remedy is about waiting in faults.
const ABOUT_WAITING: &[&str] =
    &["fault_stall", "read_ahead_flood", "random_scan", "random_recency", "populate_after_random", "thrash"];

/// Gains below this are not worth a word.
const LEAST: f64 = 1.05;

/// Share of its threads' time that the program waits in faults of `file`, below 1.
pub fn waiting(evidence: &Evidence, file: &MappedFile) -> f64 {
    let threads = file.order.map_or(1, |order| order.threads.max(1)) as f64;
    (file.waited_ns as f64 / evidence.watched.as_nanos().max(1) as f64 / threads).clamp(0.0, 0.99)
}

/// The file that a finding is about.
pub fn file<'a>(evidence: &'a Evidence, finding: &Finding) -> Option<&'a MappedFile> {
    match finding.rule {
        "thrash" => evidence.data_files().max_by_key(|file| file.waits),
        _ => evidence.data_files().find(|file| file.path == finding.scope),
    }
}

/// How many times as fast the program would be, were there no waiting left that the finding is about.
pub fn at_most(evidence: &Evidence, finding: &Finding) -> Option<f64> {
    if !ABOUT_WAITING.contains(&finding.rule) {
        return None;
    }
    let gain = 1.0 / (1.0 - waiting(evidence, file(evidence, finding)?));
    (gain >= LEAST).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use std::time::Duration;

    #[test]
    fn a_program_that_waits_for_three_quarters_of_its_time_gains_four_times_at_most() {
        let file = MappedFile { path: "/x".to_owned(), waited_ns: 3_000_000_000, ..MappedFile::default() };
        let evidence = Evidence { watched: Duration::from_secs(4), files: vec![file], ..Evidence::default() };
        let finding = |rule| Finding {
            rule,
            severity: Severity::Warning,
            scope: "/x".to_owned(),
            what: String::new(),
            evidence: Vec::new(),
            remedy: String::new(),
            proof: String::new(),
        };

        assert_eq!(at_most(&evidence, &finding("fault_stall")), Some(4.0));
        assert_eq!(at_most(&evidence, &finding("map_count")), None);
    }

    /// Watched for 4 s.
    fn at(waited_ns: u64, threads: Option<usize>) -> Evidence {
        use majorfault::observe::pattern::{Pattern, Recognised};
        let order =
            threads.map(|threads| Recognised { pattern: Pattern::Random, confidence: 0.9, threads, repeats: 0 });
        let file = MappedFile { path: "/x".to_owned(), waited_ns, order, ..MappedFile::default() };
        Evidence { watched: Duration::from_secs(4), files: vec![file], ..Evidence::default() }
    }

    fn gain(evidence: &Evidence, rule: &'static str, scope: &str) -> Option<f64> {
        let (what, remedy, proof) = Default::default();
        let scope = scope.to_owned();
        at_most(evidence, &Finding { rule, severity: Severity::Note, scope, what, evidence: Vec::new(), remedy, proof })
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
        assert!((gain(&at(400_000_000_000, None), "fault_stall", "/x").unwrap() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_below_5_percent_is_not_worth_a_word() {
        assert_eq!(gain(&at(190_000_000, None), "fault_stall", "/x"), None);
        assert!(gain(&at(191_000_000, None), "fault_stall", "/x").is_some_and(|gain| (1.05..1.051).contains(&gain)));
    }

    #[test]
    fn the_rules_about_waiting_have_a_gain_and_no_others() {
        let evidence = at(2_000_000_000, None);
        let with_gain: Vec<&str> = crate::doctor::rules::ALL
            .iter()
            .map(|rule| rule.name)
            .filter(|name| gain(&evidence, name, "/x").is_some())
            .collect();

        assert_eq!(
            with_gain,
            ["thrash", "populate_after_random", "random_scan", "random_recency", "read_ahead_flood", "fault_stall"]
        );
    }

    #[test]
    fn thrash_is_about_the_file_that_is_waited_for_most_and_others_about_their_scope() {
        let mut evidence = at(2_000_000_000, None);
        let mut other = evidence.files[0].clone();
        (other.path, other.waits, other.waited_ns) = ("/y".to_owned(), 9, 1_000_000_000);
        evidence.files.push(other);

        assert_eq!(gain(&evidence, "thrash", "cgroup").map(|gain| (gain * 100.0).round()), Some(133.0));
        assert_eq!(gain(&evidence, "fault_stall", "/x"), Some(2.0));
        assert_eq!(gain(&evidence, "fault_stall", "/z"), None);
    }
}
