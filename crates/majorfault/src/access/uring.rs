//! io_uring: many reads in flight from one thread, taken from the slice of extents.

use crate::access::direct::{Aligned, DirectFiles};
use crate::access::{
    self, Class, DirectIo, Filler, Hints, Method, MethodOptions, Opened, Reader, Urgency, Visitor, transfer_error,
};
use crate::error::{Error, Result};
use crate::files::{Extent, Target};
use crate::params::{Params, Switch};
use crate::sys::cache::FileAdvice;
use crate::sys::direct::Alignment;
use crate::sys::read;
use crate::sys::ring::{self, Operation, Queue, QueueOptions, Transfer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) const METHOD: Method = Method {
    name: "uring",
    summary: "io_uring: many reads in flight from one thread, direct or through the page cache",
    needs: &[&ring::IO_URING],
    class: Class::Explicit,
    hints: Hints::None,
    depth: Some("depth"),
    budget: None,
    direct: DirectIo::Given,
    params: UringOptions::declared,
    open: access::by_names::<UringOptions>,
};

access::front_door! {
    /// io_uring: many transfers in flight from one thread.
    ///
    /// ```no_run
    /// let file = majorfault::access::Uring::options().depth(64).direct(true).open("data.bin")?;
    /// println!("{} bytes, opened with {}", file.len(), file.settings);
    /// # Ok::<(), majorfault::Error>(())
    /// ```
    ///
    /// An option that does not exist does not compile, and neither does a policy: `io_uring` reads past the page cache, so nothing
    /// can be read ahead for it.
    ///
    /// ```compile_fail,E0599
    /// let file = majorfault::access::Uring::options().dpeth(64).open("data.bin");
    /// ```
    ///
    /// ```compile_fail,E0599
    /// use majorfault::prefetch::Learned;
    ///
    /// let file = majorfault::access::Uring::options().policy(Learned::default()).open("data.bin");
    /// ```
    Uring by UringOptions
}

crate::params! {
    /// How the queue is used.
    #[non_exhaustive]
    pub struct UringOptions {
        /// Transfers kept in flight; 32 saturate most single disks.
        depth: u32 = 32,
        /// Transfers sent, and writes waited for, by one system call; 1 leaves the device no gaps, more save processor time on fast devices.
        batch: u32 = 1,
        /// O_DIRECT, past the page cache; on, because a queue is meant for the device.
        direct: Switch = Switch::On,
        /// Register files and buffers with the kernel; on, because it saves looking them up for each transfer.
        register: Switch = Switch::On,
    }
}

/// Bytes of slots beyond the queue depth, for transfers that have ended and were not shown yet.
const SPARE_BYTES: usize = 4 << 20;

/// Transfers shown between two checks for others that have ended.
const LOOK: usize = 4;

/// Shared by the readers of all threads; each reader has a queue of its own.
struct Files {
    direct: DirectFiles,
    params: UringOptions,
}

impl Files {
    /// Whether `extent` can be written: past the page cache only whole units can.
    fn check_aligned(&self, extents: &[Extent]) -> Result<()> {
        let unit = self.direct.alignment.offset as u64;
        let fits = |extent: &&Extent| extent.offset % unit == 0 && (extent.length as u64) % unit == 0;
        match extents.iter().find(|extent| !fits(extent)) {
            None => Ok(()),
            Some(crooked) => Err(Error::Invalid(format!(
                "O_DIRECT writes whole units of {unit} bytes here, not {} bytes at {}; use direct=off",
                crooked.length, crooked.offset
            ))),
        }
    }
}

struct UringReader {
    files: Arc<Files>,
    queue: Queue,
    /// The state of each slot.
    work: Vec<Work>,
    free: Vec<usize>,
}

/// Extents that go through the queue in one go.
struct Course {
    operation: Operation,
    count: usize,
    /// Whether what is written is durable at its end.
    is_durable: bool,
}

