//! Verdicts of many sessions beside each other: each claim against the kernels, devices and file systems that it was judged on.
//!
//! Sessions come file by file and only what is counted of them stays, so that memory grows with the number of different machines and
//! not with that of hosts. Verdicts are the ledger's ([`experiment::ledger`], [`experiment::common`]); here they are compared.

use crate::experiment::{self, Entry, InSession, Judge, Row, SessionRecords, SessionVerdict, Verdict};
use crate::record::{Machine, Record};
use majorfault::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Values of a condition that are kept; more are "and others".
const KEPT: usize = 8;

/// Files whose fault is told; all are counted.
const TOLD: usize = 20;

/// What stands where a record does not tell.
pub const UNKNOWN: &str = "unknown";

/// Device names that are told apart by their kind: `vda` and `vdb` are both `vd`. Longer names first.
const DEVICES: [&str; 10] = ["mmcblk", "nvme", "loop", "zram", "pmem", "xvd", "vd", "sd", "dm", "md"];

/// Claims, and the sides on which they were judged.
#[derive(Default)]
pub struct Drift {
    /// In the order of the experiments.
    claims: BTreeMap<usize, ClaimSides>,
    /// Sessions that were counted, by what tells them from each other.
    seen: HashSet<u64>,
    /// What was read.
    pub read: DriftInput,
}

/// What was read, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftInput {
    /// Files that were read.
    pub files: usize,
    /// Sessions that were judged.
    pub sessions: usize,
    /// Sessions that a second file had as well; they are counted once.
    pub copies: usize,
    /// Records that are of no experiment, and so have no verdict.
    pub others: usize,
    /// Files that could not be read.
    pub unread: usize,
    /// The first of them, with the reason.
    pub told: Vec<(String, String)>,
}

/// A claim on all of its sides.
pub struct ClaimSides {
    /// The claim's row.
    pub row: &'static Row,
    /// The experiment it belongs to.
    pub experiment: &'static str,
    sides: BTreeMap<Ground, Side>,
}

/// What a verdict is laid against. The order is that in which sides are compared: kernels last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ground {
    /// Type of the file system; several with ` + ` between them.
    pub filesystem: Option<String>,
    /// Kind of the device.
    pub device: Option<String>,
    /// The kernel's numbers: 6.9 comes before 6.10.
    numbers: Vec<u64>,
    /// Its release.
    pub kernel: Option<String>,
}

/// One of the three that a verdict is laid against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The kernel, from the oldest on.
    Kernel,
    /// The kind of device.
    Device,
    /// The type of file system.
    Filesystem,
}

/// The sessions of a claim on one ground.
#[derive(Default)]
struct Side {
    /// By the words of the verdict: how many sessions, and the first of them.
    said: BTreeMap<&'static str, (usize, Option<SessionVerdict>)>,
    /// The least and the most of the number to follow.
    figure: Option<[f64; 2]>,
    /// When the first and the last session began.
    began_unix_s: Option<[u64; 2]>,
    /// What else decides, by name.
    conditions: BTreeMap<&'static str, BTreeSet<String>>,
}

/// What there is to say of a claim on one ground.
pub struct ClaimSide {
    /// Where.
    pub ground: Ground,
    /// On what its sessions agree.
    pub verdict: Verdict,
    /// Each verdict, with the sessions that gave it.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// The least and the most of the number to follow, over sessions.
    pub figure: Option<[f64; 2]>,
    /// When the first and the last session began.
    pub began_unix_s: [u64; 2],
    /// What else decides, by name.
    pub conditions: BTreeMap<&'static str, BTreeSet<String>>,
    /// Beside the side before it, on each axis that has one.
    pub beside: Vec<Change>,
}

/// A verdict beside the one before it on an axis, all else that a verdict is laid against being the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which axis.
    pub axis: Axis,
    /// The one before on it: the nearest whose verdict is yes or no.
    pub other: String,
    /// What was said there.
    pub was: &'static str,
    /// Whether that is the contrary.
    pub flips: bool,
    /// What else is not the same on both, and so may be the cause.
    pub also_different: Vec<&'static str>,
}

