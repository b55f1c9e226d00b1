//! Two maps of one file would give two `&mut` to the same bytes.
#![forbid(unsafe_code)]
use majorfault::map::MappedFile;

fn main() {
    let mut map = MappedFile::options().write_shared().open("/etc/hostname").unwrap();
    map.change(0..4, |bytes| bytes.fill(0)).unwrap();
}
