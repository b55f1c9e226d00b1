//! Announcing ranges of a region: cut to the budget, rounded and joined, left out where the whole file is cached.

use super::{Region, to_pages, whole};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::headroom;
use crate::prefetch::Merge;
use crate::sys::advice;
use std::ops::Range;

/// Bytes that are announced without asking how much memory is free; what policies have ahead by default.
const SMALL: u64 = 8 << 20;

/// Ranges looked at where the whole file was cached a moment ago. Each look (mincore) is 0.7 us of a call of 5.
const SAMPLES: usize = 2;

/// What [`Region::will_need`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// Bytes that the kernel was asked to read, in whole pages; those that are cached count as well.
    pub asked_bytes: u64,
    /// Bytes of ranges that were left out because memory would not hold them, the last ones first.
    pub left_bytes: u64,
    /// Bytes that the kernel did not take.
    pub refused_bytes: u64,
    /// Bytes that nobody was asked for, because the whole file is cached.
    pub cached_bytes: u64,
}

impl Region {
    /// Asks the kernel to read `wanted` into the page cache, and returns without waiting for it.
    ///
    /// Ranges are rounded out to pages, joined and cut to 128 KiB, because the kernel cuts longer advice in silence. All of them
    /// together take at most half of the free memory; beyond that the last ones are left out.
    ///
    /// Costs 5 us, and for each range that is cached some 0.6 us, unless all of the file is cached: that is looked at now and
    /// then, and believed while samples agree.
    ///
    /// Errors: Invalid (a range outside the region).
    pub fn will_need(&self, wanted: impl IntoIterator<Item = Range<usize>>) -> Result<Announced> {
        self.announce(wanted.into_iter().collect())
    }

    fn announce(&self, mut wanted: Vec<Range<usize>>) -> Result<Announced> {
        let outside = wanted.iter().find(|part| part.start < self.range.start || part.end > self.range.end);
        if let Some(Range { start, end }) = outside {
            return Err(Error::Invalid(format!("the addresses {start:#x} to {end:#x} are not in the region")));
        }
        let all: u64 = wanted.iter().map(|part| part.len() as u64).sum();
        if self.is_cached(&wanted) {
            return Ok(Announced { cached_bytes: all, ..Announced::default() });
        }
        let kept = keep(&mut wanted, room(all));
        let requests = self.requests(&wanted);
        let asked: u64 = requests.iter().map(|part| part.len() as u64).sum();
        let taken = advice::announce(&requests);
        Ok(Announced { asked_bytes: taken, left_bytes: all - kept, refused_bytes: asked - taken, cached_bytes: 0 })
    }

    /// Whether the whole file was cached when last looked at, and samples of `wanted` are.
    fn is_cached(&self, wanted: &[Range<usize>]) -> bool {
        let is_there = |part: &Range<usize>| {
            let first = to_pages(&(part.start..part.start + 1));
            advice::mincore_at(&first).is_ok_and(|states| states.iter().all(|state| state & 1 == 1))
        };
        let step = wanted.len().div_ceil(SAMPLES).max(1);
        let agrees = || wanted.iter().rev().step_by(step).filter(|part| !part.is_empty()).all(is_there);
        whole::is_cached(self) && (agrees() || whole::forget(self))
    }

    /// Whole pages, ascending, without overlap, none longer than what the kernel reads at once.
    fn requests(&self, wanted: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut pages: Vec<Extent> = wanted.iter().filter(|part| !part.is_empty()).map(pages).collect();
        let merge = Merge { gap: 0, length: self.range.end as u64, stripe: 1 << 62 };
        let mut requests = Vec::new();
        merge.requests(&mut pages, &mut requests);
        requests.iter().map(|extent| extent.offset as usize..extent.offset as usize + extent.length).collect()
    }
}

fn pages(part: &Range<usize>) -> Extent {
    let Range { start, end } = to_pages(part);
    Extent { offset: start as u64, length: end - start }
}

/// How many of `wanted` bytes may be announced.
fn room(wanted: u64) -> u64 {
    if wanted <= SMALL { wanted } else { wanted.min(headroom::free_bytes() / 2) }
}

