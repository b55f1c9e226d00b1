//! `majorfault compare -- COMMAND`: the user's own program in turns, as it is and in each way that may speed it up.

use crate::command::{Bars, Exit};
use crate::outputs::{Force, Kind, Output, Outputs};
use crate::place;
use crate::program::{self, ParameterValues, Ran, Standings, Task, Turn, ways};
use clap::Args;
use majorfault::{Bytes, Error, Result};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Options that say what our methods do; a program does what it does.
const OF_METHODS: [&str; 28] = [
    "rw",
    "workload",
    "trace",
    "bs",
    "iodepth",
    "numjobs",
    "randseed",
    "runtime",
    "number_ios",
    "time_based",
    "size",
    "offset",
    "stripe",
    "nrfiles",
    "dir",
    "allow_overwrite",
    "place",
    "method",
    "baseline",
    "peer",
    "no_peer",
    "interval",
    "hardware_counters",
    "report",
    "output_format",
    "records",
    "time",
    "verbose",
];

/// How often a run that others disturbed is made again.
const SECOND_CHANCES: u32 = 2;

/// What is said of a program.
#[derive(Args, Clone, Debug, Default)]
pub struct ProgramOptions {
    /// A program with its arguments: runs it in turns, as it is and in each way that may speed it up without changing it.
    /// FILES named before it are those that it reads; without any, its arguments that are files
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = OF_METHODS, help_heading = "A program of your own")]
    pub program: Vec<OsString>,
    /// A way of running the program: untouched, assist, trace, load, random, no-random, huge or hot; may be repeated [default: all but the last three]
    #[arg(long, value_name = "NAME", requires = "program", help_heading = "A program of your own")]
    pub way: Vec<String>,
    /// A command of the shell before each run, outside the clock
    #[arg(long, value_name = "COMMAND", requires = "program", help_heading = "A program of your own")]
    pub prepare: Option<OsString>,
    /// Runs of each way before those that count
    #[arg(long, value_name = "N", default_value_t = 0, requires = "program", help_heading = "A program of your own")]
    pub warmup: u32,
    /// A parameter and its values, with commas between: {NAME} in COMMAND and --prepare stands for each in turn. May be
    /// repeated: then every choice of values takes part
    #[arg(short = 'L', long, num_args = 2, value_names = ["NAME", "VALUES"], requires = "program", help_heading = "A program of your own")]
    pub parameter_list: Vec<String>,
    /// Write the runs, one a line
    #[arg(long, value_name = "FILE.csv", requires = "program", help_heading = "A program of your own")]
    pub export_csv: Option<PathBuf>,
    /// Write the document of --json
    #[arg(long, value_name = "FILE.json", requires = "program", help_heading = "A program of your own")]
    pub export_json: Option<PathBuf>,
    /// Write the table in Markdown
    #[arg(long, value_name = "FILE.md", requires = "program", help_heading = "A program of your own")]
    pub export_markdown: Option<PathBuf>,
    /// Run it as it is within this much memory, too; may be repeated
    #[arg(long, value_name = "SIZE", requires = "program", help_heading = "A program of your own")]
    pub also_memory: Vec<Bytes>,
}

/// What `compare`'s other options say of it.
pub struct Conditions {
    /// Files named.
    pub files: Vec<PathBuf>,
    /// Whether they are dropped from the page cache before each run.
    pub is_cold: bool,
    /// The memory limit.
    pub memory: Option<Bytes>,
    /// Runs of each way.
    pub runs: u32,
    /// JSON instead of the table.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
    /// Whether files that are no exports of ours may be written over.
    pub force: Force,
}

/// A command with the values of its parameters, and what takes turns.
struct Part {
    task: Task,
    turns: Vec<Turn>,
    variant: ParameterValues,
}

impl Part {
    fn name(&self, turn: &Turn) -> String {
        self.variant.named(&turn.name())
    }

    fn names(&self) -> Vec<String> {
        self.turns.iter().map(|turn| self.name(turn)).collect()
    }
}

/// What is written beside standard output.
struct Exports {
    csv: Option<Output>,
    json: Option<Output>,
    markdown: Option<Output>,
}

