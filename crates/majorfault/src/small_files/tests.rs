//! What holds for every way of reading many files.

use super::*;
use crate::needs::Missing;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Both ways where both are here.
fn ways() -> Vec<ManyAtATime> {
    let chains = SmallFiles::options().way(ManyAtATime::Chains).open();
    if let Err(missing) = &chains {
        println!("not tested: {missing}");
    }
    chains.iter().map(SmallFiles::way).chain([ManyAtATime::Hints]).collect()
}

/// A folder with a file of each of these lengths, and what each file has.
struct Folder {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
    contents: Vec<Vec<u8>>,
}

impl Folder {
    fn of(lengths: &[usize]) -> Folder {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut folder = Folder { dir, paths: Vec::new(), contents: Vec::new() };
        for (number, length) in lengths.iter().enumerate() {
            let content: Vec<u8> = (0..*length).map(|at| (at / 997 + at % 251 + number * 13) as u8).collect();
            let path = folder.dir.path().join(format!("{number}"));
            fs::write(&path, &content).unwrap();
            folder.paths.push(path);
            folder.contents.push(content);
        }
        folder
    }

    /// The path of something that is no file, made by `make`.
    fn with(&mut self, name: &str, make: impl FnOnce(&Path)) {
        let path = self.dir.path().join(name);
        make(&path);
        self.paths.push(path);
    }

    /// Takes the files out of the page cache.
    fn cool(&self) {
        for path in &self.paths {
            let file = fs::File::open(path).unwrap();
            file.sync_all().unwrap();
            crate::sys::cache::fadvise(&file, 0, 0, crate::sys::cache::FileAdvice::DontNeed).unwrap();
        }
    }
}

/// What each file was shown as, in the order shown.
type Shown = Vec<(usize, std::result::Result<Vec<u8>, String>)>;

fn shown(files: &mut SmallFiles, paths: &[PathBuf]) -> Shown {
    let mut shown = Vec::new();
    let visited = files.visit(paths, |index, content| {
        shown.push((index, content.map(<[u8]>::to_vec).map_err(|error| error.to_string())));
    });
    visited.unwrap();
    shown
}

