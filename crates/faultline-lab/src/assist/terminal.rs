//! What was done, in a few lines.

use super::{FileOutcome, NOT_TRACED, Outcome, PAGE};
use faultline::{Bytes, Nanos};
use std::io::{self, Write};

/// Files that are listed.
const MOST_FILES: usize = 8;

/// Waits below which a file is not worth a line.
const FEWEST_WAITS: u64 = 20;

/// Writes the report.
///
/// Errors: those of `out`.
pub fn print(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let nanos = |length: std::time::Duration| Nanos(length.as_nanos() as u64);
    writeln!(
        out,
        "assisted for {}: {} faults, {} in files; processor time {} of ours, {} of the program",
        nanos(outcome.length),
        outcome.faults,
        outcome.in_files,
        nanos(outcome.own_time),
        nanos(outcome.program_time)
    )?;
    if outcome.lost > 0 {
        writeln!(out, "{} faults were too many to be seen", outcome.lost)?;
    }
    if outcome.unfollowed > 0 {
        writeln!(out, "{} threads were not followed; raise ulimit -n", outcome.unfollowed)?;
    }
    let is_meant = |file: &FileOutcome| file.refused.as_deref() != Some(NOT_TRACED);
    let worth = |file: &&FileOutcome| is_meant(file) && (file.tally.asked > 0 || file.waits >= FEWEST_WAITS);
    let worth: Vec<&FileOutcome> = outcome.files.iter().filter(worth).collect();
    for file in worth.iter().take(MOST_FILES) {
        writeln!(out, "{}", line(file))?;
    }
    if worth.is_empty() {
        writeln!(out, "hardly a wait in a file: nothing to help with (reads by calls are not seen)")?;
    }
    if worth.len() > MOST_FILES {
        writeln!(out, "and {} more files (--json has all)", worth.len() - MOST_FILES)?;
    }
    Ok(())
}

fn line(file: &FileOutcome) -> String {
    let FileOutcome { path, faults, waits, waited_ns, threads, tally, refused } = file;
    let bytes = |pages: u64| Bytes(pages * PAGE).rounded();
    let what = match (tally.stride, tally.asked, refused) {
        (_, _, Some(why)) => format!("not helped: {why}"),
        (_, 0, _) => "no order that the kernel does not read ahead by itself: nothing read".to_owned(),
        (Some(stride), ..) => format!("stride {}", Bytes(stride).rounded()),
        _ if tally.learned => "an order learned or traced".to_owned(),
        _ => "a stride was tried, and is none".to_owned(),
    };
    let mut line = format!("{path}: {what}; {faults} faults of {threads} threads");
    if tally.asked > 0 {
        line += &format!("; read ahead {}, {} of it used", bytes(tally.asked), bytes(tally.used));
    }
    if *waits > 0 {
        line += &format!("; waited {waits} times, {}", Nanos(*waited_ns));
    }
    if tally.stopped > 0 {
        line += &format!("; stopped {} times, because it did not help", tally.stopped);
    }
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
