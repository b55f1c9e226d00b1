//! The archive of files that a kernel unpacks into memory at its start: cpio, format "newc" (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

/// Mode bits of a directory that all may enter.
const DIRECTORY: u32 = 0o040_755;

/// Mode bits of a regular file that all may run.
const FILE: u32 = 0o100_755;

/// An archive that is written member by member.
pub struct Archive<W> {
    out: W,
    members: u32,
    made: Vec<String>,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub fn new(out: W) -> Archive<W> {
        Archive { out, members: 0, made: Vec::new() }
    }

    /// Adds a file, and the directories above it.
    ///
    /// Errors: what the writer returns.
    pub fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            self.directory(&path[..at])?;
        }
        self.member(path, FILE, bytes)
    }

    /// Adds a directory, once.
    ///
    /// Errors: what the writer returns.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if self.made.iter().any(|made| made == path) {
            return Ok(());
        }
        self.made.push(path.to_owned());
        self.member(path, DIRECTORY, &[])
    }

    /// Ends the archive and gives the writer back.
    ///
    /// Errors: what the writer returns.
    pub fn end(mut self) -> io::Result<W> {
        self.member("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn member(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.members += 1;
        let size = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a file of 4 GiB fits no archive"))?;
        // Magic, inode, mode, user, group, links, time, size, device and its own device (two each), name's length, check.
        let fields = [self.members, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut head = String::from("070701");
        fields.iter().for_each(|field| head.push_str(&format!("{field:08X}")));
        head.push_str(name);
        head.push('\0');
        self.padded(head.as_bytes())?;
        self.padded(bytes)
    }

    /// Bytes, and zeros up to a multiple of four.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn members_are_laid_out_as_the_kernel_reads_them() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/bin/a", b"hello").unwrap();

        let bytes = archive.end().unwrap();

        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000041ED0000000000000000000000010000000000000000"), "{text}");
        assert!(text.contains("000081ED") && text.contains("bin/a\0hello\0\0\0"), "{text}");
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.ends_with("TRAILER!!!\0\0\0\0"), "{text}");
    }

    #[test]
    fn the_program_cpio_reads_them_back() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/lib/deep/b", &[7; 4097]).unwrap();
        archive.file("/lib/c", b"").unwrap();
        let bytes = archive.end().unwrap();

        let mut cpio = Command::new("cpio");
        cpio.arg("-tv").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut cpio) = cpio.spawn() else {
            eprintln!("SKIPPED the_program_cpio_reads_them_back: cpio is not installed; apt-get install cpio");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();

        let listed = String::from_utf8(cpio.wait_with_output().unwrap().stdout).unwrap();
        let names: Vec<&str> = listed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(names, ["lib", "lib/deep", "lib/deep/b", "lib/c"]);
        assert!(listed.contains(" 4097 "), "{listed}");
    }
}
