//! What `compare` runs: one question or two, each a race or a fixed number of turns, with a first table while it goes on.

use crate::command::Bars;
use crate::command::options::CompareOptions;
use crate::lineup;
use crate::machine;
use crate::outputs::Records;
use crate::place;
use crate::record::Record;
use crate::report::{self, Summary, live};
use crate::run;
use crate::scratch;
use crate::session::{self, Comparison, Contest, Ruling};
use crate::stats::race::LOOKS;
use crate::trial::{Arm, Direction, Trial};
use console::Term;
use indicatif::ProgressBar;
use majorfault::{Bytes, Nanos, Result};
use std::io::IsTerminal;

/// The questions of a trial, each with all arms.
pub fn planned(options: &CompareOptions, trial: &Trial, arms: &[Arm], baseline: Option<&Arm>) -> Vec<Contest> {
    let usual = options.runtime.is_none().then(|| trial.limits.runtime_ns.map(Nanos)).flatten();
    let questions = match options.leaves_the_question_open() {
        true => lineup::questions(trial, room(trial), usual),
        false => vec![(None, trial.clone())],
    };
    let repetitions = options.runs.unwrap_or(LOOKS[LOOKS.len() - 1] as u32);
    let contest = |(question, trial)| Contest {
        question,
        baseline: baseline.cloned(),
        comparison: Comparison { trial, arms: arms.to_vec(), repetitions },
    };
    questions.into_iter().map(contest).collect()
}

/// Memory that the file may stay in.
fn room(trial: &Trial) -> Bytes {
    let limits = [trial.memory_bytes.map(Bytes), place::inherited_limit(), Some(machine::available_memory())];
    limits.into_iter().flatten().min_by_key(|bytes| bytes.0).unwrap_or_default()
}

/// Runs them; each record is kept as it ends.
///
/// Errors: those of a session; Io where a record cannot be kept.
pub fn run(
    contests: &[Contest],
    options: &CompareOptions,
    session: &run::Session<'_>,
    kept: &mut Records,
    bars: &Bars,
) -> Result<Vec<Record>> {
    match options.runs {
        Some(_) => in_turns(contests, session, kept, bars),
        None => raced(contests, options.time, session, kept, bars),
    }
}

/// As many runs of each as were asked for.
fn in_turns(contests: &[Contest], session: &run::Session<'_>, kept: &mut Records, bars: &Bars) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for Contest { question, baseline, comparison } in contests {
        let told = |record: Record| Record { question: *question, baseline: baseline.clone(), ..record };
        records.extend(turns(comparison, session, bars, told, |record| kept.add(record))?);
    }
    Ok(records)
}

/// One comparison in turns. `told` adds what a record says of its session, `keep` gets each.
///
/// Errors: those of a session and of `keep`.
pub fn turns(
    comparison: &Comparison,
    session: &run::Session<'_>,
    bars: &Bars,
    told: impl Fn(Record) -> Record,
    mut keep: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let bar = bars.runs(comparison.arms.len() as u64 * u64::from(comparison.repetitions));
    let records = session::interleave(comparison, session, |record| {
        bar.inc(1);
        bar.set_message(format!("{}", record.trial.arm));
        restored(record)?;
        keep(&told(record.clone()))
    })?;
    bar.finish_and_clear();
    Ok(records.into_iter().map(told).collect())
}

fn raced(
    contests: &[Contest],
    time: Nanos,
    session: &run::Session<'_>,
    kept: &mut Records,
    bars: &Bars,
) -> Result<Vec<Record>> {
    let mut table =
        FirstTable { bar: bars.table(time), is_quiet: bars.is_quiet(), records: Vec::new(), is_said: false };
    let records = session::race(contests, time, session, referee, |record| {
        restored(record)?;
        kept.add(record)?;
        table.add(record);
        Ok(())
    })?;
    table.bar.finish_and_clear();
    Ok(records)
}

/// What the report of the records so far decides.
fn referee(records: &[Record]) -> Ruling {
    let summary = Summary::of(records);
    Ruling {
        stopped: summary.groups.iter().flat_map(report::race::behind).collect(),
        is_over: summary.groups.iter().all(report::race::is_over),
    }
}

/// What is known so far: drawn again after each run on a terminal, else one line when every arm has run once.
struct FirstTable {
    bar: ProgressBar,
    is_quiet: bool,
    records: Vec<Record>,
    is_said: bool,
}

impl FirstTable {
    fn add(&mut self, record: &Record) {
        self.records.push(record.clone());
        if self.is_quiet {
            return;
        }
        let terminal = Term::stderr();
        if std::io::stderr().is_terminal() {
            let (rows, columns) = terminal.size();
            let [rows, columns] = [rows, columns].map(usize::from);
            self.bar.set_message(live::table(&Summary::of(&self.records), [rows.saturating_sub(2), columns]));
        } else if record.trial.repetition > 0 && !self.is_said {
            self.is_said = true;
            let first: Vec<Record> =
                self.records.iter().filter(|record| record.trial.repetition == 0).cloned().collect();
            live::line(&Summary::of(&first)).iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// What a peer wrote is not what our methods expect to read: the content is made again.
fn restored(record: &Record) -> Result<()> {
    let Trial { arm, data, direction, jobs, .. } = &record.trial;
    match (arm, data.content_seed) {
        (Arm::Peer(_), Some(seed)) if *direction == Direction::Write && !jobs.is_empty() => {
            scratch::restore(&data.files, seed)
        }
        _ => Ok(()),
    }
}
