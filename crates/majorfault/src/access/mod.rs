//! Access methods: the ways bytes of a file reach a program, all behind one [`Reader`].
//!
//! Each method is a file with a `const` [`Method`]; [`PLAIN`] names them once.
//! `spec` (tests) holds what every method must do.

mod direct;
mod mmap;
mod null;
mod pread;
#[cfg(test)]
mod spec;
mod uring;

use crate::error::{Error, Result};
use crate::files::{Extent, Target, TargetFile};
use crate::needs::{Missing, Need};
use crate::params::{Given, Param};
use crate::sys::cache::{self, FileAdvice};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The methods that stand on system calls alone, the control first. [`methods`](crate::methods) has every one.
pub const PLAIN: &[&Method] = &[&null::METHOD, &mmap::METHOD, &pread::METHOD, &direct::METHOD, &uring::METHOD];

/// A way to reach the bytes of a file.
pub struct Method {
    /// The name users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What the machine must have for it.
    pub needs: &'static [&'static Need],
    /// What kind of way it is.
    pub class: Class,
    /// What its prefetch hints reach, with its default settings.
    pub hints: Hints,
    /// The parameter that is its number of transfers in flight; none where it has no such parameter.
    pub depth: Option<&'static str>,
    /// Whether it reads past the page cache.
    pub direct: Direct,
    /// Its parameters.
    pub params: fn() -> Vec<Param>,
    /// Prepares `target` for reading (and writing, where the target is writable) with the given settings. What costs
    /// time here (populating, registering) is part of what a user pays.
    ///
    /// Errors: Invalid (unknown parameter or value), Missing (a facility), Io.
    pub open: fn(Arc<Target>, &Given) -> Result<Opened>,
}

/// The kinds of ways to reach a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reaches no file: the price of the measuring itself.
    Control,
    /// By memory accesses to the mapped file; the kernel brings what is not there.
    Mapped,
    /// By a system call for each access, or for several, into a buffer of the method's own.
    Explicit,
    /// From a buffer pool of the method's own, filled by another method.
    Pool,
}

/// What [`Reader::will_need`] reaches. A prefetch policy makes sense only where it reaches something.
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
pub enum Direct {
    /// Never.
    Never,
    /// Always.
    Always,
    /// As its switch parameter `direct` says.
    Given,
}

/// What [`Method::open`] gives.
pub struct Opened {
    /// Reaches the bytes.
    pub reader: Box<dyn Reader>,
    /// The settings in force, defaults filled in.
    pub settings: Given,
    /// What did not happen as asked though no call failed: a hint ignored, an address not granted.
    pub notes: Vec<String>,
}

/// Receives the bytes of each extent, and may stop the visit.
pub trait Visitor {
    /// The extent `index` of the visit was handed to the device. Only methods that keep several in flight say so; for
    /// the others an access lasts from the end of the one before.
    fn submitted(&mut self, index: usize) {
        let _ = index;
    }

    /// The bytes of the extent `index`, readable for the duration of the call. Break ends the visit early.
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
    /// The extent `index` of the update was handed to the device, as in [`Visitor::submitted`].
    fn submitted(&mut self, index: usize) {
        let _ = index;
    }

    /// Must set every byte of the extent `index`; what is there before is unspecified. Break ends the update early:
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
    /// Some time: worth it only when cheap.
    Later,
}

/// One thread's way to the bytes of a target.
pub trait Reader: Send {
    /// Shows every extent to `visitor` once, in an order that suits the method (`index` says which one it is).
    ///
    /// Errors: Invalid (an extent outside the target or across stripes; those before it may have been seen), Io,
    /// Truncated.
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()>;

    /// Lets `filler` set the bytes of every extent once, and writes them. Durable only after [`sync`](Reader::sync).
    ///
    /// Errors: as for `visit`; Missing where the method can't write.
    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        let _ = (extents, filler);
        Err(only_reads())
    }

    /// Whether [`update`](Reader::update) takes `extent`. For those who keep changes and write them later: what could never
    /// be written must be refused when it is changed.
    ///
    /// Errors: Invalid (files opened for reading; an extent that cannot be written in this way), Missing where the method
    /// can't write.
    fn check_update(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Err(only_reads())
    }

    /// Returns when everything updated so far through this reader or its siblings is on the device.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// A reader for another thread over the same opened thing: the same mapping, a queue of its own.
    fn sibling(&self) -> Result<Box<dyn Reader>>;

    /// Announces extents that will be visited. A hint: without effect on what `visit` shows.
    fn will_need(&mut self, extents: &[Extent], urgency: Urgency) -> Result<()> {
        let _ = (extents, urgency);
        Ok(())
    }

    /// Says that these extents won't be visited again soon. A hint, as above.
    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        let _ = extents;
        Ok(())
    }
}

fn only_reads() -> Error {
    Error::Missing(Missing::new("writing by this method", "it only reads", "choose another method"))
}

/// The plain method of this name, for methods that stand on one.
pub(crate) fn plain(name: &str) -> Result<&'static Method> {
    PLAIN
        .iter()
        .copied()
        .find(|method| method.name == name)
        .ok_or_else(|| Error::Invalid(format!("there is no plain access method \"{name}\"")))
}

/// The error of a failed transfer of `extent`, with what to do where that is known.
fn transfer_error(verb: &str, file: &TargetFile, extent: Extent, error: std::io::Error) -> Error {
    let remedy = match (error.kind(), error.raw_os_error()) {
        (std::io::ErrorKind::UnexpectedEof, _) => "keep other programs from truncating it",
        (_, Some(libc::EIO)) => "the device failed; look at the kernel's log, and copy what is still readable",
        (_, Some(libc::ENOSPC)) => "free space on the file system",
        _ => "",
    };
    Error::io(format!("{verb} {} bytes at {}", extent.length, extent.offset), &file.path, error).with_remedy(remedy)
}

/// Makes everything written to the files durable.
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
