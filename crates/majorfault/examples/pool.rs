//! Counts the bytes of a file through a buffer pool smaller than it, from two threads that share it.
//!
//!     cargo run --release -p majorfault --example pool -- FILE

use majorfault::{Bytes, Pool};

fn main() -> majorfault::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/proc/self/exe".to_owned());
    let first = Pool::options().memory(Bytes::mib(1)).direct(false).open(path)?;
    let second = first.sibling()?;

    let sums = std::thread::scope(|scope| {
        let threads: Vec<_> = [first, second]
            .into_iter()
            .enumerate()
            .map(|(thread, mut handle)| {
                scope.spawn(move || -> majorfault::Result<_> {
                    let mut sum = 0;
                    for page in (thread as u64..handle.pool().page_count()).step_by(2) {
                        sum += handle.pin(page)?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    }
                    Ok((sum, handle.pool().metrics()))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
    });

    let mut total = 0;
    for sum in sums {
        let (sum, metrics) = sum?;
        total += sum;
        println!("{metrics:?}");
    }
    println!("the bytes add up to {total}");
    Ok(())
}
