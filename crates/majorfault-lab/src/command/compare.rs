//! `majorfault compare`: the access methods side by side on one workload, with a verdict.

use crate::command::contests;
use crate::command::guest;
use crate::command::jobs;
use crate::command::options::{CompareOptions, Memory};
use crate::command::programs::{self, Conditions, ProgramOptions};
use crate::command::{Bars, Exit, stop_flag};
use crate::data::PAGE;
use crate::lineup;
use crate::machine;
use crate::outputs::{self, Force, Kind, Outputs, Records};
use crate::place::guest::Spec;
use crate::place::{self, MemoryLimit};
use crate::record::{Outcome, Record};
use crate::report::{self, conditions, terminal, terminal::Screen};
use crate::run;
use crate::scratch::{self, Scratch, Wanted};
use crate::session;
use crate::trial::{Arm, CacheState, Data, Direction, Trial};
use clap::ArgMatches;
use console::Term;
use majorfault::{Bytes, Error, Layout, Result, Target};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Show which access method is fastest for a file and a workload here, and why.
///
/// Makes a data file on a disk and removes it at the end, unless you name a file. Your file is only read.
#[derive(clap::Args)]
pub struct Args {
    /// The file to read; several are striped into one address space; one named *.fio is a job file of fio
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: CompareOptions,
    #[command(flatten)]
    own: ProgramOptions,
    #[command(flatten)]
    output: OutputOptions,
    /// Append the records to this file [default: one for each session below ~/.local/state/majorfault/runs]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    records: Option<PathBuf>,
    /// Show no progress and no remarks on standard error
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    /// What was typed of the options that a job has, by fio's names.
    #[arg(skip)]
    typed: Vec<(String, Option<String>)>,
}

impl Args {
    /// The job file, where the only file named is one.
    pub fn job_file(&self) -> Option<&Path> {
        match self.files.as_slice() {
            [only] if only.extension().is_some_and(|extension| extension == "fio") => Some(only),
            _ => None,
        }
    }

    /// The same, knowing which options were typed and are not only at their defaults.
    pub fn with_typed(mut self, matches: Option<&ArgMatches>) -> Args {
        self.typed = matches.map(jobs::typed).unwrap_or_default();
        self.typed.extend(self.options.set.iter().map(|word| match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        }));
        self
    }
}

/// How results are shown.
#[derive(clap::Args, Clone, Debug)]
pub struct OutputOptions {
    /// One JSON document instead of the table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// How results are written
    #[arg(long, value_enum, default_value = "table", conflicts_with = "json", help_heading = "Output")]
    pub output_format: Format,
    /// Every note, in parts: on the timeline, why, advice, what could not be counted
    #[arg(long, short, conflicts_with = "json", help_heading = "Output")]
    pub verbose: bool,
    /// Write an HTML page with pictures
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

/// Form of the results on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for a terminal
    Table,
    /// One JSON document
    Json,
    /// The shape of fio's own JSON
    FioJson,
}

/// The data of a comparison: made here, or the user's.
struct Source {
    data: Data,
    /// Keeps made files alive.
    _made: Option<Scratch>,
}

