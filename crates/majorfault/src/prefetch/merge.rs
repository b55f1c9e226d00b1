//! From wanted extents to requests: sorted, neighbours joined, cut to what the kernel reads at once.

use crate::files::Extent;

/// The most bytes of one request. The kernel silently cuts advice to read ahead to the larger of the device's
/// read-ahead and its longest request, of which 128 KiB is the smallest in common use.
pub(super) const PIECE: u64 = 128 << 10;

/// Smallest unit that is read.
const PAGE: u64 = 4096;

/// How wanted extents are joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merge {
    /// Bytes between two extents that are read rather than skipped.
    pub gap: u64,
    /// Bytes of the address space; anything past them is dropped.
    pub length: u64,
    /// No request crosses a multiple of this.
    pub stripe: u64,
}

impl Merge {
    /// Puts requests for `wanted` (which is left empty) into `requests`, in ascending order, without overlap.
    pub fn requests(&self, wanted: &mut Vec<Extent>, requests: &mut Vec<Extent>) {
        wanted.retain(|extent| extent.offset < self.length && extent.length > 0);
        wanted.sort_unstable();
        let mut pages = wanted.drain(..).map(|extent| self.pages(extent));
        let Some((mut begin, mut end)) = pages.next() else { return };
        for (next_begin, next_end) in pages {
            if next_begin <= end.saturating_add(self.gap) {
                end = end.max(next_end);
            } else {
                self.cut(begin, end, requests);
                (begin, end) = (next_begin, next_end);
            }
        }
        self.cut(begin, end, requests);
    }

    /// The pages of `extent` inside the space.
    fn pages(&self, extent: Extent) -> (u64, u64) {
        let end = extent.offset.saturating_add(extent.length as u64).min(self.length);
        (extent.offset / PAGE * PAGE, end.next_multiple_of(PAGE).min(self.length))
    }

    fn cut(&self, mut begin: u64, end: u64, requests: &mut Vec<Extent>) {
        let stripe = self.stripe.max(1);
        while begin < end {
            let until = end.min((begin / PIECE + 1) * PIECE).min((begin / stripe + 1) * stripe);
            requests.push(Extent { offset: begin, length: (until - begin) as usize });
            begin = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests(merge: Merge, wanted: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let mut requests = Vec::new();
        let mut wanted = wanted.iter().map(|&(offset, length)| Extent { offset, length }).collect();
        merge.requests(&mut wanted, &mut requests);
        requests.iter().map(|extent| (extent.offset, extent.length)).collect()
    }

    #[test]
    fn neighbours_are_joined_and_holes_up_to_the_gap_are_read() {
        let merge = Merge { gap: 4096, length: 1 << 20, stripe: 1 << 20 };

        assert_eq!(requests(merge, &[(8192, 10), (0, 1), (4100, 2)]), [(0, 3 * 4096)]);
        assert_eq!(requests(merge, &[(0, 4096), (8192, 4096)]), [(0, 3 * 4096)]);
        assert_eq!(requests(merge, &[(0, 4096), (12288, 4096)]), [(0, 4096), (12288, 4096)]);
    }

    #[test]
    fn requests_end_at_the_space_at_stripes_and_at_128_kib() {
        let merge = Merge { gap: 0, length: 300_000, stripe: 65536 };

        let last = requests(merge, &[(262_144, 1 << 20), (1 << 30, 1)]);

        assert_eq!(last, [(262_144, 300_000 - 262_144)]);
        assert_eq!(requests(merge, &[(0, 100_000)]), [(0, 65536), (65536, 36864)]);
        let whole = Merge { stripe: 1 << 40, ..merge };
        assert_eq!(requests(whole, &[(0, 262_144)]), [(0, 131_072), (131_072, 131_072)]);
    }

    #[test]
    fn every_piece_ends_at_a_multiple_of_its_length_wherever_the_first_begins() {
        let merge = |stripe| Merge { gap: 0, length: 1 << 20, stripe };
        let (piece, half) = (131_072, 65_536);

        assert_eq!(
            requests(merge(1 << 20), &[(65_536, 327_680)]),
            [(65_536, half), (131_072, piece), (262_144, piece)]
        );
        assert_eq!(requests(merge(65_536), &[(32_768, 163_840)]), [(32_768, 32_768), (65_536, half), (131_072, half)]);
    }

    #[test]
    fn nothing_is_requested_for_no_bytes_or_past_the_end() {
        let merge = Merge { gap: 0, length: 300_000, stripe: 1 << 20 };

        assert_eq!(requests(merge, &[(100, 0), (8192, 0), (300_000, 1), (1 << 30, 1)]), []);
        assert_eq!(requests(merge, &[(299_999, 1)]), [(299_008, 992)]);
    }

    proptest! {
        #[test]
        fn every_wanted_byte_is_requested_once(
            wanted in prop::collection::vec((0u64..3_000_000, 0usize..300_000), 0..20),
            gap in 0u64..20_000,
        ) {
            let merge = Merge { gap, length: 2_500_000, stripe: 1 << 20 };

            let requests = requests(merge, &wanted);

            prop_assert!(requests.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 <= pair[1].0));
            prop_assert!(requests.iter().all(|(at, length)| *length > 0 && at + *length as u64 <= merge.length));
            for (offset, length) in wanted {
                for byte in [offset, (offset + length as u64).saturating_sub(1)] {
                    let covered = requests.iter().any(|(at, length)| (*at..at + *length as u64).contains(&byte));
                    prop_assert!(covered || byte >= merge.length || length == 0);
                }
            }
        }
    }
}
