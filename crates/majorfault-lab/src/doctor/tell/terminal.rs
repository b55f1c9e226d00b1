//! One screen of text: the process, the files with their faults, the findings; never wider than 100 columns.

use super::json::advice;
use crate::doctor::fact::Certainty;
use crate::doctor::rule::{Backing, Subject};
use crate::doctor::{Finding, Severity};
use crate::watch::evidence::{Evidence, FaultCounts, MappedFile, ReadFile};
use crate::watch::order::words;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use majorfault::observe::pattern::{Pattern, Recognised};
use majorfault::{Bytes, Nanos};
use std::io::{self, Write};

/// Columns of the widest line.
const WIDTH: usize = 100;

/// Files that are listed.
pub(super) const MOST_FILES: usize = 6;

/// Files and processes that are listed below a finding.
const MOST_SUBJECTS: usize = 5;

/// Error of what was waited from which on it is told.
const TOLD: f64 = 0.1;

/// Head of the table of files.
pub(super) const COLUMNS: [&str; 6] = ["file", "size", "cached", "faults", "waited", "order of faults"];

/// Head of the table of files that calls read.
const READ_COLUMNS: [&str; 6] = ["read by calls", "size", "cached", "calls", "mean", "order of calls"];

/// Calls from which on a file that is read is listed.
const FEWEST_READS: u64 = 16;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Writes the report.
///
/// Errors: those of `out`.
pub fn print(evidence: &Evidence, findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    head(evidence, out)?;
    files(evidence, out)?;
    read_files(evidence, out)?;
    for finding in findings {
        writeln!(out)?;
        print_finding(finding, out)?;
    }
    if findings.is_empty() {
        let seen = if evidence.faults.is_some() { "" } else { " in what could be seen" };
        writeln!(out, "\n{GREEN}Nothing found{seen}.{PLAIN}")?;
    }
    gaps(evidence, out)
}

fn head(evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let Evidence { target, watched, .. } = evidence;
    let watched_ns = Nanos(watched.as_nanos() as u64);
    let command = shortened(&target.command, 60);
    wrapped(out, "", &format!("{} ({}) watched for {watched_ns}: {command}", target.name, target.pid), BOLD)?;
    wrapped(out, "", &process_facts(evidence).join(" · "), DIM)?;
    match fault_facts(evidence) {
        Some(facts) => wrapped(out, "", &facts.join(" · "), DIM),
        None => Ok(()),
    }
}

/// The process in a few words.
pub(super) fn process_facts(evidence: &Evidence) -> Vec<String> {
    let process = &evidence.process;
    let mut facts = vec![
        format!("threads {}", process.threads),
        format!("resident {}", Bytes(process.resident_bytes).rounded()),
        format!("anonymous {}", Bytes(process.anonymous_bytes).rounded()),
        format!("page tables {}", Bytes(process.page_table_bytes).rounded()),
        format!("mappings {}", process.mappings),
    ];
    if let Some(limit) = evidence.group.as_ref().and_then(|group| group.limit_bytes) {
        let usage = evidence.counter("cgroup_usage_bytes").map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
        facts.push(format!("cgroup {usage} of {}", Bytes(limit).rounded()));
    }
    facts
}

/// The faults of the process in a few words, where they could be seen.
pub(super) fn fault_facts(evidence: &Evidence) -> Option<Vec<String>> {
    let faults = evidence.faults.as_ref()?;
    let mut facts = vec![
        format!("faults {} ({:.0}/s)", faults.seen, evidence.rate(faults.seen)),
        format!("in files {}", faults.in_files),
        waits(faults),
    ];
    for (count, what) in [
        (faults.lost, "lost"),
        (faults.unresolved, "at unknown addresses"),
        (faults.unfollowed as u64, "threads not followed"),
    ] {
        if count > 0 {
            facts.push(format!("{count} {what}"));
        }
    }
    Some(facts)
}

/// How often and how long they waited, with the error where that is estimated.
fn waits(faults: &FaultCounts) -> String {
    let told = format!("{} times, {}", faults.waits, Nanos(faults.waited_ns));
    match faults.waited_error.filter(|error| *error > TOLD) {
        Some(error) if error >= 1.0 => format!("waited about {told} (too few seen to be sure)"),
        Some(error) => format!("waited about {told} (+-{:.0} %)", 100.0 * error),
        None => format!("waited {told}"),
    }
}

