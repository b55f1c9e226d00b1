//! One visit: a file opened, its ranges read by the library's io_uring reader, the answers made.

use crate::Settings;
use crate::plan::{Plan, past_the_end};
use bytes::Bytes;
use majorfault::access::{MethodOptions, Opened, Uring};
use majorfault::{Layout, Target};
use rustix::io::ReadWriteFlags;
use std::io::IoSliceMut;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a visit ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Each range's bytes.
    Read {
        answers: Vec<Bytes>,
        /// Reads, and their bytes.
        reads: u64,
        /// Those of them that the page cache answered at once.
        cached: u64,
        bytes: u64,
        /// Why O_DIRECT was not used although it was asked for.
        buffered: Option<String>,
    },
    /// This one passes the end of the file.
    PastEnd(Range<u64>),
    /// No ring: the reason and what to do.
    Refused(String),
    /// Something else went wrong, of which `LocalFileSystem` can tell in its own words: there is no such file, it is a folder, it became
    /// shorter, it cannot be read.
    Odd,
    /// Nobody waits for the answer any more.
    Cancelled,
}

/// The reader of the file that was visited last: its ring serves the next call for the same file.
pub(crate) struct Kept {
    file: FileId,
    opened: Opened,
    buffered: Option<String>,
}

/// What a reader is tied to. The inode's number cannot be another file's while the reader has it open.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
    length: u64,
}

impl FileId {
    fn of(target: &Target) -> Option<FileId> {
        let metadata = target.files().first()?.file.metadata().ok()?;
        metadata.is_file().then(|| FileId { device: metadata.dev(), inode: metadata.ino(), length: target.len() })
    }
}

/// Reads `ranges` of the file at `path`, which is opened anew in each call, as `LocalFileSystem` does: a file that was replaced is the
/// new one, and rights that were taken away are missing.
pub(crate) fn visit(
    kept: &mut Option<Kept>,
    settings: &Settings,
    path: &Path,
    ranges: &[Range<u64>],
    is_wanted: impl Fn() -> bool,
) -> Outcome {
    let Ok(target) = Target::open(&[PathBuf::from(path)], &Layout::default()) else { return Outcome::Odd };
    if let Some(range) = past_the_end(ranges, target.len()) {
        return Outcome::PastEnd(range);
    }
    let plan = Plan::of(ranges, settings.gap);
    let mut room = plan.room();
    let cached = if settings.direct { Some(0) } else { read_cached(&target, &plan, &mut room, &is_wanted) };
    let Some(cached) = cached else { return Outcome::Cancelled };
    let mut buffered = None;
    if cached < plan.extents.len() {
        match read_queued(kept, settings, target, &plan, cached, &mut room, is_wanted) {
            Ok(why) => buffered = why,
            Err(outcome) => return outcome,
        }
    }
    Outcome::Read {
        answers: plan.answers(ranges, room),
        reads: plan.extents.len() as u64,
        cached: cached as u64,
        bytes: plan.bytes(),
        buffered,
    }
}

/// Reads what the page cache has, in order, up to the first read that would have to wait; tells which that is. None where nobody waits any more.
///
/// A copy by pread(2) into its place costs less than one into the ring's memory and another from there; a file that is cached as a whole never
/// needs the ring.
fn read_cached(target: &Target, plan: &Plan, room: &mut [Vec<u8>], is_wanted: &impl Fn() -> bool) -> Option<usize> {
    let file = &target.files()[0].file;
    // What will be read is known to the byte: the kernel's guesses would only add to it. Only this descriptor is meant.
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random) {
        tracing::debug!("posix_fadvise(2) did not take RANDOM ({error}): the kernel may read more than was asked for");
    }
    for index in 0..plan.extents.len() {
        if !is_wanted() {
            return None;
        }
        for part in plan.parts(index) {
            let bytes = &mut [IoSliceMut::new(plan.place(room, *part))];
            // Whatever it is that keeps it from being read (EAGAIN, EOPNOTSUPP, the file's end), the queue will tell.
            let read = rustix::io::preadv2(file, bytes, plan.offset(*part), ReadWriteFlags::NOWAIT);
            if read != Ok(part.length) {
                return Some(index);
            }
        }
    }
    Some(plan.extents.len())
}

/// Reads the extents from `first` on, many in flight; gives the reason why they went through the page cache, where they should not.
fn read_queued(
    kept: &mut Option<Kept>,
    settings: &Settings,
    target: Target,
    plan: &Plan,
    first: usize,
    room: &mut [Vec<u8>],
    is_wanted: impl Fn() -> bool,
) -> Result<Option<String>, Outcome> {
    let odd = |error| match error {
        majorfault::Error::Missing(missing) => Outcome::Refused(missing.to_string()),
        _ => Outcome::Odd,
    };
    let file = FileId::of(&target).ok_or(Outcome::Odd)?;
    let mut reader = match kept.take() {
        Some(kept) if kept.file == file => kept,
        _ => {
            let (opened, buffered) = open(Arc::new(target), settings).map_err(odd)?;
            Kept { file, opened, buffered }
        }
    };
    let mut next = first;
    let visited = reader.opened.visit(&plan.extents[first..], |index, bytes| {
        if !is_wanted() {
            return ControlFlow::Break(());
        }
        plan.put(room, first + index, bytes);
        next += 1;
        ControlFlow::Continue(())
    });
    visited.map_err(odd)?;
    let buffered = reader.buffered.clone();
    // After an error its state is not relied upon.
    *kept = Some(reader);
    if next == plan.extents.len() { Ok(buffered) } else { Err(Outcome::Cancelled) }
}

/// A reader of the target, and why it is not direct where it should be.
fn open(target: Arc<Target>, settings: &Settings) -> majorfault::Result<(Opened, Option<String>)> {
    // Registered memory would save nothing that can be seen here, takes longer to make, and counts as locked.
    let options = Uring::options().depth(settings.depth).register(false);
    let mut buffered = None;
    if settings.direct {
        match options.clone().direct(true).open_target(Arc::clone(&target)) {
            Err(majorfault::Error::Missing(missing)) if missing.what == "O_DIRECT" => {
                buffered = Some(missing.to_string());
            }
            opened => return opened.map(|opened| (opened, None)),
        }
    }
    options.direct(false).open_target(target).map(|opened| (opened, buffered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn once_nobody_waits_no_more_is_shown_and_the_reader_serves_the_next_call() {
        if let Err(missing) = majorfault::NEEDS.iter().find(|need| need.name == "io_uring").unwrap().met() {
            println!("SKIPPED: {missing}");
            return;
        }
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let ranges: Vec<Range<u64>> = (0..200).map(|row| row * 5000..row * 5000 + 100).collect();
        let mut kept = None;
        for direct in [true, false] {
            let settings = Settings { depth: 8, direct, threads: 1, gap: 0, queue: true };
            let asked = Cell::new(0);
            let is_wanted = || asked.replace(asked.get() + 1) < 3;

            let outcome = visit(&mut kept, &settings, &path, &ranges, is_wanted);
            assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
            assert_eq!(asked.get(), 4);

            let outcome = visit(&mut kept, &settings, &path, &ranges, || true);
            let Outcome::Read { answers, .. } = outcome else { panic!("{outcome:?}") };
            assert!(answers.len() == 200 && answers.iter().all(|bytes| bytes[..] == [7; 100]));
        }
    }
}
