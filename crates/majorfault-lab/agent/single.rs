//! unshare(2) and setns(2) refuse processes of several threads: before them the agent ends, and this process has none from then on.

use crate::calls::{Call, call, wake};
use crate::{IS_LEAVING, OWNER, RING, THREAD, shared};
use core::arch::{asm, global_asm};
use core::sync::atomic::Ordering;

// A program without a C library has none, and is loaded all the same.
global_asm!(".weak __errno_location");

#[unsafe(no_mangle)]
extern "C" fn unshare(flags: i32) -> i32 {
    alone(Call::Unshare, [flags as u64, 0, 0, 0, 0, 0])
}

#[unsafe(no_mangle)]
extern "C" fn setns(file: i32, kind: i32) -> i32 {
    alone(Call::Setns, [file as u64, kind as u64, 0, 0, 0, 0])
}

/// Makes the call when the agent has ended.
fn alone(number: Call, arguments: [u64; 6]) -> i32 {
    let had_agent = end_agent();
    let mut result = call(number, arguments);
    // A thread that has ended counts for moments more.
    for _ in 0..if had_agent { 1000 } else { 0 } {
        const INVALID: i64 = -22;
        if result != INVALID {
            break;
        }
        call(Call::SchedYield, [0; 6]);
        result = call(number, arguments);
    }
    if result >= 0 {
        return result as i32;
    }
    set_error(-result as i32);
    -1
}

/// Ends the agent of this process; whether it had one.
fn end_agent() -> bool {
    let (ring, thread) = (RING.load(Ordering::Acquire), THREAD.load(Ordering::Acquire));
    let process = call(Call::Getpid, [0; 6]);
    // A forked child has neither the thread nor the ring.
    if ring == 0 || thread == 0 || i64::from(OWNER.load(Ordering::Relaxed)) != process {
        return false;
    }
    IS_LEAVING.store(1, Ordering::Release);
    shared(ring).ring(|bell| wake(bell.as_ptr()));
    while call(Call::Tgkill, [process as u64, thread.into(), 0, 0, 0, 0]) == 0 {
        call(Call::SchedYield, [0; 6]);
    }
    true
}

fn set_error(error: i32) {
    let place: u64;
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
