//! The findings for programs: base units, stable names, and the schema of it all.
//!
//! What is printed and the schema (`docs/doctor.schema.json`) are made from the same types. A new field is a new minor meaning of the
//! format; a field that changes its meaning or goes away is a new format.

use crate::doctor::fact::{Fact, Measure, MeasureValue};
use crate::doctor::rule::{Backing, Subject};
use crate::doctor::{Consequence, Finding};
use crate::watch::evidence::{AdviceSeen, Evidence, FaultCounts, MappedFile, Process, ReadFile, WillNeed};
use majorfault::observe::pattern::{Pattern, Recognised};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The name of the format.
const FORMAT: &str = "majorfault-doctor-2";

/// One document of everything.
pub fn document(evidence: &Evidence, findings: &[Finding]) -> Value {
    serde_json::to_value(DoctorJson::of(evidence, findings)).unwrap_or_default()
}

/// The schema of the document.
pub fn schema() -> Value {
    schemars::schema_for!(DoctorJson).into()
}

/// Everything that was seen of the processes, and what was found. Bytes, nanoseconds and counts; what could not be seen is null, with its
/// reason in `missing`.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DoctorJson {
    /// The format: `majorfault-doctor-2`.
    format: String,
    /// The process that the rest is about.
    target: TargetJson,
    /// How long it was watched.
    watched_ns: u64,
    /// Every rule, as `majorfault list rules --json` has it.
    rules: Value,
    /// The findings: what fails first, then what gains most.
    findings: Vec<FindingJson>,
    /// Memory and threads of the process.
    process: ProcessJson,
    /// Its read calls and the bytes that devices read for it.
    calls: Option<CallsJson>,
    /// Its page faults.
    faults: Option<FaultsJson>,
    /// Its advice, call by call.
    advice_calls: Option<AdviceJson>,
    /// The files that it maps, with their faults.
    files: Vec<FileJson>,
    /// The files that calls read through the page cache, most calls first; empty as well where that is not seen.
    read_files: Vec<ReadFileJson>,
    /// Counters by name: their growth during the watch, or their level at its end.
    counters: BTreeMap<String, u64>,
    /// The memory cgroup that limits it.
    cgroup: Option<CgroupJson>,
    /// The machine.
    machine: MachineJson,
    /// What could not be seen, and why.
    missing: Vec<MissingJson>,
    /// The results of replays, with `--prove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    proofs: Option<Value>,
    /// The same of further processes that were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<DoctorJson>>,
    /// Whether all processes ended during the watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
}

/// A process.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TargetJson {
    pid: u32,
    name: String,
    command: String,
    /// Whether it ended during the watch.
    ended: bool,
}

/// One cause, with the files and processes below it.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindingJson {
    /// The rule's name.
    rule: String,
    /// `note`, `warning` or `critical`.
    severity: String,
    /// A path, `12 files`, `process`, `cgroup` or `machine`.
    scope: String,
    /// The process of the worst file.
    pid: u32,
    /// The trouble as a sentence.
    what: String,
    /// Its figures.
    evidence: Vec<FactJson>,
    /// The files and processes that it is about, worst first.
    subjects: Vec<SubjectJson>,
    /// What it explains: these go away with it.
    consequences: Vec<ConsequenceJson>,
    /// What helps.
    remedy: String,
    /// What the remedy rests on.
    backing: BackingJson,
    /// The command that shows the trouble, or that the remedy works.
    proof: String,
    /// What `--prove` compares; null where accesses cannot prove it.
    replay: Option<ReplayJson>,
    /// How many times as fast the program can become; null where that is not known.
    gain_at_most: Option<f64>,
    /// Whether something fails or is about to; otherwise it is about speed or memory.
    is_failure: bool,
}

/// What a remedy rests on.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackingJson {
    /// `decided` (the evidence shows that its condition holds), `try` (the command tells) or `measured` (by a replay).
    kind: String,
    /// How many times as fast the replayed accesses were with it, where it was measured; below 1 it is slower.
    times: Option<f64>,
}

