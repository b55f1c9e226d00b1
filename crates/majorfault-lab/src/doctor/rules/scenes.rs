//! What one rule says of made-up evidence.

use crate::doctor::rule::{Rule, Severity};
use crate::doctor::{Finding, found_by};
use crate::watch::evidence::Evidence;
pub use crate::watch::scenes::{advise, count, healthy, order, with_file};

/// What the rule alone finds, which must be one thing.
pub fn only(rule: &Rule, evidence: &Evidence) -> Finding {
    let mut found = found_by(rule, evidence);
    assert_eq!(found.len(), 1, "{}: {found:?}", rule.name);
    found.remove(0)
}

/// How bad it is by the rule alone; none where it finds nothing. More than one finding is a mistake of the scene.
pub fn worst(rule: &Rule, evidence: &Evidence) -> Option<Severity> {
    match found_by(rule, evidence).as_slice() {
        [] => None,
        [found] => Some(found.severity),
        more => panic!("{}: {more:?}", rule.name),
    }
}
