//! Which files a job is about, as fio 3.33 reads it: a name is joined to the directory that is in force where the name
//! stands, even one that begins with a slash.
//!
//! Read from the lines, because an INI reader loses what matters: that a name was given twice, or in [global].

use majorfault::{Error, Result};

/// Options that say where files are.
#[derive(Debug, Default)]
struct Section {
    filename: Option<String>,
    directory: Option<String>,
}

/// The words of `majorfault compare` for the files named, or for the directory where files are made.
///
/// Errors: Invalid for several directories, for names given twice, and for what fio would expand or take literally.
pub(super) fn words(text: &str) -> Result<Vec<String>> {
    let (global, job) = sections(text)?;
    let of_job = || job.directory.as_ref().or(global.directory.as_ref());
    let (names, directory) = match (&global.filename, &job.filename) {
        (Some(_), Some(_)) => return Err(twice("filename")),
        // The job's own directory comes too late for names in [global].
        (Some(names), None) => (names, global.directory.as_ref()),
        (None, Some(names)) => (names, of_job()),
        (None, None) => {
            let directory = of_job().map(|value| only_directory(value)).transpose()?;
            return Ok(directory.into_iter().flat_map(|directory| ["--dir".to_owned(), directory]).collect());
        }
    };
    let directory = directory.map(|value| only_directory(value)).transpose()?;
    parts("filename", names)?.into_iter().map(|name| path(directory.as_deref(), name)).collect()
}

/// What [global] says and what the job says.
fn sections(text: &str) -> Result<(Section, Section)> {
    let (mut global, mut job, mut begun) = (Section::default(), Section::default(), Vec::new());
    for line in text.lines() {
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            must_come_now(name, &begun)?;
            begun.push(name);
        } else if let Some((name, value)) = line.split_once('=') {
            let is_global = begun.last().is_none_or(|section| *section == "global");
            keep(if is_global { &mut global } else { &mut job }, name, value)?;
        }
    }
    Ok((global, job))
}

/// fio runs a job once for each time it is named, and [global] holds for the jobs after it.
fn must_come_now(name: &str, begun: &[&str]) -> Result<()> {
    let is_late = match name {
        "global" => begun.iter().any(|other| *other != "global"),
        _ => begun.contains(&name),
    };
    match is_late {
        true if name == "global" => {
            Err(Error::Invalid("[global] stands after a job and does not hold for it; put it first".to_owned()))
        }
        true => Err(Error::Invalid(format!("the job [{name}] stands there twice; leave one"))),
        false => Ok(()),
    }
}

fn keep(section: &mut Section, name: &str, value: &str) -> Result<()> {
    let place = match name.trim_end() {
        "filename" => &mut section.filename,
        "directory" => &mut section.directory,
        _ => return Ok(()),
    };
    if name.ends_with(char::is_whitespace) || value.starts_with(char::is_whitespace) {
        let name = name.trim_end();
        return Err(Error::Invalid(format!("fio takes a blank after {name}= for a part of it; leave it out")));
    }
    match place.replace(value.to_owned()) {
        Some(_) if name == "filename" => Err(twice(name)),
        _ => Ok(()),
    }
}

fn twice(name: &str) -> Error {
    Error::Invalid(format!("{name} is given twice, and fio takes both; write one, with a colon between the names"))
}

/// What colons separate; a backslash before a colon makes it a part of a name.
fn parts(option: &str, value: &str) -> Result<Vec<String>> {
    if value.contains('$') {
        return Err(Error::Invalid(format!("{option}={value}: fio would put something in place of $; write it out")));
    }
    let hidden = value.replace("\\:", "\0");
    let parts: Vec<String> =
        hidden.split(':').filter(|part| !part.is_empty()).map(|part| part.replace('\0', ":")).collect();
    match parts.is_empty() {
        true => Err(Error::Invalid(format!("{option}= names nothing; give a name, or leave it out"))),
        false => Ok(parts),
    }
}

fn only_directory(value: &str) -> Result<String> {
    let mut parts = parts("directory", value)?;
    match parts.len() {
        1 => Ok(parts.remove(0)),
        count => Err(Error::Invalid(format!(
            "directory={value} names {count} directories, which fio gives to its jobs in turn; name one"
        ))),
    }
}

