//! The processes to watch: one that runs, with those that it has started; one that we start, seen from its first instruction on; or those
//! of a group, or listed ones.

use super::members::Members;
use super::{check, closed, raise_descriptor_limit};
use majorfault::observe::places::Places;
use majorfault::observe::sampler::{Sampler, Stacks};
use majorfault::{Missing, Result};
use std::collections::{HashMap, HashSet};
use std::fs;

/// The processes to watch, and how to see them.
pub struct WatchTarget {
    whom: Whom,
    tree: bool,
    stacks: Stacks,
}

enum Whom {
    Running(u32),
    /// With its sampler.
    Started(u32, Box<std::result::Result<Sampler, Missing>>),
    Group(Members),
    /// Those that the list has now and later.
    Listed(Vec<u32>),
}

/// How the sampler of a first process is opened.
type Open<'o> = dyn Fn(u32) -> std::result::Result<Sampler, Missing> + 'o;

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
    pub fn here(stacks: Stacks) -> Prepared {
        raise_descriptor_limit();
        Prepared(Sampler::of_started(stacks))
    }

    /// The program was started as process `pid`.
    pub fn started(self, pid: u32) -> WatchTarget {
        WatchTarget::of(Whom::Started(pid, Box::new(self.0)))
    }
}

impl WatchTarget {
    fn of(whom: Whom) -> WatchTarget {
        WatchTarget { whom, tree: true, stacks: Stacks::LeftOut }
    }

    /// Process `pid`, which runs already, with those that it has started and will start.
    pub fn running(pid: u32) -> WatchTarget {
        WatchTarget::of(Whom::Running(pid))
    }

    /// The processes of a group, also those that join it later.
    pub fn group(members: Members) -> WatchTarget {
        WatchTarget::of(Whom::Group(members))
    }

    /// These processes, with those that they start from now on.
    pub fn listed(pids: Vec<u32>) -> WatchTarget {
        WatchTarget::of(Whom::Listed(pids))
    }

    /// The same with or without the processes that it starts.
    pub fn with_tree(self, tree: bool) -> WatchTarget {
        WatchTarget { tree, ..self }
    }

    /// The same with the stacks of calls; of a program that is started for the watch [`Prepared::here`] decides.
    pub fn with_stacks(self, stacks: Stacks) -> WatchTarget {
        WatchTarget { stacks, ..self }
    }

    /// Whether the processes that it has started and starts are watched as well.
    pub fn has_tree(&self) -> bool {
        self.tree
    }

    /// Whether it is started for the watch.
    pub fn is_started(&self) -> bool {
        matches!(self.whom, Whom::Started(..))
    }

    /// The process that was named or started; none for several.
    pub fn named(&self) -> Option<u32> {
        match &self.whom {
            Whom::Running(pid) | Whom::Started(pid, _) => Some(*pid),
            Whom::Group(_) | Whom::Listed(_) => None,
        }
    }

    /// The group, whose processes come and go.
    pub fn members(&self) -> Option<Members> {
        match &self.whom {
            Whom::Group(members) => Some(members.clone()),
            _ => None,
        }
    }

    /// Follows all faults of its processes.
    ///
    /// Errors: Invalid (no such process, a thread, a kernel thread), Missing (another user's; no rights to sample).
    pub fn follow(self) -> Result<Following> {
        self.follow_by(&Sampler::open)
    }

    /// Follows the faults of its processes as far as that costs them at most `share` of their time. Those that run already are followed
    /// after [`Sampler::begin`].
    ///
    /// Errors: as [`follow`](Self::follow).
    pub fn follow_sparingly(self, share: f64) -> Result<Following> {
        let is_started = self.is_started();
        let stacks = self.stacks;
        let mut following = self.follow_by(&|pid| Sampler::open_held(pid, share, stacks))?;
        if is_started {
            following.sampler.pace(share);
        }
        Ok(following)
    }

    fn follow_by(self, open: &Open<'_>) -> Result<Following> {
        match self.whom {
            Whom::Started(pid, sampler) => started(pid, (*sampler)?),
            Whom::Running(pid) => running(pid, self.tree, open),
            Whom::Group(members) => several(|| members.pids(), open),
            Whom::Listed(pids) => several(|| pids.clone(), open),
        }
    }
}

/// A process that was started for the watch: all its mappings will be reported.
fn started(pid: u32, sampler: Sampler) -> Result<Following> {
    Ok(Following { sampler, places: HashMap::from([(pid, Places::unread(pid))]), refused: 0 })
}

/// Follows the processes of a list that may grow.
fn several(list: impl Fn() -> Vec<u32>, open: &Open<'_>) -> Result<Following> {
    raise_descriptor_limit();
    let (mut sampler, mut refusal) = (None, None);
    for pid in list() {
        match open(pid) {
            Ok(opened) => {
                sampler = Some(opened);
                break;
            }
            Err(missing) => refusal = refusal.or(Some(missing)),
        }
    }
    let Some(sampler) = sampler else {
        let gone = || Missing::new("processes", "none of them runs", "");
        return Err(refusal.unwrap_or_else(gone).into());
    };
    let mut following = Following { sampler, places: HashMap::new(), refused: 0 };
    following.add_all(list);
    Ok(following)
}

/// Follows a process that runs.
fn running(pid: u32, tree: bool, open: &Open<'_>) -> Result<Following> {
    check(pid)?;
    let places = Places::of(pid).map_err(|error| closed(pid, &error))?;
    raise_descriptor_limit();
    let sampler = open(pid)?;
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
