//! The pool behind plain pointers as an access method. Bytes are shown in place where the target promises that nobody changes
//! them, otherwise by copy; where they can be changed, readers claim what they show and change.
#![allow(unsafe_code, reason = "the target's promise is relied on where bytes are lent")]

use super::pointers::PooledMap;
use super::{Handle, PoolLayout, method};
use crate::access::{self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Urgency, Visitor};
use crate::access::{DirectOptions, PreadOptions, UringOptions};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::{Params, Switch};
use crate::sys::claims::{Claimant, Claims, Kind};
use crate::sys::ring::IO_URING;
use crate::sys::uffd::USERFAULTFD;
use crate::units::Bytes;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// The access method `uffd`.
pub const METHOD: Method = Method {
    name: "uffd",
    summary: "plain pointers into a buffer pool of our own: faults are served by a thread (userfaultfd)",
    needs: &[&USERFAULTFD],
    class: Class::Pool,
    hints: Hints::Own,
    depth: None,
    budget: Some("memory"),
    direct: DirectIo::Given,
    params: UffdOptions::declared,
    open: access::by_names::<UffdOptions>,
};

access::front_door! {
    /// Plain pointers into a pool: a thread serves the faults.
    Uffd by UffdOptions
}

crate::params! {
    /// How large the pool is, and how it is filled.
    #[non_exhaustive]
    pub struct UffdOptions {
        /// Memory for pages. A cgroup's limit must leave room for it.
        memory: Bytes = Bytes::mib(64),
        /// Bytes brought by a fault, 4k to 2m; larger ones read more than was asked for, and save faults.
        page: Bytes = Bytes::kib(4),
        /// Past the page cache, so that nothing is cached twice.
        direct: Switch = Switch::On,
        /// Pages evicted at once; 256 make one TLB flush cheap for each page.
        batch: u32 = 256,
    }
}

/// All threads share the map; each has a handle of its own for fetching and writing.
struct UffdReader {
    map: Arc<PooledMap>,
    target: Arc<Target>,
    handle: Handle,
    /// Whether bytes are shown in place: the target promises that nobody else changes them.
    in_place: bool,
    claims: Arc<Claims>,
    /// The claims of a target that can be changed.
    claimant: Option<Claimant>,
    /// The copy of an extent that is not shown in place.
    copy: Vec<u8>,
}

const COPIED: &str = "each extent is copied before it is shown: nobody has promised that the files stay unchanged \
                      (Target::assume_unchanged)";

impl MethodOptions for UffdOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let settings = self.given();
        let UffdOptions { memory, page, direct, batch } = self;
        USERFAULTFD.met()?;
        let below = match (IO_URING.met(), direct) {
            (Ok(()), _) => UringOptions::default().direct(direct).open_target(Arc::clone(&target))?,
            (_, Switch::On) => DirectOptions::default().open_target(Arc::clone(&target))?,
            (_, Switch::Off) => PreadOptions::default().open_target(Arc::clone(&target))?,
        };
        let layout = PoolLayout { memory, page, batch, transfer: method::transfer(&target, page)? };
        let map = Arc::new(PooledMap::new(target.len(), layout, below.reader.sibling()?)?);
        let handle = map.pool().handle(below.reader);
        let mut notes = below.notes;
        // In a file that is named twice, the same bytes have two positions, and a claim covers only one.
        let in_place = target.is_assumed_unchanged() && !(target.writable() && target.has_twins());
        notes.extend((!in_place).then(|| COPIED.to_owned()));
        let reader = UffdReader::new(map, Arc::clone(&target), handle, in_place, Arc::default());
        Ok(Opened::new(Box::new(reader), target, settings, notes))
    }
}

impl UffdReader {
    fn new(
        map: Arc<PooledMap>,
        target: Arc<Target>,
        handle: Handle,
        in_place: bool,
        claims: Arc<Claims>,
    ) -> UffdReader {
        let claimant = target.writable().then(|| claims.claimant());
        UffdReader { map, target, handle, in_place, claims, claimant, copy: Vec::new() }
    }