/// Runs the subcommand.
pub fn run(mut args: Args) -> Result<Exit> {
    let stop = stop_flag()?;
    if !args.own.program.is_empty() {
        return of_program(args, &stop);
    }
    if args.job_file().is_some() || args.options.is_for_jobs() {
        return of_jobs(args, &stop);
    }
    let traced = args.options.traced()?;
    if let (Some(traced), true) = (&traced, args.files.is_empty()) {
        match &traced.path {
            Some(path) => args.files.push(PathBuf::from(path)),
            // Recorded in an address space without a name: one as long is made.
            None => args.options.size = args.options.size.or(Some(Bytes(traced.length))),
        }
    }
    let options = &args.options;
    let threads = traced.map_or(1, |traced| traced.threads.len().clamp(1, 64) as u32);
    check_words(&args)?;
    let name = session::name();
    let (page, mut kept) = outputs(&args, &name)?;
    if let Some(place) = &args.options.place.place {
        return in_guest(&args, place, &stop, kept, page.as_ref());
    }
    place::clean_stale();
    let bars = Bars::new(args.quiet);
    let (mut arms, workload, limits) = (options.arms()?, options.workload()?, options.limits()?);
    let baseline = options.baseline(&mut arms)?;
    let source = source(&args, &stop, &bars)?;
    let mut machine = machine::look(&source.data.files);
    let mut trial = Trial {
        data: source.data.clone(),
        workload,
        direction: options.direction(),
        arm: arms.first().cloned().ok_or_else(|| Error::Invalid("nothing to compare".to_owned()))?,
        block_bytes: options.block()?.0,
        threads: options.numjobs.unwrap_or(threads),
        iodepth: options.iodepth,
        limits,
        memory_bytes: None,
        cache: options.cache(),
        seed: options.randseed,
        interval_ns: options.interval_ns(limits.runtime_ns),
        repetition: 0,
        counts_hardware: options.hardware_counters,
        jobs: Vec::new(),
        stage: String::new(),
    };
    trial.memory_bytes = memory(options, &trial, &mut machine)?;
    let within = |arm: Arm| lineup::within(arm, &trial);
    let arms = arms.into_iter().map(within).collect::<Result<Vec<Arm>>>()?;
    let baseline = baseline.map(within).transpose()?;
    check_trial(&trial)?;
    let session = run::Session { name, machine, stop: &stop };
    let contests = contests::planned(options, &trial, &arms, baseline.as_ref());
    let records = contests::run(&contests, options, &session, &mut kept, &bars)?;
    if !args.quiet {
        eprintln!("records: {}", kept.path().display());
    }
    show(&records, &args.output, page.as_ref(), stop.load(Ordering::Relaxed))?;
    Ok(exit(&records, &stop))
}

/// The jobs of a job file, or one job of reads and writes.
fn of_jobs(args: Args, stop: &AtomicBool) -> Result<Exit> {
    let job_file = args.job_file().map(Path::to_owned);
    let asked = jobs::Asked { job_file, files: &args.files, typed: &args.typed, options: &args.options };
    let plan = jobs::StagePlan::of(&asked)?;
    let name = session::name();
    let mut outputs = Outputs::new(args.output.force);
    outputs.reads("the file under test", plan.existing());
    outputs.reads("the job file", &asked.job_file);
    let page = outputs.claim_named("--report", Kind::Page, args.output.report.as_deref())?;
    let mut kept = outputs.records("--records", args.records.as_deref(), &name)?;
    if let Some(place) = &args.options.place.place {
        return in_guest(&args, place, stop, kept, page.as_ref());
    }
    place::clean_stale();
    let bars = Bars::new(args.quiet);
    if !args.quiet {
        plan.told().iter().for_each(|told| eprintln!("note: {told}"));
    }
    let ready = plan.ready(stop, &bars)?;
    let command = conditions::as_typed(std::env::args_os().skip(1));
    let mut records = Vec::new();
    for stage in ready.stages()? {
        let machine = machine::look(&stage.trial.data.files);
        let session = run::Session { name: name.clone(), machine, stop };
        let told =
            |record: Record| Record { baseline: ready.baseline().cloned(), command: Some(command.clone()), ..record };
        records.extend(contests::turns(&stage, &session, &bars, told, |record| kept.add(record))?);
    }
    if !args.quiet {
        eprintln!("records: {}", kept.path().display());
    }
    show(&records, &args.output, page.as_ref(), stop.load(Ordering::Relaxed))?;
    Ok(exit(&records, stop))
}

/// The user's own program instead of our methods.
fn of_program(args: Args, stop: &AtomicBool) -> Result<Exit> {
    let Args { files, options, own, output, quiet, .. } = args;
    let memory = match options.memory {
        Some(Memory::Limit(limit)) => Some(limit),
        Some(Memory::Unlimited) | None => None,
    };
    let is_cold = match options.cache() {
        CacheState::Cold => true,
        CacheState::AsFound => false,
        other => {
            return Err(Error::Invalid(format!(
                "--cache {other}: a program is run cold or asis; --cache asis --warmup 1 runs it warm"
            )));
        }
    };
    let conditions =
        Conditions { files, is_cold, memory, runs: options.runs(), json: output.json, quiet, force: output.force };
    programs::run(own, conditions, stop)
}

