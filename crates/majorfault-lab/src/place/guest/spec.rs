//! Which guest: `guest:kernel=strided,cpus=4,memory=2g,disk=8g,delay_ms=10`.

use crate::place::guest::filesystem::FileSystem;
use crate::place::guest::line::Mount;
use majorfault::params::{Given, Params};
use majorfault::{Bytes, Error, Result};
use std::str::FromStr;

majorfault::choices! {
    /// Who runs the guest's instructions.
    pub enum Accelerator {
        /// KVM where a guest boots on it, else emulation.
        Auto = "auto",
        /// The processor, through /dev/kvm.
        Kvm = "kvm",
        /// QEMU's emulation, one thread a processor.
        Tcg = "tcg",
    }
}

majorfault::params! {
    /// A guest.
    pub struct Spec {
        /// One of `majorfault kernel list` by its name or variant, or the path of a kernel image.
        kernel: String = "plain".to_owned(),
        /// Processors; more than one, so that shootdowns exist.
        cpus: u32 = 4,
        /// Memory; enough for the default comparison with its limit.
        memory: Bytes = Bytes::gib(2),
        /// Size of the disk for data; its image is sparse. 0 for none.
        disk: Bytes = Bytes::gib(4),
        /// The disk's file system.
        fs: FileSystem = FileSystem::Ext4,
        /// Milliseconds that each read of the disk waits (dm-delay), so that waiting shows under emulation.
        delay_ms: u32 = 0,
        /// Size of persistent memory with a DAX file system, where data go when there is no disk. 0 for none.
        pmem: Bytes = Bytes(0),
        /// Size of a disk that the guest swaps to. 0 for none.
        swap: Bytes = Bytes(0),
        /// NUMA nodes that share processors and memory evenly.
        numa: u32 = 1,
        /// Who runs the guest's instructions; by default what works here.
        accel: Accelerator = Accelerator::Auto,
        /// Our program as it was built for the guest's processor, linked statically, where that is not this machine's.
        program: String = String::new(),
    }
}

/// Where the data disk is mounted: where `compare` makes its files unless told otherwise.
pub const DATA: &str = "/var/tmp";

/// Where persistent memory is mounted beside a disk.
pub const PMEM: &str = "/pmem";

/// The least memory in which our kernels and our program start.
const LEAST_MEMORY: Bytes = Bytes::mib(256);

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Spec> {
        let (name, given) = text.split_once(':').unwrap_or((text, ""));
        if name != "guest" {
            return Err(Error::Invalid(format!(
                "\"{text}\" is no place; legal is guest, or guest:name=value,... with {}",
                Spec::declared().iter().map(|param| param.name).collect::<Vec<_>>().join(", ")
            )));
        }
        let spec = Spec::from_given(&given.parse::<Given>()?)?;
        spec.check()?;
        Ok(spec)
    }
}

impl Spec {
    fn check(&self) -> Result<()> {
        let refuse = |sentence: String| Err(Error::Invalid(sentence));
        let Spec { cpus, memory, disk, pmem, numa, delay_ms, swap, .. } = self;
        match () {
            () if *cpus == 0 || *cpus > 64 => refuse(format!("cpus={cpus}: legal is 1 to 64")),
            () if *memory < LEAST_MEMORY => {
                refuse(format!("memory={memory}: a guest needs at least {}", LEAST_MEMORY.rounded()))
            }
            () if *numa == 0 || cpus % numa != 0 => {
                refuse(format!("numa={numa}: nodes share the {cpus} processors evenly; legal are divisors of {cpus}"))
            }
            () if pmem.0 % (2 << 20) != 0 => refuse(format!("pmem={pmem}: legal are multiples of 2m")),
            () if disk.0 == 0 && pmem.0 == 0 => {
                refuse("disk=0: the data need a place; say disk=4g, or pmem=1g for persistent memory".to_owned())
            }
            () if disk.0 == 0 && *delay_ms != 0 => {
                refuse(format!("delay_ms={delay_ms}: only a disk waits; add disk=4g"))
            }
            () if swap.0 != 0 && *swap < Bytes::mib(1) => refuse(format!("swap={swap}: at least 1m")),
            () if disk.0 != 0 && *disk < Bytes::mib(64) => refuse(format!("disk={disk}: at least 64m")),
            () => Ok(()),
        }
    }

    /// Every value in force, as a user would type it.
    pub fn text(&self) -> String {
        format!("guest:{}", self.given())
    }

