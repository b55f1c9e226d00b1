//! Who waits in which file, for the viewers of profiles: text for flame graphs, or a profile in pprof's format.

mod folded;
mod pprof;

use crate::watch::evidence::{Evidence, Stack};
use crate::watch::names::FunctionNames;
use majorfault::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// The format of a file of stacks, told by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFormat {
    /// A line for each stack, its frames separated by `;`, then the microseconds waited: flamegraph.pl, inferno, speedscope.
    Folded,
    /// profile.proto, compressed: pprof, Grafana Pyroscope, Parca, speedscope. Has faults and waits.
    Pprof,
}

/// A stack with the names of its functions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedStack {
    process: String,
    /// Path of the file that was touched.
    file: String,
    /// The outermost function first.
    names: Vec<String>,
    faults: u64,
    waited_ns: u64,
}

fn named(process: &Evidence, stack: &Stack, names: &mut FunctionNames) -> NamedStack {
    let pid = process.target.pid;
    let names = stack.frames.iter().rev().map(|place| names.name(pid, place)).collect();
    let (file, faults, waited_ns) = (stack.path.clone(), stack.faults, stack.waited_ns);
    NamedStack { process: process.target.name.clone(), file, names, faults, waited_ns }
}

impl StackFormat {
    /// The format that goes with the name of a file: `.folded` or `.pb.gz`.
    ///
    /// Errors: Invalid for other names.
    pub fn of(path: &Path) -> Result<StackFormat> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match () {
            () if name.ends_with(".folded") => Ok(StackFormat::Folded),
            () if name.ends_with(".pb.gz") => Ok(StackFormat::Pprof),
            () => Err(Error::Invalid(format!(
                "--stacks {}: the name tells the format; end it with .folded (for flame graphs) or .pb.gz (for pprof)",
                path.display()
            ))),
        }
    }

    /// The stacks of these processes, watched for so long.
    pub fn encode(self, processes: &[&Evidence], watched: Duration) -> Vec<u8> {
        let mut names = FunctionNames::default();
        let stacks = processes.iter().flat_map(|process| process.stacks.iter().map(move |stack| (process, stack)));
        let stacks: Vec<NamedStack> = stacks.map(|(process, stack)| named(process, stack, &mut names)).collect();
        match self {
            StackFormat::Folded => folded::encode(&stacks).into_bytes(),
            StackFormat::Pprof => pprof::encode(&stacks, watched),
        }
    }
}

#[cfg(test)]
fn stack(file: &str, names: &[&str], faults: u64, waited_ns: u64) -> NamedStack {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    NamedStack { process: "db".to_owned(), file: file.to_owned(), names, faults, waited_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_told_by_the_name_of_the_file() {
        assert_eq!(StackFormat::of(Path::new("/a/b.folded")).unwrap(), StackFormat::Folded);
        assert_eq!(StackFormat::of(Path::new("b.pb.gz")).unwrap(), StackFormat::Pprof);
        let error = StackFormat::of(Path::new("b.svg")).unwrap_err().to_string();
        assert!(error.contains("--stacks b.svg: the name tells the format; end it with .folded"), "{error}");
    }
}
