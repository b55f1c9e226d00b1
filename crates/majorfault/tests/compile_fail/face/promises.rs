//! Every promise is the program's own: `unsafe` says so.
#![forbid(unsafe_code)]
use majorfault::Target;
use majorfault::map::{MappedFile, memmap2};
use majorfault::pool::PooledMap;
use std::fs::File;

fn stable(map: &MappedFile) {
    map.assume_stable();
}

fn stable_mut(map: &mut MappedFile) {
    map.assume_stable_mut();
}

fn unchanged(target: Target) -> Target {
    target.assume_unchanged()
}

fn pooled(map: &PooledMap) -> &[u8] {
    map.bytes(0..1)
}

fn mapped(file: &File) {
    let _ = memmap2::Mmap::map(file);
    let _ = memmap2::MmapMut::map_mut(file);
    let options = memmap2::MmapOptions::new();
    let _ = options.map(file);
    let _ = options.map_mut(file);
    let _ = options.map_copy(file);
    let _ = options.map_copy_read_only(file);
}

fn main() {
    let _ = (stable, stable_mut, unchanged, pooled, mapped);
}
