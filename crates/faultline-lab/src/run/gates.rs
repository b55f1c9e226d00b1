//! The conditions for believing a run, each looked at from the record's own evidence.
//!
//! From a record to a list of gates. What cannot be looked at is noted with the reason: unknown is never fine.

use crate::record::{Answer, By, Finding, Gate, Outcome, Phase, Record};
use crate::run::check;
use crate::traits::Class;
use crate::trial::{Arm, CacheState, Direction};
use faultline::Bytes;

/// A cold range may still hold this share: a tail page, a page that another program touches.
const COLD_RESIDENT: f64 = 0.01;

/// A cold run must have read at least this share of the distinct blocks that it visited from the device.
const COLD_READ: f64 = 0.9;

/// A warm range that fits must be resident to this share.
const WARM_RESIDENT: f64 = 0.99;

/// How far the resident share may be from the fraction that was asked for as hot.
const HOT_RESIDENT: f64 = 0.02;

/// Share of the range that reading past the page cache may leave in it: a head or a tail that is no whole sector.
const BYPASS_RESIDENT: f64 = 0.02;

/// Others' share of the processors from which on it is noted, and from which on a run is spoiled. Quiet runs of whole
/// sessions show up to 0.07 (the kernel's own threads), disturbed ones from 0.25 on.
const BUSY: (f64, f64) = (0.10, 0.25);

/// Others' bytes on the run's devices, as a share of what the run wanted or read itself, the larger of both.
const FOREIGN: (f64, f64) = (0.10, 0.50);

/// Others' bytes that no run is without: metadata, logs.
const FOREIGN_BYTES: u64 = 4 << 20;

/// The kernel counts processor time in steps of 10 ms.
const TICK_NS: u64 = 10_000_000;

/// Share of the processors that the hypervisor took away.
const STOLEN: (f64, f64) = (0.05, 0.30);

/// Share of the processors' time for which a quota stopped the run's threads.
const THROTTLED: (f64, f64) = (0.01, 0.05);

/// How far memory in use may be above the limit: counters are read page by page, and batched on each processor.
const ABOVE_LIMIT: f64 = 0.05;

/// What a gate found, with the sentence.
type Found = Option<(Finding, String)>;

/// One condition.
struct Condition {
    name: &'static str,
    by: By,
    remedy: &'static str,
    look: fn(&Record) -> Found,
}

const ALL: &[Condition] = &[
    Condition {
        name: "cold",
        by: By::Setup,
        remedy: "end the programs that use the file, or use --cache asis",
        look: cold,
    },
    Condition { name: "storage", by: By::Setup, remedy: "use a file on a disk, or --cache asis", look: storage },
    Condition {
        name: "device bytes",
        by: By::Setup,
        remedy: "use a file with content, not a sparse one, on a device without a cache of the machine's own below it",
        look: device_bytes,
    },
    Condition {
        name: "device traffic",
        by: By::Others,
        remedy: "run it again when the device is quiet",
        look: device_traffic,
    },
    Condition { name: "warm", by: By::Setup, remedy: "free memory, or give --memory more", look: warm },
    Condition {
        name: "direct",
        by: By::Setup,
        remedy: "use a file system that does O_DIRECT itself, and a file without compression",
        look: direct,
    },
    Condition {
        name: "memory limit",
        by: By::Setup,
        remedy: "run `faultline probe` to see what limits memory here",
        look: memory_limit,
    },
    Condition {
        name: "swap",
        by: By::Others,
        remedy: "free memory, or turn swap off (swapoff -a) while measuring",
        look: swap,
    },
    Condition {
        name: "quota",
        by: By::Setup,
        remedy: "run it outside the group with a processor quota (cpu.max, cpu.cfs_quota_us), or with fewer threads",
        look: quota,
    },
    Condition { name: "busy machine", by: By::Others, remedy: "run it again when the machine is idle", look: busy },
    Condition { name: "steal", by: By::Others, remedy: "run it again when the host is idle", look: stolen },
    Condition {
        name: "same file",
        by: By::Others,
        remedy: "end the programs that write the file, or measure a copy",
        look: same_file,
    },
    Condition {
        name: "answer",
        by: By::Setup,
        remedy: "do not trust this method on this file; look at the kernel's log, and report it",
        look: answer,
    },
];

