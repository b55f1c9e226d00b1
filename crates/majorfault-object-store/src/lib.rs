//! An [`ObjectStore`] of a local directory whose [`get_ranges`](ObjectStore::get_ranges) has many reads in flight.
//!
//! Scans of Parquet, zarr and Lance ask for hundreds of ranges of one file at once. [`LocalFileSystem`] reads one after the other, and
//! waits for the device each time. [`FileStore`] hands them to `io_uring`, 64 at a time by default, through the page cache.
//!
//! All else is [`LocalFileSystem`]'s: writing, listing, copying, conditions, and what is to be said where something is wrong. So is a call that
//! is a single short read, and every call where `io_uring` is refused ([`FileStore::refusal`] tells why).
//!
//! ```
//! use majorfault_object_store::FileStore;
//! use object_store::{ObjectStore, ObjectStoreExt, path::Path};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> object_store::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! let store = FileStore::new(folder.path())?;
//! let path = Path::from("rows");
//! store.put(&path, vec![7; 1 << 20].into()).await?;
//!
//! let rows: Vec<_> = (0..50).map(|row| row * 20_000..row * 20_000 + 4096).collect();
//! let bytes = store.get_ranges(&path, &rows).await?;
//!
//! assert!(bytes.len() == 50 && bytes.iter().all(|row| row.len() == 4096));
//! println!("{:?}", store.counts());
//! # Ok(())
//! # }
//! ```
//!
//! Linux only, as all of `majorfault`.
#![warn(missing_debug_implementations, unnameable_types)]

mod plan;
mod visit;
mod workers;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use visit::Outcome;
use workers::Workers;

/// The files of a directory, of which many ranges are read at a time. A clone is the same store.
#[derive(Clone, Debug)]
pub struct FileStore {
    local: LocalFileSystem,
    settings: Settings,
    workers: Arc<Workers>,
    seen: Arc<Seen>,
}

/// How a [`FileStore`] reads: [`FileStore::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    settings: Settings,
}

#[derive(Clone, Debug)]
struct Settings {
    depth: u32,
    direct: bool,
    threads: usize,
    gap: u64,
    queue: bool,
}

/// What a store's `get_ranges` did so far: [`FileStore::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Calls that were one visit: what is cached copied, all else in flight together by `io_uring`.
    pub visits: u64,
    /// Reads in these visits: ranges that touch, or lie near each other, are one, a long one is several.
    pub reads: u64,
    /// Those of them that the page cache answered at once, without the queue.
    pub cached: u64,
    /// Bytes that all of these reads brought and that were asked for; those that several ranges share count once.
    pub bytes: u64,
    /// Calls left to `LocalFileSystem` because one short read answers them, or none.
    pub single: u64,
    /// Calls left to it because `io_uring` is refused ([`FileStore::refusal`]), or switched off.
    pub refused: u64,
    /// Calls left to it because it is to say what is wrong: no such file, a range past the end, a file that became shorter.
    pub odd: u64,
    /// Visits that went through the page cache although direct I/O was asked for.
    pub buffered: u64,
    /// Calls whose answer nobody waited for any more: no further reads were sent.
    pub cancelled: u64,
}

#[derive(Debug, Default)]
struct Seen {
    visits: AtomicU64,
    reads: AtomicU64,
    cached: AtomicU64,
    bytes: AtomicU64,
    single: AtomicU64,
    refused: AtomicU64,
    odd: AtomicU64,
    buffered: AtomicU64,
    refusal: Mutex<Option<String>>,
}

impl FileStore {
    /// The files below `root`, each option at its default. Use [`LocalFileSystem`]'s own options by [`Options::over`].
    ///
    /// Errors: there is no such directory.
    pub fn new(root: impl AsRef<std::path::Path>) -> Result<FileStore> {
        FileStore::options().open(root)
    }

    /// Options for opening, each at its default.
    pub fn options() -> Options {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).saturating_mul(2).clamp(4, 16);
        Options { settings: Settings { depth: 64, direct: false, threads, gap: 4096, queue: true } }
    }

    /// What `get_ranges` did so far, by this store and its clones.
    pub fn counts(&self) -> Counts {
        let Seen { visits, reads, cached, bytes, single, refused, odd, buffered, refusal: _ } = &*self.seen;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            visits: of(visits),
            reads: of(reads),
            cached: of(cached),
            bytes: of(bytes),
            single: of(single),
            refused: of(refused),
            odd: of(odd),
            buffered: of(buffered),
            cancelled: self.workers.cancelled(),
        }
    }

    /// Why a call was not one visit of a direct `io_uring` reader, or of any, and what to do about it: the first reason there was. None where
    /// all is as it was asked for. The same is told once by `tracing`, as a warning.
    pub fn refusal(&self) -> Option<String> {
        self.seen.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store that all but `get_ranges` is left to.
    pub fn local(&self) -> &LocalFileSystem {
        &self.local
    }

    /// Threads that read now; they end when they had nothing to do for half a second.
    pub fn threads(&self) -> usize {
        self.workers.threads()
    }
}

