//! `majorfault report`: the table and the page again, from records alone.

use crate::command::Exit;
use crate::command::compare::{Output, show};
use crate::outputs::{Kind, Outputs};
use crate::session;
use majorfault::Result;
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
    let Args { records, output } = args;
    let mut outputs = Outputs::new(output.force);
    outputs.reads("the file of records", records.iter().filter(|path| path.as_os_str() != "-"));
    let page = outputs.claim_named("--report", Kind::Page, output.report.as_deref())?;
    show(&session::load(&records)?, &output, page.as_ref(), false)?;
    Ok(Exit::Ok)
}
