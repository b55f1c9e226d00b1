//! Policies on a mapped file: a policy sees what is asked of the file's methods, and what it wants is read ahead.

use super::{Harmless, MapFileOptions, MappedFile};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::prefetch::{self, Follower, PolicyOptions, WithPolicy};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

impl MapFileOptions {
    /// The same with a policy that sees what is asked of [`MappedFile::get`], [`bytes`](MappedFile::bytes) and
    /// [`read`](MappedFile::read), by any thread, and reads ahead of it by hints (fadvise(2), WILLNEED).
    ///
    /// It does not see what is read out of a [`View`](super::View) afterwards, nor [`try_get`](MappedFile::try_get), which must
    /// not wait, nor slices ([`assume_stable`](MappedFile::assume_stable)), nor writes. [`Thread`](crate::prefetch::Thread) has
    /// nothing to run ahead over: nobody says beforehand what will be asked for. Where the kernel was given no advice, it is told
    /// to leave reading ahead to the policy ([`Harmless::Random`]), unless by [`keep_options`](WithPolicy::keep_options).
    ///
    /// ```
    /// use majorfault::MappedFile;
    /// use majorfault::prefetch::Learned;
    ///
    /// let rows = MappedFile::options().policy(Learned::default()).open("/proc/self/exe")?;
    /// let mut key = [0; 8];
    /// for row in 0..rows.len() / 4096 {
    ///     rows.read(row * 4096, &mut key)?;
    /// }
    /// # Ok::<(), majorfault::Error>(())
    /// ```
    pub fn policy<P: PolicyOptions>(self, policy: P) -> WithPolicy<MapFileOptions, P> {
        WithPolicy::new(self, policy)
    }
}

impl<P: PolicyOptions> WithPolicy<MapFileOptions, P> {
    /// Opens and maps, and reads ahead of what is asked for.
    ///
    /// Errors: as [`MapFileOptions::open`]; Invalid (a value of the policy that cannot be used; `release`, as a mapping keeps
    /// its pages until [`MappedFile::discard`]).
    pub fn open(self, path: impl AsRef<Path>) -> Result<MappedFile> {
        let file = self.options.open_file(path.as_ref())?;
        self.map(file, path.as_ref())
    }

    /// The same for a file that is open already; `path` is for messages.
    ///
    /// Errors: as [`open`](WithPolicy::open).
    pub fn map(self, file: File, path: impl Into<PathBuf>) -> Result<MappedFile> {
        let WithPolicy { options, plan, common, keeps } = self;
        if common.release.is_on() {
            return Err(Error::Invalid(
                "release=on: a mapped file lets go of nothing by itself; discard does".to_owned(),
            ));
        }
        let mut map = options.map_file(file, path.into())?;
        let (ahead, note) = prefetch::beside(&plan, map.target()?, common)?;
        if !keeps && options.advice.is_none() && P::POLICY.underneath.contains(&("advice", "random")) {
            map.advise(0..map.len(), Harmless::Random)?;
        }
        map.notes.extend(note);
        map.ahead = Some(Mutex::new(ahead));
        Ok(map)
    }
}

impl MappedFile {
    /// The bytes of the mapping as those of a target: offsets are the mapping's.
    fn target(&self) -> Result<Arc<Target>> {
        let file = self.file.try_clone().map_err(|error| Error::io("open the file again", &self.path, error))?;
        Ok(Arc::new(Target::of_open(file, &self.path, self.start, (self.lead + self.length) as u64)))
    }

    /// The policy, if there is one, sees that `length` bytes from `at` of the mapping on are asked for.
    ///
    /// Errors: as [`Follower::meet`].
    #[inline]
    pub(super) fn seen(&self, at: usize, length: usize) -> Result<()> {
        self.meet(at, length, |_, _| ())
    }

    /// The same where all of them will be touched now: those of several pages are read by hints as well, because the kernel,
    /// told to read nothing ahead, would read page by page.
    #[inline]
    pub(super) fn touched(&self, at: usize, length: usize) -> Result<()> {
        self.meet(at, length, |ahead, extent| {
            if length > rustix::param::page_size() {
                ahead.want([extent]);
            }
        })
    }

