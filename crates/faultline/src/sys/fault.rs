//! SIGBUS in a mapped file becomes an error: the page that is gone is replaced by zeros, and the mapping marked.
//!
//! A mapped page raises SIGBUS when the file was truncated before it, or the device can't read it. The handler looks
//! the address up in a fixed table of guarded ranges (atomics only: it runs in signal context, in any thread), maps
//! anonymous zeros over that page so that the access goes on, and records the first such address. Whoever reads the
//! mapping asks afterwards. A SIGBUS elsewhere goes to the handler that was there before.
#![allow(unsafe_code)]

use crate::sys::map::Mapping;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Guarded ranges at one time; more are left unguarded, which `guard` says.
const SLOTS: usize = 1024;

/// No page of the range is gone.
const WHOLE: usize = usize::MAX;

/// A range: `begin` is 0 while the slot is free, 1 while it is being filled.
struct Slot {
    begin: AtomicUsize,
    end: AtomicUsize,
    /// Offset from `begin` of the first page that was gone, or WHOLE.
    gone: AtomicUsize,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), gone: AtomicUsize::new(WHOLE) } }; SLOTS];

/// The handler that was there before ours; written once, before ours can run.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once inside `INSTALL` before the handler that reads it is installed, never changed afterwards.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::uninit()));
static INSTALL: Once = Once::new();

/// A guarded mapping: while it lives, SIGBUS inside the mapping is caught. Drop it before the mapping.
#[derive(Debug)]
pub struct Guard {
    slot: Option<&'static Slot>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({:#x})", self.begin.load(Ordering::Relaxed))
    }
}

/// Guards `mapping`. Installs the process-wide handler on first use, and chains to the one found.
///
/// Where the table of 1024 ranges is full, the mapping stays unguarded: see [`Guard::is_active`].
pub fn guard(mapping: &Mapping) -> Guard {
    INSTALL.call_once(install);
    let begin = mapping.as_ptr() as usize;
    let free = TABLE.iter().find(|slot| slot.begin.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if let Some(slot) = free {
        slot.end.store(begin + mapping.length(), Ordering::Relaxed);
        slot.gone.store(WHOLE, Ordering::Relaxed);
        // Published last: the handler reads the others only after it saw this.
        slot.begin.store(begin, Ordering::Release);
    }
    Guard { slot: free }
}

impl Guard {
    /// Whether the mapping is guarded.
    pub fn is_active(&self) -> bool {
        self.slot.is_some()
    }

    /// Offset in the mapping of the first page that was found gone, once there is one. One relaxed load.
    #[inline]
    pub fn gone(&self) -> Option<usize> {
        let gone = self.slot?.gone.load(Ordering::Relaxed);
        (gone != WHOLE).then_some(gone)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.begin.store(0, Ordering::Release);
        }
    }
}

/// A mapping with its guard, whose bytes can be used without further promises.
///
/// The bytes may change while they are looked at, when another program writes the file: see them as input that is read
/// once, never as something whose value holds.
#[derive(Debug)]
pub struct Guarded {
    /// Dropped first: its range must not be unmapped before.
    guard: Guard,
    mapping: Mapping,
}

impl Guarded {
    /// Takes the mapping into its care.
    pub fn new(mapping: Mapping) -> Guarded {
        Guarded { guard: guard(&mapping), mapping }
    }

    /// The mapping, for advice and the like.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The guard, which tells whether a page was gone.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The bytes of `length` from `at` on. Zeros where the file has none any more; ask [`Guard::gone`] afterwards.
    #[inline]
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: guarded against SIGBUS; writers through this mapping come only by `change`, whose callers keep their
        // ranges apart; other writers of the file change plain bytes that nothing is derived from.
        unsafe { self.mapping.bytes(at, length) }
    }

    /// The same for changing, by who alone has the mapping.
    ///
    /// Panics past the end, or where the mapping is for reading.
    pub fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        assert!(self.mapping.is_writable(), "a mapping for reading cannot be changed");
        // SAFETY: guarded and writable, and borrowed exclusively; other writers of the file as above.
        unsafe { self.mapping.bytes_mut(at, length) }
    }

    /// Lets `change` set the bytes of `length` from `at` on. Threads that change the same bytes at the same time get
    /// one or the other's, as writers of a file do.
    ///
    /// Panics where the mapping was not made for writing.
    #[inline]
    pub fn change<T>(&self, at: usize, length: usize, change: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(self.mapping.is_writable(), "a mapping for reading cannot be changed");
        // SAFETY: guarded and writable; exclusive as far as bytes of a shared file can be, see above.
        change(unsafe { self.mapping.bytes_mut(at, length) })
    }
}

