//! Scattered accesses under the default advice: each fault reads a whole window, most of it for nothing.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::patient::{Patient, Seat, size_bytes, waited_ns, waits};
use crate::doctor::rule::{Arms, Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::{MappedFile, PRESSURE};
use crate::watch::order::words;
use majorfault::observe::pattern::{Access, FAULT_AROUND, Pattern, Recognised, recognise};

pub(super) const RULE: Rule = Rule {
    name: "read_ahead_flood",
    summary: "read-ahead for scattered faults reads many times what is touched",
    looks_at: &[Part::MappedFiles, Part::Faults, Part::ReadCalls],
    thresholds: THRESHOLDS,
    trouble: "read-ahead reads {times} times what is touched",
    remedies: &[&ADVISE, &BY_SIZE, &BY_STRIDES, &LOAD],
    alerts: true,
    gain: Gain::Waits,
    explains: &[&super::thrash::RULE, &super::fault_stall::RULE],
    look: Sight::All(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Bytes read for each byte of a touched page.
    FLOOD: f64 = 8.0, Times;
    /// Bytes read; fewer do not matter.
    LEAST: u64 = 32 << 20, Bytes;
    /// Fewer waits for the files than this may be chance.
    FEWEST: u64 = 64, Count;
    /// Share of the steps that must be scattered.
    RANDOM: f64 = 0.6, Share;
    /// Share of all waits that must be those of the files, because bytes are counted for the whole process.
    OWN: f64 = 0.8, Share;
    /// Windows that one wait may have read: its own, and the next one that it announced.
    WINDOWS: u64 = 2, Count;
    /// Share of the faults that go on in the next page; from here on accesses span several pages, which wait one by one under
    /// MADV_RANDOM.
    SPANS: f64 = 0.3, Share;
    /// Faults for each one that waits; above it read-ahead spares waits, and MADV_RANDOM would bring them back.
    SPARED: u64 = 4, Times;
    /// A page alone takes at least about this long, in nanoseconds; shorter waits cannot be made shorter by reading less.
    PAGE_NS: u64 = 100_000, Count;
    /// A page alone comes no sooner than this, in nanoseconds, from a fast disk: what is left to wait for with MADV_RANDOM.
    ALONE_NS: u64 = 50_000, Count;
    /// Pages that one fault maps at most (fault-around): an access may span so many with one fault, and wait for each under MADV_RANDOM.
    HIDDEN: u64 = FAULT_AROUND / 4096, Count;
    /// A page that is asked for together with many takes at least about this long, in nanoseconds.
    QUEUED_NS: u64 = 10_000, Count;
    /// Faults in a file from which on its order is judged, where it is one of many files with too few to tell.
    CROWD: usize = 4, Count;
    /// Share of the files that memory is counted on to hold at most, because it is not filled at once.
    MOST_HELD: f64 = 0.5, Share;
    /// Seconds after which the flood has read the files, where they fit into memory; then it ends by itself.
    SOON: f64 = 60.0, Count;
}

const ADVISE: Remedy = Remedy {
    when: "the files do not fit into memory",
    says: "madvise(p, length, MADV_RANDOM)",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:advice=random", workload: None }),
    symptom: Some(Symptom::Flood),
    backing: Backing::Try,
};

const BY_SIZE: Remedy = Remedy {
    when: "accesses span several pages",
    says: "madvise(p, length, MADV_RANDOM) once, and before each access madvise(p + at, size, MADV_POPULATE_READ): its pages \
           come by one read; MADV_RANDOM alone would wait for each of them",
    proof: Proof::Command(
        "majorfault compare {path} --rw randread --bs 16k --cache cold -m mmap -m mmap:advice=random -m pread",
    ),
    symptom: Some(Symptom::LookupsAlone),
    backing: Backing::Try,
};

const BY_STRIDES: Remedy = Remedy {
    when: "by strides",
    says: "ask for the next 64 steps at once: for i in 1..64: posix_fadvise(fd, at + i * {stride}, 4096, \
           POSIX_FADV_WILLNEED)",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=learned", workload: None }),
    symptom: Some(Symptom::Flood),
    backing: Backing::Try,
};

const LOAD: Remedy = Remedy {
    when: "the files fit into memory and are soon read whole",
    says: "load the files first, as they fit into memory: for (at = 0; at < n; at += 8 MiB) madvise(p + at, 8 MiB, \
           MADV_POPULATE_READ); only where little of them is ever used: madvise(p, length, MADV_RANDOM)",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=whole", workload: None }),
    symptom: Some(Symptom::Load),
    backing: Backing::Try,
};

/// What was read for which accesses.
struct Flood<'a> {
    files: Vec<Seat<'a>>,
    read: u64,
    touched: u64,
}

fn look(patient: Patient<'_>) -> Vec<Case> {
    let crowd = order_of_crowd(patient);
    let is_flooded = |seat: &Seat<'_>| seat.file.waits > 0 && is_scattered(seat.file, crowd);
    let files: Vec<Seat<'_>> = patient.files().filter(is_flooded).collect();
    let waits = waits(&files);
    if waits < FEWEST || (waits as f64) < patient.waits().unwrap_or(0) as f64 * OWN {
        return Vec::new();
    }
    let Some(read) = read_by_faults(patient, &files) else { return Vec::new() };
    let touched = files.iter().map(|seat| seat.file.asked_bytes()).sum::<u64>().max(4096);
    let flood = Flood { files, read, touched };
    let is_flood = read >= LEAST && flood.factor() >= FLOOD && flood.costs();
    if is_flood { vec![flood.case(patient)] } else { Vec::new() }
}

/// The order within files that have too few faults each to tell it, taken together: one file after the other.
fn order_of_crowd(patient: Patient<'_>) -> Option<Recognised> {
    let few = patient.files().filter(|seat| is_too_few(seat.file));
    let apart = few.enumerate().flat_map(|(number, seat)| {
        let base = (number as u64) << 44;
        seat.file.latest.iter().map(move |access| Access { offset: base + access.offset, ..*access })
    });
    let apart: Vec<Access> = apart.collect();
    (!apart.is_empty()).then(|| recognise(&apart))
}

/// Whether it has faults enough to follow each other, but too few to tell its order.
fn is_too_few(file: &MappedFile) -> bool {
    file.latest.len() >= CROWD && file.order.is_none_or(|order| order.pattern == Pattern::Unknown)
}

/// Whether its faults have no order that read-ahead serves, and nobody has told the kernel so.
fn is_scattered(file: &MappedFile, crowd: Option<Recognised>) -> bool {
    let order = if is_too_few(file) { crowd } else { file.order };
    let Some(order) = order.filter(|order| order.confidence >= RANDOM) else { return false };
    let is_far = |stride: i64| stride.unsigned_abs() > FAULT_AROUND;
    file.random_advice().is_none()
        && match order.pattern {
            Pattern::Random | Pattern::HotSet { .. } => true,
            Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => is_far(stride),
            Pattern::Sequential | Pattern::Backward | Pattern::Unknown => false,
        }
}

/// Bytes that devices read for these faults: without what read calls may have read, and no more than the windows of the waits.
fn read_by_faults(patient: Patient<'_>, files: &[Seat<'_>]) -> Option<u64> {
    let calls = patient.calls()?;
    let windows = files.iter().map(|seat| {
        let window = seat.file.read_ahead_kb.map_or(u64::MAX, |kb| (kb << 10).max(4096));
        window.saturating_mul(WINDOWS * seat.file.waits)
    });
    let most = windows.fold(0, u64::saturating_add);
    Some(calls.device_bytes.saturating_sub(calls.read_call_bytes).min(most))
}

