//! Recording the faults of a process, and its reads by calls, as a trace.

use super::faults::{Faults, FileFault, FileRead, Happened};
use super::files;
use super::target::WatchTarget;
use majorfault::observe::places::{FileId, Places};
use majorfault::trace::{Run, Writer};
use majorfault::{Extent, Missing, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two readings. The rings hold 6500 faults.
const PAUSE: Duration = Duration::from_millis(2);

/// The most extents of a trace; fewer than a replay accepts.
const MOST: u64 = 60_000_000;

/// The most files whose reads in vain are counted; others are looked for at each read.
const MOST_STRANGE: usize = 1 << 16;

/// Smallest unit that is mapped.
const PAGE: u64 = 4096;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordingOptions {
    /// When to stop; none means when the program ends.
    pub length: Option<Duration>,
    /// Whether files that hold code are recorded as well.
    pub code: bool,
}

/// The outcome of a recording.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// How long it recorded.
    pub length: Duration,
    /// Whether the program ended.
    pub ended: bool,
    /// Faults lost because they did not fit into the rings, or whose process was not known: the trace has gaps.
    pub lost: u64,
    /// Threads that were not followed, because descriptors are limited.
    pub unfollowed: usize,
    /// Processes that were not followed: another user's.
    pub refused: usize,
    /// Processes that the program has started and that ran on when it ended.
    pub left: usize,
    /// Reads by calls of files that were closed, or gone, before they could be named.
    pub unnamed: u64,
    /// Why reads by calls were not seen.
    pub no_reads: Option<Missing>,
    /// Whether the trace is full and recording ended there.
    pub is_full: bool,
    /// By file, those with the most accesses first.
    pub files: Vec<RecordedFile>,
}

/// The record of one file.
#[derive(Clone, Debug, Default)]
pub struct RecordedFile {
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Accesses.
    pub accesses: u64,
    /// Threads that made them.
    pub threads: usize,
}

/// Records the target into a trace at `path`, until it ends, the time is over or `stop` is raised.
///
/// Errors: as [`Faults::of`]; Io (the trace cannot be written).
pub fn record(target: WatchTarget, path: &Path, options: RecordingOptions, stop: &AtomicBool) -> Result<Recorded> {
    let mut faults = Faults::of(target)?;
    let mut tape = Tape::new(Writer::create(path)?, options.code);
    let began = Instant::now();
    let mut recorded = Recorded::default();
    while !stop.load(Ordering::Relaxed) && options.length.is_none_or(|length| began.elapsed() < length) {
        std::thread::sleep(PAUSE);
        faults.read(|happened, places| tape.take(happened, places));
        tape.writer.check()?;
        recorded.is_full = tape.accesses() > MOST;
        recorded.ended = faults.has_ended();
        if recorded.ended || recorded.is_full {
            break;
        }
    }
    faults.read(|happened, places| tape.take(happened, places));
    recorded.length = began.elapsed();
    recorded.lost = faults.lost();
    recorded.unfollowed = faults.unfollowed();
    recorded.refused = faults.refused();
    recorded.left = faults.left();
    recorded.no_reads = faults.lacks_reads().cloned();
    recorded.unnamed = tape.unnamed;
    recorded.files = tape.finish(recorded.lost)?;
    Ok(recorded)
}

struct Tape {
    writer: Writer,
    /// None where a file is left out.
    files: HashMap<FileId, Option<(usize, RecordedFile)>>,
    /// The run that each thread is making in each file.
    runs: HashMap<(u32, FileId), Run>,
    code: bool,
    unnamed: u64,
    /// Reads so far of files that could not be named.
    strange: HashMap<FileId, u64>,
}

impl Tape {
    fn new(writer: Writer, code: bool) -> Tape {
        Tape { writer, files: HashMap::new(), runs: HashMap::new(), code, unnamed: 0, strange: HashMap::new() }
    }

    fn take(&mut self, happened: Happened, places: &HashMap<u32, Places>) {
        match happened {
            Happened::Fault(fault) => {
                let FileFault { thread, file, offset, .. } = fault;
                let (writer, code) = (&mut self.writer, self.code);
                self.files.entry(file).or_insert_with(|| mapped(writer, &fault, places, code));
                self.add(thread, file, Extent { offset: offset / PAGE * PAGE, length: PAGE as usize });
            }
            Happened::Read(FileRead { process, thread, file, extent }) => {
                if let Entry::Vacant(new) = self.files.entry(file) {
                    let found = looks(&mut self.strange, file).then(|| files::open_by_id(process, file)).flatten();
                    match found {
                        Some(opened) => drop(new.insert(opened_by(&mut self.writer, opened, self.code))),
                        None => self.unnamed += 1,
                    }
                }
                self.add(thread, file, extent);
            }
            Happened::Waited(..) => {}
        }
    }

