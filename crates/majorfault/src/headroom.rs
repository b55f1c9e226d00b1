//! Memory that read-ahead may fill: the machine's, or the cgroup's where that is less.

use crate::proc;
use crate::proc::cgroup::{self, Version};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can be read into the page cache before something else is evicted. A cgroup without a limit, or one that cannot
/// be read, does not count. At least 1 MiB, because with less nothing could be read ahead.
pub(crate) fn free_bytes() -> u64 {
    let machine = read("/proc/meminfo").and_then(|text| proc::number(&text, "MemAvailable")).map(|kib| kib << 10);
    let limits = groups().into_iter().filter_map(|group| group.free());
    machine.into_iter().chain(limits).min().unwrap_or(u64::MAX).max(1 << 20)
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A cgroup with a memory controller: its directory and the names of its files.
struct Group {
    dir: PathBuf,
    limit: &'static str,
    used: &'static str,
    /// Keys of memory.stat that count page cache, which can be evicted.
    cache: [&'static str; 2],
}

impl Group {
    fn free(&self) -> Option<u64> {
        let number = |name: &str| read(self.dir.join(name))?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = read(self.dir.join("memory.stat"))?;
        Some(free(limit, used, self.cache.iter().filter_map(|key| proc::number(&stat, key)).sum()))
    }
}

fn free(limit: u64, used: u64, cache: u64) -> u64 {
    limit.saturating_sub(used.saturating_sub(cache))
}

/// This process's cgroup and those above it.
fn groups() -> Vec<Group> {
    let text = |path| read(path).unwrap_or_default();
    let members = cgroup::of_controller("memory", &text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    members.iter().flat_map(|member| member.upwards().into_iter().map(|dir| group(member.version, dir))).collect()
}

fn group(version: Version, dir: PathBuf) -> Group {
    match version {
        Version::V1 => Group {
            dir,
            limit: "memory.limit_in_bytes",
            used: "memory.usage_in_bytes",
            cache: ["total_inactive_file", "total_active_file"],
        },
        Version::V2 => {
            Group { dir, limit: "memory.max", used: "memory.current", cache: ["inactive_file", "active_file"] }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_of_the_group_gives_way() {
        assert_eq!(free(100, 90, 60), 70);
        assert_eq!(free(100, 130, 10), 0);
    }

    #[test]
    fn there_is_memory_here() {
        assert!(free_bytes() >= 1 << 20);
    }
}
