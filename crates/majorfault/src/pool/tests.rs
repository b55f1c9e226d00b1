//! The pool under stress, and on a device that fails.

use super::{Handle, Inner, Metrics, Pool, PoolLayout};
use crate::access::{self, Filler, Reader, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::Given;
use crate::sys::page_state::Seen;
use crate::test_files::{PAGE, TestFile};
use crate::units::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn below(file: &TestFile) -> Box<dyn Reader> {
    (access::plain("pread").unwrap().open)(file.target(true), &Given::none()).unwrap().reader
}

fn pool(file: &TestFile, pages: u64) -> Pool {
    let options =
        PoolLayout { memory: Bytes(pages * PAGE as u64), page: Bytes(PAGE as u64), batch: 8, ..PoolLayout::default() };
    Pool::new(file.length() as u64, options).unwrap()
}

/// Fails on request: this many updates, this many visits, this many syncs.
struct Faulty {
    below: Box<dyn Reader>,
    updates: Arc<AtomicU64>,
    visits: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
    with: i32,
}

fn takes_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

fn broken(with: i32) -> Error {
    Error::io("transfer", "a faulty device", std::io::Error::from_raw_os_error(with))
}

impl Reader for Faulty {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        if !takes_one(&self.visits) {
            return self.below.visit(extents, visitor);
        }
        // Half of them come, then the device fails.
        self.below.visit(&extents[..extents.len() / 2], visitor)?;
        Err(broken(self.with))
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        if !takes_one(&self.updates) {
            return self.below.update(extents, filler);
        }
        // A torn write: some of it reaches the file.
        self.below.update(&extents[..extents.len() / 2], filler)?;
        Err(broken(self.with))
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.below.check_update(extent)
    }

    fn sync(&mut self) -> Result<()> {
        if takes_one(&self.syncs) { Err(broken(self.with)) } else { self.below.sync() }
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let [updates, visits, syncs] = [&self.updates, &self.visits, &self.syncs].map(Arc::clone);
        Ok(Box::new(Faulty { below: self.below.sibling()?, updates, visits, syncs, with: self.with }))
    }
}

/// A handle whose reader fails this many updates, visits and syncs.
fn faulty(file: &TestFile, pool: &Pool, fails: [u64; 3], with: i32) -> Handle {
    let [updates, visits, syncs] = fails.map(|count| Arc::new(AtomicU64::new(count)));
    pool.handle(Box::new(Faulty { below: below(file), updates, visits, syncs, with }))
}

#[test]
fn threads_under_eviction_never_see_a_torn_or_foreign_page() {
    let pages = 96;
    let file = TestFile::on_disk(pages * PAGE);
    let pool = pool(&file, 40);
    let mut setup = pool.handle(below(&file));
    for number in 0..pages as u64 {
        setup.replace(number, |bytes| bytes.fill(0)).unwrap();
    }
    let changes: Vec<AtomicU64> = (0..pages).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pool, changes, file) = (&pool, &changes, &file);
            scope.spawn(move || {
                let mut handle = pool.handle(below(file));
                let mut state = thread + 1;
                for _ in 0..4_000 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let number = (state >> 33) % pages as u64;
                    if state >> 20 & 7 == 0 {
                        handle
                            .change(number, |bytes| {
                                let (words, _) = bytes.as_chunks_mut::<8>();
                                words.iter_mut().for_each(|word| *word = (u64::from_le_bytes(*word) + 1).to_le_bytes());
                            })
                            .unwrap();
                        changes[number as usize].fetch_add(1, Ordering::Relaxed);
                    } else {
                        let held = handle.pin(number).unwrap();
                        let (words, _) = held.as_chunks::<8>();
                        assert!(words.iter().all(|word| word == &words[0]), "page {number} is torn");
                    }
                }
            });
        }
    });
    setup.sync().unwrap();

    let content = std::fs::read(file.path()).unwrap();
    for (number, changed) in changes.iter().enumerate() {
        let first = u64::from_le_bytes(content[number * PAGE..][..8].try_into().unwrap());
        assert_eq!(first, changed.load(Ordering::Relaxed), "page {number} has every change that was made");
    }
    lists_agree_with_states(&pool);
    let metrics = pool.metrics();
    assert!(metrics.evicted > 1000 && metrics.resident <= 40, "{metrics:?}");
}

