//! Drift as a table of Markdown: claims down, kernels across.

use super::drift::{Axis, ClaimSide, Drift, Ground};
use std::collections::BTreeSet;
use std::fmt::Write;

/// A row for each claim that was judged, a column for each kernel, device and file system, in the order of kernels; then what flips.
pub fn markdown(drift: &Drift) -> String {
    let claims: Vec<_> = drift.claims().map(|claim| (claim, claim.seen())).collect();
    let grounds: BTreeSet<Ground> =
        claims.iter().flat_map(|(_, sides)| sides.iter().map(|side| side.ground.clone())).collect();
    // Kernels first: the ground's own order is by file system.
    let mut grounds: Vec<Ground> = grounds.into_iter().collect();
    grounds.sort_by(|one, other| one.by_kernel(other));
    let mut text = String::new();
    let heads: Vec<String> = grounds.iter().map(column).collect();
    let _ = writeln!(text, "| claim | says | {} |\n| --- | --- |{}", heads.join(" | "), " --- |".repeat(heads.len()));
    for (claim, sides) in &claims {
        let at =
            |ground: &Ground| sides.iter().find(|side| side.ground == *ground).map_or_else(|| "·".to_owned(), cell);
        let cells: Vec<String> = grounds.iter().map(at).collect();
        let _ = writeln!(text, "| {} | {} | {} |", escaped(claim.row.id), escaped(claim.row.says), cells.join(" | "));
    }
    let read = &drift.read;
    let _ = writeln!(text, "\n{} sessions of {} files. {}", read.sessions, read.files, super::drift_tell::flips(drift));
    text
}

fn column(ground: &Ground) -> String {
    let at = |axis| ground.shown(axis);
    escaped(&format!("{} ({} on {})", at(Axis::Kernel), at(Axis::Filesystem), at(Axis::Device)))
}

/// Yes, no, or why neither; how many sessions, where they agree.
fn cell(side: &ClaimSide) -> String {
    let sessions: usize = side.verdicts.values().sum();
    match side.verdicts.len() {
        1 => {
            let words = match side.verdict.words() {
                "holds here" => "holds",
                "does not hold here" => "**does not hold**",
                "cannot be tested here" => return format!("cannot be told: {}", escaped(&side.verdict.reason())),
                _ => "undecided",
            };
            format!("{words} ({sessions} of {sessions})")
        }
        _ => {
            let each: Vec<String> = side.verdicts.iter().map(|(words, count)| format!("{words}: {count}")).collect();
            escaped(&each.join("; "))
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('\n', " ")
}
