//! Copying into a mapping that others use at the same time.
#![forbid(unsafe_code)]
use majorfault::sys::fault::Guarded;

fn write(map: &Guarded) {
    map.write(0, &[1]);
}

fn main() {
    let _ = write;
}
