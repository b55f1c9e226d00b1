//! What can go wrong, in words a user can act on: what was tried, on what, what came back, what to do.

use crate::needs::Missing;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done.
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
        /// What to do about it; empty where nothing better is known than the error itself.
        remedy: String,
    },
    /// A parameter, extent or file that cannot be used as given; the sentence names the value and the legal ones.
    Invalid(String),
    /// The machine or the rights lack something.
    Missing(Missing),
    /// The file became shorter, or its bytes unreadable, while it was mapped (a SIGBUS, caught).
    Truncated {
        /// The mapped file.
        path: PathBuf,
        /// Offset in the file of the first page that was gone.
        offset: u64,
    },
}

impl Error {
    /// An [`Error::Io`] without a remedy.
    pub fn io(doing: impl Into<String>, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Error {
        Error::Io { doing: doing.into(), path: path.as_ref().to_owned(), source: source.into(), remedy: String::new() }
    }

    /// The same error with what to do about it, where it is one of I/O.
    pub fn with_remedy(self, advice: impl Into<String>) -> Error {
        match self {
            Error::Io { doing, path, source, remedy: _ } => Error::Io { doing, path, source, remedy: advice.into() },
            other => other,
        }
    }

    /// The errno behind it, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, source, remedy } => {
                write!(f, "could not {doing} ({}: {})", path.display(), plain(source))?;
                if remedy.is_empty() { Ok(()) } else { write!(f, "; {remedy}") }
            }
            Error::Invalid(sentence) => f.write_str(sentence),
            Error::Missing(missing) => missing.fmt(f),
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

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::Missing(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
