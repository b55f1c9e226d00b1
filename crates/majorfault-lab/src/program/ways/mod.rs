//! Ways of running a program: one file each.

mod assist;
mod hot;
mod huge;
mod load;
mod no_random;
mod random;
mod trace;
mod untouched;

use super::Task;
use majorfault::{Error, Result};
use std::ffi::OsString;
use std::path::PathBuf;

/// A command: a program and its arguments.
pub type Words = Vec<OsString>;

/// Something done around a program.
pub struct Way {
    /// Its name on the command line, the same as the file's.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it needs to know which files the program reads.
    pub needs_files: bool,
    /// Whether it is tried where no ways are named.
    pub is_usual: bool,
    /// What it has to learn once, before the first run and outside the clock: the command that does so.
    pub learns: Option<fn(&Task) -> Result<Words>>,
    /// What is run inside the clock.
    pub call: fn(&Task) -> Result<Call>,
}

/// What is run inside the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Files to be read first.
    pub load: Vec<PathBuf>,
    /// The command.
    pub command: Words,
}

/// All ways; the first is what others are compared with.
pub const ALL: &[&Way] =
    &[&untouched::WAY, &assist::WAY, &trace::WAY, &load::WAY, &random::WAY, &no_random::WAY, &huge::WAY, &hot::WAY];

/// The way of this name.
///
/// Errors: Invalid, with the names there are.
pub fn named(name: &str) -> Result<&'static Way> {
    ALL.iter().find(|way| way.name == name).copied().ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|way| way.name).collect();
        Error::Invalid(format!("there is no way {name}; there are {}", names.join(", ")))
    })
}

/// This program with these words, before the task's own command.
fn ourselves(words: &[OsString], task: &Task) -> Result<Words> {
    let own = std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error))?;
    let own = std::iter::once(own.into_os_string());
    Ok(own.chain(words.iter().cloned()).chain(["--".into()]).chain(task.program.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            program: ["cat", "a b"].map(OsString::from).to_vec(),
            files: vec!["a b".into()],
            scratch: "/s".into(),
            ..Task::default()
        }
    }

    #[test]
    fn every_way_runs_the_users_command_with_its_words_as_they_are() {
        for way in ALL {
            let call = (way.call)(&task()).unwrap();

            assert!(call.command.ends_with(&task().program), "{}", way.name);
            assert!(call.load.is_empty() || way.needs_files, "{}", way.name);
            if let Some(learns) = way.learns {
                assert!(learns(&task()).unwrap().ends_with(&task().program), "{}", way.name);
            }
        }
    }

    #[test]
    fn the_first_way_changes_nothing() {
        assert_eq!((ALL[0].call)(&task()).unwrap(), Call { load: Vec::new(), command: task().program });
    }

    #[test]
    fn an_unknown_way_is_answered_with_those_there_are() {
        let error = named("magic").err().unwrap().to_string();

        assert!(error.contains("there is no way magic; there are untouched, assist, trace, load, random"), "{error}");
    }
}
