//! A race: arms run in turns while they can still win, for one question or two, until the answer is sure or time is up.
//!
//! Who is behind and whether the answer is sure is for a referee to say, who sees records only: a report that is made of them
//! later says the same. What was decided before a run stands in its record.

use super::{Comparison, Runner, Then, one_turn};
use crate::record::{Question, Race, Record, StoppedArm};
use crate::run::{self, gates};
use crate::trial::{Arm, Trial};
use majorfault::sys::clock::monotonic;
use majorfault::{Nanos, Result};
use std::sync::atomic::AtomicBool;

/// A question that is raced for.
pub struct Contest {
    /// What is asked; `None` where it is the only question.
    pub question: Option<Question>,
    /// The arm that the user has now, where they named it.
    pub baseline: Option<Arm>,
    /// The arms; `repetitions` are the rounds after which it ends in any case.
    pub comparison: Comparison,
}

/// What a referee says after a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruling {
    /// Arms that run no more.
    pub stopped: Vec<Arm>,
    /// Whether more rounds would not change the answer.
    pub is_over: bool,
}

/// Runs the arms of each contest in turns, round by round, one contest after the other in each, see [`super::interleave`]. No
/// round is begun that would end after `time`, but the first. `ended` gets each record as it is complete, `referee` all of a
/// contest after each of its rounds.
///
/// Errors: what `ended` returns; no worker can be started.
pub fn race(
    contests: &[Contest],
    time: Nanos,
    session: &run::Session<'_>,
    referee: impl Fn(&[Record]) -> Ruling,
    ended: impl FnMut(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let mut clock = monotonic;
    let mut track = Track { run: &mut |trial| run::run(trial, session), clock: &mut clock, stop: session.stop, time };
    track.race(contests, &referee, ended)
}

/// What a race needs of the world.
struct Track<'a> {
    run: &'a mut Runner<'a>,
    clock: &'a mut dyn FnMut() -> Nanos,
    stop: &'a AtomicBool,
    time: Nanos,
}

/// A contest under way.
struct Field<'a> {
    contest: &'a Contest,
    /// Arms that do not run any more: stopped, failed, or not here.
    out: Vec<bool>,
    race: Race,
    records: Vec<Record>,
    is_over: bool,
}

impl Track<'_> {
    fn race(
        &mut self,
        contests: &[Contest],
        referee: &dyn Fn(&[Record]) -> Ruling,
        mut ended: impl FnMut(&Record) -> Result<()>,
    ) -> Result<Vec<Record>> {
        let mut fields: Vec<Field<'_>> = contests.iter().map(|contest| Field::new(contest, self.time)).collect();
        let began = (self.clock)();
        let rounds = contests.iter().map(|contest| contest.comparison.repetitions).max().unwrap_or(0);
        for round in 0..rounds {
            let before = (self.clock)();
            if !self.round(&mut fields, round, referee, &mut ended)? || fields.iter().all(|field| field.is_over) {
                break;
            }
            let after = (self.clock)();
            // The next round takes as long as this one, or less.
            if after.0 - began.0 + (after.0 - before.0) > self.time.0 {
                break;
            }
        }
        Ok(fields.into_iter().flat_map(|field| field.records).collect())
    }

    /// One round of each contest that is not over; whether it came to its end.
    fn round(
        &mut self,
        fields: &mut [Field<'_>],
        round: u32,
        referee: &dyn Fn(&[Record]) -> Ruling,
        ended: &mut impl FnMut(&Record) -> Result<()>,
    ) -> Result<bool> {
        for field in fields.iter_mut().filter(|field| !field.is_over) {
            let Field { contest, out, race, records, .. } = field;
            let mut turn = |index: usize, repetition: u32| {
                let Comparison { trial, arms, .. } = &contest.comparison;
                let mut record = (self.run)(&Trial { arm: arms[index].clone(), repetition, ..trial.clone() })?;
                gates::beside(records, &mut record);
                let Contest { question, baseline, .. } = contest;
                let record =
                    Record { question: *question, baseline: baseline.clone(), race: Some(race.clone()), ..record };
                ended(&record)?;
                let then = Then::after(&record);
                records.push(record);
                Ok(then)
            };
            // Where most were disturbed, others are at work: a later round may find them gone.
            let most_again = out.len() / 2;
            if !one_turn(out, round, most_again, self.stop, &mut turn)? {
                return Ok(false);
            }
            field.ruled(referee(&field.records), round + 1);
        }
        Ok(true)
    }
}