/// A line of evidence.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FactJson {
    /// For people.
    says: String,
    /// `seen` or `guessed` (inferred from what was seen).
    source: String,
    /// Its figures.
    measures: Vec<MeasureJson>,
}

/// A named figure.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MeasureJson {
    name: String,
    /// A number in the unit, or a word.
    value: MeasureValueJson,
    /// `count`, `bytes`, `nanoseconds`, `share`, `times`, `per_second`, `bytes_per_second` or `word`.
    unit: String,
}

/// A number or a word.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum MeasureValueJson {
    Number(f64),
    Word(String),
}

/// A file or process that a finding is about.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubjectJson {
    name: String,
    /// What was seen of it.
    says: String,
}

/// What a finding explains.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConsequenceJson {
    /// The rule that found it.
    rule: String,
    /// It, as a sentence.
    what: String,
}

/// The two ways that a replay compares, as `majorfault compare -m` has them.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplayJson {
    now: String,
    remedy: String,
}

/// /proc/PID/status.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProcessJson {
    threads: u64,
    resident_bytes: u64,
    anonymous_bytes: u64,
    page_table_bytes: u64,
    mappings: u64,
    /// By prctl(PR_SET_THP_DISABLE).
    huge_pages_off: bool,
}

/// The growth of /proc/PID/io.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallsJson {
    read_call_bytes: u64,
    read_calls: u64,
    device_bytes: u64,
}

/// Page faults.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FaultsJson {
    seen: u64,
    major: u64,
    waits: u64,
    waited_ns: u64,
    in_files: u64,
    anonymous: u64,
    unresolved: u64,
    lost: u64,
    forks: u64,
    mapped: u64,
    mapped_files: u64,
    threads: usize,
    unfollowed_threads: usize,
    /// Share of the time in which faults were sampled; below one the counts of minor faults are estimates.
    sampled_share: Option<f64>,
    /// Half the width of the 95 % interval of a part of `seen`, as a share of it.
    seen_error_share: Option<f64>,
    /// Half the width of the 95 % interval of `waited_ns`, as a share of it: waits for pages that are being read already are minor
    /// faults, and of a program that faults very often few of those are seen.
    waited_error_share: Option<f64>,
    /// What each thread that waited in files waited.
    waiting_ns: Vec<u64>,
}

/// Advice calls.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AdviceJson {
    /// Calls by the constant's name.
    calls: BTreeMap<String, u64>,
    will_need: Vec<WillNeedJson>,
    unresolved: u64,
    lost: u64,
    unfollowed_threads: usize,
}

/// A file that was announced as needed soon.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WillNeedJson {
    path: String,
    advice: String,
    calls: u64,
    longest_bytes: u64,
    median_bytes: u64,
    /// The most that the kernel reads in one call.
    cap_bytes: Option<u64>,
    calls_beyond_cap: u64,
    read_ahead_kb: Option<u64>,
    max_sectors_kb: Option<u64>,
    size_bytes: Option<u64>,
    cached_bytes: Option<u64>,
}

/// A mapped file.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileJson {
    path: String,
    /// Whether it has no name any more.
    deleted: bool,
    /// The path by which we reach it, where its own is not valid for us (another mount namespace).
    reached: Option<String>,
    size_bytes: Option<u64>,
    cached_bytes: Option<u64>,
    /// Bytes that came into the cache, where faults cannot be seen.
    came_bytes: Option<u64>,
    mapped_bytes: u64,
    mappings: usize,
    filesystem: String,
    read_ahead_kb: Option<u64>,
    faults: u64,
    major_faults: u64,
    waits: u64,
    waited_ns: u64,
    touched_pages: u64,
    order: Option<OrderJson>,
    /// The advice in force, where smaps was read: `normal`, `random` or `sequential`.
    advice: Option<String>,
    /// The latest advice that was seen given.
    advice_seen: Option<String>,
    populate_calls: u64,
}

