//! One thread of the program in one file: what its faults show, and what is read ahead for it.
//!
//! Where faults show the accesses (little read-ahead, or MADV_RANDOM), a learning policy follows them. Where the kernel's
//! read-ahead hides them, a stride is guessed from the remaining faults ([`Rows`]). A scan of cached pages
//! faults where a window of 64 KiB begins, or a huge folio, or a page that the kernel marked, so a guess that could be such a
//! scan is tried first. Single pages are read beyond what the kernel has read. If the program steps from one to the next,
//! and what lies between them is not cached, it is a stride. This must stay so while the stride is followed: where
//! the kernel reads what lies between as well, reading ahead gains nothing.
//!
//! Reads by calls are all seen, cached or not, so a learning policy follows them as they are. Those that go on where the last one ended are left
//! to the kernel's own read-ahead.
//!
//! The kernel tells what is cached only to the file's owner and to those who may write it (cachestat, Linux 6.5). For other files
//! only strides that cannot be scans are followed.

use super::rows::Rows;
use majorfault::observe::pattern::{FAULT_AROUND as NEIGHBOURS, HUGE_FOLIO};
use majorfault::prefetch::{self, Follower};
use majorfault::sys::cache;
use majorfault::{Error, Extent, Given, Target};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Smallest unit that is read.
pub const PAGE: u64 = 4096;

/// How many of the latest faults have their surroundings checked, and for how many faults the result counts.
const LOOKED_AT: usize = 8;
const LOOK_EVERY: u32 = 16;

/// Bytes searched for the end of what is cached before the reader gives up for now.
const CACHED_AHEAD: u64 = 64 << 20;

/// Rows of a trial beyond those that the kernel's next read-ahead may fill, to last until the next look.
/// Each of them slows down a scan: few where every row waits for the device, more where the program goes
/// through what a long read-ahead brought.
const TRIAL_ROWS: (u64, u64) = (8, 32);
const TRIAL_BYTES: u64 = 2 << 20;
const LONG_READ_AHEAD: u64 = 1 << 20;

/// Equal faults before a guess that may be a scan is tried, as a trial makes the kernel read in small pieces.
const SCAN_FAULTS: u32 = 64;

/// Steps over uncached gaps that prove a stride, and faults outside the rows that disprove it.
const PROOFS: u32 = 4;
const DISPROOFS: u32 = 2;

/// Rows that may be skipped before the guess starts again.
const SKIPPED: u64 = 4;

/// A stride must explain all but a quarter of so many faults.
const JUDGED: u32 = 64;

/// Faults to skip after the first failure; each further failure makes it four times as many.
const FIRST_REST: u64 = 2048;
const LONGEST_REST: u64 = 1 << 20;
const REST_AFTER_SUCCESS: u64 = 64;

/// How many of the kernel's read-aheads a stride survives once it was proven.
const LATE: u64 = 16;

/// Pages read for nothing before waste counts.
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

/// Cached pages among so many bytes after an offset; none where the kernel does not tell.
type Cached = Box<dyn Fn(u64, u64) -> Option<u64>>;

/// What is read ahead for one thread in one file.
pub struct FileReader {
    target: Arc<Target>,
    cached: Cached,
    reach: Reach,
    learned: Follower,
    mode: Mode,
    rows: Rows,
    latest: VecDeque<u64>,
    /// Whether the kernel tells what is cached.
    is_told: bool,
    /// Whether the policy knows what comes (from a trace) instead of learning it.
    knows: bool,
    /// Whether the surroundings of the latest faults were uncached, so that faults show the accesses, and for how many
    /// faults that holds.
    shows: (bool, u32),
    asked: Asked,
    rest: u64,
    next_rest: u64,
    /// Where the last read by a call ended, and whether it went on after the one before.
    read_on: (u64, bool),
    /// The stride that was followed over uncached gaps.
    pub proved: Option<u64>,
    /// What was done so far.
    pub tally: ReadCounts,
}

/// What was done for a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadCounts {
    /// Pages read ahead.
    pub asked: u64,
    /// Of these, those touched afterwards.
    pub used: u64,
    /// Trials of a guessed stride.
    pub trials: u64,
    /// Times that it was stopped because it did not help.
    pub stopped: u64,
    /// The last stride that was followed and proven.
    pub stride: Option<u64>,
    /// Whether the learning policy read something ahead.
    pub learned: bool,
    /// Rows near each other that were left alone, because what the page cache holds is not told here: they may be a scan.
    pub untold: u64,
}

enum Mode {
    Watching,
    Trying(Trial),
    Following(Box<Stride>),
}

/// A stride that is followed.
struct Stride {
    strided: Follower,
    stride: u64,
    phase: u64,
    /// The last fault.
    last: u64,
    /// Up to here the kernel may read what lies between the rows without ending the stride.
    grace: u64,
    /// Faults since the stride was last judged; of these, faults outside the rows, and steps over uncached gaps.
    seen: u32,
    others: u32,
    holes: u32,
}

/// A stride on trial.
struct Trial {
    stride: u64,
    /// The first row that was read ahead, and the end of the last one.
    from: u64,
    until: u64,
    last: u64,
    proofs: u32,
    others: u32,
}

/// Pages read ahead that were not touched yet.
#[derive(Default)]
struct Asked {
    /// Each with the number of its request.
    pages: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    number: u64,
    wasted: u64,
}

