//! MADV_RANDOM under memory pressure: since Linux 6.3 its pages are not marked as used (vma_has_recency), so hot
//! pages are evicted like cold ones.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::gain::waiting;
use crate::doctor::rule::{Arms, Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{self, Evidence, MappedFile};

pub(super) const RULE: Rule = Rule {
    name: "random_recency",
    summary: "MADV_RANDOM under memory pressure evicts hot pages (Linux 6.3 and newer)",
    looks_at: &[Part::MappedFiles, Part::Faults, Part::AdviceInForce, Part::Counters, Part::Kernel],
    thresholds: THRESHOLDS,
    trouble: "MADV_RANDOM lets the kernel evict hot pages like cold ones",
    remedies: &[&TAKE_BACK],
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
    /// Reads for each different page that was touched, from which on hot pages are seen to be read again: a warning.
    AGAIN: f64 = 1.5, Times;
    /// Evicted pages needed again each second that mean memory pressure.
    PRESSURE: f64 = evidence::PRESSURE, PerSecond;
}

const TAKE_BACK: Remedy = Remedy {
    when: "",
    says: "madvise(p, length, MADV_NORMAL) and a small read-ahead for the device (read_ahead_kb=16), or keep the hot part \
           in a pool of your own",
    // Only pages that are needed again can show it.
    proof: Proof::Replay(Arms { now: Some("mmap:advice=random"), remedy: "mmap", workload: Some("--workload zipf") }),
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let is_pressure = |rate| rate >= PRESSURE && evidence.random_costs_hot_pages();
    let Some((rate, whose)) = evidence.refaults().filter(|(rate, _)| is_pressure(*rate)) else { return Vec::new() };
    let pressure = Fact::seen("{rate} evicted pages needed again each second ({whose})");
    let pressure = pressure.number("rate", rate, MeasureUnit::PerSecond).word("whose", whose);
    let hurt = evidence.data_files().filter(|file| file.major >= FEWEST);
    hurt.filter_map(|file| Some(of_file(evidence, file, file.random_advice()?, &pressure))).collect()
}

fn of_file(evidence: &Evidence, file: &MappedFile, known: &str, pressure: &Fact) -> Case {
    let (major, minor) = evidence.machine.kernel;
    let facts = vec![
        Fact::seen("{known}, Linux {kernel}").word("known", known).word("kernel", format!("{major}.{minor}")),
        pressure.clone(),
        Fact::seen("{major} faults waited").count("major", file.major),
    ];
    let is_cause = file.major as f64 >= file.touched_pages as f64 * AGAIN;
    let severity = if is_cause { Severity::Warning } else { Severity::Note };
    let waiting = is_cause.then(|| waiting(evidence, file));
    Case { is_cause, waiting, ..Case::of_file(file, severity, &TAKE_BACK).facts(facts) }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, count, only, with_file, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        let mut evidence = planted();
        (evidence.files[0].advised, evidence.files[0].mappings[0].deep) = (Some("MADV_RANDOM"), None);
        count(&mut evidence, "workingset_refault_file", 20_000);
        evidence
    }

    fn planted() -> Evidence {
        let mut evidence = with_file(|file| (file.major, file.touched_pages) = (500, 333));
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        count(&mut evidence, "cgroup_refault_pages", 20_000);
        evidence
    }

    #[test]
    fn random_advice_with_refaults_is_found_since_6_3() {
        assert!(only(&RULE, &planted()).evidence[1].to_string().contains("4000 evicted pages"));

        let old = Evidence {
            machine: crate::watch::evidence::MachineState { kernel: (6, 1), ..planted().machine },
            ..planted()
        };
        assert!(look(&old).is_empty());
    }

    #[test]
    fn random_advice_without_pressure_is_fine() {
        let mut evidence = planted();
        count(&mut evidence, "cgroup_refault_pages", 3);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn fewer_than_64_waits_for_a_file_are_chance() {
        let waited = |major| {
            let mut evidence = planted();
            (evidence.files[0].major, evidence.files[0].touched_pages) = (major, 30);
            worst(&RULE, &evidence)
        };

        assert_eq!(waited(63), None);
        assert_eq!(waited(64), Some(Severity::Warning));
    }

    /// Seen with LMDB and MDB_NORDAHEAD: every lookup reads another leaf, and what the doctor had advised it took back.
    #[test]
    fn pages_that_are_read_once_are_not_hot() {
        let touching = |pages| {
            let mut evidence = planted();
            evidence.files[0].touched_pages = pages;
            worst(&RULE, &evidence)
        };

        assert_eq!((touching(333), touching(334)), (Some(Severity::Warning), Some(Severity::Note)));
    }

    #[test]
    fn what_is_waited_for_hot_pages_is_told_and_of_cold_ones_it_is_not_the_cause() {
        let told = |pages| {
            let mut evidence = planted();
            evidence.files[0].touched_pages = pages;
            let cases = look(&evidence);
            (cases.len(), cases[0].is_cause, cases[0].waiting.is_some())
        };

        assert_eq!((told(333), told(334)), ((1, true, true), (1, false, false)));
    }

    #[test]
    fn fewer_than_100_pages_needed_again_each_second_are_no_pressure() {
        let again = |pages| {
            let mut evidence = planted();
            count(&mut evidence, "cgroup_refault_pages", pages);
            worst(&RULE, &evidence)
        };

        assert_eq!(again(499), None);
        assert_eq!(again(500), Some(Severity::Warning));
    }

    #[test]
    fn linux_6_2_marks_its_pages_and_6_3_does_not() {
        let of = |kernel| {
            let mut evidence = planted();
            evidence.machine.kernel = kernel;
            worst(&RULE, &evidence)
        };

        assert_eq!(of((6, 2)), None);
        assert_eq!(of((6, 3)), Some(Severity::Warning));
        assert_eq!(of((7, 0)), Some(Severity::Warning));
    }

    #[test]
    fn the_figures_are_reported_with_the_limit_to_try_within() {
        let mut evidence = planted();
        let found = only(&RULE, &evidence);

        assert_eq!(
            found.evidence,
            [
                "advice random in force (VmFlags rr), Linux 6.18",
                "4000 evicted pages needed again each second (cgroup)",
                "500 faults waited"
            ]
        );
        assert!(found.remedy.contains("read_ahead_kb=16"), "{}", found.remedy);
        assert!(
            found.proof.contains("--workload zipf --bs 4k --cache cold --memory 8g -m mmap:advice=random -m mmap"),
            "{}",
            found.proof
        );

        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 20_000);
        assert!(!only(&RULE, &evidence).proof.contains("--memory"));
    }

    #[test]
    fn pressure_without_random_advice_is_not_ours_to_tell() {
        let mut evidence = planted();
        advise(&mut evidence, Deep::default());

        assert_eq!(worst(&RULE, &evidence), None);
    }
}
