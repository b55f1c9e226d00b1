//! The tables of a ledger: our mean ± deviation of each cell beside the published ones, for terminal, Markdown, page and JSON.

use super::ledger::by_experiment;
use crate::experiment::{self, Entry, FigureTable, SessionRecords, TableRow, TableSide};
use crate::record::Record;
use crate::stats::Spread;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

/// A table with the experiment and the session that it is of.
pub(super) struct LedgerTable<'a> {
    experiment: &'static str,
    session: &'a str,
    table: FigureTable,
}

/// The tables of the experiments whose own row is among `entries`, one for each session that ran them.
pub(super) fn tables<'a>(entries: &[Entry], records: &'a [Record]) -> Vec<LedgerTable<'a>> {
    let sessions: Vec<SessionRecords<'a>> = experiment::sessions(records);
    let is_asked = |rows: &[&Entry], id: &str| rows.iter().any(|entry| entry.row.id == id);
    let asked = by_experiment(entries).into_iter().filter(|(it, rows)| is_asked(rows, it.id));
    let of = |it: &'static experiment::Experiment| {
        let made = experiment::tables(it, &sessions).into_iter();
        made.map(|(session, table)| LedgerTable { experiment: it.id, session, table }).collect::<Vec<_>>()
    };
    asked.flat_map(|(it, _)| of(it)).filter(|it| !it.table.rows.is_empty()).collect()
}