/// The same in a guest, which makes its own data; the records are shown here.
fn in_guest(
    args: &Args,
    place: &Spec,
    stop: &AtomicBool,
    mut kept: Records,
    page: Option<&outputs::Output>,
) -> Result<Exit> {
    guest::without_files(&args.files)?;
    let (records, ended) = guest::run(place, None, stop, &mut kept, args.quiet)?;
    if records.is_empty() {
        return Ok(ended);
    }
    if !args.quiet {
        eprintln!("records: {}", kept.path().display());
    }
    show(&records, &args.output, page, stop.load(Ordering::Relaxed))?;
    Ok(exit(&records, stop))
}

/// The page and the records, claimed; neither may be what is measured or described by.
fn outputs(args: &Args, session: &str) -> Result<(Option<outputs::Output>, Records)> {
    let mut outputs = Outputs::new(args.output.force);
    let workload = args.options.workload()?;
    outputs.reads("the file under test", &args.files);
    outputs.reads("the workload's file", workload.given.values().filter(|value| Path::new(value).is_file()));
    let page = outputs.claim_named("--report", Kind::Page, args.output.report.as_deref())?;
    Ok((page, outputs.records("--records", args.records.as_deref(), session)?))
}

/// What can be refused before anything is made.
fn check_words(args: &Args) -> Result<()> {
    let options = &args.options;
    let writes = options.direction() == Direction::Write;
    if writes && !args.files.is_empty() && !options.allow_overwrite {
        return Err(Error::Invalid(
            "writing would destroy the content of the files named; leave them out to write to a made file, \
             or say --allow-overwrite"
                .to_owned(),
        ));
    }
    let block = options.block()?;
    if block.0 == 0 || block.0 > 1 << 30 {
        return Err(Error::Invalid(format!("--bs {block}: legal is 1 to 1g")));
    }
    if writes && !block.0.is_multiple_of(PAGE as u64) {
        return Err(Error::Invalid(format!("--bs {block}: writes are made of whole pages; legal are multiples of 4k")));
    }
    if args.files.is_empty() && !block.0.is_multiple_of(8) {
        return Err(Error::Invalid(format!("--bs {block}: made files are checked in words; legal are multiples of 8")));
    }
    Ok(())
}

/// What can be refused before anything runs: no room for one access.
fn check_trial(trial: &Trial) -> Result<()> {
    let files = trial.data.files.len();
    if files > 1
        && (trial.block_bytes > trial.data.stripe_bytes || !trial.data.stripe_bytes.is_multiple_of(trial.block_bytes))
    {
        return Err(Error::Invalid(format!(
            "--bs {} does not divide --stripe {}; an access must lie in one file",
            Bytes(trial.block_bytes),
            Bytes(trial.data.stripe_bytes)
        )));
    }
    let space = crate::workload::Space {
        length: trial.data.size_bytes,
        block: trial.block_bytes as usize,
        threads: trial.threads,
        thread: 0,
        seed: trial.seed,
    };
    (crate::workload::named(&trial.workload.name)?.plan)(&space, &trial.workload.given())?;
    let least = place::smallest_limit(trial);
    match trial.memory_bytes {
        Some(limit) if limit < least.0 => Err(Error::Invalid(format!(
            "--memory {}: too small to run in; this workload needs at least {} for its queue and itself",
            Bytes(limit),
            least.rounded()
        ))),
        _ => Ok(()),
    }
}

fn source(args: &Args, stop: &AtomicBool, bars: &Bars) -> Result<Source> {
    if args.files.is_empty() { made(&args.options, stop, bars) } else { given(&args.files, &args.options) }
}

fn given(files: &[PathBuf], options: &CompareOptions) -> Result<Source> {
    let layout = Layout {
        offset: options.offset,
        size: options.size,
        stripe: options.stripe,
        write: options.direction() == Direction::Write,
    };
    let target = Target::open(files, &layout)?;
    let in_memory = files.iter().find_map(|path| Some((path, scratch::in_memory(path)?)));
    if let (Some((path, name)), true) = (in_memory, matches!(options.cache(), CacheState::Cold | CacheState::Hot(_))) {
        return Err(Error::Invalid(format!(
            "{} lies in memory ({name}) and has no cold state; use --cache asis, or a file on a disk",
            path.display()
        )));
    }
    let data = Data {
        files: files.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect(),
        offset_bytes: options.offset.0,
        size_bytes: target.len(),
        stripe_bytes: options.stripe.0,
        content_seed: None,
    };
    Ok(Source { data, _made: None })
}

