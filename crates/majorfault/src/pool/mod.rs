//! A buffer pool: pages of files in a memory budget, reached by number, evicted by a clock, written behind.
//!
//! After vmcache (Leis et al., SIGMOD 2023): one reserved address range as long as the files. A page's number gives its
//! address, and a lookup reads one word. Bytes come and go through any [`Reader`]: with `uring` many pages at a time past
//! the page cache. There is no global state; one process may have several pools, and drop releases everything.
//!
//! ```no_run
//! use majorfault::Bytes;
//! use majorfault::pool::Pool;
//!
//! let mut handle = Pool::options().memory(Bytes::gib(1)).page(Bytes::kib(16)).open("data.bin")?;
//! let page = handle.pin(0)?;
//! println!("{} pages, the first begins with {}", page.len(), page[0]);
//! # Ok::<(), majorfault::Error>(())
//! ```
//!
//! An option that does not exist does not compile:
//!
//! ```compile_fail,E0599
//! let pool = majorfault::pool::Pool::options().memmory(majorfault::Bytes::gib(1)).open("data.bin");
//! ```
//!
//! Durability: changes are in memory until [`Handle::flush`] (written) or [`Handle::sync`] (on the device). A page that
//! could not be written stays dirty and in memory; the next flush or sync returns the error.

#[cfg(test)]
mod crash;
mod file;
mod fill;
mod hits;
mod method;
mod pointers;
mod queue;
#[cfg(test)]
mod tests;
mod uffd;
mod write;

use crate::access::Reader;
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::sys::pages::{Exclusive, PageMemory};
use crate::sys::resident::{ClockRing, Dirty};
use crate::units::Bytes;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use file::{PooledFile, PooledFileOptions};
pub use method::{METHOD, PoolOptions};
pub use pointers::PooledMap;
pub use uffd::{METHOD as UFFD, Uffd, UffdOptions};

pub use crate::sys::page_state::Refused;
pub use crate::sys::pages::{Optimistic, OptimisticPages, Shared};

crate::params! {
    /// How a pool over the caller's own reader is made: [`Pool::new`], [`PooledMap::new`].
    #[derive(Copy, Eq)]
    #[non_exhaustive]
    pub struct PoolLayout {
        /// Memory for pages, exceeded by a batch at most; 64 MiB are small enough for any machine.
        memory: Bytes = Bytes::mib(64),
        /// Bytes of a page: a power of two from 4 KiB to 2 MiB; the kernel's page size by default.
        page: Bytes = Bytes::kib(4),
        /// Pages evicted at once, an eighth of the pool at most; 256 make a flush of other processors' TLBs cheap for each.
        batch: u32 = 256,
        /// Bytes of neighbouring pages read or written at once at most. No transfer crosses a multiple of it: where files take turns, it has to divide their stripe.
        transfer: Bytes = Bytes::kib(256),
    }
}

/// A pool; clones share it.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Inner>,
}

struct Inner {
    memory: PageMemory,
    /// Bytes of the files; the last page may be cut short.
    length: u64,
    options: PoolLayout,
    /// Pages that the budget holds.
    room: u64,
    /// Pages in memory, or being read.
    resident: Apart<AtomicU64>,
    /// The pages in memory, in the clock's order: all but those that a thread is about to evict or to let arrive.
    ring: Apart<ClockRing>,
    /// Of these, dirty ones: while there are none, pages can be evicted without writing.
    dirty: Apart<Dirty>,
    metrics: Apart<Counts>,
    /// Hits that handles count themselves; [`Counts::hits`] has the others.
    hits: hits::HitLines,
    /// The first write that failed since the last report.
    failed: Mutex<Option<Error>>,
    /// Whether a sync failed: what was written before it may be lost, and the kernel reports that only once.
    unsure: AtomicBool,
}

/// What threads write for all, in lines of its own: else each write would take the line of what every lookup reads from all
/// other processors. 128 bytes, as processors fetch pairs of lines.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    written: AtomicU64,
    drop_calls: AtomicU64,
}

/// What a pool has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Pages found in memory.
    pub hits: u64,
    /// Pages read.
    pub misses: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages written.
    pub written: u64,
    /// Calls that gave memory back to the kernel.
    pub drop_calls: u64,
    /// Pages in memory now.
    pub resident: u64,
}

