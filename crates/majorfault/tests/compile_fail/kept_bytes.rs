//! What a visitor is shown, and a filler fills, is theirs during the call only.
#![forbid(unsafe_code)]
use majorfault::Extent;
use majorfault::access::Reader;

fn keep(reader: &mut dyn Reader, extents: &[Extent]) {
    let mut kept: &[u8] = &[];
    reader.visit(extents, &mut |_: usize, bytes: &[u8]| kept = bytes).unwrap();
    println!("{}", kept[0]);
}

fn keep_mut(reader: &mut dyn Reader, extents: &[Extent]) {
    let mut kept: Vec<&mut [u8]> = Vec::new();
    reader.update(extents, &mut |_: usize, bytes: &mut [u8]| kept.push(bytes)).unwrap();
}

fn main() {
    let _ = (keep, keep_mut);
}
