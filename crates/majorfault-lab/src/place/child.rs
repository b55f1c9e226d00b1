//! Worker processes: started in a place, dying with us, becoming a peer where the trial is one.

use crate::place::MemoryLimit;
use majorfault::{Error, Missing, Result};
use std::io::{BufReader, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Exit code of a worker whose watcher is gone or does not speak as agreed.
pub const LOST: i32 = 70;

/// A worker process and our ends of its pipes. Dropping it kills it.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
}

/// Starts this program again as a worker, and puts it into the limited place before it gets its order.
///
/// Errors: Io (no process can be started, or it can't be put into the cgroup).
pub fn start_worker(limit: Option<&MemoryLimit>) -> Result<Worker> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let mut child = Command::new(&own)
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A SIGINT at the terminal is for the watcher, which tells its worker what to do.
        .process_group(0)
        .spawn()
        .map_err(|error| Error::io("start a worker", &own, error))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let worker = Worker { child, input, output };
    if let Some(limit) = limit {
        limit.add(worker.pid())?;
    }
    Ok(worker)
}

/// Makes this process die with the one that started it, even by SIGKILL.
pub fn die_with_parent() {
    let parent = rustix::process::getppid();
    // Fails only for a bad signal number.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // The parent may have died before the call.
    if rustix::process::getppid() != parent {
        std::process::exit(LOST);
    }
}

/// Replaces this process by the program. Returns only where that failed.
pub fn become_program(program: &[String]) -> Error {
    let Some((name, arguments)) = program.split_first() else {
        return Error::Invalid("no program is named".to_owned());
    };
    let error = Command::new(name).args(arguments).stdin(Stdio::null()).exec();
    match error.kind() {
        ErrorKind::NotFound => Missing::new(name, "it is not installed", format!("apt-get install {name}")).into(),
        _ => Error::io("start the peer", name, error),
    }
}

impl Worker {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it is spoken to; `None` once closed.
    pub fn input(&mut self) -> Option<&mut ChildStdin> {
        self.input.as_mut()
    }

    /// What it says. To be taken once.
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.output.take().map(BufReader::new)
    }

    /// Closes its input, which tells it to end, and waits for that.
    ///
    /// Errors: Io.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.input = None;
        self.child.wait().map_err(|error| Error::io("wait for the worker", self.child.id().to_string(), error))
    }

    /// Sends it SIGINT.
    pub fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}
