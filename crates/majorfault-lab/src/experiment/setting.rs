//! What the cells of an experiment are made of: the scale, the machine, and data files that go when they are done with.

use super::Planned;
use crate::place;
use crate::procedure::many_files;
use crate::scratch::{Scratch, Wanted};
use crate::trial::{Arm, CacheState, Choice, Data, Direction, Limits, Trial};
use majorfault::{Bytes, Error, Given, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// All in about a minute: does it run, and which way does it point?
    Quick,
    /// All in about 22 minutes on two processors.
    Standard,
    /// The published sizes.
    Full,
}

impl Scale {
    /// Every scale, the quickest first.
    pub const ALL: &[Scale] = &[Scale::Quick, Scale::Standard, Scale::Full];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Standard => "standard",
            Scale::Full => "full",
        }
    }

    /// The scale of this name.
    pub fn named(name: &str) -> Option<Scale> {
        Scale::ALL.iter().copied().find(|scale| scale.name() == name)
    }

    /// The value for this scale.
    pub fn of<T>(self, quick: T, standard: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Standard => standard,
            Scale::Full => full,
        }
    }
}

/// Where cells are planned.
pub struct Setting<'a> {
    /// How much is run.
    pub scale: Scale,
    /// Processors.
    pub cpus: u32,
    /// Directory on a disk for data.
    pub dir: &'a Path,
    /// Directories on other devices: striped data has a file in each, too.
    pub others: &'a [PathBuf],
    /// Raised when the user wants to stop.
    pub stop: &'a AtomicBool,
    /// Keeps the data while the experiment runs.
    pub store: &'a mut Store,
    /// Whether its data is made.
    pub making: Making,
}

/// What is made while cells are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// All files.
    Files,
    /// Nothing: the cells are only looked at, their paths lead nowhere.
    Nothing,
}

/// Data files of an experiment; removed on drop.
#[derive(Default)]
pub struct Store {
    scratches: Vec<Scratch>,
    folders: Vec<PathBuf>,
}

/// The name of what is not made.
const NOWHERE: &str = "majorfault-nowhere";

/// Seed of all made content.
const CONTENT: u64 = 1;

/// Bytes of one file before the next one's turn.
const STRIPE: Bytes = Bytes::mib(1);

impl Setting<'_> {
    /// Made files that share `size` bytes: `files`, or, where data is to be striped and there are more devices than that, one on each.
    ///
    /// Errors: Io (full disk).
    pub fn data(&mut self, size: Bytes, files: usize) -> Result<Data> {
        let dirs: Vec<&Path> = std::iter::once(self.dir).chain(self.others.iter().map(PathBuf::as_path)).collect();
        let files = if files > 1 { files.max(dirs.len()) } else { files };
        // Shares of several are whole stripes.
        let size = if files > 1 { Bytes(size.0.next_multiple_of(STRIPE.0 * files as u64)) } else { size };
        let files = match self.making {
            Making::Files => {
                let wanted = Wanted { size, files, stripe: STRIPE, seed: CONTENT };
                let made = Scratch::make_over(&dirs, &wanted, self.stop, |_| {})?;
                let paths = made.paths();
                self.store.scratches.push(made);
                paths
            }
            Making::Nothing => vec![self.dir.join(NOWHERE); files],
        };
        Ok(Data { files, offset_bytes: 0, size_bytes: size.0, stripe_bytes: STRIPE.0, content_seed: Some(CONTENT) })
    }

    /// Whether files are made.
    pub fn makes_files(&self) -> bool {
        self.making == Making::Files
    }

    /// An empty directory, which goes with the data.
    ///
    /// Errors: Io.
    pub fn folder(&mut self) -> Result<PathBuf> {
        if !self.makes_files() {
            return Ok(self.dir.join(NOWHERE));
        }
        let folder = self.dir.join(place::own_name());
        std::fs::create_dir(&folder).map_err(|error| Error::io("make a directory", &folder, error))?;
        // Kept before it is filled, so that a full disk is cleaned up, too.
        self.store.folders.push(folder.clone());
        Ok(folder)
    }

    /// A directory of `count` files of `length` bytes, full of values.
    ///
    /// Errors: Io (full disk).
    pub fn many_files(&mut self, count: u64, length: Bytes) -> Result<PathBuf> {
        let folder = self.folder()?;
        if self.makes_files() {
            many_files::make(&folder, count, length)?;
        }
        Ok(folder)
    }

    /// Cold uniform reads of 4 KiB by one thread for `seconds`, to be changed as the cell wants.
    pub fn reads(&self, data: &Data, arm: Arm, seconds: f64) -> Trial {
        Trial {
            data: data.clone(),
            workload: Choice::plain("uniform"),
            direction: Direction::Read,
            arm,
            block_bytes: 4096,
            threads: 1,
            iodepth: 32,
            limits: Limits { runtime_ns: Some((seconds * 1e9) as u64), accesses: None, time_based: true },
            memory_bytes: None,
            cache: CacheState::Cold,
            seed: 1,
            interval_ns: 250_000_000,
            repetition: 0,
            counts_hardware: false,
            jobs: Vec::new(),
            stage: String::new(),
        }
    }

    /// A procedure with its files at `path`.
    pub fn procedure(&self, cell: &str, name: &str, given: &str, path: &Path) -> Result<Planned> {
        let given: Given = given.parse()?;
        let arm = Arm::Procedure(Choice { name: name.to_owned(), given: given.0 });
        let data = Data {
            files: vec![path.to_owned()],
            offset_bytes: 0,
            size_bytes: 0,
            stripe_bytes: STRIPE.0,
            content_seed: Some(CONTENT),
        };
        let trial = Trial { cache: CacheState::AsFound, ..self.reads(&data, arm, 0.0) };
        Ok(Planned { name: cell.to_owned(), trial })
    }
}

/// An access method as the command line names it: `mmap:advice=random`.
pub(super) fn method(text: &str) -> Arm {
    let (name, given) = text.split_once(':').unwrap_or((text, ""));
    let given: Given = given.parse().unwrap_or_default();
    let choice = Choice { name: name.to_owned(), given: given.0 };
    match crate::peer::ALL.iter().any(|peer| peer.name == name) {
        true => Arm::Peer(choice),
        false => Arm::Method(choice),
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Removes directories in `dir` that killed ones left behind.
pub fn clean_stale(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(place::is_stale) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striped_data_has_a_file_in_each_directory_and_other_data_is_in_the_first() {
        let dirs = [(); 3].map(|()| tempfile::tempdir_in("/var/tmp").unwrap());
        let others = [dirs[1].path().to_owned(), dirs[2].path().to_owned()];
        let (stop, mut store) = (AtomicBool::new(false), Store::default());
        let scale = Scale::Quick;
        let making = Making::Files;
        let mut setting =
            Setting { scale, cpus: 2, dir: dirs[0].path(), others: &others, stop: &stop, store: &mut store, making };

        let (striped, one) = (setting.data(Bytes::mib(2), 2).unwrap(), setting.data(Bytes::mib(1), 1).unwrap());

        let place = |path: &PathBuf| path.read_link().unwrap().parent().unwrap().to_owned();
        let found: Vec<PathBuf> = striped.files.iter().map(place).collect();
        assert_eq!(found, dirs.each_ref().map(|dir| dir.path().to_owned()));
        assert_eq!((striped.size_bytes, one.size_bytes), (3 << 20, 1 << 20), "whole stripes on each device");
        assert_eq!(one.files.iter().map(place).collect::<Vec<_>>(), [dirs[0].path()]);
    }
}
