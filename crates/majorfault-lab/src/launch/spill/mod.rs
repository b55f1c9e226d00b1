//! Blocks in files (`--spill DIR`): for programs that would be killed, because there is no swap and no right to make some.
//!
//! A library (`spill/lib.rs` of this package, compiled by `build.rs`) is preloaded into the program; it puts each large block of malloc(3)
//! into a file without a name in that directory. What it has counted is read here, from a page that all processes of the run share.

pub mod counts;
pub mod ranges;

use super::agent::{base_of_library, preloadable};
use super::preflight::{self, Remark};
use counts::{BYTES, STAYS, SpillCount, Stay};
use majorfault::sys::map::{Access, MapOptions, Mapping};
use majorfault::sys::shared::SharedNumbers;
use majorfault::{Bytes, Error, Missing, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statfs};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The library; empty where none could be built.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spill.so"));

/// What stands in it where its settings are written (`spill/settings.rs`).
const MARK: &[u8; 512] = include_bytes!("../../../spill/settings.mark");

const NAME: &str = "libmajorfault_spill.so";

/// Its file of counts, in the same directory.
const COUNTS: &str = "spilt";

/// The end of the name of the directory of a run's library.
pub const SUFFIX: &str = "-spill";

/// The least block that goes into a file, where nobody says it: each takes two system calls of some 20 µs, and a mapping.
pub const USUAL_FROM: Bytes = Bytes(1 << 20);

/// The least that may be said.
const LEAST_FROM: Bytes = Bytes(64 << 10);

/// File systems whose files are memory: statfs(2).
const IN_MEMORY: [(u64, &str); 3] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];

/// btrfs, which writes elsewhere what is written again, into room that was not reserved, unless its file says no.
const COPIES_ON_WRITE: u64 = 0x9123_683e;

/// Where each setting stands behind the mark.
const AT: [usize; 6] = [0, 240, 480, 488, 489, 490];

/// Where blocks go, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillPlace {
    /// The directory.
    pub dir: PathBuf,
    /// The least block that goes there.
    pub from: Bytes,
}

/// What the kernel is told about the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillHint {
    /// Nothing: it reads around each fault, as far as the device's read-ahead says (MADV_NORMAL).
    Usual = 0,
    /// It reads what is touched, because somebody else reads ahead (MADV_RANDOM).
    Single = 1,
}

/// Above this read-ahead the kernel reads so much around each fault that random accesses drown in it: passes without order over 96 MiB within
/// 48 took 20 to 100 times as long as with swap at 8 MiB of read-ahead (ext4, Linux 6.18).
const MOST_READ_AHEAD_KIB: u64 = 256;

impl SpillHint {
    /// Where nobody else reads ahead: by the device's read-ahead in KiB.
    fn unadvised(read_ahead: Option<u64>) -> SpillHint {
        if read_ahead.is_some_and(|kib| kib > MOST_READ_AHEAD_KIB) { SpillHint::Single } else { SpillHint::Usual }
    }
}

/// How far the kernel reads ahead on the device of this directory.
fn read_ahead(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    let file = format!("/sys/class/bdi/{}:{}/read_ahead_kb", rustix::fs::major(device), rustix::fs::minor(device));
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A block or more that stayed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StayedBlocks {
    /// Why.
    pub why: Stay,
    /// How many.
    pub blocks: u64,
    /// Their bytes, in all.
    pub bytes: u64,
}

/// What became of a run's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillFacts {
    /// Where they went.
    pub dir: PathBuf,
    /// The least of them.
    pub from: u64,
    /// Processes that had the library.
    pub processes: u64,
    /// Blocks that were in files.
    pub blocks: u64,
    /// Their bytes, in all.
    pub bytes: u64,
    /// The most bytes of one process at once.
    pub most: u64,
    /// Forks for which blocks were copied.
    pub forks: u64,
    /// Bytes of these.
    pub copied: u64,
    /// Forked processes that were ended, because there was no room for their copies.
    pub ended: u64,
    /// Large blocks that stayed in memory.
    pub stayed: Vec<StayedBlocks>,
}

