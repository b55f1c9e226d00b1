//! The standings for people and for programs.

use super::once::size;
use super::standings::{Decision, Standings, TurnResult, usual};
use super::{ParameterValues, Ran, Task};
use crate::report::words;
use majorfault::{Error, Result};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Version of the document of [`document`].
const SCHEMA: &str = "majorfault.programs/1";

/// A command with the values of its parameters, and how its ways stand.
pub struct Compared<'a> {
    /// What ran.
    pub task: &'a Task,
    /// Which values.
    pub variant: &'a ParameterValues,
    /// How its ways stand.
    pub standings: &'a Standings,
}

const HEADER: [&str; 7] = ["way", "seconds", "x as fast", "major faults", "device read", "processor s", "runs"];

/// For each command the answer first, then the table, then what has to be known beside it; then the commands `between` each other.
///
/// Errors: those of `out`.
pub fn print(parts: &[Compared<'_>], between: Option<&Standings>, out: &mut impl Write) -> io::Result<()> {
    for Compared { task, standings, .. } in parts {
        writeln!(out, "{}\n", sentence(standings))?;
        table(standings, out)?;
        notes(task, standings).iter().try_for_each(|note| writeln!(out, "{note}"))?;
        if between.is_some() {
            writeln!(out)?;
        }
    }
    let Some(between) = between else { return Ok(()) };
    writeln!(out, "The command with each choice of parameters, {}:\n", usual())?;
    table(between, out)
}

fn table(standings: &Standings, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<[String; 7]> = standings.all.iter().map(row).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([HEADER[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                let blanks = " ".repeat(width - cell.chars().count());
                if column == 0 { format!("{cell}{blanks}") } else { format!("{blanks}{cell}") }
            })
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    writeln!(out, "{}", line(&HEADER.map(str::to_owned)))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row)))?;
    writeln!(out)
}

