//! The engine before programs of made-up faults, with a memory that keeps the pages used last.

use super::stream::GOING_ON;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Pages that the kernel reads in together at a fault.
const KERNEL_READS: u64 = 8;

/// A memory of so many pages, and what is beyond it on a swap device.
struct Model {
    capacity: usize,
    /// When each page in memory was last used; those of the other map by time.
    uses: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    mapped: HashSet<u64>,
    known: HashSet<u64>,
    now: u64,
    answer: Vec<bool>,
    fetched: Vec<Range<u64>>,
    paged_out: Vec<Range<u64>>,
}

impl Model {
    fn new(capacity: usize) -> Model {
        let (uses, order, mapped, known) = Default::default();
        Model {
            capacity,
            uses,
            order,
            mapped,
            known,
            now: 0,
            answer: Vec::new(),
            fetched: Vec::new(),
            paged_out: Vec::new(),
        }
    }

    fn bring(&mut self, page: u64) {
        self.now += 1;
        if let Some(before) = self.uses.insert(page, self.now) {
            self.order.remove(&before);
        }
        self.order.insert(self.now, page);
        while self.uses.len() > self.capacity {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.uses.remove(&oldest);
            self.mapped.remove(&oldest);
        }
    }

    /// The program touches the page: whether that was a fault, and whether it waited for the device.
    fn touch(&mut self, page: u64) -> (bool, bool) {
        let is_fault = !self.mapped.contains(&page);
        let waits = !self.uses.contains_key(&page) && self.known.contains(&page);
        if waits {
            let first = page / KERNEL_READS * KERNEL_READS;
            let swapped: Vec<u64> = (first..first + KERNEL_READS).filter(|page| self.known.contains(page)).collect();
            swapped
                .into_iter()
                .filter(|page| !self.uses.contains_key(page))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|page| self.bring(page));
        }
        self.bring(page);
        self.known.insert(page);
        self.mapped.insert(page);
        (is_fault, waits)
    }

    /// The program writes every page below `size` once.
    fn fill(&mut self, size: u64) {
        for page in 0..size {
            self.touch(page);
        }
    }

    fn is_swapped(&self, page: u64) -> bool {
        self.known.contains(&page) && !self.uses.contains_key(&page)
    }
}

impl Hands for Model {
    fn swapped(&mut self, first: u64, count: usize) -> &[bool] {
        self.answer = (first..first + count as u64).map(|page| self.is_swapped(page)).collect();
        &self.answer
    }

    fn fetch(&mut self, pages: &[Range<u64>]) {
        self.fetched.extend_from_slice(pages);
        let swapped: Vec<u64> = pages.iter().cloned().flatten().filter(|page| self.is_swapped(*page)).collect();
        swapped.into_iter().for_each(|page| self.bring(page));
    }

    fn page_out(&mut self, pages: Range<u64>) {
        self.paged_out.push(pages.clone());
        for page in pages {
            if let Some(at) = self.uses.remove(&page) {
                self.order.remove(&at);
                self.mapped.remove(&page);
            }
        }
    }
}

/// How a made-up program went.
struct Went {
    faults: u64,
    waits: u64,
    advised: Advised,
}

/// Runs the touches in a memory of `capacity` pages, after all pages below `size` were written once.
fn run(capacity: usize, size: u64, touches: &[u64], is_helped: bool) -> Went {
    let (mut model, mut streams) = (Model::new(capacity), Streams::default());
    model.fill(size);
    let (mut faults, mut waits) = (0, 0);
    for page in touches {
        let (is_fault, has_waited) = model.touch(*page);
        faults += u64::from(is_fault);
        waits += u64::from(has_waited);
        if is_fault && is_helped {
            let straits = straits(capacity, &model);
            streams.fault(*page, straits, &mut model);
            if has_waited {
                streams.waited(*page);
            }
            assert!(streams.outstanding() <= capacity as u64 / 16);
        }
    }
    Went { faults, waits, advised: streams.advised() }
}

