//! Results of replays, kept in the state folder: a later watch of the same program shows what was measured, without loading the
//! device again.
//!
//! One line of JSON for each result. A result counts for the same program, file (path, number and length), arms and limit.

use super::Proven;
use crate::doctor::rule::Backing;
use crate::doctor::{self, Finding};
use crate::outputs::records::state_dir;
use crate::watch::evidence::Evidence;
use majorfault::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most results that are kept; the oldest go first.
const MOST: usize = 1000;

/// A result as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptProof {
    /// What was measured.
    #[serde(flatten)]
    about: About,
    /// How many times as fast the accesses of the remedy were, and the interval.
    ratio: f64,
    interval: Option<[f64; 2]>,
    /// Accesses in each run.
    accesses: u64,
    /// Seconds since 1970.
    at: u64,
}

/// What a result is about: the same again means that it still holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct About {
    program: String,
    path: String,
    inode: u64,
    size_bytes: u64,
    now: String,
    remedy: String,
    memory_bytes: Option<u64>,
}

impl About {
    /// What a replay for this finding is about; none where there is nothing to replay.
    fn of(processes: &[Evidence], finding: &Finding) -> Option<About> {
        let replay = finding.replay.as_ref()?;
        let evidence = processes.iter().find(|it| it.target.pid == finding.pid)?;
        let file = evidence.files.iter().find(|file| Some(file.id) == finding.file)?;
        Some(About {
            program: evidence.target.name.clone(),
            path: file.path.clone(),
            inode: file.id.inode,
            size_bytes: file.size_bytes?,
            now: replay.arms[0].to_owned(),
            remedy: replay.arms[1].to_owned(),
            memory_bytes: replay.memory_bytes,
        })
    }
}

impl KeptProof {
    /// What it says of a remedy: a measured gain or loss; nothing where the runs cannot tell it from none.
    fn backing(&self) -> Option<Backing> {
        let [low, high] = self.interval?;
        (low > 1.0 || high < 1.0).then_some(Backing::Measured(self.ratio))
    }
}

/// Lets the findings say what was measured for the same program, file and limit, and orders them again.
pub fn recall(processes: &[Evidence], findings: &mut [Finding]) {
    let kept = read(&path());
    findings.iter_mut().for_each(|finding| recall_one(processes, finding, &kept));
    doctor::rank(findings);
}

fn recall_one(processes: &[Evidence], finding: &mut Finding, kept: &[KeptProof]) {
    let Some(about) = About::of(processes, finding) else { return };
    // The latest counts.
    let same = kept.iter().rev().find(|it| it.about == about);
    if let Some(backing) = same.and_then(KeptProof::backing) {
        finding.backing = backing;
    }
}

/// Keeps the results. A folder that cannot be written is told; the results stand without it.
pub(super) fn keep(processes: &[Evidence], findings: &[Finding], proofs: &[Proven]) {
    let new: Vec<KeptProof> = proofs.iter().filter_map(|proof| kept(processes, findings, proof)).collect();
    if let Err(error) = add(&path(), new) {
        eprintln!("majorfault: {error}");
    }
}

fn kept(processes: &[Evidence], findings: &[Finding], proof: &Proven) -> Option<KeptProof> {
    let measured = proof.result.as_ref().ok()?;
    let is_its =
        |it: &&Finding| it.rule == proof.rule && it.replay.as_ref().is_some_and(|replay| replay.arms == proof.arms);
    let about = About::of(processes, findings.iter().find(is_its)?)?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (ratio, interval) = (measured.ratio.ratio.median, measured.ratio.ratio.interval);
    Some(KeptProof { about, ratio, interval, accesses: measured.accesses, at })
}

fn path() -> PathBuf {
    state_dir().with_file_name("proofs.jsonl")
}

/// Results in their order; lines that cannot be read are passed over.
fn read(path: &Path) -> Vec<KeptProof> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn add(path: &Path, new: Vec<KeptProof>) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let failed = |error| Error::io("keep the results of replays", path, error);
    let mut all = read(path);
    all.extend(new);
    let lines = all[all.len().saturating_sub(MOST)..].iter().filter_map(|it| serde_json::to_string(it).ok());
    let text: String = lines.map(|line| line + "\n").collect();
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    // Two doctors may write at once: each replaces the whole file.
    let temporary = dir.join(format!(".proofs-{}", std::process::id()));
    File::create(&temporary).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rule::Replay;
    use crate::watch::scenes::healthy;

    fn finding() -> Finding {
        let replay = Replay { arms: ["mmap", "uring"], memory_bytes: Some(8 << 30), workload: String::new() };
        let file = Some(healthy().files[0].id);
        Finding { rule: "a rule", pid: 77, file, replay: Some(replay), ..Finding::default() }
    }

    fn result(ratio: f64, interval: Option<[f64; 2]>) -> KeptProof {
        let about = About::of(&[healthy()], &finding()).unwrap();
        KeptProof { about, ratio, interval, accesses: 1000, at: 1 }
    }

    /// What the finding rests on after these results are recalled for this process.
    fn recalled(evidence: Evidence, kept: &[KeptProof]) -> Backing {
        let mut finding = finding();
        recall_one(&[evidence], &mut finding, kept);
        finding.backing
    }

    #[test]
    fn the_latest_result_for_the_same_program_and_file_is_shown() {
        let kept = [result(9.0, Some([8.0, 10.0])), result(2.0, Some([1.5, 2.5]))];

        assert_eq!(recalled(healthy(), &kept), Backing::Measured(2.0));
        assert_eq!(recalled(healthy(), &[]), Backing::Try);
    }

    #[test]
    fn a_loss_is_shown_and_what_may_be_none_is_not() {
        assert_eq!(recalled(healthy(), &[result(0.5, Some([0.4, 0.6]))]), Backing::Measured(0.5));
        assert_eq!(recalled(healthy(), &[result(1.1, Some([1.0, 1.2]))]), Backing::Try);
        assert_eq!(recalled(healthy(), &[result(2.0, None)]), Backing::Try);
    }

    #[test]
    fn a_result_for_another_program_file_or_limit_is_not_shown() {
        let changed = |change: fn(&mut About)| {
            let mut kept = result(2.0, Some([1.5, 2.5]));
            change(&mut kept.about);
            recalled(healthy(), &[kept])
        };

        assert_eq!(changed(|_| ()), Backing::Measured(2.0));
        for change in [
            |about: &mut About| about.program.push('2'),
            |about: &mut About| about.path.push('2'),
            |about: &mut About| about.inode += 1,
            |about: &mut About| about.size_bytes += 1,
            |about: &mut About| about.now.push('2'),
            |about: &mut About| about.remedy.push('2'),
            |about: &mut About| about.memory_bytes = None,
        ] {
            assert_eq!(changed(change), Backing::Try);
        }
    }

    #[test]
    fn results_are_kept_in_their_order_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/proofs.jsonl");

        add(&path, vec![result(2.0, Some([1.5, 2.5]))]).unwrap();
        add(&path, vec![result(3.0, None)]).unwrap();
        assert_eq!(read(&path), [result(2.0, Some([1.5, 2.5])), result(3.0, None)]);

        add(&path, vec![result(4.0, None); MOST - 1]).unwrap();
        let all = read(&path);
        assert_eq!((all.len(), all[0].ratio, all[1].ratio), (MOST, 3.0, 4.0));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proofs.jsonl");
        fs::write(&path, format!("nonsense\n{}\n", serde_json::to_string(&result(2.0, None)).unwrap())).unwrap();

        assert_eq!(read(&path), [result(2.0, None)]);
    }
}