    fn show(&mut self, extent: Extent, see: impl FnOnce(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        let UffdReader { map, in_place, claimant, copy, .. } = self;
        let begin = extent.offset as usize;
        let range = begin..begin + extent.length;
        let held = claimant.as_mut().map(|claimant| claimant.claim(bytes_of(extent), Kind::Shared)).transpose()?;
        if *in_place {
            // SAFETY: the target promises that only siblings change these bytes while they are shown; they claim what they
            // change, and the claim above is held until `see` returns.
            return Ok(see(unsafe { map.bytes(range) }));
        }
        copy.resize(extent.length, 0);
        map.view().part(range).read(0, copy);
        drop(held);
        Ok(see(copy))
    }
}

fn bytes_of(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + extent.length as u64
}

/// The pages that hold these extents, and what lies between: pages are changed as a whole.
fn pages_around(extents: &[Extent], page: u64) -> Range<u64> {
    let begin = extents.iter().map(|extent| extent.offset).min().unwrap_or(0);
    let end = extents.iter().map(|extent| bytes_of(*extent).end).max().unwrap_or(0);
    begin / page * page..end.next_multiple_of(page)
}

impl Reader for UffdReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            self.target.locate(*extent)?;
            visitor.submitted(index);
            let flow = self.show(*extent, |bytes| visitor.see(index, bytes))?;
            self.map.check()?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        let UffdReader { target, handle, claimant, .. } = self;
        target.check_writable()?;
        extents.iter().try_for_each(|extent| target.locate(*extent).map(drop))?;
        let around = pages_around(extents, handle.pool.page_size() as u64);
        let _held = claimant.as_mut().map(|claimant| claimant.claim(around, Kind::Exclusive)).transpose()?;
        method::update(handle, target, extents, filler)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        method::check_update(&self.handle, &self.target, extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.handle.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let (map, target) = (Arc::clone(&self.map), Arc::clone(&self.target));
        let handle = self.handle.pool.handle(self.handle.reader.sibling()?);
        Ok(Box::new(UffdReader::new(map, target, handle, self.in_place, Arc::clone(&self.claims))))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        method::expect(&mut self.handle, &self.target, extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    fn extent(offset: usize, length: usize) -> Extent {
        Extent { offset: offset as u64, length }
    }

    #[test]
    fn a_change_takes_its_pages_and_what_lies_between() {
        assert_eq!(bytes_of(extent(100, 7)), 100..107);
        assert_eq!(pages_around(&[extent(12_000, 300), extent(5000, 100)], 4096), 4096..16_384);
        assert_eq!(pages_around(&[extent(4096, 4096)], 4096), 4096..8192);
        assert_eq!(pages_around(&[], 4096), 0..0);
    }

    /// Shows these extents up to the `last`-th: which were told and shown, with their bytes.
    struct Shown(Vec<usize>, Vec<(usize, Vec<u8>)>, usize);

    impl Visitor for Shown {
        fn submitted(&mut self, index: usize) {
            self.0.push(index);
        }

        fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
            self.1.push((index, bytes.to_vec()));
            if index == self.2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// The file as a target, with or without the promise that nobody else changes it.
    fn target(file: &TestFile, is_unchanged: bool) -> Arc<Target> {
        let target = Arc::into_inner(file.target(true)).unwrap();
        // SAFETY: nobody else knows the file.
        Arc::new(if is_unchanged { unsafe { target.assume_unchanged() } } else { target })
    }

    #[test]
    fn bytes_are_shown_and_changed_behind_pointers_in_place_or_by_copy() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED bytes_are_shown_and_changed_behind_pointers_in_place_or_by_copy: {missing}");
            return;
        }
        for in_place in [true, false] {
            let file = TestFile::on_disk(8 * PAGE);
            let opened = UffdOptions::default().direct(false).open_target(target(&file, in_place)).unwrap();
            assert_eq!(opened.notes.iter().any(|note| note == COPIED), !in_place, "{:?}", opened.notes);
            let mut reader = opened.reader;
            let extents = [extent(PAGE - 3, 5), extent(4 * PAGE, 2 * PAGE), extent(7 * PAGE, 1)];
            let content = |it: &Extent| file.content()[it.offset as usize..][..it.length].to_vec();

            let mut shown = Shown(Vec::new(), Vec::new(), 1);
            reader.visit(&extents, &mut shown).unwrap();
            let mut sibling = reader.sibling().unwrap();
            sibling.update(&[extents[0]], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0)).unwrap();
            sibling.sync().unwrap();
            let mut after = Shown(Vec::new(), Vec::new(), 9);
            reader.visit(&extents[..1], &mut after).unwrap();

            assert_eq!(shown.0, [0, 1]);
            assert!(shown.1 == [(0, content(&extents[0])), (1, content(&extents[1]))], "up to the break");
            assert!(after.1 == [(0, vec![0; 5])]);
            let mut expected = file.content().to_vec();
            expected[PAGE - 3..PAGE + 2].fill(0);
            assert!(std::fs::read(file.path()).unwrap() == expected);
        }
    }

    #[test]
    fn a_hint_brings_pages_behind_pointers_and_no_change_of_a_file_for_reading_is_taken() {
        if let Err(missing) = USERFAULTFD.met() {
            eprintln!("SKIPPED a_hint_brings_pages_behind_pointers: {missing}");
            return;
        }
        let file = TestFile::on_disk(8 * PAGE);
        let options = UffdOptions::default().direct(false);
        let mut writing = options.clone().open_target(file.target(true)).unwrap().reader;
        let mut reading = options.open_target(file.target(false)).unwrap().reader;
        let (first, past) = (extent(PAGE, PAGE), extent(8 * PAGE, 1));

        assert!(writing.check_update(first).is_ok() && writing.check_update(past).is_err());
        assert!(reading.check_update(first).is_err());
        assert!(reading.update(&[first], &mut |_: usize, _: &mut [u8]| ()).is_err());
        assert!(writing.update(&[first, past], &mut |_: usize, bytes: &mut [u8]| bytes.fill(0)).is_err());
        assert!(reading.visit(&[past], &mut |_: usize, _: &[u8]| ()).is_err());
        reading.will_need(&[first], Urgency::Soon).unwrap();

        // Changed behind the method's back: what it shows was read before.
        std::os::unix::fs::FileExt::write_all_at(file.file(), &[0; PAGE], PAGE as u64).unwrap();
        let mut shown = Shown(Vec::new(), Vec::new(), 0);
        reading.visit(&[first], &mut shown).unwrap();
        assert!(shown.1[0].1 == file.content()[PAGE..2 * PAGE]);
    }
}
