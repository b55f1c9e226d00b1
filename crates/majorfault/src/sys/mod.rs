//! The system calls that are used, one thin function each; the only place of the library with unsafe code
//! (next to the pool's region).

pub mod advice;
pub mod cache;
pub mod clock;
#[cfg(target_arch = "x86_64")]
pub mod cpuid;
pub mod direct;
pub mod fault;
pub mod map;
pub mod page_state;
pub mod pages;
pub mod perf;
pub mod read;
pub mod ring;
pub mod samples;
pub mod tracepoints;
pub mod uffd;
