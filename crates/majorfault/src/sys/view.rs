//! Mapped bytes that are read by copy, because anybody may change them at any moment: a view lends no slice of them.
//!
//! Every load is volatile: the compiler neither repeats nor omits nor reorders loads of bytes that may change, and
//! any bits are a valid integer, so a change in between gives older or newer bytes and never an undefined value.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

/// Bytes of one load where the address allows it.
const WIDE: usize = 16;

/// A range of mapped bytes, read by copy.
///
/// Others (a program that writes the file, another mapping of it) may change the bytes at any time. So two reads of one
/// byte may differ, and a copy may be *torn*: older bytes here, newer ones there. Each aligned integer of up to 8
/// bytes is read whole ([`value`](View::value)). Where the file was truncated, zeros are read; the owner's `check` reports it.
#[derive(Clone, Copy)]
pub struct View<'m> {
    begin: *const u8,
    length: usize,
    mapping: PhantomData<&'m ()>,
}

// SAFETY: a view only loads from its range, which outlives it (`new`); loads of several threads do not disturb each other.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}

impl<'m> View<'m> {
    /// The `length` bytes from `begin` on.
    ///
    /// # Safety
    ///
    /// - the range stays mapped and readable for `'m`;
    /// - nobody in this process writes it through the same addresses meanwhile.
    pub unsafe fn new(begin: *const u8, length: usize) -> View<'m> {
        View { begin, length, mapping: PhantomData }
    }

    /// Bytes of the range.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The byte at `at` as it is now; none past the end.
    pub fn get(&self, at: usize) -> Option<u8> {
        self.value(at)
    }

    /// A part of the view.
    ///
    /// Panics past the end, as a slice does.
    pub fn part(&self, range: Range<usize>) -> View<'m> {
        let Range { start, end } = range;
        assert!(
            start <= end && end <= self.length,
            "the part {start}..{end} is not in a view of {} bytes",
            self.length
        );
        View { begin: self.begin.wrapping_add(start), length: end - start, mapping: PhantomData }
    }

    /// Copies the bytes from `at` on into `into`, and fills it.
    ///
    /// Panics past the end.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let fits = into.len() <= self.length && at <= self.length - into.len();
        assert!(fits, "{} bytes at {at} pass the end of a view of {}", into.len(), self.length);
        // SAFETY: inside the range by the assertion, which is readable while the view lives.
        unsafe { load(self.begin.add(at), into) }
    }

    /// A copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.length];
        self.read(0, &mut copy);
        copy
    }

    /// The number at byte `at`, in the machine's byte order; none where it passes the end. One load, so never torn, where
    /// its address is a multiple of its size (the file's first byte lies at a multiple of the page size).
    pub fn value<T: Plain>(&self, at: usize) -> Option<T> {
        if size_of::<T>() > self.length || at > self.length - size_of::<T>() {
            return None;
        }
        let from = self.begin.wrapping_add(at).cast::<T>();
        if from.is_aligned() {
            // SAFETY: inside the range and aligned; any bits are a number.
            return Some(unsafe { from.read_volatile() });
        }
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the bytes of `value`, initialised by zeros and owned here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        self.read(at, bytes);
        // SAFETY: any bits are a number.
        Some(unsafe { value.assume_init() })
    }

    /// Iterates over the view in pieces as long as `buffer`, the last one shorter, each copied to `buffer`.
    ///
    /// Panics where `buffer` is empty.
    pub fn chunks<'b>(self, buffer: &'b mut [u8]) -> Chunks<'m, 'b> {
        assert!(!buffer.is_empty(), "the buffer for pieces is empty");
        Chunks { rest: self, buffer }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes)", self.length)
    }
}

/// The pieces of a [`View`], one after the other in one buffer.
#[derive(Debug)]
pub struct Chunks<'m, 'b> {
    rest: View<'m>,
    buffer: &'b mut [u8],
}

