//! fio (<https://fio.readthedocs.io>), the flexible I/O tester: the same files, law of offsets, block, depth and time.
//!
//! Its traps are closed here: `invalidate=0`, because the page cache is prepared and proven by the worker;
//! `norandommap`, because uniform draws repeat blocks; no mmap engine with `direct=1`, which would be buffered without
//! a word; no unit that a version of fio could read in another way, only plain bytes.

mod stage;

use super::{Manner, Peer};
use crate::record::{Answer, Buckets, Latency, Phase, Record, ThreadRun};
use crate::trial::{Arm, Choice, Direction, Trial};
use crate::workload::{self, FioOrder, Workload};
use majorfault::params::{Params, Switch, Value};
use majorfault::sys::ring::IO_URING;
use majorfault::{Error, Missing, Need, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};

pub(super) const PEER: Peer = Peer {
    name: "fio",
    summary: "the flexible I/O tester, on the same files with the same law of offsets, block, depth and time",
    needs: &[&FIO],
    params: FioParams::declared,
    of_job: Some(("engine", "job")),
    manner,
    command,
    read_back,
};

/// The installed fio.
pub const FIO: Need = Need { name: "fio", summary: "a peer in the table", probe: installed };

majorfault::choices! {
    /// How fio reaches the file; its `ioengine`.
    enum Engine {
        /// io_uring, or libaio where the kernel refuses it.
        Auto = "auto",
        /// io_uring.
        IoUring = "io_uring",
        /// Linux native asynchronous I/O.
        Libaio = "libaio",
        /// pread.
        Psync = "psync",
        /// A mapping.
        Mmap = "mmap",
        /// As each job of a job file says, with its own `direct`.
        Job = "job",
    }
}

majorfault::choices! {
    /// What fio's buffers are made of; its `mem`.
    enum Buffers {
        /// The system's huge pages where enough are free, else transparent ones.
        Auto = "auto",
        /// Small pages, as fio does without being told.
        Malloc = "malloc",
        /// Transparent huge pages, by a setting of glibc (2.35) for fio alone.
        Transparent = "transparent",
        /// Huge pages that the system has set aside (`vm.nr_hugepages`).
        Shmhuge = "shmhuge",
    }
}

majorfault::choices! {
    /// What fio tells the kernel of its order where it does not go past the page cache; its `fadvise_hint`.
    enum Advised {
        /// Nothing, as our mmap and pread without a hint; for a job, what the job file says.
        Auto = "auto",
        /// Nothing.
        None = "none",
        /// Random or sequential by the job's order, as fio does without being told.
        Own = "own",
        /// Random.
        Random = "random",
        /// Sequential.
        Sequential = "sequential",
    }
}

majorfault::params! {
    /// How fio is called.
    struct FioParams {
        /// Its `ioengine`. The usual one is its fastest that works here: io_uring, else libaio.
        engine: Engine = Engine::Auto,
        /// O_DIRECT; on, because that is where queues pay.
        direct: Switch = Switch::On,
        /// Register files and buffers (`registerfiles`, `fixedbufs`); on, because it is faster, though not fio's own default.
        register: Switch = Switch::On,
        /// What its buffers are made of (`mem`). Not fio's own default: disks take transfers into small pages in pieces.
        buffers: Buffers = Buffers::Auto,
        /// What it tells the kernel of its order (`fadvise_hint`). Nothing, so that it stands beside our methods without a hint.
        hint: Advised = Advised::Auto,
        /// A thread of the kernel that sends what fio queues (`sqthread_poll`); off, because it takes a processor for itself.
        sqthread_poll: Switch = Switch::Off,
    }
}

/// What a sector may be: O_DIRECT transfers of fio are blocks as given, so they must be whole sectors.
const SECTOR: u64 = 512;

/// The usual huge page.
const HUGE_PAGE: u64 = 2 << 20;

