//! The host's side of a guest: starts QEMU, hears its lines, ends it.

use crate::place::child;
use crate::place::guest::accelerator::{self, KVM_BOOTS_WITHIN};
use crate::place::guest::architecture::Architecture;
use crate::place::guest::complaint;
use crate::place::guest::disk::{self, Unnamed};
use crate::place::guest::kernel::{self, BuiltKernel};
use crate::place::guest::line::{Errand, FromGuest};
use crate::place::guest::program;
use crate::place::guest::qemu::{self, Files};
use crate::place::guest::remark;
use crate::place::guest::spec::{Accelerator, Spec};
use majorfault::params::Value;
use majorfault::{Bytes, Error, Result};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long an emulated guest may take to its first line, on a machine that does much else.
const BOOTS_WITHIN: Duration = Duration::from_secs(120);

/// How long a guest may say nothing; it says each 2 s that it lives.
const SILENCE: Duration = Duration::from_secs(90);

/// How often the user's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Lines of the console that an error shows.
const LAST_LINES: usize = 12;

/// Lines about the cause of a kernel's death that it shows, too, where they stand before those.
const CAUSE_LINES: usize = 6;

/// What such a line has in it.
const CAUSES: &[&str] = &["Oops", "BUG:", "general protection", "invalid opcode", "double fault", "Unable to"];

/// Memory of the host that QEMU itself and the archive take.
const QEMU_NEEDS: Bytes = Bytes::mib(256);

/// A running QEMU. Dropping it ends it.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a guest, runs our program there with `arguments`, and gives each line to `told` as it comes: first `Ready` with a
/// remark for the records of this place. Gives the program's exit code, or `None` where the user stopped it. Records are told
/// where the arguments hold `records`, the name under which they are to be written. Where the first argument is a path below
/// [`BROUGHT`](super::BROUGHT), it is one of the `brought` files that runs instead.
///
/// Errors: Missing (QEMU, a kernel of that name, tools), Invalid (a guest that hangs, panics or lacks something, with the last
/// lines of its console), Io, and what `told` returns.
pub fn run(
    spec: &Spec,
    arguments: &[String],
    brought: &[PathBuf],
    stop: &AtomicBool,
    mut told: impl FnMut(FromGuest) -> Result<()>,
) -> Result<Option<u8>> {
    let kernel = kernel::named(&spec.kernel)?;
    let own = program::own(spec)?;
    let architecture = program::architecture(&own, &kernel)?;
    architecture.emulator()?;
    room(spec)?;
    let order = Errand {
        arguments: arguments.to_vec(),
        mounts: spec.mounts(),
        swap: spec.swap_device(),
        records: super::init::RECORDS.to_owned(),
    };
    let making = spec.fs.making();
    if architecture != Architecture::HOST && !making.programs.is_empty() {
        return Err(Error::Invalid(format!(
            "fs={}: programs of this machine make it in the guest, whose processor is another; say fs=ext4, xfs, btrfs or f2fs",
            spec.fs.text()
        )));
    }
    let programs = making.programs.iter().map(|(name, package)| disk::program(name, package));
    let brought = brought.iter().cloned().map(Ok).chain(programs).collect::<Result<Vec<PathBuf>>>()?;
    let modules = kernel.loads(making.modules);
    let archive = Unnamed(program::archive(&own, &order, &modules, &brought, Unnamed::new(Bytes::mib(256))?.0)?);
    let mut candidates = accelerator::candidates(spec, architecture).into_iter().peekable();
    while let Some(accelerator) = candidates.next() {
        let guest = Guest::start(spec, architecture, accelerator, &kernel, &archive)?;
        match guest.ready(stop) {
            Err(_) if candidates.peek().is_some() => accelerator::remember_failure(),
            ready => {
                ready?;
                told(FromGuest::Ready(remark(spec, &kernel.name, &accelerator.text())))?;
                return guest.follow(stop, &mut told);
            }
        }
    }
    Err(Error::Invalid("there is no accelerator to try".to_owned()))
}

/// Whether the host has the memory.
fn room(spec: &Spec) -> Result<()> {
    let (needed, free) = (Bytes(spec.memory.0 + QEMU_NEEDS.0), crate::machine::available_memory());
    match needed <= free {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a guest with memory={} needs {} and {} are free; say less memory, or free some",
            spec.memory,
            needed.rounded(),
            free.rounded()
        ))),
    }
}

/// A guest that was started, with what it stands on.
struct Guest {
    /// Ended before the files that it has open are gone.
    machine: Machine,
    lines: Receiver<String>,
    console: Unnamed,
    boots_within: Duration,
    _disks: Vec<Unnamed>,
}

