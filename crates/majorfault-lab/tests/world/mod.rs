//! A directory of its own for each test, and the program run in it.
#![allow(unsafe_code, reason = "a seccomp filter is set between fork and exec")]

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a condition; far beyond what any needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory on a disk that is removed at the end.
pub struct World {
    dir: PathBuf,
    /// Process ids of what was started.
    started: RefCell<Vec<u32>>,
    mounted: RefCell<Vec<PathBuf>>,
}

/// A worker process of a program started in a world.
pub struct Worker {
    dir: PathBuf,
}

/// What the program said, and how it ended.
pub struct Said {
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

/// The program while it runs.
pub struct Running {
    child: Child,
}

/// Whether a facility is here; where not, the test is listed as skipped with the reason.
pub fn facility(name: &str, found: Result<(), String>) -> bool {
    match found {
        Ok(()) => true,
        Err(reason) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            eprintln!("SKIPPED {test}: {name}: {reason}");
            false
        }
    }
}

impl World {
    pub fn new() -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from("/var/tmp").join(format!("majorfault-world-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // Tests run parts as another user, who has to write here.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        World { dir, started: RefCell::default(), mounted: RefCell::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file of `length` bytes, none of them zero.
    pub fn file(&self, name: &str, length: usize) {
        let bytes: Vec<u8> = (0..length).map(|index| (index / 7 % 251) as u8 + 1).collect();
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn text_or_empty(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn shell(&self, command: &str) -> bool {
        Command::new("sh").arg("-c").arg(command).current_dir(&self.dir).status().is_ok_and(|status| status.success())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("XDG_STATE_HOME", self.path("state")).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn majorfault(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(&program()).args(arguments))
    }

    /// The same with any bytes as arguments.
    pub fn majorfault_os(&self, arguments: &[&OsStr]) -> Said {
        Said::of(self.command(&program()).args(arguments))
    }

    /// The same with these variables set.
    pub fn majorfault_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
        Said::of(self.command(&program()).args(arguments).envs(variables.iter().copied()))
    }

    /// A small comparison on made data, its records in `records.jsonl`.
    pub fn small(&self, arguments: &[&str]) -> Said {
        self.small_into("records.jsonl", arguments)
    }

    pub fn small_into(&self, records: &str, arguments: &[&str]) -> Said {
        // One question: a file so small would have two.
        let usual = [
            "compare",
            "-q",
            "--size",
            "64m",
            "--dir",
            ".",
            "--runtime",
            "100ms",
            "--cache",
            "cold",
            "--records",
            records,
        ];
        Said::of(self.command(&program()).args(usual).args(arguments))
    }

    /// The same program as the user nobody; `None` (and listed as skipped) where we can't become that.
    pub fn as_nobody(&self, arguments: &[&str]) -> Option<Said> {
        let copy = self.path("majorfault");
        fs::copy(program(), &copy).unwrap();
        let found = if self.shell("setpriv --reuid=65534 --regid=65534 --clear-groups true") {
            Ok(())
        } else {
            Err("setpriv to nobody needs root and util-linux".to_owned())
        };
        if !facility("another user", found) {
            return None;
        }
        let mut command = self.command(Path::new("setpriv"));
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "./majorfault"]).args(arguments);
        command.args(if arguments.contains(&"--size") { &["--records", "records.jsonl"][..] } else { &[] });
        command.env("HOME", &self.dir);
        Some(Said::of(&mut command))
    }

    /// Starts the program, its records in `records.jsonl`.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut all = arguments.to_vec();
        all.extend(["--records", "records.jsonl"]);
        self.start_plain(&all)
    }

    pub fn start_plain(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(&program());
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.started.borrow_mut().push(child.id());
        Running { child }
    }

    /// The same program where io_uring_setup(2) is not permitted, as in most containers.
    pub fn without_io_uring(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(&program());
        command.args(arguments).args(["--records", "records.jsonl"]);
        without(command, libc::SYS_io_uring_setup)
    }

    /// The same program where perf_event_open(2) is not permitted, as in most containers.
    pub fn without_perf(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(&program());
        command.args(arguments);
        without(command, libc::SYS_perf_event_open)
    }

    /// Whether a worker of this world's programs runs for which `is` holds.
    pub fn has_worker(&self, is: impl Fn(&Worker) -> bool) -> bool {
        let own = format!("XDG_STATE_HOME={}", self.path("state").display());
        let holds = |dir: &PathBuf| {
            let read = |file: &str| fs::read(dir.join(file)).unwrap_or_default();
            let contains =
                |bytes: Vec<u8>, word: &str| bytes.split(|byte| *byte == 0).any(|part| part == word.as_bytes());
            contains(read("cmdline"), "worker") && contains(read("environ"), &own)
        };
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        processes.filter(holds).any(|dir| is(&Worker { dir }))
    }

