//! `majorfault report --drift`: published claims against kernels, devices and file systems, over the records of many machines.

use crate::command::Exit;
use crate::command::compare::OutputOptions;
use crate::outputs::{Kind, Outputs};
use crate::report::drift::Drift;
use crate::report::{DriftLines, drift_markdown, drift_page, drift_tell};
use crate::session;
use majorfault::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the names of files with records end.
const ENDINGS: [&str; 2] = [".jsonl", ".jsonl.gz"];

/// Judges every session below `paths`, one file at a time. Gives 2 as the exit code where a file could not be read: it is told, and the
/// others are judged.
///
/// Errors: Invalid where there is no file of records, or none that can be read; those of the outputs.
pub fn run(paths: &[PathBuf], output: &OutputOptions, csv: Option<&Path>, as_markdown: bool) -> Result<Exit> {
    let files = found(paths)?;
    let mut outputs = Outputs::new(output.force);
    outputs.reads("the file of records", &files);
    let page = outputs.claim_named("--report", Kind::Page, output.report.as_deref())?;
    let csv = outputs.claim_named("--csv", Kind::Csv, csv)?;
    let unkept = |error| Error::io("keep the judged claims", std::env::temp_dir(), error);
    let mut lines = csv.as_ref().map(|_| DriftLines::new()).transpose().map_err(unkept)?;
    let mut drift = Drift::default();
    for file in &files {
        match session::load_file(file) {
            Ok(records) => drift
                .add(&source(file), records, |judged| lines.as_mut().map_or(Ok(()), |lines| lines.add(judged)))
                .map_err(unkept)?,
            Err(error) => drift.could_not_read(&file.display().to_string(), &error.to_string()),
        }
    }
    if drift.read.files == 0 {
        let (file, reason) = drift.read.told.swap_remove(0);
        return Err(Error::Invalid(format!("none of {} files of records can be read; {file}: {reason}", files.len())));
    }
    if let (Some(csv), Some(lines)) = (&csv, &mut lines) {
        csv.write_by(|out| lines.write(out))?;
    }
    if let Some(page) = &page {
        page.write(drift_page::page(&drift)?)?;
    }
    show(&drift, output.json, as_markdown)?;
    if drift.read.unread > 0 {
        let of = drift.read.unread + drift.read.files;
        return Err(Error::Invalid(format!(
            "{} of {of} files could not be read; the others are judged",
            drift.read.unread
        )));
    }
    Ok(Exit::Ok)
}

fn show(drift: &Drift, as_json: bool, as_markdown: bool) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match as_json {
        _ if as_markdown => write!(out, "{}", drift_markdown::markdown(drift)),
        true => writeln!(out, "{:#}", drift_tell::document(drift)),
        false => drift_tell::print(drift, &mut out),
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io("write the results", "standard output", error))
        }
        _ => Ok(()),
    }
}

/// The files of records that are named or lie below the directories named, each once.
///
/// Errors: Io where a directory cannot be read; Invalid where there is none.
fn found(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            below(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Invalid(format!(
            "there is no file of records below {}: their names end in {}; majorfault reproduce makes some",
            shown.join(", "),
            ENDINGS.join(" or ")
        )));
    }
    Ok(files)
}

fn below(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let unread = |error| Error::io("look for records", dir, error);
    for entry in std::fs::read_dir(dir).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let path = entry.path();
        // Not through links to directories, which may lead in a circle.
        if entry.file_type().map_err(unread)?.is_dir() {
            below(&path, files)?;
        } else if ENDINGS.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            files.push(path);
        }
    }
    Ok(())
}

/// The name of a file without its endings: the host, as a sweep leaves it.
fn source(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bare = name.strip_suffix(".gz").unwrap_or(&name);
    bare.strip_suffix(".jsonl").unwrap_or(bare).to_owned()
}
