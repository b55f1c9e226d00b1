//! Pages are evicted and needed again: the working set is larger than the memory that it may use.

use crate::doctor::rule::{Arms, Case, Gain, Part, Proof, Remedy, Rule, Severity, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::order::words;
use majorfault::Bytes;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "thrash",
    summary: "evicted pages are needed again: the working set is larger than the memory limit",
    looks_at: &[Part::Counters],
    thresholds: THRESHOLDS,
    trouble: "pages are evicted and read again: the working set does not fit into memory",
    remedies: &[&SCAN, &HOT_SET, &POOL],
    gain: Gain::Waits,
    look,
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Evicted pages needed again each second that are worth a warning.
    MUCH: f64 = 200.0, PerSecond;
    /// Evicted pages needed again each second that dominate the run: critical.
    MOST: f64 = 5000.0, PerSecond;
}

/// The remedy bypasses the page cache.
const PROOF: Proof = Proof::Replay(Arms { now: None, remedy: "uring:depth=32", workload: None });

const SCAN: Remedy = Remedy {
    when: "in order",
    says: "{more}; or scan with O_DIRECT or drop behind (posix_fadvise(fd, 0, done, POSIX_FADV_DONTNEED)): a scan larger \
           than memory gains nothing from the cache",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
};

const HOT_SET: Remedy = Remedy {
    when: "with a hot set",
    says: "{more}; or keep the hot {hot} in a pool of your own and read the rest with O_DIRECT",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
};

const POOL: Remedy = Remedy {
    when: "without an order",
    says: "{more}; or read with O_DIRECT into a pool of your own, which can evict by what the program knows",
    proof: PROOF,
    symptom: Some(Symptom::Thrash),
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some((rate, whose)) = rate(evidence).filter(|(rate, _)| *rate >= MUCH) else { return Vec::new() };
    let limit = evidence.group.as_ref().and_then(|group| group.limit_bytes);
    let file = evidence.data_files().filter(|file| file.waits > 0).max_by_key(|file| file.waits);
    let mut facts = vec![format!(
        "{rate:.0} evicted pages needed again each second (counted for the {whose}), {}/s",
        Bytes((rate * 4096.0) as u64).rounded()
    )];
    facts.extend(limit.into_iter().flat_map(|limit| of_limit(evidence, limit)));
    facts.extend(file.map(of_file));
    let severity = if rate >= MOST { Severity::Critical } else { Severity::Warning };
    let scope = if limit.is_some() { "cgroup" } else { "machine" };
    let case = Case { file: file.map(|file| file.id), ..Case::of(scope, severity, &POOL) };
    let case = case.figure("more", more(file, limit)).facts(facts);
    vec![match file.and_then(|file| file.order).map(|order| order.pattern) {
        Some(Pattern::Sequential | Pattern::Backward) => Case { remedy: &SCAN, ..case },
        Some(Pattern::HotSet { bytes }) => Case { remedy: &HOT_SET, ..case }.figure("hot", Bytes(bytes).rounded()),
        _ => case,
    }]
}

/// Evicted pages needed again each second, and where they were counted.
fn rate(evidence: &Evidence) -> Option<(f64, &'static str)> {
    let (rate, whose) = evidence.refaults()?;
    if whose != "machine" {
        return Some((rate, whose));
    }
    // Others may be the cause: this process cannot have needed more pages again than devices read for it, or than it waited for.
    let waits = evidence.faults.as_ref().map_or(0, |faults| faults.waits);
    let own = evidence.rate(evidence.calls.map_or(waits, |calls| calls.device_bytes / 4096));
    Some((rate.min(own), whose))
}

fn of_limit(evidence: &Evidence, limit: u64) -> [String; 2] {
    let level = |name: &str| evidence.counter(name).map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
    [
        format!(
            "limit {}: anonymous {}, page cache {} (re-readable)",
            Bytes(limit).rounded(),
            level("cgroup_anon_bytes"),
            level("cgroup_file_bytes")
        ),
        format!("limit reached {} times", evidence.counter("cgroup_limit_hits").unwrap_or(0)),
    ]
}

fn of_file(file: &MappedFile) -> String {
    let size = file.size_bytes.map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
    let order = file.order.map_or("unknown".to_owned(), |order| words(order.pattern));
    format!("{} of {size}, order: {order}", file.path)
}

