//! Memory that is a file: made, grown, shrunk, given back. A file has no name, its room on the disk is reserved before anybody has its
//! address, it is never resized, and no descriptor stays open.

use crate::calls::{self, Call, call};
use crate::counts::Stay;
use crate::settings;
use crate::table::{Block, MOST};

// open(2)
const READ_WRITE: u64 = 0o2;
const CREATE: u64 = 0o100 | 0o200 | 0o400_000;
const CLOSE_ON_EXEC: u64 = 0o2_000_000;
const WITHOUT_NAME: u64 = 0o20_200_000;
// mmap(2)
const READ_WRITE_PAGES: u64 = 3;
const SHARED: u64 = 1;
const FIXED: u64 = 0x10;
const IF_FREE: u64 = 0x10_0000;
const NO_PAGES: u64 = 0;
const ADDRESSES_ONLY: u64 = 0x2 | 0x20 | 0x4000;
// madvise(2)
const REMOVE: u64 = 9;
const NOT_IN_CHILDREN: u64 = 10;
// mremap(2)
const MAY_MOVE_THERE: u64 = 1 | 2;
// ioctl(2): FS_IOC_SETFLAGS, FS_NOCOW_FL
const SET_FLAGS: u64 = 0x4008_6602;
static NO_COPY: u32 = 0x80_0000;

// Errors.
const NO_ENTRY: i64 = -2;
const IS_DIRECTORY: i64 = -21;
const INVALID: i64 = -22;
const TOO_LARGE: i64 = -27;
const NO_SPACE: i64 = -28;
const NOT_SUPPORTED: i64 = -95;
const QUOTA: i64 = -122;

/// Where memory is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Anywhere,
    /// There, in addresses that are kept for it.
    Kept(usize),
    /// There, where nothing is.
    IfFree(usize),
}

/// Rounds up to whole pages; `None` beyond all addresses.
pub fn whole_pages(bytes: usize) -> Option<usize> {
    let page = settings::page();
    bytes.checked_add(page - 1).map(|bytes| bytes & !(page - 1))
}

/// A file without a name of so many bytes, whose room is reserved.
pub fn make_file(bytes: usize) -> Result<u64, Stay> {
    // A larger one would be a signal to the program (SIGXFSZ).
    if (calls::largest_file() as usize) < bytes {
        return Err(Stay::FileLimit);
    }
    let file = open()?;
    if settings::in_place() {
        // Room for which is reserved once may be wanted twice otherwise.
        call(Call::Ioctl, [file, SET_FLAGS, &raw const NO_COPY as u64, 0, 0, 0]);
    }
    match call(Call::Fallocate, [file, 0, 0, bytes as u64, 0, 0]) {
        0 => Ok(file),
        error => {
            close(file);
            Err(if matches!(error, NO_SPACE | QUOTA | TOO_LARGE) { Stay::NoRoom } else { Stay::NoFile })
        }
    }
}

fn open() -> Result<u64, Stay> {
    let flags = READ_WRITE | WITHOUT_NAME | CLOSE_ON_EXEC;
    let file = call(Call::Openat, [calls::HERE, settings::directory() as u64, flags, 0o600, 0, 0]);
    if matches!(file, NOT_SUPPORTED | IS_DIRECTORY | NO_ENTRY | INVALID) {
        return open_named();
    }
    u64::try_from(file).map_err(|_| Stay::NoFile)
}

/// Where a file system makes no files without names, it has one for a moment.
fn open_named() -> Result<u64, Stay> {
    static NUMBER: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
    let mut path = crate::path::Path::in_directory();
    path.add_text(b"/majorfault-spill-");
    path.add_number(call(Call::Getpid, [0; 6]) as u32);
    path.add_text(b"-");
    path.add_number(NUMBER.fetch_add(1, core::sync::atomic::Ordering::Relaxed));
    let flags = READ_WRITE | CREATE | CLOSE_ON_EXEC;
    let file = call(Call::Openat, [calls::HERE, path.address(), flags, 0o600, 0, 0]);
    let file = u64::try_from(file).map_err(|_| Stay::NoFile)?;
    call(Call::Unlinkat, [calls::HERE, path.address(), 0, 0, 0, 0]);
    Ok(file)
}

