//! The findings of one rule on made-up evidence.

use crate::doctor::patient::Patient;
use crate::doctor::rule::{Rule, Severity};
use crate::doctor::{Finding, found_by};
use crate::watch::evidence::Evidence;
pub use crate::watch::scenes::{advise, count, healthy, order, with_file};

/// The rule's only finding.
pub fn only(rule: &Rule, evidence: &Evidence) -> Finding {
    let mut found = found_by(rule, Patient { processes: std::slice::from_ref(evidence) });
    assert_eq!(found.len(), 1, "{}: {found:?}", rule.name);
    found.remove(0)
}

/// The severity of the rule's finding; none where it finds nothing. More than one finding is a mistake in the test.
pub fn worst(rule: &Rule, evidence: &Evidence) -> Option<Severity> {
    match found_by(rule, Patient { processes: std::slice::from_ref(evidence) }).as_slice() {
        [] => None,
        [found] => Some(found.severity),
        more => panic!("{}: {more:?}", rule.name),
    }
}