/// One thread's access to a pool: the pool, and a reader of its own that fills and writes pages.
pub struct Handle {
    pool: Pool,
    reader: Box<dyn Reader>,
    hits: hits::HandleHits,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { length, options, .. } = &*self.shared;
        let mut shown = f.debug_struct("Pool");
        shown
            .field("length", length)
            .field("options", options)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Pool {
    /// Options for opening a file through a pool that fills itself.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }

    /// A pool over `length` bytes, which the readers of its handles fill.
    ///
    /// Errors: Invalid (no bytes; a page size or a budget that cannot be used), Io (no address space).
    pub fn new(length: u64, options: PoolLayout) -> Result<Pool> {
        Pool::over(PageMemory::new, length, options)
    }

    fn over(memory: impl Fn(u64, usize) -> Result<PageMemory>, length: u64, options: PoolLayout) -> Result<Pool> {
        let page = options.page.0;
        if length == 0 {
            return Err(Error::Invalid("a pool over 0 bytes: the files need at least 1".to_owned()));
        }
        if page > 2 << 20 {
            return Err(Error::Invalid(format!("page={}: legal is a power of two from 4k to 2m", options.page)));
        }
        let memory = memory(length.div_ceil(page.max(1)), page as usize)?;
        let room = options.memory.0 / page;
        if room < 16 || options.batch == 0 {
            return Err(Error::Invalid(format!(
                "memory={}: a pool needs at least 16 pages of {}, and a batch of at least 1",
                options.memory, options.page
            )));
        }
        let shared = Inner {
            memory,
            length,
            options,
            room,
            resident: Apart::default(),
            ring: Apart::default(),
            dirty: Apart::default(),
            metrics: Apart::default(),
            hits: hits::HitLines::default(),
            failed: Mutex::new(None),
            unsure: AtomicBool::new(false),
        };
        Ok(Pool { shared: Arc::new(shared) })
    }

    /// Bytes of the files.
    pub fn len(&self) -> u64 {
        self.shared.length
    }

    /// Whether the files are empty.
    pub fn is_empty(&self) -> bool {
        self.shared.length == 0
    }

    /// A handle that reads and writes pages through `reader`; the readers of all handles must read the same bytes.
    pub fn handle(&self, reader: Box<dyn Reader>) -> Handle {
        let Inner { hits, metrics, .. } = &*self.shared;
        Handle { pool: self.clone(), reader, hits: hits.line(&metrics.hits) }
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.shared.memory.page()
    }

    /// Pages of the files.
    pub fn page_count(&self) -> u64 {
        self.shared.memory.count()
    }

    /// What the pool has done so far.
    pub fn metrics(&self) -> Metrics {
        let of_handles = self.shared.hits.sum(&self.shared.metrics.hits);
        let Counts { hits, misses, evicted, written, drop_calls } = &*self.shared.metrics;
        let [hits, misses, evicted, written, drop_calls] =
            [hits, misses, evicted, written, drop_calls].map(|count| count.load(Ordering::Relaxed));
        let resident = self.shared.resident.load(Ordering::Relaxed);
        Metrics { hits: hits + of_handles, misses, evicted, written, drop_calls, resident }
    }

    /// Notes that written data may be lost: no later sync succeeds.
    fn distrust(&self) {
        self.shared.unsure.store(true, Ordering::Release);
    }

    /// The page for reading without holding it, if it is in memory, for values that are checked afterwards.
    ///
    /// What was read counts only if [`Optimistic::is_undisturbed`] returns true afterwards; otherwise read again.
    ///
    /// Panics past the last page.
    #[inline]
    pub fn peek(&self, number: u64) -> std::result::Result<Optimistic<'_>, Refused> {
        self.optimistic().page(number)
    }

    /// The pages in memory, for many such reads: the cheapest of all ways.
    #[inline]
    pub fn optimistic(&self) -> OptimisticPages<'_> {
        self.shared.memory.optimistic()
    }

    /// The page for reading, held in memory, if it is in memory.
    ///
    /// Panics past the last page.
    #[inline]
    pub fn try_pin(&self, number: u64) -> std::result::Result<Shared<'_>, Refused> {
        self.shared.memory.share(number)
    }
}

impl Handle {
    /// A handle for another thread: the same pool, a reader of its own.
    ///
    /// Errors: as [`Reader::sibling`].
    pub fn sibling(&self) -> Result<Handle> {
        Ok(self.pool.handle(self.reader.sibling()?))
    }

