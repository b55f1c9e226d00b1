//! How a run went: what it needed, what was done for it, how near it came to being killed, and what would have helped.

use super::call_sites::FunctionOfRun;
use super::diary::RunPhase;
use super::preflight::Remark;
use super::spaces::AgentFacts;
use super::spill::{self, SpillFacts};
use super::supervisor::Supervised;
use super::whereabouts::HelpedPlace;
use crate::place::reprieve::Raised;
use crate::place::run_group::GroupFacts;
use majorfault::Bytes;
use std::io::{self, Write};
use std::time::Duration;

/// A function with less of the waits, in percent, is not in the first lines.
const LEAST_SHARE: f64 = 5.0;

/// A run that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOutcome {
    /// The program's exit code; 128 and the signal's number where one ended it.
    pub code: u8,
    /// From its first instruction to its end.
    pub took: Duration,
    /// Its limit; 0 where none could be set, and its blocks are in files.
    pub limit: Bytes,
    /// What its group has come to.
    pub group: GroupFacts,
    /// What was seen and done.
    pub supervised: Supervised,
    /// Faults of the program and the children it waited for, that waited for a device.
    pub major_faults: Option<u64>,
    /// Processor time of the supervisor.
    pub own_time: Duration,
    /// The least free swap when the run began.
    pub free_swap: u64,
    /// Whether swap was taken away while it ran (swapoff).
    pub lost_swap: bool,
    /// What was to be said before it began.
    pub remarks: Vec<Remark>,
    /// What became of its blocks, where they went into files.
    pub spill: Option<SpillFacts>,
    /// Why it was not helped, where it was not.
    pub unhelped: Option<String>,
    /// Whether processes that it started run on.
    pub runs_on: bool,
}

impl RunOutcome {
    /// The phases of the run.
    pub fn phases(&self) -> Vec<RunPhase> {
        self.supervised.diary.phases(self.unhelped.is_none())
    }
}

/// How near it came to being killed for want of memory, in sentences.
pub fn nearness(outcome: &RunOutcome) -> Vec<String> {
    let Supervised { swapped, .. } = outcome.supervised;
    let Raised { times, most_bytes, reclaims, .. } = outcome.group.raised;
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    let swap = match outcome.free_swap {
        0 if outcome.spill.is_some() => "there was no swap: what is not in files cannot leave memory".to_owned(),
        0 => "there was no swap: at the limit it is killed".to_owned(),
        free => format!("swap: {} of {} that were free, {:.0} %", size(swapped), size(free), share(swapped, free)),
    };
    let raised = format!(
        "the limit was raised {times} times for moments, by {} at most, {:.0} % of what is allowed; memory was reclaimed for a thread that \
         waited {reclaims} times",
        size(most_bytes),
        share(most_bytes, outcome.group.may_raise)
    );
    let hits = outcome.group.limit_hits.map(|hits| format!("the limit was met {hits} times"));
    let kills = outcome.group.oom_kills.map(|kills| format!("killed by the kernel for want of memory: {kills}"));
    [Some(swap), hits, (times > 0).then_some(raised), kills].into_iter().flatten().collect()
}

/// Prints the outcome in a few lines.
///
/// Errors: those of writing.
pub fn print(outcome: &RunOutcome, to: &mut impl Write) -> io::Result<()> {
    sentences(outcome).iter().try_for_each(|sentence| writeln!(to, "majorfault: {sentence}"))
}

fn size(bytes: u64) -> String {
    Bytes(bytes).rounded()
}

/// The outcome in sentences.
pub fn sentences(outcome: &RunOutcome) -> Vec<String> {
    let all = [
        Some(memory(outcome)),
        raised(outcome),
        helped(outcome),
        by_agents(outcome),
        stalls(outcome),
        waited_in(outcome),
        killed(outcome),
        more(outcome),
        goes_on(outcome),
    ];
    let spill = outcome.spill.iter().flat_map(spill::sentences);
    all.into_iter().flatten().chain(spill).collect()
}

fn memory(outcome: &RunOutcome) -> String {
    if outcome.limit.0 == 0 {
        return format!("memory: without a limit of its own; {:.2} s", outcome.took.as_secs_f64());
    }
    let peak = outcome.group.peak.map_or("unknown".to_owned(), size);
    let swapped = match outcome.supervised.swapped {
        0 => "nothing was swapped out".to_owned(),
        bytes => format!("at most {} swapped out", size(bytes)),
    };
    format!("memory: at most {peak} of {}, {swapped}; {:.2} s", size(outcome.limit.0), outcome.took.as_secs_f64())
}

fn raised(outcome: &RunOutcome) -> Option<String> {
    let Raised { times, most_bytes, lasted, .. } = outcome.group.raised;
    let seconds = lasted.0 as f64 / 1e9;
    let how = format!("{times} times for moments, by at most {}, {seconds:.2} s in all", size(most_bytes));
    let why = "where cgroup version 1 kills though swap is free, and version 2 waits";
    (times > 0).then(|| format!("the limit was raised {how}, {why}"))
}

