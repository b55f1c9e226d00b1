//! How many threads of a process are blocked in a page fault, on average: a look at each of them now and then. Where a program faults so often
//! that few of its waits are seen, this tells how long they are together, though not in which file.
//!
//! `/proc/PID/task/TID/syscall` says `-1` of a thread that is blocked and not in a system call (proc_pid_syscall(5)), which is in a fault, or
//! stopped. Needs the rights to trace the process.

use majorfault::Nanos;
use std::fs;
use std::time::{Duration, Instant};

/// The shortest pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A look is followed by a pause so many times as long as it took.
const REST: u32 = 50;

/// Looks from which on their mean says something.
const FEWEST: usize = 20;

/// Normal quantile of an interval that holds the true value in 95 % of the cases.
const NORMAL: f64 = 1.96;

/// The looks at one process.
pub struct Blocked {
    /// Threads that were in a fault, look by look.
    looks: Vec<f64>,
    first: Option<Instant>,
    not_before: Option<Instant>,
}

impl Blocked {
    /// None yet.
    pub fn new() -> Blocked {
        Blocked { looks: Vec::new(), first: None, not_before: None }
    }

    /// What was found, look by look.
    #[cfg(test)]
    pub fn looked(looks: &[f64]) -> Blocked {
        Blocked { looks: looks.to_vec(), first: None, not_before: None }
    }

    /// Looks at all threads, where it is time to.
    pub fn look(&mut self, pid: u32) {
        let began = Instant::now();
        if self.not_before.is_some_and(|at| began < at) {
            return;
        }
        self.first.get_or_insert(began);
        self.looks.extend(blocked_threads(pid).map(|count| count as f64));
        self.not_before = Some(began + PAUSE.max(began.elapsed() * REST));
    }

    /// What all threads waited in faults in a watch of this length, and half the width of its 95 % interval as a share of it. None where too
    /// few looks say so, they began in its second half, or none of them found a thread in a fault.
    pub fn waited(&self, watched: Duration) -> Option<(Nanos, f64)> {
        let count = self.looks.len() as f64;
        let mean = self.looks.iter().sum::<f64>() / count;
        let is_late = self.first.is_some_and(|first| first.elapsed() * 2 < watched);
        if self.looks.len() < FEWEST || mean == 0.0 || is_late {
            return None;
        }
        let apart: Vec<f64> = self.looks.iter().map(|look| look - mean).collect();
        let squares: f64 = apart.iter().map(|it| it * it).sum();
        // A wait may last for several looks, which then say less than as many apart.
        let follows: f64 = apart.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let alike = if squares > 0.0 { (follows / squares).clamp(0.0, 0.95) } else { 0.0 };
        let variance = squares / (count - 1.0) / count * (1.0 + alike) / (1.0 - alike);
        Some((Nanos((mean * watched.as_nanos() as f64) as u64), NORMAL * variance.sqrt() / mean))
    }
}

/// None where that may not be known.
fn blocked_threads(pid: u32) -> Option<usize> {
    if is_stopped(pid) {
        return Some(0);
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    // A thread may have ended meanwhile; of one that may not be looked at, none may.
    let said = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.iter().filter(|said| said.starts_with("-1 ")).count())
}

/// Whether a signal or a tracer has stopped it: its threads wait for nothing then.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(looks: &[f64]) -> Option<(Nanos, f64)> {
        Blocked::looked(looks).waited(Duration::from_secs(2))
    }

    #[test]
    fn threads_that_are_always_found_in_a_fault_waited_all_the_time() {
        assert_eq!(looked(&[3.0; 20]), Some((Nanos(6_000_000_000), 0.0)));
        assert_eq!((looked(&[3.0; 19]), looked(&[0.0; 50])), (None, None));
    }

    #[test]
    fn looks_that_resemble_each_other_say_less() {
        let (waited, apart) = looked(&[0.0, 1.0].repeat(50)).unwrap();
        let (_, alike) = looked(&[[0.0; 50], [1.0; 50]].concat()).unwrap();

        assert_eq!(waited, Nanos(1_000_000_000));
        assert!((apart - 1.96 * 0.1005).abs() < 1e-3, "{apart}");
        assert!(alike > 1.0, "{alike}");
    }

    #[test]
    fn looks_that_began_late_say_nothing_of_the_whole_watch() {
        let since = |ago| {
            let first = Instant::now().checked_sub(Duration::from_millis(ago));
            Blocked { first, ..Blocked::looked(&[1.0; 20]) }.waited(Duration::from_secs(2))
        };

        assert!(since(900).is_none() && since(1100).is_some());
    }

    #[test]
    fn a_process_that_is_stopped_is_in_no_fault() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let stops = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            is_stopped(child.id())
        });
        let blocked = blocked_threads(child.id());
        child.kill().unwrap();
        child.wait().unwrap();

        assert!(stops);
        assert_eq!(blocked, Some(0));
    }

    #[test]
    fn a_thread_that_sleeps_in_a_call_is_in_no_fault() {
        assert!(blocked_threads(std::process::id()).is_none_or(|count| count == 0));
        assert_eq!(blocked_threads(u32::MAX / 4), None);
    }
}