impl Chunks<'_, '_> {
    /// The next piece, as it was when it was copied; none at the end.
    #[allow(clippy::should_implement_trait, reason = "a piece lives in the buffer until the next one is asked for")]
    pub fn next(&mut self) -> Option<&[u8]> {
        let length = self.buffer.len().min(self.rest.len());
        if length == 0 {
            return None;
        }
        let (piece, rest) = (self.rest.part(0..length), self.rest.part(length..self.rest.len()));
        self.rest = rest;
        piece.read(0, &mut self.buffer[..length]);
        Some(&self.buffer[..length])
    }
}

/// A number for which any bits are a value; only this library declares them.
pub trait Plain: Copy + sealed::Sealed {}

mod sealed {
    /// Prevents others from implementing `Plain` for types that do not qualify.
    #[allow(unnameable_types, reason = "it seals the trait: nobody else can implement it")]
    pub trait Sealed {}
}

macro_rules! plain {
    ($($number:ty)*) => { $(impl sealed::Sealed for $number {} impl Plain for $number {})* };
}

plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Fills `into` from `from` on.
///
/// # Safety
///
/// `into.len()` readable bytes lie at `from`.
#[inline]
unsafe fn load(from: *const u8, into: &mut [u8]) {
    let (head, rest) = into.split_at_mut(from.align_offset(WIDE).min(into.len()));
    // SAFETY: the first of the caller's bytes.
    unsafe { load_bytes(from, head) };
    let from = from.wrapping_add(head.len());
    let whole = rest.len() / WIDE * WIDE;
    let (pieces, tail) = rest.split_at_mut(whole);
    for (index, piece) in pieces.chunks_exact_mut(WIDE).enumerate() {
        // SAFETY: inside the caller's bytes; aligned, because the head ends there.
        let words = unsafe { two_words(from.wrapping_add(index * WIDE)) };
        let (low, high) = piece.split_at_mut(8);
        low.copy_from_slice(&words[0].to_ne_bytes());
        high.copy_from_slice(&words[1].to_ne_bytes());
    }
    // SAFETY: the last of the caller's bytes.
    unsafe { load_bytes(from.wrapping_add(whole), tail) };
}

/// # Safety
///
/// As [`load`].
#[inline]
unsafe fn load_bytes(from: *const u8, into: &mut [u8]) {
    for (at, byte) in into.iter_mut().enumerate() {
        // SAFETY: as many bytes as the caller promises.
        *byte = unsafe { from.add(at).read_volatile() };
    }
}

/// Writes `from` to the bytes at `to`, by stores as wide as the address allows; others may see part of it done.
///
/// # Safety
///
/// - `from.len()` writable bytes lie at `to`;
/// - no other thread of this process reaches them through the same addresses meanwhile.
#[inline]
pub unsafe fn store(to: *mut u8, from: &[u8]) {
    let (head, rest) = from.split_at(to.align_offset(WIDE).min(from.len()));
    // SAFETY: the first of the caller's bytes.
    unsafe { store_bytes(to, head) };
    let to = to.wrapping_add(head.len());
    let (pieces, tail) = rest.split_at(rest.len() / WIDE * WIDE);
    for (index, piece) in pieces.chunks_exact(WIDE).enumerate() {
        let mut word = [0; WIDE];
        word.copy_from_slice(piece);
        // SAFETY: inside the caller's bytes; aligned, because the head ends there.
        unsafe { to.add(index * WIDE).cast::<u128>().write_volatile(u128::from_ne_bytes(word)) };
    }
    // SAFETY: the last of the caller's bytes.
    unsafe { store_bytes(to.wrapping_add(pieces.len()), tail) };
}

/// # Safety
///
/// As [`store`].
#[inline]
unsafe fn store_bytes(to: *mut u8, from: &[u8]) {
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: as many bytes as the caller promises.
        unsafe { ptr::write_volatile(to.add(at), *byte) };
    }
}

