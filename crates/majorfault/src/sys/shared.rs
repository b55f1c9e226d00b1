//! Numbers in a file that several processes have mapped: each is only ever changed whole, so that nobody's memory model is hurt.
#![allow(unsafe_code)]

use super::map::{Access, MapOptions, Mapping};
use crate::error::{Error, Result};
use std::fs::File;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// `COUNT` numbers of 32 bits, and words of 64 bits after them, in shared memory.
#[derive(Debug)]
pub struct SharedNumbers<const COUNT: usize> {
    mapping: Mapping,
}

impl<const COUNT: usize> SharedNumbers<COUNT> {
    /// Maps `bytes` of a file, which must have them.
    ///
    /// Nobody may shorten the file as long as this lives: an access beyond its end is a signal (SIGBUS).
    ///
    /// Errors: Io, Invalid (a shorter file, fewer bytes than the numbers take, or not whole words).
    pub fn map(file: &File, bytes: usize) -> Result<SharedNumbers<COUNT>> {
        let length = file.metadata().map_err(|error| Error::io("ask for the length of", "a shared file", error))?.len();
        if bytes < COUNT * 4 || bytes % 8 != 0 || COUNT % 2 != 0 || length < bytes as u64 {
            return Err(Error::Invalid(format!("{bytes} bytes of numbers in a file of {length}")));
        }
        let options = MapOptions { access: Access::Write, ..MapOptions::default() };
        Ok(SharedNumbers { mapping: Mapping::new(file, 0, bytes, &options)? })
    }

    /// The numbers at its beginning.
    pub fn numbers(&self) -> &[AtomicU32; COUNT] {
        // SAFETY: the mapping lives as long as the reference, begins at a page, and has these bytes (`map`). Any bytes are a number, and
        // whoever else has them changes them atomically.
        unsafe { &*self.mapping.as_ptr().cast() }
    }

    /// The words after the numbers.
    pub fn words(&self) -> &[AtomicU64] {
        let first = COUNT * 4;
        let count = (self.mapping.length() - first) / 8;
        // SAFETY: as above; an even count of numbers ends at a multiple of 8.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(first).cast(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_a_file_have_the_same_numbers() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let [one, other] = [(); 2].map(|()| SharedNumbers::<16>::map(&file, 4096).unwrap());

        one.numbers()[15].store(7, Relaxed);
        one.words()[0].store(1 << 40, Relaxed);

        assert_eq!((other.numbers()[15].load(Relaxed), other.words()[0].load(Relaxed)), (7, 1 << 40));
        assert_eq!(other.words().len(), 504);
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4095).unwrap();

        assert!(SharedNumbers::<16>::map(&file, 4096).is_err());
        file.set_len(4096).unwrap();
        for wrong in [0, 56, 4092] {
            assert!(SharedNumbers::<16>::map(&file, wrong).is_err(), "{wrong}");
        }
    }
}
