//! The sections of a job file with their options, each with the line where it stands.
//!
//! Read by an INI reader; before it sees them, lines lose what follows `;` or `#`, wherever it stands, as in fio.

use ini_core::{Item, Parser};
use std::fmt;
use std::path::{Path, PathBuf};

/// How deep files may take in others.
const DEEPEST: usize = 8;

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Its name; `global` for what holds for those after it.
    pub name: String,
    /// Its options, in order.
    pub options: Vec<Line>,
}

/// An option as it stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where.
    pub place: Spot,
    /// The option's name.
    pub name: String,
    /// What follows the equals sign, blanks included; none without one.
    pub value: Option<String>,
}

/// Where an option stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// In this line of the file, counted from 1, in the section of this name.
    In {
        /// The line.
        line: u32,
        /// The section.
        section: String,
        /// The file that was taken in, where it is not the job file itself.
        included: Option<PathBuf>,
    },
    /// On our own command line.
    Typed,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::In { line, section, included } => {
                let file = included.as_ref().map(|path| format!("{} ", path.display())).unwrap_or_default();
                write!(f, "{file}line {line} [{section}]")
            }
            Spot::Typed => f.write_str("on the command line"),
        }
    }
}

/// The sections of `text`, whose `include` lines name files beside `path`.
///
/// Errors: a sentence with the line.
pub fn sections(text: &str, path: &Path) -> Result<Vec<Lines>, String> {
    let mut sections = Vec::new();
    read_into(&mut sections, text, path, None, 0)?;
    Ok(sections)
}

fn read_into(
    sections: &mut Vec<Lines>,
    text: &str,
    path: &Path,
    included: Option<&Path>,
    depth: usize,
) -> Result<(), String> {
    for (number, line) in (1..).zip(text.lines()) {
        // One line at a time, so that the reader's items have their lines.
        let code = line.split([';', '#']).next().unwrap_or_default().trim();
        let spot = |section: &str| Spot::In {
            line: number,
            section: section.to_owned(),
            included: included.map(Path::to_owned),
        };
        for item in Parser::new(code).auto_trim(false) {
            match item {
                Item::Section(name) => sections.push(Lines { name: name.to_owned(), options: Vec::new() }),
                Item::Property(name, None) if name.trim_start().starts_with("include ") => {
                    include(sections, name.trim_start()[8..].trim(), path, depth)
                        .map_err(|why| format!("line {number}: {why}"))?;
                }
                Item::Property(name, value) => {
                    let Some(section) = sections.last_mut() else {
                        return Err(format!(
                            "line {number}: there are options before the first section; begin with [global] or a job"
                        ));
                    };
                    let place = spot(&section.name);
                    section.options.push(Line { place, name: name.to_owned(), value: value.map(str::to_owned) });
                }
                Item::Error(text) => return Err(format!("line {number}: \"{text}\" is no section and no option")),
                Item::Comment(_) | Item::Blank | Item::SectionEnd => {}
            }
        }
    }
    Ok(())
}

fn include(sections: &mut Vec<Lines>, name: &str, path: &Path, depth: usize) -> Result<(), String> {
    if depth >= DEEPEST {
        return Err(format!("include {name}: files take in each other more than {DEEPEST} deep"));
    }
    let beside = path.parent().unwrap_or(Path::new("")).join(name);
    let text = std::fs::read_to_string(&beside).map_err(|why| format!("include {}: {why}", beside.display()))?;
    read_into(sections, &text, &beside, Some(&beside), depth + 1)
}
