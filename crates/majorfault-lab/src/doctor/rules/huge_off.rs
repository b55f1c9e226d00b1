//! Much anonymous memory in small pages, where huge ones could be had.

use crate::doctor::{Finding, Rule, Severity};
use crate::watch::evidence::Evidence;
use majorfault::Bytes;

pub(super) const RULE: Rule = Rule {
    name: "huge_off",
    summary: "much anonymous memory lies in small pages, and huge ones are off or not asked for (needs --deep)",
    look,
};

/// Memory from which on it matters.
const MUCH: u64 = 256 << 20;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let Some(huge) = evidence.huge else { return Vec::new() };
    let setting = evidence.machine.huge_pages.as_str();
    if huge.anonymous_bytes < MUCH || huge.huge_bytes * 10 >= huge.anonymous_bytes {
        return Vec::new();
    }
    let remedy = match setting {
        "never" => "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and madvise(p, n, MADV_HUGEPAGE)",
        "madvise" if huge.wanted_bytes * 2 < huge.anonymous_bytes => {
            "madvise(p, n, MADV_HUGEPAGE) after allocating, aligned to 2 MiB (glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1; \
             jemalloc: thp:always; Java: -XX:+UseTransparentHugePages)"
        }
        // Wanted and allowed: memory is fragmented, or it was touched before.
        _ => return Vec::new(),
    };
    vec![Finding {
        rule: RULE.name,
        severity: Severity::Note,
        scope: "process".to_owned(),
        what: "large anonymous memory lies in 4 KiB pages".to_owned(),
        evidence: vec![
            format!("{} anonymous in mappings of 2 MiB and more", Bytes(huge.anonymous_bytes).rounded()),
            format!("{} of it in huge pages", Bytes(huge.huge_bytes).rounded()),
            format!("transparent_hugepage/enabled is {setting}"),
        ],
        remedy: remedy.to_owned(),
        proof: format!("perf stat -e dTLB-load-misses -p {} -- sleep 5", evidence.target.pid),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use crate::watch::evidence::Huge;

    #[test]
    fn much_memory_in_small_pages_is_noted() {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes: 1 << 30, huge_bytes: 0, wanted_bytes: 0 });

        assert!(only(&RULE, &evidence).remedy.contains("MADV_HUGEPAGE"));
    }

    #[test]
    fn memory_that_is_huge_already_or_small_is_fine() {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes: 1 << 30, huge_bytes: 1 << 29, wanted_bytes: 0 });
        assert!(look(&evidence).is_empty());

        evidence.huge = Some(Huge { anonymous_bytes: 1 << 20, huge_bytes: 0, wanted_bytes: 0 });
        assert!(look(&evidence).is_empty());
    }

    fn lying(anonymous_bytes: u64, huge_bytes: u64, wanted_bytes: u64, setting: &str) -> Evidence {
        let mut evidence = healthy();
        evidence.huge = Some(Huge { anonymous_bytes, huge_bytes, wanted_bytes });
        evidence.machine.huge_pages = setting.to_owned();
        evidence
    }

    #[test]
    fn less_than_256_mib_does_not_matter() {
        assert_eq!(worst(&RULE, &lying((256 << 20) - 1, 0, 0, "madvise")), None);
        assert_eq!(worst(&RULE, &lying(256 << 20, 0, 0, "madvise")), Some(Severity::Note));
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
    fn the_figures_are_told_with_their_units() {
        let found = only(&RULE, &lying(1 << 30, 64 << 20, 0, "madvise"));

        assert_eq!(
            found.evidence,
            [
                "1.00 GiB anonymous in mappings of 2 MiB and more",
                "64.0 MiB of it in huge pages",
                "transparent_hugepage/enabled is madvise"
            ]
        );
        assert_eq!(found.what, "large anonymous memory lies in 4 KiB pages");
    }
}
