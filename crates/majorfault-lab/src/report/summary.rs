//! Records grouped by session and trial, each group's arms with their figures, ranked against the best of them.
//!
//! Ratios are of records of the same session and repetition only: those were interleaved, others were not.

use super::advice::Suggestion;
use super::derive::{self, Formula};
use super::verdict::{Ranking, Standing};
use super::{advice, phases, series, verdict};
use crate::record::{Buckets, Gate, GateFinding, Machine, Outcome, Question, Race, Record, StoppedArm};
use crate::stats::{self, Estimate, Looks, PairedRatio};
use crate::traits::Class;
use crate::trial::{Arm, Choice, Trial};
use std::collections::BTreeSet;

/// All that a report says, computed once.
#[derive(Debug)]
pub struct Summary<'a> {
    /// One for each session and trial, in the order of their first record.
    pub groups: Vec<Group<'a>>,
}

/// Arms that may be compared: one session, one workload, one place.
#[derive(Debug)]
pub struct Group<'a> {
    /// Name of the session.
    pub session: &'a str,
    /// What all arms share; its own arm and repetition mean nothing.
    pub trial: &'a Trial,
    /// Where it ran.
    pub machine: &'a Machine,
    /// Best first; then those that are not valid, then those without figures, the control last.
    pub arms: Vec<ArmSummary<'a>>,
    /// Repetitions of the arms in turns; a disturbed run that was made again counts with its repetition.
    pub repetitions: usize,
    /// What its race had decided before the last run, where it is one.
    pub race: Option<&'a Race>,
    /// What spoiled runs, each condition once, the most frequent first.
    pub troubles: Vec<Trouble>,
    /// What is worth knowing of runs that stand, likewise.
    pub noted: Vec<Trouble>,
    /// Which method is best, by how much, and why.
    pub verdict: Ranking,
    /// What to do about it.
    pub advice: Vec<Suggestion>,
}

/// A condition that was not met by runs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The gate's name.
    pub gate: String,
    /// Runs that did not meet it.
    pub runs: usize,
    /// Arms that these are of.
    pub arms: Vec<String>,
    /// What it said first.
    pub first: String,
    /// What to do about it.
    pub remedy: String,
}

/// One arm of a group.
#[derive(Debug)]
pub struct ArmSummary<'a> {
    /// As users type it: `mmap advice=random`.
    pub name: String,
    /// Its part in the comparison.
    pub role: Role,
    /// Whether its figures count.
    pub state: State,
    /// Place in the order of the group's first records, for colours that stay the same.
    pub order: usize,
    /// All its records.
    pub records: Vec<&'a Record>,
    /// The records that its figures are computed from.
    pub used: Vec<&'a Record>,
    /// Throughput as part of the best method's; `None` for the control, or without figures.
    pub ratio: Option<PairedRatio>,
    /// Latency of all runs used.
    pub latency: Buckets,
    /// How long accesses of a queue waited until they were sent, in all runs used.
    pub queueing: Buckets,
    /// What was found on its timeline.
    pub phases: Option<String>,
    /// Rounds after which a race stopped it, as it was surely behind.
    pub stopped: Option<u32>,
}

/// The part of an arm in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Does nothing; its time is the harness's own.
    Control,
    /// An access method, one of those to choose from.
    Method,
    /// Another program as a yardstick.
    Peer,
}

/// Whether an arm's figures count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All its runs, or those left, are valid; what went wrong in the others.
    Measured(Vec<String>),
    /// It ran, and this is why the figures do not mean what they say.
    Invalid(Vec<String>),
    /// It could not run here.
    Missing(String),
    /// It failed.
    Failed(String),
}

impl<'a> Summary<'a> {
    /// Groups, ranks and judges `records`.
    pub fn of(records: &'a [Record]) -> Summary<'a> {
        let mut groups: Vec<(String, Vec<&Record>)> = Vec::new();
        for record in records {
            let key = group_key(record);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push(record),
                None => groups.push((key, vec![record])),
            }
        }
        Summary { groups: groups.into_iter().filter_map(|(_, members)| Group::of(&members)).collect() }
    }
}

