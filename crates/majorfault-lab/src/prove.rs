//! Proving a finding: replays the accesses that the doctor saw, as the program accesses its file now and as the remedy
//! would, in turns, cold, within the program's memory limit.

mod kept;

pub use kept::recall;

use crate::doctor::rule::{BLOCK, Replay};
use crate::doctor::{Finding, waiting};
use crate::lineup;
use crate::machine;
use crate::record::{Outcome, Record};
use crate::run;
use crate::scratch::{self, Scratch, Wanted};
use crate::session::{self, Comparison};
use crate::stats;
use crate::trial::{Arm, CacheState, Choice, Data, Direction, Limits, Trial};
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::files;
use majorfault::observe::pattern::Access;
use majorfault::sys::cache::{self, FileAdvice};
use majorfault::trace::{Run, Writer};
use majorfault::{Bytes, Error, Extent, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Runs of each arm: as many as an interval needs to cover 95 %.
const RUNS: u32 = stats::LEAST as u32;

/// A run ends after this time.
const LONGEST_NS: u64 = 10_000_000_000;

/// A replay of fewer accesses proves nothing.
const FEWEST: u64 = 256;

/// Of what the present way reaches in the longest time, both ways replay this share: no run is to end by its time.
const REACHED: f64 = 0.8;

/// A replay whose faults are so many times as slow, or as fast, as the program's is of something else than the program does.
const FAR: f64 = 3.0;

/// Percent of the file's pages that may stay cached.
const STAYS: u64 = 2;

/// A file up to this length is replaced by a made file if it cannot leave the cache.
const LARGEST_MADE: u64 = 4 << 30;

const PAGE: u64 = BLOCK.0;

/// Transfers in flight for an arm that does not set their number.
const IODEPTH: u32 = 32;

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The finding's rule.
    pub rule: &'static str,
    /// The finding's file.
    pub scope: String,
    /// How the file is accessed now, and how with the remedy.
    pub arms: [&'static str; 2],
    /// The gain, or why nothing was measured.
    pub result: std::result::Result<Measured, String>,
}

/// The measured gain of the remedy.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Accesses replayed in each run.
    pub accesses: u64,
    /// Whether it ran on a made file, because the program holds its own file in the cache.
    pub is_made: bool,
    /// Memory limit of the runs.
    pub memory_bytes: Option<u64>,
    /// Accesses a second, medians.
    pub rates: [f64; 2],
    /// How many times as fast the accesses of the remedy were.
    pub ratio: stats::PairedRatio,
    /// What is wrong with some of the runs, if anything: mostly that the program itself runs beside them.
    pub doubt: Option<String>,
    /// Share of the threads' time that the program waited in faults of the file.
    pub waiting: f64,
}

impl Measured {
    /// The most that the whole program could gain, without any waiting.
    pub fn predicted(&self) -> f64 {
        1.0 / (1.0 - self.waiting)
    }

    /// Whether the accesses of the remedy were slower, as far as the runs can tell.
    pub fn is_loss(&self) -> bool {
        self.ratio.ratio.interval.is_some_and(|[_, high]| high < 1.0)
    }

    /// What the program would gain if its waiting shrank as in the replay.
    pub fn measured(&self) -> f64 {
        1.0 / (1.0 - self.waiting + self.waiting / self.ratio.ratio.median.max(1e-3))
    }
}

/// Replays the accesses of each finding that they can prove: the comparison in its proof line.
///
/// Drops the files' pages from the cache, except those that the program has mapped. A replay that fails is reported in its
/// proof; the findings stand without it.
/// The results are kept, and [`recall`]ed by later watches.
pub fn prove(processes: &[Evidence], findings: &[Finding], stop: &AtomicBool) -> Vec<Proven> {
    let mut proofs: Vec<Proven> = Vec::new();
    for finding in findings {
        let Some(Replay { arms, memory_bytes, .. }) = finding.replay else { continue };
        let evidence = processes.iter().find(|it| it.target.pid == finding.pid);
        let file = evidence.and_then(|it| it.files.iter().find(|file| Some(file.id) == finding.file));
        let scope = file.map_or(&finding.scope, |file| &file.path);
        if proofs.iter().any(|proof| proof.scope == *scope && proof.arms == arms) {
            continue;
        }
        let result = match evidence.zip(file) {
            Some((evidence, file)) => {
                replay(evidence, file, arms, memory_bytes, stop).unwrap_or_else(|error| Err(error.to_string()))
            }
            None => Err("no fault was seen waiting in a file".to_owned()),
        };
        proofs.push(Proven { rule: finding.rule, scope: scope.clone(), arms, result });
    }
    kept::keep(processes, findings, &proofs);
    proofs
}

