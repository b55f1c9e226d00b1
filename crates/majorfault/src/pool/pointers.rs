//! A pool behind plain pointers, for programs that need one: when a page that is absent is touched, a thread that
//! userfaultfd(2) notifies brings it (after UMap, Peng et al. 2019, and DI-MMAP, Van Essen et al. 2015).
#![allow(unsafe_code, reason = "the promise is given to `bytes`")]

use super::{Handle, Metrics, Pool, PoolLayout, fill};
use crate::access::Reader;
use crate::error::{Error, Result};
use crate::sys::pages::PageMemory;
use crate::sys::view::View;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The bytes of files at plain addresses, in a budget of memory.
///
/// Costs: touching an absent page takes two thread switches and a copy besides its read; touching a page that is in
/// memory costs what memory costs. Uses are not noticed, so pages are evicted in the order in which they arrived. Read-only.
/// A forked child does not have the range.
pub struct PooledMap {
    pool: Pool,
    server: Option<JoinHandle<()>>,
    /// Written to when the server thread has to end.
    end: Arc<OwnedFd>,
    failed: Arc<Failed>,
}

/// The error of a page that could not be read, and reads as zeros until it is reported.
#[derive(Default)]
struct Failed {
    first: Mutex<Option<Error>>,
    pages: Mutex<BTreeSet<u64>>,
}

impl PooledMap {
    /// Maps the first `length` bytes that `reader` reads.
    ///
    /// Errors: Missing (no userfaultfd), Invalid (no bytes; a page size or budget that cannot be used), Io (no address space,
    /// no thread).
    pub fn new(length: u64, options: PoolLayout, reader: Box<dyn Reader>) -> Result<PooledMap> {
        let pool = Pool::over(PageMemory::faulting, length, options)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let end = Arc::new(end.map_err(|error| Error::io("make a channel to a thread", "eventfd", error))?);
        let failed = Arc::new(Failed::default());
        let server = Server { handle: pool.handle(reader), end: Arc::clone(&end), failed: Arc::clone(&failed) };
        let server = std::thread::Builder::new().name("page faults".to_owned()).spawn(move || server.serve());
        let server = server.map_err(|error| Error::io("start the thread that serves faults", "clone", error))?;
        Ok(PooledMap { pool, server: Some(server), end, failed })
    }

    /// The bytes, to be read by copy; touching them brings what is absent. A page that could not be read is zeros, so call
    /// [`check`](PooledMap::check) before using them.
    pub fn view(&self) -> View<'_> {
        let inner = &self.pool.shared;
        // SAFETY: no page changes under a reader: this map has no handle that changes pages, and code that makes one over
        // `pool` keeps its changes apart from the bytes that are read.
        let all = unsafe { inner.memory.view() };
        // Always there: the pool was made over memory that faults.
        all.map_or_else(nothing, |all| all.part(0..inner.length as usize))
    }

    /// The bytes of `range` in place.
    ///
    /// Panics past the end.
    ///
    /// # Safety
    ///
    /// While the slice lives:
    ///
    /// - what the reader reads does not change: a page may be evicted and read again;
    /// - it can be read: a page that cannot be read becomes zeros, and later perhaps its content ([`check`](PooledMap::check)).
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let inner = &self.pool.shared;
        let Range { start, end } = range;
        assert!(start <= end && end as u64 <= inner.length, "the bytes {start}..{end} pass the end, {}", inner.length);
        // SAFETY: what the caller promises; pages change under no reader, as for `view`.
        unsafe { inner.memory.bytes(start, end - start) }.unwrap_or_default()
    }

    /// Fails if a page touched so far could not be read. Such pages are tried again when they are touched next.
    ///
    /// Errors: the first that happened since the last call.
    pub fn check(&self) -> Result<()> {
        let Some(error) = self.failed.first.lock().ok().and_then(|mut first| first.take()) else { return Ok(()) };
        if let Ok(mut pages) = self.failed.pages.lock() {
            let memory = &self.pool.shared.memory;
            for number in std::mem::take(&mut *pages) {
                // One that came by another way since has its bytes, or gets them just now, in place of the zeros.
                if let Ok(_held) = memory.lock_evicted(number) {
                    memory.forget(number)?;
                }
            }
        }
        Err(error)
    }

    /// What the pool has done so far.
    pub fn metrics(&self) -> Metrics {
        self.pool.metrics()
    }

    /// The pool, for code that keeps changed bytes and read bytes apart.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl fmt::Debug for PooledMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledMap").field("pool", &self.pool).finish_non_exhaustive()
    }
}

