//! An aligner of genomes (SOURCES S4), unmodified, within a share of the memory that it needs: without a limit, with swap alone, with
//! the advice of `majorfault run`, and without swap: as it is, and with its large blocks in files.
//!
//! Data and what it gives without a limit are made once, see [`Task::prepare`]. Every run that ends must give the same bytes: a difference
//! is an error.

mod genome;
mod task;

use super::{Procedure, Stage};
use majorfault::params::{Given, Params};
use majorfault::proc::swaps;
use majorfault::{Bytes, Error, Missing, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use task::{Alone, genome_bytes, measured, said, same_as_expected, started, wait};
pub use task::{Sizes, Task};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "bwa",
    summary: "an aligner of genomes as it is, within a share of the memory that it needs: alone, with swap, with advice",
    needs: &[],
    swaps: true,
    params: BwaParams::declared,
    run,
};

majorfault::choices! {
    /// How it is run.
    enum How {
        /// Without a limit.
        Alone = "alone",
        /// Within the limit, with the kernel's swap alone.
        Swap = "swap",
        /// Within the limit, with advice.
        Advice = "advice",
        /// Within the limit, without swap.
        NoSwap = "no-swap",
        /// The same with its large blocks in files, read ahead of by advice.
        Spill = "spill",
        /// The same without advice: shared mappings of files, read ahead of by the kernel alone.
        Mapped = "mapped",
    }
}

majorfault::params! {
    /// What is run, and how.
    struct BwaParams {
        /// What is done.
        task: Task = Task::Index,
        /// How it is run.
        how: How = How::Alone,
        /// The limit in percent of the most memory that it had without one.
        share: u64 = 100,
    }
}

/// Where a run's results go.
const OUT: &str = "run";

/// The least limit that `majorfault run` takes.
const LEAST: u64 = 4 << 20;

/// A run is ended after so many times its time without a limit, and some seconds.
const TIMES: u32 = 20;
const SECONDS: Duration = Duration::from_secs(30);

/// Exit code of `majorfault run` where the program has not begun.
const NOT_BEGUN: i32 = 125;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let BwaParams { task, how, share } = BwaParams::from_given(given)?;
    task.met()?;
    let dir = stage.dir().to_owned();
    let alone = measured(&dir)?;
    if how == How::Alone {
        let Alone { peak, took } = stage.phase("visit", || task.alone(&dir, OUT))?;
        stage.figure("peak_bytes", peak);
        stage.figure("program_ns", took.as_nanos() as u64);
        stage.figure("finished", 1);
    } else {
        let limit = (alone.peak * share / 100).max(LEAST);
        let program = limited(task, how, limit)?;
        let most = alone.took * TIMES + SECONDS;
        let told = stage.phase("visit", || told(&program, &dir, most))?;
        stage.figure("limit_bytes", limit);
        keep(&told, stage)?;
        if let Some(given) = given_back(alone.peak, limit, stage.kept("raised_bytes").unwrap_or(0)) {
            stage.figure("given_percent", given);
        }
    }
    if stage.kept("finished") == Some(1) {
        let bytes = same_as_expected(&dir, OUT)?;
        stage.figure("output_bytes", bytes);
        stage.figure("genome_bytes", genome_bytes(&dir));
    }
    stage.accessed(1, 0);
    Ok(())
}

/// How much of what was missing it got for moments, in percent, because the limit gave way (cgroup version 1).
fn given_back(peak: u64, limit: u64, raised: u64) -> Option<u64> {
    let missing = peak.checked_sub(limit).filter(|missing| *missing > 0)?;
    Some(raised * 100 / missing)
}

/// The command that runs it within a limit.
///
/// Errors: Missing (swap, or the absence of it).
fn limited(task: Task, how: How, limit: u64) -> Result<Vec<OsString>> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let mut words: Vec<OsString> =
        vec![own.into(), "run".into(), "--json".into(), "--memory".into(), limit.to_string().into()];
    words.extend(matches!(how, How::Swap | How::Mapped).then(|| "--no-advice".into()));
    if matches!(how, How::Spill | How::Mapped) {
        // In the directory where the data is.
        words.extend(["--spill", "."].map(OsString::from));
    }
    words.extend(swapping(how, limit, free_swap()?)?);
    words.push("--".into());
    words.extend(task.command(OUT));
    Ok(words)
}

/// Free swap of the machine, in bytes.
fn free_swap() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    Ok(swaps::parse(&text).map(|area| area.size.saturating_sub(area.used)).sum())
}

/// How often the limit fits into the swap file, and its least size.
const SWAP: (u64, u64) = (4, 64 << 20);

/// The options for swap: a file for the run where we are root, else what the machine has.
///
/// Errors: Missing.
fn swapping(how: How, limit: u64, free: u64) -> Result<Vec<OsString>> {
    let size = (limit * SWAP.0).max(SWAP.1);
    let is_root = rustix::process::geteuid().is_root();
    match (how, is_root) {
        (How::NoSwap | How::Spill | How::Mapped, _) if free == 0 => Ok(Vec::new()),
        (How::NoSwap | How::Spill | How::Mapped, _) => {
            let reason = format!("{} of swap are free", Bytes(free).rounded());
            Err(Missing::new("a machine without swap", reason, "swapoff -a as root, where memory suffices without")
                .into())
        }
        // In the directory where the data is.
        (_, true) => Ok(vec!["--swap-file".into(), format!("./:{size}").into()]),
        (_, false) if free >= size => Ok(Vec::new()),
        (_, false) => {
            let reason = format!("{} are free, and only root may add more", Bytes(free).rounded());
            Err(Missing::new("swap", reason, "run as root, or ask for a swap file").into())
        }
    }
}

