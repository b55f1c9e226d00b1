//! The processes of a cgroup, a systemd unit or a container, found by the cgroups that are mounted here.
//!
//! No container's daemon is asked: a container's number stands in the name of its cgroup, whoever runs it (docker, containerd, CRI-O,
//! podman, Kubernetes), and LXC and systemd-nspawn put the container's name there.

use majorfault::proc::mounts::{self, Mount};
use majorfault::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The most directories that are looked at; a node with a thousand containers has some ten thousand.
const MOST_DIRS: usize = 100_000;

/// What container engines put before and after a container's number in the name of its cgroup.
const BEFORE: [&str; 9] =
    ["docker-", "cri-containerd-", "crio-", "libpod-", "containerd-", "nerdctl-", "lxc.payload.", "machine-", "lxc-"];
const AFTER: &str = ".scope";

/// The shortest beginning of a container's number that is taken for one.
const LEAST_ID: usize = 6;

/// How a group of processes is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// A cgroup: its directory, or its path within the hierarchy as /proc/PID/cgroup has it.
    Cgroup(PathBuf),
    /// A systemd unit.
    Unit(String),
    /// A container: the beginning of its number, or its name where its cgroup has it.
    Container(String),
}

/// A cgroup whose processes are watched, with those of the groups below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    dir: PathBuf,
    /// Its path within the hierarchy.
    inside: PathBuf,
}

impl Members {
    /// Finds the group.
    ///
    /// Errors: Invalid (no such group, several, no process in it).
    pub fn of(name: &GroupName) -> Result<Members> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let members = Members::at(found(name, &hierarchies(&text))?, &hierarchies(&text));
        match members.pids().is_empty() {
            true => Err(Error::Invalid(format!("no process is in the cgroup {}", members.dir.display()))),
            false => Ok(members),
        }
    }

    fn at(dir: PathBuf, mounts: &[PathBuf]) -> Members {
        let inside = mounts.iter().find_map(|mount| dir.strip_prefix(mount).ok()).unwrap_or(&dir).to_owned();
        Members { dir, inside }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the process is in it or below, now.
    pub fn has(&self, pid: u32) -> bool {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let own = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        own.map(|path| Path::new(path.trim_start_matches('/'))).any(|path| path.starts_with(&self.inside))
    }

    /// The processes in it and below, now.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = below(&self.dir).iter().flat_map(|dir| own(dir)).collect();
        pids.sort_unstable();
        pids
    }
}

/// The processes of one group alone.
fn own(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // Processes of another namespace are 0.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// Where cgroups are mounted: first the hierarchy that limits memory, then the unified one, then systemd's.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let rank = |mount: &Mount| match mount.kind.as_str() {
        "cgroup" if mount.has("memory") => 0,
        "cgroup2" => 1,
        "cgroup" if mount.has("name=systemd") => 2,
        _ => 3,
    };
    let mut found: Vec<Mount> =
        mounts::parse(mountinfo).filter(|mount| ["cgroup", "cgroup2"].contains(&mount.kind.as_str())).collect();
    found.sort_by_key(rank);
    found.into_iter().map(|mount| mount.point).collect()
}

fn found(name: &GroupName, mounts: &[PathBuf]) -> Result<PathBuf> {
    match name {
        GroupName::Cgroup(path) => by_path(path, mounts),
        GroupName::Unit(unit) => {
            let full = if unit.contains('.') { unit.clone() } else { format!("{unit}.service") };
            by_name(
                mounts,
                |dir| dir == full,
                &format!("the unit {full}"),
                "see systemctl status; a unit without processes has none",
            )
        }
        GroupName::Container(id) => {
            let remedy = "give its number (docker ps, crictl ps, podman ps), of which 6 digits are enough";
            by_name(mounts, |dir| is_container(dir, id), &format!("the container {id}"), remedy)
        }
    }
}

fn by_path(path: &Path, mounts: &[PathBuf]) -> Result<PathBuf> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let here = mounts.iter().filter(|mount| path.starts_with(mount)).map(|_| path.to_owned());
    let mut candidates = here.chain(mounts.iter().map(|mount| mount.join(inside)));
    candidates.find(|dir| dir.join("cgroup.procs").exists()).ok_or_else(|| {
        let known = mounts.first().map_or("no cgroups are mounted here".to_owned(), |mount| {
            format!("give a path as in /proc/PID/cgroup, or a directory below {}", mount.display())
        });
        Error::Invalid(format!("there is no cgroup {}; {known}", path.display()))
    })
}

/// The group whose directory has such a name, in the first hierarchy where there is one with processes.
fn by_name(mounts: &[PathBuf], is_it: impl Fn(&str) -> bool, what: &str, remedy: &str) -> Result<PathBuf> {
    let named = |dir: &PathBuf| dir.file_name().and_then(|name| name.to_str()).is_some_and(&is_it);
    for mount in mounts {
        let mut found: Vec<PathBuf> = below(mount).into_iter().filter(named).collect();
        found.sort();
        let is_below = |dir: &PathBuf| found.iter().any(|other| dir != other && dir.starts_with(other));
        let outermost: Vec<&PathBuf> = found.iter().filter(|dir| !is_below(dir)).collect();
        match outermost[..] {
            [] => {}
            [only] => return Ok(only.clone()),
            [first, second, ..] => {
                let names = format!("{} and {}", first.display(), second.display());
                return Err(Error::Invalid(format!("{what} may be {names}; name one by --cgroup")));
            }
        }
    }
    Err(Error::Invalid(format!("there is no cgroup of {what}; {remedy}")))
}

