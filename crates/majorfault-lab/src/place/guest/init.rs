//! The guest's side: the first process. Mounts what a system needs, runs our program as its order says, sends what it says
//! to the host, and ends the machine.

use crate::place::guest::line::{BROUGHT, Errand, FromGuest, MODULES, Mount, ORDER, PORT, Step};
use crate::place::guest::spec::DATA;
use majorfault::sys::swap::swap_on;
use majorfault::{Error, Result};
use rustix::fs::{FileType, Mode, mknodat};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where the program writes its records: a pipe with a name, whose other end we read.
pub const RECORDS: &str = "/run/records";

/// Where programs are looked for.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/brought";

/// How often the host hears that we live.
const PULSE: Duration = Duration::from_secs(2);

/// What every system has: type, where, options.
const SYSTEM: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/run", ""),
    ("tmpfs", "/tmp", ""),
];

/// What a kernel may lack: counters and limits that the program then lists as missing.
const FACILITIES: &[(&str, &str, &str)] =
    &[("tmpfs", "/dev/shm", ""), ("tracefs", "/sys/kernel/tracing", ""), ("cgroup2", "/sys/fs/cgroup", "")];

/// Lives as the first process of a guest. Never returns.
///
/// Errors: Invalid where this is no guest of ours.
pub fn live() -> Result<std::convert::Infallible> {
    if std::process::id() != 1 || !Path::new(ORDER).exists() {
        return Err(Error::Invalid(
            "\"kernel init\" is the first process of a guest; majorfault starts it there".to_owned(),
        ));
    }
    if let Err(error) = work() {
        // Nobody hears us but the console.
        eprintln!("majorfault: {error}");
    }
    // With -no-reboot this ends QEMU.
    let _ = reboot(RebootCommand::Restart);
    std::process::exit(1);
}

fn work() -> Result<()> {
    for (kind, at, options) in SYSTEM {
        mounted(kind, kind, at, options)?;
    }
    for (kind, at, options) in FACILITIES {
        let _ = fs::create_dir_all(at);
        // Reported by the program, which lists what it does not find.
        let _ = mounted(kind, kind, at, options);
    }
    load_modules()?;
    // So that groups with limits can be made below.
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    let host = Host(Arc::new(Mutex::new(port()?)));
    host.tell(&FromGuest::Ready(rustix::system::uname().release().to_string_lossy().into_owned()));
    let ended = match order().and_then(|order| follow(&order, &host)) {
        Ok(code) => FromGuest::Ended(code),
        Err(error) => FromGuest::Lacks(error.to_string()),
    };
    rustix::fs::sync();
    host.tell(&ended);
    Ok(())
}

/// Loads what the archive brought for a kernel that has it as modules.
fn load_modules() -> Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(MODULES).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().try_for_each(|path| {
        let file = File::open(path).map_err(|error| Error::io("open a module", path, error))?;
        match finit_module(&file, c"", 0) {
            // Part of the image, or loaded by another.
            Err(rustix::io::Errno::EXIST) => Ok(()),
            loaded => loaded.map_err(|errno| Error::io("load a module", path, errno)),
        }
    })
}

fn mounted(device: &str, kind: &str, at: &str, options: &str) -> Result<()> {
    let text = |text: &str| CString::new(text).map_err(|_| Error::Invalid(format!("\"{text}\" has a zero in it")));
    let (device, kind, options) = (text(device)?, text(kind)?, text(options)?);
    mount(&*device, at, &*kind, MountFlags::empty(), Some(&*options)).map_err(|errno| {
        Error::io(format!("mount {} of type {}", device.to_string_lossy(), kind.to_string_lossy()), at, errno)
    })
}

/// The virtio port of our name.
fn port() -> Result<File> {
    let lacks =
        || Error::Invalid("the kernel has no virtio port (CONFIG_VIRTIO_CONSOLE, CONFIG_VIRTIO_PCI)".to_owned());
    let ports = fs::read_dir("/sys/class/virtio-ports").map_err(|_| lacks())?;
    let is_ours = |dir: &PathBuf| fs::read_to_string(dir.join("name")).is_ok_and(|name| name.trim() == PORT);
    let dir = ports.flatten().map(|entry| entry.path()).find(is_ours).ok_or_else(lacks)?;
    let path = Path::new("/dev").join(dir.file_name().unwrap_or_default());
    File::options().write(true).open(&path).map_err(|error| Error::io("open the port to the host", path, error))
}

fn order() -> Result<Errand> {
    let text = fs::read(ORDER).map_err(|error| Error::io("read the order", ORDER, error))?;
    serde_json::from_slice(&text).map_err(|why| Error::Invalid(format!("the order is not of this majorfault: {why}")))
}

/// The host, which several threads speak to.
#[derive(Clone)]
struct Host(Arc<Mutex<File>>);

impl Host {
    fn tell(&self, told: &FromGuest) {
        let Ok(mut line) = serde_json::to_vec(told) else { return };
        line.push(b'\n');
        // Whoever held it before had a whole line written, or is gone with the host.
        let mut port = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Without a host nobody is left to tell; QEMU ends with it.
        let _ = port.write_all(&line);
    }
}

