//! The standings for people and for programs.

use super::once::size;
use super::standings::{Decision, Standings, TurnResult, usual};
use super::{ParameterValues, Ran, Task};
use crate::report::json::EstimateJson;
use crate::report::words;
use majorfault::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};

/// Version of the document of [`document`].
const SCHEMA: &str = "majorfault.programs/2";

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
    writeln!(out, "{}\n", beside_each_other())?;
    table(between, out)
}

fn beside_each_other() -> String {
    format!("The command with each choice of parameters, {}:", usual())
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

/// The tables in Markdown, that of the commands `between` each other last.
pub fn markdown(parts: &[Compared<'_>], between: Option<&Standings>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let of = |says: &str, standings: &Standings| {
        let rows: String = standings.all.iter().map(|standing| line(&row(standing))).collect();
        format!("{says}\n\n{}|{}\n{rows}\n", line(&HEADER.map(str::to_owned)), " --- |".repeat(HEADER.len()))
    };
    let each: String = parts.iter().map(|part| of(&sentence(part.standings), part.standings)).collect();
    let between = between.map(|standings| of(&beside_each_other(), standings)).unwrap_or_default();
    format!("<!-- majorfault compare -->\n\n{each}{between}")
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

/// All of it as one JSON document, its version first, by which a file of it is known: each command, and the commands `between` each
/// other where parameters make several.
///
/// Errors: Invalid where a value cannot be written, which does not happen.
pub fn document(parts: &[Compared<'_>], between: Option<&Standings>) -> Result<String> {
    let made = ComparedProgramsJson {
        format: SCHEMA,
        commands: parts.iter().map(CommandJson::of).collect(),
        between: between.map(|standings| standings.all.iter().map(WayJson::of).collect()),
    };
    let text = serde_json::to_string_pretty(&made);
    text.map(|text| text + "\n").map_err(|why| Error::Invalid(format!("the runs cannot be written as JSON: {why}")))
}

/// The schema of the document.
pub fn schema() -> Value {
    schemars::schema_for!(ComparedProgramsJson<'_>).into()
}

/// A program of one's own, in turns under each thing that can be done to it. What could not be told is null.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ComparedProgramsJson<'a> {
    /// The version of this document.
    format: &'static str,
    /// The command, or with parameters one for each choice of values.
    commands: Vec<CommandJson<'a>>,
    /// The commands as they are beside each other, held against the first; null of one command.
    between: Option<Vec<WayJson<'a>>>,
}

/// A command and how its ways stand.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommandJson<'a> {
    /// What is printed first.
    says: String,
    /// The answer.
    answer: AnswerJson<'a>,
    /// Program and arguments; bytes that are no text are replaced.
    program: Vec<String>,
    /// Values of its parameters, by name.
    parameters: BTreeMap<&'a str, &'a str>,
    /// Files of its that are known.
    files: Vec<String>,
    /// Whether these were dropped from the page cache before each run.
    cold: bool,
    /// The program as it is first.
    ways: Vec<WayJson<'a>>,
}

/// Which way is fastest.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerJson<'a> {
    /// `fastest`, `nothing_helps`, `run_more` (too few runs), `not_valid` (others disturbed too many) or `no_measure` (the program
    /// fails, or prints something else each time).
    kind: &'static str,
    /// The fastest way.
    way: Option<&'a str>,
    /// Why there is no measure.
    why: Option<String>,
}

/// One way of running a command.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WayJson<'a> {
    /// Its name.
    name: &'a str,
    /// Its time; of runs that do not count where none does.
    seconds: Option<EstimateJson>,
    /// How many times as fast as the first, in pairs.
    times_as_fast: Option<EstimateJson>,
    /// Why it cannot be had.
    refused: Option<&'a str>,
    /// Runs that others disturbed, which count for nothing.
    disturbed_runs: Vec<ProgramRunJson<'a>>,
    /// Runs that count.
    runs: Vec<ProgramRunJson<'a>>,
}

