//! swapon(2) and swapoff(2).
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Swaps to the file or device as well, which mkswap(8) has prepared.
///
/// Errors: EPERM (CAP_SYS_ADMIN), EINVAL (not prepared, or a file system that takes no swap files), EBUSY (in use).
pub fn swap_on(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the string lives for the call.
    match unsafe { libc::swapon(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops swapping to it; what is there is read back into memory first, which may take long.
///
/// Errors: EPERM, EINVAL (it is not in use), ENOMEM (it does not fit).
pub fn swap_off(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the string lives for the call.
    match unsafe { libc::swapoff(path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_swap_file_is_refused_by_both() {
        let file = tempfile::NamedTempFile::new().unwrap();

        assert!(swap_on(file.path()).is_err());
        assert!(swap_off(file.path()).is_err());
        assert!(swap_off(Path::new("a\0b")).is_err());
    }
}
