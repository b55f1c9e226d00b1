//! What every policy must do; a new policy passes these tests without a line of its own. The spec of the access methods
//! checks the bytes that readers show with each policy.

use crate::access::{self, Filler, Opened, Reader, Urgency, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::methods;
use crate::params::{Given, Switch, Value};
use crate::prefetch::around::Hints;
use crate::prefetch::cached::Cached;
use crate::prefetch::merge::Merge;
use crate::prefetch::{
    self, ALL, Budget, By, Common, Follower, Learned, Policy, Predictor, Prefetching, Scene, Start, Whole,
};
use crate::prefetch::{beside, named};
use crate::test_files::{PAGE, TestFile};
use crate::units::Bytes;
use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

const SCENE: Scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 4096 };

/// The policies that decide during visits, with the function that starts them.
fn starts() -> impl Iterator<Item = (&'static Policy, Start)> {
    ALL.iter().copied().filter_map(|policy| Some((policy, policy.start?)))
}

fn started(name: &str, given: &str) -> Box<dyn Predictor> {
    (named(name).unwrap().start.unwrap())(&SCENE, &given.parse().unwrap()).unwrap().0
}

/// What a predictor wanted at each access.
fn follow(predictor: &mut dyn Predictor, extents: &[Extent]) -> Vec<Vec<Extent>> {
    predictor.announced(extents);
    let observe = |extent: &Extent| {
        let mut wanted = Vec::new();
        predictor.observe(*extent, &mut wanted);
        wanted
    };
    extents.iter().map(observe).collect()
}

fn pages(extent: &Extent) -> impl Iterator<Item = u64> + use<> {
    extent.offset / 4096..=(extent.offset + extent.length as u64 - 1) / 4096
}

fn blocks(offsets: impl IntoIterator<Item = u64>) -> Vec<Extent> {
    offsets.into_iter().map(|offset| Extent { offset, length: PAGE }).collect()
}

fn random(count: usize, mut state: u64) -> Vec<Extent> {
    let draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % (SCENE.length / 4096) * 4096
    };
    blocks(std::iter::repeat_with(draw).take(count))
}

/// Pages visited that were wanted before, and pages wanted that were never visited.
fn found_and_wasted(extents: &[Extent], wanted: &[Vec<Extent>]) -> (usize, usize) {
    let (mut known, mut found, visited) = (HashSet::new(), 0, extents.iter().flat_map(pages).collect::<HashSet<_>>());
    for (extent, wanted) in extents.iter().zip(wanted) {
        found += usize::from(pages(extent).all(|page| known.contains(&page)));
        known.extend(wanted.iter().flat_map(pages));
    }
    (found, known.difference(&visited).count())
}

fn learn(extents: &[Extent]) -> (usize, usize) {
    let wanted = follow(started("learned", "").as_mut(), extents);
    found_and_wasted(extents, &wanted)
}

/// The most bytes of pages that were announced and not visited, before or since, at any time. Pages that a policy gave up
/// count as well, so the order has to be one that it follows.
fn most_ahead(policy: &str, given: &Given, budget: u64, extents: &[Extent]) -> u64 {
    let scene = Scene { length: 1 << 26, budget, gap: 0 };
    let (mut predictor, _) = (named(policy).unwrap().start.unwrap())(&scene, given).unwrap();
    let (mut ahead, mut visited, mut most) = (HashSet::new(), HashSet::new(), 0);
    for (extent, wanted) in extents.iter().zip(follow(predictor.as_mut(), extents)) {
        visited.extend(pages(extent));
        ahead.extend(wanted.iter().flat_map(pages));
        ahead.retain(|page| !visited.contains(page));
        most = most.max(ahead.len() as u64 * 4096);
    }
    most
}

#[test]
fn an_unknown_policy_is_named_with_those_there_are() {
    let error = named("psychic").err().unwrap();

    assert_eq!(
        error.to_string(),
        "there is no policy \"psychic\"; there are none, window, whole, populate, strided, learned, thread, trace"
    );
}

#[test]
fn an_unknown_parameter_is_refused_by_every_policy() {
    let file = TestFile::on_disk(PAGE);
    let mmap = methods::named("mmap").unwrap();
    for policy in ALL {
        let given = Given::none().with("policy", policy.name).with("wings", 2);

        let refused = prefetch::open(mmap, file.target(false), &given).err().unwrap().to_string();

        assert!(refused.contains("\"wings\"") && refused.contains("budget"), "{}: {refused}", policy.name);
    }
}

