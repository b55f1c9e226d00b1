//! The names of the crate memmap2 on this library's mapped files: a program moves over by changing its `use`. Its files may
//! then be truncated without a SIGBUS, and its mappings report what they were granted.
//!
//! A page that is gone reads as zeros through a slice, which cannot report an error: call `check` before using what was read.
//! Mapping is `unsafe` for memmap2's reason: slices are lent as long as the map lives, and only the program can know
//! that nobody changes the file meanwhile. [`MappedFile`] needs no such promise.
#![allow(unsafe_code, reason = "the promise is given to `map` and relied on by the slices")]

use super::{Harmless, MapFileOptions, MappedFile};
use crate::error::Error;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsRawFd;

pub use super::Harmless as Advice;

/// A file mapped for reading.
#[derive(Debug)]
pub struct Mmap(MappedFile);

/// A file mapped for writing: changes go to the file (`map_mut`) or stay private (`map_copy`).
#[derive(Debug)]
pub struct MmapMut(MappedFile);

/// How a file is mapped.
#[derive(Clone, Debug, Default)]
pub struct MmapOptions {
    offset: u64,
    length: Option<usize>,
    populate: bool,
    huge_pages: bool,
}

/// The error as memmap2 would give it: with its errno, so that `raw_os_error` works; with its sentence where there is no
/// errno.
fn plain(error: Error) -> io::Error {
    error.errno().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

impl MmapOptions {
    /// The whole file.
    pub fn new() -> MmapOptions {
        MmapOptions::default()
    }

    /// Maps from this byte on; it need not be a multiple of the page size.
    pub fn offset(&mut self, offset: u64) -> &mut MmapOptions {
        self.offset = offset;
        self
    }

    /// Maps this many bytes; by default all up to the end.
    pub fn len(&mut self, length: usize) -> &mut MmapOptions {
        self.length = Some(length);
        self
    }

    /// Reads everything before `map` returns.
    pub fn populate(&mut self) -> &mut MmapOptions {
        self.populate = true;
        self
    }

    /// Places the mapping so that huge pages fit, and asks for them (not in memmap2, which has them for anonymous memory only).
    pub fn huge_pages(&mut self) -> &mut MmapOptions {
        self.huge_pages = true;
        self
    }

    /// Maps for reading.
    ///
    /// Errors: those of mmap(2); an empty file or range, which memmap2 accepts.
    ///
    /// # Safety
    ///
    /// While one of its slices lives, nobody changes the mapped bytes: not this process, not another mapping of the file, not
    /// another program; and nobody truncates the file before their end (missing pages become zeros).
    pub unsafe fn map(&self, file: &File) -> io::Result<Mmap> {
        self.by(MappedFile::options(), file).map(Mmap)
    }

    /// Maps for reading, privately. Here it is the same as [`map`](MmapOptions::map).
    ///
    /// Errors: as [`map`](MmapOptions::map).
    ///
    /// # Safety
    ///
    /// As for [`map`](MmapOptions::map): the pages show the file here, too.
    pub unsafe fn map_copy_read_only(&self, file: &File) -> io::Result<Mmap> {
        self.by(MappedFile::options().copy_on_write(), file).map(Mmap)
    }

    /// Maps for private changes.
    ///
    /// Errors: as [`map`](MmapOptions::map).
    ///
    /// # Safety
    ///
    /// As for [`map`](MmapOptions::map): pages that were not written yet show the file.
    pub unsafe fn map_copy(&self, file: &File) -> io::Result<MmapMut> {
        self.by(MappedFile::options().copy_on_write(), file).map(MmapMut)
    }

    /// Maps for changes of the file, which must be open for writing.
    ///
    /// Errors: as [`map`](MmapOptions::map).
    ///
    /// # Safety
    ///
    /// As for [`map`](MmapOptions::map); and nobody reads the bytes through another mapping while a mutable slice lives.
    pub unsafe fn map_mut(&self, file: &File) -> io::Result<MmapMut> {
        self.by(MappedFile::options().write_shared(), file).map(MmapMut)
    }

    fn by(&self, options: MapFileOptions, file: &File) -> io::Result<MappedFile> {
        let end = match self.length {
            Some(length) => self.offset.saturating_add(length as u64),
            None => file.metadata()?.len(),
        };
        let options = if self.huge_pages { options.huge_pages() } else { options };
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        let mapped = options.range(self.offset..end).map(file.try_clone()?, name).map_err(plain)?;
        if self.populate {
            mapped.get(0..mapped.len()).map_err(plain)?;
        }
        Ok(mapped)
    }
}

impl Mmap {
    /// Maps the whole file for reading.
    ///
    /// Errors: as [`MmapOptions::map`].
    ///
    /// # Safety
    ///
    /// As for [`MmapOptions::map`].
    pub unsafe fn map(file: &File) -> io::Result<Mmap> {
        // SAFETY: what the caller promises.
        unsafe { MmapOptions::new().map(file) }
    }

    /// Tells the kernel how the whole mapping will be used.
    ///
    /// Errors: those of madvise(2).
    pub fn advise(&self, advice: Harmless) -> io::Result<()> {
        self.0.advise(0..self.0.len(), advice).map_err(plain)
    }

    /// Tells the kernel how a part of the mapping will be used.
    ///
    /// Errors: those of madvise(2); a part outside the mapping.
    pub fn advise_range(&self, advice: Harmless, offset: usize, length: usize) -> io::Result<()> {
        self.0.advise(part(offset, length), advice).map_err(plain)
    }

    /// Fails if a page that was read had been missing (not in memmap2, where the process dies of SIGBUS).
    ///
    /// Errors: a page was missing or could not be read.
    pub fn check(&self) -> io::Result<()> {
        self.0.check().map_err(plain)
    }

    /// The mapped file, with everything that it can do.
    pub fn into_inner(self) -> MappedFile {
        self.0
    }
}

impl MmapMut {
    /// Maps the whole file for changes.
    ///
    /// Errors: as [`MmapOptions::map_mut`].
    ///
    /// # Safety
    ///
    /// As for [`MmapOptions::map_mut`].
    pub unsafe fn map_mut(file: &File) -> io::Result<MmapMut> {
        // SAFETY: what the caller promises.
        unsafe { MmapOptions::new().map_mut(file) }
    }

    /// Returns once the changes are on the device.
    ///
    /// Errors: EIO where some of the changes are lost.
    pub fn flush(&self) -> io::Result<()> {
        self.0.sync().map_err(plain)
    }

    /// The same as [`flush`](MmapMut::flush): all changes, and it waits.
    ///
    /// Errors: as [`flush`](MmapMut::flush).
    pub fn flush_range(&self, _offset: usize, _length: usize) -> io::Result<()> {
        self.flush()
    }

    /// Tells the kernel how the whole mapping will be used.
    ///
    /// Errors: those of madvise(2).
    pub fn advise(&self, advice: Harmless) -> io::Result<()> {
        self.0.advise(0..self.0.len(), advice).map_err(plain)
    }

    /// The same as [`Mmap::check`].
    ///
    /// Errors: as [`Mmap::check`].
    pub fn check(&self) -> io::Result<()> {
        self.0.check().map_err(plain)
    }
}

fn part(offset: usize, length: usize) -> Range<usize> {
    offset..offset.saturating_add(length)
}

impl Deref for Mmap {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: promised when it was mapped.
        unsafe { self.0.whole() }
    }
}

impl Deref for MmapMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: promised when it was mapped.
        unsafe { self.0.whole() }
    }
}

impl DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: promised when it was mapped; borrowed exclusively.
        unsafe { self.0.whole_mut() }
    }
}

impl AsRef<[u8]> for Mmap {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for MmapMut {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for MmapMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn an_errno_of_the_kernel_is_kept() {
        let file = TestFile::on_disk(PAGE);
        let reading = File::open(file.path()).unwrap();

        // SAFETY: nobody else knows the file.
        let refused = unsafe { MmapMut::map_mut(&reading) }.unwrap_err();

        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_error_of_our_own_is_told_by_its_sentence() {
        let file = TestFile::on_disk(PAGE);

        // SAFETY: nobody else knows the file.
        let refused = unsafe { MmapOptions::new().offset(8192).map(file.file()) }.unwrap_err();

        assert_eq!(refused.raw_os_error(), None);
        assert!(refused.to_string().contains(&file.path().display().to_string()), "{refused}");
    }
}
