//! Every answer of `get_ranges` is the one that `LocalFileSystem` gives, bytes and errors alike.
#![allow(clippy::single_range_in_vec_init, reason = "one range is asked for, not its numbers")]

mod folder;

use folder::{Folder, content, has_io_uring};
use majorfault_object_store::{FileStore, Options};
use object_store::{ObjectStore, path::Path};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug)]
enum Wish {
    Anywhere(Range<u64>),
    Empty(u64),
    /// Touches the one before.
    Next(u64),
    /// Has this many bytes between it and the one before.
    After(u64, u64),
    /// The same as the one before.
    Again,
    PastEnd(u64, u64),
    Whole,
}

fn wish(past_the_end: bool) -> impl Strategy<Value = Wish> {
    let last = if past_the_end { 1 } else { 0 };
    prop_oneof![
        12 => (0u64..700_000, 1u64..40_000).prop_map(|(start, length)| Wish::Anywhere(start..start + length)),
        2 => (0u64..900_000).prop_map(Wish::Empty),
        3 => (1u64..30_000).prop_map(Wish::Next),
        3 => (1u64..9_000, 1u64..30_000).prop_map(|(gap, length)| Wish::After(gap, length)),
        1 => Just(Wish::Again),
        1 => Just(Wish::Whole),
        last => (0u64..5_000, 1u64..u64::MAX / 2).prop_map(|(before, length)| Wish::PastEnd(before, length)),
    ]
}

/// Ranges within the file, but for empty ones and those that are to pass its end.
fn ranges(wishes: &[Wish], length: u64) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for wish in wishes {
        let last = all.last().cloned().unwrap_or(0..0);
        let within = |start: u64, end: u64| start.min(length)..end.min(length).max(start.min(length));
        all.push(match wish {
            Wish::Anywhere(range) => within(range.start, range.end),
            Wish::Empty(at) => *at..*at,
            Wish::Next(bytes) => within(last.end, last.end.saturating_add(*bytes)),
            Wish::After(gap, bytes) => within(last.end.saturating_add(*gap), last.end.saturating_add(gap + bytes)),
            Wish::Again => last,
            Wish::PastEnd(before, bytes) => length.saturating_sub(*before)..length + bytes,
            Wish::Whole => 0..length,
        });
    }
    all
}

fn options() -> impl Strategy<Value = Options> {
    let given = (
        prop_oneof![Just(1u32), Just(3), Just(64)],
        any::<bool>(),
        prop_oneof![Just(0u64), Just(1), Just(8192)],
        1usize..3,
    );
    given.prop_map(|(depth, direct, gap, threads)| {
        FileStore::options().depth(depth).direct(direct).gap(gap).threads(threads)
    })
}

/// What of the file the page cache has before a call: what it has is not read by the queue.
#[derive(Clone, Copy, Debug)]
enum Cached {
    All,
    Beginning,
    None,
}

fn cached() -> impl Strategy<Value = Cached> {
    prop_oneof![Just(Cached::All), Just(Cached::Beginning), Just(Cached::None)]
}

