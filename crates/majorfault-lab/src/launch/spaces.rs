//! The address spaces of a program and all that it started: what is swapped out there, streams of faults, and advice.

use super::agent::ring::AgentAdvice;
use super::agent::{AgentHome, AgentLink, Taken};
use super::call_sites::{CallSites, FunctionOfRun, SitesOfRun, functions};
use super::hunt::Hunt;
use super::spill::ranges::SpiltRanges;
use super::streams::{Advised, Hands, Straits, Streams};
use super::whereabouts::{PlacesOfRun, Whereabouts};
use crate::watch::has_ended;
use majorfault::sys::other_process::{OtherProcess, RemoteAdvice};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Address spaces that are advised at once.
const MOST: usize = 256;

/// Bit of an entry of /proc/PID/pagemap: the page is swapped out.
const SWAPPED: u64 = 1 << 62;

/// The same of one that is mapped.
const PRESENT: u64 = 1 << 63;

/// Who gives advice to the kernel.
enum Giver {
    /// We, from outside.
    Us(OtherProcess),
    /// The agent within the process.
    Agent(AgentLink),
}

/// What stands behind advice in the kernel.
pub struct KernelHands {
    pid: u32,
    pagemap: File,
    /// Its blocks in files: what is not mapped there counts as swapped out.
    spilt: SpiltRanges,
    giver: Giver,
    page: u64,
    bytes: Vec<u8>,
    answer: Vec<bool>,
    /// Advice was refused: the process has ended, or is another's now.
    is_refused: bool,
    /// The agent has ended before its process.
    is_lost: bool,
    /// Times that an agent was behind and did not take all.
    late: u64,
}

impl KernelHands {
    fn open(pid: u32, home: Option<&AgentHome>, spilt: SpiltRanges) -> io::Result<KernelHands> {
        // The process first: should its number mean another one by now, its pages are that other's as well.
        let giver = match home {
            None => Giver::Us(OtherProcess::open(pid)?),
            Some(home) => Giver::Agent(home.agent(pid)?),
        };
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        let page = rustix::param::page_size() as u64;
        Ok(KernelHands {
            pid,
            pagemap,
            spilt,
            giver,
            page,
            bytes: Vec::new(),
            answer: Vec::new(),
            is_refused: false,
            is_lost: false,
            late: 0,
        })
    }

    fn advise(&mut self, pages: &[Range<u64>], advice: RemoteAdvice) {
        match &mut self.giver {
            Giver::Us(process) => self.is_refused |= !advise_from_outside(process, pages, self.page, advice),
            Giver::Agent(agent) => match agent.advise(pages, of_agent(advice)) {
                Taken::All => {}
                Taken::Some => self.late += 1,
                Taken::Gone => {
                    self.is_refused = true;
                    // Memory that is no more has ended with its program, or became another's.
                    self.is_lost = pages.first().is_some_and(|range| !self.swapped(range.start, 1).is_empty());
                }
            },
        }
    }
}

/// Whether the process still takes advice.
fn advise_from_outside(process: &OtherProcess, pages: &[Range<u64>], page: u64, advice: RemoteAdvice) -> bool {
    let ranges: Vec<Range<u64>> = pages.iter().map(|range| range.start * page..range.end * page).collect();
    ranges.chunks(1024).fold(true, |is_taken, ranges| match process.advise(ranges, advice) {
        Ok(_) => is_taken,
        // A part was unmapped meanwhile, or is memory that takes no such advice.
        Err(error) if matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::InvalidInput) => is_taken,
        Err(_) => false,
    })
}

fn of_agent(advice: RemoteAdvice) -> AgentAdvice {
    match advice {
        RemoteAdvice::WillNeed => AgentAdvice::WillNeed,
        RemoteAdvice::PageOut => AgentAdvice::PageOut,
    }
}

/// How it went with the agents of processes whose memory was short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentFacts {
    /// Address spaces that had one.
    pub met: u64,
    /// Processes that had none: forked without starting a program, static, of another user.
    pub without: u64,
    /// Agents that were there, and then were not.
    pub lost: u64,
    /// Times that one was behind, and orders were left out.
    pub late: u64,
}

impl Hands for KernelHands {
    fn swapped(&mut self, first: u64, count: usize) -> &[bool] {
        self.bytes.resize(count * 8, 0);
        let length = self.pagemap.read_at(&mut self.bytes, first * 8).unwrap_or(0);
        let entries = self.bytes[..length].chunks_exact(8);
        let entries = entries.map(|entry| u64::from_ne_bytes(std::array::from_fn(|at| entry[at])));
        let spilt = self.spilt.around(self.pid, first).unwrap_or_default();
        let is_out = |(page, entry)| match spilt.contains(&page) {
            true => entry & PRESENT == 0,
            false => entry & SWAPPED != 0,
        };
        self.answer.clear();
        self.answer.extend((first..).zip(entries).map(is_out));
        &self.answer
    }

