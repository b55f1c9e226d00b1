//! `majorfault doctor`: watches a process for some seconds and reports what is wrong with its file access.

mod exporter;
mod live;
mod several;

use crate::command::launched::{Launched, Whom};
use crate::command::{Exit, stop_flag, top};
use crate::doctor::tell::{self, StackFormat, endpoint};
use crate::doctor::{self, Finding, Severity};
use crate::outputs::{Force, Kind, Output, Outputs};
use crate::prove;
use crate::watch::evidence::Evidence;
use crate::watch::gather;
use crate::watch::target::WatchTarget;
use clap::ValueEnum;
use majorfault::observe::sampler::Stacks;
use majorfault::{Error, Nanos, Result};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to watch by default; a live screen has to follow what happens.
const ONCE: Nanos = Nanos(5_000_000_000);
const FIRST_LOOK: Duration = Duration::from_secs(1);
const ROUND: Nanos = Nanos(2_000_000_000);

/// Watch a running program, with the processes that it starts, and report what is wrong with its file access
///
/// The doctor only reads: it never stops or changes the program. Your own programs need no further rights where
/// kernel.perf_event_paranoid is 2 or less.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Watch the ten processes of this machine (or of the group that is named, too) that lose most time in file access, found by a first
    /// look of a second
    #[arg(long, group = "whom", conflicts_with_all = ["pid", "program", "prove"])]
    all: bool,
    /// How long to watch, or how long each round is [default: 5s, with --watch 2s]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
    /// Also read smaps: advice in force and page sizes (may stall the program for milliseconds for each mapped GiB)
    #[arg(long)]
    deep: bool,
    /// Also see advice call by call (madvise, posix_fadvise, readahead); needs root, and each system call on the machine takes
    /// some 0.1 us longer meanwhile
    #[arg(long)]
    advice: bool,
    /// Prove the findings: replay the accesses seen, as they are and with the remedy, in turns within the program's memory limit,
    /// and show the gain; drops the file from the page cache, except pages that the program has mapped
    #[arg(long)]
    prove: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Exit with code 1 if a finding has this severity or a worse one
    #[arg(long, value_enum, value_name = "SEVERITY")]
    fail_on: Option<Least>,
    /// Also write a page with the findings, heat maps of the files and a timeline of faults
    #[arg(long, value_name = "PATH.html", conflicts_with_all = ["watch", "openmetrics", "textfile"])]
    report: Option<PathBuf>,
    /// Also write who waits: stacks of calls by file, for flame graphs (PATH.folded) or pprof (PATH.pb.gz); needs programs that keep frame
    /// pointers, and costs each fault another 0.2 to 1 us
    #[arg(long, value_name = "PATH", conflicts_with_all = ["watch", "openmetrics", "textfile"])]
    stacks: Option<PathBuf>,
    /// Show the findings again after each round, until SIGINT or the end of the process
    #[arg(long, conflicts_with_all = ["json", "prove"])]
    watch: bool,
    /// Serve metrics (OpenMetrics text) at this loopback port, or address, until SIGINT or the end of the process
    #[arg(long, value_name = "ADDR", value_parser = endpoint::address, conflicts_with_all = ["json", "prove"])]
    openmetrics: Option<SocketAddr>,
    /// Write the same metrics to this file after each round, for node_exporter (PATH ends with .prom)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["json", "prove"])]
    textfile: Option<PathBuf>,
    /// With --all and metrics: series of files, too; their paths may tell what others should not know
    #[arg(long, requires = "all")]
    file_labels: bool,
    #[command(flatten)]
    force: Force,
}

/// The lowest severity that makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Least {
    /// Any finding
    Note,
    /// Something costs time or memory now
    Warning,
    /// Something fails, or most of the time is lost
    Critical,
}