/// fio, with memory from glibc that wants huge pages; env(1) becomes fio.
const TRANSPARENT: &[&str] = &["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "fio"];

fn installed() -> majorfault::needs::Probe {
    let absent = |reason: String| Missing::new("fio", reason, "install it: apt-get install fio, or dnf install fio");
    match Command::new("fio").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(output) => Err(absent(format!("fio --version ended with {}", output.status))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(absent("it is not installed".to_owned())),
        Err(error) => Err(absent(format!("it cannot be started: {error}"))),
    }
}

fn cannot(reason: &str, remedy: &str) -> Error {
    Missing::new("this workload in fio", reason, remedy).into()
}

/// The engine in force.
fn engine(params: &FioParams) -> &'static str {
    match (params.engine, IO_URING.met()) {
        (Engine::Auto | Engine::Job, Ok(())) | (Engine::IoUring, _) => "io_uring",
        (Engine::Auto | Engine::Job, Err(_)) | (Engine::Libaio, _) => "libaio",
        (Engine::Psync, _) => "psync",
        (Engine::Mmap, _) => "mmap",
    }
}

fn manner(trial: &Trial, choice: &Choice) -> Result<Manner> {
    let params = FioParams::from_given(&choice.given())?;
    if params.engine == Engine::Job && !trial.jobs.is_empty() {
        let direct = trial.jobs.iter().any(stage::is_direct);
        return Ok(Manner { direct, depth: Some(trial.iodepth) });
    }
    let has_queue = !matches!(params.engine, Engine::Psync | Engine::Mmap);
    Ok(Manner { direct: params.direct.is_on(), depth: has_queue.then_some(trial.iodepth) })
}

fn command(trial: &Trial, choice: &Choice) -> Result<Vec<String>> {
    let params = FioParams::from_given(&choice.given())?;
    FIO.met()?;
    if let Some(path) = trial.data.files.iter().find(|path| !can_be_said(path)) {
        return Err(cannot(
            &format!("its command line cannot say the name of the file {}", path.display()),
            "give it a link with a plain name, or leave it out with --no-peer",
        ));
    }
    if !trial.jobs.is_empty() {
        return stage::command(trial, &params);
    }
    let engine = engine(&params);
    let direct = params.direct == Switch::On;
    if direct && engine == "mmap" {
        return Err(cannot("its mmap engine has no direct mode", "use fio:engine=mmap,direct=off"));
    }
    if direct && !trial.block_bytes.is_multiple_of(SECTOR) {
        return Err(cannot("direct=1 transfers whole sectors only", "use fio:direct=off, or a larger --bs"));
    }
    let files: Vec<String> = trial.data.files.iter().map(|path| path.to_string_lossy().replace(':', "\\:")).collect();
    let mut options: BTreeMap<&str, String> = [
        ("name", "majorfault".to_owned()),
        ("filename", files.join(":")),
        ("bs", trial.block_bytes.to_string()),
        ("iodepth", trial.iodepth.to_string()),
        ("ioengine", engine.to_owned()),
        ("direct", u8::from(direct).to_string()),
        ("numjobs", trial.threads.to_string()),
        ("randseed", trial.seed.to_string()),
        ("invalidate", "0".to_owned()),
        ("output-format", "json+".to_owned()),
        ("lat_percentiles", "1".to_owned()),
        ("clat_percentiles", "0".to_owned()),
        ("slat_percentiles", "0".to_owned()),
        ("eta", "never".to_owned()),
    ]
    .into();
    let mut flags = vec!["--thread", "--group_reporting"];
    flags.push(match trial.direction {
        Direction::Read => "--readonly",
        // Durable inside the clock, as our own writes.
        Direction::Write => "--end_fsync=1",
    });
    let has_ring = engine == "io_uring";
    if params.register == Switch::On && has_ring {
        flags.extend(["--registerfiles", "--fixedbufs"]);
    }
    if params.sqthread_poll == Switch::On && has_ring {
        flags.push("--sqthread_poll");
    }
    if !direct {
        options.insert("fadvise_hint", hint_word(params.hint).unwrap_or("0").to_owned());
    }
    let buffers = buffers(&params, trial);
    if buffers == Buffers::Shmhuge {
        options.insert("mem", "shmhuge".to_owned());
    }
    if buffers == Buffers::Transparent {
        // Else a single buffer would lie across two huge pages, and be made of small ones.
        options.insert("iomem_align", HUGE_PAGE.to_string());
    }
    law(trial, &mut options, &mut flags)?;
    ends(trial, &mut options, &mut flags);
    let options = options.iter().map(|(key, value)| format!("--{key}={value}"));
    // A job begins at --name; what stands before it would be for all jobs, what follows belongs to it.
    let (name, options): (Vec<_>, Vec<_>) = options.partition(|option| option.starts_with("--name="));
    let flags = flags.into_iter().map(str::to_owned);
    let program = if buffers == Buffers::Transparent { TRANSPARENT } else { &TRANSPARENT[2..] };
    let program = program.iter().map(|word| (*word).to_owned());
    Ok(program.chain(name).chain(options).chain(flags).collect())
}

