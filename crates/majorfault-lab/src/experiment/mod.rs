//! Experiments: published measurements as data: a question, a grid of trials, and rows that judge what the sources say.
//!
//! Each is a file with a `const` [`Experiment`]; [`ALL`] names them once. A row is judged from records alone, so that a
//! verdict can be computed again by anybody who has them.

mod claim;
mod figure;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4_bwa;
mod s4_column;
mod s4_dimmap;
mod s4_matrix;
mod s4_systems;
mod samples;
mod sessions;
mod setting;
mod table;
mod verdict;

use crate::record::Record;
use crate::trial::Trial;
use majorfault::{Bytes, Error, Result};

pub use claim::{Cells, Claim, Of, Test, What};
pub use figure::Figure;
pub use samples::{Found, Gap, Runs, Samples, Shown, is_refused, reasons};
pub use sessions::{
    Agreement, MachineSessions, Machines, SessionRecords, SessionVerdict, common, described, host, sessions,
};
pub use setting::{Making, Scale, Setting, Store, clean_stale};
pub use table::{FigureTable, TableRow, TableSide, Tabulate, tables};
pub use verdict::{Verdict, Why};

/// Every experiment, in the order of the sources.
pub const ALL: &[&Experiment] = &[
    &s0::EXPERIMENT,
    &s1::EXPERIMENT,
    &s2::EXPERIMENT,
    &s3::EXPERIMENT,
    &s4_matrix::EXPERIMENT,
    &s4_column::EXPERIMENT,
    &s4_dimmap::EXPERIMENT,
    &s4_bwa::EXPERIMENT,
    &s4_systems::EXPERIMENT,
];

/// A published measurement.
pub struct Experiment {
    /// The source's id, with a name where a source has several: `S2`, `S4.matrix`.
    pub id: &'static str,
    /// What it is about, as a heading.
    pub title: &'static str,
    /// Who published it, where.
    pub source: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Room that its files need in the scratch directory.
    pub room: fn(Scale) -> Bytes,
    /// Memory that its files in memory need.
    pub memory: fn(Scale) -> Bytes,
    /// How often each cell runs.
    pub repetitions: fn(Scale) -> u32,
    /// Makes its data and says what is to be run.
    pub cells: fn(&mut Setting<'_>) -> Result<Vec<Planned>>,
    /// Published figures of single cells.
    pub published: Option<PublishedCells>,
    /// How the names of those cells end whose timelines are drawn, one figure for each ending.
    pub timelines: &'static [&'static str],
    /// Its cells beside a published table.
    pub table: Option<Tabulate>,
    /// What the source has and says, each judged.
    pub rows: &'static [Row],
    /// What it cannot show here, for readers of its section.
    pub cannot_show: &'static str,
}

/// Published figures that may be drawn beside ours.
pub struct PublishedCells {
    /// Cells with their figures, in the unit that the cell is drawn in: seconds of the visit for procedures, accesses a
    /// second for the others.
    pub cells: &'static [(&'static str, f64)],
    /// How much was accessed there: `50 000 files`.
    pub of: &'static str,
    /// Whether a scale accesses as much. At another one, both are not drawn over one axis.
    pub is_at: fn(Scale) -> bool,
}

/// One cell of an experiment's grid.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its name in the experiment.
    pub name: String,
    /// What is run; the repetition is filled in, and added to the seed.
    pub trial: Trial,
}

/// Something that a source has or says.
pub struct Row {
    /// Its id: `S2.collapse`. Those that end in a star are our own controls and additions.
    pub id: &'static str,
    /// Whose it is.
    pub kind: RowKind,
    /// In one sentence, with the threshold by which it is judged.
    pub says: &'static str,
    /// The published figure.
    pub published: &'static str,
    /// Conditions of the machine that limit what its figures mean.
    pub rests_on: &'static [Condition],
    /// How it is judged.
    pub judge: Judge,
}

/// Whose a row is; counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// A source's claim or figure.
    Published,
    /// Our own control or addition, with a threshold that we chose.
    Control,
    /// A fact about our own program, or one that holds almost by construction.
    OurOwn,
}

/// What a machine's remarks may say that limits a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Shootdowns that the TLB row of /proc/interrupts does not count.
    Shootdowns,
    /// A memory limit that the whole session ran under.
    Memory,
}

