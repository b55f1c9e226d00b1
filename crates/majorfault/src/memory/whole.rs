//! Which mapped files are in the page cache as a whole: looked at seldom, because a look walks all their pages.

use super::Region;
use crate::sys::cache;
use crate::sys::clock::monotonic;
use crate::units::Nanos;
use std::sync::Mutex;

/// A look that took a certain time is repeated only after fifty times that time: at most 2 % of a processor.
const SHARE: u64 = 50;

/// Shortest time between two looks.
const PAUSE: Nanos = Nanos(20_000_000);

/// The most files that are remembered.
const FILES: usize = 64;

/// What was found of a file.
struct Look {
    device: (u32, u32),
    inode: u64,
    is_whole: bool,
    not_before: Nanos,
}

static LOOKS: Mutex<Vec<Look>> = Mutex::new(Vec::new());

/// Whether all of the region's file is cached, as far as is known. False where the kernel does not say (before Linux 6.5, another
/// user's file).
pub(super) fn is_cached(region: &Region) -> bool {
    // Tried only: after a fork, a thread that is gone may hold it.
    let Ok(mut looks) = LOOKS.try_lock() else { return false };
    let now = monotonic();
    if let Some(known) = looks.iter().find(|look| look.is_of(region)).filter(|look| now < look.not_before) {
        return known.is_whole;
    }
    looks.retain(|look| !look.is_of(region));
    if looks.len() == FILES {
        looks.remove(0);
    }
    looks.push(Look::now(region));
    looks.last().is_some_and(|look| look.is_whole)
}

/// A page was missing: the next looks say so, too. Returns false.
pub(super) fn forget(region: &Region) -> bool {
    if let Ok(mut looks) = LOOKS.try_lock() {
        looks.iter_mut().filter(|look| look.is_of(region)).for_each(|look| look.is_whole = false);
    }
    false
}

impl Look {
    fn is_of(&self, region: &Region) -> bool {
        (self.device, self.inode) == (region.vma.device, region.vma.inode)
    }

    fn now(region: &Region) -> Look {
        let began = monotonic();
        let is_whole = is_whole(region).unwrap_or(false);
        let ended = monotonic();
        let pause = PAUSE.0.max((ended.0 - began.0) * SHARE);
        Look { device: region.vma.device, inode: region.vma.inode, is_whole, not_before: Nanos(ended.0 + pause) }
    }
}

fn is_whole(region: &Region) -> Option<bool> {
    let file = region.open().ok()?;
    let length = file.metadata().ok()?.len();
    let pages = cache::cachestat(&file, 0, 0).ok()?.cached;
    Some(pages >= length.div_ceil(rustix::param::page_size() as u64))
}