/// The work of one slot.
#[derive(Clone, Copy, Default)]
struct Work {
    /// Index of the extent in the visit.
    index: usize,
    file: usize,
    offset: u64,
    /// Bytes to transfer, and how many have been transferred.
    length: usize,
    done: usize,
    /// Where the extent lies among them.
    begin: usize,
    end: usize,
}

impl MethodOptions for UringOptions {
    const METHOD: &'static Method = &METHOD;

    fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        self.check()?;
        ring::IO_URING.met()?;
        let direct = match self.direct {
            Switch::On => DirectFiles::open(Arc::clone(&target))?,
            Switch::Off => buffered(Arc::clone(&target))?,
        };
        let settings = self.given();
        let (reader, note) = UringReader::new(Arc::new(Files { direct, params: self }), 4096)?;
        Ok(Opened::new(Box::new(reader), target, settings, note.into_iter().collect()))
    }
}

impl UringOptions {
    fn check(&self) -> Result<()> {
        let UringOptions { depth, batch, .. } = self;
        if *depth == 0 || *depth > 4096 {
            return Err(Error::Invalid(format!("depth={depth}: legal is 1 to 4096")));
        }
        if batch == &0 || batch > depth {
            return Err(Error::Invalid(format!("batch={batch}: legal is 1 to the depth, {depth}")));
        }
        Ok(())
    }
}

/// The target's own files, which need no alignment.
fn buffered(target: Arc<Target>) -> Result<DirectFiles> {
    let files = target.files().iter().map(|file| file.file.try_clone()).collect::<std::io::Result<Vec<File>>>();
    let files = files.map_err(|error| Error::io("duplicate a file descriptor", "dup", error))?;
    Ok(DirectFiles { target, files, alignment: Alignment { offset: 1, memory: 1 } })
}

impl UringReader {
    fn new(files: Arc<Files>, slot: usize) -> Result<(UringReader, Option<String>)> {
        let slot = slot.next_multiple_of(4096);
        let spare = (SPARE_BYTES / slot).clamp(1, files.params.depth as usize);
        let options = QueueOptions {
            depth: files.params.depth,
            slots: files.params.depth + spare as u32,
            slot,
            register: files.params.register.is_on(),
        };
        let (queue, note) = Queue::new(&files.direct.files, options)?;
        let slots = options.slots as usize;
        Ok((UringReader { files, queue, work: vec![Work::default(); slots], free: (0..slots).rev().collect() }, note))
    }

    /// Makes the slots fit the longest extent, rounded out, and ties the queue to this thread.
    fn fit(&mut self, extents: &[Extent]) -> Result<()> {
        let longest = extents.iter().map(|extent| extent.length).max().unwrap_or(0);
        let slot = longest + 2 * self.files.direct.alignment.offset;
        let aligned = self.files.direct.alignment.offset == 1 || self.all_aligned(extents);
        let fits = if aligned { longest <= self.queue.options().slot } else { slot <= self.queue.options().slot };
        if !fits || !self.queue.is_ours() {
            let slot = if aligned { longest } else { slot };
            *self = UringReader::new(Arc::clone(&self.files), slot.max(self.queue.options().slot))?.0;
        }
        Ok(())
    }

    /// Whether no extent has to be rounded out.
    fn all_aligned(&self, extents: &[Extent]) -> bool {
        let unit = self.files.direct.alignment.offset as u64;
        extents.iter().all(|extent| extent.offset % unit == 0 && (extent.length as u64) % unit == 0)
            && self.files.direct.target.files().iter().all(|file| file.start % unit == 0)
    }

    fn work_for(&self, index: usize, extent: Extent) -> Result<Work> {
        let Aligned { file, offset, length, inner } = self.files.direct.align(extent)?;
        Ok(Work { index, file, offset, length, done: 0, begin: inner.start, end: inner.end })
    }

    /// Puts what is left of the slot's work into the queue.
    fn push(&mut self, slot: usize, operation: Operation) -> Result<()> {
        let Work { file, offset, length, done, .. } = self.work[slot];
        self.queue.push(slot, Transfer { operation, file, offset: offset + done as u64, begin: done, end: length })
    }

