//! `majorfault report`: the table and the page again, from records alone.

use crate::command::Exit;
use crate::command::compare::{OutputOptions, show};
use crate::command::drift;
use crate::lineup;
use crate::outputs::{Kind, Outputs};
use crate::record::Record;
use crate::session;
use crate::trial::Arm;
use majorfault::{Error, Result};
use std::path::PathBuf;

/// Make the table and the page again from saved records.
#[derive(clap::Args)]
pub struct Args {
    /// Files of records (JSON Lines); `-` is standard input. With --drift also directories, with all files of records below them
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// The method that you use now: the first line says how much faster the best one is [default: as recorded]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Published claims against kernels, devices and file systems, over sessions of many machines: where a verdict flips
    #[arg(long, conflicts_with_all = ["baseline", "output_format", "verbose"])]
    drift: bool,
    /// With --drift: every judged claim as a line of comma-separated values, oldest first, also for Apache Otava
    #[arg(long, value_name = "FILE.csv", requires = "drift")]
    csv: Option<PathBuf>,
    /// With --drift: a table of Markdown, claims down and kernels across
    #[arg(long, requires = "drift", conflicts_with = "json")]
    markdown: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { records, baseline, drift, csv, markdown, output } = args;
    if drift {
        return drift::run(&records, &output, csv.as_deref(), markdown);
    }
    let mut outputs = Outputs::new(output.force);
    outputs.reads("the file of records", records.iter().filter(|path| path.as_os_str() != "-"));
    let page = outputs.claim_named("--report", Kind::Page, output.report.as_deref())?;
    let mut records = session::load(&records)?;
    if let Some(text) = &baseline {
        name_baseline(text, &mut records)?;
    }
    show(&records, &output, page.as_ref(), false)?;
    Ok(Exit::Ok)
}

/// Makes each record name this arm as the one its user has.
///
/// Errors: Invalid where no record is of it, or for an unknown name or parameter.
fn name_baseline(text: &str, records: &mut [Record]) -> Result<()> {
    let mut arms: Vec<Arm> = Vec::new();
    for record in records.iter() {
        if !arms.contains(&record.trial.arm) {
            arms.push(record.trial.arm.clone());
        }
    }
    let there = arms.len();
    let depth = records.first().map_or(1, |record| record.trial.iodepth);
    let baseline = lineup::join(&mut arms, lineup::arm(text, depth)?)?;
    if arms.len() > there {
        return Err(Error::Invalid(format!("--baseline {text}: no record is of it; the table names those there are")));
    }
    records.iter_mut().for_each(|record| record.baseline = Some(baseline.clone()));
    Ok(())
}
