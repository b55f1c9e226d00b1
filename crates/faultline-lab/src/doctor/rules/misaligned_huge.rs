//! A mapping that could have huge pages, but whose address and file offset differ modulo 2 MiB, so that it can't.

use crate::doctor::evidence::{Evidence, FileMapping, MappedFile};
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;
use faultline::sys::map::HUGE_PAGE;

pub(super) const RULE: Rule = Rule {
    name: "misaligned_huge",
    summary: "huge pages are wanted for a mapping whose address does not fit its file offset",
    look,
};

/// Mappings shorter than this gain little.
const LEAST: u64 = 8 << 20;

fn look(evidence: &Evidence) -> Vec<Finding> {
    evidence.data_files().filter_map(of_file).collect()
}

fn of_file(file: &MappedFile) -> Option<Finding> {
    let by_mount = ["huge=always", "huge=within_size"].iter().any(|option| file.mount_options.contains(option));
    let wanted = |mapping: &FileMapping| by_mount || mapping.deep.is_some_and(|deep| deep.huge_wanted);
    let skewed = |mapping: &&FileMapping| {
        let skew = mapping.vma.start.wrapping_sub(mapping.vma.offset) % HUGE_PAGE as u64;
        mapping.vma.length() >= LEAST && skew != 0 && wanted(mapping)
    };
    let mapping = file.mappings.iter().find(skewed)?;
    let skew = mapping.vma.start.wrapping_sub(mapping.vma.offset) % HUGE_PAGE as u64;
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Warning,
        scope: file.path.clone(),
        what: "huge pages are wanted, but the mapping's address makes them impossible".to_owned(),
        evidence: vec![
            format!("{} at {:#x}", Bytes(mapping.vma.length()).rounded(), mapping.vma.start),
            format!("address minus file offset is {} beyond a multiple of 2 MiB", Bytes(skew).rounded()),
            mapping.deep.map_or("wanted by the mount's huge= option".to_owned(), |deep| {
                format!("{} of it in huge pages", Bytes(deep.huge_bytes).rounded())
            }),
        ],
        remedy:
            "reserve n + 2 MiB with PROT_NONE, and map with MAP_FIXED at the address that is congruent to the offset \
                 modulo 2 MiB"
                .to_owned(),
        proof: format!("faultline compare {} -m mmap:advice=hugepage", file.path),
    })
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, only, with_file};
    use super::*;
    use crate::doctor::evidence::Deep;

    #[test]
    fn a_skewed_mapping_is_found_only_where_huge_pages_are_wanted() {
        let mut evidence = with_file(|file| file.mappings[0].vma.start += 4096);
        assert!(look(&evidence).is_empty());

        advise(&mut evidence, Deep { huge_wanted: true, ..Deep::default() });
        assert!(only(&RULE, &evidence).evidence[1].contains("4.00 KiB beyond"));
    }

    #[test]
    fn a_congruent_mapping_is_fine() {
        let mut evidence = with_file(|file| file.mount_options = "rw,huge=always".to_owned());
        evidence.files[0].mappings[0].vma.offset = 4 << 20;

        assert!(look(&evidence).is_empty());
    }
}
