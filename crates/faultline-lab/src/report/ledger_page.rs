//! The page of the ledger: a section for each experiment, with its question, its rows and its figures.

use super::ledger::{beside, by_experiment, count};
use super::plot::{self, Bar};
use super::{Summary, html, words};
use crate::experiment::{Entry, Experiment};
use crate::record::Record;
use crate::stats;
use crate::trial::Arm;
use faultline::Result;
use minijinja::{Value, context};

/// The page about `entries`, with figures from `records`.
///
/// Errors: Invalid where a figure cannot be drawn or the template not be filled, which is a mistake of ours.
pub fn page(entries: &[Entry], records: &[Record]) -> Result<String> {
    let sections = by_experiment(entries)
        .into_iter()
        .map(|(experiment, rows)| section(experiment, &rows, records))
        .collect::<Result<Vec<Value>>>()?;
    let counts: Vec<Value> = count(entries).into_iter().map(|(verdict, count)| context! { verdict, count }).collect();
    let machine = records.first().map(|record| {
        let machine = &record.machine;
        format!(
            "{} x {}, {} memory, Linux {}, {} on {}",
            machine.cpus,
            machine.cpu,
            words::bytes(machine.memory_bytes as f64),
            machine.kernel,
            machine.filesystem,
            machine.device
        )
    });
    html::fill("ledger.html", include_str!("ledger.html"), context! { sections, counts, machine })
}

fn section(experiment: &Experiment, rows: &[&Entry], records: &[Record]) -> Result<Value> {
    let own: Vec<&Record> = records
        .iter()
        .filter(|record| record.cell.as_ref().is_some_and(|cell| cell.experiment == experiment.id))
        .collect();
    let rows: Vec<Value> = rows.iter().map(|entry| row(entry)).collect();
    let times = bars(experiment, &own, true);
    let rates = bars(experiment, &own, false);
    let timeline = match experiment.timeline {
        Some(end) => timeline(&own, end)?,
        None => String::new(),
    };
    let scale = own.first().and_then(|record| record.cell.as_ref()).map(|cell| cell.scale.clone());
    Ok(context! {
        id => experiment.id,
        title => experiment.title,
        source => experiment.source,
        question => experiment.question,
        cannot_show => experiment.cannot_show,
        runs => own.len(),
        scale => scale,
        rows => rows,
        times => plot::bars(&times, "milliseconds of the visit", milliseconds)?,
        rates => plot::bars(&rates, "accesses per second, setup included", words::per_second)?,
        published => times.iter().chain(&rates).any(|bar| bar.published.is_some()),
        timeline => timeline,
    })
}

fn milliseconds(value: f64) -> String {
    format!("{} ms", words::count(value))
}

fn row(entry: &Entry) -> Value {
    context! {
        id => entry.row.id,
        says => entry.row.says,
        published => entry.row.published,
        ours => entry.judged.ours,
        verdict => entry.judged.verdict.words(),
        beside => beside(entry),
    }
}

/// Cells of procedures by the time of their visit, or the others by their accesses a second, in the order they were run.
fn bars(experiment: &Experiment, records: &[&Record], procedures: bool) -> Vec<Bar> {
    let mut names: Vec<&str> = Vec::new();
    let is_one = |record: &&&Record| matches!(record.trial.arm, Arm::Procedure(_)) == procedures && record.is_valid();
    for record in records.iter().filter(is_one) {
        let name = record.cell.as_ref().map_or("", |cell| cell.name.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |record: &Record| {
        let visit = record.phase("visit")?.wall_ns as f64;
        let all: f64 = record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum();
        if procedures { Some(visit / 1e6) } else { (all > 0.0).then(|| record.accesses() as f64 / all) }
    };
    let bar = |name: &str| {
        let of_cell = |record: &&&Record| record.cell.as_ref().is_some_and(|cell| cell.name == name);
        let samples: Vec<f64> =
            records.iter().filter(is_one).filter(of_cell).filter_map(|record| value(record)).collect();
        let published = experiment.published.iter().find(|(cell, _)| *cell == name).map(|(_, value)| *value);
        let published = published.map(|value| if procedures { value * 1e3 } else { value });
        Some(Bar { name: name.to_owned(), found: stats::estimate(&samples)?, samples, published })
    };
    names.into_iter().filter_map(bar).collect()
}

/// The timelines of the cells whose name ends so, on common axes.
fn timeline(records: &[&Record], end: &str) -> Result<String> {
    let drawn: Vec<Record> = records
        .iter()
        .filter(|record| record.cell.as_ref().is_some_and(|cell| cell.name.ends_with(end)))
        .map(|record| (*record).clone())
        .collect();
    let summary = Summary::of(&drawn);
    match summary.groups.first() {
        Some(group) => plot::panels(group),
        None => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ledger;

    #[test]
    fn a_page_without_records_is_a_page() {
        let page = page(&ledger(&[], &[]), &[]).unwrap();

        assert!(page.contains("S2.collapse") && !page.contains("<script"));
    }
}