/// A file that calls read.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFileJson {
    /// Its path; null where it was closed before anybody could look.
    path: Option<String>,
    /// Device, as major and minor number.
    device: (u32, u32),
    inode: u64,
    size_bytes: Option<u64>,
    cached_bytes: Option<u64>,
    calls: u64,
    /// Bytes that they asked for, in whole pages.
    asked_bytes: u64,
    /// Different pages that calls began at.
    begun_pages: u64,
    order: Option<OrderJson>,
}

/// The order of a file's faults, or of the calls that read it.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrderJson {
    pattern: PatternJson,
    /// Share of the steps that agree.
    confidence: f64,
    threads: usize,
    /// How often the order began again.
    repeats: usize,
}

/// A pattern: `sequential`, `backward`, `strided`, `interleaved`, `random`, `hot set` or `unknown`.
#[derive(Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PatternJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stride_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_bytes: Option<u64>,
}

/// A memory cgroup.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CgroupJson {
    path: String,
    limit_bytes: Option<u64>,
}

/// The machine.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MachineJson {
    /// Major and minor version.
    kernel: [u32; 2],
    memory_bytes: u64,
    available_bytes: u64,
    /// transparent_hugepage/enabled.
    huge_pages: String,
    max_map_count: u64,
}

/// What could not be seen.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MissingJson {
    what: String,
    reason: String,
    remedy: String,
}

impl DoctorJson {
    fn of(evidence: &Evidence, findings: &[Finding]) -> DoctorJson {
        let Evidence { target, watched, process, calls, faults, machine, .. } = evidence;
        let (pid, name, command) = (target.pid, target.name.clone(), target.command.clone());
        let missing = evidence.missing.iter().map(|it| MissingJson {
            what: it.what.clone(),
            reason: it.reason.clone(),
            remedy: it.remedy.clone(),
        });
        let group = evidence.group.as_ref();
        DoctorJson {
            format: FORMAT.to_owned(),
            target: TargetJson { pid, name, command, ended: evidence.ended },
            watched_ns: watched.as_nanos() as u64,
            rules: super::describe::document(),
            findings: findings.iter().map(FindingJson::of).collect(),
            process: ProcessJson::of(process),
            calls: calls.map(|it| CallsJson {
                read_call_bytes: it.read_call_bytes,
                read_calls: it.read_calls,
                device_bytes: it.device_bytes,
            }),
            faults: faults.as_ref().map(FaultsJson::of),
            advice_calls: evidence.advice.as_ref().map(AdviceJson::of),
            files: evidence.files.iter().map(FileJson::of).collect(),
            read_files: evidence.reads.iter().map(ReadFileJson::of).collect(),
            counters: evidence.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            cgroup: group.map(|it| CgroupJson { path: it.path.clone(), limit_bytes: it.limit_bytes }),
            machine: MachineJson {
                kernel: machine.kernel.into(),
                memory_bytes: machine.memory_bytes,
                available_bytes: machine.available_bytes,
                huge_pages: machine.huge_pages.clone(),
                max_map_count: machine.most_mappings,
            },
            missing: missing.collect(),
            proofs: None,
            processes: None,
            ended: None,
        }
    }
}

impl FindingJson {
    fn of(finding: &Finding) -> FindingJson {
        let told = |it: &Consequence| ConsequenceJson { rule: it.rule.to_owned(), what: it.what.clone() };
        let subject = |it: &Subject| SubjectJson { name: it.name.clone(), says: it.says.clone() };
        let times = match finding.backing {
            Backing::Measured(times) => Some(times),
            Backing::Decided | Backing::Try => None,
        };
        let replay = finding.replay.as_ref().map(|it| ReplayJson { now: it.arms[0].into(), remedy: it.arms[1].into() });
        FindingJson {
            rule: finding.rule.to_owned(),
            severity: finding.severity.word().to_owned(),
            scope: finding.scope.clone(),
            pid: finding.pid,
            what: finding.what.clone(),
            evidence: finding.evidence.iter().map(FactJson::of).collect(),
            subjects: finding.subjects.iter().filter(|it| !it.name.is_empty()).map(subject).collect(),
            consequences: finding.consequences.iter().map(told).collect(),
            remedy: finding.remedy.clone(),
            backing: BackingJson { kind: finding.backing.word().to_owned(), times },
            proof: finding.proof.clone(),
            replay,
            gain_at_most: finding.gain_at_most,
            is_failure: finding.is_failure,
        }
    }
}

