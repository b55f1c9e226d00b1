//! Where the blocks in files of a process lie: shared mappings of files without names in the directory of the blocks.
//!
//! Of such a page the pagemap does not say whether it is in memory: only whether it is mapped. One that is not is asked for; where the page
//! cache has it that costs a look.

use majorfault::Nanos;
use majorfault::sys::clock::monotonic;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

/// Between two looks at the mappings of a process.
const EVERY: Nanos = Nanos(20_000_000);

/// The blocks of one process, in pages.
#[derive(Debug, Default)]
pub struct SpiltRanges {
    dir: PathBuf,
    ranges: Vec<Range<u64>>,
    looked: Option<Nanos>,
}

impl SpiltRanges {
    /// Of a run whose blocks are in files in this directory; nowhere by default.
    pub fn of(dir: Option<PathBuf>) -> SpiltRanges {
        SpiltRanges { dir: dir.unwrap_or_default(), ..SpiltRanges::default() }
    }

    /// The part of process `pid`'s blocks that has page `first`; looked up when it is not known, some times a second at most.
    pub fn around(&mut self, pid: u32, first: u64) -> Option<Range<u64>> {
        if self.dir.as_os_str().is_empty() {
            return None;
        }
        let found = |ranges: &[Range<u64>]| ranges.iter().find(|range| range.contains(&first)).cloned();
        let now = monotonic();
        if let Some(range) = found(&self.ranges) {
            return Some(range);
        }
        if self.looked.is_none_or(|looked| now.0 - looked.0 >= EVERY.0) {
            self.looked = Some(now);
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            self.ranges = ranges(&maps, &format!("{}/", self.dir.display()));
        }
        found(&self.ranges)
    }
}

/// Ranges of /proc/PID/maps, in pages, which are shared with a file without a name below `dir`.
fn ranges(text: &str, dir: &str) -> Vec<Range<u64>> {
    let page = rustix::param::page_size() as u64;
    let range = |line: &str| {
        let (addresses, rest) = line.split_once(' ')?;
        let path = rest.find('/').map(|at| &rest[at..])?;
        if !rest.starts_with("rw-s") || !path.starts_with(dir) || !path.ends_with(" (deleted)") {
            return None;
        }
        let (from, to) = addresses.split_once('-')?;
        Some(u64::from_str_radix(from, 16).ok()? / page..u64::from_str_radix(to, 16).ok()? / page)
    };
    text.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.18.
    const MAPS: &str = "\
7f2a10000000-7f2a14000000 rw-s 00000000 fe:00 77                         /var/tmp/#77 (deleted)
7f2a14000000-7f2a18000000 rw-p 00000000 fe:00 78                         /var/tmp/#78 (deleted)
7f2a20000000-7f2a20100000 rw-s 00001000 fe:00 12345                      /var/tmp/a file.db
7f2a30000000-7f2a30100000 rw-s 00001000 00:01 9                          /dev/zero (deleted)
7f2a40000000-7f2a40100000 rw-p 00000000 00:00 0
";

    #[test]
    fn only_shared_mappings_of_files_without_names_in_the_directory_are_blocks() {
        assert_eq!(ranges(MAPS, "/var/tmp/"), vec![0x7_f2a1_0000..0x7_f2a1_4000]);
        assert_eq!(ranges(MAPS, "/home/"), []);
    }

    #[test]
    fn without_a_directory_nothing_is_a_block() {
        assert_eq!(SpiltRanges::default().around(std::process::id(), 1), None);
    }
}
