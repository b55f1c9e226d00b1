//! The decorator: a reader that feeds its visits to a predictor and reads the predictions ahead, by the visiting thread
//! itself or by a helper thread.

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

/// The most bursts that wait for the helper.
const QUEUED_BURSTS: usize = 64;

/// The most extents of a burst that a helper hands on at once: where a hint waits for its reads, as many are under way.
const HANDED_ON: usize = 32;

/// Extents visited before they are released together: one call for many.
const RELEASE_BATCH: usize = 256;

crate::choices! {
    /// Which thread makes the system calls that read ahead.
    pub enum By {
        /// The one that suits the policy.
        Policy = "auto",
        /// The visiting thread, between two extents.
        Caller = "caller",
        /// A helper thread: worth it where the calls block or a processor is idle.
        Helper = "helper",
    }
}

/// A reader that reads ahead of its visits as a policy decides. Updates pass through.
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
    /// Which thread gives them.
    pub by: By,
    /// Threads that give them where helpers do, for each visiting thread.
    pub helpers: usize,
    /// Whether to release what was visited.
    pub release: Switch,
}

/// Everything except the reader itself, so that it can work while the reader visits.
struct Ahead {
    predictor: Box<dyn Predictor>,
    issuer: Issuer,
    hints: Hints,
    wanted: Vec<Extent>,
    requests: Vec<Extent>,
    visited: Vec<Extent>,
    error: Option<Error>,
}

/// A policy's hints for accesses that another program makes, as where a program is watched.
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
    /// Gives the hints through `reader`.
    ///
    /// Errors: as `Prefetching::new`.
    pub(super) fn new(reader: Box<dyn Reader>, predictor: Box<dyn Predictor>, hints: Hints) -> Result<Follower> {
        let issuer = Issuer::new(&hints, reader)?;
        Ok(Follower { ahead: Ahead::new(predictor, issuer, hints), queue: VecDeque::new() })
    }

    /// The caller itself is about to use `extent`: reads ahead what the policy wants because of it.
    ///
    /// Errors: what went wrong with hints since the last call, or with the policy.
    pub(crate) fn meet(&mut self, extent: Extent) -> Result<()> {
        self.ahead.observe(extent);
        self.ahead.check()
    }

    /// Records an access. Returns whether the policy wants something read ahead now: see [`announce`](Self::announce).
    #[inline]
    pub fn observe(&mut self, extent: Extent) -> bool {
        self.ahead.predictor.observe(extent, &mut self.ahead.wanted);
        !self.ahead.wanted.is_empty()
    }

    /// Reads ahead what the policy wanted, at most `limit` requests now, and shows those that were not cached. Returns whether more
    /// is left for the next call. Where the device's queue is full, each request waits until another has ended.
    ///
    /// Errors: those of the advice (the file became unreadable) and of the policy.
    pub fn announce(&mut self, limit: usize, mut show: impl FnMut(Extent)) -> Result<bool> {
        let Ahead { hints, wanted, requests, issuer, .. } = &mut self.ahead;
        requests.clear();
        hints.merge.requests(wanted, requests);
        // A policy that starts anew at an earlier place no longer needs what it wanted before.
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

    /// Drops what the policy wanted and was not read ahead yet.
    pub fn discard(&mut self) {
        self.ahead.wanted.clear();
        self.queue.clear();
    }

    /// Adds `extents` to what the policy wants.
    pub fn want(&mut self, extents: impl IntoIterator<Item = Extent>) {
        self.ahead.wanted.extend(extents);
    }

    /// The same for another thread of the program, without experience.
    ///
    /// Errors: as `Reader::sibling`.
    pub fn sibling(&self) -> Result<Follower> {
        let Ahead { predictor, issuer, hints, .. } = &self.ahead;
        let ahead = Ahead::new(predictor.sibling()?, issuer.sibling()?, hints.clone());
        Ok(Follower { ahead, queue: VecDeque::new() })
    }
}

impl Prefetching {
    /// Puts `predictor` around `reader`.
    ///
    /// Errors: those of `Reader::sibling` (the hints are given through one), Io where no thread can be started.
    pub(super) fn new(reader: Box<dyn Reader>, predictor: Box<dyn Predictor>, hints: Hints) -> Result<Prefetching> {
        let issuer = Issuer::new(&hints, reader.sibling()?)?;
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
        // The page that the next extent may share stays: pages are released whole.
        let last = self.visited.pop();
        self.hints.merge.requests(&mut self.visited, &mut self.requests);
        let released = self.issuer.done_with(&mut self.requests);
        self.error = self.error.take().or(released.err());
        self.visited.extend(last);
    }

