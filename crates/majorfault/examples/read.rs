//! Reads a file through the access method you name, and says how fast that was.
//!
//!     cargo run --release -p majorfault --example read -- FILE [METHOD] [name=value,...]

use majorfault::{Given, Layout, Target, methods};
use std::sync::Arc;
use std::time::Instant;

fn main() -> majorfault::Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().unwrap_or_else(|| "/proc/self/exe".to_owned());
    let method = methods::named(&words.next().unwrap_or_else(|| "uring".to_owned()))?;
    let given: Given = words.next().unwrap_or_default().parse()?;

    let target = Arc::new(Target::open(&[path.into()], &Layout::default())?);
    let extents = target.pieces(1 << 20);
    let mut opened = (method.open)(Arc::clone(&target), &given)?;

    let began = Instant::now();
    let mut bytes_seen = 0;
    opened.visit(&extents, |_, bytes| bytes_seen += bytes.len())?;

    println!("{} {}: {bytes_seen} bytes in {:?}", method.name, opened.settings, began.elapsed());
    for note in opened.notes {
        println!("note: {note}");
    }
    Ok(())
}
