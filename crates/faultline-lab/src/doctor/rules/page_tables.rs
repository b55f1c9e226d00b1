//! Page tables that take a good part of the memory they map: sparse touches in a large mapping, or many processes.

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;

pub(super) const RULE: Rule =
    Rule { name: "page_tables", summary: "page tables take more than 5 % of the resident memory", look };

/// Share of the resident bytes; full tables of 4 KiB pages are 0.2 %.
const SHARE: f64 = 0.05;

/// Below this nobody cares.
const LEAST: u64 = 8 << 20;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let process = &evidence.process;
    let share = process.page_table_bytes as f64 / process.resident_bytes.max(1) as f64;
    if process.page_table_bytes < LEAST || share < SHARE {
        return Vec::new();
    }
    let largest = evidence.data_files().max_by_key(|file| file.mapped_bytes());
    let mut facts = vec![
        format!("page tables {}", Bytes(process.page_table_bytes).rounded()),
        format!("{:.0} % of {} resident", share * 100.0, Bytes(process.resident_bytes).rounded()),
    ];
    if let Some(file) = largest {
        facts.push(format!("largest mapping {} of {}", Bytes(file.mapped_bytes()).rounded(), file.path));
    }
    vec![Finding {
        rule: RULE.name,
        severity: Severity::Warning,
        scope: "process".to_owned(),
        what: format!("page tables take {:.0} % of the resident memory", share * 100.0),
        evidence: facts,
        remedy:
            "unmap what is not used any more (MADV_DONTNEED keeps the tables), map windows instead of everything, or \
                 read sparse data with pread"
                .to_owned(),
        proof: format!("grep -E 'VmPTE|VmRSS' /proc/{}/status", evidence.target.pid),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only};
    use super::*;

    #[test]
    fn sparse_touches_cost_tables() {
        let mut evidence = healthy();
        evidence.process.resident_bytes = 100 << 20;
        evidence.process.page_table_bytes = 20 << 20;

        assert!(only(&RULE, &evidence).what.contains("20 %"));
    }
}
