//! SIGBUS in a mapped file becomes an error: the page that is gone is replaced by zeros, and the mapping marked.
//!
//! A mapped page raises SIGBUS when the file was truncated before it, or the device cannot read it. The handler looks
//! up the address in a fixed table of guarded ranges (atomics only: it runs in signal context, in any thread), maps
//! anonymous zeros over that page so that the access continues, and records the first such address. The reader of the
//! mapping checks afterwards. A SIGBUS elsewhere goes to the handler that was installed before.
#![allow(unsafe_code)]

use crate::sys::map::Mapping;
use crate::sys::view::{self, View};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most ranges guarded at one time; more are left unguarded, and `guard` reports that.
const SLOTS: usize = 1024;

/// No page of the range is missing.
const WHOLE: usize = usize::MAX;

/// A range: `begin` is 0 while the slot is free, 1 while it is being filled.
struct Slot {
    begin: AtomicUsize,
    end: AtomicUsize,
    /// Offset from `begin` of the first missing page, or WHOLE.
    gone: AtomicUsize,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), gone: AtomicUsize::new(WHOLE) } }; SLOTS];

/// The handler that was installed before ours; written once, before ours can run.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once inside `INSTALL` before the handler that reads it is installed, never changed afterwards.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::uninit()));
static INSTALL: Once = Once::new();

/// While this lives, SIGBUS inside its range is caught.
#[derive(Debug)]
pub struct Guard {
    slot: Option<&'static Slot>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({:#x})", self.begin.load(Ordering::Relaxed))
    }
}

