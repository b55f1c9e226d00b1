//! The files behind mappings and descriptors: opened without side effects, measured, and looked up in the mount table.

use majorfault::observe::places::FileId;
use majorfault::sys::cache;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// O_NONBLOCK, O_NOCTTY: opening must not wait and not take a terminal. Numbers of asm-generic/fcntl.h.
const HARMLESS: i32 = 0o4000 | 0o400;

/// O_DIRECT in fdinfo, by architecture.
const DIRECT: u32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200000 } else { 0o40000 };

/// An open regular file.
#[derive(Clone, Debug, Default)]
pub struct Descriptor {
    /// Its number.
    pub number: u32,
    /// Path.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether it was opened with O_DIRECT.
    pub direct: bool,
    /// Bytes of it in the page cache.
    pub cached_bytes: Option<u64>,
}

/// A mount, by the device number of its files.
pub struct Mount {
    device: (u32, u32),
    /// Type of the file system.
    pub kind: String,
    /// Options of the file system.
    pub options: String,
}

/// Opens the file that process `pid` has mapped as `path`, if it is still the same file and we may read it.
pub fn open(pid: u32, path: &str, id: FileId) -> Option<File> {
    if !path.starts_with('/') {
        return None;
    }
    // The process's root directory may be another than ours (a container). Our own file of this name is another one there, even
    // where it happens to have the same number.
    let ours = shares_mounts(pid).then(|| PathBuf::from(path));
    let candidates = [Some(rooted(pid, path)), ours];
    let is_meant = |file: &File| file.metadata().is_ok_and(|it| it.ino() == id.inode);
    candidates.into_iter().flatten().find_map(|path| regular(&path).filter(is_meant))
}

/// Whether the process sees the same mounts and the same root as we do.
fn shares_mounts(pid: u32) -> bool {
    let same = |what: &str| {
        let of = |pid: &str| fs::metadata(format!("/proc/{pid}/{what}")).map(|it| (it.dev(), it.ino()));
        matches!((of("self"), of(&pid.to_string())), (Ok(own), Ok(its)) if own == its)
    };
    same("ns/mnt") && same("root")
}

/// The path by which we reach the file that [`open`] opens: its own, unless that names another file for us.
pub fn reached(pid: u32, path: &str, id: FileId) -> Option<PathBuf> {
    let meant = open(pid, path, id)?.metadata().ok()?;
    let is_meant = |it: fs::Metadata| (it.dev(), it.ino()) == (meant.dev(), meant.ino());
    Some(if fs::metadata(path).is_ok_and(is_meant) { PathBuf::from(path) } else { rooted(pid, path) })
}

fn rooted(pid: u32, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root{path}"))
}

/// Opens a regular file for reading; anything else is left alone.
fn regular(path: &Path) -> Option<File> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    OpenOptions::new().read(true).custom_flags(HARMLESS).open(path).ok()
}

/// Bytes of the file in the page cache.
pub fn cached_bytes(file: &File) -> Option<u64> {
    let size = file.metadata().ok()?.len();
    if size == 0 {
        return Some(0);
    }
    if is_overlay(file) {
        // The pages are those of the file below, which cachestat does not look at and a mapping does.
        return cache::mincore(file, 0, size).ok().map(|bytes| bytes.min(size.next_multiple_of(4096)));
    }
    cache::resident(file, 0, size).ok().map(|(bytes, _)| bytes.min(size.next_multiple_of(4096)))
}

/// OVERLAYFS_SUPER_MAGIC of linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

fn is_overlay(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|it| it.f_type as u64 == OVERLAY)
}

/// The mounts that process `pid` sees.
pub fn mounts(pid: u32) -> Vec<Mount> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let (major, minor) = left.split(' ').nth(2)?.split_once(':')?;
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let options = right.nth(1).unwrap_or_default().to_owned();
    Some(Mount { device: (major.parse().ok()?, minor.parse().ok()?), kind, options })
}

/// The mount with this device number.
pub fn mount_of(mounts: &[Mount], device: (u32, u32)) -> Option<&Mount> {
    mounts.iter().find(|mount| mount.device == device)
}

/// The read_ahead_kb in force for files on this device: that of its backing device, for network file systems as well.
pub fn read_ahead_kb(device: (u32, u32)) -> Option<u64> {
    let (major, minor) = device;
    queue(device, "read_ahead_kb").or_else(|| kib(&format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")))
}

/// The largest request of the device, max_sectors_kb; none where there is no block device.
pub fn largest_request_kb(device: (u32, u32)) -> Option<u64> {
    queue(device, "max_sectors_kb")
}

/// A setting of a device's queue; a partition has its disk's.
fn queue((major, minor): (u32, u32), setting: &str) -> Option<u64> {
    let block = format!("/sys/dev/block/{major}:{minor}");
    kib(&format!("{block}/queue/{setting}")).or_else(|| kib(&format!("{block}/../queue/{setting}")))
}

fn kib(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The file that process `pid` has open as `number`, with its path and identity, if it is regular and we may read it.
pub fn open_descriptor(pid: u32, number: i32) -> Option<(String, FileId, File)> {
    let link = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
    let path = fs::read_link(&link).ok()?.to_string_lossy().into_owned();
    let file = regular(&link)?;
    let meta = file.metadata().ok()?;
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    Some((path, FileId { device, inode: meta.ino() }, file))
}

/// The regular files that process `pid` has open; at most `most` of them.
pub fn descriptors(pid: u32, most: usize) -> Vec<Descriptor> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| descriptor(pid, &entry.path())).take(most).collect()
}

fn descriptor(pid: u32, link: &Path) -> Option<Descriptor> {
    let number: u32 = link.file_name()?.to_str()?.parse().ok()?;
    let meta = fs::metadata(link).ok().filter(fs::Metadata::is_file)?;
    // Files without a disk beneath do not count: /proc, /sys.
    let path = fs::read_link(link).ok()?.to_string_lossy().into_owned();
    if path.starts_with("/proc/") || path.starts_with("/sys/") {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let direct = u32::from_str_radix(flags.trim(), 8).ok()? & DIRECT != 0;
    let cached_bytes = regular(Path::new(&path)).as_ref().and_then(cached_bytes);
    Some(Descriptor { number, path, size_bytes: meta.len(), direct, cached_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_type_and_options() {
        let line = "36 35 0:42 / /mnt/data rw,noatime shared:7 - nfs4 server:/export rw,vers=4.2,rsize=1048576";

        let mount = mount(line).unwrap();

        assert_eq!((mount.device, mount.kind.as_str()), ((0, 42), "nfs4"));
        assert!(mount.options.contains("rsize=1048576"));
    }

    #[test]
    fn a_fifo_is_not_opened() {
        let path = std::env::temp_dir().join(format!("majorfault-doctor-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success());

        assert!(made && regular(&path).is_none());
        fs::remove_file(path).unwrap();
    }
}
