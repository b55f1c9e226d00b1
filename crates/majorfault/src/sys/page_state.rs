//! The state of a page of a buffer pool, in one word: its holders, whether it is dirty, and a version (after vmcache,
//! Leis et al., SIGMOD 2023, section 3.2).
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0–7 | 0 evicted, 1 free, 2–253 one to 252 readers, 254 one writer, 255 marked by the clock |
//! | 8 | changed since it was last written |
//! | 9–63 | version: grows each time a writer releases the page |
//!
//! A page that was never read is the word 0, so that memory which nobody touched yet serves as the words of any number of
//! pages.
//!
//! Pure transitions over any atomic word, fences included, so that a model checker runs these very lines with its own
//! (`tests/page_state.rs`): whoever uses them adds no ordering.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An atomic word; loom has its own.
pub trait Word {
    /// Reads.
    fn load(&self, order: Ordering) -> u64;
    /// Writes.
    fn store(&self, value: u64, order: Ordering);
    /// Replaces `current` by `new`, or returns the value that is there.
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64>;
    /// Subtracts; returns the value before.
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    /// Orders accesses of this thread, as `std::sync::atomic::fence`.
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, success, Ordering::Relaxed)
    }
    #[inline]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_sub(self, value, order)
    }
    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

const EVICTED: u64 = 0;
const FREE: u64 = 1;
const FIRST_READER: u64 = 2;
const MOST_READERS: u64 = 253;
const WRITER: u64 = 254;
const MARKED: u64 = 255;

const STATE: u64 = 0xff;
const DIRTY: u64 = 1 << 8;
const VERSION: u64 = 1 << 9;

/// The word of a page that was never read.
pub const NEW: u64 = EVICTED;

/// Why a page was not available at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another holder has it; try again.
    Busy,
    /// It is not in memory.
    Evicted,
}

/// What a writer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The page's bytes are absent; they must be read, or the page released as evicted again.
    pub was_evicted: bool,
    /// The page is dirty: changed since it was last written.
    pub dirty: bool,
}

/// What became of a thread that wants a page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It is one of the readers of a page in memory.
    Reader,
    /// It is the only holder of a page whose bytes are absent: it brings them, or releases the page as evicted again.
    Filler,
}

/// What a writer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// A page that everybody may use.
    Free,
    /// The same, with the former writer as its first reader.
    Reading,
    /// A page without bytes.
    Evicted,
}

/// What the clock finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not in memory, or held: nothing for the clock.
    Skip,
    /// In memory and used since the clock last came.
    Used,
    /// In memory and not used since.
    Marked,
}

/// Becomes the only holder, whether the page is in memory or not.
pub fn lock(word: &impl Word) -> Result<Locked, Refused> {
    let found = word.load(Ordering::Relaxed);
    match found & STATE {
        FREE | MARKED | EVICTED => lock_from(word, found),
        _ => Err(Refused::Busy),
    }
}

/// Becomes the only holder of a page that is not in memory: a page that another thread brought meanwhile is refused, as it may
/// have been changed since.
pub fn lock_evicted(word: &impl Word) -> Result<(), Refused> {
    // Untouched memory is written at once. Read first, the kernel would show its page of zeros there, and the write after it would be a second fault,
    // with an interrupt of every processor that runs the program.
    if lock_from(word, NEW).is_ok() { Ok(()) } else { lock_evicted_again(word) }
}

/// The same of a page that was in memory before.
fn lock_evicted_again(word: &impl Word) -> Result<(), Refused> {
    let found = word.load(Ordering::Relaxed);
    if found & STATE == EVICTED { lock_from(word, found).map(drop) } else { Err(Refused::Busy) }
}

/// Becomes a reader of a page in memory, or the filler of one that is not. Only refused as busy.
pub fn enter(word: &impl Word) -> Result<Became, Refused> {
    // Untouched memory is written at once, as by [`lock_evicted`].
    if lock_from(word, NEW).is_ok() {
        return Ok(Became::Filler);
    }
    match share(word) {
        Ok(()) => Ok(Became::Reader),
        Err(Refused::Evicted) => lock_evicted_again(word).map(|()| Became::Filler),
        Err(Refused::Busy) => Err(Refused::Busy),
    }
}

