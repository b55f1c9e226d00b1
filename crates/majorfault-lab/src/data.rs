//! The content of the files that the tool makes: every page knows its number, so every access can be checked.
//!
//! A page is 512 words. Word 0 is the page's number in the address space, word 1 the generation (which write it is
//! from; 0 when made), the last one makes all words add up to [`MadeContent::page_sum`], the others are noise: 512 words, the same
//! for every page, plus a number of the page from the seed, so that filling a page costs little more than copying one, and neither
//! compression nor deduplication finds anything. So the sum over any aligned extent is known without reading it, and is the same in every generation for
//! whole pages. All words are little-endian; sums wrap.

use majorfault::{Error, Extent, Result};

/// Bytes of a page of content, whatever the machine's page size.
pub const PAGE: usize = 4096;

/// Words of a page.
const WORDS: u64 = (PAGE / 8) as u64;

/// The content belonging to a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeContent {
    seed: u64,
}

/// A mix of 64 bits: the finalizer of splitmix64 (Steele, Lea, Flood 2014).
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The noise that pages have in common, by the number of the word.
static NOISE: [u64; WORDS as usize] = {
    let mut noise = [0; WORDS as usize];
    let mut index = 0;
    while index < noise.len() {
        noise[index] = mix(index as u64);
        index += 1;
    }
    noise
};

/// Words of a page that are noise: all but the first two and the last.
const NOISY: std::ops::Range<usize> = 2..WORDS as usize - 1;

/// What the noise of a page adds up to before each of its words, and at its end.
static NOISE_BEFORE: [u64; WORDS as usize + 1] = {
    let mut sums = [0u64; WORDS as usize + 1];
    let mut index = 0;
    while index < WORDS as usize {
        let noise = if index < NOISY.start || index >= NOISY.end { 0 } else { mix(index as u64) };
        sums[index + 1] = sums[index].wrapping_add(noise);
        index += 1;
    }
    sums
};

/// What the noise that pages have in common adds up to.
const NOISE_SUM: u64 = {
    let (mut sum, mut index) = (0u64, NOISY.start);
    while index < NOISY.end {
        sum = sum.wrapping_add(mix(index as u64));
        index += 1;
    }
    sum
};

/// The sum of the words of `bytes`; a last incomplete word counts as if filled with zeros.
#[inline]
pub fn sum_words(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    // Lanes of their own, which become vectors wherever this is inlined; one sum is not always taken apart.
    let (blocks, rest) = words.as_chunks::<8>();
    let mut lanes = [0u64; 8];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let rest = rest.iter().map(|word| u64::from_le_bytes(*word));
    let whole = lanes.into_iter().chain(rest).fold(0u64, u64::wrapping_add);
    if tail.is_empty() {
        return whole;
    }
    let mut last = [0u8; 8];
    last[..tail.len()].copy_from_slice(tail);
    whole.wrapping_add(u64::from_le_bytes(last))
}

impl MadeContent {
    /// The content of `seed`.
    pub fn of(seed: u64) -> MadeContent {
        MadeContent { seed: mix(seed) }
    }

    /// What the words of a page add up to, in every generation.
    #[inline]
    pub fn page_sum(self, page: u64) -> u64 {
        mix(self.seed ^ page.wrapping_mul(WORDS + 1))
    }

    /// What a page adds to the noise that all have in common.
    #[inline]
    fn shift(self, page: u64) -> u64 {
        mix(self.seed ^ page.wrapping_mul(WORDS))
    }

    /// The last word of a page: it makes the sum right.
    #[inline]
    fn last(self, page: u64, generation: u64) -> u64 {
        let noise = NOISE_SUM.wrapping_add(self.shift(page).wrapping_mul(NOISY.len() as u64));
        self.page_sum(page).wrapping_sub(page).wrapping_sub(generation).wrapping_sub(noise)
    }

    /// Word `index` of `page` as made.
    fn word(self, page: u64, index: u64) -> u64 {
        match index {
            0 => page,
            1 => 0,
            last if last == WORDS - 1 => self.last(page, 0),
            _ => self.shift(page).wrapping_add(NOISE[index as usize]),
        }
    }

    /// What [`sum_words`] gives for `extent` as made. Costs 1 ns a page, and two loads and a few additions for each page that it covers in part.
    #[inline]
    pub fn sum(self, extent: Extent) -> u64 {
        let (begin, end) = (extent.offset, extent.offset + extent.length as u64);
        if begin.is_multiple_of(PAGE as u64) && end.is_multiple_of(PAGE as u64) {
            let pages = begin / PAGE as u64..end / PAGE as u64;
            return pages.fold(0u64, |sum, page| sum.wrapping_add(self.page_sum(page)));
        }
        let (from, to) = (begin / 8, end.div_ceil(8));
        let page = from / WORDS;
        let (first, last) = ((from % WORDS) as usize, to - page * WORDS);
        // Most small accesses lie in the noise of one page.
        if first >= NOISY.start && last <= NOISY.end as u64 {
            let noise = NOISE_BEFORE[last as usize].wrapping_sub(NOISE_BEFORE[first]);
            return self.shift(page).wrapping_mul(to - from).wrapping_add(noise);
        }
        self.sum_of_parts(from, to)
    }

    #[inline(never)]
    fn sum_of_parts(self, mut word: u64, end: u64) -> u64 {
        let mut sum = 0u64;
        while word < end {
            let (page, from) = (word / WORDS, word % WORDS);
            let to = (from + end - word).min(WORDS);
            sum = sum.wrapping_add(self.part_sum(page, from, to));
            word += to - from;
        }
        sum
    }

