//! The groups that processes belong to: a container, a systemd unit, or another cgroup; what each lost.

use super::loss::Loss;
use std::collections::HashMap;
use std::fs;

/// Digits of a container's number that are shown.
const SHOWN: usize = 12;

/// What the processes of a group lost together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLoss {
    /// The group's path, as /proc/PID/cgroup has it.
    pub path: String,
    /// Its processes.
    pub processes: usize,
    /// Sums over them; the number and the name are empty.
    pub sum: Loss,
}

/// The cgroup of a process: that which limits its memory, or its only one.
pub fn of(pid: u32) -> Option<String> {
    path(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// From `4:memory:/a` and `0::/b`, the memory controller's first.
fn path(text: &str) -> Option<String> {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
    let of =
        |wanted: fn(&str) -> bool| lines.iter().find(|(names, _)| wanted(names)).map(|(_, path)| (*path).to_owned());
    of(|names| names.split(',').any(|name| name == "memory")).or_else(|| of(str::is_empty))
}

/// A group's path as people name it: a container by the beginning of its number, a unit by its name.
pub fn label(path: &str) -> String {
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
    let bare = last.strip_suffix(".scope").unwrap_or(last);
    let number = bare.rsplit(['-', ':']).next().unwrap_or(bare);
    match number.len() == 64 && number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => number[..SHOWN].to_owned(),
        false => last.to_owned(),
    }
}

/// Sums the losses by group, worst first.
pub fn sums(losses: &[Loss], of: impl Fn(u32) -> Option<String>) -> Vec<GroupLoss> {
    let mut groups: HashMap<String, GroupLoss> = HashMap::new();
    for loss in losses.iter().filter(|loss| loss.is_any()) {
        let Some(path) = of(loss.pid) else { continue };
        let group = groups.entry(path.clone()).or_insert_with(|| GroupLoss { path, ..GroupLoss::default() });
        group.processes += 1;
        add(&mut group.sum, loss);
    }
    let mut groups: Vec<GroupLoss> = groups.into_values().collect();
    groups.sort_by(|a, b| a.sum.worst_first().cmp(&b.sum.worst_first()).then_with(|| a.path.cmp(&b.path)));
    groups
}

fn add(sum: &mut Loss, loss: &Loss) {
    let both = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a + b.unwrap_or(0)));
    sum.device_ns += loss.device_ns;
    sum.fault_ns = both(sum.fault_ns, loss.fault_ns);
    sum.major += loss.major;
    sum.read_bytes = both(sum.read_bytes, loss.read_bytes);
    sum.cpu_ns += loss.cpu_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_limits_memory_is_named_first() {
        assert_eq!(path("5:cpu:/c\n4:hugetlb,memory:/m\n0::/u\n").as_deref(), Some("/m"));
        assert_eq!(path("5:cpu:/c\n0::/u:v\n").as_deref(), Some("/u:v"));
        assert_eq!(path(""), None);
    }

    #[test]
    fn containers_are_named_by_their_number_and_units_by_their_name() {
        let id = "0123456789abcdef".repeat(4);
        for path in
            [format!("/docker/{id}"), format!("/system.slice/docker-{id}.scope"), format!("/k/cri-containerd:{id}")]
        {
            assert_eq!(label(&path), "0123456789ab", "{path}");
        }
        assert_eq!(label("/system.slice/db.service"), "db.service");
        assert_eq!(label("/"), "/");
    }

    #[test]
    fn a_group_has_lost_what_its_processes_lost_together() {
        let loss = |pid, device_ns, read_bytes| Loss { pid, device_ns, read_bytes, ..Loss::default() };
        let losses = [loss(1, 5, Some(1)), loss(2, 4, None), loss(3, 8, Some(2)), loss(4, 0, None), loss(5, 9, None)];

        let groups = sums(&losses, |pid| (pid < 5).then(|| if pid < 3 { "/a" } else { "/b" }.to_owned()));

        let told: Vec<_> =
            groups.iter().map(|it| (it.path.as_str(), it.processes, it.sum.device_ns, it.sum.read_bytes)).collect();
        assert_eq!(told, [("/a", 2, 9, Some(1)), ("/b", 1, 8, Some(2))]);
    }
}
