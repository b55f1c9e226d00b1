//! Places a trial runs in: a child process as is, or one in a cgroup with a memory limit of its own.
//!
//! A limited place is a cgroup below ours (version 1), or below the nearest group that hands the memory controller down
//! (version 2). Its name says which process made it, so that the next start can remove what a killed one left.

pub mod child;
pub mod guest;
mod hierarchy;
pub mod reprieve;
pub mod run_group;

use crate::trial::Trial;
use hierarchy::{Hierarchy, Version, controllers, find};
use majorfault::observe::CgroupDir;
use majorfault::{Bytes, Error, Missing, Need, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Memory that the program itself, its counters and its stacks take in a place.
const OWN_NEEDS: Bytes = Bytes::mib(16);

/// The largest page of any architecture: limits are rounded down to pages.
const LARGEST_PAGE: u64 = 64 << 10;

/// How long a group may take to become empty when its processes were killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The right to limit memory.
pub const MEMORY_LIMIT: Need = Need {
    name: "memory limit",
    summary: "running within less memory than the machine has, page cache included",
    probe: || MemoryLimit::create(Bytes::mib(64)).map(|limit| format!("cgroup {}", limit.group.display())),
};

/// A memory-limited place. Dropping it ends what runs in it and removes it.
pub struct MemoryLimit {
    hierarchy: Hierarchy,
    group: PathBuf,
}

impl MemoryLimit {
    /// Makes a place with `bytes` of memory (and no swap on top, where that can be said).
    ///
    /// Errors: what is missing, with the way that fits this machine.
    pub fn create(bytes: Bytes) -> std::result::Result<MemoryLimit, Missing> {
        let hierarchy = find().map_err(|reason| missing(&reason, None))?;
        MemoryLimit::create_in(hierarchy, bytes)
    }

    fn create_in(hierarchy: Hierarchy, bytes: Bytes) -> std::result::Result<MemoryLimit, Missing> {
        let mut reasons = Vec::new();
        for parent in parents(&hierarchy) {
            let group = parent.join(own_name());
            match fs::create_dir(&group) {
                Ok(()) => {
                    let limit = MemoryLimit { hierarchy: hierarchy.clone(), group };
                    return match limit.set(bytes) {
                        Ok(()) => Ok(limit),
                        Err(error) => Err(missing(&error.to_string(), Some(&hierarchy))),
                    };
                }
                Err(error) => reasons.push(format!("{}: {}", parent.display(), error.kind())),
            }
        }
        if reasons.is_empty() {
            reasons.push("no group above hands the memory controller down".to_owned());
        }
        Err(missing(&reasons.join(", "), Some(&hierarchy)))
    }

    fn set(&self, bytes: Bytes) -> Result<()> {
        self.write(self.hierarchy.limit_file(), &bytes.0.to_string())?;
        self.check(bytes)?;
        // Without these the limit would be on memory alone, and swap would hide what does not fit.
        let _ = match self.hierarchy.version {
            Version::V1 => self.write("memory.memsw.limit_in_bytes", &bytes.0.to_string()),
            Version::V2 => self.write("memory.swap.max", "0"),
        };
        Ok(())
    }

    /// Whether the limit is what was written, to the page that version 1 rounds down to.
    fn check(&self, bytes: Bytes) -> Result<()> {
        let path = self.group.join(self.hierarchy.limit_file());
        let text = fs::read_to_string(&path).map_err(|error| Error::io("read the limit back", &path, error))?;
        match text.trim().parse::<u64>() {
            Ok(set) if set <= bytes.0 && bytes.0 - set < LARGEST_PAGE => Ok(()),
            _ => Err(Error::Invalid(format!("{} holds {} after {} was written", path.display(), text.trim(), bytes.0))),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.group.join(file);
        fs::write(&path, text).map_err(|error| Error::io(format!("set {file} to {text}"), &path, error))
    }

    /// Moves the process `pid` into it, with what it will start.
    ///
    /// Errors: Io (no right to move it, or it is gone).
    pub fn add(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Its directory, for reading counters.
    pub fn dir(&self) -> CgroupDir {
        self.hierarchy.dir(&self.group)
    }

    /// How many of its processes the kernel killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.hierarchy.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.group.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        remove(&self.group);
    }
}

/// Groups in which a limited one can be made: our own in version 1; in version 2 the nearest that hands memory down.
/// (Our own can't in version 2: a group with processes has no controllers below it.)
fn parents(hierarchy: &Hierarchy) -> Vec<PathBuf> {
    let hands_memory_down =
        |dir: &PathBuf| controllers(&dir.join("cgroup.subtree_control")).contains(&"memory".to_owned());
    match hierarchy.version {
        Version::V1 => vec![hierarchy.own.clone()],
        Version::V2 => hierarchy.upwards().into_iter().filter(hands_memory_down).collect(),
    }
}

fn missing(reason: &str, hierarchy: Option<&Hierarchy>) -> Missing {
    let user_manager = Path::new("/run/systemd/system").exists();
    let remedy = match hierarchy {
        _ if user_manager => {
            "run as root, or under a limit of systemd's: systemd-run --user --scope -p MemoryMax=SIZE majorfault compare …"
        }
        Some(own) if own.version == Version::V2 => {
            "run as root with +memory in cgroup.subtree_control of a group above, or start the container with a limit"
        }
        _ => "run as root, or start majorfault in a container or group with a limit",
    };
    Missing::new("a memory limit", reason, remedy)
}

/// Name of a new group: it names its maker, so that it is not removed while that process lives.
pub fn own_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("majorfault-{pid}-{}-{number}", start_time(pid).unwrap_or(0))
}

/// When a process started, in ticks since boot: tells it from a later one with the same number. Field 22 of
/// /proc/PID/stat, counted after the command's closing parenthesis.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes groups whose makers are dead, with whatever still runs in them.
pub fn clean_stale() {
    let Ok(hierarchy) = find() else { return };
    let groups = parents(&hierarchy).into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    for group in groups {
        if group.file_name().to_str().is_some_and(is_stale) {
            remove(&group.path());
        }
    }
}

/// Whether a name is of ours and its maker is gone.
pub fn is_stale(name: &str) -> bool {
    let mut parts = name.strip_prefix("majorfault-").into_iter().flat_map(|rest| rest.split('-'));
    let number = |part: Option<&str>| part.and_then(|text| text.parse::<u64>().ok());
    let (Some(pid), Some(start)) = (number(parts.next()), number(parts.next())) else { return false };
    start_time(pid as u32) != Some(start)
}

/// Kills what runs in the group and removes it when it is empty; gives up after a while.
fn remove(group: &Path) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => kill_all(group),
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill_all(group: &Path) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The version of the memory cgroup's interface, where there is one: `v1` or `v2`.
pub fn version() -> Option<&'static str> {
    find().ok().map(|hierarchy| match hierarchy.version {
        Version::V1 => "v1",
        Version::V2 => "v2",
    })
}

