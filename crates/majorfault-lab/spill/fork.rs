//! fork(2): a child has its own blocks, with what they held when it was forked.
//!
//! Shared mappings would be shared with it, so it does not get them at all (MADV_DONTFORK): whoever forks past these handlers (a bare
//! clone(2)) has no blocks and cannot change ours. The parent writes a copy of all into one file before; the child maps that at the same
//! addresses. A child for which there is no room is ended, with a message: what it was to have cannot be had.

use crate::blocks;
use crate::calls::{Call, call};
use crate::counts::SpillCount;
use crate::next::weak;
use crate::pieces::{self, Place};
use crate::settings;
use crate::table::{Block, MOST, Table};
use core::sync::atomic::{AtomicU64, Ordering};

/// The file with the copies, while there is a fork: it is the fork's that has the lock.
static COPIES: AtomicU64 = AtomicU64::new(NONE);
/// There is nothing to copy.
const NONE: u64 = u64::MAX;
/// There was no room.
const FAILED: u64 = u64::MAX - 1;

/// Bytes that are read in ahead of what is copied.
const PIECE: usize = 1 << 20;

/// Asks the C library to call us at each fork, next to it: before us the others have prepared, and after us they go on.
pub fn register() {
    let (glibc, others) = (weak!(__register_atfork), weak!(pthread_atfork));
    type Handler = extern "C" fn();
    // SAFETY: the C library's functions of these names; the last argument of the first is the library whose unloading removes the handlers,
    // and ours is never unloaded.
    unsafe {
        if glibc != 0 {
            let register: extern "C" fn(Handler, Handler, Handler, usize) -> i32 = core::mem::transmute(glibc);
            register(prepare, in_parent, in_child, 0);
        } else if others != 0 {
            let register: extern "C" fn(Handler, Handler, Handler) -> i32 = core::mem::transmute(others);
            register(prepare, in_parent, in_child);
        }
    }
}

fn blocks_of<'t>(table: &'t Table<'static>) -> impl Iterator<Item = &'t Block> {
    table.slots().iter().filter(|block| block.address != 0)
}

extern "C" fn prepare() {
    let table = blocks::locked();
    let copies = if table.used() == 0 { NONE } else { copied(table).unwrap_or(FAILED) };
    COPIES.store(copies, Ordering::Relaxed);
}

/// A file with the copies of all blocks, one behind the other.
fn copied(table: &Table<'static>) -> Option<u64> {
    let all = blocks_of(table).map(|block| block.length).sum();
    let file = pieces::make_file(all).ok()?;
    let mut offset = 0;
    for block in blocks_of(table) {
        if !copy(block, file, offset) {
            pieces::close(file);
            return None;
        }
        offset += block.length;
    }
    blocks::add(SpillCount::Forks as usize, 1);
    blocks::add(SpillCount::Copied as usize, all);
    Some(file)
}

fn copy(block: &Block, file: u64, offset: usize) -> bool {
    let page = settings::page();
    let mut at = 0;
    while at < block.length {
        if at % PIECE == 0 {
            let ahead = (block.length - at).min(2 * PIECE);
            call(Call::Madvise, [(block.address + at) as u64, ahead as u64, crate::calls::WILL_NEED, 0, 0, 0]);
        }
        // What was never written need not be written there: a new file is all zeros.
        let run = pages_written(block.address + at, (block.length - at).min(PIECE - at % PIECE));
        if !write(block.address + at, run, file, offset + at) {
            return false;
        }
        at += run.max(page);
    }
    true
}

/// Bytes of the first pages there, up to one that is all zeros.
fn pages_written(address: usize, most: usize) -> usize {
    let page = settings::page();
    let is_zero = |at: usize| {
        // SAFETY: within a block of ours, whole words.
        let words = unsafe { core::slice::from_raw_parts((address + at) as *const u64, page / 8) };
        words.iter().all(|word| *word == 0)
    };
    (0..most).step_by(page).find(|at| is_zero(*at)).unwrap_or(most)
}

fn write(address: usize, bytes: usize, file: u64, offset: usize) -> bool {
    const INTERRUPTED: i64 = -4;
    let mut done = 0;
    while done < bytes {
        let [from, left, to] = [address + done, bytes - done, offset + done].map(|number| number as u64);
        match call(Call::Pwrite64, [file, from, left, to, 0, 0]) {
            INTERRUPTED => {}
            written if written > 0 => done += written as usize,
            _ => return false,
        }
    }
    true
}

extern "C" fn in_parent() {
    let file = COPIES.swap(NONE, Ordering::Relaxed);
    if file < FAILED {
        pieces::close(file);
    }
    blocks::unlocked();
}

extern "C" fn in_child() {
    let file = COPIES.swap(NONE, Ordering::Relaxed);
    // SAFETY: the thread that forked has the lock, and is the only one here.
    let table = unsafe { blocks::held() };
    if file == FAILED || file != NONE && !mapped_again(table, file) {
        blocks::add(SpillCount::Ended as usize, 1);
        crate::give_up(b"majorfault: no room for a copy of the blocks in files (--spill): a forked process is ended\n");
    }
    if file < FAILED {
        pieces::close(file);
    }
    blocks::unlocked();
}

fn mapped_again(table: &mut Table<'static>, file: u64) -> bool {
    let (page, mut offset) = (settings::page(), 0);
    for block in table.slots_mut().iter_mut().filter(|block| block.address != 0) {
        // Addresses that were kept behind it are here, too; those of the block itself are free.
        if pieces::map(file, offset, block.length, Place::IfFree(block.address)).is_err() {
            return false;
        }
        block.pieces = [0; MOST];
        block.pieces[0] = (block.length / page) as u32;
        (block.count, block.is_part) = (1, true);
        offset += block.length;
    }
    true
}
