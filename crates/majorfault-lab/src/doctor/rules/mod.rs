//! The defects that are recognised, one file each.

mod direct_misaligned;
mod double_buffering;
mod fault_stall;
mod fork_large;
mod headroom;
mod huge_off;
mod map_churn;
mod map_count;
mod misaligned_huge;
mod network_fs;
mod page_tables;
mod populate_after_random;
mod random_recency;
mod random_scan;
mod read_ahead_flood;
#[cfg(test)]
mod scenes;
mod thrash;
mod truncated;
mod will_need_cap;

use super::Rule;

/// Every rule; of equally bad findings the first is told first.
pub const ALL: &[&Rule] = &[
    &truncated::RULE,
    &headroom::RULE,
    &map_count::RULE,
    &direct_misaligned::RULE,
    &thrash::RULE,
    &populate_after_random::RULE,
    &random_scan::RULE,
    &random_recency::RULE,
    &read_ahead_flood::RULE,
    &fault_stall::RULE,
    &will_need_cap::RULE,
    &map_churn::RULE,
    &fork_large::RULE,
    &double_buffering::RULE,
    &page_tables::RULE,
    &network_fs::RULE,
    &misaligned_huge::RULE,
    &huge_off::RULE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::examine;

    #[test]
    fn a_healthy_program_raises_nothing() {
        let findings = examine(&scenes::healthy());

        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn a_program_of_which_nothing_is_known_raises_nothing() {
        let findings = examine(&crate::watch::evidence::Evidence::default());

        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn no_two_rules_share_a_name_and_each_has_a_summary() {
        let mut names: Vec<&str> = ALL.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();

        assert_eq!(names.len(), count);
        assert!(ALL.iter().all(|rule| !rule.summary.is_empty()));
    }
}