/// Whether fio's options can name the file: they are text, fio takes blanks off both ends of a value, and prints control characters
/// into its JSON as they are.
fn can_be_said(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text == text.trim() && !text.chars().any(char::is_control))
}

/// The value of `fadvise_hint`; none where nothing was chosen.
fn hint_word(hint: Advised) -> Option<&'static str> {
    match hint {
        Advised::Auto => None,
        Advised::None => Some("0"),
        Advised::Own => Some("1"),
        Advised::Random => Some("random"),
        Advised::Sequential => Some("sequential"),
    }
}

/// What its buffers are made of here.
fn buffers(params: &FioParams, trial: &Trial) -> Buffers {
    match params.buffers {
        Buffers::Auto if has_room(trial, free_huge_bytes()) => Buffers::Shmhuge,
        Buffers::Auto => Buffers::Transparent,
        told => told,
    }
}

/// Whether `free` bytes of huge pages hold the buffers of every thread, each thread's rounded to whole pages.
fn has_room(trial: &Trial, free: u64) -> bool {
    let each = trial.block_bytes.saturating_mul(u64::from(trial.iodepth)).max(1).next_multiple_of(HUGE_PAGE);
    free >= each.saturating_mul(u64::from(trial.threads))
}

/// Huge pages of the usual size that nobody uses.
fn free_huge_bytes() -> u64 {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    free.trim().parse::<u64>().unwrap_or(0).saturating_mul(HUGE_PAGE)
}

/// The trial's order in fio's words.
fn order(trial: &Trial) -> Result<FioOrder> {
    let workload = workload::named(&trial.workload.name)?;
    let Some(order) = workload.fio else {
        let has_words = |workload: &&&Workload| workload.fio.is_some();
        let names: Vec<&str> = workload::ALL.iter().filter(has_words).map(|workload| workload.name).collect();
        let reason = format!("fio has no option for the order of {}", workload.name);
        return Err(cannot(&reason, &format!("the peer takes part in {}", names.join(", "))));
    };
    order(&trial.workload.given())
}

/// Which offsets follow each other.
fn law(trial: &Trial, options: &mut BTreeMap<&str, String>, flags: &mut Vec<&str>) -> Result<()> {
    let (space, block, threads) = (trial.data.size_bytes, trial.block_bytes, u64::from(trial.threads));
    let files = trial.data.files.len() as u64;
    let word = if trial.direction == Direction::Write { "write" } else { "read" };
    let mut share = space;
    match order(trial)? {
        FioOrder::Random(distribution) => {
            options.insert("rw", format!("rand{word}"));
            options.insert("file_service_type", "random".to_owned());
            flags.push("--norandommap");
            options.insert("random_distribution", distribution);
        }
        FioOrder::Once => {
            // fio's own map of blocks sees to it that each comes once; each thread has one of its own part.
            options.insert("rw", format!("rand{word}"));
            options.insert("file_service_type", "random".to_owned());
            share = space / block / threads * block;
        }
        FioOrder::Steps(None) => {
            options.insert("rw", word.to_owned());
            share = space / block / threads * block;
        }
        FioOrder::Steps(Some(stride)) => {
            options.insert("rw", format!("{word}:{}", stride.saturating_sub(block)));
            share = space / stride / threads * stride;
        }
    }
    if files > 1 && share != space {
        return Err(cannot("its jobs cannot share striped files in turns", "use --numjobs 1"));
    }
    if files > 1 && !options.contains_key("file_service_type") {
        options.insert("file_service_type", format!("roundrobin:{}", (trial.data.stripe_bytes / block).max(1)));
    }
    options.insert("offset", trial.data.offset_bytes.to_string());
    options.insert("size", share.to_string());
    if share != space {
        options.insert("offset_increment", share.to_string());
    }
    Ok(())
}