fn straits(capacity: usize, model: &Model) -> Straits {
    Straits {
        limit: capacity as u64,
        most_ahead: capacity as u64 / 16,
        is_near: model.uses.len() > capacity - capacity / 16 - 16,
    }
}

/// Waits of a program with help, over those without.
fn share(capacity: usize, size: u64, touches: &[u64]) -> f64 {
    run(capacity, size, touches, true).waits as f64 / run(capacity, size, touches, false).waits.max(1) as f64
}

const CAPACITY: usize = 16384;
const SIZE: u64 = 32768;

/// Numbers that look random, always the same.
fn draws(count: usize, below: u64) -> Vec<u64> {
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count).map(|_| draw()).collect()
}

#[test]
fn passes_in_either_direction_hardly_wait() {
    let up: Vec<u64> = (0..3).flat_map(|_| 0..SIZE).collect();
    let down: Vec<u64> = (0..3).flat_map(|_| (0..SIZE).rev()).collect();

    assert!(share(CAPACITY, SIZE, &up) < 0.05);
    assert!(share(CAPACITY, SIZE, &down) < 0.05);
}

#[test]
fn pages_at_equal_distances_hardly_wait() {
    for step in [3, 40, 100] {
        let touches: Vec<u64> = (0..step).flat_map(|first| (first..SIZE).step_by(step as usize)).collect();

        let share = share(CAPACITY, SIZE, &touches);
        assert!(share < 0.15, "{step}: {share}");
    }
}

#[test]
fn what_was_in_memory_when_it_was_asked_for_is_asked_for_again() {
    // The pages ahead are those used longest ago, which go first: every other page of a pass is met twice.
    let touches: Vec<u64> = (0..3).flat_map(|first| (first..SIZE).step_by(3)).collect();

    assert!(run(CAPACITY, SIZE, &touches, true).waits < 500);
}

#[test]
fn a_merge_of_sixteen_runs_hardly_waits() {
    let length = SIZE / 16;
    let touches: Vec<u64> = (0..length).flat_map(|at| (0..16).map(move |run| run * length + at)).collect();

    assert!(share(CAPACITY, SIZE, &touches) < 0.1);
}

#[test]
fn what_a_pass_needs_again_stays_and_less_is_read() {
    let touches: Vec<u64> = (0..4).flat_map(|_| 0..SIZE).collect();

    let went = run(CAPACITY, SIZE, &touches, true);

    // Pages behind the stream go first, so that a part of the block stays: what the least recently used page cannot do.
    assert!(went.advised.paged_out > SIZE, "{:?}", went.advised);
    assert!(went.advised.fetched < 3 * SIZE, "{:?}", went.advised);
    assert!(went.advised.used * 100 > went.advised.fetched * 95, "{:?}", went.advised);
}

#[test]
fn random_pages_are_left_alone() {
    let went = run(CAPACITY, SIZE, &draws(100_000, SIZE), true);

    assert!(went.advised.fetched * 200 < went.faults, "{:?} of {}", went.advised, went.faults);
    assert_eq!(went.advised.paged_out, 0);
}

#[test]
fn nothing_is_read_beyond_the_ends_of_short_blocks() {
    let touches: Vec<u64> = draws(8000, SIZE / 16).into_iter().flat_map(|block| block * 16..block * 16 + 16).collect();

    let went = run(CAPACITY, SIZE, &touches, true);

    let unused = went.advised.fetched - went.advised.used;
    assert!(unused * 20 < went.faults, "{:?} of {}", went.advised, went.faults);
}

#[test]
fn a_loop_that_fits_is_not_paged_out_for_long() {
    let fits = CAPACITY as u64 * 9 / 10;
    let touches: Vec<u64> = (0..20).flat_map(|_| 0..fits).collect();

    let (helped, alone) = (run(CAPACITY, SIZE, &touches, true), run(CAPACITY, SIZE, &touches, false));

    assert!(helped.waits <= alone.waits, "{} of {}", helped.waits, alone.waits);
    assert!(helped.advised.fetched < 2 * SIZE, "{:?}", helped.advised);
}

