//! One run of the program.

use super::ways::Call;
use super::{Task, Turn};
use crate::place::{MemoryLimit, child};
use majorfault::observe::{Kind, Observer, Scene};
use majorfault::proc::stat;
use majorfault::sys::cache;
use majorfault::{Bytes, Error, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a user's wish to stop is looked for; the clock's grain is that of the program's end, not this.
const LOOK: Duration = Duration::from_millis(20);

/// A clock tick of /proc/PID/stat.
const TICK_NS: u64 = 10_000_000;

/// Bytes of the end of standard error that are kept.
const KEPT: usize = 2048;

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The turn's name.
    pub turn: String,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// From the first instruction to the end.
    pub wall_ns: u64,
    /// Exit code; 128 and the signal's number where one ended it.
    pub code: i32,
    /// What it printed on standard output: bytes, and a sum over them.
    pub output: (u64, u64),
    /// The end of standard error.
    pub errors: String,
    /// Counters of the program and its children, and of the machine.
    pub counters: BTreeMap<String, u64>,
    /// Share of the processors that others used; `None` where it was not counted.
    pub others: Option<f64>,
    /// Whether the kernel killed something for want of memory.
    pub is_killed: bool,
}

impl Ran {
    /// What a counter grew by.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }
}

/// Runs the task once in this turn. `None` where the user stopped it.
///
/// Errors: Io (no such program, the file cannot be dropped), Missing (no memory limit).
pub fn once(task: &Task, turn: &Turn, repetition: u32, stop: &AtomicBool) -> Result<Option<Ran>> {
    make_ready(task)?;
    let limit = turn.memory.map(MemoryLimit::create).transpose()?;
    let mut child = start(&(turn.way.call)(task)?, true)?;
    if let Some(limit) = &limit {
        limit.add(child.id())?;
    }
    let scene = Scene {
        pid: Some(child.id()),
        with_children: true,
        cgroup: limit.as_ref().map(MemoryLimit::dir),
        files: task.files.clone(),
        ..Scene::default()
    };
    let mut observer = Observer::open(&scene);
    let (output, errors) = (summed(child.stdout.take()), last_of(child.stderr.take()));
    let before = observer.read();
    let began = Instant::now();
    let told = child.stdin.take().map(|mut input| input.write_all(b"go\n"));
    let is_stopped = wait_unreaped(&child, stop);
    let wall = began.elapsed();
    let after = observer.read();
    let whole = whole(child.id());
    let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
    drop(told);
    if is_stopped {
        return Ok(None);
    }
    let mut counters: BTreeMap<String, u64> = observer
        .counters()
        .zip(before.values.iter().zip(&after.values))
        .filter_map(|(counter, (before, after))| {
            let value = match counter.kind {
                Kind::Total => (*after)?.saturating_sub((*before)?),
                Kind::Level => (*after)?,
            };
            Some((counter.name.to_owned(), value))
        })
        .collect();
    counters.extend(whole);
    Ok(Some(Ran {
        turn: turn.name(),
        repetition,
        wall_ns: wall.as_nanos() as u64,
        code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        output: output.and_then(|thread| thread.join().ok()).unwrap_or_default(),
        errors: errors.and_then(|thread| thread.join().ok()).unwrap_or_default(),
        others: others(&counters, wall),
        counters,
        is_killed: limit.is_some_and(|limit| limit.oom_kills() > 0),
    }))
}

/// What comes before each run of the program, outside the clock.
fn make_ready(task: &Task) -> Result<()> {
    if task.is_cold {
        task.files.iter().try_for_each(drop_from_cache)?;
    }
    prepare(task)
}

/// Runs what a way learns from, outside the clock, from the state that each run begins in: cached files would hide most accesses.
///
/// Errors: Io; Invalid where the command fails.
pub fn learn(task: &Task, command: Vec<OsString>, stop: &AtomicBool) -> Result<()> {
    make_ready(task)?;
    let mut child = start(&Call { load: Vec::new(), command }, false)?;
    drop(child.stdin.take());
    let (output, errors) = (summed(child.stdout.take()), last_of(child.stderr.take()));
    let is_stopped = wait_unreaped(&child, stop);
    let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
    if is_stopped {
        return Ok(());
    }
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    drop(output.map(JoinHandle::join));
    match std::fs::read_dir(&task.scratch).is_ok_and(|mut dir| dir.next().is_some()) {
        true => Ok(()),
        false => Err(Error::Invalid(format!("nothing was learnt of the program ({status}): {}", errors.trim()))),
    }
}

