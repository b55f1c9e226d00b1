//! Holds off the kernel's killer in a group of version 1, which kills a program at its limit though swap is free.
//!
//! Version 1 gives up reclaiming after some tries, while pages are still on their way to swap. Before it does, it tells of critical
//! pressure (memory.pressure_level) many times within milliseconds; in a program that swaps all the time it does so some times a second. So the
//! limit is raised by a little in such a burst, and lowered again in steps when it is over.
//!
//! Where that comes too late, the killer is off (memory.oom_control): a thread that touches memory waits, until the limit is raised. A
//! system call that needs memory in such a moment fails with ENOMEM or EFAULT instead; without us the program would be dead. Where swap is
//! full, or the limit would have to be raised by too much, the killer is let go: then the kernel does what it would have done.
//!
//! Nobody may be left waiting where we are killed: a guard, a process of its own, lets the killer go and sets the limit back when we have ended.

use majorfault::proc::{self, Live};
use majorfault::sys::clock::monotonic;
use majorfault::{Error, Nanos, Result};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Whether the killer is off, and whether somebody waits.
const CONTROL: &str = "memory.oom_control";
const LIMIT: &str = "memory.limit_in_bytes";

/// Where the kernel tells of reclaim that fails, and where one asks to be told.
const PRESSURE: &str = "memory.pressure_level";
const EVENTS: &str = "cgroup.event_control";

/// So many times within so long are a burst. `bwa index` at three quarters of its memory: 5 to 25 a second as long as all goes well, and more than 50 in the
/// second in which it was killed.
const BURST: usize = 3;
const BURST_LENGTH: Nanos = Nanos(20_000_000);

/// The limit is raised by this part of it, and lowered by it again.
const STEP: u64 = 32;
const LEAST_STEP: u64 = 2 << 20;

/// It is raised by at most this part of it, and so many bytes.
const MOST_PART: u64 = 4;
const MOST_MORE: u64 = 16 << 20;

/// After a step, and after a limit that could not be lowered, so long before the next step down.
const PAUSE: Nanos = Nanos(50_000_000);
const LONG_PAUSE: Nanos = Nanos(200_000_000);

/// Pause between two trials of the guard to set the limit back.
const SET_BACK: Duration = Duration::from_millis(100);

/// Swap that must be free: with less, waiting helps nobody.
const LEAST_SWAP: u64 = 1 << 20;

/// A group whose killer is held off.
#[derive(Debug)]
pub struct Reprieve {
    group: PathBuf,
    control: Live,
    /// None where the kernel does not tell.
    pressure: Option<OwnedFd>,
    burst: Burst,
    /// None where it could not be held off, or was let go.
    guard: Option<Child>,
    room: Room,
    not_before: Nanos,
    raised: Raised,
}

/// How often, and by how much at most, a limit was raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// How often.
    pub times: u64,
    /// By how many bytes at most.
    pub most_bytes: u64,
}

/// The limit that was asked for, and the one that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    limit: u64,
    now: u64,
}

/// By how much a limit may be raised.
pub fn most_more(limit: u64) -> u64 {
    limit / MOST_PART + MOST_MORE
}

/// When the kernel told of critical pressure the last times, the latest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Burst([Nanos; BURST]);

impl Burst {
    fn add(&mut self, times: u64, now: Nanos) {
        for _ in 0..times.min(BURST as u64) {
            self.0.rotate_left(1);
            self.0[BURST - 1] = now;
        }
    }

    fn is_on(&self, now: Nanos) -> bool {
        self.0[0].0 > 0 && now.0 - self.0[0].0 <= BURST_LENGTH.0
    }
}

/// What a group suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distress {
    None,
    /// Reclaim fails again and again.
    Pressed,
    /// A thread finds no memory, and waits.
    Waiting,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Raise(u64),
    Lower(u64),
    LetGo,
}

impl Room {
    fn step(self) -> u64 {
        (self.limit / STEP).max(LEAST_STEP)
    }

