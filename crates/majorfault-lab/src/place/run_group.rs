//! A memory-limited group for a user's program, which must not suffer by us: it may swap, and what runs in it is never killed by us.
//!
//! In version 2 the limit is on a group that hands memory down, and the program in one below it, so that a run inside the run finds its
//! place below and not beside.

use super::reprieve::{Raised, Reprieve, most_more};
use super::{Hierarchy, Version, find, is_stale, missing, own_name, parents};
use majorfault::proc::{self, Live};
use majorfault::{Bytes, Error, Missing, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// How the names of such groups begin.
const PREFIX: &str = "majorfault-run-";

/// The group in which the program is, in version 2.
const INNER: &str = "program";

/// A group for a program.
pub struct RunGroup {
    hierarchy: Hierarchy,
    group: PathBuf,
    limit: Bytes,
    usage: Live,
    /// Memory and swap in version 1, swap alone in version 2.
    swap: Option<Live>,
    /// In version 1: why the kernel's killer is not held off, where it is not.
    reprieve: Option<Result<Reprieve>>,
}

/// What a group has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// The most memory that it has had.
    pub peak: Option<u64>,
    /// How often its limit was met.
    pub limit_hits: Option<u64>,
    /// Processes that the kernel has killed for want of memory.
    pub oom_kills: Option<u64>,
    /// How often its limit was raised for a moment, because the kernel would have killed (version 1).
    pub raised: Raised,
    /// By how much it may be raised so, in bytes; 0 where the kernel waits by itself.
    pub may_raise: u64,
    /// How long some of its processes waited for memory, in microseconds (version 2).
    pub stalled_us: Option<u64>,
}

/// The names of a group's files.
struct Files {
    usage: &'static str,
    swap: &'static str,
    peak: &'static str,
    hits: &'static str,
    kills: &'static str,
}

const V1: Files = Files {
    usage: "memory.usage_in_bytes",
    swap: "memory.memsw.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    hits: "memory.failcnt",
    kills: "memory.oom_control",
};

const V2: Files = Files {
    usage: "memory.current",
    swap: "memory.swap.current",
    peak: "memory.peak",
    hits: "memory.events",
    kills: "memory.events",
};

fn files(version: Version) -> &'static Files {
    match version {
        Version::V1 => &V1,
        Version::V2 => &V2,
    }
}

/// A name for a run: it names its maker, so that the next start finds what a killed one has left.
pub fn run_name() -> String {
    own_name().replacen("majorfault-", PREFIX, 1)
}

/// Whether a run has this name, and its maker is gone.
pub fn is_left(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| is_stale(&format!("majorfault-{rest}")))
}

impl RunGroup {
    /// Makes the group `name` with `limit` of memory; swap is as free as the groups above leave it.
    ///
    /// Errors: what is missing, with the way that fits this machine.
    pub fn create(name: &str, limit: Bytes) -> std::result::Result<RunGroup, Missing> {
        let hierarchy = find().map_err(|reason| missing(&reason, None))?;
        RunGroup::create_in(hierarchy, name, limit)
    }

    fn create_in(hierarchy: Hierarchy, name: &str, limit: Bytes) -> std::result::Result<RunGroup, Missing> {
        let mut reasons = vec!["no group above hands the memory controller down".to_owned()];
        for parent in parents(&hierarchy) {
            let group = parent.join(name);
            match fs::create_dir(&group) {
                Ok(()) => {
                    let made = RunGroup::arrange(hierarchy.clone(), group.clone(), limit);
                    return made.map_err(|error| {
                        remove_empty(&group);
                        told(&error.to_string(), &hierarchy)
                    });
                }
                Err(error) => reasons.push(format!("{}: {}", parent.display(), error.kind())),
            }
        }
        if reasons.len() > 1 {
            reasons.remove(0);
        }
        Err(told(&reasons.join(", "), &hierarchy))
    }

