//! Programs that need more memory than they may have: run under a limit, with the kernel's own swap advised from outside.
//!
//! `start -> supervisor (faults -> attention, spaces -> streams -> advice) -> outcome`. It only advises (process_madvise(2): read in, page
//! out), so no byte of the program can change, and it can end at any time. The program has no part of it: nothing is preloaded, no
//! allocation is caught, static programs and any language are the same. Only where advice from outside is refused, an agent is preloaded,
//! which gives it from within; and where it is asked for, libraries that put blocks into files (`spill`) or advise mappings (`map_policy`).

pub mod agent;
pub mod attention;
pub mod call_sites;
pub mod diary;
pub mod document;
pub mod faults;
pub mod hunt;
pub mod map_policy;
pub mod outcome;
mod page;
pub mod preflight;
pub mod spaces;
pub mod spill;
pub mod start;
pub mod streams;
pub mod supervisor;
pub mod swap_file;
pub mod whereabouts;

use crate::place::run_group::{self, RunGroup};
use agent::AgentHome;
use faults::ProgramFaults;
use majorfault::proc::stat;
use majorfault::sys::other_process::{OtherProcess, RemoteAdvice};
use majorfault::{Bytes, Error, Missing, Result};
use map_policy::{MapPolicy, PolicyHome};
use outcome::RunOutcome;
pub use page::page;
use preflight::{Remark, SwapWorld};
use spaces::Spaces;
use spill::{SpillHint, SpillHome, SpillPlace};
use start::HeldProgram;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use supervisor::Supervisor;
use swap_file::{SwapFile, SwapPlace};

/// Exit code of failures that are ours and not the program's, as env(1) has it.
pub const OWN_FAILURE: u8 = 125;

/// The least limit: a dynamic program cannot begin in much less.
const LEAST: Bytes = Bytes(4 << 20);

/// Between two looks at a program that nobody looks after.
const UNLIMITED_NAP: Duration = Duration::from_millis(50);

/// Priority of the supervisor: late advice is no advice.
const PRIORITY: i32 = -5;

/// What is run, and how.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Its limit.
    pub memory: Bytes,
    /// A swap file to be made for it.
    pub swap: Option<SwapPlace>,
    /// Where its large blocks go, where they go into files.
    pub spill: Option<SpillPlace>,
    /// What is advised of files that the program maps.
    pub map_policy: Option<MapPolicy>,
    /// Who helps it.
    pub help: Help,
}

/// Who helps a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Help {
    /// We from outside; where that is refused, an agent within it; where that cannot be, nobody.
    #[default]
    AsItCan,
    /// An agent within it, else it does not begin.
    Agent,
    /// Nobody: it is limited only.
    Nobody,
}

/// What is done while the program runs.
pub trait Companion {
    /// Told before the program begins.
    fn before(&mut self, remarks: &[Remark], unhelped: Option<&str>);
    /// The program's process, which has just begun.
    fn begun(&mut self, pid: u32);
    /// Between two looks.
    fn meanwhile(&mut self);
}