    /// What the words `from..to` of a page add up to, as made.
    #[inline]
    fn part_sum(self, page: u64, from: u64, to: u64) -> u64 {
        if to - from == WORDS {
            return self.page_sum(page);
        }
        let noisy = |word: u64| word.clamp(NOISY.start as u64, NOISY.end as u64);
        let noise = NOISE_BEFORE[to as usize].wrapping_sub(NOISE_BEFORE[from as usize]);
        let mut sum = self.shift(page).wrapping_mul(noisy(to) - noisy(from)).wrapping_add(noise);
        if from == 0 {
            sum = sum.wrapping_add(page);
        }
        if to == WORDS {
            sum = sum.wrapping_add(self.last(page, 0));
        }
        sum
    }

    /// Writes the pages of `extent` into `bytes`, as of `generation`.
    ///
    /// Errors: Invalid where the extent is not made of whole pages.
    pub fn fill(self, extent: Extent, generation: u64, bytes: &mut [u8]) -> Result<()> {
        let whole = extent.offset.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE);
        if !whole {
            return Err(Error::Invalid(format!(
                "writing {} bytes at {} is not made of whole pages of {PAGE} bytes; choose --bs as a multiple of 4k",
                bytes.len(),
                extent.offset
            )));
        }
        let first = extent.offset / PAGE as u64;
        for (page, bytes) in (first..).zip(bytes.chunks_exact_mut(PAGE)) {
            self.fill_page(page, generation, bytes);
        }
        Ok(())
    }

    /// Writes any extent of whole words, as made: the words that are there from the first generation.
    ///
    /// Errors: Invalid where the extent is not made of whole words.
    pub fn fill_words(self, extent: Extent, bytes: &mut [u8]) -> Result<()> {
        let Extent { offset, length } = extent;
        if offset.is_multiple_of(PAGE as u64) && length.is_multiple_of(PAGE) {
            return self.fill(extent, 0, bytes);
        }
        if !offset.is_multiple_of(8) || !length.is_multiple_of(8) {
            return Err(Error::Invalid(format!(
                "writing {length} bytes at {offset} is not made of whole words of 8 bytes"
            )));
        }
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (number, word) in (offset / 8..).zip(words) {
            *word = self.word(number / WORDS, number % WORDS).to_le_bytes();
        }
        Ok(())
    }

    fn fill_page(self, page: u64, generation: u64, bytes: &mut [u8]) {
        let shift = self.shift(page);
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, noise) in words.iter_mut().zip(&NOISE) {
            *word = shift.wrapping_add(*noise).to_le_bytes();
        }
        words[0] = page.to_le_bytes();
        words[1] = generation.to_le_bytes();
        words[WORDS as usize - 1] = self.last(page, generation).to_le_bytes();
    }

    /// The number and the generation that a page of content carries.
    pub fn page_and_generation(bytes: &[u8]) -> Option<(u64, u64)> {
        let (words, _) = bytes.as_chunks::<8>();
        Some((u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(content: MadeContent, pages: u64, generation: u64) -> Vec<u8> {
        let mut bytes = vec![0; pages as usize * PAGE];
        content.fill(Extent { offset: 0, length: bytes.len() }, generation, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_sum_of_any_aligned_extent_is_known_without_reading_it() {
        let content = MadeContent::of(7);
        let bytes = made(content, 4, 0);

        for (offset, length) in [(0, 4096), (4096, 8192), (64, 64), (4088, 16), (8, 4096), (4080, 8208), (0, 8)] {
            let extent = Extent { offset, length };
            let seen = sum_words(&bytes[offset as usize..offset as usize + length]);
            assert_eq!(content.sum(extent), seen, "{extent:?}");
        }
    }

    #[test]
    fn the_sum_of_every_part_of_a_page_is_that_of_its_words() {
        let content = MadeContent::of(7);
        let bytes = made(content, 2, 0);
        let edges = [0, 1, 2, 3, 4, 255, 509, 510, 511, 512, 513, 514, 515, 1021, 1022, 1023, 1024];
        for from in edges {
            for to in edges.into_iter().filter(|to| *to > from) {
                let extent = Extent { offset: from * 8, length: (to - from) as usize * 8 };
                let seen = sum_words(&bytes[from as usize * 8..to as usize * 8]);
                assert_eq!(content.sum(extent), seen, "words {from}..{to}");
            }
        }
    }

    #[test]
    fn a_new_generation_keeps_the_sum_of_whole_pages_and_can_be_told() {
        let content = MadeContent::of(7);
        let bytes = made(content, 2, 5);

        assert_eq!(sum_words(&bytes[..PAGE]), content.page_sum(0));
        assert_eq!(MadeContent::page_and_generation(&bytes[PAGE..]), Some((1, 5)));
    }

    #[test]
    fn words_that_are_written_again_are_those_that_were_made() {
        let content = MadeContent::of(7);
        let made = made(content, 3, 0);

        for (offset, length) in [(0, 8), (512, 512), (3584, 512), (4088, 16), (4096, 4096), (8, 12280)] {
            let mut bytes = vec![0; length];
            content.fill_words(Extent { offset: offset as u64, length }, &mut bytes).unwrap();

            assert!(bytes == made[offset..offset + length], "{length} bytes at {offset}");
        }
        assert!(content.fill_words(Extent { offset: 4, length: 8 }, &mut [0; 8]).is_err());
        assert!(content.fill_words(Extent { offset: 8, length: 4 }, &mut [0; 4]).is_err());
    }

    #[test]
    fn another_page_or_another_seed_has_another_sum() {
        assert_ne!(MadeContent::of(1).page_sum(3), MadeContent::of(1).page_sum(4));
        assert_ne!(MadeContent::of(1).page_sum(3), MadeContent::of(2).page_sum(3));
    }

    #[test]
    fn an_incomplete_last_word_counts() {
        assert_eq!(sum_words(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), 3);
    }
}
