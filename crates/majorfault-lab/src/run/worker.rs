//! The process that runs one trial: prepares the cache, opens, visits, closes, and says so at each step.
//!
//! It reads its order and its words from the watcher's pipe and waits between phases, outside the clock, while the
//! watcher reads the counters.

use crate::data::{MadeContent, PAGE};
use crate::place::child::{self, LOST};
use crate::procedure::{self, ProcedureReport, Stage};
use crate::record::{Answer, CacheEvidence, Latency, Outcome, Timeline};
use crate::run::check::{self, Check};
use crate::run::drive::{Driven, drive};
use crate::run::jobs;
use crate::run::message::{Assignment, Ended, Said, Signal};
use crate::run::meter::{Interval, Until, buckets};
use crate::run::page_cache;
use crate::trial::{Arm, Choice, Direction, Trial};
use crate::workload::Space;
use majorfault::access::{Class, Opened, Reader};
use majorfault::sys::clock::monotonic;
use majorfault::sys::{cache, read};
use majorfault::{Error, Extent, Layout, Nanos, Result, Target, methods, prefetch};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// The worker's ends of the pipes.
struct Line<W> {
    words: Receiver<Signal>,
    output: W,
}

impl<W: Write> Line<W> {
    fn say(&mut self, said: &Said) {
        let sent = serde_json::to_writer(&mut self.output, said).is_ok() && writeln!(self.output).is_ok();
        if !sent || self.output.flush().is_err() {
            std::process::exit(LOST);
        }
    }

    /// Waits for the watcher's word; Stop is remembered in the flag and lets go on as well.
    fn wait(&mut self) {
        if self.words.recv().is_err() {
            std::process::exit(LOST);
        }
    }
}

/// Runs the order that comes in through `input` and reports through `output`. Where the order names a program, this
/// process becomes it, and the call returns only if that fails.
pub fn serve(mut input: impl BufRead + Send + 'static, output: impl Write) {
    child::die_with_parent();
    let mut first = String::new();
    let order: Assignment = match input.read_line(&mut first).map(|_| serde_json::from_str(&first)) {
        Ok(Ok(order)) => order,
        _ => {
            eprintln!("majorfault: this subcommand is for majorfault's own use; it expects an order on standard input");
            std::process::exit(2);
        }
    };
    static STOP: AtomicBool = AtomicBool::new(false);
    let (sender, words) = channel();
    std::thread::spawn(move || {
        for line in input.lines().map_while(std::result::Result::ok) {
            let Ok(word) = serde_json::from_str::<Signal>(&line) else { break };
            if word == Signal::Stop {
                STOP.store(true, Ordering::Relaxed);
            }
            if sender.send(word).is_err() {
                return;
            }
        }
        // The watcher closed the pipe: end the visit rather than run on unseen.
        STOP.store(true, Ordering::Relaxed);
    });
    let mut line = Line { words, output };
    let ended = work(&order, &STOP, &mut line).unwrap_or_else(failed);
    line.say(&Said::Done(Box::new(ended)));
}

fn failed(error: Error) -> Ended {
    Ended::without_figures(match error {
        Error::Missing(missing) => Outcome::Missing(missing.into()),
        other => Outcome::Failed(other.to_string()),
    })
}

fn work<W: Write>(order: &Assignment, stop: &AtomicBool, line: &mut Line<W>) -> Result<Ended> {
    let trial = &order.trial;
    if let Arm::Procedure(choice) = &trial.arm {
        return run_procedure(trial, choice, line);
    }
    if !trial.jobs.is_empty() {
        return work_jobs(order, stop, line);
    }
    let target = Arc::new(assumed_unchanged(Target::open(&trial.data.files, &trial.layout())?));
    let (cache, notes) = page_cache::prepare(&target, trial.cache)?;
    line.say(&Said::Ready { cache, notes });
    line.wait();
    if !order.program.is_empty() {
        drop(target);
        return Err(child::become_program(&order.program));
    }
    let choice = method_of(trial)?;
    run_method(trial, choice, target, stop, line)
}

fn method_of(trial: &Trial) -> Result<&Choice> {
    match &trial.arm {
        Arm::Method(choice) => Ok(choice),
        _ => Err(Error::Invalid("a peer's order names no program".to_owned())),
    }
}

