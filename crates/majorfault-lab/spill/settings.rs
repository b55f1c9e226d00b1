//! What the run has written over the mark in this library.
//!
//! ```text
//! 0    the directory of the files, ended by a zero      240 bytes
//! 240  the file of the counts, likewise                 240 bytes
//! 480  the least block that is put into a file          64 bits
//! 488  the size of a page, as a power of two            8 bits
//! 489  the advice for mappings (madvise(2))             8 bits
//! 490  1 where writing must not copy (FS_NOCOW_FL)      8 bits
//! ```

#[used]
static SETTINGS: [u8; 512] = *include_bytes!("settings.mark");

/// Read as volatile: the settings are written after the compiler has seen the mark.
pub fn byte(at: usize) -> u8 {
    // SAFETY: a reference is valid for a read.
    SETTINGS.get(at).map_or(0, |byte| unsafe { core::ptr::read_volatile(byte) })
}

/// The directory of the files, ended by a zero; for the kernel alone, see `byte`.
pub fn directory() -> *const u8 {
    SETTINGS.as_ptr()
}

/// The file of the counts, likewise.
pub fn counts() -> *const u8 {
    SETTINGS[240..].as_ptr()
}

/// The least block that is put into a file.
pub fn from() -> usize {
    (0..8).fold(0, |number, at| number | usize::from(byte(480 + at)) << (8 * at))
}

/// Bytes of a page.
pub fn page() -> usize {
    1 << byte(488)
}

/// The advice for mappings.
pub fn advice() -> u64 {
    byte(489).into()
}

/// Whether files must be such that writing does not copy.
pub fn in_place() -> bool {
    byte(490) != 0
}
