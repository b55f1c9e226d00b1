//! The file mapped and read in place: no copy, a fault for every page (or folio) not yet mapped.
//!
//! In place only where the caller promised that nobody changes the file ([`Target::assume_unchanged`]); otherwise each extent is
//! copied before it is shown. Readers that share a writable mapping keep their bytes apart by claims.
#![allow(unsafe_code, reason = "the target's promise is relied on where bytes are lent")]

use crate::access::{self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Urgency, Visitor};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::params::Params;
use crate::sys::advice::{self, Advice};
use crate::sys::claims::{Claimant, Claims, Kind};
use crate::sys::fault::Guarded;
use crate::sys::map::{Access, MapOptions, Mapping, Placement};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub(super) const METHOD: Method = Method {
    name: "mmap",
    summary: "the file mapped and used in place; the kernel reads what is touched",
    needs: &[],
    class: Class::Mapped,
    hints: Hints::PageCache,
    depth: None,
    budget: None,
    direct: DirectIo::Never,
    params: MmapOptions::declared,
    open: access::by_names::<MmapOptions>,
};

access::front_door! {
    /// The file mapped and used in place; the kernel reads what is touched.
    ///
    /// ```
    /// use majorfault::access::{Mmap, MmapHint};
    /// use majorfault::prefetch::Learned;
    ///
    /// # fn main() -> majorfault::Result<()> {
    /// let plain = Mmap::options().advice(MmapHint::Random).open("/proc/self/exe")?;
    /// let ahead = Mmap::options().policy(Learned::default()).open("/proc/self/exe")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// In place needs a promise, that nobody changes the file ([`Target::assume_unchanged`]); without it each extent is copied
    /// before it is shown, and a note of [`Opened`] says so:
    ///
    /// ```
    /// use majorfault::access::{Mmap, MethodOptions};
    /// use majorfault::{Layout, Target};
    /// use std::sync::Arc;
    ///
    /// # fn main() -> majorfault::Result<()> {
    /// let target = Target::open(&["/proc/self/exe".into()], &Layout::default())?;
    /// // SAFETY: the kernel lets nobody write a program that runs (ETXTBSY).
    /// let target = unsafe { target.assume_unchanged() };
    /// let in_place = Mmap::options().open_target(Arc::new(target))?;
    /// assert!(in_place.notes.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    Mmap by MmapOptions
}

crate::choices! {
    /// Advice to the kernel about the mapping, given before the first touch (madvise(2)).
    #[non_exhaustive]
    pub enum Hint {
        /// Nothing.
        Normal = "normal",
        /// MADV_RANDOM: no read-ahead; since Linux 6.3 also no protection of pages in use.
        Random = "random",
        /// MADV_SEQUENTIAL: a longer read-ahead.
        Sequential = "sequential",
        /// MADV_HUGEPAGE: huge pages, where file system and kernel support them.
        Hugepage = "hugepage",
        /// MADV_WILLNEED: read ahead of the first touch, at most one window.
        Willneed = "willneed",
        /// MADV_STRIDED: read ahead by the distance that faults show; only with the kernel of docs/kernel.md.
        Strided = "strided",
    }
}

crate::choices! {
    /// What is faulted in at opening.
    #[non_exhaustive]
    pub enum Populate {
        /// Nothing.
        None = "none",
        /// Everything, for reading (MADV_POPULATE_READ, Linux 5.14; MAP_POPULATE before).
        Read = "read",
        /// Everything, for writing (MADV_POPULATE_WRITE, Linux 5.14).
        Write = "write",
    }
}

crate::choices! {
    /// Where the mapping is put.
    #[non_exhaustive]
    pub enum Align {
        /// Wherever the kernel chooses.
        Page = "page",
        /// Address and offset congruent modulo 2 MiB, and checked: the condition for huge pages.
        Huge = "2m",
        /// Congruent but for 4 KiB: shows what a misaligned mapping costs.
        Skewed = "skewed",
    }
}

