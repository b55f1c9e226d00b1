//! The table for terminals: the answer, arms best first, then notes, reasons, advice and conditions, each once.
//! As wide as the screen.
//!
//! Writes colour as escape sequences; give it a writer that removes them where they are not wanted (`anstream`).

mod notes;

use super::verdict::Standing;
use super::{ArmSummary, Group, Role, State, Summary, conditions, derive, question, race, stage, words};
use crate::record::Buckets;
use crate::stats::PairedRatio;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Columns where nobody says how wide the screen is.
pub const WIDTH: usize = 100;

/// The least width that a table is made for.
pub const NARROW: usize = 60;

/// The greatest width that lines are made for; beyond it, they are hard to read.
pub const WIDE: usize = 200;

/// Notes on the first screen.
pub const NOTES: usize = 5;

/// From this block size on throughput is shown in bytes: it is a scan, not a lookup.
const SCAN_BLOCK: u64 = 64 << 10;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const ANSWER: &str = "\x1b[1;32m";
const WARNING: &str = "\x1b[1;33m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Where it is written, and how much of it.
pub struct Screen<'a> {
    /// Takes the text.
    pub out: &'a mut dyn Write,
    /// Columns of the widest line: [`NARROW`] or more.
    pub width: usize,
    /// All notes of every group in parts of their own, instead of the [`NOTES`] that matter most.
    pub is_whole: bool,
}

/// Writes every group of `summary`.
///
/// Errors: those of the screen.
pub fn print(summary: &Summary<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    for (index, group) in summary.groups.iter().enumerate() {
        if index > 0 {
            writeln!(to.out, "\n{DIM}{}{PLAIN}\n", "─".repeat(to.width))?;
        }
        print_group(group, to)?;
    }
    if !to.is_whole && !summary.groups.is_empty() {
        notes::print(summary, to)?;
    }
    Ok(())
}

fn print_group(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    // One of two questions stands above its answer; the only one is known.
    let is_asked = group.question().is_some();
    let of_group = |first: bool| question::heading(group).filter(|_| is_asked == first);
    if let Some(heading) = stage::heading(group).or_else(|| of_group(true)) {
        wrapped(to, "", &safe(&heading), BOLD)?;
        writeln!(to.out)?;
    }
    answer(group, to)?;
    of_group(false).iter().try_for_each(|heading| wrapped(to, "", &safe(heading), DIM))?;
    table(group, to)?;
    jobs(group, to)?;
    if !to.is_whole {
        return Ok(());
    }
    for says in reasons(group).iter().chain(&not_met(group)) {
        wrapped(to, "! ", &safe(says), YELLOW)?;
    }
    noted(group).iter().try_for_each(|says| wrapped(to, "· ", &safe(says), DIM))?;
    question::remark(group).iter().try_for_each(|says| wrapped(to, "! ", &safe(says), YELLOW))?;
    phases(group, to)?;
    why(group, to)?;
    advice(group, to)?;
    measured_on(group, to)
}

/// What the reader came for: which method, how many times as fast as theirs, how sure.
fn answer(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    let answer = &group.verdict.answer;
    let style = if group.verdict.standing == Standing::Judged { ANSWER } else { WARNING };
    wrapped(to, "", &safe(&answer.says), style)?;
    for (says, style) in [(&answer.rank, ""), (&answer.basis, DIM), (&race::cut_short(group), DIM)] {
        says.iter().try_for_each(|says| wrapped(to, "", &safe(says), style))?;
    }
    writeln!(to.out)
}

/// Where and how it was measured, and what could not be counted there.
fn measured_on(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    writeln!(to.out, "\n{BOLD}Measured on{PLAIN}")?;
    for text in circumstances(group).iter().chain(&group.machine.remarks) {
        wrapped(to, "", &safe(text), DIM)?;
    }
    missing(group).iter().try_for_each(|gap| wrapped(to, "· ", &safe(gap), DIM))
}