/// The jobs of a stage.
fn work_jobs<W: Write>(order: &Assignment, stop: &AtomicBool, line: &mut Line<W>) -> Result<Ended> {
    let trial = &order.trial;
    let open = |layout: &Layout, files: &[PathBuf]| Target::open(files, layout).map(assumed_unchanged).map(Arc::new);
    let shares = jobs::shares(trial, open)?;
    let (cache, notes) = jobs::prepare(&shares, trial.cache)?;
    line.say(&Said::Ready { cache, notes });
    line.wait();
    if !order.program.is_empty() {
        drop(shares);
        return Err(child::become_program(&order.program));
    }
    let choice = method_of(trial)?;
    let began = monotonic();
    let opened = jobs::open(trial, choice, shares)?;
    phase(line, "open", began, monotonic());
    let mut boundary = |name: &str, began: Nanos, ended: Nanos| phase(line, name, began, ended);
    let stage = jobs::run(trial, opened, began.0, stop, &mut boundary);
    let began = monotonic();
    let closed = stage.close();
    phase(line, "close", began, monotonic());
    let outcome = outcome(closed.driven.iter().find_map(|one| one.error.as_ref()), stop);
    let (timeline, latency, queueing) = add_up(trial, closed.began, &closed.driven);
    Ok(Ended { timeline, latency, queueing, ..closed.told(outcome) })
}

/// The target, with the promise by which mapped methods lend bytes in place: what is measured is no copy.
///
/// Nobody can promise this of a file that a user names: another program may write it during the run. Then the bytes that a
/// method shows change behind a shared slice, which Rust forbids, and the run means nothing. What follows is kept small, not
/// excluded: all that is done with the bytes is adding them up as integers (any bits are valid; no length, index or text is
/// taken from them), so that a change gives another sum. The gate `same file` refuses the run where the file's times or size
/// changed, and `answer` where two methods saw other bytes. A file that is cut short reads as zeros and ends the run.
#[allow(unsafe_code, reason = "taken for the user, in the one place where the lab opens what it measures")]
fn assumed_unchanged(target: Target) -> Target {
    // SAFETY: this process opens one reader on the target and uses it and its siblings alone; what is read back is read when
    // they are gone. Files that we made are ours alone while their session runs. Of a user's file the user promises it, by
    // naming it to a measurement: see above for what is done against a broken promise.
    unsafe { target.assume_unchanged() }
}

/// Runs a procedure's own phases; the clock stands between them as between those of a method.
fn run_procedure<W: Write>(trial: &Trial, choice: &Choice, line: &mut Line<W>) -> Result<Ended> {
    let procedure = procedure::named(&choice.name)?;
    let given = choice.given();
    given.only(&(procedure.params)())?;
    if let Some(missing) = procedure.needs.iter().find_map(|need| need.met().err()) {
        return Err(missing.into());
    }
    let cache = CacheEvidence { source: "a procedure prepares its own files".to_owned(), ..CacheEvidence::default() };
    line.say(&Said::Ready { cache, notes: Vec::new() });
    line.wait();
    let mut boundary = |name: &str, began: Nanos, ended: Nanos| phase(line, name, began, ended);
    let dir = trial.data.files.first().cloned().unwrap_or_default();
    let mut stage = Stage::new(dir, &mut boundary);
    (procedure.run)(&given, &mut stage)?;
    let ProcedureReport { figures, notes, threads } = stage.told();
    Ok(Ended {
        settings: given.0,
        notes,
        threads,
        figures,
        answer: Answer::Checked,
        ..Ended::without_figures(Outcome::Done)
    })
}

