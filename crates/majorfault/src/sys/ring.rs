//! io_uring as a queue of slots: each slot has a buffer and at most one read or write in flight.
//!
//! The queue owns the buffers, which makes it safe: the kernel writes only into slots that are in flight, and those are neither
//! lent nor freed.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::{Missing, Need, Probe};
use crate::sys::direct::Block;
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread::ThreadId;

/// The io_uring interface (Linux 5.6 for the operations used), often closed in containers.
pub const IO_URING: Need =
    Need { name: "io_uring", summary: "several reads in flight from one thread, without a call each", probe };

fn probe() -> Probe {
    IoUring::new(2).map(|_| "rings can be made".to_owned()).map_err(|error| missing(&error))
}

pub(super) fn missing(error: &io::Error) -> Missing {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => "use Linux 5.6 or newer",
        Some(libc::ENOMEM) => "raise ulimit -l (before Linux 5.12 rings count as locked memory)",
        _ => "allow io_uring in the container's seccomp profile, and set kernel.io_uring_disabled=0",
    };
    Missing::new("io_uring", format!("io_uring_setup(2) failed: {}", error.kind()), remedy).told_by(error)
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the file into the slot.
    Read,
    /// From the slot into the file.
    Write,
}

/// One transfer of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its direction.
    pub operation: Operation,
    /// Index of the file.
    pub file: usize,
    /// Offset in the file.
    pub offset: u64,
    /// Part of the slot.
    pub begin: usize,
    /// End of that part.
    pub end: usize,
}

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The most transfers in flight.
    pub depth: u32,
    /// Slots: the queue depth, and those that may have ended unseen while others are in flight.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot: usize,
    /// Whether files and buffers are registered, which saves the kernel looking them up for each transfer.
    pub register: bool,
}

/// A ring with its slots and files.
pub struct Queue {
    ring: IoUring,
    files: Vec<File>,
    slots: Block,
    options: QueueOptions,
    in_flight: Vec<bool>,
    files_registered: bool,
    buffers_registered: bool,
    /// A ring with a single issuer belongs to the thread that enables it.
    issuer: Option<ThreadId>,
    enable: bool,
}

impl Queue {
    /// Makes the ring and its buffers. The second value tells what could not be registered.
    ///
    /// Errors: Missing (no io_uring), Io (no memory).
    pub fn new(files: &[File], options: QueueOptions) -> Result<(Queue, Option<String>)> {
        let files = files.iter().map(File::try_clone).collect::<io::Result<Vec<_>>>();
        let files = files.map_err(|error| Error::io("duplicate a file descriptor", "dup", error))?;
        let (ring, enable) = ring(options.depth).map_err(|error| missing(&error))?;
        let length = options.slot.checked_mul(options.slots as usize);
        let length =
            length.ok_or_else(|| Error::Invalid(format!("{options:?}: the buffers exceed the address space")))?;
        let slots = Block::new(length, 4096)?;
        let mut queue = Queue {
            ring,
            files,
            slots,
            options,
            in_flight: vec![false; options.slots as usize],
            files_registered: false,
            buffers_registered: false,
            issuer: None,
            enable,
        };
        let note = if options.register { queue.register() } else { None };
        Ok((queue, note))
    }

    /// The options that it was made with.
    pub fn options(&self) -> QueueOptions {
        self.options
    }

    fn register(&mut self) -> Option<String> {
        let descriptors: Vec<_> = self.files.iter().map(AsRawFd::as_raw_fd).collect();
        let files = self.ring.submitter().register_files(&descriptors);
        self.files_registered = files.is_ok();
        let base = self.slots.as_mut_ptr();
        let length = self.options.slot;
        let vectors: Vec<libc::iovec> = (0..self.options.slots as usize)
            .map(|slot| libc::iovec { iov_base: base.wrapping_add(slot * length).cast(), iov_len: length })
            .collect();
        // SAFETY: the vectors lie inside `slots`, which this queue keeps as long as the ring (`Drop` drains first).
        let buffers = unsafe { self.ring.submitter().register_buffers(&vectors) };
        self.buffers_registered = buffers.is_ok();
        files.and(buffers).err().map(|error| format!("files or buffers are not registered ({error}); raise ulimit -l"))
    }

    /// Whether this thread may use it; if not, it needs another queue.
    pub fn is_ours(&self) -> bool {
        self.issuer.is_none_or(|issuer| issuer == std::thread::current().id())
    }

