//! Read calls that copy the same cached bytes again and again: one cache in front of another.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::Evidence;

pub(super) const RULE: Rule = Rule {
    name: "double_buffering",
    summary: "read calls copy the same cached file again and again",
    looks_at: &[Part::Descriptors, Part::ReadCalls],
    thresholds: THRESHOLDS,
    trouble: "read calls copy the same cached bytes again and again",
    remedies: &[&MAP],
    alerts: false,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Bytes copied each second that cost a good part of a processor.
    FAST: f64 = 200e6, BytesPerSecond;
    /// Times that the open files were read over.
    PASSES: f64 = 3.0, Times;
    /// Size of a file; smaller ones do not count.
    LEAST: u64 = 4 << 20, Bytes;
    /// Bytes copied for each byte from devices; below it the page cache is not what is copied.
    FROM_CACHE: u64 = 20, Times;
}

const MAP: Remedy = Remedy {
    when: "",
    says: "map the file and read it in place; or, if the program has its own cache, open with O_DIRECT and make the cache \
           larger (RocksDB: use_direct_reads; MySQL: innodb_flush_method=O_DIRECT)",
    // Read calls are counted, not listed: there is nothing to replay.
    proof: Proof::Command("majorfault compare {path} --cache warm -m mmap -m pread"),
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(calls) = evidence.calls else { return Vec::new() };
    let cached: Vec<_> = evidence.descriptors.iter().filter(|file| !file.direct && file.size_bytes >= LEAST).collect();
    let bytes: u64 = cached.iter().map(|file| file.size_bytes).sum();
    let passes = calls.read_call_bytes as f64 / bytes.max(1) as f64;
    let Some(largest) = cached.iter().max_by_key(|file| file.size_bytes) else { return Vec::new() };
    let is_read = calls.device_bytes * FROM_CACHE > calls.read_call_bytes;
    if evidence.rate(calls.read_call_bytes) < FAST || passes < PASSES || is_read {
        return Vec::new();
    }
    let facts = vec![
        Fact::seen("{speed} by read calls").number(
            "speed",
            evidence.rate(calls.read_call_bytes),
            MeasureUnit::BytesPerSecond,
        ),
        Fact::guessed("{passes} times the {open} of the open files")
            .number("passes", passes.round(), MeasureUnit::Count)
            .bytes("open", bytes),
        Fact::seen("{device} from devices").bytes("device", calls.device_bytes),
    ];
    vec![Case::of(&largest.path, Severity::Note, &MAP).facts(facts)]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use crate::watch::files::Descriptor;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        reading(64 << 20, 2_000_000_000, 0)
    }

    #[test]
    fn passes_over_a_cached_file_are_found_and_a_first_read_is_not() {
        let mut evidence = healthy();
        let file = Descriptor { number: 3, path: "/data/x".to_owned(), size_bytes: 64 << 20, ..Descriptor::default() };
        evidence.descriptors = vec![file];
        evidence.calls.as_mut().unwrap().read_call_bytes = 5 << 30;
        assert!(only(&RULE, &evidence).evidence[1].to_string().contains("80 times"));

        evidence.calls.as_mut().unwrap().device_bytes = 5 << 30;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// 5 s of read calls for one file.
    fn reading(size_bytes: u64, read_call_bytes: u64, device_bytes: u64) -> Evidence {
        let mut evidence = healthy();
        evidence.descriptors = vec![Descriptor { path: "/data/x".to_owned(), size_bytes, ..Descriptor::default() }];
        let calls = evidence.calls.as_mut().unwrap();
        (calls.read_call_bytes, calls.device_bytes) = (read_call_bytes, device_bytes);
        evidence
    }

    #[test]
    fn less_than_200_million_bytes_each_second_are_nothing() {
        assert_eq!(worst(&RULE, &reading(64 << 20, 999_999_999, 0)), None);
        assert_eq!(worst(&RULE, &reading(64 << 20, 1_000_000_000, 0)), Some(Severity::Note));
    }

    #[test]
    fn fewer_than_three_passes_are_nothing() {
        assert_eq!(worst(&RULE, &reading(1 << 30, (3 << 30) - 1, 0)), None);
        assert_eq!(worst(&RULE, &reading(1 << 30, 3 << 30, 0)), Some(Severity::Note));
    }

    #[test]
    fn files_below_4_mib_and_direct_ones_do_not_count() {
        assert_eq!(worst(&RULE, &reading((4 << 20) - 1, 1 << 30, 0)), None);
        let mut evidence = reading(4 << 20, 1 << 30, 0);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Note));

        evidence.descriptors[0].direct = true;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn a_twentieth_from_devices_is_still_the_cache() {
        assert_eq!(worst(&RULE, &reading(64 << 20, 2_000_000_000, 100_000_000)), Some(Severity::Note));
        assert_eq!(worst(&RULE, &reading(64 << 20, 2_000_000_000, 100_000_001)), None);
    }

    #[test]
    fn the_figures_are_of_all_files_and_the_scope_is_the_largest() {
        let mut evidence = reading(64 << 20, 1 << 30, 1 << 20);
        let smaller = Descriptor { path: "/data/y".to_owned(), size_bytes: 16 << 20, ..Descriptor::default() };
        evidence.descriptors.push(smaller);

        let found = only(&RULE, &evidence);

        assert_eq!(found.scope, "/data/x");
        assert_eq!(
            found.evidence,
            ["205 MiB/s by read calls", "13 times the 80.0 MiB of the open files", "1.00 MiB from devices"]
        );
        assert_eq!(found.proof, "majorfault compare /data/x --cache warm -m mmap -m pread");
    }
}
