//! What each process lost between two passes, worst first.

use super::pass::{Counts, Pass};
use std::cmp::Reverse;

/// What a process lost in file access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Its number.
    pub pid: u32,
    /// Its command's name.
    pub name: String,
    /// Nanoseconds that its threads waited for devices, as the kernel counts them.
    pub device_ns: u64,
    /// Nanoseconds that its threads waited in faults of files; only where they were sampled.
    pub fault_ns: Option<u64>,
    /// Faults that started a read.
    pub major: u64,
    /// Bytes that devices read for it; none where we may not know.
    pub read_bytes: Option<u64>,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
}

impl Loss {
    /// The longest wait that is known of it.
    pub fn waited_ns(&self) -> u64 {
        self.device_ns.max(self.fault_ns.unwrap_or(0))
    }

    /// Whether it lost anything that could be seen.
    pub fn is_any(&self) -> bool {
        self.waited_ns() > 0 || self.major > 0 || self.read_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Orders losses: longest wait, then most reads by faults, then most bytes read.
    pub fn worst_first(&self) -> Reverse<(u64, u64, u64)> {
        Reverse((self.waited_ns(), self.major, self.read_bytes.unwrap_or(0)))
    }
}

/// What the processes lost from one pass to the next, worst first. A process that was not there before has lost all it ever did.
pub fn between(before: &Pass, after: &Pass) -> Vec<Loss> {
    let mut losses: Vec<Loss> = after
        .processes
        .iter()
        .map(|(key, now)| loss(key.0, now, before.processes.get(key).unwrap_or(&Counts::default())))
        .collect();
    losses.sort_by_key(|loss| (loss.worst_first(), loss.pid));
    losses
}

fn loss(pid: u32, now: &Counts, before: &Counts) -> Loss {
    let read_bytes = now.read_bytes.map(|bytes| bytes.saturating_sub(before.read_bytes.unwrap_or(0)));
    Loss {
        pid,
        name: now.name.clone(),
        device_ns: now.device_ns.saturating_sub(before.device_ns),
        fault_ns: None,
        major: now.major.saturating_sub(before.major),
        read_bytes,
        cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(processes: &[((u32, u64), u64, u64, u64)]) -> Pass {
        let counts =
            |device_ns, major, bytes| Counts { device_ns, major, read_bytes: Some(bytes), ..Counts::default() };
        let processes = processes.iter().map(|(key, device, major, bytes)| (*key, counts(*device, *major, *bytes)));
        Pass { processes: processes.collect(), ..Pass::default() }
    }

    #[test]
    fn the_longest_wait_stands_first_then_faults_then_bytes() {
        let before = pass(&[((1, 0), 50, 9, 0), ((2, 0), 50, 0, 0), ((3, 0), 0, 0, 5), ((4, 0), 0, 0, 5)]);
        let after = pass(&[((1, 0), 50, 10, 0), ((2, 0), 60, 0, 0), ((3, 0), 0, 0, 7), ((4, 0), 0, 0, 5)]);

        let losses = between(&before, &after);

        assert_eq!(losses.iter().map(|loss| loss.pid).collect::<Vec<_>>(), [2, 1, 3, 4]);
        assert_eq!((losses[0].device_ns, losses[1].major, losses[2].read_bytes), (10, 1, Some(2)));
        assert_eq!(losses.iter().map(Loss::is_any).collect::<Vec<_>>(), [true, true, true, false]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let losses = between(&pass(&[((1, 7), 100, 100, 0)]), &pass(&[((1, 8), 5, 3, 0)]));

        assert_eq!((losses[0].device_ns, losses[0].major), (5, 3));
    }

    #[test]
    fn sampled_waits_count_where_the_kernel_counts_none() {
        let loss = Loss { device_ns: 0, fault_ns: Some(7), ..Loss::default() };

        assert_eq!((loss.waited_ns(), loss.is_any()), (7, true));
    }
}
