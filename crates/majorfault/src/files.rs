//! The bytes that are reached: one file, or several striped into one address space, opened and checked once.

use crate::error::{Error, Result};
use crate::units::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A range of bytes in a [`Target`]'s address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First byte, counted from the start of the target (not of a file).
    pub offset: u64,
    /// Bytes; never zero.
    pub length: usize,
}

/// How files become one address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the used range begins in each file.
    pub offset: Bytes,
    /// Length of the used range over all files; `None` means all there is.
    pub size: Option<Bytes>,
    /// Bytes taken from one file before the next file's turn, as in RAID 0. Has no meaning for one file.
    pub stripe: Bytes,
    /// Whether bytes may be written.
    pub write: bool,
}

/// An open target: every file checked, the address space laid out.
#[derive(Debug)]
pub struct Target {
    files: Vec<TargetFile>,
    /// Where the only file's range begins, if there is only one file.
    only_start: Option<u64>,
    stripe: u64,
    length: u64,
    writable: bool,
    /// Whether the caller promised that nobody changes the files.
    unchanged: bool,
}

/// One file of a target.
#[derive(Debug)]
pub struct TargetFile {
    /// The path given by the user.
    pub path: PathBuf,
    /// Open for reading, and for writing where the target is writable.
    pub file: File,
    /// Where the used range begins.
    pub start: u64,
    /// Bytes used from there.
    pub length: u64,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { offset: Bytes(0), size: None, stripe: Bytes::mib(1), write: false }
    }
}

impl Target {
    /// Opens `paths` as one address space. Several files take equal shares, in turns of `layout.stripe` bytes.
    ///
    /// Errors: Io (missing, unreadable), Invalid (no file given, a directory or FIFO, an empty file, a range outside the
    /// file, a stripe that is not a multiple of 4096).
    pub fn open(paths: &[PathBuf], layout: &Layout) -> Result<Target> {
        let stripe = layout.stripe.0;
        if paths.is_empty() {
            return Err(Error::Invalid("no file is named; name a file or a block device".to_owned()));
        }
        if stripe == 0 || stripe % 4096 != 0 {
            return Err(Error::Invalid(format!("a stripe of {} is not a multiple of 4096 bytes", layout.stripe)));
        }
        let mut files = paths.iter().map(|path| TargetFile::open(path, layout)).collect::<Result<Vec<_>>>()?;
        let length = if files.len() == 1 { files[0].length } else { equal_shares(&mut files, stripe)? };
        let used = layout.size.map_or(length, |size| size.0.min(length));
        if layout.size.is_some_and(|size| size.0 > length || size.0 == 0) {
            return Err(Error::Invalid(format!(
                "a size of {} is too large: the file has {} bytes from the offset on",
                layout.size.unwrap_or_default(),
                length
            )));
        }
        let only_start = if let [only] = files.as_slice() { Some(only.start) } else { None };
        Ok(Target { files, only_start, stripe, length: used, writable: layout.write, unchanged: false })
    }

    /// The `length` bytes from `start` on of a file that is open for reading; `path` is for messages.
    pub(crate) fn of_open(file: File, path: &Path, start: u64, length: u64) -> Target {
        let files = vec![TargetFile { path: path.to_owned(), file, start, length }];
        Target { files, only_start: Some(start), stripe: length, length, writable: false, unchanged: false }
    }

    /// Promises that nobody changes the bytes, so that mapped methods lend them in place. Without it they show copies.
    ///
    /// # Safety
    ///
    /// While a reader shows bytes of this target:
    ///
    /// - nobody changes them except that reader's own siblings by `update`: no other program, no other mapping of the files, no
    ///   other reader that was opened separately, even of this target;
    /// - nobody truncates the files, and they can be read: a page that is missing becomes zeros where it is shown.
    #[allow(unsafe_code, reason = "a promise that only the caller can give; nothing unsafe is done here")]
    pub unsafe fn assume_unchanged(self) -> Target {
        Target { unchanged: true, ..self }
    }

    /// Whether [`assume_unchanged`](Target::assume_unchanged) was promised.
    pub fn is_assumed_unchanged(&self) -> bool {
        self.unchanged
    }

    /// Whether two of the files are the same, so that the same bytes have two positions. True where this cannot be found out.
    pub(crate) fn has_twins(&self) -> bool {
        let id = |file: &TargetFile| file.file.metadata().map(|meta| (meta.dev(), meta.ino(), meta.rdev())).ok();
        let ids: Vec<_> = self.files.iter().map(id).collect();
        ids.len() > 1 && (ids.contains(&None) || (1..ids.len()).any(|at| ids[..at].contains(&ids[at])))
    }

    /// The files in order of their turn.
    pub fn files(&self) -> &[TargetFile] {
        &self.files
    }

    /// Bytes of the address space.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Always false: an empty file cannot be opened.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes taken from one file before the next file's turn; the whole length where there is only one file.
    pub fn stripe(&self) -> u64 {
        if self.files.len() == 1 { self.length } else { self.stripe }
    }

