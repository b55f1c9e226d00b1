//! The page faults of a process and of the processes it starts, and their reads by calls, with the files that they are in.

use super::has_ended;
use super::target::{Following, WatchTarget};
use majorfault::observe::places::{FileId, Place, Places};
use majorfault::observe::sampler::{ReadCall, Sampler, Seen};
use majorfault::{Extent, Missing, Nanos, Result};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
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

/// A read of a file by a call.
#[derive(Clone, Copy, Debug)]
pub struct FileRead {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The file.
    pub file: FileId,
    /// What was read, in whole pages.
    pub extent: Extent,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub enum Happened {
    /// A call read a part of a file.
    Read(FileRead),
    /// A fault in a file began.
    Fault(FileFault),
    /// A fault in a file has waited.
    Waited(FileId, Option<Nanos>),
}

/// The faults of a process and its children while it runs.
pub struct Faults {
    /// The process that was named; none for several.
    pid: Option<u32>,
    tree: bool,
    sampler: Sampler,
    places: HashMap<u32, Places>,
    refused: usize,
    /// Faults whose process was not known.
    unplaced: u64,
    alive_at: Instant,
}

impl Faults {
    /// Follows the faults of the target: from its first one where we start it, otherwise from now on.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread), Missing (another user's; no rights to sample).
    pub fn of(target: WatchTarget) -> Result<Faults> {
        let (pid, tree) = (target.named(), target.has_tree());
        let Following { sampler, places, refused } = target.follow()?;
        Ok(Faults { pid, tree, sampler, places, refused, unplaced: 0, alive_at: Instant::now() })
    }

    /// Shows the faults in files since the last time; returns the number of all faults.
    pub fn read(&mut self, mut see: impl FnMut(Happened, &HashMap<u32, Places>)) -> u64 {
        let gone = self.gone();
        let (pid, tree, places, unplaced) = (self.pid, self.tree, &mut self.places, &mut self.unplaced);
        let is_ours = |process: u32| tree || pid == Some(process);
        let seen = self.sampler.read(|seen| match seen {
            Seen::Fault { process, thread, address, at, .. } if is_ours(process) => {
                match locate(places, process, address, at) {
                    Some(Place::File(file, offset)) => {
                        see(Happened::Fault(FileFault { process, thread, file, offset, address }), places);
                    }
                    Some(_) => {}
                    None => *unplaced += 1,
                }
            }
            Seen::Waited { process, address, at, waited, .. } if is_ours(process) => {
                if let Some(Place::File(file, _)) = locate(places, process, address, at) {
                    see(Happened::Waited(file, waited), places);
                }
            }
            Seen::Read(call) if is_ours(call.process) => see(Happened::Read(FileRead::of(call)), places),
            Seen::Mapped(mapped) => {
                if let Some(places) = places.get_mut(&mapped.process) {
                    places.note(mapped);
                }
            }
            Seen::Forked { process, parent, at } => {
                let of_child = places.get(&parent).map(|places| places.forked(process, at));
                if let Some(of_child) = of_child.or_else(|| Places::of(process).ok()) {
                    places.insert(process, of_child);
                }
            }
            Seen::Executed { process, at, .. } => {
                places.entry(process).or_insert_with(|| Places::unread(process)).execute(at);
            }
            _ => {}
        });
        self.places.retain(|process, _| !gone.contains(process));
        seen
    }

    /// Processes that have ended, where so many are known that they should be forgotten: what is in the rings of them by now is
    /// shown by the next reading, and nothing follows.
    fn gone(&self) -> HashSet<u32> {
        if self.places.len() < MOST_PROCESSES {
            return HashSet::new();
        }
        self.places.keys().copied().filter(|process| has_ended(*process)).collect()
    }

    /// Whether the program has ended; checked only now and then.
    pub fn has_ended(&mut self) -> bool {
        if self.alive_at.elapsed() < ALIVE {
            return false;
        }
        self.alive_at = Instant::now();
        match self.pid {
            Some(pid) => has_ended(pid),
            None => self.places.keys().all(|pid| has_ended(*pid)),
        }
    }

    /// Processes started by the program that still run.
    pub fn left(&self) -> usize {
        self.places
            .keys()
            .filter(|process| self.tree && self.pid.is_some_and(|pid| pid != **process) && !has_ended(**process))
            .count()
    }

    /// Faults lost because they did not fit into the rings, and those whose process was not known.
    pub fn lost(&self) -> u64 {
        self.sampler.lost() + self.unplaced
    }

    /// Goes on seeing reads by calls, or leaves them out for a while.
    pub fn switch_reads(&mut self, on: bool) {
        self.sampler.switch_reads(on);
    }

    /// Why reads by calls are not seen; none where they are.
    pub fn lacks_reads(&self) -> Option<&Missing> {
        self.sampler.lacks_reads()
    }

    /// Threads that could not be followed.
    pub fn unfollowed(&self) -> usize {
        self.sampler.unfollowed()
    }

    /// Processes of the tree that could not be followed.
    pub fn refused(&self) -> usize {
        self.refused
    }
}

impl FileRead {
    /// The range of the pages.
    fn of(call: ReadCall) -> FileRead {
        let ReadCall { process, thread, device, inode, pages: (first, last), .. } = call;
        let page = rustix::param::page_size() as u64;
        let length = last.saturating_sub(first).saturating_add(1).saturating_mul(page) as usize;
        let extent = Extent { offset: first.saturating_mul(page), length };
        FileRead { process, thread, file: FileId { device, inode }, extent }
    }
}

/// None where the process is not known.
fn locate(places: &mut HashMap<u32, Places>, process: u32, address: u64, at: Nanos) -> Option<Place> {
    let places = match places.entry(process) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(Places::of(process).ok()?),
    };
    Some(places.locate_at(address, at))
}
