//! An arithmetic progression of accesses, and how far it is read ahead.

use crate::files::Extent;
use crate::prefetch::Scene;

/// Rows that may be skipped between two accesses of a stream without ending it, as a filter skips some.
const SKIPPED_ROWS: u64 = 4;

/// A sequence of which only one page in so many is visited is not a sequence: the pages between would be read for nothing.
const THINNEST: u64 = 4;

/// Rows of equal distance, visited one after the other.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Where the last visited row begins.
    pub last: u64,
    /// Distance from one row to the next; negative backwards, never zero.
    pub stride: i64,
    /// Bytes wanted of each row, at most the stride.
    pub length: usize,
    /// Rows wanted beyond the last visited one.
    ahead: u64,
    /// How many rows to want beyond the last visited one; grows while predictions come true.
    reach: u64,
    /// Rows met, and rows skipped between them.
    met: u64,
    skipped: u64,
    /// Pages met, and the last of them.
    pages: u64,
    page: u64,
    /// When it was last met, in its owner's count.
    pub touched: u64,
}

impl Stream {
    /// A stream that reads `reach` rows ahead at first.
    pub fn new(last: u64, stride: i64, length: usize, reach: u64) -> Stream {
        let length = length.min(stride.unsigned_abs() as usize);
        Stream { last, stride, length, ahead: 0, reach, met: 0, skipped: 0, pages: 0, page: 0, touched: 0 }
    }

    /// Whether `offset` is where the next row begins.
    #[inline]
    pub fn is_next(&self, offset: u64) -> bool {
        offset.wrapping_sub(self.last) as i64 == self.stride
    }

    /// Whether its rows are contiguous: a sequence rather than a stride.
    pub fn is_dense(&self) -> bool {
        self.length as u64 == self.stride.unsigned_abs()
    }

    /// Whether more rows were skipped than met, or most pages of a sequence, so that it is no stream after all.
    pub fn is_broken(&self) -> bool {
        let is_thin = || (self.met + self.skipped) * self.row_pages() > self.pages * THINNEST + 4 * self.row_pages();
        self.skipped > self.met + 2 * SKIPPED_ROWS || self.is_dense() && is_thin()
    }

    /// Whether an access belongs to the stream; if so, the stream moves there. Returns how many rows it moved.
    #[inline]
    pub fn advance(&mut self, extent: Extent) -> Option<u64> {
        let rows = self.rows_to(extent.offset)?;
        let last = (extent.offset + extent.length as u64 - 1) / 4096;
        self.pages += (last - extent.offset / 4096) + u64::from(extent.offset / 4096 != self.page);
        self.page = last;
        self.last = self.last.wrapping_add_signed(self.stride * rows as i64);
        self.ahead = self.ahead.saturating_sub(rows);
        self.met += rows.min(1);
        self.skipped += rows.saturating_sub(1);
        Some(rows)
    }

    #[inline]
    pub fn rows_to(&self, offset: u64) -> Option<u64> {
        let delta = offset.wrapping_sub(self.last) as i64;
        if delta == self.stride {
            return Some(1);
        }
        // Too far even for skipped rows: the common case of a foreign access, without a division.
        let stride = self.stride.unsigned_abs();
        // A sequence may be entered anywhere within what was read ahead; at a stride a far row is more likely chance.
        let most = if self.is_dense() { SKIPPED_ROWS.max(self.ahead) } else { SKIPPED_ROWS } + 1;
        if delta.unsigned_abs() > stride.saturating_mul(most) {
            return None;
        }
        // Euclid's: what remains is inside the row, in either direction.
        let (rows, within) = (delta.div_euclid(self.stride), delta.rem_euclid(self.stride));
        let is_row = rows >= 0 && rows as u64 <= most && within < self.length as i64;
        is_row.then_some(rows as u64)
    }

    /// Puts the rows up to the reach into `wanted`, where enough are missing to be worth a call. The reach then doubles,
    /// up to `most` rows. Rows outside the `space` bytes are not wanted.
    pub fn want(&mut self, most: u64, space: u64, wanted: &mut Vec<Extent>) {
        let reach = self.reach.min(most);
        if !self.is_short_of(reach) {
            return;
        }
        let rows = (self.ahead + 1..=reach).map_while(|row| self.row(row, space));
        wanted.extend(rows);
        self.ahead = reach;
        self.reach = (reach * 2).min(most);
    }

    /// Whether enough rows are missing to be worth a call: a quarter for a stride; half for a sequence, which has rows that are
    /// long and that the device reads in order as well.
    #[inline]
    fn is_short_of(&self, reach: u64) -> bool {
        let step = if self.is_dense() { reach / 2 } else { reach / 4 };
        self.ahead + step.max(1) <= reach
    }

    /// Rows wanted, inside the space, and not yet visited.
    pub fn unvisited(&self, space: u64) -> u64 {
        (1..=self.ahead).map_while(|row| self.row(row, space)).count() as u64
    }