impl LedgerTable<'_> {
    /// Whether it is of this experiment.
    pub(super) fn is_of(&self, experiment: &str) -> bool {
        self.experiment == experiment
    }

    /// What stands above it.
    pub(super) fn caption(&self) -> String {
        let FigureTable { title, unit, .. } = &self.table;
        format!("{title}; {unit}; session {}", self.session)
    }

    /// What must be known to read it.
    pub(super) fn notes(&self) -> &[String] {
        &self.table.notes
    }

    /// The names of its columns.
    pub(super) fn header(&self) -> Vec<String> {
        let FigureTable { sides, sources, .. } = &self.table;
        let of = |side: &&str| {
            let here = std::iter::once(format!("{side} here"));
            here.chain(sources.iter().map(|source| (*source).to_owned())).collect::<Vec<_>>()
        };
        std::iter::once("cell".to_owned()).chain(sides.iter().flat_map(of)).collect()
    }

    /// Its rows, as texts.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let side = |side: &TableSide| {
            let here = std::iter::once(here(side, self.table.samples));
            here.chain(side.published.iter().map(|found| found.as_ref().map_or_else(String::new, spread))).collect()
        };
        let row = |row: &TableRow| {
            let figures: Vec<String> = row.sides.iter().flat_map(|it| -> Vec<String> { side(it) }).collect();
            std::iter::once(row.cell.clone()).chain(figures).collect()
        };
        self.table.rows.iter().map(row).collect()
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.header().into_iter().map(left));
        for row in self.rows() {
            table.add_row(row.into_iter().map(left));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
        let text = table.to_string();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// As Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header = self.header();
        let rule: Vec<String> = header.iter().map(|_| "---".to_owned()).collect();
        let body: String = self.rows().iter().map(|row| line(row)).collect();
        let notes: String = self.notes().iter().map(|note| format!("- {note}\n")).collect();
        format!("\n{}\n\n{}{}{body}\n{notes}", self.caption(), line(&header), line(&rule))
    }

    /// As JSON, with numbers.
    pub(super) fn json(&self) -> Value {
        let FigureTable { title, unit, sides, sources, samples, rows, notes } = &self.table;
        let row = |row: &TableRow| {
            let figures: Vec<Value> =
                sides.iter().zip(&row.sides).map(|(name, it)| side_json(name, it, sources)).collect();
            json!({ "cell": row.cell, "sides": figures })
        };
        json!({
            "experiment": self.experiment,
            "session": self.session,
            "title": title,
            "unit": unit,
            "samples": samples,
            "notes": notes,
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn left(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Left)
}

fn side_json(name: &str, side: &TableSide, sources: &[&str]) -> Value {
    let here = match &side.here {
        Ok((found, samples)) => json!({ "mean": found.mean, "deviation": found.deviation, "n": samples }),
        Err(gap) => json!({ "missing": gap.short() }),
    };
    let published = |(source, found): (&&str, &Option<Spread>)| {
        found.map(|found| json!({ "source": source, "mean": found.mean, "deviation": found.deviation }))
    };
    let published: Vec<Value> = sources.iter().zip(&side.published).filter_map(published).collect();
    json!({ "name": name, "here": here, "published": published })
}

/// Ours; with its number of samples where that is not the usual one.
fn here(side: &TableSide, usual: usize) -> String {
    match &side.here {
        Ok((found, samples)) if *samples == usual => spread(found),
        Ok((found, samples)) => format!("{} (n {samples})", spread(found)),
        Err(gap) => gap.short().to_owned(),
    }
}

/// `0.269 ± 0.001`; the mean alone where there is no deviation.
fn spread(found: &Spread) -> String {
    match found.deviation {
        Some(deviation) => format!("{:.3} ± {deviation:.3}", found.mean),
        None => format!("{:.3}", found.mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ledger;
    use crate::record;
    use crate::report::synthetic::Run;

    /// Runs of one cell of the matrix that took so many milliseconds, with the seeds from 1 on.
    fn records(session: &str, visits_ms: &[u64]) -> Vec<Record> {
        let run = |(turn, ms): (u32, &u64)| {
            let [experiment, name, scale] =
                ["S4.matrix", "mmap read 256m cold sequential", "standard"].map(str::to_owned);
            let run = Run::of("mmap").session(session).repetition(turn).block(8192).accesses(32_768);
            run.phases_ms(0, *ms, 0).edit(|record| {
                record.cell = Some(record::Cell { experiment, name, scale });
                record.trial.seed = 1 + u64::from(turn);
            })
        };
        (0..).zip(visits_ms).map(|it| run(it).record()).collect()
    }

    const FIVE: &[u64] = &[1000, 1000, 500, 500, 1000];

    fn of<'a>(records: &'a [Record], wanted: &str) -> Vec<LedgerTable<'a>> {
        tables(&ledger(records, &[wanted.to_owned()]), records)
    }

    #[test]
    fn a_cell_stands_with_mean_and_deviation_beside_each_published_figure() {
        let records = records("S", FIVE);

        let found = of(&records, "S4.matrix");

        let row =
            "| read 256m cold sequential | 0.350 ± 0.137 | 0.269 ± 0.000 | 0.507 | not run | 0.220 ± 0.005 | 0.375 |";
        assert!(found[0].markdown().contains(row), "{}", found[0].markdown());
        let header = "| cell | mmap here | table 4.2 | 4.3 | calls here | table 4.2 | 4.3 |";
        assert!(found[0].markdown().contains(header));
        assert!(found[0].text().lines().all(|line| line.chars().count() <= 100), "{}", found[0].text());
    }

    #[test]
    fn fewer_runs_than_usual_are_told() {
        let records = records("S", &FIVE[..4]);

        assert_eq!(of(&records, "S4.matrix")[0].rows()[0][1], "0.375 ± 0.144 (n 4)");
    }

    #[test]
    fn numbers_stay_numbers_in_json_and_each_session_has_its_table() {
        let both = [records("S", FIVE), records("T", &[500; 5])].concat();

        let told: Vec<Value> = of(&both, "S4.matrix").iter().map(LedgerTable::json).collect();

        assert_eq!((told.len(), &told[0]["session"], &told[1]["session"]), (2, &json!("S"), &json!("T")));
        let side = &told[1]["rows"][0]["sides"][0];
        assert_eq!(side["here"], json!({ "mean": 0.5, "deviation": 0.0, "n": 5 }));
        assert_eq!(side["published"][0], json!({ "source": "table 4.2", "mean": 0.269, "deviation": 0.0 }));
        assert_eq!(told[1]["rows"][0]["sides"][1]["here"], json!({ "missing": "not run" }));
    }

    #[test]
    fn the_table_stands_where_its_own_row_is_asked_for() {
        let records = records("S", FIVE);

        assert!(of(&records, "S4.mmapwins").is_empty());
        assert!(of(&records[..0], "S4.matrix").is_empty());
    }
}
