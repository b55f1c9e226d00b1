//! The pool under stress, and on a device that fails.

use super::{Handle, Pool, PoolOptions};
use crate::access::{self, Filler, Reader, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::Given;
use crate::test_files::{PAGE, TestFile};
use crate::units::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn below(file: &TestFile) -> Box<dyn Reader> {
    (access::plain("pread").unwrap().open)(file.target(true), &Given::none()).unwrap().reader
}

fn pool(file: &TestFile, pages: u64) -> Pool {
    let options = PoolOptions {
        budget: Bytes(pages * PAGE as u64),
        page: Bytes(PAGE as u64),
        batch: 8,
        ..PoolOptions::default()
    };
    Pool::new(file.length() as u64, options).unwrap()
}

/// Fails when it is told to: this many updates, this many visits, this many syncs.
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

/// A handle whose reader fails so many updates, visits and syncs.
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
    let metrics = pool.metrics();
    assert!(metrics.evicted > 1000 && metrics.resident <= 40, "{metrics:?}");
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

    assert_eq!(pool.pages(), 5);
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
        .change(3, |_| other.expect(&[2, 3, 4]))
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

    assert!(refused.to_string().contains("leave by=helper"), "{refused}");
}
