//! MADV_WILLNEED, POSIX_FADV_WILLNEED or readahead(2) for more than the kernel reads in one call: it silently cuts the range
//! (force_page_cache_ra, mm/readahead.c), and faults or read calls read the rest later.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, Subject, thresholds};
use crate::watch::evidence::{Evidence, WillNeed};
use majorfault::Bytes;

pub(super) const RULE: Rule = Rule {
    name: "will_need_cap",
    summary: "WILLNEED asks for more than the kernel reads in one call: the kernel silently cuts the range",
    looks_at: &[Part::AdviceCalls],
    thresholds: THRESHOLDS,
    trouble: "WILLNEED asks for {longest}, but the kernel silently reads only the first {cap}",
    remedies: &[&OF_MAPPING, &BY_READAHEAD, &OF_FILE],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[&super::read_ahead_flood::RULE, &super::fault_stall::RULE],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Share of the file that the longest call asked for, from which on what is waited for later is what it was to bring.
    MOST: f64 = 0.5, Share;
}

const PROOF: Proof = Proof::Command("majorfault reproduce S2 # claim S2.willneed");

const OF_MAPPING: Remedy = Remedy {
    when: "by madvise",
    says: "ask in pieces: for (at = 0; at < n; at += {piece}) madvise(p + at, min({piece}, n - at), MADV_WILLNEED); or \
           madvise(p + at, window, MADV_POPULATE_READ) of windows, which reads all and returns errors (Linux 5.14)",
    proof: PROOF,
    symptom: None,
    backing: Backing::Decided,
};

const BY_READAHEAD: Remedy = Remedy {
    when: "by readahead",
    says: "ask in pieces: for (at = 0; at < n; at += {piece}) readahead(fd, offset + at, min({piece}, n - at))",
    proof: PROOF,
    symptom: None,
    backing: Backing::Decided,
};

const OF_FILE: Remedy = Remedy {
    when: "by posix_fadvise",
    says: "ask in pieces: for (at = 0; at < n; at += {piece}) posix_fadvise(fd, offset + at, min({piece}, n - at), \
           POSIX_FADV_WILLNEED)",
    proof: PROOF,
    symptom: None,
    backing: Backing::Decided,
};

fn look(evidence: &Evidence) -> Vec<Case> {
    let Some(advice) = &evidence.advice else { return Vec::new() };
    let cut = advice.will_need.iter().filter(|asked| asked.beyond_cap > 0 && !is_all_there(evidence, asked));
    cut.filter_map(|asked| Some(Case { is_cause: is_cause(evidence, asked), ..case(asked)? })).collect()
}

/// What is cached already costs nothing to ask for.
fn is_all_there(evidence: &Evidence, asked: &WillNeed) -> bool {
    let waits = evidence.files.iter().any(|file| file.id == asked.id && file.waits > 0);
    !waits && asked.cached_bytes.zip(asked.size_bytes).is_some_and(|(cached, size)| cached >= size)
}

/// Whether the waits for the file are for what was asked for and cut: most of it, and memory has room for that.
fn is_cause(evidence: &Evidence, asked: &WillNeed) -> bool {
    let is_most = asked.size_bytes.is_some_and(|size| asked.longest_bytes as f64 >= size as f64 * MOST);
    is_most && evidence.room_bytes().is_some_and(|room| asked.longest_bytes <= room)
}

