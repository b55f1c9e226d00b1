//! What the launcher tells the library of `--map-policy`: three numbers, at fixed places of one array. Compiled into both.

/// Bytes of the whole.
pub const BYTES: usize = 64;

/// Where the policy's code stands.
pub const POLICY: usize = 0;
/// Where the least length of a mapping stands, in bytes.
pub const LEAST: usize = 8;
/// Where the most that is read in whole stands, in bytes of all mappings of a process.
pub const BUDGET: usize = 16;

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
}

impl PolicyCode {
    /// By its number.
    pub fn read(code: u64) -> Option<PolicyCode> {
        [PolicyCode::Random, PolicyCode::NoRandom, PolicyCode::Huge, PolicyCode::Load]
            .into_iter()
            .find(|policy| *policy as u64 == code)
    }
}
