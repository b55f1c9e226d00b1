//! The defects that the doctor recognises, one file each.

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
mod scattered_reads;
#[cfg(test)]
mod scenes;
mod thrash;
mod truncated;
mod will_need_cap;

use super::rule::Rule;

/// Every rule; equally severe findings are reported in this order.
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
    &scattered_reads::RULE,
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
    use crate::doctor::patient::Patient;
    use crate::doctor::rule::{Part, Proof};
    use crate::doctor::{Finding, examine, found_by};
    use crate::watch::evidence::Evidence;

    #[test]
    fn a_healthy_program_raises_nothing() {
        let findings = examine(&[scenes::healthy()]);

        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn a_program_of_which_nothing_is_known_raises_nothing() {
        let findings = examine(&[Evidence::default()]);

        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn no_two_rules_share_a_name() {
        let mut names: Vec<&str> = ALL.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();

        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_rule_declares_all_that_is_reported_about_it() {
        for rule in ALL {
            let name = rule.name;
            let texts = [rule.summary, rule.trouble].into_iter().chain(rule.remedies.iter().map(|remedy| remedy.says));
            assert!(texts.into_iter().all(|text| !text.is_empty()), "{name}");
            assert!(!rule.looks_at.is_empty() && !rule.remedies.is_empty(), "{name}");
            assert!(rule.thresholds.iter().all(|it| it.says.len() > 10 && it.value > 0.0), "{name}");
            let whens: std::collections::BTreeSet<&str> = rule.remedies.iter().map(|remedy| remedy.when).collect();
            assert_eq!(whens.len(), rule.remedies.len(), "{name}: which remedy helps where?");
            assert_eq!(whens.contains(""), rule.remedies.len() == 1, "{name}: which remedy helps where?");
        }
    }

    #[test]
    fn a_rule_that_finds_notes_only_wakes_nobody() {
        for rule in ALL {
            let found = rule.look.at(Patient { processes: &[(rule.example)()] });
            let is_more = found.iter().any(|case| case.severity > crate::doctor::Severity::Note);

            assert!(rule.alerts || !is_more, "{}", rule.name);
        }
        let mut quiet: Vec<&str> = ALL.iter().filter(|rule| !rule.alerts).map(|rule| rule.name).collect();
        quiet.sort_unstable();
        assert_eq!(quiet, ["double_buffering", "huge_off", "scattered_reads"]);
    }

    #[test]
    fn a_rule_finds_its_example_in_whole_sentences() {
        for rule in ALL {
            let evidence = (rule.example)();

            let found = found_by(rule, Patient { processes: &[evidence] });

            assert_eq!(found.len(), 1, "{}: {found:?}", rule.name);
            let Finding { what, remedy, proof, evidence, .. } = &found[0];
            assert!(!evidence.is_empty(), "{}", rule.name);
            for text in [what, remedy, proof] {
                assert!(!text.is_empty() && !text.contains(['{', '}']), "{}: {text}", rule.name);
            }
            assert!(rule.remedies.iter().any(|declared| is_filled(declared.says, remedy)), "{}: {remedy}", rule.name);
        }
    }

    /// Whether `text` is the sentence `pattern` with its figures filled in.
    fn is_filled(sentence: &str, text: &str) -> bool {
        let fixed = sentence.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
        fixed.into_iter().all(|part| text.contains(part))
    }

    #[test]
    fn a_rule_looks_at_what_it_declares_and_at_nothing_else() {
        for rule in ALL {
            assert!(rule.looks_at.iter().all(|part| PARTS.contains(part)), "{}", rule.name);
            for part in PARTS {
                let evidence = without(*part, (rule.example)());

                let is_silent = rule.look.at(Patient { processes: &[evidence] }).is_empty();

                assert_eq!(is_silent, rule.looks_at.contains(part), "{} without {part:?}", rule.name);
            }
        }
    }

    const PARTS: &[Part] = &[
        Part::MappedFiles,
        Part::Faults,
        Part::AdviceInForce,
        Part::AdviceCalls,
        Part::Smaps,
        Part::ReadCalls,
        Part::ReadOrder,
        Part::Descriptors,
        Part::Status,
        Part::Limit,
        Part::Counters,
        Part::Kernel,
    ];

    /// Evidence in which one part could not be seen.
    fn without(part: Part, mut evidence: Evidence) -> Evidence {
        match part {
            Part::MappedFiles => evidence.files.clear(),
            Part::Faults => {
                evidence.faults = None;
                evidence.files.iter_mut().for_each(|file| {
                    (file.faults, file.major, file.waits, file.waited_ns, file.touched_pages) = (0, 0, 0, 0, 0);
                    file.order = None;
                });
            }
            Part::AdviceInForce => evidence.files.iter_mut().for_each(|file| {
                (file.advised, file.populate_calls) = (None, 0);
                let deep = file.mappings.iter_mut().filter_map(|mapping| mapping.deep.as_mut());
                deep.for_each(|deep| (deep.random, deep.sequential) = (false, false));
            }),
            Part::AdviceCalls => evidence.advice = None,
            Part::Smaps => {
                evidence.huge = None;
                let mappings = evidence.files.iter_mut().flat_map(|file| &mut file.mappings);
                mappings.for_each(|mapping| mapping.deep = None);
            }
            Part::ReadCalls => evidence.calls = None,
            Part::ReadOrder => evidence.reads.clear(),
            Part::Descriptors => evidence.descriptors.clear(),
            Part::Status => evidence.process = Default::default(),
            Part::Limit => evidence.group = None,
            Part::Counters => evidence.counters.clear(),
            Part::Kernel => evidence.machine = Default::default(),
        }
        evidence
    }

    #[test]
    fn the_advice_of_a_remedy_is_that_of_its_replay() {
        for (rule, remedy) in ALL.iter().flat_map(|rule| rule.remedies.iter().map(move |remedy| (rule, remedy))) {
            let Proof::Replay(arms) = &remedy.proof else { continue };
            let Some(advised) = remedy.says.strip_prefix("madvise(p, length, MADV_") else { continue };
            let advice = advised.split(')').next().unwrap().to_lowercase();
            let arm = if advice == "normal" { "mmap".to_owned() } else { format!("mmap:advice={advice}") };

            assert_eq!(arms.remedy, arm, "{}: {}", rule.name, remedy.says);
        }
    }
}