/// Session and trial without what differs inside a group.
fn group_key(record: &Record) -> String {
    let trial = Trial { arm: Arm::Method(Choice::plain("")), repetition: 0, ..record.trial.clone() };
    format!("{} {trial:?}", record.session)
}

impl<'a> Group<'a> {
    fn of(records: &[&'a Record]) -> Option<Group<'a>> {
        let first = *records.first()?;
        let mut arms = arms(records);
        let race = records.iter().rev().find_map(|record| record.race.as_ref());
        for StoppedArm { arm, rounds } in race.iter().flat_map(|race| &race.stopped) {
            let stopped = arms.iter_mut().find(|one| one.records[0].trial.arm == *arm);
            stopped.into_iter().for_each(|one| one.stopped = Some(*rounds));
        }
        rank(&mut arms);
        let repetitions = records.iter().map(|record| record.trial.repetition).collect::<BTreeSet<_>>().len();
        let mut group = Group {
            session: &first.session,
            trial: &first.trial,
            machine: &first.machine,
            arms,
            repetitions,
            race,
            troubles: troubles(records, GateFinding::Spoiled),
            noted: troubles(records, GateFinding::Noted),
            verdict: Ranking::default(),
            advice: Vec::new(),
        };
        group.find_phases();
        group.verdict = verdict::of(&group);
        group.advice = advice::of(&group);
        Some(group)
    }

    /// Runs of all arms.
    pub fn runs(&self) -> usize {
        self.arms.iter().map(|arm| arm.records.len()).sum()
    }

    /// Whether its figures mean what they say: every arm but the control has valid runs or could not run here, and the
    /// verdict had the runs that it needed.
    pub fn is_valid(&self) -> bool {
        let is_broken = |arm: &&ArmSummary<'_>| matches!(arm.state, State::Invalid(_) | State::Failed(_));
        let real = self.arms.iter().filter(|arm| arm.role != Role::Control);
        real.filter(is_broken).count() == 0 && self.verdict.standing != Standing::NotValid
    }

    /// The methods with valid figures, best first.
    pub fn methods(&self) -> impl Iterator<Item = &ArmSummary<'a>> {
        self.arms.iter().filter(|arm| arm.role == Role::Method && arm.is_measured())
    }

    /// The best method.
    pub fn best(&self) -> Option<&ArmSummary<'a>> {
        self.methods().next()
    }

    /// The control, where it ran.
    pub fn control(&self) -> Option<&ArmSummary<'a>> {
        self.arms.iter().find(|arm| arm.role == Role::Control && arm.is_measured())
    }

    /// Which of two questions it answers, where its session asked both.
    pub fn question(&self) -> Option<Question> {
        self.arms.iter().flat_map(|arm| &arm.records).find_map(|record| record.question)
    }

    fn find_phases(&mut self) {
        let explicit = self.explicit_level();
        for arm in &mut self.arms {
            let beside = explicit.as_ref().filter(|(name, _)| *name != arm.name);
            let beside = beside.map(|(name, level)| (name.as_str(), *level));
            arm.phases = arm.typical().and_then(|record| phases::sentence(record, beside));
        }
    }

    /// Name and median level of the best arm that bypasses the page cache: what mmap is held against once memory is full.
    fn explicit_level(&self) -> Option<(String, f64)> {
        let arm = self.arms.iter().find(|arm| arm.is_measured() && arm.role != Role::Control && arm.is_direct())?;
        let levels: Vec<f64> = series::throughput(arm.typical()?).0.iter().map(|(_, level)| *level).collect();
        let level = stats::median(&levels).or_else(|| Some(arm.figure(&derive::VISIT_THROUGHPUT)?.median))?;
        Some((arm.name.clone(), level))
    }
}