/// A claim's verdict in a session, for a table of all.
pub struct JudgedClaim<'a> {
    /// The claim's row.
    pub row: &'static Row,
    /// The experiment it belongs to.
    pub experiment: &'static str,
    /// What the session says.
    pub said: &'a InSession,
    /// Where.
    pub ground: &'a Ground,
    /// The name of the file it is from, without its endings.
    pub source: &'a str,
    /// What wrote its records.
    pub tool: &'a str,
    /// `quick`, `standard` or `full`.
    pub scale: &'a str,
    /// The machine.
    pub machine: &'a Machine,
    /// When the session began.
    pub began_unix_s: u64,
}

impl Drift {
    /// Adds the sessions of a file; `each` gets every claim that is judged.
    ///
    /// Errors: those of `each`.
    pub fn add<E>(
        &mut self,
        source: &str,
        mut records: Vec<Record>,
        mut each: impl FnMut(&JudgedClaim<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.read.files += 1;
        self.read.others += records.iter().filter(|record| record.cell.is_none()).count();
        let copies = self.copies(&records);
        self.read.copies += copies.len();
        records.retain(|record| record.cell.is_some() && !copies.contains(&record.session));
        let sessions = experiment::sessions(&records);
        self.read.sessions += sessions.len();
        let entries = experiment::ledger(&records, &[]);
        for (place, entry) in
            entries.iter().enumerate().filter(|(_, entry)| matches!(entry.row.judge, Judge::Claim(..)))
        {
            for said in entry.sessions.iter().filter(|said| said.judged.verdict.was_run()) {
                let Some(session) = sessions.iter().find(|session| session.name == said.name) else { continue };
                self.count(place, entry, said, session, source, &mut each)?;
            }
        }
        Ok(())
    }

    /// Notes that a file could not be read.
    pub fn could_not_read(&mut self, file: &str, reason: &str) {
        self.read.unread += 1;
        if self.read.told.len() < TOLD {
            self.read.told.push((file.to_owned(), reason.to_owned()));
        }
    }

    /// The sessions of these records that an earlier file had.
    fn copies(&mut self, records: &[Record]) -> BTreeSet<String> {
        let is_copy = |session: &SessionRecords<'_>| {
            let first = session.records.first()?;
            let mut hasher = DefaultHasher::new();
            // Two hosts may name a session alike: its name is a second and a process.
            let same = (session.name, experiment::described(&first.machine), first.began_unix_s);
            let cell = first.cell.as_ref().map(|cell| (&cell.experiment, &cell.name));
            let done: Vec<_> = first.phases.iter().map(|phase| (phase.began_ns, phase.wall_ns)).collect();
            (same, cell, first.trial.repetition, done).hash(&mut hasher);
            (!self.seen.insert(hasher.finish())).then(|| session.name.to_owned())
        };
        experiment::sessions(records).iter().filter_map(is_copy).collect()
    }

    fn count<E>(
        &mut self,
        place: usize,
        entry: &Entry,
        said: &InSession,
        session: &SessionRecords<'_>,
        source: &str,
        each: &mut impl FnMut(&JudgedClaim<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_own = |record: &&Record| record.cell.as_ref().is_some_and(|cell| cell.experiment == entry.experiment.id);
        let own: Vec<&Record> = session.records.iter().copied().filter(is_own).collect();
        let Some(first) = own.first() else { return Ok(()) };
        let ground = Ground::of(&own);
        let began_unix_s = own.iter().map(|record| record.began_unix_s).min().unwrap_or_default();
        each(&JudgedClaim {
            row: entry.row,
            experiment: entry.experiment.id,
            said,
            ground: &ground,
            source,
            tool: &first.tool,
            scale: first.cell.as_ref().map_or("", |cell| &cell.scale),
            machine: &first.machine,
            began_unix_s,
        })?;
        let claim = self.claims.entry(place).or_insert_with(|| ClaimSides {
            row: entry.row,
            experiment: entry.experiment.id,
            sides: BTreeMap::new(),
        });
        claim.sides.entry(ground).or_default().add(said, &own, began_unix_s);
        Ok(())
    }

    /// Every claim that was judged, in the order of the experiments.
    pub fn claims(&self) -> impl Iterator<Item = &ClaimSides> {
        self.claims.values()
    }
}

impl Ground {
    /// Where the records of one experiment in one session were made.
    fn of(records: &[&Record]) -> Ground {
        let each = |part: &dyn Fn(&Machine) -> Option<String>| -> Option<String> {
            let parts: BTreeSet<Option<String>> = records.iter().map(|record| part(&record.machine)).collect();
            // One that is not known makes the whole unknown.
            let parts: Option<Vec<String>> = parts.into_iter().collect();
            parts.map(|parts| parts.join(" + "))
        };
        let kernel =
            each(&|machine| known(&machine.kernel).filter(|kernel| kernel.starts_with(|it: char| it.is_ascii_digit())));
        Ground {
            filesystem: each(&|machine| known(&machine.filesystem)),
            device: each(&|machine| known(&machine.device).map(|device| kind(&device).to_owned())),
            numbers: kernel.as_deref().map(numbers).unwrap_or_default(),
            kernel,
        }
    }

