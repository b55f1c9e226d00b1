//! Calls of the program that mean something else for a block in a file: they do here what they do to memory without one.

use crate::blocks;
use crate::calls::{Call, call};
use crate::table::Block;
use core::sync::atomic::Ordering;

// madvise(2)
const WILL_NOT_NEED: i32 = 4;
const FREE: i32 = 8;
const NOT_IN_CHILDREN: i32 = 10;
const IN_CHILDREN: i32 = 11;
const HUGE: i32 = 14;

// prctl(2)
const SET_SECCOMP: i32 = 22;
const SET_NO_NEW_PRIVILEGES: i32 = 38;

#[unsafe(no_mangle)]
extern "C" fn madvise(address: usize, bytes: usize, advice: i32) -> i32 {
    // Huge pages of a file are 2 MiB of it read at each fault; and who has a block, has it in children.
    let is_ours = matches!(advice, WILL_NOT_NEED | FREE | NOT_IN_CHILDREN | IN_CHILDREN | HUGE) && blocks::any();
    if is_ours && within(address, bytes, advice == WILL_NOT_NEED) {
        return 0;
    }
    crate::returned(call(Call::Madvise, [address as u64, bytes as u64, advice as u64, 0, 0, 0]))
}

/// Whether the range meets a block; its part of it is zeros afterwards, where `empties` says so.
fn within(address: usize, bytes: usize, empties: bool) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let table = blocks::locked();
    let mut met = false;
    for block in table.slots().iter().filter(|block| meets(block, address, end)) {
        met = true;
        if empties {
            let (from, to) = (address.max(block.address), end.min(block.address + block.length));
            // SAFETY: within the block. The program says that it does not need what stands there.
            unsafe { core::ptr::write_bytes(from as *mut u8, 0, to - from) };
        }
    }
    blocks::unlocked();
    met
}

fn meets(block: &Block, address: usize, end: usize) -> bool {
    block.address != 0 && block.address < end && address < block.address + block.length
}

#[unsafe(no_mangle)]
extern "C" fn prctl(option: i32, a: u64, b: u64, c: u64, d: u64) -> i32 {
    // What follows may end the process at a call that it does not expect of itself.
    if matches!(option, SET_SECCOMP | SET_NO_NEW_PRIVILEGES) {
        blocks::IS_SHUT_IN.store(true, Ordering::Relaxed);
    }
    crate::returned(call(Call::Prctl, [option as u64, a, b, c, d, 0]))
}
