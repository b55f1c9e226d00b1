//! Bytes between memory and devices: the process's own, and those of the devices under the files.

use super::cache::NO_FILE;
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

/// Its own file, and its number where its children count as well.
struct Process {
    own: Live,
    parent: Option<u32>,
}

struct Device {
    live: Live,
    numbers: Vec<(u32, u32)>,
}

fn open_process(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let own = live_of_process(scene, "io", "bytes read by the process")?;
    Ok(Box::new(Process { own, parent: scene.pid.filter(|_| scene.with_children) }))
}

fn open_device(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    if scene.files.is_empty() {
        return Err(Missing::new("device traffic", "no file is observed", NO_FILE));
    }
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
            "the files are not on a block device, but in memory, on a network or on a layered file system",
            "use a file on a disk file system",
        ));
    }
    Ok(Box::new(Device { live, numbers }))
}

/// The number of the block device under a file, or of the block device that the file is.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    let meta = std::fs::metadata(path).ok()?;
    let number = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

impl Reading for Process {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let children = self.parent.map(living_children).unwrap_or_default();
        let texts: Vec<String> =
            children.iter().filter_map(|child| std::fs::read_to_string(format!("/proc/{child}/io")).ok()).collect();
        let text = self.own.read();
        for (value, key) in values.iter_mut().zip(["read_bytes", "write_bytes", "syscr", "syscw"]) {
            // A child that has ended, and been waited for, is included in its parent's numbers.
            let theirs = texts.iter().filter_map(|text| proc::number(text, key)).fold(0, u64::saturating_add);
            *value = text.and_then(|text| proc::number(text, key)).map(|own| own.saturating_add(theirs));
        }
    }
}

/// The living processes below `pid`, by the threads' lists of children (needs CONFIG_PROC_CHILDREN, as everywhere).
fn living_children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        for list in lists {
            let children = list.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok());
            left.extend(children.clone());
            found.extend(children);
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    /// MiB written by the process, as its io file shows them now: what the file system changes for itself is some pages more.
    fn written(reading: &mut dyn Reading) -> u64 {
        let mut values = [None; 4];
        reading.read(&mut values);
        values[1].unwrap() >> 20
    }

    #[test]
    fn traffic_of_no_file_is_not_that_of_a_file_without_a_device() {
        let why = |files| open_device(&Scene { files, ..Scene::default() }).err().unwrap().reason;

        assert!(why(vec![]).contains("no file is observed"));
        assert!(why(vec!["/proc/self/io".into()]).contains("not on a block device"));
    }

    #[test]
    fn what_a_living_child_and_an_ended_one_moved_is_counted_once_and_only_where_asked() {
        // The shell writes 1 MiB itself through dd, waits for it, then starts another that stays until it is told to end.
        let path = format!("/var/tmp/majorfault-io-{}", std::process::id());
        let script = format!(
            "dd if=/dev/zero of={path} bs=64k count=16 status=none; echo one; read go; \
             sh -c 'dd if=/dev/zero of={path} bs=64k count=16 status=none; echo two; read go'; echo three; read go"
        );
        let mut shell =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut go = shell.stdin.take().unwrap();
        let scene = |with_children| Scene { pid: Some(shell.id()), with_children, ..Scene::default() };
        let (mut tree, mut alone) = (open_process(&scene(true)).unwrap(), open_process(&scene(false)).unwrap());
        let mut counts = Vec::new();
        for word in ["one", "two", "three"] {
            assert_eq!(lines.next().unwrap().unwrap(), word);
            counts.push((written(tree.as_mut()), written(alone.as_mut())));
            writeln!(go, "go").unwrap();
        }
        shell.wait().unwrap();
        std::fs::remove_file(path).unwrap();

        assert_eq!(counts, [(1, 1), (2, 1), (2, 2)]);
    }
}
