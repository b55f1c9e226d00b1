//! Looks for an order in the accesses: sequential, strided, several strides interleaved, forwards or backwards; each
//! thread has a detector of its own. Where there is none, it reads nothing and soon stops looking.
//!
//! Three accesses at equal distances among the last few are a candidate, whatever came between them. If a candidate's
//! predictions come true, it is a stream and reads ahead, a little at first. Random accesses to a large file form equal
//! distances by chance about once in a thousand, and never continue. Related to Leap (ATC 2020), which takes the majority
//! of the last differences; equal distances also separate interleaved columns.

use crate::error::Result;
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::streams::{self, Stream};
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};
use crate::units::Bytes;

pub(super) const POLICY: Policy = Policy {
    name: "learned",
    summary: "finds sequential, strided and interleaved orders and reads ahead of them; silent on random ones",
    // The kernel's read-ahead would bring what lies between the rows, and guess on random orders.
    underneath: &[("advice", "random")],
    by: By::Caller,
    budget: Ahead::Bytes(8 << 20),
    params: Learned::declared,
    start: Some(start::<Learned>),
};

crate::params! {
    /// When and how far.
    #[non_exhaustive]
    pub struct Learned {
        /// Rows ahead of a stride; 128 keep a disk busy that takes 64 requests, with room for delays.
        rows: u32 = 128,
        /// Bytes ahead of a sequential order; 4 MiB keep a fast disk busy, and more would delay other programs' reads.
        window: Bytes = Bytes::mib(4),
        /// Predictions that must come true before anything is read ahead; 2 after the three accesses that form a candidate.
        confidence: u32 = 2,
    }
}

/// Accesses searched for equal distances: interleaved streams are found up to half as many.
const HISTORY: usize = 48;

/// Candidates at the same time.
const CANDIDATES: usize = 64;

/// Candidates that one access can suggest, apart from those that repeat in time: several, because columns of a row form equal
/// distances as well.
const SUGGESTIONS: usize = 2;

/// Streams read ahead of at the same time; the least recently used one makes room.
const STREAMS: usize = 16;

/// Accesses after which a stream that met none of them is given up: a few rounds of as many streams as can be found.
const IDLE: u64 = 4 * HISTORY as u64;

/// Accesses without a correct prediction after which the detector rests, and its first rest; rests then double.
const FRUITLESS: u32 = 64;
const FIRST_REST: u32 = 256;
const LONGEST_REST: u32 = 2048;

/// The unit of a sequential stream: the least that is announced.
const SEQUENTIAL_ROW: u64 = 64 << 10;

/// Rows ahead at first.
const FIRST_REACH: u64 = 4;

/// Confidence at which a wasteful policy stays, and what it may waste: one page for so many used, after the first few.
const MOST_CONFIDENCE: u32 = 64;
const USED_PER_WASTED: u64 = 16;
const WASTE_ALLOWED: u64 = 64;

struct LearnedPredictor {
    params: Learned,
    scene: Scene,
    /// The last accesses' offsets, a ring.
    history: [u64; HISTORY],
    /// Accesses put into the history so far.
    seen: usize,
    candidates: Vec<Candidate>,
    /// Most recently used last.
    streams: Vec<Stream>,
    run: Run,
    /// Accesses observed while not resting.
    now: u64,
    strides: Trust,
    sequences: Trust,
    rest: Rest,
}

/// How many predictions must come true before a candidate of a kind becomes a stream; follows how useful such streams were.
#[derive(Clone, Copy)]
struct Trust {
    /// Predictions that must come true now.
    confidence: u32,
    /// Pages read ahead and visited, or given up.
    used: u64,
    wasted: u64,
}

impl Trust {
    fn new(confidence: u32) -> Trust {
        Trust { confidence, used: 0, wasted: 0 }
    }

    /// Pages read ahead of a stream that ended were wasted; where that happens often, more predictions must come true first.
    fn give_up(&mut self, pages: u64) {
        self.wasted += pages;
        if self.wasted * USED_PER_WASTED > self.used + WASTE_ALLOWED * USED_PER_WASTED {
            *self = Trust::new((self.confidence.max(1) * 2).min(MOST_CONFIDENCE));
        }
    }
}

/// A candidate.
#[derive(Clone, Copy)]
struct Candidate {
    last: u64,
    stride: i64,
    /// Predictions that came true.
    hits: u32,
}