fn made(options: &CompareOptions, stop: &AtomicBool, bars: &Bars) -> Result<Source> {
    let size = options.size.unwrap_or(Bytes::gib(1));
    let dir = scratch::directory(options.dir.as_deref(), size)?;
    let wanted =
        Wanted { size, files: options.nrfiles.max(1) as usize, stripe: options.stripe, seed: options.randseed };
    let bar = bars.bytes(size.0, &format!("making {} of data in {}", size.rounded(), dir.display()));
    let made = Scratch::make(&dir, &wanted, stop, |written| bar.set_position(written))?;
    bar.finish_and_clear();
    let data = Data {
        files: made.paths(),
        offset_bytes: 0,
        size_bytes: size.0,
        stripe_bytes: options.stripe.0,
        content_seed: Some(options.randseed),
    };
    Ok(Source { data, _made: Some(made) })
}

/// The memory limit in force. Where nobody asked for one and none can be made, the reason goes into the machine's remarks
/// and so into the table.
///
/// Errors: Missing where the limit asked for cannot be put in force.
fn memory(options: &CompareOptions, trial: &Trial, machine: &mut crate::record::Machine) -> Result<Option<u64>> {
    let limit = match options.memory {
        Some(Memory::Unlimited) => return Ok(None),
        // What was asked for is put in force or refused: without it the answer may be the opposite.
        Some(Memory::Limit(limit)) => return MemoryLimit::create(limit).map(|_| Some(limit.0)).map_err(Error::Missing),
        None if trial.data.content_seed.is_some() => {
            let read_ahead = Bytes(machine.read_ahead_kb.unwrap_or(0) * 1024);
            Bytes((trial.data.size_bytes / 4).max(place::usual_limit(trial, read_ahead).0))
        }
        None => return Ok(None),
    };
    match MemoryLimit::create(limit) {
        Ok(_) => Ok(Some(limit.0)),
        Err(missing) => {
            let inherited = place::inherited_limit();
            let own = inherited.map_or("no limit", |_| "the limit it was started under");
            machine.remarks.push(format!("ran under {own} instead of {limit}: {missing}"));
            Ok(None)
        }
    }
}

/// Writes results as asked: on standard output and, where wanted, as a page; where the session was `stopped`, not over
/// another page.
pub fn show(records: &[Record], output: &OutputOptions, page: Option<&outputs::Output>, stopped: bool) -> Result<()> {
    let summary = report::Summary::of(records);
    let mut out = anstream::stdout().lock();
    let written = match (output.json, output.output_format) {
        (true, _) | (_, Format::Json) => writeln!(out, "{:#}", report::json::document(&summary, records)),
        (_, Format::FioJson) => writeln!(out, "{:#}", report::fio_json::document(records)),
        (_, Format::Table) => {
            let screen = &mut Screen { out: &mut out, width: width(), is_whole: output.verbose };
            report::terminal::print(&summary, screen)
        }
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Error::io("write the results", "standard output", error));
        }
        _ => {}
    }
    if let Some(page) = page {
        page.write_unless_stopped(stopped, || report::html::page(&summary))?;
    }
    Ok(())
}

/// Columns of the terminal; of a pipe the usual ones.
fn width() -> usize {
    let (_, columns) = Term::stdout().size();
    match std::io::stdout().is_terminal() {
        true => usize::from(columns).clamp(terminal::NARROW, terminal::WIDE),
        false => terminal::WIDTH,
    }
}

fn exit(records: &[Record], stop: &AtomicBool) -> Exit {
    if stop.load(Ordering::Relaxed) {
        return Exit::Interrupted;
    }
    let summary = report::Summary::of(records);
    let real = || records.iter().filter(|record| !record.is_control());
    let is_missing = |record: &Record| matches!(record.outcome, Outcome::Missing(_));
    let is_done = |record: &Record| record.outcome == Outcome::Done;
    match () {
        () if real().count() > 0 && real().all(is_missing) => Exit::Unsupported,
        () if real().count() > 0 && !real().any(is_done) && real().all(|record| record.spoiled().next().is_none()) => {
            Exit::No
        }
        () if summary.groups.iter().all(report::Group::is_valid) => Exit::Ok,
        () => Exit::Invalid,
    }
}
