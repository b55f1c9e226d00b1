//! Workloads: which extents are accessed, in which order.
//!
//! Each is a file with a `const` [`Workload`]; [`ALL`] names them once. A workload makes one [`Plan`] for each
//! thread, from a seed alone: every arm of a comparison meets the same accesses.

mod chase;
mod gather;
mod job;
mod permutation;
mod sequential;
mod shuffle;
mod strided;
mod trace;
mod uniform;
mod zipf;

use crate::traits::{Ends, Order};
use crate::trial::Trial;
use majorfault::params::{Given, Param};
use majorfault::{Bytes, Error, Extent, Result};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use shuffle::Shuffle;

pub use job::{Access, JobPlan};

/// Every workload.
pub const ALL: &[&Workload] = &[
    &sequential::WORKLOAD,
    &uniform::WORKLOAD,
    &permutation::WORKLOAD,
    &zipf::WORKLOAD,
    &strided::WORKLOAD,
    &chase::WORKLOAD,
    &gather::WORKLOAD,
    &trace::WORKLOAD,
];

/// A law by which extents follow each other.
pub struct Workload {
    /// The name users type.
    pub name: &'static str,
    /// What it stands for, in one line.
    pub summary: &'static str,
    /// Its parameters.
    pub params: fn() -> Vec<Param>,
    /// Whether its order ends in itself.
    pub ends: Ends,
    /// How its places follow each other.
    pub order: Order,
    /// Bytes of one access where the user gives none.
    pub block: Bytes,
    /// Bytes of the distinct blocks that so many accesses of all threads together reach: exact for orders that visit a
    /// block once, expected for random draws; `None` where that is not known.
    pub distinct: fn(&Space, &Given, u64) -> Option<u64>,
    /// The same order in fio's words; `None` where fio has none.
    pub fio: Option<fn(&Given) -> Result<FioOrder>>,
    /// The order of one thread.
    ///
    /// Errors: Invalid (unknown parameter; a space too small).
    pub plan: fn(&Space, &Given) -> Result<Box<dyn Plan>>,
}

/// An order as fio's options say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FioOrder {
    /// Random draws by this `random_distribution`.
    Random(String),
    /// Ascending, from one block to the next in steps of so many bytes; `None` is the block itself.
    Steps(Option<u64>),
    /// Random, each block once.
    Once,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the address space.
    pub length: u64,
    /// Bytes of one access.
    pub block: usize,
    /// Threads, and which of them this is.
    pub threads: u32,
    /// From 0.
    pub thread: u32,
    /// Seed of the order, the same for all threads.
    pub seed: u64,
}

/// The order of one thread.
pub trait Plan: Send {
    /// Puts the next extents into `batch` (empty at the call, at most `room`); none at the end of the order.
    ///
    /// `seen` is the sum of the words of all bytes seen so far, for orders that follow what was read.
    fn next(&mut self, seen: u64, room: usize, batch: &mut Vec<Extent>);
}

impl Space {
    /// What the first thread of `trial` is planned for.
    pub fn of(trial: &Trial) -> Space {
        Space {
            length: trial.data.size_bytes,
            block: trial.block_bytes as usize,
            threads: trial.threads,
            thread: 0,
            seed: trial.seed,
        }
    }

    /// Whole blocks of the space.
    pub fn blocks(&self) -> u64 {
        self.length / self.block as u64
    }

    /// The share of `items` that is this thread's, as a range; shares differ by one at most.
    pub fn share(&self, items: u64) -> std::ops::Range<u64> {
        let (threads, thread) = (u64::from(self.threads), u64::from(self.thread));
        let at = |n: u64| (u128::from(items) * u128::from(n) / u128::from(threads)) as u64;
        at(thread)..at(thread + 1)
    }

    /// The extent of block number `block`.
    pub fn extent(&self, block: u64) -> Extent {
        Extent { offset: block * self.block as u64, length: self.block }
    }

    /// Bytes of the blocks that `accesses` uniform draws with replacement reach, expected: B (1 - (1 - 1/B)^n) of B blocks.
    fn distinct_of_draws(&self, accesses: u64) -> u64 {
        let blocks = self.blocks() as f64;
        // exp(n ln(1 - 1/B)), with ln_1p because 1/B vanishes beside 1 for large files.
        let missed = (accesses as f64 * (-1.0 / blocks.max(1.0)).ln_1p()).exp();
        (blocks * (1.0 - missed) * self.block as f64) as u64
    }

    /// This thread's generator of random numbers.
    fn random(&self) -> Pcg64 {
        Pcg64::seed_from_u64(self.seed ^ (u64::from(self.thread) << 32))
    }