impl FactJson {
    fn of(fact: &Fact) -> FactJson {
        let measure = |it: &Measure| MeasureJson {
            name: it.name.to_owned(),
            value: match &it.value {
                MeasureValue::Number(number) => MeasureValueJson::Number(*number),
                MeasureValue::Word(word) => MeasureValueJson::Word(word.clone()),
            },
            unit: it.unit.word().to_owned(),
        };
        let measures = fact.measures.iter().map(measure).collect();
        FactJson { says: fact.to_string(), source: fact.source.word().to_owned(), measures }
    }
}

impl ProcessJson {
    fn of(process: &Process) -> ProcessJson {
        ProcessJson {
            threads: process.threads,
            resident_bytes: process.resident_bytes,
            anonymous_bytes: process.anonymous_bytes,
            page_table_bytes: process.page_table_bytes,
            mappings: process.mappings,
            huge_pages_off: process.huge_pages_off,
        }
    }
}

impl FaultsJson {
    fn of(faults: &FaultCounts) -> FaultsJson {
        FaultsJson {
            seen: faults.seen,
            major: faults.major,
            waits: faults.waits,
            waited_ns: faults.waited_ns,
            in_files: faults.in_files,
            anonymous: faults.anonymous,
            unresolved: faults.unresolved,
            lost: faults.lost,
            forks: faults.forks,
            mapped: faults.mapped,
            mapped_files: faults.mapped_files,
            threads: faults.threads,
            unfollowed_threads: faults.unfollowed,
            sampled_share: faults.sampled,
            seen_error_share: faults.error,
            waited_error_share: faults.waited_error,
            waiting_ns: faults.waiting_ns.clone(),
        }
    }
}

impl AdviceJson {
    fn of(seen: &AdviceSeen) -> AdviceJson {
        AdviceJson {
            calls: seen.calls.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect(),
            will_need: seen.will_need.iter().map(WillNeedJson::of).collect(),
            unresolved: seen.unresolved,
            lost: seen.lost,
            unfollowed_threads: seen.unfollowed,
        }
    }
}

impl WillNeedJson {
    fn of(asked: &WillNeed) -> WillNeedJson {
        WillNeedJson {
            path: asked.path.clone(),
            advice: asked.advice.to_owned(),
            calls: asked.calls,
            longest_bytes: asked.longest_bytes,
            median_bytes: asked.median_bytes,
            cap_bytes: asked.cap_bytes(),
            calls_beyond_cap: asked.beyond_cap,
            read_ahead_kb: asked.read_ahead_kb,
            max_sectors_kb: asked.largest_request_kb,
            size_bytes: asked.size_bytes,
            cached_bytes: asked.cached_bytes,
        }
    }
}

impl FileJson {
    fn of(file: &MappedFile) -> FileJson {
        FileJson {
            path: file.path.clone(),
            deleted: file.deleted,
            reached: file.reached.as_ref().map(|path| path.display().to_string()),
            size_bytes: file.size_bytes,
            cached_bytes: file.cached_bytes,
            came_bytes: file.came_bytes,
            mapped_bytes: file.mapped_bytes(),
            mappings: file.mappings.len(),
            filesystem: file.filesystem.clone(),
            read_ahead_kb: file.read_ahead_kb,
            faults: file.faults,
            major_faults: file.major,
            waits: file.waits,
            waited_ns: file.waited_ns,
            touched_pages: file.touched_pages,
            order: file.order.as_ref().map(OrderJson::of),
            advice: advice(file).map(str::to_owned),
            advice_seen: file.advised.map(str::to_owned),
            populate_calls: file.populate_calls,
        }
    }
}

