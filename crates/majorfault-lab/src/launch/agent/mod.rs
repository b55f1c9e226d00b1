//! Hands within the program, where it may not be advised from outside: a preloaded library whose one thread gives the advice that the
//! supervisor orders.
//!
//! The library (`agent/lib.rs` of this package, compiled by `build.rs`) is in this program, and written for each run into a directory that
//! is removed at the end, or by the next run where we were killed. A process that has loaded it puts its ring there, named by its number.

pub mod preloadable;
pub mod ring;

use super::{map_policy, spill};
use crate::place::run_group;
use majorfault::sys::shared::SharedNumbers;
use majorfault::{Error, Missing, Result};
use ring::{AgentAdvice, AgentOrder, BYTES, NUMBERS, OrderRing, RingEntry, SIGN};
use rustix::fs::{OFlags, StatVfsMountFlags, statvfs};
use rustix::thread::futex;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The library; empty where none could be built.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));

/// What stands in it where the directory's path is written.
const MARK: &[u8; 256] = include_bytes!("../../../agent/directory.mark");

/// The library's name in the directory.
const NAME: &str = "libmajorfault_agent.so";

/// How often it is asked whether an agent that is behind is still there.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How often rings of processes that have ended are removed: each takes a page of memory.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The directory of a run with the library. Dropping it removes it.
#[derive(Debug)]
pub struct AgentHome {
    dir: PathBuf,
    swept: Cell<Instant>,
}

impl AgentHome {
    /// Makes the directory of the run `name`, in memory where that can be.
    ///
    /// Errors: Missing (no place from which programs may load code; built for another processor), Io.
    pub fn make(name: &str) -> Result<AgentHome> {
        AgentHome::make_in(&bases(), name)
    }

    fn make_in(bases: &[PathBuf], name: &str) -> Result<AgentHome> {
        if LIBRARY.is_empty() {
            return Err(missing("this majorfault was built without it: it is for x86-64", "run as root").into());
        }
        let base = base_in(bases)?;
        let dir = base.join(name);
        // Others may pass, so that a program that changes its user finds the library; it finds nothing to write there.
        let made = DirBuilder::new().mode(0o711).create(&dir);
        made.map_err(|error| Error::io("make the agent's directory", &dir, error))?;
        // From here on whatever fails is taken back by dropping it.
        let home = AgentHome { dir, swept: Cell::new(Instant::now()) };
        home.write().map_err(|error| Error::io("write the agent", home.library(), error))?;
        Ok(home)
    }

    fn write(&self) -> io::Result<()> {
        let library = with_directory(LIBRARY, self.dir.as_os_str().as_bytes()).ok_or(ErrorKind::InvalidFilename)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(self.library())?;
        file.write_all(&library)
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// The agent of process `pid`.
    ///
    /// Errors: NotFound (it has none: forked without exec, static, of another user, ended), others of opening its ring.
    pub fn agent(&self, pid: u32) -> io::Result<AgentLink> {
        let path = self.dir.join(pid.to_string());
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        AgentLink::of(&file, pid)
    }

    /// Removes the rings of processes that have ended, now and then.
    pub fn sweep(&self) {
        if self.swept.get().elapsed() >= SWEEP_EVERY {
            self.swept.set(Instant::now());
            remove_ended(&self.dir);
        }
    }

    /// Leaves it, because what runs on starts more; a later run removes it.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for AgentHome {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("majorfault: the directory {} stays ({error}); remove it", self.dir.display());
        }
    }
}

fn remove_ended(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.trim_end_matches('+').parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // The process may have removed it itself.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn missing(reason: &str, remedy: &str) -> Missing {
    Missing::new("the agent within the program", reason, remedy)
}

/// A directory from which programs may load code, memory first.
///
/// Errors: there is none.
pub fn base_of_library() -> std::result::Result<PathBuf, Missing> {
    base_in(&bases())
        .cloned()
        .map_err(|missing| Missing::new("a library within the program", missing.reason, missing.remedy))
}

fn base_in(bases: &[PathBuf]) -> std::result::Result<&PathBuf, Missing> {
    let reason = "no directory for it: the usual ones are missing, or no code may be loaded from them (noexec)";
    let remedy = "set TMPDIR to a directory of yours on another file system";
    bases.iter().find(|base| is_fit(base)).ok_or_else(|| missing(reason, remedy))
}

