//! What guest and host say to each other: one order, in a file of the archive; then lines of JSON from the guest.

use serde::{Deserialize, Serialize};

/// Where the order lies in the guest.
pub const ORDER: &str = "/order.json";

/// Where modules lie in the guest, to be loaded in the order of their names.
pub const MODULES: &str = "/modules";

/// Where files lie that the user brought.
pub const BROUGHT: &str = "/brought";

/// Name of the virtio port that lines are sent through.
pub const PORT: &str = "majorfault";

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// Arguments for our own program.
    pub arguments: Vec<String>,
    /// File systems to mount, in order: device, type, options, where.
    pub mounts: Vec<Mount>,
    /// The device to swap to.
    #[serde(default)]
    pub swap: Option<String>,
    /// Where the program is to write its records.
    pub records: String,
}

/// One file system to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The device's file, and the option of the kernel that drives it.
    pub device: (String, String),
    /// Type of the file system.
    pub kind: String,
    /// Its options.
    pub options: String,
    /// Where it is mounted.
    pub at: String,
    /// What is done before.
    #[serde(default)]
    pub before: Vec<Step>,
}

impl Mount {
    /// A file system of a kind, mounted with options at a directory.
    pub fn of(device: (String, String), kind: &str, options: &str, at: &str) -> Mount {
        let [kind, options, at] = [kind, options, at].map(str::to_owned);
        Mount { device, kind, options, at, before: Vec::new() }
    }

    /// The same after these steps.
    pub fn after(self, steps: impl IntoIterator<Item = Step>) -> Mount {
        Mount { before: steps.into_iter().collect(), ..self }
    }
}

/// Something that the first process does before it mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Make this directory and those above it.
    Directory(String),
    /// Write this text into a file.
    Write(String, String),
    /// Run a program to its end.
    Run(Vec<String>),
    /// Wait so many seconds.
    Sleep(u64),
}

impl Step {
    /// A program with its arguments.
    pub fn run(words: &[&str]) -> Step {
        Step::Run(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// The same, of a line without quotes.
    pub fn words(line: &str) -> Step {
        Step::run(&line.split(' ').collect::<Vec<_>>())
    }

    /// A text into a file.
    pub fn write(path: &str, text: &str) -> Step {
        Step::Write(path.to_owned(), text.to_owned())
    }
}

/// One line from the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuest {
    /// The first process runs; the kernel's release. FromGuest on by the host with its remark on the place.
    Ready(String),
    /// A line of the program's standard output.
    Out(String),
    /// A line of its standard error.
    Err(String),
    /// A record, as the program wrote it.
    Record(String),
    /// Nothing new; the guest lives.
    Alive,
    /// The guest cannot do its order: what it lacks.
    Lacks(String),
    /// The program ended with this exit code.
    Ended(u8),
    /// The kernel warned on its console: a lock taken in the wrong order, memory used that is freed, a failed assertion. From
    /// the host, which reads the console when the program has ended.
    Complaint(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_from_the_guest_is_one_line_whatever_is_in_it() {
        let told = FromGuest::Out("a \"b\"\n\u{1b}[1m".to_owned());

        let line = serde_json::to_string(&told).unwrap();

        assert_eq!(line, r#"{"out":"a \"b\"\n\u001b[1m"}"#);
        assert_eq!(serde_json::from_str::<FromGuest>(&line).unwrap(), told);
    }
}
