//! The conditions under which a group was measured, as pairs of a name and its value, for tables of any form.

use super::{Group, words};
use crate::record;
use crate::trial::{Arm, Direction, Trial};
use majorfault::{Bytes, Nanos};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Machine, kernel, device and the settings that decide, in the order they are shown.
pub fn machine(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let machine = group.machine;
    let known = |value: Option<u64>| value.map_or_else(|| words::UNKNOWN.to_owned(), |value| value.to_string());
    let guest = match machine.hypervisor.as_str() {
        "" => String::new(),
        record::UNNAMED_HYPERVISOR => ", a virtual machine".to_owned(),
        name => format!(", a virtual machine on {name}"),
    };
    let disk = match machine.rotational {
        // Virtual disks say so, whatever is behind them.
        Some(true) if !machine.hypervisor.is_empty() => ", a guest's disk",
        Some(true) => ", rotating",
        Some(false) => ", not rotating",
        None => "",
    };
    vec![
        (
            "machine",
            format!("{} x {}, {} memory{guest}", machine.cpus, machine.cpu, words::bytes(machine.memory_bytes as f64)),
        ),
        ("kernel", format!("{} {}", machine.kernel, machine.architecture)),
        ("pages", format!("thp={}, lru={}", machine.thp, machine.lru)),
        ("file system", format!("{} on {}{disk}", machine.filesystem, device(&machine.device))),
        ("read_ahead_kb", known(machine.read_ahead_kb)),
        ("max_sectors_kb", known(machine.max_sectors_kb)),
        ("memory limit", limit(group.trial)),
        ("cgroup", machine.cgroup.clone()),
        (
            "swap",
            format!(
                "{} of {} used",
                words::bytes(machine.swap_bytes[0] as f64),
                words::bytes(machine.swap_bytes[1] as f64)
            ),
        ),
    ]
}

/// What was done, as fio's names where it has them.
pub fn workload(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let trial = group.trial;
    let is_mixed = trial.jobs.iter().any(|job| job.reads_percent > 0) && trial.direction == Direction::Write;
    let direction = match trial.direction {
        Direction::Write if is_mixed => "reads and writes",
        Direction::Write => "write",
        Direction::Read => "read",
    };
    vec![
        ("workload", format!("{} {direction}", trial.workload)),
        ("bs", Bytes(trial.block_bytes).to_string()),
        ("size", format!("{} in {}", words::bytes(trial.data.size_bytes as f64), files(trial.data.files.len()))),
        ("cache", trial.cache.to_string()),
        ("threads", trial.threads.to_string()),
        ("iodepth", trial.iodepth.to_string()),
        ("ends", ends(trial)),
        ("repetitions", group.repetitions.to_string()),
        ("seed", trial.seed.to_string()),
    ]
}

