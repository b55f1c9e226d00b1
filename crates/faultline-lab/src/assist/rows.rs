//! A stride guessed from faults that show only some of the rows.
//!
//! Where the kernel reads far ahead, one fault maps many rows (large folios, fault-around), so the distances between faults
//! are multiples of the stride: their greatest common divisor is a guess, to be tried before it is believed.

/// Faults in one direction before a guess is made: by then a divisor that is too large by chance is rare.
const FEWEST: u32 = 8;

/// A guess that is no more than this is told by the faults themselves.
const SHORTEST: u64 = 8 << 10;

/// A jump that begins something else.
const FARTHEST: u64 = 256 << 20;

/// The faults of one thread in one file since they last turned round or jumped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    last: Option<u64>,
    count: u32,
    divisor: u64,
}

impl Rows {
    /// A fault at the page at `offset`. The guess, where there have been enough forward ones, and how many.
    pub fn observe(&mut self, offset: u64) -> Option<(u64, u32)> {
        let distance = self.last.and_then(|last| offset.checked_sub(last)).filter(|distance| *distance <= FARTHEST);
        self.last = Some(offset);
        let Some(distance) = distance else {
            self.forget();
            return None;
        };
        if distance == 0 {
            return None;
        }
        self.divisor = divisor(self.divisor, distance);
        if self.divisor < SHORTEST {
            self.forget();
            return None;
        }
        self.count += 1;
        (self.count >= FEWEST).then_some((self.divisor, self.count))
    }

    /// Whether a guess may come soon.
    pub fn is_near(&self) -> bool {
        self.count >= FEWEST / 2
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        *self = Rows { last: self.last, count: 0, divisor: 0 };
    }
}

/// The greatest common divisor; that of 0 and a number is the number.
fn divisor(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn random_faults_suggest_nothing() {
        let (mut rows, mut state) = (Rows::default(), 1u64);
        for _ in 0..100_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            assert_eq!(rows.observe((state >> 33) % 262_144 * 4096), None);
        }
    }

    #[test]
    fn a_scan_by_pages_suggests_nothing() {
        let mut rows = Rows::default();

        assert!((0..10_000).all(|page| rows.observe(page * 4096).is_none()));
    }

    proptest! {
        #[test]
        fn the_stride_is_a_divisor_of_every_guess(
            stride in 2u64..300, begin in 0u64..1000, skips in prop::collection::vec(1u64..9, 8..40),
        ) {
            let (mut rows, mut offset) = (Rows::default(), begin * 4096);
            rows.observe(offset);
            for skip in skips {
                offset += skip * stride * 4096;
                if let Some((guess, _)) = rows.observe(offset) {
                    prop_assert!(guess.is_multiple_of(stride * 4096));
                }
            }
        }
    }
}
