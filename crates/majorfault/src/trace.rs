//! Traces: which extents of which files were accessed, in the order of each thread. `majorfault trace` and the policy
//! `trace` record them; `compare --trace`, `assist --trace` and the same policy replay them.
//!
//! A text file (`.flt`), version 2:
//!
//! ```text
//! majorfault trace 2
//! file 0 2147483648 /data/table.bin
//! 0 7 0 4096 65536 32768
//! end
//! ```
//!
//! `file NUMBER BYTES PATH` names a file before it is used; a path of `-` means unknown, and in others `%`, line feed and
//! carriage return are written `%25`, `%0A`, `%0D`. A line of six numbers is a run of equal distances: file, thread, offset and
//! length of its first extent, distance from one extent to the next (negative is backward), count. A thread's lines are in
//! its order; the order between threads is not kept. `end` ends a complete trace, `end lacks COUNT` one whose recorder knows that it
//! missed so many accesses.

use crate::error::{Error, Result};
use crate::files::Extent;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// First line of every trace that is written.
const HEADER: &str = "majorfault trace 2";

/// How the first line ends; other versions end otherwise. The word before is the tool's name when the trace was written.
const VERSION: &str = " trace 2";

/// Last line of a complete trace, and how that of a trace with gaps begins.
const END: &str = "end";
const END_LACKS: &str = "end lacks ";

/// The most extents of a trace: 24 bytes each are held while it is replayed.
const MOST: u64 = 1 << 26;

/// The most files of a trace.
const MOST_FILES: usize = 1 << 16;

/// Files that a message lists.
const NAMED: usize = 5;

/// Extents of equal length at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first of them.
    pub first: Extent,
    /// Distance from one to the next.
    pub stride: i64,
    /// How many.
    pub count: u64,
}

impl Run {
    /// One extent.
    pub fn of(extent: Extent) -> Run {
        Run { first: extent, stride: 0, count: 1 }
    }

    /// Adds `extent`, if it continues the run.
    pub fn takes(&mut self, extent: Extent) -> bool {
        if self.count == 1 {
            self.stride = extent.offset.wrapping_sub(self.first.offset) as i64;
        }
        let goes_on = self.first.length == extent.length && self.at(self.count) == extent.offset;
        self.count += u64::from(goes_on);
        goes_on
    }

    fn at(&self, number: u64) -> u64 {
        self.first.offset.wrapping_add_signed(self.stride.wrapping_mul(number as i64))
    }

    /// Its extents, in order.
    pub fn extents(self) -> impl Iterator<Item = Extent> {
        (0..self.count).map(move |number| Extent { offset: self.at(number), length: self.first.length })
    }
}

/// A recorded trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The files, by their number.
    pub files: Vec<TracedFile>,
    /// Accesses that are known to have been missed.
    pub lost: u64,
}

/// The record of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedFile {
    /// Its path; none where that was not known.
    pub path: Option<String>,
    /// Its length in bytes.
    pub length: u64,
    /// The accesses of each thread.
    pub threads: BTreeMap<u32, Vec<Run>>,
}

impl TracedFile {
    /// Extents over all threads.
    pub fn accesses(&self) -> u64 {
        self.threads.values().flatten().map(|run| run.count).sum()
    }

    /// The extents of each thread, in its order.
    pub fn extents(&self) -> Vec<Vec<Extent>> {
        self.threads.values().map(|runs| runs.iter().flat_map(|run| run.extents()).collect()).collect()
    }
}

