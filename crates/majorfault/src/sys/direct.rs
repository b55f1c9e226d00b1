//! What O_DIRECT needs: files opened for it, the alignment it requires, and aligned memory.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::Missing;
use crate::sys::pieces::{self, HUGE, Piece};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use std::alloc::{Layout, alloc, dealloc};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// What offsets, lengths and addresses must be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of offset and length, in bytes.
    pub offset: usize,
    /// Of the address, in bytes.
    pub memory: usize,
}

impl Default for Alignment {
    fn default() -> Alignment {
        Alignment { offset: 512, memory: 512 }
    }
}

impl Alignment {
    /// The alignment that satisfies both.
    pub fn max(self, other: Alignment) -> Alignment {
        Alignment { offset: self.offset.max(other.offset), memory: self.memory.max(other.memory) }
    }
}

/// The file opened again with O_DIRECT, by its descriptor, so that files without a name work as well; with the alignment
/// that statx(2) reports since Linux 6.1, or 4096 where it reports none.
///
/// Errors: Missing where the file system has no direct I/O; Io.
pub fn reopen(file: &File, path: &Path, write: bool) -> Result<(File, Alignment)> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let opened = rustix::fs::open(&own, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
    let direct = File::from(opened.map_err(|error| no_direct(path, error))?);
    let alignment = alignment(&direct).map_err(|error| no_direct(path, error))?;
    Ok((direct, alignment))
}

fn no_direct(path: &Path, error: rustix::io::Errno) -> Error {
    match error {
        rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP => Missing::new(
            "O_DIRECT",
            format!("the file system of {} does not support it", path.display()),
            "use a buffered method (pread, mmap, uring:direct=off), or a file on a disk file system",
        )
        .into(),
        _ => Error::io("open the file for direct I/O", path, error),
    }
}

fn alignment(file: &File) -> std::result::Result<Alignment, rustix::io::Errno> {
    let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match known {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => match stat.stx_dio_offset_align {
            0 => Err(rustix::io::Errno::OPNOTSUPP),
            offset => Ok(Alignment { offset: offset as usize, memory: (stat.stx_dio_mem_align as usize).max(1) }),
        },
        // Before Linux 6.1, or on a file system that reports none: 4096 suits every device in use.
        _ => Ok(Alignment { offset: 4096, memory: 4096 }),
    }
}

/// The length from which on a block has huge pages of its own.
const HUGE_FROM: usize = 512 << 10;

/// Zeroed memory at an aligned address.
pub struct Block {
    address: NonNull<u8>,
    length: usize,
    memory: Memory,
}

/// Where the memory of a block is from.
enum Memory {
    /// The allocator, with this layout.
    Allocated(Layout),
    /// A huge page that several blocks share.
    Piece(Piece),
}

// SAFETY: the block is owned memory without ties to a thread.
unsafe impl Send for Block {}

impl Block {
    /// `length` bytes (at least 1) at a multiple of `alignment` and of 4096. From 32 KiB on they are a piece of a huge page
    /// and from 512 KiB on huge pages of their own, where the system grants them: a transfer into scattered small pages has
    /// a segment for each, which the device carries out one by one, and is split where it takes fewer (`queue/max_segments`).
    ///
    /// Errors: Io where memory is short.
    pub fn new(length: usize, alignment: usize) -> Result<Block> {
        let length = length.max(1);
        if (pieces::FROM..HUGE_FROM).contains(&length) && alignment <= pieces::PIECE {
            let piece = pieces::take(length)?;
            return Ok(Block { address: piece.address(), length, memory: Memory::Piece(piece) }.zeroed());
        }
        let unit = if length < HUGE_FROM { 4096 } else { HUGE };
        let alignment = alignment.next_power_of_two().max(unit);
        let length = if unit == HUGE { length.next_multiple_of(HUGE) } else { length };
        let layout = Layout::from_size_align(length, alignment)
            .map_err(|_| Error::Invalid(format!("cannot make a buffer of {length} bytes aligned to {alignment}")))?;
        // SAFETY: the layout's size is not zero.
        let address = unsafe { alloc(layout) };
        if unit == HUGE && !address.is_null() {
            // SAFETY: the range is ours alone and not in use yet; where the advice is refused, small pages serve.
            unsafe { libc::madvise(address.cast(), length, libc::MADV_HUGEPAGE) };
        }
        let address = NonNull::new(address).ok_or_else(|| pieces::short(length))?;
        Ok(Block { address, length, memory: Memory::Allocated(layout) }.zeroed())
    }