/// Whether a cgroup of this name is the container's.
fn is_container(dir: &str, id: &str) -> bool {
    let bare = dir.strip_suffix(AFTER).unwrap_or(dir);
    let bare = BEFORE.iter().find_map(|before| bare.strip_prefix(before)).unwrap_or(bare);
    // systemd-nspawn writes `-` as `\x2d`.
    let bare = bare.replace("\\x2d", "-");
    let is_number = id.len() >= LEAST_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && bare.len() == 64;
    !id.is_empty() && (bare == id || is_number && bare.starts_with(id))
}

/// A directory and those below it.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while at < found.len() && found.len() < MOST_DIRS {
        let entries = fs::read_dir(&found[at]).into_iter().flatten().flatten();
        found.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Hierarchies with these groups, each with one process.
    fn mounted(groups: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let root = tempfile::tempdir().unwrap();
        let mount = root.path().join("memory");
        for (pid, group) in groups.iter().enumerate() {
            fs::create_dir_all(mount.join(group)).unwrap();
            fs::write(mount.join(group).join("cgroup.procs"), format!("0\n{}\n", pid + 1)).unwrap();
        }
        (root, vec![mount])
    }

    fn name_of(name: GroupName, mounts: &[PathBuf]) -> std::result::Result<String, String> {
        let dir = found(&name, mounts).map_err(|error| error.to_string())?;
        Ok(dir.strip_prefix(&mounts[0]).unwrap().display().to_string())
    }

    #[test]
    fn containers_are_found_by_number_whoever_runs_them() {
        for group in [
            format!("docker/{ID}"),
            format!("system.slice/docker-{ID}.scope"),
            format!("kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("kubepods/burstable/pod1/{ID}"),
            format!("machine.slice/libpod-{ID}.scope/container"),
        ] {
            let (_root, mounts) = mounted(&["init.scope", &group]);
            let dir = name_of(GroupName::Container("0123456".to_owned()), &mounts).unwrap();
            assert!(group.starts_with(&dir) && dir.contains(ID), "{group}: {dir}");
        }
    }

    #[test]
    fn containers_are_found_by_name_where_the_cgroup_has_it() {
        let (_root, mounts) = mounted(&["lxc.payload.web", "machine.slice/machine-my\\x2ddb.scope"]);

        assert_eq!(name_of(GroupName::Container("web".to_owned()), &mounts), Ok("lxc.payload.web".to_owned()));
        assert!(name_of(GroupName::Container("my-db".to_owned()), &mounts).is_ok());
        let error = name_of(GroupName::Container("api".to_owned()), &mounts).unwrap_err();
        assert_eq!(
            error,
            "there is no cgroup of the container api; give its number (docker ps, crictl ps, podman ps), of which 6 digits are enough"
        );
    }

    #[test]
    fn a_unit_is_a_service_unless_it_says_otherwise() {
        let (_root, mounts) = mounted(&["system.slice/db.service", "user.slice"]);

        assert_eq!(name_of(GroupName::Unit("db".to_owned()), &mounts), Ok("system.slice/db.service".to_owned()));
        assert_eq!(name_of(GroupName::Unit("user.slice".to_owned()), &mounts), Ok("user.slice".to_owned()));
        assert!(name_of(GroupName::Unit("web".to_owned()), &mounts).unwrap_err().contains("the unit web.service"));
    }

    #[test]
    fn a_name_that_fits_two_groups_is_refused_with_both() {
        let (_root, mounts) = mounted(&["a/db.service", "b/db.service", "b/db.service/db.service"]);

        let error = name_of(GroupName::Unit("db".to_owned()), &mounts).unwrap_err();

        assert!(error.contains("a/db.service") && error.contains("b/db.service;"), "{error}");
    }

    #[test]
    fn a_cgroup_is_named_by_its_directory_or_its_path_within_the_hierarchy() {
        let (_root, mounts) = mounted(&["a/b", "a/c"]);

        assert_eq!(name_of(GroupName::Cgroup("/a/b".into()), &mounts), Ok("a/b".to_owned()));
        assert_eq!(name_of(GroupName::Cgroup(mounts[0].join("a/c")), &mounts), Ok("a/c".to_owned()));
        let error = name_of(GroupName::Cgroup("/a/d".into()), &mounts).unwrap_err();
        assert!(error.starts_with("there is no cgroup /a/d; give a path as in /proc/PID/cgroup"), "{error}");
    }

    #[test]
    fn the_processes_of_groups_below_belong_to_it_and_those_of_other_namespaces_are_none() {
        let (_root, mounts) = mounted(&["a", "a/b", "c"]);

        assert_eq!(Members::at(mounts[0].join("a"), &mounts).pids(), [1, 2]);
    }

    #[test]
    fn this_process_is_in_its_own_group_and_in_those_above() {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).max_by_key(|path| path.len()).unwrap();
        let mounts = [PathBuf::from("/mount")];
        let is_in =
            |path: &str| Members::at(mounts[0].join(path.trim_start_matches('/')), &mounts).has(std::process::id());

        assert!(is_in(own) && is_in("/"));
        assert!(!is_in(&format!("{own}/below")) && !is_in("/no/such"));
    }

    #[test]
    fn the_hierarchy_that_limits_memory_is_asked_first() {
        let text = "\
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:33 / / rw - ext4 /dev/vda rw
";

        let points = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"].map(PathBuf::from);
        assert_eq!(hierarchies(text), points);
    }
}
