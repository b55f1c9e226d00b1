//! The checks: a command each, and what it must have done.

use crate::record::{Answer, Outcome, Record};
use crate::tryout::Came;
use crate::tryout::exercise::memory_sum;
use serde_json::Value;
use std::collections::BTreeMap;

/// A check.
pub struct GuestCheck {
    /// Its name.
    pub name: &'static str,
    /// What works where it passes.
    pub says: &'static str,
    /// The words after the program's name. `FILE` is a file of 32 MiB that is not cached, `SELF` our program, `RECORDS` a file to be
    /// written.
    pub command: &'static str,
    /// Only cases that name it make it.
    pub is_special: bool,
    /// What it came to.
    pub judge: fn(&CommandSaid) -> Came,
}

/// What a command said and did.
#[derive(Debug, Default)]
pub struct CommandSaid {
    /// Its exit code; none where a signal ended it, or we did.
    pub code: Option<i32>,
    /// Whether it took too long and was ended.
    pub is_late: bool,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// The records that it wrote.
    pub records: Vec<Record>,
    /// What the kernel's counters (/proc/vmstat) grew by.
    pub grown: BTreeMap<String, u64>,
}

/// A check of one arm of `compare`.
macro_rules! arm {
    ($name:literal, $says:literal, $words:literal) => {
        GuestCheck {
            name: $name,
            says: $says,
            command: concat!(
                "compare --size 8m --number-ios 200 --runs 1 --memory none --no-peer --quiet --records RECORDS -m null ",
                $words
            ),
            is_special: false,
            judge: arms,
        }
    };
}

/// Memory that `run` is tried with, and its limit.
const BEYOND: u64 = 48 << 20;

/// Memory that fills a machine of 320 MiB.
const WHOLE: u64 = 352 << 20;

/// Every check.
pub const CHECKS: &[GuestCheck] = &[
    GuestCheck {
        name: "probe",
        says: "what is missing is told, each with a remedy",
        command: "probe --json",
        is_special: false,
        judge: probe,
    },
    arm!("mmap", "compare: mapped, right bytes", "-m mmap"),
    arm!("mmap-write", "compare: written through a mapping", "-m mmap --rw randwrite"),
    arm!("pread", "compare: read calls", "-m pread"),
    arm!("pread-write", "compare: write calls", "-m pread --rw randwrite"),
    arm!("direct", "compare: O_DIRECT", "-m direct"),
    arm!("uring", "compare: io_uring, O_DIRECT", "-m uring"),
    arm!("uring-cached", "compare: io_uring through the page cache", "-m uring:direct=off"),
    arm!("pool", "compare: our buffer pool", "-m pool:memory=4m"),
    arm!("uffd", "compare: pointers into our pool (userfaultfd)", "-m uffd:memory=4m"),
    GuestCheck {
        name: "limit",
        says: "compare within a memory limit",
        command: "compare --size 64m --number-ios 2000 --runs 1 --memory 24m --no-peer --quiet --records RECORDS -m null -m mmap",
        is_special: false,
        judge: limited,
    },
    GuestCheck {
        name: "run",
        says: "run: a program within half of its memory, helped",
        command: "run --json --memory 24m -- SELF kernel exercise memory 48m 3",
        is_special: false,
        judge: beyond,
    },
    GuestCheck {
        name: "doctor",
        says: "doctor: sees the faults of a process in its file",
        // Until the program ends: guests are slow.
        command: "doctor --for 60s --json -- SELF kernel exercise map FILE 64k 1000",
        is_special: false,
        judge: doctor,
    },
    GuestCheck {
        name: "trace",
        says: "trace: records page faults of a mapped file",
        command: "trace --force -o /tmp/tried.flt -- SELF kernel exercise map FILE 64k 0",
        is_special: false,
        judge: trace,
    },
    GuestCheck {
        name: "trace-calls",
        says: "trace: records read calls",
        command: "trace --force -o /tmp/tried.flt -- SELF kernel exercise read FILE 64k",
        is_special: false,
        judge: trace_calls,
    },
    GuestCheck {
        name: "assist",
        says: "assist: reads ahead of a strided program from outside",
        command: "assist --json -- SELF kernel exercise map FILE 64k 2000",
        is_special: false,
        judge: assist,
    },
    GuestCheck {
        name: "reproduce",
        says: "reproduce: a published claim",
        command: "reproduce S0.vectored --repetitions 1 --quiet --json --records RECORDS",
        is_special: false,
        judge: reproduce,
    },
    GuestCheck {
        name: "kswapd-swap",
        says: "a program of 352 MiB in a machine of 320 MiB is swapped by kswapd, and no page is lost",
        command: "kernel exercise memory 352m 1",
        is_special: true,
        judge: whole_machine,
    },
    GuestCheck {
        name: "kswapd-cache",
        says: "a file read through a mapping is evicted by kswapd; the record counts it",
        command: "compare --size 512m --rw read --bs 64k --number-ios 8192 --runs 1 --memory none --cache cold --no-peer --quiet \
                  --records RECORDS -m null -m mmap",
        is_special: true,
        judge: whole_cache,
    },
];

