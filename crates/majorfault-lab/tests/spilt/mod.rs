//! The programs whose blocks go into files: each checks what it may expect of memory, and says so at the end.

use rand::Rng;
use rand_pcg::Pcg64Mcg;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;

const PAGE: usize = 4096;
pub const MIB: usize = 1 << 20;

/// Runs the program of this name.
pub fn run(name: &str, number: u64) {
    match name {
        "family" => family(number, 600),
        "threads" => std::thread::scope(|scope| {
            (0..6).for_each(|thread| drop(scope.spawn(move || family(number * 100 + thread, 300))));
        }),
        "grow" => grow(),
        "forks" => forks(),
        "many forks" => many_forks(),
        "bare fork" => bare_fork(),
        "no room to fork" => no_room_to_fork(number as usize * MIB),
        "comes and goes" => comes_and_goes(),
        "closes" => closes(),
        "empties" => empties(),
        "file limit" => file_limit(),
        "shut in" => shut_in(),
        "names only" => {
            refuse_nameless_files();
            family(number, 200);
        }
        "fills" => fills(number as usize * MIB),
        "waits" => waits(),
        other => panic!("there is no {other}"),
    }
    println!("all bytes were right");
}

/// A block of the family, and what stands in it.
struct Held {
    at: *mut u8,
    bytes: usize,
    seed: u64,
}

// SAFETY: the block is its own.
unsafe impl Send for Held {}

/// Bytes apart of those that are looked at: some of each page, at changing places.
const STEP: usize = 509;

impl Held {
    fn new(at: *mut c_void, bytes: usize, seed: u64) -> Held {
        assert!(!at.is_null(), "{bytes} bytes");
        // SAFETY: a block of the family.
        assert!(unsafe { libc::malloc_usable_size(at) } >= bytes, "{bytes} bytes");
        let held = Held { at: at.cast(), bytes, seed };
        held.fill();
        held
    }

    fn byte(&self, at: usize) -> u8 {
        (self.seed as usize).wrapping_mul(31).wrapping_add(at / STEP) as u8
    }

    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.bytes).step_by(STEP).chain(self.bytes.checked_sub(1))
    }

    fn fill(&self) {
        // SAFETY: within the block.
        self.places().for_each(|at| unsafe { *self.at.add(at) = self.byte(at) });
    }

    /// Checks the first `bytes`.
    fn check(&self, bytes: usize) {
        for at in (0..bytes).step_by(STEP) {
            // SAFETY: within the block.
            assert_eq!(unsafe { *self.at.add(at) }, self.byte(at), "byte {at} of {}", self.bytes);
        }
    }

    fn resize(&mut self, bytes: usize) {
        let kept = self.bytes.min(bytes);
        // SAFETY: a block of the family.
        let at = unsafe { libc::realloc(self.at.cast(), bytes) };
        assert!(!at.is_null());
        (self.at, self.bytes) = (at.cast(), bytes);
        self.check(kept);
        self.fill();
    }

    fn free(self) {
        self.check(self.bytes);
        // SAFETY: a block of the family, which nobody has any more.
        unsafe { libc::free(self.at.cast()) };
    }
}

/// A block of malloc(3).
fn malloc(bytes: usize, seed: u64) -> Held {
    // SAFETY: a valid call.
    Held::new(unsafe { libc::malloc(bytes) }, bytes, seed)
}

/// A size: mostly around what goes into a file, some far from it.
fn size(draw: &mut Pcg64Mcg) -> usize {
    let most = 1usize << draw.random_range(10..22);
    draw.random_range(1..=most)
}

/// A new block, by any member of the family.
fn obtain(draw: &mut Pcg64Mcg) -> Held {
    let (bytes, seed) = (size(draw), draw.random());
    let alignment = 8usize << draw.random_range(0..14);
    let mut at = ptr::null_mut();
    // SAFETY: calls of the family with valid arguments.
    unsafe {
        match draw.random_range(0..6) {
            0 => at = libc::malloc(bytes),
            1 => {
                at = libc::calloc(bytes.div_ceil(7), 7);
                (0..bytes).for_each(|byte| assert_eq!(*at.cast::<u8>().add(byte), 0, "calloc"));
            }
            2 => assert_eq!(libc::posix_memalign(&raw mut at, alignment, bytes), 0),
            3 => at = libc::aligned_alloc(alignment, bytes),
            4 => at = libc::memalign(alignment, bytes),
            _ => at = libc::reallocarray(ptr::null_mut(), bytes.div_ceil(3), 3),
        }
        if at.cast::<u8>().addr() % 8 != 0 {
            panic!("not aligned at all");
        }
    }
    Held::new(at, bytes, seed)
}

