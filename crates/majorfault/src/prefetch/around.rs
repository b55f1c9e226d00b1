//! The decorator: a reader whose visits feed a predictor, and whose predictions are read ahead, by the visiting thread
//! itself or by a helper beside it.

use crate::access::{Filler, Reader, Urgency, Visitor};
use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::Switch;
use crate::prefetch::Predictor;
use crate::prefetch::cached::Cached;
use crate::prefetch::merge::Merge;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Bursts that wait for the helper, at most.
const QUEUED_BURSTS: usize = 64;

/// Extents visited before they are let go of together: one call for many.
const RELEASE_BATCH: usize = 256;

crate::choices! {
    /// Who does the system calls that read ahead.
    pub enum By {
        /// Whoever is better for the policy.
        Policy = "auto",
        /// The visiting thread, between two extents.
        Caller = "caller",
        /// A thread beside it: worth it where the calls block or the processor has nothing else to do.
        Helper = "helper",
    }
}

/// A reader that reads ahead of its visits as a policy says. Updates pass through.
pub struct Prefetching {
    reader: Box<dyn Reader>,
    ahead: Ahead,
}

/// How hints are given.
#[derive(Clone, Debug)]
pub(super) struct Hints {
    /// How wanted extents are joined.
    pub merge: Merge,
    /// What needs no hint.
    pub cached: Cached,
    /// Who gives them.
    pub by: By,
    /// Whether to let go of what was visited.
    pub release: Switch,
}

/// All that is beside the reader itself, so that it can work while the reader visits.
struct Ahead {
    predictor: Box<dyn Predictor>,
    issuer: Issuer,
    hints: Hints,
    wanted: Vec<Extent>,
    requests: Vec<Extent>,
    visited: Vec<Extent>,
    error: Option<Error>,
}

/// A policy's hints for accesses that somebody else makes, as where another program is watched.
pub struct Follower {
    ahead: Ahead,
    /// Requests that were not given yet.
    queue: VecDeque<Extent>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("hints", &self.ahead.hints).field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl fmt::Debug for Prefetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetching").field("hints", &self.ahead.hints).finish_non_exhaustive()
    }
}

impl Follower {
    /// Gives the hints through `reader`, from the calling thread.
    pub(super) fn new(reader: Box<dyn Reader>, predictor: Box<dyn Predictor>, hints: Hints) -> Follower {
        Follower { ahead: Ahead::new(predictor, Issuer::Caller(reader), hints), queue: VecDeque::new() }
    }

    /// An access was made. Returns whether the policy wants something read ahead now: see [`announce`](Self::announce).
    #[inline]
    pub fn observe(&mut self, extent: Extent) -> bool {
        self.ahead.predictor.observe(extent, &mut self.ahead.wanted);
        !self.ahead.wanted.is_empty()
    }

    /// Reads ahead what the policy wanted, at most `limit` requests now, and shows what of it was not cached. Whether more is
    /// left for the next time. Where the device's queue is full, each request waits for another to end.
    ///
    /// Errors: what the advice says (the file became unreadable), or the policy.
    pub fn announce(&mut self, limit: usize, mut show: impl FnMut(Extent)) -> Result<bool> {
        let Ahead { hints, wanted, requests, issuer, .. } = &mut self.ahead;
        requests.clear();
        hints.merge.requests(wanted, requests);
        // A policy that begins anew where it was before has better to do than what it wanted then.
        if requests.first().zip(self.queue.back()).is_some_and(|(new, old)| new.offset <= old.offset) {
            self.queue.clear();
        }
        self.queue.extend(requests.drain(..));
        requests.extend(self.queue.drain(..limit.min(self.queue.len())));
        hints.cached.leave_out(requests);
        requests.iter().for_each(|request| show(*request));
        if !requests.is_empty() {
            issuer.will_need(requests)?;
        }
        self.ahead.check()?;
        Ok(!self.queue.is_empty())
    }

