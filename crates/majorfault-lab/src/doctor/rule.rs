//! What a rule declares: what it looks at, its thresholds, how it words the trouble, the remedy, and the proof.
//!
//! Everything about a rule is in its file. Lists, documents, the proof line and `--prove` are made from it.

use super::fact::Fact;
use super::patient::{Patient, Seat, distinct};
use super::software::Symptom;
use crate::watch::evidence::{Evidence, MappedFile};
use majorfault::observe::pattern::Pattern;
use majorfault::observe::places::FileId;
use majorfault::{Bytes, Nanos};
use std::cmp::Reverse;

/// One defect that the doctor recognises.
pub struct Rule {
    /// Short name, the same as the file's.
    pub name: &'static str,
    /// What it looks for, in one line.
    pub summary: &'static str,
    /// The evidence that it needs; it is silent where any of it is missing.
    pub looks_at: &'static [Part],
    /// The figures from which on it reports a finding.
    pub thresholds: &'static [Threshold],
    /// The trouble as a sentence, with names of figures in braces.
    pub trouble: &'static str,
    /// What helps; each finding has one of them.
    pub remedies: &'static [&'static Remedy],
    /// Whether it may find more than a note: only then somebody is to be woken.
    pub alerts: bool,
    /// How the gain of a remedy is predicted.
    pub gain: Gain,
    /// The rules whose findings about the same files are consequences of this one's: they are not advice then, but one line.
    pub explains: &'static [&'static Rule],
    /// Looks for the defect.
    pub look: Sight,
    /// Evidence in which it finds the defect once; the tests of all rules use it.
    #[cfg(test)]
    pub example: fn() -> Evidence,
}

/// What a rule looks at to find its defect.
#[derive(Clone, Copy)]
pub enum Sight {
    /// One process after the other; equal findings are reported as one.
    Each(fn(&Evidence) -> Vec<Case>),
    /// All processes together.
    All(fn(Patient<'_>) -> Vec<Case>),
}

impl Sight {
    /// The cases of these processes.
    pub fn at(self, patient: Patient<'_>) -> Vec<Case> {
        match self {
            Sight::All(look) => look(patient),
            Sight::Each(look) => {
                let each = patient.processes.iter().enumerate();
                each.flat_map(|(number, evidence)| look(evidence).into_iter().map(move |case| case.in_process(number)))
                    .collect()
            }
        }
    }
}

/// A part of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Mapped files, with sizes and the state of the page cache.
    MappedFiles,
    /// Page faults one by one, and their order in each file.
    Faults,
    /// MADV_RANDOM and similar advice, in force or given during the watch.
    AdviceInForce,
    /// Advice call by call.
    AdviceCalls,
    /// Advice and page sizes of each mapping.
    Smaps,
    /// The bytes that read calls returned and that devices read.
    ReadCalls,
    /// Read calls one by one, and their order in each file.
    ReadOrder,
    /// Open files.
    Descriptors,
    /// Threads, memory and page tables of the process.
    Status,
    /// The memory limit.
    Limit,
    /// Counters of the cgroup, the process and the machine.
    Counters,
    /// Settings and version of the kernel.
    Kernel,
}

impl Part {
    /// Its source, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Part::MappedFiles => "mapped files",
            Part::Faults => "page faults",
            Part::AdviceInForce => "advice in force",
            Part::AdviceCalls => "advice calls",
            Part::Smaps => "smaps",
            Part::ReadCalls => "read calls",
            Part::ReadOrder => "order of read calls",
            Part::Descriptors => "open files",
            Part::Status => "memory of the process",
            Part::Limit => "memory limit",
            Part::Counters => "counters",
            Part::Kernel => "kernel settings",
        }
    }

    /// The options of which any one makes it visible; none where it always is.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Part::AdviceInForce => &["--deep", "--advice"],
            Part::AdviceCalls => &["--advice"],
            Part::Smaps => &["--deep"],
            _ => &[],
        }
    }
}

/// A figure from which on a rule reports a finding, or a worse one.
#[derive(Clone, Copy, Debug)]
pub struct Threshold {
    /// The constant's name.
    pub name: &'static str,
    /// What it means and why it has this value, as the constant's comment says.
    pub says: &'static str,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: ThresholdUnit,
}

/// The unit of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdUnit {
    /// Things.
    Count,
    /// A part of a whole.
    Share,
    /// How many times as much.
    Times,
    /// Bytes.
    Bytes,
    /// Things each second.
    PerSecond,
    /// Bytes each second.
    BytesPerSecond,
}

