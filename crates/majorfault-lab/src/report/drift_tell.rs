//! Drift in words for a terminal, and as a JSON document.

use super::drift::{Axis, ClaimSide, ClaimSides, Drift, UNKNOWN};
use super::ledger::{paragraphs, table, write_table};
use comfy_table::Cell;
use majorfault::units::grouped;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The version of the document; raised when a reader of the old one would misread the new one.
const FORMAT: u32 = 1;

/// Widths of the columns.
const WIDTHS: &[u16] = &[20, 8, 10, 24, 38];

/// Prints what flipped, then every claim on each of its sides.
///
/// Errors: those of `out`.
pub fn print(drift: &Drift, out: &mut impl Write) -> io::Result<()> {
    paragraphs(&head(drift), out)?;
    for claim in drift.claims() {
        writeln!(out)?;
        paragraphs(&[format!("{}  {} (published: {})", claim.row.id, claim.row.says, claim.row.published)], out)?;
        let mut table = table(&["kernel", "device", "on", "verdict, sessions", "beside others"], WIDTHS);
        for seen in claim.seen() {
            let said = [verdicts(&seen), figure(&seen)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
            table.add_row([
                Cell::new(seen.ground.shown(Axis::Kernel)),
                Cell::new(seen.ground.shown(Axis::Device)),
                Cell::new(seen.ground.shown(Axis::Filesystem)),
                Cell::new(said.join("\n")),
                Cell::new(beside(&seen).join("\n")),
            ]);
        }
        write_table(&mut table, WIDTHS, out)?;
    }
    Ok(())
}

/// What it comes to: what flipped, what is not known, what was read.
pub(super) fn head(drift: &Drift) -> Vec<String> {
    let claims: Vec<(&ClaimSides, Vec<ClaimSide>)> = drift.claims().map(|claim| (claim, claim.seen())).collect();
    let mut lines = Vec::new();
    let mut compared = 0;
    for (claim, sides) in &claims {
        compared += usize::from(sides.iter().any(|seen| !seen.beside.is_empty()));
        for seen in sides {
            lines.extend(seen.flips().map(|change| format!("FLIPS  {}: {}", claim.row.id, flip(seen, change))));
        }
    }
    let counted = |what: &str, is_so: &dyn Fn(&ClaimSide) -> bool| {
        let ids: Vec<&str> =
            claims.iter().filter(|(_, sides)| sides.iter().any(is_so)).map(|(claim, _)| claim.row.id).collect();
        (!ids.is_empty()).then(|| format!("{what}: {}", ids.join(", ")))
    };
    lines.insert(
        0,
        match (compared, lines.len()) {
            (0, _) => {
                "nothing can be compared: no claim was decided on two kernels, devices or file systems".to_owned()
            }
            (compared, 0) => format!("no verdict flips, of {compared} claims that were decided on several sides"),
            (compared, flips) => format!("{flips} flips, of {compared} claims that were decided on several sides"),
        },
    );
    lines.extend(counted("unknown kernel, device or file system, so compared with nothing", &|seen| {
        !seen.ground.unknown().is_empty()
    }));
    lines.extend(counted("sessions of one side disagree", &|seen| {
        seen.verdict.reason().starts_with("sessions disagree")
    }));
    let read = &drift.read;
    lines.push(format!("{} claims of {} sessions in {} files", claims.len(), read.sessions, read.files));
    if read.copies > 0 {
        lines.push(format!("{} sessions are in a second file as well, and were counted once", read.copies));
    }
    if read.others > 0 {
        lines.push(format!("{} records are of no published experiment, and have no verdict", read.others));
    }
    if read.unread > 0 {
        lines.push(format!("{} files could not be read, and are not judged:", read.unread));
        lines.extend(read.told.iter().map(|(file, reason)| format!("{file}: {reason}")));
    }
    lines
}

/// Each flip as a sentence, the number of them before.
pub(super) fn flips(drift: &Drift) -> String {
    let of_count: Vec<String> = head(drift).into_iter().take_while(|line| !line.contains(" claims of ")).collect();
    let sentence = |line: &String| line.trim_start_matches("FLIPS  ").replace('*', "\\*");
    of_count.iter().map(sentence).collect::<Vec<_>>().join(".\n- ") + "."
}

/// `does not hold here on 6.18 (vd, ext4); holds here on kernel 6.12`.
fn flip(seen: &ClaimSide, change: &super::drift::Change) -> String {
    let rest = Axis::ALL.into_iter().filter(|axis| *axis != change.axis).map(|axis| seen.ground.shown(axis));
    format!(
        "{} on {} {} ({}), {} on {}{}",
        seen.verdict.words(),
        change.axis.words(),
        seen.ground.shown(change.axis),
        rest.collect::<Vec<_>>().join(", "),
        change.was,
        change.other,
        also(change)
    )
}

fn also(change: &super::drift::Change) -> String {
    match change.also_different.as_slice() {
        [] => String::new(),
        names => format!("; not the same either: {}", names.join(", ")),
    }
}

/// `holds here`, with the sessions that say so; each verdict where they differ.
fn verdicts(seen: &ClaimSide) -> String {
    let each: Vec<String> = seen.verdicts.iter().map(|(words, count)| format!("{words}, {count}")).collect();
    each.join("; ")
}

fn figure(seen: &ClaimSide) -> String {
    match seen.figure {
        Some([least, most]) if least == most => grouped(least),
        Some([least, most]) => format!("{}–{}", grouped(least), grouped(most)),
        None => String::new(),
    }
}

/// A line for each side that it was compared with, or why it was not.
pub(super) fn beside(seen: &ClaimSide) -> Vec<String> {
    let unknown = seen.ground.unknown();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|axis| axis.words()).collect();
        return vec![format!("{UNKNOWN}: {} not recorded", names.join(", "))];
    }
    let line = |change: &super::drift::Change| {
        let mark = if change.flips { "FLIPS from" } else { "as on" };
        let also = if change.flips { also(change) } else { String::new() };
        format!("{mark} {} {}{also}", change.axis.words(), change.other)
    };
    seen.beside.iter().map(line).collect()
}