    /// Enqueues the transfer of a slot that is not in flight. Sent with the next [`submit_and_wait`](Queue::submit_and_wait).
    ///
    /// Errors: Invalid (the slot is in flight, the part is not in the slot, no such file).
    pub fn push(&mut self, slot: usize, transfer: Transfer) -> Result<()> {
        let Transfer { operation, file, offset, begin, end } = transfer;
        let fits = begin < end && end <= self.options.slot && file < self.files.len();
        if !fits || self.in_flight.get(slot).is_none_or(|busy| *busy) {
            return Err(Error::Invalid(format!("slot {slot} of the queue cannot take {transfer:?}")));
        }
        // An address instead of a slice: other slots may be in flight.
        let address = self.slots.as_mut_ptr().wrapping_add(slot * self.options.slot + begin);
        let length = (end - begin) as u32;
        let entry = self.entry(operation, file, address, length, slot as u16).offset_of(offset);
        let entry = entry.user_data(slot as u64);
        // SAFETY: the buffer is a part of `slots` that stays allocated and untouched while `in_flight` says so; the
        // file is owned by this queue.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Error::Invalid("the queue has fewer entries than slots".to_owned()))?;
        self.in_flight[slot] = true;
        Ok(())
    }

    /// Enqueues that what was written to a file becomes durable once all that was enqueued before has ended; what is enqueued later begins
    /// after it. Sends entries where there is no room for another. It ends as "slot" [`sync_slot`](Queue::sync_slot).
    ///
    /// Errors: Invalid (no such file), Io (the ring belongs to another thread, or is broken).
    pub fn push_sync(&mut self, file: usize) -> Result<()> {
        let Some(descriptor) = self.files.get(file).map(AsRawFd::as_raw_fd) else {
            return Err(Error::Invalid(format!("the queue has no file {file}")));
        };
        let data = FsyncFlags::DATASYNC;
        let entry = match self.files_registered {
            true => opcode::Fsync::new(Fixed(file as u32)).flags(data).build(),
            false => opcode::Fsync::new(Fd(descriptor)).flags(data).build(),
        };
        let entry = entry.flags(squeue::Flags::IO_DRAIN).user_data(self.sync_slot() as u64);
        loop {
            // SAFETY: the file is owned by this queue, and no memory takes part.
            match unsafe { self.ring.submission().push(&entry) } {
                Ok(()) => return Ok(()),
                Err(_) => self.submit()?,
            }
        }
    }

    /// The number by which an ended [`push_sync`](Queue::push_sync) is told, beyond all slots.
    pub fn sync_slot(&self) -> usize {
        self.options.slots as usize
    }

    fn entry(&self, operation: Operation, file: usize, address: *mut u8, length: u32, slot: u16) -> Entry {
        let descriptor = Fd(self.files[file].as_raw_fd());
        let fixed = Fixed(file as u32);
        match (operation, self.buffers_registered, self.files_registered) {
            (Operation::Read, true, true) => Entry::ReadFixed(opcode::ReadFixed::new(fixed, address, length, slot)),
            (Operation::Read, true, false) => {
                Entry::ReadFixed(opcode::ReadFixed::new(descriptor, address, length, slot))
            }
            (Operation::Read, false, true) => Entry::Read(opcode::Read::new(fixed, address, length)),
            (Operation::Read, false, false) => Entry::Read(opcode::Read::new(descriptor, address, length)),
            (Operation::Write, true, true) => Entry::WriteFixed(opcode::WriteFixed::new(fixed, address, length, slot)),
            (Operation::Write, true, false) => {
                Entry::WriteFixed(opcode::WriteFixed::new(descriptor, address, length, slot))
            }
            (Operation::Write, false, true) => Entry::Write(opcode::Write::new(fixed, address, length)),
            (Operation::Write, false, false) => Entry::Write(opcode::Write::new(descriptor, address, length)),
        }
    }

    /// Sends what was pushed, without waiting.
    ///
    /// Errors: Io (the ring belongs to another thread, or is broken).
    pub fn submit(&mut self) -> Result<()> {
        self.enable_here()?;
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The next call that waits tries again.
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(Error::io("send reads", "io_uring_enter", error)),
        }
    }

    /// Sends what was pushed and waits until at least `count` transfers in flight have ended; each ended transfer goes to `ended`
    /// with its bytes or its error. Interruptions are repeated.
    ///
    /// Errors: Io (the ring belongs to another thread, or is broken).
    pub fn submit_and_wait(&mut self, count: usize, ended: impl FnMut(usize, io::Result<usize>)) -> Result<()> {
        self.enable_here()?;
        loop {
            match self.ring.submit_and_wait(count) {
                Ok(_) => break,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(Error::io("wait for reads", "io_uring_enter", error)),
            }
        }
        self.take_ended(ended);
        Ok(())
    }

    /// Sends what was pushed and passes on what has ended, without waiting.
    ///
    /// Errors: Io (the ring belongs to another thread, or is broken).
    pub fn submit_and_look(&mut self, ended: impl FnMut(usize, io::Result<usize>)) -> Result<()> {
        /// Makes the kernel post completions that are held back until requested (io_uring_enter(2)).
        const IORING_ENTER_GETEVENTS: u32 = 1;
        self.enable_here()?;
        let pushed = self.ring.submission().len() as u32;
        // SAFETY: only numbers are passed.
        let entered = unsafe { self.ring.submitter().enter::<()>(pushed, 0, IORING_ENTER_GETEVENTS, None) };
        match entered {
            Err(error) if !is_passing(&error) => return Err(Error::io("send reads", "io_uring_enter", error)),
            _ => {}
        }
        self.take_ended(ended);
        Ok(())
    }

    fn take_ended(&mut self, mut ended: impl FnMut(usize, io::Result<usize>)) {
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            // A sync has no buffer that would have to be kept for it.
            if let Some(busy) = self.in_flight.get_mut(slot) {
                *busy = false;
            }
            let result = entry.result();
            ended(slot, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)));
        }
    }

    fn enable_here(&mut self) -> Result<()> {
        if self.issuer.is_none() {
            if self.enable {
                let enabled = self.ring.submitter().register_enable_rings();
                enabled.map_err(|error| Error::io("enable the ring", "io_uring_register", error))?;
            }
            self.issuer = Some(std::thread::current().id());
        }
        Ok(())
    }

    /// Bytes of a slot that is not in flight.
    ///
    /// Panics where it is in flight: that would be a data race with the kernel.
    pub fn slot(&self, slot: usize) -> &[u8] {
        assert!(!self.in_flight[slot], "slot {slot} is in flight");
        let begin = slot * self.options.slot;
        self.slots.part(begin..begin + self.options.slot)
    }

    /// The bytes of a slot for writing.
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.in_flight[slot], "slot {slot} is in flight");
        let begin = slot * self.options.slot;
        self.slots.part_mut(begin..begin + self.options.slot)
    }
}

