//! The machine as far as it decides about files: kernel, processor, device, page cache, limits.

use crate::record::{self, Machine};
use crate::scratch;
use majorfault::proc::{self, block, mounts};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at the machine, and at the file system and device under the first of `files`.
pub fn look(files: &[PathBuf]) -> Machine {
    let name = rustix::system::uname();
    let cpuinfo = text("/proc/cpuinfo");
    let device = files.first().and_then(|file| device(file));
    let number = |setting: &str| block::queue(device.as_ref()?.number, setting);
    let meminfo = text("/proc/meminfo");
    let kib = |key: &str| proc::number(&meminfo, key).unwrap_or(0) << 10;
    Machine {
        kernel: name.release().to_string_lossy().into_owned(),
        architecture: name.machine().to_string_lossy().into_owned(),
        cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        memory_bytes: kib("MemTotal"),
        filesystem: files.first().map(|file| filesystem(file)).unwrap_or_default(),
        device: device.as_ref().map(|device| device.name.clone()).unwrap_or_default(),
        read_ahead_kb: device.as_ref().and_then(|device| block::read_ahead_kb(device.number)),
        max_sectors_kb: number("max_sectors_kb"),
        rotational: number("rotational").map(|flag| flag != 0),
        thp: proc::chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")).unwrap_or("absent").to_owned(),
        lru: lru(&text("/sys/kernel/mm/lru_gen/enabled")).to_owned(),
        cgroup: cgroup(),
        hypervisor: hypervisor(&cpuinfo),
        in_memory: in_memory(files),
        swap_bytes: [kib("SwapTotal").saturating_sub(kib("SwapFree")), kib("SwapTotal")],
        remarks: remarks(),
    }
}

