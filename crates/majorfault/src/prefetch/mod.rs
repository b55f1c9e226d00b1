//! Prefetch policies: what to read ahead of a visit, decided from the accesses seen so far, around any reader.
//!
//! In code a policy is a value, put around the options of a method that takes policies:
//!
//! ```
//! use majorfault::access::Pread;
//! use majorfault::prefetch::Learned;
//!
//! let file = Pread::options().policy(Learned::default().rows(64)).open("/proc/self/exe")?;
//! assert_eq!(file.settings.get("rows"), Some("64"));
//! # Ok::<(), majorfault::Error>(())
//! ```
//!
//! Above that lies the layer of names: each policy is a file with a `const` [`Policy`]; [`ALL`] lists them once and everything
//! else iterates over it. [`open`] opens a method with the policy that its parameters name: `mmap` with
//! `policy=strided,stride=256k`.
//! `spec` (tests) holds what every policy must do.

mod around;
mod cached;
mod learned;
mod merge;
mod none;
mod populate;
#[cfg(test)]
mod spec;
mod streams;
mod strided;
mod thread;
mod trace;
mod typed;
mod whole;
mod window;

use around::Hints;
pub use around::{By, Follower, Prefetching};
pub use learned::Learned;
pub use strided::Strided;
pub use thread::Thread;
pub use trace::{Mode as TraceMode, Trace};
pub use typed::{PolicyOptions, WithPolicy};
pub use whole::Whole;
pub use window::Window;

use crate::access::{self, Method, MethodOptions, Opened};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::params::{Given, IntoSetting, Param, Params, Switch, Value};
use crate::units::Bytes;
use cached::Cached;
pub(crate) use merge::Merge;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every policy, the one that does nothing first.
pub const ALL: &[&Policy] = &[
    &none::POLICY,
    &window::POLICY,
    &whole::POLICY,
    &populate::POLICY,
    &strided::POLICY,
    &learned::POLICY,
    &thread::POLICY,
    &trace::POLICY,
];

/// Name of the parameter that chooses a policy.
const CHOICE: &str = "policy";

/// A way to decide what is read ahead.
#[derive(Debug)]
pub struct Policy {
    /// The name users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Settings of the method underneath that the policy is made for, used where the method has them and the user gave no
    /// other: `advice=random`, say, so that the kernel's read-ahead does not multiply the bytes.
    pub underneath: &'static [(&'static str, &'static str)],
    /// Which thread makes the system calls, unless the user chose one.
    pub by: By,
    /// Bytes ahead, unless the user gave a budget.
    pub budget: Ahead,
    /// Its own parameters, in addition to those of [`Common`].
    pub params: fn() -> Vec<Param>,
    /// A predictor for one thread, with the settings in force; none where the policy decides nothing during visits.
    pub start: Option<Start>,
}

/// Makes a policy's predictor from its own parameters.
///
/// Errors: Invalid (unknown parameter or value, a file that is not a trace), Io.
pub type Start = fn(&Scene, &Given) -> Result<(Box<dyn Predictor>, Given)>;

/// What a policy works on.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Bytes of the address space.
    pub length: u64,
    /// The most bytes that may be announced and not yet visited, all announcements together. What a policy gave up, because the
    /// accesses went elsewhere, is no longer ahead of anything and does not count.
    pub budget: u64,
    /// Bytes between two extents that are read rather than skipped.
    pub gap: u64,
}

/// One thread's prediction of what comes next.
pub trait Predictor: Send {
    /// A visit of these extents begins.
    fn announced(&mut self, extents: &[Extent]) {
        let _ = extents;
    }

    /// `extent` is about to be visited (or was just read). What should be read ahead because of it is put into `wanted`,
    /// soonest first. Extents may overlap, repeat earlier ones and pass the end; they are cut, not refused.
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>);

    /// The error since the last call, if there was one (a trace that could not be written).
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// A predictor for another thread. It starts without experience.
    fn sibling(&self) -> Result<Box<dyn Predictor>>;
}

/// How much a policy reads ahead where the user gave no budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// This many bytes, and at most half of the free memory.
    Bytes(u64),
    /// Half of the free memory of the machine or the cgroup.
    Memory,
}

/// A budget of bytes ahead, as users give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// The policy's own.
    Auto,
    /// This many.
    Bytes(Bytes),
}

impl IntoSetting<Budget> for Bytes {
    fn setting(self) -> Budget {
        Budget::Bytes(self)
    }
}

impl Value for Budget {
    fn read(text: &str) -> std::result::Result<Budget, String> {
        match text {
            "auto" => Ok(Budget::Auto),
            size => Bytes::read(size).map(Budget::Bytes),
        }
    }

    fn text(&self) -> String {
        match self {
            Budget::Auto => "auto".to_owned(),
            Budget::Bytes(bytes) => bytes.text(),
        }
    }

    fn legal() -> String {
        format!("auto, or {}", Bytes::legal())
    }
}

