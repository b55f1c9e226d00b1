//! What every access method must do; a new method passes these tests without a line of its own.

use crate::access::{Class, DirectIo, Filler, Hints, Method, Opened, Urgency, Visitor};
use crate::error::Error;
use crate::files::{Extent, Layout, Target};
use crate::params::Given;
use crate::prefetch;
use crate::sys::cache::{self, FileAdvice};
use crate::test_files::{PAGE, TestFile};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Every method and variant that shows the file's bytes, with its settings.
fn variants() -> Vec<(&'static Method, Given)> {
    let given = |text: &str| text.parse::<Given>().unwrap();
    let mut variants = Vec::new();
    for method in crate::methods::all().filter(|method| method.class != Class::Control) {
        if let Some(missing) = method.needs.iter().find_map(|need| need.met().err()) {
            eprintln!("SKIPPED {}: {missing}", method.name);
            continue;
        }
        variants.push((method, Given::none()));
        variants.extend(policies(method).into_iter().map(|given| (method, given)));
        if method.name == "uring" {
            variants.extend(
                ["direct=off", "depth=1", "register=off", "direct=off,register=off,depth=3"]
                    .map(|text| (method, given(text))),
            );
        }
    }
    variants
}

/// Each policy around `method`, with each kind of thread, and with windows so small that they move during the tests.
fn policies(method: &Method) -> Vec<Given> {
    if !prefetch::takes_policies(method) {
        return Vec::new();
    }
    let named = |policy: &&'static prefetch::Policy| Given::none().with("policy", policy.name);
    let fits = |given: &Given| method.name == "mmap" || given.get("policy") != Some("populate");
    let hands = if method.hints == Hints::Own { &["helper"][..] } else { &["caller", "helper"] };
    let whole = |given: Given| match given.get("policy") {
        Some("trace") => given.with("file", trace()),
        Some("strided") => given.with("stride", "8k").with("rows", 3),
        Some("window") => given.with("window", "16k"),
        _ => given,
    };
    let each = prefetch::ALL.iter().map(named as fn(_) -> _).filter(fits).map(whole).collect::<Vec<_>>();
    let both = |given: &Given| {
        let given = given.clone().with("release", "on").with("budget", "64k");
        hands.iter().map(|by| given.clone().with("by", by)).collect::<Vec<_>>()
    };
    each.iter().flat_map(both).chain(each.iter().cloned()).collect()
}

/// A path for a trace: the first test records it, the others replay it, for other orders.
fn trace() -> String {
    static PATH: OnceLock<String> = OnceLock::new();
    let fresh = || {
        // Beside the test binary. What another run left, perhaps of another version, is recorded anew.
        let path = std::env::current_exe().unwrap().with_file_name("majorfault-unit.flt");
        let _ = std::fs::remove_file(&path);
        path.display().to_string()
    };
    PATH.get_or_init(fresh).clone()
}

fn open(method: &Method, target: Arc<Target>, given: &Given) -> Opened {
    prefetch::open(method, target, given).unwrap_or_else(|error| panic!("{} {given}: {error}", method.name))
}

/// Extents of odd and even offsets and lengths inside `length` bytes.
fn mixed(length: usize) -> Vec<Extent> {
    let mut extents = vec![
        Extent { offset: 0, length: 1 },
        Extent { offset: 0, length: PAGE },
        Extent { offset: (length - 1) as u64, length: 1 },
        Extent { offset: 4095, length: 2 },
        Extent { offset: 512, length: 512 },
        Extent { offset: 0, length },
    ];
    let mut state = 1u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let offset = (state >> 20) as usize % (length - 1);
        let extent = 1 + (state >> 40) as usize % (length - offset).min(3 * PAGE);
        extents.push(Extent { offset: offset as u64, length: extent });
    }
    extents
}

#[test]
fn every_extent_is_shown_once_with_its_bytes() {
    let file = TestFile::on_disk(40 * PAGE + 123);
    let extents = mixed(file.length());
    for (method, given) in variants() {
        let mut opened = open(method, file.target(false), &given);
        let mut seen = vec![0; extents.len()];

        opened
            .reader
            .visit(&extents, &mut |index: usize, bytes: &[u8]| {
                let Extent { offset, length } = extents[index];
                assert!(
                    bytes == &file.content()[offset as usize..][..length],
                    "{} {given}: {:?}",
                    method.name,
                    extents[index]
                );
                seen[index] += 1;
            })
            .unwrap();

        assert!(seen.iter().all(|times| *times == 1), "{} {given}: {seen:?}", method.name);
    }
}