/// Writes the notes to a verdict.
pub type Show = fn(&Samples<'_>) -> Found<Shown>;

/// How a row is judged.
pub enum Judge {
    /// By tests; the function shows our figure.
    Claim(Claim, Show),
    /// It is a figure rather than a claim.
    Measured(Show),
    /// It is a system rather than a claim, and this command is it; with a figure of it, where there is one.
    Built(&'static str, Option<Show>),
    /// The means to test it are not built.
    NotBuilt(&'static str),
}

/// What was found of a row.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Our figure, evidence and control.
    pub shown: Shown,
    /// The least number of runs that a test of it rests on.
    pub n: usize,
    /// What a claim's first test compares, as one number to follow over time.
    pub followed: Option<f64>,
    /// The runs of all cells that it looked at.
    pub runs: Runs,
}

/// A row with what was found.
pub struct Entry {
    /// The experiment it belongs to.
    pub experiment: &'static Experiment,
    /// The row.
    pub row: &'static Row,
    /// The figures of the first session that ran it, and the verdict on which all agree.
    pub judged: Judged,
    /// What each session says by itself; empty for what needs no records.
    pub sessions: Vec<InSession>,
}

/// What one session says of a row.
#[derive(Clone, Debug)]
pub struct InSession {
    /// The session's name.
    pub name: String,
    /// The letter of its machine; empty where there is one machine only.
    pub machine: String,
    /// What it says.
    pub judged: Judged,
}

impl RowKind {
    /// Every kind, in the order they are shown.
    pub const ALL: [RowKind; 3] = [RowKind::Published, RowKind::Control, RowKind::OurOwn];

    /// In the words of the ledger.
    pub fn words(self) -> &'static str {
        match self {
            RowKind::Published => "published claims",
            RowKind::Control => "our own controls",
            RowKind::OurOwn => "facts about us",
        }
    }
}

impl Condition {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Shootdowns => "shootdowns",
            Condition::Memory => "memory",
        }
    }

    /// What a machine's remark holds that is about it.
    pub fn mark(self) -> &'static str {
        match self {
            Condition::Shootdowns => figure::HIDES,
            Condition::Memory => "started under a memory limit",
        }
    }
}

impl Entry {
    /// Remarks of the machine that limit this row.
    pub fn conditions(&self) -> Vec<&str> {
        let limits = |remark: &str| self.row.rests_on.iter().any(|condition| remark.contains(condition.mark()));
        self.judged.runs.remarks.iter().map(String::as_str).filter(|remark| limits(remark)).collect()
    }

    /// How far the sessions agree.
    pub fn agreement(&self) -> Agreement {
        sessions::agreement(&verdicts(&self.sessions))
    }

    /// Which verdicts were given, by how many sessions of each machine.
    pub fn by_machine(&self) -> Vec<MachineSessions> {
        sessions::by_machine(&verdicts(&self.sessions))
    }
}

fn verdicts(sessions: &[InSession]) -> Vec<SessionVerdict> {
    let said = |it: &InSession| SessionVerdict {
        session: it.name.clone(),
        machine: it.machine.clone(),
        verdict: it.judged.verdict.clone(),
    };
    sessions.iter().map(said).collect()
}

impl Judge {
    /// What the records of one session say.
    fn by(&self, samples: &Samples<'_>) -> Judged {
        let (verdict, n, shown) = match self {
            Judge::Claim(claim, show) => {
                let (verdict, n) = claim.judge(samples);
                let shown = shown(*show, samples, &verdict);
                (verdict, n, shown)
            }
            Judge::Measured(show) => {
                let found = show(samples);
                let verdict = found.as_ref().map_or_else(|gap| gap.clone().into(), |_| Verdict::Measured);
                (verdict, samples.behind_first(), found.unwrap_or_default())
            }
            Judge::Built(command, show) => {
                let shown = show.map(|show| show(samples).unwrap_or_default()).unwrap_or_default();
                (Verdict::Built((*command).to_owned()), samples.behind_first(), shown)
            }
            Judge::NotBuilt(reason) => (Verdict::NotBuilt((*reason).to_owned()), 0, Shown::default()),
        };
        let followed = match self {
            Judge::Claim(claim, _) => claim.followed(samples),
            _ => None,
        };
        Judged { verdict, shown, n, followed, runs: samples.runs() }
    }
}

/// A verdict stands where what should be beside it is not there. One that is no answer says itself what is missing.
fn shown(show: Show, samples: &Samples<'_>, verdict: &Verdict) -> Shown {
    match show(samples) {
        Err(gap) if verdict.is_answer() => Shown::default().because(Verdict::from(gap).reason()),
        found => found.unwrap_or_default(),
    }
}

