//! The blocks of this process: made, found by address, resized, freed; and what is counted of them.

use crate::calls::{Call, call};
use crate::counts::{SpillCount, Stay};
use crate::lock::Lock;
use crate::settings;
use crate::table::{Block, Table};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

struct Blocks {
    lock: Lock,
    table: UnsafeCell<Table<'static>>,
}

// SAFETY: the table is only reached with the lock.
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks { lock: Lock::new(), table: UnsafeCell::new(Table::new()) };

/// How many there are: where there is none, nobody is asked.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of this process in files.
static NOW: AtomicUsize = AtomicUsize::new(0);

/// No more blocks go into files: the process has shut itself in.
pub static IS_SHUT_IN: AtomicBool = AtomicBool::new(false);

/// More mappings than half of what a process may have (vm.max_map_count) are not taken by us.
const MOST: usize = 30_000;

/// Where the counts are mapped; 0 where they are not.
pub static COUNTS: AtomicUsize = AtomicUsize::new(0);

fn count(word: usize) -> Option<&'static AtomicU64> {
    let counts = COUNTS.load(Ordering::Acquire);
    // SAFETY: a page that is mapped for ever, whose words are changed atomically by all.
    (counts != 0).then(|| unsafe { &*(counts as *const AtomicU64).add(word) })
}

/// Adds to a count of the run.
pub fn add(word: usize, number: usize) {
    if let Some(count) = count(word) {
        count.fetch_add(number as u64, Ordering::Relaxed);
    }
}

/// This block stays in memory.
pub fn stays(why: Stay, bytes: usize) {
    add(why.word(), 1);
    add(why.word() + 1, bytes);
}

fn has_now(before: usize, bytes: usize) {
    if bytes > before {
        let now = NOW.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before;
        add(SpillCount::Bytes as usize, bytes - before);
        if let Some(most) = count(SpillCount::Most as usize) {
            most.fetch_max(now as u64, Ordering::Relaxed);
        }
    } else {
        NOW.fetch_sub(before - bytes, Ordering::Relaxed);
    }
}

/// Runs with the table, alone.
fn with<R>(work: impl FnOnce(&mut Table<'static>) -> R) -> R {
    BLOCKS.lock.take();
    // SAFETY: the lock is ours.
    let result = work(unsafe { &mut *BLOCKS.table.get() });
    BLOCKS.lock.give();
    result
}

/// Takes the lock; until `unlocked` nobody else changes a block.
pub fn locked() -> &'static mut Table<'static> {
    BLOCKS.lock.take();
    // SAFETY: the lock is ours, until `unlocked`.
    unsafe { &mut *BLOCKS.table.get() }
}

pub fn unlocked() {
    BLOCKS.lock.give();
}

/// The table of whoever has the lock.
///
/// # Safety
/// The caller has called `locked`, and uses no other reference to the table.
pub unsafe fn held() -> &'static mut Table<'static> {
    // SAFETY: by the caller.
    unsafe { &mut *BLOCKS.table.get() }
}

/// Whether a block may begin there.
pub fn may_begin(address: usize) -> bool {
    address & (settings::page() - 1) == 0 && address != 0 && USED.load(Ordering::Relaxed) > 0
}

/// Whether there are any.
pub fn any() -> bool {
    USED.load(Ordering::Relaxed) > 0
}

/// A block of zeros in a file; 0 where it has to stay in memory, which is counted.
pub fn make(bytes: usize, alignment: usize) -> usize {
    let made = match () {
        () if IS_SHUT_IN.load(Ordering::Relaxed) => Err(Stay::ShutIn),
        () if USED.load(Ordering::Relaxed) >= MOST => Err(Stay::NoMapping),
        () => Block::make(bytes, alignment),
    };
    let made = made.and_then(|block| if put(block) { Ok(block) } else { Err((block.give_back(), Stay::NoMapping).1) });
    match made {
        Ok(block) => {
            add(SpillCount::Blocks as usize, 1);
            has_now(0, block.length);
            block.address
        }
        Err(why) => {
            stays(why, bytes);
            0
        }
    }
}

/// Takes the block out that begins there; nobody else can have it then.
fn take(address: usize) -> Option<Block> {
    with(|table| {
        let block = table.remove(address);
        USED.store(table.used(), Ordering::Relaxed);
        block
    })
}

/// Puts a block into the table; whether there was memory for it.
fn put(block: Block) -> bool {
    with(|table| {
        if !has_room(table) {
            return false;
        }
        table.insert(block);
        USED.store(table.used(), Ordering::Relaxed);
        true
    })
}

/// Makes the table larger where it is too small.
fn has_room(table: &mut Table<'static>) -> bool {
    let wanted = table.wanted();
    if wanted == table.slots().len() {
        return true;
    }
    let bytes = wanted * size_of::<Block>();
    // PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS.
    let mapped = call(Call::Mmap, [0, bytes as u64, 3, 0x22, u64::MAX, 0]);
    if mapped <= 0 {
        return false;
    }
    // SAFETY: fresh memory of this size, at a page's begin; all zeros are no block.
    let before = table.move_to(unsafe { core::slice::from_raw_parts_mut(mapped as *mut Block, wanted) });
    crate::pieces::unmap(before.as_ptr() as usize, size_of_val(before));
    true
}

/// Frees the block that begins there; whether there is one.
pub fn free(address: usize) -> bool {
    if !may_begin(address) {
        return false;
    }
    let Some(block) = take(address) else { return false };
    has_now(block.length, 0);
    block.give_back();
    true
}

/// The bytes of the block that begins there.
pub fn length(address: usize) -> Option<usize> {
    if !may_begin(address) {
        return None;
    }
    with(|table| table.find(address)).map(|block| block.length)
}

/// Gives the block so many bytes, where it is or elsewhere; its address then. `None` where it cannot become so large, and is as it was.
pub fn resize(address: usize, bytes: usize) -> Option<usize> {
    let mut block = take(address)?;
    let before = block.length;
    let wanted = crate::pieces::whole_pages(bytes);
    let done = match wanted {
        // A little less is kept: it is often wanted back.
        Some(wanted) if wanted <= before => {
            if wanted < before / 4 * 3 {
                block.shorten(wanted);
            }
            true
        }
        _ => !IS_SHUT_IN.load(Ordering::Relaxed) && block.grow(bytes).is_ok(),
    };
    has_now(before, block.length);
    // There is room: one was taken out, and at most other threads have put some in.
    if !put(block) {
        crate::give_up(b"majorfault: no memory for the table of blocks in files: the program ends\n");
    }
    done.then_some(block.address)
}
