//! Shows what a scan through a mapping costs: the counters that grew while it ran.
//!
//!     cargo run --release -p majorfault --example faults -- FILE

use majorfault::Mmap;
use majorfault::observe::{Kind, Observer, Scene};

fn main() -> majorfault::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/proc/self/exe".to_owned());
    let mut mapped = Mmap::open(&path)?;
    let extents = mapped.target.pieces(4096);

    let scene = Scene { pid: Some(std::process::id()), files: vec![path.into()], ..Scene::default() };
    let mut observer = Observer::open(&scene);
    let before = observer.read();
    let mut sum = 0u64;
    mapped.visit(&extents, |_, bytes| sum += u64::from(bytes[0]))?;
    let after = observer.read();

    println!("first bytes of {} pages add up to {sum}", extents.len());
    for (index, counter) in observer.counters().enumerate() {
        if let (Kind::Total, Some(was), Some(is)) = (counter.kind, before.values[index], after.values[index]) {
            println!("{:>16} {:32} {}", is.saturating_sub(was), counter.name, counter.doc);
        }
    }
    for missing in observer.missing() {
        println!("not counted: {missing}");
    }
    Ok(())
}
