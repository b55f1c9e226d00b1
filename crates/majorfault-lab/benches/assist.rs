//! A program alone, with `majorfault assist` beside it, and with the library's own policy inside:
//! `cargo bench -p majorfault-lab --bench assist -- [ORDER...]`.
//!
//! Orders: strides `64k`, `256k`, `1m` (touching 8 bytes of each row), `sequential`, `random`, `chase`. Each with 1 and 4 threads, with
//! memory for all of the file and within a quarter of it, with the device's read-ahead as found and 128 KiB; cold, in turns,
//! program and assistant as the user nobody. Bytes are those that the device read, CPU is the assistant's time over the
//! program's, and the program's CPU is over that of the run alone. Options: `--rounds N`, `--size MIB`, `--threads N`, `--read-ahead KIB|found`,
//! `--memory all|quarter`, `--learn` (a fourth program, beside an assistant with the profile of an earlier run), `--advice` (a program with
//! `MADV_STRIDED`, on kernels that have it), `--tool doctor` (the doctor in place of the assistant: what watching alone costs), `--majorfault PATH` (the
//! command, where it is not cargo's: in a guest `/init`), `--root` (program and assistant stay root, where the kernel has no sockets to start another user's
//! with). Prints the medians
//! and extremes of the rounds' ratios. Needs root, for the limits and the settings. A case in which the tool failed, or read
//! nothing ahead of a stride, has no figures; where there was one, the exit code is 1.

use majorfault::access::Visitor;
use majorfault::files::{Layout, Target};
use majorfault::proc::diskstats;
use majorfault::{Bytes, Extent, Given, methods, prefetch};
use majorfault_lab::place::MemoryLimit;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

#[path = "assist/said.rs"]
mod said;

const NOBODY: u32 = 65534;
const PAGE: u64 = 4096;

/// Accesses of orders that are not strides, over all threads.
const ACCESSES: u64 = 40_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.split_first() {
        Some((word, rest)) if word == "program" => {
            program(rest);
            ExitCode::SUCCESS
        }
        _ => match compare(&Plan::of(&arguments)) {
            0 => ExitCode::SUCCESS,
            failed => {
                eprintln!("{failed} cases have no figures");
                ExitCode::FAILURE
            }
        },
    }
}

struct Plan {
    orders: Vec<String>,
    rounds: usize,
    size: u64,
    threads: Vec<u64>,
    read_ahead: Vec<Option<u64>>,
    quarter: Vec<bool>,
    tool: String,
    majorfault: PathBuf,
    learn: bool,
    advice: bool,
    user: u32,
}

impl Plan {
    fn of(arguments: &[String]) -> Plan {
        let mut plan = Plan {
            orders: Vec::new(),
            rounds: 5,
            size: 2 << 30,
            threads: vec![1, 4],
            read_ahead: vec![None, Some(128)],
            quarter: vec![false, true],
            tool: "assist".to_owned(),
            majorfault: PathBuf::from(env!("CARGO_BIN_EXE_majorfault")),
            learn: false,
            advice: false,
            user: NOBODY,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value behind the option").as_str();
            match word.as_str() {
                "--rounds" => plan.rounds = value().parse().expect("a number"),
                "--size" => plan.size = value().parse::<u64>().expect("MiB") << 20,
                "--threads" => plan.threads = vec![value().parse().expect("a number")],
                "--read-ahead" => plan.read_ahead = vec![value().parse().ok()],
                "--learn" => plan.learn = true,
                "--root" => plan.user = 0,
                "--advice" => plan.advice = true,
                "--majorfault" => plan.majorfault = PathBuf::from(value()),
                "--tool" => plan.tool = value().to_owned(),
                "--memory" => plan.quarter = vec![value() == "quarter"],
                order => plan.orders.push(order.to_owned()),
            }
        }
        if plan.orders.is_empty() {
            plan.orders = ["64k", "256k", "1m", "sequential", "random", "chase"].map(str::to_owned).to_vec();
        }
        plan
    }
}

