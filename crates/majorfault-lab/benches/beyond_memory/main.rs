//! Programs beyond memory, with the kernel's swap alone and with `majorfault run`'s advice, or with blocks in files:
//! `cargo bench -p majorfault-lab --bench beyond_memory -- [PATTERN...]`.
//!
//! Each program fills a block of memory and uses it in one way, within half of that memory. All arms run under the same limit, in random
//! order, swapping to one file, which is made for the session; what they print must be the same. Shown are medians, and paired ratios with
//! the 95 % interval of the median (the extremes below six runs). Swap alone runs once more as a control. Options: `--runs N` (5), `--block MIB` (256), `--limit MIB` (128), `--dir DIR`
//! (/var/tmp), `--busy N` (so many processes that compute beside), `--agent` (advice is given from within), `--spill` (two more arms, with
//! blocks in files in DIR: read ahead of by advice, and by the kernel alone, as the thesis's shared mappings were). Needs root.
//!
//! A word `sh:COMMAND` is a program of others: run by sh in DIR, it prints a word that must be the same each time, say a checksum of what it
//! made. `tools/genome.py` makes a genome for bwa.

#[allow(dead_code, reason = "the tests use all of it")]
mod patterns;

use majorfault::Bytes;
use majorfault_lab::launch::swap_file::{SwapFile, SwapPlace};
use majorfault_lab::place::run_group;
use majorfault_lab::stats::{self, PairedRatio};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::process::{Child, Command, ExitCode};
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [first, name, bytes] = &words[..]
        && first == "program"
    {
        return match patterns::run(name, bytes.parse().expect("bytes")) {
            Some(()) => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        };
    }
    compare(&Plan::of(&words))
}

struct Plan {
    names: Vec<String>,
    runs: usize,
    block: u64,
    limit: u64,
    dir: String,
    busy: usize,
    /// What `majorfault run` is told where it helps.
    help: &'static [&'static str],
    /// Whether there are arms with blocks in files.
    spill: bool,
}

/// How a program is run; the others are compared with the first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    Swap,
    /// The same once more: how far it is from 1 tells what the machine does by itself.
    Control,
    Advice,
    Spill,
    Mapped,
}

impl Arm {
    const ALL: [Arm; 5] = [Arm::Swap, Arm::Control, Arm::Advice, Arm::Spill, Arm::Mapped];

    fn name(self) -> &'static str {
        match self {
            Arm::Swap => "swap",
            Arm::Control => "swap once more",
            Arm::Advice => "run",
            Arm::Spill => "spill",
            Arm::Mapped => "spill, no advice",
        }
    }

    fn is_in(self, plan: &Plan) -> bool {
        plan.spill || matches!(self, Arm::Swap | Arm::Control | Arm::Advice)
    }

    fn options(self, plan: &Plan) -> Vec<&str> {
        let files = ["--spill", plan.dir.as_str()];
        match self {
            Arm::Swap | Arm::Control => vec!["--no-advice"],
            Arm::Advice => plan.help.to_vec(),
            Arm::Spill => [plan.help, &files].concat(),
            Arm::Mapped => [&["--no-advice"], &files[..]].concat(),
        }
    }
}

impl Plan {
    fn of(words: &[String]) -> Plan {
        let dir = "/var/tmp".to_owned();
        let mut plan =
            Plan { names: Vec::new(), runs: 5, block: 256, limit: 128, dir, busy: 0, help: &[], spill: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value behind the option").clone();
            match word.as_str() {
                "--runs" => plan.runs = value().parse().expect("a number"),
                "--block" => plan.block = value().parse().expect("MiB"),
                "--limit" => plan.limit = value().parse().expect("MiB"),
                "--dir" => plan.dir = value(),
                "--agent" => plan.help = &["--agent"],
                "--spill" => plan.spill = true,
                "--busy" => plan.busy = value().parse().expect("a number"),
                name => plan.names.push(name.to_owned()),
            }
        }
        if plan.names.is_empty() {
            plan.names = patterns::ALL.iter().map(|pattern| pattern.name.to_owned()).collect();
        }
        plan
    }
}

/// One run of one arm.
struct Ran {
    seconds: f64,
    work: f64,
    sum: String,
    said: Value,
}

