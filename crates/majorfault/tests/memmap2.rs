//! The same program on memmap2 and on our adapter: only its `use` differs.
#![allow(unsafe_code, reason = "mapping for slices is unsafe in both")]

/// The program.
macro_rules! program {
    ($name:ident, $($crate_path:tt)+) => {
        mod $name {
            use $($crate_path)+::{Advice, Mmap, MmapMut, MmapOptions};
            use std::fs::File;
            use std::path::Path;

            pub fn run(path: &Path) -> (u64, Vec<u8>, Vec<u8>, usize) {
                let file = File::options().read(true).write(true).open(path).unwrap();
                // SAFETY: nobody else has the file.
                let map: Mmap = unsafe { Mmap::map(&file).unwrap() };
                map.advise(Advice::Sequential).unwrap();
                map.advise_range(Advice::WillNeed, 4096, 8192).unwrap();
                let sum = map.iter().map(|byte| u64::from(*byte)).sum();
                // SAFETY: nobody else has the file.
                let part = unsafe { MmapOptions::new().offset(5000).len(100).populate().map(&file).unwrap() };
                // SAFETY: nobody else has the file.
                let mut own: MmapMut = unsafe { MmapOptions::new().map_copy(&file).unwrap() };
                own[0] = own[0].wrapping_add(1);
                // SAFETY: nobody else has the file.
                let mut shared = unsafe { MmapMut::map_mut(&file).unwrap() };
                shared[10..14].copy_from_slice(b"four");
                shared.flush().unwrap();
                (sum, part.as_ref().to_vec(), own[..16].to_vec(), map.len())
            }
        }
    };
}

program!(theirs, memmap2);
program!(ours, majorfault::map::memmap2);

#[test]
fn a_program_does_the_same_with_both() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let content: Vec<u8> = (0..40_000u32).map(|index| ((index * 7) >> 3) as u8).collect();
    let run = |name: &str, program: fn(&std::path::Path) -> _| {
        let path = dir.path().join(name);
        std::fs::write(&path, &content).unwrap();
        let found: (u64, Vec<u8>, Vec<u8>, usize) = program(&path);
        (found, std::fs::read(&path).unwrap())
    };

    assert_eq!(run("ours", ours::run), run("theirs", theirs::run));
}

#[test]
fn where_memmap2_would_die_ours_tells() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 40_960]).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: the slices below are of pages that are not read again after the file was cut.
    let map = unsafe { majorfault::map::memmap2::Mmap::map(&file) }.unwrap();

    file.set_len(4096).unwrap();

    assert_eq!(map[20_000], 0);
    assert!(map.check().unwrap_err().to_string().contains("data"));
}
