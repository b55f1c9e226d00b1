//! By system calls of every kernel: files are opened ahead of their turn, the kernel is told to read those that are not cached, and
//! each is read when its turn comes.

use super::See;
use super::whole::{Found, WholeFile};
use crate::error::Result;
use crate::sys::cache::{self, FileAdvice};
use std::collections::VecDeque;
use std::path::Path;

/// Opens and hints ahead.
pub(super) struct OpenedAhead {
    depth: usize,
    whole: WholeFile,
}

impl OpenedAhead {
    pub(super) fn new(depth: usize, whole: WholeFile) -> OpenedAhead {
        OpenedAhead { depth, whole }
    }

    /// Shows `count` files, of which `path` gives the names.
    pub(super) fn visit<'a>(&mut self, count: usize, path: &dyn Fn(usize) -> &'a Path, see: &mut See<'_>) {
        let mut waiting: VecDeque<(usize, Result<Found>)> = VecDeque::with_capacity(self.depth);
        let mut next = 0;
        while next < count || !waiting.is_empty() {
            while next < count && waiting.len() < self.depth {
                let found = Found::open(path(next));
                // What is cached, with nothing before it, is shown at once: a warm file costs what it costs alone.
                let at_once = found.as_ref().ok().filter(|_| waiting.is_empty());
                match at_once.and_then(|found| self.whole.cached(found)) {
                    Some(bytes) => {
                        if see(next, Ok(bytes)).is_break() {
                            return;
                        }
                    }
                    None => {
                        // Only a hint: the read that follows finds what is wrong.
                        let _ = found.as_ref().map(|found| cache::fadvise(found.file(), 0, 0, FileAdvice::WillNeed));
                        waiting.push_back((next, found));
                    }
                }
                next += 1;
            }
            let Some((index, found)) = waiting.pop_front() else { return };
            let content = found.and_then(|found| self.whole.read(path(index), &found));
            if see(index, content).is_break() {
                return;
            }
        }
    }
}
