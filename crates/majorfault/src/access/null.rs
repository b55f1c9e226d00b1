//! The control: the same calls and the same work on bytes that are already in the processor's cache.
//!
//! What it takes is the price of the measuring itself; no method can be faster.

use crate::access::{Class, Direct, Filler, Hints, Method, Opened, Reader, Visitor};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::{Given, Params};
use std::sync::Arc;

/// Bytes from a buffer in memory, whatever the extent.
pub const METHOD: Method = Method {
    name: "null",
    summary: "the control: bytes from a buffer in memory, no file is touched",
    needs: &[],
    class: Class::Control,
    hints: Hints::None,
    depth: None,
    direct: Direct::Never,
    params: NullParams::declared,
    open,
};

crate::params! {
    /// The control has no settings.
    struct NullParams {}
}

struct Null {
    target: Arc<Target>,
    buffer: Vec<u8>,
}

fn open(target: Arc<Target>, given: &Given) -> Result<Opened> {
    let params = NullParams::from_given(given)?;
    Ok(Opened { reader: Box::new(Null::new(target)), settings: params.given(), notes: Vec::new() })
}

impl Null {
    fn new(target: Arc<Target>) -> Null {
        Null { target, buffer: vec![0; 4096] }
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

impl Reader for Null {
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
        Ok(Box::new(Null::new(Arc::clone(&self.target))))
    }
}