    /// What failed in hints since the last call.
    fn check(&mut self) -> Result<()> {
        let late = self.issuer.late_error();
        self.error.take().or(late).map_or(Ok(()), Err)?;
        self.predictor.check()
    }
}

/// The thread that gives the hints.
enum Issuer {
    Caller(Box<dyn Reader>),
    Helper(Helper),
}

/// What the helper is asked to do.
enum Burst {
    WillNeed(Vec<Extent>),
    DoneWith(Vec<Extent>),
}

/// Threads that give hints through readers of their own; each takes the next burst in the order in which they arrive.
struct Helper {
    bursts: Option<SyncSender<Burst>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// To make further helpers.
    reader: Box<dyn Reader>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Issuer {
    fn new(hints: &Hints, reader: Box<dyn Reader>) -> Result<Issuer> {
        Ok(match hints.by {
            By::Policy | By::Caller => Issuer::Caller(reader),
            By::Helper => Issuer::Helper(Helper::new(reader, hints.helpers)?),
        })
    }

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
            Issuer::Helper(helper) => Ok(Issuer::Helper(Helper::new(helper.reader.sibling()?, helper.threads.len())?)),
        }
    }
}

impl Helper {
    fn new(reader: Box<dyn Reader>, threads: usize) -> Result<Helper> {
        let (bursts, inbox) = sync_channel(QUEUED_BURSTS);
        let inbox = Arc::new(Mutex::new(inbox));
        let shared = Arc::<Shared>::default();
        let mut helper = Helper { bursts: Some(bursts), threads: Vec::new(), shared: Arc::clone(&shared), reader };
        for _ in 0..threads {
            let (hands, inbox, shared) = (helper.reader.sibling()?, Arc::clone(&inbox), Arc::clone(&shared));
            let thread = std::thread::Builder::new()
                .name("prefetch".to_owned())
                .spawn(move || help(hands, &inbox, &shared))
                .map_err(|error| Error::io("start a thread that reads ahead", "clone", error))?;
            helper.threads.push(thread);
        }
        Ok(helper)
    }

    /// Never waits: where the helper is that far behind, the visit has already passed the request. A helper that ended left its
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
        for thread in self.threads.drain(..) {
            // A panic of the helper was printed by its hook; nobody else needs it.
            let _ = thread.join();
        }
    }
}

/// A helper's loop. Extents are handed on a few at a time, so that the end does not wait for a long burst.
fn help(mut reader: Box<dyn Reader>, inbox: &Mutex<Receiver<Burst>>, shared: &Shared) {
    let next = || inbox.lock().ok()?.recv().ok();
    while let Some(burst) = next() {
        let given = match burst {
            Burst::DoneWith(extents) => reader.done_with(&extents),
            Burst::WillNeed(extents) => extents.chunks(HANDED_ON).try_for_each(|some| {
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

    fn arrived(&mut self, index: usize) {
        self.visitor.arrived(index);
    }

    #[inline]
    fn see(&mut self, index: usize, bytes: &[u8]) -> ControlFlow<()> {
        // Before the visitor: the bytes of a mapping are not read yet, and the next reads can be under way meanwhile.
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

    fn update_and_sync(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.reader.update_and_sync(extents, filler)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::time::Duration;

    /// A reader whose hints wait until two are given at once, and count those that were.
    #[derive(Clone, Default)]
    struct Meeting(Arc<(Mutex<[usize; 2]>, Condvar)>);

    impl Reader for Meeting {
        fn visit(&mut self, _: &[Extent], _: &mut dyn Visitor) -> Result<()> {
            Ok(())
        }

        fn sibling(&self) -> Result<Box<dyn Reader>> {
            Ok(Box::new(self.clone()))
        }

        fn will_need(&mut self, _: &[Extent], _: Urgency) -> Result<()> {
            let (state, came) = &*self.0;
            let mut now = state.lock().unwrap();
            now[0] += 1;
            came.notify_all();
            // Alone, it would wait for ever.
            let (mut now, _) = came.wait_timeout_while(now, Duration::from_secs(5), |now| now[0] < 2).unwrap();
            now[1] += usize::from(now[0] == 2);
            came.notify_all();
            Ok(())
        }
    }

    #[test]
    fn two_helpers_give_two_bursts_at_once() {
        let reader = Meeting::default();
        let helper = Helper::new(Box::new(reader.clone()), 2).unwrap();

        (0..2).for_each(|_| helper.send(Burst::WillNeed(vec![Extent { offset: 0, length: 4096 }])));

        let (state, came) = &*reader.0;
        let now = state.lock().unwrap();
        let (now, _) = came.wait_timeout_while(now, Duration::from_secs(10), |now| now[1] < 2).unwrap();
        assert_eq!(*now, [2, 2]);
    }
}
