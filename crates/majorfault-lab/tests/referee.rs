//! Set-ups whose figures would not mean what they say: each is refused, or ends with exit code 4 and the right reason.
//!
//! And the contrary: a plain one is not refused but for what others on the machine did.
#![allow(unsafe_code, reason = "pages are locked by plain system calls")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use world::{Said, World, facility};

const MIB: usize = 1 << 20;

/// A program beside ours, ended with the test.
struct Neighbour(Child);

impl Neighbour {
    fn shell(script: &str) -> Neighbour {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own, so that what the shell starts ends with it.
        Neighbour(std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

/// Something that a thread does again and again until the end of the test.
struct Meanwhile {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Meanwhile {
    fn again_and_again(mut act: impl FnMut() + Send + 'static) -> Meanwhile {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                act();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        Meanwhile { stop, thread: Some(thread) }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// One arm, run once for a short time on a file of the world.
fn measured(world: &World, file: &str, more: &[&str]) -> Said {
    let usual = ["compare", file, "-q", "--runs", "1", "--runtime", "300ms", "--no-peer", "--method", "pread"];
    let kept = ["--records", "records.jsonl", "--cache", "cold"];
    world.majorfault(&[&usual[..], &kept[..], more].concat())
}

/// The finding and the sentence of the gate of this name in the last record. A run that was made again, because others had disturbed it, is compared
/// with the first as well, and may have two of a name: then the worse one, and of two of a kind the first.
fn gate(world: &World, name: &str) -> (String, String) {
    let records = world.records();
    let gates = records.last().unwrap()["gates"].as_array().unwrap().clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let found = gates.iter().filter(|gate| gate["name"] == name).min_by_key(|gate| gate["finding"] != "spoiled");
    let found = found.unwrap_or_else(|| panic!("no gate {name} among {gates:#?}"));
    (text(&found["finding"]), text(&found["says"]))
}

/// Exit code 4, the gate named in the record and on the first lines above the table, and no winner.
fn is_refused_for(world: &World, said: &Said, name: &str, sentence: &str) {
    said.ends_with(&[4]);
    let (finding, says) = gate(world, name);
    assert_eq!(finding, "spoiled", "{name}: {says}");
    assert!(says.contains(sentence), "{says}");
    let flat = said.output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("NOT VALID") && flat.contains(&format!("not valid: {name}, ")), "{}", said.output);
    assert!(!flat.contains("is fastest here"), "{}", said.output);
}

#[test]
fn a_plain_cold_run_is_refused_for_nothing_of_its_own() {
    let world = World::new();
    world.file("data", 64 * MIB);

    let said = measured(&world, "data", &[]);

    said.measured(&world.records());
    assert_eq!(gate(&world, "cold").0, "fine");
    assert_eq!(gate(&world, "device bytes").0, "fine");
    assert_eq!(gate(&world, "same file").0, "fine");
}

#[test]
fn pages_that_another_program_locks_are_not_cold() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let file = File::open(world.path("data")).unwrap();
    // SAFETY: a new read-only mapping of 16 MiB of a file that stays as long; it is unmapped with the process.
    let locked = unsafe {
        let address = libc::mmap(
            std::ptr::null_mut(),
            16 * MIB,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            file.as_raw_fd(),
            0,
        );
        address != libc::MAP_FAILED && libc::mlock(address, 16 * MIB) == 0
    };
    if !facility("locked memory", if locked { Ok(()) } else { Err("RLIMIT_MEMLOCK is below 16 MiB".to_owned()) }) {
        return;
    }

    let said = measured(&world, "data", &[]);

    is_refused_for(&world, &said, "cold", "16.0 MiB of 64.0 MiB were cached when the clock started");
}

#[test]
fn a_sparse_file_gives_no_bytes_of_a_device_even_beside_a_neighbour_that_reads() {
    let world = World::new();
    File::create(world.path("sparse")).unwrap().set_len(64 << 20).unwrap();
    world.file("other", 64 * MIB);
    let other = world.path("other").display().to_string();
    let _neighbour = Neighbour::shell(&format!("while :; do dd if={other} of=/dev/null bs=1M iflag=direct; done"));

    let said = measured(&world, "sparse", &[]);

    is_refused_for(&world, &said, "device bytes", "0 B came from the device");
}

#[test]
fn a_neighbour_on_the_disk_is_seen() {
    let world = World::new();
    world.file("data", 64 * MIB);
    world.file("other", 64 * MIB);
    let other = world.path("other").display().to_string();
    let _neighbour = Neighbour::shell(&format!("while :; do dd if={other} of=/dev/null bs=1M iflag=direct; done"));

    let said = measured(&world, "data", &[]);

    is_refused_for(&world, &said, "device traffic", "others moved");
}

#[test]
fn neighbours_on_the_processors_are_seen() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let spin = || Neighbour::shell("while :; do :; done");
    let count = std::thread::available_parallelism().unwrap().get();
    let _neighbours: Vec<Neighbour> = (0..count).map(|_| spin()).collect();

    let said = measured(&world, "data", &[]);

    is_refused_for(&world, &said, "busy machine", "of the processors");
}

#[test]
fn a_file_that_is_written_meanwhile_is_seen() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let file = File::options().read(true).write(true).open(world.path("data")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    let _writer = Meanwhile::again_and_again(move || file.write_all_at(&byte, 0).unwrap());

    let said = measured(&world, "data", &[]);

    is_refused_for(&world, &said, "same file", "changed while it was read");
}

#[test]
fn a_file_that_is_replaced_between_two_runs_is_another_file() {
    let world = World::new();
    world.file("data", 64 * MIB);
    fs::copy(world.path("data"), world.path("copy")).unwrap();
    let running = world.start(&[
        "compare",
        "data",
        "-q",
        "--runs",
        "2",
        "--runtime",
        "400ms",
        "--no-peer",
        "--method",
        "pread",
        "--cache",
        "asis",
    ]);
    world.wait_for("the first record", || world.text_or_empty("records.jsonl").contains('\n'));
    fs::rename(world.path("copy"), world.path("data")).unwrap();

    let said = running.finish();

    said.ends_with(&[4]);
    let (finding, says) = gate(&world, "same file");
    assert_eq!(finding, "spoiled");
    assert!(says.contains("changed since the first run") || says.contains("changed while"), "{says}");
}

#[test]
fn arms_that_see_other_bytes_are_told() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let file = Arc::new(File::options().write(true).open(world.path("data")).unwrap());
    let mut number = 0u64;
    // Every page gets new bytes, and the time of the last change is put back: only the bytes tell.
    let _writer = Meanwhile::again_and_again(move || {
        let when = file.metadata().unwrap().modified().unwrap();
        number += 1;
        for page in 0..64 {
            file.write_all_at(&number.to_le_bytes(), (page * MIB + 8) as u64).unwrap();
        }
        file.set_modified(when).unwrap();
    });

    let said = world.majorfault(&[
        "compare",
        "data",
        "-q",
        "--runs",
        "2",
        "--number-ios",
        "30000",
        "--no-peer",
        "--method",
        "pread",
        "--cache",
        "asis",
        "--records",
        "records.jsonl",
    ]);

    said.ends_with(&[4]);
    let spoiled: Vec<String> = world
        .records()
        .iter()
        .flat_map(|record| record["gates"].as_array().unwrap().clone())
        .filter(|gate| gate["finding"] == "spoiled")
        .map(|gate| gate["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(spoiled.iter().any(|name| name == "answer" || name == "same file"), "{spoiled:?}");
}

#[test]
fn a_file_in_memory_has_no_cold_state() {
    let world = World::new();
    let path = format!("/dev/shm/majorfault-referee-{}", std::process::id());
    fs::write(&path, vec![1; 4 * MIB]).unwrap();

    let said = world.majorfault(&["compare", &path, "-q"]);

    fs::remove_file(path).unwrap();
    said.fails(2, "lies in memory (tmpfs) and has no cold state");
}

#[test]
fn a_disk_whose_image_is_in_memory_is_no_disk() {
    let world = World::new();
    let image = format!("/dev/shm/majorfault-referee-{}.img", std::process::id());
    let made = world.mount_image("disk", &image, 128 << 20);
    if !facility("a loop device", made) {
        return;
    }
    world.file("disk/data", 32 * MIB);

    let said = measured(&world, "disk/data", &[]);

    drop(fs::remove_file(&image));
    is_refused_for(&world, &said, "storage", "is on tmpfs");
}

#[test]
fn a_limit_that_cannot_be_put_in_force_is_refused_and_not_left_out() {
    let world = World::new();
    world.file("data", 4 * MIB);
    let Some(said) = world.as_nobody(&["compare", "data", "--memory", "64m", "-q"]) else { return };

    said.fails(3, "a memory limit");
}

/// Runs `command` in a processor group with a fifth of one processor; version 1 or 2, whichever can be written.
fn with_quota(world: &World, command: &str) -> Option<bool> {
    let name = format!("majorfault-quota-{}", std::process::id());
    let first = Path::new("/sys/fs/cgroup/cpu").join(&name);
    let second = Path::new("/sys/fs/cgroup").join(&name);
    let (group, set) = if fs::create_dir(&first).is_ok() {
        let set = fs::write(first.join("cpu.cfs_quota_us"), "20000");
        (first, set)
    } else {
        let made = fs::create_dir(&second);
        let set = made.and_then(|()| fs::write(second.join("cpu.max"), "20000 100000"));
        (second, set)
    };
    let can = set.map_err(|error| format!("{}: {error}; needs root and the cpu controller", group.display()));
    let done = facility("a processor quota", can)
        .then(|| world.shell(&format!("echo $$ > {}/cgroup.procs && {command}", group.display())));
    let _ = fs::remove_dir(&group);
    done
}

#[test]
fn a_processor_quota_is_seen() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let program = env!("CARGO_BIN_EXE_majorfault");
    // Cached, so that it computes all the time.
    let command = format!(
        "XDG_STATE_HOME=. {program} compare data -q --runs 1 --runtime 1s --no-peer --method pread --cache warm \
         --records records.jsonl > out; test $? -eq 4"
    );

    let Some(refused) = with_quota(&world, &command) else { return };

    assert!(refused, "{}", world.text("out"));
    let (finding, says) = gate(&world, "quota");
    assert_eq!(finding, "spoiled");
    assert!(says.contains("a processor quota paused the run for"), "{says}");
}

#[test]
fn swapping_is_seen() {
    let world = World::new();
    world.file("data", 64 * MIB);
    let Some(_swap) = Swap::on(&world) else { return };
    // 96 MiB in a group of 32: each pass swaps most of them in and out.
    let group = format!("/sys/fs/cgroup/memory/majorfault-swapper-{}", std::process::id());
    let script = format!(
        "echo $$ > {group}/cgroup.procs; exec /usr/bin/python3 -c \
         'b = bytearray(96 << 20)\nwhile True:\n    for i in range(0, len(b), 4096): b[i] = 1'"
    );
    let limited = fs::create_dir(&group).and_then(|()| fs::write(format!("{group}/memory.limit_in_bytes"), "32M"));
    if !facility("a limited neighbour", limited.map_err(|error| format!("{group}: {error}"))) {
        return;
    }
    let neighbour = Neighbour::shell(&script);
    world.wait_for("pages in swap", || swapped_pages() > 0);

    let said = measured(&world, "data", &[]);

    drop(neighbour);
    let _ = fs::remove_dir(&group);
    said.ends_with(&[4]);
    let (finding, says) = gate(&world, "swap");
    assert_eq!(finding, "spoiled", "{says}");
}

/// Pages swapped out since boot beyond those at the first call.
fn swapped_pages() -> u64 {
    static FIRST: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let now =
        text.lines().find_map(|line| line.strip_prefix("pswpout ")).and_then(|count| count.parse().ok()).unwrap_or(0);
    now - *FIRST.get_or_init(|| now)
}

/// Swap for the length of a test.
struct Swap(std::path::PathBuf);

impl Swap {
    fn on(world: &World) -> Option<Swap> {
        let _ = swapped_pages();
        let path = world.path("swap");
        let made = world.shell(
            "(fallocate -l 256M swap && chmod 600 swap && mkswap swap && swapon swap) >/dev/null 2>&1 && \
             test -x /usr/bin/python3 && test -d /sys/fs/cgroup/memory",
        );
        let can = if made {
            Ok(())
        } else {
            Err("needs root, swapon, python3 and the memory cgroup of version 1".to_owned())
        };
        let swap = Swap(path);
        facility("swap", can).then_some(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).stderr(Stdio::null()).status();
    }
}
