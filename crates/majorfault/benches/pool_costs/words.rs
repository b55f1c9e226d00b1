//! What a pool of 64 MiB keeps for pages that it does not hold any more: state words, and the kernel's page tables, after so many misses
//! of random pages.

use super::{Draws, GIB, Row, Zeros, note, processor_ns, status};
use majorfault::pool::{Pool, PoolLayout};

const SIZES: [(&str, u64); 3] = [("64 GiB", 64 * GIB), ("1 TiB", 1024 * GIB), ("10 TiB", 10 * 1024 * GIB)];

/// Misses after which it is looked.
const AFTER: [u64; 2] = [20_000, 100_000];

pub fn words(rows: &mut Vec<Row>) {
    for (name, length) in SIZES {
        let options = PoolLayout::default();
        let budget = options.memory.0;
        let before = ["VmRSS:", "VmPTE:"].map(status);
        let pool = Pool::new(length, options).expect("address space");
        let mut handle = pool.handle(Box::new(Zeros));
        let (mut draws, pages) = (Draws(7), pool.page_count());
        let mut made = 0;
        for after in AFTER {
            let began = processor_ns();
            (made..after).for_each(|_| drop(handle.pin(draws.below(pages)).expect("a page")));
            let each = (processor_ns() - began) / 1e3 / (after - made) as f64;
            made = after;
            let [memory, tables] = ["VmRSS:", "VmPTE:"].map(status);
            let mib = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1048576.0;
            note(rows, format!("words, {name}, {after} misses"), "MiB", mib(memory, before[0] + budget));
            note(rows, format!("page tables, {name}, {after} misses"), "MiB", mib(tables, before[1]));
            note(rows, format!("a miss without its read, {name}, up to {after}"), "cpu us", each);
        }
    }
}
