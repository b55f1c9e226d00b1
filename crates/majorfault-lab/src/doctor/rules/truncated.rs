//! A mapped file becomes shorter while it is mapped: touching a missing page raises SIGBUS.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight};
use crate::watch::evidence::{Evidence, MappedFile};

pub(super) const RULE: Rule = Rule {
    name: "truncated",
    summary: "a mapped file became shorter during the watch",
    looks_at: &[Part::MappedFiles],
    thresholds: &[],
    trouble: "the file became shorter while it is mapped; touching its missing pages raises SIGBUS",
    remedies: &[&REPLACE],
    alerts: true,
    gain: Gain::Failure,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

const REPLACE: Remedy = Remedy {
    when: "",
    says: "replace the file instead of truncating it: write a new one, then rename(2) it over the old one (logrotate: \
           create instead of copytruncate)",
    proof: Proof::Command("stat -c %s {path}; grep -F {path} /proc/{pid}/maps"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    evidence.data_files().filter_map(of_file).collect()
}

fn of_file(file: &MappedFile) -> Option<Case> {
    let (before, after) = file.shrunk?;
    let end = file.mappings.iter().map(|mapping| mapping.vma.offset + mapping.vma.len()).max()?;
    let gone = end.saturating_sub(file.size_bytes.unwrap_or(after).next_multiple_of(4096));
    let facts = vec![
        Fact::seen("from {before} to {after}").bytes("before", before).bytes("after", after),
        Fact::seen("{gone} of the mapping are now past the end of the file").bytes("gone", gone),
    ];
    let severity = if gone > 0 { Severity::Critical } else { Severity::Warning };
    Some(Case::of_file(file, severity, &REPLACE).facts(facts))
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, with_file, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        shrunk_to(1 << 20)
    }

    #[test]
    fn a_file_that_shrank_below_its_mapping_is_critical() {
        let evidence = with_file(|file| {
            file.shrunk = Some((1 << 30, 1 << 29));
            file.size_bytes = Some(1 << 29);
        });

        let found = only(&RULE, &evidence);

        assert_eq!(found.severity, Severity::Critical);
        assert!(found.evidence[1].to_string().contains("512 MiB"), "{found:?}");
    }

    #[test]
    fn a_mapping_longer_than_its_file_from_the_start_is_a_programs_own_affair() {
        assert!(look(&with_file(|file| file.size_bytes = Some(1 << 20))).is_empty());
    }

    /// The mapping is 1 GiB long.
    fn shrunk_to(bytes: u64) -> Evidence {
        with_file(|file| {
            file.shrunk = Some((2 << 30, bytes));
            file.size_bytes = Some(bytes);
        })
    }

    #[test]
    fn a_file_that_still_reaches_to_the_mappings_last_page_is_a_warning() {
        assert_eq!(worst(&RULE, &shrunk_to((1 << 30) - 4095)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &shrunk_to((1 << 30) - 4096)), Some(Severity::Critical));
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &shrunk_to((1 << 30) - (1 << 20)));

        assert_eq!(
            found.evidence,
            ["from 2.00 GiB to 1023 MiB", "1.00 MiB of the mapping are now past the end of the file"]
        );
    }

    #[test]
    fn a_part_of_a_file_is_mapped_from_its_offset_on() {
        let mut evidence = shrunk_to(1 << 30);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.files[0].mappings[0].vma.offset = 4096;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Critical));
    }

    #[test]
    fn a_file_that_grew_again_meanwhile_is_judged_as_it_is_now() {
        let mut evidence = shrunk_to(1 << 20);
        evidence.files[0].size_bytes = Some(1 << 30);

        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn of_two_mappings_the_one_that_reaches_farther_counts() {
        let mut evidence = shrunk_to(1 << 30);
        let mut part = evidence.files[0].mappings[0].clone();
        part.vma.offset = 1 << 20;
        evidence.files[0].mappings.push(part);

        let found = only(&RULE, &evidence);

        assert_eq!(found.severity, Severity::Critical);
        assert_eq!(found.evidence[1], "1.00 MiB of the mapping are now past the end of the file");
    }
}