impl Trace {
    /// Reads a trace.
    ///
    /// Errors: Io, Invalid (not a trace, of another version, not complete).
    pub fn read(path: &Path) -> Result<Trace> {
        let bytes = fs::read(path).map_err(|error| Error::io("read the trace", path, error))?;
        Trace::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| {
            Error::Invalid(format!("{} cannot be replayed: {why}; record the trace again", path.display()))
        })
    }

    fn parse(text: &str) -> std::result::Result<Trace, String> {
        let mut lines = text.lines();
        if !lines.next().is_some_and(|line| line.ends_with(VERSION)) {
            return Err(format!("it does not begin with \"{HEADER}\""));
        }
        let (mut trace, mut total) = (Trace::default(), 0u64);
        for line in lines {
            if line == END {
                return Ok(trace);
            }
            if let Some(lost) = line.strip_prefix(END_LACKS).and_then(|count| count.parse().ok()) {
                return Ok(Trace { lost, ..trace });
            }
            let wrong = || format!("\"{line}\" is not a line of a trace");
            if let Some(declared) = line.strip_prefix("file ") {
                let file = file(declared, trace.files.len()).ok_or_else(wrong)?;
                trace.files.push(file);
                continue;
            }
            let (number, thread, run) = run(line).ok_or_else(wrong)?;
            total = total.saturating_add(run.count);
            if total > MOST {
                return Err(format!("it has more than {MOST} extents"));
            }
            trace.files.get_mut(number).ok_or_else(wrong)?.threads.entry(thread).or_default().push(run);
        }
        Err("it is not complete (its last line is missing)".to_owned())
    }

    /// The file of this path; without a path, the file of this length; if there is none (it grew since) or no length is given, the
    /// one with the most accesses.
    ///
    /// Errors: Invalid, which lists the files of the trace.
    pub fn file(&self, path: Option<&str>, length: Option<u64>) -> Result<&TracedFile> {
        let is_named = |file: &&TracedFile| path.is_none_or(|path| file.path.as_deref() == Some(path));
        let worth = |file: &&TracedFile| (length == Some(file.length), file.accesses());
        self.files.iter().filter(is_named).max_by_key(worth).ok_or_else(|| {
            let name = |file: &TracedFile| {
                format!("{} of {} bytes", file.path.as_deref().unwrap_or("a file without a name"), file.length)
            };
            let mut names: Vec<String> = self.files.iter().take(NAMED).map(name).collect();
            if self.files.len() > NAMED {
                names.push(format!("and {} more", self.files.len() - NAMED));
            }
            Error::Invalid(format!("the trace has no such file; choose one of {}", names.join(", ")))
        })
    }
}

