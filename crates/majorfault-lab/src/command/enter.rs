//! `majorfault enter`: becomes a program when told to; started by majorfault itself.

use crate::command::Exit;
use crate::program;
use majorfault::Result;
use std::ffi::OsString;
use std::path::PathBuf;

/// Become a program when a line comes through standard input.
#[derive(clap::Args)]
pub struct Args {
    /// A file to read first.
    #[arg(long)]
    load: Vec<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Runs the subcommand; returns only where it failed.
pub fn run(args: Args) -> Result<Exit> {
    program::enter(&args.load, &args.program)?;
    Ok(Exit::Unsupported)
}