/// Random calls of the family on some blocks, against what must stand in them.
fn family(seed: u64, steps: usize) {
    let mut draw = Pcg64Mcg::new(u128::from(seed) + 1);
    let mut blocks: Vec<Option<Held>> = (0..16).map(|_| None).collect();
    for _ in 0..steps {
        let at = draw.random_range(0..blocks.len());
        match (blocks[at].take(), draw.random_range(0..3)) {
            (None, _) => blocks[at] = Some(obtain(&mut draw)),
            (Some(held), 0) => held.free(),
            (Some(mut held), _) => {
                held.resize(size(&mut draw));
                blocks[at] = Some(held);
            }
        }
    }
    blocks.into_iter().flatten().for_each(Held::free);
    alignments();
}

fn alignments() {
    for power in 3..24 {
        let mut at = ptr::null_mut();
        // SAFETY: valid arguments.
        assert_eq!(unsafe { libc::posix_memalign(&raw mut at, 1 << power, 3 * MIB) }, 0);
        assert_eq!(at.addr() % (1 << power), 0, "2^{power}");
        Held::new(at, 3 * MIB, power).free();
    }
}

/// Grows in small steps and in large ones, and shrinks.
fn grow() {
    let mut held = malloc(100, 5);
    let mut wall = Vec::new();
    for step in 1..200 {
        held.resize(step * 100_000);
        // Something that may lie just behind it.
        wall.push(malloc(MIB, step as u64));
        wall.truncate(3);
    }
    for bytes in [30 * MIB, 29 * MIB, 9 * MIB, 64 * MIB, 2 * MIB, 700_000, 5000, 3 * MIB, 10] {
        held.resize(bytes);
    }
    held.free();
    wall.into_iter().for_each(Held::free);
}

