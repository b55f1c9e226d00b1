//! A file that takes one record a line.

use super::{Place, former};
use crate::record::Record;
use flate2::bufread::MultiGzDecoder;
use flate2::{Compression, write::GzEncoder};
use majorfault::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// First bytes of what gzip compressed (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The same bytes, decompressed where they begin as those that gzip compressed, in one member or several.
///
/// Errors: Io.
pub fn unpacked(mut packed: impl BufRead + 'static) -> std::io::Result<Box<dyn BufRead>> {
    Ok(match packed.fill_buf()?.starts_with(&GZIP) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(packed))),
        false => Box::new(packed),
    })
}

/// Whether a file's next line is to be compressed: as the lines before it, or as its name says.
fn is_packed(path: &Path, replaces: bool) -> bool {
    let mut first = [0; 2];
    // A pipe or a device is not read from: it would wait, or lose what is in it.
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let mut read = |path: &Path| File::open(path).and_then(|mut file| file.read_exact(&mut first));
    match is_file && !replaces && read(path).is_ok() {
        true => first == GZIP,
        false => path.extension().is_some_and(|ending| ending == "gz"),
    }
}

/// Whether a line is a record of ours, of whatever format.
pub(super) fn is_one(line: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let is_ours = |tool: &str| former::renamed(tool).starts_with("majorfault ");
    value["format"].is_u64() && value["tool"].as_str().is_some_and(is_ours)
}

/// A file that takes one record a line.
#[derive(Debug)]
pub struct Records {
    file: File,
    path: PathBuf,
    /// What is there is none of ours, and goes with the first record.
    replaces: bool,
    /// We made it: it is removed again where no record comes.
    is_made: bool,
    /// Each line is compressed, a member of its own, so that those before it stay readable whatever ends us.
    is_packed: bool,
}

impl Records {
    /// Appends to `path`; where what is there is to be replaced, with the first record.
    ///
    /// Errors: Io.
    pub(super) fn at(path: &Path, replaces: bool) -> Result<Records> {
        let (is_made, is_packed) = (!path.exists(), is_packed(path, replaces));
        let file = File::options().create(true).append(true).open(path).map_err(|error| unwritable(path, error))?;
        Ok(Records { file, path: path.to_owned(), replaces, is_made, is_packed })
    }

    /// The session's own file below the user's state directory.
    ///
    /// Errors: Io, with the directory that could not be made or written.
    pub(super) fn of_session(session: &str) -> Result<Records> {
        let dir = state_dir();
        fs::create_dir_all(&dir).map_err(|error| unwritable(&dir, error))?;
        let path = dir.join(format!("{session}.jsonl"));
        let file =
            File::options().create_new(true).append(true).open(&path).map_err(|error| unwritable(&path, error))?;
        Ok(Records { file, path, replaces: false, is_made: true, is_packed: false })
    }

    /// Adds one record as one line.
    ///
    /// Errors: Io (full disk).
    pub fn add(&mut self, record: &Record) -> Result<()> {
        self.line(record)
    }

    /// Adds anything as one line.
    ///
    /// Errors: Io (full disk).
    pub fn line(&mut self, record: &impl serde::Serialize) -> Result<()> {
        let mut line =
            serde_json::to_vec(record).map_err(|why| Error::Invalid(format!("a record cannot be written: {why}")))?;
        line.push(b'\n');
        if std::mem::take(&mut self.replaces) {
            self.file.set_len(0).map_err(|error| unwritable(&self.path, error))?;
        }
        self.append(line).map_err(|error| unwritable(&self.path, error))
    }

    fn append(&mut self, line: Vec<u8>) -> std::io::Result<()> {
        let bytes = match self.is_packed {
            true => {
                let mut packer = GzEncoder::new(Vec::new(), Compression::best());
                packer.write_all(&line)?;
                packer.finish()?
            }
            false => line,
        };
        self.file.write_all(&bytes)
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn place(&self) -> Option<Place> {
        self.file.metadata().ok().map(|meta| Place::of(&meta))
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.is_made && self.file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::io("keep the records", path, error)
        .with_remedy("name a writable file with --records, or a writable directory with XDG_STATE_HOME")
}

/// `$XDG_STATE_HOME/majorfault/runs`, by default below ~/.local/state; for users without a home, a directory of their own
/// below the temporary one.
pub(crate) fn state_dir() -> PathBuf {
    state_dir_by(|name| std::env::var_os(name))
}

fn state_dir_by(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").filter(|home| home.is_dir()).map(|home| home.join(".local/state"));
    let user = rustix::process::geteuid().as_raw();
    let homeless = || std::env::temp_dir().join(format!("majorfault-{user}"));
    set("XDG_STATE_HOME").or_else(home).unwrap_or_else(homeless).join("majorfault/runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compressed_where_the_name_says_so_or_those_before_them_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let begins = |name: &str| fs::read(at(name)).unwrap().starts_with(&GZIP);
        let all = |name: &str| {
            let mut text = String::new();
            unpacked(BufReader::new(File::open(at(name)).unwrap())).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let add = |name: &str, replaces| Records::at(&at(name), replaces).unwrap().line(&"a line").unwrap();
        for name in ["new.jsonl", "new.jsonl.gz", "new.jsonl", "new.jsonl.gz"] {
            add(name, false);
        }
        fs::rename(at("new.jsonl.gz"), at("packed")).unwrap();
        fs::rename(at("new.jsonl"), at("plain.gz")).unwrap();
        add("packed", false);
        add("plain.gz", false);
        // Nothing is read of a pipe, which may have bytes for somebody else.
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.gz"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let mut pipe = File::options().read(true).write(true).open(at("pipe.gz")).unwrap();
        pipe.write_all(b"of another").unwrap();
        add("pipe.gz", false);
        let mut whole = [0; 12];
        pipe.read_exact(&mut whole).unwrap();
        assert!(whole.starts_with(b"of another") && whole.ends_with(&GZIP));
        fs::write(at("notes.gz"), "my notes").unwrap();
        add("notes.gz", true);

        assert_eq!((all("packed"), all("plain.gz")), ("\"a line\"\n".repeat(3), "\"a line\"\n".repeat(3)));
        assert!(begins("packed") && !begins("plain.gz"));
        assert!(begins("notes.gz") && all("notes.gz") == "\"a line\"\n");
    }

    #[test]
    fn records_are_kept_below_the_state_directory_then_the_home_then_a_directory_of_the_user() {
        let dir = |state: &str, home: &str| {
            state_dir_by(|name| Some(OsString::from(if name == "XDG_STATE_HOME" { state } else { home })))
        };
        let temporary = std::env::temp_dir().join(format!("majorfault-{}", rustix::process::geteuid().as_raw()));

        assert_eq!(dir("/state", "/"), Path::new("/state/majorfault/runs"));
        assert_eq!(dir("", "/"), Path::new("/.local/state/majorfault/runs"));
        assert_eq!(dir("", "/no/such/home"), temporary.join("majorfault/runs"));
        assert_eq!(state_dir_by(|_| None), temporary.join("majorfault/runs"));
    }
}