impl Asked {
    fn add(&mut self, extent: Extent, most: usize) -> u64 {
        let pages = extent.offset / PAGE..(extent.offset + extent.length as u64).div_ceil(PAGE);
        let mut added = 0;
        for page in pages {
            self.number += 1;
            if let Entry::Vacant(new) = self.pages.entry(page) {
                new.insert(self.number);
                self.order.push_back((page, self.number));
                added += 1;
            }
        }
        // The oldest were skipped, unless they were touched since, or requested again.
        while self.order.len() > most {
            let Some((page, number)) = self.order.pop_front() else { break };
            if self.pages.get(&page) == Some(&number) {
                self.pages.remove(&page);
                self.wasted += 1;
            }
        }
        added
    }

    fn touch(&mut self, page: u64) -> bool {
        self.pages.remove(&page).is_some()
    }
}

impl FileReader {
    /// A reader of `target`; `learned` follows the order that faults show, or `knows` it.
    pub fn new(target: Arc<Target>, learned: Follower, knows: bool, reach: Reach) -> FileReader {
        let of = Arc::clone(&target);
        let cached =
            move |offset, length| cache::cachestat(&of.files()[0].file, offset, length).ok().map(|stat| stat.cached);
        FileReader::told(target, learned, knows, reach, Box::new(cached))
    }

    fn told(target: Arc<Target>, learned: Follower, knows: bool, reach: Reach, cached: Cached) -> FileReader {
        FileReader {
            is_told: cached(0, PAGE).is_some(),
            knows,
            target,
            cached,
            reach,
            learned,
            mode: Mode::Watching,
            rows: Rows::default(),
            latest: VecDeque::with_capacity(LOOKED_AT),
            shows: (false, 0),
            asked: Asked::default(),
            rest: 0,
            next_rest: FIRST_REST,
            read_on: (u64::MAX, false),
            proved: None,
            tally: ReadCounts::default(),
        }
    }

