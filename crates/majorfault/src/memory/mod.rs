//! Mapped files by address: for programs that did not map the file themselves (a language's arrays, another library's buffers), but
//! hold an address and know what they access next.
//!
//! ```
//! use majorfault::memory::Region;
//!
//! // This program's own code is a mapped file, too.
//! let begin = main as *const () as usize;
//! let code = Region::of(begin..begin + 100)?;
//! code.will_need(std::iter::once(begin..begin + 100))?;
//! assert_eq!(code.path(), std::env::current_exe()?.to_str());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod announce;
mod whole;

use crate::error::{Error, Result};
use crate::headroom;
use crate::needs::Missing;
use crate::proc::maps::Vma;
use crate::sys::advice::{self, Advice};
use crate::sys::{cache, procmap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

pub use crate::sys::fault::{Guard, guard};
pub use announce::Announced;

/// Memory of this process that shows a file, as it was when it was asked for.
#[derive(Clone, Debug)]
pub struct Region {
    /// Addresses, rounded out to pages.
    range: Range<usize>,
    /// The mapping of the first one.
    vma: Vma,
}

/// Bytes of page cache that can be filled before something else is evicted: the machine's, or the cgroup's where that is less.
pub fn free_bytes() -> u64 {
    headroom::free_bytes()
}

impl Region {
    /// The mapped file that the addresses of `range` show.
    ///
    /// Takes 2 us for each mapping that the range lies in (before Linux 6.11: for each mapping of the process).
    ///
    /// Errors: Invalid (an empty range; memory without a file, or not mapped), Truncated (pages that were missing lie in it).
    pub fn of(range: Range<usize>) -> Result<Region> {
        if range.is_empty() {
            return Err(Error::Invalid("there are no bytes in an empty range of addresses".to_owned()));
        }
        let range = to_pages(&range);
        let vma = file_at(range.start)?;
        let mut end = vma.end as usize;
        while end < range.end {
            end = file_at(end)?.end as usize;
        }
        Ok(Region { range, vma })
    }

    /// The file's path, as the kernel knows it; none where the file no longer has one.
    pub fn path(&self) -> Option<&str> {
        (!self.vma.deleted).then_some(self.vma.path.as_str())
    }

    /// Whether changes through the mapping stay in this process (a copy-on-write mapping).
    pub fn is_copied(&self) -> bool {
        self.vma.is_private() && self.vma.is_writable()
    }

    /// Where `address` lies in the file.
    pub fn offset(&self, address: usize) -> u64 {
        self.vma.offset + (address as u64).saturating_sub(self.vma.start)
    }

    /// The first address after the mapping of the first byte.
    pub fn end(&self) -> usize {
        self.vma.end as usize
    }

    /// Opens the file for reading, if the one of this name is still the one that is mapped.
    ///
    /// Errors: Io, Invalid (it has no name any more, or another file has it).
    pub fn open(&self) -> Result<File> {
        let Vma { path, deleted, inode, .. } = &self.vma;
        let file = File::open(path).map_err(|error| Error::io("open the mapped file", path, error))?;
        let found = file.metadata().map_err(|error| Error::io("look at the file", path, error))?.ino();
        match found == *inode && !deleted {
            true => Ok(file),
            false => Err(Error::Invalid(format!("{path} is no longer the file that is mapped; map it again"))),
        }
    }

    /// Bytes, in whole pages.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Always false: an empty range has no region.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of the region that are in memory, by mincore(2). The kernel answers truthfully only to those who may write the file,
    /// and says "all" to others; so this function does not ask for them.
    ///
    /// Costs one call, and 1 us for each cached MiB.
    ///
    /// Errors: Missing (another user's file), Io (ENOMEM: it is no longer mapped).
    pub fn resident(&self) -> Result<u64> {
        self.may_ask()?;
        let states = advice::mincore_at(&self.range)?;
        let pages = states.iter().filter(|state| *state & 1 == 1).count();
        Ok((pages * rustix::param::page_size()) as u64)
    }

    fn may_ask(&self) -> Result<()> {
        let Vma { path, .. } = &self.vma;
        let is_own = || {
            self.open()?.metadata().map_err(|error| Error::io("look at the file", path, error)).map(|meta| meta.uid())
        };
        let own = rustix::process::geteuid();
        let is_writable = || rustix::fs::access(path.as_str(), rustix::fs::Access::WRITE_OK).is_ok();
        if own.is_root() || is_own()? == own.as_raw() || is_writable() {
            return Ok(());
        }
        let (reason, remedy) =
            ("the kernel reports it only to those who may write the file", "run as the file's owner, or as root");
        Err(Missing::new("residency of the file", reason, remedy).into())
    }

    /// Tells the kernel how the region will be used.
    ///
    /// Errors: Io.
    pub fn advise(&self, given: crate::map::Harmless) -> Result<()> {
        advice::advise_at(&self.range, given.into())
    }

    /// Lets go of the memory that the region takes in this process; the page cache keeps it, unless `drop_cache`. Bytes that were
    /// changed in a copy-on-write mapping stay what they are.
    ///
    /// Errors: Io.
    ///
    /// # Safety
    ///
    /// The region stays mapped as it is until this returns.
    #[allow(unsafe_code, reason = "a promise of the caller's, handed on")]
    pub unsafe fn release(&self, drop_cache: bool) -> Result<()> {
        let is_private = self.is_copied();
        // DontNeed would forget changes of private pages; PageOut evicts what is clean.
        let advice = if is_private { Advice::PageOut } else { Advice::DontNeed };
        // SAFETY: the caller's promise; nothing is discarded that the file does not have.
        unsafe { advice::madvise_at(&self.range, advice) }?;
        if drop_cache && !is_private {
            let (begin, length) = (self.offset(self.range.start), self.range.len() as u64);
            cache::fadvise(&self.open()?, begin, length, cache::FileAdvice::DontNeed)?;
        }
        Ok(())
    }
}

/// Rounded out to whole pages.
fn to_pages(range: &Range<usize>) -> Range<usize> {
    let page = rustix::param::page_size();
    range.start / page * page..range.end.checked_next_multiple_of(page).unwrap_or(range.end)
}

/// The mapping of a file at `address`.
fn file_at(address: usize) -> Result<Vma> {
    let Some(vma) = procmap::at(address)? else {
        return Err(Error::Invalid(format!("nothing is mapped at the address {address:#x}; it was unmapped, perhaps")));
    };
    // Shared memory without a file has an inode of the kernel's own.
    let is_memory = !vma.is_file() || (vma.deleted && vma.path == "/dev/zero");
    match is_memory {
        false => Ok(vma),
        true => Err(Error::Invalid(format!(
            "the bytes at {address:#x} are in no mapped file but in memory of their own ({}); map the file instead of reading it",
            if vma.path.is_empty() { "anonymous" } else { &vma.path }
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Harmless;
    use crate::sys::map::{Access, MapOptions, Mapping};
    use crate::test_files::{PAGE, TestFile};

    fn mapped(access: Access) -> (TestFile, Mapping, Region) {
        let file = TestFile::on_disk(8 * PAGE);
        file.file().sync_all().unwrap();
        let mapping = Mapping::new(file.file(), 0, 8 * PAGE, &MapOptions { access, ..Default::default() }).unwrap();
        let begin = mapping.as_ptr() as usize;
        let region = Region::of(begin..begin + 8 * PAGE).unwrap();
        (file, mapping, region)
    }

    /// Bytes of the mapping that this process has in its page table.
    fn mapped_bytes(file: &TestFile) -> u64 {
        let path = file.path().to_str().unwrap();
        crate::observe::mapped_sizes(std::process::id(), |other| other == path).unwrap().resident_bytes
    }

    #[test]
    fn a_region_names_its_file_and_where_it_lies_in_it() {
        let (file, mapping, region) = mapped(Access::Read);

        assert_eq!(region.path(), file.path().to_str());
        assert_eq!(region.offset(mapping.as_ptr() as usize + PAGE + 5), PAGE as u64 + 5);
        assert_eq!(region.end(), mapping.as_ptr() as usize + 8 * PAGE);
        assert_eq!(region.open().unwrap().metadata().unwrap().len(), 8 * PAGE as u64);
    }

    #[test]
    fn memory_without_a_file_is_told_so() {
        let own = vec![0u8; 64 * PAGE];
        let shared = Mapping::anonymous(4 * PAGE).unwrap();
        let (begin, shared) = (own.as_ptr() as usize, shared.as_ptr() as usize);

        let of = |range: Range<usize>| Region::of(range).unwrap_err().to_string();

        assert!(of(begin..begin + 10).contains("in no mapped file but in memory of their own"));
        assert!(of(shared..shared + 10).contains("in no mapped file but in memory of their own"));
        assert!(of(4096..4100).starts_with("nothing is mapped at the address 0x1000"));
        assert!(of(begin..begin).contains("empty range"));
    }

    #[test]
    fn a_file_of_another_inode_under_the_same_name_is_not_opened() {
        let (file, _mapping, region) = mapped(Access::Read);
        let other = file.path().with_extension("other");
        std::fs::write(&other, b"other").unwrap();
        std::fs::rename(&other, file.path()).unwrap();

        assert!(matches!(region.open(), Err(Error::Invalid(_))));
    }

    #[test]
    #[allow(unsafe_code, reason = "the promise that the mapping lives")]
    fn what_is_let_go_of_leaves_the_process_and_keeps_its_changes() {
        for access in [Access::Read, Access::Write, Access::Copy] {
            let (file, mapping, region) = mapped(access);
            if access != Access::Read {
                // SAFETY: this test alone uses the mapping.
                unsafe { mapping.bytes_mut(0, 1).fill(77) };
            }
            // SAFETY: as above.
            let before: u64 = unsafe { mapping.bytes(0, 8 * PAGE) }.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(mapped_bytes(&file), 8 * PAGE as u64);

            // SAFETY: the mapping lives.
            unsafe { region.release(false) }.unwrap();

            let left = mapped_bytes(&file);
            assert!(left <= PAGE as u64, "{access:?}: {left} bytes are left");
            // SAFETY: as above.
            let after: u64 = unsafe { mapping.bytes(0, 8 * PAGE) }.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(before, after, "{access:?}");
        }
    }

    #[test]
    fn residency_is_counted_in_pages() {
        let (_file, _mapping, region) = mapped(Access::Read);

        assert_eq!(region.resident().unwrap(), 8 * PAGE as u64);
        region.advise(Harmless::Random).unwrap();
    }
}
