//! One stream: pages at equal distances, and how far it was read in ahead and paged out behind.

use super::Hands;
use super::ghosts::CHUNK;
use std::collections::VecDeque;
use std::ops::Range;

/// Steps that may be left out of a sequence, of a stream with another step that is long known, and of one that is not: their pages are
/// in memory. Of a sequence they are so likely that a random fault among them is no surprise; of others they would make streams of nothing.
const SKIPPED: [i64; 3] = [16, 4, 1];

/// Steps after which a stream is long known.
const KNOWN: u32 = 16;

/// Faults since the last step of a stream after which what was read in for it counts as lost.
pub(super) const GOING_ON: u64 = 4096;

/// Farthest distance of two pages that may become a stream.
const FARTHEST: i64 = 1024;

/// How far behind a sequence a fault still belongs to it: pages that another thread, or the kernel, came to earlier.
const STRAGGLER: i64 = 64;

/// Pages between two swapped ones that are asked for as well, so that one range is asked for and not two.
const GAP: usize = 4;

/// Pages of a step for which the pages between are asked about in one call.
const NARROW: u64 = 16;

/// Where a fault lies beside a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// It is the next step, or one of those after it.
    Next,
    /// The stream has been there.
    Passed,
    /// So far from its last page that it may become its step.
    Near(i64),
    /// Elsewhere.
    Apart,
}

/// Pages at equal distances.
#[derive(Debug)]
pub(super) struct FaultStream {
    last: i64,
    start: i64,
    step: i64,
    /// Equal steps met one after the other; from 2 on the stream is sure of its step.
    steps: u32,
    /// First page that was not asked for yet.
    front: i64,
    /// First page that was not looked at for paging out.
    behind: i64,
    is_useful: bool,
    touched: u64,
    /// Requests that the stream has not passed: the steps at their end, and their swapped pages.
    requests: VecDeque<(i64, u64)>,
}

impl FaultStream {
    /// A stream may begin here.
    pub fn new(page: i64, now: u64) -> FaultStream {
        FaultStream {
            last: page,
            start: page,
            step: 0,
            steps: 0,
            front: page,
            behind: page,
            is_useful: false,
            touched: now,
            requests: VecDeque::new(),
        }
    }

    /// Where `page` lies beside it.
    pub fn meeting(&self, page: i64) -> Meeting {
        let distance = page - self.last;
        if distance == 0 {
            return Meeting::Passed;
        }
        if self.steps < 2 {
            return if distance.abs() <= FARTHEST { Meeting::Near(distance.abs()) } else { Meeting::Apart };
        }
        if distance.abs() > STRAGGLER.max(SKIPPED[0] * self.step.abs()) {
            return Meeting::Apart;
        }
        let steps = distance / self.step;
        match () {
            () if steps > 0 && steps <= self.skipped() && distance % self.step == 0 => Meeting::Next,
            () if self.is_sequence() && steps <= 0 && steps > -STRAGGLER => Meeting::Passed,
            () => Meeting::Apart,
        }
    }

    /// How many steps may be left out, and one.
    fn skipped(&self) -> i64 {
        match () {
            () if self.is_sequence() => SKIPPED[0],
            () if self.steps > KNOWN => SKIPPED[1],
            () => SKIPPED[2],
        }
    }

    /// Takes `page` as the next of a stream that is not sure yet; whether it is sure now.
    pub fn learn(&mut self, page: i64, now: u64) -> bool {
        let distance = page - self.last;
        if self.steps == 0 || self.step != distance {
            (self.step, self.steps, self.start) = (distance, 1, self.last);
        } else {
            (self.steps, self.front, self.behind) = (2, page, self.start);
        }
        (self.last, self.touched) = (page, now);
        self.steps == 2
    }