crate::choices! {
    /// Who sees changes made through the mapping.
    pub enum Share {
        /// The file (MAP_SHARED).
        Shared = "shared",
        /// Nobody else (MAP_PRIVATE).
        Private = "private",
    }
}

crate::params! {
    /// How the file is mapped.
    #[non_exhaustive]
    pub struct MmapOptions {
        /// The hint given before the first touch; by default none, as in most programs.
        advice: Hint = Hint::Normal,
        /// What is faulted in at opening; by default nothing, so that a run pays for what it touches.
        populate: Populate = Populate::None,
        /// Where the mapping is put; by default where the kernel chooses.
        align: Align = Align::Page,
        /// Who sees changes; by default the file.
        share: Share = Share::Shared,
    }
}

/// One mapping for each file, shared by the readers of all threads.
struct Maps {
    target: Arc<Target>,
    maps: Vec<Guarded>,
    /// File offset of each mapping's first byte (a multiple of the page size, at or before the used range).
    starts: Vec<u64>,
    writable: bool,
    share: Share,
    /// Whether bytes are shown and changed in place: the target promises that nobody else changes them.
    in_place: bool,
    /// Which reader uses which bytes, where some of the readers may change them.
    claims: Option<Arc<Claims>>,
}

struct MmapReader {
    maps: Arc<Maps>,
    claimant: Option<Claimant>,
    /// The copy of an extent that is not shown in place.
    copy: Vec<u8>,
}

const COPIED: &str = "each extent is copied before it is shown: nobody has promised that the files stay unchanged \
                      (Target::assume_unchanged)";

impl MethodOptions for MmapOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let (maps, notes) = Maps::open(Arc::clone(&target), &self)?;
        Ok(Opened::new(Box::new(MmapReader::new(Arc::new(maps))), target, self.given(), notes))
    }
}

