//! Tables: our mean and standard deviation of each cell beside the published ones, as sources print them.

use super::Experiment;
use super::samples::{Gap, Samples};
use super::sessions::SessionRecords;
use crate::stats::Spread;

/// Figures of cells beside published ones. Each row has them for every side that is compared.
#[derive(Clone, Debug)]
pub struct FigureTable {
    /// What is in it.
    pub title: &'static str,
    /// The unit of all its figures.
    pub unit: &'static str,
    /// What is compared in each row: `mmap`, `calls`.
    pub sides: &'static [&'static str],
    /// Where the published figures are from, in the order of the columns.
    pub sources: &'static [&'static str],
    /// The samples that a figure of ours is made of, where none is missing.
    pub samples: usize,
    /// A row for each cell, in the order of the source.
    pub rows: Vec<TableRow>,
    /// What must be known to read it.
    pub notes: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// Its name without its side.
    pub cell: String,
    /// Figures, in the order of the sides.
    pub sides: Vec<TableSide>,
}

/// The figures of one side of a cell.
#[derive(Clone, Debug)]
pub struct TableSide {
    /// Ours and how many samples it is made of, or why there is none.
    pub here: Result<(Spread, usize), Gap>,
    /// The published ones, in the order of the sources.
    pub published: Vec<Option<Spread>>,
}

/// Makes the table of an experiment from the records of one session.
pub type Tabulate = fn(&Samples<'_>) -> FigureTable;

/// The table of `experiment` in each session that ran it, with the session's name; none where it has no table.
pub fn tables<'a>(experiment: &Experiment, sessions: &[SessionRecords<'a>]) -> Vec<(&'a str, FigureTable)> {
    let Some(tabulate) = experiment.table else { return Vec::new() };
    let made = |session: &SessionRecords<'a>| {
        let samples = Samples::of(experiment.id, &session.records);
        (!samples.is_empty()).then(|| (session.name, tabulate(&samples)))
    };
    sessions.iter().filter_map(made).collect()
}
