//! The file mapped and read in place: no copy, a fault for every page (or folio) not yet mapped.

use crate::access::{Class, DirectIo, Filler, Hints, Method, Opened, Reader, Urgency, Visitor};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::params::{Given, Params};
use crate::sys::advice::{self, Advice};
use crate::sys::fault::Guarded;
use crate::sys::map::{Access, MapOptions, Mapping, Placement};
use std::sync::Arc;

pub(super) const METHOD: Method = Method {
    name: "mmap",
    summary: "the file mapped and used in place; the kernel reads what is touched",
    needs: &[],
    class: Class::Mapped,
    hints: Hints::PageCache,
    depth: None,
    direct: DirectIo::Never,
    params: MmapParams::declared,
    open,
};

crate::choices! {
    /// What the kernel is told about the mapping before the first touch (madvise(2)).
    #[non_exhaustive]
    pub enum Hint {
        /// Nothing.
        Normal = "normal",
        /// MADV_RANDOM: no read-ahead; since Linux 6.3 also no protection of pages in use.
        Random = "random",
        /// MADV_SEQUENTIAL: more read-ahead.
        Sequential = "sequential",
        /// MADV_HUGEPAGE: huge pages, where file system and kernel can.
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
        /// Where the kernel likes.
        Page = "page",
        /// Address and offset congruent modulo 2 MiB, and verified to be so: the condition for huge pages.
        Huge = "2m",
        /// Congruent but for 4 KiB: to see what a misaligned mapping costs.
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
    pub struct MmapParams {
        /// The hint given before the first touch; by default none, as in most programs.
        advice: Hint = Hint::Normal,
        /// What is faulted in at opening; by default nothing, so that a run pays for what it touches.
        populate: Populate = Populate::None,
        /// Where the mapping is put; by default where the kernel likes.
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
}

struct MmapReader(Arc<Maps>);

pub(super) fn open(target: Arc<Target>, given: &Given) -> Result<Opened> {
    let params = MmapParams::from_given(given)?;
    let (maps, notes) = Maps::open(Arc::clone(&target), &params)?;
    Ok(Opened::new(Box::new(MmapReader(Arc::new(maps))), target, params.given(), notes))
}

impl Maps {
    fn open(target: Arc<Target>, params: &MmapParams) -> Result<(Maps, Vec<String>)> {
        let MmapParams { advice, populate, align, share } = params;
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
        let maps = Maps { target, maps, starts, writable, share: *share };
        maps.check()?;
        Ok((maps, notes))
    }

    /// Which mapping holds `extent`, and where in it.
    #[inline]
    fn locate(&self, extent: Extent) -> Result<(usize, usize)> {
        let (index, offset) = self.target.locate(extent)?;
        Ok((index, (offset - self.starts[index]) as usize))
    }

    /// Fails where a page of the file was found gone.
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

    /// Gives `kind` for each extent; neighbours in one call.
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

impl Reader for MmapReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            let (map, at) = self.0.locate(*extent)?;
            if visitor.see(index, self.0.maps[map].bytes(at, extent.length)).is_break() {
                break;
            }
        }
        self.0.check()
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        if !self.0.writable {
            self.0.target.check_writable()?;
        }
        for (index, extent) in extents.iter().enumerate() {
            let (map, at) = self.0.locate(*extent)?;
            if self.0.maps[map].change(at, extent.length, |bytes| filler.fill(index, bytes)).is_break() {
                break;
            }
        }
        self.0.check()
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        if !self.0.writable {
            self.0.target.check_writable()?;
        }
        self.0.locate(extent).map(drop)
    }

    fn sync(&mut self) -> Result<()> {
        if self.0.share == Share::Private {
            return Ok(());
        }
        self.0.maps.iter().try_for_each(|map| map.mapping().sync())?;
        self.0.check()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(MmapReader(Arc::clone(&self.0))))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        self.0.advise(extents, Advice::WillNeed)
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        match self.0.share {
            Share::Shared => self.0.advise(extents, Advice::DontNeed),
            // It would throw private changes away.
            Share::Private => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    fn opened(file: &TestFile, given: &str) -> Opened {
        open(file.target(false), &given.parse().unwrap()).unwrap()
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

    #[test]
    fn every_hint_and_placement_shows_the_same_bytes() {
        let file = TestFile::on_disk(3 << 20);
        let extent = Extent { offset: PAGE as u64, length: 2 << 20 };
        for hint in Hint::ALL.iter().map(crate::params::Value::text) {
            for align in ["page", "2m", "skewed"] {
                let mut opened = opened(&file, &format!("advice={hint},align={align},populate=read"));

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
        let mut opened = open(file.target(true), &"share=private".parse().unwrap()).unwrap();
        let extent = Extent { offset: 0, length: PAGE };
        opened.reader.update(&[extent], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0)).unwrap();
        opened.reader.sync().unwrap();

        assert_eq!(std::fs::read(file.path()).unwrap(), file.content());
    }
}
