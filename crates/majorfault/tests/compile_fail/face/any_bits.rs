//! Only numbers are read out of a map: not every byte is a `bool` or a `char`, and a reference is none at all.
#![forbid(unsafe_code)]
use majorfault::map::{Plain, View};

#[derive(Clone, Copy)]
struct Own(bool);

impl Plain for Own {}

fn read(view: View<'_>) {
    view.value::<bool>(0);
    view.value::<char>(0);
    view.value::<&'static u8>(0);
}

fn main() {
    let _ = (read, Own(true).0);
}