    /// Itself, its bytes written for the first time.
    fn zeroed(self) -> Block {
        // SAFETY: `length` bytes from there on are ours.
        unsafe { self.address.write_bytes(0, self.length) };
        self
    }

    /// Makes the block at least `length` long; its content is lost where it has to grow.
    ///
    /// Errors: Io where memory is short.
    pub fn reserve(&mut self, length: usize, alignment: usize) -> Result<()> {
        if self.length < length {
            *self = Block::new(length, alignment)?;
        }
        Ok(())
    }

    /// Gives its memory up for ever, because the kernel may still write there. What stays is a small block, where there is memory.
    pub fn forget(&mut self) {
        if let Ok(nothing) = Block::new(1, 4096) {
            std::mem::forget(std::mem::replace(self, nothing));
        }
    }

    /// Its first byte, for the kernel to transfer from and to.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// A part of its bytes, without touching the rest, which the kernel may be filling.
    ///
    /// Panics past the end.
    pub fn part(&self, range: Range<usize>) -> &[u8] {
        self.check(&range);
        // SAFETY: a part of owned, initialised (zeroed) memory.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().add(range.start), range.len()) }
    }

    /// A part of its bytes for writing.
    ///
    /// Panics past the end.
    pub fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.check(&range);
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().add(range.start), range.len()) }
    }

    fn check(&self, range: &Range<usize>) {
        let all = self.length;
        assert!(range.start <= range.end && range.end <= all, "the part {range:?} is not in a block of {all} bytes");
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: owned, initialised (zeroed) memory of this length.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }

    /// Its bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.length) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.memory {
            // SAFETY: allocated with this layout, freed once.
            Memory::Allocated(layout) => unsafe { dealloc(self.address.as_ptr(), layout) },
            Memory::Piece(ref piece) => pieces::give_back(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_grows_and_stays_aligned() {
        let mut block = Block::new(10, 512).unwrap();
        block.reserve(1 << 20, 512).unwrap();

        assert!(block.bytes().len() >= 1 << 20);
        assert_eq!(block.bytes().as_ptr() as usize % 4096, 0);
        assert!(block.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn memory_that_was_used_before_is_zeroed_and_given_back() {
        for length in [12 << 10, 64 << 10, 256 << 10] {
            for _ in 0..200 {
                let mut block = Block::new(length, 4096).unwrap();
                assert!(block.bytes().iter().all(|byte| *byte == 0), "{length}");
                block.bytes_mut().fill(7);
            }
        }
        assert!(pieces::held() < 25 << 20, "{} bytes are held by blocks that are gone", pieces::held());
    }

    #[test]
    fn blocks_of_a_few_pages_share_a_huge_page_and_begin_as_zeros() {
        let mut first = Block::new(64 << 10, 512).unwrap();
        first.bytes_mut().fill(7);
        let where_it_was = first.bytes().as_ptr();
        let second = Block::new(32 << 10, 4096).unwrap();
        let distance = (second.bytes().as_ptr() as usize).abs_diff(where_it_was as usize);
        drop(first);
        let third = Block::new(64 << 10, 512).unwrap();

        assert_eq!(second.bytes().as_ptr() as usize % pieces::PIECE, 0);
        assert!(distance >= 32 << 10, "{distance}");
        assert_eq!(third.bytes().len(), 64 << 10);
        assert!(third.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_forgotten_block_keeps_its_piece_for_ever() {
        let mut block = Block::new(256 << 10, 4096).unwrap();
        let forgotten = block.bytes().as_ptr() as usize;
        block.forget();
        let later: Vec<_> = (0..16).map(|_| Block::new(256 << 10, 4096).unwrap()).collect();

        assert!(later.iter().all(|other| (other.bytes().as_ptr() as usize).abs_diff(forgotten) >= 256 << 10));
    }
}