impl<'a> Field<'a> {
    fn new(contest: &'a Contest, time: Nanos) -> Field<'a> {
        let race = Race { time_ns: time.0, stopped: Vec::new() };
        Field { contest, out: vec![false; contest.comparison.arms.len()], race, records: Vec::new(), is_over: false }
    }

    fn ruled(&mut self, ruling: Ruling, rounds: u32) {
        let Comparison { arms, repetitions, .. } = &self.contest.comparison;
        for arm in ruling.stopped {
            let at = arms.iter().position(|other| *other == arm);
            at.into_iter().for_each(|at| self.out[at] = true);
            self.race.stopped.push(StoppedArm { arm, rounds });
        }
        self.is_over = ruling.is_over || rounds >= *repetitions || self.out.iter().all(|out| *out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, Outcome};
    use crate::report::synthetic::Run;
    use crate::report::{self, Summary};
    use crate::trial::{CacheState, Choice};
    use majorfault::Error;
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    fn arms(names: &[&str]) -> Vec<Arm> {
        names.iter().map(|name| Arm::Method(Choice::plain(name))).collect()
    }

    fn contest(names: &[&str], repetitions: u32) -> Contest {
        let comparison = Comparison { trial: Run::of("mmap").record().trial, arms: arms(names), repetitions };
        Contest { question: None, baseline: None, comparison }
    }

    /// A run that reached so many accesses in its second.
    fn ran(trial: &Trial, accesses: u64) -> Record {
        Record { trial: trial.clone(), ..Run::of(&trial.arm.to_string()).accesses(accesses).record() }
    }

    /// Each run takes a second of a clock that nothing else moves.
    fn raced(
        contests: &[Contest],
        seconds: u64,
        run: &mut dyn FnMut(&Trial) -> Result<Record>,
        referee: &dyn Fn(&[Record]) -> Ruling,
    ) -> Vec<Record> {
        let now = Cell::new(0);
        let mut timed = |trial: &Trial| {
            now.set(now.get() + 1);
            run(trial)
        };
        let mut clock = || Nanos::secs(now.get());
        let stop = AtomicBool::new(false);
        let mut track = Track { run: &mut timed, clock: &mut clock, stop: &stop, time: Nanos::secs(seconds) };
        track.race(contests, referee, |_| Ok(())).unwrap()
    }

    fn nothing(_: &[Record]) -> Ruling {
        Ruling::default()
    }

    fn told(records: &[Record]) -> Vec<String> {
        records.iter().map(|record| format!("{} {}", record.trial.arm, record.trial.repetition)).collect()
    }

    #[test]
    fn whom_the_referee_stops_runs_no_more_and_the_records_after_say_so() {
        let stops = |records: &[Record]| {
            let stopped = if records.len() == 4 { arms(&["direct"]) } else { Vec::new() };
            Ruling { stopped, is_over: false }
        };

        let records = raced(&[contest(&["direct", "pread"], 3)], 100, &mut |trial| Ok(ran(trial, 1_000)), &stops);

        assert_eq!(told(&records), ["direct 0", "pread 0", "pread 1", "direct 1", "pread 2"]);
        let stopped = |at: usize| records[at].race.as_ref().unwrap().stopped.clone();
        assert_eq!(stopped(3), []);
        assert_eq!(stopped(4), [StoppedArm { arm: arms(&["direct"]).remove(0), rounds: 2 }]);
    }

    #[test]
    fn no_round_is_begun_that_would_end_after_its_time_but_the_first() {
        let runs = |seconds| {
            raced(&[contest(&["direct", "pread"], 9)], seconds, &mut |trial| Ok(ran(trial, 1_000)), &nothing).len()
        };

        assert_eq!([1, 4, 5, 6].map(runs), [2, 4, 4, 6]);
    }

    #[test]
    fn it_ends_when_the_referee_says_so_and_after_its_rounds() {
        let after = |rounds: usize| {
            let over = move |records: &[Record]| Ruling { stopped: Vec::new(), is_over: records.len() == 2 * rounds };
            raced(&[contest(&["direct", "pread"], 3)], 100, &mut |trial| Ok(ran(trial, 1_000)), &over).len()
        };

        assert_eq!([1, 2, 9].map(after), [2, 4, 6]);
    }

    #[test]
    fn two_questions_take_turns_and_one_goes_on_when_the_other_is_answered() {
        let cold = Contest { question: Some(Question::FirstPass), ..contest(&["direct"], 3) };
        let mut warm = Contest { question: Some(Question::SteadyState), ..contest(&["direct"], 3) };
        warm.comparison.trial.cache = CacheState::Warm;
        let over = |records: &[Record]| Ruling {
            stopped: Vec::new(),
            is_over: records[0].question == Some(Question::FirstPass),
        };
        let mut order = Vec::new();
        let mut run = |trial: &Trial| {
            order.push(format!("{} {}", trial.cache, trial.repetition));
            Ok(ran(trial, 1_000))
        };

        let records = raced(&[cold, warm], 100, &mut run, &over);

        assert_eq!(order, ["cold 0", "warm 0", "warm 1", "warm 2"]);
        assert_eq!(Summary::of(&records).groups.len(), 2);
    }

    #[test]
    fn a_run_is_held_against_those_of_its_own_question_alone() {
        let cold = Contest { question: Some(Question::FirstPass), ..contest(&["direct"], 1) };
        let mut warm = Contest { question: Some(Question::SteadyState), ..contest(&["direct", "pread"], 1) };
        warm.comparison.trial.cache = CacheState::Warm;
        // Another order sees other bytes.
        let mut run = |trial: &Trial| {
            let seen = u64::from(trial.cache == CacheState::Cold);
            let answer = crate::record::Answer::Digests(vec![vec![seen]]);
            Ok(Record { answer, ..ran(trial, 1_000) })
        };

        let records = raced(&[cold, warm], 100, &mut run, &nothing);

        assert!(records.iter().all(Record::is_valid), "{records:#?}");
    }

    #[test]
    fn a_disturbed_run_is_made_again_at_once_and_a_disturbed_round_by_the_next() {
        let ran = |disturbed: &[&str]| {
            let mut run = |trial: &Trial| {
                let record = ran(trial, 1_000);
                let is_disturbed = trial.repetition == 0 && disturbed.contains(&trial.arm.to_string().as_str());
                let by_others = |mut record: Record| {
                    record.gates = Run::of("mmap").spoiled("busy").record().gates;
                    record.gates[0].by = Cause::Others;
                    record
                };
                Ok(if is_disturbed { by_others(record) } else { record })
            };
            raced(&[contest(&["mmap", "direct", "pread", "uring"], 1)], 100, &mut run, &nothing).len()
        };

        assert_eq!(ran(&[]), 4);
        assert_eq!(ran(&["direct"]), 6, "twice more");
        assert_eq!(ran(&["mmap", "direct", "pread"]), 4);
    }

    #[test]
    fn the_users_stop_ends_it_with_what_there_is_and_an_error_without() {
        let stop = AtomicBool::new(false);
        let mut runs = 0;
        let mut run = |trial: &Trial| {
            runs += 1;
            stop.store(runs == 2, Ordering::Relaxed);
            Ok(ran(trial, 1_000))
        };
        let mut clock = || Nanos(0);
        let mut track = Track { run: &mut run, clock: &mut clock, stop: &stop, time: Nanos::secs(1) };
        let records = track.race(&[contest(&["direct", "pread", "uring"], 3)], &nothing, |_| Ok(())).unwrap();
        stop.store(false, Ordering::Relaxed);
        let full = track.race(&[contest(&["direct"], 3)], &nothing, |_| Err(Error::Invalid("full".to_owned())));

        assert_eq!(told(&records), ["direct 0", "pread 0"]);
        assert!(full.is_err());
    }

    /// What the command has for a referee.
    fn referee(records: &[Record]) -> Ruling {
        let summary = Summary::of(records);
        let groups = &summary.groups;
        Ruling {
            stopped: groups.iter().flat_map(report::race::behind).collect(),
            is_over: groups.iter().all(report::race::is_over),
        }
    }

    /// Rates a second with one percent of noise that depends on arm and repetition alone.
    fn rate(trial: &Trial) -> u64 {
        let level = match trial.arm.to_string().as_str() {
            "uring" => 90_000,
            "direct" => 80_000,
            "pread" => 12_000,
            "mmap" => 200,
            _ => 900_000_000,
        };
        let noise = crate::data::mix(level ^ u64::from(trial.repetition)) % 200;
        level / 10_000 * (9_900 + noise) + level % 10_000
    }

    #[test]
    fn with_planted_rates_the_slow_ones_stop_the_baseline_and_the_control_go_on_and_the_fastest_is_named() {
        let names = ["null", "mmap", "pread", "direct", "uring"];

        let records = raced(&[contest(&names, 25)], 1_000, &mut |trial| Ok(ran(trial, rate(trial))), &referee);

        let runs = |name: &str| records.iter().filter(|record| record.trial.arm.to_string() == name).count();
        assert_eq!(names.map(runs), [6, 6, 3, 3, 6]);
        let summary = Summary::of(&records);
        let group = &summary.groups[0];
        assert_eq!(group.verdict.best.as_deref(), Some("uring"));
        assert!(group.is_valid());
        assert_eq!(
            report::race::cut_short(group).unwrap(),
            "2 of 5 stopped after 3 runs, surely behind; the others ended after 6 runs, as the answer was sure"
        );
    }

    #[test]
    fn a_report_from_the_records_alone_says_the_same_as_the_session_did() {
        let names = ["null", "mmap", "pread", "direct", "uring"];
        let records = raced(&[contest(&names, 25)], 1_000, &mut |trial| Ok(ran(trial, rate(trial))), &referee);

        let lines: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
        let read: Vec<Record> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();

        let told = |records: &[Record]| report::json::document(&Summary::of(records), records).to_string();
        assert_eq!(told(&read), told(&records));
    }

    #[test]
    fn a_failure_is_no_stop_and_time_that_is_up_is_no_answer() {
        let mut fails = |trial: &Trial| match trial.arm.to_string().as_str() {
            "pread" => Ok(Record { outcome: Outcome::Failed("EIO".to_owned()), ..ran(trial, 0) }),
            _ => Ok(ran(trial, rate(trial))),
        };

        let records = raced(&[contest(&["mmap", "pread", "uring"], 25)], 9, &mut fails, &referee);

        let summary = Summary::of(&records);
        let group = &summary.groups[0];
        assert!(group.arms.iter().all(|arm| arm.stopped.is_none()));
        assert!(!group.is_valid(), "a method failed");
        assert_eq!(
            group.verdict.sentence,
            "NO VERDICT YET: 4 runs of each method in the time given, a verdict needs 6 (--time 18s); so far uring has 451 x \
             [449–453, 4 runs: 88 %] the throughput of mmap"
        );
    }
}
