//! Writing dirty pages: write-behind, before eviction, and on request.

use super::{Inner, fill};
use crate::access::{Filler, Reader};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::sys::page_state::Refused;
use crate::sys::pages::Exclusive;
use std::ops::{ControlFlow, Range};

/// Puts neighbouring pages next to each other, for one transfer.
struct Copying<'a, 'p> {
    pages: &'a [Exclusive<'p>],
    /// What each transfer writes.
    runs: &'a [Range<usize>],
}

impl Filler for Copying<'_, '_> {
    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        let pages = &self.pages[self.runs[index].clone()];
        for (held, bytes) in pages.iter().zip(bytes.chunks_mut(pages[0].len())) {
            bytes.copy_from_slice(&held[..bytes.len()]);
        }
        ControlFlow::Continue(())
    }
}

/// Writes those of these pages that are dirty, by one call of the reader, neighbours together; those written are clean
/// afterwards. A failure is kept, to be told by the next flush: which page of a batch it was cannot be known, so all of the
/// batch stay dirty.
pub(super) fn behind(pool: &Inner, reader: &mut dyn Reader, pages: &mut [Exclusive<'_>]) {
    pages.sort_by_key(|held| (!held.is_dirty(), held.number()));
    let count = pages.partition_point(Exclusive::is_dirty);
    if count == 0 {
        return;
    }
    let dirty = &mut pages[..count];
    let runs = fill::runs(pool, dirty.iter().map(Exclusive::number));
    let extents: Vec<Extent> = runs.iter().map(|run| pool.run(dirty[run.start].number(), run.len())).collect();
    match reader.update(&extents, &mut Copying { pages: dirty, runs: &runs }) {
        Ok(()) => {
            pool.dirty.remove(dirty.iter().map(Exclusive::number));
            dirty.iter_mut().for_each(|held| held.set_dirty(false));
            pool.count(|counts| &counts.written, count as u64);
        }
        Err(error) => {
            if let Ok(mut failed) = pool.failed.lock() {
                failed.get_or_insert(error);
            }
        }
    }
}

/// Writes every page that is dirty now, waiting for those that are held.
pub(super) fn flush(pool: &Inner, reader: &mut dyn Reader) -> Result<()> {
    let mut batch = Vec::new();
    for number in pool.dirty.now() {
        loop {
            match pool.memory.lock_dirty(number) {
                Ok(held) => batch.push(held),
                // Written meanwhile.
                Err(Refused::Evicted) => {}
                Err(Refused::Busy) => {
                    // Its holder may wait for one of this batch's pages.
                    write_out(pool, reader, &mut batch);
                    std::thread::yield_now();
                    continue;
                }
            }
            break;
        }
        if batch.len() == pool.chunk() {
            write_out(pool, reader, &mut batch);
        }
    }
    write_out(pool, reader, &mut batch);
    take_failure(pool)
}

fn write_out(pool: &Inner, reader: &mut dyn Reader, batch: &mut Vec<Exclusive<'_>>) {
    if !batch.is_empty() {
        behind(pool, reader, batch);
        batch.clear();
    }
}

fn take_failure(pool: &Inner) -> Result<()> {
    let failed: Option<Error> = pool.failed.lock().ok().and_then(|mut failed| failed.take());
    failed.map_or(Ok(()), Err)
}
