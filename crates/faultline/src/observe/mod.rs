//! Counters: observed quantities with unit, scope and source, one file per source.
//!
//! A [`Source`] reads several counters from one place at once; [`ALL`] names the sources once. An [`Observer`] opens
//! those that work for a [`Scene`] and keeps the reasons of those that don't. Nothing here knows of access methods.

use crate::needs::{Missing, Need};
use crate::units::Nanos;
use std::path::PathBuf;

/// Every source of counters.
pub const ALL: &[&Source] = &[];

/// Whose events a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The observed process, all its threads.
    Process,
    /// The cgroup the process is limited by.
    Cgroup,
    /// The devices under the observed files; other programs' traffic included.
    Device,
    /// The observed files, whoever uses them.
    File,
    /// The whole machine.
    Machine,
}

/// What a counter's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows; two readings are subtracted.
    Total,
    /// A level at the moment of reading.
    Level,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanos,
}

/// One observed quantity.
#[derive(Debug)]
pub struct Counter {
    /// The name in records: what it counts, unit last where it is not a plain count.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Whose events.
    pub scope: Scope,
    /// Growing or a level.
    pub kind: Kind,
    /// What it says and does not say, with its source (man page, kernel file).
    pub doc: &'static str,
}

/// A place that several counters are read from at once.
pub struct Source {
    /// Short name, as the file.
    pub name: &'static str,
    /// What it tells, in one line.
    pub summary: &'static str,
    /// What the machine must have for it.
    pub needs: &'static [&'static Need],
    /// Its counters.
    pub counters: &'static [Counter],
    /// Opens what is read for this scene.
    pub open: fn(&Scene) -> std::result::Result<Box<dyn Reading>, Missing>,
}

/// An opened source.
pub trait Reading: Send {
    /// Fills one value per counter of the source, in their order; `None` where this one cannot be read (any more).
    fn read(&mut self, values: &mut [Option<u64>]);
}

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The process.
    pub pid: Option<u32>,
    /// Where its memory is limited.
    pub cgroup: Option<CgroupDir>,
    /// The files it reaches. Opened by the observer for asking about residency.
    pub files: Vec<PathBuf>,
}

/// The directory of a memory cgroup, by the version of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupDir {
    /// The memory controller's hierarchy of version 1.
    V1(PathBuf),
    /// The unified hierarchy.
    V2(PathBuf),
}

/// The opened sources of a scene.
pub struct Observer {
    open: Vec<(&'static Source, Box<dyn Reading>)>,
    missing: Vec<Missing>,
}

/// One reading of every counter, at one moment of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When the reading began.
    pub at: Nanos,
    /// One value per counter, in the order of [`Observer::counters`].
    pub values: Vec<Option<u64>>,
}

impl Observer {
    /// Opens every source that works here; what doesn't is in [`missing`](Observer::missing).
    pub fn open(scene: &Scene) -> Observer {
        let mut observer = Observer { open: Vec::new(), missing: Vec::new() };
        for source in ALL {
            let unmet = source.needs.iter().find_map(|need| need.met().err());
            match unmet.map_or_else(|| (source.open)(scene), Err) {
                Ok(reading) => observer.open.push((source, reading)),
                Err(missing) => observer.missing.push(missing),
            }
        }
        observer
    }

    /// The sources that could not be opened, with reasons.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The counters of the opened sources, in the order of a snapshot's values.
    pub fn counters(&self) -> impl Iterator<Item = &'static Counter> {
        self.open.iter().flat_map(|(source, _)| source.counters.iter())
    }

    /// Reads every counter once. Costs some tens of microseconds; nothing of it runs in the observed process.
    pub fn read(&mut self) -> Snapshot {
        let at = crate::sys::clock::monotonic();
        let mut values = vec![None; self.counters().count()];
        let mut rest = values.as_mut_slice();
        for (source, reading) in &mut self.open {
            let (own, others) = rest.split_at_mut(source.counters.len());
            reading.read(own);
            rest = others;
        }
        Snapshot { at, values }
    }
}

/// stub
pub fn hidden_flushes() -> Option<String> {
    None
}
