//! The buffer pool as an access method: every reader of it shares one pool.

use super::fill::{self, Arrivals};
use super::{Handle, Inner, Pool, PoolLayout};
use crate::access::{self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Visitor};
use crate::access::{DirectOptions, PreadOptions, UringOptions};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::params::{Params, Switch};
use crate::sys::pages::Shared;
use crate::sys::ring::IO_URING;
use crate::units::Bytes;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// The access method `pool`.
pub const METHOD: Method = Method {
    name: "pool",
    summary: "a buffer pool of our own: pages at fixed addresses, filled by io_uring, evicted in batches",
    needs: &[],
    class: Class::Pool,
    hints: Hints::Own,
    depth: Some("depth"),
    budget: Some("memory"),
    direct: DirectIo::Given,
    params: PoolOptions::declared,
    open: access::by_names::<PoolOptions>,
};

crate::params! {
    /// How large the pool is, and how it is filled.
    #[non_exhaustive]
    pub struct PoolOptions {
        /// Memory for pages. A cgroup's limit must leave room for it.
        memory: Bytes = Bytes::mib(64),
        /// Bytes of a page, 4k to 2m; larger pages read more than was asked for.
        page: Bytes = Bytes::kib(4),
        /// Reads kept in flight by each thread.
        depth: u32 = 32,
        /// Past the page cache, so that nothing is cached twice.
        direct: Switch = Switch::On,
        /// Pages evicted at once; 256 make one TLB flush cheap for each page.
        batch: u32 = 256,
    }
}

struct PoolReader {
    handle: Handle,
    target: Arc<Target>,
}

impl MethodOptions for PoolOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let settings = self.given();
        let (handle, notes) = self.fill(&target)?;
        let reader = PoolReader { handle, target: Arc::clone(&target) };
        Ok(Opened::new(Box::new(reader), target, settings, notes))
    }
}

impl PoolOptions {
    /// Opens a file for reading, behind a pool of its own. For another thread use [`Handle::sibling`]; for several files, a part
    /// of one, or writing see [`handle`](PoolOptions::handle).
    ///
    /// Errors: Invalid (an empty file, a folder, a page size or memory that cannot be used), Io.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Handle> {
        self.handle(access::for_reading(path.as_ref())?)
    }

    /// Puts a pool in front of `target`.
    ///
    /// Errors: Invalid (a page size or memory that cannot be used), Io.
    pub fn handle(self, target: Arc<Target>) -> Result<Handle> {
        self.fill(&target).map(|(handle, _)| handle)
    }

    /// A pool with the reader that fills it, and notes on what was not granted.
    fn fill(self, target: &Arc<Target>) -> Result<(Handle, Vec<String>)> {
        let PoolOptions { memory, page, depth, direct, batch } = self;
        let mut notes = Vec::new();
        let below = match IO_URING.met() {
            Ok(()) => UringOptions::default().depth(depth).direct(direct).open_target(Arc::clone(target))?,
            Err(missing) => {
                notes.push(format!("filled one page at a time: {missing}"));
                match direct {
                    Switch::On => DirectOptions::default().open_target(Arc::clone(target))?,
                    Switch::Off => PreadOptions::default().open_target(Arc::clone(target))?,
                }
            }
        };
        notes.extend(below.notes);
        let transfer = transfer(target, page)?;
        let pool = Pool::new(target.len(), PoolLayout { memory, page, batch, transfer })?;
        Ok((pool.handle(below.reader), notes))
    }
}

/// The most bytes that one read may bring: a divisor of the stripe of several files.
///
/// Errors: Invalid (a page size that does not divide the stripe).
pub(super) fn transfer(target: &Target, page: Bytes) -> Result<Bytes> {
    let most = PoolLayout::default().transfer;
    if target.files().len() == 1 {
        return Ok(most);
    }
    if target.stripe() % page.0.max(1) != 0 {
        return Err(Error::Invalid(format!("page={page} does not divide the stripe of {}", Bytes(target.stripe()))));
    }
    // The largest power of two that divides it.
    Ok(Bytes(1 << target.stripe().trailing_zeros()).min(most))
}

