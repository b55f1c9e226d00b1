//! A swap file for one run: made, used, and removed at its end; after a SIGKILL by the next run.
//!
//! A note in the state folder says which file it is, from before it is made until it is gone. The file's name is the run's, whose group tells
//! whether somebody still needs it.

use super::preflight::rotation;
use crate::place::run_group;
use majorfault::sys::swap::{swap_off, swap_on};
use majorfault::{Bytes, Error, Missing, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where notes are kept: swap files are root's.
const NOTES: &str = "/var/lib/majorfault/swap";

/// The end of the name of the only setting that is changed.
const ROTATIONAL: &str = "queue/rotational";

/// How often the limit fits into a swap file whose size nobody named.
const TIMES: u64 = 4;

/// Where a swap file is to be, and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapPlace {
    /// The directory.
    pub dir: PathBuf,
    /// Bytes; `None` is four times the limit, at most half of what is free there.
    pub size: Option<Bytes>,
}

impl std::str::FromStr for SwapPlace {
    type Err = String;

    /// `DIR` or `DIR:SIZE`. A directory whose name has a colon is given with a size, or a slash at its end.
    fn from_str(text: &str) -> std::result::Result<SwapPlace, String> {
        match text.rsplit_once(':') {
            Some((dir, size)) if !size.contains('/') && !dir.is_empty() => {
                let size = size.parse::<Bytes>().map_err(|error| format!("the size after the colon: {error}"))?;
                Ok(SwapPlace { dir: dir.into(), size: Some(size) })
            }
            _ if text.is_empty() => Err("name a directory".to_owned()),
            _ => Ok(SwapPlace { dir: text.into(), size: None }),
        }
    }
}

/// A swap file in use. Dropping it takes it out of use and removes it.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    size: Bytes,
    note: PathBuf,
}

/// What the state folder says of a swap file.
#[derive(Debug, Serialize, Deserialize)]
struct SwapNote {
    swap_file: PathBuf,
    /// The setting of its disk that is 0 for the moment of swapon, and 1 otherwise.
    #[serde(default)]
    unrotated: Option<PathBuf>,
}

/// What was found of earlier runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftSwap {
    /// Files that were removed.
    pub removed: Vec<PathBuf>,
    /// Files that are still there, and why.
    pub kept: Vec<(PathBuf, String)>,
}

impl SwapFile {
    /// Makes and uses a swap file for the run `name`.
    ///
    /// Errors: Missing (rights, room, a file system that takes no swap files), Io.
    pub fn make(place: &SwapPlace, name: &str, limit: Bytes) -> Result<SwapFile> {
        SwapFile::make_noted(place, name, limit, Path::new(NOTES))
    }

    fn make_noted(place: &SwapPlace, name: &str, limit: Bytes, notes: &Path) -> Result<SwapFile> {
        if !rustix::process::geteuid().is_root() {
            let remedy = "run as root, or ask for a swap file: fallocate -l 8G FILE; mkswap FILE; swapon FILE";
            return Err(Missing::new("a swap file", "only root may add one", remedy).into());
        }
        let dir = fs::canonicalize(&place.dir).map_err(|error| Error::io("find the directory", &place.dir, error))?;
        let size = size(&dir, place.size, limit)?;
        // From here on whatever fails is taken back by dropping it.
        let swap = SwapFile { path: dir.join(format!("{name}.swap")), size, note: notes.join(format!("{name}.json")) };
        fs::create_dir_all(notes).map_err(|error| Error::io("make the state folder", notes, error))?;
        swap.write_note(None)?;
        swap.fill()?;
        swap.prepare()?;
        let rotating = rotating(&swap.path);
        // Noted before it is changed, so that the next run sets it back where we are killed between.
        swap.write_note(rotating.clone())?;
        let unrotated = rotating.and_then(Unrotated::of);
        swap_on(&swap.path).map_err(|error| refused(&swap.path, &error))?;
        drop(unrotated);
        swap.write_note(None)?;
        Ok(swap)
    }

    fn write_note(&self, unrotated: Option<PathBuf>) -> Result<()> {
        let write = || -> io::Result<()> {
            let note = SwapNote { swap_file: self.path.clone(), unrotated };
            let mut file = File::create(&self.note)?;
            file.write_all(&serde_json::to_vec(&note)?)?;
            file.sync_all()
        };
        write().map_err(|error| Error::io("note the swap file", &self.note, error))
    }

