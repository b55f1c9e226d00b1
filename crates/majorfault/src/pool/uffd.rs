//! The pool behind plain pointers as an access method.

use super::pointers::PooledMap;
use super::{Handle, PoolLayout, method};
use crate::access::{self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Urgency, Visitor};
use crate::access::{DirectOptions, PreadOptions, UringOptions};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::params::{Params, Switch};
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
    direct: DirectIo::Given,
    params: UffdOptions::declared,
    open: access::by_names::<UffdOptions>,
};

access::front_door! {
    /// Plain pointers into a pool: faults are served by a thread.
    Uffd by UffdOptions
}

crate::params! {
    /// How large the pool is, and how it is filled.
    #[non_exhaustive]
    pub struct UffdOptions {
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

impl MethodOptions for UffdOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let settings = self.given();
        let UffdOptions { memory, page, direct, batch } = self;
        USERFAULTFD.met()?;
        let below = match (IO_URING.met(), direct) {
            (Ok(()), _) => UringOptions::default().direct(direct).open_target(Arc::clone(&target))?,
            (_, Switch::On) => DirectOptions::default().open_target(Arc::clone(&target))?,
            (_, Switch::Off) => PreadOptions::default().open_target(Arc::clone(&target))?,
        };
        let layout = PoolLayout { memory, page, batch, transfer: method::transfer(&target, page)? };
        let map = Arc::new(PooledMap::new(target.len(), layout, below.reader.sibling()?)?);
        let handle = map.pool().handle(below.reader);
        let reader = UffdReader { map, target: Arc::clone(&target), handle };
        Ok(Opened::new(Box::new(reader), target, settings, below.notes))
    }
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