#[test]
fn a_method_that_finds_nothing_read_ahead_takes_no_policy() {
    let file = TestFile::on_disk(PAGE);
    let given = Given::none().with("policy", "learned");

    let refused = prefetch::open(methods::named("direct").unwrap(), file.target(false), &given).err().unwrap();

    assert!(refused.to_string().contains("direct takes no policy"), "{refused}");
}

#[test]
fn no_parameter_of_a_policy_hides_one_of_a_method() {
    for method in methods::all().filter(|method| prefetch::takes_policies(method)) {
        for policy in ALL {
            let params = prefetch::params(method, &Given::none().with("policy", policy.name)).unwrap();
            let names: HashSet<&str> = params.iter().map(|param| param.name).collect();

            assert_eq!(names.len(), params.len(), "{} around {}", policy.name, method.name);
        }
    }
}

#[test]
fn the_settings_in_force_are_reported_with_what_the_policy_chose() {
    let file = TestFile::on_disk(PAGE);
    let mmap = methods::named("mmap").unwrap();
    let opened = |given: &str| prefetch::open(mmap, file.target(false), &given.parse().unwrap()).unwrap().settings;

    assert_eq!(
        opened("policy=strided,rows=7").to_string(),
        "advice=random,align=page,budget=8m,by=caller,gap=4k,length=0,policy=strided,populate=none,\
         release=off,rows=7,share=shared,stride=256k"
    );
    assert_eq!(opened("policy=learned,advice=normal").get("advice"), Some("normal"));
}

#[test]
fn threads_have_experience_of_their_own() {
    let mut one = started("learned", "");
    let mut other = one.sibling().unwrap();
    let taught = follow(one.as_mut(), &blocks((0..50).map(|row| row * 65536)));

    let silent = follow(other.as_mut(), &blocks([50 * 65536, 51 * 65536]));

    assert!(taught.iter().flatten().count() > 50);
    assert_eq!(silent.iter().flatten().count(), 0);
}

#[test]
fn nothing_is_read_ahead_before_two_predictions_came_true() {
    let wanted = follow(started("learned", "").as_mut(), &blocks((0..6).map(|row| row * 65536)));

    let first = wanted.iter().position(|wanted| !wanted.is_empty());

    assert_eq!(first, Some(4), "three accesses are a law, the fourth and the fifth confirm it");
}

#[test]
fn random_accesses_make_the_detector_silent() {
    for seed in 0..200 {
        let wanted = follow(started("learned", "").as_mut(), &random(20_000, seed));

        let pages = wanted.iter().flatten().flat_map(pages).count();

        assert!(pages <= 20, "seed {seed}: {pages} pages of 20 000 random accesses");
    }
}

#[test]
fn after_an_order_ends_in_randomness_the_detector_is_silent_at_once() {
    let mut extents = blocks((0..1000).map(|row| row * 262_144));
    extents.extend(random(10_000, 7));

    let wanted = follow(started("learned", "").as_mut(), &extents);

    assert!(wanted[1000..].iter().flatten().count() <= 20);
}

#[test]
fn an_order_that_begins_after_randomness_is_found() {
    let mut extents = random(10_000, 7);
    extents.extend(blocks((0..16_000).map(|row| row * 65_536)));

    let (found, wasted) = learn(&extents);

    assert!(found > 13_000 && wasted < 140, "{found} found, {wasted} wasted");
}

#[test]
fn a_sequence_from_the_beginning_of_the_file_is_read_ahead_from_there() {
    let (found, wasted) = learn(&blocks((0..2000).map(|page| page * 4096)));

    assert!(found >= 1995 && wasted <= 256, "{found} found, {wasted} wasted: the budget is 256 pages");
}

#[test]
fn a_sequence_of_records_of_many_lengths_is_sequential() {
    let mut offset = 10_000u64;
    let records = (0..20_000u64).map(|n| {
        let length = 24 + (n * 7919 % 3000) as usize;
        offset += length as u64;
        Extent { offset: offset - length as u64, length }
    });

    let (found, wasted) = learn(&records.collect::<Vec<_>>());

    assert!(found > 19_900 && wasted <= 1100, "{found} found, {wasted} wasted");
}