    fn part(&self, axis: Axis) -> Option<&str> {
        let part = match axis {
            Axis::Kernel => &self.kernel,
            Axis::Device => &self.device,
            Axis::Filesystem => &self.filesystem,
        };
        part.as_deref()
    }

    /// The order of kernels, then that of file systems and devices.
    pub fn by_kernel(&self, other: &Ground) -> std::cmp::Ordering {
        (&self.numbers, &self.kernel).cmp(&(&other.numbers, &other.kernel)).then_with(|| self.cmp(other))
    }

    /// Its value on an axis, as it is shown.
    pub fn shown(&self, axis: Axis) -> &str {
        self.part(axis).unwrap_or(UNKNOWN)
    }

    /// The axes on which it is not known where this is: it cannot be compared.
    pub fn unknown(&self) -> Vec<Axis> {
        Axis::ALL.into_iter().filter(|axis| self.part(*axis).is_none()).collect()
    }

    /// Whether all but one axis is the same.
    fn is_beside(&self, other: &Ground, axis: Axis) -> bool {
        Axis::ALL.into_iter().all(|each| (each == axis) != (self.part(each) == other.part(each)))
    }
}

impl Axis {
    /// All three.
    pub const ALL: [Axis; 3] = [Axis::Kernel, Axis::Device, Axis::Filesystem];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Axis::Kernel => "kernel",
            Axis::Device => "device",
            Axis::Filesystem => "file system",
        }
    }
}

fn known(text: &str) -> Option<String> {
    (!text.is_empty() && text != UNKNOWN).then(|| text.to_owned())
}

/// The kind of a device by its name: of those with a well-known beginning and a number or letter, that beginning.
fn kind(device: &str) -> &str {
    DEVICES.into_iter().find(|kind| device.starts_with(kind)).unwrap_or(device)
}

fn numbers(kernel: &str) -> Vec<u64> {
    let end = kernel.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(kernel.len());
    kernel[..end].split('.').filter_map(|part| part.parse().ok()).collect()
}

impl Side {
    fn add(&mut self, said: &InSession, records: &[&Record], began_unix_s: u64) {
        let verdict = &said.judged.verdict;
        let counted = self.said.entry(verdict.words()).or_default();
        counted.0 += 1;
        counted.1.get_or_insert_with(|| SessionVerdict {
            session: said.name.clone(),
            machine: String::new(),
            verdict: verdict.clone(),
        });
        if let Some(figure) = said.judged.followed {
            self.figure = Some(self.figure.map_or([figure; 2], |[least, most]| [least.min(figure), most.max(figure)]));
        }
        let [first, last] = self.began_unix_s.unwrap_or([began_unix_s; 2]);
        self.began_unix_s = Some([first.min(began_unix_s), last.max(began_unix_s)]);
        for record in records {
            for (name, value) in conditions(record) {
                let values = self.conditions.entry(name).or_default();
                if values.len() < KEPT {
                    values.insert(value);
                } else if !values.contains(&value) {
                    values.insert("and others".to_owned());
                }
            }
        }
    }

    /// What its sessions come to. The first of each verdict stands for those that gave the same.
    fn verdict(&self) -> Option<Verdict> {
        let first: Vec<SessionVerdict> = self.said.values().filter_map(|(_, first)| first.clone()).collect();
        experiment::common(&first)
    }
}

/// What a verdict may rest on beside the ground.
fn conditions(record: &Record) -> [(&'static str, String); 8] {
    let machine = &record.machine;
    let or_unknown = |value: Option<u64>| value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string());
    [
        ("majorfault", record.tool.clone()),
        ("scale", record.cell.as_ref().map(|cell| cell.scale.clone()).unwrap_or_default()),
        ("processors", format!("{} x {}", machine.cpus, machine.cpu)),
        ("memory", Bytes(machine.memory_bytes).rounded()),
        ("hypervisor", machine.hypervisor.clone()),
        ("read_ahead_kb", or_unknown(machine.read_ahead_kb)),
        ("huge pages", machine.thp.clone()),
        ("reclaim", machine.lru.clone()),
    ]
}

