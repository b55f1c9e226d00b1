//! /proc/PID/stat and /proc/stat.

/// The fields of /proc/PID/stat that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Faults served from memory, of all threads, ended ones included.
    pub minor_faults: u64,
    /// Faults that waited for a device.
    pub major_faults: u64,
    /// Time in user mode, in clock ticks (10 ms).
    pub user_ticks: u64,
    /// Time in the kernel, in clock ticks.
    pub system_ticks: u64,
}

/// The fields of /proc/stat's first line that are used, in clock ticks over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorStat {
    /// Time busy: user, nice, system, interrupts.
    pub busy_ticks: u64,
    /// Time ready to run while the hypervisor ran something else.
    pub steal_ticks: u64,
}

/// Reads /proc/PID/stat. The command in parentheses may itself hold spaces and parentheses; the fields after its last
/// closing one are plain.
pub fn process(text: &str) -> Option<ProcessStat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // proc(5) counts from 1 and has two fields before these.
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(ProcessStat {
        minor_faults: field(10)?,
        major_faults: field(12)?,
        user_ticks: field(14)?,
        system_ticks: field(15)?,
    })
}

/// Reads /proc/PID/stat: the process itself, and the children that it waited for, with theirs.
pub fn with_children(text: &str) -> Option<[ProcessStat; 2]> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    let waited_for = ProcessStat {
        minor_faults: field(11)?,
        major_faults: field(13)?,
        user_ticks: field(16)?,
        system_ticks: field(17)?,
    };
    Some([process(text)?, waited_for])
}

/// What tells a process from a later one with the same number, and what it waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLife {
    /// Its command's name.
    pub name: String,
    /// When it started, in clock ticks since the machine did.
    pub started_ticks: u64,
    /// Time that its threads waited for devices, in clock ticks; stays 0 where kernel.task_delayacct is 0.
    pub device_ticks: u64,
}

/// Reads /proc/PID/stat for its name, its start and its waits.
pub fn life(text: &str) -> Option<ProcessLife> {
    let (begin, rest) = text.rsplit_once(')')?;
    let (_, name) = begin.split_once('(')?;
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3)?.parse().ok();
    Some(ProcessLife { name: name.to_owned(), started_ticks: field(22)?, device_ticks: field(42)? })
}

/// Reads the first line of /proc/stat.
pub fn processors(text: &str) -> Option<ProcessorStat> {
    let numbers: Vec<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_ascii_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = numbers[..] else { return None };
    let busy_ticks = [user, nice, system, irq, softirq].iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
    Some(ProcessorStat { busy_ticks, steal_ticks: steal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn start_and_waits_of_a_process_are_its_22nd_and_42nd_field() {
        let fields: Vec<String> = (3..53).map(|number| number.to_string()).collect();
        let text = format!("77 (a) (b) c) {}\n", fields.join(" "));

        let found = life(&text).unwrap();

        assert_eq!((found.name.as_str(), found.started_ticks, found.device_ticks), ("a) (b) c", 22, 42));
        assert_eq!(life("77 (a) S 1 2 3"), None);
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text =
            "77 (a) (b) c) S 1 77 77 0 -1 4194560 1234 5 67 8 90 12 3 4 20 0 1 0 100 1000 10 18446744073709551615";

        let stat = process(text).unwrap();

        assert_eq!((stat.minor_faults, stat.major_faults), (1234, 67));
        assert_eq!((stat.user_ticks, stat.system_ticks), (90, 12));
        let waited_for = ProcessStat { minor_faults: 5, major_faults: 8, user_ticks: 3, system_ticks: 4 };
        assert_eq!(with_children(text), Some([stat, waited_for]));
    }

    #[test]
    fn steal_is_not_busy() {
        let stat = processors("cpu  10 1 20 1000 50 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();

        assert_eq!((stat.busy_ticks, stat.steal_ticks), (36, 7));
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_of_a_process_reads_back(command in "[^\0\n]{0,15}", faults: [u64; 2], ticks: [u64; 2]) {
            let text = format!("7 ({command}) S 1 7 7 0 -1 64 {} 0 {} 0 {} {} 0 0 20 0\n", faults[0], faults[1], ticks[0], ticks[1]);

            let stat = process(&text).unwrap();

            prop_assert_eq!([stat.minor_faults, stat.major_faults], faults);
            prop_assert_eq!([stat.user_ticks, stat.system_ticks], ticks);
        }
    }
}
