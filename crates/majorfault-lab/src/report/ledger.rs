//! The ledger of experiments: each row of the sources with its published figure, ours, and the verdict.

use super::ledger_head::Head;
use super::ledger_table::{LedgerTable, tables};
use crate::experiment::{Agreement, Entry, Experiment, InSession, Judge, MachineSessions, RowKind, Verdict, Why};
use crate::record::Record;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, Width, presets};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Columns of a terminal that everybody has.
const COLUMNS: u16 = 100;

/// Notes to a row's figure: why there is no yes or no, the evidence, the control, what limits it.
pub(super) fn beside(entry: &Entry) -> Vec<String> {
    let judged = &entry.judged;
    let named = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("{name}: {text}") };
    // Where all were refused, the reason has said why.
    let says_refused = matches!(judged.verdict, Verdict::Undecided(Why::NoRun(_)));
    let mut all = vec![
        judged.verdict.reason(),
        named("evidence", &judged.shown.evidence),
        named("control", &judged.shown.control),
        if says_refused { String::new() } else { named("refused", &judged.runs.reasons.join(", ")) },
    ];
    all.extend(entry.conditions().into_iter().map(|remark| format!("limited: {remark}")));
    if judged.runs.noted > 0 {
        let notes: Vec<&str> = judged.runs.notes.iter().map(String::as_str).collect();
        let counted = judged.runs.made - judged.runs.refused;
        all.push(format!("noted in {} of {counted} runs: {}", judged.runs.noted, notes.join(", ")));
    }
    all.into_iter().filter(|text| !text.is_empty()).collect()
}

/// On how many runs a row rests, and how many of its cells' runs were refused: `n 6, 1 of 12 refused`.
pub(super) fn runs(entry: &Entry) -> String {
    let judged = &entry.judged;
    let n = if judged.n > 0 { format!("n {}", judged.n) } else { String::new() };
    match (judged.runs.refused, n.is_empty()) {
        (0, _) => n,
        (refused, true) => format!("{refused} of {} refused", judged.runs.made),
        (refused, false) => format!("{n}, {refused} of {} refused", judged.runs.made),
    }
}

/// In how many sessions a claim was judged, how many of them agree (on which machine, where there are several), and on how
/// many runs each rests.
pub(super) fn agreement(entry: &Entry) -> String {
    let found = entry.agreement();
    let is_lettered = entry.sessions.iter().any(|it| !it.machine.is_empty());
    match (&entry.row.judge, found.of) {
        (Judge::Claim(..), of) if of > 0 && is_lettered => format!("{}{}", on_machines(entry), behind_each(entry)),
        (Judge::Claim(..), 1) => "1 session".to_owned(),
        (Judge::Claim(..), of) if of > 1 => format!("{} of {of} sessions{}", found.agree, behind_each(entry)),
        _ => String::new(),
    }
}

/// ` (n 6, 7)`: the runs behind each session that ran it; nothing where there are none.
fn behind_each(entry: &Entry) -> String {
    let counts: Vec<usize> =
        entry.sessions.iter().map(|it| &it.judged).filter(|it| it.verdict.was_run()).map(|it| it.n).collect();
    let texts: Vec<String> = counts.iter().map(usize::to_string).collect();
    if counts.iter().all(|count| *count == 0) { String::new() } else { format!(" (n {})", texts.join(", ")) }
}

/// `holds here: 2 of 2 on A, 0 of 1 on B; does not hold here: 0 of 2 on A, 1 of 1 on B`.
fn on_machines(entry: &Entry) -> String {
    let on = |(letter, found): &(String, Agreement)| format!("{} of {} on {letter}", found.agree, found.of);
    let each =
        |it: &MachineSessions| format!("{}: {}", it.verdict, it.machines.iter().map(on).collect::<Vec<_>>().join(", "));
    entry.by_machine().iter().map(each).collect::<Vec<_>>().join("; ")
}

/// The entries of each experiment, in order.
pub(super) fn by_experiment(entries: &[Entry]) -> Vec<(&'static Experiment, Vec<&Entry>)> {
    let mut groups: Vec<(&'static Experiment, Vec<&Entry>)> = Vec::new();
    for entry in entries {
        match groups.last_mut().filter(|(experiment, _)| experiment.id == entry.experiment.id) {
            Some((_, rows)) => rows.push(entry),
            None => groups.push((entry.experiment, vec![entry])),
        }
    }
    groups
}

/// How often each verdict was given, in the words of the ledger, each kind of rows by itself.
pub fn count(entries: &[Entry]) -> BTreeMap<RowKind, BTreeMap<&'static str, usize>> {
    let mut counts: BTreeMap<RowKind, BTreeMap<&'static str, usize>> = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.row.kind).or_default().entry(entry.judged.verdict.words()).or_default() += 1;
    }
    counts
}

