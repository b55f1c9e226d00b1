//! The doctor: says what is wrong with the file access of a process that was watched.
//!
//! `watch -> Evidence -> rules -> Finding -> tell`. A rule is a function of the evidence; it opens nothing.

mod gain;
pub mod rule;
pub mod rules;
mod software;
pub mod tell;

use crate::watch::evidence::Evidence;
use majorfault::observe::places::FileId;
use rule::{Case, Proof, Replay, Rule, filled};

pub use gain::waiting;
pub use rule::Severity;

/// What a rule found.
#[derive(Clone, Debug, Default)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Whose: a file's path, "process", "cgroup", "machine".
    pub scope: String,
    /// The mapped file that it is about, if it is about one.
    pub file: Option<FileId>,
    /// What, as a sentence.
    pub what: String,
    /// Figures with units.
    pub evidence: Vec<String>,
    /// What to do, as a concrete line.
    pub remedy: String,
    /// The command that shows that it is so, or that the remedy works.
    pub proof: String,
    /// What `--prove` compares, where accesses can show it.
    pub replay: Option<Replay>,
    /// How many times as fast the program can be at most, where that is known and worth a word.
    pub gain_at_most: Option<f64>,
}

/// What all rules find, worst first.
pub fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(|rule| found_by(rule, evidence)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// What one rule finds.
fn found_by(rule: &Rule, evidence: &Evidence) -> Vec<Finding> {
    (rule.look)(evidence).into_iter().map(|case| finding(rule, evidence, case)).collect()
}

/// A case in words.
fn finding(rule: &Rule, evidence: &Evidence, case: Case) -> Finding {
    let Case { severity, scope, file, mut figures, facts, remedy } = case;
    debug_assert!(rule.remedies.iter().any(|declared| declared.says == remedy.says), "{}: {remedy:?}", rule.name);
    figures.extend([("pid", evidence.target.pid.to_string()), ("scope", scope.clone())]);
    let mapped = file.and_then(|id| evidence.files.iter().find(|file| file.id == id));
    let setting = mapped.zip(remedy.symptom).and_then(|(file, symptom)| software::setting(evidence, file, symptom));
    let (proof, replay) = match &remedy.proof {
        Proof::Command(command) => (filled(command, &figures), None),
        Proof::Replay(arms) => {
            let replay = Replay::of(arms, evidence, mapped);
            (replay.command(mapped.map_or("FILE", |file| &file.path)), Some(replay))
        }
    };
    let says = filled(remedy.says, &figures);
    Finding {
        rule: rule.name,
        severity,
        scope,
        file,
        what: filled(rule.trouble, &figures),
        evidence: facts,
        remedy: setting.map_or(says.clone(), |setting| format!("{says}; {setting}")),
        proof,
        replay,
        gain_at_most: mapped.and_then(|file| gain::at_most(rule.gain, evidence, file)),
    }
}
