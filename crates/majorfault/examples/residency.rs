//! Says how much of each file is in the page cache, without bringing any of it there.
//!
//!     cargo run --release -p majorfault --example residency -- FILE...

use majorfault::Bytes;
use majorfault::observe::{Observer, Scene};
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let files: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    for file in files {
        let size = std::fs::metadata(&file)?.len();
        let mut observer = Observer::open(&Scene { files: vec![file.clone()], ..Scene::default() });
        let snapshot = observer.read();
        let cached = observer.counters().position(|counter| counter.name == "cached_bytes");
        match cached.and_then(|index| snapshot.values[index]) {
            Some(cached) => {
                let share = 100.0 * cached as f64 / size.max(1) as f64;
                println!(
                    "{:>10} of {:>10} ({share:5.1} %)  {}",
                    Bytes(cached).rounded(),
                    Bytes(size).rounded(),
                    file.display()
                );
            }
            None => println!("unknown  {}", file.display()),
        }
    }
    Ok(())
}
