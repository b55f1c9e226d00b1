//! `--place guest:...`: the same command, run in a guest; its records come back and are shown as any others.

use crate::command::Exit;
use crate::outputs::Records;
use crate::place::guest::{self, BROUGHT, FromGuest, Spec, init};
use crate::record::Record;
use majorfault::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Options that name something of the host, and take a value.
const OF_THE_HOST: &[&str] = &["--place", "--records", "--report", "--csv", "--resume", "--sessions"];

/// Options without a value that say how the host shows what came back, and could not be followed in the guest.
const SHOWN_BY_THE_HOST: &[&str] = &["--agreement"];

/// Where a command runs.
#[derive(clap::Args, Clone, Debug)]
pub struct GuestPlace {
    /// Run in a guest with a kernel of one's choice: guest, or guest:kernel=NAME,cpus=4,memory=2g,disk=4g,fs=ext4,
    /// delay_ms=0,pmem=0,swap=0,numa=1,accel=auto; see docs/kernel.md
    #[arg(long, value_name = "PLACE", help_heading = "Conditions")]
    pub place: Option<Spec>,
}

/// Runs this process's own command line in a guest; the records that came back, each kept as it came, and how it ended. The
/// runs that the records of `earlier` have are not made.
///
/// Errors: those of [`guest::run`]; Io where a record cannot be kept.
pub fn run(
    spec: &Spec,
    earlier: Option<&Path>,
    stop: &AtomicBool,
    kept: &mut Records,
    quiet: bool,
) -> Result<(Vec<Record>, Exit)> {
    let arguments = std::env::args_os().skip(1).map(|word| {
        word.into_string().map_err(|word| {
            Error::Invalid(format!("the argument {} is not UTF-8, and a guest is told text", word.display()))
        })
    });
    let mut work = GuestWork { arguments: arguments.collect::<Result<_>>()?, brought: Vec::new() };
    if let Some(path) = earlier {
        work.bring("--earlier", path);
    }
    let GuestRuns { records, exit, complaint } = measured(spec, &work, stop, quiet, |record| kept.add(record))?;
    if let Some(complaint) = complaint {
        // The bytes and counts were checked; what the kernel thinks of itself is told beside them.
        eprintln!("majorfault: {complaint}");
    }
    Ok((records, exit))
}

/// A command line for a guest.
#[derive(Debug, Default)]
pub struct GuestWork {
    /// Its words.
    pub arguments: Vec<String>,
    /// Files of the host that go with it.
    pub brought: Vec<PathBuf>,
}

impl GuestWork {
    fn bring(&mut self, option: &str, file: &Path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.arguments.extend([option.to_owned(), format!("{BROUGHT}/{name}")]);
        self.brought.push(file.to_owned());
    }
}

/// What came back from a guest.
pub struct GuestRuns {
    /// The records.
    pub records: Vec<Record>,
    /// How the command ended there.
    pub exit: Exit,
    /// What the guest's kernel complained of.
    pub complaint: Option<String>,
}

/// What comes of a command line that measures, run in a guest; each record is given to `keep` as it comes.
///
/// Errors: those of [`guest::run`] and of `keep`.
pub fn measured(
    spec: &Spec,
    work: &GuestWork,
    stop: &AtomicBool,
    quiet: bool,
    mut keep: impl FnMut(&Record) -> Result<()>,
) -> Result<GuestRuns> {
    let (mut records, mut place, mut complaint) = (Vec::new(), String::new(), None);
    let code = guest::run(spec, &forwarded(work.arguments.iter().cloned()), &work.brought, stop, |told| {
        match told {
            FromGuest::Ready(remark) => place = remark,
            FromGuest::Record(line) => {
                let mut record = parsed(&line)?;
                record.machine.remarks.push(place.clone());
                keep(&record)?;
                records.push(record);
            }
            FromGuest::Complaint(what) => complaint = Some(what),
            FromGuest::Err(line) if !quiet => eprintln!("guest: {line}"),
            _ => {}
        }
        Ok(())
    })?;
    Ok(GuestRuns { records, exit: code.map_or(Exit::Interrupted, Exit::Program), complaint })
}

fn parsed(line: &str) -> Result<Record> {
    serde_json::from_str(line).map_err(|why| Error::Invalid(format!("the guest sent a line that is no record: {why}")))
}

/// The command line without what is the host's, writing its records for us.
fn forwarded(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words = words.peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        match (OF_THE_HOST.contains(&name), value) {
            (true, None) => drop(words.next()),
            (true, Some(_)) => {}
            (false, _) if SHOWN_BY_THE_HOST.contains(&name) => {}
            (false, _) => kept.push(word),
        }
    }
    kept.extend(["--quiet", "--records", init::RECORDS].map(str::to_owned));
    kept
}

/// Fails where a file of the host is named: the guest does not have it.
///
/// Errors: Invalid.
pub fn without_files<T: AsRef<std::path::Path>>(files: &[T]) -> Result<()> {
    match files.first() {
        None => Ok(()),
        Some(file) => Err(Error::Invalid(format!(
            "{} is a file of this machine, which a guest does not have; leave it out, and data are made in the guest",
            file.as_ref().display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_is_the_hosts_stays_on_the_host() {
        let line =
            "compare --place guest:cpus=2 -m mmap --records=a.jsonl --report b.html --bs 64 --runs=2 --place=guest";
        let several = "reproduce S1 --sessions 2 --sessions=3 --place guest --agreement";

        let kept = forwarded(words(line).into_iter());

        assert_eq!(kept, words("compare -m mmap --bs 64 --runs=2 --quiet --records /run/records"));
        assert_eq!(forwarded(words(several).into_iter()), words("reproduce S1 --quiet --records /run/records"));
    }

    #[test]
    fn the_records_of_a_session_that_goes_on_go_with_it() {
        let mut work = GuestWork { arguments: words("reproduce S1 --resume here/a.jsonl"), ..GuestWork::default() };

        work.bring("--earlier", Path::new("here/a.jsonl"));

        assert_eq!(work.brought, [Path::new("here/a.jsonl")]);
        let kept = forwarded(work.arguments.into_iter());
        assert_eq!(kept, words("reproduce S1 --earlier /brought/a.jsonl --quiet --records /run/records"));
    }

    #[test]
    fn a_file_of_the_host_is_refused() {
        let error = without_files(&["/home/me/data"]).unwrap_err().to_string();

        assert!(error.contains("/home/me/data is a file of this machine"), "{error}");
        assert!(without_files::<&str>(&[]).is_ok());
    }
}
