//! Files for procedures, each gone with its descriptor: on a tmpfs of one's own, of huge pages, or on a disk.

use super::unnamed_in;
use majorfault::params::Value;
use majorfault::{Error, Missing, Result};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};
use std::fs::File;
use std::path::Path;

majorfault::choices! {
    /// Where a procedure's file lies.
    pub enum Backing {
        /// A tmpfs without huge pages.
        Tmpfs = "tmpfs",
        /// A tmpfs that uses huge pages wherever it can (mount option huge=always).
        TmpfsHuge = "tmpfs-huge",
        /// The kernel's pool of huge pages.
        Hugetlb = "hugetlb",
        /// The directory for test data.
        Disk = "disk",
    }
}

/// An empty file in `place`; on the disk it is made in `dir`. A tmpfs is mounted nowhere and goes with the file.
///
/// Errors: Missing (no right to mount and no /dev/shm; no huge pages in the pool), Io.
pub fn make(place: Backing, dir: &Path) -> Result<File> {
    match place {
        Backing::Disk => unnamed_in(dir),
        Backing::TmpfsHuge => tmpfs("always").map_err(|error| {
            let remedy = "run as root (CAP_SYS_ADMIN), on a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
            Missing::new("a tmpfs of huge pages", error.to_string(), remedy).into()
        }),
        // Without the right to mount, the shared memory that is there does; its huge= is almost always never, too.
        Backing::Tmpfs => tmpfs("never").or_else(|_| unnamed_in(Path::new("/dev/shm"))),
        Backing::Hugetlb => hugetlb(),
    }
}

fn tmpfs(huge: &str) -> std::io::Result<File> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "huge", huge)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&mount, ".", flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn hugetlb() -> Result<File> {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    let free: u64 = free.trim().parse().unwrap_or(0);
    if free == 0 {
        let remedy = "reserve some, as root: sysctl vm.nr_hugepages=512";
        return Err(Missing::new("hugetlbfs", "no huge page of 2 MiB is reserved", remedy).into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    memfd_create("majorfault", flags)
        .map(File::from)
        .map_err(|error| Error::io("make a file", Backing::Hugetlb.text(), error))
}