impl Trouble {
    /// The condition, in how many of `all` runs and of which arms, what it said first, what to do.
    pub fn sentence(&self, all: usize) -> String {
        let Trouble { gate, runs, arms, first, remedy } = self;
        let whose = if arms.len() <= 3 { format!(" ({})", arms.join(", ")) } else { String::new() };
        let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        format!("{gate}, {runs} of {all} runs{whose}: {first}{remedy}")
    }
}

impl<'a> ArmSummary<'a> {
    fn of(name: String, order: usize, records: Vec<&'a Record>) -> ArmSummary<'a> {
        let valid: Vec<&Record> = records.iter().copied().filter(|record| record.is_valid()).collect();
        let ran = |record: &&Record| matches!(record.outcome, Outcome::Done | Outcome::Interrupted);
        let used = if valid.is_empty() { records.iter().copied().filter(ran).collect() } else { valid };
        let role = match &records[0].trial.arm {
            Arm::Peer(_) => Role::Peer,
            Arm::Method(_) if records[0].is_control() => Role::Control,
            Arm::Method(_) | Arm::Procedure(_) => Role::Method,
        };
        let latency = derive::merged(used.iter().map(|record| &record.latency.buckets));
        let queueing = derive::merged(used.iter().map(|record| &record.queueing.buckets));
        let state = state(&records);
        let (ratio, phases, stopped) = (None, None, None);
        ArmSummary { name, role, state, order, records, used, ratio, latency, queueing, phases, stopped }
    }

    /// The estimate of a figure over the runs used.
    pub fn figure(&self, formula: &Formula) -> Option<Estimate> {
        let values: Vec<f64> = self.used.iter().filter_map(|record| (formula.of)(record)).collect();
        stats::estimate_at(&values, self.looks())
    }

    /// The median of a figure.
    pub fn median(&self, formula: &Formula) -> Option<f64> {
        self.figure(formula).map(|estimate| estimate.median)
    }

    /// Whether it has figures that count.
    pub fn is_measured(&self) -> bool {
        matches!(self.state, State::Measured(_)) && self.median(&derive::THROUGHPUT).is_some()
    }

    /// The run whose throughput is the median one, to be shown where only one can be.
    pub fn typical(&self) -> Option<&'a Record> {
        let mut runs = self.used.clone();
        let speed = |record: &Record| (derive::THROUGHPUT.of)(record).unwrap_or(0.0);
        runs.sort_by(|one, other| speed(one).total_cmp(&speed(other)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// What it is; `None` where that is not known here.
    pub fn class(&self) -> Option<Class> {
        self.records.iter().find_map(|record| record.class())
    }

    /// Transfers that each of its threads keeps in flight; `None` where it has no queue.
    pub fn depth(&self) -> Option<u32> {
        self.records.iter().find_map(|record| record.traits.as_ref()?.depth)
    }

    /// The value in force of a setting.
    pub fn setting(&self, name: &str) -> Option<&'a str> {
        self.records.iter().find_map(|record| record.settings.get(name)).map(String::as_str)
    }

    /// Whether it reads past the page cache.
    pub fn is_direct(&self) -> bool {
        self.records.iter().any(|record| record.traits.as_ref().is_some_and(|traits| traits.direct))
    }

    /// Its throughput against another's, paired by repetition.
    pub fn against(&self, other: &ArmSummary<'_>) -> Option<PairedRatio> {
        stats::compare_at(&self.pairs(other), self.looks())
    }

    /// Its throughput and another's, of each repetition that both have.
    pub fn pairs(&self, other: &ArmSummary<'_>) -> Vec<(f64, f64)> {
        let speed = |record: &Record| (derive::THROUGHPUT.of)(record);
        let partner =
            |record: &Record| other.used.iter().find(|other| other.trial.repetition == record.trial.repetition);
        self.used.iter().filter_map(|record| Some((speed(record)?, speed(partner(record)?)?))).collect()
    }

    /// How often its session looked at its figures.
    fn looks(&self) -> Looks {
        if self.records.iter().any(|record| record.race.is_some()) { Looks::Repeated } else { Looks::Once }
    }
}

fn arms<'a>(records: &[&'a Record]) -> Vec<ArmSummary<'a>> {
    let mut members: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in records {
        let name = record.trial.arm.to_string();
        match members.iter_mut().find(|(known, _)| *known == name) {
            Some((_, runs)) => runs.push(record),
            None => members.push((name, vec![record])),
        }
    }
    members.into_iter().enumerate().map(|(order, (name, runs))| ArmSummary::of(name, order, runs)).collect()
}

