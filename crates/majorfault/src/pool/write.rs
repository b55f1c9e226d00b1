//! Writing dirty pages: write-behind, before eviction, and on request.

use super::Inner;
use crate::access::{Filler, Reader};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::sys::page_state::Refused;
use crate::sys::pages::Exclusive;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Pages written at once in a flush.
const BATCH: usize = 256;

struct Copying<'a, 'p>(&'a [Exclusive<'p>]);

impl Filler for Copying<'_, '_> {
    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        bytes.copy_from_slice(&self.0[index][..bytes.len()]);
        ControlFlow::Continue(())
    }
}

/// Writes these pages; written pages are clean afterwards. A failure is kept for the next flush to return. The failed page
/// of a batch cannot be known, so all of the batch stay dirty.
pub(super) fn behind(pool: &Inner, reader: &mut dyn Reader, pages: &mut [Exclusive<'_>]) {
    pages.sort_by_key(Exclusive::number);
    let extents: Vec<Extent> = pages.iter().map(|held| pool.extent(held.number())).collect();
    match reader.update(&extents, &mut Copying(pages)) {
        Ok(()) => {
            pages.iter_mut().for_each(|held| held.set_dirty(false));
            pool.dirty.fetch_sub(pages.len() as u64, Ordering::Relaxed);
            pool.count(|counts| &counts.written, pages.len() as u64);
        }
        Err(error) => {
            if let Ok(mut failed) = pool.failed.lock() {
                failed.get_or_insert(error);
            }
        }
    }
}

/// Writes every dirty page, waiting for those that are held.
pub(super) fn flush(pool: &Inner, reader: &mut dyn Reader) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    for number in 0..pool.memory.count() {
        loop {
            match pool.memory.lock_dirty(number) {
                Ok(held) => batch.push(held),
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
        if batch.len() == BATCH {
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
