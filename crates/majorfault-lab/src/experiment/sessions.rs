//! Sessions: records that were made in turns and may be compared, and the machines that made them. A row is judged in each
//! session by itself; what it comes to is what they agree on.

use super::verdict::{Verdict, Why};
use crate::record::{Machine, Record};
use majorfault::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The records of one session that belong to an experiment.
pub struct SessionRecords<'a> {
    /// Its name in the records.
    pub name: &'a str,
    /// In the order they were made.
    pub records: Vec<&'a Record>,
}

/// What one session says of a row.
#[derive(Clone, Debug)]
pub struct SessionVerdict {
    /// The session's name.
    pub session: String,
    /// The letter of its machine; empty where there is one machine only.
    pub machine: String,
    /// What it says.
    pub verdict: Verdict,
}

/// How many sessions gave the most frequent verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Sessions that agree.
    pub agree: usize,
    /// Sessions that ran the row's cells.
    pub of: usize,
}

/// How many sessions of each machine gave a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSessions {
    /// The verdict, in the words of the ledger.
    pub verdict: &'static str,
    /// Each machine's letter, its sessions that say so, and all of its sessions that ran the row's cells.
    pub machines: Vec<(String, Agreement)>,
}

/// The machines behind several sessions, each known by a letter, in the order of their first record.
#[derive(Clone, Debug, Default)]
pub struct Machines(Vec<String>);

/// The sessions of `records`, in the order of their first record. Records of no experiment are left out.
pub fn sessions(records: &[Record]) -> Vec<SessionRecords<'_>> {
    let mut found: Vec<SessionRecords<'_>> = Vec::new();
    let mut seen = BTreeSet::new();
    // A file that is named twice does not double the runs.
    for record in records {
        let Some(cell) = &record.cell else { continue };
        if !seen.insert((&record.session, cell, record.trial.repetition, record.began_unix_s)) {
            continue;
        }
        match found.iter_mut().find(|session| session.name == record.session) {
            Some(session) => session.records.push(record),
            None => found.push(SessionRecords { name: &record.session, records: vec![record] }),
        }
    }
    found
}

impl Machines {
    /// Those of these sessions; a session is made on one machine.
    pub fn of(sessions: &[SessionRecords<'_>]) -> Machines {
        let mut known: Vec<String> = Vec::new();
        for machine in sessions.iter().filter_map(SessionRecords::machine) {
            let name = described(machine);
            if !known.contains(&name) {
                known.push(name);
            }
        }
        Machines(known)
    }

    /// The letter of the machine that made a session: A for the first. Empty where there is one machine only.
    pub fn letter(&self, machine: &Machine) -> String {
        let name = described(machine);
        match self.0.iter().position(|known| *known == name) {
            Some(index) if self.0.len() > 1 => lettered(index),
            _ => String::new(),
        }
    }
}

/// A to Z, then numbers.
fn lettered(index: usize) -> String {
    match u8::try_from(index).ok().filter(|index| *index < 26) {
        Some(index) => char::from(b'A' + index).to_string(),
        None => (index + 1).to_string(),
    }
}

/// What makes a machine another one: processors, memory, kernel. Disks and settings may change between experiments.
pub fn described(machine: &Machine) -> String {
    format!("{}, {}", host(machine), machine.kernel)
}

/// The same without the kernel, which changes while the machine stays.
pub fn host(machine: &Machine) -> String {
    let Machine { architecture, cpu, cpus, memory_bytes, hypervisor, .. } = machine;
    format!("{cpus} x {cpu} {architecture} {hypervisor}, {}", Bytes(*memory_bytes).rounded())
}

impl SessionRecords<'_> {
    /// The machine that made it; `None` without a record.
    pub fn machine(&self) -> Option<&Machine> {
        self.records.first().map(|record| &record.machine)
    }
}

