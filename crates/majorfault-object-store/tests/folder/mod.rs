//! A folder of files whose every byte is known, and both stores over it.
#![allow(dead_code, reason = "not every test needs all of it")]

use majorfault_object_store::{FileStore, Options};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use std::ops::Range;
use std::path::PathBuf;

/// What a call gave: bytes, or the words of its error.
pub type Answer = Result<Vec<Vec<u8>>, String>;

/// Files on a disk, below /var/tmp.
pub struct Folder {
    pub runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

/// The bytes of the file of this name: other files have others.
pub fn content(name: &str, length: u64) -> Vec<u8> {
    let salt = name.bytes().fold(7u64, |salt, byte| salt.wrapping_mul(31).wrapping_add(u64::from(byte)));
    // Never zero, which is what a hole holds.
    (0..length).map(|at| ((at.wrapping_mul(salt | 1) >> 5) ^ at) as u8 | 1).collect()
}

/// Whether there is io_uring; says that the test is skipped where there is none.
pub fn has_io_uring(test: &str) -> bool {
    let need = majorfault::NEEDS.iter().find(|need| need.name == "io_uring").unwrap();
    let met = need.met();
    if let Err(missing) = &met {
        println!("SKIPPED {test}: {missing}");
    }
    met.is_ok()
}

impl Folder {
    pub fn new(files: &[(&str, u64)]) -> Folder {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, length) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content(name, *length)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        Folder { runtime, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Takes the file out of the page cache.
    pub fn cool(&self, name: &str) {
        let file = std::fs::File::open(self.path(name)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    pub fn root(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn open(&self, options: Options) -> FileStore {
        options.open(self.folder.path()).unwrap()
    }

    pub fn ours(&self, store: &FileStore, name: &str, ranges: &[Range<u64>]) -> Answer {
        self.answer(store, name, ranges)
    }

    pub fn local(&self, name: &str, ranges: &[Range<u64>]) -> Answer {
        self.answer(&LocalFileSystem::new_with_prefix(self.folder.path()).unwrap(), name, ranges)
    }

    /// Our answer, and the other store's.
    pub fn both(&self, store: &FileStore, name: &str, ranges: &[Range<u64>]) -> (Answer, Answer) {
        (self.ours(store, name, ranges), self.local(name, ranges))
    }

    fn answer(&self, store: &dyn ObjectStore, name: &str, ranges: &[Range<u64>]) -> Answer {
        let answer = self.runtime.block_on(store.get_ranges(&Path::from(name), ranges));
        answer.map(|all| all.iter().map(|bytes| bytes.to_vec()).collect()).map_err(|error| error.to_string())
    }
}