/// The machine, the file's place, the workload: a line each.
fn circumstances(group: &Group<'_>) -> [String; 3] {
    let machine = conditions::machine(group);
    let workload = conditions::workload(group);
    let line = |pairs: &[(&'static str, String)], names: &[&str]| {
        let parts: Vec<String> =
            names.iter().map(|name| format!("{name} {}", conditions::named(pairs, name))).collect();
        parts.join(" · ")
    };
    [
        line(&machine, &["machine", "kernel"]),
        line(&machine, &["file system", "read_ahead_kb", "memory limit"]),
        line(&workload, &["workload", "bs", "size", "cache", "threads", "iodepth", "ends", "repetitions"]),
    ]
}

/// Columns of the table, the most important first of those that a narrow screen leaves out: place in the table, from which
/// width on it is shown.
const COLUMNS: [(&str, usize); 10] = [
    ("method", 0),
    ("", 0),
    ("ratio", 0),
    ("p50", 70),
    ("p99", 0),
    (WAITED, 110),
    ("CPU\n/access", 90),
    ("faults\n/access", 90),
    ("device\n/wanted", 80),
    ("shoot-\ndowns/s", 90),
];

/// How long accesses of a queue waited for a slot: a column only where a method of the table has a queue.
const WAITED: &str = "slot wait\np99";

fn table(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    let (throughput, unit) = throughput_of(group);
    let queues = group.arms.iter().any(|arm| !arm.queueing.0.is_empty());
    let is_shown = |at: usize| COLUMNS[at].1 <= to.width && (queues || COLUMNS[at].0 != WAITED);
    let titles = COLUMNS.iter().enumerate().filter(|(at, _)| is_shown(*at));
    let mut table = framed(titles.map(|(_, (title, _))| if title.is_empty() { unit } else { title }), to.width);
    for arm in &group.arms {
        let cells = row(arm, throughput).into_iter().enumerate();
        table.add_row(cells.filter(|(at, _)| is_shown(*at)).map(|(_, cell)| cell).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((1, 0));
    }
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(name_width(to.width))));
    }
    for (index, line) in table.lines().enumerate() {
        let style = if index < 2 { BOLD } else { "" };
        writeln!(to.out, "{style}{}{PLAIN}", line.trim_end())?;
    }
    Ok(())
}

/// Longest name of an arm before it wraps: the figures beside it take 72 columns, 82 with the wait for a slot.
fn name_width(width: usize) -> u16 {
    match width {
        ..70 => 20,
        110.. => width as u16 - 82,
        _ => width.saturating_sub(72).max(28) as u16,
    }
}

/// What each job of a stage did by each method.
fn jobs(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    let rows = stage::rows(group);
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = framed(stage::TITLES, to.width);
    for row in rows {
        table.add_row(row.map(|cell| safe(&cell)));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(to.out)?;
    drawn(table, to)
}

/// A table with a line below its titles.
fn framed<'t>(titles: impl IntoIterator<Item = &'t str>, width: usize) -> Table {
    let mut table = Table::new();
    let style = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    table.load_style(style).set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
    table.set_header(titles.into_iter().collect::<Vec<_>>());
    table
}

fn drawn(mut table: Table, to: &mut Screen<'_>) -> io::Result<()> {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for (index, line) in table.lines().enumerate() {
        let style = if index < 2 { BOLD } else { "" };
        writeln!(to.out, "{style}{}{PLAIN}", line.trim_end())?;
    }
    Ok(())
}

/// Accesses for small blocks, bytes for scans.
fn throughput_of(group: &Group<'_>) -> (&'static derive::Formula, &'static str) {
    if group.trial.block_bytes >= SCAN_BLOCK {
        (&derive::BANDWIDTH, "bytes")
    } else {
        (&derive::THROUGHPUT, "accesses")
    }
}

fn row(arm: &ArmSummary<'_>, throughput: &derive::Formula) -> Vec<String> {
    let figure =
        |formula: &derive::Formula| arm.median(formula).map_or_else(|| words::UNKNOWN.to_owned(), formula.number);
    let quantile = |buckets: &Buckets, at| {
        let found = derive::percentile(buckets, at);
        found.map_or_else(|| words::UNKNOWN.to_owned(), |ns| words::nanos(ns as f64))
    };
    vec![
        format!("{}{}", safe(&arm.name), mark(arm)),
        figure(throughput),
        arm.ratio.as_ref().map_or_else(|| words::UNKNOWN.to_owned(), ratio),
        quantile(&arm.latency, 0.5),
        quantile(&arm.latency, 0.99),
        quantile(&arm.queueing, 0.99),
        figure(&derive::CPU),
        figure(&derive::FAULTS),
        figure(&derive::READ_AMPLIFICATION),
        arm.median(&derive::SHOOTDOWN_RATE).map_or_else(|| words::UNKNOWN.to_owned(), words::count),
    ]
}