/// Prints the ledger for a terminal: what it comes to, the rows, and what they rest on.
///
/// Errors: those of `out`.
pub fn print(entries: &[Entry], records: &[Record], out: &mut impl Write) -> io::Result<()> {
    let (head, of_cells) = (Head::of(entries, records), tables(entries, records));
    paragraphs(&head.answer(), out)?;
    writeln!(out)?;
    for (experiment, rows) in by_experiment(entries) {
        writeln!(out, "{}  {}", experiment.id, experiment.title)?;
        writeln!(out, "{}\n", experiment.question)?;
        let mut table = table(&["id", "claim", "published", "here"], &[17, 28, 17, 38]);
        for entry in rows {
            table.add_row([
                Cell::new(entry.row.id),
                Cell::new(entry.row.says),
                Cell::new(entry.row.published),
                Cell::new(here(entry).join("\n")),
            ]);
        }
        write_table(&mut table, &[17, 28, 17, 38], out)?;
        writeln!(out)?;
        // Figures of several sessions are not mixed: the first that ran it stands here, JSON has all.
        if let Some(found) = of_cells.iter().find(|it| it.is_of(experiment.id)) {
            writeln!(out, "{}\n\n{}\n", wrapped(&found.caption()), found.text())?;
            paragraphs(found.notes(), out)?;
            writeln!(out)?;
        }
    }
    paragraphs(&head.basis(), out)
}

pub(super) fn paragraphs(lines: &[String], out: &mut impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{}", wrapped(line)))
}

fn here(entry: &Entry) -> Vec<String> {
    let shown = &entry.judged.shown.ours;
    let figure = [shown.clone(), runs(entry), agreement(entry)];
    let figure: Vec<String> = figure.into_iter().filter(|text| !text.is_empty()).collect();
    let mut here = vec![entry.judged.verdict.words().to_owned()];
    here.extend((!figure.is_empty()).then(|| figure.join("; ")));
    here.extend(beside(entry));
    here
}

pub(super) fn table(header: &[&str], widths: &[u16]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(widths.iter().sum::<u16>().min(COLUMNS)).set_header(header);
    table
}

pub(super) fn write_table(table: &mut Table, widths: &[u16], out: &mut impl Write) -> io::Result<()> {
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(*width)));
    }
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A paragraph in lines that fit; those that follow are indented.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > usize::from(COLUMNS) {
            lines.push(format!("  {word}"));
        } else {
            let space = if last.is_empty() { "" } else { " " };
            last.push_str(space);
            last.push_str(word);
        }
    }
    lines.join("\n")
}

/// Prints the verdict of each session on each claim, and how many rows have the same in all.
///
/// Errors: those of `out`.
pub fn print_agreement(entries: &[Entry], records: &[Record], out: &mut impl Write) -> io::Result<()> {
    let head = Head::of(entries, records);
    for line in head.sessions_lines() {
        writeln!(out, "{}", wrapped(&line))?;
    }
    writeln!(out)?;
    const WIDTHS: &[u16] = &[17, 60, 23];
    let mut table = table(&["id", "verdicts, in the order of the sessions", "agree"], WIDTHS);
    for entry in claims(entries) {
        let verdicts: Vec<&str> = entry.sessions.iter().map(in_session).collect();
        table.add_row([entry.row.id.to_owned(), verdicts.join(" | "), agreement(entry)]);
    }
    write_table(&mut table, WIDTHS, out)?;
    writeln!(out, "\n{}", wrapped(&agreeing_words(entries)))
}

/// A session's verdict in a line of them.
fn in_session(it: &InSession) -> &'static str {
    if it.judged.verdict.was_run() { it.judged.verdict.words() } else { "not run" }
}

/// How far the sessions agree, in a sentence.
pub(super) fn agreeing_words(entries: &[Entry]) -> String {
    let ((same, all), (decided_same, decided)) = (agreeing(entries, |_| true), agreeing(entries, is_decided));
    format!(
        "{same} of {all} claims have the same verdict in all sessions that ran them; of those decided yes or no, \
         {decided_same} of {decided}"
    )
}