/// A word that is a path, whatever it begins with.
fn path(directory: Option<&str>, name: String) -> Result<String> {
    match directory {
        Some(directory) => Ok(format!("{directory}/{name}")),
        None if name == "-" => {
            Err(Error::Invalid("filename=- is a stream, and a stream has no places; name a file".to_owned()))
        }
        None if name.starts_with('-') => Ok(format!("./{name}")),
        None => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What fio opens and what we would open, in a directory with `dd` and `ee`; none where it refuses.
    fn opened_by_fio(text: &str) -> Option<Vec<String>> {
        let world = tempfile::tempdir().unwrap();
        for name in ["dd/sub", "ee"] {
            std::fs::create_dir_all(world.path().join(name)).unwrap();
        }
        std::fs::write(world.path().join("job.fio"), format!("{text}rw=write\nsize=48k\nbs=4k\n")).unwrap();
        let said = Command::new("fio").arg("job.fio").current_dir(&world).output().ok()?;
        let found = Command::new("find").args([".", "-type", "f"]).current_dir(&world).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let mut files: Vec<String> =
            found.lines().filter(|file| *file != "./job.fio").map(|file| file[2..].to_owned()).collect();
        files.sort();
        said.status.success().then_some(files)
    }

    fn opened_by_us(text: &str) -> Vec<String> {
        let shortest = |path: String| path.trim_start_matches("./").replace("//", "/").replace("//", "/");
        let mut files: Vec<String> = words(text).unwrap().into_iter().map(shortest).collect();
        files.sort();
        files
    }

    #[test]
    fn fio_opens_the_same_files() {
        if Command::new("fio").arg("--version").output().is_err() {
            eprintln!("SKIPPED fio_opens_the_same_files: fio is not installed");
            return;
        }
        for (text, files) in [
            ("[j]\ndirectory=dd\nfilename=f\n", &["dd/f"][..]),
            ("[j]\nfilename=f\ndirectory=dd\n", &["dd/f"]),
            ("[j]\ndirectory=dd/\nfilename=/x/f\n", &["dd/x/f"]),
            ("[j]\ndirectory=dd\nfilename=f:sub/g\n", &["dd/f", "dd/sub/g"]),
            ("[global]\ndirectory=dd\n[j]\nfilename=f\n", &["dd/f"]),
            ("[global]\nfilename=f\n[j]\ndirectory=dd\n", &["f"]),
            ("[global]\nfilename=f\ndirectory=ee\n[j]\ndirectory=dd\n", &["ee/f"]),
            ("[global]\ndirectory=ee\n[j]\ndirectory=dd\nfilename=f\n", &["dd/f"]),
            ("[j]\ndirectory=ee\ndirectory=dd\nfilename=f\n", &["dd/f"]),
            ("[j]\ndirectory=dd:\nfilename=f::g:\n", &["dd/f", "dd/g"]),
            ("[j]\ndirectory=dd\nfilename=a\\:b\n", &["dd/a:b"]),
            ("[j]\nfilename=f ; a comment\n", &["f"]),
            ("[j]\nfilename=f#one\n", &["f"]),
            ("[j]\nfilename=-x\n", &["-x"]),
        ] {
            assert_eq!(opened_by_us(text), files, "{text}");
            assert_eq!(opened_by_fio(text).unwrap_or_default(), files, "fio: {text}");
        }
    }

    #[test]
    fn without_names_the_directory_is_where_files_are_made() {
        assert_eq!(words("[global]\ndirectory=dd\n[j]\nrw=read\n").unwrap(), ["--dir", "dd"]);
        assert_eq!(words("[j]\nrw=read\n").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_begins_with_a_dash_is_no_option() {
        assert_eq!(words("[j]\nfilename=-x\n").unwrap(), ["./-x"]);
        assert_eq!(words("[j]\ndirectory=dd\nfilename=-\n").unwrap(), ["dd/-"]);
    }

    #[test]
    fn places_that_would_be_others_than_those_of_fio_are_refused() {
        for (text, why) in [
            ("[j]\ndirectory=dd:ee\nfilename=f\n", "names 2 directories"),
            ("[j]\ndirectory=dd:ee\n", "names 2 directories"),
            ("[j]\ndirectory=\nfilename=f\n", "directory= names nothing"),
            ("[j]\nfilename=:\n", "filename= names nothing"),
            ("[j]\nfilename=f\nfilename=g\n", "filename is given twice"),
            ("[global]\nfilename=f\n[j]\nfilename=g\n", "filename is given twice"),
            ("[j]\ndirectory = dd\nfilename=f\n", "a blank after directory="),
            ("[j]\nfilename= f\n", "a blank after filename="),
            ("[j]\nfilename=${HOME}/f\n", "in place of $"),
            ("[j]\ndirectory=$pagesize\nfilename=f\n", "in place of $"),
            ("[j]\nfilename=-\n", "is a stream"),
            ("[j]\nrw=read\n[global]\nfilename=f\n", "[global] stands after a job"),
            ("[j]\nfilename=f\n[j]\nfilename=g\n", "stands there twice"),
        ] {
            let error = words(text).unwrap_err().to_string();

            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
