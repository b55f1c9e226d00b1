//! `majorfault reproduce`: the published experiments, run here, with a verdict on every claim.

mod sessions;

use self::sessions::{SessionPlace, SessionsAsked, places};
use crate::command::guest::{self, GuestPlace};
use crate::command::{Bars, Exit, stop_flag};
use crate::experiment::{self, Entry, Experiment, Judge, Making, Planned, Scale, Setting, Store};
use crate::machine;
use crate::outputs::{Force, Kind, Output, Outputs, Records};
use crate::place::{self, guest::Spec};
use crate::record::{Cause, Cell, Outcome, Record};
use crate::report::{ledger, ledger_json};
use crate::run;
use crate::scratch;
use crate::session;
use majorfault::{Bytes, Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Repeat published experiments here, with a verdict on every claim
///
/// IDS are experiments, S0 (TLB shootdowns), S1 (alignment), S2 (mmap in a database), S3 (prefault), S4 (access policies),
/// or single rows such as S2.collapse. All are run unless you name some.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments or rows of them
    ids: Vec<String>,
    /// List what there is, without running it
    #[arg(long)]
    list: bool,
    /// How much is run
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Runs of each cell [default: as many as the scale has]; fewer than six decide only facts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    repetitions: Option<u32>,
    /// Directory on a disk for data [default: /var/tmp]. May be repeated, each on another device: striped data (S2.seq10) has
    /// a file in each
    #[arg(long, alias = "directory")]
    dir: Vec<PathBuf>,
    /// Whole sessions to make, one after another; the ledger is over all of them
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=99),
          conflicts_with_all = ["from", "list"])]
    sessions: u32,
    /// Append the records to this file; with --sessions to FILE-1, FILE-2, …, the number before the ending
    /// [default: one for each session below ~/.local/state/majorfault/runs]
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Continue an interrupted session: only the runs that its records lack are made, and added to them. With --sessions
    /// the name without the number: sessions that are whole stay as they are, those that are missing are made
    #[arg(long, value_name = "RECORDS", conflicts_with = "records")]
    resume: Option<PathBuf>,
    /// Runs that these records have are not made: what --resume is to a guest
    #[arg(long, value_name = "RECORDS", hide = true, conflicts_with = "resume")]
    earlier: Option<PathBuf>,
    /// Judge these records instead of running anything, each session separately; gzip-compressed files are read as well
    #[arg(long, value_name = "RECORDS", num_args = 1.., conflicts_with_all = ["resume", "records"])]
    from: Vec<PathBuf>,
    /// Show the verdict of each session, and on how many rows all sessions agree
    #[arg(long, conflicts_with_all = ["markdown", "report", "csv"])]
    agreement: bool,
    /// Print one JSON document; with --list, the rows and the tests that judge them
    #[arg(long)]
    json: bool,
    /// The ledger as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write an HTML page with a section for each experiment
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write every run as a line of comma-separated values
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    place: GuestPlace,
    #[command(flatten)]
    force: Force,
    /// Show no progress and no remarks on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let chosen = experiment::chosen(&args.ids)?;
    let stop = stop_flag()?;
    if args.list {
        return list(&args);
    }
    // Before an hour of measuring, not after it.
    if args.agreement && args.from.is_empty() && args.sessions < 2 {
        return Err(one_session());
    }
    let mut outputs = Outputs::new(args.force);
    outputs.reads("the file of records", &args.from);
    let kept = if args.from.is_empty() { places(asked(&args), &mut outputs)? } else { Vec::new() };
    let tables = Tables::claimed(&args, &mut outputs)?;
    let records = match args.from.as_slice() {
        [] => measure_all(&args, &chosen, kept, &stop)?,
        from => session::load(from)?,
    };
    if args.agreement && experiment::sessions(&records).len() < 2 && !stop.load(Ordering::Relaxed) {
        return Err(one_session());
    }
    let entries = experiment::ledger(&records, &args.ids);
    tables.write(&entries, &records, stop.load(Ordering::Relaxed))?;
    show(&args, &entries, &records)?;
    Ok(exit(&records, &entries, &stop))
}

