//! What it costs a program to be watched: `cargo bench -p majorfault-lab --bench watching -- [faults] [calls] [assist] [--rounds N] [--for SECONDS]`.
//!
//! `faults` is a program with 200 000 minor faults a second in a cached file, `calls` one with 1 000 000 read calls a second, `assist` the same beside
//! `majorfault assist` instead of the doctor; the work
//! between two of them is calibrated once, on the program alone. It runs all the time, and counts. In turns, in an order that changes from round to
//! round, it runs alone, beside `majorfault doctor`, and alone again; from each turn the operations a second, and the processor time an
//! operation, are kept. Printed are the median ratios, paired by round, watched over alone, with their 95 % intervals; and alone over alone, which shows how
//! much of that is the machine's own noise. Other work on the machine goes into the first figure more than into the second.

use majorfault::files::{Layout, Target};
use majorfault::sys::advice::{Advice, madvise};
use majorfault::sys::map::{MapOptions, Mapping};
use majorfault_lab::stats;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The file: what the kernel maps around a fault, so many times.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 512;

const CASES: [&str; 3] = ["faults", "calls", "assist"];

static DONE: AtomicU64 = AtomicU64::new(0);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.split_first() {
        Some((word, rest)) if word == "program" => program(&rest[0], &rest[1]),
        _ => compare(&words),
    }
}

/// One turn: what was done in it, each second and for each second of processor time.
#[derive(Clone, Copy)]
struct Turn {
    each_second: f64,
    cpu_ns_each: f64,
}

fn compare(words: &[String]) {
    let value = |name: &str| {
        words.iter().position(|word| word == name).map(|at| words[at + 1].parse::<u64>().expect("a number"))
    };
    let (rounds, seconds) = (value("--rounds").unwrap_or(12), value("--for").unwrap_or(5));
    let named: Vec<&str> = CASES.into_iter().filter(|kind| words.iter().any(|word| word == kind)).collect();
    for kind in if named.is_empty() { CASES.to_vec() } else { named } {
        case(kind, rounds, Duration::from_secs(seconds));
    }
}

fn case(kind: &str, rounds: u64, length: Duration) {
    let (what, tool) = if kind == "assist" { ("calls", "assist") } else { (kind, "doctor") };
    let mut program = Program::start(what);
    let (mut watched, mut control, mut rates, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let turns = [0, 1, 2].map(|turn| {
            // The watched turn is the first, second or last one.
            let is_watched = turn == round % 3;
            let doctor = is_watched.then(|| beside(tool, program.child.id(), length));
            let turn = program.turn(length);
            shares.extend(doctor.map(said));
            (is_watched, turn)
        });
        let alone: Vec<Turn> = turns.iter().filter(|(is_watched, _)| !is_watched).map(|(_, turn)| *turn).collect();
        let beside = turns.iter().find(|(is_watched, _)| *is_watched).expect("one of three").1;
        let mean = |of: fn(&Turn) -> f64| (of(&alone[0]) + of(&alone[1])) / 2.0;
        watched
            .push([(mean(|it| it.each_second), beside.each_second), (beside.cpu_ns_each, mean(|it| it.cpu_ns_each))]);
        control.push([(alone[0].each_second, alone[1].each_second), (alone[1].cpu_ns_each, alone[0].cpu_ns_each)]);
        rates.push(mean(|it| it.each_second));
    }
    let rate = stats::median(&rates).expect("rounds");
    println!("{kind}: {rate:.0} a second, {rounds} rounds of 3 x {} s", length.as_secs());
    for (name, pairs) in [("watched / alone", &watched), ("alone / alone", &control)] {
        for (what, which) in [("time", 0), ("processor time", 1)] {
            let pairs: Vec<(f64, f64)> = pairs.iter().map(|pair| pair[which]).collect();
            println!("  {name}, {what} of an operation: {}", ratio(&pairs));
        }
    }
    println!("  seen by {tool}: {}", shares.join("; "));
}

fn ratio(pairs: &[(f64, f64)]) -> String {
    let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
    let Some(found) = stats::estimate(&ratios) else { return "no figure".to_owned() };
    let Some([low, high]) = found.interval else { return format!("{:.4}", found.median) };
    format!("{:.4} [{low:.4}-{high:.4}], covered in {:.0} %", found.median, 100.0 * found.coverage)
}

/// The tool beside the program.
fn beside(tool: &str, pid: u32, length: Duration) -> Child {
    let length = format!("{}ms", length.as_millis());
    let words = [tool, &pid.to_string(), "--for", &length, "--json"];
    Command::new(env!("CARGO_BIN_EXE_majorfault")).args(words).stdout(Stdio::piped()).spawn().expect("the tool")
}

