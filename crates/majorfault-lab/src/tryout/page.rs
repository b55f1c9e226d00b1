//! The page "what works where", made from records.

use crate::tryout::{CASES, CHECKS, Came, GuestCase, Tried, surprise};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The tables as Markdown: places, what works in each, what is lost with its remedy, what is wrong. Of a case that was tried several
/// times the last counts.
pub fn markdown(records: &[Tried]) -> String {
    let latest = latest(records);
    let mut text = String::new();
    places(&mut text, &latest);
    works(&mut text, &latest);
    lost(&mut text, &latest);
    wrong(&mut text, &latest);
    text
}

/// What was tried last, by case and check.
type Latest<'a> = BTreeMap<(&'a str, &'a str), &'a Tried>;

fn latest(records: &[Tried]) -> Latest<'_> {
    // A guest that broke down does not stand beside its later success.
    let mut latest = Latest::new();
    for tried in records {
        latest.remove(&(tried.case.as_str(), "guest"));
        latest.insert((&tried.case, &tried.check), tried);
    }
    latest
}

fn of_case<'a>(latest: &'a Latest<'_>, case: &'a GuestCase) -> impl Iterator<Item = &'a Tried> {
    latest.values().copied().filter(|tried| tried.case == case.name)
}

/// Cases of which there is a record.
fn cases<'a>(latest: &'a Latest<'_>) -> impl Iterator<Item = &'static GuestCase> + 'a {
    CASES.iter().filter(|case| latest.keys().any(|(name, _)| *name == case.name))
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn places(text: &mut String, latest: &Latest<'_>) {
    let _ = writeln!(
        text,
        "| place | what is different there | kernel | guest | checks |\n| --- | --- | --- | --- | --- |"
    );
    for case in cases(latest) {
        let kernels: BTreeSet<&str> = of_case(latest, case).map(|tried| tried.kernel.as_str()).collect();
        let kernels = kernels.into_iter().filter(|kernel| !kernel.is_empty()).collect::<Vec<_>>().join(", ");
        let count = of_case(latest, case).count();
        let _ = writeln!(text, "| {} | {} | {kernels} | `{}` | {count} |", case.name, cell(case.says), case.place);
    }
    let untried: Vec<&str> =
        CASES.iter().map(|case| case.name).filter(|name| latest.keys().all(|(tried, _)| tried != name)).collect();
    if !untried.is_empty() {
        let _ = writeln!(text, "\nDeclared, and not in the records: {}.", untried.join(", "));
    }
}

/// What a cell of the table says.
fn word(tried: Option<&&Tried>) -> String {
    match tried.map(|tried| &tried.came) {
        None => "·".to_owned(),
        Some(Came::Works { without, .. }) if without.is_empty() => "works".to_owned(),
        Some(Came::Works { .. }) => "in part".to_owned(),
        Some(Came::Lost { .. }) => "lost".to_owned(),
        Some(Came::Broken(_)) => "**broken**".to_owned(),
    }
}

fn works(text: &mut String, latest: &Latest<'_>) {
    let tried: Vec<_> = CHECKS.iter().filter(|check| latest.keys().any(|(_, name)| *name == check.name)).collect();
    let _ = writeln!(text, "\n| check | what works where it passes |\n| --- | --- |");
    for check in &tried {
        let _ = writeln!(text, "| {} | {} |", check.name, cell(check.says));
    }
    let names: Vec<&str> = tried.iter().map(|check| check.name).collect();
    let _ = writeln!(text, "\n| place | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(names.len()));
    for case in cases(latest) {
        let cells: Vec<String> = names.iter().map(|name| word(latest.get(&(case.name, *name)))).collect();
        let _ = writeln!(text, "| {} | {} |", case.name, cells.join(" | "));
    }
}

fn lost(text: &mut String, latest: &Latest<'_>) {
    // The same sentence of many places is told once.
    let mut told: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for ((case, check), tried) in latest {
        let sentences = match &tried.came {
            Came::Works { without, .. } => without.iter().map(String::as_str).collect(),
            Came::Lost { said, .. } => vec![said.as_str()],
            Came::Broken(_) => Vec::new(),
        };
        for sentence in sentences {
            told.entry(sentence).or_default().insert((check, case));
        }
    }
    if told.is_empty() {
        return;
    }
    let _ =
        writeln!(text, "\n| what the command said is lost, and what to do | in the checks | at |\n| --- | --- | --- |");
    let every = cases(latest).count();
    for (sentence, at) in told {
        let checks: BTreeSet<&str> = at.iter().map(|(check, _)| *check).collect();
        let places: BTreeSet<&str> = at.iter().map(|(_, case)| *case).collect();
        let places = match places.len() == every {
            true => "all".to_owned(),
            false => {
                cases(latest).map(|case| case.name).filter(|name| places.contains(name)).collect::<Vec<_>>().join(", ")
            }
        };
        let checks = checks.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| `{}` | {checks} | {places} |", cell(sentence).replace('`', "'"));
    }
}

fn wrong(text: &mut String, latest: &Latest<'_>) {
    let surprises: Vec<(&Tried, String)> =
        latest.values().filter_map(|tried| surprise(tried).map(|why| (*tried, why))).collect();
    if surprises.is_empty() {
        let _ = writeln!(text, "\nNothing else was lost, and nothing was broken.");
        return;
    }
    let _ = writeln!(text, "\n| place | check | broken, or not as declared |\n| --- | --- | --- |");
    for (tried, why) in surprises {
        let _ = writeln!(text, "| {} | {} | `{}` |", tried.case, tried.check, cell(&why).replace('`', "'"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(case: &str, check: &str, came: Came) -> Tried {
        Tried {
            format: 1,
            tool: "majorfault 0.1.0 (abc)".to_owned(),
            case: case.to_owned(),
            place: String::new(),
            remark: String::new(),
            kernel: "6.12.1".to_owned(),
            check: check.to_owned(),
            command: String::new(),
            code: Some(0),
            took_ms: 1,
            came,
            said: Vec::new(),
        }
    }

    fn works(without: &[&str]) -> Came {
        Came::Works { found: String::new(), without: without.iter().map(|it| (*it).to_owned()).collect() }
    }

    #[test]
    fn each_outcome_has_its_word_and_a_loss_its_sentence() {
        let lost = Came::Lost { said: "io_uring is not available here: a|b; do".to_owned(), remedy: "do".to_owned() };
        let records = [
            tried("plain", "mmap", works(&[])),
            tried("plain", "trace", works(&["no calls"])),
            tried("no-io_uring", "uring", lost),
            tried("xfs", "mmap", Came::Broken("EIO".to_owned())),
        ];

        let page = markdown(&records);

        assert!(page.contains("| place | mmap | uring | trace |\n"), "{page}");
        for row in [
            "| plain | works | · | in part |",
            "| no-io_uring | · | lost | · |",
            "| xfs | **broken** | · | · |",
            "| `io_uring is not available here: a\\|b; do` | uring | no-io_uring |",
            "| xfs | mmap | `EIO` |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
        assert!(page.contains("Declared, and not in the records: old-kernel"), "{page}");
    }

    #[test]
    fn the_last_try_counts() {
        let broken = || Came::Broken("no".to_owned());
        let page = markdown(&[
            tried("xfs", "guest", broken()),
            tried("xfs", "mmap", broken()),
            tried("xfs", "mmap", works(&[])),
        ]);

        assert!(page.contains("| xfs | works |\n") && page.contains("Nothing else was lost"), "{page}");
    }
}
