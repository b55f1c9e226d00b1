//! Random accesses under the default advice: each fault reads a whole window, most of it for nothing.

use crate::doctor::rule::{Arms, Case, Gain, Part, Proof, Remedy, Rule, Severity, thresholds};
use crate::doctor::software::Symptom;
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::order::words;
use majorfault::Bytes;
use majorfault::observe::pattern::Pattern;

pub(super) const RULE: Rule = Rule {
    name: "read_ahead_flood",
    summary: "read-ahead for random faults reads many times what is touched",
    looks_at: &[Part::MappedFiles, Part::Faults, Part::ReadCalls],
    thresholds: THRESHOLDS,
    trouble: "read-ahead reads {times} times what is touched",
    remedies: &[&ADVISE, &PAST_THE_CACHE],
    gain: Gain::Waits,
    look,
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Bytes read for each byte of a touched page.
    FLOOD: f64 = 8.0, Times;
    /// Bytes read; fewer do not matter.
    LEAST: u64 = 32 << 20, Bytes;
    /// Fewer waits for the file than this may be chance.
    FEWEST: u64 = 64, Count;
    /// Share of the steps that must be random.
    RANDOM: f64 = 0.6, Share;
    /// Share of the waits that must be the file's, because bytes are counted for the whole process.
    OWN: f64 = 0.8, Share;
}

const ADVISE: Remedy = Remedy {
    when: "memory is sufficient",
    says: "madvise(p, length, MADV_RANDOM)",
    proof: Proof::Replay(Arms { now: Some("mmap"), remedy: "mmap:advice=random", workload: None }),
    symptom: Some(Symptom::Lookups),
};

const PAST_THE_CACHE: Remedy = Remedy {
    when: "memory is short, since Linux 6.3",
    says: "MADV_RANDOM would stop it, but since Linux 6.3 it lets hot pages be evicted under memory pressure: use \
           pread or io_uring with O_DIRECT and a pool of your own, or read_ahead_kb=16 for the device",
    proof: Proof::Replay(Arms { now: Some("mmap"), remedy: "uring:depth=32", workload: None }),
    symptom: Some(Symptom::Lookups),
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let all = evidence.faults.as_ref().map_or(0, |faults| faults.major) as f64;
    let own = evidence.data_files().filter(|file| file.major as f64 >= all * OWN);
    own.filter_map(|file| of_file(evidence, file)).collect()
}

