//! Files that a command writes: checked before the work begins, and never at the cost of a file that is not ours.
//!
//! A command names its inputs, then claims its outputs. An output is refused where it is an input or another output,
//! by device and inode, or where a file is there that none of our commands wrote. A page, a table or a trace is written
//! under another name and renamed when it is whole, so that what was there stays until then; records are appended.

pub(crate) mod former;
pub(crate) mod records;

use majorfault::{Error, Result};
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use records::Records;

/// Bytes of a file's beginning that tell what it is: a page's title may be long.
const HEAD: u64 = 64 << 10;

/// Links that are followed one after another, as the kernel does.
const MOST_LINKS: usize = 40;

/// The option that lets an output replace any file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Force {
    /// Whether it was given.
    pub force: bool,
}

/// What an output is; a file of the same kind may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An HTML page.
    Page,
    /// Records, one a line.
    Records,
    /// Runs as comma-separated values.
    Csv,
    /// Metrics for node_exporter.
    Metrics,
    /// A trace.
    Trace,
    /// Stacks of calls: text for flame graphs, or a profile in pprof's format.
    Stacks,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Page => "a page of majorfault",
            Kind::Records => "a file of majorfault's records",
            Kind::Csv => "a table of majorfault",
            Kind::Metrics => "a file of majorfault's metrics",
            Kind::Trace => "a trace of majorfault",
            Kind::Stacks => "a file of majorfault's stacks",
        }
    }

    /// Whether a file is of this kind, by its first bytes and first line. An empty one may become any.
    fn is_told_by(self, head: &[u8], line: &[u8]) -> bool {
        let text = former::renamed(&String::from_utf8_lossy(head));
        match self {
            _ if head.is_empty() => true,
            Kind::Page => text.starts_with("<!doctype html>") && text.contains("<title>majorfault"),
            Kind::Records => records::is_one(line),
            Kind::Csv => text.starts_with("experiment,cell,repetition,seed,"),
            Kind::Metrics => text.starts_with("# HELP majorfault_"),
            Kind::Trace => text.starts_with("majorfault trace "),
            // The header of a compressed profile has our comment.
            Kind::Stacks => {
                String::from_utf8_lossy(line).contains(";fault in ")
                    || head.starts_with(b"\x1f\x8b") && text.contains("majorfault stacks")
            }
        }
    }

    /// Whether the regular file at `path` is of this kind; one that cannot be read is not known to be.
    fn is_at(self, path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let mut head = Vec::new();
        let mut reader = BufReader::new(file);
        if reader.by_ref().take(HEAD).read_to_end(&mut head).is_err() {
            return false;
        }
        let mut line = head.clone();
        if !line.contains(&b'\n') && reader.read_until(b'\n', &mut line).is_err() {
            return false;
        }
        let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
        self.is_told_by(&head, &line[..end])
    }
}

/// Which file a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// One that exists: device and inode, the same through all its names.
    File(u64, u64),
    /// None yet; by its name in a directory without links.
    Name(PathBuf),
    /// A device, a pipe: nothing that could be lost.
    Stream,
}

impl Place {
    fn of(meta: &fs::Metadata) -> Place {
        let kind = meta.file_type();
        match kind.is_char_device() || kind.is_fifo() {
            true => Place::Stream,
            false => Place::File(meta.dev(), meta.ino()),
        }
    }

    fn of_path(path: &Path) -> Option<Place> {
        fs::metadata(path).ok().map(|meta| Place::of(&meta))
    }

    fn of_descriptor(descriptor: impl AsFd) -> Option<Place> {
        let file = File::from(descriptor.as_fd().try_clone_to_owned().ok()?);
        file.metadata().ok().map(|meta| Place::of(&meta))
    }
}

/// The outputs of one command.
#[derive(Debug)]
pub struct Outputs {
    force: bool,
    /// What must not be written, in words, and where it is.
    inputs: Vec<(String, Place)>,
    /// Under which option each output was claimed, and where it is.
    claimed: Vec<(&'static str, Place)>,
}

impl Outputs {
    /// No outputs yet. Inputs are this program and what it reads on standard input.
    pub fn new(force: Force) -> Outputs {
        let mut outputs = Outputs { force: force.force, inputs: Vec::new(), claimed: Vec::new() };
        outputs.claimed.extend(Place::of_descriptor(std::io::stdout()).map(|place| ("standard output", place)));
        outputs.inputs.extend(Place::of_descriptor(std::io::stdin()).map(|place| ("standard input".to_owned(), place)));
        if let Ok(own) = std::env::current_exe() {
            outputs.reads("the running program", [own]);
        }
        outputs
    }