    /// `free_swap` is what swap is left.
    fn act(self, distress: Distress, free_swap: u64) -> Act {
        let more = self.now + self.step();
        let has_room = free_swap >= LEAST_SWAP && more <= self.limit + most_more(self.limit);
        match distress {
            Distress::Waiting | Distress::Pressed if has_room => Act::Raise(more),
            Distress::Waiting => Act::LetGo,
            Distress::None if self.now > self.limit => Act::Lower((self.now - self.step()).max(self.limit)),
            Distress::None | Distress::Pressed => Act::Nothing,
        }
    }
}

impl Reprieve {
    /// Holds off the killer of the group at `group`, whose limit is `limit` bytes.
    ///
    /// Errors: Io (a kernel without the switch, no right, no process).
    pub fn begin(group: &Path, limit: u64) -> Result<Reprieve> {
        let path = group.join(CONTROL);
        let control = Live::open(&path).map_err(|error| Error::io("read", &path, error))?;
        // First who lets it go, then the switch.
        let guard = guard(group, limit)?;
        let mut reprieve = Reprieve {
            group: group.to_owned(),
            control,
            pressure: pressure_of(group).ok(),
            burst: Burst::default(),
            guard: Some(guard),
            room: Room { limit, now: limit },
            not_before: Nanos(0),
            raised: Raised::default(),
        };
        fs::write(&path, "1").map_err(|error| {
            reprieve.let_go();
            Error::io("hold off the kernel's killer", &path, error)
        })?;
        Ok(reprieve)
    }

    /// Does what is to be done now. Call it every few milliseconds: somebody may be waiting.
    pub fn look(&mut self) {
        if self.guard.is_none() {
            return;
        }
        let now = monotonic();
        let distress = self.distress(now);
        if distress == Distress::None && (self.room.now == self.room.limit || now < self.not_before) {
            return;
        }
        let free_swap = if distress == Distress::None { 0 } else { free_swap() };
        self.do_it(self.room.act(distress, free_swap), now);
    }

    fn distress(&mut self, now: Nanos) -> Distress {
        if self.control.read().and_then(|text| proc::number(text, "under_oom")) == Some(1) {
            return Distress::Waiting;
        }
        let mut count = [0; 8];
        let told = self.pressure.as_ref().and_then(|events| rustix::io::read(events, &mut count).ok());
        self.burst.add(told.map_or(0, |_| u64::from_ne_bytes(count)), now);
        if self.burst.is_on(now) { Distress::Pressed } else { Distress::None }
    }

    fn do_it(&mut self, act: Act, now: Nanos) {
        let set = |bytes: u64| fs::write(self.group.join(LIMIT), bytes.to_string());
        let pause = match act {
            Act::Nothing => PAUSE,
            Act::LetGo => return self.let_go(),
            Act::Raise(bytes) => match set(bytes) {
                Ok(()) => {
                    (self.room.now, self.burst) = (bytes, Burst::default());
                    self.raised.times += 1;
                    self.raised.most_bytes = self.raised.most_bytes.max(bytes - self.room.limit);
                    PAUSE
                }
                Err(_) => return self.let_go(),
            },
            Act::Lower(bytes) => match set(bytes) {
                Ok(()) => {
                    self.room.now = bytes;
                    PAUSE
                }
                // More is in use than that, and the kernel could not reclaim it.
                Err(_) => LONG_PAUSE,
            },
        };
        self.not_before = Nanos(now.0 + pause.0);
    }

    /// How often the limit was raised, and by how much.
    pub fn raised(&self) -> Raised {
        self.raised
    }

