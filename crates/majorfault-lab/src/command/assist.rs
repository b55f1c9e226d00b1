//! `majorfault assist`: prefetches for a running program from outside.

use crate::assist::{self, AssistOptions, Profile};
use crate::command::launched::Whom;
use crate::command::{Exit, stop_flag};
use majorfault::trace::Trace;
use majorfault::{Bytes, Error, Nanos, Result};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Speed up a running program from outside: watch its page faults, and read ahead of them
///
/// The assistant reads into the page cache that it shares with the program, which is not stopped or changed. It helps programs
/// that map files and step through them by strides. It does nothing where the kernel's own read-ahead is enough, or where the
/// accesses have no order. It ends with the program, or by SIGINT. Your own programs need no further rights where
/// kernel.perf_event_paranoid is 2 or less.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    whom: Whom,
    /// How long to help [default: until the program ends]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
    /// The most bytes read ahead and not yet touched, for each thread and file; never more than half of the free memory
    #[arg(long, default_value_t = Bytes::mib(8), value_name = "SIZE")]
    budget: Bytes,
    /// The most bytes read ahead each second [default: as fast as the device reads]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Read ahead by this trace of an earlier run, only in the files that it names; see `majorfault trace`
    #[arg(long, value_name = "FILE.flt")]
    trace: Option<PathBuf>,
    /// Begin with the strides that this file names, and keep there what is learnt, for the next run
    #[arg(long, value_name = "PROFILE.json")]
    learn: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { whom, length, budget, rate, trace, learn, json } = args;
    if budget.0 < 64 << 10 {
        return Err(Error::Invalid(format!("--budget {budget} is too small to read ahead; give 64k or more")));
    }
    let stop = stop_flag()?;
    let trace = trace.map(|path| Trace::read(&path).map(|trace| (path, trace))).transpose()?;
    let profile = learn.as_ref().map(|path| Profile::read(path)).transpose()?.unwrap_or_default();
    let (mut launched, target) = whom.launch()?;
    let options = AssistOptions {
        length: length.map(|length| Duration::from_nanos(length.0)),
        budget: budget.0,
        rate: rate.map(|rate| rate.0),
        trace,
        profile: profile.clone(),
        ..AssistOptions::default()
    };
    let outcome = match assist::assist(target, options, &stop) {
        Ok(outcome) => outcome,
        // The program must not suffer because the assistant cannot help.
        Err(error) if launched.is_ours() => {
            eprintln!("majorfault: {error}; the program runs without help");
            return launched.wait();
        }
        Err(error) => return Err(error),
    };
    if let Some(path) = learn {
        let mut profile = profile;
        profile.learn(&outcome.files);
        // What the program did stands; only the next run begins without it.
        profile.write(&path).unwrap_or_else(|error| eprintln!("majorfault: {error}"));
    }
    let mut text = Vec::new();
    let written = match json {
        true => writeln!(text, "{:#}", assist::document(&outcome)),
        false => assist::print(&outcome, &mut text),
    };
    // The program's own output is on standard output where we started the program.
    let written = written.and_then(|()| match launched.is_ours() {
        true => std::io::stderr().write_all(&text),
        false => std::io::stdout().write_all(&text),
    });
    written.map_err(|error| Error::io("write the outcome", "standard output", error))?;
    launched.leave(outcome.ended, " without help")
}
