//! Whether faults that waited for the device seem to have an order, so that all faults are worth looking at.
//!
//! The kernel reads some pages around each such fault, so a stream shows as faults at short distances in one direction, or at equal ones.

/// Places where an order may go on.
const MOST: usize = 64;

/// Faults one after the other in an order, after which it is promising.
const PROMISING: u32 = 4;

/// The distance that a sequence may take from one wait to the next, by read-ahead of 8 pages: two of them.
const SHORT: i64 = 16;

/// Farthest of two pages at equal distances.
const FARTHEST: i64 = 1024;

#[derive(Clone, Copy, Debug)]
struct Head {
    last: i64,
    step: i64,
    length: u32,
    at: u64,
}

/// The last waits of one address space, as beginnings of orders.
#[derive(Debug, Default)]
pub struct Hunt {
    heads: Vec<Head>,
    clock: u64,
}

impl Hunt {
    /// A fault at `page` has waited; whether it makes an order likely.
    pub fn waited(&mut self, page: u64) -> bool {
        self.clock += 1;
        let (page, at) = (page as i64, self.clock);
        let nearest =
            self.heads.iter_mut().filter(|head| head.goes_on(page)).min_by_key(|head| (page - head.last).abs());
        let Some(head) = nearest else {
            self.begin(Head { last: page, step: 0, length: 0, at });
            return false;
        };
        *head = Head { last: page, step: page - head.last, length: head.length + 1, at };
        if head.length < PROMISING {
            return false;
        }
        self.heads.clear();
        true
    }

    fn begin(&mut self, head: Head) {
        if self.heads.len() < MOST {
            self.heads.push(head);
        } else if let Some(oldest) = self.heads.iter_mut().min_by_key(|head| head.at) {
            *oldest = head;
        }
    }
}

impl Head {
    fn goes_on(&self, page: i64) -> bool {
        let distance = page - self.last;
        match self.step {
            _ if distance == 0 || distance.abs() > FARTHEST => false,
            0 => true,
            step => distance == step || distance.abs() <= SHORT && step.abs() <= SHORT && (distance > 0) == (step > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether any of the waits made an order likely.
    fn finds(pages: impl IntoIterator<Item = u64>) -> bool {
        let mut hunt = Hunt::default();
        pages.into_iter().any(|page| hunt.waited(page))
    }

    #[test]
    fn sequences_are_promising_though_the_kernel_reads_pages_between() {
        assert!(finds([0, 8, 16, 24, 32]));
        assert!(finds([100, 92, 85, 76, 68]));
        assert!(finds([0, 3, 11, 19, 24]));
    }

    #[test]
    fn sixteen_sequences_in_turns_are_promising() {
        assert!(finds((0..8).flat_map(|at| (0..16).map(move |run| run * 100_000 + at * 8))));
    }

    #[test]
    fn equal_distances_are_promising() {
        assert!(finds([0, 300, 600, 900, 1200]));
        assert!(!finds([0, 300, 500, 900, 1100, 1500]));
    }

    #[test]
    fn random_waits_and_short_blocks_are_not() {
        let mut state = 1u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let random: Vec<u64> = (0..1000).map(|_| draw(1 << 20)).collect();
        let blocks: Vec<u64> = (0..500).map(|_| draw(1 << 16) * 16).flat_map(|block| [block, block + 8]).collect();

        assert!(!finds(random));
        assert!(!finds(blocks));
        assert!(!finds([5; 100]));
    }
}
