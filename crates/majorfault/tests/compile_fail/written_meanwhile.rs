//! A map is not written, discarded or lent for changing while somebody reads it.
use majorfault::map::{Destructive, MappedFile};

fn written(map: &mut MappedFile) {
    let view = map.get(0..4).unwrap();
    map.write(0, &[1]).unwrap();
    view.get(0);
}

fn discarded(map: &mut MappedFile) {
    let view = map.get(0..4).unwrap();
    map.discard(0..4, Destructive::DontNeed).unwrap();
    view.get(0);
}

fn lent(map: &mut MappedFile) {
    let slice = unsafe { map.assume_stable() }.get(0..4).unwrap();
    map.write(0, &[1]).unwrap();
    println!("{}", slice[0]);
}

fn lent_twice(map: &mut MappedFile) {
    let mut stable = unsafe { map.assume_stable_mut() };
    let one = stable.bytes_mut(0..4).unwrap();
    let other = stable.bytes_mut(0..4).unwrap();
    one[0] = other[0];
}

fn read_and_changed(map: &mut MappedFile) {
    let mut stable = unsafe { map.assume_stable_mut() };
    let slice = stable.stable().get(0..4).unwrap();
    stable.bytes_mut(0..4).unwrap().fill(0);
    println!("{}", slice[0]);
}

fn main() {
    let _ = (written, discarded, lent, lent_twice, read_and_changed);
}
