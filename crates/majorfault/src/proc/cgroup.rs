//! Where a process stands in a hierarchy of cgroups, from /proc/PID/cgroup and the mounts (cgroups(7)).

use super::mounts::{self, Mount};
use std::path::{Path, PathBuf};

/// The interface's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A hierarchy for some controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A process's group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which interface.
    pub version: Version,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The group's directory.
    pub own: PathBuf,
}

impl Member {
    /// Own group first, then each group above it up to the mount.
    pub fn upwards(&self) -> Vec<PathBuf> {
        self.own.ancestors().take_while(|dir| dir.starts_with(&self.mount)).map(Path::to_owned).collect()
    }
}

/// The groups in which this controller may hold the process, version 1 first: where both versions are mounted, a controller
/// is with version 1 if it is there at all.
pub fn of_controller(controller: &str, cgroups: &str, mountinfo: &str) -> Vec<Member> {
    let mounts: Vec<Mount> = mounts::parse(mountinfo).collect();
    let mut found: Vec<Member> = cgroups.lines().filter_map(|line| member(controller, line, &mounts)).collect();
    found.sort_by_key(|member| member.version);
    found
}

/// A line `4:cpu,memory:/jobs/a`, or `0::/jobs` of the unified hierarchy.
fn member(controller: &str, line: &str, mounts: &[Mount]) -> Option<Member> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match controllers {
        "" => Version::V2,
        names if names.split(',').any(|name| name == controller) => Version::V1,
        _ => return None,
    };
    let mount = mounts.iter().find(|mount| match version {
        Version::V1 => mount.kind == "cgroup" && mount.has(controller),
        Version::V2 => mount.kind == "cgroup2",
    })?;
    Some(Member { version, own: mount.point.join(inside(path, &mount.root)), mount: mount.point.clone() })
}

/// The path below what is mounted: a container may see a part of the hierarchy as its root.
fn inside<'p>(path: &'p str, root: &Path) -> &'p Path {
    let path = Path::new(path);
    let below = path.strip_prefix(root).or_else(|_| path.strip_prefix("/"));
    below.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTS: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_machine_has_version_1_first() {
        let found = of_controller("memory", "0::/jobs\n4:memory:/jobs/a:b\n1:cpu:/\n", MOUNTS);

        assert_eq!(found[0].version, Version::V1);
        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/memory/jobs/a:b"));
        assert_eq!((found[1].version, found.len()), (Version::V2, 2));
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "35 31 0:32 /docker/77 /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

        let found = of_controller("memory", "0::/docker/77/inner\n", mounts);

        assert_eq!(found[0].upwards(), ["/sys/fs/cgroup/inner", "/sys/fs/cgroup"].map(PathBuf::from));
    }

    #[test]
    fn a_root_is_a_whole_directory_and_not_the_beginning_of_a_name() {
        let mounts = "35 31 0:32 /docker/7 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

        let found = of_controller("memory", "0::/docker/77\n", mounts);

        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/docker/77"));
    }

    #[test]
    fn texts_without_cgroups_give_none() {
        assert_eq!(of_controller("memory", "", ""), []);
        assert_eq!(of_controller("memory", "garbage\n1:memory\n::\n", "x - y\n"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(cgroups in "\\PC*|([0-9]:[a-z,]{0,8}:/?[a-z/.]{0,12}\n){0,8}",
                                           mounts in "\\PC*|(1 2 0:1 /[a-z]{0,3} /[a-z]{0,3} rw - cgroup2? c rw,memory\n){0,8}") {
            for member in of_controller("memory", &cgroups, &mounts) {
                let up = member.upwards();
                prop_assert!(up.iter().all(|dir| dir.starts_with(&member.mount)));
            }
        }
    }
}
