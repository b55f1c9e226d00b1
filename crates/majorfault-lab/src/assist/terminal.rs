//! The outcome in a few lines.

use super::{Assisted, AssistedFile, NOT_TRACED, PAGE};
use majorfault::{Bytes, Nanos};
use std::io::{self, Write};

/// Files that are listed.
const MOST_FILES: usize = 8;

/// Waits below which a file is not worth a line.
const FEWEST_WAITS: u64 = 20;

const NOTHING: &str = "hardly any page fault waited in a file, and no read call had an order of its own, so there is nothing to help with";

/// Writes the report.
///
/// Errors: those of `out`.
pub fn print(outcome: &Assisted, out: &mut dyn Write) -> io::Result<()> {
    let nanos = |length: std::time::Duration| Nanos(length.as_nanos() as u64);
    writeln!(
        out,
        "assisted for {}: {} faults, {} in files; {} read calls; processor time: assistant {}, program {}",
        nanos(outcome.length),
        outcome.faults,
        outcome.in_files,
        outcome.reads,
        nanos(outcome.own_time),
        nanos(outcome.program_time)
    )?;
    if outcome.lost > 0 {
        writeln!(out, "{} faults and reads were lost (the rings were full)", outcome.lost)?;
    }
    if outcome.unfollowed > 0 {
        writeln!(out, "{} threads were not followed; raise ulimit -n", outcome.unfollowed)?;
    }
    let is_meant = |file: &AssistedFile| file.refused.as_deref() != Some(NOT_TRACED);
    let worth = |file: &&AssistedFile| is_meant(file) && (file.tally.asked > 0 || file.waits >= FEWEST_WAITS);
    let worth: Vec<&AssistedFile> = outcome.files.iter().filter(worth).collect();
    for file in worth.iter().take(MOST_FILES) {
        writeln!(out, "{}", line(file))?;
    }
    if worth.is_empty() {
        writeln!(out, "{NOTHING}")?;
    }
    if let Some(missing) = &outcome.no_reads {
        writeln!(out, "read calls were not seen: {missing}")?;
    }
    if worth.len() > MOST_FILES {
        writeln!(out, "and {} more files (--json has all)", worth.len() - MOST_FILES)?;
    }
    Ok(())
}

