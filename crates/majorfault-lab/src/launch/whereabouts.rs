//! Where a program waited for swap and was helped: by mapping, as `[heap]` or an anonymous mapping of some size.
//!
//! Mappings are looked up when something happens in one that is not known, and not more often than some times a second: a process that
//! maps and unmaps all the time is told as a whole.

use super::streams::Advised;
use super::supervisor::Supervised;
use majorfault::sys::clock::monotonic;
use majorfault::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

/// Between two looks at the mappings of a process.
const EVERY: Nanos = Nanos(20_000_000);

/// Places that are told apart at most.
const MOST: usize = 64;

/// What happened in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelpedPlace {
    /// Faults there that waited before anything was read in ahead.
    pub waits_before: u64,
    /// And since.
    pub waits_after: u64,
    /// What was done there, in pages.
    pub advised: Advised,
}

impl HelpedPlace {
    /// A fault there has waited.
    pub fn wait(&mut self) {
        if self.advised.fetched == 0 { self.waits_before += 1 } else { self.waits_after += 1 }
    }

    /// Faults there that waited.
    pub fn waits(self) -> u64 {
        self.waits_before + self.waits_after
    }
}

impl std::ops::AddAssign for HelpedPlace {
    fn add_assign(&mut self, other: HelpedPlace) {
        self.waits_before += other.waits_before;
        self.waits_after += other.waits_after;
        self.advised += other.advised;
    }
}

/// What happened in all places, by process and mapping.
pub type PlacesOfRun = BTreeMap<(String, String), HelpedPlace>;

/// The mappings of one process, and what happened there.
#[derive(Debug, Default)]
pub struct Whereabouts {
    known: Vec<(Range<u64>, String)>,
    looked: Option<Nanos>,
    places: BTreeMap<String, HelpedPlace>,
}

impl Whereabouts {
    /// A fault of the process `pid` at the byte `address` has waited.
    pub fn waited(&mut self, pid: u32, address: u64) {
        self.place(pid, address).wait();
    }

    /// Something was done after a fault of the process `pid` at the byte `address`.
    pub fn advised(&mut self, pid: u32, address: u64, done: Advised) {
        self.place(pid, address).advised += done;
    }

    fn place(&mut self, pid: u32, address: u64) -> &mut HelpedPlace {
        let name = self.name(pid, address);
        let is_known = self.places.contains_key(&name);
        let name = if is_known || self.places.len() < MOST { name } else { OTHERS.to_owned() };
        self.places.entry(name).or_default()
    }

    fn name(&mut self, pid: u32, address: u64) -> String {
        let found = |known: &[(Range<u64>, String)]| {
            known.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.clone())
        };
        if let Some(name) = found(&self.known) {
            return name;
        }
        let now = monotonic();
        if self.looked.is_none_or(|looked| now.0 - looked.0 >= EVERY.0) {
            self.looked = Some(now);
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            self.known = mappings(&maps);
        }
        found(&self.known).unwrap_or_else(|| OTHERS.to_owned())
    }

    /// What happened, under the name of the process.
    pub fn tell(&self, process: &str, all: &mut PlacesOfRun) {
        for (name, place) in &self.places {
            *all.entry((process.to_owned(), name.clone())).or_default() += *place;
        }
    }
}

impl Supervised {
    /// The places by process and mapping, those with the most waits first.
    pub fn by_waits(&self) -> Vec<(&str, &str, HelpedPlace)> {
        let mut places: Vec<_> =
            self.places.iter().map(|(name, place)| (name.0.as_str(), name.1.as_str(), *place)).collect();
        places.sort_by_key(|(.., place)| std::cmp::Reverse(place.waits()));
        places
    }
}

/// What is not known by its mapping.
const OTHERS: &str = "other mappings";

/// The ranges of /proc/PID/maps with their names.
fn mappings(text: &str) -> Vec<(Range<u64>, String)> {
    let mapping = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let range = u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?;
        let name = fields.skip(4).collect::<Vec<_>>().join(" ");
        let size = Bytes(range.end - range.start).rounded();
        Some((range, if name.is_empty() { format!("anonymous mapping of {size}") } else { name }))
    };
    text.lines().filter_map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.18.
    const MAPS: &str = "\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
7f2a10000000-7f2a14000000 rw-p 00000000 00:00 0
7f2a20000000-7f2a20100000 r--p 00001000 fe:00 12345                      /data/a file.db
";

    #[test]
    fn mappings_have_their_names_and_anonymous_ones_their_size() {
        let names: Vec<String> = mappings(MAPS).into_iter().map(|(_, name)| name).collect();

        assert_eq!(names, ["[heap]", "anonymous mapping of 64.0 MiB", "/data/a file.db"]);
    }

    #[test]
    fn waits_are_told_before_and_after_the_first_help_of_their_place() {
        let mut here = Whereabouts { known: mappings(MAPS), ..Whereabouts::default() };
        let fetched = Advised { fetched: 8, ..Advised::default() };
        let (heap, block) = (0x55d0_c0a0_0000, 0x7f2a_1000_0000);

        here.waited(1, heap);
        here.waited(1, block);
        here.advised(1, block, fetched);
        here.waited(1, block);
        here.waited(1, block + 4096);

        let mut all = PlacesOfRun::new();
        here.tell("program", &mut all);
        let of = |name: &str| all[&("program".to_owned(), name.to_owned())];
        assert_eq!(of("[heap]"), HelpedPlace { waits_before: 1, ..HelpedPlace::default() });
        let block = of("anonymous mapping of 64.0 MiB");
        assert_eq!((block.waits_before, block.waits_after, block.advised), (1, 2, fetched));
    }

    #[test]
    fn an_address_of_this_process_is_found_and_one_that_is_nowhere_is_told_as_such() {
        let (pid, block) = (std::process::id(), vec![0u8; 1 << 20]);
        let mut here = Whereabouts::default();

        assert!(here.name(pid, block.as_ptr() as u64) != OTHERS);
        assert_eq!(here.name(pid, 1), OTHERS);
    }
}
