//! Leaves out what is in the page cache already: a hint for a cached page costs more than using the page.

use crate::files::{Extent, Target};
use crate::sys::cache;
use std::sync::Arc;

/// Requests that are judged together, usually.
const GROUP: usize = 32;

/// Requests of a group that are checked, evenly spread. If half of the file is cached at random, one group in
/// 16 is left out although some of it was needed.
const SAMPLES: usize = 4;

/// Learns by samples what is cached, where the kernel reports it (Linux 6.5, and the user's own files).
#[derive(Clone, Debug)]
pub(super) struct Cached {
    target: Option<Arc<Target>>,
    /// Requests that are judged together.
    group: usize,
}

impl Cached {
    /// For the files of `target`.
    pub fn of(target: Arc<Target>) -> Cached {
        Cached { target: Some(target), group: GROUP }
    }

    /// The same, request by request: for callers that count what is really read.
    pub fn each_of(target: Arc<Target>) -> Cached {
        Cached { target: Some(target), group: 1 }
    }

    /// Treats nothing as cached: for readers that bypass the page cache.
    pub fn nothing() -> Cached {
        Cached { target: None, group: GROUP }
    }

    /// Removes a group from `requests` if its samples are all cached. Costs four calls of some 200 ns for each group.
    pub fn leave_out(&mut self, requests: &mut Vec<Extent>) {
        let mut kept = 0;
        for begin in (0..requests.len()).step_by(self.group) {
            let end = requests.len().min(begin + self.group);
            if !self.holds(&requests[begin..end]) {
                requests.copy_within(begin..end, kept);
                kept += end - begin;
            }
        }
        requests.truncate(kept);
    }

    fn holds(&mut self, group: &[Extent]) -> bool {
        // The last one first: it was never read ahead before, so usually one check is enough.
        let last = group.len() - 1;
        (0..SAMPLES.min(group.len())).all(|sample| self.is_cached(group[last - sample * last / SAMPLES]))
    }

    fn is_cached(&mut self, extent: Extent) -> bool {
        let Some(target) = &self.target else { return false };
        let Ok((file, offset)) = target.locate(extent) else { return false };
        match cache::cachestat(&target.files()[file].file, offset, extent.length as u64) {
            Ok(stat) => stat.cached * 4096 >= extent.length as u64,
            Err(_) => {
                // The kernel does not report it here: every hint is given, which is correct and only slower on cached files.
                self.target = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cache::{CACHESTAT, FileAdvice, fadvise};
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn cached_groups_are_left_out_and_others_kept() {
        if let Err(missing) = CACHESTAT.met() {
            eprintln!("SKIPPED cached_groups_are_left_out_and_others_kept: {missing}");
            return;
        }
        let file = TestFile::on_disk(64 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::Random).unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let pages: Vec<Extent> = (0..64).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
        for page in &pages[..32] {
            crate::sys::read::pread_exact(file.file(), &mut [0; PAGE], page.offset).unwrap();
        }

        let mut requests = pages.clone();
        Cached::of(file.target(false)).leave_out(&mut requests);

        assert_eq!(requests, pages[32..]);
    }

    #[test]
    fn the_samples_of_a_group_are_spread_over_all_of_it() {
        if let Err(missing) = CACHESTAT.met() {
            eprintln!("SKIPPED the_samples_of_a_group_are_spread_over_all_of_it: {missing}");
            return;
        }
        let file = TestFile::on_disk(32 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::Random).unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let pages: Vec<Extent> = (0..32).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
        let is_left_out = |cached: &[usize]| {
            for page in cached {
                crate::sys::read::pread_exact(file.file(), &mut [0; PAGE], pages[*page].offset).unwrap();
            }
            let mut requests = pages.clone();
            Cached::of(file.target(false)).leave_out(&mut requests);
            requests.is_empty()
        };

        assert!(!is_left_out(&[31, 30, 29, 28, 24, 16]), "the last ones say nothing of the first");
        assert!(is_left_out(&[8]), "the last, and three quarters, half and a quarter of the way to it");
    }

    #[test]
    fn a_group_is_kept_whole_where_its_last_is_not_cached_and_judged_one_by_one_where_asked() {
        if let Err(missing) = CACHESTAT.met() {
            eprintln!("SKIPPED a_group_is_kept_whole_where_its_last_is_not_cached: {missing}");
            return;
        }
        let file = TestFile::on_disk(33 * PAGE);
        file.file().sync_all().unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::Random).unwrap();
        fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        let pages: Vec<Extent> = (0..33).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect();
        for page in [&pages[..31], &pages[32..]].concat() {
            crate::sys::read::pread_exact(file.file(), &mut [0; PAGE], page.offset).unwrap();
        }
        let left = |mut cached: Cached| {
            let mut requests = pages.clone();
            cached.leave_out(&mut requests);
            requests
        };

        assert_eq!(left(Cached::of(file.target(false))), pages[..32], "32 are a group, the last is one of its own");
        assert_eq!(left(Cached::each_of(file.target(false))), pages[31..32]);
        assert_eq!(left(Cached::nothing()), pages);
        let two = Extent { offset: 30 * PAGE as u64, length: 2 * PAGE };
        let mut half = vec![two];
        Cached::each_of(file.target(false)).leave_out(&mut half);
        assert_eq!(half, [two], "cached in part is not cached");
    }
}