fn state(records: &[&Record]) -> State {
    let troubles: Vec<String> = records.iter().filter_map(|record| trouble(record)).collect();
    if records.iter().any(|record| record.is_valid()) {
        return State::Measured(troubles);
    }
    let of = |found: fn(&Outcome) -> bool| records.iter().find(|record| found(&record.outcome)).copied();
    if let Some(Record { outcome: Outcome::Failed(why), .. }) = of(|outcome| matches!(outcome, Outcome::Failed(_))) {
        return State::Failed(why.clone());
    }
    if let Some(Record { outcome: Outcome::Missing(missing), .. }) =
        of(|outcome| matches!(outcome, Outcome::Missing(_)))
    {
        return State::Missing(format!("{}: {}; {}", missing.what, missing.reason, missing.remedy));
    }
    State::Invalid(troubles)
}

/// Conditions with this finding, each once.
fn troubles(records: &[&Record], finding: GateFinding) -> Vec<Trouble> {
    let mut found: Vec<Trouble> = Vec::new();
    let gates = records.iter().flat_map(|record| record.gates.iter().map(move |gate| (record, gate)));
    for (record, gate) in gates.filter(|(_, gate)| gate.finding == finding) {
        let at = found.iter().position(|trouble| trouble.gate == gate.name).unwrap_or_else(|| {
            let Gate { name, says, remedy, .. } = gate.clone();
            found.push(Trouble { gate: name, runs: 0, arms: Vec::new(), first: says, remedy });
            found.len() - 1
        });
        found[at].runs += 1;
        let name = record.trial.arm.to_string();
        if !found[at].arms.contains(&name) {
            found[at].arms.push(name);
        }
    }
    found.sort_by_key(|trouble| std::cmp::Reverse(trouble.runs));
    found
}

/// What is wrong with one run, with its repetition counted from 1.
fn trouble(record: &Record) -> Option<String> {
    let why = match &record.outcome {
        Outcome::Done => record.spoiled().map(str::to_owned).reduce(|one, next| format!("{one}; {next}"))?,
        Outcome::Interrupted => "interrupted half-way; the figures are of the part that ran".to_owned(),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Missing(missing) => format!("{}: {}", missing.what, missing.reason),
    };
    Some(format!("repetition {}: {why}", record.trial.repetition.saturating_add(1)))
}

/// Orders the arms and gives each its ratio to the best method (to the best peer where there is no method).
fn rank(arms: &mut [ArmSummary<'_>]) {
    let speed = |arm: &ArmSummary<'_>| arm.median(&derive::THROUGHPUT).unwrap_or(0.0);
    let class = |arm: &ArmSummary<'_>| match (&arm.role, &arm.state) {
        (Role::Control, _) => 4,
        (_, State::Measured(_)) if arm.is_measured() => 0,
        (_, State::Measured(_) | State::Invalid(_)) => 1,
        (_, State::Failed(_)) => 2,
        (_, State::Missing(_)) => 3,
    };
    arms.sort_by(|one, other| class(one).cmp(&class(other)).then(speed(other).total_cmp(&speed(one))));
    // Rounds that an arm had no part in may have been slow for all: whom a race stopped is never the best.
    let best = |role| arms.iter().position(|arm| arm.role == role && arm.is_measured() && arm.stopped.is_none());
    let Some(best) = best(Role::Method).or_else(|| best(Role::Peer)) else { return };
    for index in 0..arms.len() {
        if arms[index].role != Role::Control && arms[index].is_measured() {
            arms[index].ratio = arms[index].against(&arms[best]);
        }
    }
    if arms.iter().any(|arm| arm.stopped.is_some()) {
        let best = arms[best].name.clone();
        arms.sort_by(|one, other| {
            class(one).cmp(&class(other)).then(place(other, &best).total_cmp(&place(one, &best)))
        });
    }
}

