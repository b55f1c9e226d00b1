//! From an address of another process to its file and offset, at the time when it was touched.
//!
//! Mappings are known from /proc/PID/maps, and from the records of new mappings, in the order of the events: a process that ended before
//! anybody could look at it has its faults placed like any other. What /proc does not show any more and no record
//! tells is a mapping that was removed; its range is taken for mapped until something else is mapped there, or /proc is read again.

use super::sampler::Mapped;
use crate::proc::maps::{self, Vma};
use crate::sys::clock::monotonic;
use crate::units::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// A reading that took a certain time is repeated only after fifty times that time: at most 2 % of a processor. A process with
/// 60 000 mappings takes some 30 ms to read.
const SHARE: u64 = 50;

/// The most mappings noted between two readings; beyond that all are forgotten that a reading shows.
const NOTED: usize = 1 << 16;

/// A file, whatever its names: its identity stays the same through rename and unlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Major and minor number of the device, as /proc/PID/maps has it (on some file systems stat(2) shows another).
    pub device: (u32, u32),
    /// Inode.
    pub inode: u64,
}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a mapped file, at this offset.
    File(FileId, u64),
    /// In anonymous memory: heap, stack, private pages without a file.
    Anonymous,
    /// In no mapping that is known (any more).
    Unknown,
}

/// The mappings of a process, kept up to date.
#[derive(Clone, Debug)]
pub struct Places {
    pid: u32,
    vmas: Vec<Vma>,
    /// When reading them began; zero where they were not read, or are of the program before an exec.
    read_at: Nanos,
    /// When it ended. What they were at a time between is not known from the reading.
    read_until: Nanos,
    /// Mappings that were reported, by address; none covers a part of another.
    noted: BTreeMap<u64, Mapped>,
    paths: HashMap<FileId, String>,
    not_before: Nanos,
}

impl Places {
    /// Reads the mappings of `pid`.
    ///
    /// Errors: Io (gone, not permitted).
    pub fn of(pid: u32) -> io::Result<Places> {
        let mut places = Places::unread(pid);
        places.read()?;
        Ok(places)
    }

    /// The mappings of a process all of which will be [noted](Places::note), as those of a program that is yet to start.
    pub fn unread(pid: u32) -> Places {
        Places {
            pid,
            vmas: Vec::new(),
            read_at: Nanos(0),
            read_until: Nanos(0),
            noted: BTreeMap::new(),
            paths: HashMap::new(),
            not_before: Nanos(0),
        }
    }

    /// The mappings of the process `pid` that this one forked at that time: those of then, as far as they are known.
    pub fn forked(&self, pid: u32, at: Nanos) -> Places {
        let noted = self.noted.iter().filter(|(_, mapped)| mapped.at <= at);
        Places {
            pid,
            vmas: self.vmas.clone(),
            // Read later, they still say nothing of what the child did since.
            read_at: self.read_at.min(at),
            read_until: self.read_until.min(at),
            noted: noted.map(|(address, mapped)| (*address, mapped.clone())).collect(),
            paths: self.paths.clone(),
            not_before: Nanos(0),
        }
    }