/// The entries that are claims, and were run in some session.
pub(super) fn claims(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| matches!(entry.row.judge, Judge::Claim(..)) && entry.agreement().of > 0)
}

/// Whether some session says yes or no.
pub(super) fn is_decided(entry: &Entry) -> bool {
    entry.sessions.iter().any(|it| matches!(it.judged.verdict, Verdict::Holds | Verdict::DoesNotHold))
}

/// How many of the claims chosen have one verdict in all their sessions, of how many that more than one session has.
pub(super) fn agreeing(entries: &[Entry], is_chosen: impl Fn(&Entry) -> bool) -> (usize, usize) {
    let chosen = claims(entries).filter(|entry| is_chosen(entry)).map(Entry::agreement);
    let shared: Vec<_> = chosen.filter(|found| found.of > 1).collect();
    (shared.iter().filter(|found| found.agree == found.of).count(), shared.len())
}

/// The ledger as a page of documentation.
pub fn markdown(entries: &[Entry], records: &[Record]) -> String {
    let mut text = String::from(
        "# Claims\n\n\
         Every row of the five sources, judged from the records in `records/` by\n\
         `majorfault reproduce --from records/* --markdown`. A test fails when this page and the records differ.\n\
         Rows whose id ends in a star are our own controls and additions. n is the least number of runs that a test of the\n\
         row rests on; below six nothing is decided. Intervals cover 95 % where nothing else stands beside them.\n\n",
    );
    for line in Head::of(entries, records).lines() {
        text.push_str(&format!("- {line}\n"));
    }
    let of_cells = tables(entries, records);
    for (experiment, rows) in by_experiment(entries) {
        text.push_str(&format!("\n## {} {}\n\n", experiment.id, experiment.title));
        text.push_str(&format!("{}\n\n{}\n\n", experiment.source, experiment.question));
        text.push_str(
            "| id | claim | published | here | runs | verdict | sessions | reason, evidence, control, limits |\n",
        );
        text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for entry in rows {
            let cells = [
                entry.row.id.replace('*', "\\*"),
                entry.row.says.to_owned(),
                entry.row.published.to_owned(),
                entry.judged.shown.ours.clone(),
                runs(entry),
                entry.judged.verdict.words().to_owned(),
                agreement(entry),
                beside(entry).join("; "),
            ];
            text.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
        }
        text.extend(of_cells.iter().find(|it| it.is_of(experiment.id)).map(LedgerTable::markdown));
        text.push_str(&format!("\nNot shown: {}\n", experiment.cannot_show));
    }
    text
}