impl ClaimSides {
    /// What there is to say of each side: device by device, kernel by kernel.
    pub fn seen(&self) -> Vec<ClaimSide> {
        let verdicts: Vec<(&Ground, &Side, Verdict)> =
            self.sides.iter().filter_map(|(ground, side)| Some((ground, side, side.verdict()?))).collect();
        let seen = |(place, (ground, side, verdict)): (usize, &(&Ground, &Side, Verdict))| ClaimSide {
            ground: (*ground).clone(),
            verdict: verdict.clone(),
            verdicts: side.said.iter().map(|(words, (count, _))| (*words, *count)).collect(),
            figure: side.figure,
            began_unix_s: side.began_unix_s.unwrap_or_default(),
            conditions: side.conditions.clone(),
            beside: changes(&verdicts[..place], (ground, side, verdict)),
        };
        verdicts.iter().enumerate().map(seen).collect()
    }
}

/// A side beside the nearest before it on each axis. What is not decided, or not known where it is, is compared with nothing.
fn changes(before: &[(&Ground, &Side, Verdict)], (ground, side, verdict): (&Ground, &Side, &Verdict)) -> Vec<Change> {
    if !is_decided(verdict) || !ground.unknown().is_empty() {
        return Vec::new();
    }
    let on = |axis: Axis| {
        let is_other = |it: &&(&Ground, &Side, Verdict)| {
            it.0.unknown().is_empty() && it.0.is_beside(ground, axis) && is_decided(&it.2)
        };
        let (other, its_side, was) = before.iter().rev().find(is_other)?;
        let names = side.conditions.keys().filter(|name| side.conditions.get(*name) != its_side.conditions.get(*name));
        Some(Change {
            axis,
            other: other.shown(axis).to_owned(),
            was: was.words(),
            flips: was.words() != verdict.words(),
            also_different: names.copied().collect(),
        })
    };
    Axis::ALL.into_iter().filter_map(on).collect()
}

fn is_decided(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Holds | Verdict::DoesNotHold)
}

impl ClaimSide {
    /// The comparisons in which the verdict is the contrary.
    pub fn flips(&self) -> impl Iterator<Item = &Change> {
        self.beside.iter().filter(|change| change.flips)
    }

    /// Sessions that judged it.
    pub fn sessions(&self) -> usize {
        self.verdicts.values().sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::Cell;
    use crate::report::drift_tell;
    use crate::report::synthetic::Run;
    use std::convert::Infallible;

    /// Milliseconds of mapping, with reading into buffers at 100: S0.faster says that buffers are faster.
    pub const HOLDS: u64 = 200;
    /// The contrary.
    pub const FAILS: u64 = 50;
    /// Neither: one run is far off.
    const OPEN: u64 = 101;

    /// A session of S0.faster with six runs of each cell.
    pub fn session(name: &str, mapped_ms: u64, machine: impl Fn(&mut Machine)) -> Vec<Record> {
        let run = |cell: &str, turn: u32, ms: u64| {
            let cell = Cell { experiment: "S0".to_owned(), name: cell.to_owned(), scale: "standard".to_owned() };
            let run = Run::of("mmap").session(name).repetition(turn).phases_ms(0, ms, 0).edit(|record| {
                record.cell = Some(cell);
                record.machine.kernel = "6.12.1".to_owned();
                record.machine.device = "vda".to_owned();
                record.machine.filesystem = "ext4".to_owned();
                machine(&mut record.machine);
            });
            run.record()
        };
        let swing = |turn: u32| if mapped_ms == OPEN { 40 * u64::from(turn % 2) } else { 0 };
        (0..6)
            .flat_map(|turn| [run("mmap", turn, mapped_ms - swing(turn)), run("buffer", turn, 100 - swing(turn) / 2)])
            .collect()
    }

    /// The same machine with this kernel.
    pub fn kernel(release: &str) -> impl Fn(&mut Machine) {
        move |machine| machine.kernel = release.to_owned()
    }

    fn on(release: &str, device: &str, filesystem: &str) -> impl Fn(&mut Machine) {
        let [release, device, filesystem] = [release, device, filesystem].map(str::to_owned);
        move |machine| {
            (machine.kernel, machine.device, machine.filesystem) = (release.clone(), device.clone(), filesystem.clone())
        }
    }

    fn drift(files: &[Vec<Record>]) -> Drift {
        let mut drift = Drift::default();
        for records in files {
            drift.add("host", records.clone(), |_| Ok::<(), Infallible>(())).unwrap();
        }
        drift
    }

    fn seen(files: &[Vec<Record>]) -> Vec<ClaimSide> {
        let drift = drift(files);
        drift.claims().find(|claim| claim.row.id == "S0.faster").unwrap().seen()
    }

    /// Kernel, verdict, what flips and against what.
    type Told = (String, &'static str, Vec<(&'static str, String)>);

