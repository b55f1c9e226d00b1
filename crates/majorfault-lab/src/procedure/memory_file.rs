//! Files for procedures, each gone with its descriptor: on a tmpfs of one's own, of huge pages, or on a disk. Their mappings are
//! touched in place, as programs touch theirs: what is measured is the kernel, not a copy.
#![allow(unsafe_code, reason = "the promise that nobody else changes a file that nobody else knows")]

use super::unnamed_in;
use majorfault::params::Value;
use majorfault::sys::fault::Guarded;
use majorfault::sys::map::{MapOptions, Mapping};
use majorfault::{Error, Missing, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, memfd_create};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
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

/// A file without a name, known to its owner alone: its descriptor is not given away.
pub struct MemoryFile(File);

/// A [`MemoryFile`] that is mapped, and reached through this mapping alone meanwhile.
pub struct OwnMap {
    map: Guarded,
    file: MemoryFile,
}

/// An empty file in `place`; on the disk it is made in `dir`. A tmpfs is mounted nowhere and goes with the file.
///
/// Errors: Missing (no right to mount and no /dev/shm; no huge pages in the pool), Io.
pub fn make(place: Backing, dir: &Path) -> Result<MemoryFile> {
    open(place, dir).map(MemoryFile)
}

impl MemoryFile {
    /// The file as long as that, holes where nothing was written.
    pub fn set_len(&self, length: usize) -> Result<()> {
        self.0.set_len(length as u64).map_err(|error| Error::io("size the file", "ftruncate", error))
    }

    /// Blocks for the first `length` bytes, by fallocate(2).
    pub fn reserve(&self, length: usize) -> Result<()> {
        fallocate(&self.0, FallocateFlags::empty(), 0, length as u64)
            .map_err(|error| Error::io(format!("reserve {length} bytes"), "fallocate", error))
    }

    /// Ones in its first `length` bytes, by plain writes.
    pub fn fill(&self, length: usize) -> Result<()> {
        let ones = vec![1; 1 << 20];
        for at in (0..length).step_by(ones.len()) {
            let piece = ones.len().min(length - at);
            self.0
                .write_all_at(&ones[..piece], at as u64)
                .map_err(|error| Error::io("fill the file", "pwrite", error))?;
        }
        Ok(())
    }

    /// The file mapped.
    pub fn map(self, offset: u64, length: usize, options: &MapOptions) -> Result<OwnMap> {
        Ok(OwnMap { map: Guarded::new(Mapping::new(&self.0, offset, length, options)?), file: self })
    }
}

impl OwnMap {
    /// The mapping, for advice and the like.
    pub fn mapping(&self) -> &Mapping {
        self.map.mapping()
    }

    /// The file, not mapped any more; its pages go only when it is dropped.
    pub fn unmap(self) -> MemoryFile {
        self.file
    }

    /// What the kernel shows for the name of a file that has none.
    pub fn shown(&self) -> String {
        self.file.0.metadata().map(|meta| format!("#{}", meta.ino())).unwrap_or_default()
    }

    /// The first page that could not be had, if there is one: no room for the file.
    pub fn gone(&self) -> Option<usize> {
        self.map.guard().gone()
    }

    /// The bytes of `length` from `at` on, in place.
    #[inline]
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: nobody else can change the file or cut it short: it has no name, and its descriptor is kept here. Through
        // this mapping only `bytes_mut` writes, exclusively. A page without room becomes zeros at its first touch; it was a hole,
        // and so zeros, before.
        unsafe { self.map.bytes(at, length) }
    }

    /// The same for changing.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        // SAFETY: as for `bytes`, and borrowed exclusively.
        unsafe { self.map.bytes_mut(at, length) }
    }
}

fn open(place: Backing, dir: &Path) -> Result<File> {
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
