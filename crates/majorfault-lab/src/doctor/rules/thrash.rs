//! Pages are evicted and needed again: the working set is larger than the memory that it may use.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::patient::{Patient, Seat, size_bytes, waits};
use crate::doctor::rule::{Arms, Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, Subject, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::MappedFile;
use crate::watch::order::words;
use majorfault::Bytes;
use majorfault::observe::pattern::Pattern;
use std::cmp::Reverse;

pub(super) const RULE: Rule = Rule {
    name: "thrash",
    summary: "evicted pages are needed again: the working set is larger than the memory limit",
    looks_at: &[Part::Counters],
    thresholds: THRESHOLDS,
    trouble: "pages are evicted and read again: the working set does not fit into memory",
    remedies: &[&SCAN, &HOT_SET, &POOL],
    alerts: true,
    gain: Gain::Waits,
    explains: &[&super::fault_stall::RULE],
    look: Sight::All(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Evicted pages needed again each second that are worth a warning.
    MUCH: f64 = 200.0, PerSecond;
    /// Evicted pages needed again each second that dominate the run: critical, where threads wait for them.
    MOST: f64 = 5000.0, PerSecond;
    /// Share of their time that threads must lose in faults, where faults are seen and read calls do not read.
    FELT: f64 = 0.05, Share;
    /// Share of their time that is most of it: critical.
    LOST: f64 = 0.6, Share;
    /// Evicted pages needed again for each wait; below it most waits are for pages that were never there.
    CAUSE: f64 = 0.5, Times;
}

/// The remedy bypasses the page cache.
const PROOF: Proof = Proof::Replay(Arms { now: None, remedy: "uring:depth=32", workload: None });

const SCAN: Remedy = Remedy {
    when: "in order",
    says: "{more}; or scan with O_DIRECT or drop behind (posix_fadvise(fd, 0, done, POSIX_FADV_DONTNEED)): a scan larger \
           than memory gains nothing from the cache",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
    backing: Backing::Try,
};

const HOT_SET: Remedy = Remedy {
    when: "with a hot set",
    says: "{more}; or keep the hot {hot} in a pool of your own and read the rest with O_DIRECT",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
    backing: Backing::Try,
};

const POOL: Remedy = Remedy {
    when: "without an order",
    says: "{more}; or read with O_DIRECT into a pool of your own, which can evict by what the program knows",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
    backing: Backing::Try,
};

fn look(patient: Patient<'_>) -> Vec<Case> {
    let Some((rate, whose)) = rate(patient).filter(|(rate, _)| *rate >= MUCH) else { return Vec::new() };
    let mut files: Vec<Seat<'_>> = patient.files().filter(|seat| seat.file.waits > 0).collect();
    files.sort_by_key(|seat| Reverse(seat.file.waits));
    let waiting = patient.waits().map(|_| patient.waiting(&files));
    if !is_felt(patient, waiting) {
        return Vec::new();
    }
    let scope = if patient.limit_bytes().is_some() { "cgroup" } else { "machine" };
    let is_lost = rate >= MOST && waiting.is_some_and(|share| share >= LOST);
    let severity = if is_lost { Severity::Critical } else { Severity::Warning };
    let worst = files.first().map(|seat| seat.file);
    let case = Case::of(scope, severity, &POOL).figure("more", more(patient, &files));
    let subjects = files.iter().map(|seat| Subject { weight: seat.file.waits, ..Subject::of(seat) }).collect();
    // What waits for pages that were never there, more memory does not spare.
    let again = rate / patient.rate(waits(&files)).max(rate);
    let is_cause = again >= CAUSE;
    let case =
        Case { subjects, waiting, remains: 1.0 - again, is_cause, ..case.facts(facts(patient, rate, whose, worst)) };
    vec![match worst.and_then(|file| file.order).map(|order| order.pattern) {
        Some(Pattern::Sequential | Pattern::Backward) => Case { remedy: &SCAN, ..case },
        Some(Pattern::HotSet { bytes }) => Case { remedy: &HOT_SET, ..case }.figure("hot", Bytes(bytes).rounded()),
        _ => case,
    }]
}

/// Evicted pages needed again each second by these processes, and where they were counted. Others of the cgroup or machine may be
/// the cause: these cannot have needed more pages again than devices read for them, or than they waited for.
fn rate(patient: Patient<'_>) -> Option<(f64, &'static str)> {
    let (rate, whose) = patient.refaults()?;
    let own = patient.calls().map_or(patient.waits().unwrap_or(0), |calls| calls.device_bytes / 4096);
    let is_others = whose == "machine" && patient.fits_machine();
    (!is_others).then_some((rate.min(patient.rate(own)), whose))
}

/// Whether somebody loses time by it: threads in faults, or read calls that devices must answer.
fn is_felt(patient: Patient<'_>, waiting: Option<f64>) -> bool {
    let is_read =
        patient.calls().is_some_and(|calls| calls.read_call_bytes * 2 >= calls.device_bytes && calls.device_bytes > 0);
    is_read || waiting.is_none_or(|share| share >= FELT)
}

fn facts(patient: Patient<'_>, rate: f64, whose: &str, worst: Option<&MappedFile>) -> Vec<Fact> {
    let again = Fact::guessed("{rate} evicted pages needed again each second (counted for the {whose}), {speed}");
    let mut facts = vec![again.number("rate", rate, MeasureUnit::PerSecond).word("whose", whose).number(
        "speed",
        rate * 4096.0,
        MeasureUnit::BytesPerSecond,
    )];
    facts.extend(patient.limit_bytes().into_iter().flat_map(|limit| of_limit(patient, limit)));
    facts.extend(worst.map(of_file));
    facts
}

fn of_limit(patient: Patient<'_>, limit: u64) -> [Fact; 2] {
    let level = |name: &str| patient.processes.iter().find_map(|it| it.counter(name));
    let known = |fact: Fact, name: &'static str, bytes: Option<u64>| match bytes {
        Some(bytes) => fact.bytes(name, bytes),
        None => fact.word(name, "?"),
    };
    let fact =
        Fact::seen("limit {limit}: anonymous {anonymous}, page cache {cache} (re-readable)").bytes("limit", limit);
    let fact = known(fact, "anonymous", level("cgroup_anon_bytes"));
    let hits = level("cgroup_limit_hits").unwrap_or(0);
    [known(fact, "cache", level("cgroup_file_bytes")), Fact::seen("limit reached {hits} times").count("hits", hits)]
}

fn of_file(file: &MappedFile) -> Fact {
    let fact = Fact::guessed("{path} of {size}, order: {order}").word("path", file.label());
    let fact = match file.size_bytes {
        Some(size) => fact.bytes("size", size),
        None => fact.word("size", "?"),
    };
    fact.word("order", file.order.map_or("unknown".to_owned(), |order| words(order.pattern)))
}

/// More memory, by as much as is known to be needed: what is read whole, or is hot, and does not fit.
fn more(patient: Patient<'_>, files: &[Seat<'_>]) -> String {
    let pattern = files.first().and_then(|seat| seat.file.order).map(|order| order.pattern);
    let needed = match pattern {
        Some(Pattern::Sequential | Pattern::Backward) => size_bytes(files),
        Some(Pattern::HotSet { bytes }) => Some(bytes),
        _ => None,
    };
    let short = needed.zip(patient.room_bytes()).map(|(needed, room)| needed.saturating_sub(room)).filter(|it| *it > 0);
    match (short, patient.limit_bytes()) {
        (Some(short), Some(_)) => format!("raise the limit by {}", Bytes(short).rounded()),
        (Some(short), None) => format!("give it {} more memory", Bytes(short).rounded()),
        (None, Some(_)) => "raise the limit (by how much, a run with more will tell)".to_owned(),
        (None, None) => "give it more memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{count, healthy, only, order, worst};
    use super::*;
    use crate::watch::evidence::Evidence;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        let mut evidence = again(100_000);
        count(&mut evidence, "workingset_refault_file", 100_000);
        evidence.files[0].size_bytes = Some(100 << 30);
        // Read calls read, too: that alone is felt, without files, faults or a limit.
        evidence.calls.as_mut().unwrap().read_call_bytes = 1 << 30;
        evidence.faults.as_mut().unwrap().waits = 100_000;
        evidence
    }

    /// Pages needed again in 5 s by a program that waits for them half of the time.
    fn again(pages: u64) -> Evidence {
        let mut evidence = healthy();
        count(&mut evidence, "cgroup_refault_pages", pages);
        evidence.calls.as_mut().unwrap().device_bytes = 1 << 30;
        evidence.files[0].waits = 1000;
        wait(&mut evidence, 2_500_000_000);
        evidence
    }

    /// What one thread waits, of 5 s.
    fn wait(evidence: &mut Evidence, waited_ns: u64) {
        evidence.files[0].waited_ns = waited_ns;
        evidence.faults.as_mut().unwrap().waiting_ns = vec![waited_ns];
    }

    #[test]
    fn a_scan_larger_than_the_limit_is_advised_to_bypass_the_cache() {
        let mut evidence = again(100_000);
        evidence.files[0].order = Some(order(Pattern::Sequential));
        evidence.files[0].size_bytes = Some(10 << 30);

        let found = only(&RULE, &evidence);

        assert!(found.remedy.contains("O_DIRECT") && found.evidence[0].to_string().contains("20000 evicted"));
        // 10 GiB, and room for 8 GiB less 200 MiB.
        assert!(found.remedy.starts_with("raise the limit by 2.20 GiB; or scan"), "{}", found.remedy);
        assert_eq!(found.backing, Backing::Try);
    }

    #[test]
    fn refaults_of_others_are_not_ours() {
        let mut evidence = healthy();
        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 100_000);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Seen: "critical" for a program without a fault and without a wait, beside another one in its cgroup.
    #[test]
    fn refaults_of_a_cgroup_are_not_those_of_a_program_that_reads_nothing() {
        let mut evidence = again(500_000);
        evidence.calls.as_mut().unwrap().device_bytes = 0;
        evidence.files[0].waits = 0;
        wait(&mut evidence, 0);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Seen with a cold SQLite table beside a cgroup at its limit: 92 000 refaults each second, none of them the program's.
    #[test]
    fn refaults_of_a_machine_that_evicts_nothing_are_below_the_limit_of_another_cgroup() {
        let mut evidence = again(0);
        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 500_000);
        count(&mut evidence, "pgsteal_kswapd", 0);
        count(&mut evidence, "pgsteal_direct", 0);
        assert_eq!(worst(&RULE, &evidence), None);

        count(&mut evidence, "pgsteal_kswapd", 500_000);
        evidence.files[0].size_bytes = Some((40 << 30) + 1);
        assert_eq!(only(&RULE, &evidence).scope, "machine");

        evidence.files[0].size_bytes = Some(40 << 30);
        assert_eq!(worst(&RULE, &evidence), None, "its files fit into the memory that is available");
    }

    #[test]
    fn pages_needed_again_are_a_warning_from_200_each_second() {
        assert_eq!(worst(&RULE, &again(999)), None);
        assert_eq!(worst(&RULE, &again(1000)), Some(Severity::Warning));
    }

    #[test]
    fn they_are_critical_from_5000_each_second_where_threads_lose_six_tenths_of_their_time() {
        let with = |pages, waited_ns| {
            let mut evidence = again(pages);
            wait(&mut evidence, waited_ns);
            worst(&RULE, &evidence)
        };

        assert_eq!(with(25_000, 3_000_000_000), Some(Severity::Critical));
        assert_eq!(with(24_999, 3_000_000_000), Some(Severity::Warning));
        assert_eq!(with(25_000, 2_999_999_999), Some(Severity::Warning));
    }

    #[test]
    fn nobody_feels_it_below_a_twentieth_of_the_time_unless_calls_read() {
        let mut evidence = again(100_000);
        wait(&mut evidence, 249_999_999);
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.calls.as_mut().unwrap().read_call_bytes = 1 << 29;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.calls.as_mut().unwrap().read_call_bytes = (1 << 29) - 1;
        assert_eq!(worst(&RULE, &evidence), None);

        wait(&mut evidence, 250_000_000);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn of_all_refaults_those_are_ours_that_devices_read_for_us() {
        let mut evidence = again(1_000_000);
        evidence.calls.as_mut().unwrap().device_bytes = 1000 * 4096;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.calls.as_mut().unwrap().device_bytes = 999 * 4096;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn where_reads_are_not_counted_the_waits_are() {
        let mut evidence = again(1_000_000);
        evidence.calls = None;
        evidence.faults.as_mut().unwrap().waits = 1000;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.faults.as_mut().unwrap().waits = 999;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = again(5000);
        count(&mut evidence, "cgroup_limit_hits", 7);

        let found = only(&RULE, &evidence);

        assert_eq!(found.scope, "cgroup");
        assert_eq!(
            found.evidence,
            [
                "1000 evicted pages needed again each second (counted for the cgroup), 3.91 MiB/s",
                "limit 8.00 GiB: anonymous 200 MiB, page cache 2.00 GiB (re-readable)",
                "limit reached 7 times",
                "/data/table of 1.00 GiB, order: random"
            ]
        );
        assert_eq!(
            found.proof,
            "majorfault compare /data/table --rw randread --bs 4k --cache cold --memory 8g -m mmap -m uring:depth=32"
        );
    }

    #[test]
    fn it_is_about_the_file_that_is_waited_for_most_and_that_tells_the_gain() {
        let mut evidence = again(5000);
        let mut other = evidence.files[0].clone();
        other.id.inode += 1;
        // More waits, and less time in them.
        (other.path, other.waits, other.waited_ns) = ("/data/other".to_owned(), 1001, 2_499_999_999);
        evidence.files.push(other);
        evidence.faults.as_mut().unwrap().waiting_ns = vec![5_000_000_000];

        let found = only(&RULE, &evidence);

        assert_eq!((found.scope.as_str(), found.file.map(|id| id.inode)), ("cgroup", Some(6)));
        assert!(found.proof.starts_with("majorfault compare /data/other "), "{}", found.proof);
        assert!(found.gain_at_most.is_some_and(|gain| gain > 50.0), "{found:?}");
    }

    #[test]
    fn a_file_that_nobody_waited_for_is_not_named() {
        let mut evidence = again(5000);
        evidence.files[0].waits = 0;
        evidence.calls.as_mut().unwrap().read_call_bytes = 1 << 30;

        let found = only(&RULE, &evidence);

        assert_eq!(found.evidence.len(), 3);
        assert!(found.proof.starts_with("majorfault compare FILE "), "{}", found.proof);
    }

    /// Seen: "raise the limit by 0 B", and by 924 MiB for a stride, which became slower.
    #[test]
    fn how_much_is_said_only_where_it_is_known() {
        let remedy = |pattern, size| {
            let mut evidence = again(5000);
            evidence.files[0].order = Some(order(pattern));
            evidence.files[0].size_bytes = Some(size);
            evidence.group.as_mut().unwrap().limit_bytes = Some(712 << 20);
            only(&RULE, &evidence).remedy
        };
        let unknown = "raise the limit (by how much, a run with more will tell); or";

        assert!(remedy(Pattern::Sequential, 1 << 30).starts_with("raise the limit by 512 MiB; or"));
        assert!(remedy(Pattern::Sequential, 512 << 20).starts_with(unknown));
        assert!(remedy(Pattern::Strided(1 << 20), 1 << 30).starts_with(unknown));
        assert!(remedy(Pattern::Random, 1 << 30).starts_with(unknown));
        let hot = remedy(Pattern::HotSet { bytes: 576 << 20 }, 1 << 30);
        assert!(hot.starts_with("raise the limit by 64.0 MiB; or keep the hot 576 MiB in a pool"), "{hot}");
    }

    /// Seen with RocksDB under MADV_RANDOM: 340 evicted pages needed again each second, 8 446 waits, and "the program gains 12.3 x".
    #[test]
    fn more_memory_spares_only_the_waits_for_evicted_pages() {
        let gain = |waits| {
            let mut evidence = again(5000);
            evidence.files[0].waits = waits;
            only(&RULE, &evidence).gain_at_most.map(|gain| (gain * 1000.0).round())
        };

        // It waits for half of its time.
        assert_eq!(
            (gain(2500), gain(5000), gain(10_000), gain(125_000)),
            (Some(2000.0), Some(2000.0), Some(1333.0), None)
        );
    }

    #[test]
    fn it_causes_the_waits_where_half_of_them_are_for_evicted_pages() {
        use crate::doctor::examine;
        let rules = |pages| {
            let mut evidence = again(pages);
            (evidence.files[0].waits, evidence.files[0].touched_pages) = (10_000, 200_000);
            examine(&[evidence]).into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };

        assert_eq!(rules(5000), ["thrash"]);
        assert_eq!(rules(4999).len(), 2);
    }
}
