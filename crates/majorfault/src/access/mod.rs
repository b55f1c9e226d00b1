//! Access methods: the ways bytes of a file reach a program, all behind one [`Reader`].
//!
//! A program opens a file by a method's typed options; an option that a method does not have does not compile:
//!
//! ```
//! use majorfault::access::{Pread, PreadHint};
//! use majorfault::Extent;
//!
//! # fn main() -> majorfault::Result<()> {
//! let mut file = Pread::options().advice(PreadHint::Random).open("/proc/self/exe")?;
//! let mut sum = 0u64;
//! file.visit(&[Extent { offset: 4096, length: 64 }], |_, bytes| sum += u64::from(bytes[0]))?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! use majorfault::access::{Pread, PreadHint};
//!
//! let file = Pread::options().advise(PreadHint::Random).open("/proc/self/exe");
//! ```
//!
//! Above that lies the layer of names, for command lines and records: each method is a file with a `const` [`Method`], and
//! [`PLAIN`] lists them once. `spec` (tests) holds what every method must do.

mod direct;
mod mmap;
mod null;
mod pread;
#[cfg(test)]
mod spec;
mod uring;

use crate::error::{Error, Result};
use crate::files::{Extent, Layout, Target, TargetFile};
use crate::needs::{Missing, Need};
use crate::params::{Given, Param, Params};
use crate::sys::cache::{self, FileAdvice};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use direct::{Direct, DirectOptions};
pub use mmap::{Align, Hint as MmapHint, Mmap, MmapOptions, Populate, Share};
pub use null::{Null, NullOptions};
pub use pread::{Hint as PreadHint, Pread, PreadOptions};
pub use uring::{Uring, UringOptions};

/// The methods that need only system calls, the control first. [`methods`](crate::methods) lists every method.
pub const PLAIN: &[&Method] = &[&null::METHOD, &mmap::METHOD, &pread::METHOD, &direct::METHOD, &uring::METHOD];

/// A way to reach the bytes of a file.
#[derive(Debug)]
pub struct Method {
    /// The name users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The facilities that it needs from the machine.
    pub needs: &'static [&'static Need],
    /// Its class.
    pub class: Class,
    /// What its prefetch hints reach, with default settings.
    pub hints: Hints,
    /// The parameter that sets its number of transfers in flight; none where it has no such parameter.
    pub depth: Option<&'static str>,
    /// The parameter that sets the memory it keeps pages in, beside the page cache; none where it keeps none.
    pub budget: Option<&'static str>,
    /// Whether it reads past the page cache.
    pub direct: DirectIo,
    /// Its parameters.
    pub params: fn() -> Vec<Param>,
    /// Prepares `target` for reading (and for writing where the target is writable) with the given settings. What takes
    /// time here (populating, registering) is part of what a user pays.
    ///
    /// Errors: Invalid (unknown parameter or value), Missing (a facility), Io.
    pub open: fn(Arc<Target>, &Given) -> Result<Opened>,
}

/// The classes of access methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reaches no file: what measuring itself costs.
    Control,
    /// By memory accesses to the mapped file; the kernel brings what is not there.
    Mapped,
    /// By a system call for each access, or for several, into a buffer of the method's own.
    Explicit,
    /// From a buffer pool of the method's own, filled by another method.
    Pool,
}

/// What [`Reader::will_need`] reaches. A prefetch policy makes sense only where a visit finds what was read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// Nothing that a visit would find.
    None,
    /// The page cache: a hint starts the read and returns.
    PageCache,
    /// A cache of the method's own: a hint waits until the bytes are there, so a helper thread should give it.
    Own,
}

/// Whether a method reads past the page cache (O_DIRECT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Never.
    Never,
    /// Always.
    Always,
    /// As its switch parameter `direct` says.
    Given,
}

/// An open file, or several: what [`Method::open`] and the `open` of typed options give.
#[must_use]
#[non_exhaustive]
pub struct Opened {
    /// Reaches the bytes.
    pub reader: Box<dyn Reader>,
    /// The address space that the bytes belong to.
    pub target: Arc<Target>,
    /// The settings in force, defaults included.
    pub settings: Given,
    /// Requests that were not granted although no call failed: a hint ignored, an address not granted.
    pub notes: Vec<String>,
}

/// The typed options of an access method: a struct declared by [`params!`](crate::params!).
pub trait MethodOptions: Params {
    /// The method that these options belong to.
    const METHOD: &'static Method;

