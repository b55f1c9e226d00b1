//! The parts of files that a program accessed in an earlier run (`majorfault trace`), as a table for the library, which asks for them as soon as
//! the program maps the files.

use super::settings::{COUNT, DEVICE, FILE_WORDS, FIRST, INODE, PART_WORDS};
use majorfault::trace::{Trace, TracedFile};
use majorfault::{Bytes, Extent};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What lies between two accesses is asked for, too, where it is less than this: the kernel maps so much by one fault, so that a trace has no
/// more than one access of it.
const GAP: u64 = 64 << 10;

/// The longest part: what every kernel and device reads by one order. Of longer ones MADV_WILLNEED reads the beginning.
const LONGEST: u64 = 128 << 10;

/// The bytes of a page, to which parts are rounded.
const PAGE: u64 = 4096;

/// Parts of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotParts {
    files: Vec<HotFile>,
    /// Files of the trace that are not asked for, and why.
    left: Vec<(PathBuf, &'static str)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HotFile {
    device: u64,
    inode: u64,
    /// Places and lengths, ascending.
    parts: Vec<(u64, u64)>,
}

impl HotParts {
    /// Those that the trace names, of files as they are now; in all at most `most` bytes, the files with the most accesses first.
    pub fn of(trace: &Trace, most: Bytes) -> HotParts {
        let mut hot = HotParts::default();
        let mut files: Vec<&TracedFile> = trace.files.iter().filter(|file| file.accesses() > 0).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.accesses()));
        let mut room = most.0;
        for file in files {
            let Some(path) = file.path.as_deref().map(Path::new) else {
                hot.left.push((PathBuf::from("a file without a name"), "its name is not known"));
                continue;
            };
            match std::fs::metadata(path) {
                Ok(now) if now.is_file() && now.len() == file.length => {
                    let parts = within(parts(file, &now), &mut room);
                    if parts.is_empty() {
                        hot.left.push((path.to_owned(), "there is no memory for it"));
                    } else {
                        hot.files.push(HotFile { device: now.dev(), inode: now.ino(), parts });
                    }
                }
                Ok(_) => hot.left.push((path.to_owned(), "it has another length now")),
                Err(_) => hot.left.push((path.to_owned(), "it cannot be opened")),
            }
        }
        hot
    }

    /// What is to be said of them.
    pub fn words(&self) -> String {
        let parts = self.files.iter().flat_map(|file| &file.parts);
        let bytes = Bytes(parts.map(|(_, length)| length).sum());
        let files = self.files.len();
        let more = match self.left.as_slice() {
            [] => String::new(),
            [(path, why)] => format!("; {} of the trace is left out: {why}", path.display()),
            [(path, why), others @ ..] => {
                format!("; {} files of the trace are left out ({}: {why})", 1 + others.len(), path.display())
            }
        };
        format!("{bytes} of {files} file{} that the trace names{more}", if files == 1 { "" } else { "s" })
    }

    /// Whether nothing would be asked for.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// As the library reads it.
    pub fn table(&self) -> Vec<u8> {
        let parts: usize = self.files.iter().map(|file| file.parts.len()).sum();
        let mut words = vec![0u64; 1 + self.files.len() * FILE_WORDS + parts * PART_WORDS];
        words[0] = self.files.len() as u64;
        let (mut first, mut at) = (0, 1 + self.files.len() * FILE_WORDS);
        for (number, file) in self.files.iter().enumerate() {
            let place = &mut words[1 + number * FILE_WORDS..][..FILE_WORDS];
            (place[DEVICE], place[INODE]) = (file.device, file.inode);
            (place[FIRST], place[COUNT]) = (first, file.parts.len() as u64);
            first += file.parts.len() as u64;
            for (start, length) in &file.parts {
                words[at..at + PART_WORDS].copy_from_slice(&[*start, *length]);
                at += PART_WORDS;
            }
        }
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// What the file's accesses reach, in whole pages and joined over small gaps, in pieces that one order reads.
fn parts(file: &TracedFile, now: &Metadata) -> Vec<(u64, u64)> {
    let end = now.len().next_multiple_of(PAGE);
    let pages = |Extent { offset, length }: Extent| {
        let stop = offset.saturating_add(length as u64).min(end).checked_next_multiple_of(PAGE).unwrap_or(end);
        (offset / PAGE * PAGE, stop)
    };
    let mut all: Vec<(u64, u64)> = file.extents().into_iter().flatten().map(pages).filter(|it| it.0 < it.1).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, stop) in all {
        match joined.last_mut() {
            Some(last) if start < last.1 + GAP => last.1 = last.1.max(stop),
            _ => joined.push((start, stop)),
        }
    }
    let pieces =
        |(start, stop): (u64, u64)| (start..stop).step_by(LONGEST as usize).map(move |at| (at, LONGEST.min(stop - at)));
    joined.into_iter().flat_map(pieces).collect()
}

