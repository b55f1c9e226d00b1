//! Counts the bytes of a file through a buffer pool smaller than it, from two threads that share it.
//!
//!     cargo run --release -p majorfault --example pool -- FILE

use majorfault::pool::{Pool, PoolOptions};
use majorfault::{Bytes, Given, Layout, Target, methods};
use std::sync::Arc;

fn main() -> majorfault::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/proc/self/exe".to_owned());
    let target = Arc::new(Target::open(&[path.into()], &Layout::default())?);
    let pool = Pool::new(target.length(), PoolOptions { budget: Bytes::mib(1), ..PoolOptions::default() })?;

    let sums = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (pool, target) = (&pool, Arc::clone(&target));
                scope.spawn(move || -> majorfault::Result<u64> {
                    let below = (methods::named("pread")?.open)(target, &Given::none())?.reader;
                    let mut handle = pool.handle(below);
                    let mut sum = 0;
                    for page in (thread..pool.pages()).step_by(2) {
                        sum += handle.pin(page)?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    }
                    Ok(sum)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
    });

    let total: u64 = sums.into_iter().sum::<majorfault::Result<u64>>()?;
    println!("the bytes add up to {total}; {:?}", pool.metrics());
    Ok(())
}