/// Looks at every condition that applies.
pub(super) fn all(record: &Record) -> Vec<Gate> {
    let gate = |condition: &Condition| (condition.look)(record).map(|(finding, says)| condition.gate(finding, says));
    ALL.iter().filter_map(gate).collect()
}

impl Condition {
    fn gate(&self, finding: Finding, says: String) -> Gate {
        let remedy = if finding == Finding::Fine { String::new() } else { self.remedy.to_owned() };
        Gate { name: self.name.to_owned(), finding, says, by: self.by, remedy }
    }
}

/// Adds what a run shows beside earlier ones of its session: the same files, and the same bytes of them.
pub fn beside(earlier: &[Record], record: &mut Record) {
    let found = [("same file", replaced(earlier, record)), ("answer", digests(earlier, record))];
    for (name, (finding, says)) in found.into_iter().filter_map(|(name, found)| Some((name, found?))) {
        let condition = ALL.iter().find(|condition| condition.name == name);
        record.gates.extend(condition.map(|condition| condition.gate(finding, says)));
    }
}

/// Whether the files are those of the first run.
fn replaced(earlier: &[Record], record: &Record) -> Found {
    let first = earlier.iter().find(|other| !other.files[0].is_empty())?;
    if record.trial.direction == Direction::Write || record.files[0].is_empty() || first.files[0] == record.files[0] {
        return None;
    }
    Some((Finding::Spoiled, format!("the file is not as it was in the first run, of {}", first.trial.arm)))
}

/// On a user's file nobody knows the right answer, but all arms must have seen the same.
fn digests(earlier: &[Record], record: &Record) -> Found {
    let Answer::Digests(own) = &record.answer else { return None };
    let mut compared = 0;
    for other in earlier.iter().filter(|other| other.outcome == Outcome::Done) {
        let Answer::Digests(theirs) = &other.answer else { continue };
        compared += 1;
        if let Some((thread, bucket)) = check::first_difference(own, theirs) {
            let says = format!(
                "saw other bytes than {} (thread {thread}, accesses from {}); is the file being written?",
                other.trial.arm,
                bucket as u64 * check::BUCKET
            );
            return Some((Finding::Spoiled, says));
        }
    }
    Some((Finding::Fine, format!("the digests equal those of {compared} earlier run(s) as far as both got")))
}

fn fine_or_spoiled(is_fine: bool) -> Finding {
    if is_fine { Finding::Fine } else { Finding::Spoiled }
}

/// By a level from which on it is noted and one from which on a run is spoiled.
fn graded(share: f64, (noted, spoiled): (f64, f64)) -> Finding {
    match share {
        share if share >= spoiled => Finding::Spoiled,
        share if share >= noted => Finding::Noted,
        _ => Finding::Fine,
    }
}

fn noted(says: impl Into<String>) -> Found {
    Some((Finding::Noted, says.into()))
}

/// What a counter grew by over all phases; a peer is watched as one piece, which its visit has.
fn grown(record: &Record, counter: &str) -> Option<u64> {
    let is_peer = matches!(record.trial.arm, Arm::Peer(_));
    let phases = record.phases.iter().filter(|phase| !is_peer || phase.name == "visit");
    phases.filter_map(|phase| phase.counters.get(counter).copied()).reduce(u64::saturating_add)
}

/// What a counter grew by during the visit.
fn visited(record: &Record, counter: &str) -> Option<u64> {
    record.phase("visit")?.counters.get(counter).copied()
}

/// Whether the run is about a cold file. A procedure brings its own files into the state it wants.
fn is_cold(record: &Record) -> bool {
    record.trial.cache == CacheState::Cold && record.class() != Some(Class::Procedure)
}

fn share_of_range(record: &Record, bytes: u64) -> f64 {
    bytes as f64 / record.trial.data.size_bytes.max(1) as f64
}

fn cold(record: &Record) -> Found {
    if !is_cold(record) {
        return None;
    }
    let Some(resident) = record.cache.resident_before_bytes else {
        return noted(format!("cold could not be proven: {}", record.cache.source));
    };
    let size = record.trial.data.size_bytes;
    let says = format!(
        "{} of {} were cached when the clock started (by {})",
        Bytes(resident).rounded(),
        Bytes(size).rounded(),
        record.cache.source
    );
    Some((fine_or_spoiled(share_of_range(record, resident) <= COLD_RESIDENT), says))
}

