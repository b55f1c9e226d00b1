//! Which code waited for swap and was helped: by function, as the instruction of each fault tells.
//!
//! The instruction is looked up when it faults first, while the process lives, and its function's name when the run has ended.

use super::whereabouts::HelpedPlace;
use crate::watch::evidence::CodePlace;
use crate::watch::names::FunctionNames;
use crate::watch::stacks::code_place;
use majorfault::observe::places::Places;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Instructions of a process that are told apart at most.
const MOST: usize = 1024;

/// Instructions whose functions are named, those with the most waits.
const NAMED: usize = 256;

/// Functions that are told.
const TOLD: usize = 16;

/// Code from here on is the kernel's.
const KERNEL: u64 = 1 << 63;

/// Code of which a process faulted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallSite {
    /// In a file; the address is left out, which differs from process to process.
    File(CodePlace),
    /// The kernel's, within a system call.
    Kernel,
    /// In no file: made while the program ran.
    Made,
    /// Unknown, or one too many.
    Other,
}

/// What happened in all code, by process.
pub type SitesOfRun = HashMap<(String, CallSite), HelpedPlace>;

/// What happened in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionOfRun {
    /// The name of the process.
    pub process: String,
    /// The function's, or what is known instead.
    pub function: String,
    /// What happened there.
    pub place: HelpedPlace,
}

/// The code of one process, and what happened there.
#[derive(Debug)]
pub struct CallSites {
    places: Places,
    known: HashMap<u64, (CallSite, HelpedPlace)>,
    others: HelpedPlace,
}

impl CallSites {
    /// Of the process `pid`.
    pub fn of(pid: u32) -> CallSites {
        CallSites { places: Places::unread(pid), known: HashMap::new(), others: HelpedPlace::default() }
    }

    /// What happened where this instruction is.
    pub fn at(&mut self, instruction: u64) -> &mut HelpedPlace {
        if self.known.len() >= MOST && !self.known.contains_key(&instruction) {
            return &mut self.others;
        }
        let places = &mut self.places;
        &mut self.known.entry(instruction).or_insert_with(|| (site(instruction, places), HelpedPlace::default())).1
    }

    /// What happened, under the name of the process.
    pub fn tell(&self, process: &str, all: &mut SitesOfRun) {
        let others = (&CallSite::Other, &self.others);
        for (site, place) in self.known.values().map(|(site, place)| (site, place)).chain([others]) {
            if *place != HelpedPlace::default() {
                *all.entry((process.to_owned(), site.clone())).or_default() += *place;
            }
        }
    }
}

fn site(instruction: u64, places: &mut Places) -> CallSite {
    match code_place(instruction, places) {
        _ if instruction >= KERNEL => CallSite::Kernel,
        None => CallSite::Other,
        Some(CodePlace { file: None, .. }) => CallSite::Made,
        Some(CodePlace { file, .. }) => CallSite::File(CodePlace { address: 0, file }),
    }
}

/// The functions, those with the most waits first.
pub fn functions(all: &SitesOfRun) -> Vec<FunctionOfRun> {
    let mut sites: Vec<_> = all.iter().collect();
    sites.sort_by_key(|(_, place)| Reverse(place.waits()));
    let (mut names, mut sums) = (FunctionNames::default(), HashMap::new());
    for (rank, ((process, site), place)) in sites.into_iter().enumerate() {
        let function = if rank < NAMED { name(site, &mut names) } else { OTHER.to_owned() };
        *sums.entry((process.clone(), function)).or_insert_with(HelpedPlace::default) += *place;
    }
    let told = |((process, function), place)| FunctionOfRun { process, function, place };
    let mut functions: Vec<FunctionOfRun> = sums.into_iter().map(told).collect();
    functions.sort_by(|a, b| {
        (Reverse(a.place.waits()), &a.process, &a.function).cmp(&(Reverse(b.place.waits()), &b.process, &b.function))
    });
    functions.truncate(TOLD);
    functions
}

/// Code that is not told apart.
const OTHER: &str = "other code";

fn name(site: &CallSite, names: &mut FunctionNames) -> String {
    match site {
        // Whose process it was matters only where the file is reached by no path of ours.
        CallSite::File(place) => whole(names.name(0, place)),
        CallSite::Kernel => "the kernel, in a system call".to_owned(),
        CallSite::Made => "code made while it ran".to_owned(),
        CallSite::Other => OTHER.to_owned(),
    }
}

/// Code without a name is told by its file alone: its offsets would not be functions.
fn whole(name: String) -> String {
    match name.strip_prefix('[').and_then(|name| name.rsplit_once("+0x")) {
        Some((file, _)) => format!("{file} without symbols"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn reads_a_block() -> u64 {
        std::hint::black_box(7)
    }

    fn waits(sites: &mut CallSites, instruction: u64, times: u64) {
        (0..times).for_each(|_| sites.at(instruction).wait());
    }

    #[test]
    fn waits_are_told_by_function_the_most_first_and_instructions_of_one_are_added() {
        let here = reads_a_block as fn() -> u64 as usize as u64;
        let mut sites = CallSites::of(std::process::id());
        waits(&mut sites, KERNEL + 0x1000, 4);
        waits(&mut sites, here, 3);
        waits(&mut sites, here + 1, 2);
        waits(&mut sites, 1, 1);

        let mut all = SitesOfRun::new();
        sites.tell("program", &mut all);
        let told = functions(&all);

        assert!(told[0].function.contains("reads_a_block"), "{told:?}");
        let facts: Vec<(&str, u64)> = told.iter().map(|it| (it.process.as_str(), it.place.waits())).collect();
        assert_eq!(facts, [("program", 5), ("program", 4), ("program", 1)]);
        assert_eq!([told[1].function.as_str(), told[2].function.as_str()], ["the kernel, in a system call", OTHER]);
    }

    #[test]
    fn processes_of_one_name_are_added_though_their_code_lies_elsewhere() {
        let file = Some((majorfault::observe::places::FileId::default(), "/no/such/libx.so".to_owned(), 0x1f0));
        let place = HelpedPlace { waits_before: 1, ..HelpedPlace::default() };
        let one = |address| {
            let site = CallSite::File(CodePlace { address: 0, file: file.clone() });
            CallSites { known: [(address, (site, place))].into(), ..CallSites::of(1) }
        };
        let mut all = SitesOfRun::new();

        one(0x1000).tell("worker", &mut all);
        one(0x2000).tell("worker", &mut all);

        let told = functions(&all);
        assert_eq!((told.len(), told[0].place.waits()), (1, 2));
        assert_eq!(told[0].function, "libx.so without symbols");
    }

    #[test]
    fn instructions_beyond_those_told_apart_are_other_code() {
        let mut sites = CallSites::of(u32::MAX / 4);
        (0..MOST as u64 + 5).for_each(|at| waits(&mut sites, 0x10_0000 + at, 1));

        assert_eq!((sites.known.len(), sites.others.waits()), (MOST, 5));
        waits(&mut sites, 0x10_0000, 1);
        assert_eq!(sites.others.waits(), 5, "one that is known stays known");
    }
}
