//! A comparison: the same workload through several arms, repeated in turns, each run a record on disk as it ends.

mod race;

use crate::experiment::Planned;
use crate::kinds;
use crate::outputs::{former, unpacked};
use crate::record::{Cause, Cell, Outcome, Record};
use crate::run::{self, gates};
use crate::trial::{Arm, Trial};
use majorfault::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use race::{Contest, Ruling, race};

/// A name for a new session: when it began, and who makes it.
pub fn name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", now.as_secs(), std::process::id())
}

/// What is compared.
#[derive(Clone)]
pub struct Comparison {
    /// The trial that all arms share; its own arm and repetition are replaced.
    pub trial: Trial,
    /// The arms to compare.
    pub arms: Vec<Arm>,
    /// How often each runs.
    pub repetitions: u32,
}

/// Runs the arms in turns, so that a change of the machine's mood meets all of them. Each repetition begins one arm
/// later than the one before, so that none is always first. `ended` gets each record as it is complete.
///
/// An arm that cannot run, or failed, is not tried again. A run that others disturbed is made again at the end of its
/// repetition. Ends early, with what there is, when the session is stopped.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn interleave(
    comparison: &Comparison,
    session: &run::Session<'_>,
    ended: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    interleave_by(&mut |trial| run::run(trial, session), comparison, session.stop, ended)
}

/// What runs one trial: [`run::run`].
type Runner<'a> = dyn FnMut(&Trial) -> Result<Record> + 'a;

fn interleave_by(
    run: &mut Runner<'_>,
    comparison: &Comparison,
    stop: &AtomicBool,
    mut ended: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let trials: Vec<Trial> =
        comparison.arms.iter().map(|arm| Trial { arm: arm.clone(), ..comparison.trial.clone() }).collect();
    let mut records: Vec<Record> = Vec::new();
    let mut turn = |index: usize, repetition: u32| {
        let mut record = run(&Trial { repetition, ..trials[index].clone() })?;
        gates::beside(&records, &mut record);
        ended(&record)?;
        let then = Then::after(&record);
        records.push(record);
        Ok(then)
    };
    in_turns(trials.len(), comparison.repetitions, stop, &mut turn)?;
    Ok(records)
}

/// Runs the cells of one experiment in turns, as [`interleave`] does arms. `is_done` says which are not run again.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn grid(
    cell: &Cell,
    planned: &[Planned],
    repetitions: u32,
    session: &run::Session<'_>,
    is_done: impl Fn(&Cell, u32) -> bool,
    ended: impl FnMut(Option<Record>) -> Result<()>,
) -> Result<()> {
    let all = Cells { cell, planned, repetitions };
    grid_by(&mut |trial| run::run(trial, session), &all, session.stop, is_done, ended)
}

/// What [`grid`] runs.
struct Cells<'a> {
    cell: &'a Cell,
    planned: &'a [Planned],
    repetitions: u32,
}

fn grid_by(
    run: &mut Runner<'_>,
    cells: &Cells<'_>,
    stop: &AtomicBool,
    is_done: impl Fn(&Cell, u32) -> bool,
    mut ended: impl FnMut(Option<Record>) -> Result<()>,
) -> Result<()> {
    let Cells { cell, planned, repetitions } = *cells;
    let mut turn = |index: usize, repetition: u32| {
        let Planned { name, trial } = &planned[index];
        let cell = Cell { name: name.clone(), ..cell.clone() };
        if is_done(&cell, repetition) {
            ended(None)?;
            return Ok(Then::Next);
        }
        let seed = trial.seed.wrapping_add(u64::from(repetition));
        let mut record = run(&Trial { repetition, seed, ..trial.clone() })?;
        let then = Then::after(&record);
        record.cell = Some(cell);
        ended(Some(record))?;
        Ok(then)
    };
    in_turns(planned.len(), repetitions, stop, &mut turn)
}

/// How often a run that others disturbed is made again.
const SECOND_CHANCES: u32 = 2;

/// What follows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next one.
    Next,
    /// It is made again: others disturbed it.
    Again,
    /// Its kind is not run any more: it cannot run here, or failed.
    Never,
}

