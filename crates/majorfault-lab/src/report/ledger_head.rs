//! The summary of a ledger: counts of verdicts, and the sessions, commits, machines and conditions behind them.

use super::ledger::{agreeing, agreeing_words, count};
use crate::experiment::{self, Entry, Machines, RowKind, SessionRecords, is_refused};
use crate::record::{GateFinding, Machine, Record};
use majorfault::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds without a run from which on a session is said to have paused.
const PAUSE_S: u64 = 600;

/// Verdicts in the order in which a reader asks for them.
const ORDER: [&str; 3] = ["holds here", "does not hold here", "undecided, run more"];

/// The first lines of a ledger.
pub struct Head {
    /// Each kind of rows with its verdicts.
    pub counts: Vec<(RowKind, BTreeMap<&'static str, usize>)>,
    /// A line for each session.
    pub sessions: Vec<String>,
    /// What wrote the records; more than one where sessions were made at different commits.
    pub tools: BTreeSet<String>,
    /// A line for each machine.
    pub machines: BTreeSet<String>,
    /// What limits the figures, with the number of runs.
    pub conditions: Vec<String>,
    agreeing: Option<String>,
}

impl Head {
    /// The head of these entries, judged from these records.
    pub fn of(entries: &[Entry], records: &[Record]) -> Head {
        let used: BTreeSet<&str> = entries.iter().map(|entry| entry.experiment.id).collect();
        let mut sessions = experiment::sessions(records);
        let machines = Machines::of(&sessions);
        for session in &mut sessions {
            session
                .records
                .retain(|record| record.cell.as_ref().is_some_and(|cell| used.contains(cell.experiment.as_str())));
        }
        sessions.retain(|session| !session.records.is_empty());
        let named = |session: &SessionRecords<'_>| session.machine().map(|it| machines.letter(it)).unwrap_or_default();
        let all: Vec<&Record> = sessions.iter().flat_map(|session| session.records.iter().copied()).collect();
        Head {
            counts: count(entries).into_iter().collect(),
            sessions: sessions.iter().map(|session| session_line(session, &named(session))).collect(),
            tools: all.iter().map(|record| tool(record)).collect(),
            machines: all.iter().map(|record| lettered(&record.machine, &machines)).collect(),
            conditions: conditions(&all),
            agreeing: (agreeing(entries, |_| true).1 > 0).then(|| agreeing_words(entries)),
        }
    }

    /// All of it, a sentence each.
    pub fn lines(&self) -> Vec<String> {
        [self.answer(), self.basis()].concat()
    }

    /// What it comes to: how many rows of each kind have which verdict.
    pub fn answer(&self) -> Vec<String> {
        self.counts.iter().map(|(kind, verdicts)| counted(*kind, verdicts)).collect()
    }

    /// On what it rests: sessions, machines, conditions.
    pub fn basis(&self) -> Vec<String> {
        let mut lines = self.sessions_lines();
        lines.extend(self.machines.iter().map(|machine| format!("machine: {machine}")));
        lines.extend(self.conditions.iter().map(|condition| format!("condition: {condition}")));
        lines
    }

    /// What there is of sessions.
    pub fn sessions_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.sessions.iter().map(|session| format!("session {session}")).collect();
        if self.sessions.len() > 1 {
            lines.push(
                "several sessions: each judges every row separately; a row has the verdict on which they agree, and the \
                 figures of the first session that ran it"
                    .to_owned(),
            );
        }
        lines.extend(self.agreeing.clone());
        if self.tools.len() > 1 {
            lines.push("the records were made by different commits".to_owned());
        }
        lines
    }
}

/// `published claims: 7 hold here, 2 do not`: what was decided first, then what was not.
fn counted(kind: RowKind, verdicts: &BTreeMap<&'static str, usize>) -> String {
    let rank = |words: &str| ORDER.iter().position(|known| *known == words).unwrap_or(ORDER.len());
    let mut sorted: Vec<_> = verdicts.iter().collect();
    sorted.sort_by_key(|(words, _)| rank(words));
    let parts: Vec<String> = sorted.into_iter().map(|(words, count)| format!("{words} {count}")).collect();
    format!("{}: {}", kind.words(), parts.join("; "))
}

