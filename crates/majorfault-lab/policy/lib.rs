//! The library of `majorfault run --map-policy`: preloaded into a program, it gives one advice for each file that the program maps, right
//! after mmap(2), in the same thread. What the program sees of its calls is the same.
//!
//! Compiled by `build.rs` like the agent, without a standard library; it needs the program's C library only for errno. Mappings that the
//! loader and the C library make themselves do not come by here. A refused advice is no error of the program's.

#![no_std]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

#[path = "../agent/calls.rs"]
#[allow(dead_code, reason = "the agent uses the rest")]
mod calls;
#[path = "../src/launch/map_policy/settings.rs"]
#[allow(dead_code, reason = "one side of it")]
mod settings;

use calls::{Call, call};
use settings::{BUDGET, BYTES, LEAST, POLICY, PolicyCode};

/// The settings, which the launcher writes over this mark; read as volatile, because that is after the compiler has seen it.
#[used]
static SETTINGS: [u8; BYTES] = *include_bytes!("settings.mark");

/// Bytes that were read in whole.
static LOADED: AtomicU64 = AtomicU64::new(0);

// mmap(2)
const ANONYMOUS: i32 = 0x20;
const READ: i32 = 1;

// madvise(2)
const NORMAL: i32 = 0;
const RANDOM: i32 = 1;
const HUGE: i32 = 14;
const POPULATE_READ: i32 = 22;

fn setting(at: usize) -> u64 {
    let mut bytes = [0u8; 8];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: a reference is valid for a read.
        *byte = SETTINGS.get(at + index).map_or(0, |byte| unsafe { core::ptr::read_volatile(byte) });
    }
    u64::from_ne_bytes(bytes)
}

fn policy() -> Option<PolicyCode> {
    PolicyCode::read(setting(POLICY))
}

#[unsafe(no_mangle)]
extern "C" fn mmap(address: usize, length: usize, access: i32, flags: i32, file: i32, offset: i64) -> isize {
    let arguments = [address as u64, length as u64, access as u64, flags as u64, file as u64, offset as u64];
    let mapped = call(Call::Mmap, arguments);
    if (-4095..0).contains(&mapped) {
        set_error(-mapped as i32);
        return -1;
    }
    if file >= 0 && flags & ANONYMOUS == 0 && length as u64 >= setting(LEAST) && is_regular(file) {
        advise(mapped as u64, length as u64, access);
    }
    mapped as isize
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(address: usize, length: usize, access: i32, flags: i32, file: i32, offset: i64) -> isize {
    mmap(address, length, access, flags, file, offset)
}

/// What is advised of a file that was just mapped.
fn advise(address: u64, length: u64, access: i32) {
    let give = |advice: i32| call(Call::Madvise, [address, length, advice as u64, 0, 0, 0]);
    match policy() {
        Some(PolicyCode::Random) => {
            give(RANDOM);
        }
        Some(PolicyCode::Huge) => {
            give(HUGE);
        }
        Some(PolicyCode::Load) if access & READ != 0 => load(length, give),
        Some(PolicyCode::Load | PolicyCode::NoRandom) | None => {}
    }
}

/// Reads it in whole, as long as that fits into memory with what was read before.
fn load(length: u64, give: impl Fn(i32) -> i64) {
    let before = LOADED.fetch_add(length, Ordering::Relaxed);
    if before.saturating_add(length) > setting(BUDGET) {
        LOADED.fetch_sub(length, Ordering::Relaxed);
        return;
    }
    give(HUGE);
    give(POPULATE_READ);
}

/// Whether it is a file, and no device whose memory means something.
fn is_regular(file: i32) -> bool {
    let mut status = [0u64; 18];
    let failed = call(Call::Fstat, [file as u64, status.as_mut_ptr() as u64, 0, 0, 0, 0]) != 0;
    // st_mode is the 32-bit word at byte 24. SAFETY: a live array, which the kernel has changed.
    let mode = unsafe { core::ptr::read_volatile(&status[3]) } as u32;
    !failed && mode & 0o170_000 == 0o100_000
}

#[unsafe(no_mangle)]
extern "C" fn madvise(address: usize, length: usize, advice: i32) -> i32 {
    let advice = allowed(advice);
    match call(Call::Madvise, [address as u64, length as u64, advice as u64, 0, 0, 0]) {
        0 => 0,
        error => {
            set_error(-error as i32);
            -1
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_madvise(address: usize, length: usize, advice: i32) -> i32 {
    const DONT_NEED: i32 = 4;
    // It would throw pages away in Linux, which the standard does not allow: the C library does nothing.
    if advice == DONT_NEED {
        return 0;
    }
    -call(Call::Madvise, [address as u64, length as u64, allowed(advice) as u64, 0, 0, 0]) as i32
}

/// What the kernel is told in place of the program's own advice. It checks the range as it would have.
fn allowed(advice: i32) -> i32 {
    if advice == RANDOM && policy() == Some(PolicyCode::NoRandom) { NORMAL } else { advice }
}

// A program without a C library has none, and is loaded all the same.
core::arch::global_asm!(".weak __errno_location");

fn set_error(error: i32) {
    let place: usize;
    // SAFETY: reads an address from the table of global symbols, which is 0 where there is none.
    unsafe { asm!("mov {}, qword ptr [rip + __errno_location@GOTPCREL]", out(reg) place, options(nostack, readonly)) };
    if place != 0 {
        // SAFETY: the C library's function of that name, of this type.
        unsafe {
            let place: extern "C" fn() -> *mut i32 = core::mem::transmute(place);
            *place() = error;
        }
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    calls::end_thread()
}