impl Maps {
    fn open(target: Arc<Target>, options: &MmapOptions) -> Result<(Maps, Vec<String>)> {
        let MmapOptions { advice, populate, align, share } = options;
        if *advice == Hint::Strided {
            // Without it the run would be that of another hint under this one's name.
            advice::strided_is_here()?;
        }
        let page = rustix::param::page_size() as u64;
        let placement = match align {
            Align::Page => Placement::Anywhere,
            Align::Huge => Placement::Congruent,
            Align::Skewed => Placement::Skewed(page as usize),
        };
        let access = match (target.writable(), share) {
            (_, Share::Private) => Access::Copy,
            (true, Share::Shared) => Access::Write,
            (false, Share::Shared) => Access::Read,
        };
        let (mut maps, mut starts, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for file in target.files() {
            let start = file.start / page * page;
            let options = MapOptions { access, placement, populate: false };
            let length = (file.start + file.length - start) as usize;
            let map = Mapping::new(&file.file, start, length, &options)?;
            notes.extend(map.misplaced(placement).map(|note| format!("alignment not granted: {note}")));
            // Advise before touching: the first fault already reads ahead by the old advice.
            notes.extend(hint(&map, *advice).err().map(|error| error.to_string()));
            let map = Guarded::new(map);
            if !map.guard().is_active() {
                notes.push(format!("{} is mapped unguarded: too many mappings at once", file.path.display()));
            }
            fill(map.mapping(), *populate)?;
            maps.push(map);
            starts.push(start);
        }
        let writable = target.writable() || *share == Share::Private;
        // In a file that is named twice, the same bytes have two positions, and a claim covers only one.
        let in_place = target.is_assumed_unchanged() && !(writable && target.has_twins());
        notes.extend((!in_place).then(|| COPIED.to_owned()));
        let claims = writable.then(Arc::default);
        let maps = Maps { target, maps, starts, writable, share: *share, in_place, claims };
        maps.check()?;
        Ok((maps, notes))
    }

    /// Which mapping holds `extent`, and at which offset in it.
    #[inline]
    fn locate(&self, extent: Extent) -> Result<(usize, usize)> {
        let (index, offset) = self.target.locate(extent)?;
        Ok((index, (offset - self.starts[index]) as usize))
    }

    /// Fails where a page of the file was found missing.
    #[inline]
    fn check(&self) -> Result<()> {
        for (index, map) in self.maps.iter().enumerate() {
            if let Some(gone) = map.guard().gone() {
                let path = self.target.files()[index].path.clone();
                return Err(Error::Truncated { path, offset: self.starts[index] + gone as u64 });
            }
        }
        Ok(())
    }

    /// Announces extents by as few calls as the kernel allows.
    fn announce(&self, extents: &[Extent]) -> Result<()> {
        let page = rustix::param::page_size();
        let range = |extent: &Extent| {
            let (index, at) = self.locate(*extent)?;
            let base = self.maps[index].mapping().as_ptr() as usize;
            Ok(base + at / page * page..(base + at + extent.length).next_multiple_of(page))
        };
        let ranges = extents.iter().map(range).collect::<Result<Vec<_>>>()?;
        match advice::announce(&ranges) == ranges.iter().map(|range| range.len() as u64).sum() {
            true => Ok(()),
            // One by one, whatever was refused is told.
            false => self.advise(extents, Advice::WillNeed),
        }
    }

    /// Gives advice `kind` for each extent, with one call for neighbours.
    fn advise(&self, extents: &[Extent], kind: Advice) -> Result<()> {
        let mut pending: Option<(usize, usize, usize)> = None;
        for extent in extents {
            let (index, at) = self.locate(*extent)?;
            pending = match pending {
                Some((same, begin, length)) if same == index && begin + length == at => {
                    Some((index, begin, length + extent.length))
                }
                other => {
                    other.map_or(Ok(()), |(index, at, length)| {
                        advice::madvise(self.maps[index].mapping(), at, length, kind)
                    })?;
                    Some((index, at, extent.length))
                }
            };
        }
        pending.map_or(Ok(()), |(index, at, length)| advice::madvise(self.maps[index].mapping(), at, length, kind))
    }
}

fn hint(map: &Mapping, advice: Hint) -> Result<()> {
    let kind = match advice {
        Hint::Normal => return Ok(()),
        Hint::Random => Advice::Random,
        Hint::Sequential => Advice::Sequential,
        Hint::Hugepage => Advice::HugePage,
        Hint::Willneed => Advice::WillNeed,
        Hint::Strided => Advice::Strided,
    };
    advice::madvise(map, 0, map.length(), kind)
}

fn fill(map: &Mapping, populate: Populate) -> Result<()> {
    match populate {
        Populate::None => Ok(()),
        Populate::Read => advice::madvise(map, 0, map.length(), Advice::PopulateRead),
        Populate::Write => advice::madvise(map, 0, map.length(), Advice::PopulateWrite),
    }
}

impl MmapReader {
    fn new(maps: Arc<Maps>) -> MmapReader {
        let claimant = maps.claims.as_ref().map(Claims::claimant);
        MmapReader { maps, claimant, copy: Vec::new() }
    }

