//! What a crash leaves: a device that keeps what was synced, and of later writes any part, in any order.

use super::{Pool, PoolLayout};
use crate::access::{Filler, Reader, Visitor};
use crate::error::Result;
use crate::files::Extent;
use crate::units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const PAGE: usize = 4096;
const PAGES: usize = 64;
const SECTOR: usize = 512;

/// A disk with a volatile cache.
struct Disk {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Writes since the last sync: where, and what.
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl Disk {
    /// The content after a crash now: of the writes since the last sync each sector arrived or not, in any order.
    fn crashed(&self, draws: &mut Draws) -> Vec<u8> {
        let mut image = self.durable.clone();
        let mut writes: Vec<&(usize, Vec<u8>)> = self.unsynced.iter().collect();
        while !writes.is_empty() {
            let (at, bytes) = writes.swap_remove(draws.below(writes.len()));
            let share = draws.below(5);
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if draws.below(4) < share {
                    image[at + index * SECTOR..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
        image
    }
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

#[derive(Clone)]
struct OnDisk(Arc<Mutex<Disk>>);

impl Reader for OnDisk {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            visitor.submitted(index);
            let bytes = self.0.lock().unwrap().current[extent.offset as usize..][..extent.length].to_vec();
            if visitor.see(index, &bytes).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            let mut bytes = vec![0; extent.length];
            let flow = filler.fill(index, &mut bytes);
            let mut disk = self.0.lock().unwrap();
            disk.current[extent.offset as usize..][..extent.length].copy_from_slice(&bytes);
            disk.unsynced.push((extent.offset as usize, bytes));
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_update(&self, _: Extent) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.durable = disk.current.clone();
        disk.unsynced.clear();
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(self.clone()))
    }
}

#[test]
fn what_sync_promised_is_there_after_any_crash() {
    let zeros = vec![0; PAGES * PAGE];
    let disk = Disk { durable: zeros.clone(), current: zeros, unsynced: Vec::new() };
    let disk = Arc::new(Mutex::new(disk));
    let options = PoolLayout { memory: Bytes(16 * PAGE as u64), batch: 4, ..PoolLayout::default() };
    let pool = Pool::new((PAGES * PAGE) as u64, options).unwrap();
    let mut handle = pool.handle(Box::new(OnDisk(Arc::clone(&disk))));
    let mut draws = Draws(11);
    // Versions of each page: changed in memory, and promised by a sync.
    let (mut changed, mut promised) = ([0u64; PAGES], [0u64; PAGES]);
    let mut lost = 0;

    for turn in 1..=4000u64 {
        match draws.below(40) {
            0 => {
                handle.sync().unwrap();
                promised = changed;
            }
            1 => handle.flush().unwrap(),
            2 => {
                let image = disk.lock().unwrap().crashed(&mut draws);
                for (number, page) in image.chunks(PAGE).enumerate() {
                    for sector in page.chunks(SECTOR) {
                        let (words, _) = sector.as_chunks::<8>();
                        let version = u64::from_le_bytes(words[0]);
                        assert!(words.iter().all(|word| *word == words[0]), "a sector is of one version");
                        let allowed = promised[number]..=changed[number];
                        assert!(allowed.contains(&version), "page {number}: {version} is not in {allowed:?}");
                        lost += u64::from(version < changed[number]);
                    }
                }
            }
            _ => {
                let number = draws.below(PAGES);
                let set = |bytes: &mut [u8]| {
                    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = turn.to_le_bytes())
                };
                match turn % 2 {
                    0 => handle.change(number as u64, set).unwrap(),
                    _ => handle.replace(number as u64, set).unwrap(),
                }
                changed[number] = turn;
            }
        }
    }
    assert!(lost > 1000, "crashes that lose nothing prove nothing");
}

#[test]
fn what_sync_promised_while_threads_changed_and_held_pages_is_there_after_any_crash() {
    let zeros = vec![0; PAGES * PAGE];
    let disk = Arc::new(Mutex::new(Disk { durable: zeros.clone(), current: zeros, unsynced: Vec::new() }));
    let options = PoolLayout { memory: Bytes(24 * PAGE as u64), batch: 4, ..PoolLayout::default() };
    let pool = Pool::new((PAGES * PAGE) as u64, options).unwrap();
    // Completed changes of each page.
    let changed: [AtomicU64; PAGES] = std::array::from_fn(|_| AtomicU64::new(0));
    let working = AtomicU64::new(3);
    let change = |seed: u64| {
        let mut handle = pool.handle(Box::new(OnDisk(Arc::clone(&disk))));
        let mut draws = Draws(seed);
        for _ in 0..2000 {
            let (number, other) = (draws.below(PAGES), draws.below(PAGES));
            // Meanwhile another page is held, if it is in memory; dirty ones as well. Always one before it: of threads that hold pages and wait
            // for each other's one would wait for a page before its own.
            let _held = if other < number { pool.try_pin(other as u64).ok() } else { None };
            let add = |bytes: &mut [u8]| {
                let (words, _) = bytes.as_chunks_mut::<8>();
                words.iter_mut().for_each(|word| *word = (u64::from_le_bytes(*word) + 1).to_le_bytes());
            };
            handle.change(number as u64, add).unwrap();
            changed[number].fetch_add(1, Ordering::SeqCst);
        }
        working.fetch_sub(1, Ordering::SeqCst);
    };

    let mut syncs = 0;
    std::thread::scope(|scope| {
        for seed in 1..4 {
            let change = &change;
            scope.spawn(move || change(seed));
        }
        let mut handle = pool.handle(Box::new(OnDisk(Arc::clone(&disk))));
        let mut draws = Draws(9);
        while working.load(Ordering::SeqCst) > 0 {
            let promised = changed.each_ref().map(|count| count.load(Ordering::SeqCst));
            handle.sync().unwrap();
            syncs += 1;
            let image = disk.lock().unwrap().crashed(&mut draws);
            for (number, page) in image.chunks(PAGE).enumerate() {
                for sector in page.chunks(SECTOR) {
                    let (words, _) = sector.as_chunks::<8>();
                    let version = u64::from_le_bytes(words[0]);
                    assert!(words.iter().all(|word| *word == words[0]), "a sector is of one version");
                    assert!(version >= promised[number], "page {number}: {version} of {} promised", promised[number]);
                }
            }
        }
        handle.sync().unwrap();
    });

    let durable = &disk.lock().unwrap().durable;
    for (number, count) in changed.iter().enumerate() {
        let (words, _) = durable[number * PAGE..(number + 1) * PAGE].as_chunks::<8>();
        let all = count.load(Ordering::SeqCst).to_le_bytes();
        assert!(words.iter().all(|word| *word == all), "page {number} has every change");
    }
    assert!(syncs > 3, "{syncs} syncs while pages were changed");
}
