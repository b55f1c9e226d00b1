//! `majorfault compare -- COMMAND`: the user's own program in turns, as it is and in each way that may speed it up.

use crate::command::{Bars, Exit};
use crate::place;
use crate::program::{self, Ran, Standings, Task, Turn, ways};
use clap::Args;
use majorfault::{Bytes, Error, Result};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Options that say what our methods do; a program does what it does.
const OF_METHODS: [&str; 27] = [
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
    /// A way of running the program: untouched, assist, trace, load, random, no-random or huge; may be repeated [default: all but the last two]
    #[arg(long, value_name = "NAME", requires = "program", help_heading = "A program of your own")]
    pub way: Vec<String>,
    /// A command of the shell before each run, outside the clock
    #[arg(long, value_name = "COMMAND", requires = "program", help_heading = "A program of your own")]
    pub prepare: Option<OsString>,
    /// Runs of each way before those that count
    #[arg(long, value_name = "N", default_value_t = 0, requires = "program", help_heading = "A program of your own")]
    pub warmup: u32,
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
}

/// Runs the comparison.
pub fn run(options: ProgramOptions, conditions: Conditions, stop: &AtomicBool) -> Result<Exit> {
    check_program(&options.program)?;
    place::clean_stale();
    let scratch = tempfile::Builder::new()
        .prefix("majorfault-")
        .tempdir()
        .map_err(|error| Error::io("make a directory", std::env::temp_dir(), error))?;
    let task = Task {
        files: files(&conditions.files, &options.program)?,
        program: options.program.clone(),
        is_cold: conditions.is_cold,
        prepare: options.prepare.clone(),
        scratch: scratch.path().to_owned(),
    };
    let (turns, mut refused) = turns(&options, &conditions, &task)?;
    learn(&task, &turns, &mut refused, stop);
    let ran = in_turns(&task, &turns, &refused, &options, &conditions, stop)?;
    let names: Vec<String> = turns.iter().map(Turn::name).collect();
    let standings = Standings::of(&names, &ran, &refused);
    show(&task, &standings, conditions.json)?;
    Ok(match stop.load(Ordering::Relaxed) {
        true => Exit::Interrupted,
        false => exit(&standings),
    })
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

fn learn(task: &Task, turns: &[Turn], refused: &mut Vec<(String, String)>, stop: &AtomicBool) {
    for turn in turns {
        let Some(learns) = turn.way.learns else { continue };
        if let Err(error) = learns(task).and_then(|command| program::learn(task, command, stop)) {
            refused.push((turn.name(), error.to_string()));
        }
    }
}

fn in_turns(
    task: &Task,
    turns: &[Turn],
    refused: &[(String, String)],
    options: &ProgramOptions,
    conditions: &Conditions,
    stop: &AtomicBool,
) -> Result<Vec<Ran>> {
    let turns: Vec<&Turn> = turns.iter().filter(|turn| refused.iter().all(|(name, _)| *name != turn.name())).collect();
    let rounds = options.warmup + conditions.runs;
    let bar = Bars::new(conditions.quiet).runs(u64::from(rounds) * turns.len() as u64);
    let mut ran = Vec::new();
    for round in 0..rounds {
        for index in 0..turns.len() {
            if stop.load(Ordering::Relaxed) {
                return Ok(ran);
            }
            let turn = turns[(index + round as usize) % turns.len()];
            bar.set_message(turn.name());
            let once = || program::once(task, turn, round.saturating_sub(options.warmup), stop);
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

fn show(task: &Task, standings: &Standings, json: bool) -> Result<()> {
    let mut text = Vec::new();
    let written = match json {
        true => writeln!(text, "{:#}", program::document(task, standings)),
        false => program::print(task, standings, &mut text),
    };
    let written = written.and_then(|()| anstream::stdout().write_all(&text));
    written.map_err(|error| Error::io("write the results", Path::new("standard output"), error))
}

fn exit(standings: &Standings) -> Exit {
    match standings.is_answered() {
        true => Exit::Ok,
        false => Exit::Invalid,
    }
}
