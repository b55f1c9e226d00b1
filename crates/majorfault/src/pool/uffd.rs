//! The pool behind plain pointers as an access method.

use super::pointers::PooledMap;
use super::{Handle, PoolOptions, method};
use crate::access::{self, Class, Direct, Filler, Hints, Method, Opened, Reader, Urgency, Visitor};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::{Given, Params, Switch, Value};
use crate::sys::ring::IO_URING;
use crate::sys::uffd::USERFAULTFD;
use crate::units::Bytes;
use std::sync::Arc;

/// `uffd`.
pub const METHOD: Method = Method {
    name: "uffd",
    summary: "plain pointers into a buffer pool of our own: faults are served by a thread (userfaultfd)",
    needs: &[&USERFAULTFD],
    class: Class::Pool,
    hints: Hints::Own,
    depth: None,
    direct: Direct::Given,
    params: UffdParams::declared,
    open,
};

crate::params! {
    /// How large the pool is, and how it is filled.
    pub struct UffdParams {
        /// Memory for pages. A cgroup's limit must leave room for it.
        memory: Bytes = Bytes::mib(64),
        /// Bytes brought by a fault, 4k to 2m; larger ones read more than asked for, and spare faults.
        page: Bytes = Bytes::kib(4),
        /// Past the page cache, so that nothing is cached twice.
        direct: Switch = Switch::On,
        /// Pages evicted at once; 256 make a TLB flush cheap for each.
        batch: u32 = 256,
    }
}

/// All threads share the map; each has a handle of its own to fetch and to write by.
struct UffdReader {
    map: Arc<PooledMap>,
    target: Arc<Target>,
    handle: Handle,
}

fn open(target: Arc<Target>, given: &Given) -> Result<Opened> {
    let params = UffdParams::from_given(given)?;
    let settings = params.given();
    let UffdParams { memory, page, direct, batch } = params;
    USERFAULTFD.met()?;
    let (name, given) = match (IO_URING.met(), direct) {
        (Ok(()), _) => ("uring", Given::none().with("direct", direct.text())),
        (_, Switch::On) => ("direct", Given::none()),
        (_, Switch::Off) => ("pread", Given::none()),
    };
    let below = (access::plain(name)?.open)(Arc::clone(&target), &given)?;
    let options = PoolOptions { budget: memory, page, batch, transfer: method::transfer(&target, page)? };
    let map = Arc::new(PooledMap::new(target.length(), options, below.reader.sibling()?)?);
    let handle = map.pool().handle(below.reader);
    let reader = UffdReader { map, target, handle };
    Ok(Opened { reader: Box::new(reader), settings, notes: below.notes })
}

impl Reader for UffdReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        for (index, extent) in extents.iter().enumerate() {
            self.target.locate(*extent)?;
            visitor.submitted(index);
            let begin = extent.offset as usize;
            let flow = visitor.see(index, &self.map.bytes()[begin..begin + extent.length]);
            self.map.check()?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        method::update(&mut self.handle, &self.target, extents, filler)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        method::check_update(&self.handle, &self.target, extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.handle.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let (map, target) = (Arc::clone(&self.map), Arc::clone(&self.target));
        let handle = self.handle.pool.handle(self.handle.reader.sibling()?);
        Ok(Box::new(UffdReader { map, target, handle }))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        method::expect(&mut self.handle, &self.target, extents)
    }
}
