//! The cgroup is full of memory that cannot be freed: the next allocation may kill a process.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, quoted, thresholds};
use crate::watch::evidence::Evidence;
use majorfault::Bytes;

pub(super) const RULE: Rule = Rule {
    name: "headroom",
    summary: "anonymous memory nearly fills the cgroup's limit",
    looks_at: &[Part::Limit, Part::Counters],
    thresholds: THRESHOLDS,
    trouble: "{share} of the memory limit is anonymous memory, which cannot be freed; the OOM killer may be next",
    remedies: &[&RAISE],
    alerts: true,
    gain: Gain::Failure,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Share of the limit that is anonymous; only the rest can be reclaimed.
    FULL: f64 = 0.9, Share;
}

const RAISE: Remedy = Remedy {
    when: "",
    says: "raise the limit to {more}, or make the program's own caches smaller",
    proof: Proof::Command("cat {group}/memory.stat | grep -E '^(anon|file|total_rss|total_cache) '"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(group) = &evidence.group else { return Vec::new() };
    let Some(limit) = group.limit_bytes else { return Vec::new() };
    let Some(anonymous) = evidence.counter("cgroup_anon_bytes") else { return Vec::new() };
    let share = anonymous as f64 / limit.max(1) as f64;
    if share < FULL {
        return Vec::new();
    }
    let cache = evidence.counter("cgroup_file_bytes").unwrap_or(0);
    let facts = vec![
        Fact::seen("limit {limit}").bytes("limit", limit),
        Fact::seen("anonymous {anonymous}").bytes("anonymous", anonymous),
        Fact::seen("page cache {cache}, all that can be dropped").bytes("cache", cache),
        Fact::seen("{own} of it in this process").bytes("own", evidence.process.anonymous_bytes),
    ];
    let case = Case::of("cgroup", Severity::Critical, &RAISE).facts(facts);
    let case = case.figure("share", format!("{:.0} %", share * 100.0)).figure("group", quoted(&group.path));
    vec![case.figure("more", Bytes(limit / 4 * 5).rounded())]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{count, healthy, only, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        filled(9 << 30)
    }

    #[test]
    fn anonymous_memory_at_the_limit_is_critical() {
        let mut evidence = healthy();
        count(&mut evidence, "cgroup_anon_bytes", 7900 << 20);

        assert!(only(&RULE, &evidence).what.starts_with("96 %"));
    }

    /// A limit of 10 GiB.
    fn filled(anonymous_bytes: u64) -> Evidence {
        let mut evidence = healthy();
        evidence.group.as_mut().unwrap().limit_bytes = Some(10 << 30);
        evidence.process.anonymous_bytes = 3 << 30;
        count(&mut evidence, "cgroup_anon_bytes", anonymous_bytes);
        count(&mut evidence, "cgroup_file_bytes", 512 << 20);
        evidence
    }

    #[test]
    fn nine_tenths_of_the_limit_are_full() {
        assert_eq!(worst(&RULE, &filled((9 << 30) - 1)), None);
        assert_eq!(worst(&RULE, &filled(9 << 30)), Some(Severity::Critical));
    }

    #[test]
    fn the_figures_are_reported_with_a_limit_that_is_a_quarter_larger() {
        let found = only(&RULE, &filled(9 << 30));

        assert_eq!(
            found.what,
            "90 % of the memory limit is anonymous memory, which cannot be freed; the OOM killer may be next"
        );
        assert_eq!(
            found.evidence,
            [
                "limit 10.0 GiB",
                "anonymous 9.00 GiB",
                "page cache 512 MiB, all that can be dropped",
                "3.00 GiB of it in this process"
            ]
        );
        assert!(found.remedy.starts_with("raise the limit to 12.5 GiB"), "{}", found.remedy);
        assert!(found.proof.starts_with("cat /sys/fs/cgroup/a/memory.stat"), "{}", found.proof);
    }

    #[test]
    fn without_a_limit_nothing_is_full() {
        let mut evidence = filled(9 << 30);
        evidence.group.as_mut().unwrap().limit_bytes = None;

        assert_eq!(worst(&RULE, &evidence), None);
    }
}
