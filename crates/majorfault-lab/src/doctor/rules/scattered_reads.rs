//! Read calls that jump about in a file and reach the device, one at a time: each waits for the device, with nothing else in flight.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Evidence, ReadFile};
use crate::watch::order::words;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "scattered_reads",
    summary: "read calls jump about in a file, one at a time, and reach the device",
    looks_at: &[Part::ReadCalls, Part::ReadOrder],
    thresholds: THRESHOLDS,
    trouble: "read calls jump about in the file, one at a time, and reach the device",
    remedies: &[&BY_STRIDES, &WITHOUT_ORDER],
    alerts: false,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Read calls of a file; fewer may be chance.
    FEWEST: u64 = 200, Count;
    /// Read calls of a file each second; fewer cost little.
    OFTEN: f64 = 100.0, PerSecond;
    /// Share of the steps that must agree with the order.
    AGREEING: f64 = 0.6, Share;
    /// Bytes from devices for each of these calls, after what waiting page faults read; below it most calls find their pages cached.
    FROM_DEVICE: u64 = 2048, Bytes;
    /// Threads that read the file in this order; from here on the device has many reads in flight already.
    MANY: u64 = 8, Count;
}

/// What a page fault that waits reads at least.
const A_WAIT: u64 = 4096;

const BY_STRIDES: Remedy = Remedy {
    when: "by strides",
    says: "ask for the next 64 rows before they are read: for i in 1..64: posix_fadvise(fd, at + i * {stride}, length, \
           POSIX_FADV_WILLNEED); or let it be done from outside: majorfault assist {pid}",
    proof: Proof::Command("majorfault assist {pid} --for 10s"),
    symptom: None,
    backing: Backing::Try,
};

const WITHOUT_ORDER: Remedy = Remedy {
    when: "without an order",
    says: "keep many reads in flight, by io_uring or by pread from many threads; where the order is the same in each run, let it be \
           read ahead: majorfault trace -o run.flt -- PROGRAM, then majorfault assist --trace run.flt -- PROGRAM",
    proof: Proof::Command("majorfault compare {path} -m pread -m uring:depth=32"),
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(calls) = evidence.calls else { return Vec::new() };
    let files: Vec<(&ReadFile, Pattern)> =
        evidence.reads.iter().filter_map(|file| Some((file, scattered(evidence, file)?))).collect();
    let all: u64 = files.iter().map(|(file, _)| file.calls).sum();
    let waits = evidence.faults.as_ref().map_or(0, |faults| faults.waits);
    if calls.device_bytes.saturating_sub(waits * A_WAIT) < all * FROM_DEVICE {
        return Vec::new();
    }
    files.into_iter().take(1).map(|(file, pattern)| case(evidence, file, pattern, calls.device_bytes)).collect()
}

/// The order of the calls, where they jump about.
fn scattered(evidence: &Evidence, file: &ReadFile) -> Option<Pattern> {
    let order = file.order.filter(|order| order.confidence >= AGREEING && (order.threads as u64) < MANY)?;
    let is_scattered = match order.pattern {
        Pattern::Strided(_) | Pattern::Interleaved { .. } | Pattern::Random | Pattern::HotSet { .. } => true,
        Pattern::Sequential | Pattern::Backward | Pattern::Unknown => false,
    };
    let is_much = file.calls >= FEWEST && evidence.rate(file.calls) >= OFTEN;
    (is_scattered && is_much && !file.path.is_empty()).then_some(order.pattern)
}

