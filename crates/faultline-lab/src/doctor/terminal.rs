//! One screen of text: who, the files with their faults, the findings; never wider than 100 columns.

use super::evidence::{Evidence, MappedFile};
use super::json::advice;
use super::{Finding, Severity, gain};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use faultline::observe::pattern::{Pattern, Recognised};
use faultline::{Bytes, Nanos};
use std::io::{self, Write};

/// Columns of the widest line.
const WIDTH: usize = 100;

/// Files that are listed.
pub(super) const MOST_FILES: usize = 6;

/// Head of the table of files.
pub(super) const COLUMNS: [&str; 6] = ["file", "size", "cached", "faults", "waited", "order of faults"];

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
    for finding in findings {
        writeln!(out)?;
        print_finding(finding, gain::at_most(evidence, finding), out)?;
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

/// Its faults in a few words, where they could be seen.
pub(super) fn fault_facts(evidence: &Evidence) -> Option<Vec<String>> {
    let faults = evidence.faults.as_ref()?;
    let mut facts = vec![
        format!("faults {} ({:.0}/s)", faults.seen, evidence.rate(faults.seen)),
        format!("in files {}", faults.in_files),
        format!("waited {} times, {}", faults.waits, Nanos(faults.waited_ns)),
    ];
    for (count, what) in [
        (faults.lost, "lost"),
        (faults.unresolved, "of unknown place"),
        (faults.unfollowed as u64, "threads not followed"),
    ] {
        if count > 0 {
            facts.push(format!("{count} {what}"));
        }
    }
    Some(facts)
}

/// The files worth a row: those with faults, and large ones.
pub(super) fn listed(evidence: &Evidence) -> Vec<&MappedFile> {
    let large = |file: &&MappedFile| file.faults > 0 || file.mapped_bytes() >= 16 << 20;
    evidence.data_files().filter(large).collect()
}

fn files(evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let listed = listed(evidence);
    if listed.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
    table.set_header(COLUMNS);
    for file in listed.iter().take(MOST_FILES) {
        table.add_row([vec![shortened(&safe(&file.path), 36)], cells(file)].concat());
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    if listed.len() > MOST_FILES {
        writeln!(out, "{DIM} and {} more (--json has all){PLAIN}", listed.len() - MOST_FILES)?;
    }
    Ok(())
}

/// What [`COLUMNS`] say of a file, after its name.
pub(super) fn cells(file: &MappedFile) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), |bytes| Bytes(bytes).rounded());
    let mut order = file.order.as_ref().map_or("–".to_owned(), order);
    if let Some(came) = file.came_bytes {
        order = format!("not seen; {} came into the cache", Bytes(came).rounded());
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

/// A pattern in words.
pub(super) fn words(pattern: Pattern) -> String {
    let distance = |bytes: i64| {
        let direction = if bytes < 0 { " backward" } else { "" };
        format!("{}{direction}", Bytes(bytes.unsigned_abs()).rounded())
    };
    match pattern {
        Pattern::Sequential => "sequential".to_owned(),
        Pattern::Backward => "sequential backward".to_owned(),
        Pattern::Strided(stride) => format!("stride {}", distance(stride)),
        Pattern::Interleaved { streams, stride } => format!("{streams} streams, stride {}", distance(stride)),
        Pattern::Random => "random".to_owned(),
        Pattern::HotSet { bytes } => format!("hot set of {}", Bytes(bytes).rounded()),
        Pattern::Unknown => "too few to tell".to_owned(),
    }
}

fn print_finding(finding: &Finding, gain: Option<f64>, out: &mut dyn Write) -> io::Result<()> {
    let colour = match finding.severity {
        Severity::Critical => RED,
        Severity::Warning => YELLOW,
        Severity::Note => BOLD,
    };
    let word = finding.severity.word();
    wrapped(out, "", &format!("{word}: {} [{}: {}]", finding.what, finding.rule, finding.scope), colour)?;
    wrapped(out, "  ", &finding.evidence.join("; "), "")?;
    let gain = gain.map_or(String::new(), |gain| format!(" (the program gains {gain:.1} x at most)"));
    wrapped(out, "  → ", &format!("{}{gain}", finding.remedy), BOLD)?;
    wrapped(out, "  $ ", &finding.proof, DIM)
}

/// Writes what replays showed.
///
/// Errors: those of `out`.
pub fn print_proofs(sentences: &[String], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if sentences.is_empty() {
        writeln!(out, "{DIM}Nothing was found that a replay of accesses could prove.{PLAIN}")?;
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
        writeln!(out, "{DIM}{count} sources of counters are not here; see --json or faultline probe.{PLAIN}")?;
    }
    Ok(())
}

/// Control characters as spaces: a file name must not move the cursor.
pub(super) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The end of a long text, which tells files apart.
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
