//! The facilities that this project needs from the machine, as values that can be probed and explained.

use std::fmt;
use std::io;

/// A facility of the kernel, the machine or the user's rights.
#[derive(Debug)]
pub struct Need {
    /// Short name, as `majorfault probe` lists it.
    pub name: &'static str,
    /// What the facility is for, in one line.
    pub summary: &'static str,
    /// Checks whether it is available. Cheap, without side effects; asks again at each call.
    pub probe: fn() -> Probe,
}

/// The result of a probe: available, perhaps with a detail such as a version or a setting.
pub type Probe = std::result::Result<String, Missing>;

/// A facility that is not available: why, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The missing facility.
    pub what: String,
    /// What was found instead.
    pub reason: String,
    /// The exact setting, package or capability that would help.
    pub remedy: String,
    /// Whether the user's rights are what is missing.
    pub lack: Lack,
}

/// Where a facility is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The machine or its kernel.
    Absent,
    /// The user's rights: the facility exists, for others.
    NotPermitted,
}

impl Missing {
    /// A facility `what` that is missing for `reason`, with the `remedy`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Missing {
        Missing { what: what.into(), reason: reason.into(), remedy: remedy.into(), lack: Lack::Absent }
    }

    /// The same, with the cause taken from the `error` of the call that tried to use the facility.
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
    /// Fails with the [`Missing`] of a facility that is not available.
    pub fn met(&self) -> std::result::Result<(), Missing> {
        (self.probe)().map(drop)
    }
}