    /// Prepares `target` for reading, and for writing where it is writable.
    ///
    /// Errors: Invalid (a value that cannot be used), Missing (a facility), Io.
    fn open_target(self, target: Arc<Target>) -> Result<Opened>;
}

/// Opens by the names of options `O`: the [`Method::open`] of every method that has typed options.
///
/// Errors: Invalid (unknown parameter or value), and those of [`MethodOptions::open_target`].
pub fn by_names<O: MethodOptions>(target: Arc<Target>, given: &Given) -> Result<Opened> {
    O::from_given(given)?.open_target(target)
}

/// The typed front door of a method: `$name::options()`, `$name::open(path)`, and `open(path)` of its options.
macro_rules! front_door {
    ($(#[$meta:meta])* $name:ident by $options:ident) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub enum $name {}

        impl $name {
            /// Options for opening, each at its default.
            pub fn options() -> $options {
                $options::default()
            }

            /// Opens a file for reading, with every option at its default.
            ///
            /// Errors: Invalid (an empty file, a folder), Missing (a facility), Io.
            pub fn open(path: impl AsRef<std::path::Path>) -> $crate::error::Result<$crate::access::Opened> {
                $options::default().open(path)
            }
        }

        impl $options {
            /// Opens a file for reading. For several files, a part of one, or writing see
            /// [`open_target`](crate::access::MethodOptions::open_target).
            ///
            /// Errors: Invalid (an empty file, a folder, a value that cannot be used), Missing (a facility), Io.
            pub fn open(self, path: impl AsRef<std::path::Path>) -> $crate::error::Result<$crate::access::Opened> {
                $crate::access::MethodOptions::open_target(self, $crate::access::for_reading(path.as_ref())?)
            }
        }
    };
}
pub(crate) use front_door;

/// The whole file at `path`, as a target.
pub(crate) fn for_reading(path: &std::path::Path) -> Result<Arc<Target>> {
    Target::open(&[path.to_owned()], &Layout::default()).map(Arc::new)
}

impl Opened {
    /// What a method opened: `settings` are those in force, `notes` are the requests that were not granted.
    pub fn new(reader: Box<dyn Reader>, target: Arc<Target>, settings: Given, notes: Vec<String>) -> Opened {
        Opened { reader, target, settings, notes }
    }

    /// Shows every extent to `see` once, in an order that suits the method; the index tells which extent it is. A closure that
    /// returns [`ControlFlow`] may end the visit early; one that returns nothing sees all.
    ///
    /// Errors: as [`Reader::visit`].
    pub fn visit<F: Flow>(&mut self, extents: &[Extent], see: impl FnMut(usize, &[u8]) -> F) -> Result<()> {
        self.reader.visit_with(extents, see)
    }

    /// Lets `fill` set every byte of every extent once, and writes the extents. They are durable only after [`Reader::sync`].
    ///
    /// Errors: as [`Reader::update`].
    pub fn update<F: Flow>(&mut self, extents: &[Extent], fill: impl FnMut(usize, &mut [u8]) -> F) -> Result<()> {
        self.reader.update_with(extents, fill)
    }

    /// Copies the bytes from `offset` on into `bytes`. An empty `bytes` costs nothing.
    ///
    /// Errors: as [`Reader::visit`].
    pub fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let extent = Extent { offset, length: bytes.len() };
        self.visit(&[extent], |_, seen| bytes.copy_from_slice(seen))
    }

    /// Bytes of the address space.
    pub fn len(&self) -> u64 {
        self.target.len()
    }

    /// Always false: an empty file cannot be opened.
    pub fn is_empty(&self) -> bool {
        self.target.is_empty()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opened { reader: _, target, settings, notes } = self;
        let mut shown = f.debug_struct("Opened");
        shown.field("target", target).field("settings", settings).field("notes", notes).finish_non_exhaustive()
    }
}

/// What a closure returns from each call: whether to go on. A closure that returns nothing goes on.
pub trait Flow {
    /// Whether to go on.
    fn flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

/// A closure as a visitor, and as a filler.
struct Closure<C>(C);

impl<F: Flow, C: FnMut(usize, &[u8]) -> F> Visitor for Closure<C> {
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        self.0(index, bytes).flow()
    }
}

