//! The documents: a figure that was measured stands beside the command that measures it.
//!
//! The rule. A *figure* is a number with a unit of time, rate or ratio. A ratio (`x`, `times as`) and a rate are always
//! measured; a time or a share is where its paragraph compares. In the same paragraph, list item or table row there must be
//! a command that makes it, a row of claims.md, or a link to the table of method.md. What is between backticks or fences is
//! an example; claims.md is generated; the prose of method.md explains its own table.

use std::fs;
use std::path::{Path, PathBuf};

/// Units that are measured wherever they stand.
const ALWAYS: &[&str] = &["x", "k/s", "M/s", "GB/s", "GiB/s", "MB/s", "MiB/s", "/s"];

/// Units that are measured where a paragraph compares.
const COMPARED: &[&str] = &["%", "ns", "us", "ms", "s"];

/// What follows `times` where it is a ratio, not a count.
const AFTER_TIMES: &[&str] = &["as", "faster", "slower", "longer", "shorter", "more", "less", "fewer"];

/// Numbers in words, as they stand before `times`.
const NUMBERS: &[&str] = &["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "hundred"];

/// Words that compare.
const COMPARING: &[&str] = &[
    "faster", "slower", "longer", "shorter", "against", "instead", "alone", "took", "costs", "answers", "saves",
    "gains", "fast", "spends", "takes", "cost",
];

/// How a command that measures begins.
const COMMANDS: &[&str] = &[
    "cargo bench ",
    "cargo run --release --manifest-path benches/",
    "majorfault compare ",
    "majorfault reproduce ",
    "majorfault top ",
    "python3 tools/doctor-programs.py ",
    "python3 tools/fio-examples.py ",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// A paragraph, a list item or a table row, with the number of its first line.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    text: String,
}

/// The blocks outside of fences.
fn blocks(document: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut fenced) = (Vec::new(), Block::default(), false);
    for (line, text) in (1..).zip(document.lines()) {
        let is_fence = text.trim_start().starts_with("```");
        fenced ^= is_fence;
        let text = if fenced || is_fence { "" } else { text.trim() };
        if text.is_empty() || begins(text) {
            blocks.push(std::mem::replace(&mut open, Block { line, text: String::new() }));
        }
        if open.text.is_empty() {
            open.line = line;
        }
        open.text.push_str(text);
        open.text.push(' ');
    }
    blocks.push(open);
    blocks.retain(|block| !block.text.trim().is_empty());
    blocks
}

/// Whether a line begins a block of its own.
fn begins(line: &str) -> bool {
    let is_numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    is_numbered || ["- ", "| ", "#", "> "].iter().any(|mark| line.starts_with(mark))
}

/// The text without what stands between backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The figures of a block that were measured.
fn figures(text: &str) -> Vec<String> {
    let text = without_code(text);
    let words: Vec<&str> = text.split_whitespace().map(bare).collect();
    let compares = words.iter().any(|word| COMPARING.contains(&word.to_lowercase().as_str()));
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let figure = |index: usize| {
        let (number, unit) = split(word(index))?;
        let (unit, after) = if unit.is_empty() { (word(index + 1), word(index + 2)) } else { (unit, word(index + 1)) };
        let is_ratio = unit == "times" && AFTER_TIMES.contains(&after);
        let is_measured = is_ratio || ALWAYS.contains(&unit) || (compares && COMPARED.contains(&unit));
        is_measured.then(|| format!("{number} {unit}"))
    };
    (0..words.len()).filter_map(figure).collect()
}

/// A word without the marks around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|mark: char| "()[],;:.*_\"“”–".contains(mark))
}

/// Number and unit of `3.01s`, `0.94–1.01`, `12`, `five`; none of other words.
fn split(word: &str) -> Option<(&str, &str)> {
    if NUMBERS.contains(&word) {
        return Some((word, ""));
    }
    let end = word.find(|mark: char| !(mark.is_ascii_digit() || ".–-".contains(mark))).unwrap_or(word.len());
    word.starts_with(|mark: char| mark.is_ascii_digit()).then(|| word.split_at(end))
}

