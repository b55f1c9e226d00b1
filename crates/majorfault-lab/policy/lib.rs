//! The library of `majorfault run --map-policy`: preloaded into a program, it gives one advice for each file that the program maps, right
//! after mmap(2), in the same thread. What the program sees of its calls is the same.
//!
//! Compiled by `build.rs` like the agent, without a standard library; it needs the program's C library only for errno. Mappings that the
//! loader and the C library make themselves do not come by here. A refused advice is no error of the program's.

#![no_std]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[path = "../agent/calls.rs"]
#[allow(dead_code, reason = "the agent uses the rest")]
mod calls;
#[path = "../src/launch/map_policy/settings.rs"]
#[allow(dead_code, reason = "one side of it")]
mod settings;

use calls::{Call, HERE, WILL_NEED, call};
use settings::{
    BUDGET, BYTES, COUNT, DEVICE, FILE_WORDS, FIRST, INODE, LEAST, PART_WORDS, PATH_BYTES, POLICY, PolicyCode,
};

/// The settings, which the launcher writes over this mark; read as volatile, because that is after the compiler has seen it.
#[used]
static SETTINGS: [u8; BYTES] = *include_bytes!("settings.mark");

/// Where the table of hot parts is, ended by a zero; written over by the launcher as well.
#[used]
static TABLE_PATH: [u8; PATH_BYTES] = *include_bytes!("table.mark");

/// The table in memory, and its words: none before the first mapping, and where it could not be read.
static TABLE: AtomicUsize = AtomicUsize::new(UNREAD);
static TABLE_WORDS: AtomicUsize = AtomicUsize::new(0);

/// It was not tried yet. No address is this one.
const UNREAD: usize = 1;

/// Bytes that were read in whole.
static LOADED: AtomicU64 = AtomicU64::new(0);

// mmap(2)
const ANONYMOUS: i32 = 0x20;
const READ: i32 = 1;
const PRIVATE: u64 = 2;

// open(2)
const CLOSE_ON_EXEC: u64 = 0o2_000_000;

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
    if file >= 0 && flags & ANONYMOUS == 0 && length as u64 >= setting(LEAST) {
        if let Some(file) = regular(file) {
            advise(Mapping { address: mapped as u64, length: length as u64, offset: offset as u64, file }, access);
        }
    }
    mapped as isize
}

/// A file that was just mapped: where, from which of its bytes on, and how many.
struct Mapping {
    address: u64,
    length: u64,
    offset: u64,
    file: FileId,
}

/// A file by its numbers.
struct FileId {
    device: u64,
    inode: u64,
    length: u64,
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(address: usize, length: usize, access: i32, flags: i32, file: i32, offset: i64) -> isize {
    mmap(address, length, access, flags, file, offset)
}

/// What is advised of a file that was just mapped.
fn advise(mapping: Mapping, access: i32) {
    let Mapping { address, length, .. } = mapping;
    let give = |advice: i32| call(Call::Madvise, [address, length, advice as u64, 0, 0, 0]);
    match policy() {
        Some(PolicyCode::Random) => {
            give(RANDOM);
        }
        Some(PolicyCode::Huge) => {
            give(HUGE);
        }
        Some(PolicyCode::Load) if access & READ != 0 => load(length, give),
        Some(PolicyCode::Hot) => ask(mapping),
        Some(PolicyCode::Load | PolicyCode::NoRandom) | None => {}
    }
}

/// Asks for those parts of the mapping that the table names.
fn ask(mapping: Mapping) {
    let Mapping { address, length, offset, file } = mapping;
    let table = Table::of_this_process();
    let Some(parts) = table.parts(file.device, file.inode) else { return };
    let end = offset.saturating_add(length);
    for part in parts.from_byte(table, offset) {
        let (start, stop) = (part.start.max(offset), part.end.min(end));
        if part.start >= end {
            return;
        }
        // The kernel reads so much ahead of what it is asked for at most; the table's parts are no longer than that.
        call(Call::Madvise, [address + (start - offset), stop - start, WILL_NEED, 0, 0, 0]);
    }
}

/// What the launcher has written: which parts of which files are asked for.
#[derive(Clone, Copy)]
struct Table {
    words: &'static [u64],
}

/// The parts of one file: which of the table's.
struct Parts {
    first: usize,
    count: usize,
}

/// Bytes of a file.
struct Part {
    start: u64,
    end: u64,
}

impl Table {
    /// The table, which the first who asks reads.
    fn of_this_process() -> Table {
        if TABLE.load(Ordering::Acquire) == UNREAD {
            let (address, words) = read_table().unwrap_or((0, 0));
            if address != 0 {
                // Before the address: whoever sees that one sees them. All threads find the same file.
                TABLE_WORDS.store(words, Ordering::Relaxed);
            }
            if TABLE.compare_exchange(UNREAD, address, Ordering::AcqRel, Ordering::Acquire).is_err() && address != 0 {
                call(Call::Munmap, [address as u64, words as u64 * 8, 0, 0, 0, 0]);
            }
        }
        match TABLE.load(Ordering::Acquire) {
            0 | UNREAD => Table { words: &[] },
            // SAFETY: a mapping of so many bytes that nobody removes, of a file that nobody changes.
            address => Table {
                words: unsafe {
                    core::slice::from_raw_parts(address as *const u64, TABLE_WORDS.load(Ordering::Relaxed))
                },
            },
        }
    }

