//! Two `&mut` to the same bytes from one shared reference.
#![forbid(unsafe_code)]
use majorfault::sys::fault::Guarded;

fn both(map: &Guarded) {
    map.change_shared(0, 10, |first| map.change_shared(0, 10, |second| first[0] = second[0]));
}

fn main() {
    let _ = both;
}
