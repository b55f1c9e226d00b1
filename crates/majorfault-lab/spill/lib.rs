//! The library of `majorfault run --spill`: preloaded into a program, it puts large blocks of malloc(3) and its family into files without
//! names, so that the kernel can take their memory back where there is no swap.
//!
//! Compiled by `build.rs` like the agent, without a standard library; it needs the program's C library only for errno, dlsym(3) (the next
//! allocator) and the handlers of fork(2). `family.rs -> blocks.rs (lock, table.rs) -> pieces.rs -> the kernel`. A block that finds no room
//! stays in memory, and is counted.

#![no_std]

#[path = "../agent/calls.rs"]
#[allow(dead_code, reason = "the agent uses the rest")]
mod calls;
#[path = "../src/launch/spill/counts.rs"]
#[allow(dead_code, reason = "one side of it")]
mod counts;

mod blocks;
mod family;
mod fork;
mod lock;
mod next;
mod path;
mod pieces;
mod settings;
mod table;
mod wishes;

use calls::{Call, call};
use core::sync::atomic::Ordering;

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Before other libraries begin (`-z initfirst`), so that at a fork our handlers stand next to it.
extern "C" fn begin() {
    next::look();
    fork::register();
    if let Some(counts) = map_counts() {
        blocks::COUNTS.store(counts, Ordering::Release);
        blocks::add(counts::SpillCount::Processes as usize, 1);
    }
}

fn map_counts() -> Option<usize> {
    // O_RDWR, O_NOFOLLOW, O_CLOEXEC.
    let flags = 0o2 | 0o400_000 | 0o2_000_000;
    let file = call(Call::Openat, [calls::HERE, settings::counts() as u64, flags, 0, 0, 0]);
    let file = u64::try_from(file).ok()?;
    // PROT_READ | PROT_WRITE, MAP_SHARED: children count as well.
    let mapped = call(Call::Mmap, [0, counts::BYTES as u64, 3, 1, file, 0]);
    pieces::close(file);
    usize::try_from(mapped).ok()
}

/// The kernel's answer as a C function gives it.
fn returned(result: i64) -> i32 {
    if result < 0 {
        set_error(-result as i32);
        return -1;
    }
    result as i32
}

fn set_error(error: i32) {
    let place = next::weak!(__errno_location);
    if place != 0 {
        // SAFETY: the C library's function of that name, of this type.
        unsafe {
            let place: extern "C" fn() -> *mut i32 = core::mem::transmute(place);
            *place() = error;
        }
    }
}

/// Says why, and ends the process as the kernel does for want of memory.
fn give_up(message: &[u8]) -> ! {
    call(Call::Write, [2, message.as_ptr() as u64, message.len() as u64, 0, 0, 0]);
    let process = call(Call::Getpid, [0; 6]) as u64;
    loop {
        call(Call::Kill, [process, 9, 0, 0, 0, 0]);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    give_up(b"majorfault: a mistake in the library of --spill: the program ends\n")
}