#[test]
fn a_page_far_from_all_others_costs_one_fault_of_its_own_and_one_of_its_word() {
    type Bring = fn(&mut Handle, &[u64]) -> Result<()>;
    let faults = || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        crate::proc::stat::process(&stat).unwrap().minor_faults
    };
    // Words of 4 KiB are those of 2 MiB of the file.
    const APART: usize = 512;
    let ways: [(&str, Bring); 2] =
        [("fetched", |handle, pages| handle.fetch(pages)), ("hinted", |handle, pages| handle.will_need(pages))];
    for (way, bring) in ways {
        let options = PoolLayout { memory: Bytes::mib(64), ..PoolLayout::default() };
        let pool = Pool::new(1 << 40, options).unwrap();
        let mut handle = pool.handle(Box::new(Zeros));
        let pages: Vec<u64> = (0..1000).map(|number| (number * 7 * APART) as u64).collect();

        let before = faults();
        bring(&mut handle, &pages).unwrap();
        let took = faults() - before;

        assert_eq!(pool.metrics().resident, 1000, "{way}");
        assert!((2000..2400).contains(&took), "{took} faults for 1000 pages {way}");
    }
}

#[test]
fn a_write_that_failed_is_told_and_nothing_is_lost() {
    for errno in [libc::EIO, libc::ENOSPC] {
        let file = TestFile::on_disk(64 * PAGE);
        let pool = pool(&file, 32);
        let mut handle = faulty(&file, &pool, [1, 0, 0], errno);
        for number in 0..8 {
            handle.change(number, |bytes| bytes.fill(0xee)).unwrap();
        }

        let first = handle.sync();
        let second = handle.sync();

        assert_eq!(first.unwrap_err().errno(), Some(errno));
        assert!(second.is_ok(), "{second:?}");
        assert!(std::fs::read(file.path()).unwrap()[..8 * PAGE].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn after_a_sync_that_failed_no_handle_promises_anything() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let (mut handle, mut other) = (faulty(&file, &pool, [0, 0, 1], libc::EIO), pool.handle(below(&file)));
    handle.change(3, |bytes| bytes.fill(0xee)).unwrap();

    assert_eq!(handle.sync().unwrap_err().errno(), Some(libc::EIO));
    let told = other.sync().unwrap_err().to_string();

    assert!(told.contains("an earlier sync failed"), "{told}");
}

#[test]
fn pages_that_cannot_be_written_are_not_evicted() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = faulty(&file, &pool, [u64::MAX, 0, 0], libc::EIO);
    for number in 0..16 {
        handle.change(number, |bytes| bytes.fill(0xdd)).unwrap();
    }
    for number in 16..256 {
        handle.pin(number).unwrap();
    }

    for number in 0..16 {
        assert!(handle.pin(number).unwrap().iter().all(|byte| *byte == 0xdd), "page {number} kept its change");
    }
    assert!(handle.sync().is_err());
}

#[test]
fn a_read_that_failed_leaves_the_page_to_be_read_again() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = faulty(&file, &pool, [0, 1, 0], libc::EIO);

    assert!(handle.fetch(&[1, 3, 5, 7]).is_err());
    assert_eq!(pool.metrics().resident, 2, "half of them came");
    handle.fetch(&[1, 3, 5, 7]).unwrap();

    assert_eq!(handle.pin(7).unwrap()[..], file.content()[7 * PAGE..8 * PAGE]);
    assert_eq!(pool.metrics().resident, 4);
}

#[test]
fn a_pool_whose_pages_are_all_held_says_so() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 16);
    let mut handle = pool.handle(below(&file));
    handle.fetch(&[0, 1]).unwrap();
    handle.fetch(&(2..16).collect::<Vec<u64>>()).unwrap();
    let held: Vec<_> = (0..16).map(|number| pool.try_pin(number).unwrap()).collect();

    let error = handle.pin(20).err().unwrap();

    assert!(error.to_string().contains("every page is held"), "{error}");
    drop(held);
    assert!(handle.pin(20).is_ok());
}

#[test]
fn a_page_past_the_end_is_refused() {
    let file = TestFile::on_disk(4 * PAGE + 9);
    let pool = pool(&file, 16);
    let mut handle = pool.handle(below(&file));

    assert_eq!(pool.page_count(), 5);
    assert_eq!(handle.pin(4).unwrap()[..9], file.content()[4 * PAGE..]);
    assert!(matches!(handle.pin(5), Err(Error::Invalid(_))));
}

