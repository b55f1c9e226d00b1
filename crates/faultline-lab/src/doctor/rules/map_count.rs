//! Nearly as many mappings as a process may have; the next mmap or mprotect fails with "out of memory".

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};

pub(super) const RULE: Rule =
    Rule { name: "map_count", summary: "the number of mappings is near vm.max_map_count", look };

/// Shares of the limit.
const NEAR: f64 = 0.8;
const NEXT: f64 = 0.95;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let (count, most) = (evidence.process.mappings, evidence.machine.most_mappings);
    let share = count as f64 / most.max(1) as f64;
    if most == 0 || share < NEAR {
        return Vec::new();
    }
    let files = evidence.files.iter().map(|file| file.mappings.len() as u64).sum::<u64>();
    vec![Finding {
        rule: RULE.name,
        severity: if share >= NEXT { Severity::Critical } else { Severity::Warning },
        scope: "process".to_owned(),
        what: format!("{count} mappings of {most} that are allowed; beyond it mmap fails with \"out of memory\""),
        evidence: vec![
            format!("{:.0} % of vm.max_map_count", share * 100.0),
            format!("{files} of files, {} anonymous", count.saturating_sub(files)),
        ],
        remedy: format!(
            "sysctl -w vm.max_map_count={} (Elasticsearch and others ask for 262144 or more); fewer, larger mappings",
            (most * 4).max(262_144)
        ),
        proof: format!("wc -l /proc/{}/maps; sysctl vm.max_map_count", evidence.target.pid),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only};
    use super::*;

    #[test]
    fn the_nearer_the_worse() {
        let mut evidence = healthy();
        evidence.process.mappings = 55_000;
        assert_eq!(only(&RULE, &evidence).severity, Severity::Warning);

        evidence.process.mappings = 65_000;
        assert_eq!(only(&RULE, &evidence).severity, Severity::Critical);
    }
}
