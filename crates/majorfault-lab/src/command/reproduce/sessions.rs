//! Where the records of each session go: a file for each, so that one can be kept, compressed or resumed without the others.

use crate::outputs::{Outputs, Records};
use crate::session;
use majorfault::{Error, Result};
use std::path::{Path, PathBuf};

/// What the command line says of sessions and their records.
#[derive(Clone, Copy)]
pub struct SessionsAsked<'a> {
    /// How many.
    pub count: u32,
    /// `--records`; with several sessions their numbers go before its ending.
    pub records: Option<&'a Path>,
    /// `--resume`, with numbers likewise.
    pub resume: Option<&'a Path>,
}

/// One session, and the file of its records.
#[derive(Debug)]
pub struct SessionPlace {
    /// Its name, unless it goes on with an earlier one.
    pub name: String,
    /// Takes its records.
    pub records: Records,
    /// The same file, where it holds records of the session already.
    pub resumed: Option<PathBuf>,
}

/// A place for each session.
///
/// Errors: Invalid where there is nothing to resume; those of [`Outputs::records`].
pub fn places(asked: SessionsAsked<'_>, outputs: &mut Outputs) -> Result<Vec<SessionPlace>> {
    let name = session::name();
    let numbers = 1..=asked.count;
    if let Some(base) = asked.resume {
        let files: Vec<PathBuf> = numbers.clone().map(|number| asked.file(base, number)).collect();
        if !files.iter().any(|file| file.exists()) {
            return Err(nothing_to_resume(base, &files));
        }
    }
    let place = |number: u32| {
        let name = if asked.count > 1 { format!("{name}-{number}") } else { name.clone() };
        let (option, base) = match (asked.resume, asked.records) {
            (Some(base), _) => ("--resume", Some(base)),
            (None, base) => ("--records", base),
        };
        let path = base.map(|base| asked.file(base, number));
        let resumed = path.clone().filter(|path| asked.resume.is_some() && path.exists());
        let records = outputs.records(option, path.as_deref(), &name)?;
        Ok(SessionPlace { name, records, resumed })
    };
    numbers.map(place).collect()
}

fn nothing_to_resume(base: &Path, files: &[PathBuf]) -> Error {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    match files.as_slice() {
        [_] => Error::Invalid(format!("--resume {}: there is no such file; check the name", base.display())),
        files => Error::Invalid(format!(
            "--resume {}: there is none of {}; name them without their number, and --sessions as before",
            base.display(),
            files.join(", ")
        )),
    }
}

impl SessionsAsked<'_> {
    /// `runs.jsonl` of one session, `runs-2.jsonl` of the second of several.
    fn file(self, base: &Path, number: u32) -> PathBuf {
        if self.count == 1 {
            return base.to_owned();
        }
        let name = base.file_name().unwrap_or_default().to_string_lossy();
        let (plain, packed) = name.strip_suffix(".gz").map_or((&*name, ""), |plain| (plain, ".gz"));
        let dot = plain.rfind('.').filter(|dot| *dot > 0).unwrap_or(plain.len());
        let (stem, ending) = plain.split_at(dot);
        base.with_file_name(format!("{stem}-{number}{ending}{packed}"))
    }
}

/// The command line's part that goes on with these sessions, by the file of the first.
pub fn resuming(first: &Path, count: u32) -> String {
    let name = first.display().to_string();
    if count == 1 {
        return format!("--resume {name}");
    }
    let (stem, ending) = name.rsplit_once("-1").unwrap_or((&name, ""));
    format!("--sessions {count} --resume {stem}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::Force;

    fn asked<'a>(count: u32, records: Option<&'a Path>, resume: Option<&'a Path>) -> SessionsAsked<'a> {
        SessionsAsked { count, records, resume }
    }

    fn made(asked: SessionsAsked<'_>) -> Result<Vec<SessionPlace>> {
        places(asked, &mut Outputs::new(Force { force: false }))
    }

    fn names(places: &[SessionPlace]) -> Vec<String> {
        places.iter().map(|it| it.records.path().file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn each_of_several_sessions_has_a_name_and_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("runs.jsonl");

        let found = made(asked(3, Some(&base), None)).unwrap();
        let packed = dir.path().join("linux-6.1.jsonl.gz");
        let plain = dir.path().join("runs");

        assert_eq!(names(&found), ["runs-1.jsonl", "runs-2.jsonl", "runs-3.jsonl"]);
        assert_eq!(
            names(&made(asked(2, Some(&packed), None)).unwrap()),
            ["linux-6.1-1.jsonl.gz", "linux-6.1-2.jsonl.gz"]
        );
        assert_eq!(names(&made(asked(2, Some(&plain), None)).unwrap()), ["runs-1", "runs-2"]);
        assert!(found[0].name.ends_with("-1") && found[2].name.ends_with("-3"));
        assert!(found.iter().all(|it| it.resumed.is_none()));
    }

    #[test]
    fn one_session_has_the_file_that_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("runs.jsonl");

        assert_eq!(names(&made(asked(1, Some(&base), None)).unwrap()), ["runs.jsonl"]);
    }

    #[test]
    fn records_are_added_to_a_file_without_going_on_with_its_session_unless_that_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("runs.jsonl");
        std::fs::write(&base, "").unwrap();

        let resumed = |asked: SessionsAsked<'_>| made(asked).unwrap().remove(0).resumed;

        assert_eq!(resumed(asked(1, Some(&base), None)), None);
        assert_eq!(resumed(asked(1, None, Some(&base))), Some(base.clone()));
    }

    #[test]
    fn sessions_that_were_begun_go_on_and_the_others_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("runs.jsonl");
        std::fs::write(dir.path().join("runs-1.jsonl"), "").unwrap();

        let found = made(asked(2, None, Some(&base))).unwrap();

        assert_eq!(names(&found), ["runs-1.jsonl", "runs-2.jsonl"]);
        assert_eq!(found[0].resumed.as_deref(), Some(dir.path().join("runs-1.jsonl").as_path()));
        assert_eq!(found[1].resumed, None);
    }

    #[test]
    fn without_any_file_there_is_nothing_to_resume() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("runs.jsonl");
        let error = |count: u32| made(asked(count, None, Some(&base))).unwrap_err().to_string();

        assert!(error(1).ends_with("there is no such file; check the name"), "{}", error(1));
        assert!(error(2).contains("runs-1.jsonl, ") && error(2).contains("runs-2.jsonl;"), "{}", error(2));
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn an_interrupted_command_is_told_with_which_words_it_goes_on() {
        assert_eq!(resuming(Path::new("a/runs-1.jsonl"), 3), "--sessions 3 --resume a/runs.jsonl");
        assert_eq!(resuming(Path::new("a/10-11-1.jsonl"), 2), "--sessions 2 --resume a/10-11.jsonl");
        assert_eq!(resuming(Path::new("a/runs-1.jsonl"), 1), "--resume a/runs-1.jsonl");
    }
}