#[test]
fn breaking_off_leaves_no_page_held() {
    let file = TestFile::on_disk(64 * PAGE);
    let given: Given = "memory=256k".parse().unwrap();
    let mut opened = (super::METHOD.open)(file.target(false), &given).unwrap();
    let extents: Vec<Extent> = (0..64).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
    struct First;
    impl Visitor for First {
        fn see(&mut self, _: usize, _: &[u8]) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    for _ in 0..10 {
        opened.reader.visit(&extents, &mut First).unwrap();
    }

    let mut seen = 0;
    opened.reader.visit(&extents, &mut |_: usize, _: &[u8]| seen += 1).unwrap();
    assert_eq!(seen, 64);
}

#[test]
fn what_is_expected_is_there_later_and_a_page_in_other_hands_is_not_waited_for() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let (mut handle, mut other) = (pool.handle(below(&file)), pool.handle(below(&file)));

    handle
        .change(3, |_| other.will_need(&[2, 3, 4]))
        .expect("the page can be changed")
        .expect("the pages beside it can be read meanwhile");

    assert!(pool.try_pin(2).is_ok() && pool.try_pin(4).is_ok());
    assert_eq!(pool.metrics().misses, 3);
}

#[test]
fn every_policy_around_a_small_pool_shows_the_bytes_of_the_file() {
    let file = TestFile::on_disk(256 * PAGE);
    let pages = |stride: usize| (0..256).map(move |row| (row * stride % 256 * PAGE) as u64);
    for policy in ["window", "whole", "strided,stride=12k", "learned", "thread"] {
        let given: Given = format!("memory=128k,policy={policy}").parse().unwrap();
        let opened = crate::prefetch::open(&super::METHOD, file.target(false), &given).unwrap();
        let readers = (0..3).map(|_| opened.reader.sibling().unwrap());
        let visit = |mut reader: Box<dyn Reader>, together: usize| {
            let extents: Vec<Extent> = pages(3).map(|offset| Extent { offset, length: PAGE }).collect();
            let mut seen = 0;
            for some in extents.chunks(together) {
                let mut see = |index: usize, bytes: &[u8]| {
                    let begin = some[index].offset as usize;
                    seen += usize::from(*bytes == file.content()[begin..begin + PAGE]);
                };
                reader.visit(some, &mut see).unwrap();
            }
            seen
        };
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let visits: Vec<_> = readers
                .zip([1, 7, 256])
                .map(|(reader, together)| scope.spawn(move || visit(reader, together)))
                .collect();
            visits.into_iter().map(|visit| visit.join().unwrap()).collect()
        });

        assert_eq!(seen, [256; 3], "{policy}");
    }
}

#[test]
fn hints_to_a_pool_are_given_by_a_helper() {
    let file = TestFile::on_disk(PAGE);
    let given: Given = "policy=learned,by=caller".parse().unwrap();

    let refused = crate::prefetch::open(&super::METHOD, file.target(false), &given).err().unwrap();

    assert!(refused.to_string().contains("use by=helper"), "{refused}");
}

/// A reader that runs the test's own code before each transfer.
struct Before<F> {
    below: Box<dyn Reader>,
    before: F,
}

/// The call that a reader is about to make.
enum Step<'a> {
    Visit(&'a [Extent]),
    Update(&'a [Extent]),
}

impl<F: FnMut(Step<'_>) + Send> Reader for Before<F> {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        (self.before)(Step::Visit(extents));
        self.below.visit(extents, visitor)
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        (self.before)(Step::Update(extents));
        self.below.update(extents, filler)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.below.check_update(extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.below.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        self.below.sibling()
    }
}

fn page_on_disk(file: &TestFile, number: usize) -> Vec<u8> {
    std::fs::read(file.path()).unwrap()[number * PAGE..(number + 1) * PAGE].to_vec()
}

#[test]
fn a_flush_waits_for_dirty_pages_that_are_held_and_writes_them() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let (told, writes) = std::sync::mpsc::channel();
    let before = move |step: Step<'_>| {
        if let Step::Update(_) = step {
            told.send(()).unwrap();
        }
    };
    let mut handle = pool.handle(Box::new(Before { below: below(&file), before }));
    [0, 5, 9].into_iter().for_each(|number| handle.change(number, |bytes| bytes.fill(0xee)).unwrap());

    std::thread::scope(|scope| {
        let held = pool.try_pin(5).unwrap();
        let flush = scope.spawn(move || handle.flush());
        // The flush reached the held page, wrote what was before it, and waits.
        writes.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert_ne!(page_on_disk(&file, 5), [0xee; PAGE]);
        drop(held);
        flush.join().unwrap().unwrap();
    });

    assert!([0, 5, 9].map(|number| page_on_disk(&file, number)) == [[0xee; PAGE]; 3].map(Vec::from));
}

