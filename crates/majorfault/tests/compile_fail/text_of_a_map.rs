//! A text that is borrowed from a map would stop being one when another mapping writes the file.
#![forbid(unsafe_code)]
use majorfault::map::MappedFile;

fn main() {
    let map = MappedFile::open("/etc/hostname").unwrap();
    let text: &str = std::str::from_utf8(map.get(0..4).unwrap()).unwrap();
    let mut other = MappedFile::options().write_shared().open("/etc/hostname").unwrap();
    other.write(0, &[0xff; 4]).unwrap();
    println!("{text}");
}