/// A sentence in which a facility is told as missing, with its remedy, as [`majorfault::Missing`] writes it.
fn told(text: &str) -> Option<(String, String)> {
    // Lines of a document say it of other parts.
    let is_told = |line: &&str| line.contains(" is not available here: ") && !line.trim_start().starts_with('"');
    let line = text.lines().find(is_told)?;
    let said = line.trim().trim_start_matches("majorfault: ").to_owned();
    let remedy = said.split_once("; ")?.1.to_owned();
    Some((said, remedy))
}

/// What a command that did not end well came to.
fn not_well(said: &CommandSaid) -> Came {
    if said.is_late {
        return Came::Broken("it did not end in time".to_owned());
    }
    match (said.code, told(&format!("{}\n{}", said.err, said.out))) {
        (Some(3 | 125), Some((said, remedy))) => Came::Lost { said, remedy },
        (code, _) => {
            let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            let last = said.err.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing said");
            Came::Broken(format!("{code}: {}", last.trim()))
        }
    }
}

fn works(found: impl Into<String>) -> Came {
    Came::Works { found: found.into(), without: Vec::new() }
}

fn document(said: &CommandSaid, text: &str) -> Result<Value, Came> {
    let at = text.find("{\n").ok_or_else(|| not_well(said))?;
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    values.next().and_then(Result::ok).ok_or_else(|| Came::Broken("its document is no JSON".to_owned()))
}

fn probe(said: &CommandSaid) -> Came {
    let document = match document(said, &said.out) {
        Ok(document) => document,
        Err(came) => return came,
    };
    let facilities = document["facilities"].as_array().cloned().unwrap_or_default();
    let text = |facility: &Value, name: &str| facility[name].as_str().unwrap_or_default().to_owned();
    let missing: Vec<&Value> = facilities.iter().filter(|it| it["here"] != Value::Bool(true)).collect();
    if let Some(bare) = missing.iter().find(|it| text(it, "remedy").is_empty()) {
        return Came::Broken(format!("{} is missing without a remedy: {}", text(bare, "name"), text(bare, "found")));
    }
    let sentence = |it: &&Value| {
        format!("{} is not available here: {}; {}", text(it, "name"), text(it, "found"), text(it, "remedy"))
    };
    let found = format!("{} of {} facilities", facilities.len() - missing.len(), facilities.len());
    match facilities.is_empty() {
        true => not_well(said),
        false => Came::Works { found, without: missing.iter().map(sentence).collect() },
    }
}

/// The records of the arms but the control, each of which must have had the right bytes.
fn right(said: &CommandSaid) -> Result<Vec<&Record>, Came> {
    let arms: Vec<&Record> = said.records.iter().filter(|record| !record.is_control()).collect();
    if let Some(Outcome::Missing(missing)) = arms.first().map(|record| &record.outcome) {
        let sentence = format!("{} is not available here: {}; {}", missing.what, missing.reason, missing.remedy);
        return Err(match missing.remedy.is_empty() {
            true => Came::Broken(format!("lost without a remedy: {sentence}")),
            false => Came::Lost { said: sentence, remedy: missing.remedy.clone() },
        });
    }
    let wrong = arms.iter().find(|record| record.outcome != Outcome::Done || record.answer != Answer::Checked);
    match wrong {
        Some(record) => Err(Came::Broken(format!("{}: {:?}, {:?}", record.trial.arm, record.outcome, record.answer))),
        None if arms.is_empty() || !matches!(said.code, Some(0 | 4)) => Err(not_well(said)),
        None => Ok(arms),
    }
}