/// Accesses that begin where the previous one ended, or on the page after it: sequential, with records of any length.
#[derive(Clone, Copy, Default)]
struct Run {
    /// The page that the last access ended on.
    page: u64,
    /// Pages covered that way.
    pages: u32,
}

/// Looking costs time; where nothing is found, the detector looks only now and then.
#[derive(Clone, Copy)]
struct Rest {
    /// Accesses since a prediction last came true.
    fruitless: u32,
    /// Accesses to skip.
    left: u32,
    /// How long the next rest is.
    next: u32,
}

impl Rest {
    const NONE: Rest = Rest { fruitless: 0, left: 0, next: FIRST_REST };

    /// Notes an access without success; returns whether the detector begins to rest.
    fn fails(&mut self) -> bool {
        self.fruitless += 1;
        let tired = self.fruitless >= FRUITLESS;
        if tired {
            *self = Rest { fruitless: 0, left: self.next, next: (self.next * 2).min(LONGEST_REST) };
        }
        tired
    }
}

impl PolicyOptions for Learned {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(LearnedPredictor::new(self.clone(), scene.clone())))
    }
}

impl LearnedPredictor {
    fn new(params: Learned, scene: Scene) -> LearnedPredictor {
        let confidence = params.confidence;
        LearnedPredictor {
            params,
            scene,
            history: [0; HISTORY],
            seen: 0,
            candidates: Vec::with_capacity(CANDIDATES),
            streams: Vec::with_capacity(STREAMS),
            run: Run::default(),
            now: 0,
            strides: Trust::new(confidence),
            sequences: Trust::new(confidence),
            rest: Rest::NONE,
        }
    }

    /// Whether a stream continues with this access; that stream is then last in the list.
    #[inline]
    fn follow(&mut self, extent: Extent) -> bool {
        let offset = extent.offset;
        // The exact next row of a stream comes before nearly that of another, and the most recent stream before the others.
        let exact = self.streams.iter().rposition(|stream| stream.is_next(offset));
        let found = exact.or_else(|| self.streams.iter().rposition(|stream| stream.rows_to(offset).is_some()));
        let Some(at) = found else { return false };
        let stream = &mut self.streams[at];
        let trust = if stream.is_dense() { &mut self.sequences } else { &mut self.strides };
        trust.used += stream.advance(extent).map_or(0, |rows| rows.min(1) * stream.row_pages());
        stream.touched = self.now;
        if stream.is_broken() {
            let gone = self.streams.remove(at);
            self.give_up(&gone);
            return false;
        }
        if at + 1 != self.streams.len() {
            self.streams[at..].rotate_left(1);
        }
        true
    }

    #[inline(never)]
    fn look(&mut self, extent: Extent) {
        let come_true = self.try_candidates(extent);
        if come_true.is_some() {
            self.rest = Rest::NONE;
        } else if self.rest.fails() {
            self.forget();
            return;
        }
        match come_true {
            Some(law) if law.hits >= self.trust(self.is_dense(&law, extent)).confidence => self.begin(law, extent),
            _ => self.suggest(extent.offset),
        }
        self.history[self.seen % HISTORY] = extent.offset;
        self.seen += 1;
    }

    /// Advances the candidates that predicted this access; returns the one with the most correct predictions.
    fn try_candidates(&mut self, extent: Extent) -> Option<Candidate> {
        let offset = extent.offset;
        let mut best: Option<Candidate> = None;
        for candidate in &mut self.candidates {
            if candidate.last.checked_add_signed(candidate.stride) == Some(offset) {
                candidate.last = offset;
                candidate.hits += 1;
                if best.is_none_or(|best| best.hits < candidate.hits) {
                    best = Some(*candidate);
                }
            }
        }
        let run = self.run.goes_on(extent).map(|pages| Candidate { last: offset, stride: 4096, hits: pages });
        // A run of pages needs three of them where a candidate already has three accesses.
        run.filter(|run| run.hits >= self.sequences.confidence + 3).or(best)
    }

