//! By chains of requests to `io_uring`, a slot for each file; what a chain cannot say for sure is read once more by system calls.

use super::whole::{Found, WholeFile};
use super::{See, SmallFilesOptions};
use crate::error::Result;
use crate::sys::chain::Chains;
use std::ffi::CString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Slots for each file under way: those that have ended wait for the one whose turn it is.
const SLOTS_EACH: u32 = 2;

/// Chains, and what is read without them.
pub(super) struct InChains {
    chains: Chains,
    depth: u32,
    piece: usize,
    whole: WholeFile,
}

impl InChains {
    /// Errors: Missing (no io_uring, no direct descriptors), Io (no memory).
    pub(super) fn new(options: &SmallFilesOptions) -> Result<InChains> {
        let SmallFilesOptions { way: _, depth, piece, largest } = options;
        let piece = piece.0.min(largest.0.max(1)) as usize;
        let chains = Chains::new(*depth, depth * SLOTS_EACH, piece)?;
        Ok(InChains { chains, depth: *depth, piece, whole: WholeFile::new(*largest) })
    }

    /// Shows `count` files, of which `path` gives the names.
    ///
    /// Errors: Io (the ring is broken), Missing.
    pub(super) fn visit<'a>(
        &mut self,
        count: usize,
        path: &dyn Fn(usize) -> &'a Path,
        see: &mut See<'_>,
    ) -> Result<()> {
        self.begin_anew()?;
        let slots = (self.depth * SLOTS_EACH) as usize;
        let (mut next, mut index) = (0, 0);
        while index < count {
            while next < count && next < index + slots && self.chains.under_way() < self.depth {
                self.begin(next % slots, path(next))?;
                next += 1;
            }
            if self.chains.is_under_way(index % slots) {
                self.chains.wait()?;
                continue;
            }
            if self.show(index, index % slots, path(index), see).is_break() {
                break;
            }
            index += 1;
        }
        self.chains.finish()
    }

    /// Leaves nothing of a visit that a panic ended; a ring belongs to one thread, so another one makes a ring of its own.
    fn begin_anew(&mut self) -> Result<()> {
        if !self.chains.is_ours() {
            self.chains = Chains::new(self.depth, self.depth * SLOTS_EACH, self.piece)?;
        }
        self.chains.finish()
    }

    fn begin(&mut self, slot: usize, path: &Path) -> Result<()> {
        match CString::new(path.as_os_str().as_bytes()) {
            Ok(path) => self.chains.begin(slot, path),
            // A name with a zero byte: reading it without a chain tells the error.
            Err(_) => {
                self.chains.skip(slot);
                Ok(())
            }
        }
    }

    fn show(&mut self, index: usize, slot: usize, path: &Path, see: &mut See<'_>) -> ControlFlow<()> {
        match self.chains.content(slot) {
            Some(bytes) => see(index, Ok(bytes)),
            None => see(index, Found::open(path).and_then(|found| self.whole.read(path, &found))),
        }
    }
}