#[test]
fn an_extent_past_the_end_is_refused() {
    let file = TestFile::on_disk(8 * PAGE);
    for (method, given) in variants() {
        let mut opened = open(method, file.target(false), &given);
        for extent in [
            Extent { offset: 8 * PAGE as u64, length: 1 },
            Extent { offset: 0, length: 8 * PAGE + 1 },
            Extent { offset: u64::MAX, length: 2 },
            Extent { offset: 0, length: 0 },
        ] {
            let result = opened.reader.visit(&[extent], &mut |_: usize, _: &[u8]| {});

            assert!(matches!(result, Err(Error::Invalid(_))), "{} {given} {extent:?}: {result:?}", method.name);
        }
        let again = opened.reader.visit(&[Extent { offset: 0, length: PAGE }], &mut |_: usize, _: &[u8]| {});
        assert!(again.is_ok(), "{} {given} goes on after a refusal", method.name);
    }
}

#[test]
fn break_ends_the_visit() {
    struct First(usize);
    impl Visitor for First {
        fn see(&mut self, _: usize, _: &[u8]) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Break(())
        }
    }
    let file = TestFile::on_disk(256 * PAGE);
    let extents: Vec<Extent> = (0..256).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
    for (method, given) in variants() {
        let mut opened = open(method, file.target(false), &given);
        let mut first = First(0);

        opened.reader.visit(&extents, &mut first).unwrap();

        assert_eq!(first.0, 1, "{} {given}", method.name);
        let mut all = 0;
        opened.reader.visit(&extents, &mut |_: usize, _: &[u8]| all += 1).unwrap();
        assert_eq!(all, 256, "{} {given} can be used again", method.name);
    }
}

#[test]
fn siblings_read_at_the_same_time() {
    let file = TestFile::on_disk(64 * PAGE);
    for (method, given) in variants() {
        let opened = open(method, file.target(false), &given);
        let siblings: Vec<_> = (0..3).map(|_| opened.reader.sibling().unwrap()).collect();
        let readers = siblings.into_iter().chain([opened.reader]);

        std::thread::scope(|scope| {
            for mut reader in readers {
                let content = file.content();
                scope.spawn(move || {
                    let extents = mixed(content.len());
                    let mut check = |index: usize, bytes: &[u8]| {
                        let Extent { offset, length } = extents[index];
                        assert!(bytes == &content[offset as usize..][..length]);
                    };
                    reader.visit(&extents, &mut check).unwrap();
                    reader.visit(&extents, &mut check).unwrap();
                });
            }
        });
    }
}

#[test]
fn what_was_updated_is_in_the_file_after_sync() {
    for (method, given) in variants() {
        let file = TestFile::on_disk(64 * PAGE);
        let mut opened = open(method, file.target(true), &given);
        let extents: Vec<Extent> =
            [5, 1, 63, 20].map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).to_vec();

        opened.reader.update(&extents, &mut |index: usize, bytes: &mut [u8]| bytes.fill(100 + index as u8)).unwrap();
        opened.reader.sync().unwrap();

        let mut expected = file.content().to_vec();
        for (index, extent) in extents.iter().enumerate() {
            expected[extent.offset as usize..][..PAGE].fill(100 + index as u8);
        }
        assert!(std::fs::read(file.path()).unwrap() == expected, "{} {given}", method.name);
    }
}

