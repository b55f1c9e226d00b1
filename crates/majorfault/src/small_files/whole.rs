//! One file, read whole by system calls: what every other way falls back to, and where errors are found and told.

use crate::error::{Error, Result};
use crate::units::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{File, FileType, OpenOptions};
use std::io::{IoSliceMut, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// An open regular file, and how long it was then.
pub(super) struct Found {
    file: File,
    length: u64,
}

impl Found {
    /// Opens without waiting for anybody.
    ///
    /// Errors: Invalid (not a regular file), Io.
    pub(super) fn open(path: &Path) -> Result<Found> {
        // Without O_NONBLOCK a FIFO that nobody writes to would block here for ever.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| refused(path, error))?;
        let about = file.metadata().map_err(|error| Error::io("look at the file", path, error))?;
        match other_kind(about.file_type()) {
            None => Ok(Found { file, length: about.len() }),
            Some(kind) => Err(not_regular(path, kind)),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// A socket cannot even be opened, and the kernel's word for that (no such device or address) says nothing.
fn refused(path: &Path, error: std::io::Error) -> Error {
    let is_socket = || std::fs::metadata(path).is_ok_and(|about| about.file_type().is_socket());
    match error.raw_os_error() {
        Some(libc::ENXIO) if is_socket() => not_regular(path, "a socket"),
        _ => Error::io("open the file", path, error),
    }
}

fn not_regular(path: &Path, kind: &str) -> Error {
    Error::Invalid(format!("{} is {kind}; name regular files", path.display()))
}

/// What it is, where it is not a regular file.
fn other_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a FIFO"),
        _ => Some("a device"),
    }
}

/// Reads files whole into one buffer.
pub(super) struct WholeFile {
    buffer: Vec<u8>,
    largest: Bytes,
}

impl WholeFile {
    pub(super) fn new(largest: Bytes) -> WholeFile {
        WholeFile { buffer: Vec::new(), largest }
    }

    /// The whole content, from the beginning to where a read finds the end.
    ///
    /// Errors: Invalid (longer than the largest allowed), Io.
    pub(super) fn read(&mut self, path: &Path, found: &Found) -> Result<&[u8]> {
        let Bytes(largest) = self.largest;
        if found.length > largest {
            return Err(self.too_long(path));
        }
        self.buffer.clear();
        // One byte more than it has: the read that fills it is short, and the next one finds the end.
        self.buffer.reserve(found.length as usize + 1);
        let mut limited = (&found.file).take(largest.saturating_add(1));
        let read = limited.read_to_end(&mut self.buffer);
        match read.map_err(|error| Error::io("read the file", path, error))? as u64 {
            bytes if bytes > largest => Err(self.too_long(path)),
            _ => Ok(&self.buffer),
        }
    }

    /// The whole content if it is in the page cache and as long as it was at opening; nothing is waited for.
    pub(super) fn cached(&mut self, found: &Found) -> Option<&[u8]> {
        let length = usize::try_from(found.length).ok().filter(|length| *length > 0)?;
        if found.length > self.largest.0 {
            return None;
        }
        // One byte more, which must not be there.
        self.buffer.resize(length + 1, 0);
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        match preadv2(&found.file, &mut into, 0, ReadWriteFlags::NOWAIT) {
            Ok(bytes) if bytes == length => Some(&self.buffer[..length]),
            // Not cached, another length, or an error, which `read` will tell.
            _ => None,
        }
    }

    fn too_long(&self, path: &Path) -> Error {
        let name = path.display();
        Error::Invalid(format!("{name} has more than largest={} bytes; raise largest, or map it", self.largest))
    }
}
