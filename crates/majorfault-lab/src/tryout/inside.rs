//! The guest's side: runs the checks of a case one after another, and says a line of JSON for each.

use crate::place::guest::DATA;
use crate::run;
use crate::tryout::checks::{CHECKS, CommandSaid, GuestCheck};
use crate::tryout::{Came, FORMAT, GuestCase, Tried};
use majorfault::{Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a check may take, emulated.
const PATIENCE: Duration = Duration::from_secs(240);

/// Where a command writes its records.
const RECORDS: &str = "/tmp/tried.jsonl";

/// Name of the file that is watched.
const FILE: &str = "tried-data";

/// Its size: 512 steps of 64 KiB.
const FILE_BYTES: usize = 32 << 20;

/// Lines that a record keeps of what was said.
const LAST_LINES: usize = 8;

/// Runs the checks of the case, or those that are named, and tells each through `out`.
///
/// Errors: Invalid (this is no guest of ours, an unknown name), Io (the guest cannot be prepared).
pub fn run(case: &GuestCase, only: &[String], mut out: impl Write) -> Result<()> {
    // What follows writes to /proc/sys and drops the page cache.
    if std::os::unix::process::parent_id() != 1 || !Path::new("/order.json").exists() {
        return Err(Error::Invalid(
            "\"kernel inside\" runs in a guest; majorfault kernel try starts it there".to_owned(),
        ));
    }
    for (name, value) in case.sysctls {
        let path = format!("/proc/sys/{name}");
        fs::write(&path, value).map_err(|error| Error::io(format!("set it to {value}"), &path, error))?;
    }
    for dir in [DATA, "/tmp"] {
        let shared = fs::set_permissions(dir, Permissions::from_mode(0o1777));
        shared.map_err(|error| Error::io("let others write", dir, error))?;
    }
    let file = Path::new(DATA).join(FILE);
    made(&file).map_err(|error| Error::io("make the file that is watched", &file, error))?;
    for check in chosen(case, only)? {
        let tried = made_check(case, check, &file)?;
        let line = serde_json::to_string(&tried).map_err(|why| Error::Invalid(why.to_string()))?;
        writeln!(out, "{line}").map_err(|error| Error::io("tell a check", "standard output", error))?;
    }
    Ok(())
}

/// The checks of a case: those it names, or all that are not special.
///
/// Errors: Invalid for an unknown name.
pub fn chosen(case: &GuestCase, only: &[String]) -> Result<Vec<&'static GuestCheck>> {
    if let Some(unknown) = only.iter().find(|name| CHECKS.iter().all(|check| check.name != **name)) {
        let legal: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        return Err(Error::Invalid(format!("there is no check \"{unknown}\"; legal are {}", legal.join(", "))));
    }
    let of_case = |check: &&GuestCheck| match case.checks {
        [] => !check.is_special,
        named => named.contains(&check.name),
    };
    let is_asked = |check: &&GuestCheck| only.is_empty() || only.iter().any(|name| name == check.name);
    Ok(CHECKS.iter().filter(of_case).filter(is_asked).collect())
}