    /// A file whose blocks are all there, as the kernel wants it.
    fn fill(&self) -> Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        let file = file.map_err(|error| Error::io("make the swap file", &self.path, error))?;
        let reserved = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, self.size.0);
        reserved.map_err(|error| {
            let error = Error::io(format!("reserve {} for the swap file", self.size), &self.path, error);
            error.with_remedy("name a directory on a disk with more room: ext4 and XFS take swap files")
        })
    }

    fn prepare(&self) -> Result<()> {
        let made = Command::new("mkswap").arg(&self.path).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        match made {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(Error::Invalid(format!("mkswap refused {}: {said}", self.path.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Missing::new("mkswap", "it is not installed", "apt-get install util-linux").into())
            }
            Err(error) => Err(Error::io("start", "mkswap", error)),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Leaves it in use, because what runs on needs it; a later run removes it.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if let Err(error) = take_out(&self.path, &self.note) {
            eprintln!(
                "majorfault: the swap file {} stays in use ({error}); swapoff it and remove it",
                self.path.display()
            );
        }
    }
}

/// A virtual disk that says it rotates, and says that it does not as long as this lives: the kernel asks once, when swapping begins, and
/// would keep streams apart less well.
struct Unrotated(PathBuf);

impl Unrotated {
    fn of(setting: PathBuf) -> Option<Unrotated> {
        fs::write(&setting, "0").is_ok().then_some(Unrotated(setting))
    }
}

/// The setting of the file's disk by which it rotates, where it is a virtual one.
fn rotating(path: &Path) -> Option<PathBuf> {
    let (setting, is_virtual) = rotation(path)?;
    let says_so = fs::read_to_string(&setting).is_ok_and(|text| text.trim() == "1");
    (is_virtual && says_so).then_some(setting)
}

impl Drop for Unrotated {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.0, "1") {
            eprintln!("majorfault: {} stays 0: {error}", self.0.display());
        }
    }
}

/// Bytes of a swap file in `dir`.
fn size(dir: &Path, wanted: Option<Bytes>, limit: Bytes) -> Result<Bytes> {
    let free = rustix::fs::statvfs(dir).map_err(|error| Error::io("ask for the free room in", dir, error))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    let size = wanted.map_or(limit.0.saturating_mul(TIMES).min(free / 2), |size| size.0) >> 20 << 20;
    match () {
        () if size < 1 << 20 => Err(Error::Invalid(format!("a swap file in {} needs at least 1m", dir.display()))),
        () if size > free => {
            let reason = format!("{} has {} free and not {}", dir.display(), Bytes(free).rounded(), Bytes(size));
            Err(Missing::new("a swap file", reason, "name another directory, or a size: --swap-file DIR:SIZE").into())
        }
        () => Ok(Bytes(size)),
    }
}

fn refused(path: &Path, error: &io::Error) -> Error {
    let reason = format!("swapon {}: {error}", path.display());
    let remedy = match error.kind() {
        io::ErrorKind::InvalidInput => {
            "name a directory on ext4 or XFS: tmpfs, overlayfs and copy-on-write files take no swap files"
        }
        _ => "run as root outside of containers that forbid it (CAP_SYS_ADMIN)",
    };
    Missing::new("a swap file", reason, remedy).told_by(error).into()
}

/// Takes the file out of use and removes it, then its note.
fn take_out(path: &Path, note: &Path) -> io::Result<()> {
    match swap_off(path) {
        // It was not in use, or is not there.
        Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
            return Err(error);
        }
        _ => {}
    }
    for path in [path, note] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes swap files of runs whose makers are gone, but for those that are `running` still.
pub fn remove_left(running: &[String]) -> LeftSwap {
    remove_noted(running, Path::new(NOTES))
}

fn remove_noted(running: &[String], notes: &Path) -> LeftSwap {
    let mut left = LeftSwap::default();
    for entry in fs::read_dir(notes).into_iter().flatten().flatten() {
        let note = entry.path();
        let Some(name) = note.file_stem().and_then(|name| name.to_str()).filter(|name| run_group::is_left(name)) else {
            continue;
        };
        // Only what a run has made: a note cannot name another file.
        let is_of_run = |note: &SwapNote| note.swap_file.file_name().is_some_and(|it| it == &*format!("{name}.swap"));
        let Some(SwapNote { swap_file: path, unrotated }) = noted(&note).filter(is_of_run) else { continue };
        // Dropping it sets it back.
        drop(unrotated.filter(|setting| setting.ends_with(ROTATIONAL)).map(Unrotated));
        match running.iter().any(|other| other == name) {
            true => left.kept.push((path, "its program still runs".to_owned())),
            false => match take_out(&path, &note) {
                Ok(()) => left.removed.push(path),
                Err(error) => left.kept.push((path, error.to_string())),
            },
        }
    }
    left
}

