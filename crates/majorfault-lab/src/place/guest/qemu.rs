//! QEMU's command line for a guest.

use crate::place::guest::architecture::{Architecture, GuestMachine};
use crate::place::guest::spec::{Accelerator, Spec};
use majorfault::Need;
use std::path::Path;

/// A machine emulator, for guests.
pub const QEMU: Need = Need {
    name: "guests",
    summary: "running a trial in a guest with a kernel of one's choice",
    probe: || Architecture::HOST.emulator(),
};

/// The files that a guest is started from.
pub struct Files<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The archive that it unpacks.
    pub archive: &'a Path,
    /// Where its console goes.
    pub console: &'a Path,
    /// Image of the disk.
    pub disk: Option<&'a Path>,
    /// Image of the disk to swap to.
    pub swap: Option<&'a Path>,
    /// Image of the persistent memory.
    pub pmem: Option<&'a Path>,
}

/// Kernel arguments: silent but for trouble (warnings have level 4, which "quiet" would hide), ends on a panic, fixed addresses.
const KERNEL: &str = "loglevel=5 panic=-1 oops=panic nokaslr rdinit=/init";

/// What our program is told as first process.
const INIT: &str = "kernel init";

/// The words of the command, the program first.
pub fn command(spec: &Spec, architecture: Architecture, accelerator: Accelerator, files: &Files<'_>) -> Vec<String> {
    let GuestMachine { program, board, emulated, kernel, .. } = architecture.machine();
    let path = |path: &Path| path.display().to_string();
    let mut words: Vec<String> = [*program, "-nodefaults", "-nographic", "-no-reboot", "-no-user-config"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
    add("machine", (*board).to_owned());
    engine(accelerator, emulated, &mut add);
    memory(spec, &mut add);
    add("smp", format!("{}", spec.cpus));
    add("kernel", path(files.kernel));
    add("initrd", path(files.archive));
    let delay = spec.device_mapper().map(|argument| format!(" {argument}")).unwrap_or_default();
    add("append", format!("{kernel} {KERNEL}{delay} -- {INIT}"));
    add("serial", format!("file:{}", path(files.console)));
    add("device", "virtio-serial-pci".to_owned());
    // Lines for us come through our pipe; the console has a file of its own.
    add("chardev", "file,id=lines,path=/proc/self/fd/1".to_owned());
    add("device", "virtserialport,chardev=lines,name=majorfault".to_owned());
    // In this order they get their names.
    for (name, image) in [("disk", files.disk), ("swap", files.swap)] {
        if let Some(image) = image {
            add("drive", format!("file={},if=none,id={name},format=raw,cache=unsafe,discard=unmap", path(image)));
            add("device", format!("virtio-blk-pci,drive={name},num-queues={}", spec.cpus.min(4)));
        }
    }
    if let Some(pmem) = files.pmem {
        let (path, size) = (path(pmem), spec.pmem.0);
        add("object", format!("memory-backend-file,id=pmem,share=on,mem-path={path},size={size}"));
        add("device", "virtio-pmem-pci,memdev=pmem".to_owned());
    }
    words
}

fn engine(accelerator: Accelerator, emulated: &str, add: &mut impl FnMut(&str, String)) {
    match accelerator {
        Accelerator::Kvm => {
            add("accel", "kvm".to_owned());
            add("cpu", "host".to_owned());
        }
        Accelerator::Auto | Accelerator::Tcg => {
            add("accel", "tcg,thread=multi".to_owned());
            add("cpu", emulated.to_owned());
        }
    }
}

/// Memory, in as many nodes as are wanted, and room in the address space for what is persistent.
fn memory(spec: &Spec, add: &mut impl FnMut(&str, String)) {
    let (size, numa) = ((spec.memory.0 >> 20) << 20, u64::from(spec.numa));
    let most = size + spec.pmem.0 + (1 << 30);
    add("m", format!("size={}M,slots=2,maxmem={}M", size >> 20, most >> 20));
    if numa == 1 {
        return;
    }
    let cpus = u64::from(spec.cpus) / numa;
    for node in 0..numa {
        // The first takes what does not divide into whole MiB.
        let share = (size / numa) >> 20;
        let mib = if node == 0 { (size >> 20) - share * (numa - 1) } else { share };
        add("object", format!("memory-backend-ram,id=node{node},size={mib}M"));
        let (first, last) = (node * cpus, node * cpus + cpus - 1);
        add("numa", format!("node,nodeid={node},cpus={first}-{last},memdev=node{node}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, accelerator: Accelerator) -> String {
        words_of(Architecture::X86_64, text, accelerator)
    }

    fn words_of(architecture: Architecture, text: &str, accelerator: Accelerator) -> String {
        let spec: Spec = text.parse().unwrap();
        let [kernel, archive, console, disk, pmem, swap] = ["k", "a", "c", "d", "p", "s"].map(Path::new);
        let files = Files {
            kernel,
            archive,
            console,
            disk: (spec.disk.0 > 0).then_some(disk),
            swap: (spec.swap.0 > 0).then_some(swap),
            pmem: (spec.pmem.0 > 0).then_some(pmem),
        };
        command(&spec, architecture, accelerator, &files).join(" ")
    }

    #[test]
    fn two_nodes_share_processors_and_memory() {
        let words = words("guest:cpus=4,numa=2,memory=1001m", Accelerator::Tcg);

        assert!(
            words.contains("-object memory-backend-ram,id=node0,size=501M -numa node,nodeid=0,cpus=0-1,memdev=node0")
        );
        assert!(
            words.contains("-object memory-backend-ram,id=node1,size=500M -numa node,nodeid=1,cpus=2-3,memdev=node1")
        );
    }

    #[test]
    fn persistent_memory_has_room_beside_memory() {
        let words = words("guest:memory=1g,pmem=2g,disk=0", Accelerator::Tcg);

        assert!(words.contains("-m size=1024M,slots=2,maxmem=4096M"), "{words}");
        assert!(words.contains("mem-path=p,size=2147483648 -device virtio-pmem-pci"), "{words}");
        assert!(!words.contains("virtio-blk"), "{words}");
    }

    #[test]
    fn a_disk_to_swap_to_comes_after_the_other_one() {
        let with = words("guest:disk=1g,swap=64m", Accelerator::Tcg);

        assert!(with.find("drive=disk,") < with.find("drive=swap,"), "{with}");
        assert!(with.contains("file=s,if=none,id=swap,"), "{with}");
        assert!(!words("guest:disk=1g", Accelerator::Tcg).contains("id=swap"));
    }

    #[test]
    fn a_panic_ends_the_guest_and_our_program_is_told_that_it_is_first() {
        let words = words("guest:delay_ms=10,disk=1g", Accelerator::Kvm);

        assert!(words.contains("panic=-1") && words.contains("-no-reboot"), "{words}");
        assert!(words.contains("delay /dev/vda 0 10 /dev/vda 0 0\" -- kernel init"), "{words}");
        assert!(words.contains("-accel kvm -cpu host"), "{words}");
    }

    #[test]
    fn another_processor_has_another_board_and_console() {
        let arm = words_of(Architecture::Aarch64, "guest:disk=1g", Accelerator::Tcg);
        let x86 = words("guest:disk=1g", Accelerator::Tcg);

        assert!(arm.starts_with("qemu-system-aarch64 ") && arm.contains("-machine virt,"), "{arm}");
        assert!(arm.contains("console=ttyAMA0 ") && !arm.contains("ttyS0"), "{arm}");
        assert!(x86.starts_with("qemu-system-x86_64 ") && x86.contains("console=ttyS0 "), "{x86}");
    }
}
