//! The notes of a first screen: of all groups together, each once, those that matter most.

use super::{
    BOLD, DIM, NOTES, PLAIN, Screen, YELLOW, circumstances, missing, not_met, noted, on_the_timeline, reasons,
};
use super::{safe, wrapped};
use crate::record::Question;
use crate::report::{Group, Summary, question};
use std::io;

/// One thing to know.
#[derive(Clone, PartialEq)]
struct Note {
    sign: &'static str,
    text: String,
    style: &'static str,
}

/// Writes the notes, and where it was measured.
///
/// Errors: those of the screen.
pub fn print(summary: &Summary<'_>, to: &mut Screen<'_>) -> io::Result<()> {
    let notes = gathered(summary);
    for Note { sign, text, style } in notes.iter().take(NOTES) {
        wrapped(to, sign, &safe(text), style)?;
    }
    if notes.len() > NOTES {
        let more = notes.len() - NOTES;
        wrapped(to, "", &format!("{more} more notes: --verbose shows them, --report FILE.html the rest"), DIM)?;
    }
    writeln!(to.out, "\n{BOLD}Measured on{PLAIN}")?;
    let lines = once(summary.groups.iter().flat_map(circumstances));
    lines.iter().try_for_each(|line| wrapped(to, "", &safe(line), DIM))
}

/// All notes, the most important kind first; what several groups say is said once.
fn gathered(summary: &Summary<'_>) -> Vec<Note> {
    let kinds = KINDS.iter().flat_map(|kind| {
        let of_groups: Vec<(&Group<'_>, Vec<Note>)> = summary.groups.iter().map(|group| (group, kind(group))).collect();
        of_groups
            .iter()
            .flat_map(|(group, notes)| notes.iter().map(|note| named(group, note, &of_groups)))
            .collect::<Vec<_>>()
    });
    once(kinds)
}

/// The note with its question, where not all groups say the same.
fn named(group: &Group<'_>, note: &Note, of_groups: &[(&Group<'_>, Vec<Note>)]) -> Note {
    let is_common = of_groups.iter().all(|(_, notes)| notes.contains(note));
    let question = match group.question().filter(|_| !is_common) {
        Some(Question::FirstPass) => "first pass: ",
        Some(Question::SteadyState) => "steady state: ",
        None => "",
    };
    Note { text: format!("{question}{}", note.text), ..note.clone() }
}

fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// What there is to know of a group, the most important first.
const KINDS: &[fn(&Group<'_>) -> Vec<Note>] = &[
    |group| warnings(reasons(group)),
    |group| warnings(not_met(group)),
    |group| warnings(question::remark(group)),
    |group| remarks(group, false),
    advice,
    |group| plain(group.verdict.evidence.clone()),
    |group| plain(on_the_timeline(group)),
    |group| soft(noted(group)),
    |group| soft(missing(group)),
    |group| remarks(group, true),
];

fn warnings(all: impl IntoIterator<Item = String>) -> Vec<Note> {
    of("! ", YELLOW, all)
}

fn plain(all: impl IntoIterator<Item = String>) -> Vec<Note> {
    of("· ", "", all)
}

fn soft(all: impl IntoIterator<Item = String>) -> Vec<Note> {
    of("· ", DIM, all)
}

fn of(sign: &'static str, style: &'static str, all: impl IntoIterator<Item = String>) -> Vec<Note> {
    all.into_iter().map(|text| Note { sign, text, style }).collect()
}

fn advice(group: &Group<'_>) -> Vec<Note> {
    of("→ ", "", group.advice.iter().map(|advice| format!("{}, because {}", advice.says, advice.because)))
}

/// What is said of the machine: how its counter of shootdowns counts comes last, as it is on every screen and seldom decides.
fn remarks(group: &Group<'_>, of_counters: bool) -> Vec<Note> {
    let is_of_counters = |remark: &&String| remark.contains("TLB") == of_counters;
    soft(group.machine.remarks.iter().filter(is_of_counters).cloned())
}
