//! What was found about several processes: the one that was named first, then those in which something was found or waited for.

use super::Judged;
use crate::doctor::tell;
use crate::doctor::{Finding, Severity};
use crate::watch::evidence::Evidence;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::io::{self, Write};

/// The most processes that are printed.
const MOST_PRINTED: usize = 10;

/// Writes a report for each process worth one; of processes that belong `together` one report, whose findings are those of all.
///
/// Errors: those of `out`.
pub fn print(judged: &[Judged], together: bool, out: &mut dyn Write) -> io::Result<()> {
    if together {
        let (evidence, findings) = most_telling(judged, true);
        tell::print(evidence, findings, out)?;
        return match judged.len() - 1 {
            0 => Ok(()),
            1 => writeln!(out, "\nwatched and judged with it: 1 further process (--json has it)"),
            others => writeln!(out, "\nwatched and judged with it: {others} further processes (--json has them)"),
        };
    }
    let told = ranked(judged);
    for (number, (evidence, findings)) in told.iter().enumerate() {
        if number > 0 {
            writeln!(out, "\n{}", "-".repeat(72))?;
        }
        tell::print(evidence, findings, out)?;
    }
    match judged.len() - told.len() {
        0 => Ok(()),
        1 => writeln!(out, "\n1 further process, in which nothing was found (--json has it)"),
        others => writeln!(out, "\n{others} further processes, in which nothing was found (--json has them)"),
    }
}

/// The document of the most telling process, with the findings of all, and those of the others.
pub fn document(judged: &[Judged], together: bool) -> Value {
    let (evidence, _) = most_telling(judged, together);
    // Those of one process are ranked already.
    let findings: Vec<Finding> = judged.iter().flat_map(|(_, findings)| findings).cloned().collect();
    let mut document = tell::document(evidence, &findings);
    let others = judged.iter().filter(|(other, _)| other.target.pid != evidence.target.pid);
    document["processes"] = others.map(|(evidence, findings)| tell::document(evidence, findings)).collect();
    document["ended"] = json!(judged.iter().all(|(evidence, _)| evidence.ended));
    document
}

/// The process with the worst findings and the longest waits; the one that was named where nobody has any. Of those that belong
/// `together` the one that has their findings.
pub fn most_telling(judged: &[Judged], together: bool) -> (&Evidence, &[Finding]) {
    if together {
        let found = judged.iter().find(|(_, findings)| !findings.is_empty()).or(judged.first());
        let (evidence, findings) = found.expect("the watch is of one process at least");
        return (evidence, findings);
    }
    // The first of equal ones.
    let best = judged.iter().rev().max_by_key(|judged| worth(judged)).expect("the watch is of one process at least");
    (&best.0, &best.1)
}

/// The processes worth a report, the most telling ones first.
fn ranked(judged: &[Judged]) -> Vec<&Judged> {
    let mut told: Vec<&Judged> = judged.iter().collect();
    told.sort_by_key(|judged| Reverse(worth(judged)));
    let is_quiet = |judged: &&Judged| worth(judged) == (None, 0);
    let loud = told.iter().filter(|judged| !is_quiet(judged)).count();
    told.truncate(loud.clamp(1, MOST_PRINTED));
    told
}

fn worth((evidence, findings): &Judged) -> (Option<Severity>, u64) {
    let waited_ns = evidence.faults.as_ref().map_or(0, |faults| faults.waited_ns);
    (findings.iter().map(|finding| finding.severity).max(), waited_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::evidence::{FaultCounts, Watched};

    fn process(pid: u32, severity: Option<Severity>, waited_ns: u64) -> Judged {
        let target = Watched { pid, name: format!("p{pid}"), ..Watched::default() };
        let faults = Some(FaultCounts { waited_ns, ..FaultCounts::default() });
        let findings = severity.map(|severity| Finding { severity, ..Finding::default() });
        (Evidence { target, faults, ..Evidence::default() }, findings.into_iter().collect())
    }

    fn told(judged: &[Judged]) -> Vec<u32> {
        ranked(judged).into_iter().map(|(evidence, _)| evidence.target.pid).collect()
    }

    #[test]
    fn the_process_with_the_worst_finding_is_told_first_and_quiet_ones_are_counted() {
        let quiet = process(1, None, 0);
        let judged = [quiet, process(2, None, 7), process(3, Some(Severity::Note), 5), process(4, None, 0)];
        let mut text = Vec::new();

        print(&judged, false, &mut text).unwrap();

        assert_eq!(told(&judged), [3, 2]);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("2 further processes, in which nothing was found"), "{text}");
    }

    #[test]
    fn where_nobody_has_anything_the_process_that_was_named_is_told() {
        assert_eq!(told(&[process(5, None, 0), process(2, None, 0)]), [5]);
        assert_eq!(most_telling(&[process(5, None, 0), process(2, None, 0)], false).0.target.pid, 5);
    }

    #[test]
    fn of_a_service_the_process_with_the_findings_is_told_else_the_one_that_was_named() {
        let told = |judged: &[Judged]| most_telling(judged, true).0.target.pid;

        assert_eq!(told(&[process(5, None, 0), process(2, None, 9)]), 5);
        assert_eq!(told(&[process(5, None, 0), process(2, Some(Severity::Note), 9)]), 2);
    }

    #[test]
    fn the_document_has_all_findings_and_all_processes() {
        let document = document(&[process(1, Some(Severity::Note), 0), process(2, Some(Severity::Critical), 0)], false);

        assert_eq!(document["target"]["pid"], 2);
        assert_eq!(document["findings"].as_array().unwrap().len(), 2);
        assert_eq!(document["processes"][0]["target"]["pid"], 1);
    }
}