/// Opens, visits and closes; the clock runs in each phase and stands between them.
fn run_method<W: Write>(
    trial: &Trial,
    choice: &Choice,
    target: Arc<Target>,
    stop: &AtomicBool,
    line: &mut Line<W>,
) -> Result<Ended> {
    let began = monotonic();
    let method = methods::named(&choice.name)?;
    let Opened { reader, settings, notes, .. } = prefetch::open(method, Arc::clone(&target), &choice.given())?;
    let mut readers = with_siblings(reader, trial.threads)?;
    phase(line, "open", began, monotonic());

    if let (Class::Pool, Some(fraction)) = (method.class, trial.cache.warmed()) {
        let began = monotonic();
        warm(readers[0].as_mut(), &target, fraction)?;
        phase(line, "warm", began, monotonic());
    }

    let generation = began.0;
    let (driven, mut readers, visit_began) = visit(trial, target.len(), readers, generation, stop, line);

    let began = monotonic();
    if let (Direction::Write, Some(reader)) = (trial.direction, readers.first_mut()) {
        reader.sync()?;
    }
    drop(readers);
    phase(line, "close", began, monotonic());

    let outcome = outcome(driven.iter().find_map(|one| one.error.as_ref()), stop);
    let answer = match trial.direction {
        Direction::Read => check::answer(&driven.iter().map(|one| &one.check).collect::<Vec<_>>()),
        Direction::Write => read_back(&target, &driven, generation, is_control(trial)),
    };
    let (timeline, latency, queueing) = add_up(trial, visit_began, &driven);
    let threads = driven.iter().map(|one| one.metered.run.clone()).collect();
    let (figures, jobs) = Default::default();
    Ok(Ended { outcome, settings: settings.0, notes, threads, timeline, latency, queueing, answer, figures, jobs })
}

/// Shows the first part of the range once: what a pool keeps below its own budget is not warm because the page cache is.
fn warm(reader: &mut dyn Reader, target: &Target, fraction: f64) -> Result<()> {
    let (end, piece) = ((target.len() as f64 * fraction) as u64, (256 << 10).min(target.stripe()));
    let piece_at = |offset: u64| Extent { offset, length: piece.min(target.len() - offset) as usize };
    let pieces: Vec<Extent> = (0..end.div_ceil(piece)).map(|index| piece_at(index * piece)).collect();
    // Bytes that are lent in place come when they are touched.
    let mut touched = 0u8;
    reader.visit(&pieces, &mut |_: usize, bytes: &[u8]| {
        touched = bytes.iter().step_by(PAGE).fold(touched, |sum, byte| sum.wrapping_add(*byte));
    })?;
    std::hint::black_box(touched);
    Ok(())
}

fn with_siblings(first: Box<dyn Reader>, threads: u32) -> Result<Vec<Box<dyn Reader>>> {
    let others = (1..threads).map(|_| first.sibling()).collect::<Result<Vec<_>>>()?;
    Ok(std::iter::once(first).chain(others).collect())
}

fn phase<W: Write>(line: &mut Line<W>, name: &str, began: Nanos, ended: Nanos) {
    line.say(&Said::Phase { name: name.to_owned(), began_ns: began.0, wall_ns: ended.0 - began.0 });
    line.wait();
}

type Visited = (Vec<Driven>, Vec<Box<dyn Reader>>, Nanos);

/// All threads' accesses. The threads stay alive until the watcher has read their counters.
fn visit<W: Write>(
    trial: &Trial,
    length: u64,
    readers: Vec<Box<dyn Reader>>,
    generation: u64,
    stop: &AtomicBool,
    line: &mut Line<W>,
) -> Visited {
    let gate = Barrier::new(readers.len() + 1);
    let began = std::sync::OnceLock::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0u32..)
            .zip(readers)
            .map(|(thread, mut reader)| {
                let (gate, began) = (&gate, &began);
                scope.spawn(move || {
                    let space = space(trial, length, thread);
                    gate.wait();
                    let began = *began.get_or_init(monotonic);
                    let until = until(trial, thread, began, stop);
                    let driven = drive(trial, space, reader.as_mut(), check_of(trial), generation, until);
                    gate.wait();
                    gate.wait();
                    (driven, reader)
                })
            })
            .collect();
        gate.wait();
        let began = *began.get_or_init(monotonic);
        gate.wait();
        phase(line, "visit", began, monotonic());
        gate.wait();
        let (driven, readers) =
            threads.into_iter().map(|thread| thread.join().expect("a thread that panics ends the process")).unzip();
        (driven, readers, began)
    })
}

fn space(trial: &Trial, length: u64, thread: u32) -> Space {
    Space { length, thread, ..Space::of(trial) }
}

