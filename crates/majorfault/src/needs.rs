//! What a part of this project needs from the machine, as values that can be probed and explained.

use std::fmt;
use std::io;

/// A facility of the kernel, the machine or the user's rights.
#[derive(Debug)]
pub struct Need {
    /// Short name, as `majorfault probe` lists it.
    pub name: &'static str,
    /// What it gives, in one line.
    pub summary: &'static str,
    /// Looks whether it is here. Cheap, without side effects, asked afresh at each call.
    pub probe: fn() -> Probe,
}

/// What a probe found; a detail such as a version or a setting may come with it.
pub type Probe = std::result::Result<String, Missing>;

/// A facility that is not here: why, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The facility.
    pub what: String,
    /// What was found instead.
    pub reason: String,
    /// The exact setting, package or capability that would help.
    pub remedy: String,
    /// Whether it is the rights that lack it.
    pub lack: Lack,
}

/// What it is that lacks a facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The machine or its kernel.
    Absent,
    /// The rights of the user: the facility is there, for others.
    NotPermitted,
}

impl Missing {
    /// A facility `what` that is missing for `reason`, with the `remedy`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Missing {
        Missing { what: what.into(), reason: reason.into(), remedy: remedy.into(), lack: Lack::Absent }
    }

    /// The same, with what is lacking told by the `error` of the call that would have used it.
    #[must_use]
    pub fn told_by(mut self, error: &io::Error) -> Missing {
        if error.kind() == io::ErrorKind::PermissionDenied {
            self.lack = Lack::NotPermitted;
        }
        self
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not available here: {}", self.what, self.reason)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl Need {
    /// Fails with the [`Missing`] of a facility that is not here.
    pub fn met(&self) -> std::result::Result<(), Missing> {
        (self.probe)().map(drop)
    }
}
