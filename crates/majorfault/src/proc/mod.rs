//! Parsers of /proc and the cgroup files: text in, values out; nothing is opened here (except by [`Live`], `block` and `tracefs`).
//!
//! Each accepts any text without panicking: processes end while they are read, and kernels differ.

pub mod block;
pub mod cgroup;
pub mod diskstats;
pub mod interrupts;
pub mod maps;
pub mod mounts;
pub mod pressure;
pub mod smaps;
pub mod stat;
pub mod swaps;
pub mod tracefs;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number after `key` in lines of `key number` or `key: number`.
pub fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?;
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        let value = rest.strip_prefix([' ', '\t'])?.trim_start();
        value.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// The sum of the numbers of all keys that begin with `prefix`; none where there are none.
pub fn sum_of(text: &str, prefix: &str) -> Option<u64> {
    let values = text.lines().filter(|line| line.starts_with(prefix));
    let numbers = values.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    numbers.fold(None, |sum, value| Some(sum.unwrap_or(0u64).saturating_add(value)))
}

/// The word in brackets of a list of choices: `madvise` of `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// A file of /proc kept open and read again from its beginning, into the same memory.
#[derive(Debug)]
pub struct Live {
    file: File,
    text: Vec<u8>,
}

impl Live {
    /// Opens the file.
    ///
    /// Errors: Io (gone, not permitted).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Live> {
        Ok(Live { file: File::open(path)?, text: vec![0; 4096] })
    }

    /// Its text now; `None` where it can no longer be read.
    pub fn read(&mut self) -> Option<&str> {
        let mut length = 0;
        loop {
            let got = self.file.read_at(&mut self.text[length..], length as u64).ok()?;
            length += got;
            if got == 0 {
                return std::str::from_utf8(&self.text[..length]).ok();
            }
            if length == self.text.len() {
                self.text.resize(2 * length, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VMSTAT: &str = include_str!("data/vmstat-6.18");
    const IO: &str =
        "rchar: 2012\nwchar: 0\nsyscr: 7\nsyscw: 0\nread_bytes: 8192\nwrite_bytes: 0\ncancelled_write_bytes: 0\n";

    #[test]
    fn a_number_is_found_by_its_whole_key() {
        assert_eq!(number(IO, "read_bytes"), Some(8192));
        assert_eq!(number(IO, "write_bytes"), Some(0));
        assert_eq!(number(IO, "read"), None);
        assert_eq!(number(VMSTAT, "pgfault"), Some(592_653));
        assert_eq!(number(VMSTAT, "nr_unknown"), None);
    }

    #[test]
    fn the_choice_in_force_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!((chosen(""), chosen("]["), chosen("never]")), (None, None, None));
    }

    #[test]
    fn rows_of_a_family_are_added() {
        assert_eq!(sum_of("allocstall_dma 1\nallocstall_normal 20\nother 5\n", "allocstall_"), Some(21));
        assert_eq!(sum_of(VMSTAT, "nothing_"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in "\\PC*|([a-zA-Z_()0-9: .\t\n-]{0,20}[ :\t\n]){0,40}") {
            let _ = (number(&text, "a"), sum_of(&text, "a"), chosen(&text));
            let _ = (stat::process(&text), stat::processors(&text));
            let _ = (interrupts::tlb(&text), diskstats::row(&text, 8, 0), pressure::total(&text, "some"));
            let _ = (smaps::sizes(&text, |_| true), smaps::details(&text));
        }
    }
}