    fn add(&mut self, thread: u32, file: FileId, extent: Extent) {
        let Some(Some((number, known))) = self.files.get_mut(&file) else { return };
        // A read may reach beyond the end; a replay may not.
        let length =
            known.bytes.div_ceil(PAGE).saturating_mul(PAGE).saturating_sub(extent.offset).min(extent.length as u64);
        if length == 0 {
            return;
        }
        let extent = Extent { length: length as usize, ..extent };
        known.accesses += 1;
        let Some(run) = self.runs.get_mut(&(thread, file)) else {
            known.threads += 1;
            self.runs.insert((thread, file), Run::of(extent));
            return;
        };
        if !run.takes(extent) {
            self.writer.run(*number, thread, std::mem::replace(run, Run::of(extent)));
        }
    }

    fn accesses(&self) -> u64 {
        self.files.values().flatten().map(|(_, file)| file.accesses).sum()
    }

    fn finish(mut self, lost: u64) -> Result<Vec<RecordedFile>> {
        for ((thread, file), run) in self.runs.drain() {
            if let Some(Some((number, _))) = self.files.get(&file) {
                self.writer.run(*number, thread, run);
            }
        }
        self.writer.finish_lacking(lost)?;
        let mut files: Vec<RecordedFile> = self.files.into_values().flatten().map(|(_, file)| file).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.accesses));
        Ok(files)
    }
}

/// Whether to look for a file that was not found so far: at its first read, its second, fourth, eighth and so on, because all descriptors
/// of the process are looked through.
fn looks(strange: &mut HashMap<FileId, u64>, file: FileId) -> bool {
    if strange.len() >= MOST_STRANGE && !strange.contains_key(&file) {
        return true;
    }
    let reads = strange.entry(file).or_default();
    *reads += 1;
    reads.is_power_of_two()
}

/// Whether a file is a program or a library.
fn is_code(file: &File) -> bool {
    let mut begin = [0; 4];
    file.read_exact_at(&mut begin, 0).is_ok() && begin == *b"\x7fELF"
}

/// Names a file that is read by calls in the trace, unless it is left out.
fn opened_by(writer: &mut Writer, (path, file): (String, File), code: bool) -> Option<(usize, RecordedFile)> {
    if !code && is_code(&file) {
        return None;
    }
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    let number = writer.file(Some(path.as_str()), bytes);
    Some((number, RecordedFile { path, bytes, ..RecordedFile::default() }))
}

/// Names a mapped file in the trace, unless it is left out.
fn mapped(
    writer: &mut Writer,
    fault: &FileFault,
    places: &HashMap<u32, Places>,
    code: bool,
) -> Option<(usize, RecordedFile)> {
    let places = places.get(&fault.process)?;
    let path = places.path(fault.file).unwrap_or_default().to_owned();
    let opened = files::open(fault.process, &path, fault.file);
    if !code && opened.as_ref().is_some_and(is_code) {
        return None;
    }
    // Gone, or not readable by us: as long as its mappings reach.
    let reach = || places.reach(fault.file);
    let bytes = opened.and_then(|file| file.metadata().ok()).map_or_else(reach, |meta| meta.len());
    let number = writer.file(Some(path.as_str()).filter(|path| !path.is_empty()), bytes);
    Some((number, RecordedFile { path, bytes, ..RecordedFile::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn read(file: FileId) -> Happened {
        let extent = Extent { offset: 0, length: PAGE as usize };
        Happened::Read(FileRead { process: std::process::id(), thread: 1, file, extent })
    }

    #[test]
    fn a_file_that_is_not_found_is_looked_for_at_its_first_second_fourth_and_eighth_read() {
        let (file, mut strange) = (FileId { device: (8, 1), inode: 5 }, HashMap::new());

        let looked: Vec<u64> = (1..=9).filter(|_| looks(&mut strange, file)).collect();

        assert_eq!(looked, [1, 2, 4, 8]);
    }

    #[test]
    fn reads_of_a_file_count_as_unnamed_until_it_is_found() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, [1; PAGE as usize]).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let id = FileId { device: (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())), inode: meta.ino() };
        let mut tape = Tape::new(Writer::create(&dir.path().join("t.flt")).unwrap(), true);

        (0..2).for_each(|_| tape.take(read(id), &HashMap::new()));
        let _open = File::open(&path).unwrap();
        let named = [3, 4, 5].map(|_| {
            tape.take(read(id), &HashMap::new());
            tape.accesses()
        });

        assert_eq!((named, tape.unnamed), ([0, 1, 2], 3));
    }
}
