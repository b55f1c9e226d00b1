//! Experiments: published measurements as data: a question, a grid of trials, and rows that judge what the sources say.
//!
//! Each is a file with a `const` [`Experiment`]; [`ALL`] names them once. A row is judged from records alone, so that a
//! verdict can be computed again by anybody who has them.

mod s0;
mod s1;
mod s2;
mod s3;
mod s4_column;
mod s4_dimmap;
mod s4_matrix;
mod s4_systems;
mod samples;
mod setting;

use crate::record::Record;
use crate::trial::Trial;
use faultline::{Bytes, Error, Result};

pub use samples::{Figure, Judged, Samples, Verdict};
pub use setting::{Scale, Setting, Store, clean_stale};

/// Every experiment, in the order of the sources.
pub const ALL: &[&Experiment] = &[
    &s0::EXPERIMENT,
    &s1::EXPERIMENT,
    &s2::EXPERIMENT,
    &s3::EXPERIMENT,
    &s4_matrix::EXPERIMENT,
    &s4_column::EXPERIMENT,
    &s4_dimmap::EXPERIMENT,
    &s4_systems::EXPERIMENT,
];

/// A published measurement.
pub struct Experiment {
    /// The source's id, with a name where a source has several: `S2`, `S4.matrix`.
    pub id: &'static str,
    /// What it is about, as a heading.
    pub title: &'static str,
    /// Who published it, where.
    pub source: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Room that its files need in the scratch directory.
    pub room: fn(Scale) -> Bytes,
    /// Memory that its files in memory need.
    pub memory: fn(Scale) -> Bytes,
    /// How often each cell runs.
    pub repetitions: fn(Scale) -> u32,
    /// Makes its data and says what is to be run.
    pub cells: fn(&mut Setting<'_>) -> Result<Vec<Planned>>,
    /// Published figures of single cells, in the unit that the cell is drawn in: seconds of the visit for procedures,
    /// accesses a second for the others.
    pub published: &'static [(&'static str, f64)],
    /// How the names of those cells end whose timelines are drawn.
    pub timeline: Option<&'static str>,
    /// What the source has and says, each judged.
    pub rows: &'static [Row],
    /// What it cannot show here, for readers of its section.
    pub cannot_show: &'static str,
}

/// One cell of an experiment's grid.
pub struct Planned {
    /// Its name in the experiment.
    pub name: String,
    /// What is run; the repetition is filled in, and added to the seed.
    pub trial: Trial,
}

/// Something that a source has or says.
pub struct Row {
    /// Its id: `S2.collapse`. Those that end in a star are our own controls and additions.
    pub id: &'static str,
    /// In one sentence.
    pub says: &'static str,
    /// The published figure.
    pub published: &'static str,
    /// How it is judged.
    pub judge: Judge,
}