    fn arrange(hierarchy: Hierarchy, group: PathBuf, limit: Bytes) -> Result<RunGroup> {
        write(&group, hierarchy.limit_file(), &limit.0.to_string())?;
        if hierarchy.version == Version::V2 {
            let inner = group.join(INNER);
            fs::create_dir(&inner).map_err(|error| Error::io("make a group", &inner, error))?;
            // Only a run within this one needs it.
            let _ = write(&group, "cgroup.subtree_control", "+memory");
        }
        let files = files(hierarchy.version);
        let usage = group.join(files.usage);
        let usage = Live::open(&usage).map_err(|error| Error::io("read the memory in use", &usage, error))?;
        let swap = Live::open(group.join(files.swap)).ok();
        let reprieve = (hierarchy.version == Version::V1).then(|| Reprieve::begin(&group, limit.0));
        Ok(RunGroup { hierarchy, group, limit, usage, swap, reprieve })
    }

    /// Moves the process `pid` into it, with what it will start.
    ///
    /// Errors: Io (no right to move it, or it is gone).
    pub fn add(&self, pid: u32) -> Result<()> {
        write(&self.inner(), "cgroup.procs", &pid.to_string())
    }

    fn inner(&self) -> PathBuf {
        match self.hierarchy.version {
            Version::V1 => self.group.clone(),
            Version::V2 => self.group.join(INNER),
        }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.group
    }

    /// Its limit.
    pub fn limit(&self) -> Bytes {
        self.limit
    }

    /// Why a limit that cannot be kept ends in a kill soon, where it does: version 1 does not wait for pages on their way out.
    pub fn kills_soon(&self) -> Option<&Error> {
        self.reprieve.as_ref()?.as_ref().err()
    }

    /// Memory in use, page cache included.
    pub fn usage(&mut self) -> Option<u64> {
        self.usage.read()?.trim().parse().ok()
    }

    /// Swap in use; `None` where it is not counted.
    pub fn swapped(&mut self) -> Option<u64> {
        let before = self.usage();
        let value: u64 = self.swap.as_mut()?.read()?.trim().parse().ok()?;
        match self.hierarchy.version {
            Version::V1 => Some(swap_of_both(value, before?, self.usage()?)),
            Version::V2 => Some(value),
        }
    }

    /// What it has come to so far.
    pub fn facts(&self) -> GroupFacts {
        let files = files(self.hierarchy.version);
        let text = |name: &str| fs::read_to_string(self.group.join(name)).ok();
        let number = |text: Option<String>, key: &str| {
            let text = text?;
            text.trim().parse().ok().or_else(|| proc::number(&text, key))
        };
        let pressure = text("memory.pressure");
        let stalled = pressure.as_deref().and_then(|text| text.lines().next()?.rsplit_once("total=")?.1.parse().ok());
        GroupFacts {
            peak: number(text(files.peak), ""),
            limit_hits: number(text(files.hits), "max"),
            oom_kills: number(text(files.kills), "oom_kill"),
            raised: self.reprieve.iter().flatten().map(Reprieve::raised).next().unwrap_or_default(),
            may_raise: if matches!(self.reprieve, Some(Ok(_))) { most_more(self.limit.0) } else { 0 },
            stalled_us: stalled,
        }
    }

    /// Whether processes are in it.
    pub fn is_used(&self) -> bool {
        has_processes(&self.group)
    }
}

/// What of `both`, memory and swap together, is swap, where memory was in use so `before` and so `after` it was read: memory that is freed
/// or filled meanwhile is no swap.
fn swap_of_both(both: u64, before: u64, after: u64) -> u64 {
    both.saturating_sub(before.max(after))
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        self.reprieve = None;
        remove_empty(&self.group);
    }
}

fn write(group: &Path, file: &str, text: &str) -> Result<()> {
    let path = group.join(file);
    fs::write(&path, text).map_err(|error| Error::io(format!("set {file} to {text}"), &path, error))
}

fn told(reason: &str, hierarchy: &Hierarchy) -> Missing {
    let remedy = match hierarchy.version {
        Version::V1 => "run as root: version 1 of the cgroups gives this right to nobody else",
        Version::V2 if Path::new("/run/systemd/system").exists() => {
            "start it where your own groups are: systemd-run --user --scope majorfault run …, or run as root"
        }
        Version::V2 => "run as root with +memory in cgroup.subtree_control of a group above",
    };
    Missing::new("a memory limit", reason, remedy)
}