/// Where the directory may be: memory first.
fn bases() -> Vec<PathBuf> {
    let variables = ["XDG_RUNTIME_DIR", "TMPDIR"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let [runtime, temporary] = variables;
    let all = [Some("/dev/shm".into()), runtime, temporary, Some("/tmp".into()), Some("/var/tmp".into())];
    all.into_iter().flatten().collect()
}

/// Whether programs may load code from there, and the loader takes its path, which spaces and colons would end.
fn is_fit(base: &Path) -> bool {
    let path = base.as_os_str().as_bytes();
    let is_plain = base.is_absolute() && path.len() < 150 && !path.iter().any(|byte| b" \t\n:;$".contains(byte));
    let runs = statvfs(base).is_ok_and(|here| !here.f_flag.contains(StatVfsMountFlags::NOEXEC));
    is_plain && runs && rustix::fs::access(base, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The library that knows its directory; `None` where that has no room.
fn with_directory(library: &[u8], directory: &[u8]) -> Option<Vec<u8>> {
    let at = library.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    if directory.len() >= MARK.len() {
        return None;
    }
    let mut library = library.to_vec();
    let place = &mut library[at..at + MARK.len()];
    place.fill(0);
    place[..directory.len()].copy_from_slice(directory);
    place[MARK.len() - 1] = rustix::param::page_size().trailing_zeros() as u8;
    Some(library)
}

/// The value of LD_PRELOAD with the libraries behind what is there.
pub fn preload(libraries: &[PathBuf], before: Option<OsString>) -> OsString {
    let mut value = before.unwrap_or_default();
    for library in libraries {
        if !value.is_empty() {
            value.push(OsStr::new(":"));
        }
        value.push(library);
    }
    value
}

/// Removes directories of runs whose makers are gone, but for those that are `running` still.
pub fn remove_left(running: &[String]) {
    remove_left_in(&bases(), running);
}

fn remove_left_in(bases: &[PathBuf], running: &[String]) {
    let own = rustix::process::geteuid().as_raw();
    for entry in bases.iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten() {
        let is_left = entry
            .file_name()
            .to_str()
            .is_some_and(|name| run_group::is_left(name) && !running.iter().any(|other| of_run(name) == other));
        // A directory itself and of ours: anybody may write into /tmp.
        let is_ours = || fs::symlink_metadata(entry.path()).is_ok_and(|meta| meta.is_dir() && meta.uid() == own);
        if is_left && is_ours() {
            // What stays is tried by the next run.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The run whose directory has this name.
fn of_run(name: &str) -> &str {
    let run = [spill::SUFFIX, map_policy::SUFFIX].into_iter().find_map(|suffix| name.strip_suffix(suffix));
    run.unwrap_or(name)
}

/// The agent of a process: the way orders go to it.
#[derive(Debug)]
pub struct AgentLink {
    shared: SharedNumbers<NUMBERS>,
    /// The agent's thread, as long as it lives.
    thread: PathBuf,
    asked: Instant,
}

/// How orders were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All are in the ring.
    All,
    /// The agent is behind, and some were not put into the ring: late advice is no advice.
    Some,
    /// There is no agent any more.
    Gone,
}

impl AgentLink {
    fn of(file: &File, pid: u32) -> io::Result<AgentLink> {
        let shared = SharedNumbers::map(file, BYTES).map_err(|error| io::Error::other(error.to_string()))?;
        let ring = OrderRing { numbers: shared.numbers(), slots: shared.words() };
        // Acquire: who sees the sign sees the thread.
        let is_ready = ring.number(RingEntry::Sign).load(Ordering::Acquire) == SIGN;
        let thread = ring.number(RingEntry::Thread).load(Ordering::Relaxed);
        let thread = PathBuf::from(format!("/proc/{pid}/task/{thread}"));
        // The ring of a program that was there before, under this number.
        if !is_ready || !thread.exists() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(AgentLink { shared, thread, asked: Instant::now() })
    }

    /// Orders advice for pages.
    pub fn advise(&mut self, pages: &[Range<u64>], advice: AgentAdvice) -> Taken {
        let ring = OrderRing { numbers: self.shared.numbers(), slots: self.shared.words() };
        if !ring.is_done() && self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            if !self.thread.exists() {
                return Taken::Gone;
            }
        }
        let mut orders =
            pages.iter().map(|range| AgentOrder { first: range.start, pages: range.end - range.start, advice });
        // In turn, and none behind one that found no room.
        let has_room = orders.all(|order| ring.post(order));
        ring.ring(|bell| {
            // It may be awake.
            let _ = futex::wake(bell, futex::Flags::empty(), 1);
        });
        if has_room { Taken::All } else { Taken::Some }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_knows_its_directory_and_the_size_of_a_page() {
        let library = [b"before".as_slice(), MARK, b"after"].concat();

        let made = with_directory(&library, b"/dev/shm/run").unwrap();

        assert_eq!(made.len(), library.len());
        assert!(made.starts_with(b"before/dev/shm/run\0\0") && made.ends_with(b"\0\x0cafter"));
        assert_eq!(with_directory(&library, &[b'x'; 256]), None);
        assert_eq!(with_directory(b"without a mark", b"/x"), None);
    }

    #[test]
    fn the_library_within_this_program_has_the_mark_once_and_needs_no_other() {
        let marks = LIBRARY.windows(MARK.len()).filter(|bytes| bytes == MARK).count();
        let elf = elf::ElfBytes::<elf::endian::NativeEndian>::minimal_parse(LIBRARY).unwrap();
        let needed = elf.dynamic().unwrap().unwrap().iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED).count();
        let (symbols, names) = elf.dynamic_symbol_table().unwrap().unwrap();
        let seen = |symbol: elf::symbol::Symbol| {
            (names.get(symbol.st_name as usize).unwrap().to_owned(), symbol.st_bind() == elf::abi::STB_WEAK)
        };
        let mut symbols: Vec<_> = symbols.iter().skip(1).map(seen).collect();
        symbols.sort();

        assert_eq!((marks, needed), (1, 0));
        let weak_or_ours = [("__errno_location", true), ("setns", false), ("unshare", false)];
        assert_eq!(symbols, weak_or_ours.map(|(name, weak)| (name.to_owned(), weak)));
    }

    #[test]
    fn what_is_preloaded_already_stays_in_front() {
        let library = [PathBuf::from("/dev/shm/a.so")];

        assert_eq!(preload(&library, None), "/dev/shm/a.so");
        assert_eq!(preload(&library, Some(OsString::new())), "/dev/shm/a.so");
        assert_eq!(preload(&library, Some("/b.so:/c.so".into())), "/b.so:/c.so:/dev/shm/a.so");
        assert_eq!(preload(&["/d.so".into(), "/e.so".into()], None), "/d.so:/e.so");
    }

    #[test]
    fn a_place_that_the_loader_would_not_take_is_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let [spaced, plain] = ["a b", "plain"].map(|name| base.path().join(name));
        [&spaced, &plain].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let bases = [base.path().join("missing"), spaced.clone(), "relative".into(), plain.clone()];

        let home = AgentHome::make_in(&bases, "run").unwrap();

        assert_eq!(home.library(), plain.join("run").join(NAME));
        drop(home);
        assert_eq!(fs::read_dir(&plain).unwrap().count(), 0);
        assert!(AgentHome::make_in(&bases[..3], "run").unwrap_err().to_string().contains("TMPDIR"));
    }

    #[test]
    fn directories_of_dead_makers_are_removed_but_for_those_still_needed() {
        let base = tempfile::tempdir().unwrap();
        let names = ["majorfault-run-1-1-0", "majorfault-run-1-1-1", "precious"].map(|name| base.path().join(name));
        names.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let link = base.path().join("majorfault-run-1-1-2");
        std::os::unix::fs::symlink(&names[2], &link).unwrap();

        remove_left_in(&[base.path().to_owned()], &["majorfault-run-1-1-1".to_owned()]);

        assert_eq!([&names[0], &names[1], &names[2], &link].map(|path| path.exists()), [false, true, true, true]);
    }

    #[test]
    fn rings_of_processes_that_have_ended_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id().to_string();
        let names = [own.as_str(), "4194999", "4194998+", NAME];
        names.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());

        remove_ended(dir.path());

        assert_eq!(names.map(|name| dir.path().join(name).exists()), [true, false, false, true]);
    }

    /// A ring as an agent leaves it, whose thread is this number.
    fn ring_file(thread: u32) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let shared = SharedNumbers::<NUMBERS>::map(&file, BYTES).unwrap();
        shared.numbers()[RingEntry::Thread as usize].store(thread, Ordering::Relaxed);
        shared.numbers()[RingEntry::Sign as usize].store(SIGN, Ordering::Relaxed);
        file
    }

    #[test]
    fn the_ring_of_an_agent_that_is_gone_is_not_taken() {
        let own = std::process::id();

        assert!(AgentLink::of(&ring_file(own), own).is_ok());
        assert_eq!(AgentLink::of(&ring_file(1), own).unwrap_err().kind(), ErrorKind::NotFound);
        let unready = tempfile::tempfile().unwrap();
        unready.set_len(BYTES as u64).unwrap();
        assert_eq!(AgentLink::of(&unready, own).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn an_agent_that_is_behind_gets_no_more_and_one_that_is_gone_is_noticed() {
        let own = std::process::id();
        let mut link = AgentLink::of(&ring_file(own), own).unwrap();
        let some: Vec<Range<u64>> = (0..300).map(|page| 2 * page..2 * page + 1).collect();

        assert_eq!(link.advise(&some, AgentAdvice::WillNeed), Taken::All);
        assert_eq!(link.advise(&some, AgentAdvice::WillNeed), Taken::Some);
        link.thread = "/proc/self/task/1".into();
        assert_eq!(link.advise(&some, AgentAdvice::WillNeed), Taken::Some, "it is not asked at each order");
        link.asked = Instant::now() - ASK_EVERY;
        assert_eq!(link.advise(&some, AgentAdvice::WillNeed), Taken::Gone);
    }
}
