//! What a remedy can gain at most, from the time that is waited now.

use super::Finding;
use super::evidence::{Evidence, MappedFile};

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
}