/// Runs the program to its end.
///
/// Errors: Invalid, Missing, Io; the program has not begun then.
pub fn launch(options: &LaunchOptions, beside: &mut impl Companion) -> Result<RunOutcome> {
    if options.memory < LEAST {
        return Err(Error::Invalid(format!("--memory {}: give {LEAST} or more", options.memory)));
    }
    let mut remarks = clean();
    let name = run_group::run_name();
    let preloads = Preloads::of(options, &name)?;
    remarks.extend(preloads.remarks());
    let spill = preloads.spill.as_ref();
    let mut group = match (RunGroup::create(&name, options.memory), spill.filter(|_| options.swap.is_none())) {
        (Ok(group), _) => group,
        (Err(missing), Some(spill)) => {
            let unhelped = format!("no limit of its own, the one that there is holds, and no advice: {missing}");
            remarks.push(Remark { found: unhelped.clone(), remedy: String::new() });
            let outcome = beside_it(&options.program, &preloads.libraries(), remarks, beside)?;
            return Ok(RunOutcome { spill: Some(spill.facts()), unhelped: Some(unhelped), ..outcome });
        }
        (Err(missing), None) => return Err(missing.into()),
    };
    let swap = options.swap.as_ref().map(|place| SwapFile::make(place, &name, options.memory)).transpose()?;
    remarks.extend(swap.iter().map(of_swap_file));
    let mut world = SwapWorld::read();
    // Swapping to it began while its disk did not say so.
    world
        .areas
        .iter_mut()
        .filter(|area| swap.as_ref().is_some_and(|swap| swap.path() == area.path))
        .for_each(|area| area.rotates = false);
    // Without swap a program is killed; but that is what the files are for.
    remarks.extend(world.remarks(options.memory).into_iter().filter(|_| spill.is_none() || !world.areas.is_empty()));
    let is_root = rustix::process::geteuid().is_root();
    remarks.extend(options.program.first().and_then(|name| preflight::of_program(Path::new(name), is_root)));
    remarks.extend(group.kills_soon().map(kills_soon));

    let swap_total = preflight::swap_total();
    let prepared = prepare(options, &name, &group, &preloads)?;
    let (outcome, home) = supervise(prepared, &mut group, spill, remarks, beside)?;
    let (runs_on, free_swap) = (group.is_used(), world.free());
    let lost_swap = preflight::swap_total() < swap_total;
    if runs_on {
        swap.into_iter().for_each(SwapFile::leave);
        home.into_iter().for_each(AgentHome::leave);
        preloads.leave();
    }
    Ok(RunOutcome { runs_on, free_swap, lost_swap, ..outcome })
}

/// The library for blocks in files, where they are wanted.
///
/// Errors: Missing, Io, Invalid; nothing is left behind then.
fn spilling(options: &LaunchOptions, name: &str) -> Result<Option<SpillHome>> {
    let Some(place) = &options.spill else { return Ok(None) };
    spill::check_program(&options.program)?;
    let home = SpillHome::make(name, place, options.memory)?;
    if options.help == Help::Nobody {
        // To compare: what the kernel does by itself.
        home.hint(SpillHint::Usual)?;
    }
    Ok(Some(home))
}

/// Runs a program with one policy for the files that it maps, and without a limit of ours; see [`launch`].
///
/// Errors: Missing, Io; the program has not begun then.
pub fn launch_with_policy(program: &[OsString], policy: &MapPolicy, beside: &mut impl Companion) -> Result<RunOutcome> {
    let mut remarks = clean();
    map_policy::check_program(program)?;
    let free = crate::machine::available_memory();
    let home = PolicyHome::make(&run_group::run_name(), policy, free)?;
    remarks.push(home.remark());
    beside_it(program, &[home.library()], remarks, beside)
}

/// Runs the program with these libraries and nobody's help.
fn beside_it(
    program: &[OsString],
    libraries: &[PathBuf],
    remarks: Vec<Remark>,
    beside: &mut impl Companion,
) -> Result<RunOutcome> {
    beside.before(&remarks, None);
    let held = start::hold(program, libraries)?;
    let pid = held.pid();
    let process =
        OtherProcess::open(pid).map_err(|error| Error::io("open the program's process", pid.to_string(), error))?;
    let began = Instant::now();
    let mut child = held.go()?;
    beside.begun(pid);
    while !process.wait_end(UNLIMITED_NAP) {
        beside.meanwhile();
    }
    let (took, major_faults) = (began.elapsed(), major_faults(pid));
    let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
    let (code, own_time) = (start::code(status), own_time());
    Ok(RunOutcome { code, took, major_faults, own_time, remarks, ..RunOutcome::default() })
}

/// Libraries that the program loads for what it was asked to be given.
struct Preloads {
    spill: Option<SpillHome>,
    policy: Option<PolicyHome>,
}

impl Preloads {
    fn of(options: &LaunchOptions, name: &str) -> Result<Preloads> {
        let spill = spilling(options, name)?;
        let policy = options.map_policy.as_ref().map(|policy| {
            map_policy::check_program(&options.program)?;
            PolicyHome::make(name, policy, options.memory)
        });
        Ok(Preloads { spill, policy: policy.transpose()? })
    }

