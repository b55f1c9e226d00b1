//! From an address of another process to its file and offset.

use super::sampler::Mapped;
use crate::proc::maps::{self, Vma};
use crate::sys::clock::monotonic;
use crate::units::Nanos;
use std::collections::HashMap;
use std::io;

/// A reading that took a certain time is repeated only after fifty times that time: at most 2 % of a processor. A process with
/// 60 000 mappings takes some 30 ms to read.
const SHARE: u64 = 50;

/// The most mappings noted between two readings; beyond that the oldest are forgotten.
const NOTED: usize = 4096;

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
#[derive(Debug)]
pub struct Places {
    pid: u32,
    vmas: Vec<Vma>,
    /// Mappings made since the last reading, latest last.
    noted: Vec<Mapped>,
    paths: HashMap<FileId, String>,
    not_before: Nanos,
}

impl Places {
    /// Reads the mappings of `pid`.
    ///
    /// Errors: Io (gone, not permitted).
    pub fn of(pid: u32) -> io::Result<Places> {
        let mut places =
            Places { pid, vmas: Vec::new(), noted: Vec::new(), paths: HashMap::new(), not_before: Nanos(0) };
        places.read()?;
        Ok(places)
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
        self.noted.clear();
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
        if self.noted.len() == NOTED {
            self.noted.drain(..NOTED / 2);
        }
        self.noted.push(mapped);
    }

    /// Finds what `address` belongs to. Reads the mappings again where it is in no known mapping.
    pub fn locate(&mut self, address: u64) -> Place {
        match self.find(address) {
            Place::Unknown => {
                self.refresh();
                self.find(address)
            }
            place => place,
        }
    }

    fn find(&self, address: u64) -> Place {
        let inside = |mapped: &&Mapped| mapped.address <= address && address - mapped.address < mapped.length;
        if let Some(mapped) = self.noted.iter().rev().take(64).find(inside) {
            let file = FileId { device: mapped.device, inode: mapped.inode };
            return match mapped.inode {
                0 => Place::Anonymous,
                _ => Place::File(file, mapped.offset + (address - mapped.address)),
            };
        }
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
        let new = Mapped {
            process: std::process::id(),
            at: Nanos(0),
            address: 0x10_0000,
            length: 0x1000,
            offset: 0x3000,
            device: (8, 1),
            inode: 7,
            path: "/x".to_owned(),
        };
        places.note(new);
        assert_eq!(places.locate(0x10_0010), Place::File(FileId { device: (8, 1), inode: 7 }, 0x3010));
    }
}