fn line(file: &AssistedFile) -> String {
    let AssistedFile { path, faults, reads, waits, waited_ns, threads, tally, refused, near_rows, .. } = file;
    let bytes = |pages: u64| Bytes(pages * PAGE).rounded();
    let what = match (tally.stride, tally.asked, refused) {
        (_, _, Some(why)) => format!("not helped: {why}"),
        (_, 0, _) if near_rows.is_some() => {
            format!("nothing read ahead: {}", near_rows.as_ref().map_or_else(String::new, ToString::to_string))
        }
        (_, 0, _) => "nothing read ahead: no order, or one that the kernel reads ahead by itself".to_owned(),
        (Some(stride), ..) => format!("stride {}", Bytes(stride).rounded()),
        _ if tally.learned => "order learned or from the trace".to_owned(),
        _ => "a stride was tried and disproved".to_owned(),
    };
    let calls = if *reads > 0 { format!(" and {reads} read calls") } else { String::new() };
    let mut line = format!("{path}: {what}; {faults} faults{calls} of {threads} threads");
    if tally.asked > 0 {
        line += &format!("; read ahead {}, {} of it used", bytes(tally.asked), bytes(tally.used));
    }
    if *waits > 0 {
        line += &format!("; waited {waits} times, {}", Nanos(*waited_ns));
    }
    if tally.stopped > 0 {
        line += &format!("; stopped {} times because it did not help", tally.stopped);
    }
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assist::ReadCounts;

    fn said(files: Vec<AssistedFile>) -> String {
        let mut out = Vec::new();
        let outcome = Assisted { faults: 10, in_files: 7, files, ..Assisted::default() };
        print(&outcome, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn file(waits: u64, tally: ReadCounts) -> AssistedFile {
        AssistedFile {
            path: "/x".to_owned(),
            faults: 9,
            threads: 2,
            waits,
            waited_ns: 5_000_000,
            tally,
            ..Default::default()
        }
    }

    #[test]
    fn a_file_with_20_waits_or_something_read_has_a_line() {
        let nothing = NOTHING;

        assert!(said(vec![file(19, ReadCounts::default())]).contains(nothing));
        assert!(!said(vec![file(20, ReadCounts::default())]).contains(nothing));
        assert!(!said(vec![file(0, ReadCounts { asked: 1, ..ReadCounts::default() })]).contains(nothing));
    }

    #[test]
    fn eight_files_are_listed_and_more_are_counted() {
        let waiting = |count| said((0..count).map(|_| file(20, ReadCounts::default())).collect());

        assert_eq!(waiting(8).lines().count(), 9);
        assert_eq!(waiting(10).lines().count(), 10);
        assert!(waiting(10).ends_with("and 2 more files (--json has all)\n"));
    }

    #[test]
    fn a_file_that_the_trace_does_not_name_has_no_line() {
        let refused =
            |why: &str| said(vec![AssistedFile { refused: Some(why.to_owned()), ..file(50, ReadCounts::default()) }]);

        assert!(!refused(NOT_TRACED).contains("/x"));
        assert!(refused("gone").contains("/x: not helped: gone; 9 faults of 2 threads; waited 50 times, 5ms"));
    }

    #[test]
    fn why_near_rows_were_left_alone_is_said() {
        let near_rows = Some(majorfault::Missing::new("telling rows", "no cachestat(2)", "use Linux 6.5"));
        let left = AssistedFile { near_rows, ..file(20, ReadCounts::default()) };

        let told =
            "/x: nothing read ahead: telling rows is not available here: no cachestat(2); use Linux 6.5; 9 faults";
        assert!(line(&left).starts_with(told), "{}", line(&left));
        let helped = AssistedFile { tally: ReadCounts { asked: 1, ..ReadCounts::default() }, ..left };
        assert!(!line(&helped).contains("cachestat"));
    }

    #[test]
    fn what_was_done_is_reported_in_bytes_of_pages() {
        let tally = ReadCounts { asked: 512, used: 256, stride: Some(1 << 20), ..ReadCounts::default() };

        assert_eq!(
            line(&file(0, tally)),
            "/x: stride 1.00 MiB; 9 faults of 2 threads; read ahead 2.00 MiB, 1.00 MiB of it used"
        );
        assert!(line(&file(0, ReadCounts { asked: 1, ..tally })).contains("read ahead 4.00 KiB"));
        assert!(
            line(&file(0, ReadCounts { stopped: 3, ..tally })).ends_with("; stopped 3 times because it did not help")
        );
    }

    #[test]
    fn an_order_a_trial_and_nothing_are_told_apart() {
        let what = |tally| line(&file(0, tally)).split(';').next().unwrap().to_owned();

        let order = ReadCounts { asked: 1, learned: true, ..ReadCounts::default() };
        assert_eq!(what(order), "/x: order learned or from the trace");
        assert_eq!(
            what(ReadCounts { asked: 1, trials: 1, ..ReadCounts::default() }),
            "/x: a stride was tried and disproved"
        );
        let nothing = "/x: nothing read ahead: no order, or one that the kernel reads ahead by itself";
        assert_eq!(what(ReadCounts { trials: 1, stride: Some(4096), ..ReadCounts::default() }), nothing);
    }

    #[test]
    fn what_was_not_seen_is_reported() {
        let mut out = Vec::new();
        print(&Assisted { lost: 3, unfollowed: 4, ..Assisted::default() }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();

        let mut out = Vec::new();
        print(&Assisted { lost: 1, ..Assisted::default() }, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("\n1 faults and reads were lost"));
        assert!(text.contains(
            "3 faults and reads were lost (the rings were full)\n4 threads were not followed; raise ulimit -n\n"
        ));
    }

    #[test]
    fn a_path_does_not_move_the_cursor() {
        let strange = AssistedFile { path: "/a\u{1b}[2J\n".to_owned(), ..file(0, ReadCounts::default()) };

        assert!(line(&strange).starts_with("/a [2J : "));
    }
}
