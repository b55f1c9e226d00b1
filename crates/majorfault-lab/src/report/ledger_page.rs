//! The page of the ledger: a section for each experiment, with its question, its rows and its figures.

use super::ledger::{agreement, beside, by_experiment, runs};
use super::ledger_head::Head;
use super::ledger_table::{LedgerTable, tables};
use super::plot::{self, Bar};
use super::{Summary, html, words};
use crate::experiment::{self, Entry, Experiment, PublishedCells, Scale, SessionRecords};
use crate::record::Record;
use crate::stats;
use crate::trial::Arm;
use majorfault::Result;
use minijinja::{Value, context};
use std::collections::BTreeMap;

/// The page about `entries`, with figures from `records`.
///
/// Errors: Invalid where a figure cannot be drawn or the template not be filled, which is a mistake of ours.
pub fn page(entries: &[Entry], records: &[Record]) -> Result<String> {
    let of_cells = tables(entries, records);
    let sections = by_experiment(entries)
        .into_iter()
        .map(|(experiment, rows)| section(experiment, &rows, &of_cells, records))
        .collect::<Result<Vec<Value>>>()?;
    let head = Head::of(entries, records);
    let lines = head.lines().split_off(head.counts.len());
    let kind = |(kind, verdicts): (experiment::RowKind, BTreeMap<&str, usize>)| {
        let verdicts: Vec<Value> = verdicts.into_iter().map(|(verdict, count)| context! { verdict, count }).collect();
        context! { kind => kind.words(), verdicts }
    };
    let counts: Vec<Value> = head.counts.into_iter().map(kind).collect();
    html::fill("ledger.html", include_str!("ledger.html"), context! { sections, counts, lines })
}

fn section(
    experiment: &Experiment,
    rows: &[&Entry],
    of_cells: &[LedgerTable<'_>],
    records: &[Record],
) -> Result<Value> {
    let own = drawn(experiment, records);
    let rows: Vec<Value> = rows.iter().map(|entry| row(entry)).collect();
    let figures = kinds(&own).into_iter().map(|kind| figure(experiment, &own, kind)).collect::<Result<Vec<Value>>>()?;
    let timelines = experiment.timelines.iter().map(|end| timeline(&own, end)).collect::<Result<Vec<Value>>>()?;
    let scale = scale(&own);
    let table = of_cells.iter().find(|it| it.is_of(experiment.id)).map(|it| {
        context! { caption => it.caption(), header => it.header(), rows => it.rows(), notes => it.notes() }
    });
    Ok(context! {
        id => experiment.id,
        title => experiment.title,
        source => experiment.source,
        question => experiment.question,
        cannot_show => experiment.cannot_show,
        runs => own.len(),
        scale => scale,
        rows => rows,
        table => table,
        figures => figures,
        timelines => timelines,
    })
}

fn scale(own: &[&Record]) -> Option<String> {
    own.first().and_then(|record| record.cell.as_ref()).map(|cell| cell.scale.clone())
}

/// The published figures, where as much was accessed as there; else the sentence that says why they are not drawn.
fn beside_ours<'e>(experiment: &'e Experiment, own: &[&Record]) -> (Option<&'e PublishedCells>, String) {
    let Some(published) = &experiment.published else { return (None, String::new()) };
    let scale = scale(own).unwrap_or_default();
    match Scale::named(&scale).is_some_and(published.is_at) {
        true => (Some(published), String::new()),
        false => {
            let says = format!(
                "The published figures are of {}, those of scale {scale} of less: they stand in the rows, not over this axis.",
                published.of
            );
            (None, says)
        }
    }
}

fn figure(experiment: &Experiment, own: &[&Record], kind: RowKind) -> Result<Value> {
    let (published, why_not) = beside_ours(experiment, own);
    let bars = bars(published, own, kind);
    let drawn = match kind {
        RowKind::Procedure => plot::bars(&bars, "milliseconds of the visit", milliseconds),
        RowKind::Blocks(bytes) => {
            let unit = format!("accesses of {} per second, setup included", words::bytes(bytes as f64));
            plot::bars(&bars, &unit, words::per_second)
        }
    };
    Ok(context! { svg => drawn?, published => bars.iter().any(|bar| bar.published.is_some()), why_not })
}

/// The records of an experiment in the first session that has it: sessions are not mixed in a figure.
fn drawn<'a>(experiment: &Experiment, records: &'a [Record]) -> Vec<&'a Record> {
    let is_own = |record: &&Record| record.cell.as_ref().is_some_and(|cell| cell.experiment == experiment.id);
    let of = |session: SessionRecords<'a>| session.records.into_iter().filter(is_own).collect::<Vec<_>>();
    experiment::sessions(records).into_iter().map(of).find(|own| !own.is_empty()).unwrap_or_default()
}

fn milliseconds(value: f64) -> String {
    format!("{} ms", words::count(value))
}