#[test]
fn equally_spaced_columns_waste_little() {
    // Eight fields of 4 KiB, 32 KiB apart, in rows of 1 MiB: inside the row they look like a stride as well.
    let extents = blocks((0..1000u64).flat_map(|row| (0..8).map(move |field| row * (1 << 20) + field * 32768)));

    let (found, wasted) = learn(&extents);

    assert!(found > 7_000 && wasted < 400, "{found} found, {wasted} wasted of 8 000");
}

proptest! {
    #[test]
    fn any_stride_is_found_within_a_dozen_rows(
        stride in 8193i64..3_000_000, forward: bool, start in 0u64..SCENE.length, length in 1usize..8192,
    ) {
        let stride = if forward { stride } else { -stride };
        let rows = (0..).map_while(|row| start.checked_add_signed(row * stride).filter(|at| *at < SCENE.length));
        let extents: Vec<Extent> = rows.take(2000).map(|offset| Extent { offset, length }).collect();

        let (found, wasted) = learn(&extents);

        prop_assert!(found + 12 >= extents.len(), "{found} of {}", extents.len());
        prop_assert!(wasted <= 3 * 130, "{wasted} wasted: rows beyond the last one visited");
    }

    #[test]
    fn interleaved_strides_are_told_apart(
        columns in prop::collection::btree_set(0u64..60, 1..12), stride in 65u64..300, order: u64,
    ) {
        let mut columns: Vec<u64> = columns.into_iter().collect();
        let turn = order as usize % columns.len();
        columns.rotate_left(turn);
        let extents = blocks((0..400).flat_map(|row| columns.iter().map(move |column| (row * stride + column) * 4096)));

        let (found, wasted) = learn(&extents);

        prop_assert!(found * 100 >= extents.len() * 85, "{found} of {} found", extents.len());
        prop_assert!(wasted <= 130 * columns.len() + 64, "{wasted} wasted");
    }

    #[test]
    fn streams_are_found_among_random_accesses(stride in 3u64..200, seed: u64) {
        let rows = blocks((0..2000).map(|row| row * stride * 4096 % SCENE.length));
        let extents: Vec<Extent> = rows.iter().zip(random(2000, seed)).flat_map(|(row, other)| [*row, other]).collect();

        let (found, _) = learn(&extents);

        prop_assert!(found >= 1900, "{found} of 2000");
    }
}

proptest! {
    // Each case follows nine orders.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_policy_has_more_bytes_ahead_than_its_budget(
        columns in prop::collection::btree_set(0u64..30, 1..9), stride in 30u64..100, budget in 0u64..80,
    ) {
        let rows = blocks((0..40).flat_map(|row| columns.iter().map(move |column| (row * stride + column) * 4096)));
        let sequence = blocks((0..200).map(|page| page * 4096));
        // With several columns `learned` follows other strides too, and gives up what they announced.
        let column = blocks((0..200).map(|row| row * stride * 4096));
        let stride = Given::none().with("stride", stride * 4096);
        let cases = [
            ("window", Given::none(), &sequence),
            ("whole", Given::none(), &sequence), ("whole", Given::none(), &rows),
            ("strided", stride, &rows), ("strided", Given::none().with("stride", 4096), &sequence),
            ("learned", Given::none(), &column), ("learned", Given::none(), &sequence),
            ("thread", Given::none(), &rows), ("thread", Given::none(), &sequence),
        ];
        for (name, given, extents) in cases {
            let most = most_ahead(name, &given, budget * 4096, extents);
            prop_assert!(most <= budget * 4096, "{name}: {most} bytes ahead of {}", budget * 4096);
        }
    }

    #[test]
    fn those_that_follow_no_order_keep_their_budget_in_any(
        pages in prop::collection::vec(0u64..200, 1..400), budget in 0u64..80,
    ) {
        let extents = blocks(pages.into_iter().map(|page| page * 4096));
        for name in ["whole", "thread"] {
            let most = most_ahead(name, &Given::none(), budget * 4096, &extents);
            prop_assert!(most <= budget * 4096, "{name}: {most} bytes ahead of {}", budget * 4096);
        }
    }
}