#[test]
fn a_flush_does_not_wait_for_pages_that_are_held_and_not_dirty() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));
    handle.fetch(&[3]).unwrap();
    handle.change(4, |bytes| bytes.fill(0xee)).unwrap();
    let _held = pool.try_pin(3).unwrap();

    handle.flush().unwrap();

    assert_eq!((page_on_disk(&file, 4), pool.metrics().written), (vec![0xee; PAGE], 1));
}

#[test]
fn pages_that_become_dirty_while_others_are_read_are_not_evicted_unwritten() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 32);
    let mut other = pool.handle(below(&file));
    (0..32).for_each(|number| drop(other.pin(number).unwrap()));
    // The pool was clean when this visit began, so room is made without writing while it is under way.
    let before = move |step: Step<'_>| {
        if let Step::Visit(_) = step {
            (0..32).for_each(|number| other.change(number, |bytes| bytes.fill(0xcc)).unwrap());
        }
    };
    let mut handle = pool.handle(Box::new(Before { below: below(&file), before }));

    handle.fetch(&[100, 101]).unwrap();

    let mut after = pool.handle(below(&file));
    for number in 0..32 {
        assert!(after.pin(number).unwrap().iter().all(|byte| *byte == 0xcc), "page {number} lost its change");
    }
    after.flush().unwrap();
    assert!(std::fs::read(file.path()).unwrap()[..32 * PAGE].iter().all(|byte| *byte == 0xcc));
}

#[test]
fn dirty_pages_are_written_before_they_make_room() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 16);
    let mut handle = pool.handle(below(&file));
    for number in 0..256u64 {
        handle.change(number, |bytes| bytes.fill(number as u8)).unwrap();
    }

    assert!(pool.metrics().resident <= 16, "{:?}", pool.metrics());
    for number in 0..256u64 {
        assert!(handle.pin(number).unwrap().iter().all(|byte| *byte == number as u8), "page {number}");
    }
}

#[test]
fn no_way_reaches_past_the_last_page() {
    let file = TestFile::on_disk(4 * PAGE + 9);
    let pool = pool(&file, 16);
    let mut handle = pool.handle(below(&file));
    for past in [5, 6, u64::MAX / PAGE as u64, u64::MAX] {
        let refused = [
            handle.pin(past).map(drop),
            handle.fetch(&[0, past]),
            handle.will_need(&[0, past]),
            handle.change(past, |_| ()),
            handle.replace(past, |_| ()),
        ];

        for outcome in refused {
            assert_eq!(outcome.unwrap_err().to_string(), format!("there is no page {past}; there are 5"));
        }
    }
    assert_eq!(pool.metrics().resident, 0, "refused before anything is read");

    assert_eq!(handle.change(4, |bytes| bytes.len()).unwrap(), 9, "the last page has the bytes that the file has");
    handle.fetch(&[0, 4]).unwrap();
}

#[test]
fn a_page_that_is_replaced_is_not_read_and_one_that_is_changed_is() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));

    handle.replace(7, |bytes| bytes.fill(1)).unwrap();
    assert_eq!(pool.metrics().misses, 0);
    let first = handle.change(8, |bytes| bytes[0]).unwrap();

    assert_eq!((first, pool.metrics().misses), (file.content()[8 * PAGE], 1));
}

#[test]
fn what_was_done_is_counted() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));

    handle.fetch(&[1, 2, 2]).unwrap();
    drop(handle.pin(1).unwrap());
    handle.change(1, |bytes| bytes.fill(1)).unwrap();
    handle.change(1, |bytes| bytes.fill(2)).unwrap();
    assert_eq!(pool.shared.dirty.len(), 1, "once, however often it is changed");
    handle.flush().unwrap();
    handle.flush().unwrap();

    assert_eq!(pool.shared.dirty.len(), 0);
    let Metrics { hits, misses, evicted, written, drop_calls, resident } = pool.metrics();
    assert_eq!((hits, misses, written, resident), (1 + 1 + 2, 2, 1, 2));
    assert_eq!((evicted, drop_calls), (0, 0));
}