/// The tables in Markdown.
pub fn markdown(parts: &[Compared<'_>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let of = |part: &Compared<'_>| {
        let rows: String = part.standings.all.iter().map(|standing| line(&row(standing))).collect();
        format!(
            "{}\n\n{}|{}\n{rows}\n",
            sentence(part.standings),
            line(&HEADER.map(str::to_owned)),
            " --- |".repeat(HEADER.len())
        )
    };
    format!("<!-- majorfault compare -->\n\n{}", parts.iter().map(of).collect::<String>())
}

/// One line for each run: the parameters' values, the way, the repetition, whether it counts, seconds, exit code, major faults, bytes
/// read from devices, seconds of processors. Unknown is empty.
///
/// Errors: Invalid where a value cannot be written, which does not happen.
pub fn csv(parts: &[Compared<'_>]) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let names = parts.first().into_iter().flat_map(|part| &part.variant.given).map(|(name, _)| name.clone());
    let columns = ["way", "repetition", "counts", "seconds", "exit_code", "major_faults", "read_bytes", "processor_s"];
    let mut written = table.write_record(names.chain(columns.map(str::to_owned)));
    for part in parts {
        for standing in &part.standings.all {
            let runs = standing.runs.iter().map(|run| (run, true));
            for (run, counts) in runs.chain(standing.disturbed.iter().map(|run| (run, false))) {
                written = written.and_then(|()| table.write_record(line(part, standing, run, counts)));
            }
        }
    }
    let text = written.map_err(|error| error.to_string()).and_then(|()| {
        String::from_utf8(table.into_inner().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    });
    text.map_err(|why| Error::Invalid(format!("the runs cannot be written as a table: {why}")))
}

fn line(part: &Compared<'_>, standing: &TurnResult, run: &Ran, counts: bool) -> Vec<String> {
    let known = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let spent = run.counter("user_ns").zip(run.counter("system_ns"));
    let way = standing.name.rsplit_once(": ").map_or(standing.name.as_str(), |(_, way)| way);
    let values = part.variant.given.iter().map(|(_, value)| value.clone());
    let figures = [
        way.to_owned(),
        run.repetition.to_string(),
        counts.to_string(),
        format!("{:.6}", run.wall_ns as f64 / 1e9),
        run.code.to_string(),
        known(run.counter("major_faults")),
        known(run.counter("process_read_bytes")),
        spent.map_or_else(String::new, |(user, system)| format!("{:.2}", (user + system) as f64 / 1e9)),
    ];
    values.chain(figures).collect()
}

/// The first line.
pub fn sentence(standings: &Standings) -> String {
    let usual = standings.all.first().map_or(usual(), |first| first.name.as_str());
    match standings.answer() {
        Decision::Fastest(index) => {
            let best = &standings.all[index];
            let lead = best.lead.map(|lead| {
                format!("{} as fast as {usual} ({})", words::times(lead.ratio.median), words::sure(&lead.ratio))
            });
            format!("{} is fastest here: {}", best.name, lead.unwrap_or_default())
        }
        Decision::NothingHelps => format!("nothing tried is measurably faster than the program {usual}"),
        Decision::RunMore => "NO VERDICT YET: it needs 6 runs of each way (--runs 6)".to_owned(),
        Decision::NotValid => {
            "NOT VALID: others used more than a quarter of the processors in some runs; run it again when the machine is idle"
                .to_owned()
        }
        Decision::NoMeasure(why) => format!("NO MEASURE: {why}"),
    }
}

fn row(standing: &TurnResult) -> [String; 7] {
    let median = |name: &str| {
        let values: Vec<f64> =
            standing.shown().iter().filter_map(|run| run.counter(name)).map(|value| value as f64).collect();
        crate::stats::median(&values)
    };
    let unknown = || words::UNKNOWN.to_owned();
    let processor = median("user_ns").zip(median("system_ns")).map(|(user, system)| (user + system) / 1e9);
    [
        standing.name.clone(),
        standing.seconds.map_or_else(unknown, |seconds| words::with_interval(&seconds, |value| format!("{value:.2}"))),
        standing.lead.map_or_else(unknown, |lead| words::with_interval(&lead.ratio, words::ratio)),
        median("major_faults").map_or_else(unknown, words::count),
        median("process_read_bytes").map_or_else(unknown, |bytes| size(bytes as u64)),
        processor.map_or_else(unknown, |seconds| format!("{seconds:.2}")),
        match standing.disturbed.len() {
            0 => standing.runs.len().to_string(),
            disturbed => format!("{} of {}", standing.runs.len(), standing.runs.len() + disturbed),
        },
    ]
}

fn notes(task: &Task, standings: &Standings) -> Vec<String> {
    let refused =
        standings.all.iter().filter_map(|standing| Some(format!("{}: {}", standing.name, standing.refused.as_ref()?)));
    let disturbed: usize = standings.all.iter().map(|standing| standing.disturbed.len()).sum();
    let disturbed = (disturbed > 0)
        .then(|| format!("{} do not count: others used a quarter of the processors or more", words::runs(disturbed)));
    let cold = match (task.is_cold, task.files.is_empty()) {
        (true, true) => {
            "no file of the program is known, so nothing was dropped from the page cache; name files before --"
                .to_owned()
        }
        (true, false) => format!("cold: dropped from the page cache before each run: {}", files(task)),
        (false, _) => "the page cache was left as it was".to_owned(),
    };
    let code = standings.all.first().and_then(|first| first.runs.first()).filter(|run| run.code != 0);
    let code = code.map(|run| format!("the program ends with exit code {}", run.code));
    refused.chain(disturbed).chain(code).chain([cold]).collect()
}

fn files(task: &Task) -> String {
    let shown: Vec<String> = task.files.iter().take(5).map(|path| path.display().to_string()).collect();
    let more = task.files.len().saturating_sub(shown.len());
    words::list(&shown) + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// All of it as one JSON document: of one command, or a list of those with parameters.
pub fn document(parts: &[Compared<'_>]) -> Value {
    match parts {
        [one] => of_one(one),
        several => json!({"schema": SCHEMA, "variants": several.iter().map(of_one).collect::<Vec<_>>()}),
    }
}

fn of_one(part: &Compared<'_>) -> Value {
    let Compared { task, variant, standings } = part;
    let answer = match standings.answer() {
        Decision::Fastest(index) => json!({"kind": "fastest", "way": standings.all[index].name}),
        Decision::NothingHelps => json!({"kind": "nothing_helps"}),
        Decision::RunMore => json!({"kind": "run_more"}),
        Decision::NotValid => json!({"kind": "not_valid"}),
        Decision::NoMeasure(why) => json!({"kind": "no_measure", "why": why}),
    };
    let ways: Vec<Value> = standings.all.iter().map(way).collect();
    let words = |words: &[std::ffi::OsString]| -> Vec<String> {
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    };
    json!({
        "schema": SCHEMA, "says": sentence(standings), "answer": answer, "program": words(&task.program),
        "parameters": variant.given.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "files": task.files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "cold": task.is_cold, "ways": ways,
    })
}

fn way(standing: &TurnResult) -> Value {
    let interval = |estimate: &crate::stats::Estimate| json!({"median": estimate.median, "interval": estimate.interval, "coverage": estimate.coverage, "samples": estimate.samples});
    json!({
        "name": standing.name,
        "seconds": standing.seconds.as_ref().map(interval),
        "times_as_fast": standing.lead.as_ref().map(|lead| interval(&lead.ratio)),
        "refused": standing.refused,
        "disturbed_runs": standing.disturbed.iter().map(run).collect::<Vec<_>>(),
        "runs": standing.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn run(run: &Ran) -> Value {
    json!({
        "repetition": run.repetition, "wall_ns": run.wall_ns, "exit_code": run.code, "output_bytes": run.output.0,
        "others_share": run.others, "counters": run.counters,
    })
}