/// One line for each run of the records: experiment, cell, repetition, seed, seconds, accesses, bytes, GB a second, whether it is
/// valid, seconds and GB a second of the accesses alone, session.
pub fn csv(records: &[Record]) -> String {
    let mut text = String::from(
        "experiment,cell,repetition,seed,seconds,accesses,bytes,gb_per_s,valid,visit_seconds,visit_gb_per_s,session\n",
    );
    for record in records {
        let Some(cell) = &record.cell else { continue };
        let seconds: f64 = record.phases.iter().map(|phase| phase.wall_ns as f64 / 1e9).sum();
        let visit = record.phase("visit").map_or(0.0, |phase| phase.wall_ns as f64 / 1e9);
        let [rate, visit_rate] =
            [seconds, visit].map(|time| if time > 0.0 { record.bytes() as f64 / time / 1e9 } else { 0.0 });
        text.push_str(&format!(
            "{},\"{}\",{},{},{seconds:.6},{},{},{rate:.4},{},{visit:.6},{visit_rate:.4},{}\n",
            cell.experiment,
            cell.name,
            record.trial.repetition,
            record.trial.seed,
            record.accesses(),
            record.bytes(),
            record.is_valid(),
            record.session
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ledger;
    use crate::record::Cell;
    use crate::report::synthetic::Run;

    /// Two sessions of S0.faster, the second with two commits, a pause and a refused run.
    fn records() -> Vec<Record> {
        let run = |session: &str, cell: &str, turn: u32, ms: u64| {
            let cell = Cell { experiment: "S0".to_owned(), name: cell.to_owned(), scale: "standard".to_owned() };
            Run::of("mmap").session(session).repetition(turn).phases_ms(0, ms, 0).edit(|record| {
                record.cell = Some(cell);
                record.tool = "majorfault 0.1.0 (abc1234)".to_owned();
                record.began_unix_s = 1_000_000 + u64::from(turn);
            })
        };
        let arms = |session: &'static str, mapped: u64| {
            (0..6u32).flat_map(move |turn| {
                [run(session, "mmap", turn, mapped).record(), run(session, "buffer", turn, 100).record()]
            })
        };
        let late = run("B", "mmap", 6, 1).spoiled("600 MiB were cached").edit(|record| {
            record.tool = "majorfault 0.1.0".to_owned();
            record.began_unix_s += 3600;
        });
        arms("A", 200).chain(arms("B", 50)).chain([late.record()]).collect()
    }

    fn printed(records: &[Record], wanted: &[String]) -> String {
        let mut out = Vec::new();
        print(&ledger(records, wanted), records, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_ledger_fits_100_columns() {
        for text in [printed(&[], &[]), printed(&records(), &[])] {
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
            }
        }
    }

    #[test]
    fn the_first_lines_say_what_it_comes_to_and_the_last_on_what() {
        let text = printed(&records(), &["S0.faster".to_owned(), "S0.rule".to_owned(), "S1.silent".to_owned()]);

        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["published claims: undecided, run more 1", "facts about us: undecided, run more 1; built 1"]
        );
        assert_eq!(
            lines[lines.len() - 10..],
            [
                "session A: 12 runs, 0 refused, scale standard, majorfault 0.1.0 (abc1234) (S0)",
                "session B: 13 runs, 1 refused, scale standard, majorfault 0.1.0 (abc1234), majorfault 0.1.0 (commit",
                "  not recorded), paused for 60 min (S0)",
                "several sessions: each judges every row separately; a row has the verdict on which they agree, and",
                "  the figures of the first session that ran it",
                "0 of 1 claims have the same verdict in all sessions that ran them; of those decided yes or no, 0 of",
                "  1",
                "the records were made by different commits",
                "machine: 2 x Made-up 9000, 8.00 GiB memory, Linux 6.18.0, ext4 on vda, read_ahead_kb 8192",
                "condition: refused: 1 x cold (600 MiB were cached)",
            ]
        );
    }

    #[test]
    fn a_table_of_runs_has_the_time_of_the_accesses_beside_that_of_all() {
        let cell = Cell { experiment: "S4.matrix".to_owned(), name: "mmap".to_owned(), scale: "full".to_owned() };
        let run =
            Run::of("mmap").session("S").accesses(1_000_000).phases_ms(500, 1_000, 500).edit(|it| it.cell = Some(cell));

        let text = csv(&[run.record()]);

        let header = "experiment,cell,repetition,seed,seconds,accesses,bytes,gb_per_s,valid,visit_seconds,visit_gb_per_s,session";
        // 4 096 000 000 bytes in 2 s, and in 1 s.
        let line = "S4.matrix,\"mmap\",0,7,2.000000,1000000,4096000000,2.0480,true,1.000000,4.0960,S";
        assert_eq!(text, format!("{header}\n{line}\n"));
    }

    #[test]
    fn a_row_shows_its_runs_the_refused_ones_and_how_many_sessions_agree() {
        let faster = ["S0.faster".to_owned()];
        let (both, second) = (records(), records().split_off(12));

        let page = markdown(&ledger(&both, &faster), &both);
        let alone = markdown(&ledger(&second, &faster), &second);

        assert!(
            page.contains(
                "| n 6 | undecided, run more | 1 of 2 sessions (n 6, 6) | sessions disagree: holds here in A;"
            ),
            "{page}"
        );
        assert!(alone.contains("| n 6, 1 of 13 refused | does not hold here | 1 session |"), "{alone}");
        assert!(alone.contains("refused: 1 x cold (600 MiB were cached)"), "{alone}");
    }

    #[test]
    fn agreement_is_counted_over_the_claims_that_several_sessions_have() {
        let records = records();
        let mut out = Vec::new();

        print_agreement(&ledger(&records, &[]), &records, &mut out).unwrap();

        let text = String::from_utf8(out).unwrap();
        let same_line = text.trim_end().rsplit("\n\n").next().unwrap().replace("\n  ", " ");
        assert!(text.contains(" S0.faster        holds here | does not hold here   "), "{text}");
        assert!(!text.contains("S0.cause"), "a row that no session ran is listed: {text}");
        // The other three are of cells that no session ran.
        let same =
            "1 of 2 claims have the same verdict in all sessions that ran them; of those decided yes or no, 0 of 1";
        assert_eq!(same_line, same);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