/// What the tool says that it saw, each second of its watch.
fn said(tool: Child) -> String {
    let output = tool.wait_with_output().expect("its document");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("its document");
    if let Some(calls) = document["read_calls"].as_f64() {
        let seconds = document["length_ns"].as_f64().unwrap_or(1.0) / 1e9;
        return format!("{:.0} calls/s, {} lost", calls / seconds, document["samples_lost"]);
    }
    let faults = &document["faults"];
    let seconds = document["watched_ns"].as_f64().unwrap_or(1.0) / 1e9;
    let error = faults["seen_error_share"].as_f64().map_or("?".to_owned(), |share| format!("{:.1}", 100.0 * share));
    let seen = faults["seen"].as_f64().unwrap_or(0.0) / seconds;
    let share = 100.0 * faults["sampled_share"].as_f64().unwrap_or(0.0);
    format!("{seen:.0}/s +-{error} % from {share:.1} % of the time, {} lost", faults["lost"])
}

/// The program, which runs and counts until it is dropped.
struct Program {
    child: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Program {
    fn start(kind: &str) -> Program {
        let own = std::env::current_exe().expect("this program");
        let path = format!("/var/tmp/majorfault-watching-{}", std::process::id());
        let file = File::create(&path).expect("a file");
        // Page by page: a large write makes large folios, which are mapped at once.
        (0..BLOCK * BLOCKS).step_by(4096).for_each(|at| file.write_all_at(&[1; 4096], at as u64).expect("space"));
        let mut command = Command::new(own);
        command.args(["program", kind, &path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let (asks, says) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut program = Program { child, asks, says: BufReader::new(says) };
        // It says its first line when it is calibrated.
        program.says.read_line(&mut String::new()).expect("a word of the program");
        std::fs::remove_file(path).expect("the file");
        program
    }

    /// Operations and nanoseconds of processor time so far.
    fn counts(&mut self) -> (f64, f64) {
        writeln!(self.asks).expect("the program runs");
        let mut line = String::new();
        self.says.read_line(&mut line).expect("the program runs");
        let mut words = line.split_whitespace().map(|word| word.parse::<f64>().expect("a number"));
        (words.next().expect("operations"), words.next().expect("processor time"))
    }

    fn turn(&mut self, length: Duration) -> Turn {
        let (began, before) = (Instant::now(), self.counts());
        std::thread::sleep(length);
        let (after, seconds) = (self.counts(), began.elapsed().as_secs_f64());
        let done = after.0 - before.0;
        Turn { each_second: done / seconds, cpu_ns_each: (after.1 - before.1) / done }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does its operations for ever, and answers each line with their number.
fn program(kind: &str, path: &str) {
    let target = Target::open(&[path.into()], &Layout::default()).expect("the file");
    assert_eq!(target.len(), (BLOCK * BLOCKS) as u64);
    let file = File::open(path).expect("the file");
    let map = Mapping::new(&file, 0, BLOCK * BLOCKS, &MapOptions::default()).expect("a mapping");
    let rate = if kind == "faults" { 200_000.0 } else { 1_000_000.0 };
    let pass = move |work: u64| match kind {
        "faults" => {
            madvise(&map, 0, BLOCK * BLOCKS, Advice::DontNeed).expect("advice");
            (0..BLOCKS).for_each(|block| spin(map.word(block * BLOCK), work));
        }
        _ => (0..BLOCKS as u64).for_each(|at| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("a byte");
            spin(u64::from(byte[0]), work);
        }),
    };
    let work = calibrated(&pass, rate);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            println!("ready");
            for _ in std::io::stdin().lock().lines() {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
                println!("{} {}", DONE.load(Ordering::Relaxed), time.tv_sec as f64 * 1e9 + time.tv_nsec as f64);
            }
            std::process::exit(0);
        });
        loop {
            pass(work);
            DONE.fetch_add(BLOCKS as u64, Ordering::Relaxed);
        }
    });
}

/// Steps of work between two operations with which there are so many a second; none where there are fewer without any.
fn calibrated(pass: &impl Fn(u64), rate: f64) -> u64 {
    let each_ns = |work: u64| {
        let began = Instant::now();
        (0..40).for_each(|_| pass(work));
        began.elapsed().as_secs_f64() * 1e9 / (40 * BLOCKS) as f64
    };
    each_ns(0);
    let (bare, worked) = (each_ns(0), each_ns(1000));
    ((1e9 / rate - bare).max(0.0) / ((worked - bare).max(1.0) / 1000.0)) as u64
}

fn spin(seed: u64, steps: u64) {
    let last = (0..steps).fold(seed, |word, _| word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    std::hint::black_box(last);
}