impl Exports {
    fn claimed(options: &ProgramOptions, parts: &[Part], force: Force) -> Result<Exports> {
        let mut outputs = Outputs::new(force);
        for Part { task, .. } in parts {
            outputs.reads("a file of the program", &task.files);
            outputs.starts(&task.program);
        }
        let mut claim = |option, path: &Option<PathBuf>| outputs.claim_named(option, Kind::Programs, path.as_deref());
        Ok(Exports {
            csv: claim("--export-csv", &options.export_csv)?,
            json: claim("--export-json", &options.export_json)?,
            markdown: claim("--export-markdown", &options.export_markdown)?,
        })
    }

    fn write(&self, parts: &[program::Compared<'_>], between: Option<&Standings>, stopped: bool) -> Result<()> {
        if let Some(csv) = &self.csv {
            csv.write_unless_stopped(stopped, || program::csv(parts))?;
        }
        if let Some(json) = &self.json {
            json.write_unless_stopped(stopped, || program::document(parts, between))?;
        }
        if let Some(markdown) = &self.markdown {
            markdown.write_unless_stopped(stopped, || Ok(program::markdown(parts, between)))?;
        }
        Ok(())
    }
}

/// Runs the comparison.
pub fn run(options: ProgramOptions, conditions: Conditions, stop: &AtomicBool) -> Result<Exit> {
    let lists: Vec<(String, String)> =
        options.parameter_list.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    let words: Vec<OsString> = options.program.iter().chain(&options.prepare).cloned().collect();
    let variants = ParameterValues::all(&lists, &words)?;
    let scratch = tempfile::Builder::new()
        .prefix("majorfault-")
        .tempdir()
        .map_err(|error| Error::io("make a directory", std::env::temp_dir(), error))?;
    let mut refused = Vec::new();
    let parts = variants.into_iter().enumerate().map(|(number, variant)| {
        let scratch = scratch.path().join(number.to_string());
        part(&options, &conditions, variant, scratch, &mut refused)
    });
    let parts = parts.collect::<Result<Vec<Part>>>()?;
    let exports = Exports::claimed(&options, &parts, conditions.force)?;
    place::clean_stale();
    parts.iter().for_each(|part| learn(part, &mut refused, stop));
    let ran = in_turns(&parts, &refused, &options, &conditions, stop)?;
    let standings: Vec<Standings> = parts.iter().map(|part| Standings::of(&part.names(), &ran, &refused)).collect();
    let firsts: Vec<String> = parts.iter().map(|part| part.name(&part.turns[0])).collect();
    let between = (parts.len() > 1).then(|| Standings::between(&firsts, &ran));
    let compared: Vec<program::Compared<'_>> = parts
        .iter()
        .zip(&standings)
        .map(|(part, standings)| program::Compared { task: &part.task, variant: &part.variant, standings })
        .collect();
    show(&compared, between.as_ref(), conditions.json)?;
    let stopped = stop.load(Ordering::Relaxed);
    exports.write(&compared, between.as_ref(), stopped)?;
    Ok(match stopped {
        true => Exit::Interrupted,
        false => exit(&standings),
    })
}

/// The command with these values; what cannot be run goes to `refused`.
fn part(
    options: &ProgramOptions,
    conditions: &Conditions,
    variant: ParameterValues,
    scratch: PathBuf,
    refused: &mut Vec<(String, String)>,
) -> Result<Part> {
    let program = variant.filled(&options.program);
    check_program(&program)?;
    std::fs::create_dir(&scratch).map_err(|error| Error::io("make a directory", &scratch, error))?;
    let task = Task {
        files: files(&conditions.files, &program)?,
        program,
        is_cold: conditions.is_cold,
        prepare: variant.filled(&options.prepare).pop(),
        scratch,
    };
    let (turns, not_here) = turns(options, conditions, &task)?;
    refused.extend(not_here.into_iter().map(|(name, why)| (variant.named(&name), why)));
    Ok(Part { task, turns, variant })
}

/// Whether the program can be found, before anything is done.
fn check_program(program: &[OsString]) -> Result<()> {
    let Some(name) = program.first() else { return Ok(()) };
    let is_path = name.to_string_lossy().contains('/');
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = match is_path {
        true => Path::new(name).is_file(),
        false => std::env::split_paths(&paths).any(|dir| dir.join(name).is_file()),
    };
    match found {
        true => Ok(()),
        false => Err(Error::Invalid(format!("there is no program {}; check its name and path", name.display()))),
    }
}

/// The files named, else the arguments that are files.
fn files(named: &[PathBuf], program: &[OsString]) -> Result<Vec<PathBuf>> {
    if let Some(path) = named.iter().find(|path| !path.is_file()) {
        return Err(Error::Invalid(format!("{} is no file; name the files that the program reads", path.display())));
    }
    let arguments = program.iter().skip(1).map(PathBuf::from).filter(|path| path.is_file());
    Ok(if named.is_empty() { arguments.collect() } else { named.to_vec() })
}

/// What takes turns, and what cannot, with the reason.
type Turns = (Vec<Turn>, Vec<(String, String)>);

fn turns(options: &ProgramOptions, conditions: &Conditions, task: &Task) -> Result<Turns> {
    let names_memory = !options.also_memory.is_empty();
    let of = |way, memory| Turn { way, memory, names_memory };
    let mut turns = vec![of(ways::ALL[0], conditions.memory)];
    let mut refused = Vec::new();
    match options.way.as_slice() {
        [] => turns.extend(ways::ALL.iter().skip(1).filter(|way| way.is_usual).map(|way| of(way, conditions.memory))),
        names => {
            for name in names.iter().filter(|name| *name != ways::ALL[0].name) {
                turns.push(of(ways::named(name)?, conditions.memory));
            }
        }
    }
    turns.extend(options.also_memory.iter().map(|memory| of(ways::ALL[0], Some(*memory))));
    for turn in turns.iter().filter(|turn| turn.way.needs_files && task.files.is_empty()) {
        refused.push((turn.name(), "no file of the program is known; name files before --".to_owned()));
    }
    Ok((turns, refused))
}

fn learn(part: &Part, refused: &mut Vec<(String, String)>, stop: &AtomicBool) {
    for turn in &part.turns {
        let Some(learns) = turn.way.learns else { continue };
        if let Err(error) = learns(&part.task).and_then(|command| program::learn(&part.task, command, stop)) {
            refused.push((part.name(turn), error.to_string()));
        }
    }
}

fn in_turns(
    parts: &[Part],
    refused: &[(String, String)],
    options: &ProgramOptions,
    conditions: &Conditions,
    stop: &AtomicBool,
) -> Result<Vec<Ran>> {
    let all = parts.iter().flat_map(|part| part.turns.iter().map(move |turn| (part, turn, part.name(turn))));
    let turns: Vec<(&Part, &Turn, String)> =
        all.filter(|(_, _, name)| refused.iter().all(|(other, _)| other != name)).collect();
    let rounds = options.warmup + conditions.runs;
    let bar = Bars::new(conditions.quiet).runs(u64::from(rounds) * turns.len() as u64);
    let mut ran = Vec::new();
    for round in 0..rounds {
        for index in 0..turns.len() {
            if stop.load(Ordering::Relaxed) {
                return Ok(ran);
            }
            let (part, turn, name) = &turns[(index + round as usize) % turns.len()];
            bar.set_message(name.clone());
            let once = || {
                let run = program::once(&part.task, turn, round.saturating_sub(options.warmup), stop)?;
                Ok::<_, Error>(run.map(|run| Ran { turn: name.clone(), ..run }))
            };
            let Some(mut run) = once()? else { return Ok(ran) };
            let chances = if round < options.warmup { 0 } else { SECOND_CHANCES };
            for _ in 0..chances {
                if program::counts(&run) {
                    break;
                }
                let Some(again) = once()? else { return Ok(ran) };
                run = again;
            }
            bar.inc(1);
            if round >= options.warmup {
                ran.push(run);
            }
        }
    }
    bar.finish_and_clear();
    Ok(ran)
}

fn show(parts: &[program::Compared<'_>], between: Option<&Standings>, json: bool) -> Result<()> {
    let mut text = Vec::new();
    let written = match json {
        true => text.write_all(program::document(parts, between)?.as_bytes()),
        false => program::print(parts, between, &mut text),
    };
    let written = written.and_then(|()| anstream::stdout().write_all(&text));
    written.map_err(|error| Error::io("write the results", Path::new("standard output"), error))
}

fn exit(standings: &[Standings]) -> Exit {
    match standings.iter().all(Standings::is_answered) {
        true => Exit::Ok,
        false => Exit::Invalid,
    }
}
