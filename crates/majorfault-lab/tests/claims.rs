//! The ledger in the documentation is what the records say, and other means than ours find the same verdicts.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use majorfault_lab::record::Record;
use majorfault_lab::{experiment, report, session};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use world::facility;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The committed records, in the order of their names; the first has the figures.
fn kept() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(project().join("records")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".jsonl") || path.to_string_lossy().ends_with(".jsonl.gz"));
    paths.sort();
    paths
}

#[test]
fn the_page_of_claims_is_fresh() {
    let records = session::load(&kept()).unwrap();

    let made = report::ledger::markdown(&experiment::ledger(&records, &[]), &records);

    let kept = fs::read_to_string(project().join("docs/claims.md")).unwrap();
    assert!(made == kept, "make it again: majorfault reproduce --from records/* --markdown >docs/claims.md");
}

/// Experiments that have sessions of their own, recorded later than the whole ones, which may lack them or have older cells of
/// them.
const LATER: &[&str] = &["S1", "S2", "S4.matrix"];

#[test]
fn each_file_of_records_is_one_whole_standard_session_at_one_commit() {
    let is_later = |id: &String| LATER.contains(&id.as_str());
    let ids = experiment::ALL.iter().map(|it| it.id.to_owned()).filter(|id| id != "S4.systems");
    let all: BTreeSet<String> = ids.filter(|id| !is_later(id)).collect();
    // By what they ran, later ones; nothing stands for the whole ones.
    let mut commits: BTreeMap<BTreeSet<String>, Vec<String>> = BTreeMap::new();
    for path in kept() {
        let records = session::load(std::slice::from_ref(&path)).unwrap();
        let of = |part: &dyn Fn(&Record) -> String| records.iter().map(part).collect::<BTreeSet<String>>();
        let scales = of(&|record| record.cell.as_ref().map(|cell| cell.scale.clone()).unwrap_or_default());
        let run = of(&|record| record.cell.as_ref().map(|cell| cell.experiment.clone()).unwrap_or_default());
        let (later, others): (BTreeSet<String>, BTreeSet<String>) = run.into_iter().partition(is_later);

        assert_eq!(of(&|record| record.session.clone()).len(), 1, "{}", path.display());
        assert_eq!(scales, BTreeSet::from(["standard".to_owned()]), "{}", path.display());
        assert!(others.is_empty() || others == all, "{}: {others:?}", path.display());
        let kind = if others.is_empty() { later } else { BTreeSet::new() };
        commits.entry(kind).or_default().extend(of(&|record| record.tool.clone()));
    }
    assert!(commits[&BTreeSet::new()].len() >= 2, "two whole sessions are kept");
    for commits in commits.values() {
        assert!(commits.iter().all(|tool| *tool == commits[0]), "{commits:?}");
        assert!(commits.iter().all(|tool| tool.contains('(') && !tool.contains("dirty") && !tool.contains("unknown")));
    }
}

#[test]
fn records_say_the_commit_they_are_made_by() {
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(project()).output();
    let commit = said.ok().filter(|said| said.status.success()).map(|said| String::from_utf8(said.stdout).unwrap());

    let tool = majorfault_lab::run::tool();

    match commit {
        Some(commit) => assert!(tool.starts_with(&format!("majorfault 0.1.0 ({}", commit.trim())), "{tool}"),
        None => assert_eq!(tool, "majorfault 0.1.0 (unknown commit)"),
    }
}

fn recomputed(paths: &[PathBuf]) -> Output {
    let script = project().join("tools/verdicts.py");
    Command::new("python3").arg(script).arg(env!("CARGO_BIN_EXE_majorfault")).args(paths).output().unwrap()
}

fn assert_agrees(paths: &[PathBuf]) {
    let said = recomputed(paths);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && text.ends_with("0 rows differ\n"),
        "{text}{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

fn python() -> bool {
    let found = Command::new("python3").arg("--version").output().map(|_| ()).map_err(|error| error.to_string());
    facility("python3", found)
}

/// The committed records of the first session that has each experiment, without what no figure is made of.
static FIRST: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let records = session::load(&kept()).unwrap();
    let mut session: BTreeMap<String, String> = BTreeMap::new();
    for record in &records {
        session.entry(experiment_of(record)).or_insert_with(|| record.session.clone());
    }
    let own = records.into_iter().filter(|record| session[&experiment_of(record)] == record.session);
    let light = |mut record: Record| {
        record.latency.buckets.0.clear();
        record.timeline.latency.clear();
        let is_used = |name: &String, _: &mut _| {
            ["cgroup_usage_bytes", "device_read_bytes", "tlb_shootdowns", REQUESTS].contains(&name.as_str())
        };
        record.timeline.counters.retain(is_used);
        record
    };
    own.map(light).collect()
});

