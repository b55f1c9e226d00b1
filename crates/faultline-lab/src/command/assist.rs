//! `faultline assist`: prefetches for a running program from outside.

use crate::assist::{self, Options};
use crate::command::{Exit, stop_flag};
use faultline::{Bytes, Error, Nanos, Result};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

/// Speed a running program up from outside: watch its page faults, and read ahead of them
///
/// What is read goes into the page cache that both share; the program is not stopped or changed. Helps programs that map
/// files and step through them by strides; does nothing where the kernel's own read-ahead is enough, or there is no order.
/// Ends with the program, or by SIGINT. A program of your own needs no further rights where kernel.perf_event_paranoid is
/// 2 or less.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("whom").required(true).args(["pid", "program"])))]
pub struct Args {
    /// The process; those it starts are helped, too
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Option<u32>,
    /// A program to start and help, with its arguments; its exit code becomes ours
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
    /// How long to help [default: as long as it runs]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
    /// Bytes read ahead and not yet touched, for each thread and file; half of the free memory at most
    #[arg(long, default_value_t = Bytes::mib(8), value_name = "SIZE")]
    budget: Bytes,
    /// Bytes read ahead each second, at most [default: what the device gives]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Say what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { pid, program, length, budget, rate, json } = args;
    if budget.0 < 64 << 10 {
        return Err(Error::Invalid(format!("a budget of {budget} is too little to be ahead; give 64k or more")));
    }
    let stop = stop_flag()?;
    let mut child = start(&program)?;
    let pid = child.as_ref().map(Child::id).or(pid).unwrap_or_default();
    let options = Options {
        length: length.map(|length| Duration::from_nanos(length.0)),
        budget: budget.0,
        rate: rate.map(|rate| rate.0),
        ..Options::default()
    };
    let outcome = match (assist::assist(pid, options, &stop), &mut child) {
        (Ok(outcome), _) => outcome,
        // The program must not suffer from our being unable to help.
        (Err(error), Some(child)) => {
            eprintln!("faultline: {error}; the program runs without help");
            return wait(child);
        }
        (Err(error), None) => return Err(error),
    };
    let mut text = Vec::new();
    let written = match json {
        true => writeln!(text, "{:#}", assist::document(&outcome)),
        false => assist::print(&outcome, &mut text),
    };
    // The program's own output is on standard output, where there is one of ours.
    let written = written.and_then(|()| match child.is_some() {
        true => std::io::stderr().write_all(&text),
        false => std::io::stdout().write_all(&text),
    });
    written.map_err(|error| Error::io("write what was done", "standard output", error))?;
    match &mut child {
        Some(child) if outcome.ended => wait(child),
        Some(child) => {
            eprintln!("faultline: the program runs on without help as process {}", child.id());
            Ok(Exit::Ok)
        }
        None => Ok(Exit::Ok),
    }
}

fn start(program: &[OsString]) -> Result<Option<Child>> {
    let Some((name, arguments)) = program.split_first() else { return Ok(None) };
    let child = Command::new(name).args(arguments).spawn();
    child.map(Some).map_err(|error| Error::io("start the program", name, error).with_remedy("check the name"))
}

/// The program's exit code; that of a signal is 128 and its number, as shells have it.
fn wait(child: &mut Child) -> Result<Exit> {
    let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(Exit::Program(code as u8))
}