fn of_file(evidence: &Evidence, file: &MappedFile) -> Option<Case> {
    let order = file.order.filter(|order| order.confidence >= RANDOM)?;
    if !matches!(order.pattern, Pattern::Random | Pattern::HotSet { .. })
        || file.major < FEWEST
        || file.random_advice().is_some()
    {
        return None;
    }
    let read = evidence.calls?.device_bytes;
    let touched = file.asked_bytes().max(4096);
    let factor = read as f64 / touched as f64;
    if read < LEAST || factor < FLOOD {
        return None;
    }
    let remedy = if evidence.random_costs_hot_pages() { &PAST_THE_CACHE } else { &ADVISE };
    let facts = vec![
        format!("{} read from devices", Bytes(read).rounded()),
        format!("{} in touched pages", Bytes(touched).rounded()),
        format!("order: {} ({:.0} %)", words(order.pattern), order.confidence * 100.0),
        format!("read_ahead_kb {}", file.read_ahead_kb.map_or("unknown".to_owned(), |kb| kb.to_string())),
    ];
    let case = Case::of_file(file, Severity::Warning, remedy).facts(facts);
    Some(case.figure("times", format!("{factor:.0}")))
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, count, only, order, with_file, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        flooded()
    }

    fn flooded() -> Evidence {
        let mut evidence = with_file(|file| {
            file.major = 800;
            file.cached_bytes = Some(300 << 20);
        });
        evidence.calls.as_mut().unwrap().device_bytes = 200 << 20;
        evidence.faults.as_mut().unwrap().major = 810;
        evidence
    }

    #[test]
    fn random_faults_that_read_windows_are_a_flood() {
        let found = only(&RULE, &flooded());

        assert!(found.remedy.contains("MADV_RANDOM") && found.what.contains("57 times"), "{found:?}");
    }

    /// Seen with LMDB and MDB_NORDAHEAD: its inner pages are dropped and read again, one at a time.
    #[test]
    fn pages_that_are_read_again_alone_are_no_read_ahead() {
        let mut evidence = flooded();
        evidence.files[0].major = 50_000;
        evidence.faults.as_mut().unwrap().major = 50_000;

        assert!(look(&evidence).is_empty());
    }

    #[test]
    fn a_scan_reads_ahead_rightly() {
        let mut evidence = flooded();
        evidence.files[0].order = Some(order(Pattern::Sequential));

        assert!(look(&evidence).is_empty());
    }

    /// 1024 pages of 4 KiB are touched, each with a wait.
    fn reading(device_bytes: u64) -> Evidence {
        let mut evidence = flooded();
        (evidence.files[0].touched_pages, evidence.files[0].major) = (1024, 1024);
        evidence.faults.as_mut().unwrap().major = 1024;
        evidence.calls.as_mut().unwrap().device_bytes = device_bytes;
        evidence
    }

    #[test]
    fn eight_bytes_for_each_that_is_touched_are_a_flood() {
        let mut evidence = reading(64 << 20);
        evidence.files[0].touched_pages = 2048;
        assert_eq!(only(&RULE, &evidence).what, "read-ahead reads 8 times what is touched");

        evidence.calls.as_mut().unwrap().device_bytes = (64 << 20) - 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn less_than_32_mib_does_not_matter() {
        let mut evidence = reading(32 << 20);
        evidence.files[0].touched_pages = 64;
        evidence.files[0].major = 64;
        evidence.faults.as_mut().unwrap().major = 64;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.calls.as_mut().unwrap().device_bytes = (32 << 20) - 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn fewer_than_64_waits_are_chance() {
        let mut evidence = reading(200 << 20);
        (evidence.files[0].major, evidence.faults.as_mut().unwrap().major) = (63, 63);
        assert_eq!(worst(&RULE, &evidence), None);

        (evidence.files[0].major, evidence.faults.as_mut().unwrap().major) = (64, 64);
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }

    #[test]
    fn the_bytes_are_the_files_where_four_fifths_of_the_waits_are() {
        let mut evidence = reading(200 << 20);
        evidence.faults.as_mut().unwrap().major = 1280;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.faults.as_mut().unwrap().major = 1281;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn six_tenths_of_the_steps_must_be_random() {
        let mut evidence = reading(200 << 20);
        evidence.files[0].order.as_mut().unwrap().confidence = 0.6;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.files[0].order.as_mut().unwrap().confidence = 0.599;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn a_hot_set_is_flooded_as_well_and_a_stride_is_another_rules() {
        let mut evidence = reading(200 << 20);
        evidence.files[0].order = Some(order(Pattern::HotSet { bytes: 1 << 20 }));
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));

        evidence.files[0].order = Some(order(Pattern::Strided(1 << 20)));
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn random_advice_in_force_reads_nothing_ahead() {
        let mut evidence = reading(200 << 20);
        advise(&mut evidence, Deep { random: true, ..Deep::default() });

        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn under_pressure_random_advice_is_no_remedy() {
        let mut evidence = reading(200 << 20);
        count(&mut evidence, "cgroup_refault_pages", 500);
        let found = only(&RULE, &evidence);
        assert!(found.remedy.starts_with("MADV_RANDOM would stop it, but since Linux 6.3"), "{}", found.remedy);
        assert_eq!(found.replay.unwrap().arms, ["mmap", "uring:depth=32"]);

        count(&mut evidence, "cgroup_refault_pages", 499);
        let found = only(&RULE, &evidence);
        assert_eq!(found.remedy, "madvise(p, length, MADV_RANDOM)");
        assert_eq!(found.replay.unwrap().arms, ["mmap", "mmap:advice=random"]);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let mut evidence = reading(200 << 20);
        let facts =
            ["200 MiB read from devices", "4.00 MiB in touched pages", "order: random (95 %)", "read_ahead_kb 128"];
        assert_eq!(only(&RULE, &evidence).evidence, facts);
        assert_eq!(only(&RULE, &evidence).what, "read-ahead reads 50 times what is touched");

        evidence.files[0].read_ahead_kb = None;
        assert_eq!(only(&RULE, &evidence).evidence[3], "read_ahead_kb unknown");
    }
}