const REQUESTS: &str = "tlb_flush_remote_send_ipi";

fn experiment_of(record: &Record) -> String {
    record.cell.as_ref().unwrap().experiment.clone()
}

/// The records of these experiments with every run several times, as repetitions of their own, so that there are enough
/// to decide. `edit` changes each.
fn multiplied(name: &Path, wanted: &[&str], edit: impl Fn(&mut Record)) -> PathBuf {
    let mut file = fs::File::create(name).unwrap();
    let own = || FIRST.iter().filter(|record| wanted.contains(&experiment_of(record).as_str()));
    for record in own() {
        let same = own().filter(|other| experiment_of(other) == experiment_of(record));
        let repetitions = same.map(|other| other.trial.repetition + 1).max().unwrap();
        // The script knows Student's t up to 11 repetitions.
        for copy in 0..11 / repetitions {
            let mut record = record.clone();
            record.trial.repetition += copy * repetitions;
            record.began_unix_s += u64::from(copy);
            edit(&mut record);
            writeln!(file, "{}", serde_json::to_string(&record).unwrap()).unwrap();
        }
    }
    name.to_owned()
}

#[test]
fn another_language_finds_the_same_verdicts_in_the_records() {
    if python() {
        assert_agrees(&kept());
    }
}

#[test]
fn another_language_finds_the_same_verdicts_where_there_are_runs_enough() {
    if !python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();

    let file = |name: &str| dir.path().join(name);
    let all: Vec<&str> = experiment::ALL.iter().map(|experiment| experiment.id).collect();
    let counted = multiplied(&file("hidden.jsonl"), &all, |_| {});
    let bare = multiplied(&file("bare.jsonl"), &["S0", "S2"], |record| {
        record.session.push_str(" bare");
        record.machine.remarks.clear();
    });
    let untold = multiplied(&file("untold.jsonl"), &["S0", "S2"], |record| {
        record.session.push_str(" untold");
        record.timeline.counters.remove(REQUESTS);
        record.phases.iter_mut().for_each(|phase| phase.counters.retain(|name, _| name != REQUESTS));
    });

    // What S4.writes excepts would take its verdict away.
    let excepted = multiplied(&file("excepted.jsonl"), &["S4.matrix"], |record| {
        record.session.push_str(" excepted");
        let cell = record.cell.as_mut().unwrap();
        cell.name = cell.name.replace("256m", "4g");
        let mapped_ns = if cell.name.ends_with("random") { 1_000 } else { u64::MAX / 4 };
        for phase in record.phases.iter_mut().filter(|_| cell.name.starts_with("mmap write ")) {
            phase.wall_ns = mapped_ns;
        }
    });

    // No cell is left that the star of S4.mmapwins stands for.
    let unread = multiplied(&file("unread.jsonl"), &["S4.matrix"], |record| {
        record.session.push_str(" unread");
        let cell = record.cell.as_mut().unwrap();
        cell.name = cell.name.replace("mmap read", "mapped read");
    });

    // An emulated machine, whose times tell nothing.
    let emulated = multiplied(&file("emulated.jsonl"), &["S0", "S1", "S3"], |record| {
        record.session.push_str(" emulated");
        record.machine.remarks.push("guest of QEMU (tcg); emulated, so counts are exact and times are not".to_owned());
    });

    assert_agrees(&[counted, bare, untold, excepted, unread, emulated]);
}