/// The reads that fetching `pages` makes: first page and bytes of each.
fn reads(file: &TestFile, pages: &[u64], transfer: u64) -> Vec<(u64, usize)> {
    let options = PoolLayout { transfer: Bytes(transfer * PAGE as u64), ..PoolLayout::default() };
    let pool = Pool::new(file.length() as u64, options).unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let before = move |step: Step<'_>| {
        if let Step::Visit(extents) = step {
            noted.lock().unwrap().extend(extents.iter().map(|it| (it.offset / PAGE as u64, it.length)));
        }
    };
    pool.handle(Box::new(Before { below: below(file), before })).fetch(pages).unwrap();
    for number in pages {
        let at = *number as usize * PAGE;
        let expected = &file.content()[at..file.length().min(at + PAGE)];
        assert_eq!(&pool.try_pin(*number).unwrap()[..expected.len()], expected, "page {number}");
    }
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn neighbours_are_read_together_up_to_the_transfer() {
    let file = TestFile::on_disk(20 * PAGE + 100);

    assert_eq!(reads(&file, &[0, 1, 2, 5, 7, 8], 64), [(0, 3 * PAGE), (5, PAGE), (7, 2 * PAGE)]);
    assert_eq!(reads(&file, &[2, 3, 4, 5, 8], 4), [(2, 2 * PAGE), (4, 2 * PAGE), (8, PAGE)]);
    assert_eq!(reads(&file, &[9, 8, 7], 64), [(9, PAGE), (8, PAGE), (7, PAGE)]);
    assert_eq!(reads(&file, &[19, 20], 64), [(19, PAGE + 100)], "the last page is short");
    assert_eq!(reads(&file, &[3, 4], 1), [(3, PAGE), (4, PAGE)]);
}

/// The updates that changing `pages` and a flush make: for each call, first page and bytes of each transfer.
fn writes(file: &TestFile, pages: &[u64], transfer: u64) -> Vec<Vec<(u64, usize)>> {
    let options = PoolLayout { transfer: Bytes(transfer * PAGE as u64), ..PoolLayout::default() };
    let pool = Pool::new(file.length() as u64, options).unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let before = move |step: Step<'_>| {
        if let Step::Update(extents) = step {
            noted.lock().unwrap().push(extents.iter().map(|it| (it.offset / PAGE as u64, it.length)).collect());
        }
    };
    let mut handle = pool.handle(Box::new(Before { below: below(file), before }));
    let content = |number: u64, length: usize| vec![number as u8 + 100; length];
    for number in pages {
        handle.replace(*number, |bytes| bytes.copy_from_slice(&content(*number, bytes.len()))).unwrap();
    }
    handle.flush().unwrap();
    let mut expected = file.content().to_vec();
    for number in pages {
        let at = *number as usize * PAGE;
        let end = file.length().min(at + PAGE);
        expected[at..end].copy_from_slice(&content(*number, end - at));
    }
    assert!(std::fs::read(file.path()).unwrap() == expected, "{pages:?}");
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn neighbours_are_written_together_up_to_the_transfer_and_all_by_one_call() {
    let file = || TestFile::on_disk(20 * PAGE + 100);

    assert_eq!(writes(&file(), &[5, 0, 2, 8, 1, 7], 64), [[(0, 3 * PAGE), (5, PAGE), (7, 2 * PAGE)]]);
    assert_eq!(writes(&file(), &[2, 3, 4, 5, 8], 4), [[(2, 2 * PAGE), (4, 2 * PAGE), (8, PAGE)]]);
    assert_eq!(writes(&file(), &[20, 19], 64), [[(19, PAGE + 100)]], "the last page is short");
    assert_eq!(writes(&file(), &[3, 4], 1), [[(3, PAGE), (4, PAGE)]]);
    assert_eq!(writes(&file(), &[], 64), Vec::<Vec<(u64, usize)>>::new());
}

#[test]
fn a_page_used_since_the_clock_came_by_stays() {
    let file = TestFile::on_disk(512 * PAGE);
    let pool = pool(&file, 256);
    let mut handle = pool.handle(below(&file));
    (0..257).for_each(|number| drop(handle.pin(number).unwrap()));
    let is_marked = |number: u64| pool.shared.memory.pass(number) == Seen::Marked;
    assert_eq!(pool.metrics().evicted, 8, "the clock came round, and took a batch");
    assert!((0..8).all(|number| pool.try_pin(number).is_err()) && (8..256).all(is_marked));

    drop(handle.pin(10).unwrap());
    (257..265).for_each(|number| drop(handle.pin(number).unwrap()));

    let left: Vec<u64> = (8..265).filter(|number| pool.try_pin(*number).is_ok()).collect();
    assert_eq!(pool.metrics().evicted, 8 + 8, "a batch without that page");
    assert_eq!(left, [10].into_iter().chain(17..265).collect::<Vec<u64>>());
}

