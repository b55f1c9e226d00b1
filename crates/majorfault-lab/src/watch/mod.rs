//! A process that majorfault does not run: whether it can be watched, and the files behind its mappings.

mod advice;
mod blocked;
mod details;
pub mod evidence;
pub mod faults;
pub mod files;
pub mod gather;
pub mod grid;
pub mod members;
pub mod names;
pub mod order;
mod reads;
pub mod recording;
mod round;
#[cfg(test)]
pub mod scenes;
pub mod stacks;
mod status;
mod tally;
pub mod target;

use majorfault::proc::number;
use majorfault::{Error, Missing, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// PF_KTHREAD of linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether the process can be watched at all.
///
/// Errors: Invalid (no such process, a thread, a kernel thread, ended already).
pub fn check(pid: u32) -> Result<()> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Err(Error::Invalid(format!("there is no process {pid}; look for its number with ps or pgrep")));
    };
    let name = status.lines().next().and_then(|line| line.strip_prefix("Name:")).unwrap_or_default().trim();
    if let Some(group) = number(&status, "Tgid").filter(|group| *group != u64::from(pid)) {
        return Err(Error::Invalid(format!("{pid} is a thread of process {group} ({name}); name process {group}")));
    }
    if flags(pid) & KERNEL_THREAD != 0 {
        return Err(Error::Invalid(format!(
            "{pid} ({name}) is a kernel thread, which maps no files; name a program's process"
        )));
    }
    if has_ended(pid) {
        return Err(Error::Invalid(format!("process {pid} ({name}) has ended already and waits for its parent")));
    }
    Ok(())
}

/// Field 9 of /proc/PID/stat.
fn flags(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse().ok()).unwrap_or(0)
}

/// Gone, or a zombie.
pub fn has_ended(pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    text.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Why its mappings could not be read.
pub fn closed(pid: u32, error: &std::io::Error) -> Error {
    if error.kind() != std::io::ErrorKind::PermissionDenied {
        return Error::Invalid(format!("process {pid} ended before it could be watched"));
    }
    let owner = fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid()).ok();
    let own = rustix::process::geteuid().as_raw();
    let reason = match owner {
        Some(owner) if owner != own => format!("it belongs to user {owner}, and majorfault runs as user {own}"),
        _ => "it is not dumpable, or has more capabilities than majorfault".to_owned(),
    };
    Missing::new(format!("process {pid}"), reason, format!("run as its user, or as root: sudo majorfault … {pid}"))
        .into()
}

/// Sampling takes two descriptors for each thread and processor; raising our own soft limit affects nobody else.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If refused, fewer threads are followed, which is reported.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
