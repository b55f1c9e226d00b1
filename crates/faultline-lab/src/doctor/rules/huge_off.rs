//! Much anonymous memory in small pages, where huge ones could be had.

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;

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
    use super::super::scenes::{healthy, only};
    use super::*;
    use crate::doctor::evidence::Huge;

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
}