    /// Fails where there is not one block for each thread.
    fn check(&self) -> Result<()> {
        if self.block == 0 || self.blocks() < u64::from(self.threads) {
            return Err(Error::Invalid(format!(
                "{} bytes are too short for {} thread(s) with blocks of {} bytes; choose a smaller --bs or a longer file",
                self.length, self.threads, self.block
            )));
        }
        Ok(())
    }
}

/// The workload of this name.
///
/// Errors: Invalid, listing the names there are.
pub fn named(name: &str) -> Result<&'static Workload> {
    ALL.iter().copied().find(|workload| workload.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
        Error::Invalid(format!("there is no workload \"{name}\"; there are {}", names.join(", ")))
    })
}

/// A plan of `count` extents, each made from a random number's state by `draw`.
struct Drawn<F> {
    left: u64,
    draw: F,
}

impl<F: FnMut() -> Extent + Send> Plan for Drawn<F> {
    fn next(&mut self, _seen: u64, room: usize, batch: &mut Vec<Extent>) {
        let count = self.left.min(room as u64);
        self.left -= count;
        batch.extend((0..count).map(|_| (self.draw)()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space { length: 1 << 20, block: 4096, threads: 2, thread: 0, seed: 1 };

    /// What a workload needs: a trace, where it replays one.
    fn given(workload: &Workload) -> Given {
        if workload.name != "trace" {
            return Given::none();
        }
        // Written once: several tests read it at the same time.
        static PATH: std::sync::LazyLock<std::path::PathBuf> = std::sync::LazyLock::new(|| {
            let path = std::env::current_exe().unwrap().with_file_name("majorfault-workload.flt");
            let draft = path.with_extension(std::process::id().to_string());
            let text = "majorfault trace 2\nfile 0 1048576 -\n0 7 4096 4096 8192 100\n0 9 0 4096 4096 9\nend\n";
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(draft, &path).unwrap();
            path
        });
        Given::none().with("file", PATH.display())
    }

    fn order(workload: &Workload, space: &Space) -> Vec<Extent> {
        let mut plan = (workload.plan)(space, &given(workload)).unwrap();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        loop {
            batch.clear();
            plan.next(all.len() as u64, 50, &mut batch);
            if batch.is_empty() {
                return all;
            }
            assert!(batch.len() <= 50);
            all.extend_from_slice(&batch);
        }
    }

    #[test]
    fn every_workload_stays_inside_the_space_and_ends() {
        for workload in ALL {
            for thread in [0, 1] {
                let extents = order(workload, &Space { thread, ..SPACE });

                assert!(!extents.is_empty(), "{}", workload.name);
                for extent in extents {
                    assert!(extent.offset + extent.length as u64 <= SPACE.length, "{}", workload.name);
                }
            }
        }
    }

    #[test]
    fn every_workload_is_decided_by_its_seed() {
        for workload in ALL {
            assert_eq!(order(workload, &SPACE), order(workload, &SPACE), "{}", workload.name);
        }
        for name in ["uniform", "permutation", "zipf", "gather", "chase"] {
            let workload = named(name).unwrap();
            assert_ne!(order(workload, &SPACE), order(workload, &Space { seed: 2, ..SPACE }), "{name}");
        }
    }

    #[test]
    fn sequential_threads_share_the_space_without_gap_or_overlap() {
        let workload = named("sequential").unwrap();
        let space = Space { length: 4096 * 7 + 100, threads: 3, ..SPACE };

        let offsets: Vec<u64> =
            (0..3).flat_map(|thread| order(workload, &Space { thread, ..space })).map(|extent| extent.offset).collect();

        assert_eq!(offsets, (0..7).map(|block| block * 4096).collect::<Vec<_>>());
    }

    #[test]
    fn a_permutation_shows_every_block_once_whatever_the_number_of_blocks_and_threads() {
        let workload = named("permutation").unwrap();
        for (blocks, threads) in [(1, 1), (2, 1), (7, 3), (64, 2), (1000, 4), (4097, 1)] {
            let space = Space { length: 4096 * blocks + 100, threads, ..SPACE };

            let extents: Vec<Extent> =
                (0..threads).flat_map(|thread| order(workload, &Space { thread, ..space })).collect();

            let mut seen: Vec<u64> = extents.iter().map(|extent| extent.offset / 4096).collect();
            assert!(blocks < 64 || !seen.is_sorted(), "{blocks} blocks are in order");
            seen.sort_unstable();
            assert_eq!(seen, (0..blocks).collect::<Vec<_>>(), "{blocks} blocks, {threads} threads");
        }
    }

    #[test]
    fn a_permutation_goes_as_far_from_block_to_block_as_chance_does() {
        let extents = order(named("permutation").unwrap(), &Space { length: 4096 * 10_000, threads: 1, ..SPACE });

        let steps = extents.windows(2).map(|pair| (pair[0].offset / 4096).abs_diff(pair[1].offset / 4096));
        // Two random places of [0, n) lie n/3 apart in the mean.
        let mean = steps.sum::<u64>() / 9_999;
        assert!((3_200..3_470).contains(&mean), "{mean}");
    }

    /// Bytes of the blocks that all threads' plans really reach, and their accesses.
    fn reached(workload: &Workload, space: &Space) -> (u64, u64) {
        let all: Vec<Extent> =
            (0..space.threads).flat_map(|thread| order(workload, &Space { thread, ..*space })).collect();
        // By words, so that blocks that overlap count once.
        let words = |extent: &Extent| extent.offset / 8..(extent.offset + extent.length as u64) / 8;
        let distinct: std::collections::HashSet<u64> = all.iter().flat_map(words).collect();
        (distinct.len() as u64 * 8, all.len() as u64)
    }

    #[test]
    fn every_workload_knows_how_many_distinct_bytes_it_reaches() {
        for workload in ALL {
            let (bytes, accesses) = reached(workload, &SPACE);

            let expected = (workload.distinct)(&SPACE, &given(workload), accesses).unwrap();

            assert!(expected.abs_diff(bytes) <= bytes / 10, "{}: {expected} expected, {bytes} reached", workload.name);
        }
    }

    #[test]
    fn what_ends_reaches_no_more_in_a_second_pass() {
        for workload in ALL.iter().filter(|workload| workload.ends == Ends::OnePass) {
            let (bytes, accesses) = reached(workload, &SPACE);

            let again = (workload.distinct)(&SPACE, &given(workload), accesses * 5).unwrap();

            assert_eq!(again, bytes, "{}", workload.name);
        }
    }

    #[test]
    fn endless_draws_come_to_reach_everything_and_nothing_more() {
        for workload in ALL.iter().filter(|workload| workload.ends == Ends::Endless) {
            let distinct = |accesses| (workload.distinct)(&SPACE, &given(workload), accesses).unwrap();

            assert_eq!(distinct(0), 0, "{}", workload.name);
            assert_eq!(distinct(1).div_ceil(16), SPACE.block as u64 / 16, "{}", workload.name);
            assert!(distinct(100_000_000).abs_diff(SPACE.length) <= SPACE.block as u64, "{}", workload.name);
        }
    }

    #[test]
    fn what_is_ascending_never_goes_back() {
        for workload in ALL {
            let extents = order(workload, &SPACE);
            let back = extents.windows(2).filter(|pair| pair[1] <= pair[0]).count();

            match workload.order {
                Order::Ascending => assert_eq!(back, 0, "{}", workload.name),
                Order::Scattered if workload.ends == Ends::Endless => assert!(back > 0, "{}", workload.name),
                // A recorded run may be in any order.
                Order::Scattered => {}
            }
        }
    }

    #[test]
    fn a_space_shorter_than_a_block_is_refused() {
        for workload in ALL {
            let error = (workload.plan)(&Space { length: 4000, threads: 1, ..SPACE }, &given(workload)).err().unwrap();

            assert!(error.to_string().contains("too short"), "{}: {error}", workload.name);
        }
    }

    #[test]
    fn a_chase_follows_what_was_read() {
        let plan = || (named("chase").unwrap().plan)(&SPACE, &Given::none()).unwrap();
        let step = |mut plan: Box<dyn Plan>, seen| {
            let mut batch = Vec::new();
            plan.next(0, 50, &mut batch);
            batch.clear();
            plan.next(seen, 50, &mut batch);
            batch
        };

        assert_eq!(step(plan(), 1).len(), 1);
        assert_ne!(step(plan(), 1), step(plan(), 2));
    }

    #[test]
    fn zipf_prefers_few_blocks_that_lie_apart() {
        let space = Space { length: 4096 * 1000, threads: 1, ..SPACE };
        let mut counts = std::collections::BTreeMap::new();
        for extent in order(named("zipf").unwrap(), &space) {
            *counts.entry(extent.offset / 4096).or_insert(0u32) += 1;
        }
        let mut by_count: Vec<(u32, u64)> = counts.into_iter().map(|(block, count)| (count, block)).collect();
        by_count.sort_unstable_by(|a, b| b.cmp(a));

        let top: u32 = by_count.iter().take(10).map(|(count, _)| count).sum();
        assert!(top > 300, "the ten most frequent of 1000 blocks took {top} of 1000 accesses");
        assert!(by_count[0].1.abs_diff(by_count[1].1) > 1);
    }

    #[test]
    fn a_gather_goes_up_within_each_list() {
        let extents = order(named("gather").unwrap(), &Space { threads: 1, ..SPACE });

        assert!(extents.windows(2).filter(|pair| pair[0] > pair[1]).count() <= extents.len() / 50 + 1);
    }
}