/// One run of a program.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgramRunJson<'a> {
    /// Its turn.
    repetition: u32,
    /// Its time.
    wall_ns: u64,
    /// The program's; 128 and the number of the signal that ended it.
    exit_code: i32,
    /// What it wrote to its standard output.
    output_bytes: u64,
    /// The share of the processors that others used meanwhile.
    others_share: Option<f64>,
    /// By name: faults, bytes, processor time, memory.
    counters: &'a BTreeMap<String, u64>,
}

impl<'a> CommandJson<'a> {
    fn of(part: &Compared<'a>) -> CommandJson<'a> {
        let Compared { task, variant, standings } = *part;
        let words = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        CommandJson {
            says: sentence(standings),
            answer: AnswerJson::of(standings),
            program: words(&task.program),
            parameters: variant.given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            files: task.files.iter().map(|path| path.display().to_string()).collect(),
            cold: task.is_cold,
            ways: standings.all.iter().map(WayJson::of).collect(),
        }
    }
}

impl<'a> AnswerJson<'a> {
    fn of(standings: &'a Standings) -> AnswerJson<'a> {
        let (kind, way, why) = match standings.answer() {
            Decision::Fastest(index) => ("fastest", Some(standings.all[index].name.as_str()), None),
            Decision::NothingHelps => ("nothing_helps", None, None),
            Decision::RunMore => ("run_more", None, None),
            Decision::NotValid => ("not_valid", None, None),
            Decision::NoMeasure(why) => ("no_measure", None, Some(why)),
        };
        AnswerJson { kind, way, why }
    }
}

impl<'a> WayJson<'a> {
    fn of(standing: &'a TurnResult) -> WayJson<'a> {
        WayJson {
            name: &standing.name,
            seconds: standing.seconds.as_ref().map(EstimateJson::of),
            times_as_fast: standing.lead.as_ref().map(|lead| EstimateJson::of(&lead.ratio)),
            refused: standing.refused.as_deref(),
            disturbed_runs: standing.disturbed.iter().map(ProgramRunJson::of).collect(),
            runs: standing.runs.iter().map(ProgramRunJson::of).collect(),
        }
    }
}

impl<'a> ProgramRunJson<'a> {
    fn of(run: &'a Ran) -> ProgramRunJson<'a> {
        ProgramRunJson {
            repetition: run.repetition,
            wall_ns: run.wall_ns,
            exit_code: run.code,
            output_bytes: run.output.0,
            others_share: run.others,
            counters: &run.counters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_of_its_schema_and_begins_with_its_version() {
        let run = |turn: &str, repetition| Ran {
            turn: turn.to_owned(),
            repetition,
            wall_ns: 1_000_000 + u64::from(repetition),
            code: 0,
            output: (5, 7),
            errors: String::new(),
            counters: [("major_faults".to_owned(), 3)].into(),
            others: None,
            is_killed: false,
        };
        let names = ["untouched".to_owned(), "load".to_owned()];
        let ran: Vec<Ran> = (0..6).flat_map(|at| [run("untouched", at), run("load", at)]).collect();
        let standings = Standings::of(&names, &ran, &[("load".to_owned(), "no right".to_owned())]);
        let task = Task { program: vec!["cat".into()], ..Task::default() };
        let variant = ParameterValues { given: vec![("n".to_owned(), "1".to_owned())] };
        let parts = [Compared { task: &task, variant: &variant, standings: &standings }];

        let text = document(&parts, Some(&Standings::between(&names, &ran))).unwrap();

        assert!(text.starts_with("{\n  \"format\": \"majorfault.programs/2\""), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["commands"][0]["ways"][1]["refused"], "no right");
        assert_eq!(value["between"][1]["runs"].as_array().unwrap().len(), 6);
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("programs.json", schema()).unwrap();
        let index = compiler.compile("programs.json", &mut schemas).unwrap();
        assert_eq!(schemas.validate(&value, index).err().map(|error| format!("{error:#}")), None);
    }
}
