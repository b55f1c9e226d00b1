//! The agent: preloaded into a program that may not be advised from outside, it does for the supervisor what a process may do to itself:
//! madvise(2) with WILLNEED or PAGEOUT. Nothing else, and no byte of the program changes.
//!
//! Compiled by `build.rs` into a library of a few pages that needs no other, so that any C library's loader takes it. Before the program's
//! own code it makes a page of shared memory (`DIRECTORY/PID`, see `ring.rs`) and one thread, which sleeps until there are orders. The
//! thread is the kernel's alone: no allocation, no C library, no thread-local storage, all signals blocked. Where anything fails there is
//! no agent, and the program runs as it would. Forked children have none: memory and thread are not theirs.

#![no_std]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ring::{AgentAdvice, AgentOrder, BYTES, NUMBERS, OrderRing, RingEntry, SIGN};

mod calls;
#[path = "../src/launch/agent/ring.rs"]
#[allow(dead_code, reason = "one side of it")]
mod ring;
mod single;

use calls::{Call, call};

/// The directory of the run, and in the last byte the size of a page, as a power of two. The supervisor writes it over this mark; read as
/// volatile, because that is after the compiler has seen it.
#[used]
static DIRECTORY: [u8; 256] = *include_bytes!("directory.mark");

fn directory(at: usize) -> u8 {
    // SAFETY: a reference is valid for a read.
    DIRECTORY.get(at).map_or(0, |byte| unsafe { core::ptr::read_volatile(byte) })
}

/// Bytes of the agent's stack. Two pages of it are touched.
const STACK: usize = 32 << 10;

#[repr(align(64))]
struct Stack(core::cell::UnsafeCell<[u8; STACK]>);

// SAFETY: only the agent's thread has it.
unsafe impl Sync for Stack {}

static AGENT_STACK: Stack = Stack(core::cell::UnsafeCell::new([0; STACK]));

/// Where the ring is mapped; 0 where it is not.
static RING: AtomicU64 = AtomicU64::new(0);

/// The process that has the agent, and its thread, 0 from when that has ended.
static OWNER: AtomicU32 = AtomicU32::new(0);
static THREAD: AtomicU32 = AtomicU32::new(0);

/// Asks the agent to end.
static IS_LEAVING: AtomicU32 = AtomicU32::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let mut path = Path::new();
    let process = call(Call::Getpid, [0; 6]) as u32;
    path.add_directory();
    path.add_number(process);
    // The name appears when all is ready: whoever finds the ring finds an agent.
    let mut unready = path;
    unready.add(b'+');
    let Some(ring) = make_ring(&unready) else { return };
    OWNER.store(process, Ordering::Relaxed);
    RING.store(ring, Ordering::Release);
    let thread = start();
    if thread > 0 {
        let shared = shared(ring);
        shared.number(RingEntry::Thread).store(thread as u32, Ordering::Relaxed);
        shared.number(RingEntry::Sign).store(SIGN, Ordering::Release);
        if calls::rename(&unready.bytes, &path.bytes) == 0 {
            return;
        }
    }
    calls::unlink(&unready.bytes);
}

/// A page of shared memory with this name, of which forked children have nothing; its address.
fn make_ring(path: &Path) -> Option<u64> {
    // A limit on the size of files would be a signal to the program.
    if calls::largest_file() < BYTES as u64 {
        return None;
    }
    calls::unlink(&path.bytes);
    let file = calls::create(&path.bytes)?;
    // Whatever the mask of the program says. And with its memory taken now: a full disk would be a signal later.
    let is_whole = call(Call::Fchmod, [file, 0o600, 0, 0, 0, 0]) == 0
        && call(Call::Fallocate, [file, 0, 0, BYTES as u64, 0, 0]) == 0;
    let ring = if is_whole { calls::map(file, BYTES as u64) } else { None };
    call(Call::Close, [file, 0, 0, 0, 0, 0]);
    if ring.is_none() {
        calls::unlink(&path.bytes);
    }
    ring
}

/// Starts the thread with all signals blocked; its number, or below 1.
fn start() -> i64 {
    let mut before = 0u64;
    let (all, before) = (u64::MAX, &raw mut before);
    calls::set_signals(&raw const all, before);
    let top = AGENT_STACK.0.get() as u64 + STACK as u64;
    let thread = calls::start_thread(top, THREAD.as_ptr(), agent);
    calls::set_signals(before, core::ptr::null_mut());
    thread
}

/// The thread: sleeps, works, sleeps.
extern "C" fn agent() -> ! {
    call(Call::Prctl, [calls::SET_NAME, c"majorfault".as_ptr() as u64, 0, 0, 0, 0]);
    let ring = shared(RING.load(Ordering::Acquire));
    let page = 1 << directory(255);
    let is_over = || IS_LEAVING.load(Ordering::Acquire) != 0;
    ring.serve(is_over, |order| advise(order, page), |bell, heard| calls::sleep(bell.as_ptr(), heard));
    calls::end_thread()
}

fn advise(order: AgentOrder, page: u64) {
    let AgentOrder { first, pages, advice } = order;
    let advice = match advice {
        AgentAdvice::WillNeed => calls::WILL_NEED,
        AgentAdvice::PageOut => calls::PAGE_OUT,
    };
    // The kernel checks the range again. What it refuses (unmapped meanwhile, memory that takes no such advice) is not done.
    if let (Some(start), Some(length)) = (first.checked_mul(page), pages.checked_mul(page)) {
        call(Call::Madvise, [start, length, advice, 0, 0, 0]);
    }
}

/// The ring that is mapped at `address`.
fn shared(address: u64) -> OrderRing<'static, AtomicU32, AtomicU64> {
    let slots = address + (NUMBERS * 4) as u64;
    // SAFETY: mapped by `make_ring` with these bytes and for ever, at a page's begin. Others change it by atomic accesses.
    unsafe {
        let numbers = &*(address as *const [AtomicU32; NUMBERS]);
        let slots = core::slice::from_raw_parts(slots as *const AtomicU64, (BYTES - NUMBERS * 4) / 8);
        OrderRing { numbers, slots }
    }
}

/// A path that is put together, with a zero at its end.
#[derive(Clone, Copy)]
struct Path {
    bytes: [u8; 288],
    length: usize,
}

impl Path {
    const fn new() -> Path {
        Path { bytes: [0; 288], length: 0 }
    }

    fn add(&mut self, byte: u8) {
        // The last one stays zero.
        if self.length + 1 < self.bytes.len() {
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    fn add_directory(&mut self) {
        let text = (0..255).map(directory).take_while(|byte| *byte != 0);
        text.for_each(|byte| self.add(byte));
        self.add(b'/');
    }

    fn add_number(&mut self, mut number: u32) {
        let mut digits = [0u8; 10];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        digits[first..].iter().for_each(|digit| self.add(*digit));
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    calls::end_thread()
}
