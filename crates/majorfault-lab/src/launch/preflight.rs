//! What is to be said before a program begins: where its memory will go, what will slow that down, and what would help.

use majorfault::Bytes;
use majorfault::proc::{self, swaps};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Pages that the kernel reads at a fault by default, as a power of two.
const USUAL_CLUSTER: u32 = 3;

/// Something to know before the program begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What was found.
    pub found: String,
    /// What would help; empty where nothing is wrong.
    pub remedy: String,
}

/// An area that is swapped to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Its path.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Bytes in use.
    pub used: u64,
    /// Whether its device says that it rotates.
    pub rotates: bool,
    /// Whether its device is one of a virtual machine, where that says little.
    pub is_virtual: bool,
}

/// What swapping depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapWorld {
    /// What is swapped to.
    pub areas: Vec<Area>,
    /// vm.page-cluster.
    pub cluster: Option<u32>,
    /// Whether zswap is on.
    pub zswap: bool,
    /// Whether the multi-generational LRU decides what is reclaimed.
    pub generations: bool,
}

impl SwapWorld {
    /// As it is now.
    pub fn read() -> SwapWorld {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        SwapWorld {
            areas: swaps::parse(&text("/proc/swaps")).map(area).collect(),
            cluster: text("/proc/sys/vm/page-cluster").trim().parse().ok(),
            zswap: text("/sys/module/zswap/parameters/enabled").trim() == "Y",
            generations: matches!(text("/sys/kernel/mm/lru_gen/enabled").trim(), on if !on.is_empty() && on != "0x0000"),
        }
    }

    /// Bytes of swap that nobody uses.
    pub fn free(&self) -> u64 {
        self.areas.iter().map(|area| area.size.saturating_sub(area.used)).sum()
    }

    fn size(&self) -> u64 {
        self.areas.iter().map(|area| area.size).sum()
    }

    /// What is to be said of it.
    pub fn remarks(&self, limit: Bytes) -> Vec<Remark> {
        let size = self.size();
        if size == 0 {
            let found = format!("there is no swap: a program that needs more than {limit} will be killed");
            return vec![remark(found, "as root: --swap-file DIR makes one for the run; else ask for swap")];
        }
        let mut remarks = Vec::new();
        // Some of a swap file is its own.
        if self.free() < size / 2 || self.free() + (1 << 20) < limit.0 {
            let found =
                format!("swap is short: {} of {} are free", Bytes(self.free()).rounded(), Bytes(size).rounded());
            remarks.push(remark(
                found,
                "add swap (as root: --swap-file DIR), else the program may be killed, and swaps more",
            ));
        }
        remarks.extend(self.areas.iter().filter_map(of_area));
        if let Some(cluster) = self.cluster.filter(|cluster| *cluster > USUAL_CLUSTER) {
            let found = format!(
                "vm.page-cluster is {cluster}: the kernel reads {} pages at each fault",
                1u64 << cluster.min(32)
            );
            remarks.push(remark(
                found,
                "sysctl vm.page-cluster=3: streams are read ahead by majorfault, and random faults wait less",
            ));
        }
        if self.zswap {
            let found =
                "zswap is on: swapped pages are compressed in memory, which counts against the limit (cgroup v2)";
            remarks.push(remark(found.to_owned(), ""));
        }
        if self.generations {
            remarks.push(remark("the multi-generational LRU is on".to_owned(), ""));
        }
        remarks
    }
}

/// Bytes of swap that the kernel counts on: what is being taken away is no longer among them, though it is listed until all of it is read.
pub fn swap_total() -> Option<u64> {
    proc::number(&fs::read_to_string("/proc/meminfo").ok()?, "SwapTotal").map(|kib| kib << 10)
}

fn remark(found: String, remedy: &str) -> Remark {
    Remark { found, remedy: remedy.to_owned() }
}

fn of_area(area: &Area) -> Option<Remark> {
    let path = area.path.display();
    if area.path.to_str().is_some_and(|path| path.starts_with("/dev/zram")) {
        return Some(remark(
            format!("{path} is compressed memory: faults wait less than for a disk, and less is gained"),
            "",
        ));
    }
    let (true, true) = (area.rotates, area.is_virtual) else { return None };
    let found = format!(
        "the disk below {path} says that it rotates, which virtual disks say of themselves: several streams are slower"
    );
    Some(remark(found, "as root, before swapon: echo 0 > /sys/block/DISK/queue/rotational"))
}