/// Guards `length` mapped bytes from the address `begin` on. The first call installs the process-wide handler, which passes
/// other signals on to the handler found.
///
/// Where the table of 1024 ranges is full, the range stays unguarded: see [`Guard::is_active`].
///
/// # Safety
///
/// The range is part of one mapping, which lives until the guard is dropped: its missing pages are replaced.
pub unsafe fn guard(begin: usize, length: usize) -> Guard {
    INSTALL.call_once(install);
    let free = TABLE.iter().find(|slot| slot.begin.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if let Some(slot) = free {
        slot.end.store(begin + length, Ordering::Relaxed);
        slot.gone.store(WHOLE, Ordering::Relaxed);
        // Published last: the handler reads the other words only after it has seen this one.
        slot.begin.store(begin, Ordering::Release);
    }
    Guard { slot: free }
}

impl Guard {
    /// Whether the mapping is guarded.
    pub fn is_active(&self) -> bool {
        self.slot.is_some()
    }

    /// Offset in the mapping of the first page that was found missing, if there is one. One relaxed load.
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

/// A mapping with its guard. Its bytes are read and written by copy; slices of them need a promise.
#[derive(Debug)]
pub struct Guarded {
    /// Dropped first: its range must not be unmapped earlier.
    guard: Guard,
    mapping: Mapping,
}

impl Guarded {
    /// Takes ownership of the mapping and guards it.
    pub fn new(mapping: Mapping) -> Guarded {
        // SAFETY: the whole of a mapping that is kept beside the guard, and dropped after it.
        let guard = unsafe { guard(mapping.as_ptr() as usize, mapping.length()) };
        Guarded { guard, mapping }
    }

    /// The mapping, for advice and the like.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The guard, which tells whether a page is missing.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The bytes of `length` from `at` on, to be read by copy. Missing pages read as zeros; call [`Guard::gone`]
    /// afterwards.
    ///
    /// Panics past the end.
    #[inline]
    pub fn view(&self, at: usize, length: usize) -> View<'_> {
        self.check(at, length);
        // SAFETY: inside the mapping, which lives as long as the borrow; writing through it in safe code needs it
        // exclusively, and writers through a shared one promised that nobody reads there.
        unsafe { View::new(self.mapping.as_ptr().add(at), length) }
    }

    /// Writes `bytes` from `at` on.
    ///
    /// Panics past the end, or where the mapping is read-only.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: borrowed exclusively, so nobody else reaches them through this mapping.
        unsafe { self.write_shared(at, bytes) }
    }

    /// Writes `bytes` from `at` on, in a mapping that others use as well.
    ///
    /// Panics past the end, or where the mapping is read-only.
    ///
    /// # Safety
    ///
    /// Nobody reads or writes these bytes through this mapping meanwhile.
    #[inline]
    pub unsafe fn write_shared(&self, at: usize, bytes: &[u8]) {
        assert!(self.mapping.is_writable(), "a read-only mapping cannot be changed");
        self.check(at, bytes.len());
        // SAFETY: inside the mapping and writable; the rest is the caller's promise.
        unsafe { view::store(self.mapping.as_mut_ptr().add(at), bytes) }
    }

    /// The bytes of `length` from `at` on, in place. Missing pages read as zeros; call [`Guard::gone`] afterwards.
    ///
    /// Panics past the end.
    ///
    /// # Safety
    ///
    /// Nobody changes these bytes while the slice lives, by this mapping, another one, or the file; the file is not
    /// truncated before their end and can be read.
    #[inline]
    pub unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: what the caller promises.
        unsafe { self.mapping.bytes(at, length) }
    }

    /// The same bytes for changing.
    ///
    /// Panics past the end, or where the mapping is read-only.
    ///
    /// # Safety
    ///
    /// As for [`bytes`](Guarded::bytes).
    #[inline]
    pub unsafe fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        assert!(self.mapping.is_writable(), "a read-only mapping cannot be changed");
        // SAFETY: borrowed exclusively; the rest is the caller's promise.
        unsafe { self.mapping.bytes_mut(at, length) }
    }

    /// Lets `change` set the bytes of `length` from `at` on in place, in a mapping that others use as well.
    ///
    /// Panics past the end, or where the mapping is read-only.
    ///
    /// # Safety
    ///
    /// As for [`bytes`](Guarded::bytes), and nobody else reads these bytes through this mapping until `change` returns.
    #[inline]
    pub unsafe fn change_shared<T>(&self, at: usize, length: usize, change: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(self.mapping.is_writable(), "a read-only mapping cannot be changed");
        // SAFETY: what the caller promises.
        change(unsafe { self.mapping.bytes_mut(at, length) })
    }

    #[inline]
    fn check(&self, at: usize, length: usize) {
        let all = self.mapping.length();
        assert!(length <= all && at <= all - length, "{length} bytes at {at} pass the end of a mapping of {all}");
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
    // SAFETY: the kernel hands over a valid siginfo for SA_SIGINFO.
    let info_ref = unsafe { &*info };
    // A signal sent by a program (kill, raise) has the sender's number instead of an address.
    let is_fault = info_ref.si_code > 0;
    // SAFETY: si_addr is set for a SIGBUS of the kernel's.
    let address = if is_fault { unsafe { info_ref.si_addr() as usize } } else { 0 };
    let mut slots = TABLE.iter();
    let hit = slots.find(|slot| {
        let begin = slot.begin.load(Ordering::Acquire);
        begin > 1 && address >= begin && address < slot.end.load(Ordering::Relaxed)
    });
    match hit {
        Some(slot) if replace(address) => {
            let page = address / PAGE_FLOOR * PAGE_FLOOR;
            let offset = page.saturating_sub(slot.begin.load(Ordering::Relaxed));
            // The first one counts; in a race between threads either may win.
            let _ = slot.gone.compare_exchange(WHOLE, offset, Ordering::Relaxed, Ordering::Relaxed);
        }
        _ => pass_on(signal, info, context, is_fault),
    }
}

/// The smallest page size of any architecture; offsets are reported in it.
const PAGE_FLOOR: usize = 4096;