crate::params! {
    /// Options that every policy has.
    #[non_exhaustive]
    pub struct Common {
        /// The most bytes announced and not yet visited; auto is 8 MiB (hides a disk's latency), for `whole` half of the free memory.
        budget: Budget = Budget::Auto,
        /// Which thread makes the system calls; by default the caller (as fast, shorter tail), but a helper for `whole` and `thread`.
        by: By = By::Policy,
        /// Bytes between two wanted extents that are read rather than skipped; one page costs less than a second request.
        gap: Bytes = Bytes::kib(4),
        /// Whether to release what was visited (drop-behind); off, because the kernel keeps what is used again.
        release: Switch = Switch::Off,
    }
}

/// The [`Policy::start`] of every policy that has typed options `P`.
fn start<P: PolicyOptions>(scene: &Scene, given: &Given) -> Result<(Box<dyn Predictor>, Given)> {
    let plan = P::from_given(given)?;
    Ok((plan.predictor(scene)?, plan.given()))
}

/// The policy of this name.
///
/// Errors: Invalid, which lists the known names.
pub fn named(name: &str) -> Result<&'static Policy> {
    ALL.iter().copied().find(|policy| policy.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|policy| policy.name).collect();
        Error::Invalid(format!("there is no policy \"{name}\"; there are {}", names.join(", ")))
    })
}

/// The parameters that `method` accepts with `given`: its own, and where it takes policies also `policy` and those of the
/// policy chosen.
///
/// Errors: Invalid where no policy has the given name.
pub fn params(method: &Method, given: &Given) -> Result<Vec<Param>> {
    let mut params = (method.params)();
    if takes_policies(method) {
        params.push(choice());
    }
    if let Some(policy) = chosen(method, given)? {
        params.extend(Common::declared());
        params.extend((policy.params)());
    }
    Ok(params)
}

/// Opens `method` with the policy that `given` names, or without one where it names none.
///
/// Errors: Invalid (unknown policy, parameter or value; a method that takes none), and those of the method.
pub fn open(method: &Method, target: Arc<Target>, given: &Given) -> Result<Opened> {
    let Some(policy) = chosen(method, given)? else {
        return (method.open)(target, given);
    };
    given.only(&params(method, given)?)?;
    let part = |declared: &[Param]| {
        let own = |name: &str| declared.iter().any(|param| param.name == name);
        Given(given.0.iter().filter(|(name, _)| own(name)).map(|(name, text)| (name.clone(), text.clone())).collect())
    };
    let opened = (method.open)(target, &underneath(policy, method, part(&(method.params)()))?)?;
    let common = Common::from_given(&part(&Common::declared()))?;
    let own = part(&(policy.params)());
    let start = policy.start.map(|start| move |scene: &Scene| start(scene, &own));
    around(policy, method, opened, common, start)
}

/// The hints of `policy` for accesses to `target` that another program makes; they go through the page cache.
///
/// Errors: Invalid (parameters; a policy that decides nothing during visits), Io.
pub fn follow(policy: &Policy, target: Arc<Target>, given: &Given) -> Result<Follower> {
    let declared = Common::declared();
    let (common, own): (BTreeMap<_, _>, BTreeMap<_, _>) =
        given.0.clone().into_iter().partition(|(name, _)| declared.iter().any(|param| param.name == *name));
    let common = Common::from_given(&Given(common))?;
    let Some(start) = policy.start else {
        return Err(Error::Invalid(format!(
            "policy {} reads nothing ahead while a program runs; choose another",
            policy.name
        )));
    };
    let cached = Cached::each_of(Arc::clone(&target));
    let predictor = |scene: &Scene| Ok(start(scene, &Given(own))?.0);
    let reader = mapped_or_read(&target)?;
    let common = Common { by: By::Caller, ..common };
    follower(policy, target, common, cached, reader, predictor).map(|(follower, _)| follower)
}

/// A reader for hints: mapped, because then one call announces many extents, where that is possible.
fn mapped_or_read(target: &Arc<Target>) -> Result<Box<dyn access::Reader>> {
    let mapped = access::MmapOptions::default().open_target(Arc::clone(target));
    let opened = mapped.or_else(|_| access::PreadOptions::default().open_target(Arc::clone(target)));
    opened.map(|opened| opened.reader)
}

/// The hints of `plan` for accesses to `target` that the caller makes itself, with a note where fewer bytes ahead are granted
/// than were asked for.
///
/// Errors: Invalid (a value that cannot be used), Io.
pub(crate) fn beside<P: PolicyOptions>(
    plan: &P,
    target: Arc<Target>,
    common: Common,
) -> Result<(Follower, Option<String>)> {
    let by = if common.by == By::Policy { P::POLICY.by } else { common.by };
    let cached = Cached::of(Arc::clone(&target));
    let reader = access::PreadOptions::default().open_target(Arc::clone(&target))?.reader;
    follower(P::POLICY, target, Common { by, ..common }, cached, reader, |scene| plan.predictor(scene))
}