fn case(asked: &WillNeed) -> Option<Case> {
    let (cap_bytes, read_ahead_kb, request_kb) = (asked.cap_bytes()?, asked.read_ahead_kb?, asked.largest_request_kb?);
    let [longest, cap] = [asked.longest_bytes, cap_bytes].map(|it| Bytes(it).rounded());
    let mut facts = vec![
        Fact::seen("{beyond} of {calls} calls ask for more than {cap}")
            .count("beyond", asked.beyond_cap)
            .count("calls", asked.calls)
            .bytes("cap", cap_bytes),
        Fact::seen("longest {longest}, median {median} ({advice})")
            .bytes("longest", asked.longest_bytes)
            .bytes("median", asked.median_bytes)
            .word("advice", asked.advice),
        Fact::seen("read_ahead_kb {read_ahead}, largest request of the device {request} KiB (max_sectors_kb)")
            .count("read_ahead", read_ahead_kb)
            .count("request", request_kb),
    ];
    if let (Some(cached), Some(size)) = (asked.cached_bytes, asked.size_bytes) {
        facts.push(Fact::seen("{cached} of {size} cached at the end").bytes("cached", cached).bytes("size", size));
    }
    let remedy = match asked.advice {
        "MADV_WILLNEED" => &OF_MAPPING,
        "readahead" => &BY_READAHEAD,
        _ => &OF_FILE,
    };
    let subject = Subject { file: Some(asked.id), name: asked.path.clone(), ..Subject::default() };
    let case = Case { subjects: vec![subject], ..Case::of(&asked.path, Severity::Warning, remedy) }.facts(facts);
    Some(case.figure("longest", longest).figure("cap", cap).figure("piece", cap_bytes))
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only, worst};
    use super::*;
    use crate::watch::evidence::AdviceSeen;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        asking(|_| ())
    }

    /// The healthy program asks for its file, 1 GiB, of which 8 MiB are read.
    fn asking(spoil: impl FnOnce(&mut WillNeed)) -> Evidence {
        let mut evidence = healthy();
        let mut asked = WillNeed {
            id: evidence.files[0].id,
            path: "/data/table".to_owned(),
            advice: "MADV_WILLNEED",
            calls: 3,
            longest_bytes: 1 << 30,
            median_bytes: 4 << 20,
            beyond_cap: 1,
            read_ahead_kb: Some(128),
            largest_request_kb: Some(8192),
            size_bytes: Some(1 << 30),
            cached_bytes: Some(8 << 20),
        };
        spoil(&mut asked);
        evidence.advice = Some(AdviceSeen { will_need: vec![asked], ..AdviceSeen::default() });
        evidence
    }

    #[test]
    fn a_call_for_more_than_the_cap_is_found_with_the_cap() {
        let found = only(&RULE, &asking(|_| ()));

        assert_eq!(found.what, "WILLNEED asks for 1.00 GiB, but the kernel silently reads only the first 8.00 MiB");
        assert_eq!(found.evidence[0], "1 of 3 calls ask for more than 8.00 MiB");
        assert!(found.remedy.contains("at += 8388608) madvise(p + at"), "{}", found.remedy);
        assert_eq!(found.severity, Severity::Warning);
    }

    /// Seen with numpy: WILLNEED for a file of 512 MiB, and then the waits for the rest of it stood first.
    #[test]
    fn it_explains_the_waits_for_what_was_cut_where_most_was_asked_for_and_fits() {
        let rules = |longest_bytes, limit_bytes| {
            let mut evidence = asking(|asked| asked.longest_bytes = longest_bytes);
            (evidence.files[0].waits, evidence.files[0].waited_ns, evidence.files[0].major) =
                (1000, 15_000_000_000, 1000);
            evidence.group.as_mut().unwrap().limit_bytes = Some(limit_bytes);
            crate::doctor::examine(&[evidence]).into_iter().map(|found| found.rule).collect::<Vec<_>>()
        };
        let room = (1 << 30) + (200 << 20);

        assert_eq!(rules(1 << 30, room), ["will_need_cap"]);
        assert_eq!(rules(1 << 29, room), ["will_need_cap"]);
        assert_eq!(rules((1 << 29) - 1, room).len(), 2, "less than half");
        assert_eq!(rules(1 << 30, room - 1).len(), 2, "it would not stay");
    }

    #[test]
    fn it_is_about_the_file_that_was_asked_for() {
        let evidence = asking(|_| ());

        let found = only(&RULE, &evidence);

        let names: Vec<&str> = found.subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!((names, found.file), (vec!["/data/table"], Some(evidence.files[0].id)));
    }

    #[test]
    fn the_remedy_names_the_call_that_was_made() {
        let remedy = |advice| only(&RULE, &asking(|asked| asked.advice = advice)).remedy;

        assert!(remedy("POSIX_FADV_WILLNEED").contains("posix_fadvise(fd, offset + at"));
        assert!(remedy("readahead").contains("readahead(fd, offset + at"));
    }

    #[test]
    fn pieces_below_the_cap_and_devices_without_a_known_one_are_silent() {
        assert!(look(&asking(|asked| asked.beyond_cap = 0)).is_empty());
        assert!(look(&asking(|asked| asked.largest_request_kb = None)).is_empty());
    }

    #[test]
    fn a_file_that_is_cached_as_a_whole_is_silent_unless_its_faults_wait() {
        let mut evidence = asking(|asked| asked.cached_bytes = asked.size_bytes);
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].waits = 5;
        assert_eq!(look(&evidence).len(), 1);
    }

    #[test]
    fn without_the_tracepoints_the_rule_is_silent() {
        assert!(look(&healthy()).is_empty());
    }

    #[test]
    fn a_file_of_which_one_byte_is_missing_is_not_there() {
        assert_eq!(worst(&RULE, &asking(|asked| asked.cached_bytes = Some((1 << 30) - 1))), Some(Severity::Warning));
        assert_eq!(worst(&RULE, &asking(|asked| asked.cached_bytes = None)), Some(Severity::Warning));
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &asking(|_| ()));

        assert_eq!(
            found.evidence,
            [
                "1 of 3 calls ask for more than 8.00 MiB",
                "longest 1.00 GiB, median 4.00 MiB (MADV_WILLNEED)",
                "read_ahead_kb 128, largest request of the device 8192 KiB (max_sectors_kb)",
                "8.00 MiB of 1.00 GiB cached at the end"
            ]
        );
    }

    #[test]
    fn the_cap_is_the_larger_of_window_and_request() {
        let found = only(&RULE, &asking(|asked| asked.read_ahead_kb = Some(16_384)));

        assert!(found.what.contains("only the first 16.0 MiB"), "{}", found.what);
        assert!(found.remedy.contains("at += 16777216) madvise(p + at, min(16777216, n - at)"), "{}", found.remedy);
    }

    #[test]
    fn one_wait_in_another_file_says_nothing_of_a_cached_one() {
        let mut evidence = asking(|asked| asked.cached_bytes = asked.size_bytes);
        let other = crate::watch::evidence::MappedFile { waits: 1, ..Default::default() };
        evidence.files.push(other);
        assert_eq!(worst(&RULE, &evidence), None);

        evidence.files[0].waits = 1;
        assert_eq!(worst(&RULE, &evidence), Some(Severity::Warning));
    }
}