#[test]
fn pages_in_memory_are_never_fetched() {
    let touches: Vec<u64> = (0..3).flat_map(|_| 0..1000).collect();

    let went = run(CAPACITY, 1000, &touches, true);

    assert_eq!(went.advised, Advised::default());
    assert_eq!(went.waits, 0);
}

#[test]
fn without_room_nothing_is_fetched() {
    let (mut model, mut streams) = (Model::new(CAPACITY), Streams::default());
    model.fill(SIZE);

    (0..2000).for_each(|page| {
        streams.fault(page, Straits { limit: CAPACITY as u64, most_ahead: 0, is_near: true }, &mut model)
    });

    assert_eq!(streams.advised(), Advised::default());
}

#[test]
fn a_stream_that_stopped_makes_room_for_others() {
    let (mut model, mut streams) = (Model::new(CAPACITY), Streams::default());
    model.fill(SIZE);
    let mut fault = |streams: &mut Streams, page| {
        let straits = straits(CAPACITY, &model);
        streams.fault(page, straits, &mut model);
    };
    (0..3000).for_each(|page| fault(&mut streams, page));
    assert!(streams.outstanding() > 0);

    draws(2 * GOING_ON as usize, 1 << 40).into_iter().for_each(|page| fault(&mut streams, 1 << 41 | page));

    assert_eq!(streams.outstanding(), 0);
}

#[test]
fn after_a_rest_streams_begin_again_and_lengths_are_known() {
    let (mut model, mut streams) = (Model::new(CAPACITY), Streams::default());
    model.fill(SIZE);
    let straits = Straits { limit: CAPACITY as u64, most_ahead: 1024, is_near: false };
    (0..100).for_each(|page| streams.fault(page, straits, &mut model));
    assert!(streams.helped() > 0);

    streams.rest();

    assert_eq!(streams.outstanding(), 0);
    assert!(streams.advised().fetched > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_faults_get_advice_within_its_bounds(
        runs in prop::collection::vec((any::<u64>(), -1100i64..1100, 1usize..600), 1..20),
        most_ahead in 0u64..2048,
        is_near: bool,
    ) {
        /// Everything is swapped out.
        struct Bounds { most: usize, answer: Vec<bool>, here: u64 }
        impl Hands for Bounds {
            fn swapped(&mut self, _: u64, count: usize) -> &[bool] {
                self.answer = vec![true; count];
                &self.answer
            }
            fn fetch(&mut self, pages: &[Range<u64>]) {
                assert!(!pages.is_empty() && pages.iter().all(|range| range.start < range.end && range.end < 2 * LAST_PAGE));
                assert!(!pages.iter().any(|range| range.contains(&self.here)));
                let count: u64 = pages.iter().map(|range| range.end - range.start).sum();
                assert!(count as usize <= self.most, "{count}");
            }
            fn page_out(&mut self, pages: Range<u64>) {
                assert!(pages.start < pages.end && !pages.contains(&self.here));
                assert!(pages.end - pages.start <= 2048);
            }
        }
        let mut streams = Streams::default();
        let mut bounds = Bounds { most: 256, answer: Vec::new(), here: 0 };
        for (first, step, count) in runs {
            for index in 0..count as i64 {
                let page = first.wrapping_add_signed(step * index) & (LAST_PAGE - 1);
                bounds.here = page;
                let before = streams.outstanding();
                streams.fault(page, Straits { limit: 1 << 20, most_ahead, is_near }, &mut bounds);
                prop_assert!(streams.outstanding() <= before.max(most_ahead));
            }
        }
        prop_assert!(streams.advised().used <= streams.advised().fetched);
    }
}
