//! The ledger of experiments: each row of the sources with its published figure, ours, and the verdict.

use crate::experiment::{Entry, Experiment, Verdict};
use crate::record::{Machine, Record};
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, Width, presets};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Columns of a terminal that everybody has.
const COLUMNS: u16 = 100;

/// What stands beside a row's figure: the reason where it cannot be tested, the evidence, the control.
pub(super) fn beside(entry: &Entry) -> Vec<String> {
    let judged = &entry.judged;
    let reason = match &judged.verdict {
        Verdict::CannotTest(reason) => reason.clone(),
        Verdict::Built(command) => command.clone(),
        _ => String::new(),
    };
    let named = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("{name}: {text}") };
    let all = [reason, named("evidence", &judged.evidence), named("control", &judged.control)];
    all.into_iter().filter(|text| !text.is_empty()).collect()
}

/// The entries of each experiment, in order.
pub(super) fn by_experiment(entries: &[Entry]) -> Vec<(&'static Experiment, Vec<&Entry>)> {
    let mut groups: Vec<(&'static Experiment, Vec<&Entry>)> = Vec::new();
    for entry in entries {
        match groups.last_mut().filter(|(experiment, _)| experiment.id == entry.experiment.id) {
            Some((_, rows)) => rows.push(entry),
            None => groups.push((entry.experiment, vec![entry])),
        }
    }
    groups
}

/// How often each verdict was given, in the words of the ledger.
pub fn count(entries: &[Entry]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.judged.verdict.words()).or_default() += 1;
    }
    counts
}

fn counted(entries: &[Entry]) -> String {
    count(entries).into_iter().map(|(words, count)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
}

/// Prints the ledger for a terminal.
///
/// Errors: those of `out`.
pub fn print(entries: &[Entry], out: &mut impl Write) -> io::Result<()> {
    for (experiment, rows) in by_experiment(entries) {
        writeln!(out, "{}  {}", experiment.id, experiment.title)?;
        writeln!(out, "{}\n", experiment.question)?;
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS);
        table.set_header(["id", "claim", "published", "here"]);
        for entry in rows {
            let mut here = vec![entry.judged.verdict.words().to_owned()];
            here.extend((!entry.judged.ours.is_empty()).then(|| entry.judged.ours.clone()));
            here.extend(beside(entry));
            table.add_row([
                Cell::new(entry.row.id),
                Cell::new(entry.row.says),
                Cell::new(entry.row.published),
                Cell::new(here.join("\n")),
            ]);
        }
        let widths = [17, 28, 17, 38];
        for (column, width) in table.column_iter_mut().zip(widths) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        for line in table.to_string().lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)?;
    }
    writeln!(out, "{}", counted(entries))
}

/// The ledger as a page of documentation.
pub fn markdown(entries: &[Entry], records: &[Record]) -> String {
    let mut text = String::from(
        "# Claims\n\n\
         Every row of the five sources, judged from the records in `records/` by\n\
         `faultline reproduce --from records/*.jsonl --markdown`. A test fails when this page and the records differ.\n\
         Rows whose id ends in a star are our own controls and additions.\n\n",
    );
    if let Some(record) = records.first() {
        text.push_str(&conditions(&record.machine, records));
    }
    text.push_str(&format!("{}.\n", counted(entries)));
    for (experiment, rows) in by_experiment(entries) {
        text.push_str(&format!("\n## {} {}\n\n", experiment.id, experiment.title));
        text.push_str(&format!("{}\n\n{}\n\n", experiment.source, experiment.question));
        text.push_str("| id | claim | published | here | verdict | evidence, control, reason |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for entry in rows {
            let cells = [
                entry.row.id.replace('*', "\\*"),
                entry.row.says.to_owned(),
                entry.row.published.to_owned(),
                entry.judged.ours.clone(),
                entry.judged.verdict.words().to_owned(),
                beside(entry).join("; "),
            ];
            text.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
        }
        text.push_str(&format!("\nNot shown: {}\n", experiment.cannot_show));
    }
    text
}

fn conditions(machine: &Machine, records: &[Record]) -> String {
    let scales: std::collections::BTreeSet<&str> =
        records.iter().filter_map(|record| record.cell.as_ref()).map(|cell| cell.scale.as_str()).collect();
    let memory = faultline::Bytes(machine.memory_bytes).rounded();
    format!(
        "{} runs at scale {} on {} x {}, {memory} memory, Linux {}, {} on {}, read_ahead_kb {}.\n\n",
        records.len(),
        scales.into_iter().collect::<Vec<_>>().join(", "),
        machine.cpus,
        machine.cpu,
        machine.kernel,
        machine.filesystem,
        machine.device,
        machine.read_ahead_kb.map_or_else(|| "unknown".to_owned(), |kb| kb.to_string()),
    )
}

/// The ledger as one JSON document.
pub fn document(entries: &[Entry]) -> serde_json::Value {
    let row = |entry: &Entry| {
        serde_json::json!({
            "id": entry.row.id,
            "experiment": entry.experiment.id,
            "says": entry.row.says,
            "published": entry.row.published,
            "ours": entry.judged.ours,
            "verdict": entry.judged.verdict.words(),
            "beside": beside(entry),
        })
    };
    serde_json::json!({ "format": 1, "claims": entries.iter().map(row).collect::<Vec<_>>(), "counts": count(entries) })
}

/// One line for each valid run of the records: experiment, cell, repetition, seed, seconds, accesses, bytes, GB a second.
pub fn csv(records: &[Record]) -> String {
    let mut text = String::from("experiment,cell,repetition,seed,seconds,accesses,bytes,gb_per_s,valid\n");
    for record in records {
        let Some(cell) = &record.cell else { continue };
        let seconds: f64 = record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum();
        let rate = if seconds > 0.0 { record.bytes() as f64 / seconds / 1e9 } else { 0.0 };
        text.push_str(&format!(
            "{},\"{}\",{},{},{seconds:.6},{},{},{rate:.4},{}\n",
            cell.experiment,
            cell.name,
            record.trial.repetition,
            record.trial.seed,
            record.accesses(),
            record.bytes(),
            record.is_valid()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ledger;

    #[test]
    fn the_ledger_fits_100_columns() {
        let mut out = Vec::new();

        print(&ledger(&[], &[]), &mut out).unwrap();

        for line in String::from_utf8(out).unwrap().lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
    }
}
