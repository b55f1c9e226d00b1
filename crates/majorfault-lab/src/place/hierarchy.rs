//! Where this process stands in the hierarchy of memory cgroups, version 1 or 2.

use majorfault::observe::CgroupDir;
pub use majorfault::proc::cgroup::Version;
use majorfault::proc::cgroup::{Member, of_controller};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The memory controller's hierarchy as seen by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy(Member);

impl From<Member> for Hierarchy {
    fn from(member: Member) -> Hierarchy {
        Hierarchy(member)
    }
}

impl Deref for Hierarchy {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

/// The memory hierarchy of this process; the reason where there is none.
pub fn find() -> Result<Hierarchy, String> {
    of("self")
}

/// The same of another process, by its number, as we see the mounts.
pub fn of(process: &str) -> Result<Hierarchy, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let found = of_controller("memory", &read(&format!("/proc/{process}/cgroup"))?, &read("/proc/self/mountinfo")?);
    let usable = found.into_iter().find(|member| member.version == Version::V1 || has_memory(&member.mount));
    usable.map(Hierarchy::from).ok_or_else(|| "no cgroup hierarchy with the memory controller is mounted".to_owned())
}

/// Whether the unified hierarchy has the memory controller (it may be bound to version 1 instead).
fn has_memory(mount: &Path) -> bool {
    controllers(&mount.join("cgroup.controllers")).iter().any(|name| name == "memory")
}

/// The words of a file of controllers; none where it can't be read.
pub fn controllers(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

impl Hierarchy {
    /// A group's directory, as the library's counters take it.
    pub fn dir(&self, group: &Path) -> CgroupDir {
        match self.version {
            Version::V1 => CgroupDir::V1(group.to_owned()),
            Version::V2 => CgroupDir::V2(group.to_owned()),
        }
    }

    /// The least limit of the own group and those above it, with its group; `None` where it is the machine's.
    pub fn least_limit(&self) -> Option<(PathBuf, u64)> {
        let limit = |dir: PathBuf| {
            let text = fs::read_to_string(dir.join(self.limit_file())).ok()?;
            // Version 1 writes "no limit" as a number close to the largest.
            text.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 60).map(|bytes| (dir, bytes))
        };
        self.upwards().into_iter().filter_map(limit).min_by_key(|(_, bytes)| *bytes)
    }

    /// Name of the file that holds a group's limit.
    pub fn limit_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        }
    }
}