/// What `majorfault run` told of a run, which is ended after `most`.
///
/// Errors: Missing (it could not begin), Invalid (it says nothing), Io.
fn told(program: &[OsString], dir: &Path, most: Duration) -> Result<Value> {
    let mut running = started(program, dir, OUT)?;
    let status = wait(&mut running, Some(most), |_| {})?;
    let said = said(dir);
    if status.code() == Some(NOT_BEGUN) {
        let reason = said.trim().trim_start_matches("majorfault: ").to_owned();
        return Err(Missing::new("a limit that may swap", reason, "").into());
    }
    let json = said.find("{\n").and_then(|at| serde_json::from_str(&said[at..]).ok());
    json.ok_or_else(|| Error::Invalid(format!("majorfault run ended with {status} and told nothing: {said}")))
}

/// Where the outcome has what is kept.
const KEPT: [(&str, &str); 8] = [
    ("swapped_bytes", "/most_swapped_bytes"),
    ("major_faults", "/major_faults"),
    ("fetched_bytes", "/advised/fetched_bytes"),
    ("used_bytes", "/advised/used_bytes"),
    ("raised_bytes", "/limit_raised/most_bytes"),
    ("oom_kills", "/oom_kills"),
    ("supervisor_ns", "/own_cpu_ns"),
    ("spilt_bytes", "/spill/most_bytes"),
];

/// Keeps what a run told. Its time is kept only where it finished.
///
/// Errors: Missing (advice was wanted, and could not be given), Invalid (the program failed by itself).
fn keep(told: &Value, stage: &mut Stage<'_>) -> Result<()> {
    let number = |at: &str| told.pointer(at).and_then(Value::as_u64);
    let wants_advice = !told["unhelped"].as_str().is_none_or(|why| why.contains("--no-advice"));
    if let (true, Some(why)) = (wants_advice, told["unhelped"].as_str()) {
        return Err(Missing::new("advice", why, "").into());
    }
    for (name, at) in KEPT {
        if let Some(value) = number(at) {
            stage.figure(name, value);
        }
    }
    match number("/exit_code") {
        Some(0) => stage.figure("program_ns", number("/length_ns").unwrap_or(0)),
        // Killed for want of memory.
        Some(137) => {}
        // Ended by us, because it took too long.
        Some(143) => stage.figure("cut", 1),
        code => return Err(Error::Invalid(format!("the program ended with {code:?}"))),
    }
    stage.figure("finished", u64::from(number("/exit_code") == Some(0)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::Nanos;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn kept(told: &Value) -> std::result::Result<BTreeMap<String, u64>, String> {
        let mut boundary = |_: &str, _: Nanos, _: Nanos| {};
        let mut stage = Stage::new("/".into(), &mut boundary);
        keep(told, &mut stage).map_err(|error| error.to_string())?;
        Ok(stage.told().figures)
    }

    #[test]
    fn a_run_that_finished_has_a_time_and_one_that_was_killed_has_none() {
        let done = kept(&json!({"exit_code": 0, "length_ns": 7, "oom_kills": 0})).unwrap();
        let killed = kept(&json!({"exit_code": 137, "length_ns": 7, "oom_kills": 1})).unwrap();

        assert_eq!((done["finished"], done["program_ns"]), (1, 7));
        assert_eq!((killed["finished"], killed["oom_kills"], killed.get("program_ns")), (0, 1, None));
    }

    #[test]
    fn what_a_limit_gave_back_is_a_share_of_what_was_missing() {
        assert_eq!(given_back(100, 60, 10), Some(25));
        assert_eq!(given_back(100, 60, 80), Some(200));
        assert_eq!(given_back(100, 100, 10), None);
    }

    #[test]
    fn a_program_that_fails_by_itself_is_no_figure() {
        assert!(kept(&json!({"exit_code": 1})).unwrap_err().contains("ended with Some(1)"));
    }

    #[test]
    fn advice_that_could_not_be_given_is_missing_and_no_run_with_advice() {
        let missing = kept(&json!({"exit_code": 0, "unhelped": "perf_event_open(2): refused"})).unwrap_err();

        assert!(missing.contains("perf_event_open"), "{missing}");
        assert!(kept(&json!({"exit_code": 0, "unhelped": "it was not asked for (--no-advice)"})).is_ok());
    }

    #[test]
    fn a_run_without_swap_is_refused_where_there_is_some() {
        for how in [How::NoSwap, How::Spill, How::Mapped] {
            assert!(swapping(how, 1 << 20, 0).unwrap().is_empty());
            let missing = swapping(how, 1 << 20, 1).unwrap_err().to_string();
            assert!(missing.contains("swapoff -a"), "{missing}");
        }
    }

    #[test]
    fn blocks_in_files_are_asked_for_with_and_without_advice() {
        let words = |how| limited(Task::Index, how, 5 << 20).map(|words| words.join(std::ffi::OsStr::new(" ")));
        let [Ok(spill), Ok(mapped)] = [How::Spill, How::Mapped].map(words) else { return };

        let [spill, mapped] = [spill, mapped].map(|words| words.into_string().unwrap());
        assert!(spill.contains("--memory 5242880 --spill . -- bwa") && mapped.contains("--no-advice --spill . -- bwa"));
    }
}
