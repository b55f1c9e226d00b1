//! What an aligner does in an experiment: which program, on which files, and what it gave without a limit.

use super::genome;
use majorfault::proc;
use majorfault::{Error, Missing, Result};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

majorfault::choices! {
    /// What is done.
    pub enum Task {
        /// `bwa index` of a synthetic genome.
        Index = "index",
        /// `bwa index` of E. coli.
        Example = "index-ecoli",
        /// `bwa mem`: reads are found in a synthetic genome.
        Mem = "mem",
        /// `bwa-mem2 index` of a synthetic genome.
        IndexOfSecond = "index2",
        /// `bwa-mem2 mem`.
        MemOfSecond = "mem2",
    }
}

/// How large the data is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bases of the genome.
    pub bases: usize,
    /// Reads that are looked for in it.
    pub reads: usize,
}

/// Seeds of the genome and of the reads.
const SEEDS: [u64; 2] = [1, 2];

const GENOME: &str = "genome.fa";
const READS: &str = "reads.fq";

/// What the program gave without a limit.
const EXPECTED: &str = "expected";

/// Its peak and its time.
const MEASURED: &str = "measured";

/// Reads a batch of `mem`, in bases: its buffers shall be small beside its index.
const BATCH: &str = "100000";

/// Between two looks at a program that runs.
const EVERY: Duration = Duration::from_millis(1);

/// What a run without a limit has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// The most memory that its process had, in bytes.
    pub peak: u64,
    /// How long it took.
    pub took: Duration,
}

impl Task {
    /// The program and its package, or where else it comes from.
    fn program(self) -> [&'static str; 2] {
        match self {
            Task::Index | Task::Example | Task::Mem => ["bwa", "apt-get install bwa"],
            Task::IndexOfSecond | Task::MemOfSecond => [
                "bwa-mem2",
                "no registry of packages has it: put a release of github.com/bwa-mem2/bwa-mem2 on the PATH",
            ],
        }
    }

    fn maps_reads(self) -> bool {
        matches!(self, Task::Mem | Task::MemOfSecond)
    }

    /// Whether its program and its data are here.
    pub(super) fn met(self) -> std::result::Result<(), Missing> {
        let [name, remedy] = self.program();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        match std::env::split_paths(&paths).any(|dir| dir.join(name).is_file()) {
            false => Err(Missing::new(name, "it is not installed", remedy)),
            true if self == Task::Example && !genome::has_example() => Err(genome::no_example()),
            true => Ok(()),
        }
    }