    /// Adds files that no output may replace. A file that does not exist is reported where it is opened.
    pub fn reads(&mut self, role: &str, paths: impl IntoIterator<Item = impl AsRef<Path>>) {
        for path in paths {
            let path = path.as_ref();
            let place = Place::of_path(path).filter(|place| *place != Place::Stream);
            self.inputs.extend(place.map(|place| (format!("{role} {}", path.display()), place)));
        }
    }

    /// Adds what a program that is about to be started consists of: its file, and those that its arguments name.
    pub fn starts(&mut self, program: &[OsString]) {
        let Some((name, arguments)) = program.split_first() else { return };
        let is_path = name.to_string_lossy().contains('/');
        let path = std::env::var_os("PATH").filter(|_| !is_path).unwrap_or_default();
        let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
        self.reads("the program", [found.unwrap_or_else(|| PathBuf::from(name))]);
        self.reads("the program's file", arguments.iter().filter(|argument| Path::new(argument).is_file()));
    }

    /// Adds what a running process has open or mapped, as far as we may see it.
    pub fn watches(&mut self, pid: u32) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        self.reads("the program", [process.join("exe")]);
        let opened = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        self.reads("the program's file", opened.map(|entry| entry.path()).filter(|file| file.is_file()));
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
        self.reads("the program's file", mapped.filter(|file| file.is_file()));
    }

    /// Claims `path`, named by `option`, for an output. Nothing is changed there yet.
    ///
    /// Errors: Invalid where it is an input, another output, or a file that we did not write; Io where it cannot be
    /// written.
    pub fn claim(&mut self, option: &'static str, kind: Kind, path: &Path) -> Result<Output> {
        let place = self.free(option, path)?;
        let output = Output { path: path.to_owned(), kind, force: self.force, way: Way::to(option, path)? };
        output.must_be_ours(option)?;
        self.claimed.push((option, place));
        Ok(output)
    }

    /// As [`claim`](Outputs::claim), where a path is named.
    ///
    /// Errors: those of [`claim`](Outputs::claim).
    pub fn claim_named(&mut self, option: &'static str, kind: Kind, path: Option<&Path>) -> Result<Option<Output>> {
        path.map(|path| self.claim(option, kind, path)).transpose()
    }

    /// Claims the file that records are appended to: the one named, or the session's own below the state directory.
    ///
    /// Errors: as [`claim`](Outputs::claim).
    pub fn records(&mut self, option: &'static str, path: Option<&Path>, session: &str) -> Result<Records> {
        let Some(path) = path else { return Records::of_session(session) };
        fs::create_dir_all(directory(path)).map_err(|error| unwritable(option, path, error))?;
        let output = self.claim(option, Kind::Records, path)?;
        let records = Records::at(path, output.is_foreign())?;
        if let (Some(claimed), Some(place)) = (self.claimed.last_mut(), records.place()) {
            claimed.1 = place;
        }
        Ok(records)
    }

    /// Where `path` leads, if that is neither an input nor another output.
    fn free(&self, option: &str, path: &Path) -> Result<Place> {
        let place = match Place::of_path(path) {
            Some(place) => place,
            None => Place::Name(resolved(path)),
        };
        if place == Place::Stream {
            return Ok(place);
        }
        let shown = path.display();
        if let Some((says, _)) = self.inputs.iter().find(|(_, input)| *input == place) {
            return Err(Error::Invalid(format!(
                "{option} {shown}: that is {says}, whose content would be lost; name another file"
            )));
        }
        let is_claimed = |claimed: &Place| *claimed == place && standard(path).is_none();
        if let Some((other, _)) = self.claimed.iter().find(|(_, claimed)| is_claimed(claimed)) {
            return Err(Error::Invalid(format!("{option} {shown}: {other} leads to the same file; name two files")));
        }
        Ok(place)
    }
}

/// The path without links, also where nothing is there yet.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| to.clone(), |parent| parent.join(&to));
    }
    let name = path.file_name().unwrap_or_default();
    directory(&path).canonicalize().map_or_else(|_| path.clone(), |dir| dir.join(name))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How an output gets its content.
#[derive(Debug)]
enum Way {
    /// As a file beside it that is renamed, links resolved.
    Beside(PathBuf),
    /// Cut to nothing and written: no other name can be made in its directory.
    InPlace(PathBuf),
    /// Written as it is: a device or a pipe.
    Stream(PathBuf),
    /// Standard output or error, which may be a file that more is written to.
    Standard(std::os::fd::OwnedFd),
}