    /// The pool of this handle.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The page for reading, held in memory; read first if it is absent.
    ///
    /// Errors: Invalid (past the end; every page of the budget is held), those of the reader.
    #[inline]
    pub fn pin(&mut self, number: u64) -> Result<Shared<'_>> {
        if let Some(Ok(held)) = self.pool.shared.memory.share_any(number) {
            self.hits.add();
            return Ok(held);
        }
        self.check(number)?;
        fill::pin(&self.pool.shared, self.reader.as_mut(), number)
    }

    /// Reads those of these pages that are absent, many at a time. They may be evicted again before they are used.
    ///
    /// Errors: as [`pin`](Handle::pin).
    pub fn fetch(&mut self, pages: &[u64]) -> Result<()> {
        pages.iter().try_for_each(|number| self.check(*number))?;
        pages
            .chunks(self.pool.shared.chunk())
            .try_for_each(|chunk| fill::fetch(&self.pool.shared, self.reader.as_mut(), chunk))
    }

    /// Reads these pages as a hint: pages that another thread holds or is reading are left out, so that this never waits for it.
    ///
    /// Errors: as [`pin`](Handle::pin).
    pub fn will_need(&mut self, pages: &[u64]) -> Result<()> {
        pages.iter().try_for_each(|number| self.check(*number))?;
        pages
            .chunks(self.pool.shared.chunk())
            .try_for_each(|chunk| fill::expect(&self.pool.shared, self.reader.as_mut(), chunk, fill::TOGETHER))
    }

    /// Lets `change` set the bytes of a page that nobody else holds meanwhile; read first if it is absent. The
    /// page is dirty afterwards.
    ///
    /// Errors: as [`pin`](Handle::pin); those of [`Reader::check_update`], so that nothing is changed that could never be
    /// written (a file opened for reading, say).
    pub fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.check_change(number)?;
        let mut held = fill::lock(&self.pool.shared, self.reader.as_mut(), number, fill::Content::Needed)?;
        Ok(self.pool.shared.changed(&mut held, change))
    }

    /// Like [`change`](Handle::change), for a `change` that sets every byte of the page, so that it is not read first.
    ///
    /// Errors: as [`change`](Handle::change).
    pub fn replace<T>(&mut self, number: u64, change: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.check_change(number)?;
        let mut held = fill::lock(&self.pool.shared, self.reader.as_mut(), number, fill::Content::Replaced)?;
        Ok(self.pool.shared.changed(&mut held, change))
    }

    /// Writes every page that is dirty now. Written does not mean durable: see [`sync`](Handle::sync).
    ///
    /// Errors: the first write that failed since the last report; its pages stay dirty and in memory.
    pub fn flush(&mut self) -> Result<()> {
        write::flush(&self.pool.shared, self.reader.as_mut())
    }

    /// Returns once everything changed so far is on the device.
    ///
    /// Errors: as [`flush`](Handle::flush), and those of making it durable. Once that failed, no later sync of this pool
    /// succeeds: pages written before may be lost, and a second fsync would only return success
    /// (fsync(2); PostgreSQL's "fsyncgate").
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if self.pool.shared.unsure.load(Ordering::Acquire) {
            return Err(Error::Ended(
                "an earlier sync failed, so what was written before it may be lost; open the file again and check its content"
                    .to_owned(),
            ));
        }
        self.reader.sync().inspect_err(|_| self.pool.distrust())
    }

    /// Fails where a change of the page could never be written.
    fn check_change(&self, number: u64) -> Result<()> {
        self.check(number)?;
        self.reader.check_update(self.pool.shared.extent(number))
    }

    fn check(&self, number: u64) -> Result<()> {
        let pages = self.pool.page_count();
        if number < pages {
            return Ok(());
        }
        Err(Error::Invalid(format!("there is no page {number}; there are {pages}")))
    }
}

impl Inner {
    /// The byte range of a page in the files.
    fn extent(&self, number: u64) -> Extent {
        let page = self.memory.page() as u64;
        let offset = number * page;
        Extent { offset, length: page.min(self.length - offset) as usize }
    }

    /// The bytes of `count` pages from `first` on.
    fn run(&self, first: u64, count: usize) -> Extent {
        let Extent { offset, .. } = self.extent(first);
        let last = self.extent(first + count as u64 - 1);
        Extent { offset, length: (last.offset - offset) as usize + last.length }
    }

    /// The most pages fetched at once: several threads must find room for theirs.
    fn chunk(&self) -> usize {
        (self.room / 8).clamp(1, 4096) as usize
    }

    /// Pages evicted at once.
    fn batch(&self) -> u64 {
        u64::from(self.options.batch).min(self.room / 8)
    }

    fn changed<T>(&self, held: &mut Exclusive<'_>, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let length = self.extent(held.number()).length;
        // Should the change panic, what was to be new is evicted again, and takes no room.
        let mut room = fill::Room { pool: self, taken: u64::from(!held.is_filled()), used: 0 };
        let done = change(&mut held[..length]);
        if !held.is_filled() {
            held.set_filled();
            room.used = 1;
            self.ring.arrive([held.number()]);
        }
        if !held.is_dirty() {
            held.set_dirty(true);
            self.dirty.insert(held.number());
        }
        done
    }

    fn count(&self, what: fn(&Counts) -> &AtomicU64, by: u64) {
        what(&self.metrics).fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod shared {
    use super::Inner;
    use std::mem::offset_of;

    #[test]
    fn what_lookups_read_is_in_no_line_that_misses_write() {
        let line = |offset: usize| offset / 128;
        let read =
            [offset_of!(Inner, memory), offset_of!(Inner, length), offset_of!(Inner, options), offset_of!(Inner, room)];
        let read_last = offset_of!(Inner, memory) + std::mem::size_of::<crate::sys::pages::PageMemory>() - 1;
        let mut written = [
            offset_of!(Inner, resident),
            offset_of!(Inner, ring),
            offset_of!(Inner, dirty),
            offset_of!(Inner, metrics),
        ]
        .map(line);

        assert!(read.into_iter().chain([read_last]).all(|offset| !written.contains(&line(offset))));
        written.sort_unstable();
        assert!(written.windows(2).all(|two| two[0] != two[1]), "two counts share a line: {written:?}");
    }
}
