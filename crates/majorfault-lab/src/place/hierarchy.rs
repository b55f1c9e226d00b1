//! Where this process stands in the hierarchy of memory cgroups, version 1 or 2.

use majorfault::observe::CgroupDir;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory controller's hierarchy as seen by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which interface.
    pub version: Version,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The directory of our own group.
    pub own: PathBuf,
}

/// The interface's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of the memory controller alone.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The memory hierarchy of this process; the reason where there is none.
pub fn find() -> Result<Hierarchy, String> {
    of("self")
}

/// The same of another process, by its number, as we see the mounts.
pub fn of(process: &str) -> Result<Hierarchy, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let found = from_texts(&read(&format!("/proc/{process}/cgroup"))?, &read("/proc/self/mountinfo")?);
    let usable = found.into_iter().find(|hierarchy| hierarchy.version == Version::V1 || has_memory(&hierarchy.mount));
    usable.ok_or_else(|| "no cgroup hierarchy with the memory controller is mounted".to_owned())
}

/// Whether the unified hierarchy has the memory controller (it may be bound to version 1 instead).
fn has_memory(mount: &Path) -> bool {
    controllers(&mount.join("cgroup.controllers")).iter().any(|name| name == "memory")
}

/// The words of a file of controllers; none where it can't be read.
pub fn controllers(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Candidates, version 1 first: where both are mounted, the memory controller is with version 1 if it is there at all.
fn from_texts(cgroups: &str, mounts: &str) -> Vec<Hierarchy> {
    let groups = cgroups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        match names {
            "" => Some((Version::V2, path)),
            names if names.split(',').any(|name| name == "memory") => Some((Version::V1, path)),
            _ => None,
        }
    });
    let mut found: Vec<Hierarchy> = groups.filter_map(|(version, path)| locate(version, path, mounts)).collect();
    found.sort_by_key(|hierarchy| hierarchy.version != Version::V1);
    found
}

/// The mount of this version, and the group below it. A container may see a part of the hierarchy as its root.
fn locate(version: Version, path: &str, mounts: &str) -> Option<Hierarchy> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let fits = match version {
            Version::V2 => kind == "cgroup2",
            Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        };
        let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path).trim_start_matches('/');
        let mount = PathBuf::from(mount);
        fits.then(|| Hierarchy { version, own: mount.join(inside), mount })
    })
}

impl Hierarchy {
    /// Own group first, then each group above it up to the mount.
    pub fn upwards(&self) -> Vec<PathBuf> {
        self.own.ancestors().take_while(|dir| dir.starts_with(&self.mount)).map(Path::to_owned).collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_machine_has_memory_in_version_1() {
        let found = from_texts("4:memory:/jobs/a\n1:cpu:/\n0::/jobs\n", MOUNTS);

        assert_eq!(found[0].version, Version::V1);
        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/memory/jobs/a"));
        assert_eq!(found[1].version, Version::V2);
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "35 31 0:32 /docker/77 /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

        let found = from_texts("0::/docker/77/inner\n", mounts);

        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/inner"));
        assert_eq!(found[0].upwards(), [Path::new("/sys/fs/cgroup/inner"), Path::new("/sys/fs/cgroup")]);
    }

    #[test]
    fn texts_without_cgroups_give_none() {
        assert_eq!(from_texts("", ""), []);
        assert_eq!(from_texts("garbage\n1:memory\n::\n", "x - y\n"), []);
    }
}
