//! Programs that others wrote, started in a world's directory: Python with its libraries, databases, tools of the shell.
//!
//! The scripts beside this file write `ready` when their data are on the disk and their loop begins.

use super::world::{Said, World, facility};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Debian's own Python, which has the libraries of Debian's packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// A program that runs until the end of the test.
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts a program in the directory of `world`.
    pub fn start(world: &World, program: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(world.path("")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).process_group(0);
        // SAFETY: the closure calls only prctl(2), which is async-signal-safe; it holds no memory of ours.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        Program { child: command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")) }
    }

    /// Starts a script of this folder and waits until it has its data.
    pub fn script(world: &World, name: &str, arguments: &[&str]) -> Program {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let program = Program::start(world, PYTHON, &[&[path.to_str().unwrap()], arguments].concat());
        world.wait_for(name, || world.path("ready").exists());
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the doctor says of it.
    pub fn examined(&mut self, world: &World, more: &[&str]) -> Said {
        let pid = self.pid().to_string();
        let said = world.majorfault(&[&["doctor", &pid, "--for", "2s", "--json"], more].concat());

        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the program ended: {ended:?}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its children, too: a Redis that saves would write into the directory when it is gone.
        // SAFETY: a signal to the process group that was made for this child, which is not waited for yet.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// Whether a program is installed.
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub fn has_program(name: &str, package: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    facility(name, if found { Ok(()) } else { Err(format!("not installed; apt-get install {package}")) })
}

/// Whether Debian's Python has a library.
pub fn has_module(module: &str, package: &str) -> bool {
    let mut command = Command::new(PYTHON);
    let found = command.args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    let missing = format!("{PYTHON} does not have it; apt-get install {package}");
    facility(&format!("python3's {module}"), if found { Ok(()) } else { Err(missing) })
}
