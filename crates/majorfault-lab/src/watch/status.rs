//! The state of a process and of the machine, as /proc prints it.

use super::evidence::{Calls, Group, MachineState, Process, Watched};
use majorfault::observe::CgroupDir;
use majorfault::proc::number;
use std::fs;

/// The process.
pub fn target(pid: u32) -> Watched {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
    Watched { pid, name: text(read("comm")), command: text(read("cmdline")) }
}

/// Its state; none where it has ended.
pub fn process(pid: u32, mappings: u64) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| number(&status, key).map(|kib| kib << 10);
    // A zombie has a status without memory.
    let resident_bytes = bytes("VmRSS")?;
    Some(Process {
        threads: number(&status, "Threads").unwrap_or(1),
        resident_bytes,
        anonymous_bytes: bytes("RssAnon").unwrap_or(0),
        page_table_bytes: bytes("VmPTE").unwrap_or(0),
        mappings,
        huge_pages_off: number(&status, "THP_enabled") == Some(0),
    })
}

/// Its read calls and device bytes so far.
pub fn calls(pid: u32) -> Option<Calls> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    Some(Calls {
        read_call_bytes: number(&text, "rchar")?,
        read_calls: number(&text, "syscr")?,
        device_bytes: number(&text, "read_bytes")?,
    })
}

/// The growth of the calls.
pub fn grown([before, after]: [Option<Calls>; 2]) -> Option<Calls> {
    let (before, after) = before.zip(after)?;
    Some(Calls {
        read_call_bytes: after.read_call_bytes.saturating_sub(before.read_call_bytes),
        read_calls: after.read_calls.saturating_sub(before.read_calls),
        device_bytes: after.device_bytes.saturating_sub(before.device_bytes),
    })
}

/// The cgroup that limits it.
pub fn group(dir: &CgroupDir, limit_bytes: Option<u64>) -> Group {
    let (CgroupDir::V1(path) | CgroupDir::V2(path)) = dir;
    Group { path: path.display().to_string(), limit_bytes }
}

/// The machine as it is now.
pub fn machine() -> MachineState {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let bytes = |key: &str| number(&meminfo, key).unwrap_or(0) << 10;
    let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut version = release.split(['.', '-']).map_while(|part| part.parse().ok());
    MachineState {
        kernel: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        memory_bytes: bytes("MemTotal"),
        available_bytes: bytes("MemAvailable"),
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        huge_pages: thp.split(['[', ']']).nth(1).unwrap_or("absent").to_owned(),
        most_mappings: read("/proc/sys/vm/max_map_count").trim().parse().unwrap_or(65530),
    }
}