proptest! {
    #[test]
    fn no_order_upsets_a_policy(
        extents in prop::collection::vec((any::<u64>(), 1usize..100_000), 0..200),
        near in prop::collection::vec((0u64..100_000, 1usize..10_000), 0..200),
    ) {
        let extents: Vec<Extent> = extents.iter().chain(&near)
            .map(|&(offset, length)| Extent { offset: offset.min(u64::MAX / 4), length }).collect();
        for (_, start) in starts().filter(|(policy, _)| policy.name != "trace") {
            let (mut predictor, _) = start(&SCENE, &Given::none()).unwrap();
            follow(predictor.as_mut(), &extents);
        }
    }
}

/// A reader without bytes that notes the hints given to it.
#[derive(Clone, Default)]
struct Noting {
    will_need: Arc<Mutex<Vec<Extent>>>,
    done_with: Arc<Mutex<Vec<Extent>>>,
    refuses: bool,
}

impl Reader for Noting {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for index in 0..extents.len() {
            let _ = visitor.see(index, &[]);
        }
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(self.clone()))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        self.will_need.lock().unwrap().extend_from_slice(extents);
        if self.refuses { Err(Error::Invalid("no such advice".to_owned())) } else { Ok(()) }
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        self.done_with.lock().unwrap().extend_from_slice(extents);
        Ok(())
    }
}

fn around(reader: &Noting, by: By, release: Switch) -> Prefetching {
    let merge = Merge { gap: 0, length: SCENE.length, stripe: SCENE.length };
    let hints = Hints { merge, cached: Cached::nothing(), by, helpers: 1, release };
    Prefetching::new(reader.sibling().unwrap(), started("strided", "stride=64k,rows=4"), hints).unwrap()
}

#[test]
fn hints_reach_the_reader_from_both_kinds_of_thread() {
    for by in [By::Caller, By::Helper] {
        let reader = Noting::default();
        let mut prefetching = around(&reader, by, Switch::Off);

        prefetching.visit(&blocks([0, 65536]), &mut |_: usize, _: &[u8]| {}).unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while reader.will_need.lock().unwrap().len() < 5 && std::time::Instant::now() < limit {
            std::thread::yield_now();
        }

        let offsets: Vec<u64> = reader.will_need.lock().unwrap().iter().map(|extent| extent.offset).collect();
        assert_eq!(offsets, [65536, 131_072, 196_608, 262_144, 327_680], "{by:?}");
    }
}

#[test]
fn what_was_visited_is_let_go_where_asked() {
    let reader = Noting::default();
    let extents = blocks((0..1000).map(|page| page * 4096));

    around(&reader, By::Caller, Switch::On).visit(&extents, &mut |_: usize, _: &[u8]| {}).unwrap();

    let released: usize = reader.done_with.lock().unwrap().iter().map(|extent| extent.length).sum();
    assert!((700 * PAGE..1000 * PAGE).contains(&released), "{released}: the last page stays, it may be shared");
}

#[test]
fn a_hint_that_fails_is_an_error_of_the_visit() {
    let reader = Noting { refuses: true, ..Noting::default() };
    let mut prefetching = around(&reader, By::Caller, Switch::Off);
    let mut seen = 0;

    let visited = prefetching.visit(&blocks([0, 65536]), &mut |_: usize, _: &[u8]| seen += 1);

    assert!(matches!(visited, Err(Error::Invalid(_))), "{visited:?}");
    assert_eq!(seen, 2, "after everything was shown");
}

#[test]
fn only_the_pages_of_the_rows_are_read() {
    let file = TestFile::on_disk(1024 * PAGE);
    file.file().sync_all().unwrap();
    let rows = blocks((0..64).map(|row| row * 16 * PAGE as u64));
    for policy in ["policy=learned", "policy=strided,stride=64k", "policy=thread"] {
        for method in ["mmap", "pread"] {
            crate::sys::cache::fadvise(file.file(), 0, 0, crate::sys::cache::FileAdvice::DontNeed).unwrap();
            let given = policy.parse::<Given>().unwrap();
            let mut opened = prefetch::open(methods::named(method).unwrap(), file.target(false), &given).unwrap();

            opened.reader.visit(&rows, &mut |_: usize, bytes: &[u8]| assert_ne!(bytes[0], 0)).unwrap();
            drop(opened);

            let resident = crate::sys::cache::resident(file.file(), 0, file.length() as u64).unwrap();
            assert_eq!(resident.0, 64 * PAGE as u64, "{method} {policy}");
        }
    }
}

