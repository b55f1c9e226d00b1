//! fio's job files: sections and options become stages of jobs that every method runs.
//!
//! What a job file says is either done, or known not to change what is measured, or told, or an error that names the option, its
//! section and its line; nothing is passed over in silence.

mod draft;
mod lines;
mod options;
#[cfg(test)]
mod tests;
mod values;

use lines::{Line, Lines, Spot};
use majorfault::{Error, Result};
use std::fs;
use std::path::Path;

pub use draft::Draft;
pub use options::markdown;

/// The jobs of a file, in the order in which they run.
#[derive(Debug)]
pub struct JobFile {
    /// Jobs that run at once, one stage after the other.
    pub stages: Vec<Vec<Draft>>,
    /// What is done in another way than the file says, in sentences.
    pub told: Vec<String>,
}

/// Options that go over those of every job, by fio's names; and which sections are meant, where not all are.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Names and values.
    pub options: Vec<(String, Option<String>)>,
    /// Sections.
    pub sections: Vec<String>,
}

/// One job that options alone describe, called `name`.
///
/// Errors: Invalid, with the option.
pub fn typed(name: &str, chosen: &Chosen) -> Result<JobFile> {
    parsed(&format!("[{name}]\n"), Path::new(""), chosen).map_err(Error::Invalid)
}

/// The jobs of the file at `path`.
///
/// Errors: Io; Invalid, with line, section and option.
pub fn read(path: &Path, chosen: &Chosen) -> Result<JobFile> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read the job file", path, error))?;
    parsed(&text, path, chosen).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
}

fn parsed(text: &str, path: &Path, chosen: &Chosen) -> std::result::Result<JobFile, String> {
    let typed: Vec<Line> = chosen
        .options
        .iter()
        .map(|(name, value)| Line { place: Spot::Typed, name: name.clone(), value: value.clone() })
        .collect();
    let (mut global, mut told, mut drafts) = (Draft::default(), Vec::new(), Vec::new());
    for Lines { name, options } in lines::sections(text, path)? {
        if name == "global" {
            global = global.with(&options, &mut told)?;
            continue;
        }
        if !chosen.sections.is_empty() && !chosen.sections.contains(&name) {
            continue;
        }
        let options: Vec<Line> = options.into_iter().chain(typed.iter().cloned()).collect();
        drafts.push(Draft { name, ..global.clone() }.with(&options, &mut told)?);
    }
    if let Some(missing) = chosen.sections.iter().find(|name| drafts.iter().all(|draft| draft.name != **name)) {
        return Err(format!("--section {missing}: there is no such section"));
    }
    if drafts.is_empty() {
        return Err("it has no job; write a section".to_owned());
    }
    Ok(JobFile { stages: stages(drafts)?, told })
}

/// Cut where a job begins only when those before it have ended.
fn stages(drafts: Vec<Draft>) -> std::result::Result<Vec<Vec<Draft>>, String> {
    let mut stages: Vec<Vec<Draft>> = Vec::new();
    for draft in drafts {
        let waits = match (&draft.wait_for, stages.last()) {
            (None, _) => draft.stonewall,
            (Some(name), Some(now)) if now.iter().all(|job| job.name == *name) => true,
            // It began with others that wait for the same.
            (Some(name), Some(now)) if now.iter().all(|job| job.wait_for.as_ref() == Some(name)) => false,
            (Some(name), _) => {
                return Err(format!(
                    "[{}] wait_for={name}: it would wait for a part of the jobs before it, which is not done here",
                    draft.name
                ));
            }
        };
        match stages.last_mut() {
            Some(stage) if !waits => stage.push(draft),
            _ => stages.push(vec![draft]),
        }
    }
    for (number, stage) in stages.iter().enumerate() {
        let ramps: Vec<u64> = stage.iter().map(Draft::ramp_ns).collect();
        if ramps.iter().any(|ramp| *ramp != ramps[0]) {
            return Err("ramp_time: jobs that run at once need the same".to_owned());
        }
        if stage.iter().any(|job| job.exitall && job.exits_all) && number + 1 < stages.len() {
            return Err(
                "exit_what=all: the jobs behind a stonewall would never run; leave them out with --section".to_owned()
            );
        }
    }
    Ok(stages)
}
