//! Explicit reads and writes of a whole range: interruptions and short transfers are dealt with here.

use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};

/// Fills `buffer` from `offset` on.
///
/// Errors: UnexpectedEof where the file ends before; else what pread(2) says.
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

/// Fills as much of `buffer` as the file has; the bytes read.
///
/// Errors: what pread(2) says.
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
/// Errors: what pwrite(2) says (ENOSPC, EIO).
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

/// The error of a file that ends inside what was asked for.
pub fn ended(offset: u64) -> Error {
    Error::new(
        ErrorKind::UnexpectedEof,
        format!("the file ends at byte {offset}, before the end of what was asked for"),
    )
}