/// Follows another program's accesses by `strided`, and notes the hints.
fn following(reader: &Noting) -> Follower {
    let merge = Merge { gap: 0, length: SCENE.length, stripe: SCENE.length };
    let hints = Hints { merge, cached: Cached::nothing(), by: By::Caller, helpers: 1, release: Switch::Off };
    Follower::new(reader.sibling().unwrap(), started("strided", "stride=64k,rows=4"), hints).unwrap()
}

/// Rows of 64 KiB that hints were given for, and those that were shown.
fn announced(follower: &mut Follower, reader: &Noting, limit: usize) -> (Vec<u64>, Vec<u64>, bool) {
    let mut shown = Vec::new();
    let more = follower.announce(limit, |extent| shown.push(extent.offset / 65_536)).unwrap();
    let given = std::mem::take(&mut *reader.will_need.lock().unwrap());
    (given.iter().map(|extent| extent.offset / 65_536).collect(), shown, more)
}

#[test]
fn a_follower_gives_so_many_hints_at_a_time_and_says_whether_more_are_left() {
    let reader = Noting::default();
    let mut follower = following(&reader);

    assert!(follower.observe(blocks([0])[0]));

    assert_eq!(announced(&mut follower, &reader, 3), (vec![1, 2, 3], vec![1, 2, 3], true));
    assert!(follower.observe(blocks([65_536])[0]));
    assert_eq!(announced(&mut follower, &reader, 1), (vec![4], vec![4], true), "what was left, then what is new");
    assert_eq!(announced(&mut follower, &reader, 1), (vec![5], vec![5], false));
    assert_eq!(announced(&mut follower, &reader, 1), (vec![], vec![], false));
}

#[test]
fn a_follower_whose_policy_begins_anew_forgets_what_it_wanted_before() {
    let reader = Noting::default();
    let mut follower = following(&reader);
    follower.observe(blocks([10 * 65_536])[0]);
    assert_eq!(announced(&mut follower, &reader, 1).0, [11]);

    follower.want(blocks([14 * 65_536]));

    assert_eq!(announced(&mut follower, &reader, 8).0, [14], "at the same place or before what is left: that is old");
    follower.observe(blocks([20 * 65_536])[0]);
    follower.want(blocks([90 * 65_536]));
    assert_eq!(announced(&mut follower, &reader, 1).0, [21]);
    follower.discard();
    assert_eq!(announced(&mut follower, &reader, 8), (vec![], vec![], false));
    follower.observe(blocks([40 * 65_536])[0]);
    follower.discard();
    assert_eq!(announced(&mut follower, &reader, 8), (vec![], vec![], false), "wanted, and not put in turn yet");
}

#[test]
fn a_sibling_of_a_follower_begins_without_experience() {
    let reader = Noting::default();
    let mut follower = following(&reader);
    follower.observe(blocks([0])[0]);
    announced(&mut follower, &reader, 1);

    let mut sibling = follower.sibling().unwrap();

    assert_eq!(announced(&mut sibling, &reader, 8), (vec![], vec![], false));
    assert!(sibling.observe(blocks([0])[0]), "the rows that the other wanted are wanted again");
}

#[test]
fn a_follower_tells_a_hint_that_fails() {
    let reader = Noting { refuses: true, ..Noting::default() };
    let mut follower = following(&reader);
    follower.observe(blocks([0])[0]);

    assert!(matches!(follower.announce(8, |_| ()), Err(Error::Invalid(_))));
}

#[test]
fn what_was_visited_is_let_go_of_by_255_pages() {
    let reader = Noting::default();
    let extents = blocks((0..600).map(|page| page * 4096));

    around(&reader, By::Caller, Switch::On).visit(&extents, &mut |_: usize, _: &[u8]| {}).unwrap();

    let released = reader.done_with.lock().unwrap();
    let bytes: usize = released.iter().map(|extent| extent.length).sum();
    let end = released.iter().map(|extent| extent.offset + extent.length as u64).max();
    assert_eq!((bytes, end), (510 * PAGE, Some(510 * 4096)), "256 visits but for the last, and 255 more");
}

