//! What processes with blocks in files have counted, in a page that all of them share with the supervisor: words of 64 bits, each changed
//! atomically. These lines are compiled into the library, too (`spill/lib.rs`), so they need `core` alone.

/// Bytes of the page.
pub const BYTES: usize = 4096;

/// What stands in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillCount {
    /// Processes that have loaded the library.
    Processes = 0,
    /// Blocks that were put into files.
    Blocks = 1,
    /// Bytes of them, in all.
    Bytes = 2,
    /// The most bytes that one process had in files at once.
    Most = 3,
    /// Forks for which blocks were copied.
    Forks = 4,
    /// Bytes of these blocks.
    Copied = 5,
    /// Children that were ended, because their copies could not be made.
    Ended = 6,
    /// The first of the words about blocks that stayed in memory: for each [`Stay`] how many, and their bytes.
    Stayed = 8,
}

/// Why a block that is large enough stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// The file system, or a quota, has no room left.
    NoRoom = 0,
    /// The process may not have files of this size (RLIMIT_FSIZE).
    FileLimit = 1,
    /// No file could be made: the directory cannot be reached or written from there, or descriptors are used up.
    NoFile = 2,
    /// No mapping could be made: too many, or a limit on addresses.
    NoMapping = 3,
    /// The process has shut itself in (seccomp), where the calls that are needed may end it.
    ShutIn = 4,
}

/// All of them.
pub const STAYS: [Stay; 5] = [Stay::NoRoom, Stay::FileLimit, Stay::NoFile, Stay::NoMapping, Stay::ShutIn];

impl Stay {
    /// The word with how many blocks, and behind it the one with their bytes.
    pub const fn word(self) -> usize {
        SpillCount::Stayed as usize + 2 * self as usize
    }
}