/// Checks, with nobody at work, that the clock's ring names each page in memory once and no other, and the set of dirty pages
/// those that are dirty.
fn lists_agree_with_states(pool: &Pool) {
    let Inner { memory, ring, dirty, .. } = &*pool.shared;
    let pages = 0..memory.count();
    let (mut resident, mut changed) = (Vec::new(), Vec::new());
    for number in pages {
        let held = memory.lock(number).unwrap();
        resident.extend(held.is_filled().then_some(number));
        changed.extend(held.is_dirty().then_some(number));
    }
    let mut named = Vec::new();
    ring.sweep(ring.len(), |number| {
        named.push(number);
        true
    });
    ring.arrive(named.clone());
    named.sort_unstable();
    assert_eq!((named, dirty.now()), (resident, changed));
    assert_eq!(pool.metrics().resident, ring.len() as u64);
}

#[test]
fn however_a_visit_ends_its_pages_are_in_the_ring_and_in_the_budget() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = faulty(&file, &pool, [0, 1, 0], libc::EIO);
    let mut whole = pool.handle(below(&file));

    handle.fetch(&[40, 42, 44, 46]).unwrap_err();
    lists_agree_with_states(&pool);
    whole.replace(100, |bytes| bytes.fill(1)).unwrap();
    whole.change(41, |bytes| bytes.fill(1)).unwrap();
    lists_agree_with_states(&pool);
    let panics = |number: u64, handle: &mut Handle| {
        let change = std::panic::AssertUnwindSafe(|| handle.replace(number, |_| -> () { panic!("in the change") }));
        std::panic::catch_unwind(change).unwrap_err();
    };
    panics(101, &mut whole);
    panics(100, &mut whole);
    let gone = std::panic::AssertUnwindSafe(|| bring_and_panic(&pool, below(&file), &[50, 52]));
    std::panic::catch_unwind(gone).unwrap_err();
    lists_agree_with_states(&pool);
    assert_eq!(pool.metrics().resident, 5, "40, 41, 42, 100, and the one that was shown");
    (0..256).for_each(|number| drop(whole.pin(number).unwrap()));

    lists_agree_with_states(&pool);
    assert!(pool.metrics().resident <= 32, "{:?}", pool.metrics());
}

/// Brings pages to somebody who panics at the first.
fn bring_and_panic(pool: &Pool, mut reader: Box<dyn Reader>, pages: &[u64]) {
    struct Panics;
    impl<'p> super::fill::Arrivals<'p> for Panics {
        fn ready(&mut self, _: usize, _: super::Shared<'p>) -> ControlFlow<()> {
            panic!("at the first page");
        }
    }
    let _ = super::fill::bring(&pool.shared, reader.as_mut(), pages, &mut Panics);
}

#[test]
fn pages_whose_write_failed_make_room_once_it_succeeds() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 16);
    let mut handle = faulty(&file, &pool, [4, 0, 0], libc::EIO);
    (0..16).for_each(|number| handle.change(number, |bytes| bytes.fill(0xdd)).unwrap());

    (16..256).for_each(|number| drop(handle.pin(number).unwrap()));

    lists_agree_with_states(&pool);
    assert!(std::fs::read(file.path()).unwrap()[..16 * PAGE].iter().all(|byte| *byte == 0xdd));
    assert_eq!(handle.flush().unwrap_err().errno(), Some(libc::EIO), "told though it was made up for");
}

#[test]
fn what_is_evicted_at_once_is_the_batch_however_pages_come() {
    let file = TestFile::on_disk(512 * PAGE);
    for (batch, expected) in [(1, 1), (4, 4), (1000, 32)] {
        let options = PoolLayout { memory: Bytes(256 * PAGE as u64), batch, ..PoolLayout::default() };
        let pool = Pool::new(file.length() as u64, options).unwrap();
        let mut handle = pool.handle(below(&file));
        (0..256).for_each(|number| drop(handle.pin(number).unwrap()));

        drop(handle.pin(300).unwrap());

        assert_eq!(pool.metrics().evicted, expected, "batch={batch}, an eighth of the pool at most");
        handle.change(301, |_| ()).unwrap();
        (302..302 + expected - 1).for_each(|number| handle.change(number, |_| ()).unwrap());
        assert_eq!(pool.metrics().evicted, 2 * expected, "batch={batch} with dirty pages");
    }
}

