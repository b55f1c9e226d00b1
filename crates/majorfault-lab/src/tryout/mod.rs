//! What works where: our commands, tried in guests with other kernels, file systems and rights than this machine's.
//!
//! A [`GuestCase`] is a guest, declared once; a [`GuestCheck`] is a command and how its outcome is judged. In the guest each check is run and
//! judged where all that it said is at hand; a line of JSON comes back for each, is kept as a record, and the page is made from the records.

pub mod cases;
pub mod checks;
pub mod exercise;
pub mod inside;
pub mod page;

pub use cases::{CASES, DeclaredLoss, GuestCase};
pub use checks::{CHECKS, GuestCheck};

use crate::outputs::unpacked;
use crate::place::guest::{self, Architecture, FromGuest, Spec};
use crate::run;
use majorfault::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Version of the records.
pub const FORMAT: u32 = 1;

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// It did what it is for.
    Works {
        /// What shows it.
        found: String,
        /// Parts that were lost, as the command said it, each with its remedy.
        without: Vec<String>,
    },
    /// It cannot be done here, and the command said why and what to do.
    Lost {
        /// Its sentence.
        said: String,
        /// The remedy in it.
        remedy: String,
    },
    /// Neither: wrong bytes, a crash, a loss that is not told or has no remedy.
    Broken(String),
}

/// A check that was made in a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// [`FORMAT`] when it was written.
    pub format: u32,
    /// What wrote it, with version.
    pub tool: String,
    /// The case's name.
    pub case: String,
    /// The guest, every value in force.
    pub place: String,
    /// Who ran the guest's instructions, and what that means; empty for one that did not begin.
    pub remark: String,
    /// Release of the guest's kernel; empty for one that did not begin.
    pub kernel: String,
    /// The check's name.
    pub check: String,
    /// The command, as a shell reads it.
    pub command: String,
    /// Its exit code.
    pub code: Option<i32>,
    /// How long it took in the guest, in milliseconds: emulated.
    pub took_ms: u64,
    /// What it came to.
    pub came: Came,
    /// The last lines that it said, where it did not work.
    pub said: Vec<String>,
}

/// Tries the checks of a case in a guest with this kernel, where its processor is another with our `program` for that one, each given to `told` as it ends. Gives whether it came to its end.
///
/// Errors: those of [`guest::run`] before the guest ran its first check, and of `told`. A guest that breaks down later is told as a
/// check.
pub fn tried(
    case: &GuestCase,
    kernel: &str,
    program: Option<&Path>,
    only: &[String],
    stop: &AtomicBool,
    mut told: impl FnMut(Tried) -> Result<()>,
) -> Result<bool> {
    let mut spec: Spec = format!("guest:kernel={kernel},{}", case.place).parse()?;
    if let Some(program) = program.filter(|_| case.architecture != Architecture::HOST) {
        spec.program = program.to_string_lossy().into_owned();
    }
    let mut left: Vec<String> = inside::chosen(case, only)?.iter().map(|check| check.name.to_owned()).collect();
    for boot in 1..=MOST_BOOTS {
        let before = left.len();
        let (remark, why) = match booted(case, &spec, &mut left, stop, &mut told)? {
            Boot::Ended => return Ok(true),
            Boot::Stopped => return Ok(false),
            Boot::Broke { remark, why } => (remark, why),
        };
        // A kernel that panics under emulation is no finding about the product, and the other checks can be made. One check that breaks
        // every guest is.
        if boot == MOST_BOOTS || left.is_empty() || (boot > 1 && left.len() == before) {
            return told(broken(case, &spec, &remark, why)).map(|()| true);
        }
        eprintln!("majorfault: {}: booted again for {}: {why}", case.name, left.join(", "));
    }
    Ok(true)
}

/// How often a guest is booted until its checks are made.
const MOST_BOOTS: u32 = 4;

/// How a guest ended.
enum Boot {
    /// Its checks are made.
    Ended,
    /// The user stopped it.
    Stopped,
    /// It broke down.
    Broke { remark: String, why: String },
}