impl From<Least> for Severity {
    fn from(least: Least) -> Severity {
        match least {
            Least::Note => Severity::Note,
            Least::Warning => Severity::Warning,
            Least::Critical => Severity::Critical,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Files { page, textfile, stacks } = Files::claimed(&args)?;
    let Args { whom, all, length, deep, advice, prove, json, fail_on, watch, openmetrics, file_labels, .. } = args;
    let length = length.unwrap_or(if watch { ROUND } else { ONCE });
    if length.0 == 0 {
        return Err(Error::Invalid("--for 0 watches nothing; watch for 1s or more".to_owned()));
    }
    let stop = stop_flag()?;
    let outputs = live::LiveOutputs { watch, openmetrics, textfile };
    if all && !watch && outputs.is_any() {
        let wanted = top::wanted(whom.group().as_ref())?;
        let worst = exporter::run(wanted, Duration::from_nanos(length.0), outputs, file_labels, &stop)?;
        return Ok(exit(fail_on, worst));
    }
    let name = whom.program_name();
    let recorded = if stacks.is_some() { Stacks::Recorded } else { Stacks::LeftOut };
    // The program's output goes to standard error, so that the findings stay readable.
    let output = std::io::stderr().as_fd().try_clone_to_owned().map_or(Stdio::null(), Stdio::from);
    let (mut launched, target) = match all {
        true => {
            let worst = top::worst_of(whom.group().as_ref(), FIRST_LOOK, &stop)?;
            (Launched::default(), worst.with_stacks(recorded))
        }
        false => whom.launch_into(output, recorded)?,
    };
    let length = Duration::from_nanos(length.0);
    let options = gather::WatchOptions { length, deep: deep || prove, stacks: stacks.is_some(), advice };
    let worst = match outputs.is_any() {
        true => live::run(target, options, outputs, !all, &stop)?,
        false => {
            let is_ours = launched.is_ours();
            once(target, options, Once { prove, json, page, stacks, is_ours, together: !all }, &stop)?
        }
    };
    launched.tell_running(&name.unwrap_or_default(), "");
    Ok(exit(fail_on, worst))
}

/// Whether what was found is bad enough for exit code 1.
fn exit(fail_on: Option<Least>, worst: Option<Severity>) -> Exit {
    let fails = fail_on.is_some_and(|least| worst.is_some_and(|worst| worst >= least.into()));
    if fails { Exit::No } else { Exit::Ok }
}

/// The output files, claimed before the watch.
struct Files {
    page: Option<Output>,
    textfile: Option<Output>,
    stacks: Option<(Output, StackFormat)>,
}

impl Files {
    fn claimed(args: &Args) -> Result<Files> {
        let mut outputs = Outputs::new(args.force);
        args.whom.is_input_of(&mut outputs);
        let page = outputs.claim_named("--report", Kind::Page, args.report.as_deref())?;
        let textfile = outputs.claim_named("--textfile", Kind::Metrics, args.textfile.as_deref())?;
        let format = args.stacks.as_deref().map(StackFormat::of).transpose()?;
        let stacks = outputs.claim_named("--stacks", Kind::Stacks, args.stacks.as_deref())?.zip(format);
        Ok(Files { page, textfile, stacks })
    }
}

/// The outputs of one round.
struct Once {
    /// Whether the accesses are replayed.
    prove: bool,
    /// JSON instead of text.
    json: bool,
    /// The page.
    page: Option<Output>,
    /// The stacks of calls.
    stacks: Option<(Output, StackFormat)>,
    /// We started the program, so its end is not a failure.
    is_ours: bool,
    /// The processes are one service.
    together: bool,
}

/// A process and what was found about it.
pub(super) type Judged = (Evidence, Vec<Finding>);

/// Judges the processes: as one service where they belong `together` (a tree, a group), else each on its own. What was found of a
/// service stands with the process that waited longest.
pub(super) fn judged(all: Vec<Evidence>, together: bool) -> Vec<Judged> {
    if !together {
        let judge = |evidence: Evidence| {
            let findings = doctor::examine(std::slice::from_ref(&evidence));
            (evidence, findings)
        };
        return all.into_iter().map(judge).collect();
    }
    let waited = |evidence: &Evidence| evidence.faults.as_ref().map_or(0, |faults| faults.waited_ns);
    let mut findings = doctor::examine(&all);
    // The one that was named where nothing was found, or of equal ones.
    let worst = (0..all.len()).rev().max_by_key(|index| waited(&all[*index]));
    let longest = if findings.is_empty() { Some(0) } else { worst };
    let of = |index| if Some(index) == longest { std::mem::take(&mut findings) } else { Vec::new() };
    let found: Vec<Vec<Finding>> = (0..all.len()).map(of).collect();
    all.into_iter().zip(found).collect()
}

/// The worst severity that was found.
pub(super) fn worst(judged: &[Judged]) -> Option<Severity> {
    judged.iter().flat_map(|(_, findings)| findings).map(|finding| finding.severity).max()
}

/// Watches once and prints; returns the worst severity found.
fn once(target: WatchTarget, options: gather::WatchOptions, once: Once, stop: &AtomicBool) -> Result<Option<Severity>> {
    let Once { prove, json, page, stacks, is_ours, together } = once;
    let named = target.named();
    let all = gather::gather(target, options, stop)?;
    let mut judged = judged(all, together);
    let proven = |(evidence, findings): &Judged| prove::prove(std::slice::from_ref(evidence), findings, stop);
    let proofs = prove.then(|| judged.iter().flat_map(proven).collect::<Vec<_>>());
    judged.iter_mut().for_each(|(evidence, findings)| prove::recall(std::slice::from_ref(evidence), findings));
    let mut text = Vec::new();
    let written = if json {
        let mut document = several::document(&judged, together);
        if let Some(proofs) = &proofs {
            document["proofs"] = prove::document(proofs);
        }
        writeln!(text, "{document:#}")
    } else {
        let printed = several::print(&judged, together, &mut text);
        match &proofs {
            Some(proofs) => printed.and_then(|()| tell::print_proofs(&prove::sentences(proofs), &mut text)),
            None => printed,
        }
    };
    let written = written.and_then(|()| anstream::stdout().write_all(&text));
    written.map_err(|error| Error::io("write the findings", "standard output", error))?;
    if let Some(page) = &page {
        let proofs = proofs.as_deref().map(prove::sentences).unwrap_or_default();
        let (evidence, findings) = several::most_telling(&judged, together);
        let text = || tell::page(evidence, findings, &proofs);
        if page.write_unless_stopped(stop.load(Ordering::Relaxed), text)? {
            eprintln!("majorfault: the report is {}", page.path().display());
        }
    }
    if let Some((output, format)) = &stacks {
        tell_stacks(&judged, output, *format)?;
    }
    if let Some(pid) = named.filter(|_| !is_ours && judged.iter().all(|(evidence, _)| evidence.ended)) {
        return Err(Error::Invalid(format!(
            "process {pid} ended after {:.1} s of watching; the findings cover that time",
            judged[0].0.watched.as_secs_f64()
        )));
    }
    Ok(worst(&judged))
}

/// Writes who waited, and says how much of it is there.
fn tell_stacks(judged: &[Judged], output: &Output, format: StackFormat) -> Result<()> {
    let processes: Vec<&Evidence> = judged.iter().map(|(evidence, _)| evidence).collect();
    let watched = processes.iter().map(|evidence| evidence.watched).max().unwrap_or_default();
    output.write(format.encode(&processes, watched))?;
    let stacks = || processes.iter().flat_map(|evidence| &evidence.stacks);
    let waited = Nanos(stacks().map(|stack| stack.waited_ns).sum());
    let path = output.path().display();
    match stacks().count() {
        0 => eprintln!("majorfault: no fault in a file was seen; {path} is empty"),
        count => eprintln!("majorfault: {count} stacks, which waited {waited}, are in {path}"),
    }
    Ok(())
}