/// Shows extents as their pages arrive.
struct Showing<'p, 'v> {
    extents: &'v [Extent],
    /// Index of the first extent in the whole visit.
    first: usize,
    page: u64,
    /// For each page asked for: its extent, and the page's position in the extent.
    parts: &'v [(usize, usize)],
    /// For each extent of several pages: the pages that arrived.
    came: Vec<Vec<Option<Shared<'p>>>>,
    visitor: &'v mut dyn Visitor,
}

impl<'p> Arrivals<'p> for Showing<'p, '_> {
    fn submitted(&mut self, index: usize) {
        let (extent, part) = self.parts[index];
        if part == 0 {
            self.visitor.submitted(self.first + extent);
        }
    }

    fn ready(&mut self, index: usize, page: Shared<'p>) -> ControlFlow<()> {
        let (number, part) = self.parts[index];
        let extent = self.extents[number];
        let begin = (extent.offset % self.page) as usize;
        let came = &mut self.came[number];
        if came.is_empty() {
            return self.visitor.see(self.first + number, &page[begin..begin + extent.length]);
        }
        came[part] = Some(page);
        if came.iter().any(Option::is_none) {
            return ControlFlow::Continue(());
        }
        let all = std::mem::take(came).into_iter().flatten().reduce(|mut first, next| {
            first.extend(next);
            first
        });
        match all {
            Some(pages) => self.visitor.see(self.first + number, &pages[begin..begin + extent.length]),
            None => ControlFlow::Continue(()),
        }
    }
}