impl Stay {
    /// Why, in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Stay::NoRoom => "the file system is full",
            Stay::FileLimit => "the size of files is limited (ulimit -f)",
            Stay::NoFile => "no file could be made",
            Stay::NoMapping => "no mapping could be made",
            Stay::ShutIn => "the process had shut itself in (seccomp)",
        }
    }
}

/// That a program takes the library, as far as its file tells.
///
/// Errors: what is in the way.
pub fn check_program(program: &[OsString]) -> std::result::Result<(), Missing> {
    let path = program.first().and_then(|name| preflight::found(Path::new(name)));
    let remedy = "use swap: as root, --swap-file DIR";
    path.map_or(Ok(()), |path| preloadable::check(&path)).map_err(|other| missing(other.reason, remedy))
}

fn missing(reason: impl Into<String>, remedy: &str) -> Missing {
    Missing::new("blocks in files (--spill)", reason.into(), remedy)
}

impl SpillPlace {
    /// The directory itself, of which it is known that files there are not memory, that their room can be reserved, that they can be mapped,
    /// and that more than `memory` is free.
    ///
    /// Errors: Missing (one of these), Io (it is not there, or cannot be written to), Invalid (a threshold that is too low).
    pub fn checked(&self, memory: Bytes) -> Result<PathBuf> {
        if self.from < LEAST_FROM {
            return Err(Error::Invalid(format!("--spill-from {}: give {LEAST_FROM} or more", self.from)));
        }
        let dir = fs::canonicalize(&self.dir).map_err(|error| Error::io("find the directory", &self.dir, error))?;
        if dir.as_os_str().len() >= AT[1] {
            return Err(Error::Invalid(format!(
                "--spill {}: the path is longer than {} bytes",
                dir.display(),
                AT[1] - 1
            )));
        }
        let told = |error: rustix::io::Errno| Error::io("ask about the file system of", &dir, error);
        let found = statfs(&dir).map_err(told)?;
        let remedy = "name a directory on a disk, such as /var/tmp";
        if let Some((_, kind)) = IN_MEMORY.iter().find(|(kind, _)| *kind == found.f_type as u64) {
            let reason = format!("{} is on {kind}, whose files are memory themselves", dir.display());
            return Err(missing(reason, remedy).into());
        }
        try_file(&dir)?;
        let free = found.f_bavail * found.f_bsize as u64;
        if free < memory.0 {
            let reason = format!(
                "{} of {} are free, and a program that does not fit into {memory} takes more than that",
                Bytes(free).rounded(),
                dir.display()
            );
            return Err(missing(reason, "free some, or name another directory").into());
        }
        Ok(dir)
    }
}

/// Makes a file as the library does, and gives it back.
fn try_file(dir: &Path) -> Result<()> {
    let file = nameless(dir).map_err(|error| Error::io("make a file in", dir, error))?;
    let remedy = "name a directory on another file system (ext4 and XFS can)";
    fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64).map_err(|error| {
        let reason = format!("room cannot be reserved in {}: {}", dir.display(), io::Error::from(error));
        Error::from(missing(reason, remedy))
    })?;
    let options = MapOptions { access: Access::Write, ..MapOptions::default() };
    let mapped = Mapping::new(&file, 0, BYTES, &options);
    mapped
        .map(drop)
        .map_err(|error| missing(format!("files in {} cannot be mapped: {error}", dir.display()), remedy).into())
}

fn nameless(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT) => {
            tempfile::tempfile_in(dir)
        }
        Err(error) => Err(error.into()),
    }
}

/// The library of a run with its settings. Dropping it removes it.
pub struct SpillHome {
    home: PathBuf,
    /// Where the settings begin in the library's file.
    mark: usize,
    place: SpillPlace,
    counts: SharedNumbers<0>,
}

impl SpillHome {
    /// Writes the library of the run `name`, for blocks at `place`, of which a program may have `memory` in memory.
    ///
    /// Errors: Missing, Io, Invalid; see [`SpillPlace::checked`].
    pub fn make(name: &str, place: &SpillPlace, memory: Bytes) -> Result<SpillHome> {
        let place = SpillPlace { dir: place.checked(memory)?, from: place.from };
        let mark = LIBRARY.windows(MARK.len()).position(|bytes| bytes == MARK).ok_or_else(|| {
            missing("this majorfault was built without it: it is for x86-64", "use swap: as root, --swap-file DIR")
        })?;
        let home = base_of_library()?.join(format!("{name}{SUFFIX}"));
        let made = DirBuilder::new().mode(0o711).create(&home);
        made.map_err(|error| Error::io("make the library's directory", &home, error))?;
        match SpillHome::write(&home, mark, &place) {
            Ok(counts) => Ok(SpillHome { home, mark, place, counts }),
            Err(error) => {
                let _ = fs::remove_dir_all(&home);
                Err(error)
            }
        }
    }

