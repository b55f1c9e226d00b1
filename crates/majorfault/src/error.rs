//! What can go wrong, in words that a user can act on: what was tried, on what, what came back, what to do.

use crate::needs::{Lack, Missing};
use crate::units::ParseError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The library's result type.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done. [`kind`](Error::kind) tells what a program can do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused or failed an operation.
    Io {
        /// What was being done, as a verb phrase: "map 4096 bytes".
        doing: String,
        /// The file it was done to.
        path: PathBuf,
        /// What came back.
        source: io::Error,
        /// What to do about it; empty where nothing more is known than the error itself.
        remedy: String,
    },
    /// A parameter, extent or file that cannot be used as given; the sentence names the value and the legal values.
    Invalid(String),
    /// The machine or the user's rights lack something.
    Missing(Missing),
    /// The file became shorter, or its bytes unreadable, while it was mapped (a SIGBUS, caught).
    Truncated {
        /// The mapped file.
        path: PathBuf,
        /// Offset in the file of the first page that was gone.
        offset: u64,
    },
    /// Another process, or another part of this one, holds what must be used by one holder alone.
    Held {
        /// What is held.
        path: PathBuf,
        /// Why it cannot be shared.
        reason: String,
    },
    /// What was open can no longer be used; the sentence says why, and what to do before it is opened again.
    Ended(String),
}

/// What a program can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Pass another value: an argument, an extent or a path cannot be used as given.
    Invalid,
    /// Open the file again: it is no longer the one that was opened (it was shortened or replaced).
    Changed,
    /// Try again later, or leave it to its holder.
    Held,
    /// Get the right to do it, as the message says; trying again with the same rights is useless.
    NotPermitted,
    /// Choose another way: this machine or kernel has no such facility.
    Missing,
    /// Start again: what was open, or the process that was watched, has ended.
    Ended,
    /// The device or the kernel failed; see [`Error::errno`].
    Io,
}

impl Error {
    /// An [`Error::Io`], with a remedy where one follows from the errno.
    pub fn io(doing: impl Into<String>, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Error {
        let source = source.into();
        let remedy = source.raw_os_error().map(usual_remedy).unwrap_or_default().to_owned();
        Error::Io { doing: doing.into(), path: path.as_ref().to_owned(), source, remedy }
    }

    /// The same error with this remedy, if it is an I/O error and the remedy is not empty.
    #[must_use]
    pub fn with_remedy(self, advice: impl Into<String>) -> Error {
        let advice = advice.into();
        match self {
            Error::Io { doing, path, source, remedy: _ } if !advice.is_empty() => {
                Error::Io { doing, path, source, remedy: advice }
            }
            other => other,
        }
    }

    /// What a program can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => kind_of(source),
            Error::Invalid(_) => ErrorKind::Invalid,
            Error::Missing(Missing { lack: Lack::NotPermitted, .. }) => ErrorKind::NotPermitted,
            Error::Missing(Missing { lack: Lack::Absent, .. }) => ErrorKind::Missing,
            Error::Truncated { .. } => ErrorKind::Changed,
            Error::Held { .. } => ErrorKind::Held,
            Error::Ended(_) => ErrorKind::Ended,
        }
    }

    /// The errno behind the error, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// What a program can do about an error from the kernel.
fn kind_of(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::EROFS) => ErrorKind::NotPermitted,
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => ErrorKind::Missing,
        Some(libc::EBUSY | libc::ETXTBSY) => ErrorKind::Held,
        Some(libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::ELOOP | libc::ENAMETOOLONG) => ErrorKind::Invalid,
        Some(libc::ESTALE) => ErrorKind::Changed,
        Some(libc::ESRCH) => ErrorKind::Ended,
        None if error.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::Changed,
        _ => ErrorKind::Io,
    }
}

/// The remedy for an errno, where it does not depend on the operation.
fn usual_remedy(errno: i32) -> &'static str {
    match errno {
        libc::EACCES => "get permission on the file and on the folders above it, or run as its owner",
        libc::EPERM => "run as root, or with the capability that this call needs",
        libc::EROFS => "mount the file system for writing",
        libc::ENOENT => "check the name",
        libc::ENOSPC => "free space on the file system",
        libc::EDQUOT => "free space within your quota of the file system",
        libc::EMFILE => "raise the limit of open files: ulimit -n",
        libc::ENFILE => "raise the machine's limit of open files: sysctl fs.file-max",
        libc::ETXTBSY => "end the program that runs from this file",
        libc::ESTALE => "open the file again; its server replaced it",
        libc::EIO => "the device failed: read the kernel's log (dmesg), and copy what is still readable",
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, source, remedy } => {
                write!(f, "could not {doing} ({}: {})", path.display(), plain(source))?;
                if remedy.is_empty() { Ok(()) } else { write!(f, "; {remedy}") }
            }
            Error::Invalid(sentence) | Error::Ended(sentence) => f.write_str(sentence),
            Error::Missing(missing) => missing.fmt(f),
            Error::Held { path, reason } => {
                write!(f, "{} is open elsewhere, in this process or another; {reason}", path.display())
            }
            Error::Truncated { path, offset } => write!(
                f,
                "the file was shortened or became unreadable while it was mapped ({}: byte {offset} is gone); \
                 keep other programs from truncating it, or use an explicit-I/O method",
                path.display()
            ),
        }
    }
}