fn replay(
    evidence: &Evidence,
    file: &MappedFile,
    arms: [&'static str; 2],
    memory_bytes: Option<u64>,
    stop: &AtomicBool,
) -> Result<std::result::Result<Measured, String>> {
    let Some(length) = file.size_bytes.filter(|_| !file.deleted) else {
        return Ok(Err("the file has no name any more, or cannot be opened".to_owned()));
    };
    let Some(path) = files::reached(evidence.target.pid, &file.path, file.id) else {
        return Ok(Err("another file has this name now, or the program has ended".to_owned()));
    };
    let accesses = replayed(&file.latest, memory_bytes);
    let seen = accesses.len() as u64;
    if seen < FEWEST {
        return Ok(Err(format!("only {seen} accesses were seen, and {FEWEST} are needed")));
    }
    let Some(observed) = observed(file) else {
        return Ok(Err("the program did not wait in this file, so nothing can be compared with it".to_owned()));
    };
    let dir = scratch::directory(None, Bytes::mib(64))?;
    let trace = dir.join(format!(".majorfault-{}.flt", std::process::id()));
    let trace = Kept(trace);
    let threads = write(&trace.0, file, accesses, length)?;
    let (data, made) = match is_droppable(&path, length, accesses) {
        Ok(true) => (of(vec![path], length, None), None),
        Ok(false) if length <= LARGEST_MADE => {
            let wanted = Wanted { size: Bytes(length / PAGE * PAGE), files: 1, stripe: Bytes::mib(1), seed: 1 };
            let made = Scratch::make(&scratch::directory(None, Bytes(length))?, &wanted, stop, |_| ())?;
            (of(made.paths(), length / PAGE * PAGE, Some(1)), Some(made))
        }
        Ok(false) => {
            return Ok(Err(
                "the program has the file mapped and cached, and the file is too long to make another".to_owned()
            ));
        }
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(made) = &made
        && let Err(why) = is_alike(file, made)
    {
        return Ok(Err(why));
    }
    let mut comparison = comparison(arms, memory_bytes, data, &trace.0, threads)?;
    let session = run::Session { name: session::name(), machine: machine::look(&comparison.trial.data.files), stop };
    let reached = match reached(&comparison, &session, seen)? {
        Ok(pilot) => match begins_alike(observed, pilot, threads) {
            Ok(()) => pilot.accesses,
            Err(why) => return Ok(Err(why)),
        },
        Err(why) => return Ok(Err(why)),
    };
    if reached < FEWEST {
        let longest = LONGEST_NS / 1_000_000_000;
        return Ok(Err(format!("only {reached} accesses can be replayed in {longest} s, and {FEWEST} are needed")));
    }
    comparison.trial.limits.accesses = Some(reached);
    let records = session::interleave(&comparison, &session, |_| Ok(()))?;
    let (rates, ratio) = match rates(&records, &comparison.arms) {
        Ok(measured) => measured,
        Err(why) => return Ok(Err(why)),
    };
    Ok(Ok(Measured {
        accesses: reached,
        is_made: made.is_some(),
        memory_bytes,
        rates,
        ratio,
        doubt: records.iter().find_map(|record| record.spoiled().next().map(str::to_owned)),
        waiting: waiting(evidence, file),
    }))
}

/// What is replayed of the accesses that were seen: the latest of them in which no page comes back, where there are enough.
///
/// A page that faults again was unmapped meanwhile, by a program that drops or maps its file anew. A replay without a memory limit would find
/// it in memory, where the program may wait for the device again. Within a limit, coming back is what is to be measured.
fn replayed(latest: &[Access], memory_bytes: Option<u64>) -> &[Access] {
    let mut pages = HashSet::new();
    let once = latest.iter().rev().take_while(|access| pages.insert(access.offset / PAGE)).count();
    if memory_bytes.is_some() || (once as u64) < FEWEST { latest } else { &latest[latest.len() - once..] }
}

/// Faults each second that a thread of the program gets done while it waits for the file.
fn observed(file: &MappedFile) -> Option<f64> {
    (file.waited_ns > 0).then(|| file.faults as f64 * 1e9 / file.waited_ns as f64)
}

/// What one run of the present way did.
#[derive(Clone, Copy, Debug)]
struct Pilot {
    accesses: u64,
    per_second: f64,
}

/// One run of the present way: how many accesses both ways can replay, and how fast they are; or why there was none.
fn reached(
    comparison: &Comparison,
    session: &run::Session<'_>,
    seen: u64,
) -> Result<std::result::Result<Pilot, String>> {
    let now = Comparison { trial: comparison.trial.clone(), arms: vec![comparison.arms[0].clone()], repetitions: 1 };
    let records = session::interleave(&now, session, |_| Ok(()))?;
    let Some(record) = records.iter().find(|record| per_second(record).is_some()) else {
        return Ok(Err(failure(&records)));
    };
    let accesses = match record.accesses() {
        whole if whole >= seen => seen,
        part => (part as f64 * REACHED) as u64,
    };
    Ok(Ok(Pilot { accesses, per_second: per_second(record).unwrap_or_default() }))
}

/// Whether the replay of the present way is what the program does: a thread of both gets as many faults done while it waits.
fn begins_alike(observed: f64, pilot: Pilot, threads: u32) -> std::result::Result<(), String> {
    let replayed = pilot.per_second / f64::from(threads);
    let ratio = replayed / observed;
    if (1.0 / FAR..=FAR).contains(&ratio) {
        return Ok(());
    }
    Err(format!(
        "the replay is not what the program does: a thread of the program gets {observed:.0} faults/s done while it waits, one of \
         the replay {replayed:.0}/s"
    ))
}

/// Whether a made file is read ahead as the program's file is.
fn is_alike(file: &MappedFile, made: &Scratch) -> std::result::Result<(), String> {
    let of_made = made
        .paths()
        .first()
        .and_then(|path| std::fs::metadata(path).ok())
        .and_then(|meta| files::read_ahead_kb((rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()))));
    if of_made == file.read_ahead_kb {
        return Ok(());
    }
    let told = |kb: Option<u64>| kb.map_or("unknown".to_owned(), |kb| kb.to_string());
    let (own, other) = (told(file.read_ahead_kb), told(of_made));
    Err(format!("a file made for the replay would have read_ahead_kb {other}, and the program's has {own}"))
}

/// Replays the recorded faults by both arms, in turns.
///
/// Errors: Invalid where an arm cannot be read, which is a bug in its rule.
fn comparison(
    arms: [&str; 2],
    memory_bytes: Option<u64>,
    data: Data,
    trace: &Path,
    threads: u32,
) -> Result<Comparison> {
    let arms: Vec<Arm> = arms.iter().map(|arm| lineup::arm(arm, IODEPTH)).collect::<Result<_>>()?;
    let given = BTreeMap::from([("file".to_owned(), trace.display().to_string())]);
    let trial = Trial {
        data,
        workload: Choice { name: "trace".to_owned(), given },
        direction: Direction::Read,
        arm: arms[0].clone(),
        block_bytes: PAGE,
        threads,
        iodepth: IODEPTH,
        limits: Limits { runtime_ns: Some(LONGEST_NS), accesses: None, time_based: false },
        memory_bytes,
        cache: CacheState::Cold,
        seed: 1,
        interval_ns: 250_000_000,
        repetition: 0,
        counts_hardware: false,
        jobs: Vec::new(),
        stage: String::new(),
    };
    Ok(Comparison { trial, arms, repetitions: RUNS })
}

/// Accesses a second of both arms, and how many times as fast the second one was; or why that is not known.
fn rates(records: &[Record], arms: &[Arm]) -> std::result::Result<([f64; 2], stats::PairedRatio), String> {
    let of = |arm: &Arm| -> Vec<f64> {
        records.iter().filter(|record| record.trial.arm == *arm).filter_map(per_second).collect()
    };
    let [now, then] = [of(&arms[0]), of(&arms[1])];
    let pairs: Vec<(f64, f64)> = then.iter().copied().zip(now.iter().copied()).collect();
    let measured = (stats::median(&now), stats::median(&then), stats::compare(&pairs));
    let (Some(now), Some(then), Some(ratio)) = measured else {
        return Err(failure(records));
    };
    Ok(([now, then], ratio))
}

/// Why there are no runs.
fn failure(records: &[Record]) -> String {
    let reason = records.iter().find_map(|record| match &record.outcome {
        Outcome::Failed(why) => Some(why.clone()),
        Outcome::Missing(missing) => Some(missing.reason.clone()),
        _ => None,
    });
    reason.unwrap_or_else(|| "it was stopped".to_owned())
}

fn per_second(record: &Record) -> Option<f64> {
    let wall_ns: u64 = record.phases.iter().map(|phase| phase.wall_ns).sum();
    (wall_ns > 0).then(|| record.accesses() as f64 * 1e9 / wall_ns as f64)
}

fn of(files: Vec<PathBuf>, size_bytes: u64, content_seed: Option<u64>) -> Data {
    Data { files, offset_bytes: 0, size_bytes, stripe_bytes: 1 << 20, content_seed }
}

/// A made file, removed afterwards.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes these faults in the file as a trace; returns the number of threads.
fn write(path: &Path, file: &MappedFile, accesses: &[Access], length: u64) -> Result<u32> {
    let mut writer = Writer::create(path)?;
    let number = writer.file(Some(&file.path), length);
    let mut runs: BTreeMap<u32, Run> = BTreeMap::new();
    for access in accesses {
        let extent = Extent { offset: access.offset / PAGE * PAGE, length: PAGE as usize };
        match runs.get_mut(&access.thread) {
            None => {
                runs.insert(access.thread, Run::of(extent));
            }
            Some(run) => {
                if !run.takes(extent) {
                    writer.run(number, access.thread, std::mem::replace(run, Run::of(extent)));
                }
            }
        }
    }
    let threads = runs.len().clamp(1, 64) as u32;
    for (thread, run) in runs {
        writer.run(number, thread, run);
    }
    writer.finish()?;
    Ok(threads)
}

/// Whether the file leaves the page cache on request, and the pages that are to be replayed with it: a program that still maps what it
/// touched keeps just those.
fn is_droppable(path: &Path, length: u64, accesses: &[Access]) -> Result<bool> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    cache::fadvise(&file, 0, 0, FileAdvice::DontNeed)?;
    let mut kept = 0;
    for access in accesses {
        kept += cache::resident(&file, access.offset / PAGE * PAGE, PAGE)?.0.min(PAGE);
    }
    let stays = |bytes: u64, of: u64| bytes * 100 > of * STAYS;
    Ok(!stays(cache::resident(&file, 0, length)?.0, length) && !stays(kept, accesses.len() as u64 * PAGE))
}

