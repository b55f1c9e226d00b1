//! `majorfault hold`: stops itself, and becomes a program when it goes on; started by `majorfault run`.

use crate::command::Exit;
use crate::launch::start;
use std::ffi::OsString;
use std::path::PathBuf;

/// Stop, and become a program when going on.
#[derive(clap::Args)]
pub struct Args {
    /// Libraries that the program loads, behind those that it loads anyway.
    #[arg(long)]
    preload: Vec<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Runs the subcommand; returns only where it failed.
pub fn run(args: Args) -> Exit {
    let (error, code) = start::become_held(&args.program, &args.preload);
    eprintln!("majorfault: {error}");
    Exit::Program(code)
}
