//! Threads wait for the device in page faults: one page at a time, with nothing else in flight.

use crate::doctor::tell::terminal::words;
use crate::doctor::{Finding, Rule, Severity};
use crate::watch::evidence::{Evidence, MappedFile};
use majorfault::observe::pattern::Pattern;
use majorfault::{Bytes, Nanos};

pub(super) const RULE: Rule = Rule {
    name: "fault_stall",
    summary: "threads wait for the device in page faults for a good part of the time",
    look,
};

/// Waits below which it is chance.
const FEWEST: u64 = 50;

/// Share of a thread's time that is worth a warning, and that is most of it.
const MUCH: f64 = 0.1;
const MOST: f64 = 0.6;

fn look(evidence: &Evidence) -> Vec<Finding> {
    evidence.data_files().filter_map(|file| of_file(evidence, file)).collect()
}

fn of_file(evidence: &Evidence, file: &MappedFile) -> Option<Finding> {
    let order = file.order?;
    let threads = order.threads.max(1) as f64;
    let share = file.waited_ns as f64 / evidence.watched.as_nanos() as f64 / threads;
    if file.waits < FEWEST || share < MUCH {
        return None;
    }
    let severity = if share >= MOST { Severity::Critical } else { Severity::Warning };
    let (remedy, proof) = remedy(file, order.pattern);
    Some(Finding {
        rule: RULE.name,
        severity,
        scope: file.path.clone(),
        what: format!("threads wait in page faults for {:.0} % of their time", share.min(1.0) * 100.0),
        evidence: vec![
            format!(
                "{} faults waited {} in total, {} of them started the read",
                file.waits,
                Nanos(file.waited_ns),
                file.major
            ),
            format!("{} each", Nanos(file.waited_ns / file.waits)),
            format!("order: {} ({:.0} % of the steps)", words(order.pattern), order.confidence * 100.0),
            format!("{} threads", order.threads),
        ],
        remedy,
        proof,
    })
}

fn remedy(file: &MappedFile, pattern: Pattern) -> (String, String) {
    let path = &file.path;
    match pattern {
        Pattern::Sequential | Pattern::Backward => (
            "read ahead in a second thread: madvise(p + done + 8 MiB, 8 MiB, MADV_POPULATE_READ), or raise read_ahead_kb \
             of the device"
                .to_owned(),
            format!("majorfault compare {path} --rw read --bs 1m --cache cold"),
        ),
        Pattern::Strided(stride) | Pattern::Interleaved { stride, .. } => (
            format!(
                "ask for the next 64 steps at once: for i in 1..64: posix_fadvise(fd, at + i * {stride}, 4096, \
                 POSIX_FADV_WILLNEED)"
            ),
            format!(
                "majorfault compare {path} --workload strided:stride={} --cache cold",
                Bytes(stride.unsigned_abs() / 4096 * 4096)
            ),
        ),
        Pattern::Random | Pattern::HotSet { .. } | Pattern::Unknown => (
            "keep many reads in flight: io_uring or pread from many threads with MADV_RANDOM's 4 KiB, instead of faults, \
             which wait one by one"
                .to_owned(),
            format!("majorfault compare {path} --rw randread --bs 4k --cache cold"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, order, with_file, worst};
    use super::*;

    #[test]
    fn a_strided_scan_that_waits_is_told_its_stride() {
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

    /// Watched for 5 s, with four threads that have 20 s of time together.
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
    fn the_figures_are_told_with_their_units() {
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
            assert!(found.proof.contains("--rw read --bs 1m --cache cold"), "{found:?}");
        }
        for pattern in [Pattern::Random, Pattern::HotSet { bytes: 1 << 20 }, Pattern::Unknown] {
            let found = in_order(pattern);
            assert!(found.remedy.starts_with("keep many reads in flight"), "{found:?}");
            assert!(found.proof.contains("--rw randread --bs 4k --cache cold"), "{found:?}");
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
