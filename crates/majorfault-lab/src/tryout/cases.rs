//! The cases: one declaration each.

use crate::place::guest::Architecture;

/// A kernel of Debian's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// How the names of its builds begin.
    pub begins: &'static str,
    /// The package that stands for the latest of them.
    pub package: &'static str,
}

/// Before cachestat(2) (6.5), the query of mappings (6.11) and the scan of page tables (6.7).
pub const OLD: Stock = Stock { begins: "6.1.", package: "linux-image-cloud-amd64" };

/// The newest of Debian 12.
pub const NEW: Stock = Stock { begins: "6.12.", package: "linux-image-6.12-cloud-amd64" };

/// The same with every file system and driver: the other images leave out what a machine for hire does not need.
pub const FULL: Stock = Stock { begins: "6.12.", package: "linux-image-6.12-amd64" };

/// The newest of Debian 12 for 64-bit ARM.
pub const ARM: Stock = Stock { begins: "6.12.", package: "linux-image-6.12-cloud-arm64" };

impl Stock {
    /// Whether a kernel of this name is one of them.
    pub fn is_it(&self, name: &str) -> bool {
        let has_same = |part: &str| name.contains(part) == self.package.contains(part);
        name.starts_with(self.begins) && name.ends_with("-stock") && has_same("-cloud-") && has_same("-arm64")
    }
}

/// A guest in which our commands are tried.
pub struct GuestCase {
    /// Its name.
    pub name: &'static str,
    /// What is different there.
    pub says: &'static str,
    /// Its kernel.
    pub kernel: Stock,
    /// Its processor: where it is not this machine's, our program must have been built for it.
    pub architecture: Architecture,
    /// The place, but for the kernel.
    pub place: &'static str,
    /// Files below /proc/sys that are set, with what to.
    pub sysctls: &'static [(&'static str, &'static str)],
    /// Who runs the commands; 0 is root.
    pub user: u32,
    /// Which checks; none means all but those that only some case names.
    pub checks: &'static [&'static str],
    /// What is lost there.
    pub loses: &'static [DeclaredLoss],
}

/// What a case is expected to lose.
pub struct DeclaredLoss {
    /// In which check.
    pub check: &'static str,
    /// Words of the sentence that tells it.
    pub says: &'static str,
    /// Only a part of it is lost: the rest works.
    pub is_partial: bool,
}

/// All of a check is lost, told with these words.
const fn all(check: &'static str, says: &'static str) -> DeclaredLoss {
    DeclaredLoss { check, says, is_partial: false }
}

/// A part is lost, told with these words.
const fn part(check: &'static str, says: &'static str) -> DeclaredLoss {
    DeclaredLoss { check, says, is_partial: true }
}

// Sentences that tell a loss.
const ONLY_FAULTS: &str = "only page faults are recorded";
const NEAR_ROWS: &str = "telling rows of up to 64 KiB from a scan is not available here";
const NO_LIMIT: &str = "a memory limit is not available here";
const NO_FAULTS: &str = "page faults one by one is not available here";

/// What most cases have.
const USUAL: GuestCase = GuestCase {
    name: "",
    says: "",
    kernel: NEW,
    architecture: Architecture::X86_64,
    place: "cpus=2,memory=1g,disk=2g,swap=512m",
    sysctls: &[],
    user: 0,
    checks: &[],
    loses: &[],
};

/// A case that differs by its file system only, on the kernel NEW.
const fn on_file_system(name: &'static str, says: &'static str, place: &'static str) -> GuestCase {
    GuestCase { name, says, place, checks: ON_A_FILE_SYSTEM, ..USUAL }
}

/// What a file system may take away.
const ON_A_FILE_SYSTEM: &[&str] = &[
    "mmap",
    "mmap-write",
    "pread",
    "pread-write",
    "direct",
    "uring",
    "uring-cached",
    "pool",
    "uffd",
    "limit",
    "doctor",
    "trace",
    "trace-calls",
    "assist",
];

