//! `majorfault run`: a program within a memory limit, helped where it swaps.

use crate::command::Exit;
use crate::launch::document::document;
use crate::launch::map_policy::MapPolicy;
use crate::launch::outcome::{RunOutcome, print};
use crate::launch::preflight::Remark;
use crate::launch::spill::{SpillPlace, USUAL_FROM};
use crate::launch::swap_file::SwapPlace;
use crate::launch::{Companion, Help, LaunchOptions, OWN_FAILURE, launch, launch_with_policy, page};
use crate::outputs::{Force, Kind, Output, Outputs};
use clap::builder::{PossibleValue, TypedValueParser};
use majorfault::{Bytes, Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a program within less memory than it needs, and make swapping faster
///
/// The program is limited to --memory by a cgroup; what does not fit goes to the kernel's swap. Beside it, majorfault looks at page
/// faults as soon as memory is short: pages that the program will need are read in ahead, those it has left behind are paged out. Programs
/// that pass over their memory in an order finish much sooner than with swap alone; others take some per cent longer (docs/run.md). The
/// program is not changed, and advice cannot change a byte of its memory.
///
/// Needs a swap area, and the right to limit memory: as root, or in a group of your own in cgroup version 2 (systemd-run --user --scope
/// majorfault run …). Reading ahead needs the right to sample page faults; without it the program is limited only, and that is said.
/// With CAP_SYS_NICE advice is given from outside, and nothing is preloaded; without it by an agent within the program, a preloaded library
/// with one thread that does nothing else.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: the program's own; 128 and the number of the signal that ended it; 125 majorfault failed and the \
program has not begun; 126 the program cannot be started; 127 there is no such program; 2 wrong usage."
)]
pub struct Args {
    /// The most memory that the program and all that it starts may have, page cache included
    #[arg(long, value_name = "SIZE", required_unless_present = "map_policy")]
    memory: Option<Bytes>,
    /// Make a swap file in this directory for the run, use it, and remove it at the end (root); of four times the memory, at most half of
    /// what is free there, unless a size follows
    #[arg(long, value_name = "DIR[:SIZE]", requires = "memory")]
    swap_file: Option<SwapPlace>,
    /// Put large blocks of memory (malloc and its family) into files without names in this directory: for programs that would be killed,
    /// because there is no swap and no right to make any. Slower than swap, and nothing for programs that map memory themselves. Where
    /// no limit can be set the one that there is holds
    #[arg(long, value_name = "DIR", requires = "memory")]
    spill: Option<PathBuf>,
    /// The least block that goes into a file
    #[arg(long, value_name = "SIZE", requires = "spill", default_value_t = USUAL_FROM)]
    spill_from: Bytes,
    /// One policy for all files that the program maps, advised right after each mmap(2) by a preloaded library. It needs no right; without
    /// --memory nothing else is done
    #[arg(long, value_name = "POLICY", value_parser = PolicyParser)]
    map_policy: Option<MapPolicy>,
    /// Only limit the program, without help: to compare
    #[arg(long, requires = "memory")]
    no_advice: bool,
    /// Help the program from within, by a preloaded agent, and not from outside; else it does not begin. Without this the agent helps only
    /// where advice from outside is refused
    #[arg(long, conflicts_with = "no_advice", requires = "memory")]
    agent: bool,
    /// Print the outcome as JSON, on standard error
    #[arg(long, requires = "memory")]
    json: bool,
    /// Write an HTML page about the run: memory over time, phases, where it waited and was helped, how near it came to being killed
    #[arg(long, value_name = "PAGE.html", requires = "memory")]
    report: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Say nothing of what is in order: no outcome, and before the program begins only what should be changed
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// The program to start, with its arguments; it has our standard input and outputs
    #[arg(last = true, required = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// The policies by name; one of them brings a path.
#[derive(Clone)]
struct PolicyParser;

impl TypedValueParser for PolicyParser {
    type Value = MapPolicy;