fn nothing<'m>() -> View<'m> {
    // SAFETY: no byte is read.
    unsafe { View::new(std::ptr::dangling(), 0) }
}

impl Drop for PooledMap {
    fn drop(&mut self) {
        // Cannot fail: a counter of 1 has room, and the descriptor is ours.
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// After this time it is looked again for pages that another thread was busy with.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The thread that brings pages.
struct Server {
    handle: Handle,
    end: Arc<OwnedFd>,
    failed: Arc<Failed>,
}

impl Server {
    fn serve(mut self) {
        let mut addresses = Vec::new();
        // Pages that threads wait for.
        let mut pages = Vec::new();
        let pool = self.handle.pool.clone();
        let Some(faults) = pool.shared.memory.faults() else { return };
        loop {
            let mut waited = [PollFd::new(faults, PollFlags::IN), PollFd::new(&*self.end, PollFlags::IN)];
            // An interruption only means to check again.
            let _ = poll(&mut waited, if pages.is_empty() { None } else { Some(&AGAIN) });
            if !waited[1].revents().is_empty() {
                return;
            }
            let read = faults.waiting(&mut addresses);
            pages.extend(addresses.drain(..).map(|address| pool.shared.memory.page_at(address)));
            pages.sort_unstable();
            pages.dedup();
            let brought = read.and_then(|()| fill::expect(&pool.shared, self.handle.reader.as_mut(), &pages, 1));
            // Pages that came by another way, before the thread waited for them or unannounced. Whoever brings or evicts one just now
            // wakes its threads, or is met again.
            pages.retain(|number| match pool.shared.memory.share(*number) {
                Ok(_held) => {
                    pool.shared.memory.let_go(*number, true);
                    false
                }
                Err(_) => true,
            });
            if let Err(error) = brought {
                self.give_up(error, &pages);
                pages.clear();
            }
        }
    }

    /// Releases threads that wait for pages that cannot be read, and keeps the error for `check`.
    fn give_up(&mut self, error: Error, pages: &[u64]) {
        if let Ok(mut failed) = self.failed.pages.lock() {
            failed.extend(pages);
        }
        if let Ok(mut first) = self.failed.first.lock() {
            first.get_or_insert(error);
        }
        pages.iter().for_each(|number| self.handle.pool.shared.memory.let_go(*number, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Visitor;
    use crate::files::Extent;
    use crate::sys::uffd::USERFAULTFD;
    use crate::test_files::{PAGE, TestFile};
    use crate::units::Bytes;
    use crate::{Given, methods};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn options(pages: usize) -> PoolLayout {
        PoolLayout { memory: Bytes((pages * PAGE) as u64), batch: 8, ..PoolLayout::default() }
    }

    fn below(file: &TestFile) -> Box<dyn Reader> {
        (methods::named("pread").unwrap().open)(file.target(false), &Given::none()).unwrap().reader
    }

    #[test]
    fn threads_read_a_file_eight_times_the_budget_through_pointers() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED threads_read_a_file_eight_times_the_budget_through_pointers: {missing}");
            return;
        }
        let file = TestFile::on_disk(256 * PAGE - 100);
        let length = file.content().len();
        let map = PooledMap::new(length as u64, options(32), below(&file)).unwrap();

        std::thread::scope(|scope| {
            for thread in 1..4 {
                let (map, file) = (&map, &file);
                scope.spawn(move || {
                    for turn in 0..2000 {
                        let at = (turn * 7919 * thread * PAGE / 2 + turn) % (length - 64);
                        let mut copy = [0; 64];
                        map.view().read(at, &mut copy);
                        assert_eq!(copy, file.content()[at..at + 64], "at {at}");
                        // SAFETY: nobody else knows the file.
                        assert_eq!(unsafe { map.bytes(at..at + 64) }, &file.content()[at..at + 64], "at {at}");
                    }
                });
            }
        });

        map.check().unwrap();
        let metrics = map.metrics();
        assert!(metrics.evicted > 100 && metrics.resident <= 32 + 64, "{metrics:?}");
        assert_eq!(map.view().len(), length);
    }

    /// Refuses as long as the flag is set.
    struct Refusing(Box<dyn Reader>, Arc<AtomicBool>);

    impl Reader for Refusing {
        fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
            match self.1.load(Ordering::Relaxed) {
                true => Err(Error::io("read", "the disk", std::io::Error::from_raw_os_error(libc::EIO))),
                false => self.0.visit(extents, visitor),
            }
        }
        fn sibling(&self) -> Result<Box<dyn Reader>> {
            self.0.sibling()
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_tried_again() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED what_cannot_be_read_is_told_and_tried_again: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        let refuse = Arc::new(AtomicBool::new(true));
        let reader = Box::new(Refusing(below(&file), Arc::clone(&refuse)));
        let map = PooledMap::new(64 * PAGE as u64, options(32), reader).unwrap();

        assert_eq!(map.view().part(5 * PAGE..6 * PAGE).to_vec(), [0; PAGE]);
        refuse.store(false, Ordering::Relaxed);
        assert_eq!(map.check().unwrap_err().errno(), Some(libc::EIO));

        assert_eq!(map.view().part(5 * PAGE..6 * PAGE).to_vec(), file.content()[5 * PAGE..6 * PAGE]);
        map.check().unwrap();
    }

    #[test]
    fn a_page_that_came_by_another_way_keeps_its_bytes_when_its_error_is_told() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED a_page_that_came_by_another_way_keeps_its_bytes_when_its_error_is_told: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        let reader = Box::new(Refusing(below(&file), Arc::new(AtomicBool::new(true))));
        let map = PooledMap::new(64 * PAGE as u64, options(32), reader).unwrap();
        let page = || map.view().part(5 * PAGE..6 * PAGE).to_vec();
        assert_eq!(page(), [0; PAGE]);

        map.pool().handle(below(&file)).will_need(&[5]).unwrap();
        map.check().unwrap_err();

        assert_eq!(page(), file.content()[5 * PAGE..6 * PAGE]);
    }

    /// Breaks once two pages have come.
    struct Breaking(Box<dyn Reader>);

    impl Reader for Breaking {
        fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
            self.0.visit(&extents[..2], visitor)?;
            Err(Error::io("read", "the disk", std::io::Error::from_raw_os_error(libc::EIO)))
        }
        fn sibling(&self) -> Result<Box<dyn Reader>> {
            self.0.sibling()
        }
    }

    #[test]
    fn who_waits_for_a_page_is_woken_however_the_hint_that_brings_it_ends() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED who_waits_for_a_page_is_woken_however_the_hint_that_brings_it_ends: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        // Nobody serves faults here.
        let pool = Pool::over(PageMemory::faulting, 64 * PAGE as u64, options(32)).unwrap();
        let faults = pool.shared.memory.faults().unwrap();

        std::thread::scope(|scope| {
            // SAFETY: nobody changes the page.
            let touch = || unsafe { pool.shared.memory.bytes(0, PAGE) }.unwrap().to_vec();
            let waiting = scope.spawn(touch);
            let mut addresses = Vec::new();
            while addresses.is_empty() {
                faults.waiting(&mut addresses).unwrap();
            }

            pool.handle(Box::new(Breaking(below(&file)))).will_need(&[0, 5, 9, 13]).unwrap_err();

            assert_eq!(waiting.join().unwrap(), file.content()[..PAGE]);
        });
    }

    #[test]
    fn the_thread_that_serves_faults_ends_with_its_map() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED the_thread_that_serves_faults_ends_with_its_map: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        let refuse = Arc::new(AtomicBool::new(false));
        let reader = Box::new(Refusing(below(&file), Arc::clone(&refuse)));
        let map = PooledMap::new(64 * PAGE as u64, options(32), reader).unwrap();
        assert_eq!(Arc::strong_count(&refuse), 2, "the thread has the reader");
        assert_eq!(format!("{map:?}"), format!("PooledMap {{ pool: {:?}, .. }}", map.pool()));

        drop(map);

        assert_eq!(Arc::strong_count(&refuse), 1);
    }
}