impl<F: Flow, C: FnMut(usize, &mut [u8]) -> F> Filler for Closure<C> {
    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        self.0(index, bytes).flow()
    }
}

impl dyn Reader + '_ {
    /// [`visit`](Reader::visit) by a closure without written types.
    ///
    /// Errors: as [`visit`](Reader::visit).
    pub fn visit_with<F: Flow>(&mut self, extents: &[Extent], see: impl FnMut(usize, &[u8]) -> F) -> Result<()> {
        self.visit(extents, &mut Closure(see))
    }

    /// [`update`](Reader::update) by a closure without written types.
    ///
    /// Errors: as [`update`](Reader::update).
    pub fn update_with<F: Flow>(&mut self, extents: &[Extent], fill: impl FnMut(usize, &mut [u8]) -> F) -> Result<()> {
        self.update(extents, &mut Closure(fill))
    }
}

/// Receives the bytes of each extent, and may stop the visit.
pub trait Visitor {
    /// The extent `index` of the visit was handed to the device. Only methods that keep several in flight call this; for
    /// the others an access lasts from the end of the previous one.
    fn submitted(&mut self, index: usize) {
        let _ = index;
    }

    /// The bytes of the extent `index` were seen to be there; other extents may be shown before it. Only methods that keep several in
    /// flight call this; for the others an access ends as it is shown.
    fn arrived(&mut self, index: usize) {
        let _ = index;
    }

    /// The bytes of the extent `index`, valid during the call. Break ends the visit early.
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()>;
}

impl<F: FnMut(usize, &[u8])> Visitor for F {
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        self(index, bytes);
        ControlFlow::Continue(())
    }
}

/// Fills the bytes of each extent, and may stop the update.
pub trait Filler {
    /// The extent `index` of the update is the next to be filled. Only methods that keep several in flight, or in a pool, call this.
    fn submitted(&mut self, index: usize) {
        let _ = index;
    }

    /// The extent `index` was seen to be written, or is in the pool, though not durable. Only methods that call `submitted` do; with
    /// the others an access lasts from the end of one fill to the end of the next.
    fn written(&mut self, index: usize) {
        let _ = index;
    }

    /// Every extent is written, and what follows makes them durable. Told by [`Reader::update_and_sync`] only.
    fn all_written(&mut self) {}

    /// Must set every byte of the extent `index`; its previous content is unspecified. Break ends the update early:
    /// this extent and those handed out before it are still written.
    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()>;
}

impl<F: FnMut(usize, &mut [u8])> Filler for F {
    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        self(index, bytes);
        ControlFlow::Continue(())
    }
}

/// How soon announced extents are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Next: worth a system call now.
    Soon,
    /// Later: worth it only when cheap.
    Later,
}

/// One thread's access to the bytes of a target.
pub trait Reader: Send {
    /// Shows every extent to `visitor` once, in an order that suits the method (`index` tells which extent it is).
    ///
    /// Errors: Invalid (an extent outside the target or across stripes; earlier ones may have been shown), Io,
    /// Truncated.
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()>;

    /// Lets `filler` set the bytes of every extent once, and writes them. They are durable only after [`sync`](Reader::sync).
    ///
    /// Errors: as for `visit`; Missing where the method can't write.
    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        let _ = (extents, filler);
        Err(only_reads())
    }

    /// Whether [`update`](Reader::update) accepts `extent`. For code that keeps changes and writes them later: what could never
    /// be written must be refused when it is changed.
    ///
    /// Errors: Invalid (files opened for reading; an extent that cannot be written in this way), Missing where the method
    /// can't write.
    fn check_update(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Err(only_reads())
    }

    /// As [`update`](Reader::update), and returns once it and everything updated before is durable, as after [`sync`](Reader::sync);
    /// where the method has a queue, that is asked for together with the writes.
    ///
    /// Errors: those of both; what was written is not known to be durable then.
    fn update_and_sync(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.update(extents, filler)?;
        filler.all_written();
        self.sync()
    }

    /// Returns once everything updated so far through this reader or its siblings is on the device.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// A reader for another thread over the same opened files: the same mapping, or a queue of its own.
    fn sibling(&self) -> Result<Box<dyn Reader>>;

    /// Announces extents that will be visited. Only a hint: it does not change what `visit` shows.
    fn will_need(&mut self, extents: &[Extent], urgency: Urgency) -> Result<()> {
        let _ = (extents, urgency);
        Ok(())
    }

    /// Says that these extents will not be visited again soon. Only a hint, like [`will_need`](Reader::will_need).
    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        let _ = extents;
        Ok(())
    }
}