pub fn close(file: u64) {
    call(Call::Close, [file, 0, 0, 0, 0, 0]);
}

/// Maps a part of a file. Children that are only forked do not have it: see `fork.rs`.
pub fn map(file: u64, offset: usize, bytes: usize, place: Place) -> Result<usize, Stay> {
    let (at, flags) = match place {
        Place::Anywhere => (0, SHARED),
        Place::Kept(at) => (at, SHARED | FIXED),
        Place::IfFree(at) => (at, SHARED | IF_FREE),
    };
    let mapped = call(Call::Mmap, [at as u64, bytes as u64, READ_WRITE_PAGES, flags, file, offset as u64]);
    let mapped = usize::try_from(mapped).unwrap_or(0);
    // Kernels before 4.17 do not know the flag, and map elsewhere.
    let is_there = mapped != 0 && (place == Place::Anywhere || mapped == at);
    if is_there && call(Call::Madvise, [mapped as u64, bytes as u64, NOT_IN_CHILDREN, 0, 0, 0]) == 0 {
        call(Call::Madvise, [mapped as u64, bytes as u64, settings::advice(), 0, 0, 0]);
        return Ok(mapped);
    }
    if mapped != 0 {
        unmap(mapped, bytes);
    }
    if let Place::Kept(at) = place {
        // Addresses that are kept stay so, lest another thread's memory lies among them.
        let _ = keep_addresses(at, bytes);
    }
    Err(Stay::NoMapping)
}

/// A file of its own, mapped.
fn piece(bytes: usize, place: Place) -> Result<usize, Stay> {
    let file = make_file(bytes)?;
    let mapped = map(file, 0, bytes, place);
    close(file);
    mapped
}

pub fn unmap(address: usize, bytes: usize) {
    if bytes > 0 {
        call(Call::Munmap, [address as u64, bytes as u64, 0, 0, 0, 0]);
    }
}

/// Addresses without memory: these, where nothing is there, or any for 0.
fn keep_addresses(at: usize, bytes: usize) -> Result<usize, Stay> {
    let flags = if at == 0 { ADDRESSES_ONLY } else { ADDRESSES_ONLY | IF_FREE };
    let kept = call(Call::Mmap, [at as u64, bytes as u64, NO_PAGES, flags, u64::MAX, 0]);
    match usize::try_from(kept) {
        Ok(kept) if at == 0 || kept == at => Ok(kept),
        Ok(kept) => {
            unmap(kept, bytes);
            Err(Stay::NoMapping)
        }
        Err(_) => Err(Stay::NoMapping),
    }
}

impl Block {
    /// A block of one file, at a multiple of `alignment`, which is a power of two. All of it reads as zeros.
    pub fn make(bytes: usize, alignment: usize) -> Result<Block, Stay> {
        let length = whole_pages(bytes).ok_or(Stay::NoMapping)?;
        let address =
            if alignment <= settings::page() { piece(length, Place::Anywhere)? } else { aligned(length, alignment)? };
        let mut pieces = [0; MOST];
        pieces[0] = u32::try_from(length / settings::page()).map_err(|_| Stay::NoMapping)?;
        Ok(Block { address, length, room: length, pieces, count: 1, is_part: false })
    }

    /// Gives everything back.
    pub fn give_back(&self) {
        if self.is_part {
            self.remove_from(0);
        }
        unmap(self.address, self.room);
    }

    /// Gives back the file's room behind the first `bytes`.
    fn remove_from(&self, bytes: usize) {
        let begin = (self.address + bytes) as u64;
        call(Call::Madvise, [begin, (self.length - bytes) as u64, REMOVE, 0, 0, 0]);
    }

    /// Shortens it to so many whole pages.
    pub fn shorten(&mut self, bytes: usize) {
        self.remove_from(bytes);
        unmap(self.address + bytes, self.room - bytes);
        let mut left = bytes / settings::page();
        self.count = 0;
        for piece in &mut self.pieces {
            *piece = (*piece).min(left as u32);
            left -= *piece as usize;
            self.count += u32::from(*piece > 0);
        }
        (self.length, self.room) = (bytes, bytes);
    }

