//! The processes that are judged together: one, a tree, a cgroup. Sums over their files; plain arithmetic on evidence.

use crate::watch::evidence::{Calls, Evidence, MappedFile};
use majorfault::observe::places::FileId;
use std::collections::{HashMap, HashSet};

/// Times its watch that a thread's work and waits come to at most; more than once, as processor time is counted in steps of 10 ms.
const ONE: f64 = 1.05;

/// The processes that are judged together.
#[derive(Clone, Copy, Debug)]
pub struct Patient<'a> {
    /// What is known about each.
    pub processes: &'a [Evidence],
}

/// A file as one process has it mapped.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// The number of the process within the patient.
    pub process: usize,
    /// What is known about the process.
    pub evidence: &'a Evidence,
    /// The file.
    pub file: &'a MappedFile,
}

impl<'a> Patient<'a> {
    /// The files with data on a device, as each process has them mapped.
    pub fn files(self) -> impl Iterator<Item = Seat<'a>> {
        self.processes.iter().enumerate().flat_map(|(process, evidence)| {
            evidence.data_files().filter(|file| file.is_stored()).map(move |file| Seat { process, evidence, file })
        })
    }

    /// The seconds of the watch.
    pub fn seconds(self) -> f64 {
        self.processes.iter().map(|it| it.watched.as_secs_f64()).fold(1e-3, f64::max)
    }

    /// How many each second of the watch.
    pub fn rate(self, count: u64) -> f64 {
        count as f64 / self.seconds()
    }

    /// Read calls and bytes from devices of all processes; none where those of no process could be read.
    pub fn calls(self) -> Option<Calls> {
        self.processes.iter().filter_map(|it| it.calls).reduce(|sum, it| Calls {
            read_call_bytes: sum.read_call_bytes + it.read_call_bytes,
            read_calls: sum.read_calls + it.read_calls,
            device_bytes: sum.device_bytes + it.device_bytes,
        })
    }

    /// Faults that waited, of all processes; none where they could not be seen.
    pub fn waits(self) -> Option<u64> {
        self.processes.iter().filter_map(|it| it.faults.as_ref()).map(|faults| faults.waits).reduce(|sum, it| sum + it)
    }

    /// Whether the files that these processes map or have open all fit into the machine's memory, so that it cannot be too
    /// small for them.
    pub fn fits_machine(self) -> bool {
        let mapped: Vec<Seat<'_>> = self.files().collect();
        let open = self.processes.iter().flat_map(|it| &it.descriptors).map(|file| file.size_bytes).sum::<u64>();
        let memory = self.processes.iter().map(|it| it.machine.available_bytes).min().unwrap_or(0);
        size_bytes(&mapped).is_some_and(|mapped| mapped + open <= memory)
    }

    /// Evicted pages needed again each second, and where they were counted. Processes of one cgroup share the count.
    pub fn refaults(self) -> Option<(f64, &'static str)> {
        self.processes.iter().filter_map(Evidence::refaults).max_by(|left, right| left.0.total_cmp(&right.0))
    }

    /// Bytes that the page cache may take of these processes' files: what is left of the limit, or of the machine's memory.
    pub fn room_bytes(self) -> Option<u64> {
        self.processes.iter().filter_map(Evidence::room_bytes).min()
    }

    /// Whether one process is a copy of another: forked, without another program since. Only such have a file's part mapped at the same
    /// address, where addresses are random.
    pub fn has_copies(self) -> bool {
        let mut known = HashSet::new();
        self.processes.iter().any(|evidence| {
            let places = evidence
                .files
                .iter()
                .flat_map(|file| file.mappings.iter().map(|mapping| (file.id, mapping.vma.start, mapping.vma.offset)));
            !places.collect::<HashSet<_>>().into_iter().all(|place| known.insert(place))
        })
    }

    /// The smallest memory limit of the processes.
    pub fn limit_bytes(self) -> Option<u64> {
        self.processes.iter().filter_map(|it| it.group.as_ref()?.limit_bytes).min()
    }

    /// Share of their time that the threads that wait lose in faults of these files; from 0 to 1.
    pub fn waiting(self, files: &[Seat<'_>]) -> f64 {
        let mut by_process: HashMap<usize, Vec<Seat<'_>>> = HashMap::new();
        files.iter().for_each(|seat| by_process.entry(seat.process).or_default().push(*seat));
        let shares = by_process.values().map(|seats| {
            let waited = waited_ns(seats) as f64;
            (waited, waiting_of(seats[0].evidence, seats))
        });
        let (weight, sum) =
            shares.fold((0.0, 0.0), |(weight, sum), (waited, share)| (weight + waited, sum + waited * share));
        if weight > 0.0 { (sum / weight).min(1.0) } else { 0.0 }
    }

    /// How many faults wait at the same time, on average.
    pub fn in_flight(self, files: &[Seat<'_>]) -> f64 {
        waited_ns(files) as f64 / 1e9 / self.seconds()
    }
}

/// Nanoseconds waited in faults of these files.
pub fn waited_ns(files: &[Seat<'_>]) -> u64 {
    files.iter().map(|seat| seat.file.waited_ns).sum()
}

/// Half the width of the 95 % interval of what was waited in these files, as a share of it, at most.
pub fn waited_error(files: &[Seat<'_>]) -> f64 {
    let errors = files.iter().filter_map(|seat| seat.evidence.faults.as_ref()?.waited_error);
    errors.fold(0.0, f64::max)
}

/// Whether not all faults of these files were seen: their waits are estimated.
pub fn are_sampled(files: &[Seat<'_>]) -> bool {
    files.iter().any(|seat| seat.evidence.faults.as_ref().is_some_and(|faults| !faults.are_all_seen()))
}

/// Faults of these files that waited.
pub fn waits(files: &[Seat<'_>]) -> u64 {
    files.iter().map(|seat| seat.file.waits).sum()
}

/// Different files, however many processes map them.
pub fn distinct(files: &[Seat<'_>]) -> usize {
    files.iter().map(|seat| seat.file.id).collect::<HashSet<FileId>>().len()
}

/// Bytes of these files, each counted once, where all sizes are known.
pub fn size_bytes(files: &[Seat<'_>]) -> Option<u64> {
    let sizes: Option<HashMap<FileId, u64>> =
        files.iter().map(|seat| Some((seat.file.id, seat.file.size_bytes?))).collect();
    Some(sizes?.values().sum())
}

/// Whether all waits and all work of a process fit into the time of one thread. Then its threads take turns, as those of a
/// runtime do which moves its tasks from one to another (Go), and what they wait is lost one after the other.
fn is_one_flow(evidence: &Evidence, waited_ns: f64) -> bool {
    let counted = evidence.counter("user_ns").zip(evidence.counter("system_ns"));
    // The kernel's own time in those faults is part of what was waited.
    let worked_ns = counted.map(|(user, system)| user as f64 + (system as f64 - waited_ns).max(0.0));
    worked_ns.is_some_and(|worked_ns| waited_ns + worked_ns <= evidence.watched.as_nanos() as f64 * ONE)
}

/// Share of the time of one process's waiting threads: each counts by what it waited, so that idle ones do not dilute it.
fn waiting_of(evidence: &Evidence, files: &[Seat<'_>]) -> f64 {
    let waited = waited_ns(files) as f64;
    let watched = evidence.watched.as_nanos().max(1) as f64;
    let by_thread = evidence.faults.as_ref().map_or(&[][..], |faults| &faults.waiting_ns);
    let sum: f64 = by_thread.iter().map(|ns| *ns as f64).sum();
    if sum > 0.0 {
        let squares: f64 = by_thread.iter().map(|ns| (*ns as f64).powi(2)).sum();
        let each = squares / sum / watched;
        let share = if is_one_flow(evidence, sum) { sum / watched } else { each };
        return (share * (waited / sum).min(1.0)).min(1.0);
    }
    let threads = files.iter().filter_map(|seat| seat.file.order).map(|order| order.threads).max().unwrap_or(1).max(1);
    (waited / watched / threads as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::scenes::{healthy, with_file};

    fn waited(patient: Patient<'_>) -> f64 {
        patient.waiting(&patient.files().collect::<Vec<_>>())
    }

    #[test]
    fn idle_threads_do_not_dilute_the_time_of_those_that_wait() {
        let mut evidence = with_file(|file| (file.waits, file.waited_ns) = (1000, 4_010_000_000));
        // A watch of 5 s: one thread waits for 4 s of it, ten once for a millisecond.
        evidence.faults.as_mut().unwrap().waiting_ns = [vec![4_000_000_000], vec![1_000_000; 10]].concat();

        let share = waited(Patient { processes: &[evidence] });

        assert!((0.79..0.801).contains(&share), "{share}");
    }

    /// Seen with a scan by bbolt: its one goroutine waited by turns in two threads, for 45 % of the time of each.
    #[test]
    fn threads_that_take_turns_wait_as_one() {
        let share = |user_ns: u64, system_ns: u64| {
            let mut evidence = with_file(|file| (file.waits, file.waited_ns) = (1000, 4_500_000_000));
            evidence.faults.as_mut().unwrap().waiting_ns = vec![2_250_000_000; 2];
            evidence.counters.extend([("user_ns", user_ns), ("system_ns", system_ns)]);
            waited(Patient { processes: &[evidence] })
        };

        // A watch of 5 s, and 5 % of it for the steps in which processor time is counted.
        assert!((share(750_000_000, 4_500_000_000) - 0.9).abs() < 1e-9);
        assert!((share(750_000_001, 4_500_000_000) - 0.45).abs() < 1e-9, "they work and wait at the same time");
        assert!((share(750_000_000, 4_500_000_001) - 0.45).abs() < 1e-9, "so they do in the kernel");
    }

    #[test]
    fn the_share_of_a_part_of_the_files_is_a_part_of_the_share() {
        let mut evidence = with_file(|file| (file.waits, file.waited_ns) = (1000, 1_000_000_000));
        evidence.faults.as_mut().unwrap().waiting_ns = vec![4_000_000_000];

        assert!((waited(Patient { processes: &[evidence] }) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn files_and_calls_are_summed_over_processes_and_a_files_bytes_are_not() {
        let both = [healthy(), healthy()];
        let patient = Patient { processes: &both };
        let files: Vec<Seat<'_>> = patient.files().collect();

        assert_eq!((files.len(), distinct(&files), size_bytes(&files)), (2, 1, Some(1 << 30)));
        assert_eq!(patient.calls().unwrap().read_calls, 1000);
        assert_eq!((patient.waits(), files[1].process), (Some(0), 1));
    }

    #[test]
    fn a_size_that_is_not_known_makes_the_sum_unknown() {
        let evidence = [with_file(|file| file.size_bytes = None)];
        let patient = Patient { processes: &evidence };

        assert_eq!(size_bytes(&patient.files().collect::<Vec<_>>()), None);
    }

    #[test]
    fn the_room_is_the_limit_without_anonymous_memory_and_without_a_limit_the_machines() {
        let mut evidence = healthy();
        assert_eq!(Patient { processes: std::slice::from_ref(&evidence) }.room_bytes(), Some((8 << 30) - (200 << 20)));

        evidence.group = None;
        // Available, and what of its files is cached already.
        assert_eq!(Patient { processes: &[evidence] }.room_bytes(), Some(40 << 30));
    }
}