#[test]
fn the_budget_is_at_most_half_of_the_free_memory() {
    let (window, whole) = (named("window").unwrap(), named("whole").unwrap());
    let grant = |policy, budget, free| prefetch::granted(policy, budget, free);

    assert_eq!(grant(window, Budget::Auto, 1 << 30), (8 << 20, None));
    assert_eq!(grant(window, Budget::Auto, 10 << 20), (5 << 20, None));
    assert_eq!(grant(whole, Budget::Auto, 1 << 30), (1 << 29, None));
    assert_eq!(grant(whole, Budget::Bytes(Bytes::mib(5)), 10 << 20), (5 << 20, None));
    let (cut, note) = grant(window, Budget::Bytes(Bytes::mib(6)), 10 << 20);
    assert_eq!(cut, 5 << 20);
    assert_eq!(note.unwrap(), "the budget is 5.00 MiB, half of the free memory, instead of 6m");
}

#[test]
fn a_policy_tells_what_it_cannot_be_put_around() {
    let file = TestFile::on_disk(PAGE);
    let refused = |method: &str, given: &str| {
        let method = methods::named(method).unwrap();
        prefetch::open(method, file.target(false), &given.parse().unwrap()).err().unwrap().to_string()
    };

    assert!(refused("pread", "policy=populate").contains("pread can't be populated; choose mmap"));
    assert!(refused("mmap", "policy=populate,advice=random").contains("leave advice=random out"));
    assert!(refused("null", "policy=window").contains("null takes no policy"));
    let followed = prefetch::follow(named("populate").unwrap(), file.target(false), &Given::none());
    assert!(followed.err().unwrap().to_string().contains("reads nothing ahead while a program runs"));
}

#[test]
fn a_caller_that_meets_an_extent_has_what_follows_read_ahead_and_is_told_what_failed() {
    let reader = Noting::default();

    following(&reader).meet(blocks([0])[0]).unwrap();

    let given: Vec<u64> = reader.will_need.lock().unwrap().iter().map(|extent| extent.offset / 65_536).collect();
    assert_eq!(given, [1, 2, 3, 4]);
    let refused = following(&Noting { refuses: true, ..Noting::default() }).meet(blocks([0])[0]);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// A reader that has all extents in flight at once, and counts what it is asked for besides.
#[derive(Clone, Default)]
struct Deep {
    noting: Noting,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Deep {
    fn note(&self, call: &'static str) {
        self.asked.lock().unwrap().push(call);
    }
}

impl Reader for Deep {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        (0..extents.len()).for_each(|index| visitor.submitted(index));
        (0..extents.len()).rev().for_each(|index| visitor.arrived(index));
        self.noting.visit(extents, visitor)
    }

    fn update(&mut self, _: &[Extent], _: &mut dyn Filler) -> Result<()> {
        self.note("update");
        Ok(())
    }

    fn check_update(&self, _: Extent) -> Result<()> {
        self.note("check_update");
        Err(Error::Invalid("read only".to_owned()))
    }

    fn sync(&mut self) -> Result<()> {
        self.note("sync");
        Ok(())
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(self.clone()))
    }

    fn will_need(&mut self, extents: &[Extent], urgency: Urgency) -> Result<()> {
        self.noting.will_need(extents, urgency)
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        self.noting.done_with(extents)
    }
}

/// A policy that wants nothing around `reader`.
fn silent(reader: &dyn Reader, by: By, release: Switch) -> Prefetching {
    let merge = Merge { gap: 0, length: SCENE.length, stripe: SCENE.length };
    let hints = Hints { merge, cached: Cached::nothing(), by, helpers: 2, release };
    Prefetching::new(reader.sibling().unwrap(), started("window", "window=0"), hints).unwrap()
}