/// The files that the ledger is written to.
struct Tables {
    page: Option<Output>,
    csv: Option<Output>,
}

impl Tables {
    fn claimed(args: &Args, outputs: &mut Outputs) -> Result<Tables> {
        let page = outputs.claim_named("--report", Kind::Page, args.report.as_deref())?;
        let csv = outputs.claim_named("--csv", Kind::Csv, args.csv.as_deref())?;
        Ok(Tables { page, csv })
    }

    /// Where the session was `stopped`, earlier tables stay.
    fn write(&self, entries: &[Entry], records: &[Record], stopped: bool) -> Result<()> {
        let Tables { page, csv } = self;
        if let Some(csv) = csv {
            csv.write_unless_stopped(stopped, || Ok(ledger::csv(records)))?;
        }
        if let Some(page) = page {
            page.write_unless_stopped(stopped, || crate::report::ledger_page::page(entries, records))?;
        }
        Ok(())
    }
}

fn list(args: &Args) -> Result<Exit> {
    let entries = experiment::ledger(&[], &args.ids);
    if args.json {
        return print(&format!("{:#}\n", ledger_json::rows(&entries))).map(|()| Exit::Ok);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(100);
    for Entry { row, .. } in &entries {
        table.add_row([row.id, row.says, row.published]);
    }
    print(&format!("{table}\n"))?;
    Ok(Exit::Ok)
}

fn print(text: &str) -> Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io("write the ledger", "standard output", error))
        }
        _ => Ok(()),
    }
}

fn one_session() -> Error {
    Error::Invalid(
        "agreement needs the records of two sessions; name the files of both after --from, or make them with --sessions"
            .to_owned(),
    )
}

fn asked(args: &Args) -> SessionsAsked<'_> {
    SessionsAsked { count: args.sessions, records: args.records.as_deref(), resume: args.resume.as_deref() }
}

/// Makes the sessions one after another; the records of all.
fn measure_all(
    args: &Args,
    chosen: &[&'static Experiment],
    places: Vec<SessionPlace>,
    stop: &AtomicBool,
) -> Result<Vec<Record>> {
    let first = places.first().map(|place| place.records.path().to_owned()).unwrap_or_default();
    let mut records = Vec::new();
    for (number, mut place) in (1..).zip(places) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if args.sessions > 1 && !args.quiet {
            eprintln!("session {number} of {}", args.sessions);
        }
        let made = match &args.place.place {
            Some(guest) => in_guest(guest, &mut place, stop, args.quiet),
            None => measure(args, chosen, place, stop),
        };
        match made {
            Ok(made) => records.extend(made),
            Err(error) => {
                say_how_to_go_on(&first, args.sessions);
                return Err(error);
            }
        }
    }
    if stop.load(Ordering::Relaxed) && !args.quiet {
        say_how_to_go_on(&first, args.sessions);
    }
    Ok(records)
}

/// Says by which words a session that ended half-way is continued, where there are records of it.
fn say_how_to_go_on(first: &Path, count: u32) {
    if std::fs::metadata(first).is_ok_and(|meta| meta.len() > 0) {
        eprintln!("to go on: the same command with {} instead of --records", sessions::resuming(first, count));
    }
}

/// One session in a guest: what it had before, and what came back.
fn in_guest(guest: &Spec, place: &mut SessionPlace, stop: &AtomicBool, quiet: bool) -> Result<Vec<Record>> {
    let mut records = earlier(place.resumed.as_deref())?;
    records.extend(guest::run(guest, place.resumed.as_deref(), stop, &mut place.records, quiet)?.0);
    Ok(records)
}

