//! Explicit reads through the page cache into one buffer: a system call and a copy for each extent, no faults.

use crate::access::{
    self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Urgency, Visitor, transfer_error,
};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::Params;
use crate::sys::cache::{self, FileAdvice};
use crate::sys::read;
use std::sync::Arc;

pub(super) const METHOD: Method = Method {
    name: "pread",
    summary: "a system call and a copy for each extent, through the page cache",
    needs: &[],
    class: Class::Explicit,
    hints: Hints::PageCache,
    depth: None,
    budget: None,
    direct: DirectIo::Never,
    params: PreadOptions::declared,
    open: access::by_names::<PreadOptions>,
};

access::front_door! {
    /// A system call and a copy for each extent, through the page cache.
    Pread by PreadOptions
}

crate::choices! {
    /// Advice to the kernel about the file, given before the first read (posix_fadvise(2)).
    #[non_exhaustive]
    pub enum Hint {
        /// Nothing.
        Normal = "normal",
        /// No read-ahead.
        Random = "random",
        /// Read-ahead twice as far.
        Sequential = "sequential",
        /// Reads don't count as use when memory is reclaimed (Linux 6.3).
        Noreuse = "noreuse",
    }
}

crate::params! {
    /// How the file is read.
    #[non_exhaustive]
    pub struct PreadOptions {
        /// The hint given at opening; by default none, as the kernel detects random reads by itself.
        advice: Hint = Hint::Normal,
    }
}

struct PreadReader {
    target: Arc<Target>,
    buffer: Vec<u8>,
}

impl MethodOptions for PreadOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let kind = match self.advice {
            Hint::Normal => FileAdvice::Normal,
            Hint::Random => FileAdvice::Random,
            Hint::Sequential => FileAdvice::Sequential,
            Hint::Noreuse => FileAdvice::NoReuse,
        };
        let refused = target.files().iter().filter_map(|file| cache::fadvise(&file.file, 0, 0, kind).err());
        let notes = refused.map(|error| error.to_string()).collect();
        let reader = PreadReader { target: Arc::clone(&target), buffer: Vec::new() };
        Ok(Opened::new(Box::new(reader), target, self.given(), notes))
    }
}

impl PreadReader {
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        &mut self.buffer[..length]
    }
}

impl Reader for PreadReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            let target = Arc::clone(&self.target);
            let (number, offset) = target.locate(*extent)?;
            let file = &target.files()[number];
            let bytes = self.room(extent.length);
            read::pread_exact(&file.file, bytes, offset)
                .map_err(|error| transfer_error("read", file, *extent, error))?;
            if visitor.see(index, bytes).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.target.check_writable()?;
        for (index, extent) in extents.iter().enumerate() {
            let target = Arc::clone(&self.target);
            let (number, offset) = target.locate(*extent)?;
            let file = &target.files()[number];
            let bytes = self.room(extent.length);
            let flow = filler.fill(index, bytes);
            read::pwrite_all(&file.file, bytes, offset)
                .map_err(|error| transfer_error("write", file, *extent, error))?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.target.check_writable()?;
        self.target.locate(extent).map(drop)
    }

    fn sync(&mut self) -> Result<()> {
        super::sync_files(&self.target)
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(PreadReader { target: Arc::clone(&self.target), buffer: Vec::new() }))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        super::advise_files(&self.target, extents, FileAdvice::WillNeed)
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        super::advise_files(&self.target, extents, FileAdvice::DontNeed)
    }
}