fn case(evidence: &Evidence, file: &ReadFile, pattern: Pattern, device_bytes: u64) -> Case {
    let facts = vec![
        Fact::seen("{calls} read calls, {rate}/s, of {mean} each")
            .number("calls", file.calls as f64, MeasureUnit::Count)
            .number("rate", evidence.rate(file.calls), MeasureUnit::PerSecond)
            .bytes("mean", file.bytes / file.calls.max(1)),
        Fact::guessed("order: {order}").word("order", words(pattern)),
        Fact::seen("{device} from devices").bytes("device", device_bytes),
    ];
    match pattern {
        Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => {
            Case::of(&file.path, Severity::Note, &BY_STRIDES).figure("stride", stride).facts(facts)
        }
        _ => Case::of(&file.path, Severity::Note, &WITHOUT_ORDER).facts(facts),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use majorfault::observe::pattern::Recognised;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        reading(Pattern::Strided(262_144), 1000, 1000 * 4096)
    }

    /// 5 s in which so many calls read a file, and so many bytes came from devices.
    fn reading(pattern: Pattern, calls: u64, device_bytes: u64) -> Evidence {
        let mut evidence = healthy();
        let order = Some(Recognised { pattern, confidence: 0.9, threads: 1, repeats: 0 });
        let path = "/data/rows".to_owned();
        evidence.reads = vec![ReadFile { path, calls, bytes: calls * 8192, order, ..ReadFile::default() }];
        evidence.calls.as_mut().unwrap().device_bytes = device_bytes;
        evidence
    }

    fn found(pattern: Pattern, calls: u64, device_bytes: u64) -> Option<Severity> {
        worst(&RULE, &reading(pattern, calls, device_bytes))
    }

    #[test]
    fn rows_are_asked_for_by_their_stride_and_other_reads_are_kept_in_flight() {
        let rows = only(&RULE, &example());
        let lookups = only(&RULE, &reading(Pattern::Random, 1000, 1000 * 4096));

        assert!(rows.remedy.contains("at + i * 262144, length"), "{}", rows.remedy);
        assert_eq!((rows.scope.as_str(), rows.proof.as_str()), ("/data/rows", "majorfault assist 77 --for 10s"));
        assert!(lookups.remedy.contains("io_uring") && lookups.proof.contains("uring:depth=32"), "{lookups:?}");
    }

    #[test]
    fn reads_in_order_are_the_kernels_to_read_ahead() {
        let found = |pattern| found(pattern, 1000, 1000 * 4096);

        assert_eq!([Pattern::Sequential, Pattern::Backward, Pattern::Unknown].map(found), [None; 3]);
        let streams = Pattern::Interleaved { streams: 2, stride: 65536 };
        assert_eq!([streams, Pattern::HotSet { bytes: 1 << 20 }].map(found), [Some(Severity::Note); 2]);
    }

    #[test]
    fn fewer_than_200_reads_or_than_100_each_second_are_nothing() {
        assert_eq!(found(Pattern::Random, 499, 1 << 30), None);
        assert_eq!(found(Pattern::Random, 500, 1 << 30), Some(Severity::Note));
        let in_a_second = |calls| {
            let mut evidence = reading(Pattern::Random, calls, 1 << 30);
            evidence.watched = std::time::Duration::from_secs(1);
            worst(&RULE, &evidence)
        };
        assert_eq!((in_a_second(199), in_a_second(200)), (None, Some(Severity::Note)));
    }

    #[test]
    fn reads_of_which_most_find_their_pages_cached_are_nothing() {
        assert_eq!(found(Pattern::Random, 1000, 1000 * 2048 - 1), None);
        assert_eq!(found(Pattern::Random, 1000, 1000 * 2048), Some(Severity::Note));
    }

    #[test]
    fn what_waiting_page_faults_read_does_not_count() {
        let mut evidence = reading(Pattern::Random, 1000, 1000 * 2048 + 10 * 4096);
        evidence.faults.as_mut().unwrap().waits = 10;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Note));

        evidence.faults.as_mut().unwrap().waits = 11;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn an_order_that_is_doubted_or_of_eight_threads_is_nothing() {
        let mut evidence = example();
        let mut with = |confidence, threads| {
            let pattern = Pattern::Random;
            evidence.reads[0].order = Some(Recognised { pattern, confidence, threads, repeats: 0 });
            worst(&RULE, &evidence)
        };

        assert_eq!((with(0.59, 1), with(0.6, 1)), (None, Some(Severity::Note)));
        assert_eq!((with(0.9, 7), with(0.9, 8)), (Some(Severity::Note), None));
    }

    #[test]
    fn a_file_without_a_name_is_left_out_and_of_several_the_one_read_most_is_named() {
        let mut evidence = example();
        evidence.reads.push(ReadFile { path: "/data/less".to_owned(), ..evidence.reads[0].clone() });
        evidence.calls.as_mut().unwrap().device_bytes = 1 << 30;
        assert_eq!(only(&RULE, &evidence).scope, "/data/rows");

        evidence.reads[0].path.clear();

        assert_eq!(only(&RULE, &evidence).scope, "/data/less");
    }
}