    /// Goes on to `page`; returns the pages read in ahead that it has passed now.
    pub fn step_to(&mut self, page: i64, now: u64) -> u64 {
        self.touch(now);
        self.last = page;
        self.steps = self.steps.saturating_add(1);
        if self.ahead() < 0 {
            self.front = page + self.step;
        }
        let run = self.run();
        let mut used = 0;
        while let Some((_, pages)) = self.requests.front().copied().filter(|(end, _)| *end <= run) {
            self.requests.pop_front();
            used += pages;
        }
        used
    }

    /// Was met, perhaps without going on.
    pub fn touch(&mut self, now: u64) {
        if !self.is_living(now) {
            self.requests.clear();
        }
        self.touched = now;
    }

    /// Asks for the next steps up to `window` ahead, at most `piece` at once; returns how many swapped pages were asked for.
    pub fn fetch(&mut self, window: i64, piece: i64, hands: &mut impl Hands) -> u64 {
        let from = self.front.max_in(self.step, self.last + self.step);
        let steps = ((self.last + self.step * (window + 1) - from) / self.step).min(piece);
        let steps = if self.step < 0 { steps.min(from / -self.step + 1) } else { steps };
        if steps <= 0 {
            return 0;
        }
        let (ranges, pages) =
            if self.is_sequence() { self.run_of(from, steps, hands) } else { self.each_of(from, steps, hands) };
        self.front = from + self.step * steps;
        if pages > 0 {
            hands.fetch(&ranges);
            self.is_useful = true;
            self.requests.push_back(((self.front - self.start) / self.step, pages));
        }
        pages
    }

    /// Swapped pages among the next of a sequence, as ranges.
    fn run_of(&self, from: i64, steps: i64, hands: &mut impl Hands) -> (Vec<Range<u64>>, u64) {
        let first = if self.step > 0 { from } else { from - steps + 1 }.max(0) as u64;
        ranges(first, hands.swapped(first, steps as usize))
    }

    /// Swapped pages among the next steps, one by one.
    fn each_of(&self, from: i64, steps: i64, hands: &mut impl Hands) -> (Vec<Range<u64>>, u64) {
        let pages = (0..steps).map(|step| (from + self.step * step) as u64);
        let stride = self.step.unsigned_abs();
        let swapped: Vec<u64> = if stride <= NARROW {
            let first = if self.step > 0 { from } else { from + self.step * (steps - 1) } as u64;
            let all = hands.swapped(first, (steps as u64 * stride) as usize);
            pages.filter(|page| all.get((page - first) as usize) == Some(&true)).collect()
        } else {
            pages.filter(|page| hands.swapped(*page, 1) == [true]).collect()
        };
        let count = swapped.len() as u64;
        (swapped.into_iter().map(|page| page..page + 1).collect(), count)
    }

    /// From its next page on nothing has been asked for.
    pub fn ask_again(&mut self) {
        self.front = self.last + self.step;
    }

    /// The pages behind it that were not looked at yet, where they are enough; the last of them where they are too many.
    pub fn left_behind(&mut self, distance: i64, pages: Range<i64>) -> Option<Range<u64>> {
        let end = self.last - self.step * distance;
        let count = (end - self.behind) * self.step;
        if count < pages.start {
            return None;
        }
        let begin = end - self.step * count.min(pages.end);
        self.behind = end;
        let range = if self.step > 0 { begin..end } else { end + 1..begin + 1 };
        Some(range.start.max(0) as u64..range.end.max(0) as u64)
    }

    /// The page that it came to last.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Steps from its beginning.
    pub fn run(&self) -> i64 {
        if self.step == 0 { 0 } else { (self.last - self.start) / self.step }
    }

    /// Steps asked for beyond its last page; negative where it has passed them.
    pub fn ahead(&self) -> i64 {
        (self.front - self.last) / self.step - 1
    }

    /// Equal steps met one after the other.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether its pages lie side by side.
    pub fn is_sequence(&self) -> bool {
        self.step.abs() == 1
    }

    /// Whether any page ahead of it was swapped out.
    pub fn is_useful(&self) -> bool {
        self.is_useful
    }

