//! A lock that sleeps in the kernel (futex(2)); after Drepper, "Futexes are tricky", mutex 2.

use crate::calls;
use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody waits.
const WANTED: u32 = 2;

pub struct Lock(AtomicU32);

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    pub fn take(&self) {
        if self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            calls::sleep(self.0.as_ptr(), WANTED);
        }
    }

    pub fn give(&self) {
        if self.0.swap(FREE, Ordering::Release) == WANTED {
            calls::wake(self.0.as_ptr());
        }
    }
}
