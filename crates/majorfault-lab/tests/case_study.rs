//! The thesis's case study by its own command: what a run gives is compared byte by byte, what is missing is told, what it used is gone.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use majorfault::Bytes;
use majorfault_lab::place::run_group::{RunGroup, run_name};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use world::{World, facility};

const IDS: [&str; 4] = ["S4.bwaindex", "S4.bwabig", "S4.bwamem", "S4.bwamem2"];

/// One test at a time: swap is the machine's.
static MACHINE: Mutex<()> = Mutex::new(());

/// A world alone on the machine, where a program may be limited and swap, and where the aligner is.
fn world() -> Option<(World, MutexGuard<'static, ()>)> {
    let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let bwa = Command::new("sh").args(["-c", "command -v bwa"]).output().is_ok_and(|said| said.status.success());
    let limit = RunGroup::create(&run_name(), Bytes::mib(64)).map(drop).map_err(|missing| missing.to_string());
    let root = if rustix::process::geteuid().is_root() { Ok(()) } else { Err("a swap file needs root".to_owned()) };
    let found = if bwa { Ok(()) } else { Err("apt-get install bwa".to_owned()) };
    (facility("bwa", found) && facility("a memory limit", limit) && facility("swap", root))
        .then(|| (World::new(), machine))
}

/// Plants a program of this name before all others; its path list.
fn planted(world: &World, name: &str, script: &str) -> String {
    let dir = world.path("bin");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// Reproduces these with programs looked for in `path`; their rows.
fn rows(world: &World, ids: &[&str], path: &str) -> Vec<Value> {
    let usual = ["-q", "--dir", ".", "--json", "--records", "records.jsonl"];
    let said = world.majorfault_with(&[&["reproduce"], ids, &usual].concat(), &[("PATH", path)]);
    said.json()["claims"].as_array().unwrap_or_else(|| panic!("{}", said.errors)).clone()
}

fn row<'r>(rows: &'r [Value], id: &str) -> &'r Value {
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id}"))
}

/// How the runs of a cell ended: 1 for those that finished.
fn ends(world: &World, cell: &str) -> BTreeSet<u64> {
    let records = world.records().into_iter().filter(|record| record["cell"]["name"] == cell);
    records.map(|record| record["figures"]["finished"].as_u64().unwrap_or_else(|| panic!("{record:#}"))).collect()
}

#[test]
fn a_genome_that_does_not_fit_is_indexed_and_aligned_to_with_the_same_output() {
    let Some((world, _machine)) = world() else { return };

    // The second aligner has the same command line.
    let rows = rows(&world, &IDS, &planted(&world, "bwa-mem2", "exec bwa \"$@\""));

    let files = row(&rows, "S4.bwaindex.files");
    // Whether a verdict stands is a matter of the machine's load: all runs ended as they should.
    for cell in ["index, advice, 75 %", "mem, advice, 50 %", "index2, advice, 75 %", "mem2, advice, 75 %"] {
        assert_eq!(ends(&world, cell), BTreeSet::from([1]), "{cell}");
    }
    let records = world.records();
    let has_swap = records.iter().any(|record| record["outcome"]["missing"]["what"] == "a machine without swap");
    if facility("a machine without swap", if has_swap { Err("it has swap".to_owned()) } else { Ok(()) }) {
        assert_eq!(ends(&world, "index, no-swap, 75 %"), BTreeSet::from([0]));
        assert_eq!(ends(&world, "index, spill, 75 %"), BTreeSet::from([1]));
    }
    assert!(files["ours"].as_str().is_some_and(|ours| ours.is_empty() || ours.starts_with("2.7")), "{files:#}");
    for record in records.iter().filter(|record| record["figures"]["finished"] == 0) {
        assert_eq!(record["figures"]["program_ns"], Value::Null, "who was killed has no time");
    }
    let swapped = |record: &Value| record["figures"]["swapped_bytes"].as_u64();
    assert!(records.iter().filter_map(swapped).max().unwrap() > 1 << 20);
    assert!(!fs::read_to_string("/proc/swaps").unwrap().contains(world.path("").to_str().unwrap()));
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn an_output_that_differs_is_an_error_and_no_figure() {
    let Some((world, _machine)) = world() else { return };
    // It is itself without a limit, and gives one byte more within.
    let real = Command::new("sh").args(["-c", "command -v bwa"]).output().unwrap();
    let real = String::from_utf8(real.stdout).unwrap();
    let script =
        format!("{} \"$@\" || exit; case \"$*\" in *run/index*) printf x >> run/index.bwt;; esac", real.trim());

    let rows = rows(&world, &["S4.bwabig"], &planted(&world, "bwa", &script));

    let records = world.records();
    let failed = records.iter().filter_map(|record| record["outcome"]["failed"].as_str());
    let failed: Vec<&str> =
        failed.filter(|why| why.contains("index.bwt differs from what it is without a limit")).collect();
    assert!(!failed.is_empty(), "{rows:#?}");
    let limited = records.iter().filter(|record| record["trial"]["arm"]["procedure"]["given"]["how"] != "alone");
    for record in limited.filter(|record| record["cell"]["name"].as_str().unwrap().starts_with("index,")) {
        assert_ne!(record["figures"]["finished"], 1, "{record:#}");
    }
}

#[test]
fn what_is_not_installed_is_told_with_its_package() {
    let Some((world, _machine)) = world() else { return };
    fs::create_dir(world.path("empty")).unwrap();

    let rows = rows(&world, &IDS, world.path("empty").to_str().unwrap());

    for (id, remedy) in [("S4.bwaindex", "apt-get install bwa"), ("S4.bwamem2", "github.com/bwa-mem2/bwa-mem2")] {
        let row = row(&rows, id);
        assert_eq!(row["verdict"], "cannot be tested here", "{row:#}");
        assert!(row.to_string().contains(remedy), "{row:#}");
    }
}