/// The program: waits until it is placed, then touches 8 bytes at each place of its order.
fn program(words: &[String]) {
    let [order, threads, path, method] = words else { panic!("ORDER THREADS PATH METHOD") };
    let threads: u64 = threads.parse().expect("a number");
    std::io::stdin().read_line(&mut String::new()).expect("a word from the parent");
    let target = Arc::new(Target::open(&[PathBuf::from(path)], &Layout::default()).expect("the file"));
    let mmap = methods::named("mmap").expect("a method");
    let given: Given = method.parse().expect("settings");
    let opened = prefetch::open(mmap, Arc::clone(&target), &given).expect("a mapping");
    let mut readers: Vec<_> = (1..threads).map(|_| opened.reader.sibling().expect("a sibling")).collect();
    readers.push(opened.reader);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (thread, mut reader) in (0..threads).zip(readers) {
            let extents = extents(order, thread, threads, target.len());
            scope.spawn(move || reader.visit(&extents, &mut Touch(0)).expect("readable bytes"));
        }
    });
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!("{} {}", began.elapsed().as_secs_f64(), cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
}

/// Each thread has a part of the file of its own, but for random orders.
fn extents(order: &str, thread: u64, threads: u64, length: u64) -> Vec<Extent> {
    let part = length / threads;
    let at = |offset: u64| Extent { offset, length: 8 };
    let mut state = thread + 1;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % (length / PAGE) * PAGE
    };
    match order {
        "sequential" => (0..part / PAGE).map(|page| at(thread * part + page * PAGE)).collect(),
        "random" => (0..ACCESSES / threads).map(|_| at(draw())).collect(),
        // Each place follows from the one before: to the page cache the same as random, but clustered as lists are.
        "chase" => (0..ACCESSES / threads / 4)
            .flat_map(|_| {
                let near = draw();
                [0u64, 3, 1, 7].map(|page| at((near + page * PAGE).min(length - PAGE)))
            })
            .collect(),
        stride => {
            let stride = stride.parse::<Bytes>().expect("an order, or a stride").0;
            (0..part / stride).map(|row| at(thread * part + row * stride)).collect()
        }
    }
}

struct Touch(u64);

impl Visitor for Touch {
    fn see(&mut self, _: usize, bytes: &[u8]) -> ControlFlow<()> {
        self.0 = std::hint::black_box(self.0 + u64::from(bytes[0]));
        ControlFlow::Continue(())
    }
}

/// The arms that must be asked for.
const KNOWING: usize = 3;
const ADVISED: usize = 4;

/// What the assistant beside a program knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Nothing.
    Anew,
    /// The profile of earlier runs.
    Knowing,
}

/// One run of one arm.
struct Ran {
    seconds: f64,
    device_bytes: f64,
    program_cpu_ns: f64,
    /// What the tool said, where there was one.
    said: Option<serde_json::Value>,
}

struct Bench {
    /// Copies that nobody may run.
    program: PathBuf,
    majorfault: PathBuf,
    file: PathBuf,
    device: (u32, u32),
    tool: String,
    user: u32,
    _dir: tempfile::TempDir,
}

/// Runs all cases; how many of them could not be measured.
fn compare(plan: &Plan) -> usize {
    let mut failed = 0;
    let bench = Bench::new(plan);
    println!(
        "{:<52} {:>8} {:>8} {:>8} {:>20} {:>19} {:>6} {:>5} {:>17}",
        "", "alone", "assist", "policy", "assist/policy speed", "assist/alone speed", "bytes", "CPU", "program's CPU"
    );
    for order in &plan.orders {
        for read_ahead in &plan.read_ahead {
            let _setting = read_ahead.map(|kib| Setting::set(bench.device, kib));
            for quarter in &plan.quarter {
                for threads in &plan.threads {
                    let limit = quarter.then_some(plan.size / 4);
                    let found = read_ahead.map_or("found".to_owned(), |kib| format!("{kib} KiB"));
                    let memory = if *quarter { "a quarter" } else { "all" };
                    let name = format!("{order}, {threads} threads, {memory}, read-ahead {found}");
                    if let Err(why) = bench.case(&name, order, *threads, limit, plan) {
                        eprintln!("{name}: NOT MEASURED: {why}");
                        failed += 1;
                    }
                }
            }
        }
    }
    failed
}

