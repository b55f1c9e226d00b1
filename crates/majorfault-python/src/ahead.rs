//! The library's policies for arrays: they see which bytes are asked for and read ahead of them.

use crate::errors::raised;
use majorfault::prefetch;
use majorfault::{Bytes, Extent, Given, Layout, Target};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Requests given for one access; the rest waits for the next.
const AT_ONCE: usize = 256;

/// A policy that follows accesses to the part of a file that an array shows.
#[pyclass(frozen, module = "majorfault._core")]
pub(crate) struct Follower(Mutex<prefetch::Follower>);

#[pymethods]
impl Follower {
    /// `policy` is a name, and settings after a colon: `strided:stride=64k`.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, begin: u64, length: u64, policy: &str) -> PyResult<Follower> {
        let followed = py.detach(|| follow(path, begin, length, policy));
        followed.map(|follower| Follower(Mutex::new(follower))).map_err(|error| raised(&error))
    }

    /// Advice for the mapping that the policy is made for, if there is any.
    #[staticmethod]
    fn advice(policy: &str) -> PyResult<Option<&'static str>> {
        let name = policy.split(':').next().unwrap_or_default();
        let policy = prefetch::named(name).map_err(|error| raised(&error))?;
        Ok(policy.underneath.iter().find(|(name, _)| *name == "advice").map(|(_, advice)| *advice))
    }

    /// `length` bytes from `offset` of the array on are about to be used.
    fn meet(&self, py: Python<'_>, offset: u64, length: usize) -> PyResult<()> {
        py.detach(|| {
            // Tried only: after a fork, a thread that is gone may hold it, and what is lost is a hint.
            let Ok(mut follower) = self.0.try_lock() else { return Ok(()) };
            match follower.observe(Extent { offset, length: length.max(1) }) {
                true => follower.announce(AT_ONCE, |_| ()).map(drop).map_err(|error| raised(&error)),
                false => Ok(()),
            }
        })
    }
}

fn follow(path: PathBuf, begin: u64, length: u64, policy: &str) -> majorfault::Result<prefetch::Follower> {
    let (name, settings) = policy.split_once(':').unwrap_or((policy, ""));
    let layout = Layout { offset: Bytes(begin), size: Some(Bytes(length)), ..Layout::default() };
    let target = Target::open(&[path], &layout)?;
    prefetch::follow(prefetch::named(name)?, Arc::new(target), &given(settings))
}

/// Settings as they are typed: `name=value`, separated by commas.
pub(crate) fn given(text: &str) -> Given {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.fold(Given::none(), |given, pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "on"));
        given.with(name, value)
    })
}
