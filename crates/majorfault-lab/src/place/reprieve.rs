//! Holds off the kernel's killer in a group of version 1, which kills a program at its limit though swap is free.
//!
//! Version 1 gives up reclaiming after some tries, while pages are still on their way to swap. Before it does, it tells of critical
//! pressure (memory.pressure_level) many times within milliseconds; in a program that swaps all the time it does so some times a second. So the
//! limit is raised by a little in such a burst, and lowered again in steps when it is over.
//!
//! Where that comes too late, the killer is off (memory.oom_control): a thread that touches memory waits, until the limit is raised. A
//! system call that needs memory in such a moment fails with ENOMEM or EFAULT instead; without us the program would be dead. Where the limit
//! was raised by all that is allowed, memory is reclaimed from our side while the thread waits. Where swap is full, or nothing can be
//! reclaimed for long, the killer is let go: then the kernel does what it would have done.
//!
//! Nobody may be left waiting where we are killed: a guard, a process of its own, lets the killer go and sets the limit back when we have ended.

use majorfault::proc::{self, Live};
use majorfault::sys::clock::monotonic;
use majorfault::{Error, Nanos, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
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

/// Somebody waits, and nothing could be reclaimed for so long: it will not come any more.
const STUCK: Nanos = Nanos(10_000_000_000);

/// Between two looks where the kernel may not tell of what is to be done, and where it does.
const SHORT: Nanos = Nanos(2_000_000);
const LONG: Nanos = Nanos(500_000_000);

/// Pause between two trials of the guard to set the limit back.
const SET_BACK: Duration = Duration::from_millis(100);

/// Swap that must be free: with less, waiting helps nobody.
const LEAST_SWAP: u64 = 1 << 20;

/// A group whose killer is held off, by a thread of its own: a look some milliseconds later may be too late.
#[derive(Debug)]
pub struct Reprieve {
    watch: Option<JoinHandle<()>>,
    /// Tells the thread to end.
    stop: OwnedFd,
    raised: Arc<Mutex<Raised>>,
}

/// What the thread does its work with. When it is dropped, the kernel does what it does without us.
struct Watch {
    group: PathBuf,
    control: Live,
    free_swap: fn() -> u64,
    events: KernelEvents,
    stop: OwnedFd,
    burst: Burst,
    /// None where the killer could not be held off, or was let go.
    guard: Option<Child>,
    room: Room,
    not_before: Nanos,
    /// Since when nothing could be reclaimed for who waits.
    stuck_since: Option<Nanos>,
    looked: Nanos,
    raised: Arc<Mutex<Raised>>,
}

/// What the kernel tells of; none where it does not.
struct KernelEvents {
    /// Reclaim fails.
    pressure: Option<OwnedFd>,
    /// A thread waits.
    waiting: Option<OwnedFd>,
}

/// How often, by how much and for how long a limit was raised, and how often it was lowered for a moment, so that the kernel reclaims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// How often.
    pub times: u64,
    /// By how many bytes at most.
    pub most_bytes: u64,
    /// For how long in all.
    pub lasted: Nanos,
    /// How often memory was reclaimed for who waited, because it could not be raised any more.
    pub reclaims: u64,
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
    /// Sets a lower limit for a moment, to which the kernel reclaims.
    Reclaim(u64),
    LetGo,
}

impl Room {
    fn step(self) -> u64 {
        (self.limit / STEP).max(LEAST_STEP)
    }

    /// `free_swap` is what swap is left, and `stuck` for how long nothing could be reclaimed for who waits.
    fn act(self, distress: Distress, free_swap: u64, stuck: Nanos) -> Act {
        let more = self.now + self.step();
        let has_swap = free_swap >= LEAST_SWAP;
        let has_room = has_swap && more <= self.limit + most_more(self.limit);
        match distress {
            Distress::Waiting | Distress::Pressed if has_room => Act::Raise(more),
            Distress::Waiting if has_swap && stuck.0 <= STUCK.0 => Act::Reclaim(self.now - self.step()),
            Distress::Waiting => Act::LetGo,
            Distress::None if self.now > self.limit => Act::Lower((self.now - self.step()).max(self.limit)),
            Distress::None | Distress::Pressed => Act::Nothing,
        }
    }
}

