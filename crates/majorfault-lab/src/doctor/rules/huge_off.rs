//! Much anonymous memory in small pages, where huge pages are possible.

use crate::doctor::fact::Fact;
use crate::doctor::patient::Patient;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Evidence, Huge};

pub(super) const RULE: Rule = Rule {
    name: "huge_off",
    summary: "much anonymous memory is in small pages, and huge pages are off or not requested",
    looks_at: &[Part::Smaps, Part::Kernel],
    thresholds: THRESHOLDS,
    trouble: "much anonymous memory is in 4 KiB pages",
    remedies: &[&ALLOW, &ASK],
    alerts: false,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::All(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Anonymous memory from which on huge pages matter.
    MUCH: u64 = 256 << 20, Bytes;
    /// Share of it in huge pages that is enough.
    ENOUGH: f64 = 0.1, Share;
    /// Share of it that requests huge pages; above it another request would not help.
    ASKED: f64 = 0.5, Share;
}

const PROOF: Proof = Proof::Command("perf stat -e dTLB-load-misses -p {pid} -- sleep 5");

const ALLOW: Remedy = Remedy {
    when: "they are off",
    says: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and madvise(p, n, MADV_HUGEPAGE)",
    proof: PROOF,
    symptom: None,
    backing: Backing::Try,
};

const ASK: Remedy = Remedy {
    when: "they are not requested",
    says: "madvise(p, n, MADV_HUGEPAGE) for the large arrays that are used densely, aligned to 2 MiB, and measure: memory that is \
           used sparsely or given back and forth gets slower (jemalloc: thp:always; Java: -XX:+UseTransparentHugePages)",
    proof: PROOF,
    symptom: None,
    backing: Backing::Try,
};

fn look(patient: Patient<'_>) -> Vec<Case> {
    // After a fork, each write to a huge page would copy 2 MiB; the child has the same memory.
    let forks = |evidence: &Evidence| evidence.faults.as_ref().is_some_and(|faults| faults.forks > 0);
    match patient.processes.iter().any(forks) || patient.has_copies() {
        true => Vec::new(),
        false => Sight::Each(look_at).at(patient),
    }
}

fn look_at(evidence: &Evidence) -> Vec<Case> {
    let Some(huge) = evidence.huge.filter(|_| !evidence.process.huge_pages_off) else { return Vec::new() };
    let setting = evidence.machine.huge_pages.as_str();
    // Where the program has refused huge pages (MADV_NOHUGEPAGE), it knows why.
    let anonymous_bytes = huge.anonymous_bytes.saturating_sub(huge.refused_bytes);
    if anonymous_bytes < MUCH || huge.huge_bytes as f64 >= anonymous_bytes as f64 * ENOUGH {
        return Vec::new();
    }
    let Some(remedy) = remedy(setting, anonymous_bytes, huge) else { return Vec::new() };
    let facts = vec![
        Fact::seen("{anonymous} of anonymous memory in mappings of 2 MiB and more").bytes("anonymous", anonymous_bytes),
        Fact::seen("{huge} of it in huge pages").bytes("huge", huge.huge_bytes),
        Fact::seen("transparent_hugepage/enabled is {setting}").word("setting", setting),
    ];
    vec![Case::of("process", Severity::Note, remedy).facts(facts)]
}

/// None where huge pages are requested and allowed: memory is fragmented, or it was touched before the request.
fn remedy(setting: &str, anonymous_bytes: u64, huge: Huge) -> Option<&'static Remedy> {
    match setting {
        "never" => Some(&ALLOW),
        "madvise" if (huge.wanted_bytes as f64) < anonymous_bytes as f64 * ASKED => Some(&ASK),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use crate::watch::evidence::Huge;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        lying(1 << 30, 0, 0, "madvise")
    }

    #[test]
    fn much_memory_in_small_pages_is_noted() {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes: 1 << 30, ..Huge::default() });

        assert!(only(&RULE, &evidence).remedy.contains("MADV_HUGEPAGE"));
    }

    #[test]
    fn memory_that_is_huge_already_or_small_is_fine() {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes: 1 << 30, huge_bytes: 1 << 29, ..Huge::default() });
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.huge = Some(Huge { anonymous_bytes: 1 << 20, ..Huge::default() });
        assert_eq!(worst(&RULE, &evidence), None);
    }

    fn lying(anonymous_bytes: u64, huge_bytes: u64, wanted_bytes: u64, setting: &str) -> Evidence {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes, huge_bytes, wanted_bytes, refused_bytes: 0 });
        evidence.machine.huge_pages = setting.to_owned();
        evidence
    }

    #[test]
    fn less_than_256_mib_does_not_matter() {
        assert_eq!(worst(&RULE, &lying((256 << 20) - 1, 0, 0, "madvise")), None);
        assert_eq!(worst(&RULE, &lying(256 << 20, 0, 0, "madvise")), Some(Severity::Note));
    }

    /// Seen with a program that had set MADV_NOHUGEPAGE, and with Redis, which asks for it.
    #[test]
    fn memory_for_which_the_program_refuses_huge_pages_is_not_counted() {
        let mut evidence = lying(512 << 20, 0, 0, "never");
        evidence.huge.as_mut().unwrap().refused_bytes = (256 << 20) + 1;
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.huge.as_mut().unwrap().refused_bytes = 256 << 20;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Note));

        evidence.process.huge_pages_off = true;
        assert_eq!(worst(&RULE, &evidence), None, "Redis refuses them for all of its memory");
    }

    /// Seen with a Redis that had forked before the watch and was still saving.
    #[test]
    fn a_copy_that_lives_already_speaks_against_huge_pages_as_a_fork_does() {
        let found = |address| {
            let mut both = [lying(1 << 30, 0, 0, "madvise"), lying(1 << 30, 0, 0, "madvise")];
            both[1].files[0].mappings[0].vma.start = address;
            crate::doctor::found_by(&RULE, Patient { processes: &both }).len()
        };
        let own = healthy().files[0].mappings[0].vma.start;

        assert_eq!((found(own), found(own + 4096)), (0, 1));
    }

    #[test]
    fn a_program_that_forks_is_not_advised_to_copy_huge_pages() {
        let mut evidence = lying(1 << 30, 0, 0, "madvise");
        evidence.faults.as_mut().unwrap().forks = 1;
        let child = lying(1 << 30, 0, 0, "madvise");

        assert_eq!(worst(&RULE, &evidence), None);
        assert!(RULE.look.at(Patient { processes: &[evidence, child] }).is_empty());
    }

    /// Seen: glibc's tunable made a program 5 x slower.
    #[test]
    fn the_allocators_switch_for_all_memory_is_not_advised() {
        let found = only(&RULE, &lying(1 << 30, 0, 0, "madvise"));

        assert!(!found.remedy.contains("glibc.malloc.hugetlb"), "{}", found.remedy);
        assert_eq!(found.backing, Backing::Try);
    }

    #[test]
    fn a_tenth_in_huge_pages_is_enough() {
        assert_eq!(worst(&RULE, &lying(1_000_000_000, 100_000_000, 0, "madvise")), None);
        assert_eq!(worst(&RULE, &lying(1_000_000_000, 99_999_999, 0, "madvise")), Some(Severity::Note));
    }

    #[test]
    fn where_half_is_wanted_asking_again_would_not_help() {
        assert_eq!(worst(&RULE, &lying(1_000_000_000, 0, 500_000_000, "madvise")), None);
        assert_eq!(worst(&RULE, &lying(1_000_000_000, 0, 499_999_999, "madvise")), Some(Severity::Note));
    }

    #[test]
    fn the_remedy_fits_the_setting() {
        let never = only(&RULE, &lying(1 << 30, 0, 1 << 30, "never"));
        assert!(never.remedy.starts_with("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"));

        assert!(only(&RULE, &lying(1 << 30, 0, 0, "madvise")).remedy.contains("aligned to 2 MiB"));
        assert_eq!(worst(&RULE, &lying(1 << 30, 0, 0, "always")), None);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &lying(1 << 30, 64 << 20, 0, "madvise"));

        assert_eq!(
            found.evidence,
            [
                "1.00 GiB of anonymous memory in mappings of 2 MiB and more",
                "64.0 MiB of it in huge pages",
                "transparent_hugepage/enabled is madvise"
            ]
        );
        assert_eq!(found.what, "much anonymous memory is in 4 KiB pages");
    }
}
