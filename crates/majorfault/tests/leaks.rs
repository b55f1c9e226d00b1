//! A million pages through a pool: its budget is kept meanwhile, and nothing is left of it afterwards. Alone in its
//! process, because it looks at the process as a whole.

use majorfault::pool::{Pool, PoolLayout};
use majorfault::{Bytes, Given, Layout, Target, methods};
use std::sync::Arc;

const PAGE: u64 = 4096;
const PAGES: u64 = 1_000_000;
const BUDGET: Bytes = Bytes::mib(64);

/// Anonymous resident bytes, mappings and descriptors of this process.
fn footprint() -> (u64, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    (kib << 10, maps, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

fn million_pages(path: &std::path::Path) {
    let target = Arc::new(Target::open(&[path.to_owned()], &Layout::default()).unwrap());
    let below = (methods::named("pread").unwrap().open)(target, &Given::none()).unwrap().reader;
    let options = PoolLayout::default().memory(BUDGET);
    let pool = Pool::new(PAGES * PAGE, options).unwrap();
    let mut handle = pool.handle(below);
    let (before, ..) = footprint();
    // Eviction goes by batches, and room is made a few pages ahead; the buffer of a read comes on top.
    let allowed = BUDGET.0 + BUDGET.0 / 50 + u64::from(options.batch) * PAGE + (1 << 20);

    for first in (0..PAGES).step_by(8192) {
        let end = PAGES.min(first + 8192);
        handle.fetch(&(first..end).collect::<Vec<u64>>()).unwrap();
        // Eight bytes of state for each page used so far, which are not given back.
        let allowed = allowed + 8 * end;
        let (now, ..) = footprint();
        assert!(now.saturating_sub(before) <= allowed, "{} bytes, {allowed} are allowed", now - before);
    }
    assert_eq!(pool.metrics().misses, PAGES);
    assert!(pool.metrics().evicted >= PAGES - BUDGET.0 / PAGE);
}

#[test]
fn a_million_pages_stay_within_the_budget_and_leave_nothing() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    // A hole: nothing has to be on the disk.
    std::fs::File::create(&path).unwrap().set_len(PAGES * PAGE).unwrap();
    million_pages(&path);
    let (bytes, maps, descriptors) = footprint();

    million_pages(&path);

    let (bytes_after, maps_after, descriptors_after) = footprint();
    assert_eq!(descriptors_after, descriptors);
    assert!(maps_after <= maps + 2, "{maps_after} mappings, {maps} before");
    assert!(bytes_after <= bytes + (4 << 20), "{bytes_after} bytes resident, {bytes} before");
}