/// What the verdicts of these sessions come to: the one they agree on. A session that cannot test it, or did not run it, has
/// no say where another could.
pub fn common(verdicts: &[SessionVerdict]) -> Option<Verdict> {
    let is_able = |it: &&SessionVerdict| it.verdict.was_run() && !matches!(it.verdict, Verdict::CannotTest(_));
    let able: Vec<&SessionVerdict> = verdicts.iter().filter(is_able).collect();
    let Some(first) = able.first() else {
        let told = verdicts.iter().find(|it| it.verdict.was_run()).or(verdicts.first());
        return told.map(|it| it.verdict.clone());
    };
    if able.iter().all(|other| other.verdict.words() == first.verdict.words()) {
        return Some(first.verdict.clone());
    }
    let ran = verdicts.iter().filter(|it| it.verdict.was_run());
    let said: Vec<String> = ran.map(|it| format!("{} in {}", it.verdict.words(), it.place())).collect();
    Some(Verdict::Undecided(Why::SessionsDisagree(said.join("; "))))
}

impl SessionVerdict {
    fn place(&self) -> String {
        let on = if self.machine.is_empty() { String::new() } else { format!(" on {}", self.machine) };
        format!("{}{on}", self.session)
    }
}

/// How far these verdicts agree; sessions that did not run the row are not counted.
pub fn agreement(verdicts: &[SessionVerdict]) -> Agreement {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in verdicts.iter().filter(|it| it.verdict.was_run()) {
        *counts.entry(it.verdict.words()).or_default() += 1;
    }
    Agreement { agree: counts.values().copied().max().unwrap_or(0), of: counts.into_values().sum() }
}

