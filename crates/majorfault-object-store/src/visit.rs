//! One visit: a file opened, its ranges read by the library's io_uring reader, the answers made.

use crate::Settings;
use crate::plan::{Plan, past_the_end};
use bytes::Bytes;
use majorfault::access::{MethodOptions, Opened, Uring};
use majorfault::{Layout, Target};
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
        /// Reads that were sent, and their bytes.
        reads: u64,
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
    let Some(file) = FileId::of(&target) else { return Outcome::Odd };
    if kept.as_ref().is_none_or(|kept| kept.file != file) {
        *kept = None;
        match open(Arc::new(target), settings) {
            Ok((opened, buffered)) => *kept = Some(Kept { file, opened, buffered }),
            Err(majorfault::Error::Missing(missing)) => return Outcome::Refused(missing.to_string()),
            Err(_) => return Outcome::Odd,
        }
    }
    let Some(Kept { opened, buffered, .. }) = kept else { return Outcome::Odd };
    let plan = Plan::of(ranges, settings.gap);
    let mut room = plan.room();
    let mut seen = 0;
    let visited = opened.visit(&plan.extents, |index, bytes| {
        if !is_wanted() {
            return ControlFlow::Break(());
        }
        plan.put(&mut room, index, bytes);
        seen += 1;
        ControlFlow::Continue(())
    });
    match visited {
        Ok(()) if seen == plan.extents.len() => Outcome::Read {
            answers: plan.answers(ranges, room),
            reads: plan.extents.len() as u64,
            bytes: plan.bytes(),
            buffered: buffered.clone(),
        },
        Ok(()) => Outcome::Cancelled,
        Err(majorfault::Error::Missing(missing)) => {
            *kept = None;
            Outcome::Refused(missing.to_string())
        }
        Err(_) => {
            *kept = None;
            Outcome::Odd
        }
    }
}

/// A reader of the target, and why it is not direct where it should be.
fn open(target: Arc<Target>, settings: &Settings) -> majorfault::Result<(Opened, Option<String>)> {
    let options = Uring::options().depth(settings.depth).register(settings.register);
    let mut buffered = None;
    if settings.direct {
        match options.clone().direct(true).open_target(Arc::clone(&target)) {
            Err(majorfault::Error::Missing(missing)) if missing.what == "O_DIRECT" => {
                buffered = Some(missing.to_string());
            }
            opened => return opened.map(|opened| (opened, None)),
        }
    }
    // What will be read is known to the byte: the kernel's guesses would only add to it. Only this descriptor is meant.
    let advised = rustix::fs::fadvise(&target.files()[0].file, 0, None, rustix::fs::Advice::Random);
    if let Err(error) = advised {
        tracing::debug!("posix_fadvise(2) did not take RANDOM ({error}): the kernel may read more than was asked for");
    }
    options.direct(false).open_target(target).map(|opened| (opened, buffered))
}
