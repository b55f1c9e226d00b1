//! The totals of all rounds of a watch, for programs that poll: counters grow, levels are the latest.

use crate::doctor::Finding;
use crate::watch::evidence::{Evidence, MappedFile, Process, Watched};
use std::collections::BTreeMap;

/// The most files with series of their own; the faults of further files go to [`OTHERS`], so that a program that keeps mapping
/// new files does not keep making new series.
const MOST_FILES: usize = 256;

/// The label of further files.
pub const OTHERS: &str = "(others)";

/// Sums over all rounds, and what the last one found.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The process.
    pub target: Watched,
    /// Whether it still runs.
    pub runs: bool,
    /// Seconds watched.
    pub watched_seconds: f64,
    /// Faults; none where they cannot be seen.
    pub faults: Option<FaultTotals>,
    /// By path: files that hold data; and programs and libraries if they faulted.
    pub files: BTreeMap<String, FileTotals>,
    /// Its state at the end of the last round; none before the first one, and after the process has ended.
    pub process: Option<Process>,
    /// The findings of the last round.
    pub findings: Vec<Finding>,
}

/// Faults of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultTotals {
    /// Faults.
    pub seen: u64,
    /// Of these, those that started a read.
    pub major: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Samples that did not fit into the rings.
    pub lost: u64,
}

/// One file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTotals {
    /// Faults.
    pub faults: u64,
    /// Of these, those that started a read.
    pub major: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Bytes in the page cache at the end of the last round.
    pub cached_bytes: Option<u64>,
    /// Bytes at the end of the last round.
    pub size_bytes: Option<u64>,
}

impl Totals {
    /// Nothing yet.
    pub fn of(target: Watched) -> Totals {
        Totals { target, runs: true, ..Totals::default() }
    }

    /// Adds a round of all processes: their faults are added up, and so are their sizes.
    pub fn add_all(&mut self, judged: &[(Evidence, Vec<Finding>)]) {
        let watched_seconds = judged.first().map_or(0.0, |(evidence, _)| evidence.watched.as_secs_f64());
        let before = self.watched_seconds;
        self.forget_levels();
        // The rings are those of all.
        if let Some(faults) = judged.first().and_then(|(evidence, _)| evidence.faults.as_ref()) {
            self.faults.get_or_insert_default().lost += faults.lost;
        }
        let mut process = Process::default();
        let mut found = Vec::new();
        for (evidence, findings) in judged {
            self.add_counts(evidence);
            if !evidence.ended {
                process.add(&evidence.process);
                found.extend(findings.iter().cloned());
            }
        }
        self.watched_seconds = before + watched_seconds;
        match judged.iter().all(|(evidence, _)| evidence.ended) {
            true => self.end(),
            false => (self.process, self.findings) = (Some(process), found),
        }
    }

    /// Adds a round.
    #[cfg(test)]
    pub fn add(&mut self, evidence: &Evidence, findings: &[Finding]) {
        self.add_all(&[(evidence.clone(), findings.to_vec())]);
    }

    /// Adds what grows.
    fn add_counts(&mut self, evidence: &Evidence) {
        if let Some(faults) = &evidence.faults {
            let sum = self.faults.get_or_insert_default();
            sum.seen += faults.seen;
            sum.major += faults.major;
            sum.waited_ns += faults.waited_ns;
        }
        for file in evidence.files.iter().filter(|file| file.faults > 0 || file.is_data()) {
            self.add_file(file);
        }
    }

    /// The process has ended: counters stay, levels and findings are removed.
    pub fn end(&mut self) {
        self.runs = false;
        self.process = None;
        self.findings.clear();
        self.forget_levels();
    }

    fn forget_levels(&mut self) {
        for file in self.files.values_mut() {
            (file.cached_bytes, file.size_bytes) = (None, None);
        }
    }

