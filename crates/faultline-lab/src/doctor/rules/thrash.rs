//! Pages are evicted and needed again: the working set is larger than the memory it is allowed.

use crate::doctor::evidence::{Evidence, MappedFile};
use crate::doctor::terminal::words;
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;
use faultline::observe::pattern::Pattern;

pub(super) const RULE: Rule =
    Rule { name: "thrash", summary: "evicted pages are needed again: the limit is below the working set", look };

/// Pages needed again, each second, and the same where it is most of what happens.
const MUCH: f64 = 200.0;
const MOST: f64 = 5000.0;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let Some((mut rate, whose)) = evidence.refaults() else { return Vec::new() };
    if whose == "machine" {
        // Others may be the cause: this process needed no more pages again than devices read for it, or it waited for.
        let waits = evidence.faults.as_ref().map_or(0, |faults| faults.waits);
        rate = rate.min(evidence.rate(evidence.calls.map_or(waits, |calls| calls.device_bytes / 4096)));
    }
    if rate < MUCH {
        return Vec::new();
    }
    let limit = evidence.group.as_ref().and_then(|group| group.limit_bytes);
    let mut facts = vec![format!(
        "{rate:.0} evicted pages needed again each second (count of the {whose}), {}/s",
        Bytes((rate * 4096.0) as u64).rounded()
    )];
    if let Some(limit) = limit {
        let level = |name: &str| evidence.counter(name).map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
        facts.push(format!(
            "limit {}: anonymous {}, page cache {} (re-readable)",
            Bytes(limit).rounded(),
            level("cgroup_anon_bytes"),
            level("cgroup_file_bytes")
        ));
        facts.push(format!("limit met {} times", evidence.counter("cgroup_limit_hits").unwrap_or(0)));
    }
    let file = evidence.data_files().filter(|file| file.waits > 0).max_by_key(|file| file.waits);
    if let Some(file) = file {
        let size = file.size_bytes.map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
        let order = file.order.map_or("unknown", |_| "");
        let pattern = file.order.map_or(String::new(), |order| words(order.pattern));
        facts.push(format!("{} of {size}, order: {order}{pattern}", file.path));
    }
    let path = file.map_or("FILE", |file| &file.path);
    vec![Finding {
        rule: RULE.name,
        severity: if rate >= MOST { Severity::Critical } else { Severity::Warning },
        scope: if limit.is_some() { "cgroup".to_owned() } else { "machine".to_owned() },
        what: "pages are evicted and read again: memory is too small for how it is used".to_owned(),
        evidence: facts,
        remedy: remedy(file, limit),
        proof: format!(
            "faultline compare {path} --memory {} -m mmap -m pread -m direct -m uring",
            limit.map_or("none".to_owned(), |bytes| Bytes(bytes).to_string())
        ),
    }]
}

fn remedy(file: Option<&MappedFile>, limit: Option<u64>) -> String {
    let more = match (file.and_then(|file| file.size_bytes), limit) {
        (Some(size), Some(limit)) => format!("raise the limit by {}", Bytes(size.saturating_sub(limit / 2)).rounded()),
        _ => "give it more memory".to_owned(),
    };
    match file.and_then(|file| file.order).map(|order| order.pattern) {
        Some(Pattern::Sequential | Pattern::Backward) => format!(
            "{more}; or scan with O_DIRECT or drop behind (posix_fadvise(fd, 0, done, POSIX_FADV_DONTNEED)): a scan larger \
             than memory gains nothing from the cache"
        ),
        Some(Pattern::HotSet { bytes }) => {
            format!(
                "{more}; or keep the hot {} in a pool of your own and read the rest with O_DIRECT",
                Bytes(bytes).rounded()
            )
        }
        _ => format!("{more}; or read with O_DIRECT into a pool of your own, which evicts by your own knowledge"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{count, healthy, only, order};
    use super::*;

    #[test]
    fn a_scan_larger_than_the_limit_is_told_to_go_past_the_cache() {
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

    /// Seen with a cold SQLite table beside a cgroup at its limit: 92 000 refaults each second, none of them ours.
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
}
