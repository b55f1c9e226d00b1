//! The conditions for believing a run, each looked at from the record's own evidence.
//!
//! From a record to a list of gates. A condition that cannot be checked is noted with the reason: unknown is never fine.

use crate::record::{Answer, Cause, Gate, GateFinding, Outcome, Phase, Record};
use crate::run::check;
use crate::traits::{Class, Ends};
use crate::trial::{Arm, CacheState, Direction};
use majorfault::Bytes;

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
pub const BUSY: (f64, f64) = (0.10, 0.25);

/// Others' bytes on the run's devices, as a share of what the run wanted or read itself, the larger of both.
const FOREIGN: (f64, f64) = (0.10, 0.50);

/// Bytes of others that every run sees: metadata, logs.
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
type Found = Option<(GateFinding, String)>;

/// One condition.
struct Condition {
    name: &'static str,
    by: Cause,
    remedy: &'static str,
    look: fn(&Record) -> Found,
}

const ALL: &[Condition] = &[
    Condition {
        name: "cold",
        by: Cause::Setup,
        remedy: "end the programs that use the file, or use --cache asis",
        look: cold,
    },
    Condition { name: "storage", by: Cause::Setup, remedy: "use a file on a disk, or --cache asis", look: storage },
    Condition {
        name: "device bytes",
        by: Cause::Setup,
        remedy: "use a file with content, not a sparse one, on a device without a cache of the machine's own below it",
        look: device_bytes,
    },
    Condition {
        name: "device traffic",
        by: Cause::Others,
        remedy: "run it again when the device is quiet",
        look: device_traffic,
    },
    Condition { name: "warm", by: Cause::Setup, remedy: "free memory, or give --memory more", look: warm },
    Condition {
        name: "direct",
        by: Cause::Setup,
        remedy: "use a file system that does O_DIRECT itself, and a file without compression",
        look: direct,
    },
    Condition {
        name: "memory limit",
        by: Cause::Setup,
        remedy: "run `majorfault probe` to see what limits memory here",
        look: memory_limit,
    },
    Condition {
        name: "swap",
        by: Cause::Others,
        remedy: "free memory, or turn swap off (swapoff -a) while measuring",
        look: swap,
    },
    Condition {
        name: "quota",
        by: Cause::Setup,
        remedy: "run it outside the group with a processor quota (cpu.max, cpu.cfs_quota_us), or with fewer threads",
        look: quota,
    },
    Condition { name: "busy machine", by: Cause::Others, remedy: "run it again when the machine is idle", look: busy },
    Condition { name: "steal", by: Cause::Others, remedy: "run it again when the host is idle", look: stolen },
    Condition {
        name: "same file",
        by: Cause::Others,
        remedy: "end the programs that write the file, or measure a copy",
        look: same_file,
    },
    Condition {
        name: "answer",
        by: Cause::Setup,
        remedy: "where bytes were wrong, do not trust the method on this file: look at the kernel's log, and report it",
        look: answer,
    },
];

/// Looks at every condition that applies.
pub(super) fn all(record: &Record) -> Vec<Gate> {
    let gate = |condition: &Condition| (condition.look)(record).map(|(finding, says)| condition.gate(finding, says));
    ALL.iter().filter_map(gate).collect()
}

impl Condition {
    fn gate(&self, finding: GateFinding, says: String) -> Gate {
        let remedy = if finding == GateFinding::Fine { String::new() } else { self.remedy.to_owned() };
        Gate { name: self.name.to_owned(), finding, says, by: self.by, remedy }
    }
}

/// Adds the gates that compare a run with earlier ones of its session: the files, and the bytes that were read.
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
    Some((GateFinding::Spoiled, format!("the file has changed since the first run, of {}", first.trial.arm)))
}

/// The right bytes of a user's file are not known, but all arms must have seen the same ones.
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
            return Some((GateFinding::Spoiled, says));
        }
    }
    Some((GateFinding::Fine, format!("the same bytes as in {compared} earlier run(s), as far as both read")))
}

