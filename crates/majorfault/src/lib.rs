//! The ways in which the bytes of a file reach a program on Linux, as interchangeable parts.
//!
//! [`access`] has one method per way to reach a file (mapping, pread, `O_DIRECT`, `io_uring`), all behind one
//! [`Reader`](access::Reader); [`map`] has mapped files that report truncation as an error, [`pool`] a buffer pool; [`prefetch`]
//! has the policies that read ahead around a reader;
//! [`small_files`] reads many whole files at a time;
//! [`observe`] has the counters that measure what each of them costs; [`files`], [`units`], [`params`](mod@params), [`needs`] and
//! [`error`] are the foundation.
//!
//! The front door is typed: an option that does not exist does not compile.
//!
//! ```
//! use majorfault::{Bytes, Mmap, Pool, Pread, Uring, prefetch::Learned};
//!
//! # fn main() -> majorfault::Result<()> {
//! # let path = "/proc/self/exe";
//! let mut plain = Pread::open(path)?;
//! let mut ahead = Mmap::options().policy(Learned::default()).open(path)?;
//! let mut pooled = Pool::options().memory(Bytes::mib(16)).direct(false).open(path)?;
//!
//! let mut magic = [0; 4];
//! plain.read_at(0, &mut magic)?;
//! ahead.visit(&ahead.target.pieces(4096)[..1], |_, bytes| assert_eq!(bytes[..4], magic))?;
//! assert_eq!(pooled.pin(0)?[..4], magic);
//! # Ok(())
//! # }
//! ```
//!
//! Above it lies a layer of names for command lines and records: [`methods::named`], [`Given`]. [`ErrorKind`] tells what a
//! program can do about an error.
//!
//! The feature `internals` makes the modules `sys` and `proc` public: the system calls, and the parsers of /proc. They come
//! without a promise of stability.
#![cfg_attr(not(feature = "internals"), warn(missing_debug_implementations, unnameable_types))]

pub mod access;
pub mod error;
pub mod files;
mod headroom;
pub mod map;
pub mod memory;
pub mod methods;
pub mod needs;
pub mod observe;
pub mod params;
pub mod pool;
pub mod prefetch;
#[cfg(feature = "internals")]
pub mod proc;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, reason = "the lab uses more of it, by the feature `internals`")]
mod proc;
pub mod small_files;
#[cfg(feature = "internals")]
pub mod sys;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, reason = "the lab uses more of it, by the feature `internals`")]
mod sys;
#[cfg(test)]
mod test_files;
pub mod trace;
pub mod units;

pub use access::{Direct, Mmap, Null, Opened, Pread, Uring};
pub use error::{Error, ErrorKind, Result};
pub use files::{Extent, Layout, Target};
pub use map::MappedFile;
pub use needs::{Lack, Missing, Need};
pub use params::Given;
pub use pool::{Pool, PooledFile};
pub use small_files::SmallFiles;
pub use units::{Bytes, Nanos};

/// The examples of the README, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Every facility that some part of this library can use, for reporting which are available here.
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
