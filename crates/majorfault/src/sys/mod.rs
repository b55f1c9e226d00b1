//! The system calls that are used, one thin function each. The library's unsafe code is here and in the few files
//! where a caller's promise is given or relied on (`tests/structure.rs` of the lab lists them).

pub mod advice;
pub mod cache;
pub mod chain;
pub mod claims;
pub mod clock;
#[cfg(target_arch = "x86_64")]
pub mod cpuid;
pub mod direct;
pub mod fault;
pub mod map;
pub mod numa;
pub mod other_process;
pub mod page_state;
pub mod pages;
pub mod perf;
pub mod pieces;
pub mod procmap;
pub mod read;
pub mod resident;
pub mod ring;
pub mod samples;
pub mod shared;
pub mod swap;
pub mod tracepoints;
pub mod uffd;
pub mod view;