/// What lies in memory below the file system is never cold.
fn storage(record: &Record) -> Found {
    let reason = record.machine.in_memory.as_ref().filter(|_| is_cold(record))?;
    Some((Finding::Spoiled, format!("the file is not on a disk: {reason}")))
}

/// A cold read must have come from the device: fewer bytes than distinct blocks visited mean that something served it
/// from memory. The bytes are those that the run itself made the device read.
fn device_bytes(record: &Record) -> Found {
    if !is_cold(record) || record.trial.direction != Direction::Read || record.is_control() {
        return None;
    }
    let Some(read) = grown(record, "process_read_bytes") else {
        return noted(
            "the bytes that the run read from the device were not counted, so that cold is not proven by them",
        );
    };
    let Some(owed) = record.traits.as_ref().and_then(|traits| traits.distinct_bytes) else {
        return noted(format!(
            "{} came from the device; how many distinct blocks {} visits is not known, so that cold is not proven by them",
            Bytes(read).rounded(),
            record.trial.workload.name
        ));
    };
    let says = format!(
        "{} came from the device; the distinct blocks visited are about {}",
        Bytes(read).rounded(),
        Bytes(owed).rounded()
    );
    Some((fine_or_spoiled(read as f64 >= owed as f64 * COLD_READ), says))
}

/// The devices' own counts beside the run's: what is above it is others' traffic.
///
/// Writes reach the device after they were counted as ours, and the file system adds its own: only reads of others count
/// in a run that writes.
fn device_traffic(record: &Record) -> Found {
    if record.is_control() || record.class() == Some(Class::Procedure) {
        return None;
    }
    let own = grown(record, "process_read_bytes")?;
    let writes = match record.trial.direction {
        Direction::Read => grown(record, "device_write_bytes").unwrap_or(0),
        Direction::Write => 0,
    };
    let Some(device) = grown(record, "device_read_bytes") else {
        let uses_the_device = own > 0;
        return uses_the_device.then(|| {
            let why = "the traffic of the device could not be counted, so that others' is not seen";
            (Finding::Noted, why.to_owned())
        });
    };
    let foreign = device.saturating_sub(own).saturating_add(writes).saturating_sub(FOREIGN_BYTES);
    let share = foreign as f64 / own.max(record.bytes()).max(1) as f64;
    let says = format!(
        "others moved {} on the run's device while it read {} itself",
        Bytes(foreign).rounded(),
        Bytes(own).rounded()
    );
    Some((graded(share, FOREIGN), says))
}

fn warm(record: &Record) -> Found {
    let wanted = match record.trial.cache {
        CacheState::Warm | CacheState::WarmPages => 1.0,
        CacheState::Hot(fraction) => fraction,
        CacheState::Cold | CacheState::AsFound => return None,
    };
    let size = record.trial.data.size_bytes;
    let Some(resident) = record.cache.resident_before_bytes else {
        return noted(format!("what was cached could not be counted: {}", record.cache.source));
    };
    let share = share_of_range(record, resident);
    let is_so = match record.trial.cache {
        CacheState::Hot(fraction) => (share - fraction).abs() <= HOT_RESIDENT,
        _ => share >= WARM_RESIDENT,
    };
    let fits = record.trial.memory_bytes.is_none_or(|limit| limit as f64 > size as f64 * wanted);
    let finding = match (is_so, fits) {
        (true, _) => Finding::Fine,
        (false, false) => Finding::Noted,
        (false, true) => Finding::Spoiled,
    };
    let says = format!(
        "{} of {} were cached when the clock started; {} was asked for",
        Bytes(resident).rounded(),
        Bytes(size).rounded(),
        record.trial.cache
    );
    Some((finding, says))
}

/// Some file systems take O_DIRECT and read through the page cache all the same (btrfs with compression, FUSE).
fn direct(record: &Record) -> Found {
    if !record.traits.as_ref().is_some_and(|traits| traits.direct) || record.class() == Some(Class::Procedure) {
        return None;
    }
    let (Some(before), Some(after)) = (record.cache.resident_before_bytes, record.cache.resident_after_bytes) else {
        return noted("whether O_DIRECT went past the page cache could not be seen");
    };
    let left = after.saturating_sub(before);
    let says = format!("reading past the page cache left {} of the file in it", Bytes(left).rounded());
    Some((fine_or_spoiled(share_of_range(record, left) <= BYPASS_RESIDENT), says))
}