    #[inline]
    fn meet(&self, at: usize, length: usize, before: impl FnOnce(&mut Follower, Extent)) -> Result<()> {
        let Some(ahead) = self.ahead.as_ref().filter(|_| length > 0) else { return Ok(()) };
        let extent = Extent { offset: at as u64, length };
        let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
        before(&mut ahead, extent);
        ahead.meet(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::{By, Common, Learned, Strided, Whole};
    use crate::proc;
    use crate::sys::cache::{self, FileAdvice, fadvise};
    use crate::test_files::{PAGE, TestFile};
    use crate::units::Bytes;

    /// Every sixteenth page is a row.
    const STRIDE: usize = 16 * PAGE;
    const ROWS: usize = 64;

    /// A file of which nothing is cached.
    fn cold() -> TestFile {
        let file = TestFile::on_disk(ROWS * STRIDE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        file
    }

    /// Which rows are cached, or under way to be.
    fn cached(file: &TestFile) -> Vec<usize> {
        let is_cached = |row: &usize| cache::resident(file.file(), (row * STRIDE) as u64, PAGE as u64).unwrap().0 > 0;
        (0..ROWS).filter(is_cached).collect()
    }

    /// Reads the first rows by `access`, and says which are cached then.
    fn after<T>(file: &TestFile, access: impl Fn(usize) -> Result<T>) -> Vec<usize> {
        for row in 0..24 {
            access(row * STRIDE).unwrap();
        }
        cached(file)
    }

    #[test]
    fn a_policy_reads_the_next_rows_of_a_stride_and_without_one_nobody_does() {
        let file = cold();
        let plain = MappedFile::options().advice(Harmless::Random).open(file.path()).unwrap();

        assert_eq!(after(&file, |at| plain.read(at, &mut [0; 64])), (0..24).collect::<Vec<_>>());

        for way in ["read", "get", "bytes"] {
            let file = cold();
            let ahead = MappedFile::options().policy(Learned::default()).open(file.path()).unwrap();

            let cached = after(&file, |at| match way {
                "read" => ahead.read(at, &mut [0; 64]),
                "get" => ahead.get(at..at + 64).map(drop),
                _ => ahead.bytes(at..at + 64).map(|view| assert!(view.get(0).is_some())),
            });

            assert_eq!(cached[..25], (0..25).collect::<Vec<_>>(), "{way}: the next row at least");
            let pages = cache::resident(file.file(), 0, (ROWS * STRIDE) as u64).unwrap().0 / PAGE as u64;
            assert_eq!(pages, cached.len() as u64, "{way}: nothing between the rows");
        }
    }

    #[test]
    fn what_must_not_wait_and_what_is_written_is_not_seen() {
        let (asked, written) = (cold(), cold());
        let ahead = |file: &TestFile| {
            let options = MappedFile::options().copy_on_write().policy(Learned::default());
            Mutex::new(options.open(file.path()).unwrap())
        };
        let (asking, writing) = (ahead(&asked), ahead(&written));

        let tried = after(&asked, |at| asking.lock().unwrap().try_get(at..at + 64).map(drop));
        let changed = after(&written, |at| writing.lock().unwrap().write(at, &[1; 64]));

        assert_eq!(tried, []);
        assert_eq!(changed, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_are_counted_from_where_the_mapping_begins() {
        let file = cold();
        let begin = 3 * STRIDE as u64 + 5;
        let rows = Strided::default().stride(Bytes(STRIDE as u64)).rows(4);
        let map = MappedFile::options().range(begin..(ROWS * STRIDE) as u64).policy(rows).open(file.path()).unwrap();

        let mut bytes = [0; 64];
        map.read(2 * STRIDE - 5, &mut bytes).unwrap();

        assert_eq!(bytes, file.content()[5 * STRIDE..][..64]);
        assert_eq!(cached(&file), [5, 6, 7, 8, 9]);
        assert_eq!(
            cache::resident(file.file(), 0, (ROWS * STRIDE) as u64).unwrap().0,
            5 * PAGE as u64,
            "a page of each"
        );
    }

    /// Major faults of this thread until now.
    fn major_faults() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        proc::stat::process(&text).unwrap().major_faults
    }

    #[test]
    fn many_pages_asked_for_at_once_are_not_read_one_by_one() {
        for way in ["read", "get"] {
            let file = cold();
            let map = MappedFile::options().policy(Learned::default()).open(file.path()).unwrap();
            let before = major_faults();

            match way {
                "read" => map.read(0, &mut vec![0; 64 * PAGE]).unwrap(),
                _ => drop(map.get(0..64 * PAGE).unwrap()),
            }

            let faults = major_faults() - before;
            assert!(faults < 8, "{way}: {faults} major faults for 64 pages");
        }
    }

    #[test]
    fn threads_share_what_the_policy_learns() {
        let file = cold();
        let map = MappedFile::options().policy(Learned::default()).open(file.path()).unwrap();

        for row in 0..24 {
            std::thread::scope(|scope| {
                scope.spawn(|| map.read(row * STRIDE, &mut [0; 64]).unwrap());
            });
        }

        assert_eq!(cached(&file)[..25], (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_policy_can_be_told_holds_here_too() {
        let file = cold();
        let common = Common::default;
        let open = |common: Common| MappedFile::options().policy(Whole::default()).common(common).open(file.path());

        let refused = open(common().release(true));
        assert!(matches!(&refused, Err(Error::Invalid(says)) if says.contains("release=on")), "{refused:?}");
        let bad = Strided::default().stride(Bytes::kib(4)).length(Bytes::kib(8));
        assert!(matches!(MappedFile::options().policy(bad).open(file.path()), Err(Error::Invalid(_))));
        let much = open(common().budget(Bytes(1 << 50)).by(By::Caller)).unwrap();
        assert!(much.notes().iter().any(|note| note.contains("half of the free memory")), "{:?}", much.notes());
    }

    #[test]
    fn the_kernels_own_read_ahead_is_left_on_where_it_was_asked_for() {
        for way in ["kept", "advised"] {
            let file = cold();
            let options = MappedFile::options();
            let map = match way {
                "kept" => options.policy(Learned::default()).keep_options().open(file.path()),
                _ => options.advice(Harmless::Normal).policy(Learned::default()).open(file.path()),
            };

            map.unwrap().read(0, &mut [0; 64]).unwrap();

            let resident = cache::resident(file.file(), 0, (ROWS * STRIDE) as u64).unwrap().0;
            assert!(resident > PAGE as u64, "{way}: pages around the first were read, too");
        }
    }
}
