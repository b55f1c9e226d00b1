//! Whole files by io_uring: each is a chain of requests (open, check, read, read on, close) that the kernel goes through by itself.
//!
//! The file is opened into a table of the ring (IORING_OP_OPENAT with a direct descriptor, Linux 5.15), so that the requests behind
//! can name it before it is open. A chain tells what it read only where that is surely the whole file; else nothing, and the
//! caller reads the file by itself, which also finds the error.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::Missing;
use crate::sys::direct::Block;
use crate::sys::ring;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{IoUring, opcode};
use std::ffi::CString;
use std::io;
use std::thread::ThreadId;

/// Requests of a chain.
const STEPS: u32 = 5;

/// Bits of a request's name below the number of its slot.
const STEP_BITS: u32 = 3;

/// Chains that are sent together.
const TOGETHER: u32 = 8;

/// Number of the request that reads, and of the one that must find nothing more.
const READ: u64 = 2;
const READ_ON: u64 = 3;

/// Reading from where the file stands, which a read moves.
const ONWARD: u64 = u64::MAX;

/// What a slot has of its file.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Requests of the chain that have not ended.
    left: u32,
    /// What the read gave.
    bytes: Option<usize>,
    /// Whether the next read found the file's end.
    ended: bool,
}

/// A ring whose slots take a whole file each.
pub struct Chains {
    ring: IoUring,
    slots: Block,
    slot: usize,
    /// A byte for each slot, where reading on would put what is behind.
    beyond: Block,
    progress: Vec<Progress>,
    under_way: u32,
    /// Chains that were begun and not sent.
    unsent: u32,
    /// The paths that requests name, which the kernel reads as it takes these.
    paths: Vec<CString>,
    issuer: ThreadId,
}

impl Chains {
    /// `count` slots of `slot` bytes, of which up to `depth` are under way at a time. For this thread alone.
    ///
    /// Errors: Missing (no io_uring, no direct descriptors), Io (no memory).
    pub fn new(depth: u32, count: u32, slot: usize) -> Result<Chains> {
        let (ring, enable) = ring::ring(depth * STEPS).map_err(|error| ring::missing(&error))?;
        ring.submitter().register_files_sparse(count).map_err(|error| refused(&error))?;
        if enable {
            let enabled = ring.submitter().register_enable_rings();
            enabled.map_err(|error| Error::io("enable the ring", "io_uring_register", error))?;
        }
        let mut chains = Chains {
            ring,
            slots: Block::new(slot * count as usize, 4096)?,
            slot,
            beyond: Block::new(count as usize, 4096)?,
            progress: vec![Progress::default(); count as usize],
            under_way: 0,
            unsent: 0,
            paths: vec![CString::default(); count as usize],
            issuer: std::thread::current().id(),
        };
        chains.probe()?;
        Ok(chains)
    }

    /// Reads a file that is always there: kernels and filters refuse direct descriptors only when one is opened.
    fn probe(&mut self) -> Result<()> {
        self.begin(0, c"/proc/self/comm".to_owned())?;
        self.finish()?;
        match self.content(0) {
            Some(_) => Ok(()),
            None => Err(refused(&io::Error::from(io::ErrorKind::Unsupported)).into()),
        }
    }

    /// Whether this thread may use it.
    pub fn is_ours(&self) -> bool {
        self.issuer == std::thread::current().id()
    }

    /// Begins to read the file into a slot that is not under way. Sent with seven others, or with the next [`wait`](Chains::wait).
    ///
    /// Errors: Invalid (more are under way than the depth), Io (the ring is broken).
    ///
    /// Panics where the slot is under way.
    pub fn begin(&mut self, slot: usize, path: CString) -> Result<()> {
        assert!(!self.is_under_way(slot), "slot {slot} is under way");
        self.paths[slot] = path;
        let entries = self.entries(slot);
        // SAFETY: the buffers are parts of `slots` and `beyond` that stay allocated and untouched while `progress` says that the
        // chain is under way, and so does the slot's path.
        let pushed = unsafe { self.ring.submission().push_multiple(&entries) };
        pushed.map_err(|_| Error::Invalid("the ring has fewer entries than its depth takes".to_owned()))?;
        self.progress[slot] = Progress { left: STEPS, bytes: None, ended: false };
        self.under_way += 1;
        self.unsent += 1;
        // What has ended lets its chain go on only when it is looked at.
        if self.unsent == TOGETHER { self.enter(0) } else { Ok(()) }
    }