/// What ended a forked child: its exit code, or the signal.
fn child_of(work: impl FnOnce() -> bool) -> i32 {
    let mut status = 0;
    // SAFETY: the child works on memory of its own and ends without running this process's ends.
    unsafe {
        match libc::fork() {
            0 => {
                let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
                libc::_exit(i32::from(!is_right));
            }
            child => assert_eq!(libc::waitpid(child, &raw mut status, 0), child),
        }
    }
    if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Both sides of a fork write, and have their own.
fn forks() {
    let mut draw = Pcg64Mcg::new(3);
    let mut blocks: Vec<Held> = (0..12).map(|_| obtain(&mut draw)).collect();
    blocks.push(malloc(9 * MIB, 1));
    blocks[12].resize(20 * MIB);
    let (mut to, mut from) = ([0; 2], [0; 2]);
    // SAFETY: places for two descriptors each.
    unsafe { assert_eq!((libc::pipe(to.as_mut_ptr()), libc::pipe(from.as_mut_ptr())), (0, 0)) };
    let mut byte = 0u8;
    // SAFETY: a place for one byte, and descriptors of ours.
    let tell = |fd: i32| unsafe { assert_eq!(libc::write(fd, [1u8].as_ptr().cast(), 1), 1) };
    // SAFETY: as above.
    let mut hear = |fd: i32| unsafe { assert_eq!(libc::read(fd, (&raw mut byte).cast(), 1), 1) };

    // SAFETY: as in `child_of`.
    let child = unsafe { libc::fork() };
    // Each side keeps its own ends, so that neither waits for one that is gone.
    let others = if child == 0 { [to[1], from[0]] } else { [to[0], from[1]] };
    for fd in others {
        // SAFETY: a descriptor that nobody uses afterwards.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }
    if child == 0 {
        hear(to[0]);
        // The parent has written meanwhile.
        blocks.iter().for_each(|held| held.check(held.bytes));
        blocks.iter_mut().for_each(|held| held.seed += 2);
        blocks.iter().for_each(Held::fill);
        blocks[12].resize(40 * MIB);
        blocks.push(obtain(&mut draw));
        tell(from[1]);
        hear(to[0]);
        blocks.into_iter().for_each(Held::free);
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    blocks.iter_mut().for_each(|held| held.seed += 1);
    blocks.iter().for_each(Held::fill);
    tell(to[1]);
    hear(from[0]);
    blocks.iter().for_each(|held| held.check(held.bytes));
    tell(to[1]);
    let mut status = 0;
    // SAFETY: our child.
    unsafe { assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0)) };
    blocks.into_iter().for_each(Held::free);
}

/// Forks of forks, and while other threads allocate.
fn many_forks() {
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..2).map(|thread| scope.spawn(move || family(50 + thread, 200))).collect();
        let mut held = malloc(5 * MIB, 8);
        for round in 0..20 {
            let child = child_of(|| {
                held.check(held.bytes);
                held.seed = 90;
                held.fill();
                child_of(|| {
                    held.check(held.bytes);
                    true
                }) == 0
            });
            assert_eq!(child, 0, "round {round}");
            held.check(held.bytes);
        }
        held.free();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A child that the C library knows nothing of cannot change our blocks.
fn bare_fork() {
    let held = malloc(4 * MIB, 4);
    let mut status = 0;
    // SAFETY: fork(2) by its number: the child writes into a block that it does not have.
    unsafe {
        let child = libc::syscall(libc::SYS_fork) as i32;
        if child == 0 {
            *held.at = held.byte(0) + 1;
            libc::syscall(libc::SYS_exit_group, 0);
        }
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    held.free();
}

/// With a block of so many bytes, of which there is no room for a copy.
fn no_room_to_fork(bytes: usize) {
    let held = malloc(bytes, 4);
    assert_eq!(child_of(|| true), libc::SIGKILL);
    held.free();
    assert_eq!(child_of(|| true), 0, "there is nothing to copy");
}

/// Blocks one after the other, of which the disk has room for some at once; in a child, too.
fn comes_and_goes() {
    let block = |mib: usize| malloc(mib * MIB, mib as u64);
    (0..20).for_each(|_| block(16).free());
    let (large, small) = (block(25), block(1));
    let child = child_of(|| {
        large.free();
        block(45).free();
        small.check(small.bytes);
        true
    });
    assert_eq!(child, 0);
}

/// No descriptor is needed for what is there.
fn closes() {
    let mut held = malloc(4 * MIB, 4);
    // SAFETY: closes descriptors that nobody here uses afterwards.
    unsafe { assert_eq!(libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0), 0) };
    held.check(held.bytes);
    held.resize(30 * MIB);
    held.free();
    family(3, 200);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(open, 4, "three, and the directory that is read");
}

/// Memory that a program gives up reads as zeros.
fn empties() {
    let held = malloc(4 * MIB, 4);
    let (from, bytes) = (2 * PAGE, MIB);
    // SAFETY: whole pages within the block.
    unsafe {
        assert_eq!(held.at.addr() % PAGE, 0);
        assert_eq!(libc::madvise(held.at.add(from).cast(), bytes, libc::MADV_DONTNEED), 0);
        assert_eq!(libc::madvise(held.at.cast(), held.bytes, libc::MADV_HUGEPAGE), 0);
        assert!((from..from + bytes).all(|at| *held.at.add(at) == 0));
    }
    held.check(from);
    held.fill();
    held.free();
}

/// A limit on the size of files is no signal.
fn file_limit() {
    let limit = libc::rlimit { rlim_cur: 2 * MIB as u64, rlim_max: 2 * MIB as u64 };
    // SAFETY: a live value.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0) };
    let [small, large] = [MIB, 4 * MIB].map(|bytes| malloc(bytes, 1));
    [small, large].into_iter().for_each(Held::free);
}

/// A process that gives up the right to more is left alone from then on.
fn shut_in() {
    let mut before = malloc(MIB, 1);
    // SAFETY: gives up rights of this process alone.
    unsafe { assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0) };
    let after = malloc(MIB, 2);
    before.resize(8 * MIB);
    [before, after].into_iter().for_each(Held::free);
}

/// From now on the kernel makes no file without a name, as on some file systems: seccomp(2), by numbers, as no C library's call.
fn refuse_nameless_files() {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, set, end) =
        (libc::BPF_LD | libc::BPF_W, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_JMP | libc::BPF_JSET, libc::BPF_RET);
    let mut steps = [
        step(load, 0, 0, 0),
        step(equal, 0, 3, libc::SYS_openat as u32),
        // The third argument.
        step(load, 0, 0, 32),
        step(set, 0, 1, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32),
        step(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32),
        step(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a live program.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 1, &raw const program), 0);
    }
}

/// Blocks of 4 MiB until there are so many bytes, all of which hold.
fn fills(bytes: usize) {
    let block = |seed: usize| malloc(4 * MIB, seed as u64);
    let all: Vec<Held> = (0..bytes / (4 * MIB)).map(block).collect();
    all.into_iter().for_each(Held::free);
}

/// Has a block, says so, and waits to be killed.
fn waits() {
    let held = malloc(16 * MIB, 4);
    std::fs::write("begun", "").unwrap();
    while Path::new("begun").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    held.free();
}
