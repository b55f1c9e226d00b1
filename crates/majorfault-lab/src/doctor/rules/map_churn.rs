//! Mapping and unmapping all the time: system calls, repeated faults, and TLB shootdowns on every processor that runs the process.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Evidence, FaultCounts};

pub(super) const RULE: Rule = Rule {
    name: "map_churn",
    summary: "files or memory are mapped and unmapped all the time, which costs TLB shootdowns",
    looks_at: &[Part::Faults, Part::Status, Part::Counters],
    thresholds: THRESHOLDS,
    trouble: "the process maps and unmaps all the time",
    remedies: &[&OF_FILES, &OF_MEMORY],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Mappings each second in a process with several threads, which interrupt each other.
    WITH_OTHERS: f64 = 500.0, PerSecond;
    /// Mappings each second in a process with one thread, which only cost time.
    ALONE: f64 = 3000.0, PerSecond;
    /// TLB flushes or shootdown interrupts each second that cost noticeable time, about a twentieth of a processor; with fewer, the
    /// mappings are harmless.
    FELT: f64 = 5000.0, PerSecond;
    /// Share of one processor that the process spends in the kernel; below it so many mappings cost little.
    KERNEL: f64 = 0.05, Share;
    /// Times that all its anonymous memory was faulted in anew during the watch, from which on it is given back and taken again.
    REFILLED: u64 = 4, Times;
    /// Share of its processor time that the process spends in the kernel, from which on memory that is refilled costs more than its work.
    MOSTLY: f64 = 0.5, Share;
    /// A fault in fresh memory takes at least about this long, in nanoseconds.
    FAULT_NS: u64 = 500, Count;
    /// Share of its time in the kernel that these faults come to at least; below it something else takes that time.
    FAULTS: f64 = 0.1, Share;
    /// Pages of a mapping, on average, up to which it is mapping that empties the memory: 16 MiB.
    BLOCK: u64 = 4096, Count;
}

const PROOF: Proof = Proof::Command("perf trace -s -e mmap,munmap -p {pid} -- sleep 5");

const OF_FILES: Remedy = Remedy {
    when: "files",
    says: "map once and keep the mapping, or pread into one buffer",
    proof: PROOF,
    symptom: None,
    backing: Backing::Try,
};

const OF_MEMORY: Remedy = Remedy {
    when: "memory",
    says: "keep large blocks instead of returning them to the kernel: mallopt(M_MMAP_THRESHOLD, 1 << 30) and M_TRIM_THRESHOLD \
           (environment: MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824)",
    proof: PROOF,
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(faults) = &evidence.faults else { return Vec::new() };
    let is_shared = evidence.process.threads > 1;
    // Mappings that stay are growth, not churn.
    let is_growth = evidence.process.mappings >= faults.mapped;
    let rate = evidence.rate(faults.mapped);
    let severity = match () {
        () if is_growth => return Vec::new(),
        () if is_shared && rate >= WITH_OTHERS && interrupts(evidence) => Severity::Warning,
        () if is_refilled(evidence, faults) => Severity::Warning,
        () if rate >= ALONE && is_in_kernel(evidence) => Severity::Note,
        () => return Vec::new(),
    };
    let remedy = if faults.mapped_files * 2 >= faults.mapped { &OF_FILES } else { &OF_MEMORY };
    vec![Case::of("process", severity, remedy).facts(facts(evidence, faults))]
}

/// Whether other threads' processors are interrupted for it.
fn interrupts(evidence: &Evidence) -> bool {
    evidence.rate(flushes(evidence).max(evidence.counter("tlb_shootdowns").unwrap_or(0))) >= FELT
}

/// Whether the process spends time in the kernel.
fn is_in_kernel(evidence: &Evidence) -> bool {
    let kernel = evidence.counter("system_ns").map(|ns| ns as f64 / evidence.watched.as_nanos().max(1) as f64);
    kernel.is_some_and(|share| share >= KERNEL)
}

/// Whether the memory that is mapped is faulted in and given back again and again, which takes most of its processor time.
fn is_refilled(evidence: &Evidence, faults: &FaultCounts) -> bool {
    let is_emptied = faults.anonymous * 4096 >= evidence.process.anonymous_bytes.max(1) * REFILLED;
    let is_by_mapping = (faults.mapped - faults.mapped_files) * BLOCK >= faults.anonymous;
    let in_kernel = in_kernel(evidence).is_some_and(|share| share >= MOSTLY);
    let is_by_faults =
        (faults.anonymous * FAULT_NS) as f64 >= evidence.counter("system_ns").unwrap_or(0) as f64 * FAULTS;
    is_emptied && is_by_mapping && is_by_faults && in_kernel && is_in_kernel(evidence)
}

/// Share of its processor time that the process spends in the kernel.
fn in_kernel(evidence: &Evidence) -> Option<f64> {
    let (user, system) = evidence.counter("user_ns").zip(evidence.counter("system_ns"))?;
    Some(system as f64 / (user + system).max(1) as f64)
}

