//! Which bytes of a shared mapping each reader shows or changes: each publishes its range in a slot of its own and then
//! checks the others' slots, so that of two that collide at least one sees the other (Dekker's order: publish, fence, check).
//!
//! | word of a slot | meaning |
//! | --- | --- |
//! | state | 0 idle, 1 bytes are shown, 2 bytes are changed |
//! | begin, end | the range, while it is not idle |
//! | thread | the claiming thread |
//!
//! A claim costs a fence and a check of each sibling's state; it writes nothing that others write. The transitions work on
//! any atomic word, so that a model checker runs this very code (`tests/claims.rs`).

use crate::error::{Error, Result};
use crate::sys::page_state::Word;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const IDLE: u64 = 0;

/// How bytes are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For reading, together with other readers.
    Shared = 1,
    /// For changing, alone.
    Exclusive = 2,
}

/// Why a claim was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another thread holds some of the bytes; try again.
    Busy,
    /// The same, while this thread holds a claim already: it might wait for itself.
    Holding,
}

/// One reader's claim.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Slot<W> {
    state: W,
    begin: W,
    end: W,
    thread: W,
}

impl<W: Word> Slot<W> {
    /// An idle slot of words that are 0.
    pub fn new(zero: impl Fn() -> W) -> Slot<W> {
        Slot { state: zero(), begin: zero(), end: zero(), thread: zero() }
    }

    /// Claims `range` for `thread`, unless one of the `others` excludes it by holding some of the bytes. `others` is called
    /// after the claim is published, so that a slot that is missing in it was registered later, and will see the claim.
    pub fn claim<'s>(
        &self,
        range: &Range<u64>,
        kind: Kind,
        thread: u64,
        others: impl IntoIterator<Item = &'s Slot<W>>,
    ) -> std::result::Result<(), Conflict>
    where
        W: 's,
    {
        // Release: whoever reads a word of this claim sees what was done under the previous claim.
        self.begin.store(range.start, Ordering::Release);
        self.end.store(range.end, Ordering::Release);
        self.thread.store(thread, Ordering::Release);
        self.state.store(kind as u64, Ordering::Release);
        W::fence(Ordering::SeqCst);
        let (mut meets, mut holds) = (false, false);
        for other in others {
            let Some(found) = other.look() else { continue };
            holds |= found.thread == thread;
            meets |= found.excludes(range, kind);
        }
        match (meets, holds) {
            (false, _) => Ok(()),
            (true, false) => Err(self.withdraw(Conflict::Busy)),
            (true, true) => Err(self.withdraw(Conflict::Holding)),
        }
    }

    fn withdraw(&self, conflict: Conflict) -> Conflict {
        self.release();
        conflict
    }

    /// Ends the claim.
    pub fn release(&self) {
        // Release: what was done under the claim is visible to whoever finds it ended.
        self.state.store(IDLE, Ordering::Release);
    }

    /// The claim as it is now; none while it is idle.
    ///
    /// Words of two claims may be mixed. Then the first has ended, and the second was published after the claim that checks: it
    /// sees that one and withdraws, so whatever is found here does no harm.
    fn look(&self) -> Option<Found> {
        let state = self.state.load(Ordering::Acquire);
        let begin = self.begin.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let thread = self.thread.load(Ordering::Acquire);
        (state != IDLE).then_some(Found { state, begin, end, thread })
    }
}

/// A claim that was found.
struct Found {
    state: u64,
    begin: u64,
    end: u64,
    thread: u64,
}

impl Found {
    fn excludes(&self, range: &Range<u64>, kind: Kind) -> bool {
        let both_read = self.state == Kind::Shared as u64 && kind == Kind::Shared;
        !both_read && self.begin < range.end && range.start < self.end
    }
}

/// The slots of all readers that share a mapping.
#[derive(Debug, Default)]
pub struct Claims {
    slots: Mutex<Vec<Arc<Slot<AtomicU64>>>>,
    /// Grows with each slot that is added or removed.
    version: AtomicU64,
}

/// One of the readers that share a mapping.
#[derive(Debug)]
pub struct Claimant {
    claims: Arc<Claims>,
    slot: Arc<Slot<AtomicU64>>,
    /// The slots of the others, as of `version`.
    others: Vec<Arc<Slot<AtomicU64>>>,
    version: u64,
}

/// A granted claim; it ends on drop.
#[derive(Debug)]
pub struct Held<'c>(&'c Slot<AtomicU64>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Claims {
    /// Another reader that shares it.
    pub fn claimant(self: &Arc<Claims>) -> Claimant {
        let slot = Arc::new(Slot::default());
        self.change(|slots| slots.push(Arc::clone(&slot)));
        // The first claim fetches the others.
        Claimant { claims: Arc::clone(self), slot, others: Vec::new(), version: 0 }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Slot<AtomicU64>>>)) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut slots);
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Claimant {
    fn drop(&mut self) {
        self.claims.change(|slots| slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot)));
    }
}

/// Attempts at once; then attempts with a yield between them; after these one attempt now and then.
const PATIENCE: [u32; 2] = [16, 1000];