/// `1.00` for the best itself, without an interval: it is the measure.
pub(super) fn ratio(comparison: &PairedRatio) -> String {
    let is_measure = comparison.ratio.interval.is_none_or(|interval| interval == [1.0, 1.0]);
    if is_measure {
        words::ratio(comparison.ratio.median)
    } else {
        words::with_interval(&comparison.ratio, words::ratio)
    }
}

fn mark(arm: &ArmSummary<'_>) -> String {
    let word = match (&arm.state, arm.role) {
        (State::Failed(_), _) => "failed",
        (State::Missing(_), _) => "not here",
        (State::Invalid(_), _) => "invalid",
        (State::Measured(_), Role::Control) => "control",
        (State::Measured(_), Role::Peer) => "peer",
        (State::Measured(_), Role::Method) => "",
    };
    let stopped = arm.stopped.map(|rounds| format!("stopped after {rounds}"));
    let words: Vec<&str> = [word].into_iter().chain(stopped.as_deref()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// One line for each arm without figures: why.
fn reasons(group: &Group<'_>) -> Vec<String> {
    let why = |arm: &ArmSummary<'_>| {
        let (word, why) = match &arm.state {
            State::Measured(_) | State::Invalid(_) => return None,
            State::Missing(why) => ("not here", why),
            State::Failed(why) => ("failed", why),
        };
        Some(format!("{}: {word}: {why}", arm.name))
    };
    group.arms.iter().filter_map(why).collect()
}

/// One line for each condition that runs did not meet, however many they are.
fn not_met(group: &Group<'_>) -> Vec<String> {
    // Without a loss for the verdict, what was not valid is only left out of the figures.
    let word = if group.is_valid() { "left out" } else { "not valid" };
    group.troubles.iter().map(|trouble| format!("{word}: {}", trouble.sentence(group.runs()))).collect()
}

fn noted(group: &Group<'_>) -> Vec<String> {
    group.noted.iter().map(|trouble| format!("noted: {}", trouble.sentence(group.runs()))).collect()
}

/// Counters that could not be read anywhere in the group, once each.
fn missing(group: &Group<'_>) -> BTreeSet<String> {
    let records = group.arms.iter().flat_map(|arm| &arm.records);
    records
        .flat_map(|record| &record.missing)
        .map(|missing| format!("not counted: {} ({}); {}", missing.what, missing.reason, missing.remedy))
        .collect()
}

fn on_the_timeline(group: &Group<'_>) -> Vec<String> {
    group.arms.iter().filter_map(|arm| Some(format!("{}: {}", arm.name, arm.phases.as_ref()?))).collect()
}

fn phases(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    let found = on_the_timeline(group);
    if found.is_empty() {
        return Ok(());
    }
    writeln!(to.out, "\n{BOLD}On the timeline{PLAIN}")?;
    found.iter().try_for_each(|says| wrapped(to, "· ", &safe(says), ""))
}

/// What the counters say about the reason.
fn why(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    if group.verdict.evidence.is_empty() {
        return Ok(());
    }
    writeln!(to.out, "\n{BOLD}Why{PLAIN}")?;
    group.verdict.evidence.iter().try_for_each(|says| wrapped(to, "· ", &safe(says), ""))
}

fn advice(group: &Group<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    if group.advice.is_empty() {
        return Ok(());
    }
    writeln!(to.out, "\n{BOLD}Advice{PLAIN}")?;
    group.advice.iter().try_for_each(|advice| {
        wrapped(to, "→ ", &safe(&advice.says), BOLD)?;
        wrapped(to, "  ", &safe(&format!("because {}", advice.because)), "")
    })
}

/// What came from outside without control characters: a file name must not move the cursor.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `text` in lines as wide as the screen, the first behind `sign`, the others behind as much space.
fn wrapped(to: &mut Screen<'_>, sign: &str, text: &str, style: &str) -> io::Result<()> {
    let room = to.width - columns(sign);
    let mut sign = sign.to_owned();
    for line in lines(text, room) {
        writeln!(to.out, "{sign}{style}{line}{PLAIN}")?;
        sign = " ".repeat(columns(&sign));
    }
    Ok(())
}

fn lines(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // Only where a line may break: a number's groups of digits stay together.
    let words = text.split([' ', '\t', '\n']).filter(|word| !word.is_empty());
    for word in words.flat_map(|word| pieces(word, room)) {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(&word);
        } else if columns(line) + 1 + columns(&word) <= room {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

/// A word longer than a line, cut.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for letter in word.chars() {
        let wide = width_of(letter);
        if used + wide > room {
            pieces.push(String::new());
            used = 0;
        }
        used += wide;
        pieces.last_mut().expect("there is one from the start").push(letter);
    }
    pieces
}

fn columns(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

/// Columns of a character, never too few: East Asian blocks and symbols beyond them count two.
fn width_of(letter: char) -> usize {
    match u32::from(letter) {
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 => 2,
        0x1f000.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MissingFacility, Question, Record};
    use crate::report::counters;
    use crate::report::synthetic::{Run, repeated, repeated_by};
    use proptest::prelude::*;

    fn printed(records: &[Record]) -> String {
        shown(records, WIDTH, true)
    }

    fn shown(records: &[Record], width: usize, is_whole: bool) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        print(&Summary::of(records), &mut Screen { out: &mut out, width, is_whole }).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    fn line_of<'t>(text: &'t str, start: &str) -> &'t str {
        text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line \"{start}\" in\n{text}"))
    }

    #[test]
    fn rows_are_best_first_with_their_ratio_and_the_control_last() {
        let records =
            [repeated("null", 90_000_000, 6), repeated("pread", 9_000, 6), repeated("direct", 30_000, 6)].concat();

        let text = printed(&records);

        let rows = text.split_once("\nmethod").unwrap().1;
        let at = |name: &str| rows.lines().position(|line| line.starts_with(name)).unwrap();
        assert!(at("direct") < at("pread") && at("pread") < at("null (control)"), "{text}");
        assert!(line_of(rows, "direct").contains("30.0 k/s              1.00"), "{text}");
        assert!(line_of(rows, "pread").contains("0.30 [0.30–0.30]"), "{text}");
    }

    #[test]
    fn a_wide_table_has_the_wait_for_a_slot_where_a_method_has_a_queue() {
        let queue = Run::of("uring").latency(&[(90_000, 100)]).queueing(&[(7_000, 98), (41_000, 2)]);
        let records = [repeated_by(&queue, 30_000, 6), repeated("mmap", 9_000, 6)].concat();

        let wide = shown(&records, 120, true);

        assert!(wide.contains("slot wait"), "{wide}");
        let rows = wide.split_once("\nmethod").unwrap().1;
        assert!(line_of(rows, "uring").contains(" 41 us ") && !line_of(rows, "mmap").contains(" 41 us "), "{wide}");
        assert!(!shown(&records, WIDTH, true).contains("slot wait"), "a narrow one has no room for it");
        assert!(!shown(&repeated("mmap", 9_000, 6), 120, true).contains("slot wait"), "nobody waits");
    }

    #[test]
    fn what_has_no_figures_is_a_row_with_its_reason_below() {
        let records = [
            Run::of("uring").missing("io_uring", "refused", "allow io_uring_setup in the seccomp profile").record(),
            Run::of("mmap").failed("SIGBUS at offset 4096: the file became shorter").record(),
            Run::of("pread").spoiled("600 MiB of 1.00 GiB were cached when the clock started").record(),
        ];

        let text = printed(&records);

        assert!(
            text.contains("uring (not here)") && text.contains("mmap (failed)") && text.contains("pread (invalid)")
        );
        assert!(text.contains("! uring: not here: io_uring: refused; allow io_uring_setup in the seccomp profile"));
        assert!(text.contains("! not valid: cold, 1 of 3 runs (pread): 600 MiB of 1.00 GiB were cached"));
        assert!(text.starts_with("NOT VALID: cold in 1 of 3 runs; no winner is named\n"), "{text}");
        assert_eq!(text.matches("NOT VALID").count(), 1, "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(flat.matches("end the programs that use the file").count(), 1, "{text}");
    }

    #[test]
    fn a_story_with_everything_in_it_has_its_parts_in_order() {
        let text = printed(&crate::report::synthetic::story());

        let parts =
            ["is fastest here", "method ", "! mmap advice=willneed", "On the timeline", "Why", "Advice", "Measured on"];
        let places: Vec<usize> =
            parts.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"))).collect();
        assert!(places.is_sorted(), "{text}");
        if let Some(path) = std::env::var_os("MAJORFAULT_STORY_TABLE") {
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_conditions_stand_below_the_table() {
        let text = printed(&repeated_by(&Run::of("pread").memory(256 << 20), 1_000, 6));

        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for fact in [
            "6.18.0",
            "ext4 on vda",
            "read_ahead_kb 8192",
            "memory limit 256 MiB",
            "cache cold",
            "threads 1",
            "repetitions 6",
        ] {
            assert!(flat.contains(fact), "{fact} is not in\n{text}");
        }
    }

    #[test]
    fn the_first_screen_is_answer_table_and_at_most_five_notes_each_once() {
        let text = shown(&crate::report::synthetic::story(), WIDTH, false);

        let notes = text.lines().filter(|line| ["! ", "· ", "→ "].iter().any(|sign| line.starts_with(sign))).count();
        assert_eq!(notes, NOTES, "{text}");
        assert!(text.contains("more notes: --verbose shows them, --report FILE.html the rest"), "{text}");
        let parts = ["is fastest here", "method ", "! mmap advice=willneed", "→ ", "Measured on"];
        let places: Vec<usize> =
            parts.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"))).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn what_two_questions_have_in_common_is_said_once() {
        let both = |at: u32| {
            let run = Run::of("pread").repetition(at).edit(|record| record.question = Some(Question::FirstPass));
            let gap = MissingFacility { what: "x".to_owned(), reason: "no x".to_owned(), remedy: "get x".to_owned() };
            let cold = run.edit(|record| record.missing = vec![gap]);
            let warm = cold.clone().edit(|record| {
                record.question = Some(Question::SteadyState);
                record.trial.cache = crate::trial::CacheState::Warm;
            });
            [cold.record(), warm.record()]
        };
        let text = shown(&(0..6).flat_map(both).collect::<Vec<_>>(), WIDTH, false);

        for once in ["not counted: x", "Measured on", "6.18.0"] {
            assert_eq!(text.matches(once).count(), 1, "{once} in\n{text}");
        }
        assert_eq!(text.matches("is the only method").count(), 2, "{text}");
    }

    #[test]
    fn a_narrow_screen_leaves_columns_out_and_a_wide_one_no_name_wraps() {
        let records = repeated("uring buffers=registered depth=4096 direct=on", 9_000, 6);

        let (narrow, wide) = (shown(&records, NARROW, false), shown(&records, WIDE, false));

        assert!(narrow.contains("p99") && !narrow.contains("p50") && !narrow.contains("faults"), "{narrow}");
        assert!(line_of(&wide, "uring buffers=registered depth=4096 direct=on  ").contains("9.00 k/s"), "{wide}");
    }

    #[test]
    fn a_scan_is_told_in_bytes() {
        let text = printed(&repeated_by(&Run::of("pread").block(1 << 20), 1_000, 1));

        assert!(line_of(&text, "pread").contains("1000 MiB/s") || line_of(&text, "pread").contains("MiB/s"), "{text}");
    }

    #[test]
    fn a_number_is_never_torn_between_two_lines() {
        assert_eq!(lines("about 1\u{a0}430 x", 9), ["about", "1\u{a0}430 x"]);
    }

    #[test]
    fn a_control_character_in_a_name_never_reaches_the_terminal() {
        let text = printed(&[Run::of("pread").failed("no file \x1b[2J\n here").record()]);

        assert!(!text.contains('\x1b'));
    }

    fn any_run() -> impl Strategy<Value = Record> {
        let names = prop::sample::select(vec![
            "null",
            "mmap advice=random",
            "uring depth=4096 direct=on buffers=registered",
            "pread",
        ]);
        let number = prop_oneof![Just(0), Just(u64::MAX / 4), any::<u32>().prop_map(u64::from)];
        (names, number.clone(), number.clone(), number, 0u32..4, "\\PC{0,200}", 0u8..5).prop_map(
            |(name, accesses, ms, counted, repetition, words, kind)| {
                let run = Run::of(name).phases_ms(ms, ms, 0).accesses(accesses).repetition(repetition);
                let run = run.counter(counters::MINOR_FAULTS, counted).counter(counters::SHOOTDOWNS, counted);
                let run = run
                    .latency(&[(counted, 3), (u64::MAX, accesses)])
                    .edit(|record| record.machine.cpu.clone_from(&words));
                match kind {
                    0 => run.failed(&words),
                    1 => run.missing(&words, &words, &words),
                    2 => run.spoiled(&words),
                    _ => run,
                }
                .record()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_line_is_wider_than_the_screen(
            records in prop::collection::vec(any_run(), 0..20),
            width in NARROW..=WIDE,
            is_whole: bool,
        ) {
            let text = shown(&records, width, is_whole);

            let widest = text.lines().max_by_key(|line| columns(line)).unwrap_or_default();
            prop_assert!(columns(widest) <= width, "{} columns of {width}: {}", columns(widest), widest);
        }
    }
}
