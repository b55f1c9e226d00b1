//! Who faults: the stacks of calls that led to faults in files, with what each waited.

use super::evidence::{CodePlace, Stack};
use majorfault::Nanos;
use majorfault::observe::places::{FileId, Place, Places};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The most different stacks of a process that are told apart.
const MOST: usize = 1 << 16;

/// Addresses of a stack, the instruction that faulted first.
type Addresses = Arc<[u64]>;

/// The stacks of a process so far.
#[derive(Debug, Default)]
pub struct StackTally {
    by: HashMap<(FileId, Addresses), Sum>,
    /// The last fault of each thread, to which its wait belongs.
    last: HashMap<u32, (FileId, Addresses)>,
    /// Faults of stacks beyond those that are told apart.
    left_out: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    faults: u64,
    waited_ns: u64,
}

impl StackTally {
    /// Counts the beginning of a fault that stands for `count` of them; `addresses` are the instruction and who called.
    pub fn fault(&mut self, thread: u32, file: FileId, addresses: Vec<u64>, count: u64) {
        let key = (file, Addresses::from(addresses));
        let is_room = self.by.len() < MOST;
        match self.by.entry(key.clone()) {
            Entry::Occupied(known) => known.into_mut().faults += count,
            Entry::Vacant(new) if is_room => new.insert(Sum::default()).faults = count,
            Entry::Vacant(_) => {
                self.left_out += count;
                self.last.remove(&thread);
                return;
            }
        }
        self.last.insert(thread, key);
    }

    /// Counts what the thread's last fault has waited, which stands for `count` of them.
    pub fn wait(&mut self, thread: u32, waited: Nanos, count: u64) {
        let sum = self.last.remove(&thread).and_then(|key| self.by.get_mut(&key));
        if let Some(sum) = sum {
            sum.waited_ns += waited.0 * count;
        }
    }

    /// Faults whose stacks are not told.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The stacks with the places of their code, the longest waits first.
    pub fn into_stacks(self, places: &mut Places) -> Vec<Stack> {
        let mut known: HashMap<u64, Option<CodePlace>> = HashMap::new();
        let mut place = |address: u64| known.entry(address).or_insert_with(|| code_place(address, places)).clone();
        let mut stacks: Vec<Stack> = Vec::with_capacity(self.by.len());
        for ((file, addresses), Sum { faults, waited_ns }) in self.by {
            // A return address is behind the call, perhaps already in the next function.
            let calls = addresses.iter().skip(1).map(|address| address.saturating_sub(1));
            // Without frame pointers, what was read as a return address is some number: nothing behind it is a caller.
            let known = calls.map(&mut place).take_while(Option::is_some).flatten();
            let callers: Vec<CodePlace> = known.collect();
            let first = addresses.first().map(|address| place(*address).unwrap_or(elsewhere(*address)));
            let frames = first.into_iter().chain(callers).collect();
            stacks.push(Stack { file, path: String::new(), frames, faults, waited_ns });
        }
        for stack in &mut stacks {
            stack.path = places.path(stack.file).unwrap_or("(gone)").to_owned();
        }
        stacks.sort_by(|a, b| (b.waited_ns, b.faults, &a.path).cmp(&(a.waited_ns, a.faults, &b.path)));
        stacks
    }
}

/// Where an instruction is; none for an address in no mapping.
pub fn code_place(address: u64, places: &mut Places) -> Option<CodePlace> {
    match places.locate(address) {
        Place::File(id, offset) => {
            Some(CodePlace { address, file: places.path(id).map(|path| (id, path.to_owned(), offset)) })
        }
        Place::Anonymous => Some(elsewhere(address)),
        Place::Unknown => None,
    }
}

/// Code in no file: the kernel's, or made while the program ran.
fn elsewhere(address: u64) -> CodePlace {
    CodePlace { address, file: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::observe::sampler::Mapped;

    const DATA: FileId = FileId { device: (8, 1), inode: 7 };

    /// A process with a program of one page at 0x1000.
    fn places() -> Places {
        let mut places = Places::unread(u32::MAX / 4);
        let (process, device, path) = (u32::MAX / 4, (8, 1), "/bin/program".to_owned());
        places.note(Mapped {
            process,
            at: Nanos(1),
            address: 0x1000,
            length: 0x1000,
            offset: 0x4000,
            device,
            inode: 9,
            path,
        });
        let path = "//anon".to_owned();
        places.note(Mapped {
            process,
            at: Nanos(1),
            address: 0x3000,
            length: 0x1000,
            offset: 0,
            device: (0, 0),
            inode: 0,
            path,
        });
        places
    }

    #[test]
    fn a_wait_belongs_to_the_stack_of_the_threads_last_fault_once() {
        let mut tally = StackTally::default();

        tally.fault(1, DATA, vec![0x1010, 0x1020], 1);
        tally.fault(2, DATA, vec![0x1030], 1);
        tally.wait(1, Nanos(500), 2);
        tally.wait(1, Nanos(9000), 1);
        tally.fault(1, DATA, vec![0x1010, 0x1020], 3);

        let told: Vec<_> = tally.into_stacks(&mut places()).iter().map(|it| (it.faults, it.waited_ns)).collect();
        assert_eq!(told, [(4, 1000), (1, 0)]);
    }

    #[test]
    fn frames_are_places_in_files_and_a_caller_is_where_the_call_is() {
        let mut tally = StackTally::default();
        tally.fault(1, DATA, vec![0x1010, 0x1020, 0x3001, 0x9_0000, 0x1030], 1);

        let frames = tally.into_stacks(&mut places()).remove(0).frames;

        let program = |address, offset| CodePlace {
            address,
            file: Some((FileId { device: (8, 1), inode: 9 }, "/bin/program".to_owned(), offset)),
        };
        assert_eq!(frames, [program(0x1010, 0x4010), program(0x101f, 0x401f), elsewhere(0x3000)]);
    }

    #[test]
    fn a_fault_of_the_kernel_has_the_programs_call_behind_it() {
        let mut tally = StackTally::default();
        let kernel = 0xffff_ffff_8100_0000;
        tally.fault(1, DATA, vec![kernel, 0x1021], 1);

        let frames = tally.into_stacks(&mut places()).remove(0).frames;

        assert_eq!(frames.iter().map(|frame| frame.address).collect::<Vec<_>>(), [kernel, 0x1020]);
    }

    #[test]
    fn stacks_beyond_those_told_apart_are_counted() {
        let mut tally = StackTally::default();

        (0..MOST as u64 + 2).for_each(|address| tally.fault(1, DATA, vec![address], 3));
        tally.wait(1, Nanos(5), 1);

        assert_eq!((tally.left_out(), tally.by.values().map(|sum| sum.waited_ns).sum::<u64>()), (6, 0));
    }
}