    /// Takes an ended transfer: Continue(true) where the work is complete, Continue(false) where its rest was queued again.
    fn ended(&mut self, slot: usize, operation: Operation, result: std::io::Result<usize>) -> std::io::Result<bool> {
        let work = &mut self.work[slot];
        match result {
            Ok(0) if work.done < work.end => return Err(read::ended(work.offset + work.done as u64)),
            Ok(bytes) => work.done += bytes,
            Err(error) if matches!(error.raw_os_error(), Some(4 /* EINTR */ | 11 /* EAGAIN */)) => {}
            Err(error) => return Err(error),
        }
        let complete = match operation {
            // The end of the file may cut the surroundings short.
            Operation::Read => work.done >= work.end,
            Operation::Write => work.done >= work.length,
        };
        if !complete {
            self.push(slot, operation).map_err(std::io::Error::other)?;
        }
        Ok(complete)
    }

    /// Drives the pieces of work of a course through the queue: `begin` prepares the slot of the next one, `complete` takes it
    /// when its turn comes, after `came` was told that it has ended. The first error, or Break, stops new work; what is in flight is always waited for.
    fn drive(
        &mut self,
        Course { operation, count, is_durable }: Course,
        mut begin: impl FnMut(&mut UringReader, usize, usize) -> Result<ControlFlow<()>>,
        mut came: impl FnMut(usize),
        mut complete: impl FnMut(&UringReader, usize) -> ControlFlow<()>,
        failed: impl Fn(&Work, std::io::Error) -> Error,
    ) -> Result<()> {
        let (mut next, mut in_flight) = (0, 0);
        // Whether what has been written so far is to become durable, was sent to, and whether a write ended after that was sent.
        let (mut sync, mut is_late) = (is_durable, false);
        let mut supply = ControlFlow::Continue(());
        let mut error = None;
        let mut arrived = VecDeque::with_capacity(self.work.len());
        let mut ended = Vec::with_capacity(self.work.len());
        let UringOptions { depth, batch, .. } = self.files.params;
        // What was read is shown as soon as it is there.
        let awaited = if operation == Operation::Write { batch } else { 1 };
        loop {
            let mut pushed = 0;
            while next < count && supply.is_continue() && in_flight < depth {
                // The last batch is sent by the call that waits or checks.
                if pushed == batch {
                    self.queue.submit()?;
                    pushed = 0;
                }
                let Some(slot) = self.free.pop() else { break };
                match begin(self, slot, next).and_then(|flow| self.push(slot, operation).map(|()| flow)) {
                    Ok(flow) => supply = flow,
                    Err(first) => {
                        self.free.push(slot);
                        error.get_or_insert(first);
                        supply = ControlFlow::Break(());
                        break;
                    }
                }
                next += 1;
                in_flight += 1;
                pushed += 1;
            }
            if sync && error.is_none() && (next == count || supply.is_break()) {
                for file in 0..self.files.direct.files.len() {
                    self.queue.push_sync(file)?;
                    in_flight += 1;
                }
                sync = false;
            }
            let take = |slot, result| ended.push((slot, result));
            match (arrived.len(), in_flight) {
                (0, 0) if is_late && error.is_none() => return super::sync_files(&self.files.direct.target),
                (0, 0) => return error.map_or(Ok(()), Err),
                (0, _) => self.queue.submit_and_wait(awaited.min(in_flight) as usize, take)?,
                (unseen, _) if pushed > 0 || unseen % LOOK == 0 => self.queue.submit_and_look(take)?,
                _ => {}
            }
            for (slot, result) in ended.drain(..) {
                if slot == self.queue.sync_slot() {
                    in_flight -= 1;
                    if let Err(why) = result {
                        error.get_or_insert(not_durable(&self.files.direct.target, why));
                    }
                    continue;
                }
                match self.ended(slot, operation, result) {
                    Ok(false) => {
                        is_late |= is_durable;
                        continue;
                    }
                    Ok(true) => {
                        came(self.work[slot].index);
                        match operation {
                            Operation::Read => arrived.push_back(slot),
                            // Nothing of a write is shown.
                            Operation::Write => self.free.push(slot),
                        }
                    }
                    Err(first) => {
                        error.get_or_insert(failed(&self.work[slot], first));
                        supply = ControlFlow::Break(());
                        self.free.push(slot);
                    }
                }
                in_flight -= 1;
            }
            // Shown one by one while the device is kept busy with the next ones, for which ended transfers make room.
            if let Some(slot) = arrived.pop_front() {
                let unwanted = operation == Operation::Read && supply.is_break();
                if !unwanted && complete(self, slot).is_break() {
                    supply = ControlFlow::Break(());
                }
                self.free.push(slot);
            }
        }
    }
}

