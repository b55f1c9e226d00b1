//! Data files that the tool makes for itself: on a real disk, without a name, gone when the process is gone.

use crate::data::{MadeContent, PAGE};
use majorfault::sys::cache;
use majorfault::{Bytes, Error, Extent, Missing, Need, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statfs};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes written at once while making the content.
const PIECE: usize = 1 << 20;

/// File systems in memory, by the magic number of statfs(2): they have no cold state and no device.
const IN_MEMORY: &[(i64, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];

/// A disk for made files.
pub const DISK: Need = Need {
    name: "test data",
    summary: "a directory on a disk with room for the gigabyte that compare makes",
    probe: || {
        let found = directory(None, Bytes::gib(1)).map(|dir| dir.display().to_string());
        found.map_err(|error| Missing::new("test data", error.to_string(), "give --dir DIRECTORY, or a smaller --size"))
    },
};

/// Made files, open; dropping it removes them, and so does the end of the process however it comes.
pub struct Scratch {
    files: Vec<File>,
    dir: PathBuf,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Bytes over all files.
    pub size: Bytes,
    /// Number of files that share them.
    pub files: usize,
    /// Bytes of one file before the next one's turn.
    pub stripe: Bytes,
    /// Seed of the content.
    pub seed: u64,
}

/// The directory for made files: `asked`, or the first of /var/tmp, the working directory and /tmp that lies on a disk
/// with room for `size`.
///
/// Errors: Invalid, naming each directory with its reason.
pub fn directory(asked: Option<&Path>, size: Bytes) -> Result<PathBuf> {
    let usual = [PathBuf::from("/var/tmp"), PathBuf::from("."), PathBuf::from("/tmp")];
    let candidates = asked.map_or(usual.to_vec(), |dir| vec![dir.to_owned()]);
    let mut reasons = Vec::new();
    for dir in candidates {
        match unfit(&dir, size) {
            None => return Ok(dir),
            Some(reason) => reasons.push(format!("{} {reason}", dir.display())),
        }
    }
    Err(Error::Invalid(format!(
        "there is no place for {} of test data: {}; name a directory on a disk with --dir, or less data with --size",
        size.rounded(),
        reasons.join(", ")
    )))
}

/// The name of the file system in memory that a path is on, if it is on one.
pub fn in_memory(path: &Path) -> Option<&'static str> {
    let magic = statfs(path).ok()?.f_type as i64;
    IN_MEMORY.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Why test data cannot be made there.
fn unfit(dir: &Path, size: Bytes) -> Option<String> {
    let stat = match statfs(dir) {
        Ok(stat) => stat,
        Err(error) => return Some(format!("cannot be looked at ({error})")),
    };
    if let Some(name) = in_memory(dir) {
        return Some(format!("lies in memory ({name})"));
    }
    let room = Bytes(stat.f_bavail * stat.f_bsize as u64);
    // A tenth is left free: a full disk is slow, and other programs live on it.
    if room.0 < size.0 + size.0 / 10 {
        return Some(format!("has only {} free", room.rounded()));
    }
    unnamed(dir).err().map(|error| error.to_string())
}

/// A file without a name; where the file system has no such (before Linux 6.3 overlayfs), one whose name is removed at
/// once.
pub(crate) fn unnamed(dir: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    if let Ok(fd) = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(File::from(fd));
    }
    let path = dir.join(format!(".majorfault-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|error| {
        Error::io("make a data file", &path, error).with_remedy("name a writable directory with --dir")
    })?;
    std::fs::remove_file(&path).map_err(|error| Error::io("remove the name of a data file", &path, error))?;
    Ok(file)
}

impl Scratch {
    /// Makes the files in `dir`, written through to the device and dropped from the page cache. `progress` gets the
    /// bytes written so far; raising `stop` ends it early.
    ///
    /// Errors: Io (full disk: what was written is gone with the error), Invalid (sizes that do not divide).
    pub fn make(dir: &Path, wanted: &Wanted, stop: &AtomicBool, progress: impl FnMut(u64)) -> Result<Scratch> {
        Scratch::make_over(&[dir], wanted, stop, progress)
    }

    /// The same with the files in these directories in turn, of which there must be one.
    ///
    /// Errors: as [`make`](Scratch::make).
    pub fn make_over(
        dirs: &[&Path],
        wanted: &Wanted,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<Scratch> {
        let share = share(wanted)?;
        let of = |file: usize| dirs[file % dirs.len()];
        let files = (0..wanted.files).map(|file| reserved(of(file), share)).collect::<Result<Vec<_>>>()?;
        let content = MadeContent::of(wanted.seed);
        let piece = PIECE.min(wanted.stripe.0 as usize);
        let mut bytes = vec![0; piece];
        let (count, stripe) = (wanted.files as u64, wanted.stripe.0);
        let mut offset = 0;
        while offset < wanted.size.0 {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Invalid("stopped while making the data file; it is removed".to_owned()));
            }
            let length = piece.min((wanted.size.0 - offset) as usize);
            content.fill(Extent { offset, length }, 0, &mut bytes[..length])?;
            let (index, at) = if count == 1 {
                (0, offset)
            } else {
                let (turn, within) = (offset / stripe, offset % stripe);
                ((turn % count) as usize, turn / count * stripe + within)
            };
            files[index].write_all_at(&bytes[..length], at).map_err(|error| full(of(index), error))?;
            offset += length as u64;
            progress(offset);
        }
        for (index, mut file) in files.iter().enumerate() {
            file.flush().and_then(|()| file.sync_all()).map_err(|error| full(of(index), error))?;
            cache::fadvise(file, 0, share, cache::FileAdvice::DontNeed)?;
        }
        Ok(Scratch { files, dir: of(0).to_owned() })
    }

    /// Paths by which any process of this user reaches the files while this one lives.
    pub fn paths(&self) -> Vec<PathBuf> {
        use std::os::fd::AsRawFd;
        let own = std::process::id();
        self.files.iter().map(|file| PathBuf::from(format!("/proc/{own}/fd/{}", file.as_raw_fd()))).collect()
    }

    /// Where they were made.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Writes the content of made files once more, through to the device: another program put bytes of its own there.