    /// Reads ahead of `law` from `extent` on.
    fn begin(&mut self, law: Candidate, extent: Extent) {
        self.candidates.retain(|other| other.last != law.last);
        self.run = Run::default();
        self.give_up_idle();
        if self.streams.len() == STREAMS {
            let gone = self.streams.remove(0);
            self.give_up(&gone);
        }
        self.streams.push(if self.is_dense(&law, extent) {
            let end = (extent.offset + extent.length as u64).next_multiple_of(4096);
            let few = SEQUENTIAL_ROW.min(self.scene.budget / 8).max(extent.length as u64);
            let row = few.next_multiple_of(4096);
            // The row that ends here counts as visited. Before the beginning of the file it wraps, and so do all differences.
            Stream::new(end.wrapping_sub(row), row as i64, row as usize, FIRST_REACH)
        } else {
            Stream::new(extent.offset, law.stride, extent.length, FIRST_REACH)
        });
        self.streams.last_mut().expect("just pushed").touched = self.now;
    }

    /// Gives up streams that were not met for long: they would keep their share of the budget.
    fn give_up_idle(&mut self) {
        let oldest = self.now.saturating_sub(IDLE);
        while self.streams.first().is_some_and(|first| first.touched < oldest) {
            let gone = self.streams.remove(0);
            self.give_up(&gone);
        }
    }

    /// Those of its pages that were not met were read for nothing.
    fn give_up(&mut self, stream: &Stream) {
        let pages = stream.unvisited(self.scene.length) * stream.row_pages();
        self.trust(stream.is_dense()).give_up(pages);
    }

    fn trust(&mut self, is_dense: bool) -> &mut Trust {
        if is_dense { &mut self.sequences } else { &mut self.strides }
    }

    /// Whether the gap between the rows of `law` is small enough to be read with them: a sequence.
    fn is_dense(&self, law: &Candidate, extent: Extent) -> bool {
        law.stride > 0 && law.stride as u64 <= extent.length as u64 + self.scene.gap
    }

