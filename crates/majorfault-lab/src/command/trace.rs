//! `majorfault trace`: records the places in files that a program accesses, in order.

use crate::command::launched::Whom;
use crate::command::{Exit, stop_flag};
use crate::outputs::{Force, Kind, Outputs};
use crate::watch::recording::{self, Recorded, RecordingOptions};
use majorfault::{Bytes, Error, Nanos, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Record the places in files that a program accesses, in order
///
/// `majorfault compare --trace` replays the trace with any access method, and `majorfault assist --trace` reads ahead by
/// it. Of mapped files a trace records page faults, not accesses: pages that the kernel maps together (64 KiB, or a huge folio) are
/// recorded once. Reads by calls are recorded where tracefs is readable (root; Linux 6.12), unless they go past the page cache.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    whom: Whom,
    /// The file to write
    #[arg(long, short, value_name = "FILE.flt", default_value = "majorfault.flt")]
    output: PathBuf,
    /// How long to record [default: until the program ends]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
    /// Also record files that hold code (programs and libraries)
    #[arg(long)]
    code: bool,
    #[command(flatten)]
    force: Force,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { whom, output, length, code, force } = args;
    let mut outputs = Outputs::new(force);
    whom.is_input_of(&mut outputs);
    let trace = outputs.claim("--output", Kind::Trace, &output)?;
    let stop = stop_flag()?;
    let (mut launched, target) = whom.launch()?;
    let options = RecordingOptions { length: length.map(|length| Duration::from_nanos(length.0)), code };
    let recorded = match trace.made_by(|path| recording::record(target, path, options, &stop)) {
        Ok(recorded) => recorded,
        Err(error) if launched.is_ours() => {
            eprintln!("majorfault: {error}; the program runs, but nothing is recorded");
            return launched.wait();
        }
        Err(error) => return Err(error),
    };
    tell(&recorded, &output)?;
    launched.leave(recorded.ended, " without being recorded")
}

/// Reports on standard error what is in the trace; standard output belongs to the program.
fn tell(recorded: &Recorded, output: &Path) -> Result<()> {
    let mut text = Vec::new();
    let length = Nanos(recorded.length.as_nanos() as u64);
    let accesses: u64 = recorded.files.iter().map(|file| file.accesses).sum();
    let mut write = || -> std::io::Result<()> {
        writeln!(text, "{}: {accesses} accesses in {length}", output.display())?;
        for file in recorded.files.iter().take(8) {
            let bytes = Bytes(file.bytes).rounded();
            writeln!(text, "  {}: {} by {} threads, {bytes}", file.path, file.accesses, file.threads)?;
        }
        if recorded.files.len() > 8 {
            writeln!(text, "  and {} more files", recorded.files.len() - 8)?;
        }
        for loss in losses(recorded) {
            writeln!(text, "{loss}")?;
        }
        if recorded.is_full {
            writeln!(text, "the trace is full; later accesses are not in it")?;
        }
        if !recorded.files.is_empty() {
            writeln!(text, "replay it: majorfault compare --trace {}", output.display())?;
        }
        std::io::stderr().write_all(&text)
    };
    write().map_err(|error| Error::io("write the summary of the trace", "standard error", error))
}

/// What is known to be missing, a sentence each.
fn losses(recorded: &Recorded) -> Vec<String> {
    let Recorded { lost, unfollowed, refused, left, unnamed, no_reads, .. } = recorded;
    let reads = no_reads.as_ref().map(|missing| format!("only page faults are recorded, not read calls: {missing}"));
    let all = [
        (
            *lost > 0,
            format!(
                "{lost} faults and reads were lost (the rings were full, or their process was gone): the trace has gaps"
            ),
        ),
        (*unfollowed > 0, format!("{unfollowed} threads were not followed: too few descriptors (ulimit -n)")),
        (*refused > 0, format!("{refused} processes were not followed: they belong to another user")),
        (*left > 0, format!("{left} processes that the program started run on, and are no longer recorded")),
        (
            *unnamed > 0,
            format!(
                "{unnamed} read calls are left out: their files were closed before they could be named, or lie on a layered file system \
                 whose layers are on several"
            ),
        ),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, loss)| loss).chain(reads).collect()
}