/// Whether the block says where its figures come from.
fn is_supported(text: &str, claims: &[String]) -> bool {
    let by_command = text.split('`').skip(1).step_by(2).any(measures);
    let by_link = text.contains("](method.md#figures-and-the-command-for-each)")
        || text.contains("](docs/method.md#figures-and-the-command-for-each)");
    by_command || by_link || rows(text).iter().any(|row| claims.contains(row))
}

/// Whether code is a command that measures; one with FILE or ID in it is a pattern.
fn measures(code: &str) -> bool {
    let is_pattern = |word: &str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase());
    COMMANDS.iter().any(|command| code.starts_with(command)) && !code.split_whitespace().any(is_pattern)
}

/// What looks like the id of a row: `S2.flood`.
fn rows(text: &str) -> Vec<String> {
    let words =
        text.split(|mark: char| !(mark.is_ascii_alphanumeric() || mark == '.')).map(|word| word.trim_matches('.'));
    let is_row = |word: &&str| {
        let (before, after) = word.split_once('.').unwrap_or_default();
        before.len() == 2 && before.starts_with('S') && before[1..].parse::<u8>().is_ok() && !after.is_empty()
    };
    words.filter(is_row).map(str::to_owned).collect()
}

/// Blocks with figures that nobody can make again, a line each.
fn unsupported(path: &str, document: &str, claims: &[String]) -> Vec<String> {
    let is_judged = |block: &Block| !path.ends_with("method.md") || block.text.starts_with("| ");
    let judged = blocks(document).into_iter().filter(is_judged).filter(|block| !is_supported(&block.text, claims));
    let told = judged.map(|block| (block.line, figures(&block.text))).filter(|(_, figures)| !figures.is_empty());
    told.map(|(line, figures)| format!("{path}:{line}: {}", figures.join(", "))).collect()
}

fn claims() -> Vec<String> {
    rows(&text("docs/claims.md"))
}

fn documents() -> Vec<String> {
    let names =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let written = names.filter(|name| name.ends_with(".md") && name != "claims.md").map(|name| format!("docs/{name}"));
    let mut all: Vec<String> = written.chain(["README.md".to_owned()]).collect();
    all.sort();
    all
}

#[test]
fn every_measured_figure_has_its_command() {
    let claims = claims();
    let wrong: Vec<String> = documents().iter().flat_map(|path| unsupported(path, &text(path), &claims)).collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_row_that_a_document_names_is_a_claim() {
    let claims = claims();

    for path in documents() {
        for row in rows(&text(&path)) {
            assert!(claims.contains(&row), "{path} names {row}, which claims.md does not have");
        }
    }
}

#[test]
fn every_bench_that_a_document_names_is_there() {
    for path in documents() {
        let document = text(&path);
        for after in document.split("`cargo bench ").skip(1) {
            let words: Vec<&str> = after.split('`').next().unwrap().split_whitespace().collect();
            let value = |option: &str| words.iter().skip_while(|word| **word != option).nth(1).copied();
            let (Some(package), Some(bench)) = (value("-p"), value("--bench")) else {
                panic!("{path}: cargo bench {words:?} names no package and bench");
            };
            let benches = root().join(format!("crates/{package}/benches"));
            let is_there =
                [format!("{bench}.rs"), format!("{bench}/main.rs")].iter().any(|file| benches.join(file).exists());
            assert!(is_there, "{path}: {package} {bench}");
        }
    }
}

/// The marks around the table of rules in doctor.md.
const TABLE: (&str, &str) = ("<!-- made by `majorfault list rules --markdown` -->\n", "<!-- end -->");

/// The document with the table of rules as the rules declare it.
fn with_table(document: &str, table: &str) -> String {
    between(document, TABLE, table)
}

/// The document with the text between two marks.
fn between(document: &str, (begin, end): (&str, &str), table: &str) -> String {
    let (before, rest) = document.split_once(begin).expect("the mark before the table is gone");
    let (_, after) = rest.split_once(end).expect("the mark after the table is gone");
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_table_of_rules_is_what_the_rules_declare() {
    let document = text("docs/doctor.md");
    let made = with_table(&document, &majorfault_lab::doctor::tell::describe::markdown());

    if std::env::var_os("MAJORFAULT_WRITE_DOCS").is_some() {
        fs::write(root().join("docs/doctor.md"), &made).unwrap();
    }
    let advice = "make the table again: MAJORFAULT_WRITE_DOCS=1 cargo test -p majorfault-lab --test documents rules";
    assert!(made == text("docs/doctor.md"), "docs/doctor.md does not say what the rules declare; {advice}");
}

/// The marks around the table of options in jobs.md.
const OPTIONS: (&str, &str) = ("<!-- made from crates/majorfault-lab/src/jobfile/options.rs -->\n", "<!-- end -->");

#[test]
fn the_table_of_a_jobs_options_is_what_they_declare() {
    let made = between(&text("docs/jobs.md"), OPTIONS, &majorfault_lab::jobfile::markdown());

    if std::env::var_os("MAJORFAULT_WRITE_DOCS").is_some() {
        fs::write(root().join("docs/jobs.md"), &made).unwrap();
    }
    let advice = "make the table again: MAJORFAULT_WRITE_DOCS=1 cargo test -p majorfault-lab --test documents options";
    assert!(made == text("docs/jobs.md"), "docs/jobs.md does not say what the options declare; {advice}");
}

/// Files of records below a directory of `records/`, in the order of their names.
fn records(dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("records").join(dir)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".jsonl.gz"));
    paths.sort();
    paths
}