    /// Makes candidates of the equal distances that end at `offset`.
    fn suggest(&mut self, offset: u64) {
        let known = self.seen.min(HISTORY);
        // Equal distances at equal times, as columns read in turn have them: hardly ever chance.
        for period in 1..=known / 2 {
            let (middle, first) = (self.back(period), self.back(2 * period));
            if offset.wrapping_sub(middle) == middle.wrapping_sub(first) {
                self.propose(offset, offset.wrapping_sub(middle) as i64);
            }
        }
        // Equal distances at any times: streams among other accesses. The latest first.
        let mut left = SUGGESTIONS;
        for back in 1..=known {
            let middle = self.back(back);
            let stride = offset.wrapping_sub(middle) as i64;
            let Some(first) = middle.checked_add_signed(stride.wrapping_neg()) else { continue };
            if self.history[..known].contains(&first) && self.propose(offset, stride) {
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// The offset of `back` accesses ago.
    fn back(&self, back: usize) -> u64 {
        self.history[(self.seen - back) % HISTORY]
    }

    /// Adds a candidate; false where it exists already or makes no sense.
    fn propose(&mut self, last: u64, stride: i64) -> bool {
        if stride == 0 || self.candidates.iter().any(|it| it.last == last && it.stride == stride) {
            return false;
        }
        if self.candidates.len() == CANDIDATES {
            let fewest = self.candidates.iter().map(|it| it.hits).min().unwrap_or(0);
            let oldest = self.candidates.iter().position(|it| it.hits == fewest).unwrap_or(0);
            self.candidates.remove(oldest);
        }
        self.candidates.push(Candidate { last, stride, hits: 0 });
        true
    }

    /// Starts anew: what was seen before a rest says nothing about what comes after it.
    fn forget(&mut self) {
        self.candidates.clear();
        self.seen = 0;
        self.run = Run::default();
        for gone in std::mem::take(&mut self.streams) {
            self.give_up(&gone);
        }
    }
}

impl Run {
    /// Pages covered, where `extent` continues the previous one.
    fn goes_on(&mut self, extent: Extent) -> Option<u32> {
        let (first, last) = (extent.offset / 4096, (extent.offset + extent.length as u64 - 1) / 4096);
        let goes_on = first == self.page || first == self.page + 1;
        let pages = if goes_on { self.pages + (last - self.page).min(1) as u32 } else { 0 };
        *self = Run { page: last, pages };
        goes_on.then_some(pages)
    }
}

impl Predictor for LearnedPredictor {
    #[inline]
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        if self.rest.left > 0 {
            self.rest.left -= 1;
            return;
        }
        if extent.length == 0 {
            return;
        }
        self.now += 1;
        if self.now % IDLE == 0 {
            self.give_up_idle();
        }
        let streams = self.streams.len();
        if self.follow(extent) {
            self.rest = Rest::NONE;
        } else {
            self.look(extent);
            if self.streams.len() <= streams {
                return;
            }
        }
        self.want(wanted);
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(LearnedPredictor::new(self.params.clone(), self.scene.clone())))
    }
}

impl LearnedPredictor {
    #[inline]
    fn want(&mut self, wanted: &mut Vec<Extent>) {
        let Some(stream) = self.streams.last() else { return };
        let depth = match stream.is_dense() {
            true => self.params.window.0 / stream.stride.unsigned_abs(),
            false => u64::from(self.params.rows),
        };
        streams::want_last(&mut self.streams, depth, &self.scene, wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kind_of_stream_loses_trust_by_waste_beyond_the_first_pages_and_one_in_sixteen() {
        let mut trust = Trust { used: 16, ..Trust::new(3) };

        trust.give_up(64);
        trust.give_up(1);
        assert_eq!((trust.confidence, trust.wasted), (3, 65), "64 are allowed, and one for 16 that were used");
        trust.give_up(1);

        assert_eq!((trust.confidence, trust.used, trust.wasted), (6, 0, 0));
        let after_waste = |confidence| {
            let mut trust = Trust::new(confidence);
            trust.give_up(65);
            trust.confidence
        };
        assert_eq!([0, 1, 31, 32, 33, 64].map(after_waste), [2, 2, 62, 64, 64, 64]);
    }

    #[test]
    fn rests_double_up_to_the_longest() {
        let mut rest = Rest::NONE;
        let mut next = || {
            let fruitless = (1..).find(|_| rest.fails()).unwrap();
            (fruitless, rest.left)
        };

        assert_eq!([(); 5].map(|()| next()), [(64, 256), (64, 512), (64, 1024), (64, 2048), (64, 2048)]);
    }

    #[test]
    fn a_run_goes_on_from_the_page_it_ended_on_or_the_next() {
        let mut run = Run::default();
        let mut pages = |offset: u64, length: usize| run.goes_on(Extent { offset, length });

        assert_eq!(pages(10 * 4096, 4096), None);
        assert_eq!(pages(11 * 4096, 100), Some(1));
        assert_eq!(pages(11 * 4096 + 100, 3996), Some(1), "the same page");
        assert_eq!(pages(12 * 4096, 3 * 4096), Some(2), "one access, however long");
        assert_eq!(pages(14 * 4096 + 4095, 2), Some(3), "begins where the last one ended");
        assert_eq!(pages(17 * 4096, 1), None, "a page was left out");
        assert_eq!(pages(18 * 4096, 1), Some(1), "from there it begins anew");
        assert_eq!(pages(17 * 4096, 1), None, "backwards");
    }

    fn learned() -> LearnedPredictor {
        LearnedPredictor::new(Learned::default(), Scene { length: 1 << 28, budget: 1 << 20, gap: 4096 })
    }

    /// Lets `learned` observe an access to each of these pages.
    fn observe(learned: &mut LearnedPredictor, pages: impl IntoIterator<Item = u64>) -> Vec<Extent> {
        let mut wanted = Vec::new();
        pages.into_iter().for_each(|page| learned.observe(Extent { offset: page * 4096, length: 4096 }, &mut wanted));
        wanted
    }

    #[test]
    fn a_resting_detector_sees_nothing_until_its_rest_is_over() {
        let mut learned = learned();
        let disorder = |turn: u64| turn * turn * 37 % 60_000;

        observe(&mut learned, (0..64).map(disorder));
        assert_eq!((learned.rest.left, learned.now, learned.seen), (256, 64, 0), "tired, and what it saw is forgotten");
        observe(&mut learned, (64..320).map(disorder));
        assert_eq!((learned.rest.left, learned.now), (0, 64));

        assert!(!observe(&mut learned, (0..8).map(|row| row * 16)).is_empty(), "a stride is found again");
        assert_eq!(learned.rest.next, FIRST_REST, "the next rest is a first one");
    }

    #[test]
    fn rows_are_a_sequence_where_no_more_than_the_gap_lies_between_them() {
        let is_dense =
            |stride| learned().is_dense(&Candidate { last: 0, stride, hits: 0 }, Extent { offset: 0, length: 100 });

        assert_eq!([1, 4196, 4197, 0, -1, -100].map(is_dense), [true, true, false, false, false, false]);
    }

    /// `length` bytes of the pages from `page` on.
    fn extent(page: u64, length: usize) -> Extent {
        Extent { offset: page * 4096, length }
    }

    #[test]
    fn what_is_read_of_a_stream_counts_for_its_kind_by_pages() {
        let mut learned = learned();
        learned.streams.push(Stream::new(0, 1 << 20, 3 * 4096, 4));
        learned.streams.push(Stream::new(1 << 24, 65_536, 65_536, 4));

        assert!(learned.follow(extent(256, 3 * 4096)));
        assert_eq!((learned.strides.used, learned.sequences.used), (3, 0));
        assert!(learned.follow(extent(257, 4096)), "a part of the same row");
        assert!(learned.follow(extent(4096 + 16, 4096)));
        assert_eq!((learned.strides.used, learned.sequences.used), (3, 16));

        learned.streams.iter_mut().for_each(|stream| stream.want(4, 1 << 28, &mut Vec::new()));
        learned.forget();
        assert_eq!((learned.strides.wasted, learned.sequences.wasted), (4 * 3, 4 * 16), "what was ahead of them");
    }

    #[test]
    fn the_stream_whose_next_row_it_is_comes_before_one_that_it_is_inside() {
        let mut learned = learned();
        learned.streams.push(Stream::new(0, 1 << 20, 4096, 4));
        learned.streams.push(Stream::new((1 << 20) - 100_000, 98_000, 4096, 4));

        assert!(learned.follow(extent(256, 4096)));

        let last: Vec<u64> = learned.streams.iter().map(|stream| stream.last).collect();
        assert_eq!(last, [(1 << 20) - 100_000, 1 << 20], "it is the one met last");
    }

    #[test]
    fn of_candidates_that_come_true_the_one_with_the_most_hits_counts_and_of_equals_the_first() {
        let mut learned = learned();
        let of = |last: u64, hits: u32| Candidate { last, stride: 1_000_000 - last as i64, hits };
        learned.candidates = vec![of(0, 1), of(100_000, 5), of(200_000, 5), of(300_000, 4)];

        let best = learned.try_candidates(Extent { offset: 1_000_000, length: 100 }).unwrap();

        assert_eq!((best.stride, best.hits), (900_000, 6));
        let all: Vec<(u64, u32)> = learned.candidates.iter().map(|it| (it.last, it.hits)).collect();
        assert_eq!(all, [(1_000_000, 2), (1_000_000, 6), (1_000_000, 6), (1_000_000, 5)]);
    }

    #[test]
    fn a_run_of_five_pages_comes_true_and_one_of_four_does_not() {
        let found = |pages: u32| {
            let mut learned = learned();
            learned.run = Run { page: 9, pages };
            learned.try_candidates(extent(10, 4096)).map(|it| (it.last, it.stride, it.hits))
        };

        assert_eq!([3, 4, 5].map(found), [None, Some((40_960, 4096, 5)), Some((40_960, 4096, 6))]);
    }

    #[test]
    fn equal_distances_at_equal_times_are_candidates_and_two_more_at_any() {
        let suggested = |offsets: &[u64]| {
            let mut learned = learned();
            learned.history[..offsets.len()].copy_from_slice(offsets);
            learned.seen = offsets.len();
            learned.suggest(100);
            learned.candidates.iter().map(|it| (it.last, it.stride)).collect::<Vec<_>>()
        };

        assert_eq!(suggested(&[40, 20, 80, 60, 70, 90]), [(100, 10), (100, 30)], "the latest, and neither 20 nor 40");
        assert_eq!(suggested(&[80, 1, 90, 2]), [(100, 10)], "once, though it is both");
        assert_eq!(suggested(&[300, 1, 200, 2]), [(100, -100)]);
        assert_eq!(suggested(&[40, 1, 80, 70, 95, 90]), [(100, 30), (100, 10), (100, 5)], "in turn with two others");
        assert_eq!(suggested(&[100, 100]), [], "the same place again is no stride");
        assert_eq!(suggested(&[90]), []);
        assert_eq!(suggested(&[70, 90]), []);
    }

    #[test]
    fn the_oldest_of_the_candidates_with_the_fewest_hits_makes_room() {
        let mut learned = learned();
        assert!((1..=64).all(|stride| learned.propose(100, stride)));
        assert!(!learned.propose(100, 64) && !learned.propose(100, 0), "known, and none");
        learned.candidates[0].hits = 1;

        assert!(learned.propose(100, 65) && learned.propose(90, 65));

        let strides: Vec<i64> = learned.candidates.iter().map(|it| it.stride).collect();
        assert_eq!(strides, [1].into_iter().chain(4..=65).chain([65]).collect::<Vec<i64>>());
    }

    /// The stream that begins by accesses of `length` bytes to neighbouring records: where it was last, its row, what it wants.
    fn begun(budget: u64, window: Bytes, length: usize) -> (u64, i64, Vec<Extent>) {
        let params = Learned { window, ..Learned::default() };
        let mut learned = LearnedPredictor::new(params, Scene { length: 1 << 28, budget, gap: 4096 });
        learned.begin(Candidate { last: 1000 * 4096, stride: 4096, hits: 5 }, extent(1000, length));
        let mut wanted = Vec::new();
        learned.want(&mut wanted);
        (learned.streams[0].last, learned.streams[0].stride, wanted)
    }

    #[test]
    fn a_sequence_goes_on_after_the_pages_of_the_access_that_began_it() {
        let rows = |first: u64, row: usize, count: u64| {
            (0..count).map(|turn| Extent { offset: first + turn * row as u64, length: row }).collect::<Vec<_>>()
        };

        let (last, row, wanted) = begun(8 << 20, Bytes::mib(4), 4097);
        assert_eq!((last, row), (1002 * 4096 - 65_536, 65_536));
        assert_eq!(wanted, rows(1002 * 4096, 65_536, 4));
        let (last, row, wanted) = begun(8 * 8192, Bytes::mib(4), 100);
        assert_eq!((last, row), (1001 * 4096 - 8192, 8192), "an eighth of a small budget");
        assert_eq!(wanted, rows(1001 * 4096, 8192, 4));
        let (_, row, wanted) = begun(8 << 20, Bytes::kib(128), 100);
        assert_eq!((row, wanted.len()), (65_536, 2), "no more than the window");
        assert_eq!(begun(8 << 20, Bytes::mib(4), 100_000).1, 102_400, "a row is no shorter than the access");
    }

    #[test]
    fn a_stream_that_was_met_by_none_of_192_accesses_is_given_up() {
        let mut learned = learned();
        let met_at = |touched: u64| {
            let mut stream = Stream::new(1 << 27, 1 << 20, 4096, 4);
            stream.touched = touched;
            stream
        };
        learned.streams = vec![met_at(9), met_at(10)];
        learned.now = 202;

        learned.give_up_idle();

        assert_eq!(learned.streams.iter().map(|stream| stream.touched).collect::<Vec<_>>(), [10]);
        learned.now = 2 * 192 - 2;
        observe(&mut learned, [7]);
        assert_eq!(learned.streams.len(), 1, "looked for now and then");
        observe(&mut learned, [9]);
        assert_eq!(learned.streams.len(), 0, "which is now");
    }

    #[test]
    fn of_seventeen_streams_the_one_met_longest_ago_is_given_up() {
        let mut learned = learned();
        for number in 0..17u64 {
            let last = number << 20;
            learned.begin(Candidate { last, stride: 65_536, hits: 5 }, Extent { offset: last, length: 4096 });
        }

        let begins: Vec<u64> = learned.streams.iter().map(|stream| stream.last >> 20).collect();
        assert_eq!(begins, (1..17).collect::<Vec<u64>>());
    }

    proptest! {
        #[test]
        fn all_streams_together_keep_the_budget_in_any_order(
            columns in prop::collection::vec(0u64..60, 1..12), stride in 2u64..300, jumps: bool, budget in 0u64..300,
        ) {
            let scene = Scene { length: 1 << 28, budget: budget * 4096, gap: 4096 };
            let mut learned = LearnedPredictor::new(Learned::default(), scene.clone());
            let mut wanted = Vec::new();
            for row in 0..60 {
                for (number, column) in columns.iter().enumerate() {
                    let jump = if jumps { row / 20 * 9001 + number as u64 % 2 * 77 } else { 0 };
                    let extent = Extent { offset: (row * stride + column + jump) * 4096, length: 4096 };

                    learned.observe(extent, &mut wanted);

                    let ahead = |stream: &Stream| stream.unvisited(scene.length) * stream.row_bytes();
                    let all: u64 = learned.streams.iter().map(ahead).sum();
                    prop_assert!(all <= scene.budget, "{all} bytes ahead of {}", scene.budget);
                }
            }
        }
    }
}
