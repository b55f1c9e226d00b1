//! What tests of programs beyond memory have in common: a machine for themselves, swap, and the outcome that was told.

use crate::world::{Said, World, facility};
use majorfault::Bytes;
use majorfault_lab::launch::swap_file::{SwapFile, SwapPlace};
use majorfault_lab::place::run_group::{RunGroup, run_name};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const MIB: u64 = 1 << 20;

/// One test at a time: swap is the machine's.
static MACHINE: Mutex<()> = Mutex::new(());

/// A world alone on the machine, with the right to limit memory.
pub struct Alone {
    pub world: World,
    _machine: MutexGuard<'static, ()>,
}

pub fn alone() -> Option<Alone> {
    let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let group = RunGroup::create(&run_name(), Bytes::mib(64));
    facility("a memory limit", group.map(drop).map_err(|missing| missing.to_string()))
        .then(|| Alone { world: World::new(), _machine: machine })
}

/// The same where a swap file can be made, too; it is in use until the end.
pub fn with_swap() -> Option<(Alone, SwapFile)> {
    let alone = alone()?;
    let place = SwapPlace { dir: alone.world.path(""), size: Some(Bytes::mib(256)) };
    let made = SwapFile::make(&place, &run_name(), Bytes::mib(64));
    match made {
        Ok(swap) => Some((alone, swap)),
        Err(error) => {
            facility("a swap file", Err(error.to_string()));
            None
        }
    }
}

/// The outcome that was told on standard error.
pub fn outcome(said: &Said) -> Value {
    let at = said.errors.find("{\n").unwrap_or_else(|| panic!("{}", said.errors));
    serde_json::from_str(&said.errors[at..]).unwrap_or_else(|error| panic!("{error}: {}", said.errors))
}

pub fn number(json: &Value, key: &str) -> u64 {
    json.pointer(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("{key}: {json:#}"))
}

/// The sum that a pattern printed.
pub fn sum(said: &Said) -> String {
    assert_eq!(said.code, Some(0), "{}\n{}", said.output, said.errors);
    let line = said.output.lines().find(|line| line.split(' ').count() == 3 && line.contains('.'));
    line.unwrap_or_else(|| panic!("{}", said.output)).split(' ').next().unwrap().to_owned()
}

pub fn swapped_to(path: &Path) -> bool {
    fs::read_to_string("/proc/swaps").unwrap().contains(path.to_str().unwrap())
}

/// The group of process `pid` in the hierarchy that limits memory.
pub fn group_of(pid: u32) -> PathBuf {
    majorfault_lab::place::of_process(pid)
        .map(|(dir, _)| match dir {
            majorfault::observe::CgroupDir::V1(dir) | majorfault::observe::CgroupDir::V2(dir) => dir,
        })
        .unwrap()
}
