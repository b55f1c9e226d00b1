//! The processor's own counters, where it exposes them.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit};
use crate::needs::{Need, Probe};
use crate::sys::perf::{Count, Event, Kernel};

pub(super) const SOURCE: Source = Source {
    name: "hardware",
    summary: "cycles, instructions, cache and TLB misses",
    needs: &[&HARDWARE],
    counters: &[
        total(
            "cycles",
            "processor cycles of the process (perf_event_open(2)); scaled up where events shared a counter",
        ),
        total("instructions", "instructions of the process"),
        total("cache_references", "accesses to the last-level cache, as the processor defines it"),
        total("cache_misses", "of these, misses"),
        total("dtlb_load_misses", "loads from addresses that were not in the TLB"),
    ],
    open,
};

/// Hardware counters through perf; virtual machines often have none.
pub const HARDWARE: Need = Need { name: "hardware counters", summary: "cycles, cache and TLB misses", probe };

/// PERF_COUNT_HW_CPU_CYCLES and its neighbours, then the data TLB's read misses (linux/perf_event.h).
const EVENTS: [Event; 5] =
    [Event::Hardware(0), Event::Hardware(1), Event::Hardware(2), Event::Hardware(3), Event::HardwareCache(3 | 1 << 16)];

const fn total(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Count, scope: Scope::Process, kind: Kind::Total, doc }
}

struct Hardware(Vec<Option<Count>>);

/// Includes the kernel's share where the rights allow it, because faults cost mostly there.
fn count(event: Event, pid: u32) -> std::io::Result<Count> {
    Count::of(event, pid, Kernel::Counted).or_else(|_| Count::of(event, pid, Kernel::LeftOut))
}

fn probe() -> Probe {
    count(EVENTS[0], std::process::id()).map(|_| "cycles can be counted".to_owned()).map_err(|error| {
        let remedy = match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => "use a machine, or a virtual machine, that exposes its counters",
            _ => "set kernel.perf_event_paranoid=1, or run with CAP_PERFMON",
        };
        Missing::new("hardware counters", format!("perf_event_open(2) failed: {}", error.kind()), remedy)
            .told_by(&error)
    })
}

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let pid = scene.pid.ok_or_else(|| Missing::new("hardware counters", "no process is observed", ""))?;
    Ok(Box::new(Hardware(EVENTS.iter().map(|event| count(*event, pid).ok()).collect())))
}

impl Reading for Hardware {
    fn read(&mut self, values: &mut [Option<u64>]) {
        for (value, count) in values.iter_mut().zip(&self.0) {
            *value = count.as_ref().and_then(|count| count.read().ok());
        }
    }
}