impl Reprieve {
    /// Holds off the killer of the group at `group`, whose limit is `limit` bytes.
    ///
    /// Errors: Io (a kernel without the switch, no right, no process, no thread).
    pub fn begin(group: &Path, limit: u64) -> Result<Reprieve> {
        let path = group.join(CONTROL);
        let failed = |what: &str, error: io::Error| Error::io(what, &path, error);
        let control = Live::open(&path).map_err(|error| failed("read", error))?;
        let stop = event().map_err(|error| failed("watch", error))?;
        let raised = Arc::new(Mutex::new(Raised::default()));
        let mut watch = Watch {
            group: group.to_owned(),
            control,
            free_swap,
            events: KernelEvents::of(group),
            stop: stop.try_clone().map_err(|error| failed("watch", error))?,
            burst: Burst::default(),
            // First who lets it go, then the switch.
            guard: Some(guard(group, limit)?),
            room: Room { limit, now: limit },
            not_before: Nanos(0),
            stuck_since: None,
            looked: monotonic(),
            raised: raised.clone(),
        };
        fs::write(&path, "1").map_err(|error| failed("hold off the kernel's killer", error))?;
        let thread = std::thread::Builder::new().name("reprieve".to_owned()).spawn(move || watch.run());
        Ok(Reprieve { watch: Some(thread.map_err(|error| failed("watch", error))?), stop, raised })
    }