/// An interruption, or a shortage that ends as transfers end.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// The four kinds of entries, without offset and slot.
enum Entry {
    Read(opcode::Read),
    ReadFixed(opcode::ReadFixed),
    Write(opcode::Write),
    WriteFixed(opcode::WriteFixed),
}

impl Entry {
    fn offset_of(self, offset: u64) -> squeue::Entry {
        match self {
            Entry::Read(entry) => entry.offset(offset).build(),
            Entry::ReadFixed(entry) => entry.offset(offset).build(),
            Entry::Write(entry) => entry.offset(offset).build(),
            Entry::WriteFixed(entry) => entry.offset(offset).build(),
        }
    }
}

/// The best ring that this kernel has, and whether its thread still has to enable it.
pub(super) fn ring(depth: u32) -> io::Result<(IoUring, bool)> {
    // Completions are processed on request, without interrupting the thread (Linux 6.1).
    let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_r_disabled().build(depth);
    if let Ok(ring) = deferred {
        return Ok((ring, true));
    }
    // The next best (Linux 5.19), then what every kernel with io_uring has.
    let cooperative = IoUring::builder().setup_coop_taskrun().build(depth);
    cooperative.or_else(|_| IoUring::new(depth)).map(|ring| (ring, false))
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernel may still write into the slots: wait, or never free their memory.
        while self.in_flight.iter().any(|busy| *busy) {
            if !self.is_ours() || self.submit_and_wait(1, |_, _| {}).is_err() {
                self.slots.forget();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::direct::reopen;
    use crate::test_files::TestFile;

    #[test]
    fn a_sync_ends_after_all_that_was_enqueued_before_and_before_all_that_was_after() {
        const SLOT: usize = 256 << 10;
        const BEFORE: usize = 24;
        let file = TestFile::on_disk((BEFORE + 1) * SLOT);
        let target = file.target(true);
        let (direct, _) = reopen(&target.files()[0].file, file.path(), true).unwrap();
        let options = QueueOptions { depth: 32, slots: 32, slot: SLOT, register: true };
        let Ok((mut queue, _)) = Queue::new(&[direct], options) else { return };
        for _ in 0..6 {
            let write = |slot: usize| Transfer {
                operation: Operation::Write,
                file: 0,
                offset: (slot * SLOT) as u64,
                begin: 0,
                end: SLOT,
            };
            for slot in 0..BEFORE {
                queue.push(slot, write(slot)).unwrap();
            }
            queue.push_sync(0).unwrap();
            queue.push(BEFORE, write(BEFORE)).unwrap();

            let mut order = Vec::new();
            while order.len() < BEFORE + 2 {
                let take = |slot, result: io::Result<usize>| order.push((slot, result.unwrap()));
                queue.submit_and_wait(1, take).unwrap();
            }

            assert_eq!(order[BEFORE], (queue.sync_slot(), 0));
            assert_eq!(order[BEFORE + 1].0, BEFORE);
        }
    }

    #[test]
    fn a_sync_finds_room_where_the_queue_is_full_and_knows_its_files() {
        let file = TestFile::on_disk(4096);
        let target = file.target(true);
        let options = QueueOptions { depth: 2, slots: 2, slot: 4096, register: true };
        let Ok((mut queue, _)) = Queue::new(&[target.files()[0].file.try_clone().unwrap()], options) else { return };
        let mut ended = Vec::new();

        for _ in 0..5 {
            queue.push_sync(0).unwrap();
        }
        while ended.len() < 5 {
            queue.submit_and_wait(1, |slot, result| ended.push((slot, result.unwrap()))).unwrap();
        }

        assert_eq!(ended, [(2, 0); 5]);
        assert!(queue.push_sync(1).is_err());
    }
}