    fn add_file(&mut self, file: &MappedFile) {
        let is_told_apart = self.files.contains_key(&file.path) || self.files.len() < MOST_FILES;
        let name = if is_told_apart { file.path.as_str() } else { OTHERS };
        let sum = self.files.entry(name.to_owned()).or_default();
        sum.faults += file.faults;
        sum.major += file.major;
        sum.waited_ns += file.waited_ns;
        // A path may have two files, where one was replaced: the level is that of the file with this name now.
        if is_told_apart && (!file.deleted || sum.size_bytes.is_none()) {
            (sum.cached_bytes, sum.size_bytes) = (file.cached_bytes, file.size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn round(path: &str, faults: u64) -> Evidence {
        let file = MappedFile { path: path.to_owned(), faults, size_bytes: Some(8192), ..MappedFile::default() };
        Evidence { files: vec![file], watched: Duration::from_secs(2), ..Evidence::default() }
    }

    #[test]
    fn counters_grow_over_rounds_and_levels_are_the_latest() {
        let mut totals = Totals::of(Watched::default());

        totals.add(&round("/a", 3), &[]);
        totals.add(&round("/b", 4), &[]);
        totals.add(&round("/b", 5), &[]);

        assert_eq!((totals.files["/a"].faults, totals.files["/a"].size_bytes), (3, None));
        assert_eq!((totals.files["/b"].faults, totals.files["/b"].size_bytes), (9, Some(8192)));
        assert_eq!(totals.watched_seconds, 6.0);
        assert!(totals.faults.is_none());
    }

    #[test]
    fn a_program_that_maps_new_files_all_the_time_makes_no_new_series_all_the_time() {
        let mut totals = Totals::of(Watched::default());

        for number in 0..1000 {
            totals.add(&round(&format!("/data/{number}"), 1), &[]);
        }

        assert_eq!(totals.files.len(), 257);
        assert_eq!(totals.files[OTHERS].faults, 744);
    }

    #[test]
    fn of_a_process_that_has_ended_only_counters_stay() {
        let mut totals = Totals::of(Watched::default());

        totals.add(&round("/a", 3), &[]);
        totals.add(&Evidence { ended: true, ..round("/a", 1) }, &[]);

        assert!(!totals.runs && totals.process.is_none());
        assert_eq!((totals.files["/a"].faults, totals.files["/a"].size_bytes), (4, None));
    }

    fn with_faults(faults: u64) -> Evidence {
        use crate::watch::evidence::FaultCounts;
        let seen = FaultCounts {
            seen: faults,
            major: 2 * faults,
            waited_ns: 3 * faults,
            lost: 4 * faults,
            ..FaultCounts::default()
        };
        Evidence { faults: Some(seen), ..round("/a", faults) }
    }

    #[test]
    fn the_faults_of_the_process_are_the_sums_of_all_rounds() {
        let mut totals = Totals::of(Watched::default());

        totals.add(&with_faults(1), &[]);
        totals.add(&with_faults(10), &[]);

        let FaultTotals { seen, major, waited_ns, lost } = totals.faults.unwrap();
        assert_eq!((seen, major, waited_ns, lost), (11, 22, 33, 44));
        assert!(totals.runs && totals.process.is_some());
    }

    #[test]
    fn the_faults_of_a_file_are_the_sums_of_all_rounds() {
        let mut totals = Totals::of(Watched::default());
        let mut evidence = round("/a", 1);
        (evidence.files[0].major, evidence.files[0].waited_ns) = (2, 3);

        totals.add(&evidence, &[]);
        totals.add(&evidence, &[]);

        let FileTotals { faults, major, waited_ns, .. } = totals.files["/a"];
        assert_eq!((faults, major, waited_ns), (2, 4, 6));
    }

    #[test]
    fn programs_count_only_where_they_faulted() {
        use crate::watch::evidence::FileMapping;
        let program = |faults| {
            let mut evidence = round("/bin/program", faults);
            let mut mapping = FileMapping::default();
            mapping.vma.rights = *b"r-xp";
            evidence.files[0].mappings = vec![mapping];
            let mut totals = Totals::of(Watched::default());
            totals.add(&evidence, &[]);
            totals.files.len()
        };

        assert_eq!((program(0), program(1)), (0, 1));
    }

    #[test]
    fn of_two_files_of_one_path_the_level_is_that_of_the_one_it_names_now() {
        for deleted_first in [true, false] {
            let mut evidence = round("/a", 1);
            let gone = MappedFile { deleted: true, size_bytes: Some(77), ..evidence.files[0].clone() };
            evidence.files.insert(usize::from(!deleted_first), gone);
            let mut totals = Totals::of(Watched::default());

            totals.add(&evidence, &[]);

            assert_eq!((totals.files["/a"].faults, totals.files["/a"].size_bytes), (2, Some(8192)));
        }
    }

    #[test]
    fn a_file_without_a_name_has_its_level_where_no_other_took_its_path() {
        let mut totals = Totals::of(Watched::default());
        let mut evidence = round("/a", 1);
        evidence.files[0].deleted = true;

        totals.add(&evidence, &[]);

        assert_eq!(totals.files["/a"].size_bytes, Some(8192));
    }

    #[test]
    fn files_told_apart_go_on_being_so_when_there_are_others() {
        let mut totals = Totals::of(Watched::default());
        (0..300).for_each(|number| totals.add(&round(&format!("/data/{number:03}"), 1), &[]));

        totals.add(&round("/data/255", 5), &[]);
        totals.add(&round("/data/256", 5), &[]);

        assert_eq!((totals.files["/data/255"].faults, totals.files[OTHERS].faults), (6, 49));
        assert_eq!(totals.files[OTHERS].size_bytes, None);
    }
}