#[test]
fn what_was_updated_and_synced_is_in_the_file_and_told_once_between_both() {
    #[derive(Default)]
    struct Told {
        filled: usize,
        written: usize,
        /// Fills and writes when all was written.
        all: Vec<[usize; 2]>,
        most: usize,
    }
    impl Filler for Told {
        fn fill(&mut self, _: usize, bytes: &mut [u8]) -> ControlFlow<()> {
            bytes.fill(150);
            self.filled += 1;
            if self.filled == self.most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        fn written(&mut self, _: usize) {
            self.written += 1;
        }
        fn all_written(&mut self) {
            self.all.push([self.filled, self.written]);
        }
    }
    for (method, given) in variants() {
        for most in [8, 3] {
            let file = TestFile::on_disk(8 * PAGE);
            let mut opened = open(method, file.target(true), &given);
            let extents: Vec<Extent> = (0..8).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
            let mut told = Told { most, ..Told::default() };

            opened.reader.update_and_sync(&extents, &mut told).unwrap();
            opened.reader.update_and_sync(&[], &mut Told::default()).unwrap();

            let bytes = std::fs::read(file.path()).unwrap();
            let written = bytes.chunks(PAGE).filter(|page| page.iter().all(|byte| *byte == 150)).count();
            assert_eq!((written, told.filled), (most, most), "{} {given}", method.name);
            assert_eq!(told.all.len(), 1, "{} {given}: {:?}", method.name, told.all);
            assert!([0, most].contains(&told.all[0][1]), "{} {given}: {:?}", method.name, told.all);
        }
    }
}

#[test]
fn break_ends_the_update_after_what_was_handed_out() {
    struct Two(usize);
    impl Filler for Two {
        fn fill(&mut self, _: usize, bytes: &mut [u8]) -> ControlFlow<()> {
            bytes.fill(200);
            self.0 += 1;
            if self.0 == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    for (method, given) in variants() {
        let file = TestFile::on_disk(8 * PAGE);
        let mut opened = open(method, file.target(true), &given);
        let extents: Vec<Extent> = (0..8).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();

        opened.reader.update(&extents, &mut Two(0)).unwrap();
        opened.reader.sync().unwrap();

        let bytes = std::fs::read(file.path()).unwrap();
        let written = bytes.chunks(PAGE).filter(|page| page.iter().all(|byte| *byte == 200)).count();
        assert_eq!(written, 2, "{} {given}", method.name);
    }
}

#[test]
fn what_is_kept_in_flight_is_told_when_it_is_handed_over_and_once_when_it_is_written() {
    #[derive(Default)]
    struct Told([Vec<usize>; 3]);
    impl Filler for Told {
        fn submitted(&mut self, index: usize) {
            self.0[0].push(index);
        }
        fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
            bytes.fill(7);
            self.0[1].push(index);
            ControlFlow::Continue(())
        }
        fn written(&mut self, index: usize) {
            assert!(self.0[1].contains(&index), "{index} was written before it was filled");
            self.0[2].push(index);
        }
    }
    for (method, given) in variants() {
        let file = TestFile::on_disk(8 * PAGE);
        let mut opened = open(method, file.target(true), &given);
        let extents: Vec<Extent> = (0..8).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
        let mut told = Told::default();

        opened.reader.update(&extents, &mut told).unwrap();

        let [submitted, filled, mut written] = told.0;
        written.sort_unstable();
        let in_flight = if ["uring", "pool", "uffd"].contains(&method.name) { (0..8).collect() } else { Vec::new() };
        assert_eq!(
            (submitted, filled, written),
            (in_flight.clone(), (0..8).collect(), in_flight),
            "{} {given}",
            method.name
        );
    }
}

#[test]
fn files_opened_for_reading_are_not_changed() {
    for (method, given) in variants() {
        let file = TestFile::on_disk(8 * PAGE);
        let mut opened = open(method, file.target(false), &given);
        let page = Extent { offset: PAGE as u64, length: PAGE };
        let mut filled = 0;

        let updated = opened.reader.update(&[page], &mut |_: usize, _: &mut [u8]| filled += 1);
        let asked = opened.reader.check_update(page);

        for refused in [updated, asked] {
            let told = refused.unwrap_err().to_string();
            assert!(
                told.contains("was opened for reading only; open it for writing"),
                "{} {given}: {told}",
                method.name
            );
        }
        assert_eq!(filled, 0, "{} {given}", method.name);
        opened.reader.sync().unwrap();
        assert!(std::fs::read(file.path()).unwrap() == file.content(), "{} {given}", method.name);
    }
}

#[test]
fn what_an_update_takes_is_written_there_and_nowhere_else() {
    let length = 4 * PAGE + 100;
    let places = [(0, 10), (PAGE - 5, 10), (PAGE, PAGE), (3 * PAGE + 512, 512), (4 * PAGE, 100), (4 * PAGE + 90, 10)];
    for (method, given) in variants() {
        for (at, count) in places {
            let file = TestFile::on_disk(length);
            let mut opened = open(method, file.target(true), &given);
            let extent = Extent { offset: at as u64, length: count };
            let takes = opened.reader.check_update(extent);

            let updated = opened.reader.update(&[extent], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0xee));
            opened.reader.sync().unwrap();

            assert_eq!(takes.is_ok(), updated.is_ok(), "{} {given} {extent:?}: {takes:?}, {updated:?}", method.name);
            let mut expected = file.content().to_vec();
            if takes.is_ok() {
                expected[at..at + count].fill(0xee);
            }
            let found = std::fs::read(file.path()).unwrap();
            assert!(found == expected, "{} {given} {extent:?}: {} bytes", method.name, found.len());
        }
    }
}

#[test]
fn a_file_without_a_name_is_reached_by_its_descriptor() {
    use std::os::fd::AsRawFd;
    let file = TestFile::on_disk(8 * PAGE);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.file().as_raw_fd()));
    std::fs::remove_file(file.path()).unwrap();
    for (method, given) in variants() {
        let target = Arc::new(Target::open(std::slice::from_ref(&path), &Layout::default()).unwrap());
        let mut opened = open(method, target, &given);

        opened
            .reader
            .visit(&[Extent { offset: PAGE as u64, length: PAGE }], &mut |_: usize, bytes: &[u8]| {
                assert!(bytes == &file.content()[PAGE..2 * PAGE], "{} {given}", method.name);
            })
            .unwrap();
    }
}

