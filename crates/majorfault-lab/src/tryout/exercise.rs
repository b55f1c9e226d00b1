//! Programs that use a file or memory in one way, so that there is somebody to watch, to help and to limit.

use majorfault::map::{Harmless, MappedFile};
use majorfault::{Bytes, Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a page.
const PAGE: usize = 4096;

/// What is used, and how.
#[derive(Clone, Debug)]
pub enum Exercise {
    /// Fill memory, and read it again from begin to end
    Memory {
        /// How much
        size: Bytes,
        /// How often it is read
        passes: u64,
    },
    /// Read 64 bytes of a mapped file at each step, without read-ahead by the kernel
    Map {
        /// The file
        file: PathBuf,
        /// From one step to the next
        stride: Bytes,
        /// Microseconds of sleep after each
        pause_us: u64,
    },
    /// Read 4 KiB of a file by a call at each step
    Read {
        /// The file
        file: PathBuf,
        /// From one step to the next
        stride: Bytes,
    },
}

impl Exercise {
    /// Does it; a sum over all that was read.
    ///
    /// Errors: Io, Invalid (an empty file).
    pub fn run(&self) -> Result<u64> {
        match self {
            Exercise::Memory { size, passes } => Ok(memory(size.0 as usize, *passes)),
            Exercise::Map { file, stride, pause_us } => map(file, stride.0 as usize, *pause_us),
            Exercise::Read { file, stride } => read(file, stride.0),
        }
    }
}

/// What page `at` has in it.
fn content(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn memory(bytes: usize, passes: u64) -> u64 {
    let words = PAGE / 8;
    let mut block = vec![0u64; bytes / 8];
    // No two words alike, so that nothing compresses to nothing.
    block.iter_mut().enumerate().for_each(|(at, word)| *word = content(at));
    let pass = || block.iter().step_by(words).fold(0u64, |sum, word| sum.wrapping_add(*word));
    (0..passes).fold(0, |sum, _| sum.wrapping_add(std::hint::black_box(pass())))
}

/// The sum that [`Exercise::Memory`] gives where no page was lost.
pub fn memory_sum(bytes: u64, passes: u64) -> u64 {
    let pages = (bytes as usize / 8).div_ceil(PAGE / 8);
    let pass = (0..pages).fold(0u64, |sum, page| sum.wrapping_add(content(page * (PAGE / 8))));
    pass.wrapping_mul(passes)
}

fn map(file: &Path, stride: usize, pause_us: u64) -> Result<u64> {
    let mapped = MappedFile::options().advice(Harmless::Random).open(file)?;
    let (mut sum, mut row) = (0u64, [0; 64]);
    for at in (0..mapped.len().saturating_sub(row.len())).step_by(stride.max(1)) {
        mapped.read(at, &mut row)?;
        sum = row.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        std::thread::sleep(Duration::from_micros(pause_us));
    }
    Ok(sum)
}

fn read(path: &Path, stride: u64) -> Result<u64> {
    let unread = |error| Error::io("read the file", path, error);
    let file = File::open(path).map_err(unread)?;
    let size = file.metadata().map_err(unread)?.len();
    let (mut sum, mut block) = (0u64, [0; PAGE]);
    for at in (0..size).step_by(stride.max(1) as usize) {
        let length = file.read_at(&mut block, at).map_err(unread)?;
        sum = block[..length].iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_over_memory_is_known_before() {
        for (bytes, passes) in [(1 << 20, 3), (PAGE as u64, 1), (10 * PAGE as u64, 2)] {
            assert_eq!(memory(bytes as usize, passes), memory_sum(bytes, passes));
        }
        assert_ne!(memory_sum(1 << 20, 3), memory_sum(1 << 20, 2));
    }

    #[test]
    fn a_file_is_read_alike_in_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, vec![1u8; 1 << 20]).unwrap();

        let mapped = Exercise::Map { file: file.clone(), stride: Bytes::kib(64), pause_us: 0 }.run().unwrap();
        let called = Exercise::Read { file, stride: Bytes::kib(64) }.run().unwrap();

        assert_eq!((mapped, called), (16 * 64, 16 * 4096));
    }
}