/// Becomes the only holder if the clock marked the page and nobody has used it since.
pub fn lock_marked(word: &impl Word) -> Result<Locked, Refused> {
    let found = word.load(Ordering::Relaxed);
    if found & STATE == MARKED { lock_from(word, found) } else { Err(Refused::Busy) }
}

/// Becomes the only holder if the page is in memory, free and dirty.
pub fn lock_dirty(word: &impl Word) -> Result<Locked, Refused> {
    // Acquire: who finds the page clean comes after whoever wrote it.
    let found = word.load(Ordering::Acquire);
    match (found & STATE, found & DIRTY) {
        (FREE | MARKED, DIRTY) => lock_from(word, found),
        (EVICTED, _) | (_, 0) => Err(Refused::Evicted),
        _ => Err(Refused::Busy),
    }
}

fn lock_from<W: Word>(word: &W, found: u64) -> Result<Locked, Refused> {
    // Acquire: sees what the last holder did.
    word.compare_exchange(found, found & !STATE | WRITER, Ordering::Acquire).map_err(|_| Refused::Busy)?;
    // Readers without a hold must see the lock before what is written under it, as in every seqlock.
    W::fence(Ordering::Release);
    Ok(Locked { was_evicted: found & STATE == EVICTED, dirty: found & DIRTY != 0 })
}

/// Releases the page as its writer.
pub fn unlock(word: &impl Word, leave: Leave, dirty: bool) {
    let state = match leave {
        Leave::Free => FREE,
        Leave::Reading => FIRST_READER,
        Leave::Evicted => EVICTED,
    };
    // Nobody else changes the word of a page with a writer.
    let version = (word.load(Ordering::Relaxed) & !(STATE | DIRTY)).wrapping_add(VERSION);
    word.store(version | if dirty { DIRTY } else { 0 } | state, Ordering::Release);
}

/// Becomes one of the readers of a page in memory.
#[inline]
pub fn share(word: &impl Word) -> Result<(), Refused> {
    let found = word.load(Ordering::Relaxed);
    // One comparison for a page that is free or that others read: the next state is one reader more.
    let next = match (found & STATE).wrapping_sub(FREE) < MOST_READERS - FREE {
        true => found + 1,
        false => first_reader(found)?,
    };
    match word.compare_exchange(found, next, Ordering::Acquire) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refused::Busy),
    }
}

#[cold]
fn first_reader(found: u64) -> Result<u64, Refused> {
    match found & STATE {
        MARKED => Ok(found & !STATE | FIRST_READER),
        EVICTED => Err(Refused::Evicted),
        _ => Err(Refused::Busy),
    }
}

/// Releases the page as one of its readers.
#[inline]
pub fn unshare(word: &impl Word) {
    // Release: a later writer comes after our reads. The state of one reader less is the number before.
    let found = word.fetch_sub(1, Ordering::Release);
    debug_assert!((FIRST_READER..=MOST_READERS).contains(&(found & STATE)), "not a reader");
}

/// Begins to read without holding: returns the word found, to check afterwards.
#[inline]
pub fn begin(word: &impl Word) -> Result<u64, Refused> {
    // Acquire: sees what the last writer did, even if the clock passed since.
    let found = word.load(Ordering::Acquire);
    // One comparison for a page that is free or that others read.
    if (found & STATE).wrapping_sub(FREE) <= MOST_READERS - FREE { Ok(found) } else { begin_unusual(word, found) }
}

#[cold]
fn begin_unusual(word: &impl Word, found: u64) -> Result<u64, Refused> {
    let free = found & !STATE | FREE;
    match found & STATE {
        EVICTED => Err(Refused::Evicted),
        // Its user keeps it from being evicted by the next pass.
        MARKED => word.compare_exchange(found, free, Ordering::Relaxed).map(|_| free).map_err(|_| Refused::Busy),
        _ => Err(Refused::Busy),
    }
}

/// Whether what was read since [`begin`] found this word was the page's undisturbed content.
#[inline]
pub fn is_undisturbed<W: Word>(word: &W, found: u64) -> bool {
    // Whoever read what a writer wrote under its lock sees the lock, or what came after it.
    W::fence(Ordering::Acquire);
    let now = word.load(Ordering::Relaxed);
    now == found || is_still_there(now, found)
}

