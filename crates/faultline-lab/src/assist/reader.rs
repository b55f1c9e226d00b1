//! One thread of the program in one file: what its faults say, and what is read ahead for it.
//!
//! Where faults show the accesses (little read-ahead, or MADV_RANDOM), a learning policy follows them. Where the kernel's
//! read-ahead hides them, a stride is guessed from the faults that are left ([`Rows`]), and tried: a few single pages are
//! read beyond what the kernel has read. If the program then steps from one of these pages to the next, and what lies
//! between them is in nobody's cache, it is a stride; a scan would have needed what lies between.

use super::rows::Rows;
use faultline::prefetch::{self, Follower};
use faultline::sys::cache;
use faultline::{Error, Extent, Given, Target};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Smallest unit that is read.
pub const PAGE: u64 = 4096;

/// Latest faults whose surroundings are looked at, and after how many faults that is done.
const LOOKED_AT: usize = 8;
const LOOK_EVERY: u32 = 16;

/// Bytes after a page that a scan would have needed soon.
const NEIGHBOURS: u64 = 64 << 10;

/// Bytes looked through for the end of what is cached, before there is nothing to do.
const CACHED_AHEAD: u64 = 64 << 20;

/// Rows of a trial beyond those that the kernel's next read-ahead may fill up: for the time until we look again.
const TRIAL_ROWS: u64 = 256;

/// Steps over holes that prove a stride, and other faults that disprove it.
const PROOFS: u32 = 4;
const DISPROOFS: u32 = 8;

/// Faults among which a stride must explain all but a quarter.
const JUDGED: u32 = 64;

/// Faults to let pass after the first failure; each further one doubles it.
const FIRST_REST: u64 = 256;
const LONGEST_REST: u64 = 1 << 20;

/// Pages read for nothing before that counts.
const WASTE_ALLOWED: u64 = 256;

/// How far ahead.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Rows ahead of a stride.
    pub rows: u64,
    /// Bytes ahead.
    pub budget: u64,
    /// Bytes that the kernel reads around a fault.
    pub read_ahead: u64,
}

/// What is read ahead for one thread in one file.
pub struct FileReader {
    target: Arc<Target>,
    reach: Reach,
    learned: Follower,
    mode: Mode,
    rows: Rows,
    latest: VecDeque<u64>,
    until_look: u32,
    /// Whether the surroundings of the latest faults are not cached, so that the faults show the accesses.
    shows: bool,
    asked: Asked,
    rest: u64,
    next_rest: u64,
    /// What was done so far.
    pub tally: Tally,
}

/// What was done for a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Pages read ahead, and those of them that were then touched.
    pub asked: u64,
    /// See above.
    pub used: u64,
    /// Trials of a guessed stride.
    pub trials: u64,
    /// Times it was stopped because it did not help.
    pub stopped: u64,
    /// The stride last followed for sure.
    pub stride: Option<u64>,
    /// Whether the learning policy read ahead.
    pub learned: bool,
}

enum Mode {
    Watching,
    Trying(Trial),
    Following { strided: Box<Follower>, stride: u64, phase: u64, seen: u32, others: u32 },
}

/// A stride on trial.
struct Trial {
    stride: u64,
    /// First row that was read ahead, and the end of the last.
    from: u64,
    until: u64,
    last: u64,
    proofs: u32,
    others: u32,
}

/// Pages read ahead that were not touched yet.
#[derive(Default)]
struct Asked {
    pages: HashSet<u64>,
    order: VecDeque<u64>,
    wasted: u64,
}

impl Asked {
    fn add(&mut self, extent: Extent, most: usize) -> u64 {
        let pages = extent.offset / PAGE..(extent.offset + extent.length as u64).div_ceil(PAGE);
        let mut added = 0;
        for page in pages {
            if self.pages.insert(page) {
                self.order.push_back(page);
                added += 1;
            }
        }
        // The oldest were passed by.
        while self.order.len() > most {
            let gone = self.order.pop_front().is_some_and(|page| self.pages.remove(&page));
            self.wasted += u64::from(gone);
        }
        added
    }

    fn touch(&mut self, page: u64) -> bool {
        self.pages.remove(&page)
    }
}

impl FileReader {
    /// For `target`, with `learned` to follow what shows.
    pub fn new(target: Arc<Target>, learned: Follower, reach: Reach) -> FileReader {
        FileReader {
            target,
            reach,
            learned,
            mode: Mode::Watching,
            rows: Rows::default(),
            latest: VecDeque::with_capacity(LOOKED_AT),
            until_look: LOOK_EVERY,
            shows: false,
            asked: Asked::default(),
            rest: 0,
            next_rest: FIRST_REST,
            tally: Tally::default(),
        }
    }