pub(super) fn row(seen: &ClaimSide) -> [String; 5] {
    let at = |axis| seen.ground.shown(axis).to_owned();
    let said =
        [verdicts(seen), figure(seen)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    [at(Axis::Kernel), at(Axis::Device), at(Axis::Filesystem), said, beside(seen).join("; ")]
}

/// The document.
pub fn document(drift: &Drift) -> Value {
    let claims: Vec<DriftClaimJson<'_>> = drift.claims().map(DriftClaimJson::of).collect();
    let read = &drift.read;
    let made = DriftJson {
        format: FORMAT,
        flips: claims.iter().map(|claim| claim.flips).sum(),
        files: read.files,
        sessions: read.sessions,
        copies: read.copies,
        records_without_claim: read.others,
        unread: read.unread,
        unread_files: read.told.iter().map(|(file, reason)| UnreadJson { file, reason }).collect(),
        claims,
    };
    serde_json::to_value(made).unwrap_or_default()
}

/// The schema of the document.
pub fn schema() -> Value {
    schemars::schema_for!(DriftJson<'_>).into()
}

/// Published claims against kernels, kinds of devices and file systems, over records of many sessions. What is not known is null.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DriftJson<'a> {
    /// The version of this document.
    format: u32,
    /// Comparisons in which a verdict is the contrary of the one before.
    flips: usize,
    /// Files that were read.
    files: usize,
    /// Sessions that were judged.
    sessions: usize,
    /// Sessions that a second file had as well; they are counted once.
    copies: usize,
    /// Records that are of no published experiment, and so have no verdict.
    records_without_claim: usize,
    /// Files that could not be read.
    unread: usize,
    /// The first twenty of them.
    unread_files: Vec<UnreadJson<'a>>,
    /// Every claim that was judged, in the order of the experiments.
    claims: Vec<DriftClaimJson<'a>>,
}

/// A file that could not be read.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnreadJson<'a> {
    /// Its path.
    file: &'a str,
    /// Why.
    reason: &'a str,
}

