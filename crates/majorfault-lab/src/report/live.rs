//! What is known while a race goes on: few columns, for a terminal that is drawn again and again, or one line.

use super::{ArmSummary, Group, Role, State, Summary, derive, question, words};

/// Columns of an arm's name.
const NAME: usize = 32;

/// A row for each arm, best first, of every group: at most so many rows and columns.
pub fn table(summary: &Summary<'_>, [rows, columns]: [usize; 2]) -> String {
    let lines: Vec<String> = summary.groups.iter().flat_map(group).collect();
    let cut = |line: &String| line.chars().take(columns.saturating_sub(1)).collect::<String>();
    let mut shown: Vec<String> = lines.iter().take(rows).map(cut).collect();
    if lines.len() > rows {
        // The last row says that there are more.
        let hidden = lines.len() - rows + 1;
        shown.pop();
        shown.push(format!("… and {hidden} rows more"));
    }
    shown.join("\n")
}

fn group(group: &Group<'_>) -> Vec<String> {
    let heading = question::heading(group).unwrap_or_else(|| group.trial.workload.to_string());
    let title = format!("{:NAME$} {:>12} {:>8} {:>6}", "method", "accesses", "ratio", "runs");
    [heading, title].into_iter().chain(group.arms.iter().map(row)).collect()
}

fn row(arm: &ArmSummary<'_>) -> String {
    let rate = arm.median(&derive::THROUGHPUT).map_or_else(|| words::UNKNOWN.to_owned(), words::per_second);
    let ratio = arm.ratio.map_or_else(|| words::UNKNOWN.to_owned(), |found| words::ratio(found.ratio.median));
    let name: String = arm.name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NAME).collect();
    format!("{name:NAME$} {rate:>12} {ratio:>8} {:>6}{}", arm.used.len(), mark(arm))
}

fn mark(arm: &ArmSummary<'_>) -> &'static str {
    match (&arm.state, arm.role) {
        (State::Failed(_), _) => "  failed",
        (State::Missing(_), _) => "  not here",
        (State::Invalid(_), _) => "  invalid",
        (State::Measured(_), _) if arm.stopped.is_some() => "  stopped",
        (State::Measured(_), Role::Control) => "  control",
        (State::Measured(_), _) => "",
    }
}

/// Who leads after one run of each, for whoever reads no terminal; `None` where nothing was measured.
pub fn line(summary: &Summary<'_>) -> Option<String> {
    let leads: Vec<String> = summary.groups.iter().filter_map(lead).collect();
    (!leads.is_empty()).then(|| format!("after one run of each: {}; more runs follow", leads.join("; ")))
}

fn lead(group: &Group<'_>) -> Option<String> {
    let best = group.best()?;
    let rate = words::per_second(best.median(&derive::THROUGHPUT)?);
    Some(format!("{} leads with {rate} ({} {})", best.name, group.trial.workload, group.trial.cache))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{Run, repeated};

    #[test]
    fn the_table_has_a_row_for_each_arm_and_no_more_rows_or_columns_than_there_is_room_for() {
        let records =
            [repeated("null", 90_000_000, 1), repeated("pread", 9_000, 1), repeated("direct", 30_000, 1)].concat();
        let summary = Summary::of(&records);

        let whole = table(&summary, [20, 100]);
        let small = table(&summary, [3, 20]);

        assert_eq!(whole.lines().count(), 5, "{whole}");
        assert_eq!(
            whole.lines().nth(2).unwrap(),
            "direct                               30.0 k/s     1.00      1",
            "{whole}"
        );
        assert_eq!(small.lines().count(), 3);
        assert!(small.ends_with("… and 3 rows more") && small.lines().all(|line| line.chars().count() < 20), "{small}");
    }

    #[test]
    fn the_line_names_who_leads_each_question() {
        let cold = [repeated("pread", 9_000, 1), repeated("direct", 30_000, 1)].concat();
        let warm = Run::of("mmap").accesses(900_000).edit(|record| {
            record.trial.cache = crate::trial::CacheState::Warm;
        });

        let said = line(&Summary::of(&[cold, vec![warm.record()]].concat())).unwrap();

        assert_eq!(
            said,
            "after one run of each: direct leads with 30.0 k/s (uniform cold); mmap leads with 900 k/s (uniform warm); more runs follow"
        );
        assert_eq!(line(&Summary::of(&[])), None);
    }
}
