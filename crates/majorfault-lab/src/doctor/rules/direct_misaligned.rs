//! O_DIRECT with misaligned buffers, offsets or lengths: the calls fail, or the file system reads through the page cache.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Calls, Evidence};
use crate::watch::files::Descriptor;

pub(super) const RULE: Rule = Rule {
    name: "direct_misaligned",
    summary: "a file is open with O_DIRECT, but its reads fail or go through the page cache",
    looks_at: &[Part::Descriptors, Part::ReadCalls],
    thresholds: THRESHOLDS,
    trouble: "reads of a file opened with O_DIRECT {do}",
    remedies: &[&ALIGN],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Fewer read calls than this may be chance.
    FEWEST: u64 = 100, Count;
    /// Read calls for each returned byte; above it most of them failed.
    CALLS_A_BYTE: u64 = 2, Count;
    /// Bytes returned for each byte from devices; above it they come from the page cache.
    FROM_CACHE: u64 = 4, Times;
    /// Bytes returned; below it the page cache may have had them for another reason.
    LEAST: u64 = 16 << 20, Bytes;
    /// Bytes of the file in the page cache that show that it is read through the cache.
    CACHED: u64 = 1 << 20, Bytes;
    /// Size of another open file that makes it a candidate for what is read through the page cache.
    OTHER: u64 = 1 << 20, Bytes;
}

const ALIGN: Remedy = Remedy {
    when: "",
    says: "align offset, length and buffer to 4096 bytes (posix_memalign(&buffer, 4096, length)); statx(2) with \
           STATX_DIOALIGN reports the smallest alignment that works",
    proof: Proof::Command("strace -f -e trace=read,pread64,preadv -p {pid}"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(calls) = evidence.calls.filter(|calls| calls.read_calls >= FEWEST) else { return Vec::new() };
    let Some(direct) = evidence.descriptors.iter().find(|file| file.direct) else { return Vec::new() };
    let returned = calls.read_call_bytes;
    let (severity, does, fact) = match () {
        () if calls.read_call_bytes < calls.read_calls / CALLS_A_BYTE => {
            (Severity::Critical, "fail", Fact::seen("{returned} returned by them").bytes("returned", returned))
        }
        () if is_by_the_cache(evidence, calls, direct) => {
            let fact = Fact::seen("{returned} returned, {device} from devices");
            let fact = fact.bytes("returned", returned).bytes("device", calls.device_bytes);
            (Severity::Warning, "go through the page cache nevertheless", fact)
        }
        () => return Vec::new(),
    };
    let facts = vec![Fact::seen("{calls} read calls").count("calls", calls.read_calls), fact];
    vec![Case::of(&direct.path, severity, &ALIGN).figure("do", does).facts(facts)]
}

fn is_by_the_cache(evidence: &Evidence, calls: Calls, direct: &Descriptor) -> bool {
    let others = evidence.descriptors.iter().any(|file| !file.direct && file.size_bytes >= OTHER);
    !others
        && direct.cached_bytes.is_some_and(|cached| cached >= CACHED)
        && calls.device_bytes * FROM_CACHE < calls.read_call_bytes
        && calls.read_call_bytes >= LEAST
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use crate::watch::evidence::Calls;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        Evidence { calls: Some(Calls { read_calls: 100_000, ..Calls::default() }), ..open() }
    }

    fn open() -> Evidence {
        let mut evidence = healthy();
        let path = "/data/x".to_owned();
        evidence.descriptors = vec![Descriptor { path, direct: true, size_bytes: 1 << 30, ..Descriptor::default() }];
        evidence
    }

    #[test]
    fn calls_that_return_nothing_fail() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 100_000, ..Calls::default() });

        assert_eq!(only(&RULE, &evidence).severity, Severity::Critical);
    }

    #[test]
    fn direct_reads_that_reach_the_device_are_fine() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 1000, read_call_bytes: 4 << 20, device_bytes: 4 << 20 });

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// 1000 calls that read 16 MiB from the cache, 1 MiB of which is there.
    fn by_the_cache() -> Evidence {
        let mut evidence = open();
        evidence.descriptors[0].cached_bytes = Some(1 << 20);
        evidence.calls = Some(Calls { read_calls: 1000, read_call_bytes: 16 << 20, device_bytes: (4 << 20) - 1 });
        evidence
    }

    fn called(calls: Calls) -> Option<Severity> {
        worst(&RULE, &Evidence { calls: Some(calls), ..open() })
    }

    #[test]
    fn fewer_than_100_calls_are_chance() {
        assert_eq!(called(Calls { read_calls: 99, ..Calls::default() }), None);
        assert_eq!(called(Calls { read_calls: 100, ..Calls::default() }), Some(Severity::Critical));
    }

    #[test]
    fn calls_fail_where_two_of_them_return_less_than_a_byte() {
        let returned = |read_call_bytes| called(Calls { read_calls: 1000, read_call_bytes, device_bytes: 0 });

        assert_eq!(returned(499), Some(Severity::Critical));
        assert_eq!(returned(500), None);
    }

    #[test]
    fn calls_that_fail_are_reported_with_what_they_returned() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 1000, read_call_bytes: 499, device_bytes: 0 });

        let found = only(&RULE, &evidence);

        assert_eq!(found.what, "reads of a file opened with O_DIRECT fail");
        assert_eq!(found.evidence, ["1000 read calls", "499 B returned by them"]);
        assert_eq!(found.scope, "/data/x");
        assert!(found.remedy.contains("4096 bytes (posix_memalign(&buffer, 4096, length))"), "{}", found.remedy);
        assert_eq!(found.proof, "strace -f -e trace=read,pread64,preadv -p 77");
    }

    #[test]
    fn direct_reads_by_the_cache_are_reported_with_what_came_from_devices() {
        let found = only(&RULE, &by_the_cache());

        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(found.what, "reads of a file opened with O_DIRECT go through the page cache nevertheless");
        assert_eq!(found.evidence, ["1000 read calls", "16.0 MiB returned, 4.00 MiB from devices"]);
    }

    #[test]
    fn a_quarter_from_devices_or_less_than_16_mib_or_less_than_1_mib_cached_is_not_by_the_cache() {
        let mut evidence = by_the_cache();
        evidence.calls.as_mut().unwrap().device_bytes = 4 << 20;
        assert_eq!(worst(&RULE, &evidence), None);

        let mut evidence = by_the_cache();
        *evidence.calls.as_mut().unwrap() =
            Calls { read_calls: 1000, read_call_bytes: (16 << 20) - 1, device_bytes: 0 };
        assert_eq!(worst(&RULE, &evidence), None);

        for cached_bytes in [Some((1 << 20) - 1), None] {
            let mut evidence = by_the_cache();
            evidence.descriptors[0].cached_bytes = cached_bytes;
            assert_eq!(worst(&RULE, &evidence), None);
        }
    }

    #[test]
    fn another_file_of_1_mib_may_be_what_is_read_by_the_cache() {
        let beside = |size_bytes, direct| {
            let mut evidence = by_the_cache();
            evidence.descriptors.push(Descriptor { size_bytes, direct, ..Descriptor::default() });
            worst(&RULE, &evidence)
        };

        assert_eq!(beside(1 << 20, false), None);
        assert_eq!(beside((1 << 20) - 1, false), Some(Severity::Warning));
        assert_eq!(beside(1 << 20, true), Some(Severity::Warning));
    }

    #[test]
    fn failing_calls_without_a_direct_file_are_not_ours_to_tell() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 1000, ..Calls::default() });
        evidence.descriptors[0].direct = false;

        assert_eq!(worst(&RULE, &evidence), None);
    }
}
