//! The whole file, front to back, from the first access on: for files that are used everywhere and fit into memory.

use crate::error::Result;
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(super) const POLICY: Policy = Policy {
    name: "whole",
    summary: "the whole file announced front to back at the first access, as far as memory is free",
    underneath: &[("advice", "random")],
    by: By::Helper,
    budget: Ahead::Memory,
    params: Whole::declared,
    start: Some(start::<Whole>),
};

crate::params! {
    /// It has only the options that every policy has.
    #[non_exhaustive]
    pub struct Whole {}
}

/// Smallest unit that is read.
const PAGE: u64 = 4096;

/// Pages announced together, except the last ones.
const STEP: u64 = (1 << 20) / PAGE;

/// One thread's view; all threads share the progress.
struct WholePredictor(Arc<Shared>);

struct Shared {
    length: u64,
    progress: Mutex<Progress>,
    /// Nothing is left to announce.
    done: AtomicBool,
}

/// How far the file is announced, and which of its pages were visited: a page that is visited again makes no room.
struct Progress {
    /// Pages of the file.
    pages: u64,
    /// The most pages that may be announced and not visited.
    budget: u64,
    /// Pages announced, from the front.
    edge: u64,
    /// Of these, the visited ones.
    below: u64,
    /// One bit for each page; 32 KiB for each visited GiB.
    visited: Vec<u64>,
}

impl PolicyOptions for Whole {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        let Scene { length, budget, gap: _ } = *scene;
        let progress = Mutex::new(Progress::new(length.div_ceil(PAGE), budget / PAGE));
        Ok(Box::new(WholePredictor(Arc::new(Shared { length, progress, done: AtomicBool::new(false) }))))
    }
}

impl Progress {
    fn new(pages: u64, budget: u64) -> Progress {
        Progress { pages, budget, edge: 0, below: 0, visited: vec![0; pages.div_ceil(64) as usize] }
    }

    fn visit(&mut self, extent: Extent) {
        let end = extent.offset.saturating_add(extent.length as u64).div_ceil(PAGE);
        for page in extent.offset / PAGE..end.min(self.pages) {
            if !self.is_visited(page) {
                self.visited[(page / 64) as usize] |= 1 << (page % 64);
                self.below += u64::from(page < self.edge);
            }
        }
    }

    fn is_visited(&self, page: u64) -> bool {
        self.visited[(page / 64) as usize] & 1 << (page % 64) != 0
    }

    /// The pages to announce now, if they are enough to be worth a call.
    fn announce(&mut self) -> Option<Range<u64>> {
        let until = self.pages.min(self.below.saturating_add(self.budget));
        let is_worth_it = until == self.pages || until.saturating_sub(self.edge) >= STEP.min(self.budget);
        if self.edge >= until || !is_worth_it {
            return None;
        }
        let announced = self.edge..until;
        self.below += announced.clone().filter(|page| self.is_visited(*page)).count() as u64;
        self.edge = until;
        Some(announced)
    }
}

impl Predictor for WholePredictor {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        let Shared { length, progress, done } = &*self.0;
        if done.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut progress) = progress.lock() else { return };
        progress.visit(extent);
        let Some(Range { start, end }) = progress.announce() else { return };
        done.store(end == progress.pages, Ordering::Relaxed);
        let offset = start * PAGE;
        wanted.push(Extent { offset, length: ((end * PAGE).min(*length) - offset) as usize });
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(WholePredictor(Arc::clone(&self.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Given;

    #[test]
    fn threads_announce_the_file_once_between_them() {
        let scene = Scene { length: 10 << 20, budget: 4 << 20, gap: 0 };
        let (mut one, _) = start::<Whole>(&scene, &Given::none()).unwrap();
        let mut other = one.sibling().unwrap();
        let mut wanted = Vec::new();

        for block in 0..20 {
            let predictor = if block % 2 == 0 { &mut one } else { &mut other };
            predictor.observe(Extent { offset: block * 524_288, length: 524_288 }, &mut wanted);
        }

        let mut next = 0;
        for extent in wanted {
            assert_eq!(extent.offset, next);
            next += extent.length as u64;
        }
        assert_eq!(next, 10 << 20);
    }

    /// The pages announced at each of these visits: first and count.
    fn announced(length: u64, budget: u64, visits: &[(u64, usize)]) -> Vec<Vec<(u64, u64)>> {
        let (mut whole, _) = start::<Whole>(&Scene { length, budget, gap: 0 }, &Given::none()).unwrap();
        let observe = |&(offset, length): &(u64, usize)| {
            let mut wanted = Vec::new();
            whole.observe(Extent { offset, length }, &mut wanted);
            let pages = |it: Extent| (it.offset / PAGE, (it.length as u64).div_ceil(PAGE));
            wanted.into_iter().map(pages).collect()
        };
        visits.iter().map(observe).collect()
    }

    #[test]
    fn a_page_makes_room_once_however_often_and_in_how_many_parts_it_is_visited() {
        let visits = [(0, 100), (4000, 96), (0, 4096), (0, 8192), (8000, 200)];

        let wanted = announced(1 << 20, 3 * PAGE, &visits);

        assert_eq!(wanted, [vec![(0, 3)], vec![], vec![], vec![], vec![(3, 3)]], "steps of the whole budget");
    }

    #[test]
    fn what_was_visited_before_it_is_announced_makes_room_once_it_is() {
        let visits = [(5 * PAGE, 1), (4 * PAGE, 1), (0, 8192), (100 * PAGE, 1)];

        assert_eq!(announced(1 << 20, 2 * PAGE, &visits), [vec![(0, 2)], vec![], vec![(2, 2)], vec![]]);
        let visits = [(2 * PAGE, 1), (0, 8192), (3 * PAGE, 1)];
        assert_eq!(announced(1 << 20, 2 * PAGE, &visits), [vec![(0, 2)], vec![(2, 2)], vec![(4, 2)]]);
    }

    #[test]
    fn the_last_pages_are_announced_though_they_are_few_and_no_byte_past_the_end() {
        let (mut whole, _) =
            start::<Whole>(&Scene { length: 2 * PAGE + 7, budget: 8 * PAGE, gap: 0 }, &Given::none()).unwrap();
        let mut wanted = Vec::new();

        (0..3).for_each(|page| whole.observe(Extent { offset: page * PAGE, length: 1 }, &mut wanted));
        whole.observe(Extent { offset: u64::MAX / 2, length: usize::MAX }, &mut wanted);

        assert_eq!(wanted, [Extent { offset: 0, length: 2 * PAGE as usize + 7 }]);
    }

    #[test]
    fn steps_are_of_a_mebibyte_where_the_budget_is_larger() {
        let visits: Vec<(u64, usize)> = (0..512).map(|page| (page * PAGE, 4096)).collect();

        let wanted = announced(1 << 30, 4 << 20, &visits);

        let steps: Vec<(usize, (u64, u64))> =
            wanted.iter().enumerate().flat_map(|(at, some)| some.iter().map(move |it| (at, *it))).collect();
        assert_eq!(steps, [(0, (0, 1024)), (255, (1024, 256)), (511, (1280, 256))]);
    }
}
