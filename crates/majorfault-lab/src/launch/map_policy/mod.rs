//! One policy for all files that an unmodified program maps (`--map-policy`): a preloaded library (`policy/lib.rs` of this package, compiled by
//! `build.rs`) advises each mapping right after mmap(2).
//!
//! It needs no right, no memory limit and nobody beside the program. What is learnt while the program runs, which takes somebody who looks on,
//! is `majorfault assist`'s.

mod hot;
pub mod settings;

use super::agent::{base_of_library, preloadable};
use super::preflight::{self, Remark};
use hot::HotParts;
use majorfault::trace::Trace;
use majorfault::{Bytes, Error, Missing, Result};
use settings::{BUDGET, BYTES, LEAST, PATH_BYTES, POLICY, PolicyCode};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The library; empty where none could be built.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/policy.so"));

/// What stands in it where its settings are written.
const MARK: &[u8; BYTES] = include_bytes!("../../../policy/settings.mark");

/// What stands in it where the path of the table of hot parts is written.
const TABLE_MARK: &[u8; PATH_BYTES] = include_bytes!("../../../policy/table.mark");

/// The library's name.
const NAME: &str = "libmajorfault_policy.so";

/// The name of the table of hot parts.
const TABLE_NAME: &str = "hot";

/// How the policy that needs a trace begins on the command line.
const HOT: &str = "hot=";

/// The end of the name of the directory of a run's library.
pub const SUFFIX: &str = "-policy";

/// Shorter mappings are left alone: they are one read of the kernel's.
const LEAST_MAPPING: Bytes = Bytes(256 << 10);

/// What is advised of each file that the program maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapPolicy {
    /// MADV_RANDOM.
    Random,
    /// The program's own MADV_RANDOM is not passed on.
    NoRandom,
    /// MADV_HUGEPAGE.
    Huge,
    /// Read in whole when it is mapped.
    Load,
    /// The parts that this trace of an earlier run names are asked for when it is mapped.
    Hot(PathBuf),
}

impl MapPolicy {
    /// All that need nothing else.
    pub const PLAIN: [MapPolicy; 4] = [MapPolicy::Random, MapPolicy::NoRandom, MapPolicy::Huge, MapPolicy::Load];

    /// How each is written on the command line, and what it is for.
    pub fn all_words() -> impl Iterator<Item = [&'static str; 2]> {
        MapPolicy::PLAIN.into_iter().chain([MapPolicy::Hot(PathBuf::new())]).map(|policy| policy.words())
    }

    /// How it is written on the command line, and what it is for.
    pub fn words(&self) -> [&'static str; 2] {
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
            MapPolicy::Hot(_) => [
                "hot=TRACE.flt",
                "MADV_WILLNEED: the parts that `majorfault trace` saw an earlier run access are asked for when it is mapped",
            ],
        }
    }

    /// The policy that is written so.
    pub fn named(name: &OsStr) -> Option<MapPolicy> {
        let plain = || MapPolicy::PLAIN.into_iter().find(|policy| policy.words()[0] == name);
        match name.as_bytes().strip_prefix(HOT.as_bytes()) {
            Some(trace) if !trace.is_empty() => Some(MapPolicy::Hot(OsStr::from_bytes(trace).into())),
            _ => plain(),
        }
    }

    fn code(&self) -> PolicyCode {
        match self {
            MapPolicy::Random => PolicyCode::Random,
            MapPolicy::NoRandom => PolicyCode::NoRandom,
            MapPolicy::Huge => PolicyCode::Huge,
            MapPolicy::Load => PolicyCode::Load,
            MapPolicy::Hot(_) => PolicyCode::Hot,
        }
    }

    /// What the library is to ask for, where so much memory is free.
    ///
    /// Errors: Io, Invalid (no trace; nothing of what it names is there).
    fn parts(&self, free: Bytes) -> Result<HotParts> {
        let MapPolicy::Hot(path) = self else { return Ok(HotParts::default()) };
        let parts = HotParts::of(&Trace::read(path)?, Bytes(free.0 / 2));
        match parts.is_empty() {
            true => Err(Error::Invalid(format!(
                "there is nothing to ask for by {}: {}; record the trace again",
                path.display(),
                parts.words()
            ))),
            false => Ok(parts),
        }
    }
}

/// The directory of a run with the library. Dropping it removes it.
#[derive(Debug)]
pub struct PolicyHome {
    dir: PathBuf,
    /// What is to be said of it.
    what: String,
}