/// The ledger: every row of the experiments that `wanted` names (all, where it names none), judged from `records`, in each
/// session by itself.
pub fn ledger(records: &[Record], wanted: &[String]) -> Vec<Entry> {
    let sessions = sessions(records);
    let machines = Machines::of(&sessions);
    let mut entries = Vec::new();
    for experiment in ALL {
        for row in experiment.rows.iter().filter(|row| is_wanted(experiment, row, wanted)) {
            entries.push(entry(experiment, row, &sessions, &machines));
        }
    }
    entries
}

fn entry(
    experiment: &'static Experiment,
    row: &'static Row,
    sessions: &[SessionRecords<'_>],
    machines: &Machines,
) -> Entry {
    let judged = |session: &SessionRecords<'_>| {
        let samples = Samples::of(experiment.id, &session.records);
        let machine = session.machine().map(|machine| machines.letter(machine)).unwrap_or_default();
        let name = session.name.to_owned();
        (!samples.is_empty()).then(|| InSession { name, machine, judged: row.judge.by(&samples) })
    };
    let judged_in: Vec<InSession> = sessions.iter().filter_map(judged).collect();
    let ran = judged_in.iter().find(|it| it.judged.verdict.was_run());
    let mut first = match ran.or(judged_in.first()) {
        Some(first) => first.judged.clone(),
        None => row.judge.by(&Samples::of(experiment.id, &[])),
    };
    first.verdict = sessions::common(&verdicts(&judged_in)).unwrap_or(first.verdict);
    Entry { experiment, row, judged: first, sessions: judged_in }
}

/// Ids match from their beginning, part by part: `S4` means all of it, `S2.collapse` that row.
fn is_wanted(experiment: &Experiment, row: &Row, wanted: &[String]) -> bool {
    let begins = |id: &str, with: &str| {
        id.eq_ignore_ascii_case(with)
            || id.len() > with.len() && id.is_char_boundary(with.len()) && {
                let (head, rest) = id.split_at(with.len());
                head.eq_ignore_ascii_case(with) && rest.starts_with('.')
            }
    };
    let id = row.id.trim_end_matches('*');
    wanted.is_empty() || wanted.iter().any(|word| begins(id, word) || begins(experiment.id, word))
}