fn memory_limit(record: &Record) -> Found {
    let limit = record.trial.memory_bytes?;
    let readings = record.timeline.counters.get("cgroup_usage_bytes").into_iter().flatten().flatten();
    let at_the_ends = record.phases.iter().filter_map(|phase| phase.counters.get("cgroup_usage_bytes"));
    let Some(peak) = readings.chain(at_the_ends).max() else {
        return noted("the memory in use was not counted, so that the limit is not proven to be in force");
    };
    let says = format!("{} of the limit of {} were in use at most", Bytes(*peak).rounded(), Bytes(limit).rounded());
    Some((fine_or_spoiled(*peak as f64 <= limit as f64 * (1.0 + ABOVE_LIMIT)), says))
}

fn swap(record: &Record) -> Found {
    let (Some(read), Some(written)) = (grown(record, "swap_in_pages"), grown(record, "swap_out_pages")) else {
        return noted("swapping was not counted");
    };
    match read + written {
        0 => Some((Finding::Fine, "nothing was swapped".to_owned())),
        pages => Some((Finding::Spoiled, format!("{pages} pages were swapped while it ran"))),
    }
}

/// Time between the readings of the counters: the phase's own, but a peer's from its start to its end.
fn observed_ns(record: &Record, phase: &Phase) -> u64 {
    match record.trial.arm {
        Arm::Method(_) | Arm::Procedure(_) => phase.wall_ns,
        Arm::Peer(_) => record.timeline.at_ns.last().map_or(phase.wall_ns, |last| *last as u64).max(phase.wall_ns),
    }
}

/// The time of all processors during the visit.
fn processors_ns(record: &Record) -> Option<f64> {
    let phase = record.phase("visit")?;
    Some((observed_ns(record, phase) as f64 * f64::from(record.machine.cpus)).max(1.0))
}

/// A quota stops threads for the rest of a period though processors are idle.
fn quota(record: &Record) -> Found {
    let throttled = visited(record, "throttled_ns")?;
    let share = throttled as f64 / processors_ns(record)?;
    let says = format!("a processor quota stopped it for {:.0} % of the processors' time", share * 100.0);
    Some((graded(share, THROTTLED), says))
}

/// Processor time of others while this ran, as a share of all processors' time.
fn busy(record: &Record) -> Found {
    let available = processors_ns(record)?;
    let counted =
        || Some((visited(record, "machine_busy_ns")?, visited(record, "user_ns")?, visited(record, "system_ns")?));
    let Some((machine, user, system)) = counted() else {
        return noted("who else used the processors was not counted");
    };
    // Both are counted in ticks, one of which may be missing at each end and on each processor.
    let unsure = TICK_NS * (u64::from(record.machine.cpus) + 2);
    let share = machine.saturating_sub(user + system + unsure) as f64 / available;
    let says = format!("others (and the kernel's own threads) used {:.0} % of the processors", share * 100.0);
    Some((graded(share, BUSY), says))
}

fn stolen(record: &Record) -> Found {
    let stolen = visited(record, "machine_steal_ns")?.saturating_sub(2 * TICK_NS);
    let share = stolen as f64 / processors_ns(record)?;
    Some((graded(share, STOLEN), format!("the hypervisor took {:.0} % of the processors away", share * 100.0)))
}

/// A file that was written or replaced while it was read gave two answers.
fn same_file(record: &Record) -> Found {
    let [before, after] = &record.files;
    if record.trial.direction == Direction::Write || record.class() == Some(Class::Procedure) {
        return None;
    }
    if before.is_empty() || after.len() != before.len() {
        return noted("whether the file changed while it was read could not be seen");
    }
    let says = if before == after { "the file did not change" } else { "the file was changed while it was read" };
    Some((fine_or_spoiled(before == after), says.to_owned()))
}

fn answer(record: &Record) -> Found {
    match &record.answer {
        Answer::Checked => Some((Finding::Fine, "every access had the right bytes".to_owned())),
        Answer::Wrong { first_offset, count } => {
            Some((Finding::Spoiled, format!("{count} accesses had wrong bytes, the first at {first_offset}")))
        }
        Answer::Digests(_) => None,
        Answer::Unchecked(why) => noted(why.clone()),
    }
}
