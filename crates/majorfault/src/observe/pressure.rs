//! Pressure stall information: how long tasks waited for memory, devices, processors.

use super::{CgroupDir, Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit};
use crate::needs::{Need, Probe};
use crate::proc::{Live, pressure};
use std::path::PathBuf;

pub(super) const SOURCE: Source = Source {
    name: "pressure",
    summary: "time in which tasks waited for memory, devices and processors",
    needs: &[&PSI],
    counters: &[
        total(
            "pressure_memory_some_ns",
            "some task waited for memory (of the cgroup in version 2, else of the machine)",
        ),
        total("pressure_memory_full_ns", "all tasks waited for memory"),
        total("pressure_io_some_ns", "some task waited for a device"),
        total("pressure_io_full_ns", "all tasks waited for a device"),
        total("pressure_cpu_some_ns", "some task waited for a processor"),
    ],
    open,
};

/// Pressure stall information (Linux 4.20), which some distributions switch off at boot.
pub const PSI: Need = Need { name: "psi", summary: "time that tasks wait for memory, devices, processors", probe };

const fn total(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Nanos, scope: Scope::Cgroup, kind: Kind::Total, doc }
}

struct Pressure {
    memory: Live,
    io: Live,
    cpu: Live,
}

fn probe() -> Probe {
    let readable =
        Live::open("/proc/pressure/memory").ok().and_then(|mut live| live.read().map(|text| !text.is_empty()));
    match readable {
        Some(true) => Ok("the kernel reports pressure".to_owned()),
        _ => Err(Missing::new(
            "pressure stall information",
            "the kernel has none, or it is switched off at boot",
            "boot with psi=1",
        )),
    }
}

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let path = |resource: &str| match &scene.cgroup {
        Some(CgroupDir::V2(dir)) => dir.join(format!("{resource}.pressure")),
        _ => PathBuf::from("/proc/pressure").join(resource),
    };
    let live = |resource: &str| {
        Live::open(path(resource))
            .map_err(|error| super::unreadable("pressure", &path(resource).to_string_lossy(), &error))
    };
    Ok(Box::new(Pressure { memory: live("memory")?, io: live("io")?, cpu: live("cpu")? }))
}

impl Reading for Pressure {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let both = |text: Option<&str>| {
            (text.and_then(|it| pressure::total(it, "some")), text.and_then(|it| pressure::total(it, "full")))
        };
        (values[0], values[1]) = both(self.memory.read());
        (values[2], values[3]) = both(self.io.read());
        values[4] = both(self.cpu.read()).0;
    }
}