impl Cached {
    fn make_so(self, folder: &Folder, length: u64) {
        if !matches!(self, Cached::All) {
            folder.cool("file");
        }
        if matches!(self, Cached::Beginning) {
            let _ = folder.local("file", &[0..length / 3]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_local_file_systems(
        options in options(),
        length in prop_oneof![Just(0u64), Just(1), Just(4096), 0u64..20_000, 300_000u64..700_000],
        calls in prop::collection::vec((prop::collection::vec(wish(false), 0..40), cached()), 1..4),
    ) {
        let folder = Folder::new(&[("file", length)]);
        let store = folder.open(options);

        for (wishes, cached) in &calls {
            let asked = ranges(wishes, length);
            cached.make_so(&folder, length);
            let found = folder.both(&store, "file", &asked);
            prop_assert_eq!(&found.0, &found.1, "{:?}", asked);
        }
    }

    #[test]
    fn what_passes_the_end_is_refused_in_the_same_words(
        options in options(),
        length in prop_oneof![Just(0u64), Just(1), 0u64..9_000, 300_000u64..400_000],
        wishes in prop::collection::vec(wish(true), 1..12),
        at in any::<prop::sample::Index>(),
        cached in cached(),
    ) {
        let folder = Folder::new(&[("file", length)]);
        cached.make_so(&folder, length.min(1));
        let store = folder.open(options);
        let mut asked = ranges(&wishes, length);
        // The other store makes room for all that is asked for before it looks.
        for range in &mut asked {
            range.end = range.end.min(range.start + (1 << 20));
        }
        let past = length.saturating_sub(10)..length + 100;
        asked.insert(at.index(asked.len()), past);

        let (ours, local) = folder.both(&store, "file", &asked);

        prop_assert!(local.is_err());
        prop_assert_eq!(ours, local, "{:?}", asked);
    }
}

#[test]
fn thousands_of_ranges_are_one_visit() {
    if !has_io_uring("thousands_of_ranges_are_one_visit") {
        return;
    }
    let folder = Folder::new(&[("file", 8 << 20)]);
    let store = folder.open(FileStore::options().gap(0));
    let asked: Vec<Range<u64>> = (0..5000u64).map(|row| row * 7919 % 8000 * 1024).map(|at| at..at + 700).collect();

    folder.cool("file");
    let (ours, local) = folder.both(&store, "file", &asked);

    assert_eq!(ours, local);
    let first = store.counts();
    assert_eq!((first.visits, first.reads, first.bytes), (1, 5000, 5000 * 700), "{first:?}, {:?}", store.refusal());
    // What is cached since is copied, and never goes through the queue.
    assert_eq!(folder.ours(&store, "file", &asked), local);
    let second = store.counts();
    assert_eq!((second.visits, second.reads, second.cached - first.cached), (2, 10_000, 5000));
    assert!(first.cached < 5000, "{first:?}");
}

#[test]
fn a_range_that_nobody_could_hold_is_refused_without_making_room_for_it() {
    let folder = Folder::new(&[("file", 10_000)]);
    let store = folder.open(FileStore::options());

    for huge in [0..u64::MAX, 9_999..1 << 60, 20_000..u64::MAX] {
        let told = folder.ours(&store, "file", &[0..10, huge.clone(), 50..60]).unwrap_err();
        let same = folder.local("file", &[huge.start..20_001]).unwrap_err();
        assert_eq!(told, same);
    }
    let told = folder.ours(&store, "file", &[0..10, Range { start: 7, end: 6 }]).unwrap_err();
    assert_eq!(told, "Generic majorfault error: the range 7..6 of file ends before it begins");
}

#[test]
fn what_is_wrong_is_told_by_the_same_error() {
    let folder = Folder::new(&[("folder/file", 10_000), ("empty", 0)]);
    let store = folder.open(FileStore::options());
    let asked = [0..10, 50..60];

    for name in ["nothing", "folder", "folder/file/below", "empty", "file#7", ""] {
        let (ours, local) = folder.both(&store, name, &asked);
        assert!(local.is_err(), "{name}");
        assert_eq!(ours, local, "{name}");
    }
    let error = folder.runtime.block_on(store.get_ranges(&Path::from("nothing"), &asked)).unwrap_err();
    assert!(matches!(error, object_store::Error::NotFound { .. }), "{error:?}");
    assert_eq!(folder.both(&store, "nothing", &[]), (Err(error.to_string()), Err(error.to_string())));
    assert_eq!(folder.both(&store, "empty", &[3..3, 0..0]).0, Ok(vec![vec![], vec![]]));
}

#[test]
fn a_file_that_changes_between_calls_is_read_as_it_is() {
    let folder = Folder::new(&[("file", 300_000), ("other", 300_000)]);
    let store = folder.open(FileStore::options());
    let path = folder.path("file");
    let asked = [0..1000, 200_000..290_000];
    let same = |what: &str| {
        if path.exists() {
            folder.cool("file");
        }
        let (ours, local) = folder.both(&store, "file", &asked);
        assert_eq!(ours, local, "{what}");
        ours
    };

    let first = same("as it was").unwrap();
    std::fs::rename(folder.path("other"), &path).unwrap();
    assert!(same("replaced").unwrap() != first);
    std::fs::write(&path, content("third", 300_000)).unwrap();
    assert!(same("written in place").unwrap() != first);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    assert!(same("shorter").is_err());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(400_000).unwrap();
    assert!(same("longer").unwrap()[1].iter().all(|byte| *byte == 0));
    std::fs::remove_file(&path).unwrap();
    assert!(same("gone").is_err());
}

#[test]
fn a_file_that_changes_during_calls_gives_its_bytes_or_an_error() {
    let folder = Folder::new(&[("file", 600_000)]);
    let store = folder.open(FileStore::options().depth(4));
    let whole = content("file", 600_000);
    let done = Arc::new(AtomicBool::new(false));
    let changer = {
        let (path, done) = (folder.path("file"), Arc::clone(&done));
        std::thread::spawn(move || {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            while !done.load(Ordering::Relaxed) {
                file.set_len(1000).unwrap();
                file.set_len(600_000).unwrap();
            }
        })
    };
    let asked: Vec<Range<u64>> = (0..290u64).map(|row| row * 2048..row * 2048 + 1000).collect();

    for call in 0..100 {
        if call % 2 == 0 {
            folder.cool("file");
        }
        let answer = folder.ours(&store, "file", &asked);
        let Ok(answer) = answer else { continue };
        for (range, bytes) in asked.iter().zip(answer) {
            // What was cut away came back as zeros.
            let expected = &whole[range.start as usize..range.end as usize];
            assert_eq!(bytes.len(), 1000);
            assert!(bytes.iter().zip(expected).all(|(byte, expected)| *byte == 0 || byte == expected));
        }
    }

    done.store(true, Ordering::Relaxed);
    changer.join().unwrap();
}

#[test]
fn calls_at_once_do_not_mix() {
    let names = ["a", "b", "c", "d"];
    let folder = Folder::new(&names.map(|name| (name, 500_000)));
    let store = folder.open(FileStore::options().depth(8).threads(3));

    names.iter().for_each(|name| folder.cool(name));
    let calls = (0..64u64).map(|call| {
        let (store, name) = (store.clone(), names[call as usize % 4]);
        let asked: Vec<Range<u64>> =
            (0..40).map(|row| (row * 7919 + call * 131) % 490_000).map(|at| at..at + 9_000).collect();
        folder.runtime.spawn(async move {
            let answers = store.get_ranges(&Path::from(name), &asked).await.unwrap();
            (name, asked, answers)
        })
    });
    let calls: Vec<_> = calls.collect();

    for call in calls {
        let (name, asked, answers) = folder.runtime.block_on(call).unwrap();
        let whole = content(name, 500_000);
        assert_eq!(answers.len(), asked.len());
        for (range, bytes) in asked.into_iter().zip(answers) {
            assert!(bytes[..] == whole[range.start as usize..range.end as usize], "{name} {range:?}");
        }
    }
    assert!(store.threads() <= 3);
}