/// Where an arm stands by its ratio to the best: the only measure that arms with different numbers of rounds share.
fn place(arm: &ArmSummary<'_>, best: &str) -> f64 {
    let ratio = arm.ratio.map_or(0.0, |found| found.ratio.median);
    match arm.role {
        Role::Method if arm.name == best => 1.0,
        // Tied with the best, perhaps, but behind it.
        Role::Method => ratio.min(1.0 - f64::EPSILON),
        Role::Peer | Role::Control => ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{Run, repeated, repeated_by};

    fn names(group: &Group<'_>) -> Vec<String> {
        group.arms.iter().map(|arm| arm.name.clone()).collect()
    }

    #[test]
    fn best_is_first_and_the_control_last_whatever_its_speed() {
        let records =
            [repeated("null", 90_000_000, 6), repeated("pread", 9_000, 6), repeated("direct", 30_000, 6)].concat();

        let summary = Summary::of(&records);

        assert_eq!(names(&summary.groups[0]), ["direct", "pread", "null"]);
        assert_eq!(summary.groups[0].best().unwrap().name, "direct");
        assert_eq!(summary.groups[0].control().unwrap().name, "null");
        assert!(Summary::of(&repeated("pread", 9_000, 6)).groups[0].control().is_none());
    }

    #[test]
    fn a_control_that_failed_spoils_nothing_and_a_method_that_lacks_a_run_does() {
        let is_valid = |records: &[Record]| Summary::of(records).groups[0].is_valid();
        let two = [repeated("direct", 30_000, 6), repeated("pread", 9_000, 6)].concat();
        let mut lacking = two.clone();
        lacking[1] = Run::of("direct").repetition(1).spoiled("half of it was cached").record();

        assert!(is_valid(&[two.clone(), vec![Run::of("null").failed("no").record()]].concat()));
        assert!(!is_valid(&[two, vec![Run::of("mmap").failed("no").record()]].concat()));
        assert!(!is_valid(&lacking));
    }

    /// Runs of 5 s within memory that was full after one, at this level from then on.
    fn filled(arm: &str, after: u64) -> Vec<Record> {
        let full: Vec<u64> = (0..20).map(|index| if index < 4 { 32 << 20 } else { 64 << 20 }).collect();
        let accesses: Vec<u64> = (0..20).map(|index| if index < 5 { 1_000 } else { after }).collect();
        let run = Run::of(arm).memory(64 << 20).accesses(accesses.iter().sum()).phases_ms(0, 5_000, 0);
        let run = run.timeline(&accesses).sampled(crate::report::counters::CGROUP_BYTES, &full);
        (0..6).map(|repetition| run.clone().repetition(repetition).record()).collect()
    }

    #[test]
    fn a_collapse_stands_beside_the_best_that_reads_past_the_page_cache() {
        let records =
            [filled("null", 9_000), filled("pread", 5_000), filled("mmap", 100), filled("direct", 500)].concat();

        let summary = Summary::of(&records);

        let says = |name: &str| summary.groups[0].arms.iter().find(|arm| arm.name == name).unwrap().phases.clone();
        let (mapped, direct) = (says("mmap").unwrap(), says("direct").unwrap());
        assert!(mapped.ends_with("then 20 % of direct (10 % of its own level before)"), "{mapped}");
        assert!(direct.ends_with("then 50 % of its level before"), "{direct}");
    }

    #[test]
    fn runs_without_a_throughput_are_no_measurement_and_come_after_invalid_ones() {
        let nothing = Run::of("pread").edit(|record| record.phases.clear()).record();
        let cached = Run::of("mmap").accesses(1_000_000).spoiled("it was cached").record();

        let records = [nothing, cached];
        let summary = Summary::of(&records);

        assert_eq!(names(&summary.groups[0]), ["mmap", "pread"]);
        assert!(summary.groups[0].arms.iter().all(|arm| !arm.is_measured()));
    }

    #[test]
    fn the_typical_run_is_the_one_in_the_middle() {
        let speeds = [60, 10, 50, 20, 40, 30];
        let records: Vec<Record> =
            (0..6).zip(speeds).map(|(turn, speed)| Run::of("mmap").accesses(speed).repetition(turn).record()).collect();

        assert_eq!(Summary::of(&records).groups[0].arms[0].typical().unwrap().accesses(), 30);
    }

    #[test]
    fn a_ratio_is_to_the_best_method_also_for_a_faster_peer() {
        let records = [repeated("direct", 30_000, 6), repeated_by(&Run::peer("fio"), 33_000, 6)].concat();

        let summary = Summary::of(&records);

        let ratio = |name: &str| {
            summary.groups[0].arms.iter().find(|arm| arm.name == name).and_then(|arm| arm.ratio).unwrap().ratio.median
        };
        assert_eq!(ratio("direct"), 1.0);
        assert!((ratio("fio") - 1.1).abs() < 0.001);
        assert_eq!(names(&summary.groups[0]), ["fio", "direct"]);
    }

    #[test]
    fn a_spoiled_run_is_left_out_while_others_are_valid_and_said() {
        let mut records = repeated("direct", 30_000, 6);
        records[1] = Run::of("direct").accesses(1).repetition(1).spoiled("half of it was cached").record();

        let summary = Summary::of(&records);

        let arm = &summary.groups[0].arms[0];
        assert_eq!(arm.used.len(), 5);
        assert_eq!(arm.state, State::Measured(vec!["repetition 2: half of it was cached".to_owned()]));
    }

    #[test]
    fn an_arm_with_only_spoiled_runs_is_shown_after_the_valid_ones_and_never_best() {
        let fast = Run::of("mmap").accesses(1_000_000).spoiled("it was cached").record();
        let records = [vec![fast], repeated("pread", 1_000, 1)].concat();

        let summary = Summary::of(&records);

        assert_eq!(names(&summary.groups[0]), ["pread", "mmap"]);
        assert_eq!(summary.groups[0].best().unwrap().name, "pread");
    }

    #[test]
    fn failed_and_missing_arms_are_kept_with_their_reason() {
        let missing = Run::of("uring").missing("io_uring", "io_uring_setup is refused", "allow it in seccomp").record();
        let records = [missing, Run::of("mmap").failed("SIGBUS: the file became shorter").record()];

        let summary = Summary::of(&records);

        assert_eq!(names(&summary.groups[0]), ["mmap", "uring"]);
        let reason = "io_uring: io_uring_setup is refused; allow it in seccomp".to_owned();
        assert_eq!(summary.groups[0].arms[1].state, State::Missing(reason));
    }

    #[test]
    fn sessions_and_workloads_are_never_compared_with_each_other() {
        let other_session = Run::of("direct").session("later").accesses(9_999_999).record();
        let other_workload = Run::of("direct").workload("strided stride=256k").record();
        let records = [repeated("pread", 1_000, 2), vec![other_session, other_workload]].concat();

        let summary = Summary::of(&records);

        assert_eq!(summary.groups.iter().map(|group| group.arms.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(summary.groups[0].best().unwrap().ratio.unwrap().ratio.median, 1.0);
    }
}