/// Maps zeros over the page of `address`. Async-signal-safe: one system call.
fn replace(address: usize) -> bool {
    let page = rustix::param::page_size();
    let begin = address / page * page;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies inside a guarded mapping, which its owner keeps mapped while the guard lives; its content is
    // gone anyway.
    let mapped = unsafe { libc::mmap(begin as *mut libc::c_void, page, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

/// Handles the signal as if this handler were not installed.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, is_fault: bool) {
    // SAFETY: written before this handler was installed, never changed since.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    match previous.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: back to the default, which ends the process as it would have without us: a fault happens again
            // as soon as this returns, and what a program sent is sent again, blocked until this returns.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if !is_fault {
                    libc::raise(signal);
                }
            }
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
    use crate::sys::map::{Access, MapOptions};
    use crate::test_files::{PAGE, TestFile};
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Command, ExitStatus};

    #[test]
    fn a_page_that_is_gone_reads_as_zeros_and_is_reported() {
        let file = TestFile::on_disk(8 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 8 * PAGE, &Default::default()).unwrap();
        let guard = guarded(&mapping);
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
            let guard = guarded(&mapping);
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

    /// Guards all of a mapping that its test keeps.
    fn guarded(mapping: &Mapping) -> Guard {
        // SAFETY: every test here drops the guard before the mapping, or ends its process.
        unsafe { guard(mapping.as_ptr() as usize, mapping.length()) }
    }

    /// Runs the test of this name again in a child process, where `is_child` is true; returns how the child ended.
    fn in_a_child(test: &str) -> ExitStatus {
        let own = std::env::current_exe().unwrap();
        let name = format!("sys::fault::tests::{test}");
        Command::new(own).args([&name, "--exact"]).env(CHILD, "1").output().unwrap().status
    }

    fn is_child() -> bool {
        std::env::var_os(CHILD).is_some()
    }

    const CHILD: &str = "MAJORFAULT_TEST_SIGBUS_CHILD";

    /// Four pages of a file that has shrunk to nothing, with no file left to remove: touching one raises SIGBUS.
    fn gone() -> Mapping {
        let file = TestFile::on_disk(4 * PAGE);
        let mapping = Mapping::new(file.file(), 0, 4 * PAGE, &Default::default()).unwrap();
        file.file().set_len(0).unwrap();
        mapping
    }

    fn touch(mapping: &Mapping, at: usize) {
        // SAFETY: where it is not guarded it raises SIGBUS, which is what its test is about.
        std::hint::black_box(unsafe { mapping.bytes(at, 1) }[0]);
    }

    /// Guards the two middle pages of four.
    fn guard_the_middle(mapping: &Mapping) -> Guard {
        // SAFETY: as for all of it.
        unsafe { guard(mapping.as_ptr() as usize + PAGE, 2 * PAGE) }
    }

    #[test]
    fn a_range_is_guarded_from_its_first_byte_to_its_last() {
        for at in [PAGE, 3 * PAGE - 1] {
            let mapping = gone();
            let guard = guard_the_middle(&mapping);

            touch(&mapping, at);

            assert_eq!(guard.gone(), Some(at / PAGE * PAGE - PAGE));
        }
    }

    #[test]
    fn the_byte_after_a_guarded_range_ends_the_process() {
        if is_child() {
            let mapping = gone();
            let _guard = guard_the_middle(&mapping);
            touch(&mapping, 3 * PAGE);
            std::process::exit(0);
        }

        let status = in_a_child("the_byte_after_a_guarded_range_ends_the_process");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn the_byte_before_a_guarded_range_ends_the_process() {
        if is_child() {
            let mapping = gone();
            let _guard = guard_the_middle(&mapping);
            touch(&mapping, PAGE - 1);
            std::process::exit(0);
        }

        let status = in_a_child("the_byte_before_a_guarded_range_ends_the_process");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_range_is_guarded_no_longer_than_its_guard_lives() {
        if is_child() {
            let mapping = gone();
            drop(guard_the_middle(&mapping));
            touch(&mapping, PAGE);
            std::process::exit(0);
        }

        let status = in_a_child("a_range_is_guarded_no_longer_than_its_guard_lives");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_slot_that_was_used_before_knows_nothing_of_its_last_range() {
        let (first, second) = (gone(), gone());
        for mapping in [&first, &second] {
            let guard = guarded(mapping);
            assert_eq!(guard.gone(), None);

            touch(mapping, 2 * PAGE);

            assert_eq!(guard.gone(), Some(2 * PAGE));
        }
    }

    /// Installs a handler of SIGBUS as a program would before it uses this library.
    fn handle_by(handler: usize, flags: libc::c_int) {
        // SAFETY: a zeroed sigaction is a valid one, and the handlers below only end the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()), 0);
        }
    }

    /// The address at which a handler must have been told that a page is missing.
    static EXPECTED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn ends_with_41_at_the_address(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel's siginfo, handed on.
        let address = unsafe { (*info).si_addr() } as usize;
        let is_right = signal == libc::SIGBUS && !context.is_null() && address == EXPECTED.load(Ordering::Relaxed);
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(if is_right { 41 } else { 40 }) }
    }

    extern "C" fn ends_with_42(signal: libc::c_int) {
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(if signal == libc::SIGBUS { 42 } else { 40 }) }
    }

    /// A guarded page is replaced by zeros; then an unguarded page is touched.
    fn touch_inside_and_outside() {
        let (ours, other) = (gone(), gone());
        let guard = guarded(&ours);
        touch(&ours, PAGE);
        assert_eq!(guard.gone(), Some(PAGE));
        EXPECTED.store(other.as_ptr() as usize + 2 * PAGE + 5, Ordering::Relaxed);
        touch(&other, 2 * PAGE + 5);
    }

    #[test]
    fn a_fault_elsewhere_goes_to_the_handler_that_was_there_before() {
        if is_child() {
            handle_by(ends_with_41_at_the_address as *const () as usize, libc::SA_SIGINFO);
            touch_inside_and_outside();
            std::process::exit(0);
        }

        let status = in_a_child("a_fault_elsewhere_goes_to_the_handler_that_was_there_before");

        assert_eq!(status.code(), Some(41), "{status}");
    }

    #[test]
    fn a_fault_elsewhere_goes_to_a_handler_of_the_old_kind_that_was_there_before() {
        if is_child() {
            handle_by(ends_with_42 as *const () as usize, 0);
            touch_inside_and_outside();
            std::process::exit(0);
        }

        let status = in_a_child("a_fault_elsewhere_goes_to_a_handler_of_the_old_kind_that_was_there_before");

        assert_eq!(status.code(), Some(42), "{status}");
    }

    #[test]
    fn a_sigbus_elsewhere_still_ends_the_process() {
        if is_child() {
            touch_inside_and_outside();
            std::process::exit(0);
        }

        let status = in_a_child("a_sigbus_elsewhere_still_ends_the_process");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process_where_nobody_handled_it() {
        if is_child() {
            // Instead of the handler of Rust's runtime.
            handle_by(libc::SIG_DFL, 0);
            touch_inside_and_outside();
            std::process::exit(0);
        }

        let status = in_a_child("a_fault_elsewhere_ends_the_process_where_nobody_handled_it");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process_though_it_ignored_the_signal_before() {
        if is_child() {
            handle_by(libc::SIG_IGN, 0);
            touch_inside_and_outside();
            std::process::exit(0);
        }

        let status = in_a_child("a_fault_elsewhere_ends_the_process_though_it_ignored_the_signal_before");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_sigbus_that_a_program_sent_ends_the_process() {
        // Once it was taken for a fault that would happen again: swallowed, and the handler taken away.
        if is_child() {
            // Instead of the handler of Rust's runtime.
            handle_by(libc::SIG_DFL, 0);
            let ours = gone();
            let _guard = guarded(&ours);
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGBUS) };
            std::process::exit(0);
        }

        let status = in_a_child("a_sigbus_that_a_program_sent_ends_the_process");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    /// Sends SIGBUS to this thread as kill(2) would, which may choose another one.
    fn kill_this_thread() {
        // SAFETY: a zeroed siginfo is a valid one, and the signal is for ourselves.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            info.si_signo = libc::SIGBUS;
            info.si_code = libc::SI_USER;
            let (process, thread) = (libc::getpid(), libc::gettid());
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &raw mut info);
        }
    }

    #[test]
    fn a_sigbus_sent_by_kill_ends_the_process() {
        if is_child() {
            // Instead of the handler of Rust's runtime.
            handle_by(libc::SIG_DFL, 0);
            let ours = gone();
            let _guard = guarded(&ours);
            kill_this_thread();
            std::process::exit(0);
        }

        let status = in_a_child("a_sigbus_sent_by_kill_ends_the_process");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_range_that_another_thread_is_about_to_guard_is_not_guarded_yet() {
        if is_child() {
            let ours = gone();
            drop(guarded(&ours));
            // As between the two words that `guard` writes: the end is still that of an earlier range.
            TABLE[0].end.store(usize::MAX, Ordering::Relaxed);
            TABLE[0].begin.store(1, Ordering::Release);
            touch(&ours, PAGE);
            std::process::exit(0);
        }

        let status = in_a_child("a_range_that_another_thread_is_about_to_guard_is_not_guarded_yet");

        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    /// Four pages that can be changed.
    fn changeable(file: &TestFile) -> Guarded {
        let options = MapOptions { access: Access::Write, ..MapOptions::default() };
        Guarded::new(Mapping::new(file.file(), 0, 4 * PAGE, &options).unwrap())
    }

    #[test]
    fn what_is_written_through_a_guarded_mapping_is_in_the_file() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut mapping = changeable(&file);

        mapping.write(PAGE - 1, &[0, 2, 0]);

        let mut expected = file.content().to_vec();
        expected[PAGE - 1..PAGE + 2].copy_from_slice(&[0, 2, 0]);
        assert!(mapping.view(0, 4 * PAGE).to_vec() == expected);
        assert!(std::fs::read(file.path()).unwrap() == expected);
    }

    #[test]
    fn no_byte_past_the_end_of_a_guarded_mapping_is_lent_or_written() {
        let file = TestFile::on_disk(4 * PAGE);
        let mut mapping = changeable(&file);
        let all = 4 * PAGE;
        for (at, length, is_inside) in [
            (0, all, true),
            (all, 0, true),
            (0, all + 1, false),
            (1, all, false),
            (all, 1, false),
            (usize::MAX, 2, false),
        ] {
            let lent = catch_unwind(AssertUnwindSafe(|| mapping.view(at, length).len()));

            assert_eq!(lent.ok(), is_inside.then_some(length), "{length} bytes at {at}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| mapping.write(all - 1, &[1, 2]))).is_err());
    }

    #[test]
    fn a_guard_is_shown_with_the_address_that_it_guards() {
        let mapping = gone();

        let shown = format!("{:?}", guarded(&mapping));

        assert_eq!(shown, format!("Guard {{ slot: Some(Slot({:p})) }}", mapping.as_ptr()));
    }

    #[test]
    fn a_sigbus_that_a_program_sent_is_ignored_where_it_was_before_and_the_guards_stay() {
        if is_child() {
            handle_by(libc::SIG_IGN, 0);
            let ours = gone();
            let guard = guarded(&ours);
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGBUS) };
            touch(&ours, PAGE);
            std::process::exit(if guard.gone() == Some(PAGE) { 43 } else { 0 });
        }

        let status = in_a_child("a_sigbus_that_a_program_sent_is_ignored_where_it_was_before_and_the_guards_stay");

        assert_eq!(status.code(), Some(43), "{status}");
    }

    #[test]
    fn where_the_table_is_full_a_mapping_says_that_it_is_not_guarded() {
        // In a process of its own: the table is one for all tests.
        if is_child() {
            let mapping = gone();
            let mut guards: Vec<Guard> = (0..SLOTS).map(|_| guarded(&mapping)).collect();
            assert!(guards.iter().all(Guard::is_active));
            let more = guarded(&mapping);
            assert!(!more.is_active() && more.gone().is_none());
            guards.pop();
            assert!(guarded(&mapping).is_active(), "a slot that became free is used again");
            drop(guards);
            let file = TestFile::on_disk(PAGE);
            let _guards: Vec<Guard> = (0..SLOTS).map(|_| guarded(&mapping)).collect();
            let map = crate::map::MappedFile::open(file.path()).unwrap();
            assert!(map.notes().iter().any(|note| note.contains("unguarded")), "{:?}", map.notes());
            let opened = (crate::access::plain("mmap").unwrap().open)(file.target(false), &Default::default()).unwrap();
            assert!(opened.notes.iter().any(|note| note.contains("unguarded")), "{:?}", opened.notes);
            drop(file);
            std::process::exit(44);
        }

        let status = in_a_child("where_the_table_is_full_a_mapping_says_that_it_is_not_guarded");

        assert_eq!(status.code(), Some(44), "{status}");
    }
}