fn arms(said: &CommandSaid) -> Came {
    match right(said) {
        Ok(arms) => works(format!("{} accesses", arms.iter().map(|record| record.accesses()).sum::<u64>())),
        Err(came) => came,
    }
}

fn limited(said: &CommandSaid) -> Came {
    match right(said) {
        Ok(arms) if arms.iter().any(|record| record.trial.memory_bytes.is_none()) => {
            Came::Broken("it ran without its limit, and did not say so".to_owned())
        }
        Ok(arms) => {
            works(format!("{} accesses within 24 MiB", arms.iter().map(|record| record.accesses()).sum::<u64>()))
        }
        Err(came) => came,
    }
}

fn number(value: &Value, at: &str) -> u64 {
    value.pointer(at).and_then(Value::as_u64).unwrap_or(0)
}

/// The remark of a run that there is no swap, with what to do.
fn no_swap(told: &Value) -> Option<Came> {
    let text = |remark: &Value, name: &str| remark[name].as_str().unwrap_or_default().to_owned();
    let remarks = told["remarks"].as_array()?;
    let remark = remarks.iter().find(|remark| text(remark, "found").starts_with("there is no swap"))?;
    let remedy = text(remark, "remedy");
    (!remedy.is_empty()).then(|| Came::Lost { said: format!("{}; {remedy}", text(remark, "found")), remedy })
}

fn beyond(said: &CommandSaid) -> Came {
    let told = document(said, &said.err);
    match (said.code, told.as_ref().ok().and_then(no_swap)) {
        (Some(0), _) => {}
        // The kernel killed it, as it was told beforehand.
        (Some(137), Some(lost)) => return lost,
        _ => return not_well(said),
    }
    let told = match told {
        Ok(told) => told,
        Err(came) => return came,
    };
    if !said.out.lines().any(|line| line == memory_sum(BEYOND, 3).to_string()) {
        return Came::Broken(format!("the program computed something else: {}", said.out.trim()));
    }
    let [swapped, fetched] = ["/most_swapped_bytes", "/advised/fetched_bytes"].map(|at| number(&told, at) >> 20);
    let without: Vec<String> =
        said.err.lines().filter(|line| line.contains("limited only, not helped")).map(str::to_owned).collect();
    match swapped {
        0..8 => Came::Broken(format!("only {swapped} MiB were swapped: it was not limited")),
        _ => Came::Works { found: format!("{swapped} MiB swapped, {fetched} MiB read ahead, same sum"), without },
    }
}

fn missing_of(document: &Value) -> Vec<String> {
    let sentence = |it: &Value| {
        let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        format!("{} is not available here: {}; {}", text("what"), text("reason"), text("remedy"))
    };
    document["missing"].as_array().into_iter().flatten().map(sentence).collect()
}

fn doctor(said: &CommandSaid) -> Came {
    let document = match document(said, &said.out) {
        Ok(document) if said.code == Some(0) => document,
        Ok(_) => return not_well(said),
        Err(came) => return came,
    };
    let missing = missing_of(&document);
    if let Some(bare) = missing.iter().find(|said| said.ends_with("; ")) {
        return Came::Broken(format!("lost without a remedy: {bare}"));
    }
    let is_ours = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with("/tried-data"));
    let file = document["files"].as_array().into_iter().flatten().find(is_ours);
    let faults = file.map_or(0, |file| number(file, "/faults"));
    match (faults, missing.iter().find(|said| said.contains("fault"))) {
        (300.., _) => Came::Works { found: format!("{faults} faults seen"), without: missing },
        (_, Some(lost)) => {
            let remedy = lost.rsplit_once("; ").map_or("", |(_, remedy)| remedy).to_owned();
            Came::Lost { said: lost.clone(), remedy }
        }
        _ => Came::Broken(format!("{faults} of 512 faults seen, and nothing said of it")),
    }
}

/// The accesses that a trace has of the file.
fn traced(said: &CommandSaid) -> u64 {
    let line = said.err.lines().find(|line| line.contains("/tried-data: "));
    let count = line.and_then(|line| line.split("/tried-data: ").nth(1)?.split(' ').next()?.parse().ok());
    count.unwrap_or(0)
}

