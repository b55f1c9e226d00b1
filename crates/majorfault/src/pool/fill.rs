//! Bringing pages in: locking those that are absent, making room, reading them in one visit.

use super::{Inner, write};
use crate::access::{Reader, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::sys::page_state::{Refused, Seen};
use crate::sys::pages::{Exclusive, Shared};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

/// Positions of the clock that one thread claims at a time.
const STEP: u64 = 64;

/// Pages of room made at a time while reads are under way.
const AHEAD: u64 = 64;

/// From this many bytes on, memory is requested by one call instead of a fault for each 4096 bytes.
const POPULATED: usize = 16 << 10;

/// How often a thread yields before it reports that there is no room.
const PATIENCE: u32 = 10_000;

/// Whether a page's bytes are needed before it is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Its bytes are needed.
    Needed,
    /// Every byte will be set.
    Replaced,
}

/// Receives pages as they arrive.
pub(super) trait Arrivals<'p> {
    /// The page asked for at `index` is being read, or was there.
    fn submitted(&mut self, _index: usize) {}
    /// The page `index` is in memory, and held. Break ends the bringing in of more.
    fn ready(&mut self, index: usize, page: Shared<'p>) -> ControlFlow<()>;
}

struct Nobody;

impl<'p> Arrivals<'p> for Nobody {
    fn ready(&mut self, _: usize, _: Shared<'p>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Keeps the page that arrives.
struct Keep<'p>(Option<Shared<'p>>);

impl<'p> Arrivals<'p> for Keep<'p> {
    fn ready(&mut self, _: usize, page: Shared<'p>) -> ControlFlow<()> {
        self.0 = Some(page);
        ControlFlow::Continue(())
    }
}

/// The page, held.
pub(super) fn pin<'p>(pool: &'p Inner, reader: &mut dyn Reader, number: u64) -> Result<Shared<'p>> {
    if let Ok(held) = pool.memory.share(number) {
        pool.count(|counts| &counts.hits, 1);
        return Ok(held);
    }
    let mut keep = Keep(None);
    // Nothing to break off: there is only one page.
    let _ = bring(pool, reader, &[number], &mut keep)?;
    keep.0.ok_or_else(|| Error::Invalid(format!("page {number} was not delivered by the pool's reader")))
}

/// Makes sure that these pages were in memory once.
pub(super) fn fetch(pool: &Inner, reader: &mut dyn Reader, pages: &[u64]) -> Result<()> {
    bring(pool, reader, pages, &mut Nobody).map(drop)
}

/// Reads those of these pages that are absent and not in use: it never waits for another thread's read.
pub(super) fn expect(pool: &Inner, reader: &mut dyn Reader, pages: &[u64]) -> Result<()> {
    let take = |(index, number): (usize, &u64)| {
        let held = pool.memory.lock(*number).ok().filter(|held| !held.is_filled())?;
        Some((index, held))
    };
    let absent: Vec<_> = pages.iter().enumerate().filter_map(take).collect();
    if absent.is_empty() { Ok(()) } else { read(pool, reader, absent, &mut Nobody).map(drop) }
}