/// Each verdict that was given, the most frequent first, with the sessions of each machine that gave it.
pub fn by_machine(verdicts: &[SessionVerdict]) -> Vec<MachineSessions> {
    let ran: Vec<&SessionVerdict> = verdicts.iter().filter(|it| it.verdict.was_run()).collect();
    let (mut words, mut letters): (Vec<&'static str>, Vec<&str>) = (Vec::new(), Vec::new());
    for it in &ran {
        if !words.contains(&it.verdict.words()) {
            words.push(it.verdict.words());
        }
        if !letters.contains(&it.machine.as_str()) {
            letters.push(&it.machine);
        }
    }
    letters.sort_unstable();
    let on = |verdict: &str, letter: &str| {
        let own = ran.iter().filter(|it| it.machine == letter);
        Agreement { agree: own.clone().filter(|it| it.verdict.words() == verdict).count(), of: own.count() }
    };
    let of = |verdict: &&'static str| MachineSessions {
        verdict,
        machines: letters.iter().map(|letter| ((*letter).to_owned(), on(verdict, letter))).collect(),
    };
    let mut found: Vec<MachineSessions> = words.iter().map(of).collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.machines.iter().map(|(_, found)| found.agree).sum::<usize>()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cell;
    use crate::report::synthetic::Run;

    /// Sessions S, T, U on these machines.
    fn given(verdicts: &[(&str, Verdict)]) -> Vec<SessionVerdict> {
        let said = |(session, (machine, verdict)): (&str, &(&str, Verdict))| SessionVerdict {
            session: session.to_owned(),
            machine: (*machine).to_owned(),
            verdict: verdict.clone(),
        };
        ["S", "T", "U"].into_iter().zip(verdicts).map(said).collect()
    }

    fn here(verdicts: &[Verdict]) -> Vec<SessionVerdict> {
        let on_one: Vec<(&str, Verdict)> = verdicts.iter().map(|verdict| ("", verdict.clone())).collect();
        given(&on_one)
    }

    fn not_run() -> Verdict {
        Verdict::Undecided(Why::NotRun("\"a\"".to_owned()))
    }

    #[test]
    fn sessions_that_agree_have_a_common_verdict() {
        let both = here(&[Verdict::Holds, Verdict::Holds]);

        assert_eq!(common(&both), Some(Verdict::Holds));
        assert_eq!(agreement(&both), Agreement { agree: 2, of: 2 });
    }

    #[test]
    fn sessions_that_disagree_leave_it_undecided_and_say_which_said_what() {
        let three = here(&[Verdict::Holds, Verdict::DoesNotHold, Verdict::Holds]);

        let found = common(&three).unwrap();

        assert_eq!(found.words(), "undecided, run more");
        assert_eq!(found.reason(), "sessions disagree: holds here in S; does not hold here in T; holds here in U");
        assert_eq!(agreement(&three), Agreement { agree: 2, of: 3 });
    }

    #[test]
    fn one_undecided_session_takes_the_verdict_away() {
        let undecided = Verdict::Undecided(Why::TooFew("2".to_owned()));

        assert_eq!(common(&here(&[Verdict::Holds, undecided])).unwrap().words(), "undecided, run more");
    }

    #[test]
    fn a_session_that_cannot_test_it_has_no_say() {
        let cannot = Verdict::CannotTest("no huge pages".to_owned());

        assert_eq!(common(&here(&[cannot.clone(), Verdict::Holds])), Some(Verdict::Holds));
        assert_eq!(common(&here(&[cannot.clone(), cannot.clone()])), Some(cannot));
        assert_eq!(common(&[]), None);
    }

    #[test]
    fn a_session_that_did_not_run_it_has_no_say_and_is_not_counted() {
        let cannot = Verdict::CannotTest("no huge pages".to_owned());

        assert_eq!(common(&here(&[not_run(), Verdict::DoesNotHold])), Some(Verdict::DoesNotHold));
        assert_eq!(common(&here(&[not_run(), cannot.clone()])), Some(cannot));
        assert_eq!(common(&here(&[not_run(), not_run()])), Some(not_run()));
        assert_eq!(agreement(&here(&[not_run(), Verdict::Holds])), Agreement { agree: 1, of: 1 });
        assert_eq!(agreement(&here(&[not_run()])), Agreement { agree: 0, of: 0 });
    }

    #[test]
    fn machines_that_differ_are_told_apart_and_never_averaged() {
        let three = given(&[("A", Verdict::Holds), ("B", Verdict::DoesNotHold), ("A", Verdict::Holds)]);

        let found = by_machine(&three);

        let of = |agree, of| Agreement { agree, of };
        let [a, b] = ["A", "B"].map(str::to_owned);
        let holds =
            MachineSessions { verdict: "holds here", machines: vec![(a.clone(), of(2, 2)), (b.clone(), of(0, 1))] };
        let fails = MachineSessions { verdict: "does not hold here", machines: vec![(a, of(0, 2)), (b, of(1, 1))] };
        assert_eq!(found, [holds, fails]);
        let said = common(&three).unwrap().reason();
        assert_eq!(said, "sessions disagree: holds here in S on A; does not hold here in T on B; holds here in U on A");
    }

    #[test]
    fn a_machine_that_did_not_run_it_is_not_counted() {
        let found = by_machine(&given(&[("A", not_run()), ("B", Verdict::Holds)]));

        let only =
            MachineSessions { verdict: "holds here", machines: vec![("B".to_owned(), Agreement { agree: 1, of: 1 })] };
        assert_eq!(found, [only]);
    }

    #[test]
    fn machines_have_letters_in_the_order_of_their_sessions_where_there_are_several() {
        let record = |session: &str, cpus: u32, kernel: &str| {
            let [experiment, name, scale] = ["S0", "mmap", "quick"].map(str::to_owned);
            let run = Run::of("mmap").session(session).edit(|record| {
                record.cell = Some(Cell { experiment, name, scale });
                (record.machine.cpus, record.machine.kernel) = (cpus, kernel.to_owned());
            });
            run.record()
        };
        let three =
            [record("S", 8, "6.1.0"), record("T", 2, "6.1.0"), record("U", 8, "6.18.0"), record("V", 8, "6.1.0")];
        let letters = |records: &[Record]| {
            let sessions = sessions(records);
            let machines = Machines::of(&sessions);
            let letter = |session: &SessionRecords<'_>| machines.letter(session.machine().unwrap());
            sessions.iter().map(letter).collect::<Vec<_>>()
        };

        assert_eq!(letters(&three), ["A", "B", "C", "A"]);
        assert_eq!(letters(&three[..1]), [""]);
        assert_eq!([0, 25, 26].map(lettered), ["A", "Z", "27"]);
    }
}