/// What a watcher that could not begin said, though the program ran on.
fn watched(said: &CommandSaid, found: String, is_enough: bool) -> Came {
    let lost = told(&said.err);
    let without = said.err.lines().filter(|line| line.contains("only page faults are recorded")).map(str::to_owned);
    match (said.code, is_enough, lost) {
        (Some(0), true, _) => Came::Works { found, without: without.collect() },
        (Some(0), false, Some((said, remedy))) => Came::Lost { said, remedy },
        (Some(0), false, None) => Came::Broken(format!("{found}, and nothing said of it")),
        _ => not_well(said),
    }
}

fn trace(said: &CommandSaid) -> Came {
    let count = traced(said);
    watched(said, format!("{count} of 512 accesses"), count >= 300)
}

fn trace_calls(said: &CommandSaid) -> Came {
    let count = traced(said);
    watched(said, format!("{count} of 512 calls"), count >= 500)
}

fn assist(said: &CommandSaid) -> Came {
    // The outcome is on standard error, where the program was started by us.
    let Ok(document) = document(said, &said.err) else { return watched(said, "no outcome".to_owned(), false) };
    let is_ours = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with("/tried-data"));
    let file = document["files"].as_array().into_iter().flatten().find(is_ours);
    let [ahead, used] = ["/read_ahead_bytes", "/used_bytes"].map(|at| file.map_or(0, |file| number(file, at) >> 10));
    let near = file.and_then(|file| file["near_rows_unread"].as_str()).and_then(told);
    match near {
        Some((said, remedy)) if ahead == 0 => Came::Lost { said, remedy },
        _ => watched(said, format!("{ahead} KiB read ahead, {used} KiB used"), ahead > 0),
    }
}

fn reproduce(said: &CommandSaid) -> Came {
    let document = match document(said, &said.out) {
        Ok(document) if matches!(said.code, Some(0 | 3 | 4)) => document,
        Ok(_) => return not_well(said),
        Err(came) => return came,
    };
    let text = |name: &str| document["claims"][0][name].as_str().unwrap_or_default().to_owned();
    match (said.code, text("verdict"), text("reason")) {
        (_, verdict, _) if verdict.is_empty() => Came::Broken("no verdict came back".to_owned()),
        // What cannot be told here must be told with why.
        (Some(3), verdict, reason) if reason.is_empty() => Came::Broken(format!("{verdict}, and not why")),
        (_, verdict, _) if said.records.is_empty() => Came::Broken(format!("{verdict}, without a run")),
        (_, verdict, reason) if reason.is_empty() => works(format!("{} runs: {verdict}", said.records.len())),
        (_, verdict, reason) => works(format!("{} runs: {verdict}: {reason}", said.records.len())),
    }
}

/// Pages that kswapd took, and of all that were taken its share in per cent.
fn by_kswapd(grown: impl Fn(&str) -> u64) -> (u64, u64) {
    let kswapd = grown("pgsteal_kswapd");
    (kswapd, 100 * kswapd / (kswapd + grown("pgsteal_direct")).max(1))
}

fn whole_machine(said: &CommandSaid) -> Came {
    let grown = |name: &str| said.grown.get(name).copied().unwrap_or(0);
    let (pages, share) = by_kswapd(grown);
    match said.out.trim() == memory_sum(WHOLE, 1).to_string() {
        true if pages > 0 => {
            works(format!("kswapd took {pages} pages, {share} % of all; {} were swapped out", grown("pswpout")))
        }
        true => Came::Broken("kswapd took nothing".to_owned()),
        false => not_well(said),
    }
}