///
/// Errors: Io.
pub fn restore(paths: &[PathBuf], seed: u64) -> Result<()> {
    let content = MadeContent::of(seed);
    let mut bytes = vec![0; PIECE];
    for path in paths {
        let rewrite = |bytes: &mut [u8]| -> Result<()> {
            let failed = |error| Error::io("make the content again", path, error);
            let file = File::options().write(true).open(path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len() / PAGE as u64 * PAGE as u64;
            for offset in (0..length).step_by(PIECE) {
                let piece = PIECE.min((length - offset) as usize);
                content.fill(Extent { offset, length: piece }, 0, &mut bytes[..piece])?;
                file.write_all_at(&bytes[..piece], offset).map_err(failed)?;
            }
            file.sync_all().map_err(failed)
        };
        rewrite(&mut bytes)?;
    }
    Ok(())
}

/// Bytes of each file.
fn share(wanted: &Wanted) -> Result<u64> {
    let Wanted { size, files, stripe, seed: _ } = wanted;
    let count = *files as u64;
    let unit = if count == 1 { PAGE as u64 } else { stripe.0 * count };
    if count == 0
        || stripe.0 == 0
        || !stripe.0.is_multiple_of(PAGE as u64)
        || size.0 == 0
        || !size.0.is_multiple_of(unit)
    {
        return Err(Error::Invalid(format!(
            "{size} cannot be made as {count} file(s) with stripes of {stripe}; the size must be a multiple of {} bytes",
            unit.max(PAGE as u64)
        )));
    }
    Ok(size.0 / count)
}

/// A file whose blocks are reserved, so that a full disk is an error now.
fn reserved(dir: &Path, length: u64) -> Result<File> {
    let file = unnamed(dir)?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(file),
        Err(error) => Err(full(dir, error.into())),
    }
}

fn full(dir: &Path, error: std::io::Error) -> Error {
    Error::io("make the data file", dir, error)
        .with_remedy("nothing is left behind; free space, name another directory with --dir, or less data with --size")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sum_words;
    use majorfault::{Layout, Target};

    static CALM: AtomicBool = AtomicBool::new(false);

    fn wanted(size: Bytes, files: usize) -> Wanted {
        Wanted { size, files, stripe: Bytes::kib(8), seed: 3 }
    }

    #[test]
    fn striped_files_hold_the_content_of_one_address_space() {
        let dir = directory(None, Bytes::mib(1)).unwrap();
        let scratch = Scratch::make(&dir, &wanted(Bytes::kib(96), 3), &CALM, |_| {}).unwrap();
        let layout = Layout { stripe: Bytes::kib(8), ..Layout::default() };
        let target = Target::open(&scratch.paths(), &layout).unwrap();

        let mut bytes = [0; PAGE];
        for page in 0..24 {
            let extent = Extent { offset: page * PAGE as u64, length: PAGE };
            let (index, offset) = target.locate(extent).unwrap();
            target.files()[index].file.read_exact_at(&mut bytes, offset).unwrap();
            assert_eq!(sum_words(&bytes), MadeContent::of(3).page_sum(page), "page {page}");
        }
    }

    #[test]
    fn what_another_program_wrote_is_made_again() {
        let dir = directory(None, Bytes::mib(3)).unwrap();
        let scratch = Scratch::make(&dir, &wanted(Bytes(PIECE as u64 + 8192), 1), &CALM, |_| {}).unwrap();
        let path = scratch.paths().remove(0);
        let made = std::fs::read(&path).unwrap();
        let foreign = File::options().write(true).open(&path).unwrap();
        foreign.write_all_at(&[7; 8192], PIECE as u64 - 100).unwrap();
        assert!(std::fs::read(&path).unwrap() != made);

        restore(std::slice::from_ref(&path), 3).unwrap();

        assert!(std::fs::read(&path).unwrap() == made);
    }

    #[test]
    fn data_is_never_made_in_memory() {
        let error = directory(Some(Path::new("/dev/shm")), Bytes::mib(1)).unwrap_err();

        assert!(error.to_string().contains("lies in memory (tmpfs)"), "{error}");
    }

    #[test]
    fn a_directory_without_room_is_named_with_what_it_has() {
        let error = directory(Some(Path::new("/var/tmp")), Bytes(1 << 60)).unwrap_err();

        assert!(error.to_string().contains("/var/tmp has only"), "{error}");
    }

    #[test]
    fn made_files_have_no_name() {
        let parent = directory(None, Bytes::mib(1)).unwrap();
        let dir = parent.join(format!("majorfault-test-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let scratch = Scratch::make(&dir, &wanted(Bytes::kib(64), 1), &CALM, |_| {}).unwrap();

        let names = std::fs::read_dir(&dir).unwrap().count();

        drop(scratch);
        std::fs::remove_dir(&dir).unwrap();
        assert_eq!(names, 0);
    }
}
