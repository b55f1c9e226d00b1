//! The doctor: watches a running process for some seconds and says what is wrong with its file access.
//!
//! `gather -> Evidence -> rules -> Finding`. A rule is a function of the evidence; it opens nothing.

pub mod gain;
pub mod rules;
mod software;
pub mod tell;

use crate::watch::evidence::Evidence;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know; costs little now.
    Note,
    /// Costs time or memory now.
    Warning,
    /// Fails, or is about to; or most of the time is lost.
    Critical,
}

impl Severity {
    /// The word in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What a rule found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule's name; set by [`examine`].
    pub rule: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Whose: a file's path, "process", "cgroup".
    pub scope: String,
    /// What, as a sentence.
    pub what: String,
    /// Figures with units.
    pub evidence: Vec<String>,
    /// What to do, as a concrete line.
    pub remedy: String,
    /// The command that shows that it is so, or that the remedy works.
    pub proof: String,
}

/// One defect that can be recognised.
pub struct Rule {
    /// Short name, as the file.
    pub name: &'static str,
    /// What it looks for, in one line.
    pub summary: &'static str,
    /// Looks for it.
    pub look: fn(&Evidence) -> Vec<Finding>,
}

/// What all rules find, worst first.
pub fn examine(evidence: &Evidence) -> Vec<Finding> {
    let look = |rule: &&Rule| {
        let named = |finding| software::with_setting(evidence, Finding { rule: rule.name, ..finding });
        (rule.look)(evidence).into_iter().map(named).collect::<Vec<_>>()
    };
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(look).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