impl ThresholdUnit {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ThresholdUnit::Count => "count",
            ThresholdUnit::Share => "share",
            ThresholdUnit::Times => "times",
            ThresholdUnit::Bytes => "bytes",
            ThresholdUnit::PerSecond => "per_second",
            ThresholdUnit::BytesPerSecond => "bytes_per_second",
        }
    }
}

impl Threshold {
    /// The figure with its unit, as people read it.
    pub fn figure(&self) -> String {
        let bytes = || Bytes(self.value as u64).rounded();
        match self.unit {
            ThresholdUnit::Count => self.value.to_string(),
            ThresholdUnit::Share => format!("{} %", (self.value * 1000.0).round() / 10.0),
            ThresholdUnit::Times => format!("{} x", self.value),
            ThresholdUnit::Bytes => bytes(),
            ThresholdUnit::PerSecond => format!("{}/s", self.value),
            ThresholdUnit::BytesPerSecond => format!("{}/s", bytes()),
        }
    }
}

/// Declares thresholds: a comment that is shown to users, a constant, its unit.
macro_rules! thresholds {
    ($($(#[doc = $says:literal])+ $name:ident: $type:ty = $value:expr, $unit:ident;)*) => {
        $($(#[doc = $says])+ const $name: $type = $value;)*
        const THRESHOLDS: &[crate::doctor::rule::Threshold] = &[$(crate::doctor::rule::Threshold {
            name: stringify!($name),
            says: concat!($($says),+),
            value: $name as f64,
            unit: crate::doctor::rule::ThresholdUnit::$unit,
        }),*];
    };
}
pub(in crate::doctor) use thresholds;

/// A remedy for a trouble.
#[derive(Debug)]
pub struct Remedy {
    /// The condition under which it helps; empty where it is the only one.
    pub when: &'static str,
    /// What to do, as a concrete instruction with names of figures in braces.
    pub says: &'static str,
    /// What shows the trouble, or that the remedy helps.
    pub proof: Proof,
    /// The symptom, by which settings of well-known software are chosen.
    pub symptom: Option<Symptom>,
    /// What it rests on, as long as nobody has measured it.
    pub backing: Backing,
}

impl PartialEq for Remedy {
    /// A constant may be in several places at once: it is the words that tell remedies apart.
    fn eq(&self, other: &Remedy) -> bool {
        (self.when, self.says) == (other.when, other.says)
    }
}

/// What a remedy rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Backing {
    /// The evidence shows that its condition holds: it is advice.
    Decided,
    /// It helped elsewhere under such conditions; it is to be tried, and the command tells whether it helps.
    #[default]
    Try,
    /// A replay of the program's own accesses measured how many times as fast they are with it.
    Measured(f64),
}

impl Backing {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Backing::Decided => "decided",
            Backing::Try => "try",
            Backing::Measured(_) => "measured",
        }
    }
}

/// What proves a finding.
#[derive(Debug)]
pub enum Proof {
    /// Accesses to the file as they are and with the remedy: `--prove` replays the accesses that were seen, the printed
    /// command makes accesses in the same order.
    Replay(Arms),
    /// A command that shows the trouble, with names of figures in braces.
    Command(&'static str),
}

/// The two ways to reach the file that a replay compares, as `majorfault compare -m` has them.
#[derive(Debug)]
pub struct Arms {
    /// How the file is accessed now; none means by its mapping with the advice in force.
    pub now: Option<&'static str>,
    /// How the remedy accesses it.
    pub remedy: &'static str,
    /// The workload of the printed command, where the order of the faults does not give it.
    pub workload: Option<&'static str>,
}

/// How much a remedy can gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The time that threads wait in faults of the files.
    Waits,
    /// It is not about speed: something fails, or is about to.
    Failure,
    /// Not known beforehand.
    Unknown,
}

/// One case of the trouble, as a rule sees it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its severity.
    pub severity: Severity,
    /// What it is about: a file's path, "12 files", "process", "cgroup", "machine".
    pub scope: String,
    /// The files and processes that it is about, worst first.
    pub subjects: Vec<Subject>,
    /// Figures that the sentences name.
    pub figures: Vec<(&'static str, String)>,
    /// The evidence: figures with units.
    pub facts: Vec<Fact>,
    /// The remedy; one of the rule's.
    pub remedy: &'static Remedy,
    /// What the remedy rests on here, where that is not what it declares.
    pub backing: Option<Backing>,
    /// Share of their time that threads lose by it, where that was seen.
    pub waiting: Option<f64>,
    /// Share of that time that remains with the remedy, which has to read as well.
    pub remains: f64,
    /// Whether it is the cause of what its rule explains.
    pub is_cause: bool,
}

/// A file or a process that a case is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// The number of the process within the patient.
    pub process: usize,
    /// The file; none where it is the process itself.
    pub file: Option<FileId>,
    /// Its name: a path, or a process.
    pub name: String,
    /// How much of the trouble is its, to order by.
    pub weight: u64,
    /// What was seen of it, in a few words.
    pub says: String,
}

