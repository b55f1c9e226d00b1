//! Slices of mapped files, for programs that can promise what no library can check: that nobody changes the bytes.
#![allow(unsafe_code, reason = "the promise is given to `assume_stable` and relied on by the slices")]

use super::{MappedFile, TryGet};
use crate::error::Result;
use std::ops::Range;

/// A mapped file that nobody changes, as its owner promised: it lends its bytes as slices. Made by
/// [`MappedFile::assume_stable`].
#[derive(Clone, Copy, Debug)]
pub struct Stable<'m>(&'m MappedFile);

/// A mapped file for changing in place. Made by [`MappedFile::assume_stable_mut`].
#[derive(Debug)]
pub struct StableMut<'m>(&'m mut MappedFile);

impl MappedFile {
    /// Gives the file as slices, without a copy. A policy ([`policy`](super::MapFileOptions::policy)) sees nothing of them, neither
    /// that they are asked for nor which of their pages are read.
    ///
    /// ```no_run
    /// # use majorfault::map::MappedFile;
    /// let words = MappedFile::open("/usr/share/dict/words")?;
    /// // SAFETY: this program alone installs the file, replaces it by rename, and so never changes one that is mapped.
    /// let words = unsafe { words.assume_stable() };
    /// let text = std::str::from_utf8(words.get(0..1 << 20)?);
    /// # Ok::<(), majorfault::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// While a slice from the returned value lives:
    ///
    /// - nobody changes its bytes: not this process, not another mapping of the file, not another program. This holds for a
    ///   copy-on-write mapping as well, because pages that were not written yet show the file;
    /// - nobody truncates the file before the slice's end, and the pages can be read: a missing page becomes zeros.
    pub unsafe fn assume_stable(&self) -> Stable<'_> {
        Stable(self)
    }

    /// Gives the file as slices for changing in place.
    ///
    /// # Safety
    ///
    /// As for [`assume_stable`](MappedFile::assume_stable), and while a mutable slice lives nobody reads its bytes
    /// through memory either.
    pub unsafe fn assume_stable_mut(&mut self) -> StableMut<'_> {
        StableMut(self)
    }

    /// All bytes of the mapping; missing pages read as zeros.
    ///
    /// # Safety
    ///
    /// As for [`assume_stable`](MappedFile::assume_stable).
    pub(super) unsafe fn whole(&self) -> &[u8] {
        // SAFETY: what the caller promises.
        unsafe { self.map.bytes(self.lead, self.length) }
    }

    /// All bytes of the mapping, for changing. Panics where it is mapped read-only.
    ///
    /// # Safety
    ///
    /// As for [`assume_stable_mut`](MappedFile::assume_stable_mut).
    pub(super) unsafe fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: what the caller promises.
        unsafe { self.map.bytes_mut(self.lead, self.length) }
    }
}

impl<'m> Stable<'m> {
    /// The bytes of `range`, faulted in as by [`MappedFile::get`].
    ///
    /// Errors: as [`MappedFile::get`].
    pub fn get(&self, range: Range<usize>) -> Result<&'m [u8]> {
        self.0.fault_in(&range)?;
        self.bytes(range)
    }

    /// The bytes of `range`, not touched, as by [`MappedFile::bytes`].
    ///
    /// Errors: as [`MappedFile::bytes`].
    pub fn bytes(&self, range: Range<usize>) -> Result<&'m [u8]> {
        let (at, length) = self.0.place(&range)?;
        self.0.check()?;
        // SAFETY: this value exists because its maker promised that nobody changes them while the slice lives; safe code
        // writes through the mapping only where it is borrowed exclusively, which the slice's lifetime rules out.
        Ok(unsafe { self.0.map.bytes(at, length) })
    }

    /// The bytes of `range` if all are in memory, as by [`MappedFile::try_get`].
    ///
    /// Errors: as [`MappedFile::try_get`].
    pub fn try_get(&self, range: Range<usize>) -> Result<TryGet<&'m [u8]>> {
        match self.0.is_resident(&range)? {
            true => self.bytes(range).map(TryGet::Ready),
            false => Ok(TryGet::NotResident),
        }
    }
}

impl StableMut<'_> {
    /// The bytes of `range` for changing; call [`MappedFile::check`] afterwards, in case a page was missing.
    ///
    /// Errors: Invalid (outside the mapping, or mapped read-only), Truncated (a page was already gone).
    pub fn bytes_mut(&mut self, range: Range<usize>) -> Result<&mut [u8]> {
        self.0.check_writable()?;
        let (at, length) = self.0.place(&range)?;
        self.0.check()?;
        // SAFETY: this value exists because its maker promised that nobody else reads or changes them; it is borrowed
        // exclusively, and the mapped file by it.
        Ok(unsafe { self.0.map.bytes_mut(at, length) })
    }

    /// The same file for reading, as long as the slices are not used.
    pub fn stable(&self) -> Stable<'_> {
        Stable(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::prefetch::Learned;
    use crate::sys::cache::{self, FileAdvice, fadvise};
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn a_file_that_nobody_changes_is_lent_as_it_is() {
        let file = TestFile::on_disk(4 * PAGE + 5);
        let map = MappedFile::options().range(3..4 * PAGE as u64).open(file.path()).unwrap();

        // SAFETY: nobody else knows the file.
        let stable = unsafe { map.assume_stable() };

        let wanted = &file.content()[3..4 * PAGE];
        assert_eq!(stable.get(0..map.len()).unwrap(), wanted);
        assert_eq!(stable.bytes(7..PAGE).unwrap(), &wanted[7..PAGE]);
        assert_eq!(stable.try_get(7..PAGE).unwrap(), TryGet::Ready(&wanted[7..PAGE]));
        assert!(matches!(stable.get(1..map.len() + 1), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_policy_does_not_see_slices() {
        let file = TestFile::on_disk(64 * 16 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let map = MappedFile::options().policy(Learned::default()).open(file.path()).unwrap();
        // SAFETY: nobody else knows the file.
        let stable = unsafe { map.assume_stable() };

        for row in 0..24 {
            assert_eq!(stable.get(row * 16 * PAGE..row * 16 * PAGE + 1).unwrap().len(), 1);
        }

        let (resident, _) = cache::resident(file.file(), 0, file.length() as u64).unwrap();
        assert_eq!(resident, 24 * PAGE as u64);
    }

    #[test]
    fn changes_in_place_reach_the_file_and_need_a_mapping_for_writing() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut map = MappedFile::options().write_shared().open(file.path()).unwrap();
        let mut reading = MappedFile::open(file.path()).unwrap();

        // SAFETY: nobody else knows the file, and nobody reads while it is changed.
        let mut stable = unsafe { map.assume_stable_mut() };
        stable.bytes_mut(PAGE..PAGE + 4).unwrap().fill(7);
        assert_eq!(stable.stable().get(PAGE..PAGE + 4).unwrap(), [7; 4]);
        assert!(matches!(stable.bytes_mut(0..4 * PAGE + 1), Err(Error::Invalid(_))));

        assert_eq!(std::fs::read(file.path()).unwrap()[PAGE..PAGE + 4], [7; 4]);
        // SAFETY: as above.
        let mut refused = unsafe { reading.assume_stable_mut() };
        assert!(matches!(refused.bytes_mut(0..1), Err(Error::Invalid(_))));
    }
}