/// An area with what its device says.
fn area(area: swaps::SwapArea) -> Area {
    let swaps::SwapArea { path, size, used } = area;
    let (rotates, is_virtual) =
        rotation(&path).map_or((false, false), |(file, is_virtual)| (reads_one(&file), is_virtual));
    Area { path, size, used, rotates, is_virtual }
}

/// The setting that says whether the disk of a file (or a disk) rotates, and whether it is one of a virtual machine.
pub fn rotation(path: &Path) -> Option<(PathBuf, bool)> {
    let meta = fs::metadata(path).ok()?;
    let device = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
    let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let disk = fs::canonicalize(link).ok()?;
    // A partition has its disk's.
    let setting =
        [disk.as_path(), disk.parent()?].iter().map(|dir| dir.join("queue/rotational")).find(|file| file.exists())?;
    let is_virtual = disk.to_str().is_some_and(|path| path.contains("/virtio") || path.contains("/vbd-"));
    Some((setting, is_virtual))
}

fn reads_one(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

/// What is to be said of the program's file.
pub fn of_program(name: &Path, is_root: bool) -> Option<Remark> {
    let path = found(name)?;
    let mode = fs::metadata(&path).ok()?.permissions().mode();
    let (true, false) = (mode & 0o6000 != 0, is_root) else { return None };
    let found =
        format!("{} changes its user when it starts: it runs within the limit, and is not helped", path.display());
    Some(remark(found, "run majorfault as root"))
}

/// The file that a name stands for.
pub fn found(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return name.exists().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes(128 << 20);

    fn said(world: &SwapWorld) -> Vec<String> {
        world.remarks(LIMIT).into_iter().map(|remark| remark.found).collect()
    }

    fn disk(free: u64) -> Area {
        Area { path: "/swap".into(), size: 1 << 30, used: (1 << 30) - free, ..Area::default() }
    }

    #[test]
    fn without_swap_the_kill_is_foretold_with_the_remedy() {
        let remarks = SwapWorld { zswap: true, ..SwapWorld::default() }.remarks(LIMIT);

        assert_eq!(remarks.len(), 1);
        assert!(
            remarks[0].found.contains("will be killed") && remarks[0].remedy.contains("--swap-file"),
            "{remarks:?}"
        );
    }

    #[test]
    fn swap_that_is_half_full_or_smaller_than_the_limit_is_short() {
        let free = |free| said(&SwapWorld { areas: vec![disk(free)], ..SwapWorld::default() });

        assert!(free(1 << 30).is_empty());
        assert!(free(1 << 29).is_empty());
        assert!(free((1 << 29) - 1)[0].contains("swap is short"));
        assert!(free(127 << 20)[0].contains("swap is short"));
        let small = Area { size: 126 << 20, ..disk(1 << 30) };
        assert!(said(&SwapWorld { areas: vec![small], ..SwapWorld::default() })[0].contains("swap is short"));
    }

    #[test]
    fn a_virtual_disk_that_says_it_rotates_is_told_and_a_real_one_is_not() {
        let of = |is_virtual| {
            said(&SwapWorld {
                areas: vec![Area { rotates: true, is_virtual, ..disk(1 << 30) }],
                ..SwapWorld::default()
            })
        };

        assert!(of(true)[0].contains("says that it rotates"));
        assert!(of(false).is_empty());
    }

    #[test]
    fn compressed_memory_and_a_large_cluster_are_told() {
        let zram = Area { path: "/dev/zram0".into(), ..disk(1 << 30) };
        let world = SwapWorld { areas: vec![zram], cluster: Some(5), zswap: true, generations: true };

        let said = said(&world);

        assert!(said[0].contains("/dev/zram0 is compressed memory"), "{said:?}");
        assert!(said[1].contains("reads 32 pages at each fault"), "{said:?}");
        assert!(said[2].contains("zswap is on") && said[3].contains("multi-generational"), "{said:?}");
    }

    #[test]
    fn a_program_that_changes_its_user_is_told_unless_we_are_root() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "").unwrap();
        assert_eq!(of_program(&program, false), None);

        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();

        assert!(of_program(&program, false).unwrap().found.contains("changes its user"));
        assert_eq!(of_program(&program, true), None);
        assert_eq!(of_program(Path::new("no such program"), false), None);
    }
}
