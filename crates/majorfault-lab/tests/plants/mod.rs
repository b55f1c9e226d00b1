//! Small programs with one defect each, and healthy ones. Each runs until it is killed.

use super::world::World;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::Duration;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A planted program, killed on drop.
pub struct Plant {
    child: Child,
}

impl Plant {
    pub fn start(world: &World, name: &str) -> Plant {
        Plant::start_in(world, name, |_| ())
    }

    /// Starts it, lets `place` put it somewhere before it does anything, and waits until its defect shows.
    pub fn start_in(world: &World, name: &str, place: impl FnOnce(u32)) -> Plant {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["plant", "--exact", "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.env("MAJORFAULT_PLANT", name).env("MAJORFAULT_PLANT_DIR", world.path("")).spawn().unwrap();
        let plant = Plant { child };
        place(plant.pid());
        fs::write(world.path("placed"), "").unwrap();
        world.wait_for("the planted program", || world.path("ready").exists());
        plant
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'T', 't']))
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, if this process was started as one.
pub fn grow() {
    let Ok(name) = std::env::var("MAJORFAULT_PLANT") else { return };
    let dir = PathBuf::from(std::env::var_os("MAJORFAULT_PLANT_DIR").unwrap());
    // SAFETY: plain prctl(2): nobody is left behind when the test is killed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    while !dir.join("placed").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ready = || fs::write(dir.join("ready"), "").unwrap();
    match name.as_str() {
        "touch" => {
            let file = File::open(dir.join("data")).unwrap();
            let length = file.metadata().unwrap().len() as usize;
            if std::env::var_os("MAJORFAULT_READS").is_some() {
                let mut bytes = [0; 3 * PAGE];
                let blocks = (0..length).step_by(64 << 10).rev();
                blocks.for_each(|at| file.read_exact_at(&mut bytes, at as u64).unwrap());
                // It lives on for a while, as programs do: who has closed a file by then has named it to nobody.
                return std::thread::sleep(Duration::from_millis(500));
            }
            let map = Map::of(&file, length);
            let times = std::env::var("MAJORFAULT_TOUCHES").map_or(1, |times| times.parse().unwrap());
            for _ in 0..times {
                map.advise(libc::MADV_DONTNEED);
                (0..length).step_by(64 << 10).for_each(|at| map.touch(at));
            }
        }
        "strided" => {
            let file = data(&dir, 128);
            ready();
            loop {
                let map = Map::of(&file, 128 * MIB);
                map.advise(libc::MADV_RANDOM);
                drop_cache(&file);
                (0..128).for_each(|row| map.touch(row * MIB));
            }
        }
        "read_rows" | "read_lookups" => {
            let file = data(&dir, 256);
            ready();
            let (mut random, mut bytes) = (Random(1), [0; 2 * PAGE]);
            loop {
                drop_cache(&file);
                for row in 0..1024 {
                    let row = if name == "read_rows" { row } else { random.below(1024) };
                    file.read_exact_at(&mut bytes, (row * (256 << 10)) as u64).unwrap();
                }
            }
        }
        "flood" => {
            let file = data(&dir, 256);
            ready();
            let mut random = Random(1);
            loop {
                let map = Map::of(&file, 256 * MIB);
                drop_cache(&file);
                (0..24).for_each(|_| map.touch(random.below(256 * MIB)));
            }
        }
        "random_scan" => {
            let file = data(&dir, 32);
            ready();
            loop {
                let map = Map::of(&file, 32 * MIB);
                map.advise(libc::MADV_RANDOM);
                drop_cache(&file);
                (0..32 * MIB).step_by(PAGE).for_each(|at| map.touch(at));
            }
        }
        "populate" => {
            let file = data(&dir, 32);
            let map = Map::of(&file, 32 * MIB);
            map.advise(libc::MADV_RANDOM);
            ready();
            loop {
                map.advise(libc::MADV_DONTNEED);
                drop_cache(&file);
                map.advise(libc::MADV_POPULATE_READ);
            }
        }
        "churn" => {
            let file = data(&dir, 1);
            std::thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
            ready();
            loop {
                Map::of(&file, MIB).touch(PAGE);
            }
        }
        "fork" => {
            let memory = Map::anonymous(300 * MIB);
            memory.advise(libc::MADV_NOHUGEPAGE);
            memory.write_every(PAGE);
            ready();
            loop {
                // SAFETY: the child does nothing but end.
                match unsafe { libc::fork() } {
                    // SAFETY: ends at once, without running anything of ours.
                    0 => unsafe { libc::_exit(0) },
                    child => {
                        memory.write_every(16 * PAGE);
                        // SAFETY: waits for the child just made; no status is wanted.
                        unsafe { libc::waitpid(child, null_mut(), 0) };
                    }
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        "skewed" => {
            let file = data(&dir, 16);
            let map = Map::skewed(&file, 16 * MIB);
            map.advise(libc::MADV_HUGEPAGE);
            ready();
            rest()
        }
        "small_pages" => {
            let memory = Map::anonymous(300 * MIB);
            memory.write_every(PAGE);
            ready();
            rest()
        }
        "sparse" => {
            let memory = Map::anonymous(16384 * MIB);
            memory.advise(libc::MADV_NOHUGEPAGE);
            memory.write_every(2 * MIB);
            ready();
            rest()
        }
        "many_mappings" => {
            let most: usize = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
            let pages = most.min(2_000_000) / 20 * 17;
            let memory = Map::anonymous(pages * PAGE);
            (0..pages).step_by(2).for_each(|page| memory.protect(page * PAGE));
            ready();
            rest()
        }
        "truncated" => {
            let file = data(&dir, 8);
            let map = Map::of(&file, 8 * MIB);
            ready();
            std::thread::sleep(Duration::from_millis(800));
            loop {
                file.set_len(4 << 20).unwrap();
                map.touch(0);
                std::thread::sleep(Duration::from_millis(400));
                file.set_len(8 << 20).unwrap();
                std::thread::sleep(Duration::from_millis(400));
            }
        }
        "double_buffering" => {
            use std::os::unix::fs::FileExt;
            let file = data(&dir, 8);
            let mut buffer = vec![0; MIB];
            ready();
            loop {
                (0..8).for_each(|part| file.read_exact_at(&mut buffer, part << 20).unwrap());
            }
        }
        "misaligned_direct" => {
            data(&dir, 8);
            let path = CString::new(dir.join("data").to_str().unwrap()).unwrap();
            // SAFETY: the path is a live string.
            let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECT) };
            let mut buffer = vec![0u8; 3 * PAGE];
            ready();
            loop {
                // SAFETY: the buffer is larger than what is asked for. The call fails: nothing is aligned.
                unsafe { libc::pread(fd, buffer.as_mut_ptr().add(1).cast(), 1000, 77) };
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        "scan_again" => {
            let file = data(&dir, 128);
            let map = Map::of(&file, 128 * MIB);
            ready();
            loop {
                (0..128 * MIB).step_by(PAGE).for_each(|at| map.touch(at));
            }
        }
        "hot_under_random" => {
            let file = data(&dir, 128);
            let map = Map::of(&file, 128 * MIB);
            map.advise(libc::MADV_RANDOM);
            ready();
            let mut random = Random(7);
            loop {
                // Half of the touches to an eighth of the file.
                map.touch(random.below(16 * MIB));
                map.touch(random.below(128 * MIB));
            }
        }
        "full" => {
            let memory = Map::anonymous(61 * MIB);
            memory.advise(libc::MADV_NOHUGEPAGE);
            memory.write_every(PAGE);
            ready();
            rest()
        }
        "column" => {
            let file = data(&dir, 512);
            ready();
            loop {
                let map = Map::of(&file, 512 * MIB);
                drop_cache(&file);
                (0..512 * MIB).step_by(256 << 10).for_each(|row| map.touch(row));
            }
        }
        "cold_scan" => {
            let file = data(&dir, 256);
            let mut map = Map::of(&file, 256 * MIB);
            ready();
            loop {
                drop_cache(&file);
                (0..256 * MIB).step_by(PAGE).for_each(|at| map.touch(at));
                // The old one goes after it: whoever looks at a moment finds the file mapped.
                map = Map::of(&file, 256 * MIB);
            }
        }
        "will_need" => {
            let file = data(&dir, 64);
            let map = Map::of(&file, 64 * MIB);
            ready();
            loop {
                drop_cache(&file);
                map.advise(libc::MADV_WILLNEED);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        "healthy_will_need" => {
            let file = data(&dir, 64);
            let map = Map::of(&file, 64 * MIB);
            ready();
            loop {
                drop_cache(&file);
                (0..64 * MIB).step_by(32 * PAGE).for_each(|at| map.advise_part(at, 32 * PAGE, libc::MADV_WILLNEED));
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        "healthy_lookups" => {
            let file = data(&dir, 64);
            let map = Map::of(&file, 64 * MIB);
            (0..64 * MIB).step_by(PAGE).for_each(|at| map.touch(at));
            ready();
            let mut random = Random(3);
            loop {
                (0..1000).for_each(|_| map.touch(random.below(64 * MIB)));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        "healthy_scan" => {
            let file = data(&dir, 64);
            ready();
            loop {
                let map = Map::of(&file, 64 * MIB);
                (0..64 * MIB).step_by(PAGE).for_each(|at| map.touch(at));
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        "healthy_heap" => {
            ready();
            let mut kept: Vec<Vec<u8>> = Vec::new();
            loop {
                kept.push(vec![1; 10_000]);
                if kept.len() > 1000 {
                    kept.clear();
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        "healthy_sleep" => {
            ready();
            rest()
        }
        "healthy_reserve" => {
            // As LMDB does: a map far longer than its file.
            let file = data(&dir, 1);
            let map = Map::of(&file, 1024 * MIB);
            ready();
            loop {
                (0..MIB).step_by(PAGE).for_each(|at| map.touch(at));
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        unknown => panic!("no plant {unknown}"),
    }
}

fn rest() -> ! {
    loop {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A file of so many MiB, on the disk.
fn data(dir: &Path, mib: usize) -> File {
    let path = dir.join("data");
    let chunk = vec![7u8; MIB];
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    (0..mib).for_each(|_| std::io::Write::write_all(&mut file, &chunk).unwrap());
    file.sync_all().unwrap();
    file
}

fn drop_cache(file: &File) {
    // SAFETY: an open descriptor and numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// A pseudo-random sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) as usize % limit
    }
}

/// A mapping as a C program would make it.
struct Map {
    base: *mut u8,
    length: usize,
}

impl Map {
    fn new(at: *mut u8, length: usize, rights: i32, flags: i32, fd: i32) -> Map {
        // SAFETY: a new mapping; a fixed one lies in a range reserved just before.
        let base = unsafe { libc::mmap(at.cast(), length, rights, flags, fd, 0) };
        assert_ne!(base, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Map { base: base.cast(), length }
    }

    fn of(file: &File, length: usize) -> Map {
        Map::new(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn anonymous(length: usize) -> Map {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Map::new(null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    /// One page beyond a multiple of 2 MiB.
    fn skewed(file: &File, length: usize) -> Map {
        let reserved = Map::anonymous(length + 4 * MIB);
        let at = (reserved.base as usize).next_multiple_of(2 * MIB) + PAGE;
        std::mem::forget(reserved);
        Map::new(at as *mut u8, length, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd())
    }

    fn advise(&self, advice: i32) {
        self.advise_part(0, self.length, advice);
    }

    fn advise_part(&self, at: usize, length: usize, advice: i32) {
        assert!(at + length <= self.length);
        // SAFETY: inside a mapping of ours.
        unsafe { libc::madvise(self.base.add(at).cast(), length, advice) };
    }

    fn touch(&self, at: usize) {
        assert!(at < self.length);
        // SAFETY: inside the mapping, and the file is as long.
        std::hint::black_box(unsafe { self.base.add(at).read_volatile() });
    }

    fn write_every(&self, step: usize) {
        for at in (0..self.length).step_by(step) {
            // SAFETY: inside a writable mapping that nobody else uses.
            unsafe { self.base.add(at).write_volatile(1) };
        }
    }

    fn protect(&self, at: usize) {
        // SAFETY: one page of a mapping of ours.
        unsafe { libc::mprotect(self.base.add(at).cast(), PAGE, libc::PROT_READ) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; nothing points into it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
