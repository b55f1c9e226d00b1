//! The same place in every row, at a stride that the user knows: a column of a row-oriented file (SOURCES S4.column).

use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::streams::{self, Stream};
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};
use crate::units::Bytes;

pub(super) const POLICY: Policy = Policy {
    name: "strided",
    summary: "the same bytes of the next rows, at a stride that is given",
    // Read-ahead would also read the bytes between the rows.
    underneath: &[("advice", "random")],
    by: By::Caller,
    budget: Ahead::Bytes(8 << 20),
    params: Strided::declared,
    start: Some(start::<Strided>),
};

/// Columns followed at the same time; the least recently used one makes room.
const COLUMNS: usize = 16;

crate::params! {
    /// The rows.
    #[non_exhaustive]
    pub struct Strided {
        /// Bytes from one row to the next; by default 256 KiB, more than read-ahead can bridge.
        stride: Bytes = Bytes::kib(256),
        /// Bytes wanted of each row; 0 means as many as each access has.
        length: Bytes = Bytes(0),
        /// Rows ahead of the last access; 128 keep a disk busy that takes 64 requests, with room for delays.
        rows: u32 = 128,
    }
}

struct StridedPredictor {
    params: Strided,
    scene: Scene,
    /// Most recently used last.
    columns: Vec<Stream>,
}

impl PolicyOptions for Strided {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        let Strided { stride, length, rows: _ } = self;
        if stride.0 == 0 || length > stride || stride.0 > i64::MAX as u64 {
            return Err(Error::Invalid(format!(
                "length={length},stride={stride}: a row cannot be longer than the stride"
            )));
        }
        Ok(Box::new(StridedPredictor { params: self.clone(), scene: scene.clone(), columns: Vec::new() }))
    }
}

impl StridedPredictor {
    /// Moves the column that `extent` continues, or a new one, to the end of the list.
    fn find_column(&mut self, extent: Extent) {
        let Strided { stride, length, rows } = &self.params;
        let length = if length.0 == 0 { extent.length } else { length.0 as usize };
        match self.columns.iter_mut().position(|column| column.advance(extent).is_some()) {
            Some(at) => self.columns[at..].rotate_left(1),
            None => {
                if self.columns.len() == COLUMNS {
                    self.columns.remove(0);
                }
                self.columns.push(Stream::new(extent.offset, stride.0 as i64, length, u64::from(*rows)));
            }
        }
    }
}

impl Predictor for StridedPredictor {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        self.find_column(extent);
        streams::want_last(&mut self.columns, u64::from(self.params.rows), &self.scene, wanted);
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(StridedPredictor { params: self.params.clone(), scene: self.scene.clone(), columns: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(given: &str, offsets: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let scene = Scene { length: 1 << 24, budget: 1 << 20, gap: 0 };
        let (mut strided, _) = start::<Strided>(&scene, &given.parse().unwrap()).unwrap();
        let mut wanted = Vec::new();
        for offset in offsets {
            strided.observe(Extent { offset, length: 100 }, &mut wanted);
        }
        wanted.iter().map(|extent| extent.offset).collect()
    }

    #[test]
    fn the_next_rows_are_wanted_from_the_first_access_on() {
        assert_eq!(wanted("stride=64k,rows=3", [500]), [66_036, 131_572, 197_108]);
    }

    #[test]
    fn every_row_is_wanted_once() {
        let rows = wanted("stride=64k,rows=8", (0..100).map(|row| row * 65536));

        assert_eq!(rows, (1..108).map(|row| row * 65536).collect::<Vec<u64>>()[..rows.len()]);
        assert!(rows.len() >= 105);
    }

    #[test]
    fn columns_have_rows_of_their_own() {
        let mut both = wanted("stride=64k,rows=4", (0..20).flat_map(|row| [row * 65536, row * 65536 + 30_000]));
        both.sort_unstable();

        assert!(both.windows(2).all(|pair| pair[0] < pair[1]), "{both:?}");
        assert!(both.iter().all(|offset| [0, 30_000].contains(&(offset % 65536))));
    }

    #[test]
    fn all_columns_together_keep_the_budget() {
        for columns in [1, 3, 16, 17, 40] {
            let scene = Scene { length: 1 << 26, budget: 50 * 4096, gap: 0 };
            let params = Strided { stride: Bytes::kib(512), ..Strided::default() };
            let mut strided = StridedPredictor { params, scene: scene.clone(), columns: Vec::new() };
            let mut wanted = Vec::new();
            for (row, column) in (0..30).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                strided.observe(Extent { offset: row * (512 << 10) + column * 8192, length: 4096 }, &mut wanted);

                let ahead: u64 = strided.columns.iter().map(|column| column.unvisited(scene.length) * 4096).sum();
                assert!(ahead <= scene.budget && strided.columns.len() <= 16, "{ahead} bytes of {columns} columns");
            }
            assert!(wanted.len() >= 50, "{} rows wanted of {columns} columns", wanted.len());
        }
    }

    #[test]
    fn rows_longer_than_the_stride_are_refused() {
        let scene = Scene { length: 1 << 24, budget: 1 << 20, gap: 0 };

        let error = start::<Strided>(&scene, &"stride=4k,length=8k".parse().unwrap()).err().unwrap();

        assert!(error.to_string().contains("longer than the stride"), "{error}");
    }

    #[test]
    fn a_row_may_fill_its_stride_and_a_stride_is_a_distance_in_a_file() {
        let scene = Scene { length: 1 << 24, budget: 1 << 20, gap: 0 };
        let is_legal = |stride: u64, length: u64| {
            Strided { stride: Bytes(stride), length: Bytes(length), rows: 8 }.predictor(&scene).is_ok()
        };

        assert_eq!([(4096, 4096), (4096, 4097)].map(|(stride, length)| is_legal(stride, length)), [true, false]);
        let longest = i64::MAX as u64;
        assert_eq!([0, 1, longest, longest + 1].map(|stride| is_legal(stride, 0)), [false, true, true, false]);
    }
}