fn follow(order: &Errand, host: &Host) -> Result<u8> {
    order.mounts.iter().try_for_each(mount_disk)?;
    order.swap.iter().try_for_each(|device| {
        swap_on(Path::new(device)).map_err(|error| {
            Error::io("swap to the disk", device, error)
                .with_remedy("the kernel needs CONFIG_SWAP and CONFIG_VIRTIO_BLK")
        })
    })?;
    mknodat(rustix::fs::CWD, order.records.as_str(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(|errno| Error::io("make a pipe for records", &order.records, errno))?;
    // Open at both ends as long as we live, so that no reader ends before the writer comes.
    let records = File::options().read(true).write(true).open(&order.records);
    let records = records.map_err(|error| Error::io("open the pipe for records", &order.records, error))?;
    pulse(host.clone());
    let (sender, seen) = std::sync::mpsc::channel();
    spawn_records(records, host.clone(), sender);
    let code = program(order, host)?;
    end_records(order, &seen);
    Ok(code)
}

fn mount_disk(wanted: &Mount) -> Result<()> {
    let Mount { device: (device, needs), kind, options, at, before } = wanted;
    before.iter().try_for_each(done)?;
    if device.starts_with("/dev/") && !Path::new(device).exists() {
        return Err(Error::Invalid(format!("the kernel shows no {device}; it needs {needs}")));
    }
    fs::create_dir_all(at).map_err(|error| Error::io("make a directory to mount on", at, error))?;
    mounted(device, kind, at, options).map_err(|error| {
        let option = match device.starts_with("/dev/") {
            true => format!("CONFIG_{}_FS", kind.to_uppercase()),
            false => needs.clone(),
        };
        let dax = if options.contains("dax") { " and CONFIG_FS_DAX" } else { "" };
        Error::Invalid(format!("{error}; the kernel needs {option}{dax}"))
    })
}

/// Does what comes before a mount.
fn done(step: &Step) -> Result<()> {
    match step {
        Step::Directory(path) => fs::create_dir_all(path).map_err(|error| Error::io("make a directory", path, error)),
        Step::Write(path, text) => fs::write(path, text).map_err(|error| Error::io("write", path, error)),
        Step::Sleep(seconds) => {
            std::thread::sleep(Duration::from_secs(*seconds));
            Ok(())
        }
        Step::Run(words) => {
            let (program, arguments) = words.split_first().map_or(("", words.as_slice()), |(it, rest)| (it, rest));
            let status = Command::new(program)
                .args(arguments)
                .env("PATH", PATH)
                // Nobody answers for udev here.
                .env("DM_DISABLE_UDEV", "1")
                .stdin(Stdio::null())
                .status()
                .map_err(|error| Error::io("start a program", program, error))?;
            match status.success() {
                true => Ok(()),
                false => Err(Error::Invalid(format!("{} ended with {status}", words.join(" ")))),
            }
        }
    }
}

/// Says now and then that we live.
fn pulse(host: Host) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(PULSE);
            host.tell(&FromGuest::Alive);
        }
    });
}

/// The line that ends the records: it is none.
const END: &str = "end";

fn spawn_records(pipe: File, host: Host, seen: std::sync::mpsc::Sender<()>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(std::result::Result::ok) {
            if line == END {
                let _ = seen.send(());
                return;
            }
            host.tell(&FromGuest::Record(line));
        }
    });
}

/// Waits until all that was written into the pipe is told.
fn end_records(order: &Errand, seen: &std::sync::mpsc::Receiver<()>) {
    let ended = File::options().write(true).open(&order.records).and_then(|mut pipe| writeln!(pipe, "{END}"));
    if ended.is_ok() {
        let _ = seen.recv();
    }
}

/// Runs our program and sends what it says; its exit code.
fn program(order: &Errand, host: &Host) -> Result<u8> {
    let (program, arguments) = match order.arguments.split_first() {
        Some((first, rest)) if first.starts_with(BROUGHT) => (first.as_str(), rest),
        _ => ("/proc/self/exe", order.arguments.as_slice()),
    };
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(DATA)
        .env("HOME", "/root")
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::io("start the program", program, error))?;
    let out = child.stdout.take().map(|out| spawn_lines(out, host.clone(), FromGuest::Out));
    let err = child.stderr.take().map(|err| spawn_lines(err, host.clone(), FromGuest::Err));
    let status = child.wait().map_err(|error| Error::io("wait for the program", "/init", error))?;
    out.into_iter().chain(err).for_each(|thread| drop(thread.join()));
    // A signal's number on top of 128, as shells have it.
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0);
    Ok(status.code().unwrap_or(128 + signal) as u8)
}

fn spawn_lines(
    from: impl Read + Send + 'static,
    host: Host,
    what: fn(String) -> FromGuest,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(std::result::Result::ok) {
            host.tell(&what(String::from_utf8_lossy(&line).into_owned()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_a_guest_nobody_becomes_the_first_process() {
        let error = live().err().map(|error| error.to_string()).unwrap_or_default();

        assert!(error.contains("majorfault starts it there"), "{error}");
    }

    #[test]
    fn a_disk_that_the_kernel_does_not_show_is_told_with_the_option_it_needs() {
        let mount = Mount {
            device: ("/dev/no-such-disk".to_owned(), "CONFIG_VIRTIO_BLK".to_owned()),
            kind: "ext4".to_owned(),
            options: String::new(),
            at: "/tmp".to_owned(),
            before: Vec::new(),
        };

        let error = mount_disk(&mount).unwrap_err().to_string();

        assert_eq!(error, "the kernel shows no /dev/no-such-disk; it needs CONFIG_VIRTIO_BLK");
    }
}
