//! A stride guessed from faults that show only some of the rows.
//!
//! Where the kernel reads far ahead, one fault maps many rows (large folios, fault-around), so the distances between faults
//! are multiples of the stride: their greatest common divisor is a guess, which is tried before it is used.

/// Faults in one direction before a guess is made: by then a divisor that is too large by chance is rare.
const FEWEST: u32 = 8;

/// The same where the stride is known from another thread.
const FEWEST_OF_KNOWN: u32 = 2;

/// A guess that is no larger than this shows in the faults themselves.
const SHORTEST: u64 = 8 << 10;

/// A jump that starts something else.
const FARTHEST: u64 = 256 << 20;

/// The faults of one thread in one file since its last turn or jump.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    last: Option<u64>,
    count: u32,
    divisor: u64,
}

impl Rows {
    /// Records a fault at the page at `offset`. Returns the guess, where there were enough forward faults, and their number.
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

    /// Whether the faults so far could be rows of this stride.
    pub fn are_of(&self, stride: u64) -> bool {
        self.count >= FEWEST_OF_KNOWN && self.divisor.is_multiple_of(stride)
    }

    /// Whether a guess may come soon.
    pub fn is_near(&self) -> bool {
        self.count >= FEWEST / 2
    }

    /// Starts again.
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

    const MIB: u64 = 1 << 20;

    fn after(offsets: impl IntoIterator<Item = u64>) -> (Rows, Option<(u64, u32)>) {
        let mut rows = Rows::default();
        let last = offsets.into_iter().fold(None, |_, offset| rows.observe(offset));
        (rows, last)
    }

    #[test]
    fn eight_steps_make_a_guess() {
        assert_eq!(after((0..8).map(|row| row * MIB)).1, None);
        assert_eq!(after((0..9).map(|row| row * MIB)).1, Some((MIB, 8)));
    }

    #[test]
    fn the_guess_divides_all_steps() {
        let steps = [6, 10, 4, 8, 6, 14, 2, 4].map(|step| step * MIB);
        let offsets = steps.iter().scan(0, |at, step| Some(std::mem::replace(at, *at + step)));

        assert_eq!(after(offsets.chain([54 * MIB])).1, Some((2 * MIB, 8)));
    }

    #[test]
    fn steps_of_less_than_two_pages_begin_anew() {
        assert_eq!(after((0..9).map(|row| row * 8192)).1, Some((8192, 8)));
        assert_eq!(after((0..9).map(|row| row * 8191)).1, None);
    }

    #[test]
    fn steps_beyond_256_mib_and_backward_ones_begin_anew() {
        assert_eq!(after((0..9).map(|row| row * 256 * MIB)).1, Some((256 * MIB, 8)));
        assert_eq!(after((0..9).map(|row| row * 257 * MIB)).1, None);
        assert_eq!(after((0..9).map(|row| (9 - row) * MIB)).1, None);
    }

    #[test]
    fn a_second_fault_at_the_same_place_is_no_step() {
        assert_eq!(after((0..9).flat_map(|row| [row * MIB, row * MIB])).0.count, 8);
    }

    #[test]
    fn two_steps_tell_whether_a_known_stride_is_meant() {
        assert!(!after([0, MIB]).0.are_of(MIB));
        assert!(after([0, MIB, 3 * MIB]).0.are_of(MIB));
        assert!(!after([0, MIB, 3 * MIB]).0.are_of(2 * MIB));
    }

    #[test]
    fn a_guess_is_near_after_four_steps() {
        assert!(!after((0..4).map(|row| row * MIB)).0.is_near());
        assert!(after((0..5).map(|row| row * MIB)).0.is_near());
    }

    #[test]
    fn after_forgetting_the_last_fault_is_the_first() {
        let mut rows = after((0..9).map(|row| row * MIB)).0;

        rows.forget();

        assert!((9..16).all(|row| rows.observe(row * MIB).is_none()));
        assert_eq!(rows.observe(16 * MIB), Some((MIB, 8)));
    }

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
