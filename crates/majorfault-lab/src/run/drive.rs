//! One thread of a trial: extents from the plan, bytes through the reader, time into the meter.

use crate::data::{MadeContent, sum_words};
use crate::run::check::Check;
use crate::run::meter::{Meter, Metered, Until};
use crate::trial::{Direction, Trial};
use crate::workload::{self, Plan, Space};
use majorfault::access::{Filler, Reader, Visitor};
use majorfault::{Extent, Result};
use std::ops::ControlFlow;

/// Extents given to a reader at once: enough that filling and draining a queue does not show.
const BATCH: usize = 4096;

/// Written extents for each one that is kept and read back.
const KEEP_ONE_IN: u64 = 61;

/// What one thread returns.
pub struct Driven {
    /// Counts and time.
    pub metered: Metered,
    /// Whether the bytes were right.
    pub check: Check,
    /// A sample of the extents written.
    pub written: Vec<Extent>,
    /// Why it ended early, if it did.
    pub error: Option<majorfault::Error>,
}

/// The thread's state that the reader's callbacks change.
struct Hands<'a, 'b> {
    meter: &'a mut Meter<'b>,
    check: &'a mut Check,
    extents: &'a [Extent],
    /// Number of the batch's first access.
    first: u64,
    /// Sum of all words seen.
    seen: u64,
    content: MadeContent,
    generation: u64,
}

impl Visitor for Hands<'_, '_> {
    fn submitted(&mut self, index: usize) {
        self.meter.submitted(index);
    }

    fn arrived(&mut self, index: usize) {
        self.meter.arrived(index);
    }

    #[inline]
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        let sum = sum_words(bytes);
        self.seen = self.seen.wrapping_add(sum);
        self.check.note(self.first + index as u64, self.extents[index], sum);
        self.meter.ended(index, bytes.len())
    }
}

impl Filler for Hands<'_, '_> {
    fn submitted(&mut self, index: usize) {
        self.meter.submitted(index);
    }

    fn written(&mut self, index: usize) {
        self.meter.written(index);
    }

    fn fill(&mut self, index: usize, bytes: &mut [u8]) -> ControlFlow<()> {
        // Blocks of whole pages are a condition of writing trials, checked before they start.
        let _ = self.content.fill(self.extents[index], self.generation, bytes);
        self.meter.filled(index, bytes.len())
    }
}

/// Runs the trial's accesses of `space.thread` until `until`.
pub fn drive(
    trial: &Trial,
    space: Space,
    reader: &mut dyn Reader,
    check: Check,
    generation: u64,
    until: Until<'_>,
) -> Driven {
    let meter = Meter::new(until, trial.interval());
    let mut thread = Thread { trial, space, pass: 0, check, written: Vec::new(), generation, seen: 0, meter };
    let error = thread.run(reader).err();
    if error.is_some() {
        until.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    Driven { metered: thread.meter.finish(), check: thread.check, written: thread.written, error }
}

struct Thread<'a> {
    trial: &'a Trial,
    space: Space,
    /// How often the order was begun again.
    pass: u64,
    check: Check,
    written: Vec<Extent>,
    generation: u64,
    seen: u64,
    meter: Meter<'a>,
}

impl Thread<'_> {
    fn run(&mut self, reader: &mut dyn Reader) -> Result<()> {
        let mut plan = self.plan()?;
        let mut extents = Vec::with_capacity(BATCH);
        let mut first = 0u64;
        while self.meter.goes_on() {
            extents.clear();
            plan.next(self.seen, self.meter.room().min(BATCH as u64) as usize, &mut extents);
            if extents.is_empty() {
                if !self.trial.limits.time_based {
                    return Ok(());
                }
                self.pass += 1;
                plan = self.plan()?;
                continue;
            }
            self.batch(reader, &extents, first)?;
            first += extents.len() as u64;
        }
        Ok(())
    }

    fn plan(&self) -> Result<Box<dyn Plan>> {
        let space = Space { seed: self.space.seed.wrapping_add(self.pass << 40), ..self.space };
        (workload::named(&self.trial.workload.name)?.plan)(&space, &self.trial.workload.given())
    }

    fn batch(&mut self, reader: &mut dyn Reader, extents: &[Extent], first: u64) -> Result<()> {
        self.meter.batch();
        let content = self.trial.content();
        let mut hands = Hands {
            meter: &mut self.meter,
            check: &mut self.check,
            extents,
            first,
            seen: self.seen,
            content,
            generation: self.generation,
        };
        match self.trial.direction {
            Direction::Read => reader.visit(extents, &mut hands)?,
            Direction::Write => reader.update(extents, &mut hands)?,
        }
        self.seen = hands.seen;
        if self.trial.direction == Direction::Write {
            let made = extents.iter().zip(first..self.meter.accesses());
            self.written.extend(made.filter(|(_, number)| number % KEEP_ONE_IN == 0).map(|(extent, _)| *extent));
        }
        Ok(())
    }
}