/// A claim on each of its sides.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DriftClaimJson<'a> {
    /// Its id; our own controls end in a star.
    id: &'a str,
    /// The experiment.
    experiment: &'a str,
    /// Whose it is: `published claims`, `our own controls`, `facts about us`.
    kind: &'a str,
    /// What it says.
    says: &'a str,
    /// The published figure.
    published: &'a str,
    /// Comparisons in which its verdict flips.
    flips: usize,
    /// File system by file system, device by device, kernels in the order of their numbers.
    sides: Vec<DriftSideJson>,
}

/// What its sessions said on one kernel, kind of device and file system.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DriftSideJson {
    /// The kernel's release; null where it is not known.
    kernel: Option<String>,
    /// The kind of device, `vd` of `vda`; null where it is not known.
    device: Option<String>,
    /// Type of the file system; null where it is not known.
    filesystem: Option<String>,
    /// On what its sessions agree; `undecided, run more` where they do not.
    verdict: &'static str,
    /// Why it is no yes or no.
    reason: String,
    /// Sessions that judged it.
    sessions: usize,
    /// Each verdict, with the sessions that gave it.
    verdicts: BTreeMap<&'static str, usize>,
    /// The least and the most, over sessions, of what the claim's first test compares.
    figure: Option<[f64; 2]>,
    /// When the first and the last session began, in seconds since 1970.
    began_unix_s: [u64; 2],
    /// What else decides, by name, with all values; eight at most, then `and others`.
    conditions: BTreeMap<&'static str, BTreeSet<String>>,
    /// Whether a verdict flips, against any side before it; null where it cannot be told: nothing to compare with, not decided, or it is not
    /// known where it was.
    flips: Option<bool>,
    /// Each comparison.
    beside: Vec<DriftChangeJson>,
}

/// A verdict beside the nearest before it that is a yes or a no, where only one of kernel, device and file system is another.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DriftChangeJson {
    /// `kernel`, `device` or `file system`.
    axis: &'static str,
    /// The other one.
    other: String,
    /// The verdict there.
    was: &'static str,
    /// Whether it is the contrary.
    flips: bool,
    /// Conditions that are not the same on both, and may be the cause as well.
    also_different: Vec<&'static str>,
}

impl<'a> DriftClaimJson<'a> {
    fn of(claim: &'a ClaimSides) -> DriftClaimJson<'a> {
        let sides = claim.seen();
        DriftClaimJson {
            id: claim.row.id,
            experiment: claim.experiment,
            kind: claim.row.kind.words(),
            says: claim.row.says,
            published: claim.row.published,
            flips: sides.iter().map(|seen| seen.flips().count()).sum(),
            sides: sides.into_iter().map(DriftSideJson::of).collect(),
        }
    }
}

impl DriftSideJson {
    fn of(seen: ClaimSide) -> DriftSideJson {
        let flips = (!seen.beside.is_empty()).then(|| seen.flips().next().is_some());
        let sessions = seen.sessions();
        let beside = seen.beside.into_iter().map(|change| DriftChangeJson {
            axis: change.axis.words(),
            other: change.other,
            was: change.was,
            flips: change.flips,
            also_different: change.also_different,
        });
        DriftSideJson {
            kernel: seen.ground.kernel,
            device: seen.ground.device,
            filesystem: seen.ground.filesystem,
            verdict: seen.verdict.words(),
            reason: seen.verdict.reason(),
            sessions,
            verdicts: seen.verdicts,
            figure: seen.figure,
            began_unix_s: seen.began_unix_s,
            conditions: seen.conditions,
            flips,
            beside: beside.collect(),
        }
    }
}
