//! What was asked: first pass or steady state, and how often each block was visited. And what a cold figure is of, where
//! most of it came from the cache.

use super::{ArmSummary, Group, Role, derive, words};
use crate::record::Question;
use crate::trial::{CacheState, Direction};
use majorfault::Nanos;
use majorfault::units::grouped;

/// Visits to each block from which on a figure is mostly that of later ones.
const REVISITED: f64 = 2.0;

/// Device bytes per byte wanted below which the page cache served most of a run.
const SERVED: f64 = 0.5;

/// The heading of a group: the question, and visits to each block; `None` where the number of distinct blocks is not known.
pub fn heading(group: &Group<'_>) -> Option<String> {
    let visits = visits(group)?;
    let trial = group.trial;
    let blocks = match trial.data.size_bytes / trial.block_bytes.max(1) {
        few @ ..1000 => few.to_string(),
        many => grouped(many as f64),
    };
    let what = match group.question() {
        Some(Question::FirstPass) => {
            let size = words::bytes(trial.data.size_bytes as f64);
            format!("First pass, cold: each block of {size} once, in random order")
        }
        Some(Question::SteadyState) => "Steady state: random blocks of the file in memory".to_owned(),
        None => {
            let way = if trial.direction == Direction::Write { "write" } else { "read" };
            format!("{} {way}, cache {}", trial.workload, trial.cache)
        }
    };
    Some(format!("{what} ({} to each block reached, of {blocks})", said(visits)))
}

/// The least and the most visits to a distinct block, over the arms' medians; the control visits none.
pub fn visits(group: &Group<'_>) -> Option<[f64; 2]> {
    let of_arms = group.arms.iter().filter(|arm| arm.role != Role::Control && !arm.used.is_empty());
    let visits: Vec<f64> = of_arms.filter_map(|arm| arm.median(&derive::VISITS)).collect();
    let least = visits.iter().copied().min_by(f64::total_cmp)?;
    Some([least, visits.iter().copied().max_by(f64::total_cmp)?])
}

/// `1.00 visits`, `1.02 to 39.7 visits`.
fn said([least, most]: [f64; 2]) -> String {
    let (least, most) = (words::ratio(least), words::ratio(most));
    if least == most { format!("{least} visits") } else { format!("{least} to {most} visits") }
}

/// What is to be known of figures that are of something else than the question.
pub fn remark(group: &Group<'_>) -> Option<String> {
    match group.question() {
        Some(Question::FirstPass) => cut_off(group),
        Some(Question::SteadyState) => None,
        None => served(group),
    }
}

/// Passes that time ended. What reads ahead pays first, so that its rate is too low then.
fn cut_off(group: &Group<'_>) -> Option<String> {
    let blocks = group.trial.data.size_bytes / group.trial.block_bytes.max(1);
    let reached = |arm: &ArmSummary<'_>| arm.used.iter().map(|record| record.accesses()).min();
    let is_cut = |arm: &&ArmSummary<'_>| reached(arm).is_some_and(|accesses| accesses < blocks);
    let methods = group.arms.iter().filter(|arm| arm.role != Role::Control);
    let names: Vec<String> = methods.filter(is_cut).map(|arm| arm.name.clone()).collect();
    let after = Nanos(group.trial.limits.runtime_ns?);
    (!names.is_empty()).then(|| {
        format!(
            "cut off after {after}, before the pass was over: {}; what reads ahead pays first, and its rate is too low then \
             (--runtime)",
            words::list(&names)
        )
    })
}

/// Figures called cold that are mostly the cache's.
fn served(group: &Group<'_>) -> Option<String> {
    if group.trial.cache != CacheState::Cold || group.trial.direction != Direction::Read {
        return None;
    }
    let is_served = |arm: &&ArmSummary<'_>| {
        let visited = arm.median(&derive::VISITS).is_some_and(|visits| visits >= REVISITED);
        visited && arm.median(&derive::READ_AMPLIFICATION).is_some_and(|read| read < SERVED)
    };
    let served: Vec<&ArmSummary<'_>> =
        group.arms.iter().filter(|arm| arm.role != Role::Control).filter(is_served).collect();
    let first = served.first()?;
    let visits = words::ratio(first.median(&derive::VISITS)?);
    let others = match served.len() - 1 {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        others => format!(" and {others} others"),
    };
    Some(format!(
        "cold is the first visit only: {}{others} came to each block {visits} times, so that most of the figure is the page \
         cache's; without --cache, --workload, --time-based and --number-ios the first pass and the steady state are told apart",
        first.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::report::synthetic::Run;
    use crate::report::{Summary, counters};

    /// A run of 256 blocks that were visited so often in the mean, of which the device gave so many bytes.
    fn run(arm: &str, visits: u64, device_bytes: u64) -> Run {
        Run::of(arm)
            .edit(|record| record.trial.data.size_bytes = 1 << 20)
            .accesses(256 * visits)
            .counter(counters::PROCESS_READ, device_bytes)
    }

    fn told(records: &[Record]) -> (Option<String>, Option<String>) {
        let summary = Summary::of(records);
        (heading(&summary.groups[0]), remark(&summary.groups[0]))
    }

    #[test]
    fn the_heading_says_how_often_blocks_were_visited_without_the_control() {
        let records = [run("null", 1_000_000, 0), run("mmap", 80, 1 << 20), run("direct", 10, 10 << 20)];

        let (heading, _) = told(&records.map(Run::record));

        assert_eq!(heading.unwrap(), "uniform read, cache cold (10.0 to 80.0 visits to each block reached, of 256)");
    }

    #[test]
    fn a_question_that_was_asked_is_said_in_words() {
        let asked = |question| {
            let run = run("mmap", 1, 1 << 20).workload("permutation").edit(|record| record.question = Some(question));
            told(&[run.record()]).0.unwrap()
        };

        assert!(
            asked(Question::FirstPass)
                .starts_with("First pass, cold: each block of 1.00 MiB once, in random order (1.00 visits")
        );
        assert!(asked(Question::SteadyState).starts_with("Steady state: random blocks of the file in memory (1.00"));
    }

    #[test]
    fn a_pass_that_time_ended_is_told_and_one_that_came_to_its_end_is_not() {
        let pass = |arm: &str, accesses: u64| {
            let run = run(arm, 1, 1 << 20).workload("permutation").accesses(accesses);
            run.edit(|record| record.question = Some(Question::FirstPass)).record()
        };

        assert_eq!(told(&[pass("mmap", 256), pass("null", 4)]).1, None);
        let says = told(&[pass("mmap", 256), pass("direct", 255), pass("pread", 80)]).1.unwrap();
        assert!(says.starts_with("cut off after 10s, before the pass was over: direct and pread; "), "{says}");
    }

    #[test]
    fn cold_figures_that_the_cache_served_are_told_and_those_of_the_device_are_not() {
        let remark = |records: &[Run]| told(&records.iter().cloned().map(Run::record).collect::<Vec<_>>()).1;
        let warm = run("mmap", 80, 0).edit(|record| record.trial.cache = CacheState::Warm);

        let says = remark(&[run("mmap", 80, 1 << 20), run("pread", 40, 1 << 20), run("direct", 10, 10 << 20)]).unwrap();
        assert!(
            says.starts_with("cold is the first visit only: mmap and 1 other came to each block 80.0 times"),
            "{says}"
        );
        assert_eq!(remark(&[run("direct", 10, 10 << 20)]), None);
        assert_eq!(remark(&[run("mmap", 1, 1 << 20)]), None);
        assert_eq!(remark(&[warm]), None);
    }
}
