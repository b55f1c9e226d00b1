//! `faultline report`: the table and the page again, from records alone.

use crate::command::Exit;
use crate::command::compare::{Output, show};
use crate::session;
use faultline::Result;
use std::path::PathBuf;

/// Make the table and the page again from saved records.
#[derive(clap::Args)]
pub struct Args {
    /// Files of records (JSON Lines); `-` is standard input
    #[arg(required = true)]
    records: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    show(&session::load(&args.records)?, &args.output)?;
    Ok(Exit::Ok)
}
