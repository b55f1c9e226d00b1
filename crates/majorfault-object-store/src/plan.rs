//! Which reads answer a call: from the ranges that were asked for to extents, and from their bytes back to answers.

use bytes::Bytes;
use majorfault::Extent;
use std::ops::Range;

/// The most that one read brings: a longer range is several, which are in flight together.
pub(crate) const PIECE: usize = 128 << 10;

/// The reads of one call.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What is read, in ascending order; no two overlap.
    fetched: Vec<Range<u64>>,
    /// The same in pieces.
    pub(crate) extents: Vec<Extent>,
    /// Where each piece belongs: which of `fetched`, and where in it.
    places: Vec<(usize, usize)>,
}

impl Plan {
    /// Reads for `ranges`; those that overlap, touch, or have at most `gap` bytes between them become one. All end where the file has bytes.
    pub(crate) fn of(ranges: &[Range<u64>], gap: u64) -> Plan {
        let wanted: Vec<Range<u64>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
        let fetched = merged(&wanted, gap);
        let (mut extents, mut places) = (Vec::with_capacity(fetched.len()), Vec::with_capacity(fetched.len()));
        for (index, Range { start, end }) in fetched.iter().enumerate() {
            for offset in (*start..*end).step_by(PIECE) {
                extents.push(Extent { offset, length: (end - offset).min(PIECE as u64) as usize });
                places.push((index, (offset - start) as usize));
            }
        }
        Plan { fetched, extents, places }
    }

    /// Bytes that are read.
    pub(crate) fn bytes(&self) -> u64 {
        self.fetched.iter().map(|range| range.end - range.start).sum()
    }

    /// Room for what is read.
    pub(crate) fn room(&self) -> Vec<Vec<u8>> {
        vec![Vec::new(); self.fetched.len()]
    }

    /// Puts the bytes of the extent `index` where they belong.
    pub(crate) fn put(&self, room: &mut [Vec<u8>], index: usize, bytes: &[u8]) {
        let fetched = self.places[index].0;
        if room[fetched].is_empty() && bytes.len() == self.length(fetched) {
            // Most ranges are one piece; they are written once.
            room[fetched].extend_from_slice(bytes);
        } else {
            self.place(room, index).copy_from_slice(bytes);
        }
    }

    /// Where the bytes of the extent `index` belong.
    pub(crate) fn place<'a>(&self, room: &'a mut [Vec<u8>], index: usize) -> &'a mut [u8] {
        let (fetched, at) = self.places[index];
        let room = &mut room[fetched];
        if room.is_empty() {
            *room = vec![0; self.length(fetched)];
        }
        &mut room[at..at + self.extents[index].length]
    }

    fn length(&self, fetched: usize) -> usize {
        (self.fetched[fetched].end - self.fetched[fetched].start) as usize
    }

    /// What each range asked for, once all extents are there.
    pub(crate) fn answers(&self, ranges: &[Range<u64>], room: Vec<Vec<u8>>) -> Vec<Bytes> {
        let fetched: Vec<Bytes> = room.into_iter().map(Bytes::from).collect();
        let answer = |range: &Range<u64>| {
            if range.is_empty() {
                return Bytes::new();
            }
            let index = self.fetched.partition_point(|other| other.start <= range.start) - 1;
            let start = self.fetched[index].start;
            fetched[index].slice((range.start - start) as usize..(range.end - start) as usize)
        };
        ranges.iter().map(answer).collect()
    }
}

/// Ascending ranges that cover `ranges`: what overlaps, touches, or has at most `gap` bytes in between is one.
fn merged(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match all.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// The range for which `LocalFileSystem` refuses the call, if the file has `length` bytes: the first that passes the end, in the order in which
/// it reads (as given, or ascending where some touch and are read as one). Short enough to be asked for: one byte past the end.
pub(crate) fn past_the_end(ranges: &[Range<u64>], length: u64) -> Option<Range<u64>> {
    let merged = merged(ranges, 0);
    let in_order = if merged.len() == ranges.len() { ranges } else { &merged };
    let past = in_order.iter().find(|range| !range.is_empty() && range.end > length)?;
    Some(past.start..past.end.min(past.start.max(length).saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_read_once_and_what_lies_apart_is_not_joined() {
        let plan = Plan::of(&[30..40, 0..10, 5..20, 20..25, 7..7], 0);

        let extents: Vec<(u64, usize)> = plan.extents.iter().map(|extent| (extent.offset, extent.length)).collect();
        assert_eq!(extents, [(0, 25), (30, 10)]);
        assert_eq!(plan.bytes(), 35);
    }

    #[test]
    fn a_gap_is_read_only_where_it_was_asked_for() {
        let ranges = [0..10, 14..20, 25..30];

        let joined: Vec<usize> = [0, 3, 4, 5].map(|gap| Plan::of(&ranges, gap).extents.len()).to_vec();

        assert_eq!(joined, [3, 3, 2, 1]);
    }

    #[test]
    fn a_long_range_is_pieces_that_come_in_any_order() {
        let piece = PIECE as u64;
        let plan = Plan::of(&[5..2 * piece + 6], 0);
        let mut room = plan.room();
        let byte = |offset: u64| (offset % 251) as u8;

        assert_eq!(plan.extents.len(), 3);
        for index in [2, 0, 1] {
            let Extent { offset, length } = plan.extents[index];
            let bytes: Vec<u8> = (offset..offset + length as u64).map(byte).collect();
            plan.put(&mut room, index, &bytes);
        }

        let answers = plan.answers(&[5..2 * piece + 6], room);
        assert!(answers[0].iter().copied().eq((5..2 * piece + 6).map(byte)));
    }

    #[test]
    fn the_range_that_is_refused_is_the_one_that_is_read_first() {
        assert_eq!(past_the_end(&[0..10, 20..30], 30), None);
        assert_eq!(past_the_end(&[40..50, 35..36, 0..1], 30), Some(40..41));
        assert_eq!(past_the_end(&[40..50, 35..36, 0..1, 1..2], 30), Some(35..36));
        assert_eq!(past_the_end(&[0..20, 20..u64::MAX], 30), Some(0..31));
        assert_eq!(past_the_end(&[90..90, 0..5], 30), None);
    }
}
