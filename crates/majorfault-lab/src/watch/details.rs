//! What only smaps shows: advice in force and page sizes. Reading it may stall the process, so it is optional.

use super::evidence::{Deep, Huge};
use super::tally::Tally;
use majorfault::Missing;
use majorfault::observe::places::FileId;
use majorfault::proc::smaps;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

/// The most looks, and the pause between two, where a file with many faults is not mapped at the moment.
const LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(7);
const MANY_FAULTS: u64 = 64;

/// Resident bytes up to which smaps is read without being asked for: the walk takes 8 ms, or one or two where pages are large.
const CHEAP: u64 = 512 << 20;

/// Whether smaps may be read: on request, or because the program is small; otherwise what is missed, and how to get it.
pub fn wanted(deep: bool, resident_bytes: u64) -> Result<(), Missing> {
    if deep || resident_bytes <= CHEAP {
        return Ok(());
    }
    let resident = majorfault::Bytes(resident_bytes).rounded();
    let reason = format!("the program has {resident} resident, and reading smaps could stall it");
    Err(Missing::new("advice in force and page sizes", reason, "add --deep"))
}

/// Details of all mappings. A program that maps anew for each scan may be between two scans, so it looks again.
///
/// Errors: Missing where smaps may not be read.
pub fn read(pid: u32, tallies: &HashMap<FileId, Tally>) -> Result<Vec<smaps::Detail>, Missing> {
    let path = format!("/proc/{pid}/smaps");
    let mut details = Vec::new();
    for _ in 0..LOOKS {
        let bytes = fs::read(&path).map_err(|error| {
            let reason = format!("{path}: {}", error.kind());
            Missing::new("advice in force and page sizes", reason, "")
        })?;
        details = smaps::details(&String::from_utf8_lossy(&bytes));
        let mapped: HashSet<FileId> =
            details.iter().map(|it| FileId { device: it.vma.device, inode: it.vma.inode }).collect();
        if tallies.iter().all(|(id, tally)| tally.faults < MANY_FAULTS || mapped.contains(id)) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(details)
}

/// The parts of a mapping that rules look at.
pub fn deep_of(detail: &smaps::Detail) -> Deep {
    Deep {
        random: detail.has(b"rr"),
        sequential: detail.has(b"sr"),
        huge_wanted: detail.has(b"hg"),
        huge_refused: detail.has(b"nh"),
        resident_bytes: detail.sizes.resident_bytes,
        huge_bytes: detail.sizes.huge_bytes(),
    }
}

/// Anonymous memory, and how much of it is in huge pages.
pub fn huge(details: &[smaps::Detail]) -> Huge {
    let anonymous = details.iter().filter(|it| !it.vma.is_file() && it.vma.is_private() && it.vma.len() >= 2 << 20);
    anonymous.fold(Huge::default(), |sum, it| Huge {
        anonymous_bytes: sum.anonymous_bytes + it.sizes.resident_bytes,
        huge_bytes: sum.huge_bytes + it.sizes.anonymous_huge_bytes,
        wanted_bytes: sum.wanted_bytes + if it.has(b"hg") { it.sizes.resident_bytes } else { 0 },
        refused_bytes: sum.refused_bytes + if it.has(b"nh") { it.sizes.resident_bytes } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_of_a_large_program_is_read_on_request_only_and_that_is_said() {
        assert!(wanted(false, 512 << 20).is_ok() && wanted(true, 1 << 40).is_ok());

        let gap = wanted(false, (512 << 20) + 1).unwrap_err();
        assert_eq!((gap.what.as_str(), gap.remedy.as_str()), ("advice in force and page sizes", "add --deep"));
        assert!(gap.reason.starts_with("the program has 512 MiB resident"), "{}", gap.reason);
    }
}