/// The experiments that have a row that `wanted` names.
///
/// Errors: Invalid for a word that names nothing, with the nearest id.
pub fn chosen(wanted: &[String]) -> Result<Vec<&'static Experiment>> {
    for word in wanted {
        let rows = || ALL.iter().flat_map(|experiment| experiment.rows.iter().map(move |row| (experiment, row)));
        if !rows().any(|(experiment, row)| is_wanted(experiment, row, std::slice::from_ref(word))) {
            let ids = rows().map(|(_, row)| row.id.trim_end_matches('*')).chain(ALL.iter().map(|it| it.id));
            let nearest = ids.max_by(|a, b| strsim::jaro(a, word).total_cmp(&strsim::jaro(b, word))).unwrap_or("S0");
            return Err(Error::Invalid(format!(
                "there is no experiment \"{word}\"; did you mean {nearest}? majorfault reproduce --list shows all"
            )));
        }
    }
    let has_any = |experiment: &&Experiment| experiment.rows.iter().any(|row| is_wanted(experiment, row, wanted));
    Ok(ALL.iter().copied().filter(has_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, Cell, Gate, GateFinding, Machine};
    use crate::report::synthetic::Run;
    use std::collections::BTreeSet;

    /// The ids of the project's list of sources.
    const SOURCES: &str = "S0.data S0.mmap S0.pool S0.faster S0.tlb S0.rule S1.faults S1.time S1.cache S1.hint S1.silent \
        S2.random S2.collapse S2.tlb S2.kswapd S2.seq1 S2.seq10 S2.range S2.advice S2.devices S3.01 S3.02 S3.03 S3.04 \
        S3.05 S3.06 S3.07 S3.08 S3.09 S3.10 S3.11 S3.prefault S3.fallocate S3.hints S3.numa S4.matrix S4.mmapwins S4.big \
        S4.bwaindex S4.bwabig S4.bwamem S4.bwamem2 S4.column S4.readahead S4.userpolicy S4.kernels S4.dimmap";

    #[test]
    fn every_id_of_the_sources_has_a_row() {
        let rows: BTreeSet<&str> = ALL.iter().flat_map(|experiment| experiment.rows).map(|row| row.id).collect();

        for id in SOURCES.split_whitespace() {
            assert!(rows.contains(id), "{id} has no row");
        }
    }

    #[test]
    fn no_two_rows_share_an_id() {
        let ids: Vec<&str> = ALL.iter().flat_map(|experiment| experiment.rows).map(|row| row.id).collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();

        assert_eq!(ids.len(), distinct.len());
    }

    #[test]
    fn without_records_nothing_holds() {
        for entry in ledger(&[], &[]) {
            assert!(
                !matches!(entry.judged.verdict, Verdict::Holds | Verdict::DoesNotHold | Verdict::Measured),
                "{} is judged without a record",
                entry.row.id
            );
        }
    }

    /// A run of a cell of S0 that took so many milliseconds, in a session.
    fn run(session: &str, cell: &str, repetition: u32, ms: u64) -> Run {
        let name = cell.to_owned();
        let cell = Cell { experiment: "S0".to_owned(), name, scale: "standard".to_owned() };
        let run = Run::of("mmap").session(session).repetition(repetition).phases_ms(0, ms, 0);
        run.edit(|record| record.cell = Some(cell))
    }

    /// A session in which mapping takes so many milliseconds and buffers take 100, so often.
    fn session(name: &str, mapped: u64, repetitions: std::ops::Range<u32>) -> Vec<Record> {
        let arms = [("mmap", mapped), ("buffer", 100), ("mmap, 1 thread", 100), ("buffer, 1 thread", 100)];
        let both = |turn: u32| arms.map(|(cell, ms)| run(name, cell, turn, ms).record());
        repetitions.flat_map(both).collect()
    }

    fn faster(records: &[Record]) -> Entry {
        ledger(records, &["S0.faster".to_owned()]).remove(0)
    }

    #[test]
    fn a_row_is_judged_in_a_session() {
        let entry = faster(&session("A", 200, 0..6));

        assert_eq!((entry.judged.verdict.clone(), entry.judged.n), (Verdict::Holds, 6));
        assert_eq!(entry.judged.shown.ours, "2.00 x [2.00–2.00]");
        assert_eq!(entry.agreement(), Agreement { agree: 1, of: 1 });
    }

    #[test]
    fn the_runs_of_two_sessions_in_one_file_are_not_put_together() {
        let spliced = [session("A", 200, 0..3), session("B", 200, 3..6)].concat();

        let entry = faster(&spliced);

        assert_eq!((entry.judged.verdict.words(), entry.judged.n), ("undecided, run more", 3));
        assert_eq!(entry.agreement(), Agreement { agree: 2, of: 2 });
    }

    #[test]
    fn a_file_that_is_named_twice_does_not_double_the_runs() {
        let records = session("A", 200, 0..3);

        assert_eq!(faster(&[records.clone(), records].concat()).judged.n, 3);
    }

    #[test]
    fn sessions_that_disagree_leave_the_row_undecided_with_the_figures_of_the_first() {
        let entry = faster(&[session("A", 200, 0..6), session("B", 50, 0..6)].concat());

        assert_eq!(entry.judged.verdict.reason(), "sessions disagree: holds here in A; does not hold here in B");
        assert_eq!(entry.judged.shown.ours, "2.00 x [2.00–2.00]");
        assert_eq!(entry.agreement(), Agreement { agree: 1, of: 2 });
    }

    #[test]
    fn a_session_that_ran_other_cells_has_no_say_and_no_figures_in_a_row() {
        let older = (0..6).map(|turn| run("A", "evict each", turn, 100).record()).collect();

        let entry = faster(&[older, session("B", 200, 0..6)].concat());

        assert_eq!((entry.judged.verdict.clone(), entry.judged.n), (Verdict::Holds, 6));
        assert_eq!(entry.judged.shown.ours, "2.00 x [2.00–2.00]");
        assert_eq!(entry.agreement(), Agreement { agree: 1, of: 1 });
        assert_eq!(entry.sessions[0].judged.verdict.reason(), "not run in this session: \"mmap\"");
    }

    #[test]
    fn refused_runs_and_notes_are_counted_beside_the_row() {
        let mut records = session("A", 200, 0..7);
        records.push(run("A", "mmap", 7, 1).spoiled("600 MiB were cached").record());
        let noted = Gate {
            name: "busy machine".to_owned(),
            finding: GateFinding::Noted,
            says: "30 %".to_owned(),
            by: Cause::Others,
            remedy: String::new(),
        };
        records[0].gates.push(noted);

        let runs = faster(&records).judged.runs;

        assert_eq!((runs.made, runs.refused, runs.noted), (29, 1, 1));
        assert_eq!(runs.reasons, ["1 x cold (600 MiB were cached)"]);
        assert!(runs.notes.contains("busy machine"));
    }

    #[test]
    fn a_condition_stands_in_the_rows_that_rest_on_it_and_in_no_other() {
        let hides = "the hypervisor flushes, so the TLB row of /proc/interrupts counts too few";
        let limited: Vec<Record> = session("A", 200, 0..6)
            .into_iter()
            .map(|record| Record { machine: Machine { remarks: vec![hides.to_owned()], ..record.machine }, ..record })
            .collect();

        let found = ledger(&limited, &["S0".to_owned()]);

        let with: Vec<&str> = found.iter().filter(|it| it.conditions() == [hides]).map(|it| it.row.id).collect();
        // The other two looked at cells that were not run.
        assert_eq!(with, ["S0.tlb", "S0.cause*"]);
    }

    /// Every test of every claim: a threshold that changes changes this, and the row's sentence.
    const THRESHOLDS: &str = include_str!("thresholds.txt");

    fn line(row: &Row) -> Option<String> {
        let Judge::Claim(claim, _) = &row.judge else { return None };
        let side = |of: &Of| {
            let cells = match of.cells {
                Cells::One(cell) => cell.to_owned(),
                Cells::Least(cells) => format!("least of {}", cells.len()),
            };
            let floor = if of.at_least.is_finite() { format!(" >= {}", of.at_least) } else { String::new() };
            format!("{} of {cells}{floor}", of.figure.name())
        };
        let test = |test: &Test| {
            let what = match &test.what {
                What::EveryRun(only) => format!("every {}", side(only)),
                What::SomeRun(only) => format!("some {}", side(only)),
                What::Figure(only) => side(only),
                What::Difference(first, second) => format!("{} - {}", side(first), side(second)),
                What::Ratio(first, second) => format!("{} : {}", side(first), side(second)),
            };
            let except =
                if test.except.is_empty() { String::new() } else { format!(" except {}", test.except.join(", ")) };
            format!("{what} in {:?}{except}", test.range)
        };
        let needs = claim.needs.iter().map(|(need, _)| format!("needs {}", test(need)));
        let all: Vec<String> = needs.chain(claim.tests.iter().map(test)).collect();
        Some(format!("{}\n  {}", row.id, all.join("\n  ")))
    }

    #[test]
    fn thresholds_are_those_that_the_rows_say() {
        let lines: Vec<String> = ALL.iter().flat_map(|it| it.rows).filter_map(line).collect();

        assert_eq!(lines.join("\n"), THRESHOLDS.trim());
    }

    #[test]
    fn kinds_are_told_apart() {
        let of = |kind: RowKind| -> Vec<&str> {
            let rows = ALL.iter().flat_map(|it| it.rows).filter(|row| row.kind == kind);
            rows.filter(|row| matches!(row.judge, Judge::Claim(..))).map(|row| row.id).collect()
        };

        assert_eq!(of(RowKind::OurOwn), ["S1.hint", "S1.silent", "S4.big"]);
        assert!(of(RowKind::Published).iter().all(|id| !id.ends_with('*')));
        assert!(of(RowKind::Control).iter().all(|id| id.ends_with('*') || ["S4.userpolicy", "S4.dimmap"].contains(id)));
    }

    #[test]
    fn standard_sessions_have_runs_enough_for_verdicts_and_quick_ones_have_not() {
        for experiment in ALL.iter().filter(|experiment| experiment.id != "S4.systems") {
            let runs = [Scale::Quick, Scale::Standard, Scale::Full].map(experiment.repetitions);
            let least = crate::stats::LEAST as u32;
            assert!(runs[0] < least && runs[1] >= least && runs[2] >= least, "{}: {runs:?}", experiment.id);
        }
    }

    #[test]
    fn an_unknown_id_is_answered_with_its_neighbour() {
        let error = chosen(&["S2.colapse".to_owned()]).err().unwrap().to_string();

        assert!(error.contains("did you mean S2.collapse?"), "{error}");
    }

    #[test]
    fn a_source_means_all_of_its_experiments() {
        let names = |word: &str| chosen(&[word.to_owned()]).unwrap().iter().map(|it| it.id).collect::<Vec<_>>();

        assert_eq!(names("S4"), ["S4.matrix", "S4.column", "S4.dimmap", "S4.bwa", "S4.systems"]);
        assert_eq!(names("s2.collapse"), ["S2"]);
    }
}