    fn write(home: &Path, mark: usize, place: &SpillPlace) -> Result<SharedNumbers<0>> {
        let (library, counts) = (home.join(NAME), home.join(COUNTS));
        let settings = settings(place, &counts).ok_or(ErrorKind::InvalidFilename);
        let written = settings.map_err(io::Error::from).and_then(|settings| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&library)?;
            file.write_all(&LIBRARY[..mark])?;
            file.write_all(&settings)?;
            file.write_all(&LIBRARY[mark + MARK.len()..])
        });
        written.map_err(|error| Error::io("write the library", &library, error))?;
        let made = || -> io::Result<File> {
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&counts)?;
            fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64)?;
            Ok(file)
        };
        SharedNumbers::map(&made().map_err(|error| Error::io("make the counts", &counts, error))?, BYTES)
    }

    /// What the kernel is told of the blocks of programs that begin from now on; until then it depends on the device's read-ahead.
    ///
    /// Errors: Io.
    pub fn hint(&self, hint: SpillHint) -> Result<()> {
        let (library, at) = (self.library(), (self.mark + AT[4]) as u64);
        let write = || OpenOptions::new().write(true).open(&library)?.write_all_at(&[hint as u8], at);
        write().map_err(|error| Error::io("write the library", &library, error))
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.home.join(NAME)
    }

    /// The directory of the blocks.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// What is to be said of it before the program begins.
    pub fn remark(&self) -> Remark {
        let SpillPlace { dir, from } = &self.place;
        let found = format!("blocks of {from} or more go into files without names in {}", dir.display());
        Remark { found, remedy: String::new() }
    }

    /// What became of the blocks so far.
    pub fn facts(&self) -> SpillFacts {
        let word = |at: usize| self.counts.words()[at].load(Ordering::Relaxed);
        let count = |count: SpillCount| word(count as usize);
        let stayed = |why: Stay| StayedBlocks { why, blocks: word(why.word()), bytes: word(why.word() + 1) };
        SpillFacts {
            dir: self.place.dir.clone(),
            from: self.place.from.0,
            processes: count(SpillCount::Processes),
            blocks: count(SpillCount::Blocks),
            bytes: count(SpillCount::Bytes),
            most: count(SpillCount::Most),
            forks: count(SpillCount::Forks),
            copied: count(SpillCount::Copied),
            ended: count(SpillCount::Ended),
            stayed: STAYS.into_iter().map(stayed).filter(|stayed| stayed.blocks > 0).collect(),
        }
    }

    /// Leaves it, because what runs on starts more; a later run removes it.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for SpillHome {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.home) {
            eprintln!("majorfault: the directory {} stays ({error}); remove it", self.home.display());
        }
    }
}

/// What stands in the place of the mark; `None` where a path has no room there.
fn settings(place: &SpillPlace, counts: &Path) -> Option<[u8; MARK.len()]> {
    let mut settings = [0; MARK.len()];
    let mut put = |at: usize, bytes: &[u8]| settings[at..at + bytes.len()].copy_from_slice(bytes);
    let (dir, counts) = (place.dir.as_os_str().as_bytes(), counts.as_os_str().as_bytes());
    if dir.len() >= AT[1] || counts.len() >= AT[2] - AT[1] {
        return None;
    }
    put(AT[0], dir);
    put(AT[1], counts);
    put(AT[2], &place.from.0.to_le_bytes());
    let copies = statfs(&place.dir).is_ok_and(|found| found.f_type as u64 == COPIES_ON_WRITE);
    let hint = SpillHint::unadvised(read_ahead(&place.dir));
    put(AT[3], &[rustix::param::page_size().trailing_zeros() as u8, hint as u8, u8::from(copies)]);
    Some(settings)
}