#[test]
fn walking_the_clock_and_flushing_cost_what_is_in_memory_and_not_what_the_file_is_long() {
    // So long that a walk over its pages would not end within a day.
    let length = 1 << 45;
    let pool = Pool::new(length, PoolLayout { memory: Bytes::kib(128), batch: 4, ..PoolLayout::default() }).unwrap();
    let mut handle = pool.handle(Box::new(Zeros));
    for number in (0..4000).map(|turn| turn * 7_654_321 % pool.page_count()) {
        handle.change(number, |bytes| bytes[0] += 1).unwrap();
    }

    (0..1000).for_each(|_| handle.flush().unwrap());

    let Metrics { evicted, written, resident, .. } = pool.metrics();
    assert!(evicted >= 4000 - 32 && written == 4000 && resident <= 32, "{:?}", pool.metrics());
}

/// A file of zeros that takes whatever is written.
struct Zeros;

impl Reader for Zeros {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            visitor.submitted(index);
            if visitor.see(index, &vec![0; extent.length]).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            if filler.fill(index, &mut vec![0; extent.length]).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_update(&self, _: Extent) -> Result<()> {
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Zeros))
    }
}

#[test]
fn a_hint_leaves_pages_that_are_there_as_they_are() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));
    handle.replace(3, |bytes| bytes.fill(0xee)).unwrap();

    handle.will_need(&[2, 3, 4]).unwrap();

    assert_eq!(pool.metrics().misses, 2, "those beside it");
    assert_eq!(handle.pin(3).unwrap()[..], [0xee; PAGE]);
}

#[test]
fn what_is_fetched_or_evicted_at_once_is_at_most_an_eighth_of_the_room() {
    let file = TestFile::on_disk(64 * PAGE);
    let at_once = |pages| {
        let pool = pool(&file, pages);
        (pool.shared.chunk(), pool.shared.batch())
    };

    assert_eq!((at_once(16), at_once(32), at_once(64)), ((2, 2), (4, 4), (8, 8)));
    // The batch that was asked for; and of a large pool no more than 4096 pages.
    assert_eq!((at_once(80), at_once(8 * 5000)), ((10, 8), (4096, 8)));
}

#[test]
fn an_update_sets_the_bytes_of_its_extents_and_no_others() {
    use crate::access::MethodOptions;
    let file = TestFile::on_disk(8 * PAGE);
    let mut reader = Pool::options().direct(false).open_target(file.target(true)).unwrap().reader;
    let extents = [(3 * PAGE + 100, PAGE), (6 * PAGE, PAGE), (7 * PAGE + 9, 1)]
        .map(|(offset, length)| Extent { offset: offset as u64, length });

    reader.update(&extents, &mut |index: usize, bytes: &mut [u8]| bytes.fill(index as u8 + 1)).unwrap();
    reader.sync().unwrap();

    let mut expected = file.content().to_vec();
    expected[3 * PAGE + 100..4 * PAGE + 100].fill(1);
    expected[6 * PAGE..7 * PAGE].fill(2);
    expected[7 * PAGE + 9] = 3;
    assert!(std::fs::read(file.path()).unwrap() == expected);
}

#[test]
fn a_page_has_at_most_2_mib_and_a_pool_at_least_16_pages_and_a_batch() {
    let refused = |page: Bytes, memory: Bytes, batch: u32| {
        let options = PoolLayout { page, memory, batch, ..PoolLayout::default() };
        Pool::new(64 << 20, options).err().map(|error| error.to_string())
    };
    let too_small = "memory=60k: a pool needs at least 16 pages of 4k, and a batch of at least 1";

    assert_eq!(refused(Bytes::mib(2), Bytes::mib(32), 1), None);
    assert_eq!(
        refused(Bytes::mib(4), Bytes::mib(64), 1).as_deref(),
        Some("page=4m: legal is a power of two from 4k to 2m")
    );
    assert_eq!(refused(Bytes::kib(4), Bytes::kib(64), 1), None);
    assert_eq!(refused(Bytes::kib(4), Bytes::kib(60), 1).as_deref(), Some(too_small));
    assert!(refused(Bytes::kib(4), Bytes::kib(64), 0).is_some());
}

