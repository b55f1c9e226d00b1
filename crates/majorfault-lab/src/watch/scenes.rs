//! Made-up evidence for tests: a healthy program, in which each test breaks one thing.

use super::evidence::{
    Calls, Deep, Evidence, FaultCounts, FileMapping, Group, MachineState, MappedFile, Process, Watched,
};
use majorfault::observe::pattern::{Pattern, Recognised};
use majorfault::observe::places::FileId;
use majorfault::proc::maps::Vma;
use std::time::Duration;

/// One file of 1 GiB, mapped whole, cached whole, touched now and then; watched for 5 s.
pub fn healthy() -> Evidence {
    Evidence {
        target: Watched { pid: 77, name: "program".to_owned(), command: "program data".to_owned() },
        watched: Duration::from_secs(5),
        process: Process {
            threads: 4,
            resident_bytes: 2 << 30,
            anonymous_bytes: 200 << 20,
            page_table_bytes: 5 << 20,
            mappings: 120,
            huge_pages_off: false,
        },
        calls: Some(Calls { read_call_bytes: 10 << 20, read_calls: 500, device_bytes: 0 }),
        faults: Some(FaultCounts {
            seen: 1000,
            in_files: 900,
            anonymous: 100,
            mapped: 50,
            threads: 4,
            ..FaultCounts::default()
        }),
        files: vec![file()],
        counters: vec![
            ("cgroup_refault_pages", 0),
            ("workingset_refault_file", 10),
            ("major_faults", 0),
            ("cgroup_usage_bytes", 3 << 30),
            ("cgroup_anon_bytes", 200 << 20),
            ("cgroup_file_bytes", 2 << 30),
            ("cgroup_limit_hits", 0),
        ],
        group: Some(Group { path: "/sys/fs/cgroup/a".to_owned(), limit_bytes: Some(8 << 30) }),
        machine: MachineState {
            kernel: (6, 18),
            memory_bytes: 64 << 30,
            available_bytes: 40 << 30,
            processors: 8,
            huge_pages: "madvise".to_owned(),
            most_mappings: 65530,
        },
        ..Evidence::default()
    }
}

fn file() -> MappedFile {
    let vma = Vma {
        start: 0x7f00_0000_0000,
        end: 0x7f00_4000_0000,
        rights: *b"r--s",
        inode: 5,
        device: (8, 1),
        path: "/data/table".to_owned(),
        ..Vma::default()
    };
    MappedFile {
        id: FileId { device: (8, 1), inode: 5 },
        path: "/data/table".to_owned(),
        size_bytes: Some(1 << 30),
        filesystem: "ext4".to_owned(),
        read_ahead_kb: Some(128),
        mappings: vec![FileMapping { vma, deep: Some(Deep { resident_bytes: 1 << 30, ..Deep::default() }) }],
        cached_bytes: Some(1 << 30),
        faults: 900,
        touched_pages: 900,
        order: Some(order(Pattern::Random)),
        ..MappedFile::default()
    }
}

/// An order that four threads follow.
pub fn order(pattern: Pattern) -> Recognised {
    Recognised { pattern, confidence: 0.95, threads: 4, repeats: 0 }
}

/// The healthy program with its file changed.
pub fn with_file(spoil: impl FnOnce(&mut MappedFile)) -> Evidence {
    let mut evidence = healthy();
    spoil(&mut evidence.files[0]);
    evidence
}

/// Sets a counter.
pub fn count(evidence: &mut Evidence, name: &'static str, value: u64) {
    evidence.counters.retain(|(known, _)| *known != name);
    evidence.counters.push((name, value));
}

/// The advice in force on the file.
pub fn advise(evidence: &mut Evidence, deep: Deep) {
    evidence.files[0].mappings[0].deep = Some(deep);
}