/// As many of them as there is room for, which they take.
fn within(parts: Vec<(u64, u64)>, room: &mut u64) -> Vec<(u64, u64)> {
    let fits = |(_, length): &(u64, u64)| {
        let left = room.checked_sub(*length);
        *room = left.unwrap_or(0);
        left.is_some()
    };
    parts.into_iter().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::trace::Run;
    use std::collections::BTreeMap;

    const KIB: u64 = 1 << 10;

    fn traced(path: Option<&Path>, length: u64, extents: &[(u64, usize)]) -> TracedFile {
        let runs =
            extents.iter().map(|(offset, length)| Run::of(Extent { offset: *offset, length: *length })).collect();
        TracedFile { path: path.map(|path| path.display().to_string()), length, threads: BTreeMap::from([(1, runs)]) }
    }

    fn file(dir: &tempfile::TempDir, name: &str, length: u64) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(length).unwrap();
        path
    }

    fn of(files: Vec<TracedFile>, most: u64) -> HotParts {
        HotParts::of(&Trace { files, lost: 0 }, Bytes(most))
    }

    #[test]
    fn parts_are_whole_pages_joined_over_what_one_fault_maps_and_cut_to_what_one_order_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "rows", 1024 * KIB + 100);
        let near = [(0, 1), (64 * KIB - 1, 1), (128 * KIB - 4096, 1), (400 * KIB, 4096), (1024 * KIB + 50, 100)];

        let hot = of(vec![traced(Some(&path), 1024 * KIB + 100, &near)], u64::MAX);

        let expected = [(0, 128 * KIB), (400 * KIB, 4 * KIB), (1024 * KIB, 4 * KIB)];
        assert_eq!(hot.files[0].parts, expected);
        let long = of(vec![traced(Some(&path), 1024 * KIB + 100, &[(0, 300 << 10)])], u64::MAX);
        assert_eq!(long.files[0].parts, [(0, 128 * KIB), (128 * KIB, 128 * KIB), (256 * KIB, 44 * KIB)]);
    }

    #[test]
    fn a_gap_of_what_one_fault_maps_is_not_joined() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "rows", 1024 * KIB);

        let hot = of(vec![traced(Some(&path), 1024 * KIB, &[(0, 4096), (68 * KIB, 4096)])], u64::MAX);
        assert_eq!(hot.files[0].parts, [(0, 4 * KIB), (68 * KIB, 4 * KIB)]);

        let hot = of(vec![traced(Some(&path), 1024 * KIB, &[(0, 4096), (64 * KIB, 4096)])], u64::MAX);
        assert_eq!(hot.files[0].parts, [(0, 68 * KIB)]);
    }

    #[test]
    fn what_has_changed_is_gone_or_has_no_name_is_left_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let [same, other] = [file(&dir, "same", 8192), file(&dir, "other", 4096)];
        let all = vec![
            traced(Some(&same), 8192, &[(0, 1), (4096, 1)]),
            traced(Some(&other), 8192, &[(0, 1)]),
            traced(Some(&dir.path().join("gone")), 8192, &[(0, 1)]),
            traced(None, 8192, &[(0, 1)]),
        ];

        let hot = of(all, u64::MAX);

        assert_eq!((hot.files.len(), hot.left.len()), (1, 3));
        let told =
            format!("8k of 1 file that the trace names; 3 files of the trace are left out ({}:", other.display());
        assert!(hot.words().starts_with(&told), "{}", hot.words());
    }

    #[test]
    fn no_more_than_there_is_memory_for_and_the_file_with_the_most_accesses_first() {
        let dir = tempfile::tempdir().unwrap();
        let [few, many] = [file(&dir, "few", 8192), file(&dir, "many", 1024 * KIB)];
        let accesses = [(0, 4096), (200 * KIB, 4096), (400 * KIB, 4096)];
        let all = || vec![traced(Some(&few), 8192, &[(0, 1)]), traced(Some(&many), 1024 * KIB, &accesses)];

        let hot = of(all(), 2 * 4096);
        assert_eq!(hot.files.iter().map(|file| file.parts.len()).collect::<Vec<_>>(), [2]);
        assert_eq!(hot.left, [(few.clone(), "there is no memory for it")]);

        assert_eq!(of(all(), 4 * 4096).files.len(), 2);
    }

    #[test]
    fn the_table_has_files_and_then_parts() {
        let parts = |first: u64| vec![(first, 4096), (first + 200 * KIB, 4096)];
        let files =
            vec![HotFile { device: 7, inode: 8, parts: parts(0) }, HotFile { device: 7, inode: 9, parts: parts(4096) }];

        let table = HotParts { files, left: Vec::new() }.table();

        let words: Vec<u64> = table.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let files = [2, 7, 8, 0, 2, 7, 9, 2, 2];
        let parts = [0, 4096, 200 * KIB, 4096, 4096, 4096, 4096 + 200 * KIB, 4096];
        assert_eq!(words, [&files[..], &parts[..]].concat());
    }
}
