//! Many small files, each read whole: many are opened and read at a time, and they are shown in the order they were named in.
//!
//! ```
//! use majorfault::small_files::SmallFiles;
//!
//! # fn main() -> majorfault::Result<()> {
//! let mut files = SmallFiles::options().depth(64).open()?;
//! let mut lines = 0;
//! files.visit(&["/proc/self/status", "/proc/self/maps", "/no/such/file"], |index, content| match content {
//!     Ok(bytes) => lines += bytes.iter().filter(|byte| **byte == b'\n').count(),
//!     Err(error) => eprintln!("file {index}: {error}"),
//! })?;
//! # assert!(lines > 10);
//! # Ok(())
//! # }
//! ```
//!
//! One file after the other a cold disk has one request at a time, and each file waits for the one before. Here up to
//! [`depth`](SmallFilesOptions::depth) files are under way: by chains of requests to `io_uring`, or where that is refused by opening files ahead
//! and telling the kernel to read them. Mapping small files is no way here: it was slower than reading in every
//! measurement (`cargo bench -p majorfault --bench small_files`).
//!
//! A value of this type is for one thread; for several, give each its own and a share of the files.

mod ahead;
mod chains;
mod whole;

use crate::access::Flow;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::units::Bytes;
use ahead::OpenedAhead;
use chains::InChains;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use whole::WholeFile;

crate::choices! {
    /// How many files are read at a time.
    #[non_exhaustive]
    pub enum ManyAtATime {
        /// By chains where `io_uring` opens files, else by hints.
        Auto = "auto",
        /// Chains of requests to `io_uring` that open, read and close each file (Linux 5.15).
        Chains = "chains",
        /// Files are opened ahead, and the kernel is told to read those that are not cached; on every kernel.
        Hints = "hints",
    }
}

crate::params! {
    /// How small files are read.
    #[non_exhaustive]
    pub struct SmallFilesOptions {
        /// How many are read at a time; the chains, where they are allowed.
        way: ManyAtATime = ManyAtATime::Auto,
        /// Files under way at a time; 64 saturate most single disks.
        depth: u32 = 64,
        /// A file up to this is read in one piece, and twice `depth` such pieces are kept; a longer one is read once more, by itself.
        piece: Bytes = Bytes::kib(64),
        /// A longer file is an error, so that a name too many does not fill memory.
        largest: Bytes = Bytes::mib(64),
    }
}

/// Reads many small files. See the [module](self).
pub struct SmallFiles {
    way: ManyAtATime,
    options: SmallFilesOptions,
    hands: Hands,
    notes: Vec<String>,
}

/// What does the reading.
enum Hands {
    Chains(Box<InChains>),
    Hints(OpenedAhead),
}

/// What each file is shown to: its index, and its content or why there is none.
type See<'a> = dyn FnMut(usize, Result<&[u8]>) -> ControlFlow<()> + 'a;

impl SmallFiles {
    /// Options, each at its default.
    pub fn options() -> SmallFilesOptions {
        SmallFilesOptions::default()
    }

    /// The way in force, never [`Auto`](ManyAtATime::Auto).
    pub fn way(&self) -> ManyAtATime {
        self.way
    }

    /// Requests that were not granted: that `io_uring` is refused, why, and what to do.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Shows each file once, in the order of `paths`: its index and its whole content as of when it was read, or the error of that
    /// file, which does not stop the others. A closure that returns [`ControlFlow`] may end the visit early.
    ///
    /// A file's error is Invalid for a folder, a FIFO, a device, a socket, or more bytes than [`largest`](SmallFilesOptions::largest); Io for what open(2) and
    /// read(2) refuse. Nothing waits for a FIFO's other end, and nothing is taken from it.
    ///
    /// Errors: Io (the ring is broken), Missing (moved to a thread that may not make a ring).
    pub fn visit<P: AsRef<Path>, F: Flow>(
        &mut self,
        paths: &[P],
        mut see: impl FnMut(usize, Result<&[u8]>) -> F,
    ) -> Result<()> {
        let path = |index: usize| paths[index].as_ref();
        let mut see = |index: usize, content: Result<&[u8]>| see(index, content).flow();
        match &mut self.hands {
            Hands::Chains(chains) => chains.visit(paths.len(), &path, &mut see),
            Hands::Hints(ahead) => {
                ahead.visit(paths.len(), &path, &mut see);
                Ok(())
            }
        }
    }
}

impl SmallFilesOptions {
    /// Makes the ring, and tries it on a file.
    ///
    /// Errors: Invalid (a value that cannot be used), Missing (chains were asked for and are refused), Io (no memory).
    pub fn open(self) -> Result<SmallFiles> {
        self.check()?;
        let (hands, way, notes) = match self.way {
            ManyAtATime::Hints => (self.ahead(), ManyAtATime::Hints, Vec::new()),
            ManyAtATime::Chains => (Hands::Chains(Box::new(InChains::new(&self)?)), ManyAtATime::Chains, Vec::new()),
            ManyAtATime::Auto => self.whichever(InChains::new(&self))?,
        };
        Ok(SmallFiles { way, options: self, hands, notes })
    }

    fn check(&self) -> Result<()> {
        let SmallFilesOptions { way: _, depth, piece, largest: _ } = self;
        if !(1..=2048).contains(depth) {
            return Err(Error::Invalid(format!("depth={depth}: legal is 1 to 2048")));
        }
        if piece.0 == 0 || piece.0 > 1 << 30 {
            return Err(Error::Invalid(format!("piece={piece}: legal is 1 byte to 1 GiB")));
        }
        Ok(())
    }

    fn ahead(&self) -> Hands {
        Hands::Hints(OpenedAhead::new(self.depth as usize, WholeFile::new(self.largest)))
    }

    /// The chains where there are any, else hints and a note that says what is lost.
    fn whichever(&self, chains: Result<InChains>) -> Result<(Hands, ManyAtATime, Vec<String>)> {
        match chains {
            Ok(chains) => Ok((Hands::Chains(Box::new(chains)), ManyAtATime::Chains, Vec::new())),
            Err(Error::Missing(missing)) => {
                let note = format!("files are opened one after the other, and only reading is ahead: {missing}");
                Ok((self.ahead(), ManyAtATime::Hints, vec![note]))
            }
            Err(other) => Err(other),
        }
    }
}

impl fmt::Debug for SmallFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmallFiles { way, options, hands: _, notes } = self;
        let settings = options.given();
        let mut shown = f.debug_struct("SmallFiles");
        shown.field("way", way).field("settings", &settings).field("notes", notes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
