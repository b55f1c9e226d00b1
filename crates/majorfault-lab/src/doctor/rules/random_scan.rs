//! MADV_RANDOM on a mapping that is read in order: no read-ahead, one page for each wait.

use crate::doctor::tell::terminal::words;
use crate::doctor::{Finding, Rule, Severity};
use crate::watch::evidence::Evidence;
use majorfault::Nanos;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "random_scan",
    summary: "MADV_RANDOM is in force where the accesses have an order (--deep, or --advice)",
    look,
};

fn look(evidence: &Evidence) -> Vec<Finding> {
    let scanned = evidence.data_files().filter(|file| file.major >= 64);
    scanned
        .filter_map(|file| {
            let known = file.random_advice()?;
            let order = file.order.filter(|order| order.confidence >= 0.6)?;
            matches!(order.pattern, Pattern::Sequential | Pattern::Backward).then(|| Finding {
                rule: RULE.name,
                severity: Severity::Warning,
                scope: file.path.clone(),
                what: "MADV_RANDOM keeps a scan from reading ahead".to_owned(),
                evidence: vec![
                    known.to_owned(),
                    format!("order: {} ({:.0} %)", words(order.pattern), order.confidence * 100.0),
                    format!("{} faults waited {}", file.major, Nanos(file.waited_ns)),
                ],
                remedy: "madvise(p, length, MADV_SEQUENTIAL) for the scan, MADV_RANDOM after it".to_owned(),
                proof: format!(
                    "majorfault compare {} --rw read --cache cold -m mmap:advice=random -m mmap:advice=sequential",
                    file.path
                ),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, only, order, with_file, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    #[test]
    fn a_scan_under_random_advice_is_found_and_a_lookup_is_not() {
        let mut evidence = with_file(|file| {
            file.major = 900;
            file.order = Some(order(Pattern::Sequential));
        });
        advise(&mut evidence, Deep { random: true, ..Deep::default() });

        assert!(only(&RULE, &evidence).remedy.contains("MADV_SEQUENTIAL"));

        evidence.files[0].order = Some(order(Pattern::Random));
        assert!(look(&evidence).is_empty());
    }

    #[test]
    fn advice_that_was_seen_stands_for_smaps_unless_that_says_otherwise() {
        let mut evidence = with_file(|file| {
            file.major = 900;
            file.order = Some(order(Pattern::Sequential));
            file.advised = Some("MADV_RANDOM");
        });
        assert!(look(&evidence).is_empty());

        evidence.files[0].mappings[0].deep = None;
        assert!(only(&RULE, &evidence).evidence[0].contains("given while watched"));

        evidence.files[0].advised = Some("MADV_NORMAL");
        assert!(look(&evidence).is_empty());
    }

    fn scanned(major: u64, pattern: Pattern, confidence: f64) -> Evidence {
        let mut evidence = with_file(|file| {
            (file.major, file.waited_ns) = (major, 250_000_000);
            file.order = Some(majorfault::observe::pattern::Recognised { confidence, ..order(pattern) });
        });
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        evidence
    }

    #[test]
    fn fewer_than_64_waits_are_chance() {
        assert_eq!(worst(&RULE, &scanned(63, Pattern::Sequential, 0.9)), None);
        assert_eq!(worst(&RULE, &scanned(64, Pattern::Sequential, 0.9)), Some(Severity::Warning));
    }

    #[test]
    fn six_tenths_of_the_steps_must_be_in_order() {
        assert_eq!(worst(&RULE, &scanned(64, Pattern::Backward, 0.599)), None);
        assert_eq!(worst(&RULE, &scanned(64, Pattern::Backward, 0.6)), Some(Severity::Warning));
    }

    #[test]
    fn orders_that_read_ahead_does_not_know_are_no_scan() {
        let hot = Pattern::HotSet { bytes: 1 << 20 };
        for pattern in [Pattern::Strided(1 << 20), Pattern::Random, hot, Pattern::Unknown] {
            assert_eq!(worst(&RULE, &scanned(900, pattern, 0.9)), None, "{pattern:?}");
        }
    }

    #[test]
    fn the_figures_are_told_with_their_units() {
        let found = only(&RULE, &scanned(900, Pattern::Sequential, 0.87));

        assert_eq!(
            found.evidence,
            ["advice random in force (VmFlags rr)", "order: sequential (87 %)", "900 faults waited 250ms"]
        );
    }
}
