//! Advice as two types: advice that only changes speed, and advice that discards data.

use super::MappedFile;
use crate::error::Result;
use crate::sys::advice::{self, Advice};
use std::ops::Range;

/// Advice that changes only speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmless {
    /// Back to the default: read-around on faults.
    Normal,
    /// No read-ahead. Since Linux 6.3 accesses no longer protect the pages from eviction.
    Random,
    /// A longer read-ahead; accesses do not protect the pages from eviction either.
    Sequential,
    /// Read into memory soon. The kernel reads at most one read-ahead window of the range (`read_ahead_kb`, at least 2 MiB);
    /// [`MappedFile::load`] reads all of it.
    WillNeed,
    /// First to be evicted when memory is needed (Linux 5.4).
    Cold,
}

/// Advice that discards what the process has: page table entries, and private changes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destructive {
    /// Forget the pages. Of a file mapped read-only or shared, they are read again when needed; of one mapped
    /// copy-on-write, **all changes are lost**.
    DontNeed,
    /// Evict them now (Linux 5.4); private changes go to swap.
    PageOut,
}

impl From<Harmless> for Advice {
    fn from(harmless: Harmless) -> Advice {
        match harmless {
            Harmless::Normal => Advice::Normal,
            Harmless::Random => Advice::Random,
            Harmless::Sequential => Advice::Sequential,
            Harmless::WillNeed => Advice::WillNeed,
            Harmless::Cold => Advice::Cold,
        }
    }
}

impl MappedFile {
    /// Tells the kernel how `range` will be used.
    ///
    /// Errors: Invalid (outside the mapping), Io (names the first kernel that knows the advice).
    pub fn advise(&self, range: Range<usize>, advice: Harmless) -> Result<()> {
        self.give(range, advice.into())
    }

    /// Discards what [`Destructive`] says of `range`. Takes the mapping exclusively, because nobody may be reading it.
    ///
    /// Errors: Invalid (outside the mapping), Io (names the first kernel that knows the advice).
    pub fn discard(&mut self, range: Range<usize>, advice: Destructive) -> Result<()> {
        self.give(
            range,
            match advice {
                Destructive::DontNeed => Advice::DontNeed,
                Destructive::PageOut => Advice::PageOut,
            },
        )
    }

    fn give(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        let (at, length) = self.place(&range)?;
        if length == 0 {
            return Ok(());
        }
        advice::madvise(self.map.mapping(), at, length, advice)
    }
}
