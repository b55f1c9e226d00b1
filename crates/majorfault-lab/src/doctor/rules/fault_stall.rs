//! Threads wait for the device in page faults: one page at a time, with nothing else in flight.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::patient::{Patient, Seat, are_sampled, distinct, waited_error, waited_ns, waits};
use crate::doctor::rule::{Arms, Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::order::words;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "fault_stall",
    summary: "threads wait for the device in page faults for much of their time",
    looks_at: &[Part::MappedFiles, Part::Faults],
    thresholds: THRESHOLDS,
    trouble: "threads wait in page faults for {share} of their time",
    remedies: &[&IN_ORDER, &BY_STRIDES, &MANY_FILES, &WITHOUT_ORDER, &MANY_ALREADY],
    alerts: true,
    gain: Gain::Waits,
    explains: &[],
    look: Sight::All(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Fewer waits than this may be chance.
    FEWEST: u64 = 50, Count;
    /// Share of the threads' time that is worth a warning.
    MUCH: f64 = 0.1, Share;
    /// Share of the threads' time that is most of it: critical.
    MOST: f64 = 0.6, Share;
    /// Files without an order of their own from which on it is their number that costs.
    FILES: u64 = 100, Count;
    /// Bytes that a device must have read for each wait, where no fault started a read itself; below it faults waited for a lock.
    A_WAIT: u64 = 2048, Bytes;
    /// Faults that wait at the same time; from here on the device is busy, and more threads do not help.
    BUSY: f64 = 8.0, Count;
    /// A page that is asked for together with many takes at least about this long, in nanoseconds.
    QUEUED_NS: u64 = 10_000, Count;
}

const IN_ORDER: Remedy = Remedy {
    when: "in order",
    says: "read ahead in a second thread: madvise(p + done + 8 MiB, 8 MiB, MADV_POPULATE_READ), or raise read_ahead_kb of \
           the device",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=window", workload: None }),
    symptom: Some(Symptom::Scan),
    backing: Backing::Try,
};

const BY_STRIDES: Remedy = Remedy {
    when: "by strides",
    says: "ask for the next 64 steps at once: for i in 1..64: posix_fadvise(fd, at + i * {stride}, 4096, \
           POSIX_FADV_WILLNEED)",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=learned", workload: None }),
    symptom: Some(Symptom::Lookups),
    backing: Backing::Try,
};

const MANY_FILES: Remedy = Remedy {
    when: "in many files, each with few waits",
    says: "ask for the next 64 files before they are mapped (posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED)), or read them from \
           several threads; best keep them in one file",
    proof: Proof::Command("strace -c -f -e trace=openat,mmap,munmap,close -p {pid}"),
    symptom: None,
    backing: Backing::Try,
};

const WITHOUT_ORDER: Remedy = Remedy {
    when: "without an order",
    says: "keep many reads in flight, by io_uring or by pread of 4 KiB from many threads, instead of faults, \
           which wait one by one",
    proof: Proof::Replay(Arms { now: None, remedy: "uring:depth=32", workload: None }),
    symptom: Some(Symptom::Lookups),
    backing: Backing::Try,
};

const MANY_ALREADY: Remedy = Remedy {
    when: "without an order, from many threads",
    says: "the device has many reads in flight already, so more threads do not help: read less (smaller read-ahead, a denser \
           layout of what is read together), keep more of it in memory, or use a faster device",
    proof: Proof::Replay(Arms { now: None, remedy: "uring:depth=32", workload: None }),
    symptom: None,
    backing: Backing::Try,
};

/// One finding for each remedy whose files are waited for long enough; where only all together are, one for all.
fn look(patient: Patient<'_>) -> Vec<Case> {
    // A file with a thousandth of another's waits is not what the program waits for.
    let most = patient.files().map(|seat| seat.file.waits).max().unwrap_or(0);
    let files: Vec<Seat<'_>> = patient.files().filter(|seat| seat.file.waits > most / 1000).collect();
    if !is_much(patient, &files) || !is_read(patient, &files) {
        return Vec::new();
    }
    let lone: Vec<Seat<'_>> = files.iter().copied().filter(has_no_order).collect();
    let is_crowd = distinct(&lone) as u64 >= FILES;
    let groups = RULE.remedies.iter().map(|remedy| {
        let own = files.iter().copied().filter(|seat| of_file(seat, is_crowd) == *remedy);
        (*remedy, own.collect::<Vec<_>>())
    });
    let mut groups: Vec<_> = groups.filter(|(_, own)| !own.is_empty()).collect();
    groups.sort_by_key(|(_, own)| std::cmp::Reverse(waited_ns(own)));
    let cases: Vec<Case> = groups
        .iter()
        .filter(|(_, own)| is_much(patient, own))
        .map(|(remedy, own)| case(patient, remedy, own))
        .collect();
    match groups.first() {
        Some((remedy, _)) if cases.is_empty() => vec![case(patient, remedy, &files)],
        _ => cases,
    }
}

/// Whether a device read for the waits. Faults also wait for locks, where threads map and unmap all the time.
fn is_read(patient: Patient<'_>, files: &[Seat<'_>]) -> bool {
    let has_started = files.iter().any(|seat| seat.file.major > 0);
    has_started || patient.calls().is_none_or(|calls| calls.device_bytes >= waits(files) * A_WAIT)
}