    /// Whether `page` is in another MiB than its last one.
    pub fn enters_chunk(&self, page: i64) -> bool {
        page / CHUNK != self.last / CHUNK
    }

    /// When it was last met.
    pub fn touched(&self) -> u64 {
        self.touched
    }

    /// Whether it was met lately.
    pub fn is_living(&self, now: u64) -> bool {
        now - self.touched < GOING_ON
    }

    /// Whether it also has come some way.
    pub fn is_going_on(&self, now: u64) -> bool {
        self.steps > 8 && self.is_living(now)
    }

    /// Pages read in ahead that it has not passed.
    pub fn outstanding(&self) -> u64 {
        self.requests.iter().map(|(_, pages)| pages).sum()
    }
}

/// The farther of two pages in the direction of a step.
trait Farther {
    fn max_in(self, step: i64, other: i64) -> i64;
}

impl Farther for i64 {
    fn max_in(self, step: i64, other: i64) -> i64 {
        if step > 0 { self.max(other) } else { self.min(other) }
    }
}

/// Ranges of swapped pages from `first` on, over short gaps, and their pages.
fn ranges(first: u64, swapped: &[bool]) -> (Vec<Range<u64>>, u64) {
    let mut found: Vec<Range<u64>> = Vec::new();
    for index in (0..swapped.len()).filter(|index| swapped[*index]) {
        let page = first + index as u64;
        match found.last_mut() {
            Some(range) if page - range.end <= GAP as u64 => range.end = page + 1,
            _ => found.push(page..page + 1),
        }
    }
    let pages = found.iter().map(|range| range.end - range.start).sum();
    (found, pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_between_swapped_pages_are_bridged() {
        let mut swapped = [false; 20];
        [0, 1, 5, 11].iter().for_each(|index| swapped[*index] = true);

        assert_eq!(ranges(100, &swapped), (vec![100..106, 111..112], 7));
        assert_eq!(ranges(100, &[]), (vec![], 0));
    }

    /// A stream that is sure of its step.
    fn sure(first: i64, step: i64) -> FaultStream {
        let mut stream = FaultStream::new(first, 0);
        assert!(!stream.learn(first + step, 1));
        assert!(stream.learn(first + 2 * step, 2));
        stream
    }

    #[test]
    fn a_page_is_next_where_whole_steps_lead_to_it() {
        for step in [1, -1, 8, -100] {
            let stream = sure(10_000, step);

            let last = if stream.is_sequence() { 18 } else { 3 };
            for (steps, meeting) in
                [(3, Meeting::Next), (last, Meeting::Next), (last + 1, Meeting::Apart), (2, Meeting::Passed)]
            {
                assert_eq!(stream.meeting(10_000 + steps * step), meeting, "{step} {steps}");
            }
        }
        assert_eq!(sure(0, 8).meeting(25), Meeting::Apart);
        assert_eq!(sure(100, 1).meeting(60), Meeting::Passed);
        assert_eq!(sure(100, 1).meeting(38), Meeting::Apart);
    }

    #[test]
    fn other_distances_begin_the_count_again() {
        let mut stream = FaultStream::new(0, 0);

        assert!(!stream.learn(4, 1) && !stream.learn(9, 2) && stream.learn(14, 3));

        assert_eq!((stream.run(), stream.steps()), (2, 2));
    }

    #[test]
    fn what_lies_behind_is_told_once_in_either_direction() {
        let mut up = sure(0, 1);
        let mut down = sure(10_000, -1);
        up.step_to(400, 3);
        down.step_to(9_600, 3);

        assert_eq!(up.left_behind(64, 256..2048), Some(0..336));
        assert_eq!(down.left_behind(64, 256..2048), Some(9_665..10_001));
        assert_eq!(up.left_behind(64, 256..2048), None);

        up.step_to(9_000, 4);
        assert_eq!(up.left_behind(64, 256..2048), Some(8_936 - 2048..8_936));
    }
}
