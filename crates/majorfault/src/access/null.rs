//! The control: the same calls and the same work, on bytes that are already in the processor's cache.
//!
//! Its time is the cost of measuring itself; no method can be faster.

use crate::access::{self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Visitor};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::Params;
use std::sync::Arc;

/// Bytes of a buffer in memory, whatever the extent.
pub const METHOD: Method = Method {
    name: "null",
    summary: "the control: bytes from a buffer in memory, no file is touched",
    needs: &[],
    class: Class::Control,
    hints: Hints::None,
    depth: None,
    budget: None,
    direct: DirectIo::Never,
    params: NullOptions::declared,
    open: access::by_names::<NullOptions>,
};

access::front_door! {
    /// The control: bytes from a buffer in memory, and no file is read.
    Null by NullOptions
}

crate::params! {
    /// The control has no settings.
    #[non_exhaustive]
    pub struct NullOptions {}
}

struct NullReader {
    target: Arc<Target>,
    buffer: Vec<u8>,
}

impl MethodOptions for NullOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        Ok(Opened::new(Box::new(NullReader::new(Arc::clone(&target))), target, self.given(), Vec::new()))
    }
}

impl NullReader {
    fn new(target: Arc<Target>) -> NullReader {
        NullReader { target, buffer: vec![0; 4096] }
    }

    #[cold]
    fn grow(&mut self, length: usize) {
        self.buffer.resize(length, 0);
    }

    #[inline]
    fn bytes(&mut self, extent: Extent) -> Result<&mut [u8]> {
        self.target.locate(extent)?;
        if self.buffer.len() < extent.length {
            self.grow(extent.length);
        }
        Ok(&mut self.buffer[..extent.length])
    }
}

impl Reader for NullReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            if visitor.see(index, self.bytes(*extent)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            if filler.fill(index, self.bytes(*extent)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.target.locate(extent).map(drop)
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(NullReader::new(Arc::clone(&self.target))))
    }
}
