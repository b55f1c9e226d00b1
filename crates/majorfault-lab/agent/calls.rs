//! The system calls of the agent, and of the library of blocks in files, without any C library (x86-64).

use core::arch::{asm, global_asm};

// What the compiler may call by itself. Hidden: the program's own are the C library's.
global_asm!(
    ".hidden memcpy, memset, rust_eh_personality",
    ".globl memcpy, memset, rust_eh_personality",
    "memcpy: mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset: mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    // Nothing unwinds here.
    "rust_eh_personality: ud2",
);

/// System calls by number.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Call {
    Write = 1,
    Close = 3,
    Fstat = 5,
    Mmap = 9,
    Munmap = 11,
    RtSigprocmask = 14,
    Ioctl = 16,
    Pwrite64 = 18,
    SchedYield = 24,
    Mremap = 25,
    Madvise = 28,
    Getpid = 39,
    Clone = 56,
    Exit = 60,
    Kill = 62,
    Fchmod = 91,
    Prctl = 157,
    Futex = 202,
    ExitGroup = 231,
    Tgkill = 234,
    Openat = 257,
    Unlinkat = 263,
    Renameat = 264,
    Unshare = 272,
    Fallocate = 285,
    Prlimit64 = 302,
    Setns = 308,
}

/// MADV_WILLNEED.
pub const WILL_NEED: u64 = 3;
/// MADV_PAGEOUT.
pub const PAGE_OUT: u64 = 21;
/// PR_SET_NAME.
pub const SET_NAME: u64 = 15;

/// AT_FDCWD; our paths are absolute.
pub const HERE: u64 = -100i64 as u64;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;

/// Makes a system call; below 0 an error's number. Addresses among the arguments are of memory that the call may use.
pub fn call(number: Call, arguments: [u64; 6]) -> i64 {
    let result;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel's convention. What the call does to memory is its caller's: all are in this library.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as u64 => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

fn address(path: &[u8]) -> u64 {
    path.as_ptr() as u64
}

/// Opens a file that was not there, for its owner alone.
pub fn create(path: &[u8]) -> Option<u64> {
    // O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW, O_CLOEXEC.
    let flags = 0o2 | 0o100 | 0o200 | 0o400_000 | 0o2_000_000;
    u64::try_from(call(Call::Openat, [HERE, address(path), flags, 0o600, 0, 0])).ok()
}

pub fn unlink(path: &[u8]) -> i64 {
    call(Call::Unlinkat, [HERE, address(path), 0, 0, 0, 0])
}

pub fn rename(from: &[u8], to: &[u8]) -> i64 {
    call(Call::Renameat, [HERE, address(from), HERE, address(to), 0, 0])
}

/// Maps a file, shared, for this process and not for those that it forks.
pub fn map(file: u64, length: u64) -> Option<u64> {
    // PROT_READ | PROT_WRITE, MAP_SHARED; MADV_DONTFORK.
    let mapped = call(Call::Mmap, [0, length, 3, 1, file, 0]);
    let mapped = u64::try_from(mapped).ok()?;
    (call(Call::Madvise, [mapped, length, 10, 0, 0, 0]) == 0).then_some(mapped)
}

/// RLIMIT_FSIZE.
pub fn largest_file() -> u64 {
    let mut limits = [0u64; 2];
    call(Call::Prlimit64, [0, 1, 0, limits.as_mut_ptr() as u64, 0, 0]);
    // SAFETY: a live array, which the kernel has changed.
    unsafe { core::ptr::read_volatile(&limits)[0] }
}

/// Blocks just these signals, and says which were.
pub fn set_signals(blocked: *const u64, before: *mut u64) {
    call(Call::RtSigprocmask, [2, blocked as u64, before as u64, 8, 0, 0]);
}

/// Sleeps while the number there is still this one.
pub fn sleep(on: *mut u32, value: u32) {
    call(Call::Futex, [on as u64, FUTEX_WAIT, value.into(), 0, 0, 0]);
}

/// Wakes who sleeps on the number.
pub fn wake(on: *mut u32) {
    call(Call::Futex, [on as u64, FUTEX_WAKE, 1, 0, 0, 0]);
}

/// Ends this thread, and no other.
pub fn end_thread() -> ! {
    loop {
        call(Call::Exit, [0; 6]);
    }
}

/// Starts a thread on the stack that ends at `top`; its number, which also stands at `number` until it has ended.
pub fn start_thread(top: u64, number: *mut u32, run: extern "C" fn() -> !) -> i64 {
    // CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, PARENT_SETTID, CHILD_CLEARTID: a thread as pthread_create(3) makes one.
    const FLAGS: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x10_0000 | 0x20_0000;
    let thread;
    // SAFETY: the new thread has a stack of its own, aligned by 16, runs what never returns, and uses no thread-local storage.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") Call::Clone as u64 => thread,
            in("rdi") FLAGS, in("rsi") top, in("rdx") number, in("r10") number, in("r8") 0, in("r9") run,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    thread
}