fn whole_cache(said: &CommandSaid) -> Came {
    let records = match right(said) {
        Ok(records) => records,
        Err(came) => return came,
    };
    let grown = |name: &str| records[0].growth(name);
    match grown("pgsteal_kswapd") {
        Some(pages) if pages > 0 => {
            let (pages, share) = by_kswapd(|name| grown(name).unwrap_or(0));
            works(format!("kswapd took {pages} pages, {share} % of all"))
        }
        Some(_) => Came::Broken("kswapd took nothing".to_owned()),
        None => Came::Broken("the record does not count what kswapd took".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    fn check(name: &str) -> &'static GuestCheck {
        CHECKS.iter().find(|check| check.name == name).unwrap()
    }

    fn came(name: &str, said: CommandSaid) -> Came {
        (check(name).judge)(&said)
    }

    fn record(answer: Answer, outcome: Outcome) -> Record {
        Record { answer, outcome, ..Run::of("mmap").record() }
    }

    fn of_records(records: Vec<Record>) -> CommandSaid {
        CommandSaid { code: Some(0), records, ..CommandSaid::default() }
    }

    #[test]
    fn a_loss_without_a_sentence_or_a_remedy_is_a_defect() {
        let ended = |code, err: &str| CommandSaid { code: Some(code), err: err.to_owned(), ..CommandSaid::default() };
        let told = "majorfault: io_uring is not available here: refused; set kernel.io_uring_disabled=0";

        let lost = Came::Lost {
            said: told.trim_start_matches("majorfault: ").to_owned(),
            remedy: "set kernel.io_uring_disabled=0".to_owned(),
        };
        assert_eq!(came("uring", ended(3, told)), lost);
        assert!(matches!(came("uring", ended(3, "majorfault: no")), Came::Broken(_)));
        assert!(matches!(came("uring", ended(3, "io_uring is not available here: refused")), Came::Broken(_)));
        assert!(matches!(came("uring", ended(101, told)), Came::Broken(_)));
        assert!(matches!(came("uring", CommandSaid { is_late: true, ..ended(3, told) }), Came::Broken(_)));
    }

    #[test]
    fn bytes_must_have_been_right() {
        let wrong = record(Answer::Wrong { first_offset: 0, count: 1 }, Outcome::Done);
        let good = || record(Answer::Checked, Outcome::Done);

        assert!(matches!(came("mmap", of_records(vec![good()])), Came::Works { .. }));
        assert!(matches!(came("mmap", of_records(vec![good(), wrong])), Came::Broken(_)));
        assert!(matches!(came("mmap", of_records(vec![])), Came::Broken(_)));
        assert!(matches!(
            came("mmap", of_records(vec![record(Answer::Checked, Outcome::Failed("EIO".into()))])),
            Came::Broken(_)
        ));
        assert!(matches!(came("mmap", CommandSaid { code: None, ..of_records(vec![good()]) }), Came::Broken(_)));
    }

    #[test]
    fn a_run_that_lost_its_limit_in_silence_is_found() {
        let mut free = record(Answer::Checked, Outcome::Done);
        free.trial.memory_bytes = None;
        let mut held = free.clone();
        held.trial.memory_bytes = Some(12 << 20);

        assert!(matches!(came("limit", of_records(vec![free])), Came::Broken(_)));
        assert!(matches!(came("limit", of_records(vec![held])), Came::Works { .. }));
    }

    #[test]
    fn a_program_beyond_memory_must_have_computed_the_same() {
        let told = |swapped: u64| {
            format!("{{\n\"most_swapped_bytes\": {}, \"advised\": {{\"fetched_bytes\": 9}}}}", swapped << 20)
        };
        let said = |sum: u64, swapped| CommandSaid {
            code: Some(0),
            out: format!("{sum}\n"),
            err: told(swapped),
            ..CommandSaid::default()
        };
        let sum = memory_sum(BEYOND, 3);

        assert!(matches!(came("run", said(sum, 20)), Came::Works { .. }));
        assert!(matches!(came("run", said(sum + 1, 20)), Came::Broken(_)));
        assert!(matches!(came("run", said(sum, 1)), Came::Broken(_)));

        let killed = |remark: &str| {
            let err = format!("{{\n\"remarks\": [{remark}]}}");
            came("run", CommandSaid { code: Some(137), err, ..CommandSaid::default() })
        };
        assert!(matches!(killed(r#"{"found": "there is no swap: it dies", "remedy": "make it"}"#), Came::Lost { .. }));
        assert!(matches!(killed(r#"{"found": "there is no swap: it dies", "remedy": ""}"#), Came::Broken(_)));
        assert!(matches!(killed(""), Came::Broken(_)));
    }

    #[test]
    fn faults_that_are_not_seen_must_be_told() {
        let said = |faults: u64, missing: &str| CommandSaid {
            code: Some(0),
            out: format!(
                "{{\n\"files\": [{{\"path\": \"/var/tmp/tried-data\", \"faults\": {faults}}}], \"missing\": [{missing}]}}"
            ),
            ..CommandSaid::default()
        };
        let missing = r#"{"what": "fault samples", "reason": "refused", "remedy": "be root"}"#;

        assert!(matches!(came("doctor", said(512, "")), Came::Works { .. }));
        assert!(matches!(came("doctor", said(0, missing)), Came::Lost { .. }));
        assert!(matches!(came("doctor", said(0, &missing.replace("be root", ""))), Came::Broken(_)));
        assert!(matches!(came("doctor", said(512, &missing.replace("be root", ""))), Came::Broken(_)));
        assert!(matches!(came("doctor", said(0, "")), Came::Broken(_)));
    }

    #[test]
    fn a_trace_without_accesses_must_say_why() {
        let said = |err: &str| CommandSaid { code: Some(0), err: err.to_owned(), ..CommandSaid::default() };
        let has = "  /var/tmp/tried-data: 512 by 1 threads, 2.00 MiB";
        let of_a_document = "  \"read_calls_unseen\": \"calls is not available here: no tracepoint; use Linux 6.12\"";
        let lacks = "majorfault: fault samples is not available here: refused; be root; the program runs, but nothing is recorded";

        assert!(matches!(came("trace", said(has)), Came::Works { .. }));
        assert!(matches!(came("trace", said(lacks)), Came::Lost { .. }));
        assert!(matches!(came("trace", said("")), Came::Broken(_)));
        assert!(matches!(came("trace", said(of_a_document)), Came::Broken(_)));
    }

    #[test]
    fn rows_that_assist_leaves_alone_must_be_told_with_a_remedy() {
        let said = |near: &str| CommandSaid {
            code: Some(0),
            err: format!(
                "{{\n\"files\": [{{\"path\": \"/var/tmp/tried-data\", \"read_ahead_bytes\": 0, \"used_bytes\": 0, \"near_rows_unread\": {near}}}]}}"
            ),
            ..CommandSaid::default()
        };

        assert!(matches!(
            came("assist", said(r#""rows is not available here: old; use Linux 6.5""#)),
            Came::Lost { .. }
        ));
        assert!(matches!(came("assist", said(r#""rows is not available here: old""#)), Came::Broken(_)));
        assert!(matches!(came("assist", said("null")), Came::Broken(_)));
    }

    #[test]
    fn a_claim_that_cannot_be_told_says_why() {
        let said = |code, verdict: &str, reason: &str| CommandSaid {
            code: Some(code),
            out: format!("{{\n\"claims\": [{{\"verdict\": \"{verdict}\", \"reason\": \"{reason}\"}}]}}"),
            records: vec![record(Answer::Checked, Outcome::Done)],
            ..CommandSaid::default()
        };
        let found = |said| match came("reproduce", said) {
            Came::Works { found, .. } => found,
            other => format!("{other:?}"),
        };

        assert_eq!(found(said(0, "holds", "")), "1 runs: holds");
        assert_eq!(found(said(3, "not told", "emulated")), "1 runs: not told: emulated");
        assert!(matches!(came("reproduce", said(3, "not told", "")), Came::Broken(_)));
        assert!(matches!(came("reproduce", said(1, "holds", "")), Came::Broken(_)));
        assert!(matches!(came("reproduce", CommandSaid { records: vec![], ..said(0, "holds", "") }), Came::Broken(_)));
    }

    #[test]
    fn a_facility_without_a_remedy_is_a_defect() {
        let said = |remedy: &str| CommandSaid {
            code: Some(0),
            out: format!(
                "{{\n\"facilities\": [{{\"name\": \"a\", \"here\": false, \"found\": \"b\", \"remedy\": \"{remedy}\"}}]}}"
            ),
            ..CommandSaid::default()
        };

        assert!(matches!(came("probe", said("be root")), Came::Works { .. }));
        assert!(matches!(came("probe", said("")), Came::Broken(_)));
    }

    #[test]
    fn every_command_can_be_read() {
        for check in CHECKS {
            assert!(CHECKS.iter().filter(|other| other.name == check.name).count() == 1, "{}", check.name);
        }
    }
}
