//! The files behind mappings and descriptors: opened without side effects, measured, and looked up in the mount table.

use majorfault::observe::places::FileId;
use majorfault::proc::mounts::{self, Mount};
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

/// Opens the file that process `pid` has mapped as `path`, or had when it ran, if it is still the same file and we may read it.
pub fn open(pid: u32, path: &str, id: FileId) -> Option<File> {
    if !path.starts_with('/') {
        return None;
    }
    let is_meant = |file: &File| file.metadata().is_ok_and(|it| it.ino() == id.inode);
    // The process's root directory may be another than ours (a container).
    let its = regular(&rooted(pid, path)).filter(is_meant);
    // The process is gone, or its root is closed to us: a file of this name and number on the same file system is the one that is meant.
    its.or_else(|| regular(Path::new(path)).filter(is_meant).filter(|file| is_on(file, path, id.device)))
}

/// Whether a file, opened by its path, is on the device as /proc/PID/maps has it. On btrfs stat(2) shows another number than the
/// mount does.
fn is_on(file: &File, path: &str, device: (u32, u32)) -> bool {
    let Ok(meta) = file.metadata() else { return false };
    let shown = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let text = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    shown == device || shown.0 == 0 && mount_at(&text(), Path::new(path)).is_some_and(|it| it.device == device)
}

/// The mount that a path without links is below: the innermost, of several at one place the last.
fn mount_at(mountinfo: &str, path: &Path) -> Option<Mount> {
    mounts::parse(mountinfo).filter(|it| path.starts_with(&it.point)).max_by_key(|it| it.point.components().count())
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
    mounts::parse(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default()).collect()
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

/// The regular file that process `pid` has open and that is this one, with its path, if we may read it. It may be closed again by the time
/// that somebody asks. Costs a stat(2) for each descriptor, and where none is the file a statfs(2) for each with its inode's number.
pub fn open_by_id(pid: u32, id: FileId) -> Option<(String, File)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let with = |is_it: &dyn Fn(&fs::Metadata, &Path) -> bool| {
        links.iter().find(|link| fs::metadata(link).is_ok_and(|it| is_it(&it, link)))
    };
    // The kernel reads the file in the layer below: overlayfs shows its inode's number, as long as all layers are on one file system, and a device
    // of its own.
    let shows = |it: &fs::Metadata, link: &Path| {
        it.is_file() && it.ino() == id.inode && rustix::fs::statfs(link).is_ok_and(|on| on.f_type as u64 == OVERLAY)
    };
    let link = with(&|it, _| is(it, id)).or_else(|| with(&shows))?.clone();
    let path = fs::read_link(&link).ok()?.to_string_lossy().into_owned();
    regular(&link).map(|file| (path, file))
}

/// Whether the metadata is that of a file as the kernel knows it; on btrfs stat(2) shows another device, with major number 0 as well.
fn is(meta: &fs::Metadata, id: FileId) -> bool {
    let major = rustix::fs::major(meta.dev());
    let is_on = (major, rustix::fs::minor(meta.dev())) == id.device || major == 0 && id.device.0 == 0;
    meta.is_file() && meta.ino() == id.inode && is_on
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

    /// A file with its path and identity, as a mapping of it is shown.
    fn world() -> (tempfile::NamedTempFile, String, FileId) {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let (path, meta) = (file.path().to_str().unwrap().to_owned(), file.as_file().metadata().unwrap());
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        (file, path, FileId { device, inode: meta.ino() })
    }

    /// No process has this number.
    const GONE: u32 = u32::MAX / 4;

    #[test]
    fn the_file_of_a_process_that_has_ended_is_opened_by_its_own_name() {
        let (_file, path, id) = world();

        assert!(open(GONE, &path, id).is_some() && open(std::process::id(), &path, id).is_some());
    }

    #[test]
    fn a_file_of_the_same_name_and_number_on_another_file_system_is_another_one() {
        let (_file, path, id) = world();
        let elsewhere = FileId { device: (id.device.0 + 1, id.device.1), ..id };

        assert!(open(GONE, &path, elsewhere).is_none());
        assert!(open(GONE, &path, FileId { inode: id.inode + 1, ..id }).is_none());
    }

    #[test]
    fn a_path_is_below_its_innermost_mount_and_of_two_at_one_place_below_the_later() {
        let text = "\
21 1 8:1 / / rw - ext4 /dev/a rw
22 21 0:42 / /data rw - btrfs /dev/b rw
23 22 0:43 / /data/x rw - btrfs /dev/c rw
24 23 0:44 / /data/x rw - btrfs /dev/d rw
";
        let device_of = |path: &str| mount_at(text, Path::new(path)).unwrap().device;

        assert_eq!(["/f", "/database/f", "/data/f", "/data/x/f"].map(device_of), [(8, 1), (8, 1), (0, 42), (0, 44)]);
    }

    #[test]
    fn a_fifo_is_not_opened() {
        let path = std::env::temp_dir().join(format!("majorfault-doctor-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success());

        assert!(made && regular(&path).is_none());
        fs::remove_file(path).unwrap();
    }
}
