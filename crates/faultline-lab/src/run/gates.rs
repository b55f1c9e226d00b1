//! The conditions for believing a run, each looked at from the record's own evidence.

use crate::record::{Answer, Finding, Gate, Phase, Record};
use crate::trial::{Arm, CacheState, Direction};
use faultline::Bytes;

/// A cold range may still hold this share: a tail page, a page that another program touches.
const COLD_RESIDENT: f64 = 0.01;

/// A cold run must have read at least this share of what it visited from the device.
const COLD_READ: f64 = 0.9;

/// A warm range that fits must be resident to this share.
const WARM_RESIDENT: f64 = 0.99;

/// Others' share of the processors from which on a machine is called busy, and from which on a run is spoiled.
const BUSY: (f64, f64) = (0.15, 0.60);

/// The kernel counts processor time in steps of 10 ms.
const TICK_NS: u64 = 10_000_000;

/// Share of the processors taken away by the hypervisor from which on it is noted.
const STOLEN: f64 = 0.05;

/// Looks at every condition that applies.
pub(super) fn all(record: &Record) -> Vec<Gate> {
    [cold, device_bytes, warm, swap, busy, stolen, answer].iter().filter_map(|gate| gate(record)).collect()
}

fn gate(name: &str, finding: Finding, says: String) -> Option<Gate> {
    Some(Gate { name: name.to_owned(), finding, says })
}

fn is_control(record: &Record) -> bool {
    matches!(&record.trial.arm, Arm::Method(choice) if choice.name == "null")
}

/// What a counter grew by during the visit.
fn visited(record: &Record, counter: &str) -> Option<u64> {
    record.phase("visit")?.counters.get(counter).copied()
}

fn cold(record: &Record) -> Option<Gate> {
    if record.trial.cache != CacheState::Cold {
        return None;
    }
    let Some(resident) = record.cache.resident_before_bytes else {
        let says = format!("cold could not be proven: {}", record.cache.source);
        return gate("cold", Finding::Noted, says);
    };
    let size = record.trial.data.size_bytes;
    let share = resident as f64 / size as f64;
    let finding = if share <= COLD_RESIDENT { Finding::Fine } else { Finding::Spoiled };
    let says = format!(
        "{} of {} were cached when the clock started (by {})",
        Bytes(resident).rounded(),
        Bytes(size).rounded(),
        record.cache.source
    );
    gate("cold", finding, says)
}

/// A cold read must have come from the device: fewer bytes than distinct pages visited means that something served it
/// from memory.
fn device_bytes(record: &Record) -> Option<Gate> {
    let applies = record.trial.cache == CacheState::Cold && record.trial.direction == Direction::Read;
    if !applies || is_control(record) {
        return None;
    }
    let read = visited(record, "device_read_bytes").max(visited(record, "process_read_bytes"))?;
    let open = record.phase("open").and_then(|phase| phase.counters.get("device_read_bytes")).copied().unwrap_or(0);
    let (read, owed) = (read + open, distinct_bytes(record));
    let finding = if read as f64 >= owed * COLD_READ { Finding::Fine } else { Finding::Spoiled };
    let says = format!(
        "{} came from the device; the distinct blocks visited are about {}",
        Bytes(read).rounded(),
        Bytes(owed as u64).rounded()
    );
    gate("device bytes", finding, says)
}

/// Bytes of distinct blocks visited, expected: exact for orders that visit a block once, the mean for uniform draws;
/// nothing is claimed of skewed ones.
fn distinct_bytes(record: &Record) -> f64 {
    let (visited, size) = (record.bytes() as f64, record.trial.data.size_bytes as f64);
    match record.trial.workload.name.as_str() {
        "uniform" | "chase" | "gather" => size * (1.0 - (-visited / size).exp()),
        "sequential" | "strided" => visited.min(size),
        _ => 0.0,
    }
}

fn warm(record: &Record) -> Option<Gate> {
    if !matches!(record.trial.cache, CacheState::Warm | CacheState::WarmPages) {
        return None;
    }
    let resident = record.cache.resident_before_bytes?;
    let size = record.trial.data.size_bytes;
    let fits = record.trial.memory_bytes.is_none_or(|limit| limit > size);
    let warm = resident as f64 >= size as f64 * WARM_RESIDENT;
    let finding = match (warm, fits) {
        (true, _) => Finding::Fine,
        (false, false) => Finding::Noted,
        (false, true) => Finding::Spoiled,
    };
    let says = format!("{} of {} were cached when the clock started", Bytes(resident).rounded(), Bytes(size).rounded());
    gate("warm", finding, says)
}

fn swap(record: &Record) -> Option<Gate> {
    let pages = visited(record, "swap_in_pages")? + visited(record, "swap_out_pages")?;
    match pages {
        0 => gate("swap", Finding::Fine, "nothing was swapped".to_owned()),
        _ => gate(
            "swap",
            Finding::Spoiled,
            format!("{pages} pages were swapped during the visit; free memory, or swapoff"),
        ),
    }
}

/// Time between the readings of the counters: the phase's own, but a peer's from its start to its end.
fn observed_ns(record: &Record, phase: &Phase) -> u64 {
    match record.trial.arm {
        Arm::Method(_) | Arm::Procedure(_) => phase.wall_ns,
        Arm::Peer(_) => record.timeline.at_ns.last().map_or(phase.wall_ns, |last| *last as u64).max(phase.wall_ns),
    }
}

/// Processor time of others while this ran, as a share of all processors' time.
fn busy(record: &Record) -> Option<Gate> {
    let phase = record.phase("visit")?;
    let machine = visited(record, "machine_busy_ns")?;
    let own = visited(record, "user_ns")? + visited(record, "system_ns")?;
    let available = observed_ns(record, phase) as f64 * f64::from(record.machine.cpus);
    // Both are counted in ticks, one of which may be missing at each end and on each processor.
    let unsure = TICK_NS * (u64::from(record.machine.cpus) + 2);
    let share = machine.saturating_sub(own + unsure) as f64 / available.max(1.0);
    let (noted, spoiled) = BUSY;
    let finding = match share {
        share if share >= spoiled => Finding::Spoiled,
        share if share >= noted => Finding::Noted,
        _ => Finding::Fine,
    };
    gate(
        "busy machine",
        finding,
        format!("others (and the kernel's own threads) used {:.0} % of the processors", share * 100.0),
    )
}

fn stolen(record: &Record) -> Option<Gate> {
    let phase = record.phase("visit")?;
    let stolen = visited(record, "machine_steal_ns")?.saturating_sub(2 * TICK_NS);
    let share = stolen as f64 / (observed_ns(record, phase) as f64 * f64::from(record.machine.cpus)).max(1.0);
    let finding = if share >= STOLEN { Finding::Noted } else { Finding::Fine };
    gate("steal", finding, format!("the hypervisor took {:.0} % of the processors away", share * 100.0))
}

fn answer(record: &Record) -> Option<Gate> {
    match &record.answer {
        Answer::Checked => gate("answer", Finding::Fine, "every access had the right bytes".to_owned()),
        Answer::Wrong { first_offset, count } => {
            gate("answer", Finding::Spoiled, format!("{count} accesses had wrong bytes, the first at {first_offset}"))
        }
        Answer::Digests(_) => None,
        Answer::Unchecked(why) => gate("answer", Finding::Noted, why.clone()),
    }
}