impl ReadFileJson {
    fn of(file: &ReadFile) -> ReadFileJson {
        ReadFileJson {
            path: Some(file.path.clone()).filter(|path| !path.is_empty()),
            device: file.id.device,
            inode: file.id.inode,
            size_bytes: file.size_bytes,
            cached_bytes: file.cached_bytes,
            calls: file.calls,
            asked_bytes: file.bytes,
            begun_pages: file.begun_pages,
            order: file.order.as_ref().map(OrderJson::of),
        }
    }
}

impl OrderJson {
    fn of(order: &Recognised) -> OrderJson {
        let Recognised { pattern, confidence, threads, repeats } = *order;
        OrderJson { pattern: PatternJson::of(pattern), confidence, threads, repeats }
    }
}

impl PatternJson {
    fn of(pattern: Pattern) -> PatternJson {
        let named = |name: &str| PatternJson { name: name.to_owned(), ..PatternJson::default() };
        match pattern {
            Pattern::Sequential => named("sequential"),
            Pattern::Backward => named("backward"),
            Pattern::Strided(bytes) => PatternJson { stride_bytes: Some(bytes), ..named("strided") },
            Pattern::Interleaved { streams, stride } => {
                PatternJson { streams: Some(streams), stride_bytes: Some(stride), ..named("interleaved") }
            }
            Pattern::Random => named("random"),
            Pattern::HotSet { bytes } => PatternJson { hot_bytes: Some(bytes), ..named("hot set") },
            Pattern::Unknown => named("unknown"),
        }
    }
}

/// The advice in force, where smaps was read.
pub(super) fn advice(file: &MappedFile) -> Option<&'static str> {
    let deep = file.mappings.iter().filter_map(|mapping| mapping.deep);
    deep.map(|deep| match deep {
        deep if deep.random => "random",
        deep if deep.sequential => "sequential",
        _ => "normal",
    })
    .max_by_key(|word| *word != "normal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{examine, rules};
    use crate::watch::scenes::healthy;

    /// Why the document is not as the schema says; nothing where it is.
    fn against_schema(document: &Value) -> Option<String> {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("doctor.json", schema()).unwrap();
        let index = compiler.compile("doctor.json", &mut schemas).unwrap();
        schemas.validate(document, index).err().map(|error| error.to_string())
    }

    #[test]
    fn what_is_found_by_each_rule_is_as_the_schema_says() {
        for rule in rules::ALL {
            let evidence = (rule.example)();

            let document = document(&evidence, &examine(std::slice::from_ref(&evidence)));

            assert_eq!(against_schema(&document), None, "{}", rule.name);
            assert_eq!(document["format"], FORMAT);
        }
    }

    #[test]
    fn what_the_schema_does_not_know_is_told() {
        let mut changed = document(&healthy(), &[Finding::default()]);
        changed["findings"][0]["evidence"] = serde_json::json!(["a sentence"]);
        assert!(against_schema(&changed).is_some());

        let mut changed = document(&healthy(), &[]);
        changed["news"] = Value::Null;
        assert!(against_schema(&changed).is_some());

        let mut changed = document(&healthy(), &[]);
        changed["processes"] = serde_json::json!([document(&healthy(), &[])]);
        assert_eq!(against_schema(&changed), None);
    }

    #[test]
    fn evidence_is_numbers_with_units() {
        let fact = Fact::guessed("{waits} waits of {who}").count("waits", 7).word("who", "a thread");
        let finding = Finding { evidence: vec![fact], backing: Backing::Measured(1.5), ..Finding::default() };

        let told = document(&healthy(), &[finding])["findings"][0].clone();

        assert_eq!(
            told["evidence"][0],
            serde_json::json!({
                "says": "7 waits of a thread", "source": "guessed",
                "measures": [
                    { "name": "waits", "value": 7.0, "unit": "count" },
                    { "name": "who", "value": "a thread", "unit": "word" },
                ],
            })
        );
        assert_eq!(told["backing"], serde_json::json!({ "kind": "measured", "times": 1.5 }));
    }
}