fn until<'a>(trial: &Trial, thread: u32, began: Nanos, stop: &'a AtomicBool) -> Until<'a> {
    let (threads, thread) = (u64::from(trial.threads), u64::from(thread));
    let share = |all: u64| all / threads + u64::from(thread < all % threads);
    Until {
        began,
        deadline: trial.limits.runtime_ns.map(|runtime| Nanos(began.0.saturating_add(runtime))),
        accesses: trial.limits.accesses.map_or(u64::MAX, share),
        stop,
        own: stop,
    }
}

fn check_of(trial: &Trial) -> Check {
    let check = match trial.data.content_seed {
        Some(seed) => Check::MadeContent { content: MadeContent::of(seed), wrong: 0, first: None },
        None => Check::Digests(Vec::new()),
    };
    if is_control(trial) { Check::Untold(Box::new(check), "the control does not read the file") } else { check }
}

fn is_control(trial: &Trial) -> bool {
    matches!(&trial.arm, Arm::Method(choice) if methods::named(&choice.name).is_ok_and(|it| it.class == Class::Control))
}

fn outcome(error: Option<&Error>, stop: &AtomicBool) -> Outcome {
    match error {
        Some(Error::Missing(missing)) => Outcome::Missing(missing.clone().into()),
        Some(error) => Outcome::Failed(error.to_string()),
        None if stop.load(Ordering::Relaxed) => Outcome::Interrupted,
        None => Outcome::Done,
    }
}

/// Whether a sample of what was written is in the files, read again from the device where the cache lets go of it.
fn read_back(target: &Target, driven: &[Driven], generation: u64, is_control: bool) -> Answer {
    if is_control {
        return Answer::Unchecked("the control does not write the file".to_owned());
    }
    for file in target.files() {
        let _ = cache::fadvise(&file.file, file.start, file.length, cache::FileAdvice::DontNeed);
    }
    let written: Vec<Extent> = driven.iter().flat_map(|one| one.written.iter().copied()).collect();
    let wrong: Vec<Extent> = written.into_iter().filter(|extent| !is_written(target, *extent, generation)).collect();
    match wrong.first() {
        Some(first) => Answer::Wrong { first_offset: first.offset, count: wrong.len() as u64 },
        None => Answer::Checked,
    }
}

fn is_written(target: &Target, extent: Extent, generation: u64) -> bool {
    let Ok((index, offset)) = target.locate(extent) else { return false };
    let mut page = [0; PAGE];
    read::pread_exact(&target.files()[index].file, &mut page, offset).is_ok()
        && MadeContent::page_and_generation(&page) == Some((extent.offset / PAGE as u64, generation))
}

/// What all threads' clocks have, added: the intervals, how long accesses took, and how long they waited until they were sent.
fn add_up(trial: &Trial, began: Nanos, driven: &[Driven]) -> (Timeline, Latency, Latency) {
    let longest = driven.iter().map(|one| one.metered.intervals.len()).max().unwrap_or(0);
    let sums: Vec<Interval> = (0..longest)
        .filter_map(|number| {
            let mut same = driven.iter().filter_map(|one| one.metered.intervals.get(number));
            let mut sum = same.next()?.clone();
            same.for_each(|other| sum.merge(other));
            Some(sum)
        })
        .collect();
    let whole = sums.iter().skip(1).fold(sums.first().cloned(), |whole, next| {
        whole.map(|mut whole| {
            whole.merge(next);
            whole
        })
    });
    let timed_one_in = driven.iter().map(|one| one.metered.timed_one_in).max().unwrap_or(0);
    let timeline = Timeline {
        began_ns: began.0,
        interval_ns: trial.interval_ns,
        accesses: sums.iter().map(|interval| interval.accesses).collect(),
        latency: sums.iter().map(|interval| buckets(&interval.latency)).collect(),
        ..Timeline::default()
    };
    let latency = Latency { timed_one_in, buckets: whole.map(|whole| buckets(&whole.latency)).unwrap_or_default() };
    let waits = driven.iter().map(|one| &one.metered.queueing).cloned().reduce(|mut all, one| {
        // Automatic resizing makes this infallible.
        let _ = all.add(one);
        all
    });
    let queueing = match waits.filter(|waits| !waits.is_empty()) {
        Some(waits) => Latency { timed_one_in, buckets: buckets(&waits) },
        None => Latency::default(),
    };
    (timeline, latency, queueing)
}

/// How long the watcher waits for a worker that was told to stop.
pub const GRACE: Duration = Duration::from_secs(5);