/// The error without "(os error N)", in lower case, so that it nests in a sentence.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::Invalid(error.to_string())
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::Missing(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Pread;
    use crate::files::{Layout, Target};
    use crate::pool::PooledFile;
    use crate::test_files::{PAGE, TestFile};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_error_says_what_was_done_to_what_and_what_to_do() {
        let denied = io::Error::from_raw_os_error(13);
        let error = Error::io("drop the page cache", "/proc/sys/vm/drop_caches", denied).with_remedy("run as root");

        assert_eq!(
            error.to_string(),
            "could not drop the page cache (/proc/sys/vm/drop_caches: permission denied); run as root"
        );
        assert_eq!(error.errno(), Some(13));
    }

    #[test]
    fn a_name_that_is_not_there_and_a_folder_are_wrong_arguments() {
        for path in ["/nowhere/at/all", "/tmp", "/dev/null/file"] {
            let error = Pread::open(path).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }

    #[test]
    fn a_file_that_was_shortened_is_a_changed_one() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut opened = Pread::open(file.path()).unwrap();
        file.file().set_len(PAGE as u64).unwrap();

        let error = opened.read_at(2 * PAGE as u64, &mut [0; 8]).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn a_file_behind_another_pool_is_held() {
        let file = TestFile::on_disk(PAGE);
        let _first = PooledFile::open(file.path()).unwrap();

        let error = PooledFile::open(file.path()).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
    }

    #[test]
    fn a_program_that_runs_is_held_and_the_message_says_what_to_do() {
        let layout = Layout { write: true, ..Layout::default() };

        let error = Target::open(&[std::env::current_exe().unwrap()], &layout).unwrap_err();

        assert_eq!((error.kind(), error.errno()), (ErrorKind::Held, Some(libc::ETXTBSY)));
        assert!(error.to_string().ends_with("; end the program that runs from this file"), "{error}");
    }

    #[test]
    fn a_file_without_rights_is_not_permitted_and_the_message_says_what_is_needed() {
        let file = TestFile::on_disk(PAGE);
        file.file().set_permissions(std::fs::Permissions::from_mode(0o0)).unwrap();
        // Root may write to it, whatever its mode; to this one nobody may.
        let path =
            if rustix::process::geteuid().is_root() { Path::new("/sys/kernel/uevent_seqnum") } else { file.path() };
        let layout = Layout { write: true, ..Layout::default() };

        let error = Target::open(&[path.to_owned()], &layout).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        assert!(error.to_string().ends_with("; writing needs write permission on the file"), "{error}");
    }

    #[test]
    fn what_rights_lack_and_what_the_machine_lacks_are_two_things() {
        let missing = |errno| Missing::new("a thing", "", "").told_by(&io::Error::from_raw_os_error(errno));

        assert_eq!(Error::from(missing(libc::EPERM)).kind(), ErrorKind::NotPermitted);
        assert_eq!(Error::from(missing(libc::EACCES)).kind(), ErrorKind::NotPermitted);
        assert_eq!(Error::from(missing(libc::ENOSYS)).kind(), ErrorKind::Missing);
    }

    #[test]
    fn every_errno_is_kept_and_of_one_kind() {
        use ErrorKind::*;
        let kinds = [
            (libc::EPERM, NotPermitted),
            (libc::EACCES, NotPermitted),
            (libc::EROFS, NotPermitted),
            (libc::ENOSYS, Missing),
            (libc::EOPNOTSUPP, Missing),
            (libc::EBUSY, Held),
            (libc::ETXTBSY, Held),
            (libc::ENOENT, Invalid),
            (libc::EISDIR, Invalid),
            (libc::ESTALE, Changed),
            (libc::ESRCH, Ended),
            (libc::EIO, Io),
            (libc::ENOSPC, Io),
            (libc::EINVAL, Io),
        ];
        for (errno, kind) in kinds {
            let error = Error::io("read", "a file", io::Error::from_raw_os_error(errno));

            assert_eq!((error.kind(), error.errno()), (kind, Some(errno)));
        }
    }
}
