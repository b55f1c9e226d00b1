//! The typed front door of `mmap`.

use crate::access::mmap::{self, MmapParams as MmapOptions};
use crate::access::{self, Method, MethodOptions, Opened};
use crate::error::Result;
use crate::files::Target;
use crate::params::Params;
use std::sync::Arc;

access::front_door! {
    /// The file mapped and used in place; the kernel reads what is touched.
    ///
    /// ```
    /// use majorfault::access::{Mmap, MmapHint};
    /// use majorfault::prefetch::Learned;
    ///
    /// # fn main() -> majorfault::Result<()> {
    /// let plain = Mmap::options().advice(MmapHint::Random).open("/proc/self/exe")?;
    /// let ahead = Mmap::options().policy(Learned::default()).open("/proc/self/exe")?;
    /// # Ok(())
    /// # }
    /// ```
    Mmap by MmapOptions
}

impl MethodOptions for MmapOptions {
    const METHOD: &'static Method = &mmap::METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        mmap::open(target, &self.given())
    }
}
