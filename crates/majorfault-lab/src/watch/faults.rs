//! The page faults of a process and of the processes it starts, with the files that they are in.

use super::{check, closed, has_ended, raise_descriptor_limit};
use majorfault::observe::places::{FileId, Place, Places};
use majorfault::observe::sampler::{Sampler, Seen};
use majorfault::{Nanos, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often to check whether the program still runs.
const ALIVE: Duration = Duration::from_millis(50);

/// The most processes known before ended ones are forgotten: a shell starts new ones all the time.
const MOST_PROCESSES: usize = 256;

/// A fault in a file.
#[derive(Clone, Copy, Debug)]
pub struct FileFault {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The file.
    pub file: FileId,
    /// Offset in the file.
    pub offset: u64,
    /// Address in memory.
    pub address: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub enum Happened {
    /// A fault in a file began.
    Fault(FileFault),
    /// A fault in a file has waited.
    Waited(FileId, Option<Nanos>),
}

/// The faults of a process and its children while it runs.
pub struct Faults {
    pid: u32,
    sampler: Sampler,
    places: HashMap<u32, Places>,
    alive_at: Instant,
}

impl Faults {
    /// Follows the faults of `pid` from now on.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread), Missing (another user's; no rights to sample).
    pub fn of(pid: u32) -> Result<Faults> {
        check(pid)?;
        let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
        raise_descriptor_limit();
        let sampler = Sampler::open(pid)?;
        Ok(Faults { pid, sampler, places: HashMap::from([(pid, places)]), alive_at: Instant::now() })
    }

    /// Shows the faults in files since the last time; returns the number of all faults.
    pub fn read(&mut self, mut see: impl FnMut(Happened, &HashMap<u32, Places>)) -> u64 {
        let places = &mut self.places;
        self.sampler.read(|seen| match seen {
            Seen::Fault { process, thread, address, .. } => {
                if let Some((file, offset)) = locate(places, process, address) {
                    see(Happened::Fault(FileFault { process, thread, file, offset, address }), places);
                }
            }
            Seen::Waited { process, address, waited, .. } => {
                if let Some((file, _)) = locate(places, process, address) {
                    see(Happened::Waited(file, waited), places);
                }
            }
            Seen::Mapped(mapped) => {
                if let Some(places) = places.get_mut(&mapped.process) {
                    places.note(mapped);
                }
            }
            Seen::Forked { process, .. } => {
                // A child that has ended already has no faults left.
                if let Ok(of_child) = Places::of(process) {
                    if places.len() >= MOST_PROCESSES {
                        places.retain(|pid, _| !has_ended(*pid));
                    }
                    places.insert(process, of_child);
                }
            }
        })
    }

    /// Whether the process has ended; checked only now and then.
    pub fn has_ended(&mut self) -> bool {
        if self.alive_at.elapsed() < ALIVE {
            return false;
        }
        self.alive_at = Instant::now();
        has_ended(self.pid)
    }

    /// Faults lost because they did not fit into the rings.
    pub fn lost(&self) -> u64 {
        self.sampler.lost()
    }

    /// Threads that could not be followed.
    pub fn unfollowed(&self) -> usize {
        self.sampler.unfollowed()
    }
}

fn locate(places: &mut HashMap<u32, Places>, process: u32, address: u64) -> Option<(FileId, u64)> {
    match places.get_mut(&process)?.locate(address) {
        Place::File(file, offset) => Some((file, offset)),
        _ => None,
    }
}