impl Claimant {
    /// Claims the bytes `range`; waits while others exclude it by holding some of them.
    ///
    /// Errors: Invalid (this thread holds a claim already, and would wait while holding it).
    pub fn claim(&mut self, range: Range<u64>, kind: Kind) -> Result<Held<'_>> {
        for tries in 0.. {
            match self.try_claim(&range, kind) {
                Ok(()) => break,
                Err(Conflict::Holding) => return Err(holding(&range)),
                Err(Conflict::Busy) => give_way(tries),
            }
        }
        Ok(Held(&self.slot))
    }

    fn try_claim(&mut self, range: &Range<u64>, kind: Kind) -> std::result::Result<(), Conflict> {
        let Claimant { claims, slot, others, version } = self;
        let found = std::iter::once_with(|| {
            refresh(claims, slot, others, version);
            others.iter().map(|other| &**other)
        });
        slot.claim(range, kind, this_thread(), found.flatten())
    }
}

/// Completes `others` where slots were added or removed.
fn refresh(claims: &Claims, own: &Arc<Slot<AtomicU64>>, others: &mut Vec<Arc<Slot<AtomicU64>>>, version: &mut u64) {
    let now = claims.version.load(Ordering::Acquire);
    if now == *version {
        return;
    }
    let slots = claims.slots.lock().unwrap_or_else(PoisonError::into_inner);
    *version = claims.version.load(Ordering::Acquire);
    *others = slots.iter().filter(|slot| !Arc::ptr_eq(slot, own)).map(Arc::clone).collect();
}

fn give_way(tries: u32) {
    match tries {
        _ if tries < PATIENCE[0] => std::hint::spin_loop(),
        _ if tries < PATIENCE[1] => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

#[cold]
fn holding(range: &Range<u64>) -> Error {
    Error::Invalid(format!(
        "the bytes {} to {} are in use by another reader of the same mapping, and this thread is visiting or updating others just \
         now, so that waiting might never end; return from the visit or update first",
        range.start, range.end
    ))
}

/// A number that no other thread has; never 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! { static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed); }
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const READ: Kind = Kind::Shared;
    const CHANGE: Kind = Kind::Exclusive;

    fn pair() -> (Claimant, Claimant) {
        let claims = Arc::new(Claims::default());
        (claims.claimant(), claims.claimant())
    }

    #[test]
    fn only_claims_that_share_a_byte_and_of_which_one_changes_exclude_each_other() {
        let granted = |first: (Range<u64>, Kind), second: (Range<u64>, Kind)| {
            let (mut one, mut other) = pair();
            let _held = one.claim(first.0, first.1).unwrap();
            other.try_claim(&second.0, second.1).is_ok()
        };

        assert!(granted((10..20, READ), (10..20, READ)));
        for (one, other) in [(READ, CHANGE), (CHANGE, READ), (CHANGE, CHANGE)] {
            for range in [10..20, 0..11, 19..30, 12..13, 0..30] {
                assert!(!granted((10..20, one), (range.clone(), other)), "{range:?}");
            }
            for range in [0..10, 20..30] {
                assert!(granted((10..20, one), (range.clone(), other)), "{range:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_holds_a_claim_gets_an_error_instead_of_waiting() {
        let claims = Arc::new(Claims::default());
        let [mut first, mut second, mut third] = [0; 3].map(|_| claims.claimant());
        let held = first.claim(0..10, READ).unwrap();

        let refused = second.claim(5..6, CHANGE).map(drop);

        assert!(matches!(refused, Err(Error::Invalid(_))));
        drop(second.claim(20..30, CHANGE).expect("others' bytes are free"));
        drop(held);
        second.claim(5..6, CHANGE).expect("nobody has them any more");
        // Held by another thread: this one would wait while holding a claim.
        let _elsewhere =
            std::thread::scope(|scope| scope.spawn(|| third.claim(40..50, CHANGE).unwrap()).join().unwrap());
        let _held = first.claim(0..10, READ).unwrap();
        assert!(matches!(second.claim(40..41, READ).map(drop), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_conflicting_claim_waits_until_the_other_ends() {
        let (mut one, mut other) = pair();
        let held = one.claim(0..10, CHANGE).unwrap();
        let (sender, receiver) = channel();

        std::thread::scope(|scope| {
            let sender = &sender;
            scope.spawn(move || {
                let _held = other.claim(9..20, READ).unwrap();
                sender.send("second").unwrap();
            });
            sender.send("first").unwrap();
            drop(held);
        });

        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["first", "second"]);
    }

    #[test]
    fn a_claimant_that_came_later_is_seen_and_one_that_went_leaves_nothing() {
        let claims = Arc::new(Claims::default());
        let mut first = claims.claimant();
        drop(first.claim(0..10, CHANGE).unwrap());
        let mut later = claims.claimant();
        let held = later.claim(0..10, READ).unwrap();

        assert_eq!(first.try_claim(&(0..10), CHANGE), Err(Conflict::Holding));

        drop(held);
        drop(later);
        assert_eq!(first.try_claim(&(0..10), CHANGE), Ok(()));
        assert_eq!(first.others.len(), 0);
    }

    #[test]
    fn a_claim_ends_though_its_holder_panics() {
        let (mut one, mut other) = pair();

        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = one.claim(0..10, CHANGE).unwrap();
            panic!("while it is held");
        }));

        assert!(ended.is_err());
        assert_eq!(other.try_claim(&(0..10), CHANGE), Ok(()));
    }
}
