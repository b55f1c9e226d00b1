//! How bytes of a file reach a program on Linux, as interchangeable parts.
//!
//! [`access`] has one method per way to reach a file (mapping, pread, `O_DIRECT`, `io_uring`), all behind one
//! [`Reader`](access::Reader); [`prefetch`] has the policies that read ahead around one;
//! [`observe`] has the counters that tell what each of them cost; [`files`], [`units`], [`params`], [`needs`] and
//! [`error`] are the ground they stand on.

pub mod access;
pub mod error;
pub mod files;
mod headroom;
pub mod map;
pub mod methods;
pub mod needs;
pub mod observe;
pub mod params;
pub mod pool;
pub mod prefetch;
pub mod proc;
pub mod sys;
#[cfg(test)]
mod test_files;
pub mod trace;
pub mod units;

pub use error::{Error, Result};
pub use files::{Extent, Layout, Target};
pub use needs::{Missing, Need};
pub use params::Given;
pub use units::{Bytes, Nanos};

/// Every facility that something of this library can use, for telling what is here.
pub const NEEDS: &[&Need] = &[
    &sys::ring::IO_URING,
    &sys::uffd::USERFAULTFD,
    &sys::cache::CACHESTAT,
    &observe::tlb::TLB_FLUSH,
    &observe::pressure::PSI,
    &observe::hardware::HARDWARE,
    &observe::sampler::FAULT_SAMPLES,
    &observe::advice_calls::ADVICE_CALLS,
];