/// The files worth a row: files with faults, and large ones.
pub(super) fn listed(evidence: &Evidence) -> Vec<&MappedFile> {
    let large = |file: &&MappedFile| file.faults > 0 || file.mapped_bytes() >= 16 << 20;
    evidence.data_files().filter(large).collect()
}

fn files(evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let row = |file: &&MappedFile| [vec![shortened(&safe(&file.label()), 36)], cells(file)].concat();
    rows(COLUMNS, listed(evidence).iter().map(row).collect(), out)
}

/// The first rows of a table, if there are any: names, four columns of figures, words.
fn rows(columns: [&str; 6], rows: Vec<Vec<String>>, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
    let left_out = rows.len().saturating_sub(MOST_FILES);
    table.set_header(columns).add_rows(rows.into_iter().take(MOST_FILES));
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    if left_out > 0 {
        writeln!(out, "{DIM} and {left_out} more (--json has all){PLAIN}")?;
    }
    Ok(())
}

/// The files that calls read often, those with a name.
fn read_files(evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let is_worth_it = |file: &&ReadFile| file.calls >= FEWEST_READS && !file.path.is_empty();
    rows(READ_COLUMNS, evidence.reads.iter().filter(is_worth_it).map(read_cells).collect(), out)
}

/// The values of [`READ_COLUMNS`] for a file.
fn read_cells(file: &ReadFile) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
    vec![
        shortened(&safe(&file.path), 36),
        bytes(file.size_bytes),
        bytes(file.cached_bytes),
        file.calls.to_string(),
        Bytes(file.bytes / file.calls.max(1)).rounded(),
        file.order.as_ref().map_or("–".to_owned(), order),
    ]
}

/// The values of [`COLUMNS`] for a file, after its name.
pub(super) fn cells(file: &MappedFile) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
    let mut order = file.order.as_ref().map_or("–".to_owned(), order);
    if let Some(came) = file.came_bytes {
        order = format!("not seen; {} read into the cache", Bytes(came).rounded());
    }
    if let Some(advice) = advice(file).filter(|advice| *advice != "normal") {
        order = format!("{order}; advice {advice}");
    }
    vec![
        bytes(file.size_bytes),
        bytes(file.cached_bytes),
        file.faults.to_string(),
        Nanos(file.waited_ns).to_string(),
        order,
    ]
}

/// The order in words, with its confidence.
pub(super) fn order(order: &Recognised) -> String {
    let name = words(order.pattern);
    match order.pattern {
        Pattern::Unknown => name,
        _ => format!("{name} ({:.0} %)", order.confidence * 100.0),
    }
}

fn print_finding(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let colour = match finding.severity {
        Severity::Critical => RED,
        Severity::Warning => YELLOW,
        Severity::Note => BOLD,
    };
    let word = finding.severity.word();
    wrapped(out, "", &format!("{word}: {} [{}: {}]", finding.what, finding.rule, finding.scope), colour)?;
    wrapped(out, "  ", &evidence(finding), "")?;
    for subject in subjects(finding) {
        wrapped(out, "  - ", &subject, "")?;
    }
    for consequence in consequences(finding) {
        wrapped(out, "  ", &consequence, "")?;
    }
    wrapped(out, "  → ", &remedy(finding), BOLD)?;
    wrapped(out, "  $ ", &finding.proof, DIM)
}