/// The value of one condition.
pub fn named(conditions: &[(&'static str, String)], name: &str) -> String {
    conditions.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The interval of a timeline where none is asked for.
const USUAL_INTERVAL_NS: u64 = 250_000_000;

/// The command that repeats the measurement on the same files (made files: on files made the same way).
pub fn command(group: &Group<'_>) -> String {
    let trial = group.trial;
    if !trial.jobs.is_empty() {
        return command_of_jobs(group);
    }
    let mut words = vec!["majorfault compare".to_owned()];
    match trial.data.content_seed {
        Some(_) => words.push(format!("--nrfiles {}", trial.data.files.len())),
        None => words.extend(trial.data.files.iter().map(|path| quoted_path(path))),
    }
    if trial.data.files.len() > 1 {
        words.push(format!("--stripe {}", Bytes(trial.data.stripe_bytes)));
    }
    words.extend((trial.data.offset_bytes > 0).then(|| format!("--offset {}", Bytes(trial.data.offset_bytes))));
    words.extend([format!("--size {}", Bytes(trial.data.size_bytes)), format!("--bs {}", Bytes(trial.block_bytes))]);
    let given: Vec<String> = trial.workload.given.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let colon = if given.is_empty() { "" } else { ":" };
    words.push(quoted(&format!("--workload={}{colon}{}", trial.workload.name, given.join(","))));
    if trial.direction == Direction::Write {
        words.push("--rw randwrite".to_owned());
        words.extend(trial.data.content_seed.is_none().then(|| "--allow-overwrite".to_owned()));
    }
    words.push(format!("--cache {} --numjobs {} --iodepth {}", trial.cache, trial.threads, trial.iodepth));
    words.extend(trial.memory_bytes.map(|limit| format!("--memory {}", Bytes(limit))));
    words.extend(trial.limits.runtime_ns.map(|limit| format!("--runtime {}", Nanos(limit))));
    words.extend(trial.limits.accesses.map(|count| format!("--number-ios {count}")));
    words.extend(trial.limits.time_based.then(|| "--time-based".to_owned()));
    words.extend(group.arms.iter().map(|arm| quoted(&format!("--method={}", typed(&arm.records[0].trial.arm)))));
    words.push(how_often(group));
    words.push(format!("--randseed {}", trial.seed));
    words.extend((trial.interval_ns != USUAL_INTERVAL_NS).then(|| format!("--interval {}", Nanos(trial.interval_ns))));
    words.join(" ")
}

/// The time of a race, or the runs of each arm.
fn how_often(group: &Group<'_>) -> String {
    match group.race {
        Some(race) => format!("--time {}", Nanos(race.time_ns)),
        None => format!("--runs {}", group.repetitions),
    }
}

/// The command as it was given; of older records, as far as they have it.
fn command_of_jobs(group: &Group<'_>) -> String {
    if let Some(given) = group.arms.iter().flat_map(|arm| &arm.records).find_map(|record| record.command.as_ref()) {
        return given.clone();
    }
    let trial = group.trial;
    let file = trial.stage.split(", stage ").next().unwrap_or_default();
    let mut words = vec!["majorfault compare".to_owned(), quoted(if file.is_empty() { "JOB.fio" } else { file })];
    words.push(format!("--cache {}", trial.cache));
    words.extend(trial.memory_bytes.map(|limit| format!("--memory {}", Bytes(limit))));
    words.extend(group.arms.iter().map(|arm| quoted(&format!("--method={}", typed(&arm.records[0].trial.arm)))));
    words.push(format!("--runs {}", group.repetitions));
    words.join(" ")
}

/// An arm as the command line reads it: `mmap:advice=random`.
pub(crate) fn typed(arm: &Arm) -> String {
    let (Arm::Method(choice) | Arm::Peer(choice) | Arm::Procedure(choice)) = arm;
    let given: Vec<String> = choice.given.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let colon = if given.is_empty() { "" } else { ":" };
    format!("{}{colon}{}", choice.name, given.join(","))
}

/// The command with these arguments as a shell reads it.
pub fn as_typed(arguments: impl IntoIterator<Item = OsString>) -> String {
    let words = arguments.into_iter().map(|word| quoted_path(Path::new(&word)));
    ["majorfault".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// A path as a shell reads it: `/data/a`, `'/data/my file'`; `$'/data/caf\xe9'` (bash, zsh, ksh, POSIX of 2024) where it is
/// not UTF-8 or holds control characters, which would not survive on a terminal.
fn quoted_path(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => quoted(text),
        _ => format!("$'{}'", path.as_os_str().as_bytes().iter().map(|byte| escaped(*byte)).collect::<String>()),
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn device(name: &str) -> &str {
    if name.is_empty() { "no device" } else { name }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn limit(trial: &Trial) -> String {
    let size = trial.data.size_bytes as f64;
    trial.memory_bytes.map_or_else(
        || "none".to_owned(),
        |limit| {
            let share = size / (limit as f64).max(1.0);
            format!("{} (data {} x)", words::bytes(limit as f64), words::ratio(share))
        },
    )
}

fn ends(trial: &Trial) -> String {
    let limits = trial.limits;
    let parts = [
        limits.runtime_ns.map(|ns| format!("after {}", Nanos(ns))),
        limits.accesses.map(|count| format!("after {} accesses", words::count(count as f64))),
        (!limits.time_based).then(|| "at the end of the order".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Summary;
    use crate::report::synthetic::Run;

    #[test]
    fn the_command_repeats_the_measurement() {
        let run = Run::of("pread").workload("strided stride=256k").memory(256 << 20);
        let records = [run
            .edit(|record| {
                record.trial.data.content_seed = None;
                record.trial.data.files = vec!["/data/my file.bin".into()];
            })
            .record()];

        let summary = Summary::of(&records);

        assert_eq!(
            command(&summary.groups[0]),
            "majorfault compare '/data/my file.bin' --size 1g --bs 4k --workload=strided:stride=256k --cache cold \
             --numjobs 1 --iodepth 32 --memory 256m --runtime 10s --time-based --method=pread --runs 1 --randseed 7"
        );
    }

    #[test]
    fn a_job_file_is_run_again_by_the_command_as_it_was_given() {
        let words = ["compare", "my job.fio", "--set", "bs=4k"].map(OsString::from);
        let given = as_typed(words);
        let records = [Run::of("pread")
            .edit(|record| {
                record.trial.stage = "my job.fio".to_owned();
                record.trial.jobs = vec![crate::report::stage::tests::job("r", 100)];
                record.command = Some(given.clone());
            })
            .record()];

        assert_eq!(given, "majorfault compare 'my job.fio' --set bs=4k");
        assert_eq!(command(&Summary::of(&records).groups[0]), given);
    }

    #[test]
    fn a_path_is_quoted_so_that_a_shell_finds_the_same_file() {
        use std::ffi::OsStr;
        let quoted = |name: &[u8]| quoted_path(Path::new(OsStr::from_bytes(name)));

        assert_eq!(quoted(b"/data/a"), "/data/a");
        assert_eq!(quoted(b"/data/it's"), r"'/data/it'\''s'");
        assert_eq!(quoted(b"/data/\"x\" $y"), "'/data/\"x\" $y'");
        assert_eq!(quoted("/data/é".as_bytes()), "'/data/é'");
        assert_eq!(quoted(b"caf\xe9 '1'\n\\"), r"$'caf\xe9 \'1\'\x0a\\'");
    }

    #[test]
    fn a_disk_rotates_where_it_says_so_and_is_no_guests() {
        let told = |rotational, hypervisor: &str| {
            let run = Run::of("pread").edit(|record| {
                record.machine.rotational = Some(rotational);
                record.machine.hypervisor = hypervisor.to_owned();
            });
            let records = [run.record()];
            let summary = Summary::of(&records);
            let system = machine(&summary.groups[0]).into_iter().find(|(name, _)| *name == "file system");
            system.unwrap().1
        };

        assert_eq!(told(true, ""), "ext4 on vda, rotating");
        assert_eq!(told(true, "KVM"), "ext4 on vda, a guest's disk");
        assert_eq!(told(false, "KVM"), "ext4 on vda, not rotating");
    }
}
