//! What was paged out behind streams, and whether it was needed again too soon: then leaving it would have been better.

use std::ops::Range;

/// Pages that are remembered together: 1 MiB.
pub(super) const CHUNK: i64 = 256;

/// Chunks that can be remembered; of two with the same place the later one stays.
const PLACES: usize = 1 << 12;

/// Judgements after which both counts are halved.
const REMEMBERED: f64 = 64.0;

/// A chunk that was paged out.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    chunk: i64,
    /// When.
    at: u64,
    /// How many of its pages.
    pages: u64,
}

/// Chunks paged out, and how many came back too soon or late enough.
#[derive(Debug)]
pub(super) struct Ghosts {
    chunks: Vec<Option<Ghost>>,
    good: f64,
    bad: f64,
}

impl Default for Ghosts {
    fn default() -> Ghosts {
        Ghosts { chunks: vec![None; PLACES], good: 1.0, bad: 0.0 }
    }
}

impl Ghosts {
    /// The pages are paged out.
    pub fn put(&mut self, pages: &Range<u64>, now: u64) {
        let chunks = pages.start as i64 / CHUNK..=(pages.end as i64 - 1) / CHUNK;
        for chunk in chunks {
            let of_chunk = (chunk * CHUNK) as u64..((chunk + 1) * CHUNK) as u64;
            let count = pages.end.min(of_chunk.end) - pages.start.max(of_chunk.start);
            let known = &mut self.chunks[place(chunk)];
            let before = known.filter(|ghost| ghost.chunk == chunk).map_or(0, |ghost| ghost.pages);
            *known = Some(Ghost { chunk, at: now, pages: (before + count).min(CHUNK as u64) });
        }
    }

    /// A stream came to the chunk of `page`: pages that came back too soon, with fewer faults since than 95 % of what fits into
    /// memory.
    pub fn came_back(&mut self, page: i64, now: u64, limit: u64) -> u64 {
        let chunk = page / CHUNK;
        let Some(Ghost { at, pages, .. }) = self.chunks[place(chunk)].take_if(|ghost| ghost.chunk == chunk) else {
            return 0;
        };
        let is_soon = now - at < limit * 95 / 100;
        *(if is_soon { &mut self.bad } else { &mut self.good }) += 1.0;
        if self.good + self.bad > REMEMBERED {
            (self.good, self.bad) = (self.good / 2.0, self.bad / 2.0);
        }
        if is_soon { pages } else { 0 }
    }

    /// Whether what was paged out mostly stayed out for long enough.
    pub fn is_paying(&self) -> bool {
        self.good > self.bad
    }
}

fn place(chunk: i64) -> usize {
    ((chunk as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_out_what_comes_back_soon_does_not_pay() {
        let mut ghosts = Ghosts::default();
        assert!(ghosts.is_paying());
        ghosts.put(&(0..512), 0);

        assert_eq!(ghosts.came_back(0, 94, 100), 256);

        assert!(!ghosts.is_paying());
        assert_eq!(ghosts.came_back(0, 94, 100), 0, "told once");
        assert_eq!(ghosts.came_back(300, 95, 100), 0, "late enough");
        assert!(ghosts.is_paying());
    }

    #[test]
    fn no_more_comes_back_than_was_paged_out() {
        let mut ghosts = Ghosts::default();
        ghosts.put(&(250..300), 0);
        ghosts.put(&(300..310), 0);

        let back = [0, 256, 512].map(|page| ghosts.came_back(page, 1, 100));

        assert_eq!(back, [6, 54, 0]);
    }

    #[test]
    fn what_was_never_paged_out_says_nothing() {
        let mut ghosts = Ghosts::default();
        ghosts.put(&(256..512), 0);

        assert_eq!((ghosts.came_back(0, 1, 100), ghosts.came_back(512, 1, 100)), (0, 0));

        assert!(ghosts.is_paying());
    }
}
