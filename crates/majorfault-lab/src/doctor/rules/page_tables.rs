//! Page tables that take much of the memory that they map: sparse touches in a large mapping, or many processes.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::Evidence;

pub(super) const RULE: Rule = Rule {
    name: "page_tables",
    summary: "page tables take much of the resident memory",
    looks_at: &[Part::Status],
    thresholds: THRESHOLDS,
    trouble: "page tables take {share} of the resident memory",
    remedies: &[&UNMAP],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Share of the resident bytes; full tables of 4 KiB pages take 0.2 %.
    SHARE: f64 = 0.05, Share;
    /// Bytes of page tables; fewer do not matter.
    LEAST: u64 = 8 << 20, Bytes;
}

const UNMAP: Remedy = Remedy {
    when: "",
    says: "unmap what is no longer used (MADV_DONTNEED keeps the tables), map windows instead of everything, or read \
           sparse data with pread",
    proof: Proof::Command("grep -E 'VmPTE|VmRSS' /proc/{pid}/status"),
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let process = &evidence.process;
    let share = process.page_table_bytes as f64 / process.resident_bytes.max(1) as f64;
    if process.page_table_bytes < LEAST || share < SHARE {
        return Vec::new();
    }
    let mut facts = vec![
        Fact::seen("page tables {tables}").bytes("tables", process.page_table_bytes),
        Fact::seen("{share} of {resident} resident")
            .number("share", share, MeasureUnit::Share)
            .bytes("resident", process.resident_bytes),
    ];
    if let Some(file) = evidence.data_files().max_by_key(|file| file.mapped_bytes()) {
        let largest = Fact::seen("largest mapping {mapped} of {path}");
        facts.push(largest.bytes("mapped", file.mapped_bytes()).word("path", file.label()));
    }
    let case = Case::of("process", Severity::Warning, &UNMAP).facts(facts);
    vec![case.figure("share", format!("{:.0} %", share * 100.0))]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        tables(16 << 20, 64 << 20)
    }

    #[test]
    fn sparse_touches_cost_tables() {
        let mut evidence = healthy();
        evidence.process.resident_bytes = 100 << 20;
        evidence.process.page_table_bytes = 20 << 20;

        assert!(only(&RULE, &evidence).what.contains("20 %"));
    }

    fn tables(page_table_bytes: u64, resident_bytes: u64) -> Evidence {
        let mut evidence = healthy();
        (evidence.process.page_table_bytes, evidence.process.resident_bytes) = (page_table_bytes, resident_bytes);
        evidence
    }

    #[test]
    fn tables_below_8_mib_are_nobodys_trouble() {
        assert_eq!(worst(&RULE, &tables((8 << 20) - 1, 16 << 20)), None);
        assert_eq!(worst(&RULE, &tables(8 << 20, 16 << 20)), Some(Severity::Warning));
    }

    #[test]
    fn a_twentieth_of_the_resident_memory_is_too_much() {
        assert_eq!(worst(&RULE, &tables(49_999_999, 1_000_000_000)), None);
        assert_eq!(worst(&RULE, &tables(50_000_000, 1_000_000_000)), Some(Severity::Warning));
    }

    #[test]
    fn the_figures_are_reported_with_the_largest_mapping() {
        let mut evidence = tables(16 << 20, 64 << 20);

        let found = only(&RULE, &evidence);

        assert_eq!(found.what, "page tables take 25 % of the resident memory");
        assert_eq!(
            found.evidence,
            ["page tables 16.0 MiB", "25 % of 64.0 MiB resident", "largest mapping 1.00 GiB of /data/table"]
        );

        evidence.files.clear();
        assert_eq!(only(&RULE, &evidence).evidence.len(), 2);
    }
}
