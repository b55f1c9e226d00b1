//! What a commit acknowledged is on the device: images of it, taken while the job waits, are mounted as after a crash.
//!
//! The device is a loop device over a file; what the file system has not sent to it is not in the file, as the content of the
//! page cache is lost when a machine stops. That a device with a cache of its own is told to empty it shows in its
//! count of flushes.

use super::*;
use crate::jobfile::{Chosen, typed};
use crate::trial::{Arm, Data, Direction, Limits};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

const MIB: u64 = 1 << 20;

/// Pages that the job writes, each once, and how many before each commit.
const PAGES: u64 = 512;
const EACH: u64 = 16;

/// Commits after which the device is copied.
const LOOKED_AT: [u64; 4] = [1, 7, 20, 31];

fn shell(line: &str) -> std::result::Result<String, String> {
    let said = Command::new("sh").args(["-c", line]).output().map_err(|error| error.to_string())?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&said.stderr).trim())),
    }
}

/// A file system of its own on a loop device.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

impl Disk {
    /// None, and listed as skipped, where none can be made.
    fn make(test: &str) -> Option<Disk> {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().display();
        let made = shell(&format!(
            "cd {at} && truncate -s 32M image && mkfs.ext4 -q -F image && mkdir mounted after && losetup -f --show image"
        ));
        let device = match made {
            Ok(device) => device,
            Err(why) => {
                eprintln!("SKIPPED {test}: a loop device with ext4: {why}");
                return None;
            }
        };
        let disk = Disk { dir, device };
        if let Err(why) = shell(&format!("mount {} {}", disk.device, disk.path("mounted").display())) {
            eprintln!("SKIPPED {test}: mounting a loop device: {why}");
            return None;
        }
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Times that the device was told to empty its cache.
    fn flushes(&self) -> u64 {
        let name = Path::new(&self.device).file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        text.split_whitespace().nth(15).map_or(0, |count| count.parse().unwrap())
    }

    /// The pages of the data file that have this generation in an image of the device.
    fn written(&self, image: &str, generation: u64) -> Vec<u64> {
        let (image, after) = (self.path(image), self.path("after"));
        shell(&format!("mount -o loop {} {}", image.display(), after.display())).unwrap();
        let bytes = fs::read(after.join("data")).unwrap();
        shell(&format!("umount {}", after.display())).unwrap();
        let pages = bytes.chunks(crate::data::PAGE);
        let told = pages.filter_map(MadeContent::page_and_generation);
        told.filter(|(_, found)| *found == generation).map(|(page, _)| page).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mounted = self.path("mounted");
        let _ = shell(&format!("umount {}; losetup -d {}", mounted.display(), self.device));
    }
}

/// Random writes of the whole file, committed now and then.
fn trial(file: PathBuf) -> Trial {
    let word = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let options = vec![
        word("rw", "randwrite"),
        word("size", "2m"),
        word("fdatasync", &EACH.to_string()),
        word("filename", "data"),
    ];
    let stages = typed("crash", &Chosen { options, sections: Vec::new() }).unwrap().stages;
    let job = stages[0][0].job(0, vec![0], 2 * MIB, 1).unwrap();
    Trial {
        data: Data { files: vec![file], offset_bytes: 0, size_bytes: 2 * MIB, stripe_bytes: MIB, content_seed: None },
        workload: Choice::plain("uniform"),
        direction: Direction::Write,
        arm: Arm::Method(Choice::plain("pread")),
        block_bytes: 4096,
        threads: 1,
        iodepth: 8,
        limits: Limits { runtime_ns: None, accesses: None, time_based: false },
        memory_bytes: None,
        cache: CacheState::AsFound,
        seed: 1,
        interval_ns: 1_000_000,
        repetition: 0,
        counts_hardware: false,
        jobs: vec![job],
        stage: String::new(),
    }
}

/// The first pages of the order, sorted.
fn first_pages(trial: &Trial, writes: u64) -> Vec<u64> {
    let plan = crate::workload::JobPlan::new(&trial.jobs[0]).unwrap();
    let mut pages: Vec<u64> =
        plan.take(writes as usize).map(|access| access.extent.offset / crate::data::PAGE as u64).collect();
    pages.sort_unstable();
    pages
}

/// Runs the job by a method, copying the device at some of the commits: writes acknowledged at each, and commits.
fn run_on(disk: &Disk, trial: &Trial, choice: &Choice) -> (Vec<u64>, u64) {
    let open = |layout: &Layout, files: &[PathBuf]| Ok(Arc::new(Target::open(files, layout)?));
    let mut stage = super::open(trial, choice, shares(trial, open).unwrap()).unwrap();
    let (image, dir) = (disk.path("image"), disk.dir.path().to_owned());
    let seen = Arc::new(Mutex::new((Vec::new(), 0)));
    let told = Arc::clone(&seen);
    let acknowledged = move |writes: u64| {
        let (looked_at, commits) = &mut *told.lock().unwrap();
        *commits += 1;
        if LOOKED_AT.contains(commits) {
            fs::copy(&image, dir.join(format!("image-{}", looked_at.len()))).unwrap();
            looked_at.push(writes);
        }
    };
    let ways = Ways { acknowledged: Some(Box::new(acknowledged)), ..Ways::of(trial) };
    let (ran, began) = run_with(trial, &mut stage, GENERATION, &ways, &AtomicBool::new(false), &mut |_, _, _| {});
    assert!(ran.iter().all(|ran| ran.driven.error.is_none()));
    drop((ran, began, stage, ways));
    Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
}

const GENERATION: u64 = 77;

/// Nothing that `choice` acknowledged is lost.
fn survives(test: &str, choice: &Choice) {
    let Some(disk) = Disk::make(test) else { return };
    let data = disk.path("mounted/data");
    fs::write(&data, vec![0; 2 * MIB as usize]).unwrap();
    shell("sync").unwrap();
    let trial = trial(data);
    let flushed = disk.flushes();

    let (looked_at, commits) = run_on(&disk, &trial, choice);

    assert_eq!((commits, looked_at.len()), (PAGES / EACH, LOOKED_AT.len()));
    assert!(disk.flushes() - flushed >= commits, "{} flushes of {commits} commits", disk.flushes() - flushed);
    for (number, writes) in (0..).zip(looked_at) {
        let written = disk.written(&format!("image-{number}"), GENERATION);
        let lost: Vec<u64> = first_pages(&trial, writes).into_iter().filter(|page| !written.contains(page)).collect();
        assert_eq!(lost, Vec::<u64>::new(), "of {writes} writes acknowledged");
    }
}

#[test]
fn nothing_that_buffered_writes_acknowledged_is_lost() {
    survives("nothing_that_buffered_writes_acknowledged_is_lost", &Choice::plain("pread"));
}

#[test]
fn nothing_that_direct_writes_acknowledged_is_lost() {
    survives("nothing_that_direct_writes_acknowledged_is_lost", &Choice::plain("direct"));
}

#[test]
fn nothing_that_a_ring_acknowledged_is_lost() {
    let test = "nothing_that_a_ring_acknowledged_is_lost";
    if majorfault::methods::named("uring").is_ok() {
        survives(test, &Choice::plain("uring").with("depth", "8"));
        survives(test, &Choice::plain("uring").with("depth", "8").with("direct", "off"));
    }
}

#[test]
fn nothing_that_a_mapping_acknowledged_is_lost() {
    survives("nothing_that_a_mapping_acknowledged_is_lost", &Choice::plain("mmap"));
}

#[test]
fn nothing_that_a_pool_acknowledged_is_lost() {
    survives("nothing_that_a_pool_acknowledged_is_lost", &Choice::plain("pool").with("memory", "16m"));
}