/// Whether a group or one below it has processes.
fn has_processes(group: &Path) -> bool {
    let own = fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty());
    own || below(group).iter().any(|group| has_processes(group))
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Removes the group and those below it, as far as nothing runs in them.
fn remove_empty(group: &Path) {
    below(group).iter().for_each(|group| remove_empty(group));
    // Busy where something runs in it.
    let _ = fs::remove_dir(group);
}

/// Removes groups that runs have left whose makers are gone, where nothing runs in them any more; returns the names of the others.
pub fn remove_left() -> Vec<String> {
    let Ok(hierarchy) = find() else { return Vec::new() };
    let entries = parents(&hierarchy).into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    let mut running = Vec::new();
    for entry in entries {
        let Some(name) = entry.file_name().to_str().filter(|name| is_left(name)).map(str::to_owned) else { continue };
        remove_empty(&entry.path());
        if entry.path().exists() {
            running.push(name);
        }
    }
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::proc::cgroup::Member;

    #[test]
    fn memory_that_is_freed_or_filled_meanwhile_is_no_swap() {
        assert_eq!(swap_of_both(8000, 8000, 3000), 0);
        assert_eq!(swap_of_both(8000, 7000, 9000), 0);
        assert_eq!(swap_of_both(8000, 3000, 3000), 5000);
    }

    /// A directory that looks like a hierarchy of version 2 which hands memory down.
    fn fake(name: &str) -> (PathBuf, Hierarchy) {
        let mount = std::env::temp_dir().join(format!("majorfault-run-group-{}-{name}", std::process::id()));
        let own = mount.join("app");
        fs::create_dir_all(&own).unwrap();
        fs::write(mount.join("cgroup.subtree_control"), "memory").unwrap();
        (mount.clone(), Hierarchy::from(Member { version: Version::V2, mount, own }))
    }

    #[test]
    fn in_version_2_the_program_is_below_the_group_with_the_limit_and_may_swap() {
        let (mount, hierarchy) = fake("limit");
        let group = mount.join("majorfault-run-1-1-0");

        // Of the files of a group only those are here that were written: its usage cannot be read.
        let made = RunGroup::create_in(hierarchy, "majorfault-run-1-1-0", Bytes::mib(32));

        assert!(made.is_err());
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap(), "33554432");
        assert_eq!(fs::read_to_string(group.join("cgroup.subtree_control")).unwrap(), "+memory");
        assert!(!group.join("memory.swap.max").exists());
        assert!(!group.join("program").exists(), "what could not be made is removed");
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn groups_of_runs_are_told_from_others_and_by_their_makers() {
        let name = run_name();
        assert!(name.starts_with("majorfault-run-"));

        assert!(!is_left(&name), "we live");
        assert!(!is_stale(&name), "others must not kill what runs there");
        assert!(is_left("majorfault-run-1-1-0"));
        assert!(!is_left("majorfault-1-1-0") && !is_left("majorfault-run-x") && !is_left("other"));
    }

    #[test]
    fn a_group_that_a_dead_maker_left_is_removed_when_it_is_empty() {
        let limit = match RunGroup::create(&run_name(), Bytes::mib(64)) {
            Ok(group) => group,
            Err(missing) => {
                return eprintln!("SKIPPED a_group_that_a_dead_maker_left_is_removed_when_it_is_empty: {missing}");
            }
        };
        let (empty, busy) = ("majorfault-run-1-1-0", "majorfault-run-1-1-1");
        let [left, used] = [empty, busy].map(|name| limit.path().with_file_name(name));
        [&left, &used].into_iter().for_each(|group| fs::create_dir(group).unwrap());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(used.join("cgroup.procs"), child.id().to_string()).unwrap();

        let running = remove_left();

        assert!(!left.exists() && used.exists() && limit.path().exists());
        assert_eq!(running, [busy]);
        assert!(child.try_wait().unwrap().is_none(), "what runs there is left alone");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(remove_left(), Vec::<String>::new());
    }
}
