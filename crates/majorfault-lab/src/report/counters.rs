//! The counters that reports know by name, and how a record is asked for them.
//!
//! A report never fails on a counter that is not there: it says nothing about what was not counted.

use crate::record::Record;

/// Faults served from memory.
pub const MINOR_FAULTS: &str = "minor_faults";
/// Faults that waited for the device.
pub const MAJOR_FAULTS: &str = "major_faults";
/// Processor time in user mode.
pub const USER_NS: &str = "user_ns";
/// Processor time in the kernel.
pub const SYSTEM_NS: &str = "system_ns";
/// Bytes that this process made the devices read.
pub const PROCESS_READ: &str = "process_read_bytes";
/// Bytes that this process made the devices write.
pub const PROCESS_WRITTEN: &str = "process_write_bytes";
/// Bytes read from the devices under the files, by anyone.
pub const DEVICE_READ: &str = "device_read_bytes";
/// Bytes written to the devices under the files, by anyone.
pub const DEVICE_WRITTEN: &str = "device_write_bytes";
/// TLB shootdown interrupts of the whole machine.
pub const SHOOTDOWNS: &str = "tlb_shootdowns";
/// Switches of the process's threads because they waited.
pub const WAITS: &str = "voluntary_switches";
/// Switches of the process's threads because their time was over.
pub const PREEMPTIONS: &str = "involuntary_switches";
/// Pages that kswapd looked at.
pub const SCANNED_KSWAPD: &str = "pgscan_kswapd";
/// Pages that allocating threads looked at themselves.
pub const SCANNED_DIRECT: &str = "pgscan_direct";
/// Pages that kswapd freed.
pub const RECLAIMED_KSWAPD: &str = "pgsteal_kswapd";
/// Pages that allocating threads freed themselves.
pub const RECLAIMED_DIRECT: &str = "pgsteal_direct";
/// Pages reclaimed from the cgroup; reclaim at a cgroup's limit is not in the machine's counts.
pub const RECLAIMED_CGROUP: &str = "cgroup_reclaimed_pages";
/// Evicted file pages that were needed again.
pub const REFAULTS: &str = "workingset_refault_file";
/// Memory charged to the cgroup.
pub const CGROUP_BYTES: &str = "cgroup_usage_bytes";
/// Bytes of the files in the process's page table at the end of the visit.
pub const MAPPED: &str = "mapped_resident_bytes";
/// Of these, by huge entries.
pub const MAPPED_HUGE: &str = "mapped_huge_bytes";
/// Bytes of the files in the page cache.
pub const CACHED_BYTES: &str = "cached_bytes";

/// See [`Record::growth`].
pub fn growth(record: &Record, name: &str) -> Option<u64> {
    record.growth(name)
}

/// The sum of what these counters grew by; `None` where none of them is there.
pub fn growth_of_any(record: &Record, names: &[&str]) -> Option<u64> {
    names.iter().filter_map(|name| growth(record, name)).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_counter_named_here_is_counted_somewhere() {
        let counted =
            majorfault::observe::ALL.iter().flat_map(|source| source.counters).chain(majorfault::observe::MAPPED);
        let counted: Vec<&str> = counted.map(|counter| counter.name).collect();
        let own = include_str!("counters.rs").lines().filter_map(|line| line.strip_prefix("pub const "));
        for line in own {
            let name = line.split('"').nth(1).unwrap();

            assert!(counted.contains(&name), "nothing counts {name}");
        }
    }
}
