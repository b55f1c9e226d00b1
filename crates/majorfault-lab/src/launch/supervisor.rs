//! From a program's start to its end, beside it: memory is looked at, then faults, then advice is given.

use super::attention::{Attention, Level, Noticed};
use super::call_sites::FunctionOfRun;
use super::diary::{DiaryEntry, RunDiary};
use super::faults::{Happening, ProgramFaults};
use super::spaces::{AgentFacts, Spaces, Touch};
use super::streams::{Advised, Straits};
use super::whereabouts::PlacesOfRun;
use crate::place::run_group::RunGroup;
use majorfault::Nanos;
use majorfault::sys::clock::monotonic;
use majorfault::sys::other_process::OtherProcess;
use std::time::Duration;

/// Memory is short above this share of the limit, in percent.
const SHORT: u64 = 80;

/// Prefetched pages that no stream has passed take at most this part of the limit.
const MOST_AHEAD: u64 = 16;

/// Waits between two looks where all faults are looked at, only waits are, and nothing is.
const NAPS: [Duration; 3] = [Duration::from_micros(100), Duration::from_millis(2), Duration::from_millis(5)];

/// The longest nap while memory suffices; shorter where it could be short before.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// Bytes that a program can fill in a millisecond.
const FASTEST: u64 = 4 << 20;

/// How often memory is looked at, at most.
const MEMORY_EVERY: Nanos = Nanos(1_000_000);

/// What was seen and done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supervised {
    /// The most memory and swap that were in use together, in bytes.
    pub demand: u64,
    /// The most swap in use, in bytes.
    pub swapped: u64,
    /// Faults that were looked at, and those that were seen to wait for a device.
    pub faults: u64,
    /// See `faults`.
    pub waits: u64,
    /// What was done, in bytes.
    pub advised: Advised,
    /// How it went with agents within processes, where these gave the advice.
    pub agents: AgentFacts,
    /// Time without need for anything, with only waits looked at, and with all faults, in nanoseconds.
    pub levels_ns: [u64; 3],
    /// What the run went through.
    pub diary: RunDiary,
    /// Where it waited and was helped.
    pub places: PlacesOfRun,
    /// In which functions, those with the most waits first.
    pub functions: Vec<FunctionOfRun>,
}

/// Looks at a program, and helps it.
pub struct Supervisor<'g> {
    group: &'g mut RunGroup,
    /// None where it may only be looked at from afar.
    faults: Option<ProgramFaults>,
    spaces: Spaces<'g>,
    attention: Attention,
    level: Level,
    is_promising: bool,
    memory: MemoryState,
    page: u64,
    supervised: Supervised,
}

/// Memory when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryState {
    at: Nanos,
    usage: u64,
    swapped: u64,
}

impl<'g> Supervisor<'g> {
    /// One that helps by `faults`, where there are any, in these address spaces.
    pub fn new(group: &'g mut RunGroup, faults: Option<ProgramFaults>, spaces: Spaces<'g>) -> Supervisor<'g> {
        Supervisor {
            group,
            faults,
            spaces,
            attention: Attention::default(),
            level: Level::Calm,
            is_promising: false,
            memory: MemoryState::default(),
            page: rustix::param::page_size() as u64,
            supervised: Supervised::default(),
        }
    }

    /// Goes on until the process has ended; `meanwhile` is done between two looks.
    pub fn run(mut self, process: &OtherProcess, mut meanwhile: impl FnMut()) -> Supervised {
        let mut before = monotonic();
        loop {
            self.look();
            let has_ended = process.wait_end(self.nap());
            let now = monotonic();
            self.supervised.levels_ns[self.level as usize] += now.0 - before.0;
            before = now;
            meanwhile();
            if has_ended {
                return self.end();
            }
        }
    }

    fn look(&mut self) {
        let now = monotonic();
        if now.0 - self.memory.at.0 >= MEMORY_EVERY.0 {
            self.look_at_memory(now);
        }
        if self.faults.is_none() {
            return;
        }
        self.look_at_faults();
        let (faults, _) = self.spaces.faults();
        let helped = self.spaces.helped();
        let sight =
            Noticed { is_short: self.is_short(), is_promising: std::mem::take(&mut self.is_promising), faults, helped };
        let level = self.attention.look(now, sight);
        self.change(level);
    }

    fn look_at_memory(&mut self, now: Nanos) {
        self.spaces.sweep();
        let usage = self.group.usage().unwrap_or(self.memory.usage);
        let swapped = self.group.swapped().unwrap_or(0);
        self.memory = MemoryState { at: now, usage, swapped };
        self.supervised.demand = self.supervised.demand.max(usage + swapped);
        self.supervised.swapped = self.supervised.swapped.max(swapped);
        let (Advised { fetched, used, .. }, (_, waits)) = (self.spaces.advised(), self.spaces.faults());
        self.supervised.diary.note(now, DiaryEntry { usage, swapped, waits, fetched, used });
    }

    fn is_short(&self) -> bool {
        self.memory.usage > self.group.limit().0 / 100 * SHORT || self.memory.swapped > 0
    }

    fn look_at_faults(&mut self) {
        let Some(faults) = &mut self.faults else { return };
        self.spaces.settle();
        let limit = self.group.limit().0;
        let is_near = self.memory.usage > limit - limit / 16 - (2 << 20).min(limit / 16);
        let pages = limit / self.page;
        let straits = Straits { limit: pages, most_ahead: pages / MOST_AHEAD, is_near };
        let (spaces, is_promising) = (&mut self.spaces, &mut self.is_promising);
        faults.read(|happening| match happening {
            Happening::Began { process, address, instruction } => {
                spaces.began(process, Touch { address, instruction }, straits);
            }
            Happening::HasWaited { process, address, instruction } => {
                *is_promising |= spaces.has_waited(process, Touch { address, instruction });
            }
            Happening::Gone(process) => spaces.gone(process),
        });
    }

    fn change(&mut self, level: Level) {
        if level == self.level {
            return;
        }
        match self.level {
            Level::All => self.spaces.rest(),
            Level::Calm => self.spaces.try_again(),
            Level::Waits => {}
        }
        self.level = level;
        if let Some(faults) = &mut self.faults {
            faults.set(level);
        }
    }

    fn nap(&self) -> Duration {
        match self.level {
            Level::All => NAPS[0],
            Level::Waits => NAPS[1],
            Level::Calm => {
                let left = (self.group.limit().0 / 100 * SHORT).saturating_sub(self.memory.usage);
                Duration::from_millis(left / FASTEST).clamp(NAPS[2], LONGEST_NAP)
            }
        }
    }

    fn end(mut self) -> Supervised {
        self.look_at_memory(monotonic());
        let (faults, waits) = self.spaces.faults();
        let (places, functions) = (self.spaces.places(), self.spaces.functions());
        let Advised { fetched, used, paged_out, came_back, streams } = self.spaces.advised();
        let bytes = |pages: u64| pages * self.page;
        let (fetched, used) = (bytes(fetched), bytes(used));
        let advised = Advised { fetched, used, paged_out: bytes(paged_out), came_back: bytes(came_back), streams };
        let agents = self.spaces.agents();
        Supervised { faults, waits, advised, agents, places, functions, ..self.supervised }
    }
}
