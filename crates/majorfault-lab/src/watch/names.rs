//! The names of functions, from the symbol tables of programs and libraries, and from the maps that just-in-time compilers write.

use super::evidence::CodePlace;
use super::{files, has_ended};
use blazesym::Pid;
use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use std::collections::HashMap;
use std::path::PathBuf;

/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// Names that were looked up, by process and place.
#[derive(Default)]
pub struct FunctionNames {
    symbolizer: Symbolizer,
    known: HashMap<(u32, CodePlace), String>,
    /// Where we reach the files with code, by process and path; none where they are gone.
    reached: HashMap<(u32, String), Option<PathBuf>>,
}

impl FunctionNames {
    /// The name of the function there, of the process `pid` or one that was; without one, the file and the offset in it, or the address.
    pub fn name(&mut self, pid: u32, place: &CodePlace) -> String {
        let key = (pid, place.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = self.looked_up(pid, place).unwrap_or_else(|| unnamed(place));
        self.known.insert(key, name.clone());
        name
    }

    fn looked_up(&mut self, pid: u32, place: &CodePlace) -> Option<String> {
        let (source, input) = match &place.file {
            Some((id, path, offset)) => {
                let reached = || files::reached(pid, path, *id);
                let file = self.reached.entry((pid, path.clone())).or_insert_with(reached).clone()?;
                (Source::Elf(Elf::new(file)), Input::FileOffset(*offset))
            }
            None if place.address >= KERNEL => return Some("[kernel]".to_owned()),
            None if has_ended(pid) => return None,
            None => (Source::Process(Process::new(Pid::from(pid))), Input::AbsAddr(place.address)),
        };
        match self.symbolizer.symbolize_single(&source, input).ok()? {
            Symbolized::Sym(symbol) => Some(symbol.name.into_owned()),
            Symbolized::Unknown(_) => None,
        }
    }
}

/// A place without a name: the file and the offset in it, or an address.
fn unnamed(place: &CodePlace) -> String {
    match &place.file {
        Some((_, path, offset)) => format!("[{}+{offset:#x}]", path.rsplit('/').next().unwrap_or(path)),
        None => format!("[{:#x}]", place.address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::observe::places::{FileId, Place, Places};

    /// The place of a function of this program.
    fn own(address: u64) -> CodePlace {
        let mut places = Places::of(std::process::id()).unwrap();
        let Place::File(id, offset) = places.locate(address) else { panic!("no code") };
        CodePlace { address, file: Some((id, places.path(id).unwrap().to_owned(), offset)) }
    }

    #[test]
    fn a_function_has_its_name_also_when_its_process_has_ended() {
        let place = own(FunctionNames::name as fn(&mut FunctionNames, u32, &CodePlace) -> String as usize as u64);

        for pid in [std::process::id(), u32::MAX / 4] {
            let name = FunctionNames::default().name(pid, &place);
            assert!(name.contains("names::FunctionNames") && name.contains("name"), "{name}");
        }
    }

    #[test]
    fn what_has_no_name_is_told_by_its_place() {
        let gone = Some((FileId::default(), "/no/such/libx.so".to_owned(), 0x1f0));
        let mut names = FunctionNames::default();

        assert_eq!(names.name(u32::MAX / 4, &CodePlace { address: 1, file: gone }), "[libx.so+0x1f0]");
        assert_eq!(names.name(u32::MAX / 4, &CodePlace { address: 0x7f00, file: None }), "[0x7f00]");
        assert_eq!(names.name(std::process::id(), &CodePlace { address: 0x10, file: None }), "[0x10]");
        assert_eq!(names.name(std::process::id(), &CodePlace { address: KERNEL + 1, file: None }), "[kernel]");
    }
}
