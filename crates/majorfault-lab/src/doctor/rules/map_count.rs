//! Nearly as many mappings as a process may have: the next mmap or mprotect fails with "out of memory".

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::Evidence;

pub(super) const RULE: Rule = Rule {
    name: "map_count",
    summary: "the number of mappings is near vm.max_map_count",
    looks_at: &[Part::Status, Part::Kernel],
    thresholds: THRESHOLDS,
    trouble: "{count} mappings of {most} allowed; beyond that mmap fails with \"out of memory\"",
    remedies: &[&ALLOW_MORE],
    alerts: true,
    gain: Gain::Failure,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Share of the allowed mappings that is near the limit.
    NEAR: f64 = 0.8, Share;
    /// Share of the allowed mappings beyond which the next ones fail: critical.
    NEXT: f64 = 0.95, Share;
}

const ALLOW_MORE: Remedy = Remedy {
    when: "",
    says: "sysctl -w vm.max_map_count={more} (Elasticsearch and others ask for 262144 or more); or make fewer, larger mappings",
    proof: Proof::Command("wc -l /proc/{pid}/maps; sysctl vm.max_map_count"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let (count, most) = (evidence.process.mappings, evidence.machine.most_mappings);
    let share = count as f64 / most.max(1) as f64;
    if most == 0 || share < NEAR {
        return Vec::new();
    }
    let files = evidence.files.iter().map(|file| file.mappings.len() as u64).sum::<u64>();
    let facts = vec![
        Fact::seen("{share} of vm.max_map_count").number("share", share, MeasureUnit::Share),
        Fact::seen("{files} of files, {anonymous} anonymous")
            .count("files", files)
            .count("anonymous", count.saturating_sub(files)),
    ];
    let severity = if share >= NEXT { Severity::Critical } else { Severity::Warning };
    let case = Case::of("process", severity, &ALLOW_MORE).facts(facts);
    vec![case.figure("count", count).figure("most", most).figure("more", (most * 4).max(262_144))]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        of_1000(900)
    }

    #[test]
    fn the_nearer_the_worse() {
        let mut evidence = healthy();
        evidence.process.mappings = 55_000;
        assert_eq!(only(&RULE, &evidence).severity, Severity::Warning);

        evidence.process.mappings = 65_000;
        assert_eq!(only(&RULE, &evidence).severity, Severity::Critical);
    }

    fn of_1000(mappings: u64) -> Evidence {
        let mut evidence = healthy();
        (evidence.process.mappings, evidence.machine.most_mappings) = (mappings, 1000);
        evidence
    }

    #[test]
    fn four_fifths_of_the_limit_are_near_and_nineteen_twentieths_critical() {
        assert_eq!(worst(&RULE, &of_1000(799)), None);
        assert_eq!(worst(&RULE, &of_1000(800)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &of_1000(949)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &of_1000(950)), Some(Severity::Critical));
    }

    #[test]
    fn an_unknown_limit_is_none() {
        let mut evidence = of_1000(1000);
        evidence.machine.most_mappings = 0;

        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn four_times_the_limit_is_asked_for_and_at_least_what_elasticsearch_asks() {
        let found = only(&RULE, &of_1000(900));

        assert_eq!(found.what, "900 mappings of 1000 allowed; beyond that mmap fails with \"out of memory\"");
        assert_eq!(found.evidence, ["90 % of vm.max_map_count", "1 of files, 899 anonymous"]);
        assert!(found.remedy.starts_with("sysctl -w vm.max_map_count=262144 "), "{}", found.remedy);

        let mut evidence = healthy();
        (evidence.process.mappings, evidence.machine.most_mappings) = (90_000, 100_000);
        assert!(only(&RULE, &evidence).remedy.starts_with("sysctl -w vm.max_map_count=400000 "));
    }
}