/// The evidence as a sentence; what is inferred is marked.
pub(super) fn evidence(finding: &Finding) -> String {
    let told = finding.evidence.iter().map(|fact| match fact.source {
        Certainty::Seen => fact.to_string(),
        Certainty::Guessed => format!("~{fact}"),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The files and processes below a finding, where there is more than one: the worst, and how many more.
pub(super) fn subjects(finding: &Finding) -> Vec<String> {
    if finding.subjects.len() < 2 {
        return Vec::new();
    }
    let told = |subject: &Subject| match subject.says.as_str() {
        "" => subject.name.clone(),
        says => format!("{}: {says}", subject.name),
    };
    let more = finding.subjects.len().saturating_sub(MOST_SUBJECTS);
    let more = (more > 0).then(|| format!("and {more} more"));
    finding.subjects.iter().take(MOST_SUBJECTS).map(told).chain(more).collect()
}

/// What the finding explains, a line for each.
pub(super) fn consequences(finding: &Finding) -> Vec<String> {
    finding.consequences.iter().map(|it| format!("this explains: {} [{}]", it.what, it.rule)).collect()
}

/// The remedy with what it rests on: what nobody has measured and nothing decides is to be tried.
pub(super) fn remedy(finding: &Finding) -> String {
    let most = finding.gain_at_most.map(|gain| format!("the program gains {gain:.1} x at most"));
    let (word, known) = match finding.backing {
        Backing::Decided => ("", None),
        Backing::Try => ("try: ", Some("the command below tells whether it helps".to_owned())),
        Backing::Measured(times) if times < 1.0 => {
            ("not: ", Some(format!("a replay of its accesses was {times:.1} x as fast, which is slower")))
        }
        Backing::Measured(times) => ("", Some(format!("a replay of its accesses was {times:.1} x as fast"))),
    };
    let notes: Vec<String> = known.into_iter().chain(most).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("{word}{}{notes}", finding.remedy)
}

/// Writes the results of replays.
///
/// Errors: those of `out`.
pub fn print_proofs(sentences: &[String], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if sentences.is_empty() {
        writeln!(out, "{DIM}No finding can be proven by replaying accesses.{PLAIN}")?;
    }
    sentences.iter().try_for_each(|sentence| wrapped(out, "proof: ", sentence, ""))
}

fn gaps(evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let Some((first, others)) = evidence.missing.split_first() else { return Ok(()) };
    writeln!(out)?;
    if evidence.faults.is_none() {
        wrapped(out, "not seen: ", &format!("{} ({}); {}", first.what, first.reason, first.remedy), YELLOW)?;
    }
    let count = others.len() + usize::from(evidence.faults.is_some());
    if count > 0 {
        writeln!(
            out,
            "{DIM}{count} sources of counters are not available; reasons: --json, or majorfault probe.{PLAIN}"
        )?;
    }
    Ok(())
}

/// Control characters as spaces: a file name must not move the cursor.
pub(super) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The end of a long text, as the end tells files apart.
fn shortened(text: &str, room: usize) -> String {
    let count = text.chars().count();
    match count > room {
        true => format!("…{}", text.chars().skip(count - room + 1).collect::<String>()),
        false => text.to_owned(),
    }
}

fn wrapped(out: &mut dyn Write, sign: &str, text: &str, style: &str) -> io::Result<()> {
    let room = WIDTH - sign.chars().count();
    let mut sign = sign.to_owned();
    let mut line = String::new();
    let clean = safe(text);
    for word in clean.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            writeln!(out, "{sign}{style}{line}{PLAIN}")?;
            sign = " ".repeat(sign.chars().count());
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&shortened(word, room));
    }
    writeln!(out, "{sign}{style}{line}{PLAIN}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Consequence;
    use crate::doctor::fact::Fact;
    use crate::watch::evidence::Evidence;
    use crate::watch::scenes::{advise, healthy, order as in_order, with_file};
    use majorfault::Missing;

    fn said(evidence: &Evidence, findings: &[Finding]) -> String {
        let mut out = Vec::new();
        print(evidence, findings, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        [BOLD, DIM, RED, GREEN, YELLOW, PLAIN].iter().fold(text, |text, style| text.replace(style, ""))
    }

    fn wrapped_lines(sign: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        wrapped(&mut out, sign, text, "").unwrap();
        String::from_utf8(out).unwrap().replace(PLAIN, "").lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_process_is_shown_with_figures_and_units() {
        let said = said(&healthy(), &[]);

        let lines: Vec<&str> = said.lines().take(4).collect();
        assert_eq!(
            lines,
            [
                "program (77) watched for 5s: program data",
                "threads 4 · resident 2.00 GiB · anonymous 200 MiB · page tables 5.00 MiB · mappings 120 · cgroup",
                "3.00 GiB of 8.00 GiB",
                "faults 1000 (200/s) · in files 900 · waited 0 times, 0ns"
            ]
        );
        assert!(said.ends_with("\nNothing found.\n"), "{said}");
    }

    #[test]
    fn where_faults_cannot_be_seen_nothing_found_is_said_of_what_could() {
        let mut evidence = healthy();
        evidence.faults = None;
        evidence.missing = vec![Missing::new("faults", "refused", "be root"), Missing::new("a counter", "absent", "")];

        let said = said(&evidence, &[]);

        assert!(said.contains("Nothing found in what could be seen."), "{said}");
        assert!(said.contains("not seen: faults (refused); be root"), "{said}");
        assert!(said.contains("1 sources of counters are not available"), "{said}");
    }

    #[test]
    fn every_gap_is_counted_where_faults_are_seen() {
        let mut evidence = healthy();
        assert!(!said(&evidence, &[]).contains("sources of counters"));

        evidence.missing = vec![Missing::new("a counter", "absent", "")];
        let said = said(&evidence, &[]);
        assert!(said.contains("1 sources of counters are not available") && !said.contains("not seen:"), "{said}");
    }

    #[test]
    fn what_is_lost_unknown_or_not_followed_is_reported_where_there_is_some() {
        let mut evidence = healthy();
        let faults = evidence.faults.as_mut().unwrap();
        (faults.lost, faults.unresolved, faults.unfollowed) = (1, 2, 3);

        assert_eq!(
            fault_facts(&evidence).unwrap()[3..],
            ["1 lost", "2 at unknown addresses", "3 threads not followed"]
        );
    }

    #[test]
    fn files_that_calls_read_often_are_listed_with_the_order_of_the_calls() {
        let mut evidence = healthy();
        let order = Some(Recognised { pattern: Pattern::Random, confidence: 0.9, threads: 1, repeats: 0 });
        let file = |path: &str, calls| ReadFile {
            path: path.to_owned(),
            size_bytes: Some(1 << 30),
            calls,
            bytes: calls * 8192,
            order,
            ..ReadFile::default()
        };
        evidence.reads = vec![file("/data/often", 16), file("/data/seldom", 15), file("", 99)];

        let text = said(&evidence, &[]);

        let line = text.lines().find(|line| line.contains("/data/often")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[1..].join(" "), "1.00 GiB ? 16 8.00 KiB random (90 %)");
        assert!(text.contains("order of calls") && !text.contains("seldom"), "{text}");
        assert!(!said(&healthy(), &[]).contains("order of calls"));
    }

    #[test]
    fn six_files_are_listed_and_more_are_counted() {
        let with = |count| {
            let mut evidence = healthy();
            evidence.files = vec![evidence.files[0].clone(); count];
            said(&evidence, &[])
        };

        assert_eq!(with(6).matches("/data/table").count(), 6);
        assert!(!with(6).contains("more (--json has all)"));
        assert_eq!(with(8).matches("/data/table").count(), 6);
        assert!(with(8).contains(" and 2 more (--json has all)"));
    }

    #[test]
    fn files_with_a_fault_or_16_mib_mapped_are_listed() {
        let is_listed = |faults, bytes| {
            let evidence = with_file(|file| {
                file.faults = faults;
                file.mappings[0].vma.end = file.mappings[0].vma.start + bytes;
            });
            listed(&evidence).len() == 1
        };

        assert!(is_listed(1, 4096) && is_listed(0, 16 << 20));
        assert!(!is_listed(0, (16 << 20) - 1));
    }

    #[test]
    fn the_row_of_a_file_has_its_figures_and_its_order() {
        let mut evidence = with_file(|file| {
            (file.cached_bytes, file.waited_ns) = (None, 1_500_000);
            file.order = Some(in_order(Pattern::Strided(-4096)));
        });
        assert_eq!(cells(&evidence.files[0]), ["1.00 GiB", "?", "900", "1.5ms", "stride 4.00 KiB backward (95 %)"]);

        advise(&mut evidence, crate::watch::evidence::Deep { sequential: true, ..Default::default() });
        evidence.files[0].came_bytes = Some(1 << 20);
        assert_eq!(cells(&evidence.files[0])[4], "not seen; 1.00 MiB read into the cache; advice sequential");

        (evidence.files[0].came_bytes, evidence.files[0].order) = (None, None);
        assert_eq!(cells(&evidence.files[0])[4], "–; advice sequential");
    }

    #[test]
    fn a_long_command_and_a_long_path_keep_their_ends() {
        let mut evidence = with_file(|file| file.path = format!("/{}", "p".repeat(36)));
        evidence.target.command = format!("c{}", "d".repeat(60));

        let said = said(&evidence, &[]);

        assert!(said.contains(&format!("…{}\n", "d".repeat(59))), "{said}");
        assert!(said.contains(&format!("…{} ", "p".repeat(35))) && !said.contains(&"p".repeat(36)), "{said}");
    }

    #[test]
    fn every_order_has_words() {
        let words = [
            Pattern::Sequential,
            Pattern::Backward,
            Pattern::Strided(1 << 20),
            Pattern::Interleaved { streams: 3, stride: 8192 },
            Pattern::Random,
            Pattern::HotSet { bytes: 1 << 20 },
        ]
        .map(|pattern| order(&in_order(pattern)));

        assert_eq!(
            words,
            [
                "sequential (95 %)",
                "sequential backward (95 %)",
                "stride 1.00 MiB (95 %)",
                "3 streams, stride 8.00 KiB (95 %)",
                "random (95 %)",
                "hot set of 1.00 MiB (95 %)"
            ]
        );
        assert_eq!(order(&in_order(Pattern::Unknown)), "too few to tell");
    }

    fn a_finding(severity: Severity) -> Finding {
        Finding {
            rule: "fault_stall",
            severity,
            scope: "/data/table".to_owned(),
            what: "it waits".to_owned(),
            evidence: vec![Fact::seen("1 s"), Fact::guessed("2 s")],
            remedy: "wait less".to_owned(),
            proof: "look".to_owned(),
            backing: Backing::Decided,
            gain_at_most: (severity == Severity::Critical).then_some(2.0),
            ..Finding::default()
        }
    }

    #[test]
    fn a_finding_is_reported_with_its_severity_remedy_proof_and_gain_and_what_is_inferred_is_marked() {
        let text = said(&healthy(), &[a_finding(Severity::Critical)]);

        let told = "critical: it waits [fault_stall: /data/table]\n  1 s; ~2 s\n  → wait less (the program gains 2.0 x at \
                    most)\n  $ look\n";
        assert!(text.contains(told) && !text.contains("Nothing found"), "{text}");
        assert!(said(&healthy(), &[a_finding(Severity::Note)]).contains("  → wait less\n"));
    }

    #[test]
    fn a_remedy_is_advice_where_something_decides_it_and_to_be_tried_otherwise() {
        let with = |backing| remedy(&Finding { backing, ..a_finding(Severity::Note) });

        assert_eq!(with(Backing::Decided), "wait less");
        assert_eq!(with(Backing::Try), "try: wait less (the command below tells whether it helps)");
        assert_eq!(
            with(Backing::Measured(0.44)),
            "not: wait less (a replay of its accesses was 0.4 x as fast, which is slower)"
        );
        assert_eq!(with(Backing::Measured(1.94)), "wait less (a replay of its accesses was 1.9 x as fast)");
    }

    #[test]
    fn five_files_of_a_finding_are_listed_and_more_are_counted() {
        let with = |count: usize| {
            let subject =
                |number| Subject { name: format!("/{number}"), says: "it waits".to_owned(), ..Subject::default() };
            subjects(&Finding { subjects: (0..count).map(subject).collect(), ..Finding::default() })
        };

        assert_eq!(with(1), [""; 0]);
        assert_eq!(with(2), ["/0: it waits", "/1: it waits"]);
        assert_eq!((with(5).len(), with(7).last().unwrap().as_str()), (5, "and 2 more"));
    }

    #[test]
    fn what_a_finding_explains_is_a_line_below_it() {
        let consequences = vec![Consequence { rule: "thrash", what: "pages are evicted".to_owned() }];
        let text = said(&healthy(), &[Finding { consequences, ..a_finding(Severity::Note) }]);

        assert!(text.contains("~2 s\n  this explains: pages are evicted [thrash]\n  → "), "{text}");
    }

    #[test]
    fn a_file_without_a_name_is_marked() {
        let evidence = with_file(|file| file.deleted = true);

        assert!(said(&evidence, &[]).contains("/data/table (deleted)"));
    }

    #[test]
    fn lines_are_100_columns_at_most_with_their_sign() {
        let words = vec!["abcd"; 60].join(" ");

        assert_eq!(wrapped_lines("", &words)[0].chars().count(), 99);
        let lines = wrapped_lines("→ ", &format!("x {words}"));
        assert_eq!((lines[0].chars().count(), &lines[1][..6]), (98, "  abcd"));
        assert_eq!(wrapped_lines("", &["a".repeat(49), "b".repeat(50)].join(" ")).len(), 1);
        assert_eq!(wrapped_lines("", &["a".repeat(50), "b".repeat(50)].join(" ")).len(), 2);
    }

    #[test]
    fn long_words_keep_their_end() {
        assert_eq!((shortened("abcd", 4), shortened("abcde", 4)), ("abcd".to_owned(), "…cde".to_owned()));
        assert_eq!(wrapped_lines("", &"é".repeat(150)), [format!("…{}", "é".repeat(99))]);
    }

    #[test]
    fn proofs_are_reported_and_so_is_their_absence() {
        let said = |sentences: &[String]| {
            let mut out = Vec::new();
            print_proofs(sentences, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };

        assert!(said(&[]).contains("No finding can be proven by replaying accesses."));
        assert!(said(&["it is so".to_owned()]).contains("proof: it is so"));
    }
}