/// Every case.
pub const CASES: &[GuestCase] = &[
    GuestCase { name: "plain", says: "nothing: ext4, 2 processors, cgroup version 2, swap, root", ..USUAL },
    GuestCase {
        name: "old-kernel",
        says: "a kernel before cachestat, the query of mappings and the scan of page tables",
        kernel: OLD,
        loses: &[
            part("probe", "cachestat"),
            part("trace", ONLY_FAULTS),
            all("trace-calls", ONLY_FAULTS),
            all("assist", NEAR_ROWS),
        ],
        ..USUAL
    },
    GuestCase {
        name: "user",
        says: "a user without rights; perf_event_paranoid 2",
        user: 1000,
        sysctls: &[("kernel/perf_event_paranoid", "2")],
        loses: &[
            all("limit", NO_LIMIT),
            all("run", NO_LIMIT),
            part("trace", ONLY_FAULTS),
            all("trace-calls", ONLY_FAULTS),
            all("assist", NEAR_ROWS),
        ],
        ..USUAL
    },
    GuestCase {
        name: "strict-user",
        says: "a user without rights; perf_event_paranoid 3, as Debian sets it",
        user: 1000,
        sysctls: &[("kernel/perf_event_paranoid", "3")],
        loses: &[
            all("limit", NO_LIMIT),
            all("run", NO_LIMIT),
            all("doctor", NO_FAULTS),
            all("trace", NO_FAULTS),
            all("trace-calls", NO_FAULTS),
            all("assist", NO_FAULTS),
        ],
        ..USUAL
    },
    GuestCase {
        name: "no-io_uring",
        says: "io_uring switched off for all (kernel.io_uring_disabled = 2)",
        sysctls: &[("kernel/io_uring_disabled", "2")],
        loses: &[
            part("probe", "io_uring"),
            all("uring", "io_uring is not available here"),
            all("uring-cached", "io_uring is not available here"),
        ],
        ..USUAL
    },
    GuestCase {
        name: "no-swap",
        says: "no swap",
        place: "cpus=2,memory=1g,disk=2g",
        loses: &[all("run", "there is no swap")],
        ..USUAL
    },
    GuestCase { name: "arm64", says: "64-bit ARM", kernel: ARM, architecture: Architecture::Aarch64, ..USUAL },
    GuestCase { name: "many-cpus", says: "8 processors", place: "cpus=8,memory=1g,disk=2g,swap=512m", ..USUAL },
    GuestCase {
        name: "numa",
        says: "4 processors and the memory in 2 nodes",
        place: "cpus=4,numa=2,memory=1g,disk=2g,swap=512m",
        ..USUAL
    },
    GuestCase {
        name: "whole-machine",
        says: "memory of 320 MiB that a program fills without any limit: kswapd evicts",
        place: "cpus=2,memory=320m,disk=2g,swap=1g",
        checks: &["kswapd-swap", "kswapd-cache"],
        ..USUAL
    },
    GuestCase {
        name: "old-whole-machine",
        says: "the same on the older kernel",
        kernel: OLD,
        place: "cpus=2,memory=320m,disk=2g,swap=1g",
        checks: &["kswapd-swap", "kswapd-cache"],
        ..USUAL
    },
    on_file_system("xfs", "xfs", "fs=xfs,cpus=2,memory=1g,disk=2g,swap=512m"),
    on_file_system("btrfs", "btrfs", "fs=btrfs,cpus=2,memory=1g,disk=2g,swap=512m"),
    GuestCase { kernel: FULL, ..on_file_system("f2fs", "f2fs", "fs=f2fs,cpus=2,memory=1g,disk=2g,swap=512m") },
    on_file_system("overlay", "overlayfs over ext4", "fs=overlay,cpus=2,memory=1g,disk=2g,swap=512m"),
    on_file_system("dm-crypt", "ext4 on dm-crypt", "fs=crypt,cpus=2,memory=1g,disk=2g,swap=512m"),
    on_file_system("nfs", "NFS 4.2 over loopback", "fs=nfs,cpus=2,memory=1g,disk=2g,swap=512m"),
    on_file_system("xfs-64k", "xfs with blocks of 64 KiB", "fs=xfs-64k,cpus=2,memory=1g,disk=2g,swap=512m"),
    on_file_system("ext4-64k", "ext4 with clusters of 64 KiB", "fs=ext4-64k,cpus=2,memory=1g,disk=2g,swap=512m"),
];

impl GuestCase {
    /// The case of this name.
    pub fn named(name: &str) -> Option<&'static GuestCase> {
        CASES.iter().find(|case| case.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::guest::Spec;
    use crate::tryout::CHECKS;

    #[test]
    fn a_kernel_with_all_drivers_is_not_one_without_them() {
        let [small, full] = ["6.12.117+deb12-cloud-amd64-stock", "6.12.117+deb12-amd64-stock"];

        assert!(NEW.is_it(small) && !NEW.is_it(full) && FULL.is_it(full) && !FULL.is_it(small) && !OLD.is_it(small));
        assert!(!NEW.is_it("6.12.117-1-plain-91b5f0c3a2d4e6f8"));
        let arm = "6.12.117+deb12-cloud-arm64-stock";
        assert!(ARM.is_it(arm) && !NEW.is_it(arm) && !ARM.is_it(small));
    }

    #[test]
    fn every_case_is_a_place_and_its_checks_exist() {
        let is_check = |name: &str| CHECKS.iter().any(|check| check.name == name);
        for case in CASES {
            assert!(format!("guest:{}", case.place).parse::<Spec>().is_ok(), "{}", case.name);
            assert!(case.checks.iter().all(|name| is_check(name)), "{}", case.name);
            assert!(case.loses.iter().all(|loss| is_check(loss.check)), "{}", case.name);
            assert_eq!(CASES.iter().filter(|other| other.name == case.name).count(), 1, "{}", case.name);
        }
    }
}
