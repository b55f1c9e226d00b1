//! Mappings: owned, placed where huge pages can be used, and checked for where they ended up.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use rustix::mm::{MapFlags, MprotectFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, mprotect, msync, munmap};
use std::fs::File;
use std::ptr;

/// Size of a huge page that a file mapping can use: the level above 4 KiB pages on x86-64 and arm64.
pub const HUGE_PAGE: usize = 2 << 20;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapOptions {
    /// What the program may do with the bytes.
    pub access: Access,
    /// Where it is placed.
    pub placement: Placement,
    /// Read all of it before returning (MAP_POPULATE).
    pub populate: bool,
}

/// What a program may do with mapped bytes, and who sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read (MAP_SHARED, PROT_READ).
    #[default]
    Read,
    /// Read and write; the file changes (MAP_SHARED).
    Write,
    /// Read and write; only this mapping changes (MAP_PRIVATE).
    Copy,
}

/// Where a mapping is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Wherever the kernel chooses; since Linux 6.7 it aligns large mappings by itself.
    #[default]
    Anywhere,
    /// Where address and file offset agree modulo [`HUGE_PAGE`], the condition for huge pages.
    Congruent,
    /// At a congruent address, skewed by this many bytes (a multiple of the page size): shows what misalignment costs.
    Skewed(usize),
    /// At this address if it is free; the kernel silently takes another one if not (SOURCES S1.hint).
    Hint(usize),
}

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    /// First mapped byte of the file.
    address: *mut u8,
    length: usize,
    offset: u64,
    writable: bool,
    /// The range reserved around it to choose the address, unmapped with it.
    reserved: (*mut u8, usize),
}