/// The document `name` must have this text between the marks.
fn has_made(name: &str, marks: (&str, &str), table: &str) {
    let made = between(&text(name), marks, table);

    if std::env::var_os("MAJORFAULT_WRITE_DOCS").is_some() {
        fs::write(root().join(name), &made).unwrap();
    }
    let advice = "make it again: MAJORFAULT_WRITE_DOCS=1 cargo test -p majorfault-lab --test documents records";
    assert!(made == text(name), "{name} does not say what the records say; {advice}");
}

/// The marks around what works where.
const WHERE: (&str, &str) =
    ("<!-- made by `majorfault kernel try --from records/guests/*.gz --markdown` -->\n", "<!-- end -->");

#[test]
fn what_works_where_is_what_the_records_say() {
    let records = majorfault_lab::tryout::load(&records("guests")).unwrap();

    assert!(!records.is_empty(), "records/guests/ is empty");
    has_made("docs/where.md", WHERE, &format!("\n{}\n", majorfault_lab::tryout::page::markdown(&records)));
}

/// The marks around the table of kernels.
const KERNELS: (&str, &str) =
    ("<!-- made by `majorfault report --drift records/drift records/*.gz --markdown` -->\n", "<!-- end -->");

#[test]
fn the_table_of_kernels_is_what_the_records_say() {
    let mut drift = majorfault_lab::report::drift::Drift::default();
    let files = [records("drift"), records(".")].concat();
    for file in &files {
        let records = majorfault_lab::session::load_file(file).unwrap();
        drift.add::<()>("", records, |_| Ok(())).unwrap();
    }

    let made = majorfault_lab::report::drift_markdown::markdown(&drift);
    has_made("docs/drift.md", KERNELS, &format!("\n{made}\n"));
}

#[test]
fn the_schema_of_each_json_is_that_of_what_is_printed() {
    let schemas = [
        ("doctor", majorfault_lab::doctor::tell::schema()),
        ("run", majorfault_lab::launch::document::schema()),
        ("compare", majorfault_lab::report::json::schema()),
        ("programs", majorfault_lab::program::schema()),
        ("drift", majorfault_lab::report::drift_tell::schema()),
    ];
    for (name, schema) in schemas {
        let (name, made) = (format!("docs/{name}.schema.json"), format!("{schema:#}\n"));
        if std::env::var_os("MAJORFAULT_WRITE_DOCS").is_some() {
            fs::write(root().join(&name), &made).unwrap();
        }
        let advice = "make it again: MAJORFAULT_WRITE_DOCS=1 cargo test -p majorfault-lab --test documents schema";
        assert!(made == text(&name), "{name} is another one; {advice}");
    }
}

