//! Random accesses under the default advice: each fault reads a whole window, most of it for nothing.

use crate::doctor::evidence::{Evidence, MappedFile};
use crate::doctor::terminal::words;
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;
use faultline::observe::pattern::Pattern;

pub(super) const RULE: Rule =
    Rule { name: "read_ahead_flood", summary: "random faults make the device read many times what is touched", look };

/// Bytes read for each byte of a touched page, from which on it is a flood.
const FLOOD: f64 = 8.0;

/// Bytes read below which it doesn't matter.
const LEAST: u64 = 32 << 20;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let all_major = evidence.faults.as_ref().map_or(0, |faults| faults.major);
    // Bytes are counted for the process: they are this file's where nearly all waits are.
    evidence
        .data_files()
        .filter(|file| file.major * 5 >= all_major * 4)
        .filter_map(|file| of_file(evidence, file))
        .collect()
}

fn of_file(evidence: &Evidence, file: &MappedFile) -> Option<Finding> {
    let order = file.order.filter(|order| order.confidence >= 0.6)?;
    if !matches!(order.pattern, Pattern::Random | Pattern::HotSet { .. })
        || file.major < 64
        || file.random_advice().is_some()
    {
        return None;
    }
    let read = evidence.calls?.device_bytes;
    let touched = file.asked_bytes().max(4096);
    let factor = read as f64 / touched as f64;
    if read < LEAST || factor < FLOOD {
        return None;
    }
    let remedy = if evidence.random_costs_hot_pages() {
        "MADV_RANDOM would stop it, but since Linux 6.3 hot pages then count as cold under memory pressure: better pread \
         or io_uring with O_DIRECT and a pool of your own, or read_ahead_kb=16 for the device"
    } else {
        "madvise(p, length, MADV_RANDOM)"
    };
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Warning,
        scope: file.path.clone(),
        what: format!("read-ahead reads {factor:.0} times what is touched"),
        evidence: vec![
            format!("{} read from devices", Bytes(read).rounded()),
            format!("{} in touched pages", Bytes(touched).rounded()),
            format!("order: {} ({:.0} %)", words(order.pattern), order.confidence * 100.0),
            format!("read_ahead_kb {}", file.read_ahead_kb.map_or("unknown".to_owned(), |kb| kb.to_string())),
        ],
        remedy: remedy.to_owned(),
        proof: format!(
            "faultline compare {} --rw randread --bs 4k --cache cold -m mmap -m mmap:advice=random",
            file.path
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, order, with_file};
    use super::*;

    fn flooded() -> Evidence {
        let mut evidence = with_file(|file| {
            file.major = 800;
            file.cached_bytes = Some(300 << 20);
        });
        evidence.calls.as_mut().unwrap().device_bytes = 200 << 20;
        evidence.faults.as_mut().unwrap().major = 810;
        evidence
    }

    #[test]
    fn random_faults_that_read_windows_are_a_flood() {
        let found = only(&RULE, &flooded());

        assert!(found.remedy.contains("MADV_RANDOM") && found.what.contains("57 times"), "{found:?}");
    }

    /// Seen with LMDB and MDB_NORDAHEAD: its inner pages are dropped and read again, each alone.
    #[test]
    fn pages_that_are_read_again_alone_are_no_read_ahead() {
        let mut evidence = flooded();
        evidence.files[0].major = 50_000;
        evidence.faults.as_mut().unwrap().major = 50_000;

        assert!(look(&evidence).is_empty());
    }

    #[test]
    fn a_scan_reads_ahead_rightly() {
        let mut evidence = flooded();
        evidence.files[0].order = Some(order(Pattern::Sequential));

        assert!(look(&evidence).is_empty());
    }
}
