//! Processor quotas: how long the process's cgroup, or one above it, was stopped until its next period.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit};
use crate::proc::{self, Live, cgroup};
use std::fs;
use std::path::PathBuf;

pub(super) const SOURCE: Source = Source {
    name: "quota",
    summary: "time for which a processor quota stopped the process's cgroup",
    needs: &[],
    counters: &[
        total(
            "throttled_periods",
            Unit::Count,
            "periods in which the quota was used up (cpu.stat nr_throttled), over all levels",
        ),
        total(
            "throttled_ns",
            Unit::Nanos,
            "time for which it took processors away, summed over processors and levels (cpu.stat throttled_usec; \
             version 1: throttled_time)",
        ),
    ],
    open,
};

const fn total(name: &'static str, unit: Unit, doc: &'static str) -> Counter {
    Counter { name, unit, scope: Scope::Cgroup, kind: Kind::Total, doc }
}

/// The cpu.stat of each level, from the process's own group upwards.
struct Quota(Vec<Live>);

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let what = "processor quota";
    let pid = scene.pid.ok_or_else(|| Missing::new(what, "no process is observed", ""))?;
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = groups(&read(&format!("/proc/{pid}/cgroup")), &read("/proc/self/mountinfo"));
    let levels: Vec<Live> = groups.iter().filter_map(|group| Live::open(group.join("cpu.stat")).ok()).collect();
    if levels.is_empty() {
        let reason = "the cpu controller of cgroups is not mounted where this process can see it";
        return Err(Missing::new(what, reason, "mount /sys/fs/cgroup in the container"));
    }
    Ok(Box::new(Quota(levels)))
}

/// The directories of the process's groups with the cpu controller, own first, up to the mount.
fn groups(cgroups: &str, mounts: &str) -> Vec<PathBuf> {
    cgroup::of_controller("cpu", cgroups, mounts).iter().flat_map(cgroup::Member::upwards).collect()
}

/// Periods and nanoseconds of one cpu.stat.
fn throttled(text: &str) -> Option<[u64; 2]> {
    let ns = proc::number(text, "throttled_usec").map(|us| us.saturating_mul(1000));
    Some([proc::number(text, "nr_throttled")?, ns.or_else(|| proc::number(text, "throttled_time"))?])
}

impl Reading for Quota {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let mut sums = [0u64; 2];
        // The root group has no quota and no such lines.
        for level in self.0.iter_mut().filter_map(|level| level.read().and_then(throttled)) {
            sums = [sums[0].saturating_add(level[0]), sums[1].saturating_add(level[1])];
        }
        values[..2].copy_from_slice(&sums.map(Some));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_file_are_read_in_nanoseconds() {
        let unified = "usage_usec 10\nuser_usec 5\nsystem_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250\n";
        let first = "nr_periods 9\nnr_throttled 4\nthrottled_time 250000\n";

        assert_eq!(throttled(unified), Some([4, 250_000]));
        assert_eq!(throttled(first), Some([4, 250_000]));
        assert_eq!(throttled("usage_usec 10\n"), None);
    }

    #[test]
    fn a_group_and_all_above_it_may_have_the_quota() {
        let mounts = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";

        let found = groups("0::/user/app\n", mounts);

        let expected = ["/sys/fs/cgroup/user/app", "/sys/fs/cgroup/user", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn version_1_is_found_by_its_controller_and_a_container_by_its_root() {
        let mounts = "31 30 0:27 /docker/7 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                      32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

        let found = groups("4:memory:/docker/7\n3:cpu,cpuacct:/docker/7/a\n", mounts);

        assert_eq!(found, ["/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct"].map(PathBuf::from));
    }
}
