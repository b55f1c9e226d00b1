//! File systems of a guest's disk, one declaration each: who makes it, what the kernel must load, what lies between it and the disk.

use crate::place::guest::line::{BROUGHT, Mount, Step};
use crate::place::guest::spec::DATA;

majorfault::choices! {
    /// A file system of the guest's disk.
    pub enum FileSystem {
        /// Made by mke2fs.
        Ext4 = "ext4",
        /// ext4 that takes and frees 64 KiB at a time (bigalloc); its blocks are pages.
        Ext4Clusters = "ext4-64k",
        /// Made by mkfs.xfs.
        Xfs = "xfs",
        /// xfs with blocks of 64 KiB, larger than a page: Linux 6.12.
        XfsBlocks = "xfs-64k",
        /// Made by mkfs.btrfs.
        Btrfs = "btrfs",
        /// Made by mkfs.f2fs.
        F2fs = "f2fs",
        /// ext4 below, a layer of overlayfs on top: as a container has its root.
        Overlay = "overlay",
        /// ext4 on a disk that dm-crypt encrypts.
        Crypt = "crypt",
        /// ext4 that the guest exports to itself, mounted by NFS version 4.2 over the loopback device.
        Nfs = "nfs",
    }
}

/// How a file system comes to be.
pub struct FileSystemTools {
    /// The host's tool that makes it on the image, its package, its words before the image; none where the guest makes it.
    pub tool: Option<(&'static str, &'static str, &'static [&'static str])>,
    /// Modules that a kernel loads for it where it is not part of the image.
    pub modules: &'static [&'static str],
    /// Programs that the guest needs, each with its package.
    pub programs: &'static [(&'static str, &'static str)],
}

/// Nothing is left for the kernel to write later: its writing would be taken for the trial's.
const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";

const MKE2FS: (&str, &str, &[&str]) = ("mke2fs", "e2fsprogs", &["-q", "-F", "-t", "ext4", "-E", LAZY]);

/// Where the disk's own file system is mounted when another lies over it.
const BELOW: &str = "/below";

/// A key of 256 bits: these data are nobody's secret.
const KEY: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";

impl FileSystem {
    /// How it comes to be.
    pub fn making(self) -> FileSystemTools {
        let (tool, modules, programs): (_, &'static [&'static str], &'static [(&'static str, &'static str)]) =
            match self {
                FileSystem::Ext4 => (Some(MKE2FS), &[], &[]),
                FileSystem::Ext4Clusters => {
                    let words = &["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536", "-E", LAZY];
                    (Some(("mke2fs", "e2fsprogs", words as &[_])), &[], &[])
                }
                FileSystem::Xfs => (Some(("mkfs.xfs", "xfsprogs", &["-q", "-f"])), &["xfs"], &[]),
                FileSystem::XfsBlocks => {
                    (Some(("mkfs.xfs", "xfsprogs", &["-q", "-f", "-b", "size=65536"])), &["xfs"], &[])
                }
                FileSystem::Btrfs => (
                    Some(("mkfs.btrfs", "btrfs-progs", &["-q", "-f"])),
                    &["crc32c_generic", "xxhash_generic", "blake2b_generic", "sha256_generic", "btrfs"],
                    &[],
                ),
                FileSystem::F2fs => (Some(("mkfs.f2fs", "f2fs-tools", &["-q", "-f"])), &["crc32_generic", "f2fs"], &[]),
                FileSystem::Overlay => (Some(MKE2FS), &["overlay"], &[]),
                FileSystem::Crypt => (
                    None,
                    &["aes_generic", "ecb", "xts", "dm_mod", "dm_crypt"],
                    &[("dmsetup", "dmsetup"), ("mke2fs", "e2fsprogs")],
                ),
                FileSystem::Nfs => (
                    Some(MKE2FS),
                    &["nfsd", "nfs", "nfsv4"],
                    &[("exportfs", "nfs-kernel-server"), ("rpc.mountd", "nfs-kernel-server"), ("ip", "iproute2")],
                ),
            };
        FileSystemTools { tool, modules, programs }
    }