#[test]
fn the_script_sees_a_verdict_that_differs() {
    if !python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let liar = dir.path().join("liar");
    let text = format!(
        "#!/bin/sh\n{} \"$@\" | sed 's/\"holds here\"/\"does not hold here\"/'\n",
        env!("CARGO_BIN_EXE_majorfault")
    );
    fs::write(&liar, text).unwrap();
    fs::set_permissions(&liar, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    let script = project().join("tools/verdicts.py");
    let records = multiplied(&dir.path().join("a.jsonl"), &["S1"], |_| {});
    let said = Command::new("python3").arg(script).arg(&liar).arg(records).output().unwrap();

    assert_eq!(said.status.code(), Some(1), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(String::from_utf8_lossy(&said.stdout).contains("S1.hint: "));
}

fn majorfault(words: &[&str]) -> (Option<i32>, String, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_majorfault")).arg("reproduce").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (said.status.code(), text(&said.stdout), text(&said.stderr))
}

#[test]
fn agreement_is_computed_from_the_records_of_two_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let first = multiplied(&dir.path().join("a.jsonl"), &["S1"], |record| record.session = "A".to_owned());
    let second = multiplied(&dir.path().join("b.jsonl"), &["S1"], |record| {
        record.session = "B".to_owned();
        record.figures.insert("near_granted".to_owned(), 0);
    });
    let [first, second] = [&first, &second].map(|path| path.to_str().unwrap());

    let (code, text, _) = majorfault(&["--from", first, second, "--agreement", "--json"]);
    let (_, alone, complaint) = majorfault(&["--from", first, "--agreement"]);

    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hint = told["rows"].as_array().unwrap().iter().find(|row| row["id"] == "S1.hint").unwrap();
    assert_eq!((code, hint["verdict"].as_str()), (Some(0), Some("undecided, run more")));
    assert_eq!((&hint["agree"], &hint["of"]), (&1.into(), &2.into()));
    assert_eq!(told["compared"].as_u64().unwrap(), told["agreeing"].as_u64().unwrap() + 1);
    assert!(alone.is_empty() && complaint.contains("needs the records of two sessions"), "{complaint}");
}

#[test]
fn sessions_of_several_machines_are_told_apart_in_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let session = |name: &str, near: u64, kernel: &str| {
        multiplied(&dir.path().join(name), &["S1"], |record| {
            record.session = name.to_owned();
            record.machine.kernel = kernel.to_owned();
            record.figures.insert("near_granted".to_owned(), near);
        })
    };
    let files = [session("s", 1, "6.18.0"), session("t", 0, "6.1.0"), session("u", 1, "6.18.0")];
    let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let from = |words: &[&str]| majorfault(&[&["S1.hint", "--from"], names.as_slice(), words].concat());

    let (code, text, _) = from(&["--json"]);
    let (_, page, _) = from(&["--markdown"]);
    let (_, terminal, _) = from(&[]);

    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hint = &told["claims"][0];
    assert_eq!((code, hint["verdict"].as_str()), (Some(0), Some("undecided, run more")));
    let on = |letter: &str, agree: u64, of: u64| serde_json::json!({"machine": letter, "agree": agree, "of": of});
    let holds = serde_json::json!({"verdict": "holds here", "machines": [on("A", 2, 2), on("B", 0, 1)]});
    let fails = serde_json::json!({"verdict": "does not hold here", "machines": [on("A", 0, 2), on("B", 1, 1)]});
    assert_eq!(hint["by_machine"], serde_json::json!([holds, fails]));
    let letters: Vec<&str> =
        hint["sessions"].as_array().unwrap().iter().map(|it| it["machine"].as_str().unwrap()).collect();
    assert_eq!(letters, ["A", "B", "A"]);
    let said = "holds here: 2 of 2 on A, 0 of 1 on B; does not hold here: 0 of 2 on A, 1 of 1 on B (n ";
    assert!(page.contains(said), "{page}");
    assert!(terminal.contains("machine: A, 2 x ") && terminal.contains("session t on B: "), "{terminal}");
}

#[test]
fn the_tests_of_every_claim_are_listed_as_data() {
    let (code, text, _) = majorfault(&["--list", "--json", "S1.hint", "S2.advice"]);

    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(code, Some(0));
    assert_eq!((&rows[0]["kind"], &rows[0]["judge"]), (&"facts about us".into(), &"claim".into()));
    assert_eq!(rows[0]["tests"][2]["first"]["figure"], "own near_granted");
    assert_eq!((&rows[0]["tests"][2]["low"], &rows[0]["tests"][2]["high"]), (&1.0.into(), &1.0.into()));
    assert_eq!(rows[1]["judge"], "built");
}
