//! What the processor, or the hypervisor beneath it, reports about itself.
#![allow(unsafe_code)]

use std::arch::x86_64::{__cpuid, CpuidResult};

/// The result of the instruction cpuid for `leaf`.
#[allow(unused_unsafe, reason = "safe to call since a later Rust than the oldest that builds this")]
pub fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing.
    unsafe { __cpuid(leaf) }
}