/// Processes that compute until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Busy {
        let one = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a process");
        Busy((0..count).map(one).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn compare(plan: &Plan) -> ExitCode {
    let place = SwapPlace { dir: plan.dir.clone().into(), size: Some(Bytes::mib(4 * plan.block)) };
    let swap = SwapFile::make(&place, &run_group::run_name(), Bytes::mib(plan.limit)).expect("a swap file");
    let _busy = Busy::start(plan.busy);
    println!(
        "block {} MiB, limit {} MiB, {} runs, swap {}, {} busy; {}",
        plan.block,
        plan.limit,
        plan.runs,
        swap.path().display(),
        plan.busy,
        std::fs::read_to_string("/proc/version").unwrap_or_default().split(" (").next().unwrap_or_default()
    );
    println!(
        "{:<10} {:<16} {:>7} {:>20} {:>20} {:>7} {:>12}  limit raised in",
        "", "", "", "by swap's time", "its work alone", "waits", "read ahead"
    );
    let mut order = Pcg64Mcg::new(7);
    let mut failed = false;
    for name in &plan.names {
        match case(plan, name, &mut order) {
            Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
            Err(why) => {
                failed = true;
                println!("{name:<10} NOT MEASURED: {why}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The lines of a pattern, one for each arm.
///
/// Errors: in a sentence, where a run failed or printed something else.
fn case(plan: &Plan, name: &str, order: &mut Pcg64Mcg) -> Result<Vec<String>, String> {
    let arms: Vec<Arm> = Arm::ALL.into_iter().filter(|arm| arm.is_in(plan)).collect();
    let mut ran: Vec<Vec<Ran>> = arms.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.runs {
        let mut turn: Vec<usize> = (0..arms.len()).collect();
        turn.shuffle(order);
        for at in turn {
            ran[at].push(run(plan, name, arms[at])?);
        }
    }
    let sum = &ran[0][0].sum;
    if let Some(other) = ran.iter().flatten().find(|ran| ran.sum != *sum) {
        return Err(format!("the sum was {} and not {sum}", other.sum));
    }
    Ok(arms.iter().zip(&ran).map(|(arm, runs)| line(name, *arm, runs, &ran[0])).collect())
}

/// The line of an arm beside that of swap alone.
fn line(name: &str, arm: Arm, runs: &[Ran], swap: &[Ran]) -> String {
    let median = |of: &dyn Fn(&Ran) -> f64| stats::median(&runs.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let ratio = |of: &dyn Fn(&Ran) -> f64| {
        let pairs: Vec<(f64, f64)> = runs.iter().zip(swap).map(|(run, swap)| (of(run), of(swap))).collect();
        stats::compare(&pairs).filter(|_| arm != Arm::Swap).map_or("-".to_owned(), told)
    };
    let raised = runs.iter().filter(|ran| ran.said["limit_raised"]["times"].as_u64() > Some(0)).count();
    format!(
        "{name:<10} {:<16} {:>6.2}s {:>20} {:>20} {:>7.0} {:>8.0} MiB  {raised} of {}",
        arm.name(),
        median(&|ran| ran.seconds),
        ratio(&|ran| ran.seconds),
        ratio(&|ran| ran.work),
        median(&|ran| ran.said["major_faults"].as_f64().unwrap_or(f64::NAN)),
        median(&|ran| ran.said["advised"]["fetched_bytes"].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20)),
        runs.len(),
    )
}

fn told(ratio: PairedRatio) -> String {
    let [low, high] = ratio.ratio.interval.unwrap_or([f64::NAN; 2]);
    format!("{:.2} [{low:.2}-{high:.2}]", ratio.ratio.median)
}

/// Bytes of a failed program's output that are shown.
const LAST_WORDS: usize = 2000;

/// Runs a pattern once.
///
/// Errors: in a sentence.
fn run(plan: &Plan, name: &str, arm: Arm) -> Result<Ran, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_majorfault"));
    command.args(["run", "--json", "--memory", &format!("{}m", plan.limit)]);
    command.args(arm.options(plan));
    match name.strip_prefix("sh:") {
        Some(script) => command.current_dir(&plan.dir).args(["--", "sh", "-c", script]),
        None => command.arg("--").arg(own).args(["program", name, &(plan.block << 20).to_string()]),
    };
    let began = Instant::now();
    let output = command.output().map_err(|error| error.to_string())?;
    let seconds = began.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // What the program said, on either side, without the outcome's document.
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.len().saturating_sub(LAST_WORDS);
        let last = said.get(last..).unwrap_or(&said);
        return Err(format!("{}: {}{last}", output.status, errors.split("{\n").next().unwrap_or(&errors)));
    }
    let json = errors.find('{').map_or("", |at| &errors[at..]);
    let said: Value = serde_json::from_str(json).map_err(|error| format!("{error}: {errors}"))?;
    if matches!(arm, Arm::Advice | Arm::Spill) && !said["unhelped"].is_null() {
        return Err(format!("it was not helped: {}", said["unhelped"]));
    }
    let words = String::from_utf8_lossy(&output.stdout);
    let mut words = words.split_whitespace();
    let sum = words.next().ok_or("the program said nothing")?.to_owned();
    // Programs of others do not tell what of their time is work.
    let work = match name.starts_with("sh:") {
        true => seconds,
        false => words.nth(1).and_then(|work| work.parse().ok()).ok_or("no number of seconds")?,
    };
    Ok(Ran { seconds, work, sum, said })
}