    /// Records a fault at `address`, which is `offset` in the file. [`pump`](Self::pump) reads ahead what follows from it;
    /// returns whether there is anything. `known` is a stride that another thread has.
    ///
    /// Errors: Io (no descriptor left).
    pub fn observe(&mut self, address: u64, offset: u64, known: Option<u64>) -> Result<bool, Error> {
        let page = offset / PAGE * PAGE;
        self.tally.used += u64::from(self.asked.touch(offset / PAGE));
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(false);
        }
        if self.asked.wasted > self.tally.used / 16 + WASTE_ALLOWED {
            self.stop();
            return Ok(false);
        }
        self.note(page);
        match &self.mode {
            Mode::Following(_) => return Ok(self.go_on(page)),
            Mode::Trying(_) => return self.try_on(page),
            Mode::Watching => {}
        }
        if self.learned.observe(Extent { offset: page, length: PAGE as usize }) {
            if self.knows || self.shows() {
                self.tally.learned = true;
                self.rows.forget();
                return Ok(true);
            }
            self.learned.discard();
        }
        // What the policy wanted before and was not read yet stays.
        if self.knows { Ok(false) } else { self.guess(address, page, known) }
    }

    /// Records a read by a call; returns whether something is to be read ahead because of it.
    pub fn observe_read(&mut self, extent: Extent) -> bool {
        let end = extent.offset.saturating_add(extent.length as u64);
        for page in extent.offset / PAGE..end.div_ceil(PAGE) {
            self.tally.used += u64::from(self.asked.touch(page));
        }
        // A part of the last page may have been read before.
        let goes_on = extent.offset <= self.read_on.0 && end >= self.read_on.0;
        self.read_on = (end, goes_on);
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        if self.asked.wasted > self.tally.used / 16 + WASTE_ALLOWED {
            self.stop();
            return false;
        }
        let wants = self.learned.observe(extent);
        if goes_on && !self.knows {
            self.learned.discard();
            return false;
        }
        self.tally.learned |= wants;
        wants
    }

    fn guess(&mut self, address: u64, page: u64, known: Option<u64>) -> Result<bool, Error> {
        let guessed = self.rows.observe(page);
        let known = known.filter(|stride| self.rows.are_of(*stride));
        let Some((stride, faults)) = known.map(|stride| (stride, SCAN_FAULTS)).or(guessed) else { return Ok(false) };
        // A scan faults where windows and huge folios begin, and where the kernel marked a page to read ahead again.
        let at_folios = stride.is_multiple_of(HUGE_FOLIO) && address % NEIGHBOURS < PAGE;
        let may_be_scan = known.is_none() && (stride <= NEIGHBOURS || at_folios);
        if may_be_scan && (faults < SCAN_FAULTS || !self.is_told) {
            self.tally.untold += u64::from(faults >= SCAN_FAULTS);
            return Ok(false);
        }
        let Some(uncached) = self.end_of_cached(page, stride) else {
            // Either the file is cached, or the program was faster than we are; which of the two shows soon.
            self.rows.forget();
            self.rest = REST_AFTER_SUCCESS;
            return Ok(false);
        };
        match may_be_scan {
            true => self.begin_trial(page, uncached, stride),
            false => self.follow(page, stride)?,
        }
        Ok(true)
    }

    /// Reads ahead what is wanted: at most `limit` requests, and as many as `allowance` has pages. Returns the bytes read (more
    /// than that where requests are long) and whether more is left. Where nothing may be read, what is wanted is
    /// dropped: it would come too late.
    ///
    /// Errors: those of the advice.
    pub fn pump(&mut self, limit: usize, allowance: u64) -> Result<(u64, bool), Error> {
        let follower = match &mut self.mode {
            Mode::Following(followed) => &mut followed.strided,
            _ => &mut self.learned,
        };
        if allowance == 0 {
            follower.discard();
            return Ok((0, false));
        }
        let most = (self.reach.budget.saturating_mul(2) / PAGE) as usize;
        // A request has at least one page; the next call has less by as much as longer requests exceed that.
        let limit = limit.min(allowance.div_ceil(PAGE).try_into().unwrap_or(usize::MAX));
        let (asked, mut pages) = (&mut self.asked, 0);
        let more = follower.announce(limit, |extent| pages += asked.add(extent, most))?;
        self.tally.asked += pages;
        Ok((pages * PAGE, more))
    }

    /// Continues a stride; returns whether something is wanted.
    fn go_on(&mut self, page: u64) -> bool {
        let Mode::Following(followed) = &self.mode else { return false };
        let is_row = page % followed.stride == followed.phase;
        let (behind, length) = (page.wrapping_sub(followed.stride) + PAGE, followed.stride.min(2 * NEIGHBOURS) - PAGE);
        let over_hole = is_row && followed.seen.is_multiple_of(LOOKED_AT as u32) && self.is_hole(behind, length);
        let Mode::Following(followed) = &mut self.mode else { return false };
        if is_row && page.wrapping_sub(followed.last) > SKIPPED * followed.stride {
            // The policy would take it for another column beside the one that it follows, so it starts again here; where no
            // descriptor is left, it goes on a little worse.
            if let Ok(anew) = followed.strided.sibling() {
                followed.strided = anew;
            }
        }
        followed.last = page;
        followed.seen += 1;
        followed.others += u32::from(!is_row);
        followed.holes += u32::from(over_hole);
        let wants = is_row && followed.strided.observe(Extent { offset: page, length: PAGE as usize });
        if followed.seen == JUDGED {
            if followed.holes > 0 {
                // Being late once restarts the kernel's read-ahead, and it takes a while to get ahead of that.
                followed.grace = page + LATE * self.reach.read_ahead + u64::from(JUDGED) * followed.stride;
                self.next_rest = REST_AFTER_SUCCESS;
                self.proved = Some(followed.stride);
            }
            let helps = followed.others <= JUDGED / 4 && page < followed.grace;
            (followed.seen, followed.others, followed.holes) = (0, 0, 0);
            if !helps {
                self.fail();
                return false;
            }
        }
        wants
    }

    fn note(&mut self, page: u64) {
        if self.latest.len() == LOOKED_AT {
            self.latest.pop_front();
        }
        self.latest.push_back(page);
        self.shows.1 = self.shows.1.saturating_sub(1);
    }

    /// Whether what follows the latest faults is uncached.
    fn shows(&mut self) -> bool {
        if self.is_told && self.shows.1 == 0 {
            let holes = self.latest.iter().filter(|page| self.is_hole(**page + PAGE, NEIGHBOURS - PAGE)).count();
            self.shows = (2 * holes > self.latest.len(), LOOK_EVERY);
        }
        self.shows.0
    }

    /// Whether the next faults matter so much that they should be seen soon.
    pub fn is_alert(&self) -> bool {
        !matches!(self.mode, Mode::Watching)
            || self.rows.is_near()
            || self.tally.learned && self.rest == 0 && !self.read_on.1
    }

    /// Whether most of a range is uncached, as far as the kernel tells.
    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let end = (offset + length).min(self.target.len());
        let Some(length) = end.checked_sub(offset).filter(|length| *length > 0) else { return false };
        (self.cached)(offset, length).map_or(!self.is_told, |pages| 2 * pages * PAGE < length)
    }

    fn is_cached(&self, offset: u64) -> bool {
        (self.cached)(offset, PAGE).is_some_and(|pages| pages > 0)
    }

    /// The first row after `page` that is uncached; none within the search, or up to the end of the file.
    fn end_of_cached(&self, page: u64, stride: u64) -> Option<u64> {
        let rows = (1..=CACHED_AHEAD.div_ceil(stride)).map(|row| page + row * stride);
        rows.take_while(|row| *row < self.target.len()).find(|row| !self.is_cached(*row))
    }

    fn begin_trial(&mut self, page: u64, from: u64, stride: u64) {
        self.rows.forget();
        // The kernel's read-ahead goes one step further behind us, and fills what lies between our pages.
        let most = if self.reach.read_ahead > LONG_READ_AHEAD { TRIAL_ROWS.1 } else { TRIAL_ROWS.0 };
        let more = (TRIAL_BYTES / stride).clamp(TRIAL_ROWS.0, most);
        let rows = (self.reach.read_ahead / stride + more).min(self.reach.budget / PAGE);
        let until = from + rows * stride;
        self.learned.discard();
        self.learned.want((0..rows).map(|row| Extent { offset: from + row * stride, length: PAGE as usize }));
        self.tally.trials += 1;
        self.mode = Mode::Trying(Trial { stride, from, until, last: page, proofs: 0, others: 0 });
    }

    /// Checks a fault during a trial; returns whether something is wanted because of it.
    fn try_on(&mut self, page: u64) -> Result<bool, Error> {
        let Mode::Trying(trial) = &self.mode else { return Ok(false) };
        let Trial { stride, from, until, last, mut proofs, mut others } = *trial;
        let is_row = page % stride == from % stride;
        let stepped = page.wrapping_sub(last);
        if page > from && page < until {
            let steps = is_row && stepped > 0 && stepped <= 4 * stride;
            let over_hole = steps && self.is_hole(page - stride + PAGE, stride.min(2 * NEIGHBOURS) - PAGE);
            proofs += u32::from(over_hole);
            others += u32::from(!is_row);
        }
        if proofs >= PROOFS {
            self.follow(page, stride)?;
            return Ok(true);
        }
        if others >= DISPROOFS || page >= until || page.wrapping_sub(last) > 4 * self.reach.read_ahead + (1 << 30) {
            self.fail();
            return Ok(false);
        }
        self.mode = Mode::Trying(Trial { stride, from, until, last: page, proofs, others });
        Ok(false)
    }

    fn follow(&mut self, page: u64, stride: u64) -> Result<(), Error> {
        let Reach { rows, budget, .. } = self.reach;
        let given = Given::none().with("stride", stride).with("rows", rows).with("budget", budget);
        let mut strided = prefetch::follow(prefetch::named("strided")?, Arc::clone(&self.target), &given)?;
        strided.observe(Extent { offset: page, length: PAGE as usize });
        self.learned.discard();
        self.tally.stride = Some(stride);
        let phase = page % stride;
        // The kernel's next read-ahead may be under way, and skips what is there.
        let uncached = self.end_of_cached(page, stride).unwrap_or(page);
        let grace = uncached + 3 * self.reach.read_ahead + u64::from(JUDGED) * stride;
        self.mode = Mode::Following(Box::new(Stride {
            strided,
            stride,
            phase,
            last: page,
            grace,
            seen: 0,
            others: 0,
            holes: 0,
        }));
        Ok(())
    }

    /// The trial failed; nothing is tried for a while.
    fn fail(&mut self) {
        self.learned.discard();
        self.mode = Mode::Watching;
        self.rows.forget();
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 4).min(LONGEST_REST);
    }

    /// What is read ahead is not used.
    fn stop(&mut self) {
        self.tally.stopped += 1;
        self.asked = Asked::default();
        self.fail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::files::Layout;
    use std::cell::{Cell, RefCell};
    use std::path::PathBuf;
    use std::rc::Rc;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// A stride that cannot be a scan, and one that can.
    const WIDE: u64 = 256 * KIB;
    const NARROW: u64 = 64 * KIB;

    /// None of the file, and all of it.
    const NOTHING: Option<u64> = Some(0);
    const ALL: Option<u64> = Some(u64::MAX);

    /// A reader of a file without data, which is told that everything below an offset is cached, or nothing.
    struct World {
        reader: FileReader,
        cached_below: Rc<Cell<Option<u64>>>,
        /// Offset and length of every range that was asked about.
        looked_at: Rc<RefCell<Vec<(u64, u64)>>>,
        _file: tempfile::NamedTempFile,
    }

    impl World {
        fn new(budget: u64, cached_below: Option<u64>) -> World {
            let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            file.as_file().set_len(1 << 40).unwrap();
            let target = Arc::new(Target::open(&[PathBuf::from(file.path())], &Layout::default()).unwrap());
            let given = Given::none().with("budget", budget).with("rows", 1024);
            let learned = prefetch::follow(prefetch::named("learned").unwrap(), Arc::clone(&target), &given).unwrap();
            let reach = Reach { rows: 1024, budget, read_ahead: 128 * KIB };
            let cached_below = Rc::new(Cell::new(cached_below));
            let below = Rc::clone(&cached_below);
            let looked_at: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
            let looks = Rc::clone(&looked_at);
            let cached = move |offset, length| {
                looks.borrow_mut().push((offset, length));
                Some(below.get()?.saturating_sub(offset).min(length).div_ceil(PAGE))
            };
            let reader = FileReader::told(target, learned, false, reach, Box::new(cached));
            World { reader, cached_below, looked_at, _file: file }
        }

        /// Follows a wide stride after the rows 0 to 8, all of them cached.
        fn following(budget: u64) -> World {
            let mut world = World::new(budget, Some(9 * WIDE));
            assert!(world.rows(WIDE, 0..9) && world.is_following());
            world
        }

        /// Tries a narrow stride after the rows 0 to 64, all of them cached; the rows 65 to 74 are read ahead.
        fn trying() -> World {
            let mut world = World::new(8 * MIB, Some(65 * NARROW));
            assert!(world.rows(NARROW, 0..65) && world.is_trying());
            world
        }

        /// Records faults at these offsets; returns whether the last one made something wanted.
        fn faults(&mut self, offsets: impl IntoIterator<Item = u64>) -> bool {
            offsets.into_iter().fold(false, |_, offset| self.fault(offset, None))
        }

        fn fault(&mut self, offset: u64, known: Option<u64>) -> bool {
            self.reader.observe(offset, offset, known).unwrap()
        }

        fn rows(&mut self, stride: u64, rows: std::ops::Range<u64>) -> bool {
            self.faults(rows.map(|row| row * stride))
        }

        /// Reads everything that is wanted; returns the bytes.
        fn pump(&mut self) -> u64 {
            let (bytes, more) = self.reader.pump(usize::MAX, u64::MAX).unwrap();
            assert!(!more);
            bytes
        }

        /// Bytes requested and not yet touched after an offset.
        fn bytes_ahead_of(&self, offset: u64) -> u64 {
            PAGE * self.reader.asked.pages.keys().filter(|page| **page * PAGE > offset).count() as u64
        }

        fn is_trying(&self) -> bool {
            matches!(self.reader.mode, Mode::Trying(_))
        }

        fn is_following(&self) -> bool {
            matches!(self.reader.mode, Mode::Following(_))
        }

        fn is_watching(&self) -> bool {
            matches!(self.reader.mode, Mode::Watching)
        }
    }

    fn page(number: u64) -> Extent {
        Extent { offset: number * PAGE, length: PAGE as usize }
    }

    #[test]
    fn pages_asked_for_twice_count_once() {
        let mut asked = Asked::default();

        assert_eq!(asked.add(Extent { offset: PAGE, length: 2 * PAGE as usize }, 100), 2);
        assert_eq!(asked.add(Extent { offset: 2 * PAGE, length: 1 }, 100), 0);
        assert_eq!(asked.add(Extent { offset: 2 * PAGE, length: PAGE as usize + 1 }, 100), 1);
    }

    #[test]
    fn a_page_is_wasted_when_so_many_were_asked_for_since() {
        let mut asked = Asked::default();

        assert_eq!((0..8).map(|number| asked.add(page(number), 8)).sum::<u64>(), 8);
        assert_eq!(asked.wasted, 0);
        asked.add(page(8), 8);
        assert_eq!(asked.wasted, 1);
        assert!(!asked.touch(0) && asked.touch(1));
    }

    #[test]
    fn a_page_that_was_touched_is_not_wasted_and_one_asked_for_again_not_yet() {
        let mut asked = Asked::default();
        assert_eq!((0..8).map(|number| asked.add(page(number), 8)).sum::<u64>(), 8);

        assert!(asked.touch(0) && asked.touch(1));
        asked.add(page(1), 8);
        asked.add(page(8), 8);

        assert_eq!(asked.wasted, 0);
        assert!(asked.touch(1));
    }

    #[test]
    fn a_wide_stride_is_followed_from_the_ninth_fault_on() {
        let mut world = World::new(8 * MIB, Some(9 * WIDE));

        world.rows(WIDE, 0..8);
        assert!(world.is_watching());
        assert!(world.rows(WIDE, 8..9));
        assert!(world.is_following());
        assert_eq!(world.reader.tally.stride, Some(WIDE));
    }

    #[test]
    fn a_stride_that_another_thread_has_is_followed_from_the_third_fault_on() {
        let mut world = World::new(8 * MIB, Some(3 * WIDE));

        assert!(!world.fault(0, Some(WIDE)) && !world.fault(WIDE, Some(WIDE)));
        assert!(world.fault(2 * WIDE, Some(WIDE)) && world.is_following());
    }

    #[test]
    fn a_stride_that_may_be_a_scan_is_tried_from_the_65th_fault_on() {
        let mut world = World::new(8 * MIB, Some(65 * NARROW));

        world.rows(NARROW, 0..64);
        assert!(world.is_watching());
        assert!(world.rows(NARROW, 64..65) && world.is_trying());
        assert_eq!((world.reader.tally.trials, world.reader.tally.stride), (1, None));
    }

    #[test]
    fn where_the_cache_cannot_be_seen_nothing_is_tried_and_wide_strides_are_followed() {
        let mut world = World::new(8 * MIB, None);
        world.rows(NARROW, 0..64);
        assert_eq!(world.reader.tally.untold, 0, "too few to be tried anywhere");
        world.rows(NARROW, 64..1000);
        assert!(world.is_watching() && world.reader.tally.trials == 0 && world.reader.tally.untold > 0);

        let mut world = World::new(8 * MIB, None);
        world.rows(WIDE, 0..9);
        assert!(world.is_following());
    }

    #[test]
    fn a_stride_of_huge_folios_may_be_a_scan_unless_it_faults_in_their_middle() {
        let folio = 2 * MIB;
        let mut world = World::new(8 * MIB, Some(9 * folio));
        world.rows(folio, 0..9);
        assert!(world.is_watching());

        let mut world = World::new(8 * MIB, Some(9 * folio + MIB));
        world.faults((0..9).map(|row| row * folio + 4096));
        assert!(world.is_following());
    }

    #[test]
    fn a_trial_reads_ten_single_rows_behind_what_is_cached() {
        let mut world = World::trying();

        assert_eq!(world.pump(), 10 * PAGE);

        let mut pages: Vec<u64> = world.reader.asked.pages.keys().copied().collect();
        pages.sort_unstable();
        assert_eq!(pages, (65..75).map(|row| row * NARROW / PAGE).collect::<Vec<_>>());
    }

    #[test]
    fn a_trial_has_32_rows_more_than_the_kernel_reads_ahead_where_that_is_more_than_1_mib() {
        let rows = |read_ahead, stride| {
            let mut world = World::new(8 * MIB, Some(65 * stride));
            world.reader.reach.read_ahead = read_ahead;
            world.rows(stride, 0..65);
            assert!(world.is_trying());
            world.pump() / PAGE
        };

        assert_eq!(rows(MIB, NARROW), 16 + 8);
        assert_eq!(rows(MIB + NARROW, NARROW), 17 + 32);
        assert_eq!(rows(MIB + 48 * KIB, 48 * KIB), 22 + 32);
        assert_eq!(rows(2 * MIB, 2 * MIB), 1 + 8, "2 MiB are a single row of such a stride");
    }

    #[test]
    fn a_trial_reads_no_more_than_the_budget() {
        let mut world = World::new(16 * KIB, Some(65 * NARROW));

        world.rows(NARROW, 0..65);

        assert_eq!(world.pump(), 16 * KIB);
    }

    #[test]
    fn four_steps_over_holes_prove_a_stride() {
        let mut world = World::trying();

        assert!(!world.rows(NARROW, 65..69));
        assert!(world.is_trying());
        assert!(world.rows(NARROW, 69..70));
        assert!(world.is_following());
        assert_eq!(world.reader.tally.stride, Some(NARROW));
    }

    #[test]
    fn steps_over_what_the_kernel_has_read_prove_nothing() {
        let mut world = World::trying();
        world.cached_below.set(ALL);

        world.rows(NARROW, 65..75);
        assert!(world.is_trying());
        world.rows(NARROW, 75..76);
        assert!(world.is_watching());
        assert_eq!(world.reader.tally.stride, None);
    }

    #[test]
    fn two_faults_beside_the_rows_disprove_a_stride() {
        let mut world = World::trying();
        // Faults before the first row that was read ahead say nothing.
        world.faults([64 * NARROW + PAGE, 65 * NARROW - PAGE]);

        world.faults([66 * NARROW + PAGE]);
        assert!(world.is_trying());
        world.faults([67 * NARROW + PAGE]);
        assert!(world.is_watching());
        assert_eq!((world.reader.tally.stride, world.reader.rest), (None, 2048));
    }

    #[test]
    fn a_trial_ends_where_the_program_turns_back_or_passes_its_end() {
        let mut world = World::trying();
        world.rows(NARROW, 74..75);
        assert!(world.is_trying());
        world.rows(NARROW, 75..76);
        assert!(world.is_watching());

        let mut world = World::trying();
        world.faults([0]);
        assert!(world.is_watching());
    }

    #[test]
    fn after_a_failure_2048_faults_pass_and_after_the_next_four_times_as_many() {
        let mut world = World::trying();
        world.faults([0]);
        assert_eq!(world.reader.rest, 2048);

        world.cached_below.set(ALL);
        world.rows(NARROW, 0..2048);
        assert_eq!((world.reader.rest, world.reader.tally.trials), (0, 1));
        world.cached_below.set(Some(3065 * NARROW));
        world.rows(NARROW, 3000..3065);
        assert_eq!(world.reader.tally.trials, 2);

        world.faults([0]);
        assert_eq!(world.reader.rest, 8192);
    }

    #[test]
    fn no_rest_is_longer_than_a_million_faults() {
        let mut world = World::new(8 * MIB, NOTHING);

        (0..20).for_each(|_| world.reader.fail());

        assert_eq!(world.reader.rest, 1 << 20);
    }

    #[test]
    fn a_file_that_is_cached_for_64_mib_is_left_for_64_faults() {
        let mut world = World::new(8 * MIB, Some(8 * WIDE + 64 * MIB + 1));
        assert!(!world.rows(WIDE, 0..9));
        assert_eq!((world.is_watching(), world.reader.rest), (true, 64));

        let mut world = World::new(8 * MIB, Some(8 * WIDE + 64 * MIB));
        assert!(world.rows(WIDE, 0..9));
        assert!(world.is_following());
    }

    #[test]
    fn a_stride_goes_on_while_it_steps_over_holes() {
        let mut world = World::following(8 * MIB);

        world.rows(WIDE, 9..1009);

        assert!(world.is_following());
        assert_eq!(world.reader.proved, Some(WIDE));
    }

    #[test]
    fn a_stride_ends_where_the_kernel_reads_what_lies_between() {
        let mut world = World::following(8 * MIB);
        world.cached_below.set(ALL);

        world.rows(WIDE, 9..136);
        assert!(world.is_following());
        world.rows(WIDE, 136..137);
        assert!(world.is_watching());
        assert_eq!(world.reader.proved, None);
    }

    #[test]
    fn a_stride_ends_where_more_than_a_quarter_of_the_faults_are_beside_it() {
        let with_others = |others: u64| {
            let mut world = World::following(8 * MIB);
            world.rows(WIDE, 9..9 + 64 - others);
            world.faults((0..others).map(|other| (9 + 64) * WIDE + other * 3 * PAGE + PAGE));
            world.is_following()
        };

        assert!(with_others(16));
        assert!(!with_others(17));
    }

    #[test]
    fn a_stride_that_leaves_rows_out_is_read_ahead_from_there() {
        let mut world = World::following(8 * MIB);
        world.pump();

        assert!(world.faults([100_009 * WIDE]));
        world.pump();

        assert!(world.bytes_ahead_of(100_009 * WIDE) > 0);
    }

    #[test]
    fn no_more_than_the_budget_is_ahead_of_a_stride() {
        let mut world = World::following(64 * KIB);
        let mut most = 0;

        for row in 9..500 {
            world.rows(WIDE, row..row + 1);
            world.pump();
            most = most.max(world.bytes_ahead_of(row * WIDE));
        }

        assert!(most > 32 * KIB && most <= 64 * KIB, "{most}");
    }

    #[test]
    fn no_more_than_the_budget_is_ahead_of_several_streams_together() {
        let mut world = World::new(256 * KIB, NOTHING);
        let mut most = 0;

        for row in 0..500 {
            for column in [0, 100 * PAGE, 200 * PAGE] {
                let offset = row * MIB + column;
                world.faults([offset]);
                world.pump();
                most = most.max(world.bytes_ahead_of(offset));
            }
        }

        assert!(world.reader.tally.learned);
        assert!(most > 128 * KIB && most <= 256 * KIB, "{most}");
    }

    /// The ranges asked about while a fault at this offset is recorded.
    fn looks_at(world: &mut World, offset: u64) -> Vec<(u64, u64)> {
        world.looked_at.borrow_mut().clear();
        world.faults([offset]);
        world.looked_at.borrow().clone()
    }

    #[test]
    fn what_lies_between_two_rows_is_looked_at_up_to_128_kib() {
        assert_eq!(looks_at(&mut World::following(8 * MIB), 9 * WIDE), [(8 * WIDE + PAGE, 128 * KIB - PAGE)]);

        let mut narrow = World::trying();
        narrow.rows(NARROW, 65..66);
        assert_eq!(looks_at(&mut narrow, 66 * NARROW), [(65 * NARROW + PAGE, 64 * KIB - PAGE)]);

        let folio = 2 * MIB;
        let mut folios = World::new(8 * MIB, Some(65 * folio));
        folios.rows(folio, 0..66);
        assert!(folios.is_trying());
        assert_eq!(looks_at(&mut folios, 66 * folio), [(65 * folio + PAGE, 128 * KIB - PAGE)]);
    }

    #[test]
    fn faults_show_the_accesses_where_more_than_half_of_the_last_eight_have_nothing_cached_around_them() {
        let shows = |cached_rows: u64| {
            let mut world = World::new(8 * MIB, Some(cached_rows * WIDE));
            (0..9).for_each(|row| world.reader.note(row * WIDE));
            world.looked_at.borrow_mut().clear();
            let shows = world.reader.shows();
            (shows, world.looked_at.borrow().clone())
        };

        let (shown, looked_at) = shows(4);
        assert!(shown);
        assert_eq!(looked_at, (1..9).map(|row| (row * WIDE + PAGE, 64 * KIB - PAGE)).collect::<Vec<_>>());
        assert!(!shows(5).0, "half of them");
    }

    #[test]
    fn a_range_is_a_hole_where_less_than_half_of_it_is_cached_and_it_is_in_the_file() {
        let is_hole = |cached_below, offset| World::new(8 * MIB, cached_below).reader.is_hole(offset, 16 * PAGE);
        let end = 1 << 40;

        assert!(is_hole(Some(7 * PAGE), 0) && !is_hole(Some(8 * PAGE), 0));
        assert!(is_hole(None, end - PAGE) && !is_hole(None, end), "nothing is told, and nothing is there");
    }

    #[test]
    fn behind_the_last_row_of_the_file_nothing_is_uncached() {
        let world = World::new(8 * MIB, NOTHING);
        let end = 1 << 40;

        assert_eq!(world.reader.end_of_cached(end - 2 * WIDE, WIDE), Some(end - WIDE));
        assert_eq!(world.reader.end_of_cached(end - WIDE, WIDE), None);
    }

    #[test]
    fn the_first_row_that_was_read_ahead_proves_nothing() {
        let mut world = World::trying();
        world.cached_below.set(NOTHING);

        world.rows(NARROW, 65..69);
        assert!(world.is_trying());
        world.rows(NARROW, 69..70);
        assert!(world.is_following());
    }

    #[test]
    fn a_fault_beside_the_rows_or_a_second_one_at_the_same_row_is_no_proof() {
        let mut world = World::trying();
        world.rows(NARROW, 65..69);
        world.faults([68 * NARROW + 2 * PAGE]);
        assert!(world.is_trying());

        let mut world = World::trying();
        world.faults([65, 66, 66, 66, 66, 66].map(|row| row * NARROW));
        assert!(world.is_trying());
    }

    #[test]
    fn a_step_of_up_to_four_rows_is_a_proof() {
        let follows = |rows: &[u64]| {
            let mut world = World::trying();
            world.faults(rows.iter().map(|row| row * NARROW));
            world.is_following()
        };

        assert!(follows(&[65, 67, 69, 71, 73]));
        assert!(follows(&[65, 66, 70, 71, 72]), "of four rows");
        assert!(!follows(&[65, 66, 71, 72, 73]), "of five rows");
        assert!(follows(&[65, 66, 71, 72, 73, 74]));
    }

    /// Judgements of 64 faults each that a stride survives after the kernel began to read what lies between, at this
    /// read-ahead, where it was proven before or not.
    fn survives(read_ahead: u64, is_proven: bool) -> u64 {
        let mut world = World::new(8 * MIB, Some(9 * WIDE));
        world.reader.reach.read_ahead = read_ahead;
        world.rows(WIDE, 0..9);
        if is_proven {
            world.rows(WIDE, 9..73);
        }
        assert_eq!(world.reader.proved.is_some(), is_proven);
        world.cached_below.set(ALL);
        let mut next = if is_proven { 73 } else { 9 };
        while world.is_following() {
            world.rows(WIDE, next..next + 64);
            next += 64;
        }
        (next - if is_proven { 73 } else { 9 }) / 64 - 1
    }

    #[test]
    fn a_stride_survives_so_many_of_the_kernels_read_aheads_and_64_rows() {
        // 64 rows are 16 MiB, from the first uncached row on, which is the next one.
        assert_eq!(survives(128 * KIB, false), 1, "3 x 128 KiB more");
        assert_eq!(survives(8 * MIB, false), 2, "3 x 8 MiB more");
        // From the fault at which it was judged.
        assert_eq!(survives(128 * KIB, true), 1, "16 x 128 KiB more");
        assert_eq!(survives(2 * MIB, true), 2, "16 x 2 MiB more");
    }

    #[test]
    fn the_grace_of_a_stride_ends_at_its_last_byte() {
        let goes_on = |last: u64| {
            let mut world = World::new(8 * MIB, Some(9 * WIDE));
            world.reader.reach.read_ahead = 0;
            world.rows(WIDE, 0..9);
            world.cached_below.set(ALL);
            world.rows(WIDE, 9..72);
            world.rows(WIDE, last..last + 1);
            world.is_following()
        };

        assert!(goes_on(72) && !goes_on(73), "64 rows from the ninth on");
    }

    #[test]
    fn rows_that_are_left_out_do_not_make_it_start_again() {
        let asked = |step: u64| {
            let mut world = World::following(8 * MIB);
            world.reader.pump(4, u64::MAX).unwrap();
            for turn in 1..9 {
                world.faults([(8 + turn * step) * WIDE]);
                world.reader.pump(4, u64::MAX).unwrap();
            }
            world.reader.tally.asked
        };

        // Each look goes on where the last one ended, and reads four rows that nobody read.
        assert_eq!((asked(1), asked(3)), (36, 36));
    }

    #[test]
    fn what_faults_show_is_learned_and_what_the_kernel_hides_is_not() {
        let mut world = World::new(8 * MIB, NOTHING);
        world.rows(WIDE, 0..8);
        assert!(world.pump() > 0 && world.reader.tally.learned);

        let mut world = World::new(8 * MIB, ALL);
        world.rows(WIDE, 0..8);
        assert!(world.pump() == 0 && !world.reader.tally.learned);
    }

    #[test]
    fn as_many_requests_are_made_as_the_allowance_has_pages() {
        let read = |limit, allowance| World::following(8 * MIB).reader.pump(limit, allowance).unwrap();

        assert_eq!(read(32, 3 * PAGE), (3 * PAGE, true));
        assert_eq!(read(32, 2 * PAGE + 1), (3 * PAGE, true));
        assert_eq!(read(32, 1), (PAGE, true));
        assert_eq!(read(2, u64::MAX), (2 * PAGE, true));
    }

    #[test]
    fn without_an_allowance_nothing_is_read_and_what_was_wanted_is_forgotten() {
        let mut world = World::following(8 * MIB);

        assert_eq!(world.reader.pump(32, 0).unwrap(), (0, false));
        assert_eq!(world.pump(), 0);
    }

    #[test]
    fn reads_that_are_touched_count_as_used() {
        let mut world = World::following(8 * MIB);
        let asked = world.pump() / PAGE;

        world.rows(WIDE, 9..19);

        assert_eq!((world.reader.tally.asked, world.reader.tally.used), (asked, 10));
    }

    #[test]
    fn waste_of_256_pages_and_a_page_for_16_used_stops_it() {
        let after = |wasted, used| {
            let mut world = World::following(8 * MIB);
            (world.reader.asked.wasted, world.reader.tally.used) = (wasted, used);
            world.rows(WIDE, 9..10);
            (world.reader.tally.stopped, world.is_following())
        };

        assert_eq!(after(256, 15), (0, true));
        assert_eq!(after(257, 15), (1, false));
        assert_eq!(after(257, 16), (0, true));
        assert_eq!(after(258, 16), (1, false));
    }

    #[test]
    fn a_program_that_leaves_its_rows_again_and_again_is_given_up() {
        let mut world = World::following(MIB);

        for jump in 1..20 {
            world.faults([jump * 10_000 * WIDE]);
            world.pump();
        }

        assert_eq!((world.reader.tally.stopped, world.is_watching()), (1, true));
        assert!(world.reader.tally.asked <= 6 * 256, "{}", world.reader.tally.asked);
        assert_eq!(world.reader.asked.wasted, 0, "it starts again");
    }

    #[test]
    fn the_next_faults_matter_where_a_guess_is_near_tried_or_followed() {
        let mut world = World::new(8 * MIB, ALL);
        world.rows(WIDE, 0..4);
        assert!(!world.reader.is_alert());
        world.rows(WIDE, 4..5);
        assert!(world.reader.is_alert());

        assert!(World::trying().reader.is_alert() && World::following(MIB).reader.is_alert());
    }
}