/// When it ends.
fn ends(trial: &Trial, options: &mut BTreeMap<&str, String>, flags: &mut Vec<&str>) {
    let (blocks, threads) = (trial.data.size_bytes / trial.block_bytes, u64::from(trial.threads));
    let is_random = matches!(order(trial), Ok(FioOrder::Random(_) | FioOrder::Once));
    let one_pass = (is_random && !trial.limits.time_based).then_some(blocks);
    let accesses = [trial.limits.accesses, one_pass].into_iter().flatten().min();
    // fio counts them for each job.
    options.extend(accesses.map(|all| ("number_ios", all.div_ceil(threads).to_string())));
    options.extend(trial.limits.runtime_ns.map(|ns| ("runtime", format!("{}us", ns / 1000))));
    if trial.limits.time_based && trial.limits.runtime_ns.is_some() {
        flags.push("--time_based");
    }
}

/// fio's JSON, as much of it as a record keeps.
#[derive(Deserialize)]
struct Printed {
    jobs: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    error: i32,
    read: Side,
    write: Side,
    #[serde(default)]
    sync: Synced,
}

#[derive(Default, Deserialize)]
struct Synced {
    #[serde(default)]
    total_ios: u64,
    #[serde(default)]
    lat_ns: Histogram,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
    #[serde(default)]
    lat_ns: Histogram,
}

