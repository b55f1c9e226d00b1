//! MADV_RANDOM on a mapping that is read in order: no read-ahead, and each wait brings one page.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::gain::waiting;
use crate::doctor::rule::{Arms, Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::order::words;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "random_scan",
    summary: "MADV_RANDOM is in force where the accesses have an order",
    looks_at: &[Part::MappedFiles, Part::Faults, Part::AdviceInForce],
    thresholds: THRESHOLDS,
    trouble: "MADV_RANDOM keeps a scan from reading ahead",
    remedies: &[&ADVISE],
    alerts: true,
    gain: Gain::Waits,
    explains: &[&super::thrash::RULE, &super::fault_stall::RULE],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Fewer waits for the file than this may be chance.
    FEWEST: u64 = 64, Count;
    /// Share of the steps that must be in order.
    ORDERED: f64 = 0.6, Share;
    /// A page of a scan that is read ahead takes at least about this long, in nanoseconds: 4 GiB each second.
    STREAMED_NS: u64 = 1000, Count;
}

const ADVISE: Remedy = Remedy {
    when: "",
    says: "madvise(p, length, MADV_SEQUENTIAL) for the scan, MADV_RANDOM after it",
    proof: Proof::Replay(Arms { now: Some("mmap:advice=random"), remedy: "mmap:advice=sequential", workload: None }),
    symptom: Some(Symptom::RandomScan),
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let waited = evidence.data_files().filter(|file| file.major >= FEWEST);
    waited.filter_map(|file| Some(gaining(evidence, file, of_file(file)?))).collect()
}

/// With read-ahead the device still has to bring the pages.
fn gaining(evidence: &Evidence, file: &MappedFile, case: Case) -> Case {
    case.waiting(waiting(evidence, file)).remaining(file.major, STREAMED_NS, file.waited_ns)
}

fn of_file(file: &MappedFile) -> Option<Case> {
    let known = file.random_advice()?;
    let order = file.order.filter(|order| order.confidence >= ORDERED)?;
    let facts = vec![
        Fact::seen(known),
        Fact::guessed("order: {order} ({steps})").word("order", words(order.pattern)).number(
            "steps",
            order.confidence,
            MeasureUnit::Share,
        ),
        Fact::seen("{major} faults waited {waited}").count("major", file.major).nanos("waited", file.waited_ns),
    ];
    let is_scan = matches!(order.pattern, Pattern::Sequential | Pattern::Backward);
    is_scan.then(|| Case::of_file(file, Severity::Warning, &ADVISE).facts(facts))
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, only, order, with_file, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        with_file(|file| {
            file.major = 900;
            file.order = Some(order(Pattern::Sequential));
            (file.advised, file.mappings[0].deep) = (Some("MADV_RANDOM"), None);
        })
    }

    #[test]
    fn what_a_device_needs_for_the_pages_of_a_scan_remains() {
        let mut evidence = example();
        (evidence.files[0].major, evidence.files[0].waited_ns) = (25_000, 2_500_000_000);
        evidence.faults.as_mut().unwrap().waiting_ns = vec![2_500_000_000];
        assert_eq!(only(&RULE, &evidence).gain_at_most.map(|gain| (gain * 1000.0).round()), Some(1980.0));

        evidence.files[0].major = 1_250_000;
        assert_eq!(only(&RULE, &evidence).gain_at_most.map(|gain| (gain * 1000.0).round()), Some(1333.0));
    }

    #[test]
    fn a_scan_under_random_advice_is_found_and_a_lookup_is_not() {
        let mut evidence = with_file(|file| {
            file.major = 900;
            file.order = Some(order(Pattern::Sequential));
        });
        advise(&mut evidence, Deep { random: true, ..Deep::default() });

        assert!(only(&RULE, &evidence).remedy.contains("MADV_SEQUENTIAL"));

        evidence.files[0].order = Some(order(Pattern::Random));
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn advice_that_was_seen_stands_for_smaps_unless_that_says_otherwise() {
        let mut evidence = with_file(|file| {
            file.major = 900;
            file.order = Some(order(Pattern::Sequential));
            file.advised = Some("MADV_RANDOM");
        });
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].mappings[0].deep = None;
        assert!(only(&RULE, &evidence).evidence[0].to_string().contains("given during the watch"));

        evidence.files[0].advised = Some("MADV_NORMAL");
        assert_eq!(worst(&RULE, &evidence), None);
    }

    fn scanned(major: u64, pattern: Pattern, confidence: f64) -> Evidence {
        let mut evidence = with_file(|file| {
            (file.major, file.waited_ns) = (major, 250_000_000);
            file.order = Some(majorfault::observe::pattern::Recognised { confidence, ..order(pattern) });
        });
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        evidence
    }

    /// MADV_SEQUENTIAL was advised, but plain mappings were replayed.
    #[test]
    fn what_is_advised_is_what_is_replayed() {
        let found = only(&RULE, &scanned(900, Pattern::Sequential, 0.9));

        assert!(found.remedy.starts_with("madvise(p, length, MADV_SEQUENTIAL)"), "{}", found.remedy);
        assert_eq!(found.replay.unwrap().arms, ["mmap:advice=random", "mmap:advice=sequential"]);
        assert!(found.proof.ends_with("-m mmap:advice=random -m mmap:advice=sequential"), "{}", found.proof);
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
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &scanned(900, Pattern::Sequential, 0.87));

        assert_eq!(
            found.evidence,
            ["advice random in force (VmFlags rr)", "order: sequential (87 %)", "900 faults waited 250ms"]
        );
    }
}
