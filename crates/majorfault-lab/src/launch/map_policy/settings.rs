//! What the launcher tells the library of `--map-policy`: three numbers, at fixed places of one array. Compiled into both.

/// Bytes of the whole.
pub const BYTES: usize = 64;

/// Where the policy's code stands.
pub const POLICY: usize = 0;
/// Where the least length of a mapping stands, in bytes.
pub const LEAST: usize = 8;
/// Where the most that is read in whole stands, in bytes of all mappings of a process.
pub const BUDGET: usize = 16;

/// Bytes of the place for the path of the table of `PolicyCode::Hot`, which a zero ends.
pub const PATH_BYTES: usize = 256;

/// The table's words: the number of files; of each file [`FILE_WORDS`]; then the parts of all files, of each [`PART_WORDS`].
pub const FILE_WORDS: usize = 4;
/// Where in a file's words its device stands.
pub const DEVICE: usize = 0;
/// Where its inode stands.
pub const INODE: usize = 1;
/// Where the number of its first part stands, counted over all files.
pub const FIRST: usize = 2;
/// Where the number of its parts stands. They ascend and do not overlap.
pub const COUNT: usize = 3;
/// A part's words: its place in the file and its length, in bytes.
pub const PART_WORDS: usize = 2;

/// What is advised of each file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PolicyCode {
    /// Nothing is read beside what is touched.
    Random = 1,
    /// The program's own wish for that is not passed on.
    NoRandom = 2,
    /// Large pages, where the file system has them.
    Huge = 3,
    /// Read in whole, before the program has the mapping.
    Load = 4,
    /// Asked for in those parts that a table names.
    Hot = 5,
}

impl PolicyCode {
    /// By its number.
    pub fn read(code: u64) -> Option<PolicyCode> {
        [PolicyCode::Random, PolicyCode::NoRandom, PolicyCode::Huge, PolicyCode::Load, PolicyCode::Hot]
            .into_iter()
            .find(|policy| *policy as u64 == code)
    }
}