fn row(entry: &Entry) -> Value {
    context! {
        id => entry.row.id,
        says => entry.row.says,
        published => entry.row.published,
        ours => entry.judged.shown.ours,
        runs => runs(entry),
        agreement => agreement(entry),
        verdict => entry.judged.verdict.words(),
        beside => beside(entry),
    }
}

/// Cells that may be drawn over one axis.
#[derive(Clone, Copy, PartialEq)]
enum RowKind {
    /// By the time of their visit.
    Procedure,
    /// By the size of their accesses.
    Blocks(u64),
}

fn kind(record: &Record) -> RowKind {
    match record.trial.arm {
        Arm::Procedure(_) => RowKind::Procedure,
        _ => RowKind::Blocks(record.trial.block_bytes),
    }
}

/// The kinds of the valid records, in the order they were run.
fn kinds(records: &[&Record]) -> Vec<RowKind> {
    let mut kinds = Vec::new();
    for record in records.iter().filter(|record| record.is_valid()) {
        if !kinds.contains(&kind(record)) {
            kinds.push(kind(record));
        }
    }
    kinds
}

/// A bar for each cell of a kind, in the order they were run.
fn bars(published: Option<&PublishedCells>, records: &[&Record], wanted: RowKind) -> Vec<Bar> {
    let own: Vec<&Record> =
        records.iter().copied().filter(|record| record.is_valid() && kind(record) == wanted).collect();
    let name_of = |record: &Record| record.cell.as_ref().map(|cell| cell.name.clone()).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for record in &own {
        if !names.contains(&name_of(record)) {
            names.push(name_of(record));
        }
    }
    let value = |record: &Record| {
        let visit = record.phase("visit")?.wall_ns as f64;
        let all: f64 = record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum();
        match wanted {
            RowKind::Procedure => Some(visit / 1e6),
            RowKind::Blocks(_) => (all > 0.0).then(|| record.accesses() as f64 / all),
        }
    };
    let bar = |name: String| {
        let samples: Vec<f64> =
            own.iter().filter(|record| name_of(record) == name).filter_map(|it| value(it)).collect();
        let beside = published.and_then(|it| it.cells.iter().find(|(cell, _)| *cell == name));
        let published = beside.map(|(_, value)| *value);
        let published = published.map(|value| if wanted == RowKind::Procedure { value * 1e3 } else { value });
        Some(Bar { name, found: stats::estimate(&samples)?, samples, published })
    };
    names.into_iter().filter_map(bar).collect()
}

/// The timelines of the cells whose name ends so, on common axes.
fn timeline(records: &[&Record], end: &str) -> Result<Value> {
    let drawn: Vec<Record> = records
        .iter()
        .filter(|record| record.cell.as_ref().is_some_and(|cell| cell.name.ends_with(end)))
        .map(|record| (*record).clone())
        .collect();
    let summary = Summary::of(&drawn);
    let Some(group) = summary.groups.first() else { return Ok(Value::from(false)) };
    let look = |(arm, look): (&super::ArmSummary<'_>, plot::Look)| {
        context! { name => arm.name, hex => look.hex() }
    };
    let legend: Vec<Value> = plot::shown(group).into_iter().map(look).collect();
    Ok(context! { svg => plot::panels(group)?, legend => legend })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ledger;
    use crate::record::Cell;
    use crate::report::synthetic::Run;

    #[test]
    fn a_page_without_records_is_a_page() {
        let page = page(&ledger(&[], &[]), &[]).unwrap();

        assert!(page.contains("S2.collapse") && !page.contains("<script"));
    }

    /// A page of one run of S0 at this scale.
    fn page_at(scale: &str) -> String {
        let [experiment, name, scale] = ["S0", "mmap", scale].map(str::to_owned);
        let run = Run::of("mmap").edit(|record| {
            record.cell = Some(Cell { experiment, name, scale });
            record.trial.arm = Arm::Procedure(crate::trial::Choice::plain("many-files"));
        });
        let records = [run.record()];
        page(&ledger(&records, &[]), &records).unwrap()
    }

    #[test]
    fn published_figures_of_another_size_are_not_drawn_over_our_axis_and_that_is_said() {
        let says = "The published figures are of 50 000 files, those of scale standard of less";
        let (same, other) = (page_at("full"), page_at("standard"));

        assert!(same.contains("Grey: published") && !same.contains("The published figures are of"));
        assert!(other.contains(says) && !other.contains("Grey: published"));
    }

    #[test]
    fn the_figures_of_an_experiment_are_of_its_first_session() {
        let run = |session: &str, turn: u32| {
            let [experiment, name, scale] = ["S0", "mmap", "standard"].map(str::to_owned);
            let cell = Cell { experiment, name, scale };
            Run::of("mmap").session(session).repetition(turn).edit(|record| record.cell = Some(cell)).record()
        };
        let records = [run("A", 0), run("A", 1), run("B", 0)];

        let page = page(&ledger(&records, &[]), &records).unwrap();

        assert!(page.contains(" 2 runs, scale standard."), "the runs of both sessions are in one figure");
        assert!(page.contains("session B: 1 runs"), "the head names both");
    }
}
