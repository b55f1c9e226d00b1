//! `majorfault kernel try`: what works where, tried in guests.

use crate::command::{Exit, stop_flag};
use crate::outputs::{Force, Outputs};
use crate::place::guest::kernel;
use crate::session;
use crate::tryout::cases::Stock;
use crate::tryout::{self, CASES, CHECKS, Came, GuestCase, Tried, inside, page, surprise};
use anstream::{eprintln, println};
use majorfault::{Error, Result};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Try what majorfault can do in guests.
#[derive(clap::Args)]
pub struct Args {
    /// Cases to try, see --list [default: all]
    names: Vec<String>,
    /// List the cases and the checks
    #[arg(long)]
    list: bool,
    /// Only these checks of each case; may be repeated
    #[arg(long, value_name = "NAME")]
    check: Vec<String>,
    /// This kernel for all cases: a name of `majorfault kernel list`, or the path of an image [default: Debian's that each case
    /// names, fetched where it is not here]
    #[arg(long)]
    kernel: Option<String>,
    /// Our program for cases with another processor, built for that one and linked statically
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Append the records to this file [default: one for each session below ~/.local/state/majorfault/runs]
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    records: Option<PathBuf>,
    /// Show what these records say instead of trying anything
    #[arg(long, value_name = "RECORDS", num_args = 1..)]
    from: Vec<PathBuf>,
    /// With --from: the tables as Markdown
    #[arg(long, requires = "from")]
    markdown: bool,
    #[command(flatten)]
    force: Force,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<Exit> {
    if args.list {
        CASES.iter().for_each(|case| println!("{:<18}{}", case.name, case.says));
        println!("\nchecks:");
        CHECKS.iter().for_each(|check| println!("{:<18}{}", check.name, check.says));
        return Ok(Exit::Ok);
    }
    if !args.from.is_empty() {
        let records = tryout::load(&args.from)?;
        match args.markdown {
            true => print!("{}", page::markdown(&records)),
            false => records.iter().for_each(|tried| println!("{}", line(tried))),
        }
        return Ok(ends(&records));
    }
    let chosen = chosen(&args.names)?;
    for case in &chosen {
        inside::chosen(case, &args.check)?;
    }
    let stop = stop_flag()?;
    let mut kept = Outputs::new(args.force).records("--records", args.records.as_deref(), &session::name())?;
    let mut all = Vec::new();
    for case in chosen {
        let told = |tried: Tried| {
            println!("{}", line(&tried));
            kept.line(&tried)?;
            all.push(tried);
            Ok(())
        };
        let kernel = args.kernel.clone().map_or_else(|| stock(case.kernel), Ok);
        match kernel.and_then(|kernel| tryout::tried(case, &kernel, args.program.as_deref(), &args.check, &stop, told))
        {
            // A kernel, or a tool that makes one file system, is no reason not to try the others.
            Err(error @ Error::Missing(_)) => eprintln!("majorfault: {}: not tried: {error}", case.name),
            ended => drop(ended?),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
    }
    eprintln!("records: {}", kept.path().display());
    Ok(if all.is_empty() { Exit::Unsupported } else { ends(&all) })
}

fn ends(records: &[Tried]) -> Exit {
    if records.iter().any(|tried| surprise(tried).is_some()) { Exit::No } else { Exit::Ok }
}

fn line(tried: &Tried) -> String {
    let (word, says) = match &tried.came {
        Came::Works { found, without } if without.is_empty() => ("works", found.clone()),
        Came::Works { found, without } => ("in part", format!("{found}; without: {}", without.join(" | "))),
        Came::Lost { said, .. } => ("lost", said.clone()),
        Came::Broken(why) => ("BROKEN", why.clone()),
    };
    let mark = if surprise(tried).is_some() { "!" } else { " " };
    let Tried { case, check, took_ms, .. } = tried;
    format!("{mark} {word:<8}{case:<18}{check:<14}{:>6.1} s  {says}", *took_ms as f64 / 1e3)
}

fn chosen(names: &[String]) -> Result<Vec<&'static GuestCase>> {
    let named = |name: &String| {
        GuestCase::named(name).ok_or_else(|| {
            let legal: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            Error::Invalid(format!("there is no case \"{name}\"; legal are {}", legal.join(", ")))
        })
    };
    if names.is_empty() { Ok(CASES.iter().collect()) } else { names.iter().map(named).collect() }
}

/// The name of Debian's kernel of this kind: one that is here, or fetched now.
fn stock(wanted: Stock) -> Result<String> {
    let here = kernel::list()?.into_iter().map(|kernel| kernel.name).find(|name| wanted.is_it(name));
    here.map_or_else(|| kernel::fetch(wanted.package).map(|kernel| kernel.name), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_case_is_refused_with_those_there_are() {
        let error = chosen(&["xfz".to_owned()]).err().unwrap().to_string();

        assert!(error.contains("legal are plain, old-kernel"), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), CASES.len());
    }
}
