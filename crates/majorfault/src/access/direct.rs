//! O_DIRECT: from the device into our buffer, past the page cache. No read-ahead, no eviction, nothing shared.
//!
//! The kernel requires aligned offsets, lengths and addresses. An extent that is not aligned is rounded out, and only the
//! part that was asked for is lent.

use crate::access::{
    self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Visitor, transfer_error,
};
use crate::error::{Error, Result};
use crate::files::{Extent, Target, TargetFile};
use crate::params::Params;
use crate::sys::direct::{Alignment, Block, reopen};
use crate::sys::read;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

pub(super) const METHOD: Method = Method {
    name: "direct",
    summary: "O_DIRECT: a system call for each extent, past the page cache",
    needs: &[],
    class: Class::Explicit,
    hints: Hints::None,
    depth: None,
    budget: None,
    direct: DirectIo::Always,
    params: DirectOptions::declared,
    open: access::by_names::<DirectOptions>,
};

access::front_door! {
    /// O_DIRECT: a system call for each extent, past the page cache.
    Direct by DirectOptions
}

crate::params! {
    /// It has no options: the device decides the alignment.
    #[non_exhaustive]
    pub struct DirectOptions {}
}

/// The files of a target, opened with O_DIRECT.
pub(super) struct DirectFiles {
    pub(super) target: Arc<Target>,
    pub(super) files: Vec<File>,
    pub(super) alignment: Alignment,
}

/// An extent rounded out to the alignment that O_DIRECT requires.
pub(super) struct Aligned {
    /// Index of the file.
    pub(super) file: usize,
    /// Aligned offset in the file.
    pub(super) offset: u64,
    /// Aligned length.
    pub(super) length: usize,
    /// Where the extent lies inside it.
    pub(super) inner: Range<usize>,
}

struct DirectReader {
    files: Arc<DirectFiles>,
    block: Block,
}

impl MethodOptions for DirectOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let files = Arc::new(DirectFiles::open(Arc::clone(&target))?);
        let block = Block::new(4096, files.alignment.memory)?;
        Ok(Opened::new(Box::new(DirectReader { files, block }), target, self.given(), Vec::new()))
    }
}

impl DirectFiles {
    pub(super) fn open(target: Arc<Target>) -> Result<DirectFiles> {
        let mut files = Vec::new();
        let mut alignment = Alignment::default();
        for file in target.files() {
            let (direct, own) = reopen(&file.file, &file.path, target.writable())?;
            alignment = alignment.max(own);
            files.push(direct);
        }
        Ok(DirectFiles { target, files, alignment })
    }

    pub(super) fn align(&self, extent: Extent) -> Result<Aligned> {
        let (file, begin) = self.target.locate(extent)?;
        let unit = self.alignment.offset as u64;
        let offset = begin / unit * unit;
        let inner = (begin - offset) as usize;
        let length = (inner + extent.length).next_multiple_of(unit as usize);
        Ok(Aligned { file, offset, length, inner: inner..inner + extent.length })
    }

    /// Fails where `extent` cannot be written: writes cover whole units, and a unit that passes the end would lengthen the file.
    fn check_update(&self, extent: Extent) -> Result<()> {
        self.target.check_writable()?;
        let Aligned { file, offset, length, .. } = self.align(extent)?;
        let TargetFile { start, length: used, .. } = &self.target.files()[file];
        if offset + length as u64 <= start + used {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "O_DIRECT writes whole units of {} bytes here, and the {} bytes at {} reach into the file's last, partial unit; \
             write them through the page cache",
            self.alignment.offset, extent.length, extent.offset
        )))
    }

    pub(super) fn failed(&self, verb: &str, extent: Extent, index: usize, error: std::io::Error) -> Error {
        transfer_error(verb, &self.target.files()[index], extent, error)
    }
}

impl DirectReader {
    /// Reads the aligned surroundings of `extent` and returns where it lies in the block. The end of a file may cut the
    /// surroundings short, but not the extent.
    fn read(&mut self, extent: Extent) -> Result<Aligned> {
        let aligned = self.files.align(extent)?;
        let Aligned { file, offset, length, inner } = &aligned;
        self.block.reserve(*length, self.files.alignment.memory)?;
        let got = read::pread_some(&self.files.files[*file], &mut self.block.bytes_mut()[..*length], *offset)
            .map_err(|error| self.files.failed("read", extent, *file, error))?;
        if got < inner.end {
            return Err(self.files.failed("read", extent, *file, read::ended(offset + got as u64)));
        }
        Ok(aligned)
    }
}

impl Reader for DirectReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            let aligned = self.read(*extent)?;
            if visitor.see(index, &self.block.bytes()[aligned.inner]).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            self.files.check_update(*extent)?;
            let mut aligned = self.files.align(*extent)?;
            if aligned.inner != (0..aligned.length) {
                // What lies around the extent must be written back unchanged.
                aligned = self.read(*extent)?;
            }
            let Aligned { file, offset, length, inner } = aligned;
            self.block.reserve(length, self.files.alignment.memory)?;
            let flow = filler.fill(index, &mut self.block.bytes_mut()[inner]);
            read::pwrite_all(&self.files.files[file], &self.block.bytes()[..length], offset)
                .map_err(|error| self.files.failed("write", *extent, file, error))?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.files.check_update(extent)
    }

    fn sync(&mut self) -> Result<()> {
        super::sync_files(&self.files.target)
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let block = Block::new(4096, self.files.alignment.memory)?;
        Ok(Box::new(DirectReader { files: Arc::clone(&self.files), block }))
    }
}
