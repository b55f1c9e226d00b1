//! The doctor: reports what is wrong with the file access of the processes that were watched.
//!
//! `watch -> Evidence -> rules -> Finding -> tell`. A rule is a function of the evidence; it opens nothing. There is one finding for
//! each cause: equal ones are put together, what another one explains becomes a line below it, and the largest gain stands first.

pub mod fact;
mod gain;
mod patient;
pub mod rule;
pub mod rules;
mod software;
pub mod tell;

use crate::watch::evidence::Evidence;
use fact::Fact;
use majorfault::observe::places::FileId;
use patient::{Patient, Seat};
use rule::{Backing, Case, Gain, Proof, Replay, Rule, Subject, filled, quoted};
use std::cmp::Reverse;
use std::collections::HashSet;

pub use gain::waiting;
pub use rule::Severity;

/// What a rule has found.
#[derive(Clone, Debug, Default)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// What it is about: a file's path, "12 files", "process", "cgroup", "machine".
    pub scope: String,
    /// The process of the worst file, or the only one.
    pub pid: u32,
    /// The mapped file that it is about, the worst one of several.
    pub file: Option<FileId>,
    /// The files and processes that it is about, worst first.
    pub subjects: Vec<Subject>,
    /// The trouble, as a sentence.
    pub what: String,
    /// Figures with units.
    pub evidence: Vec<Fact>,
    /// What to do, as a concrete instruction.
    pub remedy: String,
    /// What the remedy rests on.
    pub backing: Backing,
    /// The command that shows the trouble, or shows that the remedy works.
    pub proof: String,
    /// What `--prove` compares, where replayed accesses can show it.
    pub replay: Option<Replay>,
    /// How many times as fast the program can become, where that is known and worth mentioning.
    pub gain_at_most: Option<f64>,
    /// Whether it is about something that fails or is about to, rather than about speed.
    pub is_failure: bool,
    /// What else was found that this one explains.
    pub consequences: Vec<Consequence>,
    /// Whether it is the cause of what its rule explains.
    pub is_cause: bool,
}

/// What a finding explains: it goes away with its cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Consequence {
    /// The rule that found it.
    pub rule: &'static str,
    /// It, as a sentence.
    pub what: String,
}

/// The findings of all rules about these processes, which are judged together: what gains most stands first.
pub fn examine(processes: &[Evidence]) -> Vec<Finding> {
    let patient = Patient { processes };
    let found: Vec<Finding> = rules::ALL.iter().flat_map(|rule| found_by(rule, patient)).collect();
    let mut findings = explained(found);
    rank(&mut findings);
    findings
}

/// Orders findings: what fails, then what gains most, then the more severe; equal ones stay in their order.
pub fn rank(findings: &mut [Finding]) {
    let gain = |finding: &Finding| match finding.backing {
        Backing::Measured(times) => times.min(finding.gain_at_most.unwrap_or(times)),
        _ => finding.gain_at_most.unwrap_or(1.0),
    };
    findings.sort_by(|left, right| {
        let urgent = |it: &Finding| it.is_failure && it.severity == Severity::Critical;
        let by_urgency = urgent(right).cmp(&urgent(left));
        by_urgency.then(gain(right).total_cmp(&gain(left))).then(right.severity.cmp(&left.severity))
    });
}

/// The findings of one rule, equal ones as one.
fn found_by(rule: &Rule, patient: Patient<'_>) -> Vec<Finding> {
    let mut cases: Vec<Case> = Vec::new();
    for case in rule.look.at(patient) {
        match cases.iter_mut().find(|known| known.remedy == case.remedy) {
            Some(known) => *known = together(std::mem::replace(known, case.clone()), case),
            None => cases.push(case),
        }
    }
    cases.into_iter().map(|case| finding(rule, patient, case)).collect()
}

/// Two cases with the same remedy as one: the worse one's words, the files of both.
fn together(left: Case, right: Case) -> Case {
    let weight = |case: &Case| case.subjects.iter().map(|subject| subject.weight).max();
    let is_swapped = (right.severity, weight(&right)) > (left.severity, weight(&left));
    let (mut worse, other) = if is_swapped { (right, left) } else { (left, right) };
    let remain = |case: &Case| case.waiting.unwrap_or(0.0) * case.remains;
    let all = worse.waiting.unwrap_or(0.0) + other.waiting.unwrap_or(0.0);
    worse.remains = if all > 0.0 { (remain(&worse) + remain(&other)) / all } else { 0.0 };
    worse.waiting = worse.waiting.zip(other.waiting).map(|(one, two)| (one + two).min(1.0)).or(worse.waiting);
    worse.subjects.extend(other.subjects);
    let files = worse.subjects.iter().filter_map(|subject| subject.file).collect::<HashSet<_>>().len();
    let processes = worse.subjects.iter().map(|subject| subject.process).collect::<HashSet<_>>().len();
    worse.scope = match files {
        0 => format!("{processes} processes"),
        1 => worse.scope,
        _ => format!("{files} files"),
    };
    worse
}