// SAFETY: a mapping is an address range owned by this value alone; moving it to another thread changes nothing about it.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out only the address and system calls on the range, which the kernel serialises; reading or
// writing through the address is the caller's unsafe act.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `file` from `offset` (a multiple of the page size) on.
    ///
    /// Costs one to three system calls and a virtual memory area; with `populate` reads the whole range.
    ///
    /// Errors: Io (no read permission; max_map_count or the address space used up), Invalid (length 0 or past all
    /// addresses, a skew of 2 MiB or more).
    pub fn new(file: &File, offset: u64, length: usize, options: &MapOptions) -> Result<Mapping> {
        if length == 0 {
            return Err(Error::Invalid("a mapping needs at least 1 byte, not 0".to_owned()));
        }
        let MapOptions { access, placement, populate } = *options;
        // A larger skew would pass the end of the reservation and replace what lies there.
        if matches!(placement, Placement::Skewed(skew) if skew >= HUGE_PAGE) {
            return Err(Error::Invalid(format!("{placement:?}: the skew must be less than {HUGE_PAGE}")));
        }
        let around = length.checked_add(2 * HUGE_PAGE);
        let around =
            around.ok_or_else(|| Error::Invalid(format!("a mapping of {length} bytes exceeds the address space")))?;
        let reserved = match placement {
            Placement::Anywhere | Placement::Hint(_) => (ptr::null_mut(), 0),
            Placement::Congruent | Placement::Skewed(_) => reserve(around)?,
        };
        let address = match placement {
            Placement::Anywhere => ptr::null_mut(),
            Placement::Hint(address) => address as *mut u8,
            Placement::Congruent => congruent(reserved.0, offset),
            Placement::Skewed(skew) => congruent(reserved.0, offset).wrapping_add(skew),
        };
        let (protection, mut flags) = match access {
            Access::Read => (ProtFlags::READ, MapFlags::SHARED),
            Access::Write => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            Access::Copy => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE),
        };
        flags.set(MapFlags::FIXED, reserved.1 > 0);
        flags.set(MapFlags::POPULATE, populate);
        // SAFETY: MAP_FIXED is set only for an address inside our own reservation, which nothing else uses; otherwise
        // the kernel chooses a free range.
        let mapped = unsafe { mmap(address.cast(), length, protection, flags, file, offset) };
        match mapped {
            Ok(address) => {
                Ok(Mapping { address: address.cast(), length, offset, writable: access != Access::Read, reserved })
            }
            Err(error) => {
                release(reserved);
                Err(Error::io(format!("map {length} bytes at offset {offset}"), "mmap", error)
                    .with_remedy("check vm.max_map_count and ulimit -v"))
            }
        }
    }

    /// Anonymous memory of `length` bytes, zero, private to this process.
    ///
    /// Errors: Io (out of memory or address space).
    pub fn anonymous(length: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses a free range.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
        mapped
            .map(|address| Mapping {
                address: address.cast(),
                length,
                offset: 0,
                writable: true,
                reserved: (ptr::null_mut(), 0),
            })
            .map_err(|error| Error::io(format!("reserve {length} bytes of memory"), "mmap", error))
    }

    /// Address space for `length` bytes of private memory that takes no memory until it is written, however much the machine has.
    ///
    /// Errors: Io (out of address space).
    pub fn reserve(length: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a free range.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, flags) };
        mapped
            .map(|address| Mapping {
                address: address.cast(),
                length,
                offset: 0,
                writable: true,
                reserved: (ptr::null_mut(), 0),
            })
            .map_err(|error| Error::io(format!("reserve {length} bytes of address space"), "mmap", error))
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.address
    }

    /// Its first byte, for writing where the mapping allows it.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.address
    }

    /// Whether its bytes may be changed.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Bytes mapped.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether address and file offset agree modulo [`HUGE_PAGE`], without which no huge page can be used.
    pub fn is_congruent(&self) -> bool {
        (self.address as u64).wrapping_sub(self.offset) % (HUGE_PAGE as u64) == 0
    }

    /// A sentence where the requested placement was not granted; the kernel returns no error for a hint that it ignores.
    pub fn misplaced(&self, asked: Placement) -> Option<String> {
        match asked {
            Placement::Hint(address) if self.address as usize != address => Some(format!(
                "the kernel ignored the address {address:#x} and mapped at {:#x}{}",
                self.address as usize,
                if self.is_congruent() { "" } else { ", where no huge page can be used" }
            )),
            Placement::Congruent if !self.is_congruent() => {
                Some(format!("address {:#x} and offset {:#x} differ modulo 2 MiB", self.address as usize, self.offset))
            }
            _ => None,
        }
    }

    /// The word at `at`, read once, whatever happens to it meanwhile.
    ///
    /// Raises SIGBUS where the file no longer has that page, as any mapping does; guard the mapping against that.
    ///
    /// Panics past the end, or where `at` is not a multiple of 8.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        let fits = self.length >= 8 && at <= self.length - 8;
        assert!(at % 8 == 0 && fits, "a word must be aligned and lie within its mapping");
        // SAFETY: inside the live mapping and aligned; volatile, because others may change shared bytes at any time, and
        // any bytes are a valid integer.
        unsafe { self.address.add(at).cast::<u64>().read_volatile() }
    }

    /// The bytes of `length` from `at` on.
    ///
    /// # Safety
    ///
    /// While the slice lives:
    ///
    /// - nobody changes these bytes: not through this mapping, not through another one, not by writing the file, not by
    ///   advice that throws private pages away ([`Advice::DontNeed`](super::advice::Advice));
    /// - the file covers the range, and can be read: a page that is gone raises SIGBUS, or becomes zeros where the mapping
    ///   is guarded ([`super::fault`]).
    #[inline]
    pub unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(length <= self.length && at <= self.length - length, "the slice passes the end of its mapping");
        // SAFETY: inside the live mapping by the assertion; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.address.add(at), length) }
    }

    /// The same bytes for writing.
    ///
    /// # Safety
    ///
    /// - as for [`bytes`](Mapping::bytes), and nobody else reads these bytes through this mapping meanwhile;
    /// - the mapping is writable ([`Access::Write`] or [`Access::Copy`]).
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, at: usize, length: usize) -> &mut [u8] {
        assert!(length <= self.length && at <= self.length - length, "the slice passes the end of its mapping");
        // SAFETY: inside the live mapping by the assertion; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.address.add(at), length) }
    }

    /// Makes all changes durable (msync with MS_SYNC).
    ///
    /// Errors: Io (EIO: some changes are lost).
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is exactly this live mapping.
        unsafe { msync(self.address.cast(), self.length, MsyncFlags::SYNC) }
            .map_err(|error| Error::io("write the mapping back", "msync", error))
    }

    /// Forbids access to it, or permits reading again.
    ///
    /// Errors: Io.
    pub fn protect(&self, readable: bool) -> Result<()> {
        let flags = if readable { MprotectFlags::READ } else { MprotectFlags::empty() };
        // SAFETY: the range is exactly this live mapping; slices of it are the caller's promise in `bytes`.
        unsafe { mprotect(self.address.cast(), self.length, flags) }
            .map_err(|error| Error::io("change the protection of a mapping", "mprotect", error))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.reserved {
            (_, 0) => release((self.address, self.length)),
            // The mapping lies inside its reservation.
            around => release(around),
        }
    }
}