/// How a row is judged.
pub enum Judge {
    /// From the samples of the experiment.
    By(fn(&Samples<'_>) -> Judged),
    /// It is a system rather than a claim, and this command is it.
    Built(&'static str),
    /// Cannot be tested yet, or here, for this reason.
    Not(&'static str),
}

/// A row with what was found.
pub struct Entry {
    /// The experiment it belongs to.
    pub experiment: &'static Experiment,
    /// The row.
    pub row: &'static Row,
    /// What was found.
    pub judged: Judged,
}

/// The ledger: every row of the experiments that `wanted` names (all, where it names none), judged from `records`.
pub fn ledger(records: &[Record], wanted: &[String]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for experiment in ALL {
        let samples = Samples::of(experiment.id, records);
        for row in experiment.rows.iter().filter(|row| is_wanted(experiment, row, wanted)) {
            let judged = match row.judge {
                Judge::By(judge) => judge(&samples),
                Judge::Built(command) => Judged::built(command),
                Judge::Not(reason) => Judged::cannot(reason),
            };
            entries.push(Entry { experiment, row, judged });
        }
    }
    entries
}

/// Ids match from their beginning, part by part: `S4` means all of it, `S2.collapse` that row.
fn is_wanted(experiment: &Experiment, row: &Row, wanted: &[String]) -> bool {
    let begins = |id: &str, with: &str| {
        id.eq_ignore_ascii_case(with)
            || id.len() > with.len() && id.is_char_boundary(with.len()) && {
                let (head, rest) = id.split_at(with.len());
                head.eq_ignore_ascii_case(with) && rest.starts_with('.')
            }
    };
    let id = row.id.trim_end_matches('*');
    wanted.is_empty() || wanted.iter().any(|word| begins(id, word) || begins(experiment.id, word))
}

/// The experiments that have a row that `wanted` names.
///
/// Errors: Invalid for a word that names nothing, with the nearest id.
pub fn chosen(wanted: &[String]) -> Result<Vec<&'static Experiment>> {
    for word in wanted {
        let rows = || ALL.iter().flat_map(|experiment| experiment.rows.iter().map(move |row| (experiment, row)));
        if !rows().any(|(experiment, row)| is_wanted(experiment, row, std::slice::from_ref(word))) {
            let ids = rows().map(|(_, row)| row.id.trim_end_matches('*')).chain(ALL.iter().map(|it| it.id));
            let nearest = ids.max_by(|a, b| strsim::jaro(a, word).total_cmp(&strsim::jaro(b, word))).unwrap_or("S0");
            return Err(Error::Invalid(format!(
                "there is no experiment \"{word}\"; did you mean {nearest}? faultline reproduce --list shows all"
            )));
        }
    }
    let has_any = |experiment: &&Experiment| experiment.rows.iter().any(|row| is_wanted(experiment, row, wanted));
    Ok(ALL.iter().copied().filter(has_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The ids of the project's list of sources.
    const SOURCES: &str = "S0.data S0.mmap S0.pool S0.faster S0.tlb S0.rule S1.faults S1.time S1.cache S1.hint S1.silent \
        S2.random S2.collapse S2.tlb S2.kswapd S2.seq1 S2.seq10 S2.range S2.advice S2.devices S3.01 S3.02 S3.03 S3.04 \
        S3.05 S3.06 S3.07 S3.08 S3.09 S3.10 S3.11 S3.prefault S3.fallocate S3.hints S3.numa S4.matrix S4.mmapwins S4.big \
        S4.bwaindex S4.bwabig S4.bwamem S4.bwamem2 S4.column S4.readahead S4.userpolicy S4.kernels S4.dimmap";

    #[test]
    fn every_id_of_the_sources_has_a_row() {
        let rows: BTreeSet<&str> = ALL.iter().flat_map(|experiment| experiment.rows).map(|row| row.id).collect();

        for id in SOURCES.split_whitespace() {
            assert!(rows.contains(id), "{id} has no row");
        }
    }

    #[test]
    fn no_two_rows_share_an_id() {
        let ids: Vec<&str> = ALL.iter().flat_map(|experiment| experiment.rows).map(|row| row.id).collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();

        assert_eq!(ids.len(), distinct.len());
    }

    #[test]
    fn without_records_nothing_holds() {
        for entry in ledger(&[], &[]) {
            assert!(
                !matches!(entry.judged.verdict, Verdict::Holds | Verdict::DoesNotHold | Verdict::Measured),
                "{} is judged without a record",
                entry.row.id
            );
        }
    }

    #[test]
    fn an_unknown_id_is_answered_with_its_neighbour() {
        let error = chosen(&["S2.colapse".to_owned()]).err().unwrap().to_string();

        assert!(error.contains("did you mean S2.collapse?"), "{error}");
    }

    #[test]
    fn a_source_means_all_of_its_experiments() {
        let names = |word: &str| chosen(&[word.to_owned()]).unwrap().iter().map(|it| it.id).collect::<Vec<_>>();

        assert_eq!(names("S4"), ["S4.matrix", "S4.column", "S4.dimmap", "S4.systems"]);
        assert_eq!(names("s2.collapse"), ["S2"]);
    }
}