    fn libraries(&self) -> Vec<PathBuf> {
        let (spill, policy) = (self.spill.iter().map(SpillHome::library), self.policy.iter().map(PolicyHome::library));
        spill.chain(policy).collect()
    }

    fn remarks(&self) -> impl Iterator<Item = Remark> {
        self.spill.iter().map(SpillHome::remark).chain(self.policy.iter().map(PolicyHome::remark))
    }

    /// Leaves them, because what runs on starts more.
    fn leave(self) {
        self.spill.into_iter().for_each(SpillHome::leave);
        self.policy.into_iter().for_each(PolicyHome::leave);
    }
}

/// Removes what killed runs have left; what is to be said of it.
fn clean() -> Vec<Remark> {
    let running = run_group::remove_left();
    agent::remove_left(&running);
    let left = swap_file::remove_left(&running);
    let removed =
        left.removed.iter().map(|path| format!("removed the swap file {} of a run that was killed", path.display()));
    let kept = left
        .kept
        .iter()
        .map(|(path, why)| format!("the swap file {} of a run that was killed stays: {why}", path.display()));
    removed.chain(kept).map(|found| Remark { found, remedy: String::new() }).collect()
}

fn of_swap_file(swap: &SwapFile) -> Remark {
    let found = format!(
        "swapping to {} ({}), which is removed at the end; until then the whole machine may use it",
        swap.path().display(),
        swap.size()
    );
    Remark { found, remedy: String::new() }
}

fn of_agent(home: &AgentHome) -> Remark {
    let found = format!("an agent within the program gives the advice ({}, by LD_PRELOAD)", home.library().display());
    Remark { found, remedy: String::new() }
}

fn kills_soon(error: &Error) -> Remark {
    let found = format!(
        "the limit is one of cgroup version 1, which may kill where version 2 waits; that cannot be held off: {error}"
    );
    Remark { found, remedy: String::new() }
}

/// A program before its beginning, with those who will help it.
struct PreparedProgram {
    held: HeldProgram,
    process: OtherProcess,
    /// Its faults, and the agents' home where these help; or why nobody does.
    help: std::result::Result<(ProgramFaults, Option<AgentHome>), String>,
}

/// Holds the program with the help that there is, and has its blocks read as that wants it.
fn prepare(options: &LaunchOptions, name: &str, group: &RunGroup, preloads: &Preloads) -> Result<PreparedProgram> {
    let prepared = prepare_help(options, name, group, preloads)?;
    // Who reads ahead by advice wants nothing else read.
    match preloads
        .spill
        .as_ref()
        .filter(|_| prepared.help.is_ok())
        .map_or(Ok(()), |spill| spill.hint(SpillHint::Single))
    {
        Ok(()) => Ok(prepared),
        Err(error) => {
            prepared.held.drop_it();
            Err(error)
        }
    }
}

fn prepare_help(options: &LaunchOptions, name: &str, group: &RunGroup, preloads: &Preloads) -> Result<PreparedProgram> {
    let library = preloads.libraries();
    if options.help == Help::Agent {
        preloadable(&options.program)?;
        return with_agent(options, AgentHome::make(name)?, library, group);
    }
    let (held, process) = hold(&options.program, &library, group)?;
    let unhelped = |held, process, why| Ok(PreparedProgram { held, process, help: Err(why) });
    if options.help == Help::Nobody {
        return unhelped(held, process, "it was not asked for (--no-advice)".to_owned());
    }
    let faults = match ProgramFaults::open(held.pid()) {
        Ok(faults) => faults,
        Err(missing) => return unhelped(held, process, missing.to_string()),
    };
    let refused = match rights(&process) {
        Ok(()) if preloads.spill.is_none() => return Ok(PreparedProgram { held, process, help: Ok((faults, None)) }),
        // Pages of files count as memory of who reads them in: read in by us, they would not be within the limit.
        Ok(()) => "advice about files has to come from within".to_owned(),
        Err(refused) => refused.to_string(),
    };
    match preloadable(&options.program).map_err(Error::from).and_then(|()| AgentHome::make(name)) {
        Ok(home) => {
            held.drop_it();
            with_agent(options, home, library, group)
        }
        Err(error) => unhelped(held, process, format!("{refused}; {error}")),
    }
}