impl Options {
    /// Reads in flight for each call; 64 by default, which saturates most single disks. 1 to 4096.
    pub fn depth(mut self, depth: u32) -> Options {
        self.settings.depth = depth;
        self
    }

    /// Whether reads go past the page cache; off by default: what is read again is then found there. On a file system without direct I/O they go
    /// through it all the same, and [`FileStore::refusal`] says so.
    pub fn direct(mut self, direct: bool) -> Options {
        self.settings.direct = direct;
        self
    }

    /// Calls that are read at a time, each by a thread of its own with a ring of its own; by default two for each processor, 4 to 16.
    pub fn threads(mut self, threads: usize) -> Options {
        self.settings.threads = threads;
        self
    }

    /// The most bytes between two ranges that are read, too, so that both are one read of at most 128 KiB; 4 KiB by default. They are not kept, but are
    /// in the page cache then. 0: only what is asked for, to the page.
    pub fn gap(mut self, bytes: u64) -> Options {
        self.settings.gap = bytes;
        self
    }

    /// Whether `io_uring` is used; on by default. Off, every call is `LocalFileSystem`'s: to compare, or where rings are unwelcome.
    pub fn io_uring(mut self, queue: bool) -> Options {
        self.settings.queue = queue;
        self
    }

    /// The files below `root`.
    ///
    /// Errors: there is no such directory; an option's value that cannot be used.
    pub fn open(self, root: impl AsRef<std::path::Path>) -> Result<FileStore> {
        self.over(LocalFileSystem::new_with_prefix(root)?)
    }

    /// The files of a store that has options of its own: `fsync`, automatic cleanup, no prefix.
    ///
    /// Errors: an option's value that cannot be used.
    pub fn over(self, local: LocalFileSystem) -> Result<FileStore> {
        let Options { settings } = self;
        let Settings { depth, threads, .. } = settings;
        if !(1..=4096).contains(&depth) {
            return Err(wrong(format!("depth {depth}: legal is 1 to 4096")));
        }
        if !(1..=1024).contains(&threads) {
            return Err(wrong(format!("threads {threads}: legal is 1 to 1024")));
        }
        let workers = Arc::new(Workers::new(settings.clone()));
        Ok(FileStore { local, settings, workers, seen: Arc::default() })
    }
}

impl Seen {
    fn add(&self, count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }

    /// Keeps the first reason, and says it once.
    fn refuse(&self, reason: String) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if refusal.is_none() {
            tracing::warn!("{reason}");
            *refusal = Some(reason);
        }
    }
}

fn wrong(what: String) -> Error {
    Error::Generic { store: STORE, source: what.into() }
}

const STORE: &str = "majorfault";

/// Whether nothing can be in flight beside anything: one short read, or none.
fn is_single(ranges: &[Range<u64>]) -> bool {
    let mut some = ranges.iter().filter(|range| !range.is_empty());
    match (some.next(), some.next()) {
        (None, _) => true,
        (Some(range), None) => range.end - range.start <= plan::PIECE as u64,
        _ => false,
    }
}

impl FileStore {
    /// One visit, or why `LocalFileSystem` has to answer.
    async fn visit(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let seen = &*self.seen;
        if is_single(ranges) {
            seen.add(&seen.single, 1);
            return Ok(None);
        }
        if !self.settings.queue {
            seen.add(&seen.refused, 1);
            return Ok(None);
        }
        let path = self.local.path_to_filesystem(location)?;
        match self.workers.read(path, ranges.to_vec()).await {
            Outcome::Read { answers, reads, cached, bytes, buffered } => {
                seen.add(&seen.visits, 1);
                seen.add(&seen.reads, reads);
                seen.add(&seen.cached, cached);
                seen.add(&seen.bytes, bytes);
                if let Some(reason) = buffered {
                    seen.add(&seen.buffered, 1);
                    seen.refuse(format!("reads go through the page cache: {reason}"));
                }
                return Ok(Some(answers));
            }
            Outcome::Refused(reason) => {
                seen.add(&seen.refused, 1);
                seen.refuse(format!("ranges are read one after the other: {reason}"));
            }
            Outcome::PastEnd(range) => {
                seen.add(&seen.odd, 1);
                // Its own words, without the memory for a range that nobody can read. If it has an answer, the file grew meanwhile.
                self.local.get_ranges(location, &[range]).await?;
            }
            Outcome::Odd | Outcome::Cancelled => seen.add(&seen.odd, 1),
        }
        Ok(None)
    }
}

impl fmt::Display for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "majorfault::FileStore({})", self.local)
    }
}

// A method that is new in the trait must be passed on, too, not do what its default does.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ObjectStore for FileStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.local.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.local.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.local.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if let Some(Range { start, end }) = ranges.iter().find(|range| range.start > range.end) {
            // The other store panics, or asks for all memory there is.
            return Err(wrong(format!("the range {start}..{end} of {location} ends before it begins")));
        }
        match self.visit(location, ranges).await? {
            Some(answers) => Ok(answers),
            None => self.local.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.local.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.local.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.local.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.local.rename_opts(from, to, options).await
    }
}
