//! Forking with much writable memory: the page tables are copied while all threads wait, and every page written afterwards
//! faults once more.

use crate::doctor::fact::{Fact, MeasureUnit};
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::Evidence;

pub(super) const RULE: Rule = Rule {
    name: "fork_large",
    summary: "a process with much writable memory forks and pays for copy-on-write",
    looks_at: &[Part::Faults, Part::Status],
    thresholds: THRESHOLDS,
    trouble: "the process forks with much writable memory",
    remedies: &[&SPAWN],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Anonymous memory that makes a fork noticeable: some 10 ms for each GiB to copy the tables.
    MUCH: u64 = 256 << 20, Bytes;
    /// Faults in anonymous memory after each fork; fewer mean vfork or posix_spawn, which copy nothing.
    COPIES: u64 = 256, Count;
}

const SPAWN: Remedy = Remedy {
    when: "",
    says: "posix_spawn or vfork + exec instead of fork; or madvise(p, n, MADV_DONTFORK) for what the child does not need \
           (Redis: fewer save lines, huge pages off)",
    proof: Proof::Command("perf stat -e minor-faults,page-faults -p {pid} -- sleep 5"),
    symptom: None,
    backing: Backing::Try,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(faults) = &evidence.faults else { return Vec::new() };
    let anonymous = evidence.process.anonymous_bytes;
    if faults.forks == 0 || anonymous < MUCH || faults.anonymous < COPIES * faults.forks {
        return Vec::new();
    }
    let each = faults.anonymous as f64 / faults.forks as f64;
    let facts = vec![
        Fact::seen("{forks} forks in {watched}")
            .count("forks", faults.forks)
            .nanos("watched", evidence.watched.as_nanos() as u64),
        Fact::seen("{anonymous} of anonymous memory").bytes("anonymous", anonymous),
        Fact::seen("{faults} faults in it, {each} after each fork").count("faults", faults.anonymous).number(
            "each",
            each,
            MeasureUnit::Count,
        ),
    ];
    vec![Case::of("process", Severity::Warning, &SPAWN).facts(facts)]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        forking(4, 2048, 1 << 30)
    }

    #[test]
    fn forks_with_copies_are_found_and_spawns_are_not() {
        let mut evidence = healthy();
        evidence.process.anonymous_bytes = 2 << 30;
        let faults = evidence.faults.as_mut().unwrap();
        (faults.forks, faults.anonymous) = (3, 30_000);
        assert!(only(&RULE, &evidence).evidence[2].to_string().contains("10000 after each"));

        evidence.faults.as_mut().unwrap().anonymous = 100;
        assert_eq!(worst(&RULE, &evidence), None);
    }

    fn forking(forks: u64, faults_in_memory: u64, anonymous_bytes: u64) -> Evidence {
        let mut evidence = healthy();
        evidence.process.anonymous_bytes = anonymous_bytes;
        let faults = evidence.faults.as_mut().unwrap();
        (faults.forks, faults.anonymous) = (forks, faults_in_memory);
        evidence
    }

    #[test]
    fn less_than_256_mib_is_not_felt() {
        assert_eq!(worst(&RULE, &forking(1, 1000, (256 << 20) - 1)), None);
        assert_eq!(worst(&RULE, &forking(1, 1000, 256 << 20)), Some(Severity::Warning));
    }

    #[test]
    fn fewer_than_256_faults_after_each_fork_are_no_copies() {
        assert_eq!(worst(&RULE, &forking(4, 1023, 1 << 30)), None);
        assert_eq!(worst(&RULE, &forking(4, 1024, 1 << 30)), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &forking(0, 1024, 1 << 30)), None);
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &forking(4, 2048, 1 << 30));

        assert_eq!(
            found.evidence,
            ["4 forks in 5s", "1.00 GiB of anonymous memory", "2048 faults in it, 512 after each fork"]
        );
        assert_eq!(found.proof, "perf stat -e minor-faults,page-faults -p 77 -- sleep 5");
    }
}