    fn word(self, at: usize) -> usize {
        self.words.get(at).map_or(0, |word| *word as usize)
    }

    /// The parts of the file with these numbers.
    fn parts(self, device: u64, inode: u64) -> Option<Parts> {
        let mut files = (0..self.word(0)).map(|number| 1 + number * FILE_WORDS);
        let file = files.find(|at| self.word(at + DEVICE) as u64 == device && self.word(at + INODE) as u64 == inode)?;
        Some(Parts { first: self.word(file + FIRST), count: self.word(file + COUNT) })
    }

    fn part(self, number: usize) -> Part {
        let at = 1 + self.word(0) * FILE_WORDS + number * PART_WORDS;
        let start = self.word(at) as u64;
        Part { start, end: start + self.word(at + 1) as u64 }
    }
}

impl Parts {
    /// Those that end behind this byte of the file, in ascending order.
    fn from_byte(self, table: Table, byte: u64) -> impl Iterator<Item = Part> {
        let (mut low, mut high) = (self.first, self.first + self.count);
        let end = high;
        while low < high {
            let middle = low + (high - low) / 2;
            if table.part(middle).end <= byte { low = middle + 1 } else { high = middle }
        }
        (low..end).map(move |number| table.part(number))
    }
}

/// Maps the table; its address and its words.
fn read_table() -> Option<(usize, usize)> {
    let file = call(Call::Openat, [HERE, (&raw const TABLE_PATH) as u64, CLOSE_ON_EXEC, 0, 0, 0]);
    let file = u64::try_from(file).ok()?;
    let length = regular(file as i32).map_or(0, |file| file.length);
    let mapped = call(Call::Mmap, [0, length, READ as u64, PRIVATE, file, 0]);
    call(Call::Close, [file, 0, 0, 0, 0, 0]);
    (mapped > 0).then_some((mapped as usize, length as usize / 8))
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

/// The file's numbers; none of a device, whose memory means something.
fn regular(file: i32) -> Option<FileId> {
    let mut status = [0u64; 18];
    let failed = call(Call::Fstat, [file as u64, status.as_mut_ptr() as u64, 0, 0, 0, 0]) != 0;
    // struct stat: st_dev, st_ino, and the 32-bit word st_mode at byte 24; st_size at byte 48.
    // SAFETY: a live array, which the kernel has changed.
    let [device, inode, mode, length] = [0, 1, 3, 6].map(|at| unsafe { core::ptr::read_volatile(&status[at]) });
    (!failed && mode as u32 & 0o170_000 == 0o100_000).then_some(FileId { device, inode, length })
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
