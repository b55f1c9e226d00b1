//! `majorfault guard`: stands beside a run, and lets the kernel's killer go and sets the limit back when the run has ended, however it did; started by `majorfault run`.

use crate::command::Exit;
use crate::place::reprieve;
use majorfault::{Error, Result};
use std::path::PathBuf;

/// Wait for the end of standard input, then let the kernel's killer of a group go and set its limit back.
#[derive(clap::Args)]
pub struct Args {
    /// The group's directory.
    group: PathBuf,
    /// Its limit, in bytes.
    limit: u64,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let waited = reprieve::stand_guard(&args.group, args.limit, std::io::stdin());
    waited.map_err(|error| Error::io("wait for the end of", "standard input", error))?;
    Ok(Exit::Ok)
}
