//! The house: floors, registries, and what may not be anywhere. Reads the sources as text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Floors of the library, lowest first. A file may use its own floor's and lower ones.
const LIBRARY: &[&[&str]] = &[
    &["units", "error", "needs", "sys", "params", "files", "proc", "headroom", "trace"],
    &["access", "observe"],
    &["map", "pool", "prefetch"],
    &["methods"],
];

/// Within a floor, who may not know whom.
const STRANGERS: &[(&str, &str)] =
    &[("access", "observe"), ("observe", "access"), ("prefetch", "observe"), ("proc", "files")];

/// Floors of the lab, lowest first.
const LAB: &[&[&str]] = &[
    &["data", "trial", "record", "stats"],
    &["workload", "machine", "place", "scratch", "peer", "procedure", "process", "outputs"],
    &["run", "lineup"],
    &["experiment", "jobfile"],
    &["session"],
    &["report", "doctor", "assist"],
    &["prove"],
    &["command"],
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(sources(&entry)),
            false if entry.extension().is_some_and(|end| end == "rs") => found.push(entry),
            false => {}
        }
    }
    found.sort();
    found
}

/// The first folder or file name below `src`.
fn room(src: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(src).unwrap();
    inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// Rooms of the same crate that a file's code names, tests excluded.
fn used(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut rooms = Vec::new();
    for line in lines {
        for after in line.split("crate::").skip(1) {
            let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
            match after.strip_prefix('{') {
                Some(list) => rooms.extend(list.split(',').map(|part| name(part.trim()))),
                None => rooms.push(name(after)),
            }
        }
    }
    rooms
}

fn upward(src: &Path, floors: &[&[&str]]) -> Vec<String> {
    let floor: BTreeMap<&str, usize> =
        (0..).zip(floors).flat_map(|(level, names)| names.iter().map(move |name| (*name, level))).collect();
    let mut wrong = Vec::new();
    // A spec is tests from end to end: it may open what it specifies as users do, from above.
    let is_code = |file: &PathBuf| file.file_stem().is_none_or(|stem| stem != "spec");
    for file in sources(src).into_iter().filter(is_code) {
        let own = room(src, &file);
        let Some(level) = floor.get(own.as_str()) else {
            if !matches!(own.as_str(), "lib" | "main" | "test_files") {
                wrong.push(format!("{} is on no floor", file.display()));
            }
            continue;
        };
        for other in used(&file) {
            let is_up = floor.get(other.as_str()).is_some_and(|other| other > level);
            if is_up || STRANGERS.contains(&(own.as_str(), other.as_str())) {
                wrong.push(format!("{} uses {other}", file.display()));
            }
        }
    }
    wrong
}

#[test]
fn no_arrow_points_up() {
    let wrong =
        [upward(&crates().join("faultline/src"), LIBRARY), upward(&crates().join("faultline-lab/src"), LAB)].concat();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_report_never_runs_anything() {
    for file in sources(&crates().join("faultline-lab/src/report")) {
        for other in used(&file) {
            assert!(
                !["run", "place", "peer", "scratch", "session"].contains(&other.as_str()),
                "{} uses {other}",
                file.display()
            );
        }
    }
}

#[test]
fn the_doctor_only_watches() {
    for file in sources(&crates().join("faultline-lab/src/doctor")) {
        for other in used(&file) {
            assert!(
                !["run", "peer", "scratch", "session", "workload", "trial", "record"].contains(&other.as_str()),
                "{} uses {other}",
                file.display()
            );
        }
    }
}

#[test]
fn every_file_of_a_kind_is_registered() {
    let kinds = [
        ("faultline/src/access", "Method"),
        ("faultline/src/prefetch", "Policy"),
        ("faultline/src/observe", "Source"),
        ("faultline-lab/src/workload", "Workload"),
        ("faultline-lab/src/peer", "Peer"),
        ("faultline-lab/src/doctor/rules", "Rule"),
        ("faultline-lab/src/procedure", "Procedure"),
        ("faultline-lab/src/experiment", "Experiment"),
    ];
    for (folder, kind) in kinds {
        let dir = crates().join(folder);
        let registry = fs::read_to_string(dir.join("mod.rs")).unwrap();
        for file in sources(&dir) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&file).unwrap();
            let declares = text.lines().any(|line| line.contains("const ") && line.contains(&format!(": {kind} =")));
            if declares {
                let listed = registry.contains(&format!("&{name}::"));
                assert!(listed, "{} declares a {kind} that {folder}/mod.rs does not list", file.display());
            }
        }
    }
}

#[test]
fn unsafe_code_stays_below_sys() {
    for file in sources(&crates()) {
        let path = file.to_string_lossy();
        if path.contains("/src/sys/") || path.contains("/tests/") || path.contains("/benches/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("allow(unsafe_code)"), "{path} lets unsafe code in");
    }
}

#[test]
fn the_library_stays_small() {
    let manifest = fs::read_to_string(crates().join("faultline/Cargo.toml")).unwrap();
    let table = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect();

    assert_eq!(names, ["io-uring", "libc", "rustix"]);
}
