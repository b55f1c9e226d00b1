//! A mapping that could have huge pages, but its address and file offset differ modulo 2 MiB, which rules them out.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Evidence, FileMapping, MappedFile};
use majorfault::sys::map::HUGE_PAGE;

pub(super) const RULE: Rule = Rule {
    name: "misaligned_huge",
    summary: "huge pages are requested for a mapping, but its address does not fit its file offset",
    looks_at: &[Part::MappedFiles, Part::Smaps],
    thresholds: THRESHOLDS,
    trouble: "huge pages are requested, but the mapping's address makes them impossible",
    remedies: &[&ALIGN],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Length of a mapping; shorter ones gain little.
    LEAST: u64 = 8 << 20, Bytes;
}

const ALIGN: Remedy = Remedy {
    when: "",
    says: "reserve n + 2 MiB with PROT_NONE, and map with MAP_FIXED at the address that is congruent to the offset modulo \
           2 MiB",
    proof: Proof::Command("majorfault compare {path} -m mmap:advice=hugepage"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    evidence.data_files().filter_map(of_file).collect()
}

fn of_file(file: &MappedFile) -> Option<Case> {
    let by_mount = ["huge=always", "huge=within_size"].iter().any(|option| file.mount_options.contains(option));
    let wanted = |mapping: &FileMapping| match mapping.deep {
        Some(deep) => (by_mount || deep.huge_wanted) && !deep.huge_refused,
        None => by_mount,
    };
    let is_skewed = |mapping: &&FileMapping| mapping.vma.len() >= LEAST && skew(mapping) != 0 && wanted(mapping);
    let mapping = file.mappings.iter().find(is_skewed)?;
    let facts = vec![
        Fact::seen("{mapped} at {address}")
            .bytes("mapped", mapping.vma.len())
            .word("address", format!("{:#x}", mapping.vma.start)),
        Fact::seen("address minus file offset is {skew} beyond a multiple of 2 MiB").bytes("skew", skew(mapping)),
        mapping.deep.map_or(Fact::seen("requested by the mount's huge= option"), |deep| {
            Fact::seen("{huge} of it in huge pages").bytes("huge", deep.huge_bytes)
        }),
    ];
    Some(Case::of_file(file, Severity::Warning, &ALIGN).facts(facts))
}

/// Bytes by which address and file offset differ modulo 2 MiB.
fn skew(mapping: &FileMapping) -> u64 {
    mapping.vma.start.wrapping_sub(mapping.vma.offset) % HUGE_PAGE as u64
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, only, with_file, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        let mut evidence = skewed(8 << 20, "rw");
        advise(&mut evidence, Deep { huge_wanted: true, ..Deep::default() });
        evidence
    }

    #[test]
    fn a_skewed_mapping_is_found_only_where_huge_pages_are_wanted() {
        let mut evidence = with_file(|file| file.mappings[0].vma.start += 4096);
        assert_eq!(worst(&RULE, &evidence), None);

        advise(&mut evidence, Deep { huge_wanted: true, ..Deep::default() });
        assert!(only(&RULE, &evidence).evidence[1].to_string().contains("4.00 KiB beyond"));
    }

    #[test]
    fn a_congruent_mapping_is_fine() {
        let mut evidence = with_file(|file| file.mount_options = "rw,huge=always".to_owned());
        evidence.files[0].mappings[0].vma.offset = 4 << 20;

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Begins one page after the address that fits its file offset.
    fn skewed(length: u64, options: &str) -> Evidence {
        with_file(|file| {
            file.mount_options = options.to_owned();
            let vma = &mut file.mappings[0].vma;
            vma.start += 4096;
            vma.end = vma.start + length;
        })
    }

    #[test]
    fn mappings_below_8_mib_gain_little() {
        assert_eq!(worst(&RULE, &skewed((8 << 20) - 1, "huge=always")), None);
        assert_eq!(worst(&RULE, &skewed(8 << 20, "huge=always")), Some(Severity::Warning));
    }

    #[test]
    fn a_mount_wants_huge_pages_always_or_within_the_size() {
        assert_eq!(worst(&RULE, &skewed(8 << 20, "rw,huge=within_size")), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &skewed(8 << 20, "rw,huge=advise")), None);
        assert_eq!(worst(&RULE, &skewed(8 << 20, "rw")), None);
    }

    #[test]
    fn the_address_is_judged_with_the_offset_modulo_2_mib() {
        let mut evidence = skewed(8 << 20, "huge=always");
        evidence.files[0].mappings[0].vma.offset = 4096;
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].mappings[0].vma.offset = 4096 + (1 << 20);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = skewed(8 << 20, "huge=always");
        assert_eq!(only(&RULE, &evidence).evidence[2], "0 B of it in huge pages");

        evidence.files[0].mappings[0].deep = None;
        assert_eq!(
            only(&RULE, &evidence).evidence,
            [
                "8.00 MiB at 0x7f0000001000",
                "address minus file offset is 4.00 KiB beyond a multiple of 2 MiB",
                "requested by the mount's huge= option"
            ]
        );
    }

    #[test]
    fn programs_themselves_are_left_alone() {
        let mut evidence = skewed(8 << 20, "huge=always");
        evidence.files[0].mappings[0].vma.rights = *b"r-xp";

        assert_eq!(worst(&RULE, &evidence), None);
    }
}