impl UringReader {
    fn write(&mut self, extents: &[Extent], filler: &mut dyn Filler, is_durable: bool) -> Result<()> {
        self.fit(extents)?;
        let files = Arc::clone(&self.files);
        files.direct.target.check_writable()?;
        files.check_aligned(extents)?;
        let count = extents.len();
        let filler = RefCell::new(filler);
        let (begun, ended, is_last) = (Cell::new(0), Cell::new(0), Cell::new(false));
        self.drive(
            Course { operation: Operation::Write, count, is_durable },
            |uring, slot, index| {
                let work = uring.work_for(index, extents[index])?;
                uring.work[slot] = work;
                let mut filler = filler.borrow_mut();
                filler.submitted(index);
                let flow = filler.fill(index, &mut uring.queue.slot_mut(slot)[work.begin..work.end]);
                begun.set(begun.get() + 1);
                is_last.set(index + 1 == count || flow.is_break());
                Ok(flow)
            },
            |index| {
                let mut filler = filler.borrow_mut();
                filler.written(index);
                ended.set(ended.get() + 1);
                if is_durable && is_last.get() && ended.get() == begun.get() {
                    filler.all_written();
                }
            },
            |_, _| ControlFlow::Continue(()),
            |work, error| transfer_error("write", &files.direct.target.files()[work.file], extents[work.index], error),
        )
    }
}

fn not_durable(target: &Target, why: std::io::Error) -> Error {
    let path = target.files().first().map(|file| file.path.clone()).unwrap_or_default();
    Error::io("make the writes durable", path, why)
}

impl Reader for UringReader {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        self.fit(extents)?;
        let files = Arc::clone(&self.files);
        let visitor = RefCell::new(visitor);
        self.drive(
            Course { operation: Operation::Read, count: extents.len(), is_durable: false },
            |uring, slot, index| {
                uring.work[slot] = uring.work_for(index, extents[index])?;
                visitor.borrow_mut().submitted(index);
                Ok(ControlFlow::Continue(()))
            },
            |index| visitor.borrow_mut().arrived(index),
            |uring, slot| {
                let Work { index, begin, end, .. } = uring.work[slot];
                visitor.borrow_mut().see(index, &uring.queue.slot(slot)[begin..end])
            },
            |work, error| transfer_error("read", &files.direct.target.files()[work.file], extents[work.index], error),
        )
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.write(extents, filler, false)
    }

    fn update_and_sync(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.write(extents, filler, true)
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        let target = &self.files.direct.target;
        target.check_writable()?;
        target.locate(extent)?;
        self.files.check_aligned(&[extent])
    }

    fn sync(&mut self) -> Result<()> {
        super::sync_files(&self.files.direct.target)
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        let (reader, _) = UringReader::new(Arc::clone(&self.files), self.queue.options().slot)?;
        Ok(Box::new(reader))
    }

    fn will_need(&mut self, extents: &[Extent], _urgency: Urgency) -> Result<()> {
        match self.files.params.direct {
            Switch::On => Ok(()),
            Switch::Off => super::advise_files(&self.files.direct.target, extents, FileAdvice::WillNeed),
        }
    }

    fn done_with(&mut self, extents: &[Extent]) -> Result<()> {
        match self.files.params.direct {
            Switch::On => Ok(()),
            Switch::Off => super::advise_files(&self.files.direct.target, extents, FileAdvice::DontNeed),
        }
    }
}