#[test]
fn every_field_of_the_doctors_json_is_explained() {
    let document = majorfault_lab::doctor::tell::document(&Default::default(), &[Default::default()]);
    let explained = text("docs/doctor.md");
    let explained = explained.split("\n## JSON\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let words: Vec<&str> = explained.split('`').skip(1).step_by(2).collect();
    let all = document.as_object().unwrap().keys();
    let of_finding = document["findings"][0].as_object().unwrap().keys().map(|key| format!("findings[].{key}"));

    for field in all.cloned().chain(of_finding) {
        assert!(words.contains(&field.as_str()), "docs/doctor.md does not explain `{field}`");
    }
}

/// Numbers in words that would count the rules.
#[test]
fn no_document_counts_the_rules() {
    let count = majorfault_lab::doctor::rules::ALL.len();
    let in_words = ["sixteen", "seventeen", "eighteen", "nineteen", "twenty", "twenty-one", "twenty-two"];

    for path in documents() {
        let document = without_code(&text(&path)).to_lowercase();
        let words: Vec<&str> = document.split_whitespace().map(bare).collect();
        for pair in words.windows(3) {
            let is_count = in_words.contains(&pair[0]) || pair[0] == count.to_string();
            let is_rules = pair[1..].iter().any(|word| matches!(*word, "rules" | "defects" | "findings" | "kinds"));
            assert!(!(is_count && is_rules), "{path}: {}", pair.join(" "));
        }
    }
}

mod planted {
    use super::*;

    #[test]
    fn a_table_that_is_not_the_declared_one_is_replaced() {
        let document = format!("a\n{}| old |\n{}\nb", TABLE.0, TABLE.1);

        assert_eq!(with_table(&document, "| new |\n"), document.replace("old", "new"));
    }

    fn found(document: &str) -> Vec<String> {
        unsupported("docs/some.md", document, &["S2.flood".to_owned()])
    }

    #[test]
    fn a_figure_without_a_command_is_found() {
        for (text, figure) in [
            ("It is 3 x as fast.", "3 x"),
            ("It is 2.7 times as fast.", "2.7 times"),
            ("A queue reads five times as fast (method.md, pool).", "five times"),
            ("It reads 3 GiB/s: `majorfault compare FILE` and `majorfault reproduce ID` measure it.", "3 GiB/s"),
            ("A fault becomes 0.1 to 0.4 us longer.", "0.4 us"),
            ("Each call becomes 100 ns longer (Linux 6.18).", "100 ns"),
            ("The disk reads 3 GiB/s (here).", "3 GiB/s"),
            ("It answers in 60us.", "60 us"),
            ("It was 0.9 s alone, with `majorfault assist` less.", "0.9 s"),
            ("It took 1.82 s; `pread` less.", "1.82 s"),
            ("It cost 19 % of the reads; that is slower.", "19 %"),
            ("- one item, `cargo bench -p a --bench b`\n- It is 3 x as fast.", "3 x"),
            ("| `majorfault compare` |\n| 27.5 k/s |", "27.5 k/s"),
            ("It is 3 x as fast (S2.unknown).", "3 x"),
            ("It is 3 x as fast, see [there](method.md).", "3 x"),
            ("`cargo bench -p a --bench b` is there.\n\nIt is 3 x as fast.", "3 x"),
        ] {
            let told = found(text);
            assert!(told.len() == 1 && told[0].ends_with(figure), "{text}: {told:?}");
        }
    }

    #[test]
    fn a_line_is_named() {
        assert_eq!(found("# Title\n\nText.\n\n- It is\n  3 x as fast.\n"), ["docs/some.md:5: 3 x"]);
    }

    #[test]
    fn what_is_no_measured_figure_or_has_its_source_passes() {
        for text in [
            "The histogram counts it 16 times, and waits three times.",
            "It watches for 5 s, and looks every 100 ms.",
            "A run is spoiled where others use 60 % of the processors.",
            "Buffers of 512 KiB; 2 processors; Linux 6.18; page 3.",
            "```\nwaited 3.01 s instead of 1 s: 3 x\n```",
            "Say `--runtime 10 s` instead.",
            "It is 3 x as fast (`cargo bench -p majorfault --bench pool_costs`).",
            "It is 3 x as fast (`majorfault reproduce S2`).",
            "It is 3 x as fast (S2.flood).",
            "It is 3 x as fast, see [the table](method.md#figures-and-the-command-for-each).",
            "| 3 x | `majorfault compare --runs 3` |",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }
}
