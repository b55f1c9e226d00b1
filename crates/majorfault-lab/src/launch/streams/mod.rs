//! From the page faults of one address space to advice about it: streams are found, read in ahead of their next page, and paged out
//! behind.
//!
//! Nothing here knows of a kernel: faults come in as page numbers, pages are asked about and advised through [`Hands`]. Streams have any
//! step of pages, in either direction. How far one goes on is learnt from the lengths of those before; whether paging out behind pays,
//! from what came back.

mod ghosts;
mod run_lengths;
mod stream;

use ghosts::Ghosts;
use run_lengths::RunLengths;
use std::ops::Range;
use stream::{FaultStream, Meeting};

/// Streams that are followed at once; the one that was met least recently makes room.
const MOST_STREAMS: usize = 64;

/// Steps of a stream before anything is done for it.
const SURE: u32 = 4;

/// Steps of a stream that is worth following faults for.
const USEFUL: u32 = 16;

/// Pages of shorter windows are left to the kernel's own read-ahead, which brings 8.
const LEAST_WINDOW: i64 = 8;

/// The farthest that is read ahead of a stream: 4 MiB.
const MOST_WINDOW: i64 = 1024;

/// Steps asked for at once: 1 MiB of a sequence.
const PIECE: i64 = 256;

/// Beyond so many steps a stream goes on without asking how long others were.
const LONG: i64 = 512;

/// Pages between a stream and what is paged out behind it.
const BEHIND: i64 = 64;

/// Pages that are paged out at once: 1 to 8 MiB.
const PAGE_OUT: Range<i64> = 256..2048;

/// Page numbers beyond this are no addresses of a process.
const LAST_PAGE: u64 = 1 << 52;

/// What is asked about pages of the address space, and done to them.
pub trait Hands {
    /// Which of the `count` pages from `first` on are swapped out; fewer where the rest is not known.
    fn swapped(&mut self, first: u64, count: usize) -> &[bool];

    /// Reads the pages in.
    fn fetch(&mut self, pages: &[Range<u64>]);

    /// Pages out.
    fn page_out(&mut self, pages: Range<u64>);
}

/// How it stands with memory while a fault is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straits {
    /// Pages that the program may have in memory.
    pub limit: u64,
    /// Pages that may be read in ahead of all streams here, and not yet passed.
    pub most_ahead: u64,
    /// Whether so little is left that paging out makes room for what comes next.
    pub is_near: bool,
}

/// What was done for an address space, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advised {
    /// Read in ahead.
    pub fetched: u64,
    /// Of these, passed by their stream.
    pub used: u64,
    /// Paged out behind.
    pub paged_out: u64,
    /// Of these, needed again too soon.
    pub came_back: u64,
    /// Streams that something was read in for.
    pub streams: u64,
}

impl std::ops::AddAssign for Advised {
    fn add_assign(&mut self, other: Advised) {
        let Advised { fetched, used, paged_out, came_back, streams } = other;
        self.fetched += fetched;
        self.used += used;
        self.paged_out += paged_out;
        self.came_back += came_back;
        self.streams += streams;
    }
}

impl std::ops::Sub for Advised {
    type Output = Advised;

    fn sub(self, before: Advised) -> Advised {
        Advised {
            fetched: self.fetched - before.fetched,
            used: self.used - before.used,
            paged_out: self.paged_out - before.paged_out,
            came_back: self.came_back - before.came_back,
            streams: self.streams - before.streams,
        }
    }
}

/// The streams of one address space.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<FaultStream>,
    /// The stream that was met last.
    recent: usize,
    /// Faults so far: the clock here.
    clock: u64,
    /// Streams that are going on, counted now and then.
    active: i64,
    lengths: RunLengths,
    ghosts: Ghosts,
    /// Steps of streams for which swapped pages had been found.
    helped: u64,
    advised: Advised,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            streams: Vec::with_capacity(MOST_STREAMS),
            recent: 0,
            clock: 0,
            active: 1,
            lengths: RunLengths::default(),
            ghosts: Ghosts::default(),
            helped: 0,
            advised: Advised::default(),
        }
    }
}

impl Streams {
    /// A fault at `page`.
    pub fn fault(&mut self, page: u64, straits: Straits, hands: &mut impl Hands) {
        if page >= LAST_PAGE {
            return;
        }
        self.clock += 1;
        if self.clock.is_multiple_of(PIECE as u64) {
            self.active = self.streams.iter().filter(|stream| stream.is_going_on(self.clock)).count().max(1) as i64;
        }
        if let Some(index) = self.meet(page as i64) {
            self.recent = index;
            self.advance(index, page as i64, straits, hands);
        }
    }