#[test]
fn a_visitor_is_told_what_is_in_flight_through_a_policy_too() {
    #[derive(Default)]
    struct Events(Vec<(&'static str, usize)>);
    impl Visitor for Events {
        fn submitted(&mut self, index: usize) {
            self.0.push(("submitted", index));
        }
        fn arrived(&mut self, index: usize) {
            self.0.push(("arrived", index));
        }
        fn see(&mut self, index: usize, _: &[u8]) -> ControlFlow<()> {
            self.0.push(("seen", index));
            ControlFlow::Continue(())
        }
    }
    let mut events = Events::default();

    silent(&Deep::default(), By::Caller, Switch::Off).visit(&blocks([0, 8192]), &mut events).unwrap();

    let [in_flight, arrivals, seen] = ["submitted", "arrived", "seen"];
    assert_eq!(events.0, [(in_flight, 0), (in_flight, 1), (arrivals, 1), (arrivals, 0), (seen, 0), (seen, 1)]);
}

#[test]
fn what_is_not_a_visit_passes_through_a_policy() {
    let deep = Deep::default();
    let mut prefetching = silent(&deep, By::Caller, Switch::Off);
    let (first, second) = (blocks([4096]), blocks([8192]));

    prefetching.update(&first, &mut |_: usize, _: &mut [u8]| ()).unwrap();
    let checked = prefetching.check_update(first[0]);
    prefetching.sync().unwrap();
    prefetching.will_need(&first, Urgency::Soon).unwrap();
    prefetching.done_with(&second).unwrap();

    assert!(matches!(checked, Err(Error::Invalid(_))), "{checked:?}");
    assert_eq!(*deep.asked.lock().unwrap(), ["update", "check_update", "sync"]);
    assert_eq!(*deep.noting.will_need.lock().unwrap(), first);
    assert_eq!(*deep.noting.done_with.lock().unwrap(), second);
}

#[test]
fn a_helper_lets_go_of_what_was_visited() {
    let reader = Noting::default();
    let extents = blocks((0..256).map(|page| page * 4096));
    let mut prefetching = silent(&reader, By::Helper, Switch::On);

    prefetching.visit(&extents, &mut |_: usize, _: &[u8]| {}).unwrap();
    // Its end waits for what the helper was asked to let go of.
    drop(prefetching);

    let released: usize = reader.done_with.lock().unwrap().iter().map(|extent| extent.length).sum();
    assert_eq!(released, 255 * PAGE);
}

#[test]
fn a_hint_of_the_helper_that_fails_is_told_by_a_later_visit() {
    let reader = Noting { refuses: true, ..Noting::default() };
    let mut prefetching = around(&reader, By::Helper, Switch::Off);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut told = Ok(());

    while told.is_ok() && std::time::Instant::now() < limit {
        told = prefetching.visit(&blocks([0]), &mut |_: usize, _: &[u8]| {});
    }

    assert!(matches!(told, Err(Error::Invalid(_))), "{told:?}");
}

#[test]
fn the_policies_that_follow_accesses_have_8_mib_ahead_unless_told_otherwise() {
    let file = TestFile::on_disk(PAGE);
    let trace = file.path().with_extension("flt").display().to_string();
    let budget = |policy: &str| {
        let given = Given::none().with("policy", policy);
        let given = if policy == "trace" { given.with("file", &trace) } else { given };
        let opened = prefetch::open(methods::named("pread").unwrap(), file.target(false), &given).unwrap();
        opened.settings.get("budget").unwrap().to_owned()
    };

    let budgets = ["window", "strided", "learned", "thread", "trace"].map(budget);

    std::fs::remove_file(trace).unwrap();
    assert_eq!(budgets, ["8m"; 5]);
}

#[test]
fn beside_a_callers_own_accesses_hints_are_given_by_the_policys_thread_or_the_one_asked_for() {
    let file = TestFile::on_disk(PAGE);
    let shown = |common: Common, is_whole: bool| {
        let (target, whole, learned) = (file.target(false), Whole::default(), Learned::default());
        let beside = if is_whole { beside(&whole, target, common) } else { beside(&learned, target, common) };
        format!("{:?}", beside.unwrap().0)
    };
    let by = |by: By| Common::default().by(by);

    assert!(shown(Common::default(), true).contains("by: Helper"));
    assert!(shown(Common::default(), false).contains("by: Caller"));
    assert!(shown(by(By::Caller), true).contains("by: Caller"));
    assert!(shown(by(By::Helper), false).contains("by: Helper"));
    assert!(shown(Common::default(), true).starts_with("Follower { hints: Hints {"));
    let around = format!("{:?}", silent(&Noting::default(), By::Caller, Switch::Off));
    assert!(around.starts_with("Prefetching { hints: Hints {"), "{around}");
}

/// The offsets of the hints that a policy around `method` gives for a file that is in the page cache.
fn hints_for_a_cached_file(method: &str) -> Vec<u64> {
    let file = TestFile::on_disk(64 * PAGE);
    let reader = Noting::default();
    let opened = Opened::new(Box::new(reader.clone()), file.target(false), Given::none(), Vec::new());
    let (strided, method) = (named("strided").unwrap(), methods::named(method).unwrap());
    let given = "stride=64k,rows=2".parse().unwrap();
    let start = |scene: &Scene| (strided.start.unwrap())(scene, &given);
    let mut opened = prefetch::around(strided, method, opened, Common::default().by(By::Policy), Some(start)).unwrap();
    opened.reader.visit(&blocks([0]), &mut |_: usize, _: &[u8]| ()).unwrap();
    // A helper that is not asked any more ends before it gives the hints.
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let is_helped = method.hints == access::Hints::Own;
    while is_helped && reader.will_need.lock().unwrap().len() < 2 && std::time::Instant::now() < limit {
        std::thread::yield_now();
    }
    drop(opened);
    reader.will_need.lock().unwrap().iter().map(|extent| extent.offset).collect()
}

#[test]
fn what_the_page_cache_holds_needs_no_hint_except_by_methods_that_do_not_use_it() {
    assert_eq!(hints_for_a_cached_file("pool"), [65_536, 131_072]);
    if let Err(missing) = crate::sys::cache::CACHESTAT.met() {
        eprintln!("SKIPPED what_the_page_cache_holds_needs_no_hint: {missing}");
        return;
    }
    assert_eq!(hints_for_a_cached_file("pread"), []);
}

#[test]
fn a_budget_is_read_and_written_as_users_give_it() {
    let file = TestFile::on_disk(PAGE);
    let given: Given = "policy=window,budget=lots".parse().unwrap();

    let refused = prefetch::open(methods::named("pread").unwrap(), file.target(false), &given).err().unwrap();

    assert!(refused.to_string().contains(&format!("auto, or {}", Bytes::legal())), "{refused}");
    assert_eq!((Budget::read("auto"), Budget::read("64k")), (Ok(Budget::Auto), Ok(Budget::Bytes(Bytes::kib(64)))));
    assert_eq!([Budget::Auto, Budget::Bytes(Bytes::kib(64))].map(|budget| budget.text()), ["auto", "64k"]);
}

/// A device that takes its time to let go.
#[derive(Clone)]
struct Slow(Noting);

impl Reader for Slow {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        self.0.visit(extents, visitor)
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(self.clone()))
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        (0..10_000).for_each(|_| std::thread::yield_now());
        self.0.done_with(extents)
    }
}

