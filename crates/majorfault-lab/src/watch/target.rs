//! The processes to watch: one that runs, with those that it has started, or one that we start, seen from its first instruction on.

use super::{check, closed, raise_descriptor_limit};
use majorfault::observe::places::Places;
use majorfault::observe::sampler::Sampler;
use majorfault::{Missing, Result};
use std::collections::{HashMap, HashSet};
use std::fs;

/// A process, and how to see it.
pub struct WatchTarget {
    /// Its number.
    pub pid: u32,
    /// Whether the processes that it has started and starts are watched as well.
    pub tree: bool,
    /// Its sampler, where it was started for the watch.
    begun: Option<std::result::Result<Sampler, Missing>>,
}

/// What is ready before a program is started, by the thread that will start it.
pub struct Prepared(std::result::Result<Sampler, Missing>);

/// Processes with their mappings, and the sampler of their faults.
pub struct Following {
    /// The sampler.
    pub sampler: Sampler,
    /// The mappings of each process.
    pub places: HashMap<u32, Places>,
    /// Processes that could not be followed: another user's, or ended before.
    pub refused: usize,
}

impl Prepared {
    /// Makes ready for a program that the calling thread starts next. The calling thread must live as long as the watch.
    pub fn new() -> Prepared {
        raise_descriptor_limit();
        Prepared(Sampler::of_started())
    }

    /// The program was started as process `pid`.
    pub fn started(self, pid: u32) -> WatchTarget {
        WatchTarget { pid, tree: true, begun: Some(self.0) }
    }
}

impl WatchTarget {
    /// Process `pid`, which runs already, with those that it has started and will start.
    pub fn running(pid: u32) -> WatchTarget {
        WatchTarget { pid, tree: true, begun: None }
    }

    /// The same with or without the processes that it starts.
    pub fn with_tree(self, tree: bool) -> WatchTarget {
        WatchTarget { tree, ..self }
    }

    /// The process that was named.
    pub fn named(&self) -> Option<u32> {
        Some(self.pid)
    }

    /// Who belongs to it later, where that is not told by the sampler.
    pub fn members(&self) -> Option<Box<dyn Fn() -> Vec<u32>>> {
        None
    }

    /// Follows its processes.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread), Missing (another user's; no rights to sample).
    pub fn follow(self) -> Result<Following> {
        let pid = self.pid;
        match self.begun {
            // All its mappings will be reported.
            Some(sampler) => {
                Ok(Following { sampler: sampler?, places: HashMap::from([(pid, Places::unread(pid))]), refused: 0 })
            }
            None => running(pid, self.tree),
        }
    }
}

/// Follows a process that runs.
fn running(pid: u32, tree: bool) -> Result<Following> {
    check(pid)?;
    let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
    raise_descriptor_limit();
    let sampler = Sampler::open(pid)?;
    let mut followed = Following { sampler, places: HashMap::from([(pid, places)]), refused: 0 };
    if tree {
        followed.add_all(|| descendants(pid));
    }
    Ok(followed)
}

impl Following {
    /// Follows the listed processes; lists again until there is no new one, because processes start meanwhile.
    pub fn add_all(&mut self, list: impl Fn() -> Vec<u32>) {
        let mut seen: HashSet<u32> = self.places.keys().copied().collect();
        loop {
            let new: Vec<u32> = list().into_iter().filter(|pid| seen.insert(*pid)).collect();
            if new.is_empty() {
                return;
            }
            for pid in new {
                self.refused += usize::from(!self.add(pid));
            }
        }
    }

    /// Follows a process; whether that is possible, or needless because it has ended.
    pub fn add(&mut self, pid: u32) -> bool {
        if self.sampler.add(pid).is_err() {
            return super::has_ended(pid);
        }
        match Places::of(pid) {
            Ok(places) => drop(self.places.insert(pid, places)),
            Err(_) => return super::has_ended(pid),
        }
        true
    }
}

/// The processes that `pid` has started, and those that they have started.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for child in processes() {
        if let Some(parent) = parent(child) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found
}

/// The numbers of all processes.
pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Field 4 of /proc/PID/stat.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn grandchildren_are_descendants_and_strangers_are_not() {
        let script = "sleep 100 & echo $!; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let sleeper: u32 = line.trim().parse().unwrap();

        let found = descendants(std::process::id());

        assert!(found.contains(&shell.id()) && found.contains(&sleeper), "{found:?}");
        assert!(!found.contains(&std::process::id()) && !found.contains(&1));
        assert_eq!(descendants(shell.id()), [sleeper]);
        Command::new("kill").arg(sleeper.to_string()).status().unwrap();
        shell.wait().unwrap();
    }
}