/// The proofs for JSON.
pub fn document(proofs: &[Proven]) -> Value {
    let one = |proof: &Proven| {
        let gain = proof.result.as_ref().ok().map(|gain| {
            json!({
                "accesses": gain.accesses,
                "made_file": gain.is_made,
                "memory_bytes": gain.memory_bytes,
                "accesses_per_second": gain.rates,
                "ratio": gain.ratio.ratio.median,
                "ratio_interval": gain.ratio.ratio.interval,
                "doubt": gain.doubt,
                "waiting_share": gain.waiting,
                "predicted_at_most": gain.predicted(),
                "measured": gain.measured(),
            })
        });
        json!({
            "rule": proof.rule,
            "scope": proof.scope,
            "now": proof.arms[0],
            "remedy": proof.arms[1],
            "gain": gain,
            "not_proved": proof.result.as_ref().err(),
        })
    };
    proofs.iter().map(one).collect()
}

/// The proofs in words, one paragraph each.
pub fn sentences(proofs: &[Proven]) -> Vec<String> {
    let one = |proof: &Proven| {
        let Proven { rule, scope, arms: [now, then], result } = proof;
        match result {
            Err(why) => format!("{rule}: {scope}: not proven: {why}"),
            Ok(gain) => {
                let interval =
                    gain.ratio.ratio.interval.map_or(String::new(), |[low, high]| format!(" [{low:.1}–{high:.1}]"));
                let place =
                    gain.memory_bytes.map_or(String::new(), |bytes| format!(" within {}", Bytes(bytes).rounded()));
                let doubt = gain.doubt.as_ref().map_or(String::new(), |doubt| format!(" (in doubt: {doubt})"));
                let loss = if gain.is_loss() { ", so the remedy makes it worse" } else { "" };
                let on = if gain.is_made { " on a file made for it" } else { "" };
                format!(
                    "{rule}: {scope}: {} accesses replayed cold{place}{on}: {now} {:.0}/s, {then} {:.0}/s: {:.1} x{interval}{loss}{doubt}. \
                     The program waits for {:.0} % of its time, so it gains at most {:.1} x (predicted), and {:.1} x by \
                     this measurement",
                    gain.accesses,
                    gain.rates[0],
                    gain.rates[1],
                    gain.ratio.ratio.median,
                    gain.waiting * 100.0,
                    gain.predicted(),
                    gain.measured()
                )
            }
        }
    };
    proofs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Estimate;

    use crate::doctor::{rule, rules};
    use crate::watch::evidence::{Group, Watched};
    use majorfault::observe::pattern::{Pattern, Recognised};
    use majorfault::observe::places::FileId;
    use std::time::Duration;

    fn gain(median: f64, interval: [f64; 2], waiting: f64) -> Measured {
        let ratio = Estimate { median, interval: Some(interval), coverage: 0.97, samples: 6 };
        let ratio = stats::PairedRatio { ratio, detectable: Some(0.1) };
        let rates = [1000.0, 1000.0 * median];
        Measured { accesses: 100, is_made: false, memory_bytes: None, rates, ratio, doubt: None, waiting }
    }

    fn sentence(result: std::result::Result<Measured, String>) -> String {
        let proof = Proven { rule: "fault_stall", scope: "/x".to_owned(), arms: ["mmap", "uring"], result };
        sentences(&[proof]).remove(0)
    }

    fn pages(numbers: impl IntoIterator<Item = u64>) -> Vec<Access> {
        numbers.into_iter().map(|page| Access { thread: 1, offset: page * PAGE + 7 }).collect()
    }

    #[test]
    fn without_a_limit_the_latest_pass_is_replayed_and_within_one_all_of_them() {
        let passes = pages((0..3).flat_map(|_| 0..300).chain(0..10));

        assert_eq!(replayed(&passes, None), pages((10..300).chain(0..10)));
        assert_eq!(replayed(&passes, Some(1 << 30)), passes);
    }

    #[test]
    fn passes_that_are_too_short_are_replayed_together() {
        let passes = |length| pages((0..5).flat_map(move |_| 0..length));

        assert_eq!(replayed(&passes(FEWEST), None).len() as u64, FEWEST);
        assert_eq!(replayed(&passes(FEWEST - 1), None).len() as u64, 5 * (FEWEST - 1));
    }

    fn in_order(pattern: Pattern) -> MappedFile {
        let order = Recognised { pattern, confidence: 0.9, threads: 1, repeats: 0 };
        MappedFile { order: Some(order), ..MappedFile::default() }
    }

    #[test]
    fn a_gain_of_the_accesses_is_reported_as_one_of_the_program() {
        let gain = gain(4.0, [3.5, 4.5], 0.75);

        assert!((gain.predicted() - 4.0).abs() < 1e-9);
        assert!((gain.measured() - 1.0 / (0.25 + 0.1875)).abs() < 1e-9);
        assert_eq!(
            sentence(Ok(gain)),
            "fault_stall: /x: 100 accesses replayed cold: mmap 1000/s, uring 4000/s: 4.0 x [3.5–4.5]. The program waits for \
             75 % of its time, so it gains at most 4.0 x (predicted), and 2.3 x by this measurement"
        );
    }

    #[test]
    fn a_remedy_that_makes_it_worse_is_reported() {
        let loss = gain(0.5, [0.4, 0.6], 0.5);

        assert!(loss.is_loss() && (loss.measured() - 1.0 / 1.5).abs() < 1e-9);
        let said = sentence(Ok(loss));
        assert!(said.contains("mmap 1000/s, uring 500/s: 0.5 x [0.4–0.6], so the remedy makes it worse."), "{said}");
        assert!(said.ends_with("and 0.7 x by this measurement"), "{said}");
    }

    #[test]
    fn the_ratio_is_of_the_remedys_rate_over_the_rate_now() {
        use crate::report::synthetic::Run as Ran;
        let ran = |arm, accesses| Ran::of(arm).accesses(accesses).phases_ms(250, 500, 250).record();
        // In turns, with different figures each time; the medians are reported.
        let records = [("mmap", 90), ("pread", 180), ("pread", 400), ("mmap", 100), ("mmap", 300), ("pread", 200)]
            .map(|(arm, accesses)| ran(arm, accesses));
        let arms = [records[0].trial.arm.clone(), records[1].trial.arm.clone()];

        let (rates, ratio) = super::rates(&records, &arms).unwrap();

        assert_eq!(rates, [100.0, 200.0]);
        assert!((ratio.ratio.median - 2.0).abs() < 1e-9 && ratio.ratio.samples == 3, "{ratio:?}");
    }

    #[test]
    fn where_an_arm_has_no_runs_the_reason_is_reported() {
        use crate::report::synthetic::Run as Ran;
        let good = Ran::of("mmap").record();
        let failed = Ran::of("pread").failed("SIGBUS").record();
        let missing = Ran::of("pread").missing("io_uring", "not permitted", "").record();
        let why = |other: &Record| {
            let arms = [good.trial.arm.clone(), other.trial.arm.clone()];
            super::rates(&[good.clone(), other.clone()], &arms).unwrap_err()
        };

        assert_eq!((why(&failed).as_str(), why(&missing).as_str()), ("SIGBUS", "not permitted"));
        assert_eq!(super::rates(&[], &[good.trial.arm.clone(), failed.trial.arm]).unwrap_err(), "it was stopped");
    }

    #[test]
    fn runs_that_may_be_alike_are_no_loss() {
        for interval in [[0.5, 1.0], [0.9, 1.1], [1.1, 1.2]] {
            let said = sentence(Ok(gain(0.95, interval, 0.5)));
            assert!(!said.contains("worse"), "{said}");
        }
        let mut single = gain(0.5, [0.4, 0.6], 0.5);
        single.ratio.ratio.interval = None;
        assert!(!single.is_loss());
    }

    #[test]
    fn a_remedy_that_never_ends_a_wait_has_a_gain_above_zero() {
        assert!((gain(0.0, [0.0, 0.0], 0.5).measured() - 1.0 / 500.5).abs() < 1e-9);
    }

    #[test]
    fn the_sentence_names_the_limit_the_made_file_and_the_doubt() {
        let mut gain = gain(4.0, [3.5, 4.5], 0.75);
        (gain.is_made, gain.memory_bytes) = (true, Some(64 << 20));
        gain.doubt = Some("others ran".to_owned());

        let said = sentence(Ok(gain));

        assert!(said.contains("replayed cold within 64.0 MiB on a file made for it: mmap"), "{said}");
        assert!(said.contains("4.0 x [3.5–4.5] (in doubt: others ran). The"), "{said}");
    }

    #[test]
    fn what_was_not_proved_is_reported_with_its_reason() {
        assert_eq!(sentence(Err("it is gone".to_owned())), "fault_stall: /x: not proven: it is gone");
    }

    #[test]
    fn the_document_has_the_gain_or_the_reason() {
        let proof = |result| Proven { rule: "thrash", scope: "/x".to_owned(), arms: ["mmap", "uring"], result };

        let told = document(&[proof(Ok(gain(0.5, [0.4, 0.6], 0.5))), proof(Err("gone".to_owned()))]);

        let gain = &told[0]["gain"];
        assert_eq!((&gain["ratio"], &gain["waiting_share"]), (&json!(0.5), &json!(0.5)));
        assert_eq!((&gain["predicted_at_most"], &gain["measured"]), (&json!(2.0), &json!(1.0 / 1.5)));
        assert_eq!(gain["accesses_per_second"], json!([1000.0, 500.0]));
        assert_eq!((&told[0]["now"], &told[0]["remedy"]), (&json!("mmap"), &json!("uring")));
        assert_eq!((&told[1]["gain"], &told[1]["not_proved"]), (&Value::Null, &json!("gone")));
    }

    /// The words after each `option` of a command.
    fn words<'a>(command: &'a str, option: &str) -> Vec<&'a str> {
        let words: Vec<&str> = command.split(' ').collect();
        words.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1]).collect()
    }

    #[test]
    fn the_command_that_is_shown_compares_what_is_replayed() {
        let remedies = rules::ALL.iter().flat_map(|rule| rule.remedies.iter().map(move |remedy| (rule.name, remedy)));
        for (rule, remedy) in remedies {
            let rule::Proof::Replay(arms) = &remedy.proof else { continue };
            let evidence = crate::watch::scenes::healthy();
            let replay = Replay::of(arms, &evidence, evidence.files.first());
            let command = replay.command("/data/table");
            let data = of(vec!["/data/table".into()], 1 << 30, None);

            let Comparison { trial, arms, .. } =
                comparison(replay.arms, replay.memory_bytes, data, Path::new("/a.flt"), 1)
                    .unwrap_or_else(|why| panic!("{rule}: {why}"));

            let shown: Vec<Arm> = words(&command, "-m").iter().map(|arm| lineup::arm(arm, IODEPTH).unwrap()).collect();
            assert_eq!(shown, arms, "{rule}: {command}");
            let limit = words(&command, "--memory").first().map(|size| size.parse::<Bytes>().unwrap().0);
            assert_eq!(limit, trial.memory_bytes, "{rule}: {command}");
            assert_eq!((words(&command, "--cache"), trial.cache), (vec!["cold"], CacheState::Cold), "{command}");
            assert_eq!((words(&command, "--bs"), trial.block_bytes), (vec!["4k"], 4096), "{command}");
        }
    }

    const STALL: (&str, Option<&str>) = ("fault_stall", Some("uring:depth=32"));

    /// This test program, which has touched a file so often, and rules with findings and what they replay.
    fn seen(accesses: usize, deleted: bool, rules: &[(&'static str, Option<&'static str>)]) -> Vec<Proven> {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let (path, inode) = (file.path().display().to_string(), file.as_file().metadata().unwrap().ino());
        let mapped = MappedFile {
            id: FileId { device: (0, 0), inode },
            path: path.clone(),
            deleted,
            size_bytes: Some(1 << 20),
            latest: vec![Access { thread: 1, offset: 0 }; accesses],
            faults: accesses as u64,
            waited_ns: 1_000_000_000,
            ..in_order(Pattern::Random)
        };
        let evidence = Evidence {
            target: Watched { pid: std::process::id(), ..Watched::default() },
            watched: Duration::from_secs(1),
            files: vec![mapped],
            group: Some(Group::default()),
            ..Evidence::default()
        };
        let finding = |(rule, remedy): &(&'static str, Option<&'static str>)| Finding {
            rule,
            scope: path.clone(),
            file: Some(evidence.files[0].id),
            pid: std::process::id(),
            replay: remedy.map(|remedy| Replay { arms: ["mmap", remedy], memory_bytes: None, workload: String::new() }),
            ..Finding::default()
        };
        let findings: Vec<Finding> = rules.iter().map(finding).collect();
        prove(std::slice::from_ref(&evidence), &findings, &AtomicBool::new(true))
    }

    #[test]
    fn a_finding_about_no_file_that_waits_is_not_proved() {
        let replay = Some(Replay { arms: ["mmap", "uring"], memory_bytes: None, workload: String::new() });
        let finding = Finding { rule: "thrash", scope: "cgroup".to_owned(), replay, ..Finding::default() };

        let proofs = prove(&[Evidence::default()], &[finding], &AtomicBool::new(true));

        assert_eq!(sentences(&proofs), ["thrash: cgroup: not proven: no fault was seen waiting in a file"]);
    }

    #[test]
    fn fewer_than_256_accesses_prove_nothing() {
        let proofs = seen(255, false, &[STALL]);
        assert_eq!(proofs[0].result.as_ref().unwrap_err(), "only 255 accesses were seen, and 256 are needed");

        let proofs = seen(256, false, &[STALL]);
        assert_eq!(proofs[0].result.as_ref().unwrap_err(), "it was stopped");
    }

    /// Seen: a program under MADV_RANDOM at 8 684 faults/s was replayed as a plain mapping at 22 808/s.
    #[test]
    fn a_replay_far_from_what_the_program_does_is_refused_with_both_figures() {
        let alike = |per_second, threads| begins_alike(1000.0, Pilot { accesses: 256, per_second }, threads);

        assert!(alike(334.0, 1).is_ok() && alike(3000.0, 1).is_ok() && alike(12_000.0, 4).is_ok());
        assert!(alike(333.0, 1).is_err() && alike(12_004.0, 4).is_err());
        assert_eq!(
            alike(22_808.0, 1).unwrap_err(),
            "the replay is not what the program does: a thread of the program gets 1000 faults/s done while it waits, one of the \
             replay 22808/s"
        );
    }

    #[test]
    fn the_programs_rate_is_of_the_time_in_which_it_waits() {
        let file = |waited_ns| MappedFile { faults: 3000, waited_ns, ..MappedFile::default() };

        assert_eq!((observed(&file(1_500_000_000)), observed(&file(0))), (Some(2000.0), None));
    }

    #[test]
    fn a_file_without_a_name_cannot_be_replayed() {
        let proofs = seen(256, true, &[STALL]);

        assert_eq!(proofs[0].result.as_ref().unwrap_err(), "the file has no name any more, or cannot be opened");
    }

    #[test]
    fn the_same_replay_is_made_once_and_rules_without_one_are_passed_over() {
        let proofs =
            seen(1, false, &[STALL, ("map_count", None), ("read_ahead_flood", Some("mmap:advice=random")), STALL]);

        let rules: Vec<&str> = proofs.iter().map(|proof| proof.rule).collect();
        assert_eq!(rules, ["fault_stall", "read_ahead_flood"]);
    }

    #[test]
    fn the_latest_faults_become_a_trace_by_thread_in_whole_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.flt");
        let latest = [(1, 4097), (2, 0), (1, 8200), (1, 40_960), (2, 12_288)];
        let latest = latest.map(|(thread, offset)| Access { thread, offset }).to_vec();
        let file = MappedFile { path: "/x".to_owned(), latest, ..MappedFile::default() };

        let threads = write(&path, &file, &file.latest, 1 << 20).unwrap();

        let trace = majorfault::trace::Trace::read(&path).unwrap();
        assert_eq!(threads, 2);
        assert_eq!((trace.files[0].path.as_deref(), trace.files[0].length), (Some("/x"), 1 << 20));
        let extents = trace.files[0].extents();
        let offsets = |thread: usize| extents[thread].iter().map(|extent| extent.offset).collect::<Vec<_>>();
        assert_eq!((offsets(0), offsets(1)), (vec![4096, 8192, 40_960], vec![0, 12_288]));
        assert!(extents.concat().iter().all(|extent| extent.length == 4096));
    }

    #[test]
    fn a_file_that_was_written_back_leaves_the_cache() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();

        assert!(is_droppable(file.path(), 1 << 20, &[Access { thread: 1, offset: 8191 }]).unwrap());
        assert!(is_droppable(Path::new("/no such file"), 1, &[]).unwrap_err().to_string().contains("/no such file"));
    }

    /// Seen: a scan under MADV_RANDOM was replayed at 59 594 accesses each second instead of 2 548: the program had just those pages mapped.
    #[test]
    fn a_file_whose_touched_pages_stay_mapped_is_not_replayed_itself() {
        use majorfault::files::{Layout, Target};
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        std::fs::write(file.path(), vec![1; 16 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let target = Target::open(&[file.path().to_owned()], &Layout::default()).unwrap();
        let mmap = majorfault::methods::named("mmap").unwrap();
        let given = majorfault::Given::none().with("advice", "random");
        let mut mapped = (mmap.open)(std::sync::Arc::new(target), &given).unwrap();
        let at = |offset| Access { thread: 1, offset };
        assert!(is_droppable(file.path(), 16 << 20, &[at(0), at(8 << 20)]).unwrap());

        mapped.visit(&[Extent { offset: 8 << 20, length: 4096 }], |_, bytes| assert_eq!(bytes[0], 1)).unwrap();

        assert!(!is_droppable(file.path(), 16 << 20, &[at(0), at(8 << 20)]).unwrap());
        assert!(is_droppable(file.path(), 16 << 20, &[at(0)]).unwrap());
    }
}