    fn fetch(&mut self, pages: &[Range<u64>]) {
        self.advise(pages, RemoteAdvice::WillNeed);
    }

    fn page_out(&mut self, pages: Range<u64>) {
        self.advise(&[pages], RemoteAdvice::PageOut);
    }
}

struct Space {
    hands: KernelHands,
    streams: Streams,
    hunt: Hunt,
    /// The name of the process, when it was met first.
    name: String,
    whereabouts: Whereabouts,
    call_sites: CallSites,
    outstanding: u64,
    /// When it was last faulted in, in the number of faults.
    touched: u64,
}

impl Space {
    fn new(hands: KernelHands, pid: u32) -> Space {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        let (streams, hunt, whereabouts) = (Streams::default(), Hunt::default(), Whereabouts::default());
        let call_sites = CallSites::of(pid);
        Space { hands, streams, hunt, name, whereabouts, call_sites, outstanding: 0, touched: 0 }
    }
}

/// All address spaces that faulted while memory was short.
#[derive(Default)]
pub struct Spaces<'h> {
    /// Where the agents are, where advice is given by these.
    home: Option<&'h AgentHome>,
    /// Where blocks in files are, where there are any.
    spill: Option<PathBuf>,
    agents: AgentFacts,
    without: HashSet<u32>,
    spaces: HashMap<u32, Space>,
    /// Processes whose memory cannot be looked at.
    refused: HashSet<u32>,
    faults: u64,
    waits: u64,
    helped: u64,
    advised: Advised,
    /// Where those were that are gone.
    places: PlacesOfRun,
    /// The code of those that are gone.
    sites: SitesOfRun,
}

/// Who touched what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The byte.
    pub address: u64,
    /// The instruction.
    pub instruction: u64,
}

