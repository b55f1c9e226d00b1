//! One policy for all files that an unmodified program maps (`--map-policy`): a preloaded library (`policy/lib.rs` of this package, compiled by
//! `build.rs`) advises each mapping right after mmap(2).
//!
//! It needs no right, no memory limit and nobody beside the program. Strides and traces, which take somebody who looks on, are
//! `majorfault assist`'s.

pub mod settings;

use super::agent::{base_of_library, preloadable};
use super::preflight::{self, Remark};
use majorfault::{Bytes, Error, Missing, Result};
use settings::{BUDGET, BYTES, LEAST, POLICY, PolicyCode};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The library; empty where none could be built.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.so"));

/// What stands in it where its settings are written.
const MARK: &[u8; BYTES] = include_bytes!("../../../policy/settings.mark");

/// The library's name.
const NAME: &str = "libmajorfault_policy.so";

/// The end of the name of the directory of a run's library.
pub const SUFFIX: &str = "-policy";

/// Shorter mappings are left alone: they are one read of the kernel's.
const LEAST_MAPPING: Bytes = Bytes(256 << 10);

/// What is advised of each file that the program maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapPolicy {
    /// MADV_RANDOM.
    Random,
    /// The program's own MADV_RANDOM is not passed on.
    NoRandom,
    /// MADV_HUGEPAGE.
    Huge,
    /// Read in whole when it is mapped.
    Load,
}

impl MapPolicy {
    /// All of them.
    pub const ALL: [MapPolicy; 4] = [MapPolicy::Random, MapPolicy::NoRandom, MapPolicy::Huge, MapPolicy::Load];

    /// Its name, and what it is for.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            MapPolicy::Random => [
                "random",
                "MADV_RANDOM: read what is touched and nothing around it; for few, scattered accesses that read-ahead drowns",
            ],
            MapPolicy::NoRandom => {
                ["no-random", "the program's own MADV_RANDOM is not passed on: the kernel reads ahead as usual"]
            }
            MapPolicy::Huge => ["huge", "MADV_HUGEPAGE: large pages, where the file system has them"],
            MapPolicy::Load => ["load", "read in whole when it is mapped, as long as half of the free memory holds it"],
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<MapPolicy> {
        MapPolicy::ALL.into_iter().find(|policy| policy.words()[0] == name)
    }

    fn code(self) -> PolicyCode {
        match self {
            MapPolicy::Random => PolicyCode::Random,
            MapPolicy::NoRandom => PolicyCode::NoRandom,
            MapPolicy::Huge => PolicyCode::Huge,
            MapPolicy::Load => PolicyCode::Load,
        }
    }
}

/// The directory of a run with the library. Dropping it removes it.
#[derive(Debug)]
pub struct PolicyHome {
    dir: PathBuf,
    policy: MapPolicy,
}

impl PolicyHome {
    /// Writes the library of the run `name`, where so much memory is free.
    ///
    /// Errors: Missing (built for another processor, no place from which programs may load code), Io.
    pub fn make(name: &str, policy: MapPolicy, free: Bytes) -> Result<PolicyHome> {
        let library = library(policy, free)?;
        let dir = base_of_library()?.join(format!("{name}{SUFFIX}"));
        let made = DirBuilder::new().mode(0o711).create(&dir);
        made.map_err(|error| Error::io("make the library's directory", &dir, error))?;
        // From here on whatever fails is taken back by dropping it.
        let home = PolicyHome { dir, policy };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(home.library());
        file.and_then(|mut file| file.write_all(&library))
            .map_err(|error| Error::io("write the library", home.library(), error))?;
        Ok(home)
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// What is to be said of it before the program begins.
    pub fn remark(&self) -> Remark {
        let what = match self.policy {
            MapPolicy::Random => "files that the program maps are told to be read at random (MADV_RANDOM)",
            MapPolicy::NoRandom => "the program's MADV_RANDOM is not passed on",
            MapPolicy::Huge => "files that the program maps are told to take large pages (MADV_HUGEPAGE)",
            MapPolicy::Load => "files that the program maps are read in whole when it maps them",
        };
        let found = format!("{what}, by a preloaded library ({}, by LD_PRELOAD)", self.library().display());
        Remark { found, remedy: String::new() }
    }

    /// Leaves it, because what runs on starts more; a later run removes it.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for PolicyHome {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("majorfault: the directory {} stays ({error}); remove it", self.dir.display());
        }
    }
}

/// The library that follows this policy, where so much memory is free.
fn library(policy: MapPolicy, free: Bytes) -> Result<Vec<u8>> {
    let mark = LIBRARY.windows(MARK.len()).position(|bytes| bytes == MARK);
    let at = mark.ok_or_else(|| missing("this majorfault was built without it: it is for x86-64"))?;
    let mut library = LIBRARY.to_vec();
    let place = &mut library[at..at + BYTES];
    place.fill(0);
    for (at, number) in [(POLICY, policy.code() as u64), (LEAST, LEAST_MAPPING.0), (BUDGET, free.0 / 2)] {
        place[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }
    Ok(library)
}

/// That a program takes the library, as far as its file tells.
///
/// Errors: what is in the way.
pub fn check_program(program: &[OsString]) -> Result<()> {
    let path = program.first().and_then(|name| preflight::found(Path::new(name)));
    let checked = path.map_or(Ok(()), |path| preloadable::check(&path));
    checked.map_err(|other| Error::from(missing(&other.reason)))
}

fn missing(reason: &str) -> Missing {
    Missing::new(
        "a policy for the program's mappings (--map-policy)",
        reason,
        "majorfault assist, which looks on from outside",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_has_the_mark_once_needs_no_other_and_knows_its_settings() {
        let marks = LIBRARY.windows(MARK.len()).filter(|bytes| bytes == MARK).count();
        let elf = elf::ElfBytes::<elf::endian::NativeEndian>::minimal_parse(LIBRARY).unwrap();
        let needed = elf.dynamic().unwrap().unwrap().iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED).count();
        assert_eq!((marks, needed), (1, 0));

        let made = library(MapPolicy::Load, Bytes(1 << 30)).unwrap();

        let at = LIBRARY.windows(MARK.len()).position(|bytes| bytes == MARK).unwrap();
        let number = |place: usize| u64::from_ne_bytes(made[at + place..at + place + 8].try_into().unwrap());
        assert_eq!([number(POLICY), number(LEAST), number(BUDGET)], [4, 256 << 10, 512 << 20]);
        assert_eq!(made.len(), LIBRARY.len());
    }

    #[test]
    fn each_policy_has_a_code_of_its_own_that_the_library_reads() {
        let all = MapPolicy::ALL;

        assert_eq!(all.map(|policy| MapPolicy::named(policy.words()[0])), all.map(Some));
        assert_eq!(MapPolicy::named("magic"), None);
        assert_eq!(all.map(|policy| PolicyCode::read(policy.code() as u64)), all.map(|policy| Some(policy.code())));
        assert_eq!([0, 5, u64::MAX].map(PolicyCode::read), [None; 3]);
    }
}