fn noted(note: &Path) -> Option<SwapNote> {
    serde_json::from_str(&fs::read_to_string(note).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_and_perhaps_a_size() {
        let place = |text: &str| text.parse::<SwapPlace>();

        assert_eq!(place("/var/tmp"), Ok(SwapPlace { dir: "/var/tmp".into(), size: None }));
        assert_eq!(place("/a:b:8g"), Ok(SwapPlace { dir: "/a:b".into(), size: Some(Bytes::mib(8192)) }));
        assert_eq!(place("/a:b/"), Ok(SwapPlace { dir: "/a:b/".into(), size: None }));
        assert!(place("/a:8x").is_err() && place("").is_err());
    }

    #[test]
    fn a_size_that_does_not_fit_is_told_with_what_is_free() {
        let here = std::env::temp_dir();

        let missing = size(&here, Some(Bytes(1 << 60)), Bytes::mib(1)).unwrap_err().to_string();

        assert!(missing.contains("free and not") && missing.contains("--swap-file DIR:SIZE"), "{missing}");
        assert_eq!(size(&here, None, Bytes::mib(2)).unwrap(), Bytes::mib(8));
        assert!(size(&here, Some(Bytes(1000)), Bytes::mib(1)).is_err());
    }

    /// A state folder with notes of two runs whose makers are gone, and their files.
    fn left_behind() -> (tempfile::TempDir, [PathBuf; 2]) {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let files = ["majorfault-run-1-1-0", "majorfault-run-1-1-1"].map(|name| {
            let file = dir.path().join(format!("{name}.swap"));
            fs::write(&file, "x").unwrap();
            let note = SwapNote { swap_file: file.clone(), unrotated: None };
            fs::write(dir.path().join(format!("{name}.json")), serde_json::to_vec(&note).unwrap()).unwrap();
            file
        });
        (dir, files)
    }

    #[test]
    fn files_of_dead_makers_are_removed_but_for_those_still_needed() {
        let (dir, [gone, needed]) = left_behind();

        let left = remove_noted(&["majorfault-run-1-1-1".to_owned()], dir.path());

        assert_eq!(left.removed, std::slice::from_ref(&gone));
        assert_eq!(left.kept[0].0, needed);
        assert!(!gone.exists() && needed.exists());
        assert!(!gone.with_extension("json").exists() && needed.with_extension("json").exists());
    }

    #[test]
    fn a_setting_that_a_killed_run_left_changed_is_set_back_and_no_other_file_is_written() {
        let (dir, files) = left_behind();
        let settings = ["queue/rotational", "precious"].map(|name| dir.path().join(name));
        fs::create_dir(dir.path().join("queue")).unwrap();
        for (file, setting) in files.iter().zip(&settings) {
            fs::write(setting, "0").unwrap();
            let note = SwapNote { swap_file: file.clone(), unrotated: Some(setting.clone()) };
            fs::write(file.with_extension("json"), serde_json::to_vec(&note).unwrap()).unwrap();
        }

        remove_noted(&[], dir.path());

        assert_eq!(settings.map(|setting| fs::read_to_string(setting).unwrap()), ["1", "0"]);
    }

    #[test]
    fn a_note_of_another_file_removes_nothing() {
        let (dir, [gone, _]) = left_behind();
        let precious = dir.path().join("precious");
        fs::write(&precious, "x").unwrap();
        let note = SwapNote { swap_file: precious.clone(), unrotated: None };
        fs::write(gone.with_extension("json"), serde_json::to_vec(&note).unwrap()).unwrap();
        fs::write(dir.path().join("majorfault-run-1-1-7.json"), "{").unwrap();

        let left = remove_noted(&["majorfault-run-1-1-1".to_owned()], dir.path());

        assert_eq!(left.removed, Vec::<PathBuf>::new());
        assert!(precious.exists());
    }

    #[test]
    fn what_cannot_become_a_swap_file_leaves_nothing_behind() {
        let notes = tempfile::tempdir_in("/var/tmp").unwrap();
        let place = SwapPlace { dir: "/dev/shm".into(), size: Some(Bytes::mib(1)) };
        let name = run_group::run_name();

        let error = SwapFile::make_noted(&place, &name, Bytes::mib(1), notes.path()).unwrap_err();

        assert!(matches!(error, Error::Missing(_)), "{error}");
        assert!(!Path::new("/dev/shm").join(format!("{name}.swap")).exists());
        assert_eq!(fs::read_dir(notes.path()).unwrap().count(), 0);
    }
}