fn install() {
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature SA_SIGINFO asks for and is
    // async-signal-safe (atomics and mmap); the old action goes into storage that lives for ever, before ours can run.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        // Not SA_NODEFER: a second fault inside the handler must end the process.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, ptr::null(), (*PREVIOUS.0.get()).as_mut_ptr());
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid siginfo for SA_SIGINFO, and si_addr is set for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    let mut slots = TABLE.iter();
    let hit = slots.find(|slot| {
        let begin = slot.begin.load(Ordering::Acquire);
        begin > 1 && address >= begin && address < slot.end.load(Ordering::Relaxed)
    });
    match hit {
        Some(slot) if replace(address) => {
            let page = address / PAGE_FLOOR * PAGE_FLOOR;
            let offset = page.saturating_sub(slot.begin.load(Ordering::Relaxed));
            // The first one counts; a race between threads may keep either.
            let _ = slot.gone.compare_exchange(WHOLE, offset, Ordering::Relaxed, Ordering::Relaxed);
        }
        _ => pass_on(signal, info, context),
    }
}

/// The smallest page size of any architecture; offsets are told in it.
const PAGE_FLOOR: usize = 4096;

/// Maps zeros over the page of `address`. Async-signal-safe: one system call.
fn replace(address: usize) -> bool {
    let page = rustix::param::page_size();
    let begin = address / page * page;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies inside a guarded mapping, whose owner keeps it mapped while the guard lives; its content is
    // gone anyway.
    let mapped = unsafe { libc::mmap(begin as *mut libc::c_void, page, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

/// Does with the signal what would have been done without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: written before this handler was installed, never changed since.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: back to the default; returning makes the access fault again, which now ends the process as it
            // would have without us.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: it was registered with SA_SIGINFO, so it has this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was registered without SA_SIGINFO, so it has this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::{PAGE, TestFile};
    use std::process::Command;

    #[test]
    fn a_page_that_is_gone_reads_as_zeros_and_is_told() {
        let file = TestFile::on_disk(8 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 8 * PAGE, &Default::default()).unwrap();
        let guard = guard(&mapping);
        file.file().set_len(2 * PAGE as u64).unwrap();

        // SAFETY: guarded; nobody else changes the file.
        let bytes = unsafe { mapping.bytes(0, 8 * PAGE) };

        assert_eq!(bytes[PAGE], file.content()[PAGE]);
        assert_eq!(guard.gone(), None);
        assert_eq!(bytes[5 * PAGE + 7], 0);
        assert_eq!(guard.gone(), Some(5 * PAGE));
        assert_eq!(bytes[3 * PAGE], 0);
        assert_eq!(guard.gone(), Some(5 * PAGE), "the first one stays");
    }

    #[test]
    fn truncations_under_many_threads_crash_nobody() {
        for round in 0..200 {
            let file = TestFile::on_disk(64 * PAGE);
            let mapping = Mapping::new(file.file(), 0, 64 * PAGE, &Default::default()).unwrap();
            let guard = guard(&mapping);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let mapping = &mapping;
                    scope.spawn(move || {
                        for page in (0..64).cycle().skip(thread * 20).take(256) {
                            // SAFETY: guarded; nobody writes through the mapping.
                            std::hint::black_box(unsafe { mapping.bytes(page * PAGE, 8) }[0]);
                        }
                    });
                }
                file.file().set_len((round % 64) * PAGE as u64).unwrap();
            });
            // SAFETY: guarded.
            let last = unsafe { mapping.bytes(63 * PAGE, 8) }[0];
            assert!(guard.gone().is_some() && last == 0, "round {round}");
        }
    }

    #[test]
    fn a_sigbus_elsewhere_still_ends_the_process() {
        const CHILD: &str = "FAULTLINE_TEST_SIGBUS_ELSEWHERE";
        if std::env::var_os(CHILD).is_some() {
            let file = TestFile::on_disk(4 * PAGE);
            let (ours, other) = (0..2)
                .map(|_| Mapping::new(file.file(), 0, 4 * PAGE, &Default::default()).unwrap())
                .fold((None, None), |(_, last), next| (last, Some(next)));
            let (ours, other) = (ours.unwrap(), other.unwrap());
            let _guard = guard(&ours);
            file.file().set_len(0).unwrap();
            // Nobody will be there to remove it.
            std::fs::remove_file(file.path()).unwrap();
            // SAFETY: it isn't: this is the crash the parent expects.
            std::hint::black_box(unsafe { other.bytes(0, 1) }[0]);
            std::process::exit(0);
        }
        let name = "sys::fault::tests::a_sigbus_elsewhere_still_ends_the_process";
        let own = std::env::current_exe().unwrap();

        let status = Command::new(own).args([name, "--exact"]).env(CHILD, "1").output().unwrap().status;

        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
    }
}
