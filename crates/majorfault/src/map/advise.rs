//! Advice as two types: what can only change speed, and what throws something away.

use super::MappedFile;
use crate::error::Result;
use crate::sys::advice::{self, Advice};
use std::ops::Range;

/// Advice that changes speed and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmless {
    /// Back to the default: read-around on faults.
    Normal,
    /// No read-ahead. Since Linux 6.3 accesses no longer protect the pages from eviction.
    Random,
    /// More read-ahead; accesses do not protect the pages, either.
    Sequential,
    /// Read into memory soon. The kernel takes at most one read-ahead window of it (`read_ahead_kb`, at least 2 MiB);
    /// [`MappedFile::load`] takes all.
    WillNeed,
    /// First to be evicted when memory is needed (Linux 5.4).
    Cold,
}

/// Advice that throws away what the process has: page table entries, and private changes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destructive {
    /// Forget the pages. Of a file mapped for reading or shared, they are read again when needed; of one mapped with
    /// copy-on-write **all changes are lost**.
    DontNeed,
    /// Evict them now (Linux 5.4); private changes go to swap.
    PageOut,
}

impl MappedFile {
    /// Advises how `range` will be used.
    ///
    /// Errors: Invalid (outside), Io with the first kernel that knows it.
    pub fn advise(&self, range: Range<usize>, advice: Harmless) -> Result<()> {
        self.give(
            range,
            match advice {
                Harmless::Normal => Advice::Normal,
                Harmless::Random => Advice::Random,
                Harmless::Sequential => Advice::Sequential,
                Harmless::WillNeed => Advice::WillNeed,
                Harmless::Cold => Advice::Cold,
            },
        )
    }

    /// Throws away what [`Destructive`] says of `range`. Exclusive, as nobody may be looking at it.
    ///
    /// Errors: Invalid (outside), Io with the first kernel that knows it.
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