    /// The program with its arguments, run in the directory of its data; its results go below `out`.
    pub(super) fn command(self, out: &str) -> Vec<OsString> {
        let [name, _] = self.program();
        let prefix = format!("{out}/index");
        let words: Vec<&str> = match self {
            Task::Index | Task::Example => vec![name, "index", "-a", "is", "-p", &prefix, GENOME],
            Task::IndexOfSecond => vec![name, "index", "-p", &prefix, GENOME],
            Task::Mem | Task::MemOfSecond => vec![name, "mem", "-t", "1", "-K", BATCH, GENOME, READS],
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Makes its data in `dir`, and runs it without a limit. Where its program is missing nothing is made: each run says so.
    ///
    /// Errors: Io (full disk), Invalid (the program fails).
    pub fn prepare(self, dir: &Path, sizes: Sizes) -> Result<()> {
        if self.met().is_err() {
            return Ok(());
        }
        let path = dir.join(GENOME);
        match self {
            Task::Example => genome::write_example(&path)?,
            _ => {
                let bases = genome::synthetic(sizes.bases, SEEDS[0]);
                genome::write(&bases, &path)?;
                if self.maps_reads() {
                    genome::write_reads(&bases, sizes.reads, SEEDS[1], &dir.join(READS))?;
                    index(self.program()[0], dir)?;
                }
            }
        }
        let Alone { peak, took } = self.alone(dir, EXPECTED)?;
        let measured = dir.join(MEASURED);
        fs::write(&measured, format!("{peak} {}", took.as_nanos()))
            .map_err(|error| Error::io("keep what was measured", &measured, error))
    }

    /// Runs it without a limit, its results below `out`.
    ///
    /// Errors: Io, Invalid (it fails).
    pub(super) fn alone(self, dir: &Path, out: &str) -> Result<Alone> {
        let command = self.command(out);
        let began = Instant::now();
        let mut running = started(&command, dir, out)?;
        let mut peak = 0;
        let status = wait(&mut running, None, |pid| peak = peak.max(high_water(pid).unwrap_or(0)))?;
        let took = began.elapsed();
        match status.success() {
            true => Ok(Alone { peak, took }),
            false => Err(failed(&command, status, dir)),
        }
    }
}

/// The index that `mem` reads.
fn index(program: &str, dir: &Path) -> Result<()> {
    let command: Vec<OsString> = [program, "index", GENOME].map(OsString::from).to_vec();
    let mut running = started(&command, dir, "index-of-mem")?;
    let status = wait(&mut running, None, |_| {})?;
    if status.success() { Ok(()) } else { Err(failed(&command, status, dir)) }
}

/// Starts a command whose results go below `out` in `dir`: its standard output, too. What it says is kept in `dir/errors`.
///
/// Errors: Io.
pub(super) fn started(command: &[OsString], dir: &Path, out: &str) -> Result<Child> {
    let folder = dir.join(out);
    let _ = fs::remove_dir_all(&folder);
    let made = || -> std::io::Result<Child> {
        fs::create_dir(&folder)?;
        let (output, errors) = (File::create(folder.join("output"))?, File::create(dir.join("errors"))?);
        let mut starts = Command::new(&command[0]);
        starts.args(&command[1..]).current_dir(dir).stdin(Stdio::null()).stdout(output).stderr(errors).spawn()
    };
    made().map_err(|error| Error::io("start", &command[0], error))
}

/// Waits for its end, or ends it after `most` by SIGTERM; `look` is called all the while.
///
/// Errors: Io.
pub(super) fn wait(child: &mut Child, most: Option<Duration>, mut look: impl FnMut(u32)) -> Result<ExitStatus> {
    let began = Instant::now();
    let mut is_asked = false;
    loop {
        let ended = child.try_wait().map_err(|error| Error::io("wait for", "the aligner", error))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        look(child.id());
        if !is_asked && most.is_some_and(|most| began.elapsed() > most) {
            is_asked = true;
            // It may have ended by itself.
            let _ =
                rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
        }
        std::thread::sleep(EVERY);
    }
}

/// The most memory that a process has had, in bytes.
fn high_water(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(proc::number(&status, "VmHWM")? << 10)
}

/// What a command said on standard error.
pub(super) fn said(dir: &Path) -> String {
    fs::read(dir.join("errors")).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

fn failed(command: &[OsString], status: ExitStatus, dir: &Path) -> Error {
    let how = status.code().map_or_else(|| format!("signal {}", status.signal().unwrap_or(0)), |code| code.to_string());
    let said = said(dir);
    let last = said.lines().last().unwrap_or_default();
    Error::Invalid(format!("{} ended with {how}: {last}", command[0].display()))
}

/// What its run without a limit has shown.
///
/// Errors: Invalid (it was not prepared).
pub(super) fn measured(dir: &Path) -> Result<Alone> {
    let text = fs::read_to_string(dir.join(MEASURED)).unwrap_or_default();
    let read = || {
        let (peak, took) = text.split_once(' ')?;
        Some(Alone { peak: peak.parse().ok()?, took: Duration::from_nanos(took.parse().ok()?) })
    };
    read().ok_or_else(|| Error::Invalid(format!("{} has no data; run majorfault reproduce again", dir.display())))
}

/// Compares what a run gave with what it gave without a limit, byte by byte; the bytes of the results.
///
/// Errors: Invalid (they differ), Io.
pub(super) fn same_as_expected(dir: &Path, out: &str) -> Result<u64> {
    let [expected, found] = [EXPECTED, out].map(|folder| names(&dir.join(folder)));
    if expected != found {
        return Err(Error::Invalid(format!("it gave the files {found:?} and not {expected:?}")));
    }
    let mut bytes = 0;
    for name in &expected {
        let [right, given] = [EXPECTED, out].map(|folder| read(&dir.join(folder).join(name)));
        let (right, given) = (right?, given?);
        if let Some(at) = first_difference(&right, &given) {
            return Err(Error::Invalid(format!(
                "{} differs from what it is without a limit at byte {at}",
                name.display()
            )));
        }
        bytes += right.len() as u64;
    }
    Ok(bytes)
}

fn first_difference(right: &[u8], given: &[u8]) -> Option<usize> {
    let differs = right.iter().zip(given).position(|(a, b)| a != b);
    differs.or((right.len() != given.len()).then(|| right.len().min(given.len())))
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries.map(|entry| PathBuf::from(entry.file_name())).collect();
    names.sort();
    names
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::io("read the result", path, error))
}

/// Bytes of the genome.
pub(super) fn genome_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join(GENOME)).map_or(0, |meta| meta.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the results of two runs.
    fn results(expected: &[(&str, &str)], found: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for (folder, files) in [("expected", expected), ("run", found)] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            files.iter().for_each(|(name, text)| fs::write(dir.path().join(folder).join(name), text).unwrap());
        }
        dir
    }

    fn compared(expected: &[(&str, &str)], found: &[(&str, &str)]) -> std::result::Result<u64, String> {
        same_as_expected(results(expected, found).path(), "run").map_err(|error| error.to_string())
    }

    #[test]
    fn the_same_files_with_the_same_bytes_are_the_same() {
        assert_eq!(compared(&[("a", "123"), ("b", "")], &[("b", ""), ("a", "123")]), Ok(3));
    }

    #[test]
    fn another_byte_another_length_and_another_file_are_differences() {
        let differs = |found: &[(&str, &str)]| compared(&[("a", "123")], found).unwrap_err();

        assert!(differs(&[("a", "124")]).contains("a differs from what it is without a limit at byte 2"));
        assert!(differs(&[("a", "12")]).contains("at byte 2"));
        assert!(differs(&[("a", "1234")]).contains("at byte 3"));
        assert!(differs(&[]).contains("it gave the files []"));
        assert!(differs(&[("a", "123"), ("c", "")]).contains("it gave the files"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_by_sigterm() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let command: Vec<OsString> = ["sleep", "1000"].map(OsString::from).to_vec();
        let mut running = started(&command, dir.path(), "run").unwrap();

        let status = wait(&mut running, Some(Duration::from_millis(20)), |_| {}).unwrap();

        assert_eq!(status.signal(), Some(15));
    }

    #[test]
    fn what_is_not_installed_is_told_with_the_way_to_it() {
        let missing = Task::IndexOfSecond.met();

        if let Err(missing) = missing {
            assert!(missing.to_string().contains("bwa-mem2") && missing.remedy.contains("PATH"), "{missing}");
        }
    }
}
