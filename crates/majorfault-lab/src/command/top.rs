//! `majorfault top`: the machine's processes, groups and files by the time that they lose in file access.

use crate::command::{Exit, stop_flag};
use crate::node::survey::{self, Picture, Survey};
use crate::node::tell;
use crate::watch::members::{GroupName, Members};
use crate::watch::target::WatchTarget;
use console::Term;
use majorfault::{Error, Nanos, Result};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Show which processes, containers and files of this machine lose most time in file access
///
/// Every interval begins with a cheap look at all processes (/proc/PID/stat and io); then the page faults of the worst are sampled, which
/// tells their files and how long was waited. Waits in read calls are known where kernel.task_delayacct is 1. Without root only your own
/// processes are sampled.
#[derive(clap::Args)]
pub struct Args {
    /// How long an interval is
    #[arg(long = "every", value_name = "TIME", default_value = "2s")]
    length: Nanos,
    /// The most processes whose faults are sampled
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=64))]
    sample: u64,
    /// Print one picture (of the second interval, because the first one finds the worst), and end
    #[arg(long)]
    once: bool,
    /// Print each picture as a line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { length, sample, once, json } = args;
    if length.0 < 100_000_000 {
        return Err(Error::Invalid(format!(
            "--every {length} would cost the machine more than it tells; give 100ms or more"
        )));
    }
    let length = Duration::from_nanos(length.0);
    let stop = stop_flag()?;
    let mut survey = Survey::new(|_| true, sample as usize);
    if once {
        survey.next(length, &stop);
    }
    loop {
        let picture = survey.next(length, &stop);
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        show(&picture, json, once)?;
        if once {
            return Ok(Exit::Ok);
        }
    }
}

fn show(picture: &Picture, json: bool, once: bool) -> Result<()> {
    let terminal = Term::stdout();
    let is_screen = std::io::stdout().is_terminal() && !once && !json;
    let text = match json {
        true => format!("{}\n", tell::document(picture)),
        false => tell::screen(picture, if is_screen { usize::from(terminal.size().0) } else { tell::HEIGHT }),
    };
    let cleared = if is_screen { terminal.clear_screen() } else { Ok(()) };
    let written = cleared.and_then(|()| std::io::stdout().write_all(text.as_bytes()));
    written.map_err(|error| Error::io("write the picture", "standard output", error))
}

/// The most processes that `doctor --all` examines.
const MOST_EXAMINED: usize = 10;

/// Whether a process is wanted: all are, or the members of the group, also those that join it later.
///
/// Errors: Invalid where there is no such group.
pub(super) fn wanted(group: Option<&GroupName>) -> Result<impl Fn(u32) -> bool + use<>> {
    let members = group.map(Members::of).transpose()?;
    Ok(move |pid: u32| members.as_ref().is_none_or(|members| members.has(pid)))
}

/// The processes of the machine, or of the group, that lost most in `length`.
///
/// Errors: Invalid where there is no such group, or none lost anything.
pub(super) fn worst_of(group: Option<&GroupName>, length: Duration, stop: &AtomicBool) -> Result<WatchTarget> {
    let worst = survey::worst(wanted(group)?, MOST_EXAMINED, length, stop);
    match worst.is_empty() {
        true => {
            let seconds = length.as_secs_f64();
            let why = format!("no process was seen to lose time in file access in {seconds:.1} s");
            Err(Error::Invalid(format!("{why}; name one, or try again")))
        }
        false => Ok(WatchTarget::listed(worst)),
    }
}
