//! Hits of tracepoints as samples with their fields, in the rings of `samples`.

use super::perf::{ATTR_SIZE_VER5, Attr, EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL, INHERIT, Kernel};
use super::samples::{LOST, Ring, SAMPLE, Sampling, Threads, USE_CLOCKID, WATERMARK};
use crate::units::Nanos;
use std::io;

/// PERF_TYPE_TRACEPOINT.
const TRACEPOINT: u32 = 2;

/// PERF_SAMPLE_TID, TIME and RAW: the fields of a sample, in this order.
const SAMPLE_FIELDS: u64 = 1 << 1 | 1 << 2 | 1 << 10;

/// One hit of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// CLOCK_MONOTONIC.
    pub at: Nanos,
    /// The tracepoint's number.
    pub id: u64,
    /// Its fields, at the offsets of its `format` file; padded with zeroes to a multiple of eight bytes, less four.
    pub fields: &'a [u8],
}

impl Sampling {
    /// Samples every hit of the tracepoint `id` by these threads, and by the threads and processes they start from now on, while
    /// on processor `cpu`.
    ///
    /// With [`Kernel::LeftOut`] only the tracepoints at system calls remain, which count as user code.
    ///
    /// Errors: EACCES or EPERM (rights), ENOENT (no such tracepoint), ESRCH (no such thread), EMFILE.
    pub fn of_tracepoint(id: u64, threads: Threads, cpu: u32, kernel: Kernel) -> io::Result<Sampling> {
        let exclude = if kernel == Kernel::LeftOut { EXCLUDE_KERNEL } else { 0 };
        let attr = Attr {
            kind: TRACEPOINT,
            size: ATTR_SIZE_VER5,
            config: id,
            sample_period: 1,
            sample_type: SAMPLE_FIELDS,
            flags: INHERIT | EXCLUDE_HYPERVISOR | WATERMARK | USE_CLOCKID | exclude,
            wakeup_events: u32::MAX, // as a watermark: never
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        Sampling::open(attr, threads, cpu)
    }
}

impl Ring {
    /// Shows every hit since the last time, oldest first, and frees their space. Returns how many were lost.
    pub fn drain_hits(&mut self, mut see: impl FnMut(Hit<'_>)) -> u64 {
        let mut lost = 0;
        self.drain_bytes(|(kind, _), bytes| match kind {
            SAMPLE => {
                if let Some(hit) = hit(bytes) {
                    see(hit);
                }
            }
            LOST => lost += bytes.get(8..16).map_or(0, word),
            _ => {}
        });
        lost
    }
}

/// A sample after its header: process and thread, time, length of the fields, the fields, which begin with the number.
fn hit(bytes: &[u8]) -> Option<Hit<'_>> {
    let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = half(16)? as usize;
    let fields = bytes.get(20..20usize.checked_add(length)?)?;
    let id = u64::from(u16::from_ne_bytes(fields.get(..2)?.try_into().ok()?));
    Some(Hit { process: half(0)?, thread: half(4)?, at: Nanos(word(bytes.get(8..16)?)), id, fields })
}

/// The number in eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_read_with_its_fields_and_one_cut_short_is_none() {
        let mut bytes = Vec::new();
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(8u32.to_ne_bytes());
        bytes.extend(99u64.to_ne_bytes());
        bytes.extend(12u32.to_ne_bytes());
        bytes.extend([0xd6, 0x02, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);

        let found = hit(&bytes).unwrap();

        assert_eq!((found.process, found.thread, found.at, found.fields.len()), (7, 8, Nanos(99), 12));
        assert_eq!(found.id, u64::from(u16::from_ne_bytes([0xd6, 0x02])));
        for length in 0..bytes.len() {
            assert_eq!(hit(&bytes[..length]), None);
        }
    }
}
