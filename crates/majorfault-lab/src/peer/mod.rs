//! Peers: other programs that run the same workload on the same files, as baselines.
//!
//! A peer is a command line for a trial and a reading of what it prints. The program runs in the worker's place, after
//! the worker prepared the page cache, watched by the same counters.

mod fio;

use crate::record::Record;
use crate::trial::{Choice, Trial};
use majorfault::params::Param;
use majorfault::{Error, Need, Result};
use std::process::ExitStatus;

/// Every peer.
pub const ALL: &[&Peer] = &[&fio::PEER];

/// A program that can run trials.
pub struct Peer {
    /// The name users type.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// What must be here for it.
    pub needs: &'static [&'static Need],
    /// Its parameters.
    pub params: fn() -> Vec<Param>,
    /// The parameter by which it takes part in jobs as they are written; none where it cannot.
    pub of_job: Option<(&'static str, &'static str)>,
    /// How it would reach the files of a trial.
    ///
    /// Errors: Invalid (unknown parameter).
    pub manner: fn(&Trial, &Choice) -> Result<Manner>,
    /// The command line for a trial.
    ///
    /// Errors: Invalid (unknown parameter), Missing (not installed; this program cannot do this workload).
    pub command: fn(&Trial, &Choice) -> Result<Vec<String>>,
    /// Puts what it printed into the record: phases, threads, latency, settings.
    ///
    /// Errors: Invalid, with what the program complained of.
    pub read_back: fn(&str, ExitStatus, &mut Record) -> Result<()>,
}

/// How a peer reaches files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Past the page cache.
    pub direct: bool,
    /// Transfers that each of its threads keeps in flight; `None` where it makes one after the other.
    pub depth: Option<u32>,
}

/// The peer of this name.
///
/// Errors: Invalid, listing the names there are.
pub fn named(name: &str) -> Result<&'static Peer> {
    ALL.iter().copied().find(|peer| peer.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|peer| peer.name).collect();
        Error::Invalid(format!("there is no peer \"{name}\"; there are {}", names.join(", ")))
    })
}
