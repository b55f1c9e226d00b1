//! Neither views nor slices outlive their map.
use majorfault::map::{MappedFile, View};

fn view() -> View<'static> {
    let map = MappedFile::open("/etc/hostname").unwrap();
    map.get(0..4).unwrap()
}

fn slice() -> &'static [u8] {
    let map = MappedFile::open("/etc/hostname").unwrap();
    let stable = unsafe { map.assume_stable() };
    stable.get(0..4).unwrap()
}

fn dropped() {
    let map = MappedFile::open("/etc/hostname").unwrap();
    let part = map.get(0..4).unwrap().part(1..2);
    drop(map);
    part.get(0);
}

fn main() {
    let _ = (view, slice, dropped);
}
