//! malloc(3) and its family: large blocks are ours, all others the next allocator's.
//!
//! No call of ours changes errno but where the family says so, because none of them is the C library's.

use crate::next::{Member, call};
use crate::{blocks, next, settings};

const NO_MEMORY: i32 = 12;

/// A block in a file, where it is large enough and one can be had; 0 elsewhere.
fn large(bytes: usize, alignment: usize) -> usize {
    // What is no size at all (a negative one) is refused by the next.
    if bytes < settings::from() || bytes > isize::MAX as usize || !next::look() {
        0
    } else {
        blocks::make(bytes, alignment)
    }
}

fn or_else(block: usize, other: impl FnOnce() -> usize) -> usize {
    if block != 0 { block } else { other() }
}

#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> usize {
    or_else(large(bytes, 1), || call(Member::Malloc, [bytes, 0, 0]))
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> usize {
    // A new file reads as zeros.
    let block = count.checked_mul(bytes).map_or(0, |all| large(all, 1));
    or_else(block, || call(Member::Calloc, [count, bytes, 0]))
}

#[unsafe(no_mangle)]
extern "C" fn free(block: usize) {
    if block != 0 && !blocks::free(block) && !next::is_early(block) {
        call(Member::Free, [block, 0, 0]);
    }
}

#[unsafe(no_mangle)]
extern "C" fn realloc(block: usize, bytes: usize) -> usize {
    if block == 0 {
        return malloc(bytes);
    }
    match blocks::length(block) {
        Some(_) if bytes == 0 => {
            free(block);
            0
        }
        Some(length) => resized(block, length, bytes),
        None if next::is_early(block) => {
            let new = malloc(bytes);
            copy(block, new, if new == 0 { 0 } else { bytes.min(next::early_left(block)) });
            new
        }
        None => or_else(grown_up(block, bytes), || call(Member::Realloc, [block, bytes, 0])),
    }
}

/// One of ours with another size.
fn resized(block: usize, length: usize, bytes: usize) -> usize {
    // Half of what would be put into a file is not worth one any more.
    if bytes >= settings::from() / 2
        && let Some(new) = blocks::resize(block, bytes)
    {
        return new;
    }
    let new = malloc(bytes);
    match new {
        0 if bytes <= length => block,
        0 => 0,
        _ => {
            copy(block, new, bytes.min(length));
            free(block);
            new
        }
    }
}

/// One of the next allocator's that becomes large enough for a file; 0 where it does not.
fn grown_up(block: usize, bytes: usize) -> usize {
    if bytes < settings::from() {
        return 0;
    }
    let length = call(Member::UsableSize, [block, 0, 0]);
    // What it has by chance beyond what was asked for suffices.
    if bytes <= length {
        return 0;
    }
    let new = large(bytes, 1);
    if new != 0 {
        copy(block, new, length);
        call(Member::Free, [block, 0, 0]);
    }
    new
}

fn copy(from: usize, to: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: two blocks, each of at least so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn reallocarray(block: usize, count: usize, bytes: usize) -> usize {
    match count.checked_mul(bytes) {
        Some(all) => realloc(block, all),
        None => {
            crate::set_error(NO_MEMORY);
            0
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_memalign(place: *mut usize, alignment: usize, bytes: usize) -> i32 {
    let is_valid = alignment.is_power_of_two() && alignment >= size_of::<usize>();
    let block = if is_valid { large(bytes, alignment) } else { 0 };
    if block == 0 {
        return call(Member::PosixMemalign, [place as usize, alignment, bytes]) as i32;
    }
    // SAFETY: the caller's place for the result.
    unsafe { *place = block };
    0
}

fn memalign_by(member: Member, alignment: usize, bytes: usize) -> usize {
    let block = if alignment.is_power_of_two() { large(bytes, alignment) } else { 0 };
    or_else(block, || call(member, [alignment, bytes, 0]))
}

#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, bytes: usize) -> usize {
    memalign_by(Member::Memalign, alignment, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> usize {
    memalign_by(Member::AlignedAlloc, alignment, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> usize {
    or_else(large(bytes, 1), || call(Member::Valloc, [bytes, 0, 0]))
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> usize {
    or_else(large(bytes, 1), || call(Member::Pvalloc, [bytes, 0, 0]))
}

#[unsafe(no_mangle)]
extern "C" fn malloc_usable_size(block: usize) -> usize {
    match blocks::length(block) {
        Some(length) => length,
        None if block == 0 || next::is_early(block) => 0,
        None => call(Member::UsableSize, [block, 0, 0]),
    }
}

// Of C23, and of old C libraries.

#[unsafe(no_mangle)]
extern "C" fn free_sized(block: usize, _bytes: usize) {
    free(block);
}

#[unsafe(no_mangle)]
extern "C" fn free_aligned_sized(block: usize, _alignment: usize, _bytes: usize) {
    free(block);
}

#[unsafe(no_mangle)]
extern "C" fn cfree(block: usize) {
    free(block);
}