impl Then {
    fn after(record: &Record) -> Then {
        let is_disturbed = record.spoilers().any(|gate| gate.by == Cause::Others) && !record.is_control();
        match record.outcome {
            Outcome::Missing(_) | Outcome::Failed(_) => Then::Never,
            // What is wrong with the set-up would be so again.
            _ if is_disturbed && record.spoilers().all(|gate| gate.by == Cause::Others) => Then::Again,
            _ => Then::Next,
        }
    }
}

/// Calls `turn` with each of `count` and each repetition, see [`interleave`].
fn in_turns(
    count: usize,
    repetitions: u32,
    stop: &AtomicBool,
    turn: &mut impl FnMut(usize, u32) -> Result<Then>,
) -> Result<()> {
    let mut given_up = vec![false; count];
    for repetition in 0..repetitions {
        if !one_turn(&mut given_up, repetition, count, stop, turn)? {
            break;
        }
    }
    Ok(())
}

/// Calls `turn` with each that was not `given_up`, beginning with another one each repetition; whoever was disturbed again at its
/// end, where these are `most_again` at most. Whether it came to its end.
fn one_turn(
    given_up: &mut [bool],
    repetition: u32,
    most_again: usize,
    stop: &AtomicBool,
    turn: &mut impl FnMut(usize, u32) -> Result<Then>,
) -> Result<bool> {
    let count = given_up.len();
    let mut left: Vec<usize> = (0..count).map(|turn| (turn + repetition as usize) % count).collect();
    for _ in 0..=SECOND_CHANCES {
        let mut again = Vec::new();
        for index in left.into_iter().filter(|index| !given_up[*index]).collect::<Vec<_>>() {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match turn(index, repetition)? {
                Then::Next => {}
                Then::Again => again.push(index),
                Then::Never => given_up[index] = true,
            }
        }
        if again.len() > most_again {
            break;
        }
        left = again;
    }
    Ok(true)
}

/// The records of these files, in order; compressed by gzip or plain.
///
/// Errors: Io; Invalid where a line is not a record, or of a newer format.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for path in paths {
        records.extend(load_file(path)?);
    }
    if records.is_empty() {
        return Err(Error::Invalid("there is no record in the files named; majorfault compare makes some".to_owned()));
    }
    Ok(records)
}

/// The records of one file, which may have none.
///
/// Errors: as [`load`].
pub fn load_file(path: &Path) -> Result<Vec<Record>> {
    let unread = |error| Error::io("read records", path, error);
    let mut records = Vec::new();
    let mut lines = opened(path).map_err(unread)?;
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        // A line at a time: the text of a file is ten times its compressed size, and its records are held as well.
        if lines.read_line(&mut line).map_err(unread)? == 0 {
            break;
        }
        if !line.trim().is_empty() {
            records.push(parse(path, number, line.trim_end())?);
        }
    }
    Ok(records)
}

fn opened(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    match path == Path::new("-") {
        true => unpacked(BufReader::new(std::io::stdin())),
        false => unpacked(BufReader::new(File::open(path)?)),
    }
}