/// Leaves the first ranges of `wanted`, at most `room` bytes. Returns how many bytes they have.
fn keep(wanted: &mut Vec<Range<usize>>, room: u64) -> u64 {
    let mut kept = 0;
    for (index, part) in wanted.iter_mut().enumerate() {
        let left = usize::try_from(room - kept).unwrap_or(usize::MAX);
        kept += part.len().min(left) as u64;
        if part.len() > left {
            part.end = part.start + left;
            wanted.truncate(index + 1);
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cache::{self, FileAdvice, fadvise};
    use crate::sys::map::Mapping;
    use crate::test_files::{PAGE, TestFile};
    use std::iter;

    fn cold(pages: usize) -> (TestFile, Mapping, usize) {
        let file = TestFile::on_disk(pages * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let mapping = Mapping::new(file.file(), 0, pages * PAGE, &Default::default()).unwrap();
        let begin = mapping.as_ptr() as usize;
        (file, mapping, begin)
    }

    fn cached(file: &TestFile) -> u64 {
        cache::resident(file.file(), 0, file.length() as u64).unwrap().0
    }

    #[test]
    fn announced_rows_are_read_in_whole_pages_and_nothing_else() {
        let (file, mapping, begin) = cold(1000);
        let region = Region::of(begin..begin + mapping.length()).unwrap();
        // Two that share a page, one across a boundary, one of many pages.
        let rows = [10..20, 100..110, 9 * PAGE - 1..9 * PAGE + 1, 100 * PAGE..200 * PAGE];
        let wanted = rows.iter().map(|row| begin + row.start..begin + row.end);

        let announced = region.will_need(wanted).unwrap();

        let pages = 1 + 2 + 100;
        assert_eq!(announced, Announced { asked_bytes: pages * PAGE as u64, ..Announced::default() });
        assert_eq!(cached(&file), pages * PAGE as u64);
    }

    #[test]
    fn a_file_that_is_cached_as_a_whole_is_left_alone_until_a_page_is_missing() {
        let (file, mapping, begin) = cold(64);
        let region = Region::of(begin..begin + mapping.length()).unwrap();
        let all = || iter::once(begin..begin + 64 * PAGE);
        std::fs::read(file.path()).unwrap();

        let warm = region.will_need(all()).unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let again = region.will_need(all()).unwrap();

        if cache::CACHESTAT.met().is_err() {
            eprintln!("SKIPPED a_file_that_is_cached_as_a_whole_is_left_alone: the kernel does not say what is cached");
            return;
        }
        assert_eq!((warm.cached_bytes, warm.asked_bytes), (64 * PAGE as u64, 0));
        assert_eq!((again.cached_bytes, again.asked_bytes), (0, 64 * PAGE as u64));
    }

    #[test]
    fn of_many_ranges_the_last_and_one_before_it_are_looked_at() {
        if cache::CACHESTAT.met().is_err() {
            eprintln!("SKIPPED of_many_ranges_the_last_and_one_before_it: the kernel does not say what is cached");
            return;
        }
        let (page, rows) = (PAGE as u64, 0..2000usize);
        // The last rows are gone, or those about the middle, with more on both sides than a large folio has.
        for gone in [1400..2000, 400..1600] {
            let (file, mapping, begin) = cold(2000);
            let region = Region::of(begin..begin + mapping.length()).unwrap();
            let all = || rows.clone().map(|row| begin + row * PAGE..begin + (row + 1) * PAGE);
            std::fs::read(file.path()).unwrap();
            let warm = region.will_need(all()).unwrap();

            fadvise(file.file(), gone.start * page, (gone.end - gone.start) * page, FileAdvice::DontNeed).unwrap();
            let again = region.will_need(all()).unwrap();

            assert_eq!((warm.cached_bytes, again.cached_bytes), (2000 * page, 0), "{gone:?}");
        }
    }

    #[test]
    fn ranges_outside_the_region_are_refused() {
        let (_file, mapping, begin) = cold(4);
        let region = Region::of(begin..begin + PAGE).unwrap();

        assert!(matches!(region.will_need(iter::once(begin..begin + PAGE + 1)), Err(Error::Invalid(_))));
        drop(mapping);
    }

    #[test]
    fn what_passes_the_room_is_left_out_from_the_end() {
        let mut wanted = vec![0..10, 50..70, 20..30];

        let kept = keep(&mut wanted, 25);

        assert_eq!((kept, wanted), (25, vec![0..10, 50..65]));
        assert_eq!(keep(&mut vec![0..10, 10..20], 10), 10);
    }
}