impl Way {
    fn to(option: &str, path: &Path) -> Result<Way> {
        if let Some(standard) = standard(path) {
            return Ok(Way::Standard(standard));
        }
        let real = resolved(path);
        let Ok(meta) = fs::metadata(&real) else {
            return try_beside(&real).map(|()| Way::Beside(real)).map_err(|error| unwritable(option, path, error));
        };
        let kind = meta.file_type();
        if !kind.is_file() && !kind.is_char_device() && !kind.is_fifo() {
            let what = if kind.is_dir() { "a directory" } else { "a device or a socket" };
            return Err(Error::Invalid(format!("{option} {} is {what}; name a file", path.display())));
        }
        access(&real, Access::WRITE_OK).map_err(|error| unwritable(option, path, error.into()))?;
        Ok(match (kind.is_file(), try_beside(&real)) {
            (false, _) => Way::Stream(real),
            (true, Ok(())) => Way::Beside(real),
            (true, Err(_)) => Way::InPlace(real),
        })
    }
}

/// Standard output or error where the path is one of their names.
fn standard(path: &Path) -> Option<std::os::fd::OwnedFd> {
    match path.to_str()? {
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => std::io::stdout().as_fd().try_clone_to_owned().ok(),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => std::io::stderr().as_fd().try_clone_to_owned().ok(),
        _ => None,
    }
}

/// The name under which a file is written until it is whole.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

/// A new file, never a link that another user placed there: the directory may be writable for everybody.
fn drafted(path: &Path) -> std::io::Result<File> {
    let _ = fs::remove_file(draft(path));
    File::create_new(draft(path))
}

fn try_beside(path: &Path) -> std::io::Result<()> {
    drafted(path)?;
    fs::remove_file(draft(path))
}

fn unwritable(option: &str, path: &Path, error: std::io::Error) -> Error {
    let directory = directory(path).display();
    Error::io(format!("write the file of {option}"), path, error)
        .with_remedy(format!("{directory} must exist and be writable; or name another file"))
}

/// One output, claimed.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    kind: Kind,
    force: bool,
    way: Way,
}

impl Output {
    /// The path as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a file that would be replaced.
    pub fn exists(&self) -> bool {
        matches!(&self.way, Way::Beside(path) | Way::InPlace(path) if path.exists())
    }

    /// Whether there is a file that we did not write.
    fn is_foreign(&self) -> bool {
        matches!(&self.way, Way::Beside(path) | Way::InPlace(path) if path.exists() && !self.kind.is_at(path))
    }

    fn must_be_ours(&self, option: &str) -> Result<()> {
        if self.force || !self.is_foreign() {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{option} {} exists and is not {}; name another file, or add --force to replace it",
            self.path.display(),
            self.kind.words()
        )))
    }

    /// Puts `text` there, whole or not at all; may be called again.
    ///
    /// Errors: Io; Invalid where a file appeared meanwhile that is not ours.
    pub fn write(&self, text: impl AsRef<[u8]>) -> Result<()> {
        let text = text.as_ref();
        self.must_be_ours("the output")?;
        let written = match &self.way {
            Way::Beside(path) => replace(path, text),
            Way::InPlace(path) => fs::write(path, text),
            Way::Stream(path) => File::options().write(true).open(path).and_then(|it| all(it, text)),
            Way::Standard(standard) => standard.try_clone().and_then(|it| all(File::from(it), text)),
        };
        written.map_err(|error| Error::io("write the file", &self.path, error).with_remedy("name a writable one"))
    }

    /// As [`write`](Output::write), but not over a file that is there where the work was `stopped` half-way. Gives
    /// whether it was written.
    ///
    /// Errors: those of [`write`](Output::write).
    pub fn write_unless_stopped(&self, stopped: bool, text: impl FnOnce() -> Result<String>) -> Result<bool> {
        if stopped && self.exists() {
            eprintln!("majorfault: stopped half-way; {} is left as it was", self.path.display());
            return Ok(false);
        }
        self.write(&text()?).map(|()| true)
    }

    /// Lets `write` make a file at a path that it gets, and gives what it gives: the output itself, or where that is a
    /// device or a pipe, another file that is copied there.
    ///
    /// Errors: those of `write`; Io.
    pub fn made_by<T>(&self, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        if let Way::Beside(path) = &self.way {
            return write(path);
        }
        let draft = std::env::temp_dir().join(format!("majorfault-{}.part", std::process::id()));
        let given = write(&draft);
        let text = fs::read_to_string(&draft);
        let _ = fs::remove_file(&draft);
        let given = given?;
        self.write(&text.map_err(|error| Error::io("read what was written", &draft, error))?)?;
        Ok(given)
    }
}

fn all(mut file: File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text)
}

/// A file half written would look like a whole one, so it gets its name at the end. Keeps the rights of the one before.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let written = drafted(path).and_then(|file| {
        if let Ok(before) = fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        all(file, text)?;
        fs::rename(draft(path), path)
    });
    if written.is_err() {
        let _ = fs::remove_file(draft(path));
    }
    written
}