fn fine_or_spoiled(is_fine: bool) -> GateFinding {
    if is_fine { GateFinding::Fine } else { GateFinding::Spoiled }
}

/// By two levels: from the first on it is noted, from the second on the run is spoiled.
fn graded(share: f64, (noted, spoiled): (f64, f64)) -> GateFinding {
    match share {
        share if share >= spoiled => GateFinding::Spoiled,
        share if share >= noted => GateFinding::Noted,
        _ => GateFinding::Fine,
    }
}

fn noted(says: impl Into<String>) -> Found {
    Some((GateFinding::Noted, says.into()))
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
    Some((GateFinding::Spoiled, format!("the file is not on a disk: {reason}")))
}

/// A cold read must have come from the device: fewer bytes than distinct blocks visited mean that something served it
/// from memory. The bytes are those that the run itself made the device read.
fn device_bytes(record: &Record) -> Found {
    if !is_cold(record) || record.trial.direction != Direction::Read || record.is_control() {
        return None;
    }
    let Some(read) = record.growth("process_read_bytes") else {
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
    let least = owed as f64 - by_chance(record);
    if least <= 0.0 {
        return noted(format!("{says}, but so few draws prove nothing"));
    }
    Some((fine_or_spoiled(read as f64 >= least * COLD_READ), says))
}

/// Bytes by which drawn accesses may reach fewer distinct blocks than expected, once in a million runs; 0 where the order is
/// fixed. One draw changes the count by one block at most, so that it falls below its mean by t with a probability of at
/// most exp(-2 t^2 / n) (McDiarmid, On the method of bounded differences, 1989).
fn by_chance(record: &Record) -> f64 {
    if record.traits.as_ref().is_none_or(|traits| traits.ends == Ends::OnePass) {
        return 0.0;
    }
    let draws = record.accesses() as f64;
    (draws * 1e6_f64.ln() / 2.0).sqrt() * record.trial.block_bytes as f64
}

/// The devices' own counts beside the run's: what is above it is others' traffic.
///
/// Writes reach the device after they were counted as ours, and the file system adds its own: only reads of others count
/// in a run that writes.
fn device_traffic(record: &Record) -> Found {
    if record.is_control() || record.class() == Some(Class::Procedure) {
        return None;
    }
    let own = record.growth("process_read_bytes")?;
    let writes = match record.trial.direction {
        Direction::Read => record.growth("device_write_bytes").unwrap_or(0),
        Direction::Write => 0,
    };
    let Some(device) = record.growth("device_read_bytes") else {
        let uses_the_device = own > 0;
        return uses_the_device.then(|| {
            let why = "the traffic of the device could not be counted, so that others' is not seen";
            (GateFinding::Noted, why.to_owned())
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
    let wanted = record.trial.cache.warmed()?;
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
        (true, _) => GateFinding::Fine,
        (false, false) => GateFinding::Noted,
        (false, true) => GateFinding::Spoiled,
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
    if record.traits.as_ref().is_some_and(|traits| traits.swaps) {
        return None;
    }
    let (Some(read), Some(written)) = (record.growth("swap_in_pages"), record.growth("swap_out_pages")) else {
        return noted("swapping was not counted");
    };
    match read + written {
        0 => Some((GateFinding::Fine, "nothing was swapped".to_owned())),
        pages => Some((GateFinding::Spoiled, format!("{pages} pages were swapped while it ran"))),
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
    let says = format!("a processor quota paused the run for {:.0} % of the processors' time", share * 100.0);
    Some((graded(share, THROTTLED), says))
}

/// Processor time of others while this ran, as a share of all processors' time.
fn busy(record: &Record) -> Found {
    let available = processors_ns(record)?;
    let counted =
        || Some((visited(record, "machine_busy_ns")?, visited(record, "user_ns")?, visited(record, "system_ns")?));
    let Some((machine, user, system)) = counted() else {
        return noted("processor time used by others was not counted");
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
        Answer::Checked => Some((GateFinding::Fine, "every access had the right bytes".to_owned())),
        Answer::Wrong { first_offset, count } => {
            Some((GateFinding::Spoiled, format!("{count} accesses had wrong bytes, the first at {first_offset}")))
        }
        Answer::Digests(_) => None,
        Answer::Unchecked(why) => noted(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FileState;
    use crate::report::synthetic::Run;
    use crate::trial::Choice;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// What the gate of this name finds; `None` where it does not apply.
    fn found(name: &str, record: &Record) -> Option<GateFinding> {
        let gates = all(record);
        assert!(gates.iter().filter(|gate| gate.name == name).count() <= 1);
        gates.iter().find(|gate| gate.name == name).map(|gate| gate.finding)
    }

    fn fine(name: &str, run: Run) {
        assert_eq!(found(name, &run.record()), Some(GateFinding::Fine));
    }

    fn is_noted(name: &str, run: Run) {
        assert_eq!(found(name, &run.record()), Some(GateFinding::Noted));
    }

    fn spoiled(name: &str, run: Run) {
        assert_eq!(found(name, &run.record()), Some(GateFinding::Spoiled));
    }

    fn does_not_apply(name: &str, run: Run) {
        assert_eq!(found(name, &run.record()), None);
    }

    /// A run of this arm on a range of 100 MiB, with so much of it cached when the clock started.
    fn cached(arm: &str, cache: CacheState, resident: u64) -> Run {
        Run::of(arm).edit(|record| {
            record.trial.data.size_bytes = 100 * MIB;
            record.trial.cache = cache;
            record.cache.resident_before_bytes = Some(resident);
        })
    }

    #[test]
    fn a_cold_range_may_hold_one_percent() {
        fine("cold", cached("pread", CacheState::Cold, MIB));
        spoiled("cold", cached("pread", CacheState::Cold, MIB + 1));
    }

    #[test]
    fn a_cold_range_that_cannot_be_looked_at_is_noted() {
        is_noted("cold", Run::of("pread").edit(|record| record.cache.resident_before_bytes = None));
    }

    #[test]
    fn only_cold_runs_must_be_cold() {
        does_not_apply("cold", cached("pread", CacheState::AsFound, 50 * MIB));
        does_not_apply("cold", cached("pread", CacheState::Warm, 100 * MIB));
    }

    #[test]
    fn a_procedure_brings_its_files_into_its_own_state() {
        let mut record = cached("pread", CacheState::Cold, 50 * MIB).record();
        record.traits.as_mut().unwrap().class = Class::Procedure;

        for name in ["cold", "device bytes", "device traffic", "same file", "direct"] {
            assert_eq!(found(name, &record), None, "{name}");
        }
    }

    #[test]
    fn storage_in_memory_is_never_cold() {
        let on_memory = |cache| {
            Run::of("pread").edit(|record| {
                record.machine.in_memory = Some("loop0 is a loop device over /dev/shm/x".to_owned());
                record.trial.cache = cache;
            })
        };

        spoiled("storage", on_memory(CacheState::Cold));
        does_not_apply("storage", on_memory(CacheState::AsFound));
        does_not_apply("storage", Run::of("pread"));
    }

    /// A scan of 100 MiB in one pass that made the device read so much.
    fn scan(arm: &str, read: u64) -> Run {
        Run::of(arm)
            .workload("sequential")
            .block(MIB)
            .accesses(100)
            .counter("process_read_bytes", read)
            .counter("device_read_bytes", read)
    }

    #[test]
    fn a_cold_scan_must_have_read_nine_tenths_of_what_it_visited() {
        fine("device bytes", scan("pread", 90 * MIB));
        spoiled("device bytes", scan("pread", 90 * MIB - 1));
    }

    #[test]
    fn a_neighbours_bytes_are_not_the_runs_own() {
        let sparse = scan("pread", 0).counter("device_read_bytes", 200 * MIB);

        spoiled("device bytes", sparse);
    }

    #[test]
    fn every_workload_owes_its_distinct_blocks() {
        for workload in crate::workload::ALL.iter().filter(|workload| workload.name != "trace") {
            let run = |read| {
                let base = Run::of("pread").workload(workload.name).accesses(4096);
                base.counter("process_read_bytes", read).record()
            };
            let owed = run(0).traits.unwrap().distinct_bytes.unwrap();

            assert!(owed > 0, "{}", workload.name);
            assert_eq!(found("device bytes", &run(owed)), Some(GateFinding::Fine), "{}", workload.name);
            assert_eq!(found("device bytes", &run(owed * 8 / 10)), Some(GateFinding::Spoiled), "{}", workload.name);
        }
    }

    #[test]
    fn what_is_owed_by_drawn_blocks_leaves_room_for_chance() {
        // 22 expected, 12.3 less once in a million runs, and nine tenths of the rest.
        let draws = |count, read: u64| Run::of("pread").accesses(count).counter("process_read_bytes", read * 4096);

        fine("device bytes", draws(22, 9));
        spoiled("device bytes", draws(22, 8));
        spoiled("device bytes", draws(7, 0));
        is_noted("device bytes", draws(6, 0));
    }

    #[test]
    fn what_is_read_while_opening_counts() {
        let populated = scan("mmap", 10 * MIB).edit(|record| {
            let open = record.phases.iter_mut().find(|phase| phase.name == "open").unwrap();
            open.counters.insert("process_read_bytes".to_owned(), 90 * MIB);
        });

        fine("device bytes", populated);
    }

    #[test]
    fn a_peer_that_is_watched_as_one_piece_is_counted_once() {
        let peer = Run::peer("fio").workload("sequential").block(MIB).accesses(100);

        spoiled("device bytes", peer.counter("process_read_bytes", 50 * MIB));
    }

    #[test]
    fn unknown_bytes_and_unknown_orders_are_noted_and_never_fine() {
        let mut unknown_order = scan("pread", 100 * MIB).record();
        unknown_order.traits.as_mut().unwrap().distinct_bytes = None;
        let mut unknown_kinds = scan("pread", 100 * MIB).record();
        unknown_kinds.traits = None;

        assert_eq!(found("device bytes", &unknown_order), Some(GateFinding::Noted));
        assert_eq!(found("device bytes", &unknown_kinds), Some(GateFinding::Noted));
        is_noted("device bytes", Run::of("pread"));
    }

    #[test]
    fn the_control_a_writer_and_warm_runs_owe_nothing() {
        does_not_apply("device bytes", scan("null", 0));
        does_not_apply("device bytes", scan("pread", 0).edit(|record| record.trial.direction = Direction::Write));
        does_not_apply("device bytes", scan("pread", 0).edit(|record| record.trial.cache = CacheState::AsFound));
    }

    /// A scan of 100 MiB with so many bytes on the device beside its own.
    fn beside_others(foreign_read: u64, written: u64) -> Run {
        scan("pread", 100 * MIB)
            .counter("device_read_bytes", 100 * MIB + foreign_read)
            .counter("device_write_bytes", written)
    }

    #[test]
    fn others_on_the_device_are_noted_from_a_tenth_and_spoil_from_a_half() {
        fine("device traffic", beside_others(4 * MIB, 0));
        fine("device traffic", beside_others(14 * MIB - 1, 0));
        is_noted("device traffic", beside_others(14 * MIB, 0));
        is_noted("device traffic", beside_others(54 * MIB - 1, 0));
        spoiled("device traffic", beside_others(54 * MIB, 0));
    }

    #[test]
    fn others_writes_disturb_a_reader_and_its_own_do_not_disturb_a_writer() {
        spoiled("device traffic", beside_others(0, 54 * MIB));
        fine("device traffic", beside_others(0, 54 * MIB).edit(|record| record.trial.direction = Direction::Write));
    }

    #[test]
    fn the_control_reads_nothing_that_others_could_disturb() {
        does_not_apply("device traffic", scan("null", 0).counter("device_read_bytes", 500 * MIB));
    }

    #[test]
    fn others_bytes_are_held_against_what_was_wanted_where_the_cache_served_it() {
        let warm = scan("pread", 0).accesses(1000).counter("device_read_bytes", 54 * MIB);

        fine("device traffic", warm);
    }

    #[test]
    fn a_device_that_counts_nothing_is_noted_where_the_run_read_from_it() {
        let uncounted = |read| Run::of("pread").counter("process_read_bytes", read);

        is_noted("device traffic", uncounted(MIB));
        does_not_apply("device traffic", uncounted(0));
    }

    #[test]
    fn a_warm_range_that_fits_must_be_resident_to_99_percent() {
        fine("warm", cached("pread", CacheState::Warm, 99 * MIB));
        spoiled("warm", cached("pread", CacheState::Warm, 99 * MIB - 1));
        spoiled("warm", cached("pread", CacheState::WarmPages, 50 * MIB));
    }

    #[test]
    fn a_warm_range_that_cannot_fit_is_noted() {
        is_noted("warm", cached("pread", CacheState::Warm, 50 * MIB).memory(100 * MIB));
        spoiled("warm", cached("pread", CacheState::Warm, 50 * MIB).memory(100 * MIB + 1));
    }

    #[test]
    fn a_hot_part_needs_memory_for_that_part_only() {
        is_noted("warm", cached("pread", CacheState::Hot(0.5), 10 * MIB).memory(50 * MIB));
        spoiled("warm", cached("pread", CacheState::Hot(0.5), 10 * MIB).memory(50 * MIB + 1));
    }

    #[test]
    fn a_hot_part_must_be_the_part_that_was_asked_for() {
        fine("warm", cached("pread", CacheState::Hot(0.5), 51 * MIB));
        spoiled("warm", cached("pread", CacheState::Hot(0.5), 53 * MIB));
        fine("warm", cached("pread", CacheState::Hot(0.5), 49 * MIB));
        spoiled("warm", cached("pread", CacheState::Hot(0.5), 47 * MIB));
    }

    #[test]
    fn a_warm_range_that_cannot_be_looked_at_is_noted() {
        is_noted("warm", cached("pread", CacheState::Warm, 0).edit(|record| record.cache.resident_before_bytes = None));
    }

    /// A run of 100 MiB that left so much in the page cache.
    fn left(arm: &str, after: Option<u64>) -> Run {
        cached(arm, CacheState::Cold, 0).edit(|record| record.cache.resident_after_bytes = after)
    }

    #[test]
    fn reading_past_the_page_cache_leaves_nothing_in_it() {
        fine("direct", left("direct", Some(2 * MIB)));
        spoiled("direct", left("direct", Some(2 * MIB + 1)));
        spoiled("direct", left("uring direct=on", Some(100 * MIB)));
        is_noted("direct", left("direct", None));
    }

    #[test]
    fn who_reads_through_the_page_cache_may_fill_it() {
        does_not_apply("direct", left("pread", Some(100 * MIB)));
        does_not_apply("direct", left("uring direct=off", Some(100 * MIB)));
    }

    #[test]
    fn a_limit_is_in_force_where_no_more_is_ever_in_use() {
        let used = |peak: u64| Run::of("mmap").memory(100 * MIB).sampled("cgroup_usage_bytes", &[MIB, peak, MIB]);

        fine("memory limit", used(105 * MIB));
        spoiled("memory limit", used(105 * MIB + 1));
        is_noted("memory limit", Run::of("mmap").memory(100 * MIB));
        does_not_apply("memory limit", Run::of("mmap"));
    }

    #[test]
    fn a_run_too_short_for_a_sample_shows_its_memory_at_the_end_of_a_phase() {
        spoiled("memory limit", Run::of("mmap").memory(100 * MIB).counter("cgroup_usage_bytes", 200 * MIB));
    }

    #[test]
    fn what_swaps_by_itself_is_not_spoiled_by_it() {
        let mut record = Run::of("mmap").counter("swap_in_pages", 1).counter("swap_out_pages", 1).record();
        record.traits.as_mut().unwrap().swaps = true;

        assert_eq!(found("swap", &record), None);
    }

    #[test]
    fn one_swapped_page_spoils_a_run() {
        let swapped = |read, written| Run::of("mmap").counter("swap_in_pages", read).counter("swap_out_pages", written);

        fine("swap", swapped(0, 0));
        spoiled("swap", swapped(1, 0));
        spoiled("swap", swapped(0, 1));
        is_noted("swap", Run::of("mmap"));
    }

    /// A run of one second on two processors.
    fn second(counter: &str, share: f64) -> Run {
        Run::of("mmap").phases_ms(0, 1_000, 0).counter(counter, (share * 2.0 * SECOND as f64) as u64)
    }

    #[test]
    fn a_quota_is_noted_from_one_percent_and_spoils_from_five() {
        fine("quota", second("throttled_ns", 0.0099));
        is_noted("quota", second("throttled_ns", 0.01));
        is_noted("quota", second("throttled_ns", 0.0499));
        spoiled("quota", second("throttled_ns", 0.05));
        does_not_apply("quota", Run::of("mmap"));
    }

    /// The same with a quarter of the processors used by the run itself, and what ticks may hide on top.
    fn others(share: f64) -> Run {
        let hidden = 4.0 * TICK_NS as f64 / (2.0 * SECOND as f64);
        second("machine_busy_ns", share + 0.25 + hidden).counter("user_ns", SECOND / 4).counter("system_ns", SECOND / 4)
    }

    #[test]
    fn others_on_the_processors_are_noted_from_ten_percent_and_spoil_from_25() {
        fine("busy machine", others(0.0999));
        is_noted("busy machine", others(0.1001));
        is_noted("busy machine", others(0.2499));
        spoiled("busy machine", others(0.2501));
        is_noted("busy machine", Run::of("mmap"));
    }

    #[test]
    fn a_tick_may_be_missing_at_each_end_and_on_each_processor() {
        let on_eight = |ticks| {
            let run = Run::of("mmap").phases_ms(0, 1_000, 0).counter("user_ns", 0).counter("system_ns", 0);
            // A tenth of eight processors, and so many ticks.
            run.counter("machine_busy_ns", 8 * SECOND / 10 + ticks * TICK_NS).edit(|record| record.machine.cpus = 8)
        };

        is_noted("busy machine", on_eight(10));
        fine("busy machine", on_eight(9));
    }

    #[test]
    fn a_peer_is_observed_from_its_start_to_its_end() {
        let peer = |observed_s: i64| {
            let run = Run::peer("fio").phases_ms(0, 1_000, 0).counter("user_ns", 0).counter("system_ns", 0);
            run.counter("machine_busy_ns", SECOND).edit(move |record| {
                record.timeline.at_ns = vec![0, observed_s * SECOND as i64];
            })
        };

        spoiled("busy machine", peer(1));
        is_noted("busy machine", peer(3));
    }

    #[test]
    fn a_stolen_processor_is_noted_from_five_percent_and_spoils_from_30() {
        let hidden = 2.0 * TICK_NS as f64 / (2.0 * SECOND as f64);

        fine("steal", second("machine_steal_ns", 0.0499 + hidden));
        is_noted("steal", second("machine_steal_ns", 0.0501 + hidden));
        is_noted("steal", second("machine_steal_ns", 0.2999 + hidden));
        spoiled("steal", second("machine_steal_ns", 0.3001 + hidden));
    }

    const STATE: FileState = FileState { device: 1, inode: 2, size_bytes: 3, modified_ns: 4 };

    fn files(before: &[FileState], after: &[FileState]) -> Run {
        let states = [before.to_vec(), after.to_vec()];
        Run::of("mmap").edit(|record| record.files = states)
    }

    #[test]
    fn any_change_of_a_file_while_it_is_read_spoils_the_run() {
        fine("same file", files(&[STATE], &[STATE]));
        for changed in [
            FileState { device: 9, ..STATE },
            FileState { inode: 9, ..STATE },
            FileState { size_bytes: 9, ..STATE },
            FileState { modified_ns: 9, ..STATE },
        ] {
            spoiled("same file", files(&[STATE], &[changed]));
        }
        let says = |after| {
            all(&files(&[STATE], &[after]).record()).into_iter().find(|gate| gate.name == "same file").unwrap().says
        };
        assert_eq!(says(STATE), "the file did not change");
        assert_eq!(says(FileState { inode: 9, ..STATE }), "the file was changed while it was read");
        is_noted("same file", files(&[], &[]));
        is_noted("same file", files(&[STATE], &[]));
        does_not_apply("same file", files(&[STATE], &[]).edit(|record| record.trial.direction = Direction::Write));
    }

    #[test]
    fn a_file_replaced_between_two_runs_spoils_the_later_one() {
        let first = files(&[STATE], &[STATE]).record();
        let gates_beside = |before: FileState, direction: Direction| {
            let mut later = files(&[before], &[before]).edit(|record| record.trial.direction = direction).record();
            beside(std::slice::from_ref(&first), &mut later);
            later.gates
        };
        let other = FileState { inode: 7, ..STATE };

        let [gate] = &gates_beside(other, Direction::Read)[..] else { panic!() };
        assert_eq!((gate.name.as_str(), gate.finding), ("same file", GateFinding::Spoiled));
        assert!(gates_beside(STATE, Direction::Read).is_empty());
        assert!(gates_beside(other, Direction::Write).is_empty());
    }

    fn digested(arm: &str, digests: &[u64]) -> Record {
        let answer = Answer::Digests(vec![digests.to_vec()]);
        Run::of(arm).edit(|record| record.answer = answer).record()
    }

    #[test]
    fn arms_that_saw_other_bytes_of_a_users_file_are_spoiled_and_named() {
        let earlier = [digested("pread", &[1, 2])];
        let beside_it = |digests: &[u64]| {
            let mut later = digested("mmap", digests);
            beside(&earlier, &mut later);
            later.gates.remove(0)
        };

        let differs = beside_it(&[1, 3]);
        assert_eq!(differs.finding, GateFinding::Spoiled);
        assert!(differs.says.contains("other bytes than pread (thread 0, accesses from 4096)"), "{}", differs.says);
        let equals = beside_it(&[1, 2, 5]);
        assert_eq!(equals.finding, GateFinding::Fine);
        assert!(equals.says.contains("as in 1 earlier run"), "{}", equals.says);
    }

    #[test]
    fn a_run_that_failed_is_no_measure_of_the_bytes() {
        let failed = Record { outcome: Outcome::Failed("EIO".to_owned()), ..digested("pread", &[1]) };
        let mut later = digested("mmap", &[2]);

        beside(&[failed], &mut later);

        assert!(later.gates.iter().all(|gate| gate.finding == GateFinding::Fine));
    }

    #[test]
    fn answers_are_right_wrong_or_noted() {
        let answered = |answer: Answer| Run::of("mmap").edit(|record| record.answer = answer);

        fine("answer", answered(Answer::Checked));
        spoiled("answer", answered(Answer::Wrong { first_offset: 0, count: 1 }));
        is_noted("answer", answered(Answer::Unchecked("fio does not hand its bytes over".to_owned())));
        does_not_apply("answer", answered(Answer::Digests(Vec::new())));
    }

    #[test]
    fn what_is_not_fine_says_whose_doing_it_is_and_what_to_do() {
        for condition in ALL {
            let bad = condition.gate(GateFinding::Spoiled, "x".to_owned());
            let good = condition.gate(GateFinding::Fine, "x".to_owned());

            assert!(!bad.remedy.is_empty(), "{}", condition.name);
            assert_eq!(good.remedy, "", "{}", condition.name);
        }
        let by = |name: &str| ALL.iter().find(|condition| condition.name == name).unwrap().by;
        assert_eq!([by("busy machine"), by("device traffic"), by("steal"), by("same file")], [Cause::Others; 4]);
        assert_eq!([by("cold"), by("device bytes"), by("direct"), by("quota")], [Cause::Setup; 4]);
    }

    #[test]
    fn a_run_whose_kinds_are_unknown_is_not_taken_for_the_control() {
        let mut record = scan("null", 0).record();
        record.traits = None;
        record.trial.workload = Choice::plain("unheard-of");

        assert_eq!(found("device bytes", &record), Some(GateFinding::Noted));
    }
}