fn only_reads() -> Error {
    Error::Missing(Missing::new("writing by this method", "it only reads", "choose another method"))
}

/// The plain method of this name, for tests of code that uses one.
#[cfg(test)]
pub(crate) fn plain(name: &str) -> Result<&'static Method> {
    PLAIN
        .iter()
        .copied()
        .find(|method| method.name == name)
        .ok_or_else(|| Error::Invalid(format!("there is no plain access method \"{name}\"")))
}

/// The error of a failed transfer of `extent`, with a remedy where one is known.
fn transfer_error(verb: &str, file: &TargetFile, extent: Extent, error: std::io::Error) -> Error {
    let remedy = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "keep other programs from truncating it",
        _ => "",
    };
    Error::io(format!("{verb} {} bytes at {}", extent.length, extent.offset), &file.path, error).with_remedy(remedy)
}

/// Makes everything that was written to the files durable.
fn sync_files(target: &Target) -> Result<()> {
    let synced = |file: &TargetFile| {
        file.file.sync_data().map_err(|error| Error::io("make the writes durable", &file.path, error))
    };
    target.files().iter().try_for_each(synced)
}

/// Gives `advice` for each extent of the files.
fn advise_files(target: &Target, extents: &[Extent], advice: FileAdvice) -> Result<()> {
    for extent in extents {
        let (index, offset) = target.locate(*extent)?;
        cache::fadvise(&target.files()[index].file, offset, extent.length as u64, advice)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};

    fn pages(count: u64) -> Vec<Extent> {
        (0..count).map(|page| Extent { offset: page * PAGE as u64, length: PAGE }).collect()
    }

    #[test]
    fn every_method_opens_by_its_options_and_reads_any_bytes() {
        let file = TestFile::on_disk(8 * PAGE);
        let path = file.path();
        let opened = [Mmap::open(path), Pread::open(path), Direct::open(path)];
        let queued = crate::sys::ring::IO_URING.met().is_ok().then(|| Uring::options().depth(4).open(path));
        for opened in opened.into_iter().chain(queued) {
            let mut opened = opened.unwrap();
            let mut bytes = [0; 300];
            opened.read_at(3 * PAGE as u64 - 100, &mut bytes).unwrap();

            assert!(bytes == file.content()[3 * PAGE - 100..][..300], "{opened:?}");
            assert_eq!((opened.len(), opened.read_at(u64::MAX, &mut []).is_ok()), (8 * PAGE as u64, true));
        }
        assert_eq!(Null::open(path).unwrap().len(), 8 * PAGE as u64);
    }

    #[test]
    fn a_closure_that_breaks_ends_the_visit() {
        let file = TestFile::on_disk(8 * PAGE);
        let mut opened = Pread::open(file.path()).unwrap();
        let mut seen = Vec::new();

        let visited = opened.visit(&pages(8), |index, _| {
            seen.push(index);
            if index == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });

        visited.unwrap();
        assert_eq!(seen, [0, 1, 2]);
    }

    #[test]
    fn what_a_closure_fills_is_written() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut opened = PreadOptions::default().open_target(file.target(true)).unwrap();

        opened.update(&pages(4)[1..3], |index, bytes| bytes.fill(index as u8 + 7)).unwrap();

        let content = std::fs::read(file.path()).unwrap();
        assert!(content[..PAGE] == file.content()[..PAGE] && content[3 * PAGE..] == file.content()[3 * PAGE..]);
        assert_eq!((content[PAGE], content[2 * PAGE - 1], content[2 * PAGE], content[3 * PAGE - 1]), (7, 7, 8, 8));
    }

    #[test]
    fn options_that_cannot_be_used_are_refused_in_code_as_by_name() {
        let file = TestFile::on_disk(PAGE);

        for (options, told) in [
            (Uring::options().depth(0), "depth=0: legal is 1 to 4096"),
            (Uring::options().depth(4097), "depth=4097: legal is 1 to 4096"),
            (Uring::options().depth(8).batch(9), "batch=9: legal is 1 to the depth, 8"),
            (Uring::options().batch(0), "batch=0: legal is 1 to the depth, 32"),
        ] {
            assert_eq!(options.open(file.path()).unwrap_err().to_string(), told);
        }
    }
}