    /// How often the limit was raised, by how much and for how long.
    pub fn raised(&self) -> Raised {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reprieve {
    fn drop(&mut self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.watch.take().map(JoinHandle::join);
    }
}

impl Watch {
    fn run(&mut self) {
        while self.guard.is_some() && !self.wait() {
            self.look();
        }
    }

    /// Waits until there may be something to be done; whether that is to end.
    fn wait(&self) -> bool {
        let events = [Some(&self.stop), self.events.pressure.as_ref(), self.events.waiting.as_ref()];
        let mut polled: Vec<PollFd<'_>> =
            events.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // An error is a signal, or no memory for the moment: then it is looked, and waited for again.
        let _ = poll(&mut polled, Some(&self.pause()));
        polled[0].revents().contains(PollFlags::IN)
    }

    fn pause(&self) -> Timespec {
        let must_ask = self.events.pressure.is_none() || self.events.waiting.is_none() || self.stuck_since.is_some();
        let is_raised = self.room.now > self.room.limit;
        Timespec { tv_sec: 0, tv_nsec: (if must_ask || is_raised { SHORT } else { LONG }).0 as i64 }
    }

    fn look(&mut self) {
        let now = monotonic();
        let since = std::mem::replace(&mut self.looked, now);
        if self.room.now > self.room.limit {
            self.note(|raised| raised.lasted.0 += now.0 - since.0);
        }
        let distress = self.distress(now);
        if distress == Distress::None && (self.room.now == self.room.limit || now < self.not_before) {
            return;
        }
        if distress != Distress::Waiting {
            self.stuck_since = None;
        }
        let free_swap = if distress == Distress::None { 0 } else { (self.free_swap)() };
        let stuck = Nanos(self.stuck_since.map_or(0, |since| now.0 - since.0));
        self.do_it(self.room.act(distress, free_swap, stuck), now);
    }

    fn distress(&mut self, now: Nanos) -> Distress {
        let told = taken(self.events.pressure.as_ref());
        taken(self.events.waiting.as_ref());
        if self.control.read().and_then(|text| proc::number(text, "under_oom")) == Some(1) {
            return Distress::Waiting;
        }
        self.burst.add(told, now);
        if self.burst.is_on(now) { Distress::Pressed } else { Distress::None }
    }

    fn do_it(&mut self, act: Act, now: Nanos) {
        let pause = match act {
            Act::Nothing => PAUSE,
            Act::LetGo => return self.let_go(),
            Act::Reclaim(bytes) => self.reclaim(bytes, now),
            Act::Raise(bytes) => self.raise(bytes),
            Act::Lower(bytes) => self.lower(bytes),
        };
        self.not_before = Nanos(now.0 + pause.0);
    }

    fn set(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.group.join(LIMIT), bytes.to_string())
    }

    fn lower(&mut self, bytes: u64) -> Nanos {
        match self.set(bytes) {
            Ok(()) => {
                self.room.now = bytes;
                PAUSE
            }
            // More is in use than that, and the kernel could not reclaim it.
            Err(_) => LONG_PAUSE,
        }
    }

    fn raise(&mut self, bytes: u64) -> Nanos {
        if self.set(bytes).is_err() {
            self.let_go();
            return PAUSE;
        }
        (self.room.now, self.burst) = (bytes, Burst::default());
        let more = bytes - self.room.limit;
        self.note(|raised| {
            raised.times += 1;
            raised.most_bytes = raised.most_bytes.max(more);
        });
        PAUSE
    }

    fn reclaim(&mut self, bytes: u64, now: Nanos) -> Nanos {
        self.note(|raised| raised.reclaims += 1);
        match self.set(bytes) {
            // What became free lets on who waits; the limit must be what it was before they fill it.
            Ok(()) => self.stuck_since = None,
            Err(_) => self.stuck_since = self.stuck_since.or(Some(now)),
        }
        if self.set(self.room.now).is_err() {
            self.let_go();
        }
        PAUSE
    }

    fn note(&self, what: impl FnOnce(&mut Raised)) {
        what(&mut self.raised.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// From now on the kernel does what it does without us.
    fn let_go(&mut self) {
        let _ = fs::write(self.group.join(CONTROL), "0");
        let _ = self.set(self.room.limit);
        if let Some(mut guard) = self.guard.take() {
            // What it is for is done.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl KernelEvents {
    fn of(group: &Path) -> KernelEvents {
        let of = |file: &str, more: &str| {
            let events = event()?;
            let watched = File::open(group.join(file))?;
            fs::write(group.join(EVENTS), format!("{} {} {more}", events.as_raw_fd(), watched.as_raw_fd()))?;
            Ok::<_, io::Error>(events)
        };
        KernelEvents { pressure: of(PRESSURE, "critical").ok(), waiting: of(CONTROL, "").ok() }
    }
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// How often the kernel told since the last time.
fn taken(events: Option<&OwnedFd>) -> u64 {
    let mut count = [0; 8];
    let told = events.and_then(|events| rustix::io::read(events, &mut count).ok());
    told.map_or(0, |_| u64::from_ne_bytes(count))
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
    const NOW: Nanos = Nanos(0);

    fn room(limit: u64, now: u64) -> Room {
        Room { limit, now }
    }

    #[test]
    fn the_limit_is_raised_while_somebody_waits_and_lowered_after_that() {
        let room = |now| room(640 * MIB, now * MIB);
        assert_eq!(room(640).act(Distress::Waiting, MUCH, NOW), Act::Raise(660 * MIB));
        assert_eq!(room(660).act(Distress::Pressed, MUCH, NOW), Act::Raise(680 * MIB));
        assert_eq!(room(680).act(Distress::None, 0, NOW), Act::Lower(660 * MIB));
        assert_eq!(room(650).act(Distress::None, 0, NOW), Act::Lower(640 * MIB));
        assert_eq!(room(640).act(Distress::None, 0, NOW), Act::Nothing);
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
        assert_eq!(room(8 * MIB, 8 * MIB).act(Distress::Waiting, MUCH, NOW), Act::Raise(10 * MIB));
    }

    #[test]
    fn no_more_than_a_quarter_and_16_mib_are_added() {
        assert_eq!(room(64 * MIB, 94 * MIB).act(Distress::Waiting, MUCH, NOW), Act::Raise(96 * MIB));
        assert_eq!(room(64 * MIB, 94 * MIB + 1).act(Distress::Waiting, MUCH, NOW), Act::Reclaim(92 * MIB + 1));
        assert_eq!(room(64 * MIB, 94 * MIB + 1).act(Distress::Pressed, MUCH, NOW), Act::Nothing);
    }

    #[test]
    fn memory_is_reclaimed_for_who_waits_until_nothing_comes_for_ten_seconds() {
        let full = room(64 * MIB, 96 * MIB);
        assert_eq!(full.act(Distress::Waiting, MUCH, Nanos::secs(10)), Act::Reclaim(94 * MIB));
        assert_eq!(full.act(Distress::Waiting, MUCH, Nanos(10_000_000_001)), Act::LetGo);
        assert_eq!(full.act(Distress::Waiting, MIB - 1, NOW), Act::LetGo);
    }

    #[test]
    fn without_free_swap_the_kernel_decides() {
        assert_eq!(room(64 * MIB, 64 * MIB).act(Distress::Waiting, MIB - 1, NOW), Act::LetGo);
        assert_eq!(room(64 * MIB, 64 * MIB).act(Distress::Waiting, MIB, NOW), Act::Raise(66 * MIB));
    }

    /// A watch over files instead of a kernel's, whose limit of 64 MiB was raised to so many.
    fn watch(dir: &Path, now_mib: u64) -> Watch {
        fs::write(dir.join(LIMIT), (now_mib * MIB).to_string()).unwrap();
        Watch {
            group: dir.to_owned(),
            control: Live::open(dir.join(CONTROL)).unwrap(),
            free_swap: || MUCH,
            events: KernelEvents { pressure: Some(event().unwrap()), waiting: None },
            stop: event().unwrap(),
            burst: Burst::default(),
            guard: Some(Command::new("true").spawn().unwrap()),
            room: room(64 * MIB, now_mib * MIB),
            not_before: Nanos(0),
            stuck_since: None,
            looked: Nanos(0),
            raised: Arc::default(),
        }
    }

    fn raised(watch: &Watch) -> Raised {
        *watch.raised.lock().unwrap()
    }

    #[test]
    fn the_limit_follows_what_the_kernel_tells_and_is_back_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let limit = || fs::read_to_string(dir.path().join(LIMIT)).unwrap().parse::<u64>().unwrap() / MIB;
        let tells =
            |waits: bool| fs::write(dir.path().join(CONTROL), format!("under_oom {}\n", u8::from(waits))).unwrap();
        tells(true);
        let mut watch = watch(dir.path(), 64);

        watch.look();
        assert_eq!((limit(), raised(&watch).times, raised(&watch).most_bytes), (66, 1, 2 * MIB));
        tells(false);
        watch.look();
        assert_eq!(limit(), 66, "it is not lowered at once");
        watch.not_before = Nanos(0);
        watch.look();
        assert_eq!(limit(), 64);
        assert!(raised(&watch).lasted.0 > 0);
        tells(true);
        watch.look();
        drop(watch);
        assert_eq!((limit(), fs::read_to_string(dir.path().join(CONTROL)).unwrap().as_str()), (64, "0"));
    }

    #[test]
    fn a_burst_that_the_kernel_tells_of_raises_the_limit_and_fewer_times_do_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONTROL), "under_oom 0\n").unwrap();
        let mut watch = watch(dir.path(), 64);
        let tell = |watch: &Watch, times: u64| {
            rustix::io::write(watch.events.pressure.as_ref().unwrap(), &times.to_ne_bytes()).unwrap();
        };

        (0..BURST).for_each(|_| watch.look());
        assert_eq!(raised(&watch).times, 0, "looking is not being told");
        tell(&watch, BURST as u64 - 1);
        watch.look();
        assert_eq!(raised(&watch).times, 0);
        tell(&watch, 1);
        assert!(!watch.wait(), "what the kernel tells is no order to end");
        watch.look();
        assert_eq!(raised(&watch).times, 1);
    }

    #[test]
    fn for_who_waits_at_the_highest_limit_it_is_lowered_for_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONTROL), "under_oom 1\n").unwrap();
        let mut watch = watch(dir.path(), 96);

        watch.look();

        assert_eq!((raised(&watch).reclaims, raised(&watch).times, watch.stuck_since), (1, 0, None));
        assert_eq!(fs::read_to_string(dir.path().join(LIMIT)).unwrap(), (96 * MIB).to_string());
        fs::remove_file(dir.path().join(LIMIT)).unwrap();
        fs::create_dir(dir.path().join(LIMIT)).unwrap();
        watch.look();
        assert!(watch.guard.is_none(), "a limit that cannot be set is the kernel's again");
    }

    #[test]
    fn who_is_told_to_end_does_not_look_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONTROL), "under_oom 1\n").unwrap();
        let mut watch = watch(dir.path(), 64);
        rustix::io::write(&watch.stop, &1u64.to_ne_bytes()).unwrap();

        watch.run();

        assert_eq!(raised(&watch).times, 0);
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
