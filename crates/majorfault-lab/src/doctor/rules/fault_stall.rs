//! Threads wait for the device in page faults: one page at a time, with nothing else in flight.

use crate::doctor::rule::{Arms, Case, Gain, Part, Proof, Remedy, Rule, Severity, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::order::words;
use majorfault::Nanos;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "fault_stall",
    summary: "threads wait for the device in page faults for much of their time",
    looks_at: &[Part::MappedFiles, Part::Faults],
    thresholds: THRESHOLDS,
    trouble: "threads wait in page faults for {share} of their time",
    remedies: &[&IN_ORDER, &BY_STRIDES, &WITHOUT_ORDER],
    gain: Gain::Waits,
    look,
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
}

const IN_ORDER: Remedy = Remedy {
    when: "in order",
    says: "read ahead in a second thread: madvise(p + done + 8 MiB, 8 MiB, MADV_POPULATE_READ), or raise read_ahead_kb of \
           the device",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=window", workload: None }),
    symptom: Some(Symptom::Scan),
};

const BY_STRIDES: Remedy = Remedy {
    when: "by strides",
    says: "ask for the next 64 steps at once: for i in 1..64: posix_fadvise(fd, at + i * {stride}, 4096, \
           POSIX_FADV_WILLNEED)",
    proof: Proof::Replay(Arms { now: None, remedy: "mmap:policy=learned", workload: None }),
    symptom: Some(Symptom::Lookups),
};

const WITHOUT_ORDER: Remedy = Remedy {
    when: "without an order",
    says: "keep many reads in flight, by io_uring or by pread of 4 KiB from many threads, instead of faults, \
           which wait one by one",
    proof: Proof::Replay(Arms { now: None, remedy: "uring:depth=32", workload: None }),
    symptom: Some(Symptom::Lookups),
};

fn look(evidence: &Evidence) -> Vec<Case> {
    evidence.data_files().filter_map(|file| of_file(evidence, file)).collect()
}

fn of_file(evidence: &Evidence, file: &MappedFile) -> Option<Case> {
    let order = file.order?;
    let threads = order.threads.max(1) as f64;
    let share = file.waited_ns as f64 / evidence.watched.as_nanos() as f64 / threads;
    if file.waits < FEWEST || share < MUCH {
        return None;
    }
    let severity = if share >= MOST { Severity::Critical } else { Severity::Warning };
    let facts = vec![
        format!(
            "{} faults waited {} in total, {} of them started the read",
            file.waits,
            Nanos(file.waited_ns),
            file.major
        ),
        format!("{} each", Nanos(file.waited_ns / file.waits)),
        format!("order: {} ({:.0} % of the steps)", words(order.pattern), order.confidence * 100.0),
        format!("{} threads", order.threads),
    ];
    let case = Case::of_file(file, severity, &WITHOUT_ORDER)
        .figure("share", format!("{:.0} %", share.min(1.0) * 100.0))
        .facts(facts);
    Some(match order.pattern {
        Pattern::Sequential | Pattern::Backward => Case { remedy: &IN_ORDER, ..case },
        Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => {
            Case { remedy: &BY_STRIDES, ..case }.figure("stride", stride)
        }
        Pattern::Random | Pattern::HotSet { .. } | Pattern::Unknown => case,
    })
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, order, with_file, worst};
    use super::*;
    use crate::doctor::Finding;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        waiting(100, 12_000_000_000)
    }

    #[test]
    fn a_strided_scan_that_waits_gets_its_stride() {
        let evidence = with_file(|file| {
            file.waits = 10_000;
            file.waited_ns = 16_000_000_000;
            file.order = Some(order(Pattern::Strided(1 << 20)));
        });

        let found = only(&RULE, &evidence);

        assert_eq!(found.severity, Severity::Critical);
        assert!(found.remedy.contains("i * 1048576") && found.proof.contains("stride=1m"), "{found:?}");
    }

    #[test]
    fn some_waits_at_the_start_are_nothing() {
        let evidence = with_file(|file| {
            file.waits = 100;
            file.waited_ns = 50_000_000;
        });

        assert!(look(&evidence).is_empty());
    }

    /// A watch of 5 s with four threads, which have 20 s of time together.
    fn waiting(waits: u64, waited_ns: u64) -> Evidence {
        with_file(|file| (file.waits, file.waited_ns) = (waits, waited_ns))
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
            assert!(found.proof.ends_with("--memory 8g -m mmap -m uring:depth=32"), "{found:?}");
        }
    }

    #[test]
    fn a_stride_is_asked_for_64_steps_ahead_in_its_direction_and_tried_in_whole_pages() {
        let found = in_order(Pattern::Interleaved { streams: 2, stride: -10_000 });

        assert!(found.remedy.contains("for i in 1..64: posix_fadvise(fd, at + i * -10000, 4096,"), "{found:?}");
        assert!(found.proof.contains("strided:stride=8k "), "{found:?}");
    }

    #[test]
    fn waits_in_a_file_of_unknown_order_are_not_told() {
        let mut evidence = waiting(1000, 4_000_000_000);
        evidence.files[0].order = None;

        assert_eq!(worst(&RULE, &evidence), None);
    }
}