    /// Shows the bytes themselves. A reader of a writable mapping claims them until the visitor returns.
    #[inline]
    fn show_in_place(&mut self, extent: Extent, see: impl FnOnce(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        let MmapReader { maps, claimant, .. } = self;
        let (map, at) = maps.locate(extent)?;
        let _held = match claimant {
            Some(claimant) => Some(claimant.claim(bytes_of(extent), Kind::Shared)?),
            None => None,
        };
        // SAFETY: the target promises that only siblings change these bytes while they are shown. They use this mapping,
        // which is either read-only, or they claim what they change, and the claim above is held until `see` returns.
        Ok(see(unsafe { maps.maps[map].bytes(at, extent.length) }))
    }

    /// Shows a copy; the bytes are claimed only while it is made.
    fn show_copied(&mut self, extent: Extent, see: impl FnOnce(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        let MmapReader { maps, claimant, copy } = self;
        let (map, at) = maps.locate(extent)?;
        let copy = room(copy, extent.length);
        let held = claimant.as_mut().map(|claimant| claimant.claim(bytes_of(extent), Kind::Shared)).transpose()?;
        maps.maps[map].view(at, extent.length).read(0, copy);
        drop(held);
        Ok(see(copy))
    }

    /// Lets `fill` change the bytes themselves, claimed until it returns.
    fn change_in_place(
        &mut self,
        extent: Extent,
        fill: impl FnOnce(&mut [u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let MmapReader { maps, claimant, .. } = self;
        let (map, at) = maps.locate(extent)?;
        let claimant = claimant.as_mut().ok_or_else(|| unclaimed(extent))?;
        let _held = claimant.claim(bytes_of(extent), Kind::Exclusive)?;
        // SAFETY: the target promises that only siblings use these bytes meanwhile. They claim what they show and change, and
        // the claim above excludes them until `fill` returns.
        Ok(unsafe { maps.maps[map].change_shared(at, extent.length, fill) })
    }

    /// Lets `fill` fill a buffer, and copies it to the bytes, which are claimed during the copy.
    fn change_copied(
        &mut self,
        extent: Extent,
        fill: impl FnOnce(&mut [u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let MmapReader { maps, claimant, copy } = self;
        let (map, at) = maps.locate(extent)?;
        let claimant = claimant.as_mut().ok_or_else(|| unclaimed(extent))?;
        let copy = room(copy, extent.length);
        let flow = fill(copy);
        let _held = claimant.claim(bytes_of(extent), Kind::Exclusive)?;
        // SAFETY: every user of this mapping claims what it reads or writes, and the claim above excludes the others.
        unsafe { maps.maps[map].write_shared(at, copy) };
        Ok(flow)
    }
}

fn bytes_of(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + extent.length as u64
}

fn room(copy: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if copy.len() < length {
        copy.resize(length, 0);
    }
    &mut copy[..length]
}

/// Cannot happen: a writable mapping has claims.
#[cold]
fn unclaimed(extent: Extent) -> Error {
    Error::Invalid(format!("the mapping is read-only: {} bytes at {} cannot be changed", extent.length, extent.offset))
}

impl Reader for MmapReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            let see = |bytes: &[u8]| visitor.see(index, bytes);
            let flow = match self.maps.in_place {
                true => self.show_in_place(*extent, see)?,
                false => self.show_copied(*extent, see)?,
            };
            if flow.is_break() {
                break;
            }
        }
        self.maps.check()
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        if !self.maps.writable {
            self.maps.target.check_writable()?;
        }
        for (index, extent) in extents.iter().enumerate() {
            let fill = |bytes: &mut [u8]| filler.fill(index, bytes);
            let flow = match self.maps.in_place {
                true => self.change_in_place(*extent, fill)?,
                false => self.change_copied(*extent, fill)?,
            };
            if flow.is_break() {
                break;
            }
        }
        self.maps.check()
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        if !self.maps.writable {
            self.maps.target.check_writable()?;
        }
        self.maps.locate(extent).map(drop)
    }

    fn sync(&mut self) -> Result<()> {
        if self.maps.share == Share::Private {
            return Ok(());
        }
        self.maps.maps.iter().try_for_each(|map| map.mapping().sync())?;
        self.maps.check()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(MmapReader::new(Arc::clone(&self.maps))))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        match extents {
            [] | [_] => self.maps.advise(extents, Advice::WillNeed),
            several => self.maps.announce(several),
        }
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        match self.maps.share {
            Share::Shared => self.maps.advise(extents, Advice::DontNeed),
            // It would discard private changes.
            Share::Private => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Given;
    use crate::sys::cache;
    use crate::test_files::{PAGE, TestFile};

    fn opened(file: &TestFile, given: &str) -> Opened {
        (METHOD.open)(file.target(false), &given.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_file_that_is_truncated_gives_an_error_not_a_crash() {
        let file = TestFile::on_disk(16 * PAGE);
        let mut opened = opened(&file, "");
        let extents: Vec<Extent> = (0..16).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
        file.file().set_len(4 * PAGE as u64).unwrap();

        let error = opened.reader.visit(&extents, &mut |_: usize, bytes: &[u8]| {
            std::hint::black_box(bytes.iter().fold(0u8, |sum, byte| sum ^ byte));
        });

        let Err(Error::Truncated { offset, .. }) = error else { panic!("{error:?}") };
        assert_eq!(offset, 4 * PAGE as u64);
    }

    /// The file as a target that nobody changes except its readers.
    fn unchanged(file: &TestFile, write: bool) -> Arc<Target> {
        let layout = crate::files::Layout { write, ..crate::files::Layout::default() };
        let target = Target::open(&[file.path().to_owned()], &layout).unwrap();
        // SAFETY: every test here opens one reader on it, and changes the file by its siblings.
        Arc::new(unsafe { target.assume_unchanged() })
    }

    const FIRST: Extent = Extent { offset: 0, length: PAGE };

    /// Where the first page is shown and filled.
    fn addresses(reader: &mut dyn Reader) -> [usize; 2] {
        let (mut shown, mut filled) = (0, 0);
        reader.visit(&[FIRST], &mut |_: usize, bytes: &[u8]| shown = bytes.as_ptr() as usize).unwrap();
        let fill = &mut |_: usize, bytes: &mut [u8]| {
            filled = bytes.as_ptr() as usize;
            bytes.fill(3);
        };
        reader.update(&[FIRST], fill).unwrap();
        [shown, filled]
    }

    #[test]
    fn bytes_are_lent_in_place_only_with_the_promise_that_nobody_changes_them() {
        let file = TestFile::on_disk(4 * PAGE);
        for (promised, target) in [(true, unchanged(&file, true)), (false, file.target(true))] {
            let (maps, notes) = Maps::open(target, &MmapOptions::default()).unwrap();
            let mapped = maps.maps[0].mapping().as_ptr() as usize;
            let mut reader = MmapReader::new(Arc::new(maps));

            let addresses = addresses(&mut reader);

            assert_eq!(addresses.map(|address| address == mapped), [promised; 2]);
            assert_eq!(notes, if promised { vec![] } else { vec![COPIED.to_owned()] });
            assert_eq!(std::fs::read(file.path()).unwrap()[..PAGE], [3; PAGE]);
        }
    }

    #[test]
    fn a_file_that_is_named_twice_is_copied_where_it_can_be_changed() {
        let file = TestFile::on_disk(2 << 20);
        for write in [false, true] {
            let layout = crate::files::Layout { write, ..crate::files::Layout::default() };
            let target = Target::open(&[file.path().to_owned(), file.path().to_owned()], &layout).unwrap();
            // SAFETY: the readers of this test do not show anything.
            let target = Arc::new(unsafe { target.assume_unchanged() });

            let (maps, _) = Maps::open(target, &MmapOptions::default()).unwrap();

            assert_eq!(maps.in_place, !write);
        }
    }

    #[test]
    fn extents_of_several_files_are_announced_each_in_its_own() {
        let files = [0, 1].map(|_| TestFile::on_disk(4 * PAGE));
        let forget = |file: &TestFile| {
            file.file().sync_all().unwrap();
            cache::fadvise(file.file(), 0, 0, cache::FileAdvice::Random).unwrap();
            cache::fadvise(file.file(), 0, 0, cache::FileAdvice::DontNeed).unwrap();
        };
        files.iter().for_each(forget);
        let paths = files.each_ref().map(|file| file.path().to_owned());
        let layout = crate::files::Layout { stripe: crate::Bytes(4 * PAGE as u64), ..crate::files::Layout::default() };
        let target = Arc::new(Target::open(&paths, &layout).unwrap());
        let mut reader = MmapOptions::default().open_target(target).unwrap().reader;

        let pages = [0, 6].map(|page| Extent { offset: page * PAGE as u64, length: PAGE });
        reader.will_need(&pages, Urgency::Soon).unwrap();

        let is_read = |file: usize, page: usize| {
            let found = cache::resident(files[file].file(), (page * PAGE) as u64, PAGE as u64).unwrap();
            found.0 > 0
        };
        assert_eq!([is_read(0, 0), is_read(1, 2), is_read(0, 3), is_read(1, 3)], [true, true, false, false]);
    }

    #[test]
    fn a_visitor_that_changes_what_it_is_shown_gets_an_error() {
        let file = TestFile::on_disk(4 * PAGE);
        for share in ["shared", "private"] {
            let given = format!("share={share}").parse().unwrap();
            let mut reader = (METHOD.open)(unchanged(&file, true), &given).unwrap().reader;
            let mut sibling = reader.sibling().unwrap();
            let (mut seen, mut outcomes) = (Vec::new(), Vec::new());

            let change = |_: usize, bytes: &mut [u8]| bytes.fill(9);
            let visited = reader.visit(&[FIRST], &mut |_: usize, bytes: &[u8]| {
                outcomes.push(sibling.update(&[FIRST], &mut { change }));
                outcomes.push(sibling.update(&[Extent { offset: PAGE as u64, ..FIRST }], &mut { change }));
                seen = bytes.to_vec();
            });

            assert!(visited.is_ok() && seen == file.content()[..PAGE]);
            assert!(matches!(outcomes[0], Err(Error::Invalid(_))) && outcomes[1].is_ok(), "{outcomes:?}");
        }
    }

    #[test]
    fn siblings_never_see_a_change_half_done() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut writer = (METHOD.open)(unchanged(&file, true), &Given::none()).unwrap().reader;
        let mut readers = [writer.sibling().unwrap(), writer.sibling().unwrap()];
        writer.update(&[FIRST], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0)).unwrap();
        let is_whole = |_: usize, bytes: &[u8]| {
            let first = bytes[0];
            assert!(bytes.iter().all(|byte| *byte == first), "{first} and others");
        };

        std::thread::scope(|scope| {
            for reader in &mut readers {
                scope.spawn(move || (0..2000).for_each(|_| reader.visit(&[FIRST], &mut { is_whole }).unwrap()));
            }
            for turn in 0..2000 {
                let fill = &mut |_: usize, bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = turn as u8);
                writer.update(&[FIRST], fill).unwrap();
            }
        });
    }

    #[test]
    fn a_copied_extent_may_be_changed_while_it_is_shown() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut reader = (METHOD.open)(file.target(true), &Given::none()).unwrap().reader;
        let mut sibling = reader.sibling().unwrap();

        let visited = reader.visit(&[FIRST], &mut |_: usize, bytes: &[u8]| {
            let before = bytes.to_vec();
            sibling.update(&[FIRST], &mut |_: usize, bytes: &mut [u8]| bytes.fill(9)).unwrap();
            assert!(before == bytes && bytes == &file.content()[..PAGE]);
        });

        visited.unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap()[..PAGE], [9; PAGE]);
    }

    #[test]
    fn every_hint_and_placement_shows_the_same_bytes() {
        let file = TestFile::on_disk(3 << 20);
        let extent = Extent { offset: PAGE as u64, length: 2 << 20 };
        for hint in Hint::ALL.iter().map(crate::params::Value::text) {
            for align in ["page", "2m", "skewed"] {
                let given = format!("advice={hint},align={align},populate=read");
                let mut opened = match (METHOD.open)(file.target(false), &given.parse().unwrap()) {
                    Err(Error::Missing(_)) if hint == "strided" => continue,
                    opened => opened.unwrap(),
                };

                opened
                    .reader
                    .visit(&[extent], &mut |_: usize, bytes: &[u8]| {
                        assert!(bytes == &file.content()[PAGE..][..2 << 20], "{hint} {align}");
                    })
                    .unwrap();
            }
        }
    }

    #[test]
    fn private_changes_stay_private() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut opened = (METHOD.open)(file.target(true), &"share=private".parse().unwrap()).unwrap();
        let extent = Extent { offset: 0, length: PAGE };
        opened.reader.update(&[extent], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0)).unwrap();
        opened.reader.sync().unwrap();

        assert_eq!(std::fs::read(file.path()).unwrap(), file.content());
    }
}