/// A follower that gives its hints through the page cache.
fn follower(
    policy: &Policy,
    target: Arc<Target>,
    common: Common,
    cached: Cached,
    reader: Box<dyn access::Reader>,
    predictor: impl FnOnce(&Scene) -> Result<Box<dyn Predictor>>,
) -> Result<(Follower, Option<String>)> {
    let Common { budget, by, gap, release } = common;
    let (budget, note) = granted(policy, budget, crate::headroom::free_bytes());
    let predictor = predictor(&Scene { length: target.len(), budget, gap: gap.0 })?;
    let merge = Merge { gap: gap.0, length: target.len(), stripe: target.stripe() };
    Ok((Follower::new(reader, predictor, Hints { merge, cached, by, helpers: 1, release })?, note))
}

/// Whether `method` takes a policy: only where visits find what was read ahead.
pub fn takes_policies(method: &Method) -> bool {
    method.hints != access::Hints::None
}

/// The policy that `given` names for `method`.
fn chosen(method: &Method, given: &Given) -> Result<Option<&'static Policy>> {
    let Some(name) = given.get(CHOICE) else { return Ok(None) };
    let policy = named(name)?;
    if !takes_policies(method) {
        return Err(Error::Invalid(format!(
            "{} takes no policy, because its reads would not find what was read ahead; choose a method with the parameter policy \
             (`majorfault list methods`)",
            method.name
        )));
    }
    Ok(Some(policy))
}

fn choice() -> Param {
    Param {
        name: CHOICE,
        default: none::POLICY.name.to_owned(),
        legal: ALL.iter().map(|policy| policy.name).collect::<Vec<_>>().join("|"),
        doc: "What is read ahead: see `majorfault list policies`; by default only what the kernel reads ahead.",
    }
}

/// The method's settings with those that the policy is made for.
fn underneath(policy: &Policy, method: &Method, mut given: Given) -> Result<Given> {
    let declared = (method.params)();
    if policy.name == populate::POLICY.name && given.get("advice") == Some("random") {
        return Err(Error::Invalid(
            "with advice=random the kernel would populate by single reads of 4 KiB; leave advice=random out".to_owned(),
        ));
    }
    for (name, value) in policy.underneath {
        if declared.iter().any(|param| param.name == *name) {
            given.0.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        } else if policy.name == populate::POLICY.name {
            return Err(Error::Invalid(format!("{} can't be populated; choose mmap, or policy=whole", method.name)));
        }
    }
    Ok(given)
}

/// `opened` with the policy around its reader, where the policy decides anything during visits.
fn around(
    policy: &Policy,
    method: &Method,
    opened: Opened,
    common: Common,
    start: Option<impl FnOnce(&Scene) -> Result<(Box<dyn Predictor>, Given)>>,
) -> Result<Opened> {
    let Opened { reader, target, mut settings, mut notes } = opened;
    let Common { budget, by, gap, release } = Common { by: issuer(policy, method, common.by)?, ..common };
    let (budget, note) = granted(policy, budget, crate::headroom::free_bytes());
    notes.extend(note);
    let scene = Scene { length: target.len(), budget, gap: gap.0 };
    let in_force = Common { budget: Budget::Bytes(Bytes(budget)), by, gap, release };
    settings.0.extend(in_force.given().0);
    settings = settings.with(CHOICE, policy.name);
    let Some(start) = start else {
        return Ok(Opened { reader, target, settings, notes });
    };
    let (predictor, own) = start(&scene)?;
    settings.0.extend(own.0);
    let is_cached = method.hints == access::Hints::PageCache;
    let cached = if is_cached { Cached::of(Arc::clone(&target)) } else { Cached::nothing() };
    let merge = Merge { gap: gap.0, length: target.len(), stripe: target.stripe() };
    // Where a hint waits for its reads, one helper's reads end while another's are under way.
    let helpers = if method.hints == access::Hints::Own { 2 } else { 1 };
    let reader = Prefetching::new(reader, predictor, Hints { merge, cached, by, helpers, release })?;
    Ok(Opened { reader: Box::new(reader), target, settings, notes })
}

/// The thread that gives the hints of `policy` around `method`.
///
/// Errors: Invalid (the caller, where a hint waits for its read: it would delay the visit that it is for).
fn issuer(policy: &Policy, method: &Method, asked: By) -> Result<By> {
    match (method.hints, asked) {
        (access::Hints::Own, By::Caller) => Err(Error::Invalid(format!(
            "by=caller does not work with {}: its hints wait for their reads; use by=helper",
            method.name
        ))),
        (access::Hints::Own, _) => Ok(By::Helper),
        (_, By::Policy) => Ok(policy.by),
        (_, by) => Ok(by),
    }
}

/// The bytes ahead that are granted, with a note where they are fewer than the user asked for.
fn granted(policy: &Policy, budget: Budget, free: u64) -> (u64, Option<String>) {
    let room = free / 2;
    match (budget, policy.budget) {
        (Budget::Bytes(asked), _) if asked.0 > room => {
            let cut = Bytes(room).rounded();
            (room, Some(format!("the budget is {cut}, half of the free memory, instead of {asked}")))
        }
        (Budget::Bytes(asked), _) => (asked.0, None),
        (Budget::Auto, Ahead::Bytes(usual)) => (usual.min(room), None),
        (Budget::Auto, Ahead::Memory) => (room, None),
    }
}