/// Whether pages are evicted and needed again in its memory limit.
fn is_pressed(patient: Patient<'_>) -> bool {
    patient.refaults().is_some_and(|(rate, whose)| rate >= PRESSURE && whose != "machine")
}

impl Flood<'_> {
    fn factor(&self) -> f64 {
        self.read as f64 / self.touched as f64
    }

    fn faults(&self) -> u64 {
        self.files.iter().map(|seat| seat.file.faults).sum()
    }

    /// Whether each fault, waiting for a page alone, would wait less than is waited now.
    fn costs(&self) -> bool {
        waited_ns(&self.files) >= waits(&self.files) * PAGE_NS
    }

    fn cached_bytes(&self) -> u64 {
        self.files.iter().filter_map(|seat| seat.file.cached_bytes).sum()
    }

    /// Bytes of the files that are still to be read.
    fn rest_bytes(&self) -> Option<u64> {
        Some(size_bytes(&self.files)?.saturating_sub(self.cached_bytes()))
    }

    /// Whether the files fit into memory and will soon have been read.
    fn ends_soon(&self, patient: Patient<'_>) -> bool {
        let (Some(size), Some(room), Some(rest)) = (size_bytes(&self.files), patient.room_bytes(), self.rest_bytes())
        else {
            return false;
        };
        let cached = self.cached_bytes();
        // Somebody drops what was read, if it is not there any more.
        let stays = cached >= self.read / 2;
        size <= room && !is_pressed(patient) && stays && rest as f64 <= patient.rate(self.read) * SOON
    }

    /// Whether memory has room for the files. If they are evicted nevertheless, it lacks a little of it, and that is the cause.
    fn fits(&self, patient: Patient<'_>) -> bool {
        size_bytes(&self.files).zip(patient.room_bytes()).is_some_and(|(size, room)| size <= room)
    }

    fn stride(&self) -> Option<i64> {
        match self.files.iter().max_by_key(|seat| seat.file.waited_ns)?.file.order?.pattern {
            Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => Some(stride),
            _ => None,
        }
    }

    /// The largest share of faults that go on in the next page.
    fn spans(&self) -> f64 {
        let worst = self.files.iter().max_by_key(|seat| seat.file.faults);
        worst.map_or(0.0, |seat| seat.file.neighbour_share())
    }

    fn remedy(&self, patient: Patient<'_>) -> &'static Remedy {
        match () {
            () if self.ends_soon(patient) => &LOAD,
            () if self.stride().is_some() => &BY_STRIDES,
            () if self.spans() >= SPANS => &BY_SIZE,
            () => &ADVISE,
        }
    }

    fn case(&self, patient: Patient<'_>) -> Case {
        let remedy = self.remedy(patient);
        let case = Case::of_files(&self.files, Severity::Warning, remedy).facts(self.facts(patient));
        let case = case.figure("times", format!("{:.0}", self.factor()));
        // What ends by itself costs its rest, which is not a share of the program's time.
        let case = if *remedy == LOAD { case } else { self.gaining(patient, remedy, case) };
        // Nearly every fault waits already, each for a whole window: the pages of its access alone cannot be worse.
        let is_long = waited_ns(&self.files) >= waits(&self.files) * HIDDEN * PAGE_NS;
        let is_certain = *remedy == ADVISE && is_long && self.faults() <= waits(&self.files) * SPARED;
        let case = if is_certain { case.decided() } else { case };
        let case = Case { is_cause: !(self.fits(patient) && is_pressed(patient)), ..case };
        case.figure("stride", self.stride().unwrap_or(0))
    }

    /// With the remedy each access still waits for its own page or pages.
    fn gaining(&self, patient: Patient<'_>, remedy: &Remedy, case: Case) -> Case {
        let (reads, each_ns) = match () {
            () if *remedy == BY_STRIDES => (self.faults(), QUEUED_NS),
            () if *remedy == BY_SIZE => ((self.faults() as f64 * (1.0 - self.spans())) as u64, ALONE_NS),
            () => (self.misses(patient), ALONE_NS),
        };
        case.waiting(patient.waiting(&self.files)).remaining(reads, each_ns, waited_ns(&self.files))
    }

    /// Faults that still wait under MADV_RANDOM: when nothing is read in vain any more, memory holds its share of the files, by chance.
    fn misses(&self, patient: Patient<'_>) -> u64 {
        let held = match size_bytes(&self.files).zip(patient.room_bytes()) {
            Some((size, room)) if size > room => (room as f64 / size as f64).min(MOST_HELD),
            _ => 0.0,
        };
        (self.faults() as f64 * (1.0 - held)) as u64
    }

    fn facts(&self, patient: Patient<'_>) -> Vec<Fact> {
        let worst = self.files.iter().max_by_key(|seat| seat.file.faults).map(|seat| seat.file);
        let order = worst.and_then(|file| file.order);
        let order = order.map(|order| {
            let fact = Fact::guessed("order: {order} ({steps})").word("order", words(order.pattern));
            fact.number("steps", order.confidence, MeasureUnit::Share)
        });
        let read_ahead = worst.and_then(|file| file.read_ahead_kb);
        let read_ahead = read_ahead
            .map_or(Fact::seen("read_ahead_kb unknown"), |kb| Fact::seen("read_ahead_kb {kb}").count("kb", kb));
        let room = size_bytes(&self.files).zip(patient.room_bytes()).map(|(size, room)| {
            Fact::guessed("{size} of files, and memory for {room}").bytes("size", size).bytes("room", room)
        });
        let mut facts = vec![
            Fact::guessed("{read} read from devices").bytes("read", self.read),
            Fact::seen("{touched} in touched pages").bytes("touched", self.touched),
        ];
        facts.extend(order.into_iter().chain([read_ahead]).chain(room));
        if self.ends_soon(patient) {
            let rest_ns = self.rest_bytes().unwrap_or(0) as f64 / patient.rate(self.read).max(1.0) * 1e9;
            facts.push(Fact::guessed("at this speed they are read whole in {rest}").nanos("rest", rest_ns as u64));
        }
        if self.spans() >= SPANS {
            let fact = Fact::guessed("{share} of the faults go on in the next page");
            facts.push(fact.number("share", self.spans(), MeasureUnit::Share));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, count, only, order, with_file, worst};
    use super::*;
    use crate::watch::evidence::{Calls, Deep, Evidence};
    use majorfault::observe::places::FileId;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        flooded()
    }

    /// A file that does not fit into memory; windows of 8 MiB.
    fn flooded() -> Evidence {
        let mut evidence = with_file(|file| {
            (file.size_bytes, file.cached_bytes, file.read_ahead_kb) = (Some(100 << 30), Some(300 << 20), Some(8192));
        });
        evidence.calls = Some(Calls { device_bytes: 200 << 20, ..Calls::default() });
        wait(&mut evidence, 800, 810);
        evidence
    }

    /// So many faults wait in the file, for 4 ms each, and so many in all.
    fn wait(evidence: &mut Evidence, waits: u64, all: u64) {
        let file = &mut evidence.files[0];
        (file.major, file.waits, file.waited_ns) = (waits, waits, waits * 4_000_000);
        evidence.faults.as_mut().unwrap().waits = all;
    }

    #[test]
    fn random_faults_that_read_windows_are_a_flood() {
        let found = only(&RULE, &flooded());

        assert!(found.remedy.contains("MADV_RANDOM") && found.what.contains("57 times"), "{found:?}");
    }

    /// Seen with LMDB and MDB_NORDAHEAD: its inner pages are dropped and read again, one at a time.
    #[test]
    fn pages_that_are_read_again_alone_are_no_read_ahead() {
        let mut evidence = flooded();
        wait(&mut evidence, 50_000, 50_000);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn a_scan_reads_ahead_rightly() {
        let mut evidence = flooded();
        evidence.files[0].order = Some(order(Pattern::Sequential));

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// 1024 pages of 4 KiB are touched, each with a wait.
    fn reading(device_bytes: u64) -> Evidence {
        let mut evidence = flooded();
        evidence.files[0].touched_pages = 1024;
        wait(&mut evidence, 1024, 1024);
        evidence.calls.as_mut().unwrap().device_bytes = device_bytes;
        evidence
    }

    #[test]
    fn eight_bytes_for_each_that_is_touched_are_a_flood() {
        let mut evidence = reading(64 << 20);
        evidence.files[0].touched_pages = 2048;
        assert_eq!(only(&RULE, &evidence).what, "read-ahead reads 8 times what is touched");

        evidence.calls.as_mut().unwrap().device_bytes = (64 << 20) - 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn less_than_32_mib_does_not_matter() {
        let mut evidence = reading(32 << 20);
        evidence.files[0].touched_pages = 64;
        wait(&mut evidence, 64, 64);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.calls.as_mut().unwrap().device_bytes = (32 << 20) - 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn a_file_that_nobody_waited_for_is_no_part_of_the_flood() {
        let mut evidence = reading(200 << 20);
        let alone = only(&RULE, &evidence);
        let mut other = evidence.files[0].clone();
        other.id.inode += 1;
        (other.waits, other.touched_pages) = (0, 1 << 20);
        evidence.files.push(other);

        let found = only(&RULE, &evidence);

        assert_eq!((found.what, found.scope), (alone.what, alone.scope));
    }

    #[test]
    fn fewer_than_64_waits_are_chance() {
        let mut evidence = reading(200 << 20);
        wait(&mut evidence, 63, 63);
        assert_eq!(worst(&RULE, &evidence), None);

        wait(&mut evidence, 64, 64);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn the_bytes_are_the_files_where_four_fifths_of_the_waits_are() {
        let mut evidence = reading(200 << 20);
        evidence.faults.as_mut().unwrap().waits = 1280;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.faults.as_mut().unwrap().waits = 1281;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn six_tenths_of_the_steps_must_be_random() {
        let mut evidence = reading(200 << 20);
        evidence.files[0].order.as_mut().unwrap().confidence = 0.6;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.files[0].order.as_mut().unwrap().confidence = 0.599;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn a_hot_set_and_a_stride_are_flooded_as_well_and_a_scan_is_not() {
        let with = |pattern| {
            let mut evidence = reading(200 << 20);
            evidence.files[0].order = Some(order(pattern));
            evidence
        };
        assert_eq!(worst(&RULE, &with(Pattern::HotSet { bytes: 1 << 20 })), Some(Severity::Warning));
        assert!(only(&RULE, &with(Pattern::Strided(1 << 20))).remedy.contains("at + i * 1048576, 4096"));
        for pattern in [Pattern::Strided(65_536), Pattern::Sequential, Pattern::Backward, Pattern::Unknown] {
            assert_eq!(worst(&RULE, &with(pattern)), None, "{pattern:?}");
        }
    }

    #[test]
    fn random_advice_in_force_reads_nothing_ahead() {
        let mut evidence = reading(200 << 20);
        advise(&mut evidence, Deep { random: true, ..Deep::default() });

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Pages needed again in 5 s; of 50 read, one is touched.
    fn pressed(pages: u64) -> Evidence {
        let mut evidence = reading(200 << 20);
        count(&mut evidence, "cgroup_refault_pages", pages);
        evidence
    }

    /// Seen with LMDB below a limit: the flood itself was the pressure, and MADV_RANDOM ended it (6 MiB read instead of 3 423).
    #[test]
    fn pressure_that_the_flood_makes_is_no_reason_against_random_advice() {
        let found = only(&RULE, &pressed(500_000));

        assert_eq!(found.remedy, "madvise(p, length, MADV_RANDOM)");
        assert_eq!(found.replay.unwrap().arms, ["mmap", "mmap:advice=random"]);
    }

    /// Seen with an index of 92.8 MiB and room for 93.5: it was evicted nevertheless, and 0.5 x as fast with MADV_RANDOM.
    #[test]
    fn files_that_just_fit_and_are_evicted_lack_a_little_memory() {
        let first = |size| {
            let mut evidence = pressed(25_000);
            evidence.files[0].size_bytes = Some(size);
            evidence.faults.as_mut().unwrap().waiting_ns = vec![4_096_000_000];
            crate::doctor::examine(&[evidence]).remove(0).rule
        };
        let room = (8 << 30) - (200 << 20);

        assert_eq!((first(room), first(room + 1)), ("thrash", RULE.name));
    }

    /// Seen in the tests with programs of others: files that fit, and that somebody else drops from memory.
    #[test]
    fn files_that_fit_and_are_not_evicted_flood_and_that_explains_the_waits() {
        let mut evidence = pressed(0);
        (evidence.files[0].size_bytes, evidence.files[0].cached_bytes) = (Some(1 << 30), Some(0));
        evidence.faults.as_mut().unwrap().waiting_ns = vec![4_096_000_000];

        let found = crate::doctor::examine(&[evidence]);

        let rules: Vec<&str> = found.iter().map(|it| it.rule).collect();
        assert_eq!(rules, [RULE.name], "{found:?}");
    }

    #[test]
    fn a_flood_explains_thrash_and_stalls_in_one_line_each() {
        let mut evidence = pressed(25_000);
        evidence.faults.as_mut().unwrap().waiting_ns = vec![4_096_000_000];

        let found = crate::doctor::examine(&[evidence]);

        assert_eq!(found.len(), 1, "{found:?}");
        let explained: Vec<&str> = found[0].consequences.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            explained,
            [
                "pages are evicted and read again: the working set does not fit into memory",
                "threads wait in page faults for 82 % of their time"
            ]
        );
        assert_eq!((found[0].rule, found[0].severity), (RULE.name, Severity::Critical));
    }

    /// Seen: MADV_RANDOM for 20 000 rows of a file that ended up wholly read was 0.43 x as fast.
    #[test]
    fn files_that_fit_and_are_soon_read_are_to_be_loaded() {
        let mut evidence = reading(200 << 20);
        (evidence.files[0].size_bytes, evidence.files[0].cached_bytes) = (Some(500 << 20), Some(100 << 20));
        evidence.faults.as_mut().unwrap().waiting_ns = vec![4_096_000_000];
        let found = crate::doctor::examine(std::slice::from_ref(&evidence)).remove(0);
        assert_eq!((found.severity, found.gain_at_most), (Severity::Warning, None), "it ends by itself");
        assert_eq!(found.evidence.last().unwrap(), &"at this speed they are read whole in 10s");

        let with = |size: u64| {
            let mut evidence = reading(200 << 20);
            // 40 MiB are read each second; in 60 s, 2400 MiB.
            (evidence.files[0].size_bytes, evidence.files[0].cached_bytes) = (Some(size), Some(100 << 20));
            only(&RULE, &evidence).remedy
        };
        assert!(with(2500 << 20).starts_with("load the files first, as they fit into memory"));
        assert_eq!(with((2500 << 20) + 1), "madvise(p, length, MADV_RANDOM)", "it would take longer than a minute");

        let mut evidence = reading(200 << 20);
        evidence.files[0].size_bytes = Some(1 << 30);
        evidence.group.as_mut().unwrap().limit_bytes = Some((1 << 30) + (200 << 20) - 1);
        assert_eq!(only(&RULE, &evidence).remedy, "madvise(p, length, MADV_RANDOM)", "it does not fit");

        evidence.group.as_mut().unwrap().limit_bytes = Some((1 << 30) + (200 << 20));
        assert!(only(&RULE, &evidence).remedy.starts_with("load the files first"));
        evidence.files[0].cached_bytes = Some((100 << 20) - 1);
        assert_eq!(only(&RULE, &evidence).remedy, "madvise(p, length, MADV_RANDOM)", "what it reads is dropped");
        evidence.files[0].cached_bytes = Some(100 << 20);
        count(&mut evidence, "cgroup_refault_pages", 500);
        assert_eq!(only(&RULE, &evidence).remedy, "madvise(p, length, MADV_RANDOM)", "what it reads is evicted again");
    }

    /// Seen: MADV_RANDOM for shuffled samples of 12 KiB was 4.2 x slower.
    #[test]
    fn accesses_of_several_pages_are_asked_for_as_a_whole() {
        let with = |again: usize| {
            let mut evidence = reading(200 << 20);
            let far = |number: usize| Access { thread: 1, offset: number as u64 * 40_960 };
            evidence.files[0].latest = (0..100).map(far).collect();
            for number in 0..again {
                evidence.files[0].latest[2 * number + 1].offset = number as u64 * 81_920 + 4096;
            }
            only(&RULE, &evidence).remedy
        };

        assert_eq!(with(29), "madvise(p, length, MADV_RANDOM)");
        assert!(with(30).contains("before each access madvise(p + at, size, MADV_POPULATE_READ)"));
    }

    #[test]
    fn an_access_of_several_pages_waits_once_where_it_is_asked_for_as_a_whole() {
        let mut evidence = reading(200 << 20);
        let at = |number: u64| Access { thread: 1, offset: number / 2 * 81_920 + number % 2 * 4096 };
        (evidence.files[0].latest, evidence.files[0].faults) = ((0..100).map(at).collect(), 2500);
        evidence.faults.as_mut().unwrap().waiting_ns = vec![5_000_000_000];
        evidence.files[0].waited_ns = 5_000_000_000;

        // Half of the faults, of 0.05 ms each, are an eightieth of what is waited now.
        assert_eq!(only(&RULE, &evidence).gain_at_most.map(f64::round), Some(45.0));
    }

    /// Seen with a Java program: 2.96 M accesses in 4 s, nearly all in pages that read-ahead had brought.
    #[test]
    fn waits_that_are_as_short_as_a_pages_are_not_made_shorter() {
        let mut evidence = reading(200 << 20);
        evidence.files[0].waited_ns = 102_400_000;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.files[0].waited_ns -= 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn it_is_advice_where_nearly_every_fault_waits_and_to_be_tried_where_read_ahead_spares_waits() {
        let backing = |faults| {
            let mut evidence = reading(200 << 20);
            evidence.files[0].faults = faults;
            only(&RULE, &evidence).backing
        };

        assert_eq!((backing(4096), backing(4097)), (Backing::Decided, Backing::Try));
    }

    /// Seen with rows of 16 KiB: fault-around maps the other three pages, so that one fault is seen for each row.
    #[test]
    fn it_is_to_be_tried_where_the_pages_that_one_fault_maps_may_take_longer_alone() {
        let backing = |each_ns: u64| {
            let mut evidence = reading(200 << 20);
            evidence.files[0].waited_ns = 1024 * each_ns;
            only(&RULE, &evidence).backing
        };

        assert_eq!((backing(1_600_000), backing(1_599_999)), (Backing::Decided, Backing::Try));
    }

    /// Seen: the bytes of another thread's pread were charged to a mapping.
    #[test]
    fn what_read_calls_may_have_read_is_not_the_faults() {
        let mut evidence = reading(200 << 20);
        evidence.calls.as_mut().unwrap().read_call_bytes = 168 << 20;
        assert_eq!(only(&RULE, &evidence).evidence[0], "32.0 MiB read from devices");

        evidence.calls.as_mut().unwrap().read_call_bytes += 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn no_more_is_charged_to_waits_than_two_windows_each() {
        let mut evidence = reading(2 << 30);
        evidence.files[0].read_ahead_kb = Some(16);
        assert_eq!(only(&RULE, &evidence).evidence[0], "32.0 MiB read from devices");

        evidence.files[0].read_ahead_kb = Some(15);
        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Seen with RocksDB: 3 197 MiB read for 8 in twelve files, and no flood was found in any of them.
    #[test]
    fn twelve_files_are_one_flood() {
        let mut evidence = reading(1200 << 20);
        let one = MappedFile { touched_pages: 85, major: 85, waits: 85, ..evidence.files[0].clone() };
        let file = |number| MappedFile { id: FileId { inode: number, ..one.id }, ..one.clone() };
        evidence.files = (1..=12).map(file).collect();

        let found = only(&RULE, &evidence);

        assert_eq!(
            (found.scope.as_str(), found.what.as_str()),
            ("12 files", "read-ahead reads 301 times what is touched")
        );
    }

    /// Seen with LevelDB on a slow day: twenty files, fewer than sixteen faults in most, and thrash stood first.
    #[test]
    fn files_with_too_few_faults_each_are_judged_by_the_steps_within_them() {
        let with = |faults: u64, place: fn(u64, u64) -> u64| {
            let mut evidence = reading(1200 << 20);
            let one = MappedFile { touched_pages: faults, major: faults, waits: faults, ..evidence.files[0].clone() };
            let file = |number| {
                let latest = (0..faults).map(|at| Access { thread: 1, offset: place(number, at) }).collect();
                MappedFile { id: FileId { inode: number, ..one.id }, latest, order: None, ..one.clone() }
            };
            evidence.files = (1..=100).map(file).collect();
            evidence.faults.as_mut().unwrap().waits = 100 * faults;
            worst(&RULE, &evidence)
        };
        let scattered = |number: u64, at: u64| (number * 31 + at).wrapping_mul(2_654_435_761) % 5000 * 4096;

        assert_eq!((with(4, scattered), with(3, scattered)), (Some(Severity::Warning), None));
        assert_eq!(with(12, |_, at| at * 65_536), None, "a scan of each");
    }

    /// Each fault waits for 4 ms now: for all of its time, of which a page alone takes an eightieth.
    #[test]
    fn what_a_page_alone_takes_remains_of_the_wait() {
        let gain = |faults, pattern| {
            let mut evidence = reading(200 << 20);
            (evidence.files[0].faults, evidence.files[0].order) = (faults, Some(order(pattern)));
            // Memory holds next to nothing of it.
            evidence.files[0].size_bytes = Some(1 << 50);
            evidence.faults.as_mut().unwrap().waiting_ns = vec![5_000_000_000];
            evidence.files[0].waited_ns = 5_000_000_000;
            (only(&RULE, &evidence).gain_at_most.unwrap() * 10.0).round() / 10.0
        };

        // Of 99 %, 1250 waits of 0.05 ms are an eightieth, and as many of 0.01 ms a four-hundredth.
        assert_eq!(gain(1250, Pattern::Random), 44.7);
        assert_eq!(gain(1250, Pattern::Strided(1 << 20)), 80.2);
    }

    /// Seen with LMDB, SQLite, GDBM, RocksDB and Java: lookups gained twice of what was promised while each fault counted as a wait.
    #[test]
    fn of_what_does_not_fit_memory_holds_its_share_and_half_at_most() {
        let room = (8 << 30) - (200 << 20);
        let gain = |size| {
            let mut evidence = pressed(0);
            (evidence.files[0].faults, evidence.files[0].size_bytes) = (1250, Some(size));
            evidence.faults.as_mut().unwrap().waiting_ns = vec![5_000_000_000];
            evidence.files[0].waited_ns = 5_000_000_000;
            (only(&RULE, &evidence).gain_at_most.unwrap() * 10.0).round() / 10.0
        };

        // Of 1250 waits of 0.05 ms 937 remain, or 625.
        assert_eq!([gain(4 * room), gain(2 * room), gain(room + room / 2)], [51.9, 61.8, 61.8]);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = reading(200 << 20);
        let facts = [
            "200 MiB read from devices",
            "4.00 MiB in touched pages",
            "order: random (95 %)",
            "read_ahead_kb 8192",
            "100 GiB of files, and memory for 7.80 GiB",
        ];
        assert_eq!(only(&RULE, &evidence).evidence, facts);
        assert_eq!(only(&RULE, &evidence).what, "read-ahead reads 50 times what is touched");

        evidence.files[0].read_ahead_kb = None;
        assert_eq!(only(&RULE, &evidence).evidence[3], "read_ahead_kb unknown");
    }
}