/// Bytes that are not alike, on the disk.
fn made(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in 0..FILE_BYTES as u64 / 8 {
        file.write_all(&word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

fn made_check(case: &GuestCase, check: &GuestCheck, file: &Path) -> Result<Tried> {
    // What an earlier check left must not help or hinder this one.
    let _ = fs::remove_file(RECORDS);
    rustix::fs::sync();
    let cold = fs::write("/proc/sys/vm/drop_caches", "3");
    cold.map_err(|error| Error::io("drop the page cache", "/proc/sys/vm/drop_caches", error))?;
    let words: Vec<String> = check.command.split_whitespace().map(|word| placed(word, file)).collect();
    let (before, began) = (counters(), Instant::now());
    let mut said = run_command(case, &words)?;
    let took_ms = began.elapsed().as_millis() as u64;
    said.grown = counters()
        .into_iter()
        .map(|(name, after)| {
            let before = before.get(&name).copied().unwrap_or(0);
            (name, after.saturating_sub(before))
        })
        .collect();
    said.records = crate::session::load_file(Path::new(RECORDS)).unwrap_or_default();
    let came = (check.judge)(&said);
    let kept = if matches!(came, Came::Works { .. }) { Vec::new() } else { last_lines(&said) };
    Ok(Tried {
        format: FORMAT,
        tool: run::tool(),
        case: case.name.to_owned(),
        place: String::new(),
        remark: String::new(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        check: check.name.to_owned(),
        command: format!("majorfault {}", words.join(" ")),
        code: said.code,
        took_ms,
        came,
        said: kept,
    })
}

fn placed(word: &str, file: &Path) -> String {
    match word {
        "FILE" => file.display().to_string(),
        "SELF" => "/init".to_owned(),
        "RECORDS" => RECORDS.to_owned(),
        other => other.to_owned(),
    }
}

fn last_lines(said: &CommandSaid) -> Vec<String> {
    let all: Vec<&str> = said.out.lines().chain(said.err.lines()).filter(|line| !line.trim().is_empty()).collect();
    let short = |line: &&str| line.chars().take(300).collect();
    all[all.len().saturating_sub(LAST_LINES)..].iter().map(short).collect()
}

/// The kernel's counters.
fn counters() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let pair = |line: &str| line.split_once(' ').and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    text.lines().filter_map(pair).collect()
}

fn run_command(case: &GuestCase, words: &[String]) -> Result<CommandSaid> {
    let mut command = Command::new("/init");
    command.args(words).current_dir(DATA).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // So that all that it started goes with it.
    command.process_group(0);
    if case.user != 0 {
        command.uid(case.user).gid(case.user).env("HOME", "/tmp");
    }
    let mut child = command.spawn().map_err(|error| Error::io("start a check", "/init", error))?;
    let outputs = [child.stdout.take().map(reading), child.stderr.take().map(reading)];
    let (code, is_late) = waited(&mut child)?;
    let [out, err] = outputs.map(|thread| thread.and_then(|thread| thread.join().ok()).unwrap_or_default());
    Ok(CommandSaid { code, is_late, out, err, ..CommandSaid::default() })
}

fn reading(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read counts.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Its exit code, and whether it was too late.
fn waited(child: &mut Child) -> Result<(Option<i32>, bool)> {
    let began = Instant::now();
    let unwaited = |error| Error::io("wait for a check", "/init", error);
    loop {
        if let Some(status) = child.try_wait().map_err(unwaited)? {
            return Ok((status.code(), false));
        }
        if began.elapsed() > PATIENCE {
            // Gone already, or gone now.
            let _ = Pid::from_raw(child.id() as i32).map(|group| kill_process_group(group, Signal::KILL));
            child.wait().map_err(unwaited)?;
            return Ok((None, true));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(case: &str, only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let found = chosen(GuestCase::named(case).unwrap(), &only).unwrap();
        found.iter().map(|check| check.name).collect()
    }

    #[test]
    fn a_case_has_what_it_names_or_all_that_is_usual() {
        assert!(names("plain", &[]).contains(&"reproduce") && !names("plain", &[]).contains(&"kswapd-swap"));
        assert_eq!(names("whole-machine", &[]), ["kswapd-swap", "kswapd-cache"]);
        assert_eq!(names("plain", &["uring", "mmap"]), ["mmap", "uring"]);
        assert!(
            chosen(&crate::tryout::CASES[0], &["urnig".to_owned()])
                .is_err_and(|error| error.to_string().contains("legal are"))
        );
    }

    #[test]
    fn outside_of_a_guest_nothing_is_prepared() {
        let error = run(&crate::tryout::CASES[0], &[], std::io::sink()).unwrap_err().to_string();

        assert!(error.contains("majorfault kernel try starts it there"), "{error}");
    }
}
