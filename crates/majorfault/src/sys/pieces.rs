//! Pieces of huge pages, for buffers of direct I/O that are too small for one of their own.
//!
//! A buffer of 64 KiB in small pages is sixteen segments for the device, in a huge page it is one. Two MiB for each such
//! buffer would be dear where many threads have one within a memory limit, so that they share.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The size of a huge page.
pub const HUGE: usize = 2 << 20;
/// What is given out is a multiple of this, aligned to it.
pub const PIECE: usize = 32 << 10;
/// The length from which on a piece is better than small pages: a buffer of 16 KiB was not measurably slower in them.
pub const FROM: usize = PIECE / 2 + 1;

const PAGE: Layout = match Layout::from_size_align(HUGE, HUGE) {
    Ok(layout) => layout,
    Err(_) => panic!("a huge page has a layout"),
};

/// The huge pages of this process that have pieces in use.
static PAGES: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// A huge page and its pieces in use, a bit for each.
struct Shared {
    address: NonNull<u8>,
    used: u64,
}

// SAFETY: owned memory without ties to a thread.
unsafe impl Send for Shared {}

/// Some neighbouring pieces of one page.
pub struct Piece {
    page: NonNull<u8>,
    first: u32,
    bits: u64,
}

impl Piece {
    /// Its first byte.
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: inside the page, which is not given back while a piece of it is in use.
        unsafe { self.page.add(self.first as usize * PIECE) }
    }
}

/// At least `length` bytes (at most a huge page), not initialised, until they are given back.
///
/// Errors: Io where memory is short.
pub fn take(length: usize) -> Result<Piece> {
    let count = length.div_ceil(PIECE).clamp(1, 64) as u32;
    let bits = u64::MAX >> (64 - count);
    let mut pages = pages();
    for page in pages.iter_mut() {
        if let Some(first) = (0..=64 - count).find(|first| page.used & (bits << first) == 0) {
            page.used |= bits << first;
            return Ok(Piece { page: page.address, first, bits: bits << first });
        }
    }
    // SAFETY: the layout's size is not zero.
    let address = NonNull::new(unsafe { alloc(PAGE) }).ok_or_else(|| short(HUGE))?;
    // SAFETY: the range is ours alone and not in use yet; where the advice is refused, small pages serve, each when it is first written.
    unsafe { libc::madvise(address.as_ptr().cast(), HUGE, libc::MADV_HUGEPAGE) };
    pages.push(Shared { address, used: bits });
    Ok(Piece { page: address, first: 0, bits })
}

/// What `take` gave is free again; its page goes back to the system with its last piece.
pub fn give_back(piece: &Piece) {
    let mut pages = pages();
    let Some(index) = pages.iter().position(|page| page.address == piece.page) else { return };
    pages[index].used &= !piece.bits;
    if pages[index].used == 0 {
        let page = pages.swap_remove(index);
        // SAFETY: allocated with this layout, and no piece of it is in use.
        unsafe { dealloc(page.address.as_ptr(), PAGE) };
    }
}

/// Bytes of the huge pages that have pieces in use.
#[cfg(test)]
pub fn held() -> usize {
    pages().len() * HUGE
}

/// The error of `length` bytes that cannot be had.
pub fn short(length: usize) -> Error {
    Error::io(format!("allocate {length} bytes of memory"), "malloc", rustix::io::Errno::NOMEM)
}

/// Nothing under the lock panics between two states that belong together.
fn pages() -> MutexGuard<'static, Vec<Shared>> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pieces_never_overlap_and_come_back() {
        // More than two pages' worth, of uneven lengths, every second one given back meanwhile.
        let mut held: Vec<(Piece, usize)> = Vec::new();
        for round in 0..300 {
            let length = [20 << 10, 64 << 10, 100 << 10, 511 << 10][round % 4];
            held.push((take(length).unwrap(), length));
            if round % 2 == 1 {
                let (piece, _) = held.remove(round / 5 % held.len());
                give_back(&piece);
            }
        }
        let mut seen = BTreeSet::new();
        for (piece, length) in &held {
            let begin = piece.address().as_ptr() as usize;
            assert_eq!(begin % PIECE, 0);
            for at in (begin..begin + length).step_by(PIECE) {
                assert!(seen.insert(at / PIECE), "a piece was given out twice");
            }
        }
        for (piece, _) in &held {
            give_back(piece);
        }
    }
}