impl<'h> Spaces<'h> {
    /// Advised by the agents of this home, where one is given; with blocks in files in this directory, where one is given.
    pub fn by(home: Option<&'h AgentHome>, spill: Option<PathBuf>) -> Spaces<'h> {
        Spaces { home, spill, ..Spaces::default() }
    }

    /// A fault of the process began. In `straits`, `most_ahead` is of all address spaces together.
    pub fn began(&mut self, process: u32, touch: Touch, straits: Straits) {
        self.faults += 1;
        let others = self.spaces.iter().filter(|(pid, _)| **pid != process).map(|(_, space)| space.outstanding);
        let most_ahead = straits.most_ahead.saturating_sub(others.sum());
        let Some(space) = self.space(process) else { return };
        let Space { streams, hands, whereabouts, call_sites, .. } = space;
        let before = streams.advised();
        streams.fault(touch.address / hands.page, Straits { most_ahead, ..straits }, hands);
        let done = streams.advised() - before;
        if done != Advised::default() {
            whereabouts.advised(process, touch.address, done);
            call_sites.at(touch.instruction).advised += done;
        }
        if hands.is_refused {
            self.agents.lost += u64::from(hands.is_lost);
            self.forget(process);
            self.refused.insert(process);
        }
    }

    /// A fault has waited; whether that makes an order likely.
    pub fn has_waited(&mut self, process: u32, touch: Touch) -> bool {
        self.waits += 1;
        let Some(space) = self.space(process) else { return false };
        let page = touch.address / space.hands.page;
        if space.hands.swapped(page, 1).is_empty() {
            // It is another program by now, and what said so was lost, or came while nobody looked.
            self.forget(process);
            return false;
        }
        space.whereabouts.waited(process, touch.address);
        space.call_sites.at(touch.instruction).wait();
        space.streams.waited(page);
        space.hunt.waited(page)
    }

    /// The process has other memory from now on, or none.
    pub fn gone(&mut self, process: u32) {
        self.forget(process);
        self.refused.remove(&process);
    }

    /// What happened while nobody looked is not known: whoever could not be looked at is tried again.
    pub fn try_again(&mut self) {
        self.refused.clear();
    }

    /// Tidies up, now and then.
    pub fn sweep(&self) {
        self.home.into_iter().for_each(AgentHome::sweep);
    }

    /// How it went with agents.
    pub fn agents(&self) -> AgentFacts {
        let late: u64 = self.spaces.values().map(|space| space.hands.late).sum();
        AgentFacts { without: self.without.len() as u64, late: self.agents.late + late, ..self.agents }
    }

    /// The next faults are not seen.
    pub fn rest(&mut self) {
        self.spaces.values_mut().for_each(|space| space.streams.rest());
        self.settle();
    }

    /// Counts again what is outstanding.
    pub fn settle(&mut self) {
        self.spaces.values_mut().for_each(|space| space.outstanding = space.streams.outstanding());
    }

    fn space(&mut self, process: u32) -> Option<&mut Space> {
        if self.refused.contains(&process) {
            return None;
        }
        if !self.spaces.contains_key(&process) {
            let Ok(hands) = KernelHands::open(process, self.home, SpiltRanges::of(self.spill.clone())) else {
                // Whoever has ended had one, or needs none any more.
                self.without.extend((self.home.is_some() && !has_ended(process)).then_some(process));
                self.refused.insert(process);
                return None;
            };
            self.agents.met += u64::from(self.home.is_some());
            self.without.remove(&process);
            self.make_room();
            self.spaces.insert(process, Space::new(hands, process));
        }
        let now = self.faults + self.waits;
        let space = self.spaces.get_mut(&process)?;
        space.touched = now;
        Some(space)
    }

    fn make_room(&mut self) {
        if self.spaces.len() < MOST {
            return;
        }
        if let Some(oldest) = self.spaces.iter().min_by_key(|(_, space)| space.touched).map(|(pid, _)| *pid) {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, process: u32) {
        if let Some(space) = self.spaces.remove(&process) {
            self.helped += space.streams.helped();
            self.advised += space.streams.advised();
            space.whereabouts.tell(&space.name, &mut self.places);
            space.call_sites.tell(&space.name, &mut self.sites);
            self.agents.late += space.hands.late;
        }
    }

    /// Where they waited and were helped, so far.
    pub fn places(&self) -> PlacesOfRun {
        let mut all = self.places.clone();
        self.spaces.values().for_each(|space| space.whereabouts.tell(&space.name, &mut all));
        all
    }

    /// In which functions they waited and were helped, so far.
    pub fn functions(&self) -> Vec<FunctionOfRun> {
        let mut all = self.sites.clone();
        self.spaces.values().for_each(|space| space.call_sites.tell(&space.name, &mut all));
        functions(&all)
    }

    /// Faults that were looked at, those of them that waited apart.
    pub fn faults(&self) -> (u64, u64) {
        (self.faults, self.waits)
    }

    /// Steps of streams that help, so far.
    pub fn helped(&self) -> u64 {
        self.helped + self.spaces.values().map(|space| space.streams.helped()).sum::<u64>()
    }

    /// What was done so far, in pages.
    pub fn advised(&self) -> Advised {
        let mut all = self.advised;
        self.spaces.values().for_each(|space| all += space.streams.advised());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_1: Touch = Touch { address: 4096, instruction: 1 << 20 };

    #[test]
    fn a_process_that_cannot_be_looked_at_is_left_alone_until_it_changes() {
        let mut spaces = Spaces::default();
        let straits = Straits { limit: 100, most_ahead: 10, is_near: false };

        spaces.began(u32::MAX / 4, PAGE_1, straits);

        assert!(spaces.refused.contains(&(u32::MAX / 4)) && spaces.spaces.is_empty());
        spaces.gone(u32::MAX / 4);
        assert!(spaces.refused.is_empty());
    }

    #[test]
    fn who_has_no_agent_is_counted_but_for_who_has_ended() {
        let home = AgentHome::make(&format!("majorfault-run-{}-counted", std::process::id())).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(ended.id()) {
            std::thread::yield_now();
        }
        let mut spaces = Spaces::by(Some(&home), None);

        spaces.has_waited(ended.id(), PAGE_1);
        assert_eq!(spaces.agents().without, 0);
        spaces.has_waited(std::process::id(), PAGE_1);
        assert_eq!(spaces.agents().without, 1);
        ended.wait().unwrap();
    }

    #[test]
    fn a_program_that_became_another_one_is_opened_again() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line; exec cat"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (mut spaces, pid) = (Spaces::default(), child.id());
        let name =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        while !name("sh") {
            std::thread::yield_now();
        }
        spaces.has_waited(pid, PAGE_1);
        assert!(spaces.spaces.contains_key(&pid));
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        while !name("cat") {
            std::thread::yield_now();
        }

        spaces.has_waited(pid, PAGE_1);
        assert!(!spaces.spaces.contains_key(&pid), "the memory that was opened is gone");
        spaces.has_waited(pid, PAGE_1);
        assert!(spaces.spaces.contains_key(&pid));

        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn pages_of_this_process_are_not_swapped_and_those_beyond_are_not_known() {
        let mut hands = KernelHands::open(std::process::id(), None, SpiltRanges::default()).unwrap();
        let here = &raw const hands as u64 / hands.page;

        assert_eq!(hands.swapped(here, 1), [false]);
        assert_eq!(hands.swapped(1 << 51, 4), [] as [bool; 0]);
    }

    #[test]
    fn only_the_processes_touched_last_are_kept() {
        let mut spaces = Spaces::default();
        let own = std::process::id();
        spaces.has_waited(own, PAGE_1);
        let space = |touched| Space {
            touched,
            ..Space::new(KernelHands::open(own, None, SpiltRanges::default()).unwrap(), own)
        };
        (0..MOST as u32 - 1).for_each(|pid| drop(spaces.spaces.insert(u32::MAX - pid, space(u64::from(pid) + 10))));

        spaces.has_waited(std::os::unix::process::parent_id(), PAGE_1);

        assert_eq!(spaces.spaces.len(), MOST);
        assert!(!spaces.spaces.contains_key(&own), "it was touched first");
    }
}