/// Reads the words after `file `; numbers count from 0 without a gap.
fn file(declared: &str, known: usize) -> Option<TracedFile> {
    let mut words = declared.splitn(3, ' ');
    let (number, length, path): (usize, u64, &str) =
        (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    let path = (path != "-").then(|| path.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%"));
    (number == known && number < MOST_FILES).then_some(TracedFile { path, length, threads: BTreeMap::new() })
}

fn run(line: &str) -> Option<(usize, u32, Run)> {
    let mut words = line.split(' ');
    let (number, thread) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let first = Extent { offset: words.next()?.parse().ok()?, length: words.next()?.parse().ok()? };
    let (stride, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next().is_none() && first.length > 0).then_some((number, thread, Run { first, stride, count }))
}

/// Writes a trace, under a temporary name until it is complete.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    /// The path of the draft.
    draft: PathBuf,
    file: BufWriter<fs::File>,
    files: usize,
    failed: Option<Error>,
}

impl Writer {
    /// A writer of the trace at `path`; a file already there stays until [`finish`](Writer::finish).
    ///
    /// Errors: Io.
    pub fn create(path: &Path) -> Result<Writer> {
        let draft = PathBuf::from(format!("{}.{}.draft", path.display(), std::process::id()));
        // A new file, not a link that somebody else put there: the directory may be writable by everybody.
        let _ = fs::remove_file(&draft);
        let file = fs::File::create_new(&draft).map_err(|error| Error::io("make the trace", &draft, error))?;
        let mut writer = Writer { path: path.to_owned(), draft, file: BufWriter::new(file), files: 0, failed: None };
        writer.line(format_args!("{HEADER}"));
        Ok(writer)
    }

    /// Names a file of this many bytes; returns its number.
    pub fn file(&mut self, path: Option<&str>, length: u64) -> usize {
        let number = self.files;
        self.files += 1;
        let path = path.unwrap_or("-").replace('%', "%25").replace('\n', "%0A").replace('\r', "%0D");
        self.line(format_args!("file {number} {length} {path}"));
        number
    }

    /// Writes a run of a thread in a file. [`check`](Writer::check) and `finish` return errors.
    pub fn run(&mut self, file: usize, thread: u32, run: Run) {
        let Run { first: Extent { offset, length }, stride, count } = run;
        self.line(format_args!("{file} {thread} {offset} {length} {stride} {count}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.failed.is_none() {
            let failed = writeln!(self.file, "{line}").err();
            self.failed = failed.map(|error| Error::io("write the trace", &self.draft, error));
        }
    }

    /// The first error so far.
    pub fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Completes the trace and gives it its name. If that fails, there is no trace.
    ///
    /// Errors: Io (full disk).
    pub fn finish(self) -> Result<()> {
        self.finish_lacking(0)
    }

    /// The same for a trace that is known to lack `lost` accesses, which its readers are told.
    ///
    /// Errors: as [`finish`](Writer::finish).
    pub fn finish_lacking(mut self, lost: u64) -> Result<()> {
        match lost {
            0 => self.line(format_args!("{END}")),
            lost => self.line(format_args!("{END_LACKS}{lost}")),
        }
        self.check()?;
        let done = self.file.flush().and_then(|()| fs::rename(&self.draft, &self.path));
        done.map_err(|error| Error::io("finish the trace", &self.path, error))
    }
}

#[cfg(test)]
impl Writer {
    /// As after a write that failed.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` the draft no longer exists.
        let _ = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_trace_with_gaps_says_how_many_accesses_it_lacks() {
        let path = std::env::temp_dir().join(format!("majorfault-gaps-{}.flt", std::process::id()));
        let mut writer = Writer::create(&path).unwrap();
        writer.file(Some("/x"), 4096);

        writer.finish_lacking(7).unwrap();

        assert_eq!(Trace::read(&path).unwrap().lost, 7);
        Writer::create(&path).unwrap().finish_lacking(0).unwrap();
        assert_eq!(Trace::read(&path).unwrap().lost, 0);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_finished_trace_is_refused() {
        for (text, why) in [
            ("", "does not begin"),
            ("majorfault trace 1\nend\n", "does not begin"),
            ("majorfault trace 2\nfile 0 9 -\n0 0 0 4096 0 1\n", "not complete"),
            ("majorfault trace 2\nfile 0 9 -\n0 0 0 4096 0\nend\n", "not a line"),
            ("majorfault trace 2\n0 0 0 4096 0 1\nend\n", "not a line"),
            ("majorfault trace 2\nfile 1 9 -\nend\n", "not a line"),
            ("majorfault trace 2\nfile 0 9 -\n0 0 0 4096 0 99999999999\nend\n", "more than"),
        ] {
            assert!(Trace::parse(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_trace_of_the_same_version_is_read_under_whatever_name_the_tool_had() {
        assert!(Trace::parse("earlier trace 2\nend\n").unwrap().files.is_empty());
    }

    #[test]
    fn nothing_is_left_of_a_trace_that_was_not_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.flt");

        drop(Writer::create(&path).unwrap());

        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_the_draft_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("trace.flt"), dir.path().join("other"));
        fs::write(&other, "precious").unwrap();
        let draft = format!("{}.{}.draft", path.display(), std::process::id());
        std::os::unix::fs::symlink(&other, draft).unwrap();

        Writer::create(&path).unwrap().finish().unwrap();

        assert_eq!(fs::read_to_string(other).unwrap(), "precious");
        assert!(Trace::read(&path).unwrap().files.is_empty());
    }

    #[test]
    fn a_file_is_chosen_by_path_or_length_or_accesses() {
        let text = "majorfault trace 2\nfile 0 10 /a\nfile 1 20 /b\n0 0 0 1 1 3\n1 0 0 1 1 9\nend\n";
        let trace = Trace::parse(text).unwrap();
        let path = |path, length| trace.file(path, length).map(|file| file.path.clone().unwrap());

        assert_eq!(path(None, None).unwrap(), "/b");
        assert_eq!(path(None, Some(10)).unwrap(), "/a");
        assert_eq!(path(None, Some(99)).unwrap(), "/b");
        assert_eq!(path(Some("/a"), Some(20)).unwrap(), "/a");
        assert!(path(Some("/c"), None).unwrap_err().to_string().contains("/a of 10 bytes, /b of 20 bytes"));
    }

    proptest! {
        #[test]
        fn every_order_is_read_back_as_it_was(
            accesses in prop::collection::vec((0usize..3, 0u32..4, 0u64..8, 1usize..3), 0..80),
            names in prop::collection::vec("[^\u{0}]{1,12}", 3),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("trace.flt");
            let mut writer = Writer::create(&path).unwrap();
            let mut expected: BTreeMap<(usize, u32), Vec<Extent>> = BTreeMap::new();
            for name in &names {
                writer.file(Some(name), 100);
            }
            for (file, thread, place, length) in accesses {
                let extent = Extent { offset: place * 4096, length: length * 4096 };
                writer.run(file, thread, Run::of(extent));
                expected.entry((file, thread)).or_default().push(extent);
            }
            writer.finish().unwrap();

            let trace = Trace::read(&path).unwrap();

            for (number, name) in names.iter().enumerate() {
                let known = (name != "-").then(|| name.clone());
                prop_assert_eq!(&trace.files[number].path, &known);
            }
            for ((file, thread), extents) in expected {
                let read: Vec<Extent> =
                    trace.files[file].threads[&thread].iter().flat_map(|run| run.extents()).collect();
                prop_assert_eq!(read, extents);
            }
        }

        #[test]
        fn no_text_upsets_the_reader(text in ".{0,400}", lines in prop::collection::vec("(file )?[-0-9 %a]{0,30}", 0..8)) {
            let _ = Trace::parse(&text);
            let _ = Trace::parse(&format!("{HEADER}\n{}\n{END}\n", lines.join("\n")));
        }
    }
}
