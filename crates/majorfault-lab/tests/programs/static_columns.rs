//! A program that is linked statically: reads a column of a cold file of rows of 1 MiB by a mapping, again and again.

use std::fs::{File, write};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

const ROW: usize = 1 << 20;
const ROWS: usize = 128;

unsafe extern "C" {
    fn mmap(at: *mut u8, length: usize, rights: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, length: usize) -> i32;
    fn madvise(at: *mut u8, length: usize, advice: i32) -> i32;
    fn posix_fadvise(fd: i32, offset: i64, length: i64, advice: i32) -> i32;
}

fn main() {
    write("data", vec![7u8; ROWS * ROW]).unwrap();
    let file = File::open("data").unwrap();
    file.sync_all().unwrap();
    write("ready", "").unwrap();
    loop {
        // SAFETY: PROT_READ, MAP_SHARED; MADV_RANDOM; POSIX_FADV_DONTNEED; all inside the file, unmapped at the end.
        unsafe {
            let base = mmap(null_mut(), ROWS * ROW, 1, 1, file.as_raw_fd(), 0);
            assert_ne!(base as isize, -1);
            madvise(base, ROWS * ROW, 1);
            posix_fadvise(file.as_raw_fd(), 0, 0, 4);
            for row in 0..ROWS {
                std::hint::black_box(base.add(row * ROW).read_volatile());
            }
            munmap(base, ROWS * ROW);
        }
    }
}
