//! userfaultfd(2): the kernel reports faults of missing pages in a range to a thread, which puts the pages there.
//!
//! Five ioctls by hand: generated bindings need libclang at build time.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::needs::{Missing, Need, Probe};
use crate::sys::map::Mapping;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Faults served by the program itself (Linux 4.3; without privileges 5.11 for its own faults, and where containers allow it).
pub const USERFAULTFD: Need =
    Need { name: "userfaultfd", summary: "faults of a memory range served by a thread of the program", probe };

fn probe() -> Probe {
    Uffd::open().map(|uffd| format!("features {:#x}", uffd.features)).map_err(|error| {
        let remedy = match error.raw_os_error() {
            Some(libc::ENOSYS) => "use a kernel with CONFIG_USERFAULTFD",
            Some(libc::EINVAL) => "use Linux 5.11 or newer, or set vm.unprivileged_userfaultfd=1",
            _ => "allow userfaultfd in the container's seccomp profile, or set vm.unprivileged_userfaultfd=1",
        };
        Missing::new("userfaultfd", format!("userfaultfd(2) failed: {}", error.kind()), remedy).told_by(&error)
    })
}

/// include/uapi/linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: i32 = 1;
const REGISTER_MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const COPY_MODE_DONTWAKE: u64 = 1;

/// A request number: direction (2 is read, 3 is both), size of the argument, the letter 0xaa, the number.
const fn request(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | 0xaa << 8 | number
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Wake {
    start: u64,
    length: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct Zero {
    start: u64,
    length: u64,
    mode: u64,
    zeroed: i64,
}

/// What read(2) returns: 32 bytes, of which a page fault uses the flags and the address.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    more: u64,
}

/// A descriptor that faults are read from.
pub struct Uffd {
    fd: OwnedFd,
    features: u64,
}

impl Uffd {
    /// A descriptor that serves faults of this process: those in system calls as well, where the rights suffice; otherwise only
    /// faults of its own instructions, and a system call on a missing page fails with EFAULT.
    fn open() -> io::Result<Uffd> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let fd = [flags, flags | UFFD_USER_MODE_ONLY].into_iter().find_map(|flags| {
            // SAFETY: takes a number and gives one.
            let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as i32;
            // SAFETY: a new descriptor, which nobody else owns.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
        });
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
        let uffd = Uffd { fd, features: 0 };
        uffd.control(request(3, 0x3f, size_of::<Api>()), &mut api)?;
        Ok(Uffd { features: api.features, ..uffd })
    }

    /// Registers faults of missing pages in `memory`, which must be anonymous. Forked children do not get the range: they would
    /// read zeros.
    ///
    /// Errors: Missing (no userfaultfd), Io (memory of another kind).
    pub fn over(memory: &Mapping) -> Result<Uffd> {
        USERFAULTFD.met()?;
        let failed = |call: &'static str| move |error| Error::io("serve faults of a memory range", call, error);
        let uffd = Uffd::open().map_err(failed("userfaultfd"))?;
        let (start, length) = (memory.as_ptr() as u64, memory.length() as u64);
        let mut register = Register { start, length, mode: REGISTER_MODE_MISSING, ioctls: 0 };
        uffd.control(request(3, 0, size_of::<Register>()), &mut register).map_err(failed("UFFDIO_REGISTER"))?;
        // SAFETY: the range is a mapping of our own; the advice concerns children only.
        let kept = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.length(), libc::MADV_DONTFORK) };
        if kept != 0 {
            return Err(failed("madvise")(io::Error::last_os_error()));
        }
        Ok(uffd)
    }

    fn control<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        loop {
            // SAFETY: the request's number holds the size of its argument, which is `T`'s; see the callers.
            let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, &raw mut *argument) };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Puts `bytes`, whole pages, at `address`, which is missing; the threads that wait for it sleep on until [`wake`](Uffd::wake).
    ///
    /// Errors: EEXIST where a page is already there, ENOMEM.
    pub fn copy(&self, address: usize, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (to, from) = ((address + done) as u64, bytes[done..].as_ptr() as u64);
            let mut copy = Copy { to, from, length: (bytes.len() - done) as u64, mode: COPY_MODE_DONTWAKE, copied: 0 };
            let outcome = self.control(request(3, 3, size_of::<Copy>()), &mut copy);
            match outcome {
                // The address space is being changed: the kernel reports how much was copied so far.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => done += copy.copied.max(0) as usize,
                other => return other,
            }
        }
        Ok(())
    }

    /// Puts zeros at missing pages.
    ///
    /// Errors: EEXIST where a page is already there.
    pub fn zero(&self, address: usize, length: usize) -> io::Result<()> {
        let mut zero = Zero { start: address as u64, length: length as u64, mode: 0, zeroed: 0 };
        self.control(request(3, 4, size_of::<Zero>()), &mut zero)
    }

    /// Wakes the threads that wait for these pages: they check again.
    pub fn wake(&self, address: usize, length: usize) {
        let mut wake = Wake { start: address as u64, length: length as u64 };
        // That nobody waits is no error, and nobody waits for a range that is gone.
        let _ = self.control(request(2, 2, size_of::<Wake>()), &mut wake);
    }

    /// Adds the addresses of waiting faults to `addresses`, up to 16; adds none if there are none.
    ///
    /// Errors: Io.
    pub fn waiting(&self, addresses: &mut Vec<usize>) -> Result<()> {
        let mut messages = [Message { event: 0, reserved: [0; 7], flags: 0, address: 0, more: 0 }; 16];
        // SAFETY: as many bytes as the array has; any bytes are messages.
        let read = unsafe {
            libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), size_of::<Message>() * messages.len())
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(Error::io("read faults", "userfaultfd", error)),
            };
        }
        let told = &messages[..read as usize / size_of::<Message>()];
        let faults = told.iter().filter(|message| message.event == EVENT_PAGEFAULT);
        addresses.extend(faults.map(|message| message.address as usize));
        Ok(())
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
