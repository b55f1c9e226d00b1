//! Programs without `unsafe` that once broke Rust's rules: they do not compile any more (`compile_fail/`, with what the compiler
//! says of them), or what they do breaks nothing.
#![forbid(unsafe_code)]

use majorfault::map::MappedFile;
use majorfault::{Error, Extent, Given, Layout, Target, methods};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn what_would_be_unsound_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    // The compiler names types by other paths where the internals are public, so what it says is kept for both.
    let both = if cfg!(feature = "internals") { "internals" } else { "face" };
    cases.compile_fail(format!("tests/compile_fail/{both}/*.rs"));
}

fn file(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, vec![b'a'; 16 << 10]).unwrap();
    (dir, path)
}

fn writable(path: &Path) -> Arc<Target> {
    Arc::new(Target::open(&[path.to_owned()], &Layout { write: true, ..Layout::default() }).unwrap())
}

const FIRST: [Extent; 1] = [Extent { offset: 0, length: 4096 }];

/// Every method that this machine has and that shows bytes of a file that it can change. Not the pool, which holds the page
/// that a visitor is shown and refuses its change.
fn methods_here(path: &Path, try_it: impl Fn(&str, &str)) {
    for (name, given) in [("mmap", ""), ("mmap", "share=private"), ("pread", ""), ("uring", ""), ("uffd", "")] {
        match (methods::named(name).unwrap().open)(writable(path), &given.parse().unwrap()) {
            Err(Error::Missing(missing)) => eprintln!("SKIPPED {name}: {missing}"),
            other => {
                drop(other.unwrap());
                try_it(name, given);
            }
        }
    }
}

#[test]
fn a_sibling_changes_nothing_that_a_visitor_is_shown() {
    // Before, the visitor of mmap saw its bytes become others behind a shared reference.
    let (_dir, path) = file("data");
    methods_here(&path, |name, given| {
        std::fs::write(&path, vec![b'a'; 16 << 10]).unwrap();
        let given: Given = given.parse().unwrap();
        let mut one = (methods::named(name).unwrap().open)(writable(&path), &given).unwrap().reader;
        let mut other = one.sibling().unwrap();
        let mut filled_at = None;

        one.visit(&FIRST, &mut |_: usize, shown: &[u8]| {
            let fill = &mut |_: usize, bytes: &mut [u8]| {
                filled_at = Some(bytes.as_ptr());
                bytes.fill(b'b');
            };
            other.update(&FIRST, fill).unwrap();
            assert!(shown.iter().all(|byte| *byte == b'a'), "{name}");
            assert_ne!(filled_at, Some(shown.as_ptr()), "{name}");
        })
        .unwrap();
    });
}

#[test]
fn a_copy_of_mapped_bytes_stays_what_it_was() {
    let (_dir, path) = file("text");
    let map = MappedFile::open(&path).unwrap();
    let bytes = map.get(0..4).unwrap().to_vec();
    let text = std::str::from_utf8(&bytes).unwrap();

    MappedFile::options().write_shared().open(&path).unwrap().write(0, &[0xff; 4]).unwrap();

    assert_eq!(text, "aaaa");
    assert_eq!(map.get(0..4).unwrap().value::<u32>(0), Some(u32::MAX));
}
