//! Bringing pages in: locking those that are absent, making room, reading them in one visit.

use super::{Inner, write};
use crate::access::{Reader, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::sys::page_state::Seen;
use crate::sys::pages::{Entered, Exclusive, Shared};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

/// Bytes from which on memory is asked for by a call of its own, rather than by a fault for each 4096.
const POPULATED: usize = 16 << 10;

/// How often a thread yields before it reports that there is no room.
const PATIENCE: u32 = 10_000;

/// Pages of a hint that come before who waits for one by a plain pointer is woken: woken at the first, it would be at the next one before that
/// has come, and wait again.
pub(super) const TOGETHER: usize = 16;

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

/// The page, held, which was not available at once.
#[cold]
pub(super) fn pin<'p>(pool: &'p Inner, reader: &mut dyn Reader, number: u64) -> Result<Shared<'p>> {
    let mut keep = Keep(None);
    // Nothing to break off: there is only one page.
    let _ = bring(pool, reader, &[number], &mut keep)?;
    keep.0.ok_or_else(|| Error::Invalid(format!("page {number} was not delivered by the pool's reader")))
}

/// Makes sure that these pages were in memory once.
pub(super) fn fetch(pool: &Inner, reader: &mut dyn Reader, pages: &[u64]) -> Result<()> {
    bring(pool, reader, pages, &mut Nobody).map(drop)
}

/// Reads those of these pages that are absent and not in use: it never waits for another thread's read. Who waits for one by a plain
/// pointer is woken once `together` have come, or all.
pub(super) fn expect(pool: &Inner, reader: &mut dyn Reader, pages: &[u64], together: usize) -> Result<()> {
    let take = |(index, number): (usize, &u64)| {
        let held = pool.memory.lock_evicted(*number).ok()?;
        Some((index, held))
    };
    let absent: Vec<_> = pages.iter().enumerate().filter_map(take).collect();
    if absent.is_empty() { Ok(()) } else { read(pool, reader, absent, &mut Nobody, together).map(drop) }
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
    let mut hits = Hits { pool, count: 0 };
    let mut waiting: Vec<usize> = (0..pages.len()).collect();
    let mut idle = 0;
    while !waiting.is_empty() {
        let mut later = Vec::new();
        let mut absent: Vec<(usize, Exclusive<'p>)> = Vec::new();
        for index in waiting {
            match pool.memory.enter(pages[index]) {
                Ok(Entered::Shared(held)) => {
                    hits.count += 1;
                    arrivals.submitted(index);
                    if arrivals.ready(index, held).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(Entered::Absent(held)) => absent.push((index, held)),
                // Another thread was faster, or holds it: look again.
                Err(_) => later.push(index),
            }
        }
        if absent.is_empty() {
            idle += 1;
            give_way(idle);
        } else {
            idle = 0;
            if read(pool, reader, absent, arrivals, 1)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        waiting = later;
    }
    Ok(ControlFlow::Continue(()))
}

/// Pages found in memory by one call, counted together: all threads share the pool's count.
struct Hits<'p> {
    pool: &'p Inner,
    count: u64,
}

impl Drop for Hits<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.pool.count(|counts| &counts.hits, self.count);
        }
    }
}

/// Reads pages that are locked and absent.
fn read<'p>(
    pool: &'p Inner,
    reader: &mut dyn Reader,
    absent: Vec<(usize, Exclusive<'p>)>,
    arrivals: &mut dyn Arrivals<'p>,
    together: usize,
) -> Result<ControlFlow<()>> {
    let count = absent.len() as u64;
    // Without dirty pages room is made as the reads are sent, while earlier ones are under way; writing needs the reader.
    let early = !pool.dirty.is_empty();
    if early {
        make_room(pool, reader, count)?;
    }
    pool.count(|counts| &counts.misses, count);
    let runs = runs(pool, absent.iter().map(|(_, held)| held.number()));
    let extents: Vec<Extent> = runs.iter().map(|run| pool.run(absent[run.start].1.number(), run.len())).collect();
    let mut reading = Reading {
        runs,
        absent: absent.into_iter().map(Some).collect(),
        arrivals,
        pool,
        room: Room { pool, taken: if early { count } else { 0 }, used: 0 },
        arrived: Arrived { pool, numbers: Vec::new() },
        woken: Woken { pool, together, asleep: 0, first: u64::MAX, last: 0 },
        flow: ControlFlow::Continue(()),
        failed: None,
    };
    let visited = reader.visit(&extents, &mut reading);
    let Reading { absent, room, arrived, woken, flow, failed, .. } = reading;
    // Those that did not come are evicted again as their guards go.
    drop((woken, absent, arrived, room));
    visited?;
    failed.map_or(Ok(()), Err)?;
    // Makes up now for what a budget full of held or dirty pages allowed above.
    make_room(pool, reader, 0)?;
    Ok(flow)
}

/// Pages that follow each other, to be transferred together: ranges of `numbers`. None crosses a multiple of the pool's
/// transfer.
pub(super) fn runs(pool: &Inner, numbers: impl Iterator<Item = u64>) -> Vec<Range<usize>> {
    let most = (pool.options.transfer.0 / pool.options.page.0).max(1);
    let mut runs: Vec<Range<usize>> = Vec::with_capacity(numbers.size_hint().0);
    let mut before = None;
    for (index, number) in numbers.enumerate() {
        match runs.last_mut() {
            Some(run) if before == number.checked_sub(1) && number % most != 0 => run.end = index + 1,
            _ => runs.push(index..index + 1),
        }
        before = Some(number);
    }
    runs
}