/// The run's blocks in sentences.
pub fn sentences(facts: &SpillFacts) -> Vec<String> {
    let size = |bytes: u64| Bytes(bytes).rounded();
    let SpillFacts { dir, from, processes, blocks, bytes, most, forks, copied, ended, stayed } = facts;
    let of = match (blocks, processes) {
        (_, 0) => "no process has loaded the library of --spill: it may be static, or of another user".to_owned(),
        (0, _) => format!("no block went into a file: none of {} or more was asked of malloc(3)", size(*from)),
        _ => format!(
            "in files in {}: {blocks} blocks, {} in all, at most {} of one process at once",
            dir.display(),
            size(*bytes),
            size(*most)
        ),
    };
    let copies = (*forks > 0).then(|| format!("{} were copied for {forks} forks", size(*copied)));
    let ended = (*ended > 0)
        .then(|| format!("{ended} forked processes were ended, because there was no room for their copies"));
    let stayed = stayed
        .iter()
        .map(|it| format!("{} blocks ({}) stayed in memory: {}", it.blocks, size(it.bytes), it.why.name()));
    [Some(of), copies, ended].into_iter().flatten().chain(stayed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> SpillPlace {
        SpillPlace { dir: "/var/tmp".into(), from: Bytes(0x1_2345) }
    }

    #[test]
    fn the_library_within_this_program_has_the_mark_once_and_needs_no_other() {
        let marks = LIBRARY.windows(MARK.len()).filter(|bytes| bytes == MARK).count();
        let elf = elf::ElfBytes::<elf::endian::NativeEndian>::minimal_parse(LIBRARY).unwrap();
        let entries: Vec<_> = elf.dynamic().unwrap().unwrap().iter().collect();
        let needed = entries.iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED).count();
        let flags = entries.iter().find(|entry| entry.d_tag == elf::abi::DT_FLAGS_1).unwrap().d_val();

        assert_eq!((marks, needed), (1, 0));
        assert!(flags & elf::abi::DF_1_INITFIRST as u64 != 0, "its handlers of fork are the first");
    }

    #[test]
    fn the_settings_stand_where_the_library_reads_them() {
        let settings = settings(&place(), Path::new("/dev/shm/counts")).unwrap();

        assert!(settings.starts_with(b"/var/tmp\0") && settings[240..].starts_with(b"/dev/shm/counts\0"));
        assert_eq!(settings[480..489], [0x45, 0x23, 1, 0, 0, 0, 0, 0, 12]);
        let long = SpillPlace { dir: format!("/{}", "x".repeat(239)).into(), ..place() };
        assert_eq!(super::settings(&long, Path::new("/c")), None);
    }

    #[test]
    fn a_device_that_reads_far_ahead_is_told_to_read_single_pages() {
        let hints = [None, Some(128), Some(256), Some(257), Some(8192)].map(SpillHint::unadvised);

        assert_eq!(hints, [[SpillHint::Usual; 3].as_slice(), &[SpillHint::Single; 2]].concat()[..]);
    }

    #[test]
    fn what_became_of_blocks_is_told_in_sentences() {
        let stayed = vec![StayedBlocks { why: Stay::NoRoom, blocks: 2, bytes: 9 << 20 }];
        let facts = SpillFacts {
            dir: "/d".into(),
            from: 1 << 20,
            processes: 3,
            blocks: 4,
            bytes: 64 << 20,
            ..SpillFacts::default()
        };
        let more = SpillFacts { most: 32 << 20, forks: 5, copied: 6 << 20, ended: 1, stayed, ..facts.clone() };

        assert_eq!(
            sentences(&more),
            [
                "in files in /d: 4 blocks, 64.0 MiB in all, at most 32.0 MiB of one process at once",
                "6.00 MiB were copied for 5 forks",
                "1 forked processes were ended, because there was no room for their copies",
                "2 blocks (9.00 MiB) stayed in memory: the file system is full",
            ]
        );
        let said = |facts: SpillFacts| sentences(&facts).concat();
        assert!(said(SpillFacts { blocks: 0, ..facts }).contains("none of 1.00 MiB or more was asked of malloc(3)"));
        assert!(said(SpillFacts::default()).contains("no process has loaded the library"));
    }
}