thread_local! {
    /// The pools that this thread visits just now, by address: it may hold pages of theirs.
    static VISITED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread visits a pool while it lives. Ends in reverse order of its beginning, as visits are nested.
struct Visiting;

impl Visiting {
    fn begin(pool: &Inner) -> Visiting {
        VISITED.with_borrow_mut(|visited| visited.push(address(pool)));
        Visiting
    }
}

impl Drop for Visiting {
    fn drop(&mut self) {
        VISITED.with_borrow_mut(Vec::pop);
    }
}

fn address(pool: &Inner) -> usize {
    std::ptr::from_ref(pool) as usize
}

/// Fails where somebody holds a page while this thread is shown others, or this one: waiting for it might never end.
fn check_waiting(pool: &Inner, number: u64) -> Result<()> {
    let visits = VISITED.with_borrow(|visited| visited.contains(&address(pool)));
    if visits && pool.memory.lock(number).is_err() {
        return Err(Error::Invalid(format!(
            "page {number} of the pool is in use, and this thread is shown pages of the same pool just now, so that waiting \
             might never end; return from the visit first"
        )));
    }
    Ok(())
}

impl PoolReader {
    /// How many of `extents` are fetched together: as many as there is room for.
    fn chunk(&self, extents: &[Extent]) -> usize {
        let page = self.handle.pool.page_size() as u64;
        let room = self.handle.pool.shared.chunk() as u64;
        let mut pages = 0;
        let fits = extents.iter().take_while(|extent| {
            pages += (extent.offset % page + extent.length as u64).div_ceil(page);
            pages <= room
        });
        fits.count().max(1)
    }
}

impl Reader for PoolReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        let page = self.handle.pool.page_size() as u64;
        let _visiting = Visiting::begin(&self.handle.pool.shared);
        let mut first = 0;
        while first < extents.len() {
            let chunk = &extents[first..first + self.chunk(&extents[first..])];
            let mut pages = Vec::with_capacity(chunk.len());
            let mut parts = Vec::with_capacity(chunk.len());
            let mut came = Vec::with_capacity(chunk.len());
            for (number, extent) in chunk.iter().enumerate() {
                self.target.locate(*extent)?;
                let range = extent.offset / page..(extent.offset + extent.length as u64).div_ceil(page);
                let count = (range.end - range.start) as usize;
                came.push(if count > 1 { (0..count).map(|_| None).collect() } else { Vec::new() });
                parts.extend((0..count).map(|part| (number, part)));
                pages.extend(range);
            }
            let Handle { pool, reader, .. } = &mut self.handle;
            let mut showing = Showing { extents: chunk, first, page, parts: &parts, came, visitor };
            if fill::bring(&pool.shared, reader.as_mut(), &pages, &mut showing)?.is_break() {
                return Ok(());
            }
            first += chunk.len();
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        update(&mut self.handle, &self.target, extents, filler)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        check_update(&self.handle, &self.target, extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.handle.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let handle = self.handle.pool.handle(self.handle.reader.sibling()?);
        Ok(Box::new(PoolReader { handle, target: Arc::clone(&self.target) }))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: access::Urgency) -> Result<()> {
        expect(&mut self.handle, &self.target, extents)
    }
}

/// Fails where a page of `extent` could never be written.
pub(super) fn check_update(handle: &Handle, target: &Target, extent: Extent) -> Result<()> {
    target.locate(extent)?;
    let page = handle.pool.page_size() as u64;
    let mut pages = extent.offset / page..(extent.offset + extent.length as u64).div_ceil(page);
    pages.try_for_each(|number| handle.check_change(number))
}

/// Sets the bytes of `extents`, page by page.
pub(super) fn update(handle: &mut Handle, target: &Target, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
    let page = handle.pool.page_size() as u64;
    let mut bytes = Vec::new();
    for (index, extent) in extents.iter().enumerate() {
        check_update(handle, target, *extent)?;
        let mut numbers = extent.offset / page..(extent.offset + extent.length as u64).div_ceil(page);
        numbers.try_for_each(|number| check_waiting(&handle.pool.shared, number))?;
        filler.submitted(index);
        bytes.resize(extent.length, 0);
        let flow = filler.fill(index, &mut bytes);
        let mut done = 0;
        while done < extent.length {
            let at = extent.offset + done as u64;
            let (number, within) = (at / page, (at % page) as usize);
            let whole = handle.pool.shared.extent(number).length;
            let part = (whole - within).min(extent.length - done);
            let put = |held: &mut [u8]| held[within..within + part].copy_from_slice(&bytes[done..done + part]);
            if part == whole {
                handle.replace(number, put)?
            } else {
                handle.change(number, put)?
            }
            done += part;
        }
        filler.written(index);
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

/// Reads those pages of `extents` that are not in use, as far as there is room; a hint is no reason to fail.
pub(super) fn expect(handle: &mut Handle, target: &Target, extents: &[Extent]) -> Result<()> {
    let page = handle.pool.page_size() as u64;
    let mut pages = Vec::with_capacity(extents.len());
    for extent in extents {
        target.locate(*extent)?;
        pages.extend(extent.offset / page..(extent.offset + extent.length as u64).div_ceil(page));
    }
    match handle.will_need(&pages) {
        Err(Error::Invalid(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Layout;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn a_pool_that_fills_itself_shows_the_file_to_every_thread() {
        let file = TestFile::on_disk(40 * PAGE);
        let mut handle = Pool::options().memory(Bytes::kib(128)).open(file.path()).unwrap();
        let mut other = handle.sibling().unwrap();

        for number in 0..40 {
            let content = &file.content()[number as usize * PAGE..][..PAGE];
            assert!(handle.pin(number).unwrap()[..] == *content);
            assert!(other.pin(number).unwrap()[..] == *content);
        }

        let pool = handle.pool();
        assert_eq!((pool.len(), pool.page_size(), pool.page_count()), (40 * PAGE as u64, PAGE, 40));
        assert_eq!((pool.metrics().misses, pool.metrics().hits), (40, 40), "both look into one pool");
        assert!(pool.metrics().evicted > 0, "in 32 pages");
    }

    #[test]
    fn a_visitor_that_changes_what_it_is_shown_gets_an_error_instead_of_waiting() {
        let file = TestFile::on_disk(8 * PAGE);
        let opened = Pool::options().direct(false).open_target(file.target(true)).unwrap();
        let mut one = opened.reader;
        let mut other = one.sibling().unwrap();
        let pages = |first: u64, count: usize| [Extent { offset: first * PAGE as u64, length: count * PAGE }];
        let fill = &mut |_: usize, bytes: &mut [u8]| bytes.fill(7);
        let mut outcomes = Vec::new();

        one.visit_with(&pages(2, 2), |_, shown| {
            outcomes =
                [(1, 1), (1, 2), (3, 1), (4, 1)].map(|(first, count)| other.update(&pages(first, count), fill)).into();
            assert!(shown == &file.content()[2 * PAGE..4 * PAGE]);
        })
        .unwrap();

        let refused = outcomes.iter().map(|outcome| matches!(outcome, Err(Error::Invalid(_)))).collect::<Vec<_>>();
        assert_eq!(refused, [false, true, true, false], "{outcomes:?}");
        other.update(&pages(2, 1), fill).unwrap();
        assert!(VISITED.with_borrow(Vec::is_empty));
    }

    fn pages(first: u64, count: usize) -> Extent {
        Extent { offset: first * PAGE as u64, length: count * PAGE }
    }

    /// A reader of a pool of 32 pages, which fetches four at a time.
    fn small(file: &TestFile, write: bool) -> PoolReader {
        let target = file.target(write);
        let handle = Pool::options().memory(Bytes::kib(128)).direct(false).handle(Arc::clone(&target)).unwrap();
        PoolReader { handle, target }
    }

    #[test]
    fn a_visitor_may_wait_for_a_page_of_another_pool() {
        let files = [(); 2].map(|()| TestFile::on_disk(8 * PAGE));
        let [mut one, mut other] = files.each_ref().map(|file| small(file, true));
        other.handle.fetch(&[3]).unwrap();
        let pool = other.handle.pool().clone();
        let mut held = pool.try_pin(3).ok();
        let mut outcome = None;

        let mut shown = |_: usize, _: &[u8]| {
            let mut fill = |_: usize, bytes: &mut [u8]| {
                // Until here somebody held it.
                held = None;
                bytes.fill(7);
            };
            outcome = Some(other.update(&[pages(3, 1)], &mut fill));
        };
        one.visit(&[pages(3, 1)], &mut shown).unwrap();

        outcome.unwrap().unwrap();
        assert_eq!(other.handle.pin(3).unwrap()[..], [7; PAGE]);
    }

    #[test]
    fn a_transfer_divides_the_stripe_of_several_files() {
        let files = [(); 2].map(|()| TestFile::on_disk(128 * PAGE));
        let paths = files.each_ref().map(|file| file.path().to_owned());
        let of_stripe = |stripe: u64, page: u64| {
            let layout = Layout { stripe: Bytes::kib(stripe), ..Layout::default() };
            transfer(&Target::open(&paths, &layout).unwrap(), Bytes::kib(page)).ok()
        };

        assert_eq!(of_stripe(12, 4), Some(Bytes::kib(4)), "the largest power of two that divides it");
        assert_eq!(of_stripe(12, 8), None, "a page would lie in two files");
        assert_eq!((of_stripe(64, 16), of_stripe(64, 64)), (Some(Bytes::kib(64)), Some(Bytes::kib(64))));
        assert_eq!(of_stripe(512, 4), Some(Bytes::kib(256)), "no longer than without stripes");
        assert_eq!(transfer(&files[0].target(false), Bytes::kib(4)).unwrap(), Bytes::kib(256));
    }

    #[test]
    fn every_extent_is_told_and_shown_by_its_place_in_the_visit() {
        #[derive(Default)]
        struct Events {
            told: Vec<usize>,
            shown: Vec<(usize, Vec<u8>)>,
        }
        impl Visitor for Events {
            fn submitted(&mut self, index: usize) {
                self.told.push(index);
            }
            fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
                self.shown.push((index, bytes.to_vec()));
                ControlFlow::Continue(())
            }
        }
        let file = TestFile::on_disk(32 * PAGE);
        let parts = [(0, PAGE), (PAGE + 100, 2 * PAGE), (9 * PAGE - 1, 2), (12 * PAGE, 3 * PAGE), (20 * PAGE + 7, 9)];
        let extents = parts.map(|(offset, length)| Extent { offset: offset as u64, length });
        let mut events = Events::default();

        small(&file, false).visit(&extents, &mut events).unwrap();

        events.told.sort_unstable();
        events.shown.sort_unstable();
        assert_eq!(events.told, [0, 1, 2, 3, 4]);
        let expected = parts.map(|(at, length)| file.content()[at..at + length].to_vec());
        assert!(events.shown == expected.into_iter().enumerate().collect::<Vec<_>>());
    }

    #[test]
    fn extents_are_fetched_together_as_far_as_their_pages_have_room() {
        let file = TestFile::on_disk(64 * PAGE);
        let reader = small(&file, false);
        let across = |first: u64| Extent { offset: first * PAGE as u64 + 100, length: PAGE };

        assert_eq!(reader.chunk(&[10, 20, 30, 40, 50].map(|first| pages(first, 1))), 4);
        assert_eq!(reader.chunk(&[10, 20, 30].map(across)), 2, "each takes two pages");
        assert_eq!(reader.chunk(&[pages(40, 2), across(50), pages(0, 1)]), 2);
        assert_eq!(reader.chunk(&[pages(40, 10), pages(0, 1)]), 1, "more than there is room for, but no less than one");
    }

    #[test]
    fn what_could_never_be_written_is_refused_before_it_is_changed() {
        let file = TestFile::on_disk(8 * PAGE);
        let is_refused = |reader: &PoolReader, extent| matches!(reader.check_update(extent), Err(Error::Invalid(_)));
        let (reading, writing) = (small(&file, false), small(&file, true));

        for extent in [pages(0, 1), pages(1, 1), pages(7, 1), Extent { offset: PAGE as u64 + 100, length: 1 }] {
            assert!(is_refused(&reading, extent) && !is_refused(&writing, extent), "{extent:?}");
        }
        assert!(is_refused(&writing, pages(7, 2)) && is_refused(&writing, pages(8, 1)), "past the end");
    }

    #[test]
    fn the_pages_of_a_hint_are_there_later_and_no_others() {
        let file = TestFile::on_disk(16 * PAGE);
        let mut reader = small(&file, false);
        let across = Extent { offset: 6 * PAGE as u64 - 1, length: 2 };

        reader.will_need(&[pages(2, 1), across, pages(15, 1)], access::Urgency::Soon).unwrap();

        let pool = reader.handle.pool();
        let there: Vec<u64> = (0..16).filter(|number| pool.try_pin(*number).is_ok()).collect();
        assert_eq!(there, [2, 5, 6, 15]);
        let refused = reader.will_need(&[pages(16, 1)], access::Urgency::Soon);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }

    #[test]
    fn a_pool_before_a_writable_target_can_be_changed() {
        let file = TestFile::on_disk(2 * PAGE);
        let mut handle = Pool::options().direct(false).handle(file.target(true)).unwrap();

        handle.change(1, |bytes| bytes[..3].fill(9)).unwrap();
        handle.sync().unwrap();

        assert_eq!(std::fs::read(file.path()).unwrap()[PAGE..PAGE + 3], [9; 3]);
        let mut reading = Pool::options().open(file.path()).unwrap();
        assert!(matches!(reading.change(1, |_| ()), Err(Error::Invalid(_))));
    }
}