/// As if every file was read.
fn all(contents: &[Vec<u8>]) -> Shown {
    contents.iter().cloned().map(Ok).enumerate().collect()
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

#[test]
fn every_file_is_shown_whole_and_in_order() {
    const PIECE: usize = 8192;
    let lengths = [0, 1, 4095, 4096, 8191, PIECE, 8193, 100_000, 3 * PIECE, 5, 0, 12_288];
    let folder = Folder::of(&lengths.repeat(9));
    for way in ways() {
        for depth in [1, 3, 64] {
            let mut files = SmallFiles::options().way(way).depth(depth).piece(Bytes(PIECE as u64)).open().unwrap();
            for cold in [true, false, false] {
                if cold {
                    folder.cool();
                }

                let shown = shown(&mut files, &folder.paths);

                assert!(shown == all(&folder.contents), "{way:?}, {depth} at a time, cold {cold}");
            }
        }
    }
}

#[test]
fn what_is_no_file_is_an_error_of_its_own_and_the_others_are_read() {
    let mut folder = Folder::of(&[10, 70_000]);
    folder.with("folder", |path| fs::create_dir(path).unwrap());
    folder.with("missing", |_| ());
    folder.with("fifo", fifo);
    folder.with("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()));
    folder.with("zero\0byte", |_| ());
    folder.paths.extend([PathBuf::from("/dev/zero"), PathBuf::from("/dev/null"), folder.paths[0].clone()]);
    for way in ways() {
        let mut files = SmallFiles::options().way(way).open().unwrap();

        let shown = shown(&mut files, &folder.paths);

        let told = |index: usize| shown[index].1.clone().unwrap_err();
        assert_eq!(shown.len(), 10);
        assert_eq!(shown[..2], all(&folder.contents));
        assert_eq!(shown[9].1.as_ref().unwrap(), &folder.contents[0]);
        assert!(told(2).ends_with("folder is a directory; name regular files"), "{way:?}: {}", told(2));
        assert!(told(3).contains("could not open the file") && told(3).contains("no such file"), "{}", told(3));
        assert!(told(4).ends_with("fifo is a FIFO; name regular files"), "{way:?}: {}", told(4));
        assert!(told(5).ends_with("socket is a socket; name regular files"), "{way:?}: {}", told(5));
        assert!(told(6).contains("could not open the file"), "{way:?}: {}", told(6));
        assert_eq!(told(7), "/dev/zero is a device; name regular files");
        assert_eq!(told(8), "/dev/null is a device; name regular files");
    }
}

#[test]
fn nothing_is_taken_from_a_fifo_that_somebody_writes_to() {
    let mut folder = Folder::of(&[]);
    folder.with("fifo", fifo);
    // Not waiting: what was taken is an error below, not a test that never ends.
    let both =
        fs::File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&folder.paths[0]).unwrap();
    (&both).write_all(b"for somebody else").unwrap();
    for way in ways() {
        let mut files = SmallFiles::options().way(way).open().unwrap();

        let told = shown(&mut files, &folder.paths)[0].1.clone().unwrap_err();

        assert!(told.ends_with("is a FIFO; name regular files"), "{way:?}: {told}");
    }
    let mut left = [0; 17];
    (&both).read_exact(&mut left).unwrap();
    assert_eq!(&left, b"for somebody else");
}

#[test]
fn a_file_that_is_too_long_is_an_error_that_says_so() {
    let folder = Folder::of(&[4096, 4097, 100_000, 4095]);
    for way in ways() {
        for piece in [Bytes(1000), Bytes::kib(64)] {
            let options = SmallFiles::options().way(way).piece(piece).largest(Bytes::kib(4));
            let shown = shown(&mut options.open().unwrap(), &folder.paths);

            let is_read: Vec<bool> = shown.iter().map(|(_, content)| content.is_ok()).collect();
            assert_eq!(is_read, [true, false, false, true], "{way:?}, piece {piece}");
            let told = shown[1].1.clone().unwrap_err();
            assert!(told.ends_with("has more than largest=4k bytes; raise largest, or map it"), "{told}");
        }
    }
}

#[test]
fn a_file_whose_length_the_kernel_does_not_know_is_whole() {
    let status = PathBuf::from("/proc/self/limits");
    let expected = fs::read(&status).unwrap();
    for way in ways() {
        for piece in [Bytes(100), Bytes::kib(64)] {
            let mut files = SmallFiles::options().way(way).piece(piece).open().unwrap();

            assert_eq!(
                shown(&mut files, std::slice::from_ref(&status)),
                all(std::slice::from_ref(&expected)),
                "{way:?}"
            );
        }
    }
}

#[test]
fn a_file_that_changes_its_length_is_shown_as_it_is_when_read() {
    const LAST: usize = 20;
    for way in ways() {
        let folder = Folder::of(&[5000; LAST + 2]);
        let mut files = SmallFiles::options().way(way).depth(2).open().unwrap();
        let mut lengths = Vec::new();

        let visited = files.visit(&folder.paths, |index, content| {
            if index == 0 {
                fs::write(&folder.paths[LAST], [7; 9000]).unwrap();
                fs::write(&folder.paths[LAST + 1], [7; 3]).unwrap();
            }
            lengths.push(content.unwrap().len());
        });

        visited.unwrap();
        assert_eq!(lengths[..LAST], [5000; LAST]);
        assert_eq!(lengths[LAST..], [9000, 3], "{way:?}");
    }
}

#[test]
fn a_closure_that_breaks_or_panics_ends_the_visit_and_the_next_one_is_whole() {
    let folder = Folder::of(&[3000; 40]);
    for way in ways() {
        let mut files = SmallFiles::options().way(way).depth(8).open().unwrap();
        let mut seen = Vec::new();
        let broken = files.visit(&folder.paths, |index, _| {
            seen.push(index);
            if index == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        broken.unwrap();
        assert_eq!(seen, [0, 1, 2], "{way:?}");
        folder.cool();
        let panicking = || files.visit(&folder.paths, |index, _| assert!(index > 40, "planned"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());

        assert_eq!(shown(&mut files, &folder.paths[5..]), all(&folder.contents[5..]), "{way:?}");
    }
}

#[test]
fn another_thread_may_go_on_with_it() {
    let folder = Folder::of(&[3000; 10]);
    for way in ways() {
        let mut files = SmallFiles::options().way(way).depth(4).open().unwrap();
        let here = shown(&mut files, &folder.paths);

        let there =
            std::thread::scope(|scope| scope.spawn(|| (shown(&mut files, &folder.paths), files)).join().unwrap().0);

        assert!(here == all(&folder.contents) && there == here, "{way:?}");
    }
}

#[test]
fn without_io_uring_files_are_read_by_hints_and_a_note_says_why() {
    let refused = Missing::new("io_uring", "not here", "allow it");

    let (_, way, notes) = SmallFiles::options().whichever(Err(refused.into())).unwrap();

    assert_eq!(way, ManyAtATime::Hints);
    let told = "files are opened one after the other, and only reading is ahead: io_uring is not available here: not here; allow it";
    assert_eq!(notes, [told]);
}

#[test]
fn options_that_cannot_be_used_are_refused() {
    for (options, told) in [
        (SmallFiles::options().depth(0), "depth=0: legal is 1 to 2048"),
        (SmallFiles::options().depth(2049), "depth=2049: legal is 1 to 2048"),
        (SmallFiles::options().piece(Bytes(0)), "piece=0: legal is 1 byte to 1 GiB"),
    ] {
        assert_eq!(options.open().unwrap_err().to_string(), told);
    }
    assert_eq!(SmallFiles::options().depth(2048).way(ManyAtATime::Hints).open().unwrap().way(), ManyAtATime::Hints);
}