#[test]
fn striped_files_are_one_address_space() {
    let (one, other) = (TestFile::on_disk(8 * PAGE), TestFile::on_disk(9 * PAGE));
    let paths = [one.path().to_owned(), other.path().to_owned()];
    let layout = Layout { stripe: crate::Bytes(2 * PAGE as u64), ..Layout::default() };
    for (method, given) in variants() {
        let target = Arc::new(Target::open(&paths, &layout).unwrap());
        assert_eq!(target.len(), 16 * PAGE as u64);
        let mut opened = open(method, target, &given);
        let extents: Vec<Extent> = (0..16).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();

        opened
            .reader
            .visit(&extents, &mut |index: usize, bytes: &[u8]| {
                let file = if (index / 2) % 2 == 0 { &one } else { &other };
                let page = index / 4 * 2 + index % 2;
                assert!(bytes == &file.content()[page * PAGE..][..PAGE], "{} {given}: page {index}", method.name);
            })
            .unwrap();

        let across = Extent { offset: PAGE as u64, length: 2 * PAGE };
        let refused = opened.reader.visit(&[across], &mut |_: usize, _: &[u8]| {});
        assert!(matches!(refused, Err(Error::Invalid(_))), "{} {given}", method.name);
    }
}

#[test]
fn a_file_truncated_since_is_an_error_of_the_visit() {
    for (method, given) in variants() {
        let file = TestFile::on_disk(64 * PAGE);
        let mut opened = open(method, file.target(false), &given);
        file.file().set_len(PAGE as u64).unwrap();
        let extents: Vec<Extent> = (0..64).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();

        let result = opened.reader.visit(&extents, &mut |_: usize, bytes: &[u8]| {
            std::hint::black_box(bytes.iter().fold(0u8, |sum, byte| sum ^ byte));
        });

        assert!(
            matches!(result, Err(Error::Io { .. } | Error::Truncated { .. })),
            "{} {given}: {result:?}",
            method.name
        );
    }
}

#[test]
fn hints_change_no_byte() {
    let file = TestFile::on_disk(16 * PAGE);
    let extents: Vec<Extent> = (0..16).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
    for (method, given) in variants() {
        let mut opened = open(method, file.target(false), &given);
        opened.reader.will_need(&extents, Urgency::Soon).unwrap();
        opened.reader.done_with(&extents[..8]).unwrap();

        opened
            .reader
            .visit(&extents, &mut |index: usize, bytes: &[u8]| {
                assert!(bytes == &file.content()[index * PAGE..][..PAGE])
            })
            .unwrap();
    }
}

#[test]
fn an_unknown_parameter_is_refused_by_every_method() {
    let file = TestFile::on_disk(PAGE);
    for method in crate::methods::all() {
        let refused = (method.open)(file.target(false), &Given::none().with("wings", 2));

        assert!(matches!(refused.err(), Some(Error::Invalid(_))), "{}", method.name);
    }
}