    /// The thread faulted at `offset`. Reads ahead what follows from it, at most `allowance` bytes; gives what was read.
    ///
    /// Errors: what the advice says.
    pub fn observe(&mut self, offset: u64, allowance: u64) -> Result<u64, Error> {
        let page = offset / PAGE * PAGE;
        self.tally.used += u64::from(self.asked.touch(offset / PAGE));
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(0);
        }
        if self.asked.wasted > self.tally.used / 16 + WASTE_ALLOWED {
            self.stop();
            return Ok(0);
        }
        self.look(page);
        let wants = self.learned.observe(Extent { offset: page, length: PAGE as usize });
        match &mut self.mode {
            Mode::Following { strided, stride, phase, seen, others } => {
                *seen += 1;
                let mut wants = false;
                match page % *stride == *phase {
                    true => wants = strided.observe(Extent { offset: page, length: PAGE as usize }),
                    false => *others += 1,
                }
                if *seen == JUDGED {
                    if *others > JUDGED / 4 {
                        self.fail();
                        return Ok(0);
                    }
                    (*seen, *others) = (0, 0);
                }
                self.learned.discard();
                let announced = wants.then(|| announce(strided, &mut self.asked, self.reach, allowance));
                self.count(announced)
            }
            Mode::Trying(_) => {
                self.learned.discard();
                self.try_on(page, allowance)
            }
            Mode::Watching if wants && self.shows => {
                self.tally.learned = true;
                let announced = announce(&mut self.learned, &mut self.asked, self.reach, allowance);
                self.rows.forget();
                self.count(Some(announced))
            }
            Mode::Watching => {
                self.learned.discard();
                match self.rows.observe(page) {
                    Some(stride) => self.begin_trial(page, stride, allowance),
                    None => Ok(0),
                }
            }
        }
    }

    fn count(&mut self, announced: Option<Result<u64, Error>>) -> Result<u64, Error> {
        let pages = announced.unwrap_or(Ok(0))?;
        self.tally.asked += pages;
        Ok(pages * PAGE)
    }

    /// Now and then looks whether what lies behind the latest faults is cached.
    fn look(&mut self, page: u64) {
        if self.latest.len() == LOOKED_AT {
            self.latest.pop_front();
        }
        self.latest.push_back(page);
        self.until_look -= 1;
        if self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            let holes = self.latest.iter().filter(|page| self.is_hole(**page + PAGE, NEIGHBOURS - PAGE)).count();
            self.shows = 2 * holes > self.latest.len();
        }
    }

    /// Whether most of a range is not cached. Where nobody tells, it counts as cached: nothing is done then.
    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let end = (offset + length).min(self.target.length());
        let Some(length) = end.checked_sub(offset).filter(|length| *length > 0) else { return false };
        let stat = cache::cachestat(&self.target.files()[0].file, offset, length);
        stat.is_ok_and(|stat| 2 * stat.cached * PAGE < length)
    }

    fn is_cached(&self, offset: u64) -> bool {
        cache::cachestat(&self.target.files()[0].file, offset, PAGE).is_ok_and(|stat| stat.cached > 0)
    }

    fn begin_trial(&mut self, page: u64, stride: u64, allowance: u64) -> Result<u64, Error> {
        self.rows.forget();
        let inside = |row: &u64| *row < self.target.length();
        let ahead = (1..=CACHED_AHEAD.div_ceil(stride)).map(|row| page + row * stride).take_while(inside);
        let Some(from) = ahead.into_iter().find(|row| !self.is_cached(*row)) else {
            self.fail();
            return Ok(0);
        };
        // The kernel's read-ahead goes on once more behind us, and fills what lies between our pages.
        let rows = (2 * self.reach.read_ahead / stride + TRIAL_ROWS).min(self.reach.budget / PAGE);
        let until = from + rows * stride;
        self.learned.want((0..rows).map(|row| Extent { offset: from + row * stride, length: PAGE as usize }));
        self.tally.trials += 1;
        self.mode = Mode::Trying(Trial { stride, from, until, last: page, proofs: 0, others: 0 });
        let announced = announce(&mut self.learned, &mut self.asked, self.reach, allowance);
        self.count(Some(announced))
    }

    fn try_on(&mut self, page: u64, allowance: u64) -> Result<u64, Error> {
        let Mode::Trying(trial) = &self.mode else { return Ok(0) };
        let Trial { stride, from, until, last, mut proofs, mut others } = *trial;
        let is_row = page % stride == from % stride;
        let stepped = page.wrapping_sub(last);
        if is_row && page > from && stepped > 0 && stepped <= 4 * stride {
            proofs += u32::from(self.is_hole(page - stride + PAGE, stride.min(2 * NEIGHBOURS) - PAGE));
        } else if !is_row {
            others += 1;
        }
        if proofs >= PROOFS {
            return self.follow(page, stride, allowance);
        }
        if others > DISPROOFS || page >= until || page.wrapping_sub(last) > 4 * self.reach.read_ahead + (1 << 30) {
            self.fail();
            return Ok(0);
        }
        self.mode = Mode::Trying(Trial { stride, from, until, last: page, proofs, others });
        Ok(0)
    }

    fn follow(&mut self, page: u64, stride: u64, allowance: u64) -> Result<u64, Error> {
        let Reach { rows, budget, .. } = self.reach;
        let given = Given::none().with("stride", stride).with("rows", rows).with("budget", budget);
        let mut strided = prefetch::follow(prefetch::named("strided")?, Arc::clone(&self.target), &given)?;
        strided.observe(Extent { offset: page, length: PAGE as usize });
        let announced = announce(&mut strided, &mut self.asked, self.reach, allowance);
        self.tally.stride = Some(stride);
        self.next_rest = FIRST_REST;
        self.mode = Mode::Following { strided: Box::new(strided), stride, phase: page % stride, seen: 0, others: 0 };
        self.count(Some(announced))
    }

    /// What was tried is not so; it is not tried again for a while.
    fn fail(&mut self) {
        self.mode = Mode::Watching;
        self.rows.forget();
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(LONGEST_REST);
    }

    /// What is read ahead is not used.
    fn stop(&mut self) {
        self.tally.stopped += 1;
        self.asked = Asked::default();
        self.fail();
    }
}

/// Reads ahead what `follower` wants, where the allowance is not used up; gives the pages.
fn announce(follower: &mut Follower, asked: &mut Asked, reach: Reach, allowance: u64) -> Result<u64, Error> {
    if allowance == 0 {
        follower.discard();
        return Ok(0);
    }
    let most = (2 * reach.budget / PAGE) as usize;
    let mut pages = 0;
    follower.announce(|extent| pages += asked.add(extent, most))?;
    Ok(pages)
}