/// Address space without memory.
fn reserve(length: usize) -> Result<(*mut u8, usize)> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses a free range.
    let reserved = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags) };
    reserved
        .map(|address| (address.cast(), length))
        .map_err(|error| Error::io(format!("reserve {length} bytes of address space"), "mmap", error))
}

/// The first address from `start` on that is congruent to `offset` modulo a huge page.
fn congruent(start: *mut u8, offset: u64) -> *mut u8 {
    let wanted = offset as usize % HUGE_PAGE;
    let found = start as usize % HUGE_PAGE;
    start.wrapping_add((wanted + HUGE_PAGE - found) % HUGE_PAGE)
}

fn release((address, length): (*mut u8, usize)) {
    if length > 0 {
        // SAFETY: called once for a range that this file mapped, when its owner is gone.
        // It fails only for a malformed range, and there is nobody left to report that to.
        let _ = unsafe { munmap(address.cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    fn map(file: &TestFile, offset: usize, placement: Placement) -> Mapping {
        let options = MapOptions { placement, ..MapOptions::default() };
        Mapping::new(file.file(), offset as u64, file.length() - offset, &options).unwrap()
    }

    #[test]
    fn a_congruent_mapping_agrees_with_its_offset_modulo_a_huge_page() {
        let file = TestFile::on_disk(5 << 20);
        for offset in [0, PAGE, HUGE_PAGE, HUGE_PAGE + 3 * PAGE] {
            let mapping = map(&file, offset, Placement::Congruent);

            assert_eq!((mapping.as_ptr() as usize).wrapping_sub(offset) % HUGE_PAGE, 0, "offset {offset}");
            assert_eq!(mapping.misplaced(Placement::Congruent), None);
        }
    }

    #[test]
    fn a_skewed_mapping_is_off_by_exactly_that() {
        let file = TestFile::on_disk(1 << 20);

        let mapping = map(&file, 0, Placement::Skewed(PAGE));

        assert_eq!(mapping.as_ptr() as usize % HUGE_PAGE, PAGE);
        assert!(!mapping.is_congruent());
    }

    #[test]
    fn a_hint_that_the_kernel_ignored_is_reported() {
        let file = TestFile::on_disk(1 << 20);
        let occupied = map(&file, 0, Placement::Anywhere);
        let wish = Placement::Hint(occupied.as_ptr() as usize);

        let mapping = map(&file, 0, wish);

        assert_ne!(mapping.as_ptr(), occupied.as_ptr());
        assert!(mapping.misplaced(wish).unwrap().contains("ignored the address"));
    }

    #[test]
    fn a_skew_past_what_is_reserved_replaces_nobodys_memory() {
        let file = TestFile::on_disk(1 << 20);
        for skew in [HUGE_PAGE, 64 * HUGE_PAGE, usize::MAX - PAGE + 1] {
            let options = MapOptions { placement: Placement::Skewed(skew), ..MapOptions::default() };

            let mapped = Mapping::new(file.file(), 0, 1 << 20, &options);

            assert!(matches!(mapped, Err(Error::Invalid(_))), "{skew}");
        }
        let all = Mapping::new(file.file(), 0, usize::MAX, &MapOptions::default());
        assert!(matches!(all, Err(Error::Invalid(_))));
    }

    #[test]
    fn a_word_outside_is_read_by_nobody() {
        let file = TestFile::on_disk(PAGE);
        let mapping = map(&file, 0, Placement::Anywhere);
        assert_eq!(mapping.word(PAGE - 8).to_ne_bytes(), file.content()[PAGE - 8..]);

        // The last one lies before the mapping, where addresses wrap.
        for at in [PAGE, 4, usize::MAX - 7] {
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mapping.word(at)));
            assert!(read.is_err(), "at {at}");
        }
    }

    #[test]
    fn a_mapping_shows_the_file_wherever_it_is_put() {
        let file = TestFile::on_disk(3 << 20);
        for placement in [Placement::Anywhere, Placement::Congruent, Placement::Skewed(PAGE)] {
            let mapping = map(&file, PAGE, placement);

            // SAFETY: the file covers the mapping and nobody changes it during this test.
            let bytes = unsafe { mapping.bytes(0, mapping.length()) };
            assert_eq!(bytes, &file.content()[PAGE..]);
        }
    }
}