impl PolicyHome {
    /// Writes the library of the run `name`, where so much memory is free.
    ///
    /// Errors: Missing (built for another processor, no place from which programs may load code), Io, Invalid (the policy's trace).
    pub fn make(name: &str, policy: &MapPolicy, free: Bytes) -> Result<PolicyHome> {
        let parts = policy.parts(free)?;
        let dir = base_of_library()?.join(format!("{name}{SUFFIX}"));
        let library = library(policy, free, &dir.join(TABLE_NAME))?;
        let made = DirBuilder::new().mode(0o711).create(&dir);
        made.map_err(|error| Error::io("make the library's directory", &dir, error))?;
        // From here on whatever fails is taken back by dropping it.
        let home = PolicyHome { what: told(policy, &parts), dir };
        home.write(NAME, 0o755, &library)?;
        if !parts.is_empty() {
            home.write(TABLE_NAME, 0o644, &parts.table())?;
        }
        Ok(home)
    }

    fn write(&self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(|error| Error::io("write the library", &path, error))
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// What is to be said of it before the program begins.
    pub fn remark(&self) -> Remark {
        let found = format!("{}, by a preloaded library ({}, by LD_PRELOAD)", self.what, self.library().display());
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

/// What the policy does, in words.
fn told(policy: &MapPolicy, parts: &HotParts) -> String {
    match policy {
        MapPolicy::Random => "files that the program maps are told to be read at random (MADV_RANDOM)".to_owned(),
        MapPolicy::NoRandom => "the program's MADV_RANDOM is not passed on".to_owned(),
        MapPolicy::Huge => "files that the program maps are told to take large pages (MADV_HUGEPAGE)".to_owned(),
        MapPolicy::Load => "files that the program maps are read in whole when it maps them".to_owned(),
        MapPolicy::Hot(_) => format!("asked for when the program maps them: {}", parts.words()),
    }
}

/// The library that follows this policy, where so much memory is free; `table` is the path of its table of hot parts.
fn library(policy: &MapPolicy, free: Bytes, table: &Path) -> Result<Vec<u8>> {
    let without = || missing("this majorfault was built without it: it is for x86-64");
    let place_of = |mark: &[u8]| LIBRARY.windows(mark.len()).position(|bytes| bytes == mark).ok_or_else(without);
    let (at, path_at) = (place_of(MARK)?, place_of(TABLE_MARK)?);
    let mut library = LIBRARY.to_vec();
    let path = table.as_os_str().as_bytes();
    if path.len() >= PATH_BYTES {
        return Err(Error::Invalid(format!("the path {} is too long for the library", table.display())));
    }
    let place = &mut library[path_at..path_at + PATH_BYTES];
    place.fill(0);
    place[..path.len()].copy_from_slice(path);
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
    fn the_library_has_the_marks_once_needs_no_other_and_knows_its_settings() {
        let times = |mark: &[u8]| LIBRARY.windows(mark.len()).filter(|bytes| *bytes == mark).count();
        let place_of = |mark: &[u8]| LIBRARY.windows(mark.len()).position(|bytes| bytes == mark).unwrap();
        let elf = elf::ElfBytes::<elf::endian::NativeEndian>::minimal_parse(LIBRARY).unwrap();
        let needed = elf.dynamic().unwrap().unwrap().iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED).count();
        assert_eq!((times(MARK), times(TABLE_MARK), needed), (1, 1, 0));

        let made = library(&MapPolicy::Load, Bytes(1 << 30), Path::new("/run/hot")).unwrap();

        let at = place_of(MARK);
        let number = |place: usize| u64::from_ne_bytes(made[at + place..at + place + 8].try_into().unwrap());
        assert_eq!([number(POLICY), number(LEAST), number(BUDGET)], [4, 256 << 10, 512 << 20]);
        assert!(made[place_of(TABLE_MARK)..].starts_with(b"/run/hot\0"));
        assert_eq!(made.len(), LIBRARY.len());
    }

    #[test]
    fn a_path_that_fits_with_its_end_is_taken_and_a_longer_one_refused() {
        let made = |length: usize| library(&MapPolicy::Load, Bytes(0), Path::new(&"p".repeat(length))).is_ok();

        assert_eq!([PATH_BYTES - 1, PATH_BYTES].map(made), [true, false]);
    }

    #[test]
    fn each_policy_has_a_code_of_its_own_that_the_library_reads() {
        let trace = MapPolicy::Hot("a=b.flt".into());
        let all = || MapPolicy::PLAIN.into_iter().chain([trace.clone()]);

        assert!(
            MapPolicy::PLAIN.iter().all(|policy| MapPolicy::named(policy.words()[0].as_ref()).as_ref() == Some(policy))
        );
        assert_eq!(MapPolicy::named("hot=a=b.flt".as_ref()), Some(trace.clone()));
        assert_eq!(["magic", "hot", "hot="].map(|name| MapPolicy::named(name.as_ref())), [const { None }; 3]);
        assert!(all().all(|policy| PolicyCode::read(policy.code() as u64) == Some(policy.code())));
        assert_eq!([0, 6, u64::MAX].map(PolicyCode::read), [None; 3]);
    }
}