    /// The process became another program at that time: its mappings are gone.
    pub fn execute(&mut self, at: Nanos) {
        self.noted.retain(|_, mapped| mapped.at > at);
        // They may have been read after it already.
        if self.read_at <= at {
            self.vmas.clear();
            (self.read_at, self.read_until) = (Nanos(0), Nanos(0));
            self.not_before = Nanos(0);
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let began = monotonic();
        // A path need not be UTF-8.
        let text = String::from_utf8_lossy(&std::fs::read(format!("/proc/{}/maps", self.pid))?).into_owned();
        let vmas = maps::all(&text);
        let ended = monotonic();
        self.not_before = Nanos(ended.0 + (ended.0 - began.0) * SHARE);
        // A process that is ending shows no mappings; what was read before stays true for the faults seen.
        if vmas.is_empty() {
            return Ok(());
        }
        for vma in vmas.iter().filter(|vma| vma.is_file()) {
            self.paths.insert(FileId { device: vma.device, inode: vma.inode }, vma.path.clone());
        }
        self.vmas = vmas;
        (self.read_at, self.read_until) = (began, ended);
        Ok(())
    }

    /// Reads the mappings again, unless the last reading was so recent that this would cost more than 2 % of the time.
    pub fn refresh(&mut self) {
        if monotonic() >= self.not_before {
            // The process is gone: the last reading stays.
            let _ = self.read();
        }
    }

    /// Notes a mapping that the sampler reported.
    pub fn note(&mut self, mapped: Mapped) {
        if mapped.process != self.pid {
            return;
        }
        if mapped.inode != 0 {
            let file = FileId { device: mapped.device, inode: mapped.inode };
            self.paths.entry(file).or_insert_with(|| mapped.path.clone());
        }
        if self.noted.len() >= NOTED {
            self.refresh();
            let read_at = self.read_at;
            self.noted.retain(|_, mapped| mapped.at >= read_at);
        }
        if self.noted.len() < 2 * NOTED {
            self.make_room(&mapped);
            self.noted.insert(mapped.address, mapped);
        }
    }

    /// Takes the range of a new mapping away from those noted before.
    fn make_room(&mut self, new: &Mapped) {
        let end = new.address.saturating_add(new.length);
        let covered: Vec<u64> = self.noted.range(new.address..end).map(|(address, _)| *address).collect();
        let before = self.noted.range(..new.address).next_back().map(|(address, _)| *address);
        for address in before.into_iter().chain(covered) {
            let Some(mut old) = self.noted.remove(&address) else { continue };
            let old_end = old.address.saturating_add(old.length);
            if old_end > end {
                let cut = end - old.address;
                let rest = Mapped { address: end, length: old.length - cut, offset: old.offset + cut, ..old.clone() };
                self.noted.insert(end, rest);
            }
            old.length = old_end.min(new.address).saturating_sub(old.address);
            if old.length > 0 {
                self.noted.insert(address, old);
            }
        }
    }

    /// Finds what `address` belongs to now. Reads the mappings again where it is in no known mapping.
    pub fn locate(&mut self, address: u64) -> Place {
        self.locate_at(address, Nanos(u64::MAX))
    }

    /// Finds what `address` belonged to at that time; see [`locate`](Places::locate).
    pub fn locate_at(&mut self, address: u64, at: Nanos) -> Place {
        match self.find(address, at) {
            Place::Unknown => {
                self.refresh();
                self.find(address, at)
            }
            place => place,
        }
    }

    fn find(&self, address: u64, at: Nanos) -> Place {
        let noted = self.noted.range(..=address).next_back().map(|(_, mapped)| mapped);
        let noted = noted.filter(|mapped| address - mapped.address < mapped.length);
        let place_of = |mapped: &Mapped| match mapped.inode {
            0 => Place::Anonymous,
            inode => Place::File(FileId { device: mapped.device, inode }, mapped.offset + (address - mapped.address)),
        };
        // What was read is newer than what was noted before; for an event before the end of the reading it may be too new.
        match (noted, self.read_place(address)) {
            (Some(mapped), _) if mapped.at >= self.read_at || at <= self.read_until => place_of(mapped),
            (_, place) => place,
        }
    }

    /// What the address belonged to when the mappings were read.
    fn read_place(&self, address: u64) -> Place {
        let after = self.vmas.partition_point(|vma| vma.start <= address);
        match after.checked_sub(1).map(|index| &self.vmas[index]).filter(|vma| address < vma.end) {
            None => Place::Unknown,
            Some(vma) if vma.is_file() => Place::File(
                FileId { device: vma.device, inode: vma.inode },
                vma.offset.saturating_add(address - vma.start),
            ),
            Some(_) => Place::Anonymous,
        }
    }

    /// The mappings at the last reading.
    pub fn mappings(&self) -> &[Vma] {
        &self.vmas
    }

    /// How far into a file its mappings reach, in bytes; 0 where none is known.
    pub fn reach(&self, file: FileId) -> u64 {
        let is_meant = |device, inode| FileId { device, inode } == file;
        let read = self.vmas.iter().filter(|vma| is_meant(vma.device, vma.inode)).map(|vma| vma.offset + vma.len());
        let noted = self.noted.values().filter(|it| is_meant(it.device, it.inode)).map(|it| it.offset + it.length);
        read.chain(noted).max().unwrap_or(0)
    }

    /// The path of a file that was mapped at any time.
    pub fn path(&self, file: FileId) -> Option<&str> {
        self.paths.get(&file).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::{MapOptions, Mapping};
    use crate::test_files::{PAGE, TestFile};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_address_in_a_mapped_file_is_its_offset_even_without_a_name() {
        let file = TestFile::on_disk(16 * PAGE);
        let mapping = Mapping::new(file.file(), 4 * PAGE as u64, 8 * PAGE, &MapOptions::default()).unwrap();
        std::fs::remove_file(file.path()).unwrap();
        let mut places = Places::of(std::process::id()).unwrap();

        let Place::File(id, offset) = places.locate(mapping.as_ptr() as u64 + 5000) else { panic!("no file") };

        assert_eq!((id.inode, offset), (file.file().metadata().unwrap().ino(), 4 * PAGE as u64 + 5000));
        assert_eq!(places.path(id), file.path().to_str());
    }

    #[test]
    fn a_mapping_made_later_is_found_by_looking_again_or_by_being_noted() {
        let mut places = Places::of(std::process::id()).unwrap();
        places.vmas.clear();
        places.not_before = Nanos(0);
        let local = [0u8; 16];

        assert_eq!(places.locate(local.as_ptr() as u64), Place::Anonymous);
        places.note(mapped(monotonic().0, 0x10_0000, 0x1000, 7));
        assert_eq!(places.locate(0x10_0010), of(7, 0x3010));
    }

    /// A mapping of the file with this inode from offset 0x3000 on.
    fn mapped(at: u64, address: u64, length: u64, inode: u64) -> Mapped {
        let (process, device, path) = (std::process::id(), (8, 1), format!("/{inode}"));
        Mapped { process, at: Nanos(at), address, length, offset: 0x3000, device, inode, path }
    }

    fn of(inode: u64, offset: u64) -> Place {
        Place::File(FileId { device: (8, 1), inode }, offset)
    }

    #[test]
    fn a_new_mapping_takes_its_range_from_the_one_it_covers() {
        let mut places = Places::unread(std::process::id());

        places.note(mapped(1, 0x10_0000, 0x4000, 7));
        places.note(mapped(2, 0x10_1000, 0x1000, 8));
        places.note(mapped(3, 0x10_3000, 0x2000, 0));

        let at = |address| places.find(address, Nanos(9));
        assert_eq!([0x10_0fff, 0x10_1000, 0x10_2000].map(at), [of(7, 0x3fff), of(8, 0x3000), of(7, 0x5000)]);
        assert_eq!([0x10_3000, 0x10_4fff, 0x10_5000].map(at), [Place::Anonymous, Place::Anonymous, Place::Unknown]);
    }

    #[test]
    fn mappings_tell_how_far_they_reach_into_a_file_that_is_gone() {
        let mut places = Places::unread(std::process::id());

        places.note(mapped(1, 0x10_0000, 0x4000, 7));
        places.note(mapped(2, 0x20_0000, 0x1000, 7));

        let id = |inode| FileId { device: (8, 1), inode };
        assert_eq!([places.reach(id(7)), places.reach(id(8))], [0x7000, 0]);
    }

    #[test]
    fn a_fault_is_of_what_was_mapped_when_it_happened() {
        let mut places = Places::of(std::process::id()).unwrap();
        let read_at = places.read_at.0;
        let local = [0u8; 16];
        let here = local.as_ptr() as u64;

        places.note(mapped(read_at - 10, here & !0xfff, 0x1000, 7));

        let read_until = places.read_until.0;
        assert_eq!(places.find(here, Nanos(read_at - 5)), of(7, 0x3000 + here % 4096));
        assert_eq!(places.find(here, Nanos(read_until)), of(7, 0x3000 + here % 4096), "read perhaps after the fault");
        assert_eq!(places.find(here, Nanos(read_until + 1)), Place::Anonymous);
        places.note(mapped(read_at + 10, here & !0xfff, 0x1000, 8));
        assert_eq!(places.find(here, Nanos(read_until + 1)), of(8, 0x3000 + here % 4096));
    }

    #[test]
    fn a_child_has_its_parents_mappings_until_it_becomes_another_program() {
        let mut parent = Places::unread(std::process::id());
        parent.note(mapped(1, 0x10_0000, 0x1000, 7));

        let mut child = parent.forked(std::process::id(), Nanos(2));
        assert_eq!(child.find(0x10_0000, Nanos(2)), of(7, 0x3000));
        child.note(mapped(4, 0x20_0000, 0x1000, 8));
        child.execute(Nanos(3));

        assert_eq!([0x10_0000, 0x20_0000].map(|at| child.find(at, Nanos(5))), [Place::Unknown, of(8, 0x3000)]);
        assert_eq!(parent.find(0x10_0000, Nanos(5)), of(7, 0x3000));
    }

    #[test]
    fn what_was_read_of_the_parent_after_the_fork_is_not_the_childs() {
        let mut parent = Places::of(std::process::id()).unwrap();
        let local = [0u8; 16];
        let (here, read_at) = (local.as_ptr() as u64, parent.read_at.0);
        parent.note(mapped(read_at - 1, 0x10_0000, 0x1000, 7));

        let mut child = parent.forked(std::process::id(), Nanos(read_at - 3));
        assert_eq!(child.find(0x10_0000, Nanos(read_at)), Place::Unknown, "mapped by the parent after the fork");
        child.execute(Nanos(read_at - 2));

        assert_eq!(child.find(here, Nanos(read_at)), Place::Unknown, "the parent's memory, not the new program's");
    }

    #[test]
    fn what_was_read_after_an_exec_stays() {
        let mut places = Places::of(std::process::id()).unwrap();
        let local = [0u8; 16];

        places.execute(Nanos(places.read_at.0 - 1));
        assert_eq!(places.find(local.as_ptr() as u64, Nanos(u64::MAX)), Place::Anonymous);
        places.execute(Nanos(places.read_at.0 + 1));
        assert_eq!(places.find(local.as_ptr() as u64, Nanos(u64::MAX)), Place::Unknown);
    }
}