impl Bench {
    fn new(plan: &Plan) -> Bench {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("our directory");
        let copy = |from: &Path, name: &str| {
            let to = dir.path().join(name);
            std::fs::copy(from, &to).expect("room on the disk");
            to
        };
        let program = copy(&std::env::current_exe().expect("this program"), "program");
        let majorfault = copy(&plan.majorfault, "majorfault");
        let file = dir.path().join("data");
        let mut made = std::fs::File::create(&file).expect("room on the disk");
        let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
        (0..plan.size >> 20).for_each(|_| made.write_all(&block).expect("room on the disk"));
        made.sync_all().expect("data on the disk");
        std::os::unix::fs::chown(&file, Some(NOBODY), None).expect("root");
        std::fs::create_dir(dir.path().join("kept")).expect("room on the disk");
        std::os::unix::fs::chown(dir.path().join("kept"), Some(NOBODY), None).expect("root");
        let device = made.metadata().expect("the file just made").dev();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        Bench { program, majorfault, file, device, tool: plan.tool.clone(), user: plan.user, _dir: dir }
    }

    /// Prints the line of a case.
    ///
    /// Errors: in a sentence, where the tool failed or did nothing of what is measured.
    fn case(&self, name: &str, order: &str, threads: u64, limit: Option<u64>, plan: &Plan) -> Result<(), String> {
        let policy = match order {
            "sequential" | "random" | "chase" => "policy=learned".to_owned(),
            stride => format!("policy=strided,stride={stride},length=8"),
        };
        let beside = [None, Some(Beside::Anew), None, Some(Beside::Knowing), None];
        let methods = ["advice=normal", "advice=normal", &policy, "advice=normal", "advice=strided"];
        let arms: Vec<usize> =
            (0..5).filter(|arm| (plan.learn || *arm != KNOWING) && (plan.advice || *arm != ADVISED)).collect();
        if plan.learn {
            let _ = std::fs::remove_file(self.profile());
            self.run(order, threads, "advice=normal", beside[KNOWING], limit)?;
        }
        let mut ran: [Vec<Ran>; 5] = Default::default();
        for round in 0..plan.rounds {
            for arm in (0..arms.len()).map(|turn| arms[(turn + round) % arms.len()]) {
                ran[arm].push(self.run(order, threads, methods[arm], beside[arm], limit)?);
            }
        }
        let all: Vec<serde_json::Value> = ran[1].iter().filter_map(|ran| ran.said.clone()).collect();
        said::helped(&self.tool, order, &all)?;
        let seconds = |arm: usize| median(ran[arm].iter().map(|ran| ran.seconds).collect());
        let ratio = |over: usize, under: usize, of: fn(&Ran) -> f64| {
            let mut ratios: Vec<f64> =
                ran[over].iter().zip(&ran[under]).map(|(over, under)| of(over) / of(under)).collect();
            ratios.sort_by(f64::total_cmp);
            (ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1])
        };
        let told = |(middle, least, most): (f64, f64, f64)| format!("{middle:.2} [{least:.2}-{most:.2}]");
        let cpu = median(
            all.iter().zip(&ran[1]).map(|(said, ran)| said::own_cpu_ns(said) / ran.program_cpu_ns.max(1e6)).collect(),
        );
        println!(
            "{name:<52} {:>7.3}s {:>7.3}s {:>7.3}s {:>20} {:>19} {:>6.2} {:>5.2} {:>17}",
            seconds(0),
            seconds(1),
            seconds(2),
            told(ratio(2, 1, |ran| ran.seconds)),
            told(ratio(0, 1, |ran| ran.seconds)),
            ratio(1, 0, |ran| ran.device_bytes).0,
            cpu,
            told(ratio(1, 0, |ran| ran.program_cpu_ns))
        );
        if plan.learn {
            let of = |under| told(ratio(under, KNOWING, |ran| ran.seconds));
            println!(
                "    knowing the stride: {:.3}s, of the policy's speed {}, of its own before {}",
                seconds(KNOWING),
                of(2),
                of(1)
            );
        }
        if plan.advice {
            let of = |under| told(ratio(under, ADVISED, |ran| ran.seconds));
            println!(
                "    MADV_STRIDED: {:.3}s, {} times as fast as alone, {} as with the assistant, {} as the policy, bytes {:.2} of the program's alone",
                seconds(ADVISED),
                of(0),
                of(1),
                of(2),
                ratio(ADVISED, 0, |ran| ran.device_bytes).0
            );
        }
        Ok(())
    }

    /// One run, cold.
    ///
    /// Errors: those of [`said::document`].
    fn run(
        &self,
        order: &str,
        threads: u64,
        method: &str,
        beside: Option<Beside>,
        limit: Option<u64>,
    ) -> Result<Ran, String> {
        let file = std::fs::File::open(&self.file).expect("the file just made");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
        let place = limit.map(|bytes| MemoryLimit::create(Bytes(bytes)).expect("the right to limit memory"));
        let mut child = self
            .command(&self.program)
            .args(["program", order, &threads.to_string(), &self.file.display().to_string(), method])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        if let Some(place) = &place {
            place.add(child.id()).expect("a place for the child");
        }
        let assistant = beside.map(|beside| {
            let mut assist = self.command(&self.majorfault);
            assist.args([&self.tool, &child.id().to_string(), "--for", "3600s", "--json"]);
            if beside == Beside::Knowing {
                assist.arg("--learn").arg(self.profile());
            }
            assist.stdout(Stdio::piped()).stderr(Stdio::piped());
            let assist = assist.spawn().expect("an assistant");
            std::thread::sleep(std::time::Duration::from_millis(200));
            assist
        });
        let before = self.device_bytes();
        child.stdin.take().expect("piped").write_all(b"go\n").expect("a child that listens");
        let said = child.wait_with_output().expect("a child that ends");
        let device_bytes = self.device_bytes() - before;
        let words = String::from_utf8_lossy(&said.stdout);
        let mut words = words.split_whitespace().map(|word| word.parse::<f64>().expect("seconds"));
        let (seconds, cpu) = (words.next().expect("seconds"), words.next().expect("seconds"));
        let ended = assistant.map(|it| it.wait_with_output().expect("an assistant that ends"));
        let said = ended.map(|ended| said::document(&self.tool, &ended)).transpose()?;
        if let (Some(said), Some(_)) = (&said, std::env::var_os("VERBOSE")) {
            eprintln!("{order} {seconds:.3} s: {}", said["files"][0]);
        }
        Ok(Ran { seconds, device_bytes, program_cpu_ns: cpu * 1e9, said })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.user != 0 {
            command.uid(self.user);
        }
        command
    }

    fn profile(&self) -> PathBuf {
        self.file.with_file_name("kept").join("profile.json")
    }

    fn device_bytes(&self) -> f64 {
        let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
        diskstats::row(&text, self.device.0, self.device.1).map_or(f64::NAN, |stat| stat.read_bytes as f64)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The device's read-ahead, as it was found again when dropped.
struct Setting {
    path: PathBuf,
    found: String,
}

impl Setting {
    fn set((major, minor): (u32, u32), kib: u64) -> Setting {
        let block = format!("/sys/dev/block/{major}:{minor}");
        let paths = [format!("{block}/queue/read_ahead_kb"), format!("{block}/../queue/read_ahead_kb")];
        let path = paths.iter().map(PathBuf::from).find(|path| path.exists()).expect("a device with read-ahead");
        let found = std::fs::read_to_string(&path).expect("a setting");
        std::fs::write(&path, kib.to_string()).expect("root");
        Setting { path, found }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        std::fs::write(&self.path, self.found.trim()).expect("root");
    }
}