/// What a session had before.
///
/// Errors: those of [`session::load`].
fn earlier(resumed: Option<&Path>) -> Result<Vec<Record>> {
    resumed.map_or(Ok(Vec::new()), |path| session::load(&[path.to_owned()]))
}

/// Runs every experiment, one after another; its data is gone when the next begins.
fn measure(args: &Args, chosen: &[&'static Experiment], place: SessionPlace, stop: &AtomicBool) -> Result<Vec<Record>> {
    let SessionPlace { name, records: mut kept, resumed } = place;
    place::clean_stale();
    let dir = room(args, chosen)?;
    let others = other_devices(args)?;
    std::iter::once(&dir).chain(&others).for_each(|dir| experiment::clean_stale(dir));
    let mut records = earlier(resumed.as_deref().or(args.earlier.as_deref()))?;
    let name = records.last().and_then(|last| goes_on(last, args.scale)).unwrap_or(name);
    let bars = Bars::new(args.quiet);
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    for experiment in chosen {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut store = Store::default();
        let mut setting = Setting {
            scale: args.scale,
            cpus,
            dir: &dir,
            others: &others,
            stop,
            store: &mut store,
            making: Making::Nothing,
        };
        let is_begun =
            records.iter().any(|record| cell_of(record).is_some_and(|cell| cell.experiment == experiment.id));
        let cells = if is_begun { (experiment.cells)(&mut setting)? } else { Vec::new() };
        if is_begun && Earlier::of(&records).has_all(experiment, &cells, args.scale, repetitions(args, experiment)) {
            continue;
        }
        setting.making = Making::Files;
        let making = bars.spinner(&format!("{}: making its data in {}", experiment.id, dir.display()));
        let planned = (experiment.cells)(&mut setting)?;
        making.finish_and_clear();
        run_cells(args, experiment, &planned, &mut records, &mut kept, &bars, (&name, stop))?;
    }
    if !args.quiet {
        eprintln!("records: {}", kept.path().display());
    }
    Ok(records)
}

fn cell_of(record: &Record) -> Option<&Cell> {
    record.cell.as_ref()
}

/// How often each cell is run.
fn repetitions(args: &Args, experiment: &Experiment) -> u32 {
    args.repetitions.unwrap_or_else(|| (experiment.repetitions)(args.scale))
}

/// The runs that need not be made again.
struct Earlier(Vec<(Cell, u32)>);

impl Earlier {
    fn of(records: &[Record]) -> Earlier {
        let done = records.iter().filter(|record| record.outcome == Outcome::Done);
        // What others disturbed is made again.
        let stands = done.filter(|record| record.spoilers().all(|gate| gate.by == Cause::Setup));
        Earlier(stands.filter_map(|record| Some((record.cell.clone()?, record.trial.repetition))).collect())
    }

    fn has(&self, cell: &Cell, repetition: u32) -> bool {
        self.0.iter().any(|(done, which)| done == cell && *which == repetition)
    }

    /// Whether an experiment is complete.
    fn has_all(&self, experiment: &Experiment, planned: &[Planned], scale: Scale, repetitions: u32) -> bool {
        let cell = |it: &Planned| Cell { name: it.name.clone(), ..unnamed(experiment, scale) };
        planned.iter().map(cell).all(|cell| (0..repetitions).all(|repetition| self.has(&cell, repetition)))
    }
}

fn unnamed(experiment: &Experiment, scale: Scale) -> Cell {
    Cell { experiment: experiment.id.to_owned(), name: String::new(), scale: scale.name().to_owned() }
}

/// The session that a new run belongs to after this record: the same where program, kernel and scale are the same.
fn goes_on(last: &Record, scale: Scale) -> Option<String> {
    let is_same = last.tool == run::tool()
        && last.machine.kernel == machine::look(&[]).kernel
        && last.cell.as_ref().is_some_and(|cell| cell.scale == scale.name());
    is_same.then(|| last.session.clone())
}

fn run_cells(
    args: &Args,
    experiment: &Experiment,
    planned: &[Planned],
    records: &mut Vec<Record>,
    kept: &mut Records,
    bars: &Bars,
    (name, stop): (&str, &AtomicBool),
) -> Result<()> {
    let files: Vec<PathBuf> = planned.first().map(|first| first.trial.data.files.clone()).unwrap_or_default();
    let session = run::Session { name: name.to_owned(), machine: machine::look(&files), stop };
    let repetitions = repetitions(args, experiment);
    let bar = bars.runs(planned.len() as u64 * u64::from(repetitions));
    let cell = unnamed(experiment, args.scale);
    let earlier = Earlier::of(records);
    let is_done = |cell: &Cell, repetition: u32| earlier.has(cell, repetition);
    session::grid(&cell, planned, repetitions, &session, is_done, |record| {
        bar.inc(1);
        let Some(record) = record else { return Ok(()) };
        let cell = record.cell.as_ref().map(|cell| cell.name.clone()).unwrap_or_default();
        bar.set_message(format!("{} {cell}", experiment.id));
        kept.add(&record)?;
        records.push(record);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// The directory for data, with room for the largest experiment, and memory for its files in memory.
fn room(args: &Args, chosen: &[&'static Experiment]) -> Result<PathBuf> {
    let needed = chosen.iter().map(|experiment| (experiment.room)(args.scale)).max().unwrap_or_default();
    let dir = scratch::directory(args.dir.first().map(PathBuf::as_path), Bytes(needed.0.max(1 << 20)))?;
    let available = machine::available_memory();
    if let Some(experiment) = chosen.iter().find(|experiment| (experiment.memory)(args.scale).0 > available.0) {
        return Err(Error::Invalid(format!(
            "{} needs {} of free memory at scale {}, and {} are free; choose a smaller --scale, or free memory",
            experiment.id,
            (experiment.memory)(args.scale).rounded(),
            args.scale.name(),
            available.rounded()
        )));
    }
    std::path::absolute(&dir).map_err(|error| Error::io("find the directory", Path::new("."), error))
}

/// The directories but the first, each on a device of its own.
fn other_devices(args: &Args) -> Result<Vec<PathBuf>> {
    let mut devices: Vec<(String, &Path)> = Vec::new();
    for dir in &args.dir {
        let device = machine::look(std::slice::from_ref(dir)).device;
        if let Some((_, other)) = devices.iter().find(|(known, _)| *known == device && args.dir.len() > 1) {
            return Err(Error::Invalid(format!(
                "--dir {} and {} lie on the same device ({device}); name one directory on each device",
                other.display(),
                dir.display()
            )));
        }
        devices.push((device, dir));
    }
    let whole = |dir: &PathBuf| {
        let dir = scratch::directory(Some(dir), Bytes::gib(1))?;
        std::path::absolute(&dir).map_err(|error| Error::io("find the directory", &dir, error))
    };
    args.dir.iter().skip(1).map(whole).collect()
}

fn show(args: &Args, entries: &[Entry], records: &[Record]) -> Result<()> {
    match (args.agreement, args.json, args.markdown) {
        (true, true, _) => return print(&format!("{:#}\n", ledger_json::agreement(entries, records))),
        (_, true, _) => return print(&format!("{:#}\n", ledger_json::document(entries, records))),
        (.., true) => return print(&ledger::markdown(entries, records)),
        _ => {}
    }
    let mut text = Vec::new();
    let printed = match args.agreement {
        true => ledger::print_agreement(entries, records, &mut text),
        false => ledger::print(entries, records, &mut text),
    };
    printed.map_err(|error| Error::io("write the ledger", "memory", error))?;
    print(&String::from_utf8_lossy(&text))
}

/// A verdict is an answer, whichever it is. Without any figure there is none.
fn exit(records: &[Record], entries: &[Entry], stop: &AtomicBool) -> Exit {
    // A command that is named answers only where nothing was to be measured.
    let is_named = |entry: &&Entry| matches!(entry.row.judge, Judge::Built(..) | Judge::NotBuilt(_));
    let is_measured = !entries.iter().all(|entry| is_named(&entry));
    let answered = |entry: &Entry| entry.judged.verdict.is_answer() && !(is_measured && is_named(&entry));
    match () {
        () if stop.load(Ordering::Relaxed) => Exit::Interrupted,
        () if entries.iter().any(answered) => Exit::Ok,
        () if records.iter().any(|record| record.spoiled().next().is_some()) => Exit::Invalid,
        () => Exit::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn a_session_goes_on_with_the_same_program_kernel_and_scale_only() {
        let kernel = machine::look(&[]).kernel;
        let last = Run::of("mmap").session("A").edit(|record| {
            record.tool = run::tool();
            record.machine.kernel = kernel;
            let [experiment, name, scale] = ["S0", "mmap", "quick"].map(str::to_owned);
            record.cell = Some(Cell { experiment, name, scale });
        });
        let older = last.clone().edit(|record| record.tool = "majorfault 0.0.9 (abc1234)".to_owned());
        let elsewhere = last.clone().edit(|record| record.machine.kernel = "2.6.32".to_owned());

        assert_eq!(goes_on(&last.clone().record(), Scale::Quick), Some("A".to_owned()));
        assert_eq!(goes_on(&last.record(), Scale::Standard), None);
        assert_eq!(goes_on(&older.record(), Scale::Quick), None);
        assert_eq!(goes_on(&elsewhere.record(), Scale::Quick), None);
    }

    #[test]
    fn an_experiment_is_complete_where_each_run_of_each_cell_stands() {
        let hints = experiment::chosen(&["S4.dimmap".to_owned()]).unwrap()[0];
        let (dir, stop, mut store) = (tempfile::tempdir().unwrap(), AtomicBool::new(false), Store::default());
        let (dir, making) = (dir.path(), Making::Nothing);
        let mut setting =
            Setting { scale: Scale::Quick, cpus: 2, dir, others: &[], stop: &stop, store: &mut store, making };
        let planned = (hints.cells)(&mut setting).unwrap();
        let done = |it: &Planned| {
            Run::of("mmap").edit(|record| {
                record.cell = Some(Cell { name: it.name.clone(), ..unnamed(hints, Scale::Quick) });
            })
        };
        let all: Vec<Record> = planned.iter().map(|it| done(it).record()).collect();
        let disturbed =
            [all[1..].to_vec(), vec![done(&planned[0]).edit(|record| record.outcome = Outcome::Interrupted).record()]];
        let has_all = |records: &[Record]| {
            Earlier::of(records).has_all(hints, &planned, Scale::Quick, (hints.repetitions)(Scale::Quick))
        };

        assert!(has_all(&all));
        assert!(!has_all(&all[1..]) && !has_all(&disturbed.concat()));
        assert!(std::fs::read_dir(dir).unwrap().next().is_none(), "files were made for what is only looked at");
    }

    #[test]
    fn a_session_whose_runs_are_all_refused_is_no_answer() {
        let run = |turn: u32| {
            let [experiment, name, scale] = ["S0", "mmap", "quick"].map(str::to_owned);
            let cell = Cell { experiment, name, scale };
            Run::of("mmap").repetition(turn).edit(|record| record.cell = Some(cell))
        };
        let ends = |run: Run, ids: &[&str]| {
            let records = [run.record()];
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            exit(&records, &experiment::ledger(&records, &ids), &AtomicBool::new(false))
        };

        assert_eq!(ends(run(0).spoiled("600 MiB were cached"), &["S0"]), Exit::Invalid);
        assert_eq!(ends(run(0), &["S0"]), Exit::Ok);
        assert_eq!(ends(run(0), &["S4.systems"]), Exit::Ok);
    }
}