/// TLB flushes that the first thread caused.
fn flushes(evidence: &Evidence) -> u64 {
    let reasons = ["tlb_flush_local_shootdown", "tlb_flush_local_mm_shootdown", "tlb_flush_remote_send_ipi"];
    reasons.iter().filter_map(|name| evidence.counter(name)).sum()
}

fn facts(evidence: &Evidence, faults: &FaultCounts) -> Vec<Fact> {
    let own = flushes(evidence);
    let made = evidence.rate(faults.mapped);
    let mut facts = vec![
        Fact::seen("{made} mappings made each second, {mappings} mapped at the end")
            .number("made", made, MeasureUnit::PerSecond)
            .count("mappings", evidence.process.mappings),
        Fact::seen("{share} of them file mappings").number(
            "share",
            faults.mapped_files as f64 / faults.mapped.max(1) as f64,
            MeasureUnit::Share,
        ),
        Fact::seen("{threads} threads").count("threads", evidence.process.threads),
    ];
    if is_refilled(evidence, faults) {
        let times = faults.anonymous as f64 * 4096.0 / evidence.process.anonymous_bytes.max(1) as f64;
        let fact =
            Fact::seen("anonymous memory faulted in {times} times over; {kernel} of the processor time in the kernel");
        let fact = fact.number("times", times.round(), MeasureUnit::Times);
        facts.push(fact.number("kernel", in_kernel(evidence).unwrap_or(0.0), MeasureUnit::Share));
    }
    if own > 0 {
        let fact = Fact::seen("{flushes} TLB flushes each second by the first thread");
        facts.push(fact.number("flushes", evidence.rate(own), MeasureUnit::PerSecond));
    }
    if let Some(machine) = evidence.counter("tlb_shootdowns") {
        let fact = Fact::seen("{interrupts} shootdown interrupts each second on this machine");
        facts.push(fact.number("interrupts", evidence.rate(machine), MeasureUnit::PerSecond));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{count, healthy, only, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        mapping(2, 3000, 1500)
    }

    #[test]
    fn many_mappings_that_do_not_stay_are_churn() {
        let mut evidence = healthy();
        let faults = evidence.faults.as_mut().unwrap();
        (faults.mapped, faults.mapped_files) = (20_000, 20_000);
        count(&mut evidence, "tlb_shootdowns", 50_000);

        assert!(only(&RULE, &evidence).remedy.contains("map once"));
    }

    #[test]
    fn mappings_that_stay_are_no_churn() {
        let mut evidence = healthy();
        evidence.faults.as_mut().unwrap().mapped = 20_000;
        evidence.process.mappings = 20_120;

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// A watch of 5 s in which mappings cost noticeable time.
    fn mapping(threads: u64, mapped: u64, mapped_files: u64) -> Evidence {
        let mut evidence = healthy();
        count(&mut evidence, "tlb_shootdowns", 25_000);
        count(&mut evidence, "system_ns", 250_000_000);
        evidence.process.threads = threads;
        let faults = evidence.faults.as_mut().unwrap();
        (faults.mapped, faults.mapped_files) = (mapped, mapped_files);
        evidence
    }

    #[test]
    fn with_other_threads_500_mappings_each_second_are_a_warning() {
        assert_eq!(worst(&RULE, &mapping(2, 2499, 0)), None);
        assert_eq!(worst(&RULE, &mapping(2, 2500, 0)), Some(Severity::Warning));
    }

    #[test]
    fn alone_3000_mappings_each_second_are_a_note() {
        assert_eq!(worst(&RULE, &mapping(1, 14_999, 0)), None);
        assert_eq!(worst(&RULE, &mapping(1, 15_000, 0)), Some(Severity::Note));
    }

    /// Seen with java, javac, node, chromium and bwa: 500 mappings each second, and three shootdowns.
    #[test]
    fn with_other_threads_it_is_the_interrupts_that_cost() {
        let with = |interrupts| {
            let mut evidence = mapping(2, 14_999, 0);
            count(&mut evidence, "tlb_shootdowns", interrupts);
            worst(&RULE, &evidence)
        };
        assert_eq!((with(15), with(24_999), with(25_000)), (None, None, Some(Severity::Warning)));

        let mut evidence = mapping(2, 14_999, 0);
        count(&mut evidence, "tlb_shootdowns", 0);
        count(&mut evidence, "tlb_flush_remote_send_ipi", 25_000);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning), "where only flushes are counted");
    }

    /// Seen with a forest that scikit-learn grows in two threads: 634 mappings and 866 flushes each second, 4 % of its time in the
    /// kernel, and no gain by keeping the blocks.
    #[test]
    fn a_thousand_flushes_each_second_are_not_felt() {
        let mut evidence = mapping(3, 634 * 5, 95 * 5);
        count(&mut evidence, "tlb_shootdowns", 249 * 5);
        count(&mut evidence, "tlb_flush_remote_send_ipi", 866 * 5);
        count(&mut evidence, "system_ns", 200_000_000);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    /// Seen with arrays of 1 MiB that two threads of numpy mapped and unmapped: 8 times as fast where the blocks were kept.
    fn refilling(times: u64, user_ns: u64) -> Evidence {
        let mut evidence = mapping(2, 500, 0);
        count(&mut evidence, "tlb_shootdowns", 0);
        count(&mut evidence, "user_ns", user_ns);
        evidence.process.anonymous_bytes = 400 << 20;
        evidence.faults.as_mut().unwrap().anonymous = times * 102_400;
        evidence
    }

    #[test]
    fn memory_that_is_faulted_in_anew_all_the_time_is_a_warning_where_most_time_goes_there() {
        let found = only(&RULE, &refilling(4, 250_000_000));

        assert_eq!(found.severity, Severity::Warning);
        assert!(found.remedy.contains("MALLOC_MMAP_THRESHOLD_=1073741824"), "{found:?}");
        assert_eq!(
            found.evidence[3],
            "anonymous memory faulted in 4.0 times over; 50 % of the processor time in the kernel"
        );
        assert_eq!(worst(&RULE, &refilling(4, 250_000_001)), None, "its own work takes longer");
        assert_eq!(worst(&RULE, &refilling(3, 250_000_000)), None, "it may be growth");
    }

    #[test]
    fn memory_that_is_refilled_by_other_means_than_mappings_is_no_churn_of_mappings() {
        let with = |mapped| {
            let mut evidence = refilling(40, 0);
            evidence.process.mappings = 10;
            evidence.faults.as_mut().unwrap().mapped = mapped;
            worst(&RULE, &evidence)
        };

        assert_eq!((with(1000), with(999)), (Some(Severity::Warning), None));
    }

    /// Seen with a program that slept 50 us after each step: 9 000 faults each second, and the sleeps took the kernel's time.
    #[test]
    fn what_the_kernel_does_else_is_not_charged_to_refilling() {
        let with = |system_ns| {
            let mut evidence = refilling(4, 0);
            count(&mut evidence, "system_ns", system_ns);
            worst(&RULE, &evidence)
        };

        assert_eq!((with(2_048_000_000), with(2_048_000_001)), (Some(Severity::Warning), None));
    }

    #[test]
    fn a_little_time_in_the_kernel_is_nothing_however_large_its_share() {
        let mut evidence = refilling(4, 0);
        count(&mut evidence, "system_ns", 249_999_999);

        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn without_interrupts_it_is_the_time_in_the_kernel_that_costs() {
        let with = |threads, system_ns| {
            let mut evidence = mapping(threads, 20_000, 0);
            count(&mut evidence, "tlb_shootdowns", 0);
            count(&mut evidence, "system_ns", system_ns);
            worst(&RULE, &evidence)
        };

        assert_eq!((with(1, 249_999_999), with(1, 250_000_000)), (None, Some(Severity::Note)));
        assert_eq!((with(2, 249_999_999), with(2, 250_000_000)), (None, Some(Severity::Note)));
    }

    #[test]
    fn what_may_all_be_mapped_still_is_growth() {
        let mut evidence = mapping(2, 2500, 0);
        evidence.process.mappings = 2500;
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.process.mappings = 2499;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn the_remedy_is_for_files_where_half_of_the_mappings_are() {
        assert!(only(&RULE, &mapping(2, 3000, 1500)).remedy.starts_with("map once and keep the mapping"));
        assert!(only(&RULE, &mapping(2, 3000, 1499)).remedy.contains("MALLOC_MMAP_THRESHOLD_=1073741824"));
    }

    #[test]
    fn the_figures_are_reported_with_the_flushes_where_they_are_counted() {
        let mut evidence = mapping(4, 5000, 1000);
        let facts =
            ["1000 mappings made each second, 120 mapped at the end", "20 % of them file mappings", "4 threads"];
        assert_eq!(only(&RULE, &evidence).evidence[..3], facts);

        evidence.counters.extend([("tlb_flush_local_shootdown", 100), ("tlb_flush_local_mm_shootdown", 200)]);
        evidence.counters.push(("tlb_flush_remote_send_ipi", 700));
        count(&mut evidence, "tlb_shootdowns", 30_000);
        assert_eq!(
            only(&RULE, &evidence).evidence[3..],
            [
                "200 TLB flushes each second by the first thread",
                "6000 shootdown interrupts each second on this machine"
            ]
        );
    }

    #[test]
    fn a_single_flush_is_reported_and_none_is_not() {
        let mut evidence = mapping(4, 5000, 4900);
        assert_eq!(only(&RULE, &evidence).evidence[1], "98 % of them file mappings");
        evidence.counters.push(("tlb_flush_local_shootdown", 0));
        assert_eq!(only(&RULE, &evidence).evidence.len(), 4);

        count(&mut evidence, "tlb_flush_local_shootdown", 1);
        assert_eq!(only(&RULE, &evidence).evidence[3], "0 TLB flushes each second by the first thread");
    }
}