    /// What the guest mounts.
    pub fn mounts(&self) -> Vec<Mount> {
        let device = match self.delay_ms {
            0 => ("/dev/vda".to_owned(), "CONFIG_VIRTIO_BLK".to_owned()),
            _ => ("/dev/dm-0".to_owned(), "CONFIG_DM_DELAY and CONFIG_DM_INIT".to_owned()),
        };
        let disk = if self.disk.0 > 0 { self.fs.mounts(device, self.disk.0) } else { Vec::new() };
        let pmem = (self.pmem.0 > 0).then(|| {
            let device = ("/dev/pmem0".to_owned(), "CONFIG_VIRTIO_PMEM and CONFIG_BLK_DEV_PMEM".to_owned());
            Mount::of(device, "ext4", "dax=always", if self.disk.0 > 0 { PMEM } else { DATA })
        });
        disk.into_iter().chain(pmem).collect()
    }

    /// The device that the guest swaps to: it comes after the disk.
    pub fn swap_device(&self) -> Option<String> {
        let name = if self.disk.0 > 0 { "vdb" } else { "vda" };
        (self.swap.0 > 0).then(|| format!("/dev/{name}"))
    }

    /// The kernel's argument that lays a delay over the disk, before the first process runs.
    pub fn device_mapper(&self) -> Option<String> {
        let sectors = self.disk.0 / 512;
        let delayed = || format!("{sectors} delay /dev/vda 0 {} /dev/vda 0 0", self.delay_ms);
        (self.delay_ms > 0 && self.disk.0 > 0).then(|| format!("dm-mod.create=\"delayed,,0,rw,0 {}\"", delayed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Spec>().err().map_or_else(|| panic!("{text} passes"), |error| error.to_string())
    }

    #[test]
    fn a_place_is_read_with_its_defaults_filled_in() {
        let spec: Spec = "guest:kernel=strided,cpus=8,memory=1g,numa=2".parse().unwrap();

        assert_eq!((spec.cpus, spec.memory, spec.numa, spec.disk), (8, Bytes::gib(1), 2, Bytes::gib(4)));
        assert_eq!(
            spec.text(),
            "guest:accel=auto,cpus=8,delay_ms=0,disk=4g,fs=ext4,kernel=strided,memory=1g,numa=2,pmem=0,program=,swap=0"
        );
        assert_eq!(spec.text().parse::<Spec>().unwrap().text(), spec.text());
        assert!("guest".parse::<Spec>().is_ok());
    }

    #[test]
    fn what_no_guest_can_be_is_refused_with_what_can() {
        for (text, says) in [
            ("container", "legal is guest"),
            ("guest:cpu=4", "legal are kernel, cpus, memory"),
            ("guest:cpus=0", "1 to 64"),
            ("guest:memory=100m", "at least 256 MiB"),
            ("guest:memory=much", "a size"),
            ("guest:cpus=4,numa=3", "divisors of 4"),
            ("guest:numa=0", "divisors of 4"),
            ("guest:disk=0", "pmem=1g"),
            ("guest:disk=1m", "at least 64m"),
            ("guest:swap=1k", "at least 1m"),
            ("guest:pmem=1000", "multiples of 2m"),
            ("guest:disk=0,pmem=1g,delay_ms=10", "only a disk waits"),
            ("guest:fs=ntfs", "ext4"),
            ("guest:accel=xen", "auto"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn persistent_memory_is_where_the_data_go_only_without_a_disk() {
        let at = |text: &str| -> Vec<(String, String)> {
            let mounts = text.parse::<Spec>().unwrap().mounts();
            mounts.into_iter().map(|mount| (mount.device.0, mount.at)).collect()
        };
        let pair = |device: &str, at: &str| (device.to_owned(), at.to_owned());

        assert_eq!(at("guest"), [pair("/dev/vda", "/var/tmp")]);
        assert_eq!(at("guest:pmem=1g"), [pair("/dev/vda", "/var/tmp"), pair("/dev/pmem0", "/pmem")]);
        assert_eq!(at("guest:pmem=1g,disk=0"), [pair("/dev/pmem0", "/var/tmp")]);
        assert_eq!(at("guest:delay_ms=10"), [pair("/dev/dm-0", "/var/tmp")]);
    }

    #[test]
    fn a_delay_lies_over_the_whole_disk_and_delays_reads_only() {
        let spec: Spec = "guest:disk=1g,delay_ms=10".parse().unwrap();

        let argument = spec.device_mapper().unwrap();

        assert_eq!(argument, "dm-mod.create=\"delayed,,0,rw,0 2097152 delay /dev/vda 0 10 /dev/vda 0 0\"");
        assert_eq!("guest:disk=1g".parse::<Spec>().unwrap().device_mapper(), None);
    }
}