    fn told(files: &[Vec<Record>]) -> Vec<Told> {
        let flips = |it: &ClaimSide| it.flips().map(|change| (change.axis.words(), change.other.clone())).collect();
        let of = |it: &ClaimSide| (it.ground.shown(Axis::Kernel).to_owned(), it.verdict.words(), flips(it));
        seen(files).iter().map(of).collect()
    }

    fn printed(drift: &Drift) -> String {
        let mut out = Vec::new();
        drift_tell::print(drift, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_verdict_that_is_the_contrary_on_the_next_kernel_is_marked() {
        // 6.9 comes before 6.10, and the order of the files does not matter.
        let files = [
            session("c", FAILS, kernel("6.12.1")),
            session("a", HOLDS, kernel("6.9.7")),
            session("b", HOLDS, kernel("6.10.1")),
            session("d", FAILS, kernel("6.13.0")),
        ];

        let flip = vec![("kernel", "6.10.1".to_owned())];
        let (holds, fails) = ("holds here", "does not hold here");
        let expected =
            [("6.9.7", holds, vec![]), ("6.10.1", holds, vec![]), ("6.12.1", fails, flip), ("6.13.0", fails, vec![])];
        assert_eq!(told(&files), expected.map(|(release, verdict, flips)| (release.to_owned(), verdict, flips)));
        let text = printed(&drift(&files));
        assert!(text.starts_with("1 flips, of "), "{text}");
        assert!(
            text.contains("FLIPS  S0.faster: does not hold here on kernel 6.12.1 (vd, ext4), holds here on 6.10.1"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn the_same_verdict_is_no_flip_on_whatever_side() {
        let files = [
            session("a", HOLDS, on("6.9.7", "vda", "ext4")),
            session("b", HOLDS, on("6.10.1", "vda", "ext4")),
            session("c", HOLDS, on("6.10.1", "nvme0n1", "ext4")),
            session("d", HOLDS, on("6.10.1", "nvme0n1", "xfs")),
        ];

        assert!(told(&files).iter().all(|(_, _, flips)| flips.is_empty()));
        assert_eq!(seen(&files).iter().map(|it| it.beside.len()).collect::<Vec<_>>(), [0, 0, 2, 1]);
        assert!(printed(&drift(&files)).starts_with("no verdict flips, of "));
    }

    #[test]
    fn a_kernel_that_is_not_known_is_unknown_and_compared_with_nothing() {
        for nothing in ["", "unknown", "none of the kind"] {
            let files = [
                session("a", HOLDS, kernel("6.9.7")),
                session("b", FAILS, kernel(nothing)),
                session("c", HOLDS, kernel("6.12.1")),
            ];

            let found = seen(&files);
            let unknown = found.iter().find(|it| it.ground.kernel.is_none()).unwrap();
            assert!(unknown.beside.is_empty());
            assert!(found.iter().all(|it| it.flips().next().is_none()));
            let text = printed(&drift(&files));
            assert!(
                text.contains("unknown kernel, device or file system, so compared with nothing: S0.faster"),
                "{text}"
            );
            let json = drift_tell::document(&drift(&files));
            let sides = json["claims"][0]["sides"].as_array().unwrap().clone();
            let side = sides.iter().find(|side| side["kernel"].is_null()).unwrap();
            assert!(side["flips"].is_null(), "{side}");
        }
    }

    #[test]
    fn devices_of_a_kind_are_one_and_another_kind_or_file_system_is_compared_on_the_same_kernel() {
        let files = [
            session("a", HOLDS, on("6.9.7", "vda", "ext4")),
            session("b", HOLDS, on("6.9.7", "vdb1", "ext4")),
            session("c", FAILS, on("6.9.7", "vda", "xfs")),
            session("d", FAILS, on("6.9.7", "nvme0n1", "ext4")),
            // Nothing is beside it: kernel and file system are both others.
            session("e", FAILS, on("6.10.1", "vda", "btrfs")),
        ];

        let found = seen(&files);
        let ways =
            |it: &ClaimSide| it.flips().map(|change| (change.axis.words(), change.other.clone())).collect::<Vec<_>>();
        let of = |device: &str, filesystem: &str| {
            found
                .iter()
                .find(|it| it.ground.shown(Axis::Device) == device && it.ground.shown(Axis::Filesystem) == filesystem)
                .unwrap()
        };
        assert_eq!(of("vd", "ext4").sessions(), 2);
        assert_eq!(ways(of("vd", "ext4")), [("device", "nvme".to_owned())]);
        assert_eq!(ways(of("vd", "xfs")), [("file system", "ext4".to_owned())]);
        assert!(of("vd", "btrfs").beside.is_empty());
    }

    #[test]
    fn what_is_not_decided_is_no_flip_and_the_decided_one_before_it_is_compared() {
        let files = [
            session("a", HOLDS, kernel("6.9.7")),
            session("b", OPEN, kernel("6.10.1")),
            session("c", FAILS, kernel("6.12.1")),
        ];

        let found = told(&files);
        assert_eq!(found[1], ("6.10.1".to_owned(), "undecided, run more", vec![]));
        assert_eq!(found[2].2, [("kernel", "6.9.7".to_owned())]);
    }

    #[test]
    fn sessions_of_one_side_that_disagree_are_counted_and_decide_nothing() {
        let files = [
            session("a", HOLDS, kernel("6.9.7")),
            session("b", FAILS, kernel("6.9.7")),
            session("c", FAILS, kernel("6.12.1")),
        ];

        let found = seen(&files);
        assert_eq!(found[0].verdict.words(), "undecided, run more");
        assert_eq!(found[0].verdicts, BTreeMap::from([("does not hold here", 1), ("holds here", 1)]));
        assert_eq!(found[0].figure, Some([0.5, 2.0]));
        assert!(found[1].beside.is_empty());
        assert!(printed(&drift(&files)).contains("sessions of one side disagree: S0.faster"));
    }

    #[test]
    fn what_else_is_another_is_named_with_a_flip() {
        let also = |files: &[Vec<Record>]| seen(files)[1].beside[0].also_different.clone();
        let (a, b) = (session("a", HOLDS, kernel("6.9.7")), session("b", FAILS, kernel("6.12.1")));
        let mut other = b.clone();
        other
            .iter_mut()
            .for_each(|record| (record.tool, record.machine.read_ahead_kb) = ("majorfault 9".to_owned(), Some(9)));

        assert!(also(&[a.clone(), b]).is_empty());
        assert_eq!(also(&[a, other]), ["majorfault", "read_ahead_kb"]);
    }

    #[test]
    fn a_session_that_two_files_have_is_counted_once_and_one_of_another_host_with_its_name_is_not_it() {
        let mine = session("1-2", HOLDS, kernel("6.9.7"));
        let theirs = session("1-2", HOLDS, |machine| machine.memory_bytes = 7 << 30);
        let found = drift(&[mine.clone(), mine, theirs]);

        assert_eq!((found.read.sessions, found.read.copies), (2, 1));
        assert_eq!(found.claims().next().unwrap().seen().iter().map(ClaimSide::sessions).sum::<usize>(), 2);
    }

    #[test]
    fn records_without_a_claim_and_files_that_cannot_be_read_are_told() {
        let mut found = drift(&[vec![Run::of("mmap").record()]]);
        found.could_not_read("host7.jsonl.gz", "it ends too early");
        let text = printed(&found);

        assert!(text.contains("1 records are of no published experiment"), "{text}");
        assert!(
            text.contains("1 files could not be read, and are not judged:\nhost7.jsonl.gz: it ends too early"),
            "{text}"
        );
        assert!(text.starts_with("nothing can be compared"), "{text}");
    }

    #[test]
    fn what_is_kept_of_a_condition_has_an_end() {
        let files: Vec<Vec<Record>> =
            (1..30).map(|host| session(&format!("s{host}"), HOLDS, move |machine| machine.cpus = host)).collect();
        let found = seen(&files);

        assert_eq!(found[0].conditions["processors"].len(), KEPT + 1);
        assert!(found[0].conditions["processors"].contains("and others"));
    }
}