/// Two words by one load, which reads a whole page about as fast as a non-volatile reader could.
///
/// # Safety
/// 16 readable bytes, aligned so.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn two_words(from: *const u8) -> [u64; 2] {
    use std::arch::x86_64::__m128i;
    // SAFETY: what the caller promises; any bits are two words.
    unsafe { std::mem::transmute::<__m128i, [u64; 2]>(from.cast::<__m128i>().read_volatile()) }
}

/// Two words by one load each.
///
/// # Safety
/// 16 readable bytes, aligned so.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) unsafe fn two_words(from: *const u8) -> [u64; 2] {
    // SAFETY: what the caller promises.
    unsafe { [from.cast::<u64>().read_volatile(), from.add(8).cast::<u64>().read_volatile()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 100] = {
        let mut bytes = [0; 100];
        let mut at = 0;
        while at < 100 {
            bytes[at] = at as u8 + 1;
            at += 1;
        }
        bytes
    };

    fn view(bytes: &[u8]) -> View<'_> {
        // SAFETY: borrowed for as long as the view lives.
        unsafe { View::new(bytes.as_ptr(), bytes.len()) }
    }

    #[test]
    fn every_part_is_copied_as_it_is_wherever_it_begins_and_ends() {
        for begin in 0..40 {
            for end in begin..BYTES.len() {
                let mut copy = [0xee; 102];

                view(&BYTES).read(begin, &mut copy[1..1 + end - begin]);

                assert_eq!(copy[1..1 + end - begin], BYTES[begin..end], "{begin}..{end}");
                assert_eq!((copy[0], copy[1 + end - begin]), (0xee, 0xee), "{begin}..{end}");
            }
        }
    }

    #[test]
    fn every_part_is_stored_as_it_is_and_nothing_beside_it() {
        for begin in 1..40 {
            for length in 0..60 {
                let mut memory = [0xee; 102];

                // SAFETY: inside `memory`, which nobody else has.
                unsafe { store(memory.as_mut_ptr().add(begin), &BYTES[..length]) };

                assert_eq!(memory[begin..begin + length], BYTES[..length], "{length} at {begin}");
                assert!(memory[..begin].iter().chain(&memory[begin + length..]).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn a_number_is_read_at_any_byte_and_none_past_the_end() {
        for at in 0..=92 {
            let wanted = u64::from_ne_bytes(BYTES[at..at + 8].try_into().unwrap());
            assert_eq!(view(&BYTES).value::<u64>(at), Some(wanted), "at {at}");
        }
        assert_eq!(view(&BYTES).value::<u64>(93), None);
        assert_eq!(view(&BYTES).value::<u64>(usize::MAX), None);
        assert_eq!(view(&BYTES[..3]).value::<u32>(0), None);
        assert_eq!((view(&BYTES).get(99), view(&BYTES).get(100)), (Some(100), None));
    }

    #[test]
    fn pieces_come_one_after_the_other_and_the_last_may_be_short() {
        let mut buffer = [0; 40];
        let mut pieces = view(&BYTES).chunks(&mut buffer);
        let mut seen = Vec::new();

        while let Some(piece) = pieces.next() {
            seen.push(piece.to_vec());
        }

        assert_eq!(seen, [&BYTES[..40], &BYTES[40..80], &BYTES[80..]]);
    }

    #[test]
    fn nothing_past_the_end_is_read() {
        for (at, length) in [(0, 101), (100, 1), (usize::MAX, 2), (1, usize::MAX.count_ones() as usize + 100)] {
            let mut into = vec![0; length];
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| view(&BYTES).read(at, &mut into)));
            assert!(read.is_err(), "{length} at {at}");
        }
        #[allow(clippy::reversed_empty_ranges, reason = "what must be refused")]
        for part in [0..101, 101..101, 3..2] {
            assert!(std::panic::catch_unwind(|| view(&BYTES).part(part.clone()).len()).is_err(), "{part:?}");
        }
        assert!(view(&BYTES).part(100..100).to_vec().is_empty());
    }
}
