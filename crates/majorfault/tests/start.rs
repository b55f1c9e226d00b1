//! What a pool takes before it is used. Alone in its process, because it looks at the process as a whole.

use majorfault::Bytes;
use majorfault::pool::{Pool, PoolLayout};

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_pool_takes_no_memory_for_pages_that_nobody_used() {
    const TIB: u64 = 1 << 40;
    for length in [TIB, 10 * TIB] {
        let before = resident();

        let pool = Pool::new(length, PoolLayout::default()).unwrap();

        let took = resident().saturating_sub(before);
        assert!(took <= Bytes::mib(1).0, "{took} bytes for a pool of {length}");
        let last = pool.page_count() - 1;
        assert!(pool.try_pin(0).is_err() && pool.try_pin(last).is_err());
        let looked = resident().saturating_sub(before);
        assert!(looked <= Bytes::mib(1).0, "{looked} bytes after two looks at a pool of {length}");
    }
}