    /// Forgets what the policy wanted and was not read ahead yet.
    pub fn discard(&mut self) {
        self.ahead.wanted.clear();
        self.queue.clear();
    }

    /// Wants `extents`, beside what the policy wants.
    pub fn want(&mut self, extents: impl IntoIterator<Item = Extent>) {
        self.ahead.wanted.extend(extents);
    }

    /// For another thread of the program: without any experience.
    ///
    /// Errors: as `Reader::sibling`.
    pub fn sibling(&self) -> Result<Follower> {
        let Ahead { predictor, issuer, hints, .. } = &self.ahead;
        let ahead = Ahead::new(predictor.sibling()?, issuer.sibling()?, hints.clone());
        Ok(Follower { ahead, queue: VecDeque::new() })
    }
}

impl Prefetching {
    /// `reader` with `predictor` around it.
    ///
    /// Errors: those of `Reader::sibling` (the hints are given through one), Io where no thread can be made.
    pub(super) fn new(reader: Box<dyn Reader>, predictor: Box<dyn Predictor>, hints: Hints) -> Result<Prefetching> {
        let issuer = match hints.by {
            By::Policy | By::Caller => Issuer::Caller(reader.sibling()?),
            By::Helper => Issuer::Helper(Helper::new(reader.sibling()?)?),
        };
        Ok(Prefetching { reader, ahead: Ahead::new(predictor, issuer, hints) })
    }
}

impl Ahead {
    fn new(predictor: Box<dyn Predictor>, issuer: Issuer, hints: Hints) -> Ahead {
        let (wanted, requests, visited) = Default::default();
        Ahead { predictor, issuer, hints, wanted, requests, visited, error: None }
    }

    #[inline]
    fn observe(&mut self, extent: Extent) {
        self.predictor.observe(extent, &mut self.wanted);
        if !self.wanted.is_empty() {
            self.issue();
        }
    }

    #[inline(never)]
    fn issue(&mut self) {
        self.hints.merge.requests(&mut self.wanted, &mut self.requests);
        self.hints.cached.leave_out(&mut self.requests);
        if self.requests.is_empty() {
            return;
        }
        let issued = self.issuer.will_need(&mut self.requests);
        self.error = self.error.take().or(issued.err());
    }

    /// `extent` was visited.
    #[inline]
    fn leave(&mut self, extent: Extent) {
        if self.hints.release.is_on() {
            self.visited.push(extent);
            if self.visited.len() >= RELEASE_BATCH {
                self.let_go();
            }
        }
    }

    fn let_go(&mut self) {
        // The page that the next extent may share stays: pages are let go of whole.
        let last = self.visited.pop();
        self.hints.merge.requests(&mut self.visited, &mut self.requests);
        let released = self.issuer.done_with(&mut self.requests);
        self.error = self.error.take().or(released.err());
        self.visited.extend(last);
    }

    /// What went wrong with hints since the last call.
    fn check(&mut self) -> Result<()> {
        let late = self.issuer.late_error();
        self.error.take().or(late).map_or(Ok(()), Err)?;
        self.predictor.check()
    }
}

/// Who gives the hints.
enum Issuer {
    Caller(Box<dyn Reader>),
    Helper(Helper),
}

/// What a helper is told to do.
enum Burst {
    WillNeed(Vec<Extent>),
    DoneWith(Vec<Extent>),
}