impl Subject {
    /// A file that is waited for.
    pub fn of(seat: &Seat<'_>) -> Subject {
        let Seat { process, file, .. } = seat;
        let says = format!("{} waits, {}", file.waits, Nanos(file.waited_ns));
        Subject { process: *process, file: Some(file.id), name: file.label(), weight: file.waited_ns, says }
    }
}

impl Case {
    /// A case about a mapped file.
    pub fn of_file(file: &MappedFile, severity: Severity, remedy: &'static Remedy) -> Case {
        let subject = Subject { file: Some(file.id), name: file.label(), weight: file.waited_ns, ..Subject::default() };
        Case { subjects: vec![subject], ..Case::of(&file.label(), severity, remedy) }
    }

    /// A case about several files, of whatever processes: the longest waited for stands first.
    pub fn of_files(files: &[Seat<'_>], severity: Severity, remedy: &'static Remedy) -> Case {
        let mut subjects: Vec<Subject> = files.iter().map(Subject::of).collect();
        subjects.sort_by_key(|subject| Reverse(subject.weight));
        let scope = match (distinct(files), subjects.first()) {
            (1, Some(only)) => only.name.clone(),
            (several, _) => format!("{several} files"),
        };
        Case { subjects, ..Case::of(&scope, severity, remedy) }
    }

    /// A case about something else.
    pub fn of(scope: &str, severity: Severity, remedy: &'static Remedy) -> Case {
        Case {
            severity,
            scope: scope.to_owned(),
            subjects: Vec::new(),
            figures: Vec::new(),
            facts: Vec::new(),
            remedy,
            backing: None,
            waiting: None,
            remains: 0.0,
            is_cause: true,
        }
    }

    /// The same case, of this process.
    fn in_process(mut self, number: usize) -> Case {
        self.subjects.iter_mut().for_each(|subject| subject.process = number);
        if self.subjects.is_empty() {
            self.subjects.push(Subject { process: number, ..Subject::default() });
        }
        self
    }

    /// Adds a figure for the sentences.
    pub fn figure(mut self, name: &'static str, value: impl ToString) -> Case {
        self.figures.push((name, value.to_string()));
        self
    }

    /// Adds evidence.
    pub fn facts(self, facts: Vec<Fact>) -> Case {
        Case { facts, ..self }
    }

    /// Says how much of their time threads lose by it.
    pub fn waiting(self, share: f64) -> Case {
        Case { waiting: Some(share), ..self }
    }

    /// Says how much of that remains with the remedy: so many reads of at least so many nanoseconds each, of what is waited now.
    pub fn remaining(self, reads: u64, each_ns: u64, waited_ns: u64) -> Case {
        Case { remains: (reads * each_ns) as f64 / waited_ns.max(1) as f64, ..self }
    }

    /// Says that the evidence decides whether the remedy helps.
    pub fn decided(self) -> Case {
        Case { backing: Some(Backing::Decided), ..self }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; costs little now.
    #[default]
    Note,
    /// Costs time or memory now.
    Warning,
    /// Fails or is about to, or most of the time is lost.
    Critical,
}

impl Severity {
    /// The word in output and options.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What a replay of one finding compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// How the file is reached now, and with the remedy.
    pub arms: [&'static str; 2],
    /// The memory limit of the program.
    pub memory_bytes: Option<u64>,
    /// The order that was seen, as options of `majorfault compare`.
    pub workload: String,
}

/// Bytes of one access of a replay: what a fault asks for.
pub const BLOCK: Bytes = Bytes(4096);

impl Replay {
    /// A replay of these arms, with the order of the file where it is known.
    pub fn of(arms: &Arms, evidence: &Evidence, file: Option<&MappedFile>) -> Replay {
        let as_seen = match file {
            Some(file) if file.random_advice().is_some() => "mmap:advice=random",
            Some(file) if file.any(|deep| deep.sequential) => "mmap:advice=sequential",
            _ => "mmap",
        };
        let order = file.and_then(|file| file.order).map_or(Pattern::Unknown, |order| order.pattern);
        Replay {
            arms: [arms.now.unwrap_or(as_seen), arms.remedy],
            memory_bytes: evidence.group.as_ref().and_then(|group| group.limit_bytes),
            workload: arms.workload.map_or_else(|| workload(order), str::to_owned),
        }
    }

    /// The command that compares the two arms on accesses in the same order.
    pub fn command(&self, path: &str) -> String {
        let Replay { arms: [now, remedy], memory_bytes, workload } = self;
        let memory = memory_bytes.map_or(String::new(), |bytes| format!(" --memory {}", Bytes(bytes)));
        let path = quoted(path);
        format!("majorfault compare {path} {workload} --bs {BLOCK} --cache cold{memory} -m {now} -m {remedy}")
    }
}

/// An order as options of `majorfault compare`.
fn workload(order: Pattern) -> String {
    match order {
        Pattern::Sequential | Pattern::Backward => "--rw read".to_owned(),
        Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => {
            format!("--workload strided:stride={}", Bytes(stride.unsigned_abs() / BLOCK.0 * BLOCK.0))
        }
        Pattern::HotSet { .. } => "--workload zipf".to_owned(),
        Pattern::Random | Pattern::Unknown => "--rw randread".to_owned(),
    }
}

/// A word as a shell reads it: a file's name must stay one word, whatever it is made of.
pub fn quoted(word: &str) -> String {
    // Only a NUL cannot be quoted, and no path has one.
    shlex::try_quote(word).map_or_else(|_| "''".to_owned(), |word| word.into_owned())
}

/// A sentence with its figures in place of their names.
pub fn filled(sentence: &str, figures: &[(&'static str, String)]) -> String {
    let mut said = String::new();
    let mut rest = sentence;
    while let Some((before, (name, after))) =
        rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        said.push_str(before);
        match figures.iter().find(|(known, _)| *known == name) {
            Some((_, figure)) => said.push_str(figure),
            None => said.push_str(&format!("{{{name}}}")),
        }
        rest = after;
    }
    said + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_is_replayed_with_the_advice_in_force_unless_the_rule_says_how() {
        use crate::watch::evidence::Deep;
        use crate::watch::scenes::{advise, healthy};
        let mut evidence = healthy();
        let as_seen = Arms { now: None, remedy: "uring", workload: None };
        let said = Arms { now: Some("mmap"), remedy: "uring", workload: Some("--workload chase") };
        let of = |arms, evidence: &Evidence| Replay::of(arms, evidence, evidence.files.first());
        assert_eq!(of(&as_seen, &evidence).arms, ["mmap", "uring"]);

        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        assert_eq!(of(&as_seen, &evidence).arms, ["mmap:advice=random", "uring"]);
        assert_eq!(of(&said, &evidence).arms, ["mmap", "uring"]);
        assert_eq!(of(&said, &evidence).workload, "--workload chase");
        assert_eq!(of(&said, &evidence).memory_bytes, Some(8 << 30));
    }

    #[test]
    fn figures_take_the_place_of_their_names_once() {
        let figures = [("a", "1".to_owned()), ("path", "/x{a}".to_owned())];

        assert_eq!(filled("{a} of {path}, {b} and }{", &figures), "1 of /x{a}, {b} and }{");
        assert_eq!(filled("nothing", &figures), "nothing");
    }

    #[test]
    fn a_threshold_is_reported_with_its_unit() {
        let told = [
            (50.0, ThresholdUnit::Count),
            (0.1, ThresholdUnit::Share),
            (0.002, ThresholdUnit::Share),
            (8.0, ThresholdUnit::Times),
            (33_554_432.0, ThresholdUnit::Bytes),
            (200.0, ThresholdUnit::PerSecond),
            (209_715_200.0, ThresholdUnit::BytesPerSecond),
        ]
        .map(|(value, unit)| Threshold { name: "N", says: "", value, unit }.figure());

        assert_eq!(told, ["50", "10 %", "0.2 %", "8 x", "32.0 MiB", "200/s", "200 MiB/s"]);
    }

    #[test]
    fn the_command_of_a_replay_names_order_limit_and_both_arms() {
        let replay = |order, memory_bytes| {
            let workload = workload(order);
            Replay { arms: ["mmap", "uring:depth=32"], memory_bytes, workload }.command("/x")
        };

        assert_eq!(
            replay(Pattern::Interleaved { streams: 2, stride: -10_000 }, Some(8 << 30)),
            "majorfault compare /x --workload strided:stride=8k --bs 4k --cache cold --memory 8g -m mmap -m uring:depth=32"
        );
        assert_eq!(
            replay(Pattern::Unknown, None),
            "majorfault compare /x --rw randread --bs 4k --cache cold -m mmap -m uring:depth=32"
        );
        assert!(replay(Pattern::Backward, None).contains("/x --rw read --bs"));
        assert!(replay(Pattern::HotSet { bytes: 1 }, None).contains("/x --workload zipf --bs"));
    }
}