fn parse(path: &Path, number: u32, line: &str) -> Result<Record> {
    let mut record: Record = serde_json::from_str(line).map_err(|why| {
        Error::Invalid(format!("{} line {number} is not a record of majorfault: {why}", path.display()))
    })?;
    if record.format > crate::record::FORMAT {
        return Err(Error::Invalid(format!(
            "{} line {number} has format {}, this majorfault reads up to {}; use a newer one",
            path.display(),
            record.format,
            crate::record::FORMAT
        )));
    }
    record.tool = former::renamed(&record.tool);
    // Format 1 named the kinds and did not keep what they say of themselves.
    if record.traits.is_none() {
        record.traits = kinds::traits(&record.trial, &record.settings, record.accesses());
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Gate, GateFinding, MissingFacility};
    use crate::report::synthetic::Run;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use std::fs;
    use std::io::Write;

    /// The order of the calls where every run is followed by what `then` says of (index, repetition, number of the call).
    fn turns(count: usize, repetitions: u32, mut then: impl FnMut(usize, u32, usize) -> Then) -> Vec<(usize, u32)> {
        let mut calls = Vec::new();
        in_turns(count, repetitions, &AtomicBool::new(false), &mut |index, repetition| {
            calls.push((index, repetition));
            Ok(then(index, repetition, calls.len()))
        })
        .unwrap();
        calls
    }

    #[test]
    fn a_session_is_named_by_when_it_began_and_by_whom() {
        let (began, pid) = name().split_once('-').map(|(began, pid)| (began.to_owned(), pid.to_owned())).unwrap();

        assert_eq!(pid, std::process::id().to_string());
        assert!(began.parse::<u64>().unwrap() > 1_700_000_000);
    }

    #[test]
    fn each_repetition_begins_one_arm_later() {
        let calls = turns(3, 4, |_, _, _| Then::Next);

        let order: Vec<usize> = calls.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
        assert_eq!(calls.iter().map(|(_, repetition)| *repetition).collect::<Vec<_>>()[..4], [0, 0, 0, 1]);
    }

    #[test]
    fn a_disturbed_run_is_made_again_at_the_end_of_its_repetition() {
        let calls = turns(3, 1, |index, _, call| if (index, call) == (0, 1) { Then::Again } else { Then::Next });

        assert_eq!(calls, [(0, 0), (1, 0), (2, 0), (0, 0)]);
    }

    #[test]
    fn who_is_disturbed_always_gets_two_more_chances_a_repetition() {
        let calls = turns(2, 2, |index, _, _| if index == 1 { Then::Again } else { Then::Next });

        assert_eq!(calls, [(0, 0), (1, 0), (1, 0), (1, 0), (1, 1), (0, 1), (1, 1), (1, 1)]);
    }

    #[test]
    fn what_failed_or_cannot_run_is_not_tried_again() {
        let calls = turns(2, 3, |index, _, _| if index == 0 { Then::Never } else { Then::Next });

        assert_eq!(calls, [(0, 0), (1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn the_users_stop_ends_it_before_the_next_run() {
        let stop = AtomicBool::new(false);
        let mut calls = 0;
        in_turns(3, 3, &stop, &mut |_, _| {
            calls += 1;
            stop.store(calls == 2, Ordering::Relaxed);
            Ok(Then::Next)
        })
        .unwrap();

        assert_eq!(calls, 2);
    }

    #[test]
    fn an_error_ends_it() {
        let failed = in_turns(3, 3, &AtomicBool::new(false), &mut |_, _| Err(Error::Invalid("no worker".to_owned())));

        assert!(failed.is_err());
    }

    /// A run that ends well, of whatever trial.
    fn done(trial: &Trial) -> Record {
        Record { trial: trial.clone(), ..Run::of("mmap").record() }
    }

    fn plain(arms: &[&str]) -> Vec<Arm> {
        arms.iter().map(|name| Arm::Method(crate::trial::Choice::plain(name))).collect()
    }

    #[test]
    fn each_record_is_handed_over_as_its_run_ends_with_the_arm_and_the_repetition_that_ran() {
        let trial = Run::of("mmap").record().trial;
        let comparison = Comparison { trial: trial.clone(), arms: plain(&["direct", "pread"]), repetitions: 2 };
        let mut told = Vec::new();

        let records = interleave_by(&mut |trial| Ok(done(trial)), &comparison, &AtomicBool::new(false), |record| {
            told.push(format!("{} {}", record.trial.arm, record.trial.repetition));
            Ok(())
        })
        .unwrap();

        assert_eq!(told, ["direct 0", "pread 0", "pread 1", "direct 1"]);
        assert_eq!(records.len(), 4);
        assert!(
            records.iter().all(|record| record.trial.workload == trial.workload && record.trial.seed == trial.seed)
        );
    }

    #[test]
    fn a_run_is_held_against_those_before_it() {
        let comparison =
            Comparison { trial: Run::of("mmap").record().trial, arms: plain(&["direct", "pread"]), repetitions: 1 };
        let answers = |trial: &Trial| {
            let seen = u64::from(trial.arm.to_string() == "pread");
            let answer = crate::record::Answer::Digests(vec![vec![seen]]);
            Ok(Record { answer, ..done(trial) })
        };

        let records = interleave_by(&mut { answers }, &comparison, &AtomicBool::new(false), |_| Ok(())).unwrap();

        let says = |record: &Record| record.spoiled().map(str::to_owned).collect::<Vec<_>>().join("; ");
        assert_eq!(says(&records[0]), "");
        assert!(says(&records[1]).contains("saw other bytes than direct"), "{}", says(&records[1]));
    }

    #[test]
    fn an_arm_that_failed_is_recorded_once_and_a_caller_that_cannot_keep_a_record_ends_the_session() {
        let comparison =
            Comparison { trial: Run::of("mmap").record().trial, arms: plain(&["direct", "pread"]), repetitions: 2 };
        let fails = |trial: &Trial| {
            let outcome = match trial.arm.to_string().as_str() {
                "direct" => Outcome::Failed("no".to_owned()),
                _ => Outcome::Done,
            };
            Ok(Record { outcome, ..done(trial) })
        };
        let stop = AtomicBool::new(false);

        let records = interleave_by(&mut { fails }, &comparison, &stop, |_| Ok(())).unwrap();
        let mut kept = 0;
        let full = interleave_by(&mut { fails }, &comparison, &stop, |_| {
            kept += 1;
            Err(Error::Invalid("the disk is full".to_owned()))
        });

        assert_eq!(records.len(), 3);
        assert_eq!((full.unwrap_err().to_string().as_str(), kept), ("the disk is full", 1));
    }

    #[test]
    fn a_cell_runs_with_the_seed_of_its_repetition_unless_it_is_done_already() {
        let trial = Trial { seed: u64::MAX, ..Run::of("mmap").record().trial };
        let planned = ["a", "b"].map(|name| Planned { name: name.to_owned(), trial: trial.clone() });
        let cell = Cell { experiment: "S9".to_owned(), name: String::new(), scale: "quick".to_owned() };
        let is_done = |cell: &Cell, repetition| cell.name == "b" && repetition == 0;
        let mut told = Vec::new();

        let all = Cells { cell: &cell, planned: &planned, repetitions: 2 };
        grid_by(&mut |trial| Ok(done(trial)), &all, &AtomicBool::new(false), is_done, |record| {
            told.push(record.map(|record| {
                let Cell { experiment, name, scale } = record.cell.unwrap();
                (format!("{experiment} {name} {scale}"), record.trial.repetition, record.trial.seed)
            }));
            Ok(())
        })
        .unwrap();

        let ran = |name: &str, repetition, seed| Some((format!("S9 {name} quick"), repetition, seed));
        assert_eq!(told, [ran("a", 0, u64::MAX), None, ran("b", 1, 0), ran("a", 1, 0)]);
    }

    #[test]
    fn files_without_a_record_are_an_error_and_empty_lines_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        fs::write(&path, "\n  \n").unwrap();

        let error = load(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("there is no record in the files named"), "{error}");

        fs::write(&path, [b"\n".to_vec(), lines(&[Run::of("mmap").record()]), b"{}\n".to_vec()].concat()).unwrap();
        let error = load(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("a.jsonl line 3 is not a record of majorfault"), "{error}");
    }

    #[test]
    fn a_record_of_the_first_format_gets_the_traits_of_its_kinds_and_the_tools_name_of_today() {
        let whole = Run::of("mmap").record();
        let former = Record { traits: None, tool: concat!("fault", "line", " 0.1.0").to_owned(), ..whole.clone() };

        let read = parse(Path::new("a"), 1, &serde_json::to_string(&former).unwrap()).unwrap();

        assert!(read.traits.is_some() && read.traits == whole.traits);
        assert_eq!(read.tool, "majorfault 0.1.0");
    }

    #[test]
    fn a_file_too_short_to_tell_is_not_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [0x1f]).unwrap();

        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut opened(&path).unwrap(), &mut bytes).unwrap();
        assert_eq!(bytes, [0x1f]);
    }

    fn spoiled(arm: &str, by: &[Cause]) -> Record {
        let gates = by.iter().map(|by| Gate {
            name: "x".to_owned(),
            finding: GateFinding::Spoiled,
            says: "x".to_owned(),
            by: *by,
            remedy: String::new(),
        });
        let gates: Vec<Gate> = gates.collect();
        Run::of(arm).edit(|record| record.gates = gates).record()
    }

    #[test]
    fn only_what_others_alone_disturbed_is_made_again() {
        assert_eq!(Then::after(&spoiled("mmap", &[])), Then::Next);
        assert_eq!(Then::after(&spoiled("mmap", &[Cause::Others])), Then::Again);
        assert_eq!(Then::after(&spoiled("mmap", &[Cause::Setup])), Then::Next);
        assert_eq!(Then::after(&spoiled("mmap", &[Cause::Others, Cause::Setup])), Then::Next);
        assert_eq!(Then::after(&spoiled("null", &[Cause::Others])), Then::Next, "the control is in no verdict");
    }

    #[test]
    fn a_run_that_failed_or_is_missing_is_the_last_of_its_arm() {
        let ended = |outcome| Then::after(&Record { outcome, ..Run::of("mmap").record() });
        let missing = MissingFacility { what: String::new(), reason: String::new(), remedy: String::new() };

        assert_eq!(ended(Outcome::Failed("EIO".to_owned())), Then::Never);
        assert_eq!(ended(Outcome::Missing(missing)), Then::Never);
        assert_eq!(ended(Outcome::Interrupted), Then::Next);
    }

    fn lines(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|record| [serde_json::to_vec(record).unwrap(), b"\n".to_vec()].concat()).collect()
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn records_of_every_format_up_to_todays_are_read_and_of_no_later_one() {
        let with = |format: u32| {
            let record = Run::of("mmap").edit(|record| record.format = format).record();
            parse(Path::new("a.jsonl"), 7, &serde_json::to_string(&record).unwrap())
        };

        assert_eq!([1, crate::record::FORMAT].map(|format| with(format).unwrap().format), [1, crate::record::FORMAT]);
        let refused = with(crate::record::FORMAT + 1).unwrap_err().to_string();
        assert!(refused.starts_with("a.jsonl line 7 has format 4, this majorfault reads up to 3"), "{refused}");
    }

    #[test]
    fn compressed_records_are_read_as_plain_ones_also_in_several_members() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("a.jsonl"), dir.path().join("a.jsonl.gz"));
        let records: Vec<Record> = (0..3).map(|turn| Run::of("mmap").repetition(turn).record()).collect();
        fs::write(&plain, lines(&records)).unwrap();
        fs::write(&packed, [compressed(&lines(&records[..1])), compressed(&lines(&records[1..]))].concat()).unwrap();

        assert_eq!(load(std::slice::from_ref(&packed)).unwrap(), records);
        assert_eq!(load(std::slice::from_ref(&plain)).unwrap(), records);
    }

    #[test]
    fn compressed_records_that_end_early_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl.gz");
        let whole = compressed(&lines(&[Run::of("mmap").record()]));
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();

        let error = load(&[path]).unwrap_err().to_string();

        assert!(error.contains("read records") && error.contains("a.jsonl.gz"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn any_line_is_a_record_or_an_error(line in "\\PC*") {
            let _ = parse(Path::new("a"), 1, &line);
        }

        /// The bytes of a real record with one of them changed: what a disk or an editor does.
        #[test]
        fn a_damaged_record_is_a_record_or_an_error(at in 0usize..4096, byte in 0u8..128) {
            let mut line = serde_json::to_vec(&Run::of("mmap advice=random").counter("minor_faults", 5).record()).unwrap();
            let at = at % line.len();
            line[at] = byte;

            let _ = parse(Path::new("a"), 1, &String::from_utf8_lossy(&line));
        }

        #[test]
        fn a_record_that_is_written_reads_back(accesses: u64, counted: u64, words in "\\PC{0,40}", repetition: u32) {
            let run = Run::of("mmap advice=random").accesses(accesses).counter("minor_faults", counted);
            let record = run.spoiled(&words).repetition(repetition).record();

            let back = parse(Path::new("a"), 1, &serde_json::to_string(&record).unwrap()).unwrap();

            prop_assert_eq!(back, record);
        }
    }
}