#[test]
fn a_pool_over_nothing_is_refused_and_none_is_empty() {
    let of_length = |length| Pool::new(length, PoolLayout::default());

    assert_eq!(of_length(0).unwrap_err().to_string(), "a pool over 0 bytes: the files need at least 1");
    let least = of_length(1).unwrap();
    assert_eq!((least.len(), least.page_count(), least.is_empty()), (1, 1, false));
}

#[test]
fn no_more_room_is_taken_than_there_are_pages_to_read() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 80);
    let mut handle = pool.handle(below(&file));
    (0..71).for_each(|number| drop(handle.pin(number).unwrap()));

    // By transfers of one page each: first a batch of eight, then one.
    handle.fetch(&(0..9).map(|turn| 100 + 2 * turn).collect::<Vec<u64>>()).unwrap();

    assert_eq!((pool.metrics().evicted, pool.metrics().resident), (0, 80));
}

/// Notes how many pages are in memory or about to be, as each page comes.
struct Resident<'p>(&'p Pool, Vec<u64>);

impl<'p> super::fill::Arrivals<'p> for Resident<'_> {
    fn ready(&mut self, _: usize, _: super::Shared<'p>) -> ControlFlow<()> {
        self.1.push(self.0.metrics().resident);
        ControlFlow::Continue(())
    }
}

/// What [`Resident`] notes while these pages come one by one.
fn resident(file: &TestFile, pool: &Pool, pages: &[u64]) -> Vec<u64> {
    let mut resident = Resident(pool, Vec::new());
    let _ = super::fill::bring(&pool.shared, below(file).as_mut(), pages, &mut resident).unwrap();
    resident.1
}

#[test]
fn room_is_made_before_pages_are_read_and_not_only_afterwards() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));
    (0..32).for_each(|number| drop(handle.pin(number).unwrap()));

    assert_eq!(resident(&file, &pool, &[100, 102]), [30, 30], "a batch of four went, and two take its place");
}

#[test]
fn room_for_more_pages_than_a_batch_is_made_by_several() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 128);
    let mut handle = pool.handle(below(&file));
    (0..128).for_each(|number| drop(handle.pin(number).unwrap()));

    // One transfer of neighbours, for which two batches go.
    let taken = resident(&file, &pool, &(130..146).collect::<Vec<u64>>());

    assert_eq!((taken, pool.metrics().evicted), (vec![128; 16], 16));
}

#[test]
fn room_is_taken_by_batches_up_to_the_pages_that_come() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 800);
    let pages: Vec<u64> = (0..20).map(|turn| 2 * turn).collect();

    let taken = resident(&file, &pool, &pages);

    assert_eq!(taken, [[8; 8], [16; 8]].concat().into_iter().chain([20; 4]).collect::<Vec<u64>>());
}

#[test]
fn a_pool_is_shown_with_its_length_its_options_and_what_it_did() {
    let file = TestFile::on_disk(64 * PAGE);
    let pool = pool(&file, 32);
    let shown = format!("{pool:?}");

    assert!(shown.starts_with("Pool { length: 262144, options: PoolLayout {"), "{shown}");
    assert!(shown.contains("metrics: Metrics { hits: 0,"), "{shown}");
    assert_eq!(format!("{:?}", pool.handle(below(&file))), format!("Handle {{ pool: {shown}, .. }}"));
}

#[test]
fn a_page_that_is_replaced_makes_room_for_itself_before_it_is_there() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 32);
    let mut handle = pool.handle(below(&file));
    (0..32).for_each(|number| drop(handle.pin(number).unwrap()));

    handle.replace(100, |bytes| bytes.fill(1)).unwrap();

    assert_eq!((pool.metrics().evicted, pool.metrics().resident), (4, 29));
}

#[test]
fn of_a_batch_to_be_evicted_only_what_is_dirty_is_written() {
    let file = TestFile::on_disk(256 * PAGE);
    let pool = pool(&file, 64);
    let mut handle = pool.handle(below(&file));
    for number in 0..64 {
        match number % 2 {
            0 => drop(handle.pin(number).unwrap()),
            _ => handle.change(number, |bytes| bytes.fill(0xee)).unwrap(),
        }
    }

    drop(handle.pin(100).unwrap());

    assert_eq!((pool.metrics().evicted, pool.metrics().written), (8, 4));
    assert!([1, 3, 5, 7].iter().all(|number| page_on_disk(&file, *number) == [0xee; PAGE]));
}
