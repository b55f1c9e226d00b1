//! Starting the program: a process that stops itself, is put under its limit and prepared to be looked at, and then becomes the program.
//!
//! So nothing of the program runs before it is where it belongs, and it is given nothing by us: no file, no signal, and a variable only
//! where a library is to be preloaded.

use super::agent::preload;
use crate::place::child::die_with_parent;
use majorfault::{Error, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

/// Exit codes as env(1) has them: the program cannot be started, or is not there.
pub const CANNOT_START: u8 = 126;
/// See [`CANNOT_START`].
pub const NOT_FOUND: u8 = 127;

/// A process that will become the program.
pub struct HeldProgram {
    child: Child,
}

/// Starts it, and waits until it holds. The program will load these libraries.
///
/// Errors: Io (no process can be started), Invalid (it ended instead).
pub fn hold(program: &[OsString], libraries: &[PathBuf]) -> Result<HeldProgram> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let mut command = Command::new(&own);
    command.arg("hold");
    for library in libraries {
        command.arg("--preload").arg(library);
    }
    let child = command.arg("--").args(program).spawn();
    let mut child = child.map_err(|error| Error::io("start", &own, error))?;
    let pid = Pid::from_child(&child);
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) if status.stopped() => return Ok(HeldProgram { child }),
            Err(rustix::io::Errno::INTR) => {}
            _ => {
                let _ = child.kill();
                let ended = child.wait().map_err(|error| Error::io("wait for", &own, error))?;
                return Err(Error::Invalid(format!("the process that was to become the program ended: {ended}")));
            }
        }
    }
}

impl HeldProgram {
    /// Its number, which will be the program's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it become the program.
    ///
    /// Errors: Io.
    pub fn go(self) -> Result<Child> {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::CONT)
            .map_err(|error| Error::io("let the program begin", self.child.id().to_string(), error))?;
        Ok(self.child)
    }

    /// Ends it before it has become anything.
    pub fn drop_it(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops this process, and becomes the program when it goes on. Returns, with the exit code, only where that failed.
pub fn become_held(program: &[OsString], libraries: &[PathBuf]) -> (Error, u8) {
    // Until then nobody but the parent can let it go on.
    die_with_parent();
    let stopped = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
    // The program is to live on where its parent is killed.
    let freed = rustix::process::set_parent_process_death_signal(None);
    if let Err(error) = stopped.and(freed) {
        return (Error::io("prepare the program's process", "kill", error), super::OWN_FAILURE);
    }
    let Some((name, arguments)) = program.split_first() else {
        return (Error::Invalid("no program is named".to_owned()), super::OWN_FAILURE);
    };
    let mut command = Command::new(name);
    if !libraries.is_empty() {
        command.env("LD_PRELOAD", preload(libraries, std::env::var_os("LD_PRELOAD")));
    }
    let error = command.args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_START };
    (Error::io("start the program", name, error).with_remedy("check its name and path"), code)
}

/// The exit code that tells how a program ended: its own, or 128 and the number of the signal.
pub fn code(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_gives_128_and_its_number() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
    }
}
