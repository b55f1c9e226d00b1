//! Which reads answer a call: from the ranges that were asked for to extents, and from their bytes back to answers.

use bytes::Bytes;
use majorfault::Extent;
use std::ops::Range;

/// The most that one read brings: a longer range is several, which are in flight together.
pub(crate) const PIECE: usize = 128 << 10;

/// The reads of one call.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What is wanted, in ascending order; no two overlap or touch. Each is one piece of memory.
    wanted: Vec<Range<u64>>,
    /// What is read, in ascending order: pieces of what is wanted, and several of them where little lies between.
    pub(crate) extents: Vec<Extent>,
    /// Where in `parts` those of each extent end.
    ends: Vec<usize>,
    parts: Vec<Part>,
}

/// What of an extent is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Which of the wanted ranges, and where in it.
    wanted: usize,
    at: usize,
    /// Where in the extent.
    from: usize,
    pub(crate) length: usize,
}

impl Plan {
    /// Reads for `ranges`, of which those that overlap or touch are one; those with at most `gap` bytes between them are read together, as
    /// far as that fits a piece. All end where the file has bytes.
    pub(crate) fn of(ranges: &[Range<u64>], gap: u64) -> Plan {
        let some: Vec<Range<u64>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
        let wanted = merged(&some);
        let (mut extents, mut ends) = (Vec::<Extent>::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
        let mut parts = Vec::with_capacity(wanted.len());
        for (index, range) in wanted.iter().enumerate() {
            for offset in range.clone().step_by(PIECE) {
                let length = (range.end - offset).min(PIECE as u64) as usize;
                let near = |last: &&mut Extent| {
                    let span = offset - last.offset;
                    span <= last.length as u64 + gap && span + length as u64 <= PIECE as u64
                };
                let from = match extents.last_mut().filter(near) {
                    Some(last) => {
                        let from = (offset - last.offset) as usize;
                        last.length = from + length;
                        ends.pop();
                        from
                    }
                    None => {
                        extents.push(Extent { offset, length });
                        0
                    }
                };
                parts.push(Part { wanted: index, at: (offset - range.start) as usize, from, length });
                ends.push(parts.len());
            }
        }
        Plan { wanted, extents, ends, parts }
    }

    /// Bytes that are wanted.
    pub(crate) fn bytes(&self) -> u64 {
        self.wanted.iter().map(|range| range.end - range.start).sum()
    }

    /// Room for what is wanted.
    pub(crate) fn room(&self) -> Vec<Vec<u8>> {
        vec![Vec::new(); self.wanted.len()]
    }

    /// What of the extent `index` is wanted.
    pub(crate) fn parts(&self, index: usize) -> &[Part] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.parts[begin..self.ends[index]]
    }

    /// Where in the file a part begins.
    pub(crate) fn offset(&self, part: Part) -> u64 {
        self.wanted[part.wanted].start + part.at as u64
    }

    /// Puts what is wanted of the bytes of the extent `index` where it belongs.
    pub(crate) fn put(&self, room: &mut [Vec<u8>], index: usize, bytes: &[u8]) {
        for part in self.parts(index) {
            let bytes = &bytes[part.from..part.from + part.length];
            if room[part.wanted].is_empty() && part.length == self.length(part.wanted) {
                // Most ranges are one part; they are written once.
                room[part.wanted].extend_from_slice(bytes);
            } else {
                self.place(room, *part).copy_from_slice(bytes);
            }
        }
    }

    /// Where the bytes of a part belong.
    pub(crate) fn place<'a>(&self, room: &'a mut [Vec<u8>], part: Part) -> &'a mut [u8] {
        let room = &mut room[part.wanted];
        if room.is_empty() {
            *room = vec![0; self.length(part.wanted)];
        }
        &mut room[part.at..part.at + part.length]
    }

    fn length(&self, wanted: usize) -> usize {
        (self.wanted[wanted].end - self.wanted[wanted].start) as usize
    }

    /// What each range asked for, once all extents are there.
    pub(crate) fn answers(&self, ranges: &[Range<u64>], room: Vec<Vec<u8>>) -> Vec<Bytes> {
        let read: Vec<Bytes> = room.into_iter().map(Bytes::from).collect();
        let answer = |range: &Range<u64>| {
            if range.is_empty() {
                return Bytes::new();
            }
            let index = self.wanted.partition_point(|other| other.start <= range.start) - 1;
            let start = self.wanted[index].start;
            read[index].slice((range.start - start) as usize..(range.end - start) as usize)
        };
        ranges.iter().map(answer).collect()
    }
}

/// Ascending ranges that cover `ranges`: what overlaps or touches is one.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// The range for which `LocalFileSystem` refuses the call, if the file has `length` bytes: the first that passes the end, in the order in which
/// it reads (as given, or ascending where some touch and are read as one). Short enough to be asked for: one byte past the end.
pub(crate) fn past_the_end(ranges: &[Range<u64>], length: u64) -> Option<Range<u64>> {
    let merged = merged(ranges);
    let in_order = if merged.len() == ranges.len() { ranges } else { &merged };
    let past = in_order.iter().find(|range| !range.is_empty() && range.end > length)?;
    Some(past.start..past.end.min(past.start.max(length).saturating_add(1)))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is asked for, not its numbers")]
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
        assert!([0, 5].iter().all(|gap| Plan::of(&ranges, *gap).bytes() == 21));
    }

    #[test]
    fn ranges_that_are_read_together_get_their_own_bytes_and_stay_within_a_piece() {
        let piece = PIECE as u64;
        let ranges = [0..piece / 2, piece / 2 + 10..piece, piece + 4..piece + 9, piece + 12..piece + 13];
        let plan = Plan::of(&ranges, 16);
        let mut room = plan.room();
        let byte = |offset: u64| (offset % 251) as u8;

        let extents: Vec<(u64, usize)> = plan.extents.iter().map(|extent| (extent.offset, extent.length)).collect();
        assert_eq!(extents, [(0, PIECE), (piece + 4, 9)]);
        for index in [1, 0] {
            let Extent { offset, length } = plan.extents[index];
            plan.put(&mut room, index, &(offset..offset + length as u64).map(byte).collect::<Vec<u8>>());
        }

        for (range, answer) in ranges.iter().zip(plan.answers(&ranges, room)) {
            assert!(answer.iter().copied().eq(range.clone().map(byte)), "{range:?}");
        }
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