/// Readers, the clock, or a write to the file came meanwhile: none of them changes the bytes.
#[cold]
fn is_still_there(now: u64, found: u64) -> bool {
    (now ^ found) & !(STATE | DIRTY) == 0 && !matches!(now & STATE, WRITER | EVICTED)
}

/// The clock's hand passes: a page in use is marked, and evicted on the next pass unless somebody used it.
pub fn pass(word: &impl Word) -> Seen {
    let found = word.load(Ordering::Relaxed);
    match found & STATE {
        MARKED => Seen::Marked,
        FREE => {
            let _ = word.compare_exchange(found, found & !STATE | MARKED, Ordering::Relaxed);
            Seen::Used
        }
        _ => Seen::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word of this version, and its other fields.
    fn at(version: u64, rest: u64) -> u64 {
        version * VERSION + rest
    }

    const BUSY: Result<u64, Refused> = Err(Refused::Busy);
    const GONE: Result<u64, Refused> = Err(Refused::Evicted);

    /// The result of each transition on a word with this `state`, with a version and with and without a change: the new state,
    /// or why it was refused. Neither the version nor the change may be touched.
    fn transitions(state: u64, dirty: u64) -> [Result<u64, Refused>; 8] {
        let rest = at(77, dirty);
        let all: [fn(&AtomicU64) -> Option<Refused>; 8] = [
            |word| lock(word).err(),
            |word| lock_marked(word).err(),
            |word| lock_dirty(word).err(),
            |word| lock_evicted(word).err(),
            |word| enter(word).err(),
            |word| share(word).err(),
            |word| begin(word).err(),
            |word| {
                pass(word);
                None
            },
        ];
        all.map(|transition| {
            let word = AtomicU64::new(rest | state);
            let refused = transition(&word);
            let after = word.into_inner();
            assert_eq!(after & !STATE, rest, "state {state}: version and change stay");
            match refused {
                Some(refused) => {
                    assert_eq!(after, rest | state, "state {state}: what is refused changes nothing");
                    Err(refused)
                }
                None => Ok(after & STATE),
            }
        })
    }

    #[test]
    fn every_state_allows_what_it_should_and_nothing_else() {
        let writer = Ok(WRITER);
        //                      lock    marked  dirty   evicted enter    share    begin      pass
        #[rustfmt::skip]
        let dirty = [
            (FREE,         [writer, BUSY,   writer, BUSY,   Ok(2),   Ok(2),   Ok(FREE),  Ok(MARKED)]),
            (2,            [BUSY,   BUSY,   BUSY,   BUSY,   Ok(3),   Ok(3),   Ok(2),     Ok(2)]),
            (252,          [BUSY,   BUSY,   BUSY,   BUSY,   Ok(253), Ok(253), Ok(252),   Ok(252)]),
            (MOST_READERS, [BUSY,   BUSY,   BUSY,   BUSY,   BUSY,    BUSY,    Ok(253),   Ok(253)]),
            (WRITER,       [BUSY,   BUSY,   BUSY,   BUSY,   BUSY,    BUSY,    BUSY,      Ok(WRITER)]),
            (MARKED,       [writer, writer, writer, BUSY,   Ok(2),   Ok(2),   Ok(FREE),  Ok(MARKED)]),
            (EVICTED,      [writer, BUSY,   GONE,   writer, writer,  GONE,    GONE,      Ok(EVICTED)]),
        ];
        for (state, mut expected) in dirty {
            assert_eq!(transitions(state, DIRTY), expected, "state {state}, changed");
            // Nothing needs writing, whoever holds it.
            expected[2] = GONE;
            assert_eq!(transitions(state, 0), expected, "state {state}, unchanged");
        }
    }

    #[test]
    fn the_clock_learns_what_it_sees() {
        let see = |state| pass(&AtomicU64::new(at(5, DIRTY + state)));

        assert_eq!([2, MOST_READERS, WRITER, EVICTED].map(see), [Seen::Skip; 4]);
        assert_eq!((see(FREE), see(MARKED)), (Seen::Used, Seen::Marked));
    }

    #[test]
    fn a_writer_learns_what_it_finds() {
        let find = |state| lock(&AtomicU64::new(at(5, state))).unwrap();

        assert_eq!(find(FREE), Locked { was_evicted: false, dirty: false });
        assert_eq!(find(MARKED + DIRTY), Locked { was_evicted: false, dirty: true });
        assert_eq!(find(EVICTED), Locked { was_evicted: true, dirty: false });
    }

    #[test]
    fn who_wants_a_page_reads_it_where_it_is_and_fills_it_where_it_is_not() {
        let become_of = |state| enter(&AtomicU64::new(at(5, state)));

        assert_eq!([FREE, MARKED + DIRTY, 2].map(become_of), [Ok(Became::Reader); 3]);
        assert_eq!(become_of(EVICTED), Ok(Became::Filler));
        assert_eq!([WRITER, MOST_READERS].map(become_of), [Err(Refused::Busy); 2]);
    }

    #[test]
    fn a_writer_leaves_what_it_says_and_the_next_version() {
        let left = |leave, dirty| {
            let word = AtomicU64::new(at(5, DIRTY + WRITER));
            unlock(&word, leave, dirty);
            word.into_inner()
        };

        assert_eq!(left(Leave::Free, true), at(6, DIRTY + FREE));
        assert_eq!(left(Leave::Free, false), at(6, FREE));
        assert_eq!(left(Leave::Reading, true), at(6, DIRTY + 2));
        assert_eq!(left(Leave::Evicted, false), at(6, EVICTED));
    }

    #[test]
    fn the_version_after_the_last_is_the_first() {
        let word = AtomicU64::new(!STATE - DIRTY + WRITER);

        unlock(&word, Leave::Free, true);

        assert_eq!(word.into_inner(), DIRTY + FREE);
    }

    #[test]
    fn readers_come_and_go_one_by_one() {
        let word = AtomicU64::new(at(9, DIRTY + 1));
        for readers in 1..=252 {
            share(&word).unwrap();
            assert_eq!(word.load(Ordering::Relaxed), at(9, DIRTY + 1 + readers));
        }
        assert_eq!(share(&word), Err(Refused::Busy));

        for left in (0..252).rev() {
            unshare(&word);
            assert_eq!(word.load(Ordering::Relaxed), at(9, DIRTY + 1 + left));
        }
    }

    #[test]
    fn a_reading_without_a_hold_counts_while_the_version_is_that_of_a_page_in_memory() {
        for found in [FREE, DIRTY + FREE, 2, MOST_READERS].map(|state| at(5, state)) {
            let undisturbed = |now: u64| is_undisturbed(&AtomicU64::new(now), found);

            assert_eq!(begin(&AtomicU64::new(found)), Ok(found));
            assert!([FREE, DIRTY + FREE, 2, MOST_READERS, MARKED].map(|state| undisturbed(at(5, state))) == [true; 5]);
            assert!([WRITER, EVICTED].map(|state| undisturbed(at(5, state))) == [false; 2]);
            assert!([4, 6].map(|version| undisturbed(at(version, found & 0x1ff))) == [false; 2]);
        }
        assert_eq!(begin(&AtomicU64::new(at(5, DIRTY + MARKED))), Ok(at(5, DIRTY + FREE)), "its mark is gone");
    }

    #[test]
    fn memory_that_nobody_touched_is_a_page_that_was_never_read() {
        assert_eq!((NEW, share(&AtomicU64::new(0))), (0, Err(Refused::Evicted)));
    }

    #[test]
    fn a_dirty_page_stays_dirty_until_its_writer_says_otherwise() {
        let word = AtomicU64::new(NEW);
        assert_eq!(lock(&word), Ok(Locked { was_evicted: true, dirty: false }));
        unlock(&word, Leave::Free, true);
        assert_eq!(lock_dirty(&word), Ok(Locked { was_evicted: false, dirty: true }));
        assert_eq!(lock(&word), Err(Refused::Busy));
        unlock(&word, Leave::Free, false);
        assert_eq!(lock_dirty(&word), Err(Refused::Evicted));
        assert_eq!((pass(&word), pass(&word)), (Seen::Used, Seen::Marked));
        let version = begin(&word).unwrap();
        assert!(is_undisturbed(&word, version));
        assert_eq!(lock_marked(&word), Err(Refused::Busy), "it was used since it was marked");
    }
}
