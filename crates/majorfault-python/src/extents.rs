//! Which bytes the rows of an array have: from address, shape and strides to ranges of addresses.

use std::ops::Range;

/// The most ranges made at once: single pages of them are 4 GiB.
const MOST: usize = 1 << 20;

/// Holes up to this many bytes are read rather than skipped: they share a page with what is wanted.
const HOLE: isize = 4096;

/// An array in memory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Of the item with the indices 0.
    pub address: usize,
    pub item: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
}

/// A dimension: how many, and how far apart.
type Dimension = (usize, isize);

/// The bytes of one row: `block` bytes at each combination of the `outer` steps, relative to the row's first item.
struct Row {
    begin: isize,
    block: usize,
    outer: Vec<Dimension>,
}

impl Layout {
    /// Bytes from the lowest to the highest, none where the array has no items.
    pub fn span(&self) -> Range<usize> {
        let reach = |sign: isize| -> isize {
            let far = self.dimensions().map(|(count, stride)| (count as isize - 1) * stride);
            far.filter(|far| far.signum() == sign).sum()
        };
        if self.shape.contains(&0) || self.item == 0 {
            return self.address..self.address;
        }
        let begin = self.address.wrapping_add_signed(reach(-1));
        begin..self.address.wrapping_add_signed(reach(1)).wrapping_add(self.item)
    }

    fn dimensions(&self) -> impl Iterator<Item = Dimension> {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    /// Ranges of addresses of the whole array, in ascending order, at most `MOST`.
    pub fn all(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        if !self.span().is_empty() {
            row(self.item, self.dimensions()).put(self.address, &mut ranges);
        }
        ranges
    }

    /// Ranges of addresses of these rows (steps of the first dimension), in their order, at most `MOST`. A negative number counts
    /// from the end.
    ///
    /// Errors: the first number that is no row.
    pub fn rows(&self, rows: &[i64]) -> Result<Vec<Range<usize>>, i64> {
        let mut ranges = Vec::with_capacity(rows.len().min(MOST));
        let Some((count, stride)) = self.dimensions().next() else {
            return rows.first().map_or(Ok(ranges), |row| Err(*row));
        };
        let inner = row(self.item, self.dimensions().skip(1));
        let is_empty = self.span().is_empty();
        for &number in rows {
            let row = if number < 0 { number + count as i64 } else { number };
            if row < 0 || row >= count as i64 {
                return Err(number);
            }
            if !is_empty {
                inner.put(self.address.wrapping_add_signed(row as isize * stride), &mut ranges);
            }
        }
        Ok(ranges)
    }
}

/// Joins the dimensions whose holes are small into a block, smallest stride first.
fn row(item: usize, dimensions: impl Iterator<Item = Dimension>) -> Row {
    let mut row = Row { begin: 0, block: item, outer: Vec::new() };
    let mut upward: Vec<Dimension> = Vec::new();
    for (count, stride) in dimensions.filter(|(count, _)| *count > 1) {
        // Backward is forward from the other end.
        row.begin += if stride < 0 { (count as isize - 1) * stride } else { 0 };
        upward.push((count, stride.abs()));
    }
    upward.sort_by_key(|(_, stride)| *stride);
    for (count, stride) in upward {
        match row.outer.is_empty() && stride - row.block as isize <= HOLE {
            true => row.block += (count - 1) * stride as usize,
            false => row.outer.insert(0, (count, stride)),
        }
    }
    row
}

impl Row {
    /// Puts the ranges of the row whose first item is at `address`.
    fn put(&self, address: usize, ranges: &mut Vec<Range<usize>>) {
        self.put_from(address.wrapping_add_signed(self.begin), &self.outer, ranges);
    }

    fn put_from(&self, begin: usize, outer: &[Dimension], ranges: &mut Vec<Range<usize>>) {
        let Some((&(count, stride), inner)) = outer.split_first() else {
            return if ranges.len() < MOST {
                ranges.push(begin..begin + self.block)
            };
        };
        for step in 0..count.min(MOST) {
            self.put_from(begin + step * stride as usize, inner, ranges);
        }
    }
}