    /// Leaves a slot that is not under way without content.
    pub fn skip(&mut self, slot: usize) {
        assert!(!self.is_under_way(slot), "slot {slot} is under way");
        self.progress[slot] = Progress::default();
    }

    fn entries(&mut self, slot: usize) -> [Entry; STEPS as usize] {
        let file = Fixed(slot as u32);
        let into = DestinationSlot::try_from_slot_target(slot as u32).ok();
        // Addresses instead of slices: other slots may be under way.
        let bytes = self.slots.as_mut_ptr().wrapping_add(slot * self.slot);
        let beyond = self.beyond.as_mut_ptr().wrapping_add(slot);
        // Without O_NONBLOCK the open would wait for somebody to write to a FIFO.
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        let path = self.paths[slot].as_ptr();
        let open = opcode::OpenAt::new(Fd(libc::AT_FDCWD), path).flags(flags).file_index(into).build();
        // Refused for a FIFO (ESPIPE), from which a read would take what is meant for others.
        let check = opcode::Fadvise::new(file, 0, libc::POSIX_FADV_NORMAL).build();
        let read = opcode::Read::new(file, bytes, self.slot as u32).offset(ONWARD).build();
        let read_on = opcode::Read::new(file, beyond, 1).offset(ONWARD).build();
        let close = opcode::Close::new(file).build();
        // A short read would break a soft link, and every small file is a short read.
        let links = [Flags::IO_LINK, Flags::IO_LINK, Flags::IO_HARDLINK, Flags::IO_HARDLINK, Flags::empty()];
        let name = |step: usize| (slot as u64) << STEP_BITS | step as u64;
        let mut step = 0;
        [open, check, read, read_on, close].map(|entry| {
            let entry = entry.flags(links[step]).user_data(name(step));
            step += 1;
            entry
        })
    }

    /// Sends what was begun and waits until some request has ended.
    ///
    /// Errors: Io (the ring is broken).
    pub fn wait(&mut self) -> Result<()> {
        self.enter(1)
    }