fn more(file: Option<&MappedFile>, limit: Option<u64>) -> String {
    match (file.and_then(|file| file.size_bytes), limit) {
        (Some(size), Some(limit)) => format!("raise the limit by {}", Bytes(size.saturating_sub(limit / 2)).rounded()),
        _ => "give it more memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{count, healthy, only, order, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        let mut evidence = again(100_000);
        count(&mut evidence, "workingset_refault_file", 100_000);
        evidence.calls.as_mut().unwrap().device_bytes = 1 << 30;
        evidence.files[0].waits = 1;
        evidence
    }

    #[test]
    fn a_scan_larger_than_the_limit_is_advised_to_bypass_the_cache() {
        let mut evidence = healthy();
        count(&mut evidence, "cgroup_refault_pages", 100_000);
        evidence.faults.as_mut().unwrap().waits = 5000;
        evidence.files[0].waits = 5000;
        evidence.files[0].order = Some(order(Pattern::Sequential));

        let found = only(&RULE, &evidence);

        assert_eq!(found.severity, Severity::Critical);
        assert!(found.remedy.contains("O_DIRECT") && found.evidence[0].contains("20000 evicted"), "{found:?}");
    }

    #[test]
    fn refaults_of_others_are_not_ours() {
        let mut evidence = healthy();
        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 100_000);

        assert!(look(&evidence).is_empty());
    }

    /// Seen with a cold SQLite table beside a cgroup at its limit: 92 000 refaults each second, none of them the program's.
    #[test]
    fn refaults_of_a_machine_that_evicts_nothing_are_below_the_limit_of_another_cgroup() {
        let mut evidence = healthy();
        evidence.group = None;
        evidence.calls.as_mut().unwrap().device_bytes = 2 << 30;
        count(&mut evidence, "workingset_refault_file", 500_000);
        count(&mut evidence, "pgsteal_kswapd", 0);
        count(&mut evidence, "pgsteal_direct", 0);
        assert!(look(&evidence).is_empty());

        count(&mut evidence, "pgsteal_kswapd", 500_000);
        assert_eq!(only(&RULE, &evidence).scope, "machine");
    }

    /// Pages needed again in 5 s.
    fn again(pages: u64) -> Evidence {
        let mut evidence = healthy();
        count(&mut evidence, "cgroup_refault_pages", pages);
        evidence
    }

    #[test]
    fn pages_needed_again_are_a_warning_from_200_each_second_and_critical_from_5000() {
        assert_eq!(worst(&RULE, &again(999)), None);
        assert_eq!(worst(&RULE, &again(1000)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &again(24_999)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &again(25_000)), Some(Severity::Critical));
    }

    #[test]
    fn of_a_machines_refaults_those_are_ours_that_devices_read_for_us() {
        let mut evidence = again(0);
        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 1_000_000);
        evidence.calls.as_mut().unwrap().device_bytes = 1000 * 4096;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.calls.as_mut().unwrap().device_bytes = 999 * 4096;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn where_reads_are_not_counted_the_waits_are() {
        let mut evidence = again(0);
        (evidence.group, evidence.calls) = (None, None);
        count(&mut evidence, "workingset_refault_file", 1_000_000);
        evidence.faults.as_mut().unwrap().waits = 1000;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.faults.as_mut().unwrap().waits = 999;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = again(5000);
        count(&mut evidence, "cgroup_limit_hits", 7);
        evidence.files[0].waits = 1;

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
        (other.path, other.waits, other.waited_ns) = ("/data/other".to_owned(), 9, 10_000_000_000);
        evidence.files[0].waits = 8;
        evidence.files.push(other);

        let found = only(&RULE, &evidence);

        assert_eq!((found.scope.as_str(), found.file.map(|id| id.inode)), ("cgroup", Some(6)));
        assert!(found.proof.starts_with("majorfault compare /data/other "), "{}", found.proof);
        assert_eq!(found.gain_at_most, Some(2.0));
    }

    #[test]
    fn a_file_that_nobody_waited_for_is_not_named() {
        let found = only(&RULE, &again(5000));

        assert_eq!(found.evidence.len(), 3);
        assert!(found.proof.starts_with("majorfault compare FILE "), "{}", found.proof);
        assert!(found.remedy.starts_with("give it more memory; or read with O_DIRECT into a pool"), "{}", found.remedy);
    }

    #[test]
    fn the_limit_is_to_grow_by_what_of_the_file_half_of_it_does_not_hold() {
        let mut evidence = again(5000);
        evidence.files[0].waits = 1;
        evidence.group.as_mut().unwrap().limit_bytes = Some(512 << 20);
        assert!(only(&RULE, &evidence).remedy.starts_with("raise the limit by 768 MiB; or read with O_DIRECT"));

        evidence.files[0].order = Some(order(Pattern::HotSet { bytes: 64 << 20 }));
        assert!(only(&RULE, &evidence).remedy.contains("keep the hot 64.0 MiB in a pool of your own"));
    }
}