/// Reads what is to be loaded and becomes the program, once a line has come: what `once` starts.
///
/// Errors: Io (a file to be loaded, the program).
pub fn enter(load: &[PathBuf], program: &[OsString]) -> Result<()> {
    // Killed with whoever started it, also as the program.
    child::die_with_parent();
    let mut line = String::new();
    let heard = std::io::stdin().read_line(&mut line);
    // Whoever started this is gone, and nobody would look at the program.
    if !heard.is_ok_and(|length| length > 0) {
        return Err(Error::Invalid(
            "nobody said when to begin; this subcommand is for majorfault's own use".to_owned(),
        ));
    }
    for path in load {
        let mut piece = vec![0; 1 << 20];
        let mut file = File::open(path).map_err(|error| Error::io("load", path, error))?;
        while file.read(&mut piece).map_err(|error| Error::io("load", path, error))? > 0 {}
    }
    let Some((name, arguments)) = program.split_first() else {
        return Err(Error::Invalid("no program is named".to_owned()));
    };
    let error = Command::new(name).args(arguments).stdin(Stdio::null()).exec();
    Err(Error::io("start the program", name, error).with_remedy("check its name and path"))
}

/// Starts the call; one that `waits` begins when it is told.
fn start(call: &Call, waits: bool) -> Result<Child> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let mut command = match waits {
        true => Command::new(&own),
        false => Command::new(&call.command[0]),
    };
    if waits {
        command.arg("enter").args(call.load.iter().flat_map(|path| ["--load".into(), path.clone().into_os_string()]));
        command.arg("--").args(&call.command);
    } else {
        command.args(&call.command[1..]);
    }
    // A SIGINT at the terminal is for us; the program is ended with its group.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().map_err(|error| Error::io("start", &own, error))
}

/// Faults and processor time of a process that has ended and of the children that it waited for.
fn whole(pid: u32) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some([own, waited_for]) = stat::with_children(&text) else { return Vec::new() };
    let ns = |ticks: u64| ticks * TICK_NS;
    [
        ("minor_faults", own.minor_faults + waited_for.minor_faults),
        ("major_faults", own.major_faults + waited_for.major_faults),
        ("user_ns", ns(own.user_ticks + waited_for.user_ticks)),
        ("system_ns", ns(own.system_ticks + waited_for.system_ticks)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn drop_from_cache(path: &PathBuf) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    // Dirty pages cannot be dropped.
    let _ = file.sync_data();
    let length = file.metadata().map_or(0, |meta| meta.len());
    cache::fadvise(&file, 0, length, cache::FileAdvice::DontNeed)
}

fn prepare(task: &Task) -> Result<()> {
    let Some(command) = &task.prepare else { return Ok(()) };
    let status = Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Invalid(format!("--prepare {} ended with {status}", command.display()))),
        Err(error) => Err(Error::io("start", "sh", error)),
    }
}

/// Waits until the process has ended, and leaves it so that its counters can still be read. Whether the user stopped it.
fn wait_unreaped(child: &Child, stop: &AtomicBool) -> bool {
    let pid = Pid::from_child(child);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    // It may have ended by itself.
                    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                    return true;
                }
                std::thread::park_timeout(LOOK);
            }
            false
        });
        while rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        watcher.join().unwrap_or(false)
    })
}

/// The length of what comes, and a sum over it.
fn summed(from: Option<impl Read + Send + 'static>) -> Option<JoinHandle<(u64, u64)>> {
    let mut from = from?;
    Some(std::thread::spawn(move || {
        let (mut length, mut sum, mut piece) = (0, DefaultHasher::new(), vec![0; 64 << 10]);
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            length += bytes as u64;
            // One byte after the other, so that the sum does not depend on how they come.
            piece[..bytes].iter().for_each(|byte| sum.write_u8(*byte));
        }
        (length, sum.finish())
    }))
}

/// The end of what comes.
fn last_of(from: Option<impl Read + Send + 'static>) -> Option<JoinHandle<String>> {
    let mut from = from?;
    Some(std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), vec![0; 4096]);
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            kept.extend_from_slice(&piece[..bytes]);
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
        String::from_utf8_lossy(&kept).into_owned()
    }))
}

/// Share of the processors that was used by others, of what is counted in ticks.
fn others(counters: &BTreeMap<String, u64>, wall: Duration) -> Option<f64> {
    let of = |name: &str| counters.get(name).copied();
    let own = of("user_ns")? + of("system_ns")?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let unsure = TICK_NS * (processors + 2);
    let foreign = of("machine_busy_ns")?.saturating_sub(own + unsure);
    Some(foreign as f64 / (wall.as_nanos() as f64 * processors as f64).max(1.0))
}

/// A size, for sentences.
pub(super) fn size(bytes: u64) -> String {
    Bytes(bytes).rounded()
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::sys::cache::resident;

    #[test]
    fn what_is_learnt_from_begins_as_each_run_does() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let [file, scratch] = ["file", "scratch"].map(|name| dir.path().join(name));
        std::fs::create_dir(&scratch).unwrap();
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let opened = File::open(&file).unwrap();
        opened.sync_all().unwrap();
        let task = Task {
            files: vec![file],
            is_cold: true,
            prepare: Some(format!("touch {}/prepared", scratch.display()).into()),
            scratch: scratch.clone(),
            ..Task::default()
        };

        learn(&task, ["true"].map(OsString::from).to_vec(), &AtomicBool::new(false)).unwrap();

        assert!(scratch.join("prepared").exists());
        assert_eq!(resident(&opened, 0, 1 << 20).unwrap().0, 0);
    }
}