impl Guest {
    fn start(
        spec: &Spec,
        architecture: Architecture,
        accelerator: Accelerator,
        kernel: &BuiltKernel,
        archive: &Unnamed,
    ) -> Result<Guest> {
        let console = Unnamed::new(Bytes::mib(1))?;
        let disk = (spec.disk.0 > 0).then(|| disk::image(spec.disk, spec.fs)).transpose()?;
        let swap = (spec.swap.0 > 0).then(|| disk::swap(spec.swap)).transpose()?;
        let pmem = (spec.pmem.0 > 0).then(|| disk::persistent(spec.pmem)).transpose()?;
        let [archive, out] = [archive, &console].map(Unnamed::path);
        let [disk_path, swap_path, pmem_path] = [&disk, &swap, &pmem].map(|image| image.as_ref().map(Unnamed::path));
        let files = Files {
            kernel: &kernel.image,
            archive: &archive,
            console: &out,
            disk: disk_path.as_deref(),
            swap: swap_path.as_deref(),
            pmem: pmem_path.as_deref(),
        };
        let own =
            std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
        // By way of our own program, which sees to it that QEMU dies with us, even by SIGKILL.
        let mut child = Command::new(&own)
            .args(["kernel", "machine", "--"])
            .args(qemu::command(spec, architecture, accelerator, &files))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(console.0.try_clone().map_err(|error| Error::io("share the console", &out, error))?)
            .spawn()
            .map_err(|error| Error::io("start a guest", &own, error))?;
        let lines = lines(&mut child);
        let boots_within = if accelerator == Accelerator::Kvm { KVM_BOOTS_WITHIN } else { BOOTS_WITHIN };
        let disks = disk.into_iter().chain(swap).chain(pmem).collect();
        Ok(Guest { machine: Machine(child), lines, console, boots_within, _disks: disks })
    }

    /// Waits for the first process.
    fn ready(&self, stop: &AtomicBool) -> Result<()> {
        match self.next(self.boots_within, stop)? {
            Some(FromGuest::Lacks(what)) => Err(self.broken(&what)),
            Some(_) => Ok(()),
            None => Ok(()),
        }
    }

    /// Gives each line to `told` until the program has ended; its exit code, or `None` where the user stopped it.
    fn follow(mut self, stop: &AtomicBool, told: &mut impl FnMut(FromGuest) -> Result<()>) -> Result<Option<u8>> {
        loop {
            match self.next(SILENCE, stop)? {
                None => return Ok(None),
                Some(FromGuest::Ended(code)) => {
                    // It powers off by itself; dropping it would do as well.
                    let _ = self.machine.0.wait();
                    if let Some(complaint) = complaint::first(&self.console()) {
                        told(FromGuest::Complaint(complaint))?;
                    }
                    return Ok(Some(code));
                }
                Some(FromGuest::Lacks(what)) => return Err(self.broken(&what)),
                Some(FromGuest::Alive | FromGuest::Ready(_)) => {}
                Some(other) => told(other)?,
            }
        }
    }

    /// The next line; `None` where the user wants to stop.
    fn next(&self, patience: Duration, stop: &AtomicBool) -> Result<Option<FromGuest>> {
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(told) => return Ok(Some(told)),
                    Err(why) => return Err(self.broken(&format!("it said something that is no line of ours ({why})"))),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.broken("it ended before its program did")),
                Err(RecvTimeoutError::Timeout) if began.elapsed() > patience => {
                    return Err(self.broken(&format!("it said nothing for {} s", patience.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(None)
    }

    fn broken(&self, what: &str) -> Error {
        Error::Invalid(format!("the guest broke down: {what}{}", last_lines(&self.console())))
    }

    /// All that its kernel said.
    fn console(&self) -> String {
        let console = fs::read(self.console.path()).unwrap_or_default();
        String::from_utf8_lossy(&console).into_owned()
    }
}

/// The console's last lines, as the end of a sentence.
fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    match lines.len() {
        0 => "; its console is empty: is the image a kernel for this architecture with \
              CONFIG_SERIAL_8250_CONSOLE=y?"
            .to_owned(),
        count => {
            let last = count.saturating_sub(LAST_LINES);
            // A kernel that dies says why first, and registers after it.
            let is_cause = |line: &&str| CAUSES.iter().any(|cause| line.contains(cause));
            let cause = lines[..last].iter().position(is_cause);
            let cause = cause.map(|at| lines[at..last.min(at + CAUSE_LINES)].join("\n  ") + "\n  ...\n  ");
            format!("; its console ends with\n  {}{}", cause.unwrap_or_default(), lines[last..].join("\n  "))
        }
    }
}

/// What the guest says, line by line, read by a thread that ends with the pipe.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

/// Becomes QEMU, which dies with the process that started us. Returns only where that failed.
pub fn become_machine(words: &[String]) -> Error {
    child::die_with_parent();
    child::become_program(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_end_of_the_console() {
        let console: String = (0..40).map(|line| format!("line {line}\r\n\r\n")).collect();

        let shown = last_lines(&console);

        assert!(shown.starts_with("; its console ends with\n  line 28\n"), "{shown}");
        assert!(shown.ends_with("\n  line 39"), "{shown}");
        assert!(last_lines(" \n").contains("is the image a kernel"));
        let died = last_lines(&console.replace("line 7\r", "BUG: unable to handle page fault\r"));
        assert!(died.contains("ends with\n  BUG: unable to handle page fault\n  line 8\n"), "{died}");
        assert!(died.contains("line 12\n  ...\n  line 28\n"), "{died}");
    }

    #[test]
    fn more_memory_than_the_host_has_is_refused_with_both_figures() {
        let spec: Spec = "guest:memory=900t".parse().unwrap();

        let error = room(&spec).unwrap_err().to_string();

        assert!(error.contains("memory=900t") && error.contains("are free; say less memory"), "{error}");
    }
}
