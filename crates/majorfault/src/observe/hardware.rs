//! The processor's own counters, where it exposes them.

use super::{Counter, HardwareUse, Kind, Missing, Reading, Scene, Scope, Source, Unit};
use crate::needs::{Need, Probe};
use crate::sys::perf::{Count, Event, Kernel};
use crate::units::Nanos;
use std::sync::OnceLock;
use std::time::Duration;

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

/// What counting may add to each wait of a thread: processors of our own add some tenths of a microsecond a counter.
const MOST_ADDED: Nanos = Nanos(4_000);

/// Waits in each trial of what they add, and trials of each kind.
const WAITS: u64 = 40;
const TRIALS: usize = 3;

/// Whether a thread that waits may be counted: a hypervisor has to switch the counters with it, and where that takes 10 us each, reads that
/// wait 30 us took 150. Asked once; takes some 20 ms.
fn is_cheap() -> Result<(), Missing> {
    static ADDED: OnceLock<Nanos> = OnceLock::new();
    judged(*ADDED.get_or_init(added))
}

fn judged(added: Nanos) -> Result<(), Missing> {
    if added <= MOST_ADDED {
        return Ok(());
    }
    let reason =
        format!("here they add {added} of processor time to each wait of a thread, so what is counted would be slower");
    let remedy = "count them in runs of their own, whose times are not compared (HardwareUse::Always, majorfault compare --hardware-counters)";
    Err(Missing::new("hardware counters", reason, remedy))
}

/// Processor time that counting all events adds to a wait of this thread; the least of some trials of each kind, in turns.
fn added() -> Nanos {
    let mut least = [u64::MAX; 2];
    for _ in 0..TRIALS {
        least[0] = least[0].min(a_wait().0);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let counts: Vec<Count> = EVENTS.iter().filter_map(|event| count(*event, own).ok()).collect();
        least[1] = least[1].min(a_wait().0);
        drop(counts);
    }
    Nanos(least[1].saturating_sub(least[0]))
}

/// Processor time of a wait.
fn a_wait() -> Nanos {
    let spent = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let before = spent();
    (0..WAITS).for_each(|_| std::thread::sleep(Duration::from_nanos(1)));
    Nanos((spent() - before) / WAITS)
}

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
    if scene.hardware == HardwareUse::WhereCheap {
        is_cheap()?;
    }
    Ok(Box::new(Hardware(EVENTS.iter().map(|event| count(*event, pid).ok()).collect())))
}

impl Reading for Hardware {
    fn read(&mut self, values: &mut [Option<u64>]) {
        for (value, count) in values.iter_mut().zip(&self.0) {
            *value = count.as_ref().and_then(|count| count.read().ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_add_more_than_4_us_to_a_wait_are_left_out() {
        assert!(judged(MOST_ADDED).is_ok());
        let missing = judged(Nanos(MOST_ADDED.0 + 1)).unwrap_err();
        assert!(missing.reason.contains("add") && missing.remedy.contains("--hardware-counters"), "{missing}");
    }

    #[test]
    fn who_asks_for_them_gets_them_wherever_there_are_any() {
        let scene = Scene { pid: Some(std::process::id()), hardware: HardwareUse::Always, ..Scene::default() };

        assert!(open(&scene).is_ok(), "what is not here is a count that is not there, and no refusal");
    }

    #[test]
    fn a_wait_takes_processor_time_and_less_than_a_millisecond_of_it() {
        let wait = a_wait();

        assert!(wait.0 > 0 && wait.0 < 1_000_000, "{wait}");
    }
}