#[test]
fn a_reader_that_ends_waits_for_its_helper() {
    let slow = Slow(Noting::default());
    let mut prefetching = silent(&slow, By::Helper, Switch::On);
    prefetching.visit(&blocks((0..256).map(|page| page * 4096)), &mut |_: usize, _: &[u8]| {}).unwrap();

    drop(prefetching);

    assert!(!slow.0.done_with.lock().unwrap().is_empty());
    assert_eq!(Arc::strong_count(&slow.0.done_with), 1, "no thread has the reader any more");
}

#[test]
fn another_programs_accesses_are_followed_by_a_policy_with_options_of_its_own_and_those_of_all() {
    let file = TestFile::on_disk(64 * PAGE);
    file.file().sync_all().unwrap();
    crate::sys::cache::fadvise(file.file(), 0, 0, crate::sys::cache::FileAdvice::DontNeed).unwrap();
    let strided = named("strided").unwrap();
    let follow = |given: &str| prefetch::follow(strided, file.target(false), &given.parse().unwrap());
    let mut shown = Vec::new();

    let mut follower = follow("stride=64k,rows=3,budget=8k,by=helper").unwrap();
    assert!(follower.observe(blocks([0])[0]));
    follower.announce(8, |extent| shown.push(extent.offset)).unwrap();

    assert_eq!(shown, [65_536, 131_072], "as many as the budget holds");
    assert!(format!("{follower:?}").contains("by: Caller"), "whoever watches gives the hints");
    assert!(follow("wings=2").is_err());
}
