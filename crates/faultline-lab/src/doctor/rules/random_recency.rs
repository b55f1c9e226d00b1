//! MADV_RANDOM under memory pressure: since Linux 6.3 its pages are not marked as used (vma_has_recency), so the hot
//! ones are evicted like the cold.

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};

pub(super) const RULE: Rule = Rule {
    name: "random_recency",
    summary: "MADV_RANDOM under memory pressure evicts hot pages (Linux 6.3 and newer; needs --deep)",
    look,
};

fn look(evidence: &Evidence) -> Vec<Finding> {
    let Some((rate, whose)) = evidence.refaults().filter(|_| evidence.random_costs_hot_pages()) else {
        return Vec::new();
    };
    let hurt = evidence.data_files().filter(|file| file.any(|deep| deep.random) && file.major >= 64);
    hurt.map(|file| Finding {
        rule: RULE.name,
        severity: Severity::Warning,
        scope: file.path.clone(),
        what: "MADV_RANDOM makes hot pages as evictable as cold ones".to_owned(),
        evidence: vec![
            format!(
                "advice random in force (VmFlags rr), Linux {}.{}",
                evidence.machine.kernel.0, evidence.machine.kernel.1
            ),
            format!("{rate:.0} evicted pages needed again each second ({whose})"),
            format!("{} faults waited", file.major),
        ],
        remedy:
            "madvise(p, length, MADV_NORMAL) and a small read-ahead of the device (read_ahead_kb=16), or keep the hot \
                 part in a pool of your own"
                .to_owned(),
        proof: format!(
            "faultline compare {} --workload zipf --memory {} -m mmap -m mmap:advice=random",
            file.path,
            evidence
                .group
                .as_ref()
                .and_then(|it| it.limit_bytes)
                .map_or("1g".to_owned(), |it| faultline::Bytes(it).to_string())
        ),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, count, only, with_file};
    use super::*;
    use crate::doctor::evidence::Deep;

    fn planted() -> Evidence {
        let mut evidence = with_file(|file| file.major = 500);
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        count(&mut evidence, "cgroup_refault_pages", 20_000);
        evidence
    }

    #[test]
    fn random_advice_with_refaults_is_found_since_6_3() {
        assert!(only(&RULE, &planted()).evidence[1].contains("4000 evicted pages"));

        let old =
            Evidence { machine: crate::doctor::evidence::Machine { kernel: (6, 1), ..planted().machine }, ..planted() };
        assert!(look(&old).is_empty());
    }

    #[test]
    fn random_advice_without_pressure_is_fine() {
        let mut evidence = planted();
        count(&mut evidence, "cgroup_refault_pages", 3);

        assert!(look(&evidence).is_empty());
    }
}
