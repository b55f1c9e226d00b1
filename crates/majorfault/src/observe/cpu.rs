//! Processor time of the process, its context switches, and the processor time of others.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, live_of_process, unreadable};
use crate::proc::{self, Live, stat};
use std::fs;
use std::path::PathBuf;

pub(super) const SOURCE: Source = Source {
    name: "cpu",
    summary: "processor time, context switches, other programs' share, kswapd's",
    needs: &[],
    counters: &[
        total(
            "user_ns",
            Unit::Nanos,
            Scope::Process,
            "time in user mode, with that of children it waited for, in steps of 10 ms (proc(5), stat)",
        ),
        total(
            "system_ns",
            Unit::Nanos,
            Scope::Process,
            "time in the kernel, with that of children it waited for, in steps of 10 ms (proc(5), stat)",
        ),
        total(
            "voluntary_switches",
            Unit::Count,
            Scope::Process,
            "times a living thread gave way because it had to wait (proc(5), status)",
        ),
        total(
            "involuntary_switches",
            Unit::Count,
            Scope::Process,
            "times a living thread was made to give way (proc(5), status)",
        ),
        total(
            "machine_busy_ns",
            Unit::Nanos,
            Scope::Machine,
            "processor time of the whole machine, this process and interrupts included (proc(5), /proc/stat)",
        ),
        total(
            "machine_steal_ns",
            Unit::Nanos,
            Scope::Machine,
            "time the hypervisor ran other guests while this one was ready (proc(5), /proc/stat)",
        ),
        total(
            "kswapd_ns",
            Unit::Nanos,
            Scope::Machine,
            "processor time of the kernel's reclaim threads, in steps of 10 ms",
        ),
    ],
    open,
};

const fn total(name: &'static str, unit: Unit, scope: Scope, doc: &'static str) -> Counter {
    Counter { name, unit, scope, kind: Kind::Total, doc }
}

struct Cpu {
    process: Live,
    tasks: PathBuf,
    machine: Live,
    kswapd: Vec<Live>,
    tick_ns: u64,
}

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let process = live_of_process(scene, "stat", "processor time")?;
    let machine =
        Live::open("/proc/stat").map_err(|error| unreadable("processor time of the machine", "/proc/stat", &error))?;
    let tasks = PathBuf::from(format!("/proc/{}/task", scene.pid.unwrap_or_default()));
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    Ok(Box::new(Cpu { process, tasks, machine, kswapd: kswapd(), tick_ns }))
}

/// The stat files of the threads that reclaim memory, one for each NUMA node.
fn kswapd() -> Vec<Live> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = processes
        .filter(|process| fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.starts_with("kswapd")));
    named.filter_map(|process| Live::open(process.path().join("stat")).ok()).collect()
}

impl Cpu {
    /// Voluntary and involuntary switches of all living threads.
    fn switches(&self) -> Option<(u64, u64)> {
        let mut sums = (0u64, 0u64);
        for task in fs::read_dir(&self.tasks).ok()?.flatten() {
            // A thread may end between being listed and being read.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            sums.0 += proc::number(&status, "voluntary_ctxt_switches").unwrap_or(0);
            sums.1 += proc::number(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
        }
        Some(sums)
    }
}

impl Reading for Cpu {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let tick_ns = self.tick_ns;
        let ns = |ticks: u64| ticks.saturating_mul(tick_ns);
        let process = self.process.read().and_then(stat::with_children);
        values[0] = process.map(|[own, waited_for]| ns(own.user_ticks + waited_for.user_ticks));
        values[1] = process.map(|[own, waited_for]| ns(own.system_ticks + waited_for.system_ticks));
        let switches = self.switches();
        values[2] = switches.map(|(voluntary, _)| voluntary);
        values[3] = switches.map(|(_, involuntary)| involuntary);
        let machine = self.machine.read().and_then(stat::processors);
        values[4] = machine.map(|stat| ns(stat.busy_ticks));
        values[5] = machine.map(|stat| ns(stat.steal_ticks));
        let reclaim = self.kswapd.iter_mut().filter_map(|live| live.read().and_then(stat::process));
        let ticks: u64 = reclaim.map(|stat| stat.user_ticks + stat.system_ticks).sum();
        values[6] = (!self.kswapd.is_empty()).then(|| ns(ticks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_time_of_children_that_were_waited_for_counts() {
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let script = format!("read go; ({busy}); echo done; read go");
        let piped = |command: &mut Command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = piped(Command::new("sh").args(["-c", &script])).unwrap();
        let mut reading = open(&Scene { pid: Some(child.id()), ..Scene::default() }).unwrap();
        let mut values = [None; 7];
        let mut used = || {
            reading.read(&mut values);
            values[0].unwrap() + values[1].unwrap()
        };
        let before = used();

        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();

        // In steps of 10 ms; its own part is one or two system calls.
        assert!(used() - before >= 30_000_000, "the loop of the child takes longer");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