/// Takes away the findings that another one explains, and notes them below it.
fn explained(found: Vec<Finding>) -> Vec<Finding> {
    let rule_of = |finding: &Finding| rules::ALL.iter().find(|rule| rule.name == finding.rule);
    let explains = |cause: &Finding, effect: &Finding| {
        let declared = rule_of(cause).is_some_and(|rule| rule.explains.iter().any(|other| other.name == effect.rule));
        declared && cause.is_cause && is_about_the_same(cause, effect)
    };
    let causes: Vec<Option<usize>> =
        found.iter().map(|effect| found.iter().position(|cause| explains(cause, effect))).collect();
    // A cause may itself be the effect of another one: the first in the chain keeps all.
    let root = |mut at: usize| {
        while let Some(cause) = causes[at] {
            at = cause;
        }
        at
    };
    let consequence = |effect: &Finding| Consequence { rule: effect.rule, what: effect.what.clone() };
    let noted: Vec<(usize, Consequence)> =
        (0..found.len()).filter(|at| causes[*at].is_some()).map(|at| (root(at), consequence(&found[at]))).collect();
    let severities: Vec<(usize, Severity)> =
        (0..found.len()).filter(|at| causes[*at].is_some()).map(|at| (root(at), found[at].severity)).collect();
    let kept = found.into_iter().enumerate().filter(|(at, _)| causes[*at].is_none());
    kept.map(|(at, mut finding)| {
        finding.consequences = noted.iter().filter(|(cause, _)| *cause == at).map(|(_, it)| it.clone()).collect();
        // Where the cause ends by itself, so do its effects, however bad they are now.
        if finding.gain_at_most.is_some() {
            let own = severities.iter().filter(|(cause, _)| *cause == at).map(|(_, severity)| *severity);
            finding.severity = own.fold(finding.severity, Severity::max);
        }
        finding
    })
    .collect()
}

/// Whether at least half of what the effect weighs is of the cause's files. What is about no file is about all.
fn is_about_the_same(cause: &Finding, effect: &Finding) -> bool {
    let files: HashSet<FileId> = cause.subjects.iter().filter_map(|subject| subject.file).collect();
    let of_files: Vec<&Subject> = effect.subjects.iter().filter(|subject| subject.file.is_some()).collect();
    if files.is_empty() || of_files.is_empty() {
        return true;
    }
    let weight = |subject: &&&Subject| subject.weight.max(1);
    let all: u64 = of_files.iter().map(|it| weight(&it)).sum();
    let shared = of_files.iter().filter(|it| it.file.is_some_and(|id| files.contains(&id)));
    shared.map(|it| weight(&it)).sum::<u64>() * 2 >= all
}

/// Puts a case into words.
fn finding(rule: &Rule, patient: Patient<'_>, case: Case) -> Finding {
    let Case { severity, scope, mut subjects, mut figures, facts, remedy, backing, waiting, remains, is_cause } = case;
    debug_assert!(rule.remedies.iter().any(|declared| declared.says == remedy.says), "{}: {remedy:?}", rule.name);
    subjects.sort_by_key(|subject| Reverse(subject.weight));
    let first = subjects.first().cloned().unwrap_or_default();
    let evidence = &patient.processes[first.process];
    let mapped = first.file.and_then(|id| evidence.files.iter().find(|file| file.id == id));
    name_processes(patient, &mut subjects);
    figures.extend([("pid", evidence.target.pid.to_string()), ("scope", scope.clone())]);
    // A command names the file by the path by which we reach it, as one word of the shell.
    let path = mapped.map_or(scope.clone(), |file| {
        file.reached.as_ref().map_or(file.path.clone(), |path| path.display().to_string())
    });
    figures.push(("path", quoted(&path)));
    let seat = mapped.map(|file| Seat { process: first.process, evidence, file });
    let setting = seat.zip(remedy.symptom).and_then(|(seat, symptom)| software::setting(evidence, seat.file, symptom));
    let (proof, replay) = match &remedy.proof {
        Proof::Command(command) => (filled(command, &figures), None),
        Proof::Replay(arms) => {
            let replay = Replay::of(arms, evidence, mapped);
            (replay.command(mapped.map_or("FILE", |_| &path)), Some(replay))
        }
    };
    let says = filled(remedy.says, &figures);
    Finding {
        rule: rule.name,
        severity,
        scope,
        pid: evidence.target.pid,
        file: first.file,
        subjects,
        what: filled(rule.trouble, &figures),
        evidence: facts,
        remedy: setting.map_or(says.clone(), |setting| format!("{says}; {setting}")),
        backing: backing.unwrap_or(remedy.backing),
        proof,
        replay,
        gain_at_most: gain::at_most(rule.gain, waiting, remains),
        is_failure: rule.gain == Gain::Failure,
        consequences: Vec::new(),
        is_cause,
    }
}

