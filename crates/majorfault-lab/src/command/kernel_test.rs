//! `majorfault kernel test`: what guests are good for, checked by counting in them.

use crate::command::guest::{self, GuestWork};
use crate::command::{Exit, stop_flag};
use crate::outputs::{Force, Outputs, Records};
use crate::place::guest::{self as place, BROUGHT, FromGuest, Spec, kernel};
use crate::record::{Answer, Outcome, Record};
use crate::session;
use anstream::println;
use majorfault::{Error, Missing, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Check kernels in guests, by counts.
#[derive(clap::Args)]
pub struct Args {
    /// Checks to run, see --list [default: all]
    names: Vec<String>,
    /// List the checks
    #[arg(long)]
    list: bool,
    /// The kernel without the patches: a name or variant of `majorfault kernel list`
    #[arg(long, default_value = "plain")]
    plain: String,
    /// The kernel with them
    #[arg(long, default_value = "strided")]
    patched: String,
    /// Append the records to this file [default: one for each session below ~/.local/state/majorfault/runs]
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Which kernel a check boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Plain,
    Patched,
    /// One after the other, for comparison.
    Both,
}

/// One check: guests, the command that they run, what its records must say.
struct Check {
    name: &'static str,
    says: &'static str,
    on: On,
    place: &'static str,
    work: Work,
}

/// What a guest does for a check.
#[derive(Clone, Copy)]
enum Work {
    /// A command of ours; its records are judged.
    Measure {
        command: &'static str,
        /// The finding, or what is wrong. Where both kernels ran, the plain one's records come first.
        judge: fn(&[Vec<Record>]) -> Judged,
    },
    /// The series' own test, with its argument: the seconds for races.
    Selftest(&'static str),
}

/// The finding, or what is wrong.
type Judged = std::result::Result<String, String>;

const CHECKS: &[Check] = &[
    Check {
        name: "smoke",
        says: "a trial in a guest gives valid bytes through each way",
        on: On::Plain,
        place: "memory=1g,disk=1g",
        work: Work::Measure {
            command: "compare --size 16m --number-ios 200 --runs 1 --memory none --no-peer -m null -m mmap -m pread -m uring",
            judge: smoke,
        },
    },
    Check {
        name: "column",
        says: "a strided scan of 1024 rows waits for at most 1 % of them with the advice, reads at most 1.05 of what is needed, \
               and takes at most a twentieth of the time on a disk of 10 ms",
        on: On::Patched,
        place: "memory=1g,disk=2g,delay_ms=10",
        work: Work::Measure {
            command: "compare --size 1g --workload strided:stride=1m --runs 1 --number-ios 1024 --memory none --no-peer -m mmap \
                  -m mmap:advice=random -m mmap:advice=strided",
            judge: column,
        },
    },
    Check {
        name: "threads",
        says: "four threads, each in its own part, as well",
        on: On::Patched,
        place: "memory=1g,disk=2g,delay_ms=10",
        work: Work::Measure {
            command: "compare --size 1g --workload strided:stride=256k --numjobs 4 --runs 1 --number-ios 4096 --memory none --no-peer \
                  -m mmap:advice=random -m mmap:advice=strided",
            judge: threads,
        },
    },
    Check {
        name: "selftest",
        says: "the series' own test passes, races of split, merge, fork, truncation and dropping among it, and the kernel has nothing \
               to complain of (--patched strided-debug: with KASAN and lockdep)",
        on: On::Patched,
        place: "memory=1g,disk=1g",
        work: Work::Selftest("30"),
    },
    Check {
        name: "unchanged",
        says: "without the advice both kernels fault and read alike: sequential and random, mapped and by calls",
        on: On::Both,
        place: "memory=1g,disk=1g",
        work: Work::Measure {
            command: "compare --size 64m --runs 1 --memory none --no-peer -m mmap -m mmap:advice=random -m mmap:advice=sequential \
                  -m pread --rw read --number-ios 16384",
            judge: unchanged,
        },
    },
    Check {
        name: "unchanged-random",
        says: "the same in random order",
        on: On::Both,
        place: "memory=1g,disk=1g",
        work: Work::Measure {
            command: "compare --size 64m --runs 1 --memory none --no-peer -m mmap -m mmap:advice=random -m mmap:advice=sequential \
                  -m pread --rw randread --number-ios 4000",
            judge: unchanged,
        },
    },
];

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<Exit> {
    if args.list {
        CHECKS.iter().for_each(|check| println!("{:<18}{}", check.name, check.says));
        return Ok(Exit::Ok);
    }
    let chosen = chosen(&args.names)?;
    let stop = stop_flag()?;
    let mut kept = Outputs::new(args.force).records("--records", args.records.as_deref(), &session::name())?;
    let mut wrong = 0;
    for check in chosen {
        match checked(check, args, &stop, &mut kept)? {
            _ if stop.load(Ordering::Relaxed) => return Ok(Exit::Interrupted),
            Ok(found) => println!("ok      {}: {found}", check.name),
            Err(why) => {
                println!("WRONG   {}: {why}\n        wanted: {}", check.name, check.says);
                wrong += 1;
            }
        }
    }
    eprintln!("records: {}", kept.path().display());
    Ok(if wrong == 0 { Exit::Ok } else { Exit::No })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Check>> {
    let named = |name: &String| {
        CHECKS.iter().find(|check| check.name == name).ok_or_else(|| {
            let legal: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
            Error::Invalid(format!("there is no check \"{name}\"; legal are {}", legal.join(", ")))
        })
    };
    if names.is_empty() { Ok(CHECKS.iter().collect()) } else { names.iter().map(named).collect() }
}

/// Boots what the check wants, keeps the records, and judges them.
fn checked(check: &Check, args: &Args, stop: &AtomicBool, kept: &mut Records) -> Result<Judged> {
    let kernels: &[&String] = match check.on {
        On::Plain => &[&args.plain],
        On::Patched => &[&args.patched],
        On::Both => &[&args.plain, &args.patched],
    };
    let mut all = Vec::new();
    for kernel in kernels {
        let spec: Spec = format!("guest:kernel={kernel},{}", check.place).parse()?;
        let command = match check.work {
            Work::Selftest(seconds) => return selftest(&spec, seconds, stop),
            Work::Measure { command, .. } => command,
        };
        let words = command.split_whitespace().map(str::to_owned).collect();
        let work = GuestWork { arguments: words, ..GuestWork::default() };
        let measured = guest::measured(&spec, &work, stop, true, |record| kept.add(record))?;
        if let Some(complaint) = measured.complaint {
            return Ok(Err(complaint));
        }
        all.push(measured.records);
    }
    let Work::Measure { judge, .. } = check.work else { return Ok(Err("no kernel ran".to_owned())) };
    Ok(complete(&all).and_then(|()| judge(&all)))
}

/// Runs the series' own test in a guest.
fn selftest(spec: &Spec, seconds: &str, stop: &AtomicBool) -> Result<Judged> {
    let kernel = kernel::named(&spec.kernel)?;
    let Some(program) = kernel.selftest() else {
        let reason = format!("{} has none", kernel.name);
        return Err(Missing::new("the series' own test", reason, "majorfault kernel build strided").into());
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = [format!("{BROUGHT}/{name}"), seconds.to_owned()];
    let (mut lines, mut complaint) = (Vec::new(), None);
    let code = place::run(spec, &words, &[program], stop, |told| {
        match told {
            FromGuest::Out(line) => lines.push(line),
            FromGuest::Complaint(what) => complaint = Some(what),
            _ => {}
        }
        Ok(())
    })?;
    Ok(tap(&lines, code, complaint))
}

/// What lines of the Test Anything Protocol say, with the program's exit code and what the kernel complained of.
fn tap(lines: &[String], code: Option<u8>, complaint: Option<String>) -> Judged {
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    let wrong: Vec<&str> = lines.iter().filter(|line| line.starts_with("not ok ")).map(String::as_str).collect();
    let plan = lines.iter().find_map(|line| line.strip_prefix("1..")?.split(' ').next()?.parse::<usize>().ok());
    let last = lines.iter().rfind(|line| line.starts_with("ok ")).map_or("", |line| line.as_str());
    match (complaint, code) {
        (Some(complaint), _) => Err(complaint),
        (None, Some(0)) if wrong.is_empty() && passed > 0 && plan == Some(passed) => {
            Ok(format!("{passed} of {passed} pass; the last: {last}"))
        }
        (None, code) => Err(format!(
            "{passed} of {} pass, exit code {}; {}",
            plan.map_or_else(|| "unknown".to_owned(), |plan| plan.to_string()),
            code.map_or_else(|| "none".to_owned(), |code| code.to_string()),
            if wrong.is_empty() {
                lines.last().map_or("it said nothing", String::as_str).to_owned()
            } else {
                wrong.join("; ")
            },
        )),
    }
}

/// Whether every run came to its end with right bytes.
fn complete(all: &[Vec<Record>]) -> std::result::Result<(), String> {
    if all.iter().any(Vec::is_empty) {
        return Err("no record came back".to_owned());
    }
    match all.iter().flatten().find(|record| record.outcome != Outcome::Done) {
        Some(record) => Err(format!("{}: {:?}", record.trial.arm, record.outcome)),
        None => Ok(()),
    }
}

fn smoke(all: &[Vec<Record>]) -> std::result::Result<String, String> {
    let records = all.concat();
    let is_wrong = |record: &&Record| !record.is_control() && record.answer != Answer::Checked;
    match records.iter().find(is_wrong) {
        Some(record) => Err(format!("{}: {:?}", record.trial.arm, record.answer)),
        None => Ok(format!("{} arms on Linux {}", records.len(), records[0].machine.kernel)),
    }
}

/// The record of the arm with this text.
fn of<'a>(records: &'a [Record], arm: &str) -> std::result::Result<&'a Record, String> {
    let found = records.iter().find(|record| record.trial.arm.to_string() == arm);
    found.ok_or_else(|| format!("there is no run of {arm}"))
}

/// What a counter grew by in the visit.
fn grown(record: &Record, counter: &str) -> std::result::Result<u64, String> {
    record.growth(counter).ok_or_else(|| format!("{}: {counter} was not counted", record.trial.arm))
}

fn visit_ns(record: &Record) -> std::result::Result<u64, String> {
    record.phase("visit").map(|phase| phase.wall_ns).ok_or_else(|| format!("{} has no visit", record.trial.arm))
}

const RANDOM: &str = "mmap advice=random";
const STRIDED: &str = "mmap advice=strided";

/// Major faults in 100 rows, and bytes read for each that is needed: a page a row.
fn shares(record: &Record) -> std::result::Result<(f64, f64), String> {
    let rows = record.accesses().max(1);
    let (faults, bytes) = (grown(record, "major_faults")?, grown(record, "process_read_bytes")?);
    Ok((100.0 * faults as f64 / rows as f64, bytes as f64 / (rows * 4096) as f64))
}

fn strided(record: &Record) -> std::result::Result<String, String> {
    let (percent, amplification) = shares(record)?;
    let found = format!("{percent:.2} % of {} rows waited, {amplification:.3} x the bytes", record.accesses());
    if percent <= 1.0 && amplification <= 1.05 { Ok(found) } else { Err(found) }
}

fn column(all: &[Vec<Record>]) -> std::result::Result<String, String> {
    let found = threads(all)?;
    let ratio = visit_ns(of(&all[0], RANDOM)?)? as f64 / visit_ns(of(&all[0], STRIDED)?)?.max(1) as f64;
    let found = format!("{found}; {ratio:.1} x as fast as without read-ahead");
    if ratio >= 20.0 { Ok(found) } else { Err(found) }
}

fn threads(all: &[Vec<Record>]) -> std::result::Result<String, String> {
    let (percent, _) = shares(of(&all[0], RANDOM)?)?;
    if percent < 95.0 {
        return Err(format!("without read-ahead only {percent:.1} % of the rows waited: the comparison shows nothing"));
    }
    strided(of(&all[0], STRIDED)?)
}

/// Counters that must not differ. Minor faults are not among them: those of our own program's memory are counted, too, and
/// differ by hundreds between two runs on one kernel.
const SAME: &[&str] = &["major_faults", "process_read_bytes", "device_reads", "device_read_bytes"];

fn unchanged(all: &[Vec<Record>]) -> std::result::Result<String, String> {
    let mut compared = 0;
    for plain in &all[0] {
        let patched = of(&all[1], &plain.trial.arm.to_string())?;
        for counter in SAME {
            let (before, after) = (grown(plain, counter)?, grown(patched, counter)?);
            if before != after {
                return Err(format!("{}: {counter} {before} without the patches, {after} with them", plain.trial.arm));
            }
            compared += 1;
        }
    }
    Ok(format!("{compared} counts are equal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;
    use crate::trial::{Arm, Choice};

    /// A run of an arm with so many rows, and what its visit counted.
    fn run(advice: &str, rows: u64, wall_ns: u64, counted: &[(&str, u64)]) -> Record {
        let mut record = Run::of("mmap").record();
        record.trial.arm = Arm::Method(Choice::plain("mmap").with("advice", advice));
        record.threads.truncate(1);
        record.threads[0].accesses = rows;
        let visit = record.phases.iter_mut().find(|phase| phase.name == "visit").unwrap();
        visit.wall_ns = wall_ns;
        visit.counters.extend(counted.iter().map(|(name, count)| ((*name).to_owned(), *count)));
        record
    }

    fn scan(advice: &str, faults: u64, pages: u64, wall_ns: u64) -> Record {
        run(advice, 1000, wall_ns, &[("major_faults", faults), ("process_read_bytes", pages * 4096)])
    }

    #[test]
    fn one_row_in_a_hundred_may_wait_and_one_page_in_twenty_may_be_in_vain() {
        assert!(strided(&scan("strided", 10, 1050, 1)).is_ok());
        assert!(strided(&scan("strided", 11, 1050, 1)).unwrap_err().starts_with("1.10 % of 1000 rows waited"));
        assert!(strided(&scan("strided", 10, 1051, 1)).unwrap_err().ends_with("1.051 x the bytes"));
    }

    #[test]
    fn a_twentieth_of_the_time_is_the_most() {
        let judged =
            |strided_ns| column(&[vec![scan("random", 1000, 1000, 20_000), scan("strided", 3, 1000, strided_ns)]]);

        assert!(judged(1000).unwrap().ends_with("20.0 x as fast as without read-ahead"));
        assert!(judged(1001).is_err());
    }

    #[test]
    fn where_nothing_waits_anyway_nothing_is_shown() {
        let judged = threads(&[vec![scan("random", 900, 1000, 1), scan("strided", 3, 1000, 1)]]);

        assert!(judged.unwrap_err().contains("the comparison shows nothing"));
    }

    #[test]
    fn one_read_more_is_a_change() {
        let counted = |faults| {
            let counters = SAME.iter().map(|name| (*name, if *name == "device_reads" { faults } else { 7 }));
            vec![run("random", 10, 1, &counters.collect::<Vec<_>>())]
        };

        assert_eq!(unchanged(&[counted(5), counted(5)]).unwrap(), "4 counts are equal");
        let wrong = unchanged(&[counted(5), counted(6)]).unwrap_err();
        assert_eq!(wrong, "mmap advice=random: device_reads 5 without the patches, 6 with them");
        assert!(unchanged(&[counted(5), vec![]]).is_err());
    }

    #[test]
    fn a_run_that_failed_or_did_not_come_back_is_wrong() {
        let failed = Record { outcome: Outcome::Failed("EIO".to_owned()), ..Run::of("mmap").record() };

        assert!(complete(&[vec![failed]]).unwrap_err().contains("EIO"));
        assert!(complete(&[vec![Run::of("mmap").record()], vec![]]).unwrap_err().contains("no record"));
        assert!(complete(&[vec![Run::of("mmap").record()]]).is_ok());
    }

    #[test]
    fn a_test_passes_where_all_of_its_plan_did_and_the_kernel_is_silent() {
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let all = lines("TAP version 13\n1..2\nok 1 a column\nok 2 races");

        assert_eq!(tap(&all, Some(0), None).unwrap(), "2 of 2 pass; the last: ok 2 races");
        assert_eq!(tap(&all, Some(0), Some("BUG".to_owned())).unwrap_err(), "BUG");
        assert!(tap(&all, Some(1), None).unwrap_err().contains("exit code 1"));
        assert!(tap(&all[..3], Some(0), None).unwrap_err().starts_with("1 of 2 pass"));
        assert!(tap(&lines("1..2\nok 1 a\nnot ok 2 b"), Some(1), None).unwrap_err().ends_with("not ok 2 b"));
        assert!(tap(&lines("1..0 # SKIP"), Some(4), None).unwrap_err().contains("0 of 0"));
    }

    #[test]
    fn every_check_is_a_command_and_a_place_that_exist() {
        for check in CHECKS {
            assert!(format!("guest:{}", check.place).parse::<Spec>().is_ok(), "{}", check.name);
            let is_ours = matches!(check.work, Work::Measure { command, .. } if command.starts_with("compare "));
            assert!(is_ours || check.name == "selftest", "{}", check.name);
        }
        assert!(chosen(&["colum".to_owned()]).err().unwrap().to_string().contains("legal are smoke, column"));
    }
}