    fn row(&self, row: u64, space: u64) -> Option<Extent> {
        // Wraps where the last row began before the file, as that of a sequence does, or where the next would.
        let offset = self.last.wrapping_add_signed(self.stride.checked_mul(i64::try_from(row).ok()?)?);
        (offset < space).then_some(Extent { offset, length: self.length })
    }

    /// Pages read for each row, at least one.
    pub fn row_pages(&self) -> u64 {
        self.length.div_ceil(4096).max(1) as u64
    }

    /// Bytes read for each row: whole pages.
    pub fn row_bytes(&self) -> u64 {
        let stride = self.stride.unsigned_abs();
        if stride < 4096 { stride.max(1) } else { self.row_pages() * 4096 }
    }
}

/// Lets the last of `streams` read up to `depth` rows ahead, within its share of the budget and what the others left.
#[inline]
pub(super) fn want_last(streams: &mut [Stream], depth: u64, scene: &Scene, wanted: &mut Vec<Extent>) {
    let share = scene.budget / streams.len().max(1) as u64;
    let Some((stream, others)) = streams.split_last_mut() else { return };
    let reach = stream.reach.min(depth);
    if !stream.is_short_of(reach) {
        return;
    }
    let taken: u64 = others.iter().map(|other| other.ahead * other.row_bytes()).sum();
    let room = share.min(scene.budget.saturating_sub(taken));
    // The row being visited counts, where rows are visited in parts.
    let begun = u64::from(stream.is_dense());
    stream.want(depth.min((room / stream.row_bytes()).saturating_sub(begun)), scene.length, wanted);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Extent {
        Extent { offset, length: 1 }
    }

    #[test]
    fn a_page_is_met_once_by_accesses_that_follow_each_other() {
        let mut stream = Stream::new(0, 65_536, 65_536, 1);
        let mut pages = |offset: u64, length: usize| {
            assert!(stream.advance(Extent { offset, length }).is_some());
            stream.pages
        };

        assert_eq!(pages(4096, 4096), 1);
        assert_eq!(pages(8192, 100), 2);
        assert_eq!(pages(8292, 3996), 2, "the rest of the same page");
        assert_eq!(pages(12_287, 2), 3, "its last byte, and the first of the next");
        assert_eq!(pages(16_384, 3 * 4096), 6);
    }

    #[test]
    fn a_sequence_of_which_one_page_a_row_is_met_is_none_after_a_few() {
        let mut stream = Stream::new(0, 65_536, 65_536, 1);
        let broken = (1..=8).map(|row| {
            stream.advance(at(row * 65_536 + 4096));
            stream.is_broken()
        });

        // Sixteen pages a row, of which a quarter has to be met, and four rows more.
        assert_eq!(broken.collect::<Vec<_>>(), [false, false, false, false, false, true, true, true]);
    }

    #[test]
    fn a_sequence_with_large_holes_is_none() {
        let mut every_page = Stream::new(0, 65_536, 65_536, 1);
        let mut one_in_eight = every_page.clone();

        for page in 1..400 {
            every_page.advance(at(page * 4096));
            one_in_eight.advance(at(page * 8 * 4096));
        }

        assert!(!every_page.is_broken() && one_in_eight.is_broken());
    }

    #[test]
    fn rows_may_be_left_out_and_read_in_parts_but_not_left() {
        let mut stream = Stream::new(100_000, 10_000, 4096, 4);

        assert_eq!(stream.advance(at(110_000)), Some(1));
        assert_eq!(stream.advance(at(112_000)), Some(0), "inside the row");
        assert_eq!(stream.advance(at(140_000)), Some(3), "two rows left out");
        assert_eq!(stream.advance(at(145_000)), None, "between two rows");
        assert_eq!(stream.advance(at(130_000)), None, "back");
        assert_eq!(stream.advance(at(10_000_000)), None, "far away");
    }

    #[test]
    fn a_stream_runs_backwards_as_well() {
        let mut stream = Stream::new(100_000, -10_000, 4096, 2);
        let mut wanted = Vec::new();

        assert_eq!(stream.advance(at(90_000)), Some(1));
        assert_eq!(stream.advance(at(71_000)), Some(2), "inside the row at 70 000");
        assert_eq!(stream.advance(at(80_000)), None);
        stream.want(8, 1 << 20, &mut wanted);
        let offsets: Vec<u64> = wanted.iter().map(|extent| extent.offset).collect();

        assert_eq!(offsets, [60_000, 50_000]);
    }

    #[test]
    fn nothing_is_wanted_outside_the_space() {
        let mut stream = Stream::new(30_000, 10_000, 4096, 8);
        let mut wanted = Vec::new();

        stream.want(8, 55_000, &mut wanted);

        assert_eq!(wanted.iter().map(|extent| extent.offset).collect::<Vec<_>>(), [40_000, 50_000]);
        assert_eq!(stream.unvisited(55_000), 2);
        assert_eq!(
            (stream.unvisited(50_001), stream.unvisited(50_000)),
            (2, 1),
            "a row that begins at the end is outside"
        );
    }

    #[test]
    fn a_sequence_of_which_a_quarter_is_met_but_for_four_rows_is_one() {
        let mut stream = Stream::new(0, 65_536, 65_536, 1);
        let mut row = 0;
        let broken = [2, 2, 1, 1, 1, 1, 1].map(|pages: usize| {
            row += 1;
            stream.advance(Extent { offset: row * 65_536 + 4096, length: pages * 4096 });
            stream.is_broken()
        });

        // After six rows of 16 pages 8 were met, which is a quarter of all but 64; after seven it is less.
        assert_eq!(broken, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn four_rows_may_be_left_out_and_no_more() {
        let stream = Stream::new(100_000, 10_000, 4096, 4);

        assert_eq!(stream.rows_to(150_000), Some(5));
        assert_eq!(stream.rows_to(160_000), None);
        assert_eq!((stream.rows_to(114_095), stream.rows_to(114_096)), (Some(1), None), "inside the row, and after it");
        assert_eq!((stream.rows_to(100_000), stream.rows_to(99_999)), (Some(0), None));
    }

    #[test]
    fn a_sequence_is_entered_as_far_as_it_was_read_ahead() {
        let mut stream = Stream::new(0, 4096, 4096, 20);
        assert_eq!(stream.rows_to(6 * 4096), None);

        stream.want(20, 1 << 30, &mut Vec::new());

        assert_eq!((stream.rows_to(21 * 4096), stream.rows_to(22 * 4096)), (Some(21), None));
    }

    #[test]
    fn the_reach_doubles_and_then_goes_on_by_quarters() {
        let mut stream = Stream::new(0, 10_000, 4096, 2);
        let mut wanted_after = |row: u64| {
            let mut wanted = Vec::new();
            if row > 0 {
                assert_eq!(stream.advance(at(row * 10_000)), Some(1));
            }
            stream.want(8, 1 << 30, &mut wanted);
            wanted.iter().map(|extent| extent.offset / 10_000).collect::<Vec<u64>>()
        };

        let wanted: Vec<Vec<u64>> = (0..7).map(&mut wanted_after).collect();

        assert_eq!(
            wanted,
            [vec![1, 2], vec![3, 4, 5], vec![6, 7, 8, 9, 10], vec![], vec![11, 12], vec![], vec![13, 14]]
        );
    }

    #[test]
    fn a_sequence_goes_on_by_halves() {
        let mut stream = Stream::new(0, 4096, 4096, 8);
        let mut wanted_after = |row: u64| {
            let mut wanted = Vec::new();
            stream.advance(at(row * 4096));
            stream.want(8, 1 << 30, &mut wanted);
            wanted.len()
        };

        let wanted: Vec<usize> = (0..9).map(&mut wanted_after).collect();

        assert_eq!(wanted, [8, 0, 0, 0, 4, 0, 0, 0, 4]);
    }

    #[test]
    fn a_stream_that_leaves_out_more_than_it_meets_is_none() {
        let mut stream = Stream::new(0, 10_000, 4096, 4);
        let mut broken_after = |turn: u64| {
            stream.advance(at(turn * 50_000));
            stream.is_broken()
        };

        // Four rows skipped for each one met, and eight more may be.
        assert_eq!([1, 2, 3].map(&mut broken_after), [false, false, true]);
    }

    #[test]
    fn a_stream_may_leave_out_eight_rows_more_than_it_meets() {
        let (mut stream, mut row) = (Stream::new(0, 10_000, 4096, 4), 0);
        let broken = [5, 5, 3, 2, 3, 3].map(|rows| {
            row += rows;
            assert_eq!(stream.advance(at(row * 10_000)), Some(rows));
            stream.is_broken()
        });

        // Left out and met: 4 and 1, 8 and 2, 10 and 3, 11 and 4, 13 and 5, 15 and 6.
        assert_eq!(broken, [false, false, false, false, false, true]);
    }

    #[test]
    fn a_row_takes_whole_pages_or_what_lies_up_to_the_next() {
        let row = |stride, length| {
            let stream = Stream::new(0, stride, length, 1);
            (stream.row_pages(), stream.row_bytes())
        };

        assert_eq!(row(65_536, 4096), (1, 4096));
        assert_eq!(row(65_536, 4097), (2, 8192));
        assert_eq!(row(-65_536, 100), (1, 4096));
        assert_eq!(row(100, 60), (1, 100));
        assert_eq!(row(4096, 100_000), (1, 4096), "never longer than the stride");
    }

    #[test]
    fn the_streams_share_the_budget() {
        let scene = Scene { length: 1 << 30, budget: 10 * 4096, gap: 0 };
        let want = |streams: &mut [Stream]| {
            let mut wanted = Vec::new();
            want_last(streams, 100, &scene, &mut wanted);
            wanted.len()
        };
        let mut streams = vec![Stream::new(0, 65_536, 4096, 100)];
        assert_eq!(want(&mut streams), 10, "one has all of it");
        streams.push(Stream::new(1 << 29, 65_536, 4096, 100));
        assert_eq!(want(&mut streams), 0, "nothing is left for another");

        (1..=7).for_each(|row| _ = streams[0].advance(at(row * 65_536)));

        assert_eq!(want(&mut streams), 5, "an equal share, as seven of ten are free");
    }
}