/// Where there are several processes, each subject says whose it is.
fn name_processes(patient: Patient<'_>, subjects: &mut [Subject]) {
    if patient.processes.len() < 2 {
        return;
    }
    for subject in subjects {
        let target = &patient.processes[subject.process].target;
        let process = format!("{} ({})", target.name, target.pid);
        subject.name = if subject.name.is_empty() { process } else { format!("{} of {process}", subject.name) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::scenes::{count, healthy, with_file};

    fn found(rule: &'static str, severity: Severity, gain_at_most: Option<f64>, backing: Backing) -> Finding {
        Finding { rule, severity, gain_at_most, backing, ..Finding::default() }
    }

    fn order_of(mut findings: Vec<Finding>) -> Vec<&'static str> {
        rank(&mut findings);
        findings.into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn what_fails_stands_first_then_what_gains_most_then_the_more_severe() {
        let failing = Finding { is_failure: true, ..found("failing", Severity::Critical, None, Backing::Decided) };
        let near = Finding { is_failure: true, ..found("near", Severity::Warning, None, Backing::Decided) };

        let order = order_of(vec![
            found("note", Severity::Note, None, Backing::Try),
            near,
            found("small gain", Severity::Critical, Some(2.0), Backing::Try),
            found("large gain", Severity::Warning, Some(8.0), Backing::Try),
            failing,
        ]);

        assert_eq!(order, ["failing", "large gain", "small gain", "near", "note"]);
    }

    #[test]
    fn a_measured_gain_counts_before_a_promised_one_and_a_measured_loss_stands_last() {
        let order = order_of(vec![
            found("loss", Severity::Critical, Some(9.0), Backing::Measured(0.5)),
            found("promised", Severity::Warning, Some(3.0), Backing::Try),
            found("measured", Severity::Warning, Some(9.0), Backing::Measured(4.0)),
            found("none", Severity::Note, None, Backing::Try),
        ]);

        assert_eq!(order, ["measured", "promised", "none", "loss"]);
    }

    #[test]
    fn equal_findings_of_several_processes_are_one() {
        let spoil = |pid| {
            let mut evidence = with_file(|file| {
                file.filesystem = "nfs4".to_owned();
                file.waits = u64::from(pid);
                file.waited_ns = u64::from(pid);
            });
            evidence.target.pid = pid;
            evidence
        };

        let found = examine(&[spoil(60), spoil(70)]);

        assert_eq!((found.len(), found[0].scope.as_str(), found[0].pid), (1, "/data/table", 70));
        let names: Vec<&str> = found[0].subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!(names, ["/data/table of program (70)", "/data/table of program (60)"]);
    }

    #[test]
    fn what_remains_of_two_cases_weighs_as_what_they_wait() {
        let remedy = rules::ALL[0].remedies[0];
        let case = |waiting, remains| Case { waiting: Some(waiting), remains, ..Case::of("x", Severity::Note, remedy) };

        let both = together(case(0.6, 0.5), case(0.2, 0.1));

        assert!((both.waiting.unwrap() - 0.8).abs() < 1e-9 && (both.remains - 0.4).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn findings_without_a_file_name_their_processes() {
        let mut both = [healthy(), healthy()];
        both[1].target.pid = 78;
        both.iter_mut().for_each(|it| it.process.page_table_bytes = it.process.resident_bytes);

        let found = examine(&both);

        assert_eq!((found.len(), found[0].scope.as_str()), (1, "2 processes"));
        assert_eq!(
            found[0].subjects.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
            ["program (77)", "program (78)"]
        );
    }

    /// Two files wait; one of them floods.
    #[test]
    fn a_cause_takes_only_what_is_about_its_own_files() {
        let stalls = |waited_ns: u64| {
            let mut evidence = with_file(|file| {
                (file.waits, file.waited_ns, file.major) = (200, 1_000_000_000, 200);
                (file.size_bytes, file.read_ahead_kb) = (Some(100 << 30), Some(8192));
            });
            let mut other = evidence.files[0].clone();
            (other.id.inode, other.waits, other.waited_ns) = (6, 40, waited_ns);
            other.order = other.order.map(|order| majorfault::observe::pattern::Recognised { threads: 1, ..order });
            evidence.files[0].order = other.order;
            other.advised = Some("MADV_RANDOM");
            other.mappings[0].deep = None;
            evidence.files.push(other);
            evidence.calls = Some(crate::watch::evidence::Calls { device_bytes: 200 << 20, ..Default::default() });
            evidence.faults.as_mut().unwrap().waits = 240;
            count(&mut evidence, "cgroup_refault_pages", 0);
            examine(&[evidence]).len()
        };

        assert_eq!(stalls(1_000_000_000), 1, "half of the waiting is the flood's");
        assert_eq!(stalls(1_000_000_001), 2, "most of the waiting has another cause");
    }
}