/// The machine, with its letter before it where there are several.
fn lettered(of: &Machine, machines: &Machines) -> String {
    match machines.letter(of).as_str() {
        "" => machine(of),
        letter => format!("{letter}, {}", machine(of)),
    }
}

fn session_line(session: &SessionRecords<'_>, machine: &str) -> String {
    let of = |part: fn(&Record) -> String| -> String {
        let parts: BTreeSet<String> = session.records.iter().map(|record| part(record)).collect();
        parts.into_iter().collect::<Vec<_>>().join(", ")
    };
    let refused = session.records.iter().filter(|record| is_refused(record)).count();
    let paused = pause_s(session).map(|seconds| format!(", paused for {} min", seconds / 60)).unwrap_or_default();
    let machine = if machine.is_empty() { String::new() } else { format!(" on {machine}") };
    format!(
        "{}{machine}: {} runs, {refused} refused, scale {}, {}{paused} ({})",
        session.name,
        session.records.len(),
        of(|record| record.cell.as_ref().map(|cell| cell.scale.clone()).unwrap_or_default()),
        of(tool),
        of(|record| record.cell.as_ref().map(|cell| cell.experiment.clone()).unwrap_or_default()),
    )
}

/// The longest time between two runs, where it is long.
fn pause_s(session: &SessionRecords<'_>) -> Option<u64> {
    let ended = |record: &Record| {
        record.began_unix_s + record.phases.iter().map(|phase| phase.wall_ns).sum::<u64>() / 1_000_000_000
    };
    let gaps = session.records.windows(2).map(|pair| pair[1].began_unix_s.saturating_sub(ended(pair[0])));
    gaps.max().filter(|seconds| *seconds >= PAUSE_S)
}

/// The program that wrote a record, with its commit where it names one.
fn tool(record: &Record) -> String {
    match record.tool.contains('(') {
        true => record.tool.clone(),
        false => format!("{} (commit not recorded)", record.tool),
    }
}

fn machine(machine: &Machine) -> String {
    let known = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    let device = if machine.device.is_empty() { "no device" } else { &machine.device };
    format!(
        "{} x {}, {} memory, Linux {}, {} on {device}, read_ahead_kb {}",
        machine.cpus,
        machine.cpu,
        Bytes(machine.memory_bytes).rounded(),
        machine.kernel,
        machine.filesystem,
        known(machine.read_ahead_kb),
    )
}

/// Counters that a hypervisor had to switch: since that is known they are only taken where it is cheap.
fn slowed(record: &Record) -> Option<String> {
    let counted = record.phases.iter().any(|phase| phase.counters.contains_key("cycles"));
    (counted && !record.machine.hypervisor.is_empty()).then(|| SWITCHED.to_owned())
}

/// What is said then.
const SWITCHED: &str = "hardware counters were counted in a virtual machine, whose hypervisor may switch them at each wait of a thread: \
                        waits may be longer by tens of microseconds, so times of what waits often are upper bounds";

fn conditions(records: &[&Record]) -> Vec<String> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        let remarks = record.machine.remarks.iter().cloned().chain(slowed(record));
        let noted = record.gates.iter().filter(|gate| gate.finding == GateFinding::Noted);
        for condition in remarks.chain(noted.map(|gate| format!("noted: {}", gate.name))).collect::<BTreeSet<_>>() {
            *found.entry(condition).or_default() += 1;
        }
    }
    let all = records.len();
    let refused = experiment::reasons(records).into_iter().map(|reason| format!("refused: {reason}"));
    found.into_iter().map(|(condition, count)| format!("{condition} ({count} of {all} runs)")).chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn counters_that_a_hypervisor_had_to_switch_are_a_condition() {
        let run = |hypervisor: &str| Run::of("mmap").edit(|record| record.machine.hypervisor = hypervisor.to_owned());
        let found = |run: Run| conditions(&[&run.record()]).iter().any(|condition| condition.starts_with(SWITCHED));

        assert!(found(run("KVM").counter("cycles", 7)));
        assert!(!found(run("").counter("cycles", 7)));
        assert!(!found(run("KVM")));
    }
}