/// A thread that gives hints through a reader of its own, in the order in which they come.
struct Helper {
    bursts: Option<SyncSender<Burst>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// For further helpers.
    reader: Box<dyn Reader>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Issuer {
    fn will_need(&mut self, requests: &mut Vec<Extent>) -> Result<()> {
        match self {
            Issuer::Caller(reader) => {
                let given = reader.will_need(requests, Urgency::Soon);
                requests.clear();
                given
            }
            Issuer::Helper(helper) => {
                helper.send(Burst::WillNeed(std::mem::take(requests)));
                Ok(())
            }
        }
    }

    fn done_with(&mut self, requests: &mut Vec<Extent>) -> Result<()> {
        match self {
            Issuer::Caller(reader) => {
                let given = reader.done_with(requests);
                requests.clear();
                given
            }
            Issuer::Helper(helper) => {
                helper.send(Burst::DoneWith(std::mem::take(requests)));
                Ok(())
            }
        }
    }

    fn late_error(&mut self) -> Option<Error> {
        match self {
            Issuer::Caller(_) => None,
            Issuer::Helper(helper) => helper.shared.error.lock().ok()?.take(),
        }
    }

    fn sibling(&self) -> Result<Issuer> {
        match self {
            Issuer::Caller(reader) => Ok(Issuer::Caller(reader.sibling()?)),
            Issuer::Helper(helper) => Ok(Issuer::Helper(Helper::new(helper.reader.sibling()?)?)),
        }
    }
}

impl Helper {
    fn new(reader: Box<dyn Reader>) -> Result<Helper> {
        let (bursts, inbox) = sync_channel(QUEUED_BURSTS);
        let shared = Arc::new(Shared::default());
        let (hands, theirs) = (reader.sibling()?, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("prefetch".to_owned())
            .spawn(move || help(hands, &inbox, &theirs))
            .map_err(|error| Error::io("start a thread that reads ahead", "clone", error))?;
        Ok(Helper { bursts: Some(bursts), thread: Some(thread), shared, reader })
    }

    /// Never waits: where the helper is so far behind, the visit has passed what it is told. A helper that ended left its
    /// error in `shared`.
    fn send(&self, burst: Burst) {
        if let Some(bursts) = &self.bursts {
            let _ = bursts.try_send(burst);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.bursts = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the helper was printed by its hook; there is nobody left whom it concerns.
            let _ = thread.join();
        }
    }
}

/// The helper's life. Extents are handed on one by one, so that the end does not wait for a long burst.
fn help(mut reader: Box<dyn Reader>, inbox: &Receiver<Burst>, shared: &Shared) {
    while let Ok(burst) = inbox.recv() {
        let given = match burst {
            Burst::DoneWith(extents) => reader.done_with(&extents),
            Burst::WillNeed(extents) => extents.chunks(16).try_for_each(|some| {
                if shared.stop.load(Ordering::Relaxed) { Ok(()) } else { reader.will_need(some, Urgency::Soon) }
            }),
        };
        if let (Err(error), Ok(mut latched)) = (given, shared.error.lock()) {
            *latched = latched.take().or(Some(error));
        }
    }
}

/// Stands between reader and visitor.
struct Watching<'a> {
    ahead: &'a mut Ahead,
    extents: &'a [Extent],
    visitor: &'a mut dyn Visitor,
}

impl Visitor for Watching<'_> {
    fn submitted(&mut self, index: usize) {
        self.visitor.submitted(index);
    }

    #[inline]
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        // Before the visitor: a mapping's bytes are not read yet, and what comes next can be under way meanwhile.
        self.ahead.observe(self.extents[index]);
        let flow = self.visitor.see(index, bytes);
        self.ahead.leave(self.extents[index]);
        flow
    }
}

impl Reader for Prefetching {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        self.ahead.predictor.announced(extents);
        self.reader.visit(extents, &mut Watching { ahead: &mut self.ahead, extents, visitor })?;
        self.ahead.check()
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.reader.update(extents, filler)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.reader.check_update(extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.reader.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let Ahead { predictor, issuer, hints, .. } = &self.ahead;
        let ahead = Ahead::new(predictor.sibling()?, issuer.sibling()?, hints.clone());
        Ok(Box::new(Prefetching { reader: self.reader.sibling()?, ahead }))
    }

    fn will_need(&mut self, extents: &[Extent], urgency: Urgency) -> Result<()> {
        self.reader.will_need(extents, urgency)
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        self.reader.done_with(extents)
    }
}
