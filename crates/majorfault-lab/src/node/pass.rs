//! One cheap pass over /proc: what each process has waited, faulted and read so far.
//!
//! Two small files for each process, some 30 us; nothing that could stall a process is read (no maps, no smaps).

use crate::watch::target::processes;
use majorfault::Nanos;
use majorfault::proc::{number, pressure, stat};
use majorfault::sys::clock::monotonic;
use std::collections::HashMap;
use std::fs;

/// Nanoseconds of a clock tick (USER_HZ is 100 on every architecture that Linux runs this on).
const TICK_NS: u64 = 10_000_000;

/// The counters of all processes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// When it began.
    pub at: Nanos,
    /// By number and start, so that a number that is used again is another process.
    pub processes: HashMap<(u32, u64), Counts>,
    /// Time in which tasks of the machine waited for devices and for memory; none without pressure information.
    pub pressure: Pressure,
}

/// Nanoseconds in which some task waited, of the machine or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// For devices.
    pub io_ns: Option<u64>,
    /// For memory.
    pub memory_ns: Option<u64>,
}

/// What a process has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its command's name.
    pub name: String,
    /// Nanoseconds that its threads waited for devices; stays 0 where kernel.task_delayacct is 0.
    pub device_ns: u64,
    /// Faults that started a read.
    pub major: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes that devices read for it; none for another user's process.
    pub read_bytes: Option<u64>,
}

impl Pass {
    /// Reads the counters of the processes that `wanted` accepts.
    pub fn take(wanted: impl Fn(u32) -> bool) -> Pass {
        let at = monotonic();
        let known = processes().into_iter().filter(|pid| wanted(*pid));
        let processes = known.filter_map(counts).collect();
        Pass { at, processes, pressure: Pressure::of("/proc/pressure/io", "/proc/pressure/memory") }
    }
}

impl Pressure {
    /// Reads two files of pressure information.
    pub fn of(io: &str, memory: &str) -> Pressure {
        let some = |path: &str| pressure::total(&fs::read_to_string(path).ok()?, "some");
        Pressure { io_ns: some(io), memory_ns: some(memory) }
    }

    /// The growth since `before`.
    pub fn since(self, before: Pressure) -> Pressure {
        let grown = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Pressure { io_ns: grown(self.io_ns, before.io_ns), memory_ns: grown(self.memory_ns, before.memory_ns) }
    }
}

/// Whether the kernel counts how long each process waits for devices.
pub fn counts_waits() -> bool {
    fs::read_to_string("/proc/sys/kernel/task_delayacct").is_ok_and(|text| text.trim() != "0")
}

fn counts(pid: u32) -> Option<((u32, u64), Counts)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (life, spent) = (stat::life(&text)?, stat::process(&text)?);
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok();
    let counts = Counts {
        name: life.name,
        device_ns: life.device_ticks * TICK_NS,
        major: spent.major_faults,
        cpu_ns: (spent.user_ticks + spent.system_ticks) * TICK_NS,
        read_bytes: io.and_then(|text| number(&text, "read_bytes")),
    };
    Some(((pid, life.started_ticks), counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_a_pass_and_what_is_not_wanted_is_left_out() {
        let own = std::process::id();

        let pass = Pass::take(|pid| pid == own);

        let [((pid, _), counts)] = &pass.processes.iter().collect::<Vec<_>>()[..] else { panic!("{pass:?}") };
        assert_eq!((*pid, counts.name.is_empty()), (own, false));
        assert!(counts.read_bytes.is_some());
    }

    #[test]
    fn pressure_that_is_not_there_is_not_known() {
        let known = Pressure { io_ns: Some(9), memory_ns: None };

        assert_eq!(Pressure::of("/no/such", "/no/such"), Pressure::default());
        assert_eq!(
            known.since(Pressure { io_ns: Some(4), memory_ns: Some(1) }),
            Pressure { io_ns: Some(5), memory_ns: None }
        );
    }
}
