//! Bytes between memory and devices: those of the process, and those of the devices under the files.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, live_of_process, unreadable};
use crate::proc::diskstats::{self, DiskStat};
use crate::proc::{self, Live};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const PROCESS: Source = Source {
    name: "process io",
    summary: "bytes that the process made devices read and write, and its calls",
    needs: &[],
    counters: &[
        total(
            "process_read_bytes",
            Unit::Bytes,
            Scope::Process,
            "bytes it made devices read, by faults and read-ahead too (proc(5), io)",
        ),
        total(
            "process_write_bytes",
            Unit::Bytes,
            Scope::Process,
            "bytes it made dirty in the page cache, or wrote directly (proc(5), io)",
        ),
        total(
            "process_read_calls",
            Unit::Count,
            Scope::Process,
            "read calls; faults and io_uring make none (proc(5), io)",
        ),
        total("process_write_calls", Unit::Count, Scope::Process, "write calls (proc(5), io)"),
    ],
    open: open_process,
};

pub(super) const DEVICE: Source = Source {
    name: "device io",
    summary: "traffic of the devices under the files, other programs' included",
    needs: &[],
    counters: &[
        total(
            "device_read_bytes",
            Unit::Bytes,
            Scope::Device,
            "bytes read from the devices under the files by anyone (diskstats)",
        ),
        total("device_write_bytes", Unit::Bytes, Scope::Device, "bytes written to them by anyone (diskstats)"),
        total("device_reads", Unit::Count, Scope::Device, "requests for reading, after merging (diskstats)"),
        total("device_writes", Unit::Count, Scope::Device, "requests for writing, after merging (diskstats)"),
        total(
            "device_busy_ns",
            Unit::Nanos,
            Scope::Device,
            "time in which a request was in flight, over the devices (diskstats)",
        ),
    ],
    open: open_device,
};

const fn total(name: &'static str, unit: Unit, scope: Scope, doc: &'static str) -> Counter {
    Counter { name, unit, scope, kind: Kind::Total, doc }
}

struct Process(Live);

struct Device {
    live: Live,
    numbers: Vec<(u32, u32)>,
}

fn open_process(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    Ok(Box::new(Process(live_of_process(scene, "io", "bytes read by the process")?)))
}

fn open_device(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let mut numbers: Vec<(u32, u32)> = scene.files.iter().filter_map(|file| device_of(file)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut live =
        Live::open("/proc/diskstats").map_err(|error| unreadable("device traffic", "/proc/diskstats", &error))?;
    let known = live
        .read()
        .is_some_and(|text| numbers.iter().any(|&(major, minor)| diskstats::row(text, major, minor).is_some()));
    if !known {
        return Err(Missing::new(
            "device traffic",
            "the files lie on no block device (memory, network or a layered file system)",
            "use a file on a disk file system",
        ));
    }
    Ok(Box::new(Device { live, numbers }))
}

/// Number of the block device under a file, or of the block device that it is.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    let meta = std::fs::metadata(path).ok()?;
    let number = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

impl Reading for Process {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let text = self.0.read();
        let number = |key: &str| text.and_then(|text| proc::number(text, key));
        for (value, key) in values.iter_mut().zip(["read_bytes", "write_bytes", "syscr", "syscw"]) {
            *value = number(key);
        }
    }
}

impl Reading for Device {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let Some(text) = self.live.read() else { return };
        let rows: Vec<DiskStat> =
            self.numbers.iter().filter_map(|&(major, minor)| diskstats::row(text, major, minor)).collect();
        let sum = |field: fn(&DiskStat) -> u64| (!rows.is_empty()).then(|| rows.iter().map(field).sum());
        values[0] = sum(|row| row.read_bytes);
        values[1] = sum(|row| row.write_bytes);
        values[2] = sum(|row| row.reads);
        values[3] = sum(|row| row.writes);
        values[4] = sum(|row| row.busy_ms.saturating_mul(1_000_000));
    }
}