/// Boots a guest for the checks that are left; takes away those that are made.
fn booted(
    case: &GuestCase,
    spec: &Spec,
    left: &mut Vec<String>,
    stop: &AtomicBool,
    told: &mut impl FnMut(Tried) -> Result<()>,
) -> Result<Boot> {
    let words: Vec<String> = ["kernel", "inside", case.name].iter().map(|word| (*word).to_owned()).collect();
    let words = [words, left.clone()].concat();
    let (mut remark, mut stray, mut untold) = (String::new(), Vec::new(), None);
    let ended = guest::run(spec, &words, &[], stop, |line| {
        match line {
            FromGuest::Ready(said) => remark = said,
            FromGuest::Out(line) => match serde_json::from_str::<Tried>(&line) {
                Ok(tried) => {
                    left.retain(|name| *name != tried.check);
                    told(Tried { place: spec.text(), remark: remark.clone(), ..tried })
                        .inspect_err(|error| untold = Some(error.to_string()))?;
                }
                Err(_) => stray.push(line),
            },
            FromGuest::Err(line) => stray.push(line),
            _ => {}
        }
        Ok(())
    });
    match ended {
        Ok(Some(0)) => Ok(Boot::Ended),
        Ok(None) => Ok(Boot::Stopped),
        Ok(Some(code)) => {
            Ok(Boot::Broke { remark, why: format!("the checks ended with {code}: {}", stray.join("; ")) })
        }
        // What the host lacks is no finding about the product, nor is a record that cannot be kept.
        Err(error) if matches!(error, Error::Missing(_)) || untold.is_some() => Err(error),
        Err(error) => Ok(Boot::Broke { remark, why: error.to_string() }),
    }
}

/// The guest itself as a check that failed.
fn broken(case: &GuestCase, spec: &Spec, remark: &str, why: String) -> Tried {
    Tried {
        format: FORMAT,
        tool: run::tool(),
        case: case.name.to_owned(),
        place: spec.text(),
        remark: remark.to_owned(),
        kernel: String::new(),
        check: "guest".to_owned(),
        command: String::new(),
        code: None,
        took_ms: 0,
        came: Came::Broken(why),
        said: Vec::new(),
    }
}

/// What the case declares about a check beside what it came to: `None` where they agree, else a sentence.
pub fn surprise(tried: &Tried) -> Option<String> {
    let expected =
        GuestCase::named(&tried.case).and_then(|case| case.loses.iter().find(|loss| loss.check == tried.check));
    match (&tried.came, expected) {
        (Came::Broken(why), _) => Some(why.clone()),
        (Came::Works { .. }, None) => None,
        (Came::Works { found, without }, Some(loss)) => {
            let is_said = loss.is_partial && without.iter().any(|said| said.contains(loss.says));
            (!is_said).then(|| format!("\"{}\" should be told as lost, but it works: {found}", loss.says))
        }
        (Came::Lost { said, .. }, Some(loss)) if !loss.is_partial && said.contains(loss.says) => None,
        (Came::Lost { said, .. }, _) => Some(format!("lost, and the case does not say so: {said}")),
    }
}

/// The records of these files, in order; compressed by gzip or plain.
///
/// Errors: Io, Invalid (a line that is no such record).
pub fn load(paths: &[impl AsRef<Path>]) -> Result<Vec<Tried>> {
    let mut all = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let unread = |error| Error::io("read records", path, error);
        let plain = File::open(path).and_then(|file| unpacked(BufReader::new(file))).map_err(unread)?;
        for (number, line) in (1..).zip(plain.lines()) {
            let line = line.map_err(unread)?;
            let tried = serde_json::from_str(&line).map_err(|why| {
                Error::Invalid(format!("{}:{number} is no record of \"kernel try\": {why}", path.display()))
            })?;
            all.push(tried);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(case: &str, check: &str, came: Came) -> Tried {
        let case = GuestCase::named(case).unwrap();
        let spec: Spec = format!("guest:{}", case.place).parse().unwrap();
        Tried { check: check.to_owned(), came, ..broken(case, &spec, "", String::new()) }
    }

    fn works(without: &[&str]) -> Came {
        Came::Works { found: "5 rows".to_owned(), without: without.iter().map(|said| (*said).to_owned()).collect() }
    }

    #[test]
    fn what_a_case_declares_as_lost_must_be_lost_in_those_words() {
        let lost = |said: &str| Came::Lost { said: said.to_owned(), remedy: "do".to_owned() };
        let says = "io_uring is not available here: io_uring_setup(2) failed: permission denied; do";

        assert_eq!(surprise(&tried("no-io_uring", "uring", lost(says))), None);
        assert!(surprise(&tried("no-io_uring", "uring", works(&[]))).unwrap().contains("it works"));
        assert!(surprise(&tried("no-io_uring", "uring", lost("something else"))).unwrap().contains("does not say so"));
        assert!(surprise(&tried("no-io_uring", "mmap", lost(says))).unwrap().contains("does not say so"));
        assert_eq!(surprise(&tried("no-io_uring", "mmap", works(&[]))), None);
        assert!(surprise(&tried("no-io_uring", "mmap", Came::Broken("EIO".to_owned()))).is_some());
    }

    #[test]
    fn records_are_read_as_they_were_written_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let one = tried("plain", "mmap", works(&["cachestat"]));
        std::fs::write(&path, format!("{}\n", serde_json::to_string(&one).unwrap())).unwrap();

        assert_eq!(load(&[&path]).unwrap(), [one]);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(load(&[&path]).unwrap_err().to_string().contains("a.jsonl:1 is no record"));
    }
}