    /// Makes it larger, to at least `bytes`; it may move. Where that fails it is as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Stay> {
        let wanted = whole_pages(bytes).ok_or(Stay::NoMapping)?;
        if self.count as usize == MOST {
            return Err(Stay::NoMapping);
        }
        let least = wanted - self.length;
        // By a quarter: what grows in small steps would have as many files else.
        let usual = least.max(whole_pages(self.length / 4).unwrap_or(least));
        match self.grow_by(usual) {
            Err(Stay::NoRoom | Stay::FileLimit) if usual > least => self.grow_by(least),
            result => result,
        }
    }

    fn grow_by(&mut self, more: usize) -> Result<(), Stay> {
        let pages = u32::try_from(more / settings::page()).map_err(|_| Stay::NoMapping)?;
        let end = self.address + self.length;
        if self.length + more <= self.room {
            piece(more, Place::Kept(end))?;
        } else if self.room > self.length || piece(more, Place::IfFree(end)).is_err() {
            self.move_and_grow_by(more)?;
        } else {
            self.room = self.length + more;
        }
        self.pieces[self.count as usize] = pages;
        self.count += 1;
        self.length += more;
        Ok(())
    }

    /// To other addresses, of which four times as many are kept: it will hardly move again.
    fn move_and_grow_by(&mut self, more: usize) -> Result<(), Stay> {
        let length = self.length + more;
        let kept = |bytes| keep_addresses(0, bytes).map(|address| (address, bytes));
        let (to, room) = length.checked_mul(4).ok_or(Stay::NoMapping).and_then(kept).or_else(|_| kept(length))?;
        // What can fail for want of room comes first.
        if let Err(why) = piece(more, Place::Kept(to + self.length)) {
            unmap(to, room);
            return Err(why);
        }
        if let Err(lost) = self.move_to(to) {
            unmap(to + lost, room - lost);
            return Err(Stay::NoMapping);
        }
        unmap(self.address + self.length, self.room - self.length);
        (self.address, self.room) = (to, room);
        Ok(())
    }

    /// Moves all files to these addresses, or none; then so many of the first addresses there are not kept any more.
    fn move_to(&self, to: usize) -> Result<(), usize> {
        let mut done = 0;
        for length in self.lengths() {
            if !move_memory(self.address + done, to + done, length) {
                self.move_back(to, done);
                return Err(done + length);
            }
            done += length;
        }
        Ok(())
    }

    /// Moves the first `bytes` back from there.
    fn move_back(&self, from: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // Another thread may have memory there by now.
        let is_free = keep_addresses(self.address, bytes).is_ok();
        let mut done = 0;
        for length in self.lengths() {
            if done < bytes && !(is_free && move_memory(from + done, self.address + done, length)) {
                crate::give_up(b"majorfault: memory that was moved cannot be moved back: the program ends\n");
            }
            done += length;
        }
    }

    /// The lengths of its files.
    fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces[..self.count as usize].iter().map(|pages| *pages as usize * settings::page())
    }
}

fn move_memory(from: usize, to: usize, bytes: usize) -> bool {
    let [from, to, bytes] = [from, to, bytes].map(|number| number as u64);
    call(Call::Mremap, [from, bytes, bytes, MAY_MOVE_THERE, to, 0]) as u64 == to
}

fn aligned(length: usize, alignment: usize) -> Result<usize, Stay> {
    let all = length.checked_add(alignment).ok_or(Stay::NoMapping)?;
    let kept = keep_addresses(0, all)?;
    let address = (kept + alignment - 1) & !(alignment - 1);
    match piece(length, Place::Kept(address)) {
        Ok(_) => {
            unmap(kept, address - kept);
            unmap(address + length, kept + all - address - length);
            Ok(address)
        }
        Err(why) => {
            unmap(kept, all);
            Err(why)
        }
    }
}
