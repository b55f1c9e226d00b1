//! MADV_POPULATE_READ (or MAP_POPULATE, mlock) on a mapping with MADV_RANDOM: the kernel faults in page by page without
//! read-ahead. No instruction makes those faults, so the process's counter includes them and the samples do not.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::Evidence;

pub(super) const RULE: Rule = Rule {
    name: "populate_after_random",
    summary: "a mapping is populated page by page because MADV_RANDOM came first",
    looks_at: &[Part::MappedFiles, Part::Faults, Part::AdviceInForce, Part::Counters],
    thresholds: THRESHOLDS,
    trouble: "the mapping is populated one page at a time, because MADV_RANDOM is in force",
    remedies: &[&POPULATE_FIRST],
    alerts: true,
    gain: Gain::Waits,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Waits each second that no instruction caused; fewer may be chance.
    MANY: f64 = 100.0, PerSecond;
    /// Waits that no instruction caused, for each that one did, from which on they are what the program waits for.
    MOSTLY: u64 = 4, Times;
}

const POPULATE_FIRST: Remedy = Remedy {
    when: "",
    says: "populate first, advise after: madvise(p, n, MADV_NORMAL); madvise(p, n, MADV_POPULATE_READ); madvise(p, n, \
           MADV_RANDOM)",
    proof: Proof::Command("grep -FA25 {path} /proc/{pid}/smaps | grep VmFlags"),
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let (Some(faults), Some(counted)) = (&evidence.faults, evidence.counter("major_faults")) else { return Vec::new() };
    let unseen = counted.saturating_sub(faults.major + faults.lost);
    if evidence.rate(unseen) < MANY || unseen < MOSTLY * faults.major || faults.unfollowed > 0 {
        return Vec::new();
    }
    let random = evidence.data_files().filter_map(|file| Some((file, file.random_advice()?)));
    // The file with the calls that were seen; if the populated file is not known, the largest that fits.
    let Some((file, known)) = random.max_by_key(|(file, _)| (file.populate_calls, file.mapped_bytes())) else {
        return Vec::new();
    };
    let mut facts = vec![
        Fact::guessed("{unseen} waits for the device caused by the kernel (populate, mlock), {rate}/s")
            .count("unseen", unseen)
            .number("rate", evidence.rate(unseen), MeasureUnit::PerSecond),
        Fact::seen("{major} caused by instructions").count("major", faults.major),
        Fact::seen(known),
    ];
    if file.populate_calls > 0 {
        facts.push(Fact::seen("{calls} calls of MADV_POPULATE seen").count("calls", file.populate_calls));
    }
    vec![Case::of_file(file, Severity::Warning, &POPULATE_FIRST).facts(facts)]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{advise, count, healthy, only, worst};
    use super::*;
    use crate::watch::evidence::Deep;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        let mut evidence = healthy();
        count(&mut evidence, "major_faults", 30_000);
        (evidence.files[0].advised, evidence.files[0].mappings[0].deep) = (Some("MADV_RANDOM"), None);
        evidence
    }

    #[test]
    fn waits_by_no_instruction_under_random_advice_are_a_populate() {
        let mut evidence = healthy();
        count(&mut evidence, "major_faults", 30_000);
        assert_eq!(worst(&RULE, &evidence), None);

        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        assert!(only(&RULE, &evidence).evidence[0].to_string().contains("30000 waits"));
    }

    #[test]
    fn calls_that_were_seen_name_the_file_without_smaps() {
        let mut evidence = healthy();
        count(&mut evidence, "major_faults", 30_000);
        let file = &mut evidence.files[0];
        (file.advised, file.populate_calls) = (Some("MADV_RANDOM"), 7);
        file.mappings[0].deep = None;
        let mut larger = file.clone();
        (larger.path, larger.populate_calls) = ("/data/larger".to_owned(), 0);
        larger.mappings[0].vma.end += 1 << 30;
        evidence.files.push(larger);

        let found = only(&RULE, &evidence);

        assert_eq!(found.scope, "/data/table");
        assert_eq!(found.evidence[3], "7 calls of MADV_POPULATE seen");
    }

    /// A watch of 5 s, with MADV_RANDOM in force.
    fn waited(by_the_kernel: u64, by_instructions: u64) -> Evidence {
        let mut evidence = healthy();
        count(&mut evidence, "major_faults", by_the_kernel + by_instructions);
        evidence.faults.as_mut().unwrap().major = by_instructions;
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        evidence
    }

    #[test]
    fn fewer_than_100_waits_each_second_are_chance() {
        assert_eq!(worst(&RULE, &waited(499, 0)), None);
        assert_eq!(worst(&RULE, &waited(500, 0)), Some(Severity::Warning));
    }

    #[test]
    fn waits_by_instructions_must_be_a_quarter_at_most() {
        assert_eq!(worst(&RULE, &waited(4000, 1000)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &waited(3999, 1000)), None);
    }

    #[test]
    fn samples_that_were_lost_or_threads_that_were_not_followed_may_be_the_waits() {
        let mut evidence = waited(500, 0);
        evidence.faults.as_mut().unwrap().lost = 1;
        assert_eq!(worst(&RULE, &evidence), None);

        let mut evidence = waited(500, 0);
        evidence.faults.as_mut().unwrap().unfollowed = 1;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &waited(1000, 20));

        assert_eq!(
            found.evidence,
            [
                "1000 waits for the device caused by the kernel (populate, mlock), 200/s",
                "20 caused by instructions",
                "advice random in force (VmFlags rr)"
            ]
        );
    }

    #[test]
    fn a_single_call_that_was_seen_is_reported() {
        let mut evidence = waited(1000, 0);
        evidence.files[0].populate_calls = 1;

        assert_eq!(only(&RULE, &evidence).evidence[3], "1 calls of MADV_POPULATE seen");
    }
}