    /// From now on the kernel does what it does without us.
    fn let_go(&mut self) {
        let _ = fs::write(self.group.join(CONTROL), "0");
        let _ = fs::write(self.group.join(LIMIT), self.room.limit.to_string());
        if let Some(mut guard) = self.guard.take() {
            // What it is for is done.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

impl Drop for Reprieve {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Counts how often the kernel tells of critical pressure in a group.
fn pressure_of(group: &Path) -> io::Result<OwnedFd> {
    let events = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let level = File::open(group.join(PRESSURE))?;
    fs::write(group.join(EVENTS), format!("{} {} critical", events.as_raw_fd(), level.as_raw_fd()))?;
    Ok(events)
}

/// Bytes of swap that nobody uses; all of them where that cannot be read.
fn free_swap() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    proc::number(&text, "SwapFree").map_or(u64::MAX, |kilobytes| kilobytes << 10)
}

/// Starts a guard; it ends when its standard input does, which nobody but us holds open.
fn guard(group: &Path, limit: u64) -> Result<Child> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let mut command = Command::new(&own);
    command
        .arg("guard")
        .arg(group)
        .arg(limit.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // What ends us from the terminal must not end it before.
    command.process_group(0).spawn().map_err(|error| Error::io("start", &own, error))
}

/// Waits until `beside` has ended, then lets the killer of the group go and sets its limit back, as soon as the kernel can.
///
/// Errors: those of reading.
pub fn stand_guard(group: &Path, limit: u64, mut beside: impl Read) -> io::Result<()> {
    io::copy(&mut beside, &mut io::sink())?;
    let _ = fs::write(group.join(CONTROL), "0");
    // Refused as long as more is in use than can be reclaimed; the group is gone when its last process has ended.
    while group.exists() && fs::write(group.join(LIMIT), limit.to_string()).is_err() {
        std::thread::sleep(SET_BACK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MUCH: u64 = 1 << 30;

    fn room(limit: u64, now: u64) -> Room {
        Room { limit, now }
    }

    #[test]
    fn the_limit_is_raised_while_somebody_waits_and_lowered_after_that() {
        let room = |now| room(640 * MIB, now * MIB);
        assert_eq!(room(640).act(Distress::Waiting, MUCH), Act::Raise(660 * MIB));
        assert_eq!(room(660).act(Distress::Pressed, MUCH), Act::Raise(680 * MIB));
        assert_eq!(room(680).act(Distress::None, 0), Act::Lower(660 * MIB));
        assert_eq!(room(650).act(Distress::None, 0), Act::Lower(640 * MIB));
        assert_eq!(room(640).act(Distress::None, 0), Act::Nothing);
    }

    #[test]
    fn three_times_within_20_ms_are_a_burst() {
        const MS: u64 = 1_000_000;
        let after = |times: &[u64], now: u64| {
            let mut burst = Burst::default();
            times.iter().for_each(|at| burst.add(1, Nanos(at * MS)));
            burst.is_on(Nanos(now * MS))
        };

        assert!(!after(&[5, 6], 7) && after(&[5, 6, 7], 7));
        assert!(after(&[5, 6, 7], 25) && !after(&[5, 6, 7], 26));
        assert!(after(&[1, 50, 51, 52], 52));
        let mut burst = Burst::default();
        burst.add(u64::MAX, Nanos(MS));
        assert!(burst.is_on(Nanos(MS)));
    }

    #[test]
    fn a_small_limit_is_raised_by_2_mib() {
        assert_eq!(room(8 * MIB, 8 * MIB).act(Distress::Waiting, MUCH), Act::Raise(10 * MIB));
    }

    #[test]
    fn no_more_than_a_quarter_and_16_mib_are_added() {
        assert_eq!(room(64 * MIB, 94 * MIB).act(Distress::Waiting, MUCH), Act::Raise(96 * MIB));
        assert_eq!(room(64 * MIB, 94 * MIB + 1).act(Distress::Waiting, MUCH), Act::LetGo);
        assert_eq!(room(64 * MIB, 94 * MIB + 1).act(Distress::Pressed, MUCH), Act::Nothing);
    }

    #[test]
    fn without_free_swap_the_kernel_decides() {
        assert_eq!(room(64 * MIB, 64 * MIB).act(Distress::Waiting, MIB - 1), Act::LetGo);
        assert_eq!(room(64 * MIB, 64 * MIB).act(Distress::Waiting, MIB), Act::Raise(66 * MIB));
    }

    #[test]
    fn a_guard_lets_the_killer_go_and_sets_the_limit_back_when_what_it_stands_beside_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONTROL), "1").unwrap();
        fs::write(dir.path().join(LIMIT), "90").unwrap();

        stand_guard(dir.path(), 64, io::empty()).unwrap();

        let now = [CONTROL, LIMIT].map(|file| fs::read_to_string(dir.path().join(file)).unwrap());
        assert_eq!(now, ["0", "64"]);
        stand_guard(&dir.path().join("gone"), 64, io::empty()).unwrap();
    }
}