fn is_much(patient: Patient<'_>, files: &[Seat<'_>]) -> bool {
    waits(files) >= FEWEST && patient.waiting(files) * (1.0 - waited_error(files)).max(0.0) >= MUCH
}

fn has_no_order(seat: &Seat<'_>) -> bool {
    seat.file.order.is_none_or(|order| order.pattern == Pattern::Unknown)
}

/// The remedy for one file.
fn of_file(seat: &Seat<'_>, is_crowd: bool) -> &'static Remedy {
    match seat.file.order.map_or(Pattern::Unknown, |order| order.pattern) {
        Pattern::Sequential | Pattern::Backward => &IN_ORDER,
        Pattern::Strided(_) | Pattern::Interleaved { .. } => &BY_STRIDES,
        Pattern::Unknown if is_crowd => &MANY_FILES,
        Pattern::Random | Pattern::HotSet { .. } | Pattern::Unknown => &WITHOUT_ORDER,
    }
}

fn case(patient: Patient<'_>, remedy: &'static Remedy, files: &[Seat<'_>]) -> Case {
    let share = patient.waiting(files);
    let severity = if share >= MOST { Severity::Critical } else { Severity::Warning };
    let is_busy = *remedy == WITHOUT_ORDER && patient.in_flight(files) >= BUSY;
    let remedy = if is_busy { &MANY_ALREADY } else { remedy };
    let case = Case::of_files(files, severity, remedy).waiting(share).facts(facts(patient, files));
    let case = case.remaining(waits(files), QUEUED_NS, waited_ns(files));
    let case = case.figure("share", format!("{:.0} %", share * 100.0));
    let worst = files.iter().max_by_key(|seat| seat.file.waited_ns).and_then(|seat| seat.file.order);
    match worst.map(|order| order.pattern) {
        Some(Pattern::Strided(stride) | Pattern::Interleaved { stride, .. }) => case.figure("stride", stride),
        _ => case,
    }
}

fn facts(patient: Patient<'_>, files: &[Seat<'_>]) -> Vec<Fact> {
    let (waits, waited) = (waits(files), waited_ns(files));
    let told = if are_sampled(files) { Fact::guessed } else { Fact::seen };
    let mut facts = vec![
        told("{waits} faults waited {waited} in total, {major} of them started the read")
            .count("waits", waits)
            .nanos("waited", waited)
            .count("major", files.iter().map(|seat| seat.file.major).sum()),
        told("{each} each").nanos("each", waited / waits.max(1)),
    ];
    if let ([_], Some(order)) = (files, files.first().and_then(|seat| seat.file.order)) {
        facts.push(Fact::guessed("order: {order} ({steps} of the steps)").word("order", words(order.pattern)).number(
            "steps",
            order.confidence,
            MeasureUnit::Share,
        ));
        facts.push(Fact::seen("{threads} threads").count("threads", order.threads as u64));
    } else {
        facts.push(Fact::seen("{files} files").count("files", distinct(files) as u64));
    }
    let in_flight = patient.in_flight(files);
    if in_flight >= BUSY {
        facts.push(Fact::seen("{depth} faults wait at the same time").number("depth", in_flight, MeasureUnit::Count));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, order, with_file, worst};
    use super::*;
    use crate::doctor::Finding;
    use crate::doctor::fact::Certainty;
    use crate::watch::evidence::{Evidence, MappedFile};
    use majorfault::observe::pattern::Recognised;
    use majorfault::observe::places::FileId;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        waiting(100, 12_000_000_000)
    }

    #[test]
    fn a_strided_scan_that_waits_gets_its_stride() {
        let evidence = with_file(|file| {
            (file.waits, file.major) = (10_000, 10_000);
            file.waited_ns = 16_000_000_000;
            file.order = Some(order(Pattern::Strided(1 << 20)));
        });

        let found = only(&RULE, &evidence);

        assert_eq!(found.severity, Severity::Critical);
        assert!(found.remedy.contains("i * 1048576") && found.proof.contains("stride=1m"), "{found:?}");
    }

    #[test]
    fn what_reads_in_a_queue_take_remains_of_the_wait() {
        let gain = |waits| {
            let mut evidence = waiting(waits, 4_000_000_000);
            evidence.files[0].order.as_mut().unwrap().threads = 1;
            (only(&RULE, &evidence).gain_at_most.unwrap() * 100.0).round()
        };

        // It waits for 80 % of its time: of that, 0.01 ms each.
        assert_eq!((gain(100), gain(100_000)), (500.0, 250.0));
    }

    #[test]
    fn some_waits_at_the_start_are_nothing() {
        let evidence = with_file(|file| {
            file.waits = 100;
            file.waited_ns = 50_000_000;
        });

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// A watch of 5 s with four threads, which have 20 s of time together.
    fn waiting(waits: u64, waited_ns: u64) -> Evidence {
        with_file(|file| (file.waits, file.waited_ns, file.major) = (waits, waited_ns, 1))
    }

    fn in_order(pattern: Pattern) -> Finding {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].order = Some(order(pattern));
        only(&RULE, &evidence)
    }

    #[test]
    fn fewer_than_50_waits_are_chance() {
        assert_eq!(worst(&RULE, &waiting(49, 4_000_000_000)), None);
        assert_eq!(worst(&RULE, &waiting(50, 4_000_000_000)), Some(Severity::Warning));
    }

    #[test]
    fn a_tenth_of_the_threads_time_is_a_warning_and_six_tenths_are_critical() {
        assert_eq!(worst(&RULE, &waiting(100, 1_999_999_999)), None);
        assert_eq!(worst(&RULE, &waiting(100, 2_000_000_000)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &waiting(100, 11_999_999_999)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &waiting(100, 12_000_000_000)), Some(Severity::Critical));
    }

    #[test]
    fn what_few_waits_stand_for_must_be_much_at_the_lower_end_of_its_interval() {
        let told = |error| {
            let mut evidence = waiting(100, 4_000_000_000);
            let faults = evidence.faults.as_mut().unwrap();
            (faults.waited_error, faults.sampled) = (Some(error), Some(if error > 0.0 { 0.98 } else { 0.99 }));
            worst(&RULE, &evidence).map(|_| only(&RULE, &evidence).evidence[0].source)
        };

        assert_eq!((told(0.0), told(0.1)), (Some(Certainty::Seen), Some(Certainty::Guessed)));
        assert_eq!((told(0.5), told(0.51), told(2.0)), (Some(Certainty::Guessed), None, None));
    }

    #[test]
    fn the_share_is_of_the_threads_that_faulted() {
        let mut evidence = waiting(100, 1_000_000_000);
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].order.as_mut().unwrap().threads = 1;
        assert_eq!(only(&RULE, &evidence).what, "threads wait in page faults for 20 % of their time");
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].major = 700;

        let found = only(&RULE, &evidence);

        assert_eq!(found.what, "threads wait in page faults for 20 % of their time");
        assert_eq!(
            found.evidence,
            [
                "1000 faults waited 4s in total, 700 of them started the read",
                "4ms each",
                "order: random (95 % of the steps)",
                "4 threads"
            ]
        );
    }

    #[test]
    fn more_than_all_the_time_is_all_of_it() {
        let found = only(&RULE, &waiting(100, 40_000_000_000));

        assert_eq!(found.what, "threads wait in page faults for 100 % of their time");
    }

    #[test]
    fn a_remedy_fits_the_order() {
        for pattern in [Pattern::Sequential, Pattern::Backward] {
            let found = in_order(pattern);
            assert!(found.remedy.contains("madvise(p + done + 8 MiB, 8 MiB, MADV_POPULATE_READ)"), "{found:?}");
            assert!(found.proof.contains("--rw read --bs 4k --cache cold"), "{found:?}");
        }
        for pattern in [Pattern::Random, Pattern::HotSet { bytes: 1 << 20 }, Pattern::Unknown] {
            let found = in_order(pattern);
            assert!(found.remedy.starts_with("keep many reads in flight"), "{found:?}");
            assert_eq!(found.backing, Backing::Try);
            assert!(found.proof.ends_with("--memory 8g -m mmap -m uring:depth=32"), "{found:?}");
        }
    }

    #[test]
    fn a_stride_is_asked_for_64_steps_ahead_in_its_direction_and_tried_in_whole_pages() {
        let found = in_order(Pattern::Interleaved { streams: 2, stride: -10_000 });

        assert!(found.remedy.contains("for i in 1..64: posix_fadvise(fd, at + i * -10000, 4096,"), "{found:?}");
        assert!(found.proof.contains("strided:stride=8k "), "{found:?}");
    }

    /// Files that are alike, each waited for so often and so long; one thread.
    fn many(files: u64, waits: u64, waited_ns: u64, pattern: Pattern) -> Evidence {
        let mut evidence = waiting(waits, waited_ns);
        evidence.files[0].order = Some(Recognised { threads: 1, ..order(pattern) });
        let one = evidence.files[0].clone();
        evidence.files = (0..files)
            .map(|number| {
                let id = FileId { inode: number + 100, ..one.id };
                MappedFile { id, path: format!("/data/{number}"), size_bytes: Some(65_536), ..one.clone() }
            })
            .collect();
        evidence
    }

    /// Seen: a tool that mapped 20 000 small files waited for 4.8 s of 5, and nothing was found.
    #[test]
    fn many_small_files_are_one_finding_even_where_each_has_one_wait() {
        let found = only(&RULE, &many(20_000, 1, 240_000, Pattern::Unknown));

        assert_eq!(found.what, "threads wait in page faults for 96 % of their time");
        assert_eq!((found.scope.as_str(), found.severity), ("20000 files", Severity::Critical));
        assert!(found.remedy.starts_with("ask for the next 64 files before they are mapped"), "{}", found.remedy);
        assert_eq!(found.evidence[2], "20000 files");
        assert_eq!((found.subjects.len(), found.gain_at_most.map(f64::round)), (20_000, Some(13.0)));
    }

    #[test]
    fn a_hundred_files_without_an_order_are_many() {
        let remedy = |files| only(&RULE, &many(files, 10, 40_000_000, Pattern::Unknown)).remedy;

        assert!(remedy(99).starts_with("keep many reads in flight"));
        assert!(remedy(100).starts_with("ask for the next 64 files"));
    }

    #[test]
    fn files_with_an_order_are_not_counted_among_those_without() {
        let mut evidence = many(104, 10, 40_000_000, Pattern::Unknown);
        evidence.files[99..].iter_mut().for_each(|file| file.order = Some(order(Pattern::Random)));

        let found = only(&RULE, &evidence);

        assert!(found.remedy.starts_with("keep many reads in flight"), "{}", found.remedy);
        assert_eq!(found.scope, "104 files");
    }

    #[test]
    fn a_file_with_a_thousandth_of_anothers_waits_is_not_among_those_waited_for() {
        let beside = |waits| {
            let mut evidence = many(2, 50_000, 2_000_000_000, Pattern::Random);
            evidence.files[1].waits = waits;
            only(&RULE, &evidence).subjects.len()
        };

        assert_eq!((beside(50), beside(51)), (1, 2));
    }

    /// Seen with RocksDB: twelve equal findings for twelve files.
    #[test]
    fn twelve_files_are_one_finding_with_the_worst_file_first() {
        let mut evidence = many(12, 300, 300_000_000, Pattern::Random);
        evidence.files[7].waited_ns = 400_000_000;

        let found = only(&RULE, &evidence);

        assert_eq!((found.scope.as_str(), found.subjects.len()), ("12 files", 12));
        assert_eq!((found.subjects[0].name.as_str(), found.file.map(|id| id.inode)), ("/data/7", Some(107)));
        assert_eq!(found.subjects[0].says, "300 waits, 400ms");
    }

    #[test]
    fn files_that_need_other_remedies_are_other_findings() {
        let mut evidence = many(2, 100, 2_000_000_000, Pattern::Random);
        evidence.files[1].order = Some(Recognised { threads: 1, ..order(Pattern::Sequential) });

        let found = crate::doctor::found_by(&RULE, Patient { processes: std::slice::from_ref(&evidence) });
        assert_eq!(found.len(), 2, "{found:?}");

        // Below a tenth of the time each, they are told as one.
        let mut evidence = many(2, 100, 300_000_000, Pattern::Random);
        evidence.files[1].order = Some(Recognised { threads: 1, ..order(Pattern::Sequential) });
        let mut found = crate::doctor::found_by(&RULE, Patient { processes: std::slice::from_ref(&evidence) });
        assert_eq!((found.len(), found.remove(0).scope.as_str()), (1, "2 files"));
    }

    /// Seen with four threads that mapped and unmapped: 396 faults waited, and nothing was read.
    #[test]
    fn faults_that_wait_for_a_lock_do_not_wait_for_a_device() {
        let reading = |device_bytes| {
            let mut evidence = waiting(396, 4_000_000_000);
            evidence.files[0].major = 0;
            evidence.calls.as_mut().unwrap().device_bytes = device_bytes;
            worst(&RULE, &evidence)
        };

        assert_eq!((reading(396 * 2048 - 1), reading(396 * 2048)), (None, Some(Severity::Warning)));
    }

    /// Seen with 1 000 threads, which were told to use many threads.
    #[test]
    fn many_threads_that_wait_already_are_not_told_to_be_more() {
        let waiting_by = |depth: u64| {
            let mut evidence = waiting(10_000, depth * 5_000_000_000);
            evidence.files[0].order.as_mut().unwrap().threads = 1000;
            evidence.faults.as_mut().unwrap().waiting_ns = vec![depth * 5_000_000; 1000];
            evidence.faults.as_mut().unwrap().waiting_ns.push(depth * 5_000_000_000);
            only(&RULE, &evidence)
        };

        assert!(waiting_by(7).remedy.starts_with("keep many reads in flight"));
        let busy = waiting_by(8);
        assert!(busy.remedy.contains("more threads do not help"), "{}", busy.remedy);
        assert_eq!(busy.evidence.last().unwrap(), &"8 faults wait at the same time");
    }

    #[test]
    fn several_processes_are_judged_together_and_each_file_says_whose_it_is() {
        let mut both = [waiting(30, 3_000_000_000), waiting(30, 3_000_000_000)];
        both[1].target.pid = 78;

        let found = crate::doctor::found_by(&RULE, Patient { processes: &both });

        assert_eq!((found.len(), found[0].scope.as_str()), (1, "/data/table"));
        let names: Vec<&str> = found[0].subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!(names, ["/data/table of program (77)", "/data/table of program (78)"]);
        assert_eq!(worst(&RULE, &both[0]), None, "30 waits alone are chance");
    }

    #[test]
    fn what_is_only_in_memory_is_not_waited_for() {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].filesystem = "tmpfs".to_owned();
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].filesystem = "ext4".to_owned();
        for path in ["/memfd:buffer", "/anon_hugepage", "/dev/zero", "/SYSV00000000"] {
            evidence.files[0].path = path.to_owned();
            assert_eq!(worst(&RULE, &evidence), None, "{path}");
        }
    }

    #[test]
    fn a_file_whose_name_would_be_a_command_is_quoted() {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].path = "/data/a;touch x $(id)".to_owned();
        assert!(only(&RULE, &evidence).proof.starts_with("majorfault compare '/data/a;touch x $(id)' --rw"));

        evidence.files[0].reached = Some("/proc/77/root/data/it's".into());
        let found = only(&RULE, &evidence);
        assert!(found.proof.starts_with("majorfault compare \"/proc/77/root/data/it's\" --rw"), "{}", found.proof);
        assert_eq!(found.scope, "/data/a;touch x $(id)");
    }

    #[test]
    fn a_file_without_a_name_is_marked() {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].deleted = true;

        assert_eq!(only(&RULE, &evidence).scope, "/data/table (deleted)");
    }
}