/// The least limit of our own group and those above it: what we were started under. `None` where it is the machine's.
pub fn inherited_limit() -> Option<Bytes> {
    find().ok()?.least_limit().map(|(_, bytes)| Bytes(bytes))
}

/// The memory cgroup that limits another process first: its directory, and the limit. Where none does, its own group.
///
/// `None` where no memory hierarchy is mounted, or the process is gone.
pub fn of_process(pid: u32) -> Option<(CgroupDir, Option<Bytes>)> {
    let hierarchy = hierarchy::of(&pid.to_string()).ok()?;
    Some(match hierarchy.least_limit() {
        Some((group, bytes)) => (hierarchy.dir(&group), Some(Bytes(bytes))),
        None => (hierarchy.dir(&hierarchy.own), None),
    })
}

/// The least memory in which the trial can run: its buffers and itself.
pub fn smallest_limit(trial: &Trial) -> Bytes {
    let slot = trial.block_bytes.next_multiple_of(4096) + 8192;
    let queues = u64::from(trial.threads) * u64::from(trial.iodepth) * slot;
    Bytes(OWN_NEEDS.0 + queues + u64::from(trial.threads) * Bytes::kib(256).0)
}

/// The least memory that is set where the user named none: in [`smallest_limit`] the kernel may kill the trial, because
/// pages being read cannot be evicted. Each thread has two windows of `read_ahead` in flight at most: the one it waits
/// for, and the one that follows.
pub fn usual_limit(trial: &Trial, read_ahead: Bytes) -> Bytes {
    let in_flight = 2 * u64::from(trial.threads) * read_ahead.0;
    Bytes((smallest_limit(trial).0 + in_flight).next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::proc::cgroup::Member;
    use std::process::{Command, Stdio};

    /// A place for real, or the reason to skip the test.
    fn limited(test: &str, bytes: Bytes) -> Option<MemoryLimit> {
        MemoryLimit::create(bytes).map_err(|missing| eprintln!("SKIPPED {test}: {missing}")).ok()
    }

    fn run_in(limit: &MemoryLimit, script: &str) -> std::process::ExitStatus {
        let mut child = Command::new("sh")
            .args(["-c", &format!("read go; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        limit.add(child.id()).unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        child.wait().unwrap()
    }

    #[test]
    fn the_usual_limit_has_room_for_what_is_being_read() {
        let trial = |threads| Trial { threads, ..crate::report::synthetic::Run::of("mmap").record().trial };
        let least = |threads| smallest_limit(&trial(threads)).0;
        for threads in [1, 4] {
            for read_ahead in [0, Bytes::kib(128).0, Bytes::mib(8).0] {
                let room = usual_limit(&trial(threads), Bytes(read_ahead)).0 - least(threads);
                let wanted = 2 * u64::from(threads) * read_ahead;
                assert!((wanted..wanted + (1 << 20)).contains(&room), "{threads} {read_ahead}: {room}");
            }
        }
    }

    #[test]
    fn a_reader_of_much_stays_within_the_limit() {
        let Some(limit) = limited("a_reader_of_much_stays_within_the_limit", Bytes::mib(32)) else { return };
        let path = format!("/var/tmp/majorfault-place-{}", std::process::id());

        let file = fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut &file, &vec![1; 128 << 20]).unwrap();
        file.sync_all().unwrap();
        majorfault::sys::cache::fadvise(&file, 0, 0, majorfault::sys::cache::FileAdvice::DontNeed).unwrap();

        let status = run_in(&limit, &format!("cat {path}"));

        fs::remove_file(&path).unwrap();
        assert!(status.success());
        let peak = fs::read_to_string(limit.group.join("memory.max_usage_in_bytes"))
            .or_else(|_| fs::read_to_string(limit.group.join("memory.peak")))
            .unwrap();
        assert!(peak.trim().parse::<u64>().unwrap() <= Bytes::mib(32).0);
        assert_eq!(limit.oom_kills(), 0);
    }

    #[test]
    fn a_kill_for_want_of_memory_is_noticed() {
        let Some(limit) = limited("a_kill_for_want_of_memory_is_noticed", Bytes::mib(16)) else { return };

        let status = run_in(&limit, "head -c 64M /dev/zero | tail -n 1 | wc -c");

        assert!(limit.oom_kills() > 0, "{status}");
    }

    #[test]
    fn a_place_is_gone_after_its_end_with_what_ran_in_it() {
        let Some(limit) = limited("a_place_is_gone_after_its_end_with_what_ran_in_it", Bytes::mib(32)) else { return };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        limit.add(child.id()).unwrap();
        let group = limit.group.clone();

        drop(limit);

        assert!(!child.wait().unwrap().success());
        assert!(!group.exists());
    }

    #[test]
    fn groups_of_the_dead_are_stale_and_those_of_the_living_are_not() {
        let own = std::process::id();
        let start = start_time(own).unwrap();

        assert!(!is_stale(&own_name()));
        assert!(is_stale(&format!("majorfault-{own}-{}-0", start + 1)));
        assert!(!is_stale("majorfault-tests"));
        assert!(!is_stale("system.slice"));
    }

    #[test]
    fn what_a_killed_one_left_behind_is_removed_at_the_next_start() {
        let Some(limit) = limited("what_a_killed_one_left_behind", Bytes::mib(32)) else { return };
        let left = limit.group.with_file_name("majorfault-1-1-0");
        fs::create_dir(&left).unwrap();

        clean_stale();

        assert!(!left.exists());
        assert!(limit.group.exists());
    }

    /// A directory that looks like the unified hierarchy.
    fn fake_unified(hands_down: &[&str]) -> Hierarchy {
        let mount =
            std::env::temp_dir().join(format!("majorfault-cgroup2-{}-{}", std::process::id(), hands_down.len()));
        let own = mount.join("user/app");
        fs::create_dir_all(&own).unwrap();
        fs::write(mount.join("cgroup.subtree_control"), hands_down.join(" ")).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        Hierarchy::from(Member { version: Version::V2, mount, own })
    }

    #[test]
    fn in_version_2_the_place_is_made_below_the_nearest_group_that_hands_memory_down() {
        let hierarchy = fake_unified(&["cpu", "memory"]);
        let mount = hierarchy.mount.clone();

        let limit = MemoryLimit::create_in(hierarchy, Bytes::mib(32)).unwrap();
        limit.add(7).unwrap();

        assert_eq!(limit.group.parent(), Some(mount.as_path()));
        assert_eq!(fs::read_to_string(limit.group.join("memory.max")).unwrap(), "33554432");
        assert_eq!(fs::read_to_string(limit.group.join("memory.swap.max")).unwrap(), "0");
        assert_eq!(fs::read_to_string(limit.group.join("cgroup.procs")).unwrap(), "7");
        std::mem::forget(limit);
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn where_no_group_hands_memory_down_the_remedy_is_named() {
        let hierarchy = fake_unified(&["cpu"]);
        let mount = hierarchy.mount.clone();

        let missing = MemoryLimit::create_in(hierarchy, Bytes::mib(32)).err().unwrap();

        fs::remove_dir_all(mount).unwrap();
        assert!(missing.reason.contains("no group above"), "{missing}");
        assert!(!missing.remedy.is_empty());
    }
}
