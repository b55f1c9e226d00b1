//! Explicit reads and writes of a whole range: interruptions and short transfers are handled here.

use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};

/// Fills `buffer` from `offset` on.
///
/// Errors: UnexpectedEof where the file ends earlier; otherwise those of pread(2).
pub fn pread_exact(file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(ended(offset + done as u64)),
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills as much of `buffer` as the file has; returns the bytes read.
///
/// Errors: those of pread(2).
pub fn pread_some(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Writes all of `buffer` from `offset` on.
///
/// Errors: those of pwrite(2) (ENOSPC, EIO).
pub fn pwrite_all(file: &File, buffer: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pwrite(file, &buffer[done..], offset + done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The error for a file that ends inside the requested range.
pub fn ended(offset: u64) -> Error {
    Error::new(ErrorKind::UnexpectedEof, format!("the file ends at byte {offset}, inside the requested range"))
}