#[test]
fn the_settings_in_force_include_every_default() {
    let file = TestFile::on_disk(PAGE);
    for (method, given) in variants() {
        let opened = open(method, file.target(false), &given);

        let names: Vec<&str> = opened.settings.0.keys().map(String::as_str).collect();
        for param in (method.params)() {
            assert!(names.contains(&param.name), "{} does not tell {}", method.name, param.name);
        }
    }
}

/// A file of which nothing is in the page cache.
fn uncached(length: usize) -> TestFile {
    let file = TestFile::on_disk(length);
    file.file().sync_all().unwrap();
    cache::fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
    assert_eq!(cache::resident(file.file(), 0, length as u64).unwrap().0, 0, "/var/tmp must be on a disk");
    file
}

/// Methods that work on this machine.
fn usable() -> impl Iterator<Item = &'static Method> {
    crate::methods::all().filter(|method| method.needs.iter().all(|need| need.met().is_ok()))
}

#[test]
fn a_method_reads_past_the_page_cache_where_it_declares_so() {
    for method in usable().filter(|method| method.class != Class::Control) {
        let cases: &[(Given, bool)] = match method.direct {
            DirectIo::Never => &[(Given::none(), false)],
            DirectIo::Always => &[(Given::none(), true)],
            DirectIo::Given => {
                &[(Given::none().with("direct", "on"), true), (Given::none().with("direct", "off"), false)]
            }
        };
        for (given, is_past) in cases {
            let file = uncached(8 * PAGE);
            let mut opened = open(method, file.target(false), given);

            let read = |_: usize, bytes: &[u8]| _ = std::hint::black_box(bytes[0]);
            opened.reader.visit(&[Extent { offset: 0, length: PAGE }], &mut { read }).unwrap();

            let (cached, _) = cache::resident(file.file(), 0, 8 * PAGE as u64).unwrap();
            assert_eq!(cached == 0, *is_past, "{} {given}: {cached} bytes are cached", method.name);
        }
    }
}

#[test]
fn a_hint_reaches_what_the_method_declares() {
    for method in usable() {
        let file = uncached(8 * PAGE);
        let mut opened = open(method, file.target(false), &Given::none());
        let page = [Extent { offset: PAGE as u64, length: PAGE }];

        opened.reader.will_need(&page, Urgency::Soon).unwrap();

        let (cached, _) = cache::resident(file.file(), 0, 8 * PAGE as u64).unwrap();
        assert_eq!(cached > 0, method.hints == Hints::PageCache, "{}: {cached} bytes are cached", method.name);
        // Changed behind the method's back: only a cache of its own has the bytes from before.
        std::os::unix::fs::FileExt::write_all_at(file.file(), &[0; PAGE], PAGE as u64).unwrap();
        file.file().sync_all().unwrap();
        let mut first = 0;
        opened.reader.visit(&page, &mut |_: usize, bytes: &[u8]| first = bytes[0]).unwrap();
        let is_from_before = first == file.content()[PAGE];
        assert_eq!(is_from_before, method.hints == Hints::Own, "{}: the first byte is {first}", method.name);
    }
}

#[test]
fn the_traits_that_name_a_parameter_name_one_that_is_declared() {
    for method in crate::methods::all() {
        let params: Vec<&str> = (method.params)().iter().map(|param| param.name).collect();

        assert!(method.depth.is_none_or(|depth| params.contains(&depth)), "{} has no such depth", method.name);
        assert_eq!(method.depth.is_some(), params.contains(&"depth"), "{}", method.name);
        assert_eq!(method.direct == DirectIo::Given, params.contains(&"direct"), "{}", method.name);
    }
}

#[test]
fn every_method_is_of_its_class() {
    let classes: Vec<(&str, Class)> = crate::methods::all().map(|method| (method.name, method.class)).collect();

    assert_eq!(
        classes,
        [
            ("null", Class::Control),
            ("mmap", Class::Mapped),
            ("pread", Class::Explicit),
            ("direct", Class::Explicit),
            ("uring", Class::Explicit),
            ("pool", Class::Pool),
            ("uffd", Class::Pool),
        ]
    );
}
