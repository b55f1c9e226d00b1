//! Files for the tests of this crate: known bytes, on a disk, removed at the end.

use crate::files::{Layout, Target};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The page size that tests assume.
pub const PAGE: usize = 4096;

/// A file that is removed on drop.
pub struct TestFile {
    path: PathBuf,
    file: File,
    content: Vec<u8>,
}

impl TestFile {
    /// `length` bytes in /var/tmp, each page different.
    pub fn on_disk(length: usize) -> TestFile {
        TestFile::in_dir(Path::new("/var/tmp"), length)
    }

    pub fn in_dir(dir: &Path, length: usize) -> TestFile {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("majorfault-unit-{}-{number}", std::process::id()));
        let content: Vec<u8> = (0..length).map(|at| (at / PAGE * 31 + at % 251 + number as usize) as u8 | 1).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        TestFile { path, file, content }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn length(&self) -> usize {
        self.content.len()
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn target(&self, write: bool) -> Arc<Target> {
        let layout = Layout { write, ..Layout::default() };
        Arc::new(Target::open(std::slice::from_ref(&self.path), &layout).unwrap())
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
