//! Which mapping an address of this process lies in: PROCMAP_QUERY on /proc/self/maps (Linux 6.11), before that a reading of it.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::proc::maps::{self, Vma};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

/// The file that lists this process's mappings, and takes questions about them.
const MAPS: &str = "/proc/self/maps";

/// _IOWR('f', 17, struct procmap_query) of linux/fs.h.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;

/// Bits of `vma_flags`.
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;

/// Longest path that is asked for.
const NAME: usize = 4096;

/// struct procmap_query of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

/// The mapping of this process in which `address` lies, if there is one.
///
/// Takes about 1 us; before Linux 6.11 it reads the whole list, 1 us for each mapping.
///
/// Errors: Io (no /proc).
pub fn at(address: usize) -> Result<Option<Vma>> {
    // Tried only: after a fork, a thread that is gone may hold it.
    let mut kept = KEPT.try_lock().ok();
    let ours = kept.as_ref().and_then(|kept| kept.as_ref()).filter(|(pid, _)| *pid == std::process::id());
    if let Some(found) = ours.and_then(|(_, maps)| asked(maps, address)) {
        return Ok(found);
    }
    let maps = File::open(MAPS).map_err(|error| Error::io("open the list of mappings", MAPS, error))?;
    let Some(found) = asked(&maps, address) else { return listed(address) };
    if let Some(kept) = kept.as_mut() {
        // A former one is not closed: it may be another file by now, in a program that closed all descriptors.
        std::mem::forget(kept.replace((std::process::id(), maps)));
    }
    Ok(found)
}

/// The list, opened once, because that takes longer than the question; and the process whose list it is.
static KEPT: Mutex<Option<(u32, File)>> = Mutex::new(None);

/// The kernel's answer; none where it takes no questions.
fn asked(maps: &File, address: usize) -> Option<Option<Vma>> {
    match query(maps, address) {
        Ok(vma) => Some(Some(vma)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Some(None),
        Err(_) => None,
    }
}

/// Asks the kernel for one mapping. ENOENT: there is none; ENOTTY: before Linux 6.11.
fn query(maps: &File, address: usize) -> std::io::Result<Vma> {
    let mut name = [0u8; NAME];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address: address as u64,
        name_size: NAME as u32,
        name_address: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes one struct of the size it is told, and the name's buffer; both are live.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } {
        0 => Ok(answered(&query, &name)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn answered(query: &Query, name: &[u8]) -> Vma {
    // The size counts the NUL at the end.
    let name = &name[..(query.name_size as usize).saturating_sub(1).min(name.len())];
    let name = String::from_utf8_lossy(name);
    let (path, deleted) = name.strip_suffix(" (deleted)").map_or((&*name, false), |path| (path, true));
    let right = |bit, letter| if query.vma_flags & bit != 0 { letter } else { b'-' };
    let share = if query.vma_flags & SHARED != 0 { b's' } else { b'p' };
    Vma {
        start: query.start,
        end: query.end,
        rights: [right(READABLE, b'r'), right(WRITABLE, b'w'), right(EXECUTABLE, b'x'), share],
        offset: query.offset,
        device: (query.major, query.minor),
        inode: query.inode,
        path: path.to_owned(),
        deleted,
    }
}

/// The same from the text of the list.
fn listed(address: usize) -> Result<Option<Vma>> {
    let text = std::fs::read(MAPS).map_err(|error| Error::io("read the list of mappings", MAPS, error))?;
    let is_it = |vma: &Vma| (vma.start..vma.end).contains(&(address as u64));
    Ok(maps::all(&String::from_utf8_lossy(&text)).into_iter().find(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::Mapping;
    use crate::test_files::{PAGE, TestFile};

    #[test]
    fn the_kernels_answer_is_that_of_the_list() {
        let file = TestFile::on_disk(4 * PAGE);
        let mapping = Mapping::new(file.file(), PAGE as u64, 3 * PAGE, &Default::default()).unwrap();
        let address = mapping.as_ptr() as usize;

        let found = at(address + PAGE).unwrap().unwrap();

        assert_eq!((found.start, found.end), (address as u64, (address + 3 * PAGE) as u64));
        assert_eq!((found.offset, found.rights, found.deleted), (PAGE as u64, *b"r--s", false));
        assert_eq!(found.path, file.path().to_str().unwrap());
        assert_eq!(Some(found), listed(address + PAGE).unwrap());
    }

    #[test]
    fn an_address_without_a_mapping_is_in_none() {
        assert_eq!(at(0).unwrap(), None);
    }

    #[test]
    fn a_file_without_a_name_is_said_to_have_none() {
        let file = TestFile::on_disk(PAGE);
        let mapping = Mapping::new(file.file(), 0, PAGE, &Default::default()).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        drop(file);

        let found = at(mapping.as_ptr() as usize).unwrap().unwrap();

        assert_eq!((found.path, found.deleted), (path, true));
    }
}
