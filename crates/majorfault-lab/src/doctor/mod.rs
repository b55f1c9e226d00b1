//! The doctor: reports what is wrong with the file access of a process that was watched.
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

/// What a rule has found.
#[derive(Clone, Debug, Default)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// What it is about: a file's path, "process", "cgroup", "machine".
    pub scope: String,
    /// The mapped file that it is about, if there is one.
    pub file: Option<FileId>,
    /// The trouble, as a sentence.
    pub what: String,
    /// Figures with units.
    pub evidence: Vec<String>,
    /// What to do, as a concrete instruction.
    pub remedy: String,
    /// The command that shows the trouble, or shows that the remedy works.
    pub proof: String,
    /// What `--prove` compares, where replayed accesses can show it.
    pub replay: Option<Replay>,
    /// How many times as fast the program can become, where that is known and worth mentioning.
    pub gain_at_most: Option<f64>,
}

/// The findings of all rules, worst first.
pub fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(|rule| found_by(rule, evidence)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// The findings of one rule.
fn found_by(rule: &Rule, evidence: &Evidence) -> Vec<Finding> {
    (rule.look)(evidence).into_iter().map(|case| finding(rule, evidence, case)).collect()
}

/// Puts a case into words.
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
