//! The faults of a program and all that it starts, as far as they are looked at: none, those that waited, or all.
//!
//! Opened on a process that has not yet become the program, and inherited by everything that it starts. Switched off, it costs nothing.

use super::attention::Level;
use majorfault::observe::Kernel;
use majorfault::sys::samples::{PerfRecord, Ring, Sampled, Sampling, Stacks, Threads};
use majorfault::{Missing, Nanos};
use std::io;

/// Bytes of the rings of one processor: for all faults, and for those that waited. Without special rights 512 KiB may be locked.
const RINGS: [usize; 2] = [256 << 10, 64 << 10];

/// Something that a process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A fault began.
    Began {
        /// The process.
        process: u32,
        /// The byte that was touched.
        address: u64,
        /// The instruction that touched it.
        instruction: u64,
    },
    /// A fault has ended that waited for a device.
    HasWaited {
        /// The process.
        process: u32,
        /// The byte that was touched.
        address: u64,
        /// The instruction that touched it.
        instruction: u64,
    },
    /// The process has new memory, or none: it became another program, or ended.
    Gone(u32),
}

/// The faults of a program.
pub struct ProgramFaults {
    all: Vec<Ring>,
    waits: Vec<Ring>,
    level: Level,
    batch: Vec<(Nanos, Happening)>,
}

impl ProgramFaults {
    /// Prepares to look at the faults of process `pid`, and of all that it will start; looks at none yet.
    ///
    /// Errors: Missing (no rights, no perf).
    pub fn open(pid: u32) -> Result<ProgramFaults, Missing> {
        let with = |kernel| ProgramFaults::open_with(pid, kernel);
        // Faults of the kernel itself (copies in read(2), say) need more rights than those of user code.
        with(Kernel::Counted).or_else(|_| with(Kernel::LeftOut)).map_err(|error| refused(&error))
    }

    fn open_with(pid: u32, kernel: Kernel) -> io::Result<ProgramFaults> {
        let mut faults = ProgramFaults { all: Vec::new(), waits: Vec::new(), level: Level::Calm, batch: Vec::new() };
        for processor in processors() {
            let ring = |what, bytes| {
                let event = Sampling::of(what, Threads::Running(pid), processor, kernel, Stacks::LeftOut)?;
                event.switch(false)?;
                Ring::new(event, bytes)
            };
            faults.all.push(ring(Sampled::Faults, RINGS[0])?);
            faults.waits.push(ring(Sampled::MajorFaults, RINGS[1])?);
        }
        Ok(faults)
    }

    /// Looks at these faults from now on.
    pub fn set(&mut self, level: Level) {
        let (before, now) = (parts(self.level), parts(level));
        for (rings, was, is) in [(&self.all, before.0, now.0), (&self.waits, before.1, now.1)] {
            if was != is {
                // An event of processes that have all ended cannot be switched, and need not be.
                rings.iter().for_each(|ring| drop(ring.event().switch(is)));
            }
        }
        self.level = level;
    }

    /// Shows what happened since the last time, in order of time.
    pub fn read(&mut self, mut see: impl FnMut(Happening)) {
        let batch = &mut self.batch;
        for (rings, are_all) in [(&mut self.all, true), (&mut self.waits, false)] {
            for ring in rings {
                ring.drain(|record| batch.extend(happening(record, are_all)));
            }
        }
        batch.sort_by_key(|(at, _)| *at);
        batch.drain(..).for_each(|(_, happening)| see(happening));
    }
}

/// Whether all faults are looked at, and those that wait.
fn parts(level: Level) -> (bool, bool) {
    (level == Level::All, level != Level::Calm)
}

/// What a record tells, of the ring of all faults or of the other.
fn happening(record: PerfRecord, are_all: bool) -> Option<(Nanos, Happening)> {
    Some(match record {
        PerfRecord::Fault { process, at, address, instruction, .. } if are_all => {
            (at, Happening::Began { process, address, instruction })
        }
        PerfRecord::Fault { process, at, address, instruction, .. } => {
            (at, Happening::HasWaited { process, address, instruction })
        }
        PerfRecord::Executed { process, at, .. } => (at, Happening::Gone(process)),
        PerfRecord::Exited { process, thread, at } if process == thread => (at, Happening::Gone(process)),
        _ => return None,
    })
}

fn processors() -> Vec<u32> {
    let count = majorfault::proc::Live::open("/sys/devices/system/cpu/online").ok().and_then(|mut text| {
        let last = text.read()?.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()?;
        Some(last + 1)
    });
    let count = count.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32));
    let is_online = |number: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/online");
        std::fs::read_to_string(path).map_or(true, |text| text.trim() != "0")
    };
    (0..count).filter(is_online).collect()
}

fn refused(error: &io::Error) -> Missing {
    let what = "looking at the program's page faults";
    let remedy =
        "set kernel.perf_event_paranoid to 2 or less, or give the right: setcap cap_perfmon,cap_sys_nice=ep majorfault";
    Missing::new(what, format!("perf_event_open(2): {error}"), remedy).told_by(error)
}