    /// The fault at `page`, which was told before, has waited for the device: what lies ahead of its stream may have been in memory when it
    /// was asked for, and be gone since.
    pub fn waited(&mut self, page: u64) {
        let at = |stream: &&mut FaultStream| stream.steps() >= SURE && stream.last() as u64 == page;
        self.streams.iter_mut().filter(at).for_each(FaultStream::ask_again);
    }

    /// Pages read in ahead that no stream has passed yet.
    pub fn outstanding(&self) -> u64 {
        let living = self.streams.iter().filter(|stream| stream.is_living(self.clock));
        living.map(FaultStream::outstanding).sum()
    }

    /// How often a stream went on for which swapped pages had been found.
    pub fn helped(&self) -> u64 {
        self.helped
    }

    /// Forgets all streams, because their next faults will not be seen. What was learnt of them stays.
    pub fn rest(&mut self) {
        let ended = std::mem::take(&mut self.streams);
        ended.iter().for_each(|stream| self.lengths.note(stream));
    }

    /// What was done so far.
    pub fn advised(&self) -> Advised {
        self.advised
    }

    /// The stream that has come to `page`, where there is one that is sure of its step.
    fn meet(&mut self, page: i64) -> Option<usize> {
        // Most often it is the one that was met before.
        if self.streams.get(self.recent).is_some_and(|stream| stream.meeting(page) == Meeting::Next) {
            return Some(self.recent);
        }
        let mut nearest: Option<(usize, i64)> = None;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            match stream.meeting(page) {
                Meeting::Next => return Some(index),
                Meeting::Passed => {
                    stream.touch(self.clock);
                    return None;
                }
                Meeting::Near(distance) if nearest.is_none_or(|(_, least)| distance < least) => {
                    nearest = Some((index, distance));
                }
                Meeting::Near(_) | Meeting::Apart => {}
            }
        }
        match nearest {
            Some((index, _)) => self.streams[index].learn(page, self.clock).then_some(index),
            None => {
                self.begin(page);
                None
            }
        }
    }

    /// A stream may begin at `page`.
    fn begin(&mut self, page: i64) {
        let new = FaultStream::new(page, self.clock);
        if self.streams.len() < MOST_STREAMS {
            self.streams.push(new);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.touched()) {
            let ended = std::mem::replace(oldest, new);
            self.lengths.note(&ended);
        }
    }

    fn advance(&mut self, index: usize, page: i64, straits: Straits, hands: &mut impl Hands) {
        let stream = &mut self.streams[index];
        if stream.is_sequence() && stream.enters_chunk(page) {
            self.advised.came_back += self.ghosts.came_back(page, self.clock, straits.limit);
        }
        self.advised.used += stream.step_to(page, self.clock);
        if stream.steps() > USEFUL && stream.is_useful() {
            self.helped += 1;
        }
        if stream.steps() >= SURE {
            self.fetch(index, straits, hands);
            self.page_out(index, straits, hands);
        }
    }

    /// Reads in ahead of the stream where its window is half empty.
    fn fetch(&mut self, index: usize, straits: Straits, hands: &mut impl Hands) {
        let share = (straits.limit / 8) as i64 / self.active;
        let stream = &mut self.streams[index];
        let window = stream.run().min(share.clamp(64, MOST_WINDOW));
        if window < LEAST_WINDOW || stream.ahead() > window / 2 {
            return;
        }
        if stream.run() <= LONG && !self.lengths.goes_on(stream.run()) {
            return;
        }
        let window = window.min(straits.most_ahead.saturating_sub(self.outstanding()) as i64);
        let stream = &mut self.streams[index];
        if window < LEAST_WINDOW || stream.ahead() > window / 2 {
            return;
        }
        let was_useful = stream.is_useful();
        let fetched = stream.fetch(window, PIECE, hands);
        self.advised.fetched += fetched;
        self.advised.streams += u64::from(!was_useful && fetched > 0);
    }

    /// Pages out behind a stream that re-reads what was swapped out, as long as that pays.
    fn page_out(&mut self, index: usize, straits: Straits, hands: &mut impl Hands) {
        let stream = &mut self.streams[index];
        if !stream.is_sequence() || !stream.is_useful() || stream.run() <= LONG {
            return;
        }
        let Some(pages) = stream.left_behind(BEHIND, PAGE_OUT) else { return };
        if straits.is_near && self.ghosts.is_paying() {
            self.ghosts.put(&pages, self.clock);
            self.advised.paged_out += pages.end - pages.start;
            hands.page_out(pages);
        }
    }
}

#[cfg(test)]
mod tests;