/// Holds the program so that it will load the agent, behind these libraries.
fn with_agent(
    options: &LaunchOptions,
    home: AgentHome,
    mut libraries: Vec<PathBuf>,
    group: &RunGroup,
) -> Result<PreparedProgram> {
    libraries.push(home.library());
    let (held, process) = hold(&options.program, &libraries, group)?;
    match ProgramFaults::open(held.pid()) {
        Ok(faults) => Ok(PreparedProgram { held, process, help: Ok((faults, Some(home))) }),
        Err(missing) => {
            held.drop_it();
            Err(missing.into())
        }
    }
}

/// That the program takes a library, as far as its file tells.
fn preloadable(program: &[OsString]) -> std::result::Result<(), Missing> {
    let path = program.first().and_then(|name| preflight::found(Path::new(name)));
    path.map_or(Ok(()), |path| agent::preloadable::check(&path))
}

/// A held program in its group.
fn hold(program: &[OsString], libraries: &[PathBuf], group: &RunGroup) -> Result<(HeldProgram, OtherProcess)> {
    let held = start::hold(program, libraries)?;
    let pid = held.pid();
    let placed = group.add(pid).and_then(|()| {
        OtherProcess::open(pid).map_err(|error| Error::io("open the program's process", pid.to_string(), error))
    });
    match placed {
        Ok(process) => Ok((held, process)),
        Err(error) => {
            held.drop_it();
            Err(error)
        }
    }
}

fn supervise(
    prepared: PreparedProgram,
    group: &mut RunGroup,
    spill: Option<&SpillHome>,
    mut remarks: Vec<Remark>,
    beside: &mut impl Companion,
) -> Result<(RunOutcome, Option<AgentHome>)> {
    let PreparedProgram { held, process, help } = prepared;
    let pid = held.pid();
    let (faults, home, unhelped) = match help {
        Ok((faults, home)) => (Some(faults), home, None),
        Err(why) => (None, None, Some(why)),
    };
    remarks.extend(home.as_ref().map(of_agent));
    beside.before(&remarks, unhelped.as_deref());
    let began = Instant::now();
    let mut child = held.go()?;
    beside.begun(pid);
    hurry(faults.is_some());
    let limit = group.limit();
    let spaces = Spaces::by(home.as_ref(), spill.map(|spill| spill.dir().to_owned()));
    let supervised = Supervisor::new(group, faults, spaces).run(&process, || beside.meanwhile());
    let took = began.elapsed();
    let major_faults = major_faults(pid);
    let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
    let outcome = RunOutcome {
        code: start::code(status),
        took,
        limit,
        group: group.facts(),
        supervised,
        major_faults,
        own_time: own_time(),
        free_swap: 0,
        lost_swap: false,
        remarks,
        spill: spill.map(SpillHome::facts),
        unhelped,
        runs_on: false,
    };
    Ok((outcome, home))
}

/// The right to advise another process.
fn rights(process: &OtherProcess) -> std::result::Result<(), Missing> {
    process.advise(&[], RemoteAdvice::WillNeed).map(drop).map_err(|error| {
        let remedy = "run as root, or give the right to the command: setcap cap_sys_nice,cap_perfmon=ep majorfault";
        Missing::new("advice to other processes", format!("process_madvise(2): {error}"), remedy).told_by(&error)
    })
}

/// Wakes up in time. Refused without rights, when advice is late where the machine is busy.
fn hurry(helps: bool) {
    if helps {
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    }
}

fn major_faults(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let [own, waited_for] = stat::with_children(&text)?;
    Some(own.major_faults + waited_for.major_faults)
}

fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
