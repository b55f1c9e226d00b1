//! What read calls read of which file: read(2), pread(2), readv(2), sendfile(2), and reads by io_uring, as far as they go through the page
//! cache.
//!
//! Uses the tracepoint filemap:mm_filemap_get_pages (Linux 6.12): hit for each stretch of pages that a call takes from the page cache, with the
//! file's identity, so that no descriptor has to be known, and no system call is slowed down by itself. A read that is seen takes
//! more than a microsecond longer. Reads past the page cache (O_DIRECT, DAX) and of memory file systems are not seen.

use crate::needs::{Missing, Need, Probe};
use crate::proc::tracefs::{self, Tracepoint};
use crate::sys::perf::Kernel;
use crate::sys::samples::{PerfRecord, Sampling, Threads};
use crate::sys::tracepoints::Hit;
use std::collections::HashMap;
use std::io;

use super::sampler::{reason, remedy};

/// Where calls take pages from the page cache.
const POINT: &str = "filemap/mm_filemap_get_pages";

/// The facility that is missing where they cannot be seen.
const WHAT: &str = "reads by calls, one by one";

/// Bits of the minor number in the kernel's own number of a device.
const MINOR_BITS: u32 = 20;

/// The most threads whose last read is remembered; then all are forgotten, and a long read may be told in two parts.
const MOST_THREADS: usize = 4096;

/// Reads by calls with file and range, by a tracepoint.
pub const FILE_READS: Need =
    Need { name: "file reads", summary: "which pages of which file a process reads by calls, call by call", probe };

/// The tracepoint.
#[derive(Clone, Debug)]
pub(super) struct ReadPoint(Tracepoint);

/// The reads that threads are making: a long one takes its pages in several stretches, and is told once.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretches(HashMap<u32, Stretch>);

/// Device and inode of the file, the first page that is still to be read, and the last one.
type Stretch = ((u32, u32), u64, (u64, u64));

impl ReadPoint {
    /// Errors: Missing where tracefs is not readable, or the kernel is older.
    pub fn find() -> Result<ReadPoint, Missing> {
        Tracepoint::named(POINT).map(ReadPoint).ok_or_else(|| match tracefs::is_readable() {
            true => Missing::new(
                WHAT,
                format!("the kernel has no tracepoint {POINT}"),
                "use Linux 6.12 or newer with CONFIG_FTRACE=y",
            ),
            false => Missing::new(
                WHAT,
                "tracefs is not mounted, or not readable by this user",
                "run as root; where it is not mounted: mount -t tracefs tracefs /sys/kernel/tracing",
            ),
        })
    }

    /// Samples the reads of these threads on one processor.
    ///
    /// Errors: those of [`Sampling::of_tracepoint`].
    pub fn sample(&self, threads: Threads, processor: u32) -> io::Result<Sampling> {
        Sampling::of_tracepoint(self.0.id, threads, processor, Kernel::Counted)
    }

    /// The record behind a hit; none where the kernel names its fields otherwise.
    pub fn record(&self, hit: &Hit<'_>) -> Option<PerfRecord> {
        let field = |name| self.0.value(name, hit.fields);
        let device = u32::try_from(field("s_dev")?).ok()?;
        Some(PerfRecord::Read {
            process: hit.process,
            thread: hit.thread,
            at: hit.at,
            device: (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1)),
            inode: field("i_ino")?,
            pages: (field("index")?, field("last_index")?),
        })
    }
}

impl Stretches {
    /// Whether a stretch begins a read, and does not go on with the thread's last one.
    pub fn begins(&mut self, thread: u32, device: (u32, u32), inode: u64, pages: (u64, u64)) -> bool {
        if self.0.len() >= MOST_THREADS && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        let last = self.0.insert(thread, (device, inode, pages));
        // The same last page, from further on: no read of its own begins within the one before and ends with it, or hardly one.
        last.is_none_or(|(on, file, (first, end))| (on, file, end) != (device, inode, pages.1) || pages.0 <= first)
    }
}

pub(super) fn refused(error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::new(WHAT, reason(), remedy()).told_by(error),
        Some(libc::EMFILE | libc::ENFILE) => {
            Missing::new(WHAT, "too few file descriptors are allowed", "raise the limit: ulimit -n 65536")
        }
        _ => Missing::new(WHAT, format!("perf_event_open(2) failed: {}", error.kind()), "run as root (CAP_PERFMON)"),
    }
}

fn probe() -> Probe {
    let point = ReadPoint::find()?;
    point.sample(Threads::Running(std::process::id()), 0).map_err(|error| refused(&error))?;
    Ok("reads through the page cache can be seen".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: (u32, u32) = (254, 1);

    #[test]
    fn a_read_in_stretches_begins_once() {
        let mut stretches = Stretches::default();
        let begins: Vec<bool> = [(0, 63), (15, 63), (30, 63), (64, 127), (64, 127), (79, 127)]
            .into_iter()
            .map(|pages| stretches.begins(7, DEVICE, 5, pages))
            .collect();

        assert_eq!(begins, [true, false, false, true, true, false]);
    }

    #[test]
    fn threads_and_files_go_on_by_themselves() {
        let mut stretches = Stretches::default();

        assert!(stretches.begins(7, DEVICE, 5, (0, 63)) && stretches.begins(8, DEVICE, 5, (15, 63)));
        assert!(!stretches.begins(7, DEVICE, 5, (15, 63)));
        assert!(stretches.begins(7, DEVICE, 6, (30, 63)));
        assert!(stretches.begins(7, (254, 2), 6, (45, 63)));
    }

    #[test]
    fn threads_beyond_4096_are_remembered_and_the_others_forgotten() {
        let mut stretches = Stretches::default();
        (0..4096).for_each(|thread| assert!(stretches.begins(thread, DEVICE, 5, (0, 63))));
        assert!(!stretches.begins(0, DEVICE, 5, (15, 63)));

        assert!(stretches.begins(5000, DEVICE, 5, (0, 63)));

        assert!(stretches.begins(0, DEVICE, 5, (30, 63)) && !stretches.begins(5000, DEVICE, 5, (15, 63)));
    }

    #[test]
    fn a_hit_names_device_inode_and_pages() {
        let field = |name: &str, offset, size| tracefs::Field { name: name.to_owned(), offset, size };
        let fields =
            vec![field("i_ino", 8, 8), field("s_dev", 16, 4), field("index", 24, 8), field("last_index", 32, 8)];
        let point = ReadPoint(Tracepoint { id: 599, fields });
        let mut bytes = vec![0u8; 40];
        bytes[8..16].copy_from_slice(&77u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(254u32 << 20 | 3).to_ne_bytes());
        bytes[24..32].copy_from_slice(&10u64.to_ne_bytes());
        bytes[32..40].copy_from_slice(&12u64.to_ne_bytes());
        let hit = |fields| Hit { process: 1, thread: 2, at: crate::Nanos(3), id: 599, fields };

        let Some(PerfRecord::Read { process, thread, device, inode, pages, .. }) = point.record(&hit(&bytes)) else {
            panic!("no record")
        };

        assert_eq!((process, thread, device, inode, pages), (1, 2, (254, 3), 77, (10, 12)));
        assert_eq!(point.record(&hit(&bytes[..39])), None);
    }
}