    /// What the programs started here left behind: data files, and cgroups named after them.
    pub fn leftovers(&self) -> Vec<String> {
        let names =
            fs::read_dir(&self.dir).unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut left: Vec<String> =
            names.filter(|name| name.starts_with(".majorfault") || name.starts_with("majorfault-")).collect();
        for pid in self.started.borrow().iter() {
            let found = Command::new("find")
                .args(["/sys/fs/cgroup", "-name", &format!("majorfault-{pid}-*")])
                .output()
                .unwrap();
            left.extend(String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned));
        }
        left
    }

    /// A file system of `bytes` on a loop device, mounted at `name`.
    pub fn mount_small_disk(&self, name: &str, bytes: u64) -> Result<(), String> {
        self.mount_image(name, &format!("{name}.img"), bytes)
    }

    /// The same with its image at `image`.
    pub fn mount_image(&self, name: &str, image: &str, bytes: u64) -> Result<(), String> {
        let make = format!("truncate -s {bytes} {image} && mkfs.ext4 -q {image} && mkdir {name}");
        let done = self.shell(&format!("({make} && mount -o loop {image} {name} && chmod 777 {name}) 2>/dev/null"));
        if done {
            self.mounted.borrow_mut().push(self.path(name));
            return Ok(());
        }
        Err("needs root, mkfs.ext4 and a free loop device".to_owned())
    }

    pub fn records(&self) -> Vec<serde_json::Value> {
        self.records_of("records.jsonl")
    }

    pub fn records_of(&self, name: &str) -> Vec<serde_json::Value> {
        self.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until `condition` holds.
    pub fn wait_for(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for mounted in self.mounted.borrow().iter() {
            let _ = Command::new("umount").arg(mounted).status();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Worker {
    /// Whether it has mapped a file of this name.
    pub fn maps(&self, name: &str) -> bool {
        fs::read_to_string(self.dir.join("maps")).is_ok_and(|maps| maps.contains(name))
    }
}

fn without(mut command: Command, call: libc::c_long) -> Said {
    // SAFETY: the closure calls only prctl(2), which is async-signal-safe.
    unsafe { command.pre_exec(move || forbid(call as u32)) };
    Said::of(&mut command)
}

/// Makes a system call fail with EPERM in this process and its children: a four-line seccomp filter.
fn forbid(call: u32) -> std::io::Result<()> {
    let line = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The number of the system call is the first word that the filter sees.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain prctl(2) calls; the program and its lines are live for the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

impl Running {
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// The next line on standard error.
    pub fn next_error(&mut self) -> String {
        line_of(self.child.stderr.as_mut().unwrap())
    }

    /// The next line on standard output.
    pub fn next_line(&mut self) -> String {
        line_of(self.child.stdout.as_mut().unwrap())
    }

    pub fn finish(self) -> Said {
        Said::from(self.child.wait_with_output().unwrap())
    }
}

impl From<std::process::Output> for Said {
    fn from(output: std::process::Output) -> Said {
        Said {
            code: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    fn of(command: &mut Command) -> Said {
        Said::from(command.output().unwrap())
    }

    /// Ended with this code and said this on standard error.
    pub fn fails(&self, code: i32, sentence: &str) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.output, self.errors);
        assert!(self.errors.contains(sentence), "not said: {sentence}\n{}", self.errors);
    }

    /// Measured, and every figure stands but for what others on the machine did.
    pub fn measured(&self, records: &[serde_json::Value]) {
        self.ends_with(&[0, 4]);
        let gates = records.iter().flat_map(|record| record["gates"].as_array().unwrap());
        let spoiled: Vec<_> = gates.filter(|gate| gate["finding"] == "spoiled").collect();
        assert!(spoiled.iter().all(|gate| gate["by"] == "others"), "{spoiled:#?}");
        assert!(self.code == Some(0) || !spoiled.is_empty(), "{}\n{}", self.output, self.errors);
    }

    /// Ended with one of these codes.
    pub fn ends_with(&self, codes: &[i32]) {
        assert!(
            self.code.is_some_and(|code| codes.contains(&code)),
            "{:?}\n{}\n{}",
            self.code,
            self.output,
            self.errors
        );
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}\n{}", self.errors))
    }
}

/// Byte by byte, so that nothing beyond the line is taken.
fn line_of(pipe: impl std::io::Read) -> String {
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::with_capacity(1, pipe), &mut line).unwrap();
    line.trim_end_matches('\n').to_owned()
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_majorfault"))
}
