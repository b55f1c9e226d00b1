//! The command line: one file per subcommand. These translate words into values and results into exit codes; they
//! decide nothing.

mod assist;
mod compare;
mod contests;
mod doctor;
mod drift;
mod enter;
mod guard;
mod guest;
mod hold;
mod jobs;
mod kernel;
mod kernel_test;
mod kernel_try;
mod launched;
mod manual;
mod options;
mod probe;
mod programs;
mod progress;
mod report;
mod reproduce;
mod run;
mod top;
mod trace;
mod words;
mod worker;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use progress::Bars;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Measures how a file is reached fastest on this machine, and shows why.
#[derive(Parser)]
#[command(name = "majorfault", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = EXIT_CODES, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 the answer is no; 2 wrong usage or input; 3 not permitted or not \
supported here; 4 measured, but the measurement is not valid. 130 stopped by the user.";

#[derive(Subcommand)]
enum Command {
    Compare(Box<compare::Args>),
    Reproduce(reproduce::Args),
    Report(report::Args),
    Doctor(doctor::Args),
    Assist(assist::Args),
    Run(run::Args),
    Trace(trace::Args),
    Top(top::Args),
    Kernel(kernel::Args),
    Probe(probe::Args),
    List(manual::ListArgs),
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    Enter(enter::Args),
    #[command(hide = true)]
    Hold(hold::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

/// How a subcommand ended, as its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// It ran, and the answer is no.
    No,
    /// Not permitted, or not supported here.
    Unsupported,
    /// The measurement does not mean what it says.
    Invalid,
    /// Stopped by the user.
    Interrupted,
    /// As the program that was started.
    Program(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::No => 1,
            Exit::Unsupported => 3,
            Exit::Invalid => 4,
            Exit::Interrupted => 130,
            Exit::Program(code) => code,
        })
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let command = match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        Command::Compare(args) => Command::Compare(Box::new(args.with_typed(matches.subcommand_matches("compare")))),
        other => other,
    };
    let result = run(command);
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("majorfault: {error}");
            match error {
                majorfault::Error::Missing(_) => Exit::Unsupported.into(),
                _ => ExitCode::from(2),
            }
        }
    }
}

fn run(command: Command) -> majorfault::Result<Exit> {
    match command {
        Command::Compare(args) => compare::run(*args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Report(args) => report::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Assist(args) => assist::run(args),
        Command::Run(args) => Ok(run::run(args)),
        Command::Trace(args) => trace::run(args),
        Command::Top(args) => top::run(args),
        Command::Kernel(args) => kernel::run(args),
        Command::Probe(args) => probe::run(args),
        Command::List(args) => manual::list(args),
        Command::Completions(args) => manual::completions(args, &mut Cli::command()),
        Command::Man(args) => manual::man(args, Cli::command()),
        Command::Worker(args) => worker::run(args),
        Command::Enter(args) => enter::run(args),
        Command::Hold(args) => Ok(hold::run(args)),
        Command::Guard(args) => guard::run(args),
    }
}

/// A flag that SIGINT and SIGTERM raise; a second one ends the process at once.
fn stop_flag() -> majorfault::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the second signal must find the flag raised by the first.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| majorfault::Error::io("listen to signals", "sigaction", error))?;
    }
    Ok(stop)
}
