//! Sessions: records that were made in turns and may be compared. A row is judged in each by itself; what it comes to is
//! what they agree on.

use super::verdict::{Verdict, Why};
use crate::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// The records of one session that belong to an experiment.
pub struct SessionRecords<'a> {
    /// Its name in the records.
    pub name: &'a str,
    /// In the order they were made.
    pub records: Vec<&'a Record>,
}

/// How many sessions gave the most frequent verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Sessions that agree.
    pub agree: usize,
    /// Sessions that ran the row's experiment.
    pub of: usize,
}

/// The sessions of `records`, in the order of their first record. Records of no experiment are left out.
pub fn sessions(records: &[Record]) -> Vec<SessionRecords<'_>> {
    let mut found: Vec<SessionRecords<'_>> = Vec::new();
    let mut seen = BTreeSet::new();
    // A file that is named twice does not double the runs.
    for record in records {
        let Some(cell) = &record.cell else { continue };
        if !seen.insert((&record.session, cell, record.trial.repetition, record.began_unix_s)) {
            continue;
        }
        match found.iter_mut().find(|session| session.name == record.session) {
            Some(session) => session.records.push(record),
            None => found.push(SessionRecords { name: &record.session, records: vec![record] }),
        }
    }
    found
}

/// What the verdicts of these sessions come to: the one they agree on. A session that cannot test it has no say where
/// another could.
pub fn common(verdicts: &[(String, Verdict)]) -> Option<Verdict> {
    let is_able = |verdict: &Verdict| !matches!(verdict, Verdict::CannotTest(_));
    let mut able = verdicts.iter().filter(|(_, verdict)| is_able(verdict));
    let Some((_, first)) = able.next() else { return verdicts.first().map(|(_, verdict)| verdict.clone()) };
    if able.all(|(_, other)| other.words() == first.words()) {
        return Some(first.clone());
    }
    let said: Vec<String> =
        verdicts.iter().map(|(session, verdict)| format!("{} in {session}", verdict.words())).collect();
    Some(Verdict::Undecided(Why::SessionsDisagree(said.join("; "))))
}

/// How far these verdicts agree.
pub fn agreement(verdicts: &[(String, Verdict)]) -> Agreement {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, verdict) in verdicts {
        *counts.entry(verdict.words()).or_default() += 1;
    }
    Agreement { agree: counts.into_values().max().unwrap_or(0), of: verdicts.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(verdicts: &[Verdict]) -> Vec<(String, Verdict)> {
        ["A", "B", "C"].into_iter().map(str::to_owned).zip(verdicts.iter().cloned()).collect()
    }

    #[test]
    fn sessions_that_agree_have_a_common_verdict() {
        let both = given(&[Verdict::Holds, Verdict::Holds]);

        assert_eq!(common(&both), Some(Verdict::Holds));
        assert_eq!(agreement(&both), Agreement { agree: 2, of: 2 });
    }

    #[test]
    fn sessions_that_disagree_leave_it_undecided_and_say_which_said_what() {
        let three = given(&[Verdict::Holds, Verdict::DoesNotHold, Verdict::Holds]);

        let found = common(&three).unwrap();

        assert_eq!(found.words(), "undecided, run more");
        assert_eq!(found.reason(), "sessions disagree: holds here in A; does not hold here in B; holds here in C");
        assert_eq!(agreement(&three), Agreement { agree: 2, of: 3 });
    }

    #[test]
    fn one_undecided_session_takes_the_verdict_away() {
        let undecided = Verdict::Undecided(Why::TooFew("2".to_owned()));

        assert_eq!(common(&given(&[Verdict::Holds, undecided])).unwrap().words(), "undecided, run more");
    }

    #[test]
    fn a_session_that_cannot_test_it_has_no_say() {
        let cannot = Verdict::CannotTest("no huge pages".to_owned());

        assert_eq!(common(&given(&[cannot.clone(), Verdict::Holds])), Some(Verdict::Holds));
        assert_eq!(common(&given(&[cannot.clone(), cannot.clone()])), Some(cannot));
        assert_eq!(common(&[]), None);
    }
}