/// Memory that can be had without swapping (MemAvailable).
pub fn available_memory() -> majorfault::Bytes {
    majorfault::Bytes(proc::number(&text("/proc/meminfo"), "MemAvailable").unwrap_or(0) << 10)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The block device under a file.
struct Device {
    name: String,
    number: (u32, u32),
}

/// By the file's device number.
fn device(file: &Path) -> Option<Device> {
    let meta = fs::metadata(file).ok()?;
    // A block device is itself what is read.
    let number = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let dir = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = dir.file_name()?.to_string_lossy().into_owned();
    Some(Device { name, number: (major, minor) })
}

/// Why what the files lie on is memory, or is kept in memory below the file system.
fn in_memory(files: &[PathBuf]) -> Option<String> {
    files.iter().find_map(|file| match scratch::in_memory(file) {
        Some(name) => Some(format!("{} is on {name}", file.display())),
        None => device(file).and_then(|device| kept_in_memory(&device.name, Path::new("/sys/block"))),
    })
}

/// The same of a block device, by what `blocks` (/sys/block) says of it and of the devices below it.
fn kept_in_memory(name: &str, blocks: &Path) -> Option<String> {
    let dir = blocks.join(name);
    if name.starts_with("ram") || name.starts_with("zram") {
        return Some(format!("{name} is a disk of memory"));
    }
    if let Ok(backing) = fs::read_to_string(dir.join("loop/backing_file")) {
        let (backing, is_direct) = (backing.trim(), text(dir.join("loop/dio")).trim() == "1");
        return match scratch::in_memory(Path::new(backing)) {
            Some(kind) => Some(format!("{name} is a loop device over {backing}, which is on {kind}")),
            None if is_direct => None,
            None => Some(format!(
                "{name} is a loop device over {backing}, which it reads through the page cache; losetup --direct-io=on"
            )),
        };
    }
    let below = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
    below.filter_map(|slave| slave.file_name().into_string().ok()).find_map(|slave| kept_in_memory(&slave, blocks))
}

/// Type of the file system under a file, from the mount whose device it has.
fn filesystem(file: &Path) -> String {
    let Ok(meta) = fs::metadata(file) else { return String::new() };
    if meta.rdev() != 0 {
        return "block device".to_owned();
    }
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    mounts::of_device(&text("/proc/self/mountinfo"), device).map_or_else(|| "unknown".to_owned(), |mount| mount.kind)
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// Bit 0 of lru_gen/enabled is the multi-generational LRU's main switch.
fn lru(enabled: &str) -> &'static str {
    let bits = u32::from_str_radix(enabled.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    if bits & 1 == 1 { "mglru" } else { "classic" }
}

fn cgroup() -> String {
    match crate::place::version() {
        Some(version) => version.to_owned(),
        None => "none".to_owned(),
    }
}

/// The hypervisor's name where it tells one; empty on bare metal.
fn hypervisor(cpuinfo: &str) -> String {
    let has_flag = field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let named = ["/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor"].map(text);
    let named =
        named.iter().map(|name| name.trim()).find(|name| !name.is_empty()).unwrap_or(record::UNNAMED_HYPERVISOR);
    if has_flag { named.to_owned() } else { String::new() }
}

/// What this process may do, as pairs of a name and its value.
pub fn rights() -> Vec<(&'static str, String)> {
    let status = text("/proc/self/status");
    let seccomp = match field(&status, "Seccomp") {
        Some("0") | None => "none",
        Some("1") => "strict",
        Some(_) => "filtered: some system calls may be refused (containers do that to io_uring)",
    };
    let mask = field(&status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let held = CAPABILITIES.iter().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| *name);
    let held = held.collect::<Vec<_>>().join(", ");
    let paranoid = text("/proc/sys/kernel/perf_event_paranoid");
    vec![
        ("user", rustix::process::geteuid().as_raw().to_string()),
        ("capabilities", if held.is_empty() { "none of those that help".to_owned() } else { held }),
        ("seccomp", seccomp.to_owned()),
        ("perf_event_paranoid", if paranoid.is_empty() { "absent".to_owned() } else { paranoid.trim().to_owned() }),
        ("locked memory", locked_memory()),
    ]
}

/// Capabilities that open facilities to this tool, by their bits (capabilities(7)).
const CAPABILITIES: &[(u32, &str)] =
    &[(14, "CAP_IPC_LOCK"), (21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

fn locked_memory() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => majorfault::Bytes(bytes).rounded(),
        None => "unlimited".to_owned(),
    }
}

fn remarks() -> Vec<String> {
    let mut remarks: Vec<String> = majorfault::observe::hidden_flushes().into_iter().collect();
    if let Some(limit) = crate::place::inherited_limit() {
        remarks.push(format!("started under a memory limit of {}", limit.rounded()));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mglru_is_told_by_its_main_switch() {
        assert_eq!(lru("0x0007\n"), "mglru");
        assert_eq!(lru("0x0000\n"), "classic");
        assert_eq!(lru(""), "classic");
    }

    /// A /sys/block with one device and its files.
    fn blocks(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_disk_of_memory_is_seen_also_below_others() {
        let mapped = blocks("dm-0", &[("slaves/zram0/dev", "252:0")]);
        let on_shm = blocks("loop0", &[("loop/backing_file", "/dev/shm\n"), ("loop/dio", "1\n")]);

        assert_eq!(kept_in_memory("ram0", Path::new("/none")).unwrap(), "ram0 is a disk of memory");
        assert_eq!(kept_in_memory("dm-0", mapped.path()).unwrap(), "zram0 is a disk of memory");
        assert!(kept_in_memory("loop0", on_shm.path()).unwrap().contains("/dev/shm, which is on tmpfs"));
    }

    #[test]
    fn a_loop_device_over_a_disk_is_a_disk_only_with_direct_io() {
        let device = |dio| blocks("loop0", &[("loop/backing_file", "/var/tmp\n"), ("loop/dio", dio)]);

        let buffered = kept_in_memory("loop0", device("0\n").path());

        assert!(buffered.unwrap().contains("reads through the page cache; losetup --direct-io=on"));
        assert_eq!(kept_in_memory("loop0", device("1\n").path()), None);
    }

    #[test]
    fn a_disk_is_a_disk() {
        assert_eq!(kept_in_memory("vda", blocks("vda", &[("queue/rotational", "1")]).path()), None);
    }

    #[test]
    fn this_machine_is_described() {
        let machine = look(&[PathBuf::from("/var/tmp")]);

        assert!(!machine.kernel.is_empty() && machine.memory_bytes > 0 && machine.cpus > 0);
        assert!(!machine.filesystem.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in "\\PC*|([a-z ]{1,8}\t*: ?[a-z0-9 ]{0,12}\n){0,8}") {
            let _ = (lru(&text), field(&text, "flags"), hypervisor(&text));
        }
    }
}
