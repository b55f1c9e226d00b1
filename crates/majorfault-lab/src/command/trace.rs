//! `majorfault trace`: records which places of which files a program reaches, in order.

use crate::command::launched::Whom;
use crate::command::{Exit, stop_flag};
use crate::outputs::{Force, Kind, Outputs};
use crate::watch::recording::{self, Recorded, RecordingOptions};
use majorfault::{Bytes, Error, Nanos, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Record which places of which files a program reaches by its mappings, in order
///
/// The trace is replayed by `majorfault compare --trace`, on any access method, and by `majorfault assist --trace`, which
/// reads ahead by it. What is recorded are page faults: pages that the kernel maps together (64 KiB, or a huge folio) are
/// seen once.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Where the trace is written
    #[arg(long, short, value_name = "FILE.flt", default_value = "majorfault.flt")]
    output: PathBuf,
    /// How long to record [default: as long as it runs]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
    /// Record files that hold code, too
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
    let mut launched = whom.launch()?;
    let options = RecordingOptions { length: length.map(|length| Duration::from_nanos(length.0)), code };
    let recorded = match trace.made_by(|path| recording::record(launched.pid, path, options, &stop)) {
        Ok(recorded) => recorded,
        Err(error) if launched.is_ours() => {
            eprintln!("majorfault: {error}; nothing is recorded, the program goes on");
            return launched.wait();
        }
        Err(error) => return Err(error),
    };
    tell(&recorded, &output)?;
    launched.leave(recorded.ended, "without being recorded")
}

/// Says on standard error what is in the trace; standard output is the program's.
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
        if recorded.lost > 0 {
            writeln!(text, "{} faults were too many to be seen: the trace has gaps", recorded.lost)?;
        }
        if recorded.is_full {
            writeln!(text, "the trace is full; what came after is not in it")?;
        }
        if !recorded.files.is_empty() {
            writeln!(text, "replay it: majorfault compare --trace {}", output.display())?;
        }
        std::io::stderr().write_all(&text)
    };
    write().map_err(|error| Error::io("write what was recorded", "standard error", error))
}