#[derive(Default, Deserialize)]
struct Histogram {
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

impl Histogram {
    /// fio 3.33 leaves the number of syncs at 0 and has them here.
    fn count(&self) -> u64 {
        self.bins.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn latency(&self) -> Latency {
        let parsed = self.bins.iter().filter_map(|(edge, count)| Some((edge.parse().ok()?, *count)));
        let mut bins: Vec<(u64, u64)> = parsed.collect();
        bins.sort_unstable();
        Latency { timed_one_in: u64::from(!bins.is_empty()), buckets: Buckets(bins) }
    }
}

fn read_back(text: &str, ended: ExitStatus, record: &mut Record) -> Result<()> {
    // Complaints stand before the document.
    let (complaints, document) = text.split_at(text.find("{\n").unwrap_or(text.len()));
    let complaints = complaints.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed: Printed = serde_json::from_str(document).map_err(|why| {
        let said = if complaints.is_empty() { why.to_string() } else { complaints.clone() };
        Error::Invalid(format!("fio ended with {ended} and gave no result: {said}"))
    })?;
    let first = printed.jobs.first().ok_or_else(|| Error::Invalid("fio ran no job".to_owned()))?;
    let job = printed.jobs.iter().find(|job| job.error != 0).unwrap_or(first);
    if job.error != 0 || !ended.success() {
        let error = std::io::Error::from_raw_os_error(job.error);
        return Err(Error::Invalid(format!("fio failed: {error} {complaints}")));
    }
    if !complaints.is_empty() {
        record.notes.push(format!("fio says: {complaints}"));
    }
    if !record.trial.jobs.is_empty() {
        stage::read_back(&printed.jobs, record);
        return Ok(());
    }
    let side = if record.trial.direction == Direction::Write { &job.write } else { &job.read };
    let wall_ns = side.runtime.saturating_mul(1_000_000);
    record.threads = vec![ThreadRun { accesses: side.total_ios, bytes: side.io_bytes, wall_ns }];
    // Its start and its calibration of the clock are before its own clock; the counters have them.
    record.phases = vec![Phase {
        name: "visit".to_owned(),
        began_ns: record.timeline.began_ns,
        wall_ns,
        counters: BTreeMap::new(),
    }];
    record.latency = side.lat_ns.latency();
    record.answer = Answer::Unchecked("fio does not hand its bytes over".to_owned());
    if let Arm::Peer(choice) = &record.trial.arm {
        let params = FioParams::from_given(&choice.given())?;
        let made_of = buffers(&params, &record.trial).text();
        if !params.direct.is_on() && params.hint == Advised::Auto {
            record.notes.push(
                "fio gave the kernel no hint (fadvise_hint=0), as our methods without one; hint=own has its usual ones"
                    .to_owned(),
            );
        }
        record.settings = params.given().with("engine", engine(&params)).with("buffers", made_of).0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;
    use proptest::prelude::*;
    use std::os::unix::process::ExitStatusExt;

    fn words(record: &Record, given: &[(&str, &str)]) -> Result<Vec<String>> {
        let choice = given.iter().fold(Choice::plain("fio"), |choice, (key, value)| choice.with(key, value));
        command(&record.trial, &choice)
    }

    fn installed_or_told(test: &str) -> bool {
        let met = FIO.met();
        if let Err(missing) = &met {
            eprintln!("SKIPPED {test}: {missing}");
        }
        met.is_ok()
    }

    #[test]
    fn uniform_draws_repeat_blocks_and_touch_no_cache() {
        if !installed_or_told("uniform_draws_repeat_blocks_and_touch_no_cache") {
            return;
        }
        let command = words(&Run::peer("fio").record(), &[]).unwrap();

        for word in ["--rw=randread", "--norandommap", "--invalidate=0", "--readonly", "--direct=1", "--thread"] {
            assert!(command.iter().any(|own| own == word), "{word} is not in {command:?}");
        }
    }

    #[test]
    fn a_permutation_is_fios_own_map_of_blocks_shared_by_its_threads() {
        if !installed_or_told("a_permutation_is_fios_own_map_of_blocks_shared_by_its_threads") {
            return;
        }
        let record = Run::peer("fio").workload("permutation").edit(|record| record.trial.threads = 4).record();
        let command = words(&record, &[]).unwrap();

        assert!(command.iter().any(|word| word == "--rw=randread"), "{command:?}");
        assert!(!command.iter().any(|word| word == "--norandommap"), "{command:?}");
        assert!(command.contains(&format!("--offset_increment={}", 1 << 28)), "{command:?}");
    }

    #[test]
    fn a_name_that_its_command_line_cannot_say_is_missing_rather_than_another_file_measured() {
        use std::os::unix::ffi::OsStrExt;
        if !installed_or_told("a_name_that_its_command_line_cannot_say_is_missing_rather_than_another_file_measured") {
            return;
        }
        for name in [&b"/data/caf\xe9"[..], b"/data/blank ", b"/data/line\nbreak"] {
            let record = Run::peer("fio").edit(|record| {
                record.trial.data.files = vec![std::ffi::OsStr::from_bytes(name).into()];
            });

            let told = words(&record.record(), &[]).unwrap_err();

            assert!(told.to_string().contains("cannot say the name of the file /data/"), "{told}");
        }
    }

    #[test]
    fn it_gets_its_best_options_without_being_asked() {
        if !installed_or_told("it_gets_its_best_options_without_being_asked") {
            return;
        }
        let record = Run::peer("fio").record();
        let transparent = words(&record, &[("engine", "io_uring"), ("buffers", "transparent")]).unwrap();
        let plain = words(&record, &[("buffers", "malloc"), ("register", "off")]).unwrap();
        let reserved =
            words(&record, &[("buffers", "shmhuge"), ("engine", "io_uring"), ("sqthread_poll", "on")]).unwrap();

        assert_eq!(transparent[..3], ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "fio"]);
        for word in ["--iomem_align=2097152", "--registerfiles", "--fixedbufs"] {
            assert!(transparent.iter().any(|own| own == word), "{word} is not in {transparent:?}");
        }
        assert_eq!(plain[0], "fio");
        let added = ["mem", "iomem", "register", "fixed", "sqthread"];
        assert!(plain.iter().all(|word| added.iter().all(|part| !word.contains(part))), "{plain:?}");
        assert_eq!(reserved[0], "fio");
        assert!(["--mem=shmhuge", "--sqthread_poll"].iter().all(|word| reserved.iter().any(|own| own == word)));
    }

    #[test]
    fn huge_pages_are_taken_where_they_hold_every_threads_buffers() {
        let record = Run::peer("fio").edit(|record| {
            record.trial.threads = 3;
            record.trial.iodepth = 5;
            record.trial.block_bytes = 1 << 20;
        });
        let trial = record.record().trial;

        // 5 MiB are three pages for each of three threads.
        assert!(has_room(&trial, 18 << 20) && !has_room(&trial, (18 << 20) - 1));
    }

    #[test]
    fn a_scan_of_several_threads_is_shared() {
        if !installed_or_told("a_scan_of_several_threads_is_shared") {
            return;
        }
        let record = Run::peer("fio")
            .workload("sequential")
            .edit(|record| {
                record.trial.threads = 4;
                record.trial.data.size_bytes = 1 << 30;
            })
            .record();
        let command = words(&record, &[]).unwrap();

        assert!(command.contains(&format!("--size={}", 1 << 28)), "{command:?}");
        assert!(command.contains(&format!("--offset_increment={}", 1 << 28)), "{command:?}");
    }

    #[test]
    fn what_it_cannot_do_is_missing_rather_than_something_else_measured() {
        if !installed_or_told("what_it_cannot_do_is_missing_rather_than_something_else_measured") {
            return;
        }
        let chase = words(&Run::peer("fio").workload("chase").record(), &[]);
        let mapped = words(&Run::peer("fio").record(), &[("engine", "mmap")]);

        assert!(matches!(chase, Err(Error::Missing(_))), "{chase:?}");
        assert!(matches!(mapped, Err(Error::Missing(_))), "{mapped:?}");
    }

    #[test]
    fn its_document_becomes_figures() {
        let mut record = Run::peer("fio").record();
        let side = r#"{"io_bytes": 8192, "total_ios": 2, "runtime": 10, "lat_ns": {"bins": {"900": 1, "1000": 1}}}"#;
        let text = format!("note: something\n{{\n\"jobs\": [{{\"error\": 0, \"read\": {side}, \"write\": {side}}}]}}");
        read_back(&text, ExitStatus::from_raw(0), &mut record).unwrap();

        assert_eq!(record.threads, [ThreadRun { accesses: 2, bytes: 8192, wall_ns: 10_000_000 }]);
        assert_eq!(record.latency.buckets.0, [(900, 1), (1000, 1)]);
        assert!(record.notes.iter().any(|note| note.contains("something")));
    }

    #[test]
    fn its_complaint_is_passed_on() {
        let mut record = Run::peer("fio").record();

        let error = read_back("fio: engine foo not loadable", ExitStatus::from_raw(256), &mut record).unwrap_err();

        assert!(error.to_string().contains("engine foo not loadable"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_result_or_an_error(text in "\\PC*|warning: x\n\\{\n[\"a-z0-9:,\\[\\]{} ]{0,80}") {
            let _ = read_back(&text, ExitStatus::from_raw(0), &mut Run::peer("fio").record());
        }

        #[test]
        fn what_fio_prints_reads_back(bytes: u64, accesses: u64, runtime: u64, edge: u64, count: u64, error in prop_oneof![Just(0), any::<i32>()]) {
            let side = format!("{{\"io_bytes\": {bytes}, \"total_ios\": {accesses}, \"runtime\": {runtime}, \
                                 \"lat_ns\": {{\"bins\": {{\"{edge}\": {count}}}}}}}");
            let text = format!("{{\n\"jobs\": [{{\"jobname\": \"a\", \"error\": {error}, \"read\": {side}, \"write\": {side}}}]}}\n");
            let mut record = Run::peer("fio").record();

            let found = read_back(&text, ExitStatus::from_raw(0), &mut record);

            prop_assert_eq!(found.is_ok(), error == 0, "{:?}", found);
            if error == 0 {
                prop_assert_eq!((record.accesses(), record.bytes()), (accesses, bytes));
                prop_assert_eq!(record.latency.buckets, Buckets(vec![(edge, count)]));
            }
        }
    }
}