fn helped(outcome: &RunOutcome) -> Option<String> {
    let advised = &outcome.supervised.advised;
    // Why it was not helped was told before it began.
    if !goes_to_disk(outcome) || outcome.unhelped.is_some() {
        return None;
    }
    if advised.fetched == 0 {
        return Some("no order was found in what it needed from disk, so nothing was read ahead".to_owned());
    }
    let used = advised.used as f64 / advised.fetched as f64 * 100.0;
    let behind = match advised.paged_out {
        0 => String::new(),
        bytes => format!("; paged out behind {}, of which {} came back too soon", size(bytes), size(advised.came_back)),
    };
    Some(format!("read ahead of {} streams: {}, {used:.0} % used{behind}", advised.streams, size(advised.fetched)))
}

/// Whether memory of it was on a disk.
fn goes_to_disk(outcome: &RunOutcome) -> bool {
    outcome.supervised.swapped > 0 || outcome.spill.as_ref().is_some_and(|spill| spill.blocks > 0)
}

fn by_agents(outcome: &RunOutcome) -> Option<String> {
    let AgentFacts { met: _, without, lost, late } = outcome.supervised.agents;
    let without = match without {
        0 => None,
        count => Some(format!("{count} processes had no agent (forked, static, of another user) and were not helped")),
    };
    let lost = (lost > 0).then(|| format!("{lost} agents were gone before their programs"));
    let late = (late > 0).then(|| format!("agents were behind with their orders {late} times"));
    let all: Vec<String> = [without, lost, late].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn stalls(outcome: &RunOutcome) -> Option<String> {
    let faults = outcome.major_faults.filter(|faults| *faults > 0 && goes_to_disk(outcome))?;
    let stalled =
        outcome.group.stalled_us.map_or(String::new(), |us| format!("; {:.2} s stalled for memory", us as f64 / 1e6));
    // The kernel counts the first touch of each page of a file with those that waited.
    let first =
        outcome.spill.as_ref().filter(|spill| spill.blocks > 0).map_or("", |_| ", or touched a page of a file first");
    Some(format!("{faults} faults waited for the disk{first}{stalled}"))
}

/// The functions that waited most.
fn waited_in(outcome: &RunOutcome) -> Option<String> {
    let Supervised { waits, functions, .. } = &outcome.supervised;
    let share = |place: HelpedPlace| place.waits() as f64 / (*waits).max(1) as f64 * 100.0;
    let one = |it: &FunctionOfRun| format!("{} ({}) {:.0} %", it.function, it.process, share(it.place));
    let most = functions.iter().filter(|it| share(it.place) >= LEAST_SHARE).take(3).map(one).collect::<Vec<_>>();
    (!most.is_empty() && outcome.supervised.swapped > 0).then(|| format!("of the waits seen: {}", most.join(", ")))
}

fn killed(outcome: &RunOutcome) -> Option<String> {
    let kills = outcome.group.oom_kills.filter(|kills| *kills > 0)?;
    let remedy = match () {
        () if outcome.lost_swap => {
            "swap was taken away while it ran (swapoff): leave it on, or give the program more memory"
        }
        () if outcome.free_swap == 0 && outcome.spill.is_some() => {
            "what it has beside its blocks in files did not fit: give it more memory, or put smaller blocks into files (--spill-from)"
        }
        () if outcome.free_swap == 0 => "there was no swap: as root, --swap-file DIR makes one for the run",
        () if outcome.supervised.swapped + (64 << 20) > outcome.free_swap => {
            "swap was full: add more, or give more memory"
        }
        () => "swap was not full: the limit is too tight for what it uses at once; give it more memory",
    };
    Some(format!("the kernel killed {kills} of its processes for want of memory; {remedy}"))
}

fn more(outcome: &RunOutcome) -> Option<String> {
    let beyond = outcome.supervised.demand.checked_sub(outcome.limit.0).filter(|bytes| *bytes > 0)?;
    let limit = outcome.limit.0 + beyond;
    // Page cache that was dropped is not in it.
    Some(format!("with {} more memory ({}) nothing would have been swapped out", size(beyond), size(limit)))
        .filter(|_| outcome.supervised.swapped > 0 && outcome.group.oom_kills.unwrap_or(0) == 0)
}

fn goes_on(outcome: &RunOutcome) -> Option<String> {
    outcome.runs_on.then(|| "processes that it started run on within the limit, without help".to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::diary::{DiaryEntry, RunDiary};
    use super::super::streams::Advised;
    use super::*;
    use majorfault::Nanos;

    pub(in crate::launch) const MIB: u64 = 1 << 20;

    /// A run that swapped half of what it had, of whose streams nine tenths came in time.
    pub(in crate::launch) fn outcome() -> RunOutcome {
        let advised = Advised { fetched: 100 * MIB, used: 90 * MIB, paged_out: 50 * MIB, came_back: MIB, streams: 3 };
        let mut diary = RunDiary::default();
        let entry = |used: u64| DiaryEntry { usage: 128 * MIB, swapped: MIB, waits: 2, fetched: used, used };
        [(0, 0), (15, 90)].into_iter().for_each(|(ms, used)| diary.note(Nanos(ms * 1_000_000), entry(used)));
        let of_heap = Advised { fetched: 100, used: 90, ..Advised::default() };
        let heap = HelpedPlace { waits_before: 9, waits_after: 2, advised: of_heap };
        let block = HelpedPlace { waits_before: 1, ..HelpedPlace::default() };
        let named = |mapping: &str| ("program".to_owned(), mapping.to_owned());
        let places = [(named("anonymous mapping of 64.0 MiB"), block), (named("[heap]"), heap)].into();
        let function = |function: &str, waits_before: u64| FunctionOfRun {
            process: "program".to_owned(),
            function: function.to_owned(),
            place: HelpedPlace { waits_before, ..HelpedPlace::default() },
        };
        let functions = vec![function("merge_runs", 10), function("main", 1)];
        let (demand, swapped, waits) = (256 * MIB, 130 * MIB, 21);
        let supervised =
            Supervised { demand, swapped, waits, advised, diary, places, functions, ..Supervised::default() };
        let group = GroupFacts { peak: Some(128 * MIB), may_raise: 48 * MIB, ..GroupFacts::default() };
        let (limit, free_swap) = (Bytes(128 * MIB), 1024 * MIB);
        RunOutcome { limit, group, supervised, free_swap, major_faults: Some(7), ..RunOutcome::default() }
    }

    #[test]
    fn what_was_done_and_what_more_memory_would_have_bought_is_told() {
        let said = sentences(&outcome());

        assert_eq!(said[0], "memory: at most 128 MiB of 128 MiB, at most 130 MiB swapped out; 0.00 s");
        assert_eq!(
            said[1],
            "read ahead of 3 streams: 100 MiB, 90 % used; paged out behind 50.0 MiB, of which 1.00 MiB came back too soon"
        );
        assert_eq!(said[2], "7 faults waited for the disk");
        assert_eq!(said[3], "of the waits seen: merge_runs (program) 48 %");
        assert_eq!(said[4], "with 128 MiB more memory (256 MiB) nothing would have been swapped out");
    }

    #[test]
    fn a_limit_that_was_raised_is_told_with_how_often_and_by_how_much() {
        let mut outcome = outcome();
        outcome.group.raised = Raised { times: 3, most_bytes: 8 * MIB, lasted: Nanos(1_500_000_000), reclaims: 2 };

        let said = sentences(&outcome);

        assert!(
            said[1].starts_with("the limit was raised 3 times for moments, by at most 8.00 MiB, 1.50 s in all"),
            "{said:?}"
        );
        assert_eq!(
            nearness(&outcome)[1],
            "the limit was raised 3 times for moments, by 8.00 MiB at most, 17 % of what is allowed; memory was reclaimed for a thread \
             that waited 2 times"
        );
    }

    #[test]
    fn a_kill_is_told_with_the_remedy_that_fits() {
        let killed = |swapped: u64, free_swap: u64| {
            let mut outcome = RunOutcome { free_swap, ..outcome() };
            (outcome.supervised.swapped, outcome.group.oom_kills) = (swapped, Some(1));
            sentences(&outcome).into_iter().find(|said| said.contains("killed")).unwrap()
        };

        assert!(killed(0, 0).contains("--swap-file"));
        assert!(killed(1000 * MIB, 1024 * MIB).contains("swap was full"));
        assert!(killed(10 * MIB, 1024 * MIB).contains("too tight"));
    }

    #[test]
    fn a_kill_after_swapoff_is_told_as_its_consequence() {
        let mut outcome = RunOutcome { lost_swap: true, ..outcome() };
        outcome.group.oom_kills = Some(1);

        assert!(sentences(&outcome).iter().any(|said| said.contains("swap was taken away while it ran")));
    }

    #[test]
    fn a_program_that_had_enough_is_told_in_one_line() {
        let mut outcome = outcome();
        outcome.supervised = Supervised { demand: 100 * MIB, ..Supervised::default() };

        assert_eq!(sentences(&outcome), ["memory: at most 128 MiB of 128 MiB, nothing was swapped out; 0.00 s"]);
    }

    #[test]
    fn nearness_says_how_full_swap_was() {
        assert_eq!(nearness(&outcome())[0], "swap: 130 MiB of 1.00 GiB that were free, 13 %");
        let none = RunOutcome { free_swap: 0, ..outcome() };
        assert_eq!(nearness(&none)[0], "there was no swap: at the limit it is killed");
    }
}
