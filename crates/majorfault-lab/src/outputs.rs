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
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use records::{Records, unpacked};

/// Bytes of a file's beginning that tell what it is: a page's title may be long.
const HEAD: u64 = 64 << 10;

/// How our tables of runs and of judged claims begin.
const TABLES: [&str; 2] = ["experiment,cell,repetition,seed,", "time,branch,figure,claim,"];

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
    /// Runs or judged claims as comma-separated values.
    Csv,
    /// A comparison of a program's ways, as JSON, Markdown or comma-separated values.
    Programs,
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
            Kind::Programs => "an export of majorfault compare",
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
            Kind::Csv => TABLES.iter().any(|begin| text.starts_with(begin)),
            Kind::Programs => {
                let is_table =
                    line.ends_with(b"way,repetition,counts,seconds,exit_code,major_faults,read_bytes,processor_s");
                let is_document = ["format", "schema"].map(|name| format!("\"{name}\": \"majorfault.programs/"));
                is_table
                    || is_document.iter().any(|mark| text.contains(mark))
                    || text.starts_with("<!-- majorfault compare -->")
            }
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
        let reader = BufReader::new(file);
        // Records may be compressed; what else is has its mark outside.
        let plain = match self {
            Kind::Records => records::unpacked(reader),
            _ => Ok(Box::new(reader) as Box<dyn BufRead>),
        };
        let Ok(mut reader) = plain else { return false };
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
        self.write_by(|out| out.write_all(text.as_ref()))
    }

    /// The same of what `fill` writes piece by piece.
    ///
    /// Errors: those of [`write`](Output::write), and of `fill`.
    pub fn write_by(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        self.must_be_ours("the output")?;
        let written = match &self.way {
            Way::Beside(path) => replace(path, fill),
            Way::InPlace(path) => File::create(path).and_then(|it| all(it, fill)),
            Way::Stream(path) => File::options().write(true).open(path).and_then(|it| all(it, fill)),
            Way::Standard(standard) => standard.try_clone().and_then(|it| all(File::from(it), fill)),
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

fn all(file: File, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()
}

/// A file half written would look like a whole one, so it gets its name at the end. Keeps the rights of the one before.
fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<()> {
    let written = drafted(path).and_then(|file| {
        if let Ok(before) = fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        all(file, fill)?;
        fs::rename(draft(path), path)
    });
    if written.is_err() {
        let _ = fs::remove_file(draft(path));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::report::synthetic::Run;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const PAGE: &str = "<!doctype html><title>majorfault compare</title>";

    /// A directory, and outputs that know of nothing but what the process itself has.
    fn world() -> (tempfile::TempDir, Outputs) {
        (tempfile::tempdir().unwrap(), Outputs::new(Force::default()))
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// The sentence with which a page at `path` is refused.
    fn refused(outputs: &mut Outputs, path: &Path) -> String {
        outputs.claim("--report", Kind::Page, path).unwrap_err().to_string()
    }

    /// Names in a directory, sorted.
    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_of_the_kind_that_its_beginning_says_and_an_empty_one_of_any() {
        let heads = [
            (Kind::Page, PAGE, "<!doctype html><title>another</title>"),
            (Kind::Page, PAGE, "<title>majorfault</title>"),
            (Kind::Records, r#"{"format":2,"tool":"majorfault 0.1.0"}"#, r#"{"format":2,"tool":"fio 3"}"#),
            (Kind::Records, r#"{"format":2,"tool":"majorfault 0.1.0"}"#, r#"{"tool":"majorfault 0.1.0"}"#),
            (Kind::Csv, "experiment,cell,repetition,seed,x", "experiment,cell,x"),
            (Kind::Csv, "time,branch,figure,claim,experiment", "time,branch,metric"),
            (Kind::Metrics, "# HELP majorfault_faults Faults.", "# HELP node_faults Faults."),
            (Kind::Trace, "majorfault trace 2", "a trace"),
        ];
        for (kind, own, other) in heads {
            assert!(kind.is_told_by(own.as_bytes(), own.as_bytes()), "{kind:?}");
            assert!(!kind.is_told_by(other.as_bytes(), other.as_bytes()), "{kind:?}: {other}");
            assert!(kind.is_told_by(b"", b""), "{kind:?}");
        }
    }

    #[test]
    fn a_record_of_a_line_longer_than_what_is_read_first_is_recognised() {
        let (dir, _) = world();
        let path = dir.path().join("records");
        let long = "x".repeat(200 << 10);
        fs::write(&path, format!("{{\"format\":2,\"tool\":\"majorfault 0.1\",\"notes\":\"{long}\"}}\nnot a record\n"))
            .unwrap();

        assert!(Kind::Records.is_at(&path));
        assert!(!Kind::Records.is_at(&dir.path().join("none")), "what cannot be read is not ours");
        fs::write(&path, "not a record\n{\"format\":2,\"tool\":\"majorfault 0.1\"}\n").unwrap();
        assert!(!Kind::Records.is_at(&path), "the first line tells");
    }

    #[test]
    fn no_output_is_an_input_by_any_of_its_names() {
        let (dir, mut outputs) = world();
        let data = dir.path().join("data");
        fs::write(&data, "rows").unwrap();
        fs::hard_link(&data, dir.path().join("hard")).unwrap();
        symlink("data", dir.path().join("soft")).unwrap();
        outputs.reads("the file under test", [&data]);

        for name in ["data", "hard", "soft"] {
            let says = refused(&mut outputs, &dir.path().join(name));
            assert!(says.contains("that is the file under test") && says.contains("would be lost"), "{says}");
        }
    }

    #[test]
    fn an_input_that_is_a_stream_may_be_an_output_too() {
        let (_dir, mut outputs) = world();
        outputs.reads("the file under test", ["/dev/null"]);

        assert!(outputs.claim("--report", Kind::Page, Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn two_outputs_are_two_files_also_where_none_is_there_yet() {
        let (dir, mut outputs) = world();
        fs::create_dir(dir.path().join("sub")).unwrap();
        symlink("sub/page", dir.path().join("link")).unwrap();
        outputs.claim("--report", Kind::Page, &dir.path().join("sub/page")).unwrap();

        for name in ["sub/page", "sub/../sub/page", "link"] {
            let says = refused(&mut outputs, &dir.path().join(name));
            assert!(says.contains("--report leads to the same file; name two files"), "{says}");
        }
        assert!(outputs.claim("--csv", Kind::Csv, &dir.path().join("page")).is_ok(), "the name alone is not the file");
    }

    #[test]
    fn what_we_did_not_write_stays_unless_force_says_otherwise() {
        let (dir, mut outputs) = world();
        let notes = dir.path().join("notes");
        fs::write(&notes, "my notes").unwrap();

        let says = refused(&mut outputs, &notes);
        let forced = Outputs::new(Force { force: true }).claim("--report", Kind::Page, &notes).unwrap();

        assert!(says.contains("exists and is not a page of majorfault; name another file, or add --force"), "{says}");
        assert!(forced.exists());
        forced.write(PAGE).unwrap();
        assert_eq!(text(&notes), PAGE);
    }

    #[test]
    fn records_that_are_compressed_are_ours_and_other_compressed_files_are_not() {
        let (dir, mut outputs) = world();
        let path = dir.path().join("a.jsonl.gz");
        outputs.records("--records", Some(&path), "x").unwrap().add(&Run::of("mmap").record()).unwrap();
        let notes = dir.path().join("notes.gz");
        let mut packer = flate2::write::GzEncoder::new(File::create(&notes).unwrap(), flate2::Compression::best());
        packer.write_all(b"my notes\n").unwrap();
        packer.finish().unwrap();

        let claimed = |path: &Path| Outputs::new(Force::default()).claim("--resume", Kind::Records, path).map(|_| ());
        assert!(claimed(&path).is_ok());
        assert!(claimed(&notes).unwrap_err().to_string().contains("is not a file of majorfault's records"));
    }

    #[test]
    fn each_kind_is_named_where_something_else_is_in_its_place() {
        let (dir, mut outputs) = world();
        let notes = dir.path().join("notes");
        fs::write(&notes, "my notes").unwrap();
        let mut says = |kind| outputs.claim("--x", kind, &notes).unwrap_err().to_string();

        assert!(says(Kind::Records).contains("is not a file of majorfault's records;"));
        assert!(says(Kind::Csv).contains("is not a table of majorfault;"));
        assert!(says(Kind::Metrics).contains("is not a file of majorfault's metrics;"));
        assert!(says(Kind::Trace).contains("is not a trace of majorfault;"));
    }

    #[test]
    fn nothing_is_changed_by_a_claim_and_a_page_is_replaced_whole_with_the_rights_it_had() {
        let (dir, mut outputs) = world();
        let page = dir.path().join("page");
        fs::write(&page, PAGE).unwrap();
        fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).unwrap();

        let output = outputs.claim("--report", Kind::Page, &page).unwrap();
        assert_eq!((text(&page).as_str(), names(dir.path())), (PAGE, vec!["page".to_owned()]));
        output.write("<!doctype html><title>majorfault, later</title>").unwrap();

        assert_eq!(text(&page), "<!doctype html><title>majorfault, later</title>");
        assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!((output.path(), names(dir.path())), (page.as_path(), vec!["page".to_owned()]));
    }

    #[test]
    fn a_draft_that_another_left_as_a_link_is_not_followed() {
        let (dir, mut outputs) = world();
        let (page, precious) = (dir.path().join("page"), dir.path().join("precious"));
        fs::write(&precious, "mine").unwrap();
        let output = outputs.claim("--report", Kind::Page, &page).unwrap();
        symlink(&precious, draft(&page)).unwrap();

        output.write(PAGE).unwrap();

        assert_eq!((text(&page).as_str(), text(&precious).as_str()), (PAGE, "mine"));
    }

    #[test]
    fn a_file_that_appeared_after_the_claim_is_not_replaced() {
        let (dir, mut outputs) = world();
        let page = dir.path().join("page");
        let output = outputs.claim("--report", Kind::Page, &page).unwrap();
        assert!(!output.exists());
        fs::write(&page, "somebody else's").unwrap();

        assert!(output.write(PAGE).is_err());

        assert_eq!(text(&page), "somebody else's");
    }

    #[test]
    fn a_directory_and_a_place_that_is_not_there_are_refused_with_what_to_do() {
        let (dir, mut outputs) = world();

        let says = refused(&mut outputs, dir.path());
        assert!(says.contains("is a directory; name a file"), "{says}");
        let says = refused(&mut outputs, &dir.path().join("none/page"));
        assert!(says.contains("none must exist and be writable; or name another file"), "{says}");
    }

    #[test]
    fn work_that_was_stopped_leaves_an_earlier_page_and_writes_a_first_one() {
        let (dir, mut outputs) = world();
        let (page, first) = (dir.path().join("page"), dir.path().join("first"));
        fs::write(&page, PAGE).unwrap();
        let mut claimed = |path| outputs.claim("--report", Kind::Page, path).unwrap();
        let (again, first_time) = (claimed(&page), claimed(&first));
        let new = || Ok("new".to_owned());

        assert!(!again.write_unless_stopped(true, new).unwrap());
        assert_eq!(text(&page), PAGE);
        assert!(first_time.write_unless_stopped(true, new).unwrap());
        assert!(again.write_unless_stopped(false, new).unwrap());
        assert_eq!((text(&page).as_str(), text(&first).as_str()), ("new", "new"));
    }

    #[test]
    fn what_is_made_at_a_path_is_made_in_place_and_for_a_stream_in_a_draft_that_goes_again() {
        let (dir, mut outputs) = world();
        let made = outputs.claim("-o", Kind::Trace, &dir.path().join("t")).unwrap();
        let stream = outputs.claim("-o", Kind::Trace, Path::new("/dev/null")).unwrap();
        let mut paths = Vec::new();
        let mut make = |path: &Path| {
            paths.push(path.to_owned());
            fs::write(path, "majorfault trace 2\n").map_err(|error| Error::io("write", path, error)).map(|()| 7)
        };

        let given = (made.made_by(&mut make).unwrap(), stream.made_by(&mut make).unwrap());

        assert_eq!((given, &paths[0]), ((7, 7), &dir.path().join("t")));
        assert!(!stream.exists() && paths[1] != Path::new("/dev/null") && !paths[1].exists(), "{paths:?}");
    }

    #[test]
    fn what_a_running_process_has_open_or_mapped_is_no_output() {
        let (dir, mut outputs) = world();
        let (open, mapped) = (dir.path().join("open"), dir.path().join("mapped"));
        fs::write(&mapped, [7; 4096]).unwrap();
        let _open = File::create(&open).unwrap();
        let _mapped = majorfault::map::MappedFile::open(&mapped).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();

        outputs.watches(std::process::id());

        assert!(refused(&mut outputs, &open).contains("that is the program's file"));
        assert!(refused(&mut outputs, &mapped).contains("that is the program's file"));
        assert!(outputs.claim("--report", Kind::Page, &other).is_ok());
    }

    #[test]
    fn a_program_to_be_started_and_the_files_it_is_told_of_are_no_outputs() {
        let (dir, mut outputs) = world();
        let (script, told) = (dir.path().join("script"), dir.path().join("told"));
        fs::write(&script, "").unwrap();
        fs::write(&told, "").unwrap();

        outputs.starts(&[script.clone().into(), told.clone().into(), "--fast".into()]);

        assert!(refused(&mut outputs, &script).contains("that is the program "));
        assert!(refused(&mut outputs, &told).contains("that is the program's file"));
    }

    #[test]
    fn a_program_is_looked_for_where_the_shell_would_and_the_running_one_is_an_input() {
        let (_dir, mut outputs) = world();
        let shell = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|dir| dir.join("sh"))
            .find(|file| file.is_file())
            .unwrap();

        outputs.starts(&["sh".into()]);

        assert!(refused(&mut outputs, &shell).contains("that is the program "));
        assert!(refused(&mut outputs, &std::env::current_exe().unwrap()).contains("that is the running program"));
    }

    fn record() -> Record {
        Run::of("mmap").record()
    }

    #[test]
    fn records_are_appended_and_a_file_that_got_none_goes_again() {
        let (dir, mut outputs) = world();
        let path = dir.path().join("new/sub/records");

        drop(outputs.records("--records", Some(&path), "s").unwrap());
        assert!(!path.exists(), "we made it, and nothing came");
        for _ in 0..2 {
            let mut outputs = Outputs::new(Force::default());
            let mut records = outputs.records("--records", Some(&path), "s").unwrap();
            assert_eq!(records.path(), path);
            records.add(&record()).unwrap();
        }

        assert_eq!(crate::session::load(std::slice::from_ref(&path)).unwrap(), [record(), record()]);
    }

    #[test]
    fn a_file_that_was_there_before_its_records_stays_though_it_is_empty() {
        let (dir, mut outputs) = world();
        let path = dir.path().join("records");
        fs::write(&path, "").unwrap();

        drop(outputs.records("--records", Some(&path), "s").unwrap());

        assert!(path.exists());
    }

    #[test]
    fn what_force_replaces_goes_with_the_first_record_and_not_before() {
        let (dir, _) = world();
        let path = dir.path().join("notes");
        fs::write(&path, "my notes\n").unwrap();
        let mut outputs = Outputs::new(Force { force: true });

        let mut records = outputs.records("--records", Some(&path), "s").unwrap();
        assert_eq!(text(&path), "my notes\n");
        records.add(&record()).unwrap();
        records.add(&record()).unwrap();

        assert_eq!(crate::session::load(std::slice::from_ref(&path)).unwrap(), [record(), record()]);
    }

    #[test]
    fn a_page_is_not_the_file_that_records_were_begun_in() {
        let (dir, mut outputs) = world();
        let path = dir.path().join("records");
        let _records = outputs.records("--records", Some(&path), "s").unwrap();

        assert!(refused(&mut outputs, &path).contains("--records leads to the same file"));
    }

    #[test]
    fn standard_output_and_error_are_taken_by_their_names_as_they_are() {
        let way = |name: &str| Way::to("--report", Path::new(name)).unwrap();

        for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"] {
            assert!(matches!(way(name), Way::Standard(_)), "{name}");
        }
        assert!(matches!(way("/dev/null"), Way::Stream(_)));
    }

    #[test]
    fn an_open_file_is_where_its_path_leads() {
        let (dir, _) = world();
        let file = File::create(dir.path().join("data")).unwrap();

        let place = Place::of_descriptor(&file).unwrap();

        assert_eq!(Some(&place), Place::of_path(&dir.path().join("data")).as_ref());
        assert!(matches!(place, Place::File(..)));
        assert_eq!(Place::of_path(Path::new("/dev/null")), Some(Place::Stream));
    }

    #[test]
    fn an_output_that_nobody_named_is_none() {
        let (dir, mut outputs) = world();

        assert!(outputs.claim_named("--csv", Kind::Csv, None).unwrap().is_none());
        let named = outputs.claim_named("--csv", Kind::Csv, Some(&dir.path().join("runs.csv"))).unwrap();
        assert_eq!(named.unwrap().path(), dir.path().join("runs.csv"));
    }
}
