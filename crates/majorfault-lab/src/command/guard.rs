//! `majorfault guard`: stands beside a run, and lets the kernel's killer go when the run has ended, however it did; started by `majorfault run`.

use crate::command::Exit;
use crate::place::reprieve;
use majorfault::{Error, Result};
use std::path::PathBuf;

/// Wait for the end of standard input, then let the kernel's killer of a group go.
#[derive(clap::Args)]
pub struct Args {
    /// The switch of the group: its memory.oom_control.
    control: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let waited = reprieve::stand_guard(&args.control, std::io::stdin());
    waited.map_err(|error| Error::io("wait for the end of", "standard input", error))?;
    Ok(Exit::Ok)
}
