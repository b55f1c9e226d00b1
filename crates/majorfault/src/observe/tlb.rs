//! TLB shootdowns: interrupts that make other processors forget mappings, as counted by the machine and by the
//! kernel's tracepoint.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, unreadable};
use crate::needs::{Need, Probe};
use crate::proc::tracefs::Tracepoint;
use crate::proc::{Live, interrupts};
#[cfg(target_arch = "x86_64")]
use crate::sys::cpuid::cpuid;
use crate::sys::perf::{Count, Event, Kernel};
use std::fs;

pub(super) const SHOOTDOWNS: Source = Source {
    name: "tlb",
    summary: "TLB shootdown interrupts of the machine",
    needs: &[],
    counters: &[Counter {
        name: "tlb_shootdowns",
        unit: Unit::Count,
        scope: Scope::Machine,
        kind: Kind::Total,
        doc: "the TLB row of /proc/interrupts over all processors; flushes without an interrupt (paravirtual, invlpgb, arm64) are not in it",
    }],
    open: open_row,
};

pub(super) const FLUSHES: Source = Source {
    name: "tlb_flush",
    summary: "TLB flushes of the process by reason",
    needs: &[&TLB_FLUSH],
    counters: &[
        flush("tlb_flush_task_switch", "flushes at a switch to another process (tracepoint tlb:tlb_flush, reason 0)"),
        flush("tlb_flush_remote_shootdown", "flushes requested by another processor (reason 1)"),
        flush("tlb_flush_local_shootdown", "flushes of its own mappings, page by page (reason 2)"),
        flush("tlb_flush_local_mm_shootdown", "flushes of all its own mappings (reason 3)"),
        flush("tlb_flush_remote_send_ipi", "flushes that it requested from other processors (reason 4)"),
    ],
    open: open_flushes,
};

/// The tracepoint tlb:tlb_flush, which this user may count.
pub const TLB_FLUSH: Need = Need { name: "tlb_flush", summary: "TLB flushes of a process by reason", probe };

const fn flush(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Count, scope: Scope::Process, kind: Kind::Total, doc }
}

struct Row(Live);

fn open_row(_: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let mut live =
        Live::open("/proc/interrupts").map_err(|error| unreadable("TLB shootdowns", "/proc/interrupts", &error))?;
    match live.read().and_then(interrupts::tlb) {
        Some(_) => Ok(Box::new(Row(live))),
        None => Err(Missing::new(
            "TLB shootdowns",
            "/proc/interrupts has no TLB row; this architecture flushes without interrupts",
            "nobody is interrupted by them here; on x86-64 they can be counted",
        )),
    }
}

impl Reading for Row {
    fn read(&mut self, values: &mut [Option<u64>]) {
        values[0] = self.0.read().and_then(interrupts::tlb);
    }
}

struct Flushes(Vec<Count>);

fn open_flushes(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let pid = scene.pid.ok_or_else(|| Missing::new("TLB flushes by reason", "no process is observed", ""))?;
    let id = tracepoint_id()?;
    let count = |reason: usize| {
        let count = Count::of(Event::Tracepoint(id), pid, Kernel::Counted)?;
        count.filter(&format!("reason == {reason}"))?;
        Ok(count)
    };
    let counts = (0..FLUSHES.counters.len()).map(count).collect::<std::io::Result<Vec<_>>>();
    counts.map(|counts| Box::new(Flushes(counts)) as Box<dyn Reading>).map_err(|error| refused(&error))
}

impl Reading for Flushes {
    fn read(&mut self, values: &mut [Option<u64>]) {
        for (value, count) in values.iter_mut().zip(&self.0) {
            *value = count.read().ok();
        }
    }
}

fn refused(error: &std::io::Error) -> Missing {
    Missing::new(
        "TLB flushes by reason",
        format!("perf_event_open(2) failed: {}", error.kind()),
        "set kernel.perf_event_paranoid=-1, or run with CAP_PERFMON",
    )
    .told_by(error)
}

/// The tracepoint's number, from tracefs where it is mounted and readable.
fn tracepoint_id() -> Result<u64, Missing> {
    Tracepoint::named("tlb/tlb_flush").map(|point| point.id).ok_or_else(|| {
        Missing::new(
            "TLB flushes by reason",
            "tracefs is not mounted, or not readable by this user, or the kernel has no tracepoint tlb:tlb_flush",
            "mount -t tracefs tracefs /sys/kernel/tracing, as root",
        )
    })
}

fn probe() -> Probe {
    let id = tracepoint_id()?;
    let counted = Count::of(Event::Tracepoint(id), std::process::id(), Kernel::Counted);
    counted.map(|_| format!("tracepoint {id} can be counted")).map_err(|error| refused(&error))
}

/// Why the row of /proc/interrupts may miss flushes on this machine, if it does.
pub fn hidden_flushes() -> Option<String> {
    let row_misses = "so the TLB row of /proc/interrupts counts too few";
    if cfg!(target_arch = "aarch64") {
        return Some(format!("arm64 flushes the TLBs of other processors without interrupts, {row_misses}"));
    }
    if fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.split_ascii_whitespace().any(|word| word == "invlpgb"))
    {
        return Some(format!("this processor can flush other TLBs without interrupts (invlpgb), {row_misses}"));
    }
    paravirtual().then(|| format!("the hypervisor flushes TLBs of sleeping virtual processors itself, {row_misses}"))
}

/// Whether KVM offers paravirtual TLB flushes: bit 9 of the features leaf (Documentation/virt/kvm/x86/cpuid.rst).
#[cfg(target_arch = "x86_64")]
fn paravirtual() -> bool {
    let base = cpuid(0x4000_0000);
    let is_kvm = [base.ebx, base.ecx, base.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d];
    is_kvm && base.eax >= 0x4000_0001 && cpuid(0x4000_0001).eax & (1 << 9) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn paravirtual() -> bool {
    false
}