    /// Waits until nothing is under way.
    ///
    /// Errors: Io (the ring is broken).
    pub fn finish(&mut self) -> Result<()> {
        while self.under_way > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Sends what was begun, and lets chains go on until `awaited` requests have ended.
    fn enter(&mut self, awaited: u32) -> Result<()> {
        /// Makes the kernel do what ended requests left to be done (io_uring_enter(2)).
        const IORING_ENTER_GETEVENTS: u32 = 1;
        loop {
            let pushed = self.ring.submission().len() as u32;
            // SAFETY: only numbers are passed.
            let entered = unsafe { self.ring.submitter().enter::<()>(pushed, awaited, IORING_ENTER_GETEVENTS, None) };
            match entered {
                Ok(_) => break,
                Err(error) if ring::is_passing(&error) => self.take_ended(),
                Err(error) => return Err(Error::io("send requests for files", "io_uring_enter", error)),
            }
        }
        self.unsent = 0;
        self.take_ended();
        Ok(())
    }

    fn take_ended(&mut self) {
        let (progress, slot_bytes) = (&mut self.progress, self.slot);
        for entry in self.ring.completion() {
            let (slot, step) = ((entry.user_data() >> STEP_BITS) as usize, entry.user_data() & ((1 << STEP_BITS) - 1));
            let progress = &mut progress[slot];
            progress.left -= 1;
            self.under_way -= u32::from(progress.left == 0);
            match (step, usize::try_from(entry.result())) {
                (READ, Ok(bytes)) => progress.bytes = Some(bytes.min(slot_bytes)),
                (READ_ON, Ok(bytes)) => progress.ended = bytes == 0,
                _ => {}
            }
        }
    }

    /// Chains that have not ended.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether the slot's chain has not ended.
    pub fn is_under_way(&self, slot: usize) -> bool {
        self.progress[slot].left > 0
    }

    /// The whole content of the slot's file, where its chain read one: at least a byte, and the file's end behind. A file without
    /// bytes may be no file at all, so the caller looks.
    ///
    /// Panics where the slot is under way: that would be a data race with the kernel.
    pub fn content(&self, slot: usize) -> Option<&[u8]> {
        assert!(!self.is_under_way(slot), "slot {slot} is under way");
        match self.progress[slot] {
            Progress { bytes: Some(bytes @ 1..), ended: true, .. } => {
                let begin = slot * self.slot;
                Some(self.slots.part(begin..begin + bytes))
            }
            _ => None,
        }
    }
}

fn refused(error: &io::Error) -> Missing {
    let reason = format!("the kernel refuses to open files into a ring: {}", error.kind());
    Missing::new("io_uring with direct descriptors", reason, "use Linux 5.15 or newer, and allow openat by io_uring")
        .told_by(error)
}

impl Drop for Chains {
    fn drop(&mut self) {
        // The kernel may still write into the slots: wait, or never free their memory.
        if self.under_way > 0 && (!self.is_ours() || self.finish().is_err()) {
            self.slots.forget();
            self.beyond.forget();
            std::mem::forget(std::mem::take(&mut self.paths));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::TestFile;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    const SLOT: usize = 8192;

    /// Two slots, where the kernel has chains.
    fn chains() -> Option<Chains> {
        Chains::new(2, 2, SLOT).inspect_err(|missing| println!("not tested: {missing}")).ok()
    }

    fn read(chains: &mut Chains, slot: usize, path: &Path) {
        chains.begin(slot, CString::new(path.as_os_str().as_bytes()).unwrap()).unwrap();
        chains.finish().unwrap();
    }

    /// Seen: with a fault in the chains every other test of them called them missing, and passed.
    #[test]
    fn a_new_kernel_that_allows_rings_has_chains() {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let is_new =
            release.split('.').next().and_then(|number| number.parse().ok()).is_some_and(|number: u32| number >= 6);
        if !is_new || ring::IO_URING.met().is_err() {
            println!("not tested: Linux {release}, or without io_uring");
            return;
        }

        assert_eq!(Chains::new(2, 2, SLOT).err().map(|error| error.to_string()), None);
    }

    #[test]
    fn a_file_that_fits_its_slot_is_whole_by_its_chain_alone() {
        let Some(mut chains) = chains() else { return };
        for length in [1, 4095, SLOT - 1, SLOT] {
            let file = TestFile::on_disk(length);

            read(&mut chains, 1, file.path());

            assert_eq!(chains.content(1), Some(file.content()), "{length} bytes");
        }
        assert_eq!(chains.under_way(), 0);
    }

    #[test]
    fn what_is_not_surely_a_whole_file_is_nothing_and_its_slot_serves_the_next() {
        let Some(mut chains) = chains() else { return };
        let (longer, empty, good) = (TestFile::on_disk(SLOT + 1), TestFile::on_disk(0), TestFile::on_disk(100));
        for path in [longer.path(), empty.path(), Path::new("/no/such/file"), Path::new("/"), Path::new("/dev/zero")] {
            read(&mut chains, 0, path);
            assert_eq!(chains.content(0), None, "{}", path.display());

            read(&mut chains, 0, good.path());
            assert_eq!(chains.content(0), Some(good.content()), "after {}", path.display());
        }
        chains.skip(0);
        assert_eq!(chains.content(0), None);
    }

    #[test]
    fn a_descriptor_is_closed_with_its_chain() {
        let Some(mut chains) = chains() else { return };
        let file = TestFile::on_disk(100);
        read(&mut chains, 0, file.path());

        // A lease for writing is granted only where nobody else has the file open (fcntl(2)).
        // SAFETY: only numbers are passed; the lease goes with the descriptor.
        let granted =
            unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(file.file()), libc::F_SETLEASE, libc::F_WRLCK) };
        assert_eq!(granted, 0, "{}", io::Error::last_os_error());
    }
}