    /// What is mounted, in order, so that the data directory is of this file system on `device`, a disk of so many bytes.
    pub fn mounts(self, device: (String, String), bytes: u64) -> Vec<Mount> {
        let on_disk = |at: &str| Mount::of(device.clone(), "ext4", "", at);
        match self {
            FileSystem::Ext4 | FileSystem::Ext4Clusters => vec![on_disk(DATA)],
            FileSystem::Xfs | FileSystem::XfsBlocks => vec![Mount::of(device, "xfs", "", DATA)],
            FileSystem::Btrfs => vec![Mount::of(device, "btrfs", "", DATA)],
            FileSystem::F2fs => vec![Mount::of(device, "f2fs", "", DATA)],
            FileSystem::Overlay => {
                let [lower, upper, work] = ["lower", "upper", "work"].map(|name| format!("{BELOW}/{name}"));
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                let name = ("overlay".to_owned(), "CONFIG_OVERLAY_FS".to_owned());
                let over = Mount::of(name, "overlay", &options, DATA);
                vec![on_disk(BELOW), over.after([lower, upper, work].map(Step::Directory))]
            }
            FileSystem::Crypt => {
                let table = format!("0 {} crypt aes-xts-plain64 {KEY} 0 {} 0", bytes / 512, device.0);
                let name = ("/dev/mapper/data".to_owned(), "CONFIG_DM_CRYPT".to_owned());
                let make = format!("{BROUGHT}/mke2fs -q -F -t ext4 -E {LAZY} /dev/mapper/data");
                let made = [
                    Step::run(&[&format!("{BROUGHT}/dmsetup"), "create", "--noudevsync", "data", "--table", &table]),
                    Step::words(&make),
                ];
                vec![Mount::of(name, "ext4", "", DATA).after(made)]
            }
            FileSystem::Nfs => {
                let name = |name: &str| (name.to_owned(), "CONFIG_NFSD and CONFIG_NFS_V4".to_owned());
                let served = [
                    Step::words(&format!("{BROUGHT}/ip link set lo up")),
                    Step::Directory("/var/lib/nfs".to_owned()),
                    Step::Directory("/var/lib/nfs/v4recovery".to_owned()),
                    Step::write("/var/lib/nfs/etab", ""),
                    Step::write("/var/lib/nfs/rmtab", ""),
                    Step::Directory("/etc".to_owned()),
                    Step::write("/etc/exports", ""),
                    Step::words(&format!(
                        "{BROUGHT}/exportfs -i -o rw,fsid=0,no_root_squash,no_subtree_check,insecure,async 127.0.0.1:{BELOW}"
                    )),
                    Step::words(&format!("{BROUGHT}/rpc.mountd --no-nfs-version 3 --no-udp")),
                    // Version 3 does not begin without rpcbind.
                    Step::write("/proc/fs/nfsd/versions", "-3\n"),
                    Step::write("/proc/fs/nfsd/portlist", "tcp 2049"),
                    Step::write("/proc/fs/nfsd/threads", "2"),
                    // Else the server lets nobody open a file for 90 s, in which clients of an earlier boot may claim theirs.
                    Step::write("/proc/fs/nfsd/v4_end_grace", "Y"),
                    Step::Sleep(2),
                ];
                let options = "addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,proto=tcp,port=2049,sec=sys,hard";
                vec![
                    on_disk(BELOW),
                    Mount::of(name("nfsd"), "nfsd", "", "/proc/fs/nfsd"),
                    Mount::of(name("127.0.0.1:/"), "nfs4", options, DATA).after(served),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::params::Value;

    fn mounts(kind: FileSystem) -> Vec<Mount> {
        kind.mounts(("/dev/vda".to_owned(), "CONFIG_VIRTIO_BLK".to_owned()), 1 << 30)
    }

    #[test]
    fn every_file_system_ends_where_the_data_go() {
        for kind in FileSystem::ALL {
            assert_eq!(mounts(*kind).last().map(|last| last.at.as_str()), Some(DATA), "{}", kind.text());
        }
    }

    #[test]
    fn one_that_the_guest_makes_brings_what_makes_it() {
        for kind in FileSystem::ALL {
            let making = kind.making();
            let steps: Vec<Step> = mounts(*kind).into_iter().flat_map(|mount| mount.before).collect();
            for step in &steps {
                let Step::Run(words) = step else { continue };
                let program = words[0].trim_start_matches("/brought/");
                assert!(making.programs.iter().any(|(name, _)| *name == program), "{}: {words:?}", kind.text());
            }
            assert!(making.tool.is_some() || !steps.is_empty(), "{}: nobody makes it", kind.text());
        }
    }

    #[test]
    fn an_encrypted_disk_is_as_long_as_the_disk() {
        let mounts = mounts(FileSystem::Crypt);

        let Step::Run(words) = &mounts[0].before[0] else { panic!("{mounts:?}") };
        assert!(words.last().unwrap().starts_with("0 2097152 crypt aes-xts-plain64 "), "{words:?}");
    }
}