    fn parse_ref(&self, _: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> clap::error::Result<MapPolicy> {
        MapPolicy::named(value).ok_or_else(|| {
            let names: Vec<&str> = MapPolicy::all_words().map(|[name, _]| name).collect();
            let text = format!("there is no policy {}; there are {}\n", value.display(), names.join(", "));
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, text)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(MapPolicy::all_words().map(|[name, what]| PossibleValue::new(name).help(what))))
    }
}

/// Signals that are passed on to the program. Those of the terminal (SIGINT, SIGQUIT) it gets anyway.
const PASSED: [i32; 4] = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

/// Runs the subcommand.
pub fn run(args: Args) -> Exit {
    let Args {
        memory,
        swap_file,
        spill,
        spill_from,
        map_policy,
        no_advice,
        agent,
        json,
        report,
        force,
        quiet,
        program,
    } = args;
    let told = match (json, quiet) {
        (true, _) => Told::Nothing,
        (_, true) => Told::Wrong,
        _ => Told::All,
    };
    let mut company = Company { told, pid: None, signals: Vec::new() };
    if let Err(error) = company.listen() {
        eprintln!("majorfault: {error}");
        return Exit::Program(OWN_FAILURE);
    }
    // What cannot be written is told before the program begins.
    let report = match claimed(force, report.as_deref(), &program) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("majorfault: {error}");
            return Exit::Program(OWN_FAILURE);
        }
    };
    let help = match (no_advice, agent) {
        (true, _) => Help::Nobody,
        (_, true) => Help::Agent,
        _ => Help::AsItCan,
    };
    let spill = spill.map(|dir| SpillPlace { dir, from: spill_from });
    let Some(memory) = memory else { return with_policy(&program, map_policy, &mut company) };
    let options = LaunchOptions { program, memory, swap: swap_file, spill, map_policy, help };
    match launch(&options, &mut company) {
        Ok(outcome) => {
            let mut text = Vec::new();
            let printed = match (json, quiet) {
                (true, _) => writeln!(text, "{:#}", document(&outcome)),
                (_, true) => Ok(()),
                _ => print(&outcome, &mut text),
            };
            // The program's exit code counts, whoever reads our words.
            let _ = printed.and_then(|()| std::io::stderr().write_all(&text));
            if let Err(error) = report.map_or(Ok(()), |report| written(&report, &outcome, &options)) {
                eprintln!("majorfault: {error}");
            }
            Exit::Program(outcome.code)
        }
        Err(error) => {
            eprintln!("majorfault: {error}");
            Exit::Program(OWN_FAILURE)
        }
    }
}

/// Runs the program with a policy for its mappings alone.
fn with_policy(program: &[OsString], policy: Option<MapPolicy>, company: &mut Company) -> Exit {
    // The options demand one of the two.
    let Some(policy) = policy else { return Exit::Program(OWN_FAILURE) };
    match launch_with_policy(program, &policy, company) {
        Ok(outcome) => Exit::Program(outcome.code),
        Err(error) => {
            eprintln!("majorfault: {error}");
            Exit::Program(OWN_FAILURE)
        }
    }
}

/// The page's file.
fn claimed(force: Force, report: Option<&Path>, program: &[OsString]) -> Result<Option<Output>> {
    let mut outputs = Outputs::new(force);
    outputs.starts(program);
    outputs.claim_named("--report", Kind::Page, report)
}

fn written(report: &Output, outcome: &RunOutcome, options: &LaunchOptions) -> Result<()> {
    report.write(page(outcome, &options.program)?)
}

/// What is told before the program begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It stands in the document at the end.
    Nothing,
    /// What should be changed.
    Wrong,
    All,
}

/// Keeps the program company: tells what is to be told, and passes signals on.
struct Company {
    told: Told,
    pid: Option<rustix::process::Pid>,
    signals: Vec<(rustix::process::Signal, Arc<AtomicBool>)>,
}

impl Companion for Company {
    fn before(&mut self, remarks: &[Remark], unhelped: Option<&str>) {
        let is_told = |remark: &&Remark| match self.told {
            Told::Nothing => false,
            Told::Wrong => !remark.remedy.is_empty(),
            Told::All => true,
        };
        for Remark { found, remedy } in remarks.iter().filter(is_told) {
            let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
            eprintln!("majorfault: {found}{remedy}");
        }
        if let (Some(reason), Told::All) = (unhelped, self.told) {
            eprintln!("majorfault: limited only, not helped: {reason}");
        }
    }

    fn begun(&mut self, pid: u32) {
        self.pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    }

    fn meanwhile(&mut self) {
        for (signal, raised) in &self.signals {
            if let (true, Some(pid)) = (raised.swap(false, Ordering::Relaxed), self.pid) {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, *signal);
            }
        }
    }
}

impl Company {
    /// Listens to signals, but to none that is ignored: it is to stay so in the program.
    fn listen(&mut self) -> Result<()> {
        let ignored = ignored();
        // Those of the terminal must not end us before the program, and what was made for it.
        for signal in PASSED.into_iter().chain([SIGINT, SIGQUIT]).filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            let raised = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&raised))
                .map_err(|error| Error::io("listen to signals", "sigaction", error))?;
            let passed = rustix::process::Signal::from_named_raw(signal).filter(|_| PASSED.contains(&signal));
            self.signals.extend(passed.map(|signal| (signal, raised)));
        }
        Ok(())
    }
}

/// The signals that this process ignores, as bits.
fn ignored() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
