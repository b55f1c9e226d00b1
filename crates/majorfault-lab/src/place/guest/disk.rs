//! Images of a guest's disks: files without a name, sparse, with an empty file system that the host's tools make.

use crate::place::guest::filesystem::FileSystem;
use crate::scratch;
use majorfault::{Bytes, Error, Missing, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file that has no name and goes with us, however we go. Others open it by [`path`](Unnamed::path) while we live.
pub struct Unnamed(pub File);

impl Unnamed {
    /// An empty one in a directory on a disk with `room`.
    ///
    /// Errors: Invalid (no disk has the room), Io.
    pub fn new(room: Bytes) -> Result<Unnamed> {
        scratch::unnamed(&scratch::directory(None, room)?).map(Unnamed)
    }

    /// A path that leads to it as long as this process lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}

/// An image for a disk, with an empty file system.
///
/// Errors: Missing (no tool to make it), Io.
pub fn image(size: Bytes, kind: FileSystem) -> Result<Unnamed> {
    let image = sized(size)?;
    if let Some((tool, package, words)) = kind.making().tool {
        make(&image, tool, package, words)?;
    }
    Ok(image)
}

/// An image for persistent memory: every cluster is as large as a huge page, so that a file's extents are aligned to them.
///
/// Errors: Missing (no tool to make it), Io.
pub fn persistent(size: Bytes) -> Result<Unnamed> {
    let image = sized(size)?;
    make(&image, "mke2fs", "e2fsprogs", &["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "2097152"])?;
    Ok(image)
}

/// An image for a disk that is swapped to.
///
/// Errors: Missing (no tool to make it), Io.
pub fn swap(size: Bytes) -> Result<Unnamed> {
    let image = sized(size)?;
    make(&image, "mkswap", "util-linux", &["-q"])?;
    Ok(image)
}

fn sized(size: Bytes) -> Result<Unnamed> {
    // Sparse: a guest that writes all of its disk needs all of it, most write a part.
    let image = Unnamed::new(Bytes(size.0 / 4))?;
    image.0.set_len(size.0).map_err(|error| Error::io("size an image", image.path(), error))?;
    Ok(image)
}

fn make(image: &Unnamed, tool: &str, package: &str, arguments: &[&str]) -> Result<()> {
    let path = image.path();
    let made = Command::new(administrators(tool).unwrap_or_else(|| PathBuf::from(tool)))
        .args(arguments)
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Missing::new(tool, error.to_string(), format!("apt-get install {package}")))?;
    match made.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            Err(Error::Invalid(format!("{tool} could not make the guest's disk: {said}")))
        }
    }
}

/// The path of a program that Debian keeps for administrators, which is not on everybody's path.
pub fn administrators(tool: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin"].iter().map(|dir| Path::new(dir).join(tool)).find(|path| path.is_file())
}

/// The path of a program that goes to the guest.
///
/// Errors: Missing, with its package.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    administrators(name)
        .or_else(on_path)
        .ok_or_else(|| Missing::new(name, "it is not installed", format!("apt-get install {package}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn an_image_has_no_name_and_a_file_system() {
        let image = image(Bytes::mib(64), FileSystem::Ext4).unwrap();

        let mut magic = [0; 2];
        // ext4: the super block is at 1024, its magic number at 56 of it.
        image.0.read_exact_at(&mut magic, 1024 + 56).unwrap();
        assert_eq!(magic, [0x53, 0xef]);
        assert!(std::fs::read_link(image.path()).unwrap().to_string_lossy().ends_with("(deleted)"));
    }

    #[test]
    fn persistent_memory_is_laid_out_in_clusters_of_huge_pages() {
        let image = persistent(Bytes::mib(64)).unwrap();

        let mut logarithm = [0; 4];
        // ext4: s_log_cluster_size is at 28 of the super block, relative to 1 KiB.
        image.0.read_exact_at(&mut logarithm, 1024 + 28).unwrap();
        assert_eq!(1024 << u32::from_le_bytes(logarithm), 2 << 20);
    }

    #[test]
    fn a_disk_to_swap_to_has_the_kernels_mark() {
        let image = swap(Bytes::mib(8)).unwrap();

        let mut mark = [0; 10];
        image.0.read_exact_at(&mut mark, 4096 - 10).unwrap();
        assert_eq!(&mark, b"SWAPSPACE2");
    }

    #[test]
    fn a_tool_that_is_not_here_is_named_with_its_package() {
        let image = Unnamed::new(Bytes::mib(1)).unwrap();

        let error = make(&image, "mkfs.nothing", "nothing-tools", &[]).unwrap_err().to_string();

        assert!(error.contains("mkfs.nothing") && error.contains("apt-get install nothing-tools"), "{error}");
    }
}