    /// Whether the files were opened for writing.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Fails where the files were opened for reading.
    ///
    /// Errors: Invalid.
    pub fn check_writable(&self) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        let path = self.files.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        Err(Error::Invalid(format!(
            "{path} was opened for reading only; open it for writing (Layout::write) to change it"
        )))
    }

    /// Which file holds `extent`, and at which offset in that file.
    ///
    /// Errors: Invalid where the extent is empty, passes the end, or crosses from one stripe into the next (choose a
    /// block size that divides the stripe).
    #[inline]
    pub fn locate(&self, extent: Extent) -> Result<(usize, u64)> {
        let Extent { offset, length } = extent;
        let length = length as u64;
        if length == 0 || length > self.length || offset > self.length - length {
            return Err(self.outside(extent));
        }
        match self.only_start {
            Some(start) => Ok((0, start + offset)),
            None => self.locate_in_turns(extent),
        }
    }

    /// Where several files take turns. Kept out of line, so that the case of one file is short enough to be inlined.
    #[inline(never)]
    fn locate_in_turns(&self, extent: Extent) -> Result<(usize, u64)> {
        let Extent { offset, length } = extent;
        let (turn, within) = (offset / self.stripe, offset % self.stripe);
        if within + length as u64 > self.stripe {
            return Err(self.outside(extent));
        }
        let count = self.files.len() as u64;
        let index = (turn % count) as usize;
        Ok((index, self.files[index].start + turn / count * self.stripe + within))
    }

    /// The whole address space from front to back in extents of `length` bytes, shorter where a stripe or the space ends.
    ///
    /// Panics where `length` is 0.
    pub fn pieces(&self, length: usize) -> Vec<Extent> {
        let stripe = self.stripe().max(1);
        let mut pieces = Vec::with_capacity((self.length / length as u64) as usize + 1);
        let mut offset = 0;
        while offset < self.length {
            let end = (offset + length as u64).min((offset / stripe + 1) * stripe).min(self.length);
            pieces.push(Extent { offset, length: (end - offset) as usize });
            offset = end;
        }
        pieces
    }

    #[cold]
    fn outside(&self, extent: Extent) -> Error {
        Error::Invalid(format!(
            "{} bytes at {} do not lie within one stripe ({} bytes) of the target's {} bytes",
            extent.length,
            extent.offset,
            self.stripe(),
            self.length
        ))
    }
}

impl TargetFile {
    fn open(path: &Path, layout: &Layout) -> Result<TargetFile> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(layout.write)
            // A FIFO without a writer would block here for ever; for regular files the flag has no effect.
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(|error| refused(path, layout, error))?;
        let kind = file.metadata().map_err(|error| Error::io("look at the file", path, error))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = if kind.is_dir() {
                "a directory"
            } else if kind.is_fifo() {
                "a FIFO"
            } else {
                "not a file"
            };
            return Err(Error::Invalid(format!("{} is {what}; name a regular file or a block device", path.display())));
        }
        // seek(2) gives the size of block devices too; stat(2) gives 0 for them.
        let end = file.seek(SeekFrom::End(0)).map_err(|error| Error::io("find the end of the file", path, error))?;
        let start = layout.offset.0;
        if end == 0 {
            return Err(Error::Invalid(format!("{} is empty; name a file that has bytes", path.display())));
        }
        if start >= end {
            return Err(Error::Invalid(format!(
                "the offset {} is past the end of {} ({end} bytes)",
                start,
                path.display()
            )));
        }
        Ok(TargetFile { path: path.to_owned(), file, start, length: end - start })
    }
}

fn refused(path: &Path, layout: &Layout, error: std::io::Error) -> Error {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "check the name",
        ErrorKind::PermissionDenied if layout.write => "writing needs write permission on the file",
        ErrorKind::PermissionDenied => "reading needs read permission on the file",
        ErrorKind::IsADirectory => "name a regular file or a block device",
        _ => "",
    };
    Error::io("open the file", path, error).with_remedy(remedy)
}

/// Cuts every file to the same whole number of stripes; returns the length of the address space.
fn equal_shares(files: &mut [TargetFile], stripe: u64) -> Result<u64> {
    let shortest = files.iter().map(|file| file.length).min().unwrap_or_default();
    let share = shortest / stripe * stripe;
    if share == 0 {
        return Err(Error::Invalid(format!(
            "the shortest of the files has {shortest} bytes, less than one stripe of {stripe}; choose a smaller stripe"
        )));
    }
    for file in files.iter_mut() {
        file.length = share;
    }
    Ok(share * files.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn a_file_that_is_named_twice_is_found_through_a_link() {
        let (file, other) = (TestFile::on_disk(2 << 20), TestFile::on_disk(2 << 20));
        let link = other.path().with_extension("link");
        std::fs::hard_link(file.path(), &link).unwrap();
        let twins = |paths: &[&Path]| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
            Target::open(&paths, &Layout::default()).unwrap().has_twins()
        };

        assert!(!twins(&[file.path()]) && !twins(&[file.path(), other.path()]));
        assert!(twins(&[file.path(), other.path(), &link]));
        std::fs::remove_file(link).unwrap();
    }

    #[test]
    fn pieces_cover_everything_once_and_stay_within_stripes() {
        let files = [TestFile::on_disk(10 * PAGE), TestFile::on_disk(10 * PAGE)];
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
        let layout = Layout { stripe: Bytes(4 * PAGE as u64), ..Layout::default() };
        let target = Target::open(&paths, &layout).unwrap();
        for length in [1000, PAGE, 3 * PAGE, 64 * PAGE] {
            let pieces = target.pieces(length);

            assert!(pieces.iter().all(|piece| piece.length <= length && target.locate(*piece).is_ok()));
            let mut next = 0;
            for piece in pieces {
                assert_eq!(piece.offset, next);
                next += piece.length as u64;
            }
            assert_eq!(next, target.len());
        }
    }
}