/// Pages of the budget that were taken, and how many of them are in memory now; the others go back on drop.
pub(super) struct Room<'p> {
    pub(super) pool: &'p Inner,
    pub(super) taken: u64,
    pub(super) used: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // Most have nothing to give back, and all threads share the count.
        if self.taken > self.used {
            self.pool.resident.fetch_sub(self.taken - self.used, Ordering::Relaxed);
        }
    }
}

/// Pages that came and are not in the clock's ring yet: they are put there together.
struct Arrived<'p> {
    pool: &'p Inner,
    numbers: Vec<u64>,
}

impl Arrived<'_> {
    fn enter_ring(&mut self) {
        if !self.numbers.is_empty() {
            self.pool.ring.arrive(self.numbers.drain(..));
        }
    }
}

impl Drop for Arrived<'_> {
    // However a visit ends: what is not in the ring is never evicted.
    fn drop(&mut self) {
        self.enter_ring();
    }
}

/// Pages that came where threads may wait for them by plain pointers, which are woken for many pages by one call.
struct Woken<'p> {
    pool: &'p Inner,
    /// Pages that come before those who wait are woken.
    together: usize,
    /// Pages that came since, all of them from `first` to `last`.
    asleep: usize,
    first: u64,
    last: u64,
}

impl Woken<'_> {
    fn came(&mut self, number: u64) {
        self.asleep += 1;
        (self.first, self.last) = (self.first.min(number), self.last.max(number));
        if self.asleep >= self.together {
            self.wake();
        }
    }

    fn wake(&mut self) {
        if self.asleep > 0 {
            self.pool.memory.wake(self.first..=self.last);
            (self.asleep, self.first, self.last) = (0, u64::MAX, 0);
        }
    }
}

impl Drop for Woken<'_> {
    // However a visit ends: whoever is not woken waits for ever.
    fn drop(&mut self) {
        self.wake();
    }
}

/// Takes the bytes of pages as they come.
struct Reading<'p, 'a> {
    /// The pages that each transfer brings, as ranges of `absent`.
    runs: Vec<Range<usize>>,
    absent: Vec<Option<(usize, Exclusive<'p>)>>,
    arrivals: &'a mut dyn Arrivals<'p>,
    pool: &'p Inner,
    room: Room<'p>,
    arrived: Arrived<'p>,
    woken: Woken<'p>,
    flow: ControlFlow<()>,
    /// A page that arrived and found no room.
    failed: Option<Error>,
}

impl Reading<'_, '_> {
    /// Takes the budget's pages up to the `wanted`-th of this visit, a batch at a time.
    fn reserve(&mut self, wanted: u64) {
        let taken = self.room.taken;
        if taken >= wanted {
            return;
        }
        let more = self.pool.batch().max(wanted - taken).min(self.absent.len() as u64 - taken);
        self.room.taken += more;
        self.arrived.enter_ring();
        self.pool.resident.fetch_add(more, Ordering::Relaxed);
        while self.pool.resident.load(Ordering::Relaxed) > self.pool.room && evict_clean(self.pool) > 0 {}
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
            self.room.used += 1;
            self.arrived.numbers.push(held.number());
            self.woken.came(held.number());
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
    let mut resident = match count {
        0 => pool.resident.load(Ordering::Relaxed),
        _ => pool.resident.fetch_add(count, Ordering::Relaxed) + count,
    };
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

/// Pages that the clock took out of its ring, locked; those that are still in memory on drop return to it.
struct Victims<'p> {
    pool: &'p Inner,
    pages: Vec<Exclusive<'p>>,
}

impl Drop for Victims<'_> {
    fn drop(&mut self) {
        let stay: Vec<u64> = self.pages.iter().filter(|held| held.is_filled()).map(Exclusive::number).collect();
        if !stay.is_empty() {
            self.pool.ring.arrive(stay);
        }
    }
}

/// One batch of the clock: pages not used since it last came are written where they are dirty, and their memory goes
/// back. Returns how many.
fn evict(pool: &Inner, reader: &mut dyn Reader) -> Result<u64> {
    let mut victims = victims(pool, |_| true);
    write::behind(pool, reader, &mut victims.pages);
    // What could not be written stays.
    give_back(victims)
}

/// One batch of the clock without those that would have to be written. Short of victims, the budget is exceeded for the
/// moment; whoever reads makes up for it afterwards. Returns how many.
fn evict_clean(pool: &Inner) -> u64 {
    // Failing to give memory back leaves the pages where they are; the next batch tries others.
    give_back(victims(pool, |held| !held.is_dirty())).unwrap_or(0)
}

/// Marked pages that are `wanted`, locked: a batch of them at most.
fn victims(pool: &Inner, wanted: impl Fn(&Exclusive<'_>) -> bool) -> Victims<'_> {
    let batch = pool.batch() as usize;
    let mut victims = Victims { pool, pages: Vec::with_capacity(batch) };
    pool.ring.sweep(batch, |number| {
        let marked = pool.memory.pass(number) == Seen::Marked;
        let held = marked.then(|| pool.memory.lock_marked(number).ok()).flatten().filter(&wanted);
        let takes = held.is_some();
        victims.pages.extend(held);
        takes
    });
    victims
}

/// Takes the memory of the clean ones back; the others stay. Returns how many went.
fn give_back(mut victims: Victims<'_>) -> Result<u64> {
    let Victims { pool, pages } = &mut victims;
    pages.sort_by_key(|held| (held.is_dirty(), held.number()));
    let clean = pages.partition_point(|held| !held.is_dirty());
    if clean == 0 {
        return Ok(0);
    }
    let calls = pool.memory.evict(&mut pages[..clean]);
    let gone = pages.iter().filter(|held| !held.is_filled()).count() as u64;
    pool.resident.fetch_sub(gone, Ordering::Relaxed);
    pool.count(|counts| &counts.evicted, gone);
    pool.count(|counts| &counts.drop_calls, calls?);
    Ok(gone)
}
