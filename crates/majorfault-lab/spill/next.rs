//! The allocator behind this one: what would have been called without us.
//!
//! Found by dlsym(3), which may allocate itself: what is asked for until then comes from a small buffer and is never given back.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes for what is allocated while the next allocator is looked for.
const EARLY: usize = 16 << 10;

#[repr(align(16))]
struct Early(UnsafeCell<[u8; EARLY]>);

// SAFETY: each byte is given to one caller.
unsafe impl Sync for Early {}

static BUFFER: Early = Early(UnsafeCell::new([0; EARLY]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The address of a symbol that need not be there; 0 where it is not.
macro_rules! weak {
    ($name:ident) => {{
        let place: usize;
        // SAFETY: reads an address from the table of global symbols.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", stringify!($name)),
                concat!("mov {}, qword ptr [rip + ", stringify!($name), "@GOTPCREL]"),
                out(reg) place,
                options(nostack, readonly, pure),
            );
        }
        place
    }};
}
pub(crate) use weak;

/// The functions of the family.
#[derive(Clone, Copy)]
pub enum Member {
    Malloc,
    Calloc,
    Realloc,
    Free,
    PosixMemalign,
    Memalign,
    AlignedAlloc,
    Valloc,
    Pvalloc,
    UsableSize,
}

const NAMES: [&core::ffi::CStr; 10] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"posix_memalign",
    c"memalign",
    c"aligned_alloc",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
];

static FOUND: [AtomicUsize; 10] = [const { AtomicUsize::new(0) }; 10];

/// 0 not looked for, 1 looked for just now, 2 found.
static STATE: AtomicUsize = AtomicUsize::new(0);

/// Looks for the next allocator; whether it is known.
pub fn look() -> bool {
    if STATE.load(Ordering::Acquire) == 2 {
        return true;
    }
    // Before there are threads: the loader allocates first. Whoever asks meanwhile is dlsym itself.
    if STATE.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return STATE.load(Ordering::Acquire) == 2;
    }
    let names = NAMES.iter().zip(old_names());
    for ((name, old), place) in names.zip(&FOUND) {
        let found = by_name(name);
        place.store(if found == 0 { old } else { found }, Ordering::Relaxed);
    }
    STATE.store(2, Ordering::Release);
    true
}

fn by_name(name: &core::ffi::CStr) -> usize {
    let dlsym = weak!(dlsym);
    if dlsym == 0 {
        return 0;
    }
    // SAFETY: the loader's function of that name. RTLD_NEXT is -1.
    unsafe {
        let dlsym: extern "C" fn(isize, *const core::ffi::c_char) -> usize = core::mem::transmute(dlsym);
        core::hint::black_box(dlsym(-1, name.as_ptr()))
    }
}

/// What glibc calls its own beside: before 2.34 dlsym is in a library that need not be loaded.
fn old_names() -> [usize; 10] {
    let memalign = weak!(__libc_memalign);
    [
        weak!(__libc_malloc),
        weak!(__libc_calloc),
        weak!(__libc_realloc),
        weak!(__libc_free),
        0,
        memalign,
        memalign,
        weak!(__libc_valloc),
        weak!(__libc_pvalloc),
        0,
    ]
}

fn of(member: Member) -> usize {
    FOUND[member as usize].load(Ordering::Relaxed)
}

/// Calls the next allocator's function with these arguments, where there is one; 0 elsewhere.
pub fn call(member: Member, arguments: [usize; 3]) -> usize {
    if !look() {
        return early(member, arguments);
    }
    let place = of(member);
    if place == 0 {
        return without(member, arguments);
    }
    let [a, b, c] = arguments;
    // SAFETY: a function of the family, whose arguments are at most three words. Those beyond its own are not looked at.
    unsafe {
        let function: extern "C" fn(usize, usize, usize) -> usize = core::mem::transmute(place);
        function(a, b, c)
    }
}

/// What an allocator without such a function has in its place.
fn without(member: Member, [a, b, c]: [usize; 3]) -> usize {
    const NO_MEMORY: usize = 12;
    match member {
        Member::PosixMemalign if of(Member::Memalign) != 0 => match call(Member::Memalign, [b, c, 0]) {
            0 => NO_MEMORY,
            block => {
                // SAFETY: the caller's place for the result.
                unsafe { *(a as *mut usize) = block };
                0
            }
        },
        Member::PosixMemalign => NO_MEMORY,
        // The word before a block of glibc's is its size and three flags, of which the second says that it has a mapping of its own.
        // SAFETY: only asked for blocks of glibc's, which has no dlsym then.
        Member::UsableSize if a != 0 => unsafe {
            let word = *(a as *const usize).sub(1);
            (word & !7) - if word & 2 != 0 { 16 } else { 8 }
        },
        _ => 0,
    }
}

/// While the next allocator is looked for.
fn early(member: Member, [a, b, _]: [usize; 3]) -> usize {
    match member {
        Member::Malloc => take(a),
        Member::Calloc => a.checked_mul(b).map_or(0, take),
        Member::Realloc => {
            let new = take(b);
            if a != 0 && new != 0 {
                // SAFETY: the old one lies in the buffer, which goes on behind it.
                unsafe { core::ptr::copy(a as *const u8, new as *mut u8, b) };
            }
            new
        }
        _ => 0,
    }
}

fn take(bytes: usize) -> usize {
    let bytes = bytes.saturating_add(15) & !15;
    let at = TAKEN.fetch_add(bytes, Ordering::Relaxed);
    let fits = at.checked_add(bytes).is_some_and(|end| end <= EARLY);
    if fits { BUFFER.0.get() as usize + at } else { 0 }
}

/// Whether a block lies in the buffer.
pub fn is_early(address: usize) -> bool {
    let begin = BUFFER.0.get() as usize;
    (begin..begin + EARLY).contains(&address)
}

/// Bytes of the buffer from there on.
pub fn early_left(address: usize) -> usize {
    BUFFER.0.get() as usize + EARLY - address
}