/// Brings each page once to `arrivals`, pages in memory first.
///
/// Errors: Invalid (no room), those of the reader; pages that had not arrived are evicted again.
pub(super) fn bring<'p>(
    pool: &'p Inner,
    reader: &mut dyn Reader,
    pages: &[u64],
    arrivals: &mut dyn Arrivals<'p>,
) -> Result<ControlFlow<()>> {
    let mut waiting: Vec<usize> = (0..pages.len()).collect();
    let mut idle = 0;
    while !waiting.is_empty() {
        let mut later = Vec::new();
        let mut absent: Vec<(usize, Exclusive<'p>)> = Vec::new();
        for index in waiting {
            let number = pages[index];
            match pool.memory.share(number) {
                Ok(held) => {
                    pool.count(|counts| &counts.hits, 1);
                    arrivals.submitted(index);
                    if arrivals.ready(index, held).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(Refused::Busy) => later.push(index),
                Err(Refused::Evicted) => match pool.memory.lock(number) {
                    Ok(held) if !held.is_filled() => absent.push((index, held)),
                    // Another thread was faster, or holds it: look again.
                    _ => later.push(index),
                },
            }
        }
        if absent.is_empty() {
            idle += 1;
            give_way(idle);
        } else {
            idle = 0;
            if read(pool, reader, absent, arrivals)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        waiting = later;
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads pages that are locked and absent.
fn read<'p>(
    pool: &'p Inner,
    reader: &mut dyn Reader,
    absent: Vec<(usize, Exclusive<'p>)>,
    arrivals: &mut dyn Arrivals<'p>,
) -> Result<ControlFlow<()>> {
    let count = absent.len() as u64;
    // Without dirty pages, room is made as the reads are sent, while earlier ones are under way; writing needs the reader.
    let early = pool.dirty.load(Ordering::Relaxed) > 0;
    if early {
        make_room(pool, reader, count)?;
    }
    pool.count(|counts| &counts.misses, count);
    let runs = runs(&absent, (pool.options.transfer.0 / pool.options.page.0).max(1));
    let extents: Vec<Extent> = runs.iter().map(|run| pool.run(absent[run.start].1.number(), run.len())).collect();
    let mut reading = Reading {
        runs,
        absent: absent.into_iter().map(Some).collect(),
        arrivals,
        pool,
        reserved: if early { count } else { 0 },
        came: 0,
        flow: ControlFlow::Continue(()),
        failed: None,
    };
    let visited = reader.visit(&extents, &mut reading);
    let Reading { absent, reserved, came, flow, failed, .. } = reading;
    // Pages that did not arrive are evicted again when their guards drop.
    drop(absent);
    pool.resident.fetch_sub(reserved - came, Ordering::Relaxed);
    visited?;
    failed.map_or(Ok(()), Err)?;
    // Makes up now for what a budget full of held or dirty pages allowed above.
    make_room(pool, reader, 0)?;
    Ok(flow)
}

/// Consecutive pages that are read together, as ranges of `absent`. None crosses a multiple of `most` pages.
fn runs(absent: &[(usize, Exclusive<'_>)], most: u64) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::with_capacity(absent.len());
    let mut before = None;
    for (index, (_, held)) in absent.iter().enumerate() {
        let number = held.number();
        match runs.last_mut() {
            Some(run) if before == number.checked_sub(1) && number % most != 0 => run.end = index + 1,
            _ => runs.push(index..index + 1),
        }
        before = Some(number);
    }
    runs
}

/// Takes the bytes of pages as they arrive.
struct Reading<'p, 'a> {
    /// The pages that each transfer brings, as ranges of `absent`.
    runs: Vec<Range<usize>>,
    absent: Vec<Option<(usize, Exclusive<'p>)>>,
    arrivals: &'a mut dyn Arrivals<'p>,
    pool: &'p Inner,
    /// Pages taken from the budget, and pages that arrived.
    reserved: u64,
    came: u64,
    flow: ControlFlow<()>,
    /// A page that arrived and found no room.
    failed: Option<Error>,
}

impl Reading<'_, '_> {
    /// Takes pages from the budget up to the `wanted`-th of this visit, a few more at a time.
    fn reserve(&mut self, wanted: u64) {
        if self.reserved >= wanted {
            return;
        }
        let more = AHEAD.min(self.absent.len() as u64 - self.reserved);
        self.reserved += more;
        if self.pool.resident.fetch_add(more, Ordering::Relaxed) + more > self.pool.room {
            evict_clean(self.pool);
        }
    }
}

impl Visitor for Reading<'_, '_> {
    fn submitted(&mut self, index: usize) {
        let run = self.runs[index].clone();
        self.reserve(run.end as u64);
        for (asked, _) in self.absent[run].iter().flatten() {
            self.arrivals.submitted(*asked);
        }
    }

    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        let run = self.runs[index].clone();
        self.reserve(run.end as u64);
        if let (true, Some((_, first))) = (bytes.len() >= POPULATED, &self.absent[run.start]) {
            self.pool.memory.populate(first.number(), run.len());
        }
        let pages = bytes.chunks(self.pool.memory.page());
        for (absent, bytes) in self.absent[run].iter_mut().zip(pages) {
            let Some((asked, mut held)) = absent.take() else { continue };
            if let Err(error) = held.put(bytes) {
                self.failed = Some(error);
                self.flow = ControlFlow::Break(());
                break;
            }
            self.came += 1;
            self.flow = self.arrivals.ready(asked, held.share());
            if self.flow.is_break() {
                break;
            }
        }
        self.flow
    }
}

/// Locks a page that is in memory, or one that will be replaced.
pub(super) fn lock<'p>(
    pool: &'p Inner,
    reader: &mut dyn Reader,
    number: u64,
    content: Content,
) -> Result<Exclusive<'p>> {
    let mut idle = 0;
    loop {
        match pool.memory.lock(number) {
            Ok(held) if held.is_filled() => {
                pool.count(|counts| &counts.hits, 1);
                return Ok(held);
            }
            // Nobody may write to a page that somebody waits for: it is read first.
            Ok(held) if content == Content::Replaced && pool.memory.faults().is_none() => {
                make_room(pool, reader, 1)?;
                return Ok(held);
            }
            Ok(held) => {
                drop(held);
                fetch(pool, reader, &[number])?;
            }
            Err(_) => {
                idle += 1;
                give_way(idle);
            }
        }
    }
}

fn give_way(times: u32) {
    if times < 16 { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Takes `count` pages from the budget, and evicts others where too few are free.
fn make_room(pool: &Inner, reader: &mut dyn Reader, count: u64) -> Result<()> {
    let mut resident = pool.resident.fetch_add(count, Ordering::Relaxed) + count;
    let mut idle = 0;
    while resident > pool.room {
        let evicted = evict(pool, reader).inspect_err(|_| {
            pool.resident.fetch_sub(count, Ordering::Relaxed);
        })?;
        if evicted == 0 {
            idle += 1;
            if idle > PATIENCE {
                pool.resident.fetch_sub(count, Ordering::Relaxed);
                return Err(no_room(pool));
            }
            give_way(idle);
        }
        resident = pool.resident.load(Ordering::Relaxed);
    }
    Ok(())
}

fn no_room(pool: &Inner) -> Error {
    let latched = pool.failed.lock().ok().and_then(|failed| failed.as_ref().map(ToString::to_string));
    let why = match latched {
        Some(error) => format!("dirty pages cannot be written ({error})"),
        None => "every page is held; release pages, or raise memory=".to_owned(),
    };
    Error::Invalid(format!("the pool's budget of {} is used up: {why}", pool.options.memory))
}

/// One batch of the clock: pages not used since its last pass are written if they are dirty, and their memory is
/// freed. Returns how many.
fn evict(pool: &Inner, reader: &mut dyn Reader) -> Result<u64> {
    let (mut dirty, mut clean): (Vec<_>, Vec<_>) =
        victims(pool, pool.options.batch as usize).into_iter().partition(Exclusive::is_dirty);
    if !dirty.is_empty() {
        write::behind(pool, reader, &mut dirty);
        // Pages that could not be written stay.
        clean.extend(dirty.into_iter().filter(|held| !held.is_dirty()));
    }
    give_back(pool, clean)
}

/// One batch of the clock that leaves out dirty pages. Short of victims, the budget is exceeded for the
/// moment; the next reader makes up for it.
fn evict_clean(pool: &Inner) {
    let mut clean = victims(pool, AHEAD as usize);
    clean.retain(|held| !held.is_dirty());
    // If memory cannot be given back, the pages stay where they are; the next batch tries others.
    let _ = give_back(pool, clean);
}

/// Marked pages, locked: `batch` of them, or a few more.
fn victims(pool: &Inner, batch: usize) -> Vec<Exclusive<'_>> {
    let count = pool.memory.count();
    let mut victims = Vec::with_capacity(batch + STEP as usize);
    let mut passed = 0;
    // Two rounds: one to mark, one to take.
    while victims.len() < batch && passed < 2 * count + STEP {
        let from = pool.hand.fetch_add(STEP, Ordering::Relaxed);
        for number in (from..from + STEP).map(|position| position % count) {
            if pool.memory.pass(number) == Seen::Marked {
                victims.extend(pool.memory.lock_marked(number));
            }
        }
        passed += STEP;
    }
    victims
}

fn give_back(pool: &Inner, pages: Vec<Exclusive<'_>>) -> Result<u64> {
    let count = pages.len() as u64;
    if count > 0 {
        let calls = pool.memory.evict(pages)?;
        pool.resident.fetch_sub(count, Ordering::Relaxed);
        pool.count(|counts| &counts.evicted, count);
        pool.count(|counts| &counts.drop_calls, calls);
    }
    Ok(count)
}
