//! The outcome of a run for programs: base units, stable names, and the schema of it all (`docs/run.schema.json`), made from the same types.

use super::call_sites::FunctionOfRun;
use super::diary::{DiaryBin, RunDiary, RunPhase};
use super::outcome::RunOutcome;
use super::spaces::AgentFacts;
use super::spill::{SpillFacts, StayedBlocks};
use super::whereabouts::HelpedPlace;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The whole outcome as JSON; times in nanoseconds, sizes in bytes.
pub fn document(outcome: &RunOutcome) -> Value {
    serde_json::to_value(RunJson::of(outcome)).unwrap_or_default()
}

/// The schema of the document.
pub fn schema() -> Value {
    schemars::schema_for!(RunJson).into()
}

/// How a run went. Bytes, nanoseconds and counts; what could not be seen is null.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunJson {
    /// The format: `majorfault run 1`.
    format: String,
    /// The program's; 128 and the number of the signal that ended it.
    exit_code: u8,
    /// From its first instruction to its end.
    length_ns: u64,
    /// Its limit; 0 where none could be set, and its blocks are in files.
    limit_bytes: u64,
    /// The most memory that its group had.
    peak_bytes: Option<u64>,
    /// How often the limit was met.
    limit_hits: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    oom_kills: Option<u64>,
    /// How often the limit was raised for moments (cgroup version 1).
    limit_raised: RaisedJson,
    /// How long some process waited for memory (cgroup version 2).
    stalled_ns: Option<u64>,
    /// The most memory and swap together.
    most_demand_bytes: u64,
    /// The most that was swapped out.
    most_swapped_bytes: u64,
    /// Free swap when it began.
    free_swap_bytes: u64,
    /// Whether swap was taken away while it ran.
    lost_swap: bool,
    /// Faults that waited for a device, of the program and the children it waited for.
    major_faults: Option<u64>,
    /// Processor time of the supervisor.
    own_cpu_ns: u64,
    /// How closely it was looked at.
    watched: WatchedJson,
    /// What was done, in all.
    advised: AdvisedJson,
    /// How it went with agents within processes, where these gave the advice.
    agents: AgentsJson,
    /// Its blocks in files; null where none were wanted.
    spill: Option<SpillJson>,
    /// How it stood with memory, one stretch after the other.
    phases: Vec<PhaseJson>,
    /// Where it waited, and was helped; most waits first.
    places: Vec<PlaceJson>,
    /// In which functions; most waits first, sixteen at most.
    functions: Vec<FunctionJson>,
    /// Memory, waits and help over time.
    timeline: TimelineJson,
    /// Why it was not helped.
    unhelped: Option<String>,
    /// Whether processes that it started run on.
    runs_on: bool,
    /// What was to be known before it began.
    remarks: Vec<RemarkJson>,
}

/// A limit that gave way.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RaisedJson {
    times: u64,
    /// By how much at most.
    most_bytes: u64,
    /// By how much it is raised at most.
    allowed_bytes: u64,
    /// For how long in all.
    lasted_ns: u64,
    /// How often memory was reclaimed for a thread that waited, because it was raised by all of that.
    reclaims: u64,
}

/// Time with nothing, with waits, with all faults looked at, and what was seen.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WatchedJson {
    nothing_ns: u64,
    waits_ns: u64,
    all_faults_ns: u64,
    faults: u64,
    waits: u64,
}

/// What was done.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AdvisedJson {
    /// Streams that something was read in for.
    streams: u64,
    /// Read in ahead.
    fetched_bytes: u64,
    /// Of these, passed by their stream.
    used_bytes: u64,
    /// Paged out behind.
    paged_out_bytes: u64,
    /// Of these, needed again too soon.
    came_back_bytes: u64,
}

/// Agents within processes; all zero where advice came from outside.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentsJson {
    /// Address spaces that had one.
    met: u64,
    /// Processes whose memory was short and that had none: forked without starting a program, static, of another user.
    without: u64,
    /// Agents that were there, and then were not.
    lost: u64,
    /// Times that one was behind, and orders were left out.
    late: u64,
}

/// Large blocks of memory in files (`--spill`).
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpillJson {
    /// Where they were.
    directory: String,
    /// The least block that goes there.
    from_bytes: u64,
    /// Processes that had the library.
    processes: u64,
    blocks: u64,
    /// In all, whether at once or not.
    bytes: u64,
    /// The most of one process at once.
    most_bytes: u64,
    /// Forks for which blocks were copied.
    forks: u64,
    copied_bytes: u64,
    /// Forked processes that were ended, because there was no room for their copies.
    ended: u64,
    /// Large blocks that stayed in memory.
    stayed: Vec<StayedJson>,
}

/// Large blocks that stayed in memory, for one reason.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StayedJson {
    why: String,
    blocks: u64,
    bytes: u64,
}

/// A stretch of the run.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PhaseJson {
    from_ns: u64,
    to_ns: u64,
    /// `enough` (nothing waited for swap), `ordered` (more came in ahead than was waited for), `unordered`, or `unseen` (waits were not
    /// looked at).
    kind: String,
    /// Faults that were seen to wait.
    waits: u64,
    used_bytes: u64,
    most_swapped_bytes: u64,
}

/// A mapping of a process.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlaceJson {
    /// The name of the process.
    process: String,
    /// `[heap]`, an anonymous mapping with its size, a file.
    mapping: String,
    /// Faults that waited before anything was read in ahead there.
    waits_before: u64,
    /// And since.
    waits_after: u64,
    advised: AdvisedJson,
}

/// Code of a process that faulted.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FunctionJson {
    /// The name of the process.
    process: String,
    /// Its name, or what is known instead: the file `without symbols`, the kernel, code in no file.
    function: String,
    /// Faults that waited before anything was read in ahead for it.
    waits_before: u64,
    /// And since.
    waits_after: u64,
    advised: AdvisedJson,
}

/// Bins of equal length from the beginning on.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimelineJson {
    bin_ns: u64,
    /// The most memory in each.
    usage_bytes: Vec<u64>,
    /// The most that was swapped out in each.
    swapped_bytes: Vec<u64>,
    /// Faults that were seen to wait in each.
    waits: Vec<u64>,
    /// What was read in ahead and passed in each.
    used_bytes: Vec<u64>,
}

/// Something to know.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RemarkJson {
    found: String,
    /// Empty where nothing is wrong.
    remedy: String,
}

/// Bytes of so many pages.
fn bytes(pages: u64) -> u64 {
    pages * rustix::param::page_size() as u64
}

impl RunJson {
    fn of(outcome: &RunOutcome) -> RunJson {
        let RunOutcome { group, supervised, .. } = outcome;
        let [nothing_ns, waits_ns, all_faults_ns] = supervised.levels_ns;
        let raised = group.raised;
        RunJson {
            format: "majorfault run 1".to_owned(),
            exit_code: outcome.code,
            length_ns: outcome.took.as_nanos() as u64,
            limit_bytes: outcome.limit.0,
            peak_bytes: group.peak,
            limit_hits: group.limit_hits,
            oom_kills: group.oom_kills,
            limit_raised: RaisedJson {
                times: raised.times,
                most_bytes: raised.most_bytes,
                allowed_bytes: group.may_raise,
                lasted_ns: raised.lasted.0,
                reclaims: raised.reclaims,
            },
            stalled_ns: group.stalled_us.map(|us| us * 1000),
            most_demand_bytes: supervised.demand,
            most_swapped_bytes: supervised.swapped,
            free_swap_bytes: outcome.free_swap,
            lost_swap: outcome.lost_swap,
            major_faults: outcome.major_faults,
            own_cpu_ns: outcome.own_time.as_nanos() as u64,
            watched: WatchedJson {
                nothing_ns,
                waits_ns,
                all_faults_ns,
                faults: supervised.faults,
                waits: supervised.waits,
            },
            advised: AdvisedJson::of(supervised.advised, |bytes| bytes),
            agents: AgentsJson::of(supervised.agents),
            spill: outcome.spill.as_ref().map(SpillJson::of),
            phases: outcome.phases().iter().map(PhaseJson::of).collect(),
            places: supervised.by_waits().into_iter().map(PlaceJson::of).collect(),
            functions: supervised.functions.iter().map(FunctionJson::of).collect(),
            timeline: TimelineJson::of(&supervised.diary),
            unhelped: outcome.unhelped.clone(),
            runs_on: outcome.runs_on,
            remarks: outcome.remarks.iter().map(RemarkJson::of).collect(),
        }
    }
}

impl AdvisedJson {
    /// By what makes bytes of its amounts.
    fn of(advised: super::streams::Advised, bytes: fn(u64) -> u64) -> AdvisedJson {
        AdvisedJson {
            streams: advised.streams,
            fetched_bytes: bytes(advised.fetched),
            used_bytes: bytes(advised.used),
            paged_out_bytes: bytes(advised.paged_out),
            came_back_bytes: bytes(advised.came_back),
        }
    }
}

impl AgentsJson {
    fn of(AgentFacts { met, without, lost, late }: AgentFacts) -> AgentsJson {
        AgentsJson { met, without, lost, late }
    }
}

impl SpillJson {
    fn of(facts: &SpillFacts) -> SpillJson {
        let SpillFacts { dir, from, processes, blocks, bytes, most, forks, copied, ended, stayed } = facts;
        SpillJson {
            directory: dir.display().to_string(),
            from_bytes: *from,
            processes: *processes,
            blocks: *blocks,
            bytes: *bytes,
            most_bytes: *most,
            forks: *forks,
            copied_bytes: *copied,
            ended: *ended,
            stayed: stayed.iter().map(StayedJson::of).collect(),
        }
    }
}

impl StayedJson {
    fn of(stayed: &StayedBlocks) -> StayedJson {
        let StayedBlocks { why, blocks, bytes } = *stayed;
        StayedJson { why: why.name().to_owned(), blocks, bytes }
    }
}

impl PhaseJson {
    fn of(phase: &RunPhase) -> PhaseJson {
        let RunPhase { from_ns, to_ns, kind, sum } = *phase;
        let used_bytes = bytes(sum.used);
        let kind = kind.name().to_owned();
        PhaseJson { from_ns, to_ns, kind, waits: sum.waits, used_bytes, most_swapped_bytes: sum.swapped }
    }
}

impl PlaceJson {
    fn of((process, mapping, place): (&str, &str, HelpedPlace)) -> PlaceJson {
        let HelpedPlace { waits_before, waits_after, advised } = place;
        let [process, mapping] = [process, mapping].map(str::to_owned);
        PlaceJson { process, mapping, waits_before, waits_after, advised: AdvisedJson::of(advised, bytes) }
    }
}

impl FunctionJson {
    fn of(of: &FunctionOfRun) -> FunctionJson {
        let HelpedPlace { waits_before, waits_after, advised } = of.place;
        let (process, function) = (of.process.clone(), of.function.clone());
        FunctionJson { process, function, waits_before, waits_after, advised: AdvisedJson::of(advised, bytes) }
    }
}

impl TimelineJson {
    fn of(diary: &RunDiary) -> TimelineJson {
        let each = |part: fn(&DiaryBin) -> u64| diary.bins().iter().map(part).collect();
        TimelineJson {
            bin_ns: diary.bin_ns(),
            usage_bytes: each(|bin| bin.usage),
            swapped_bytes: each(|bin| bin.swapped),
            waits: each(|bin| bin.waits),
            used_bytes: each(|bin| bytes(bin.used)),
        }
    }
}

impl RemarkJson {
    fn of(remark: &super::preflight::Remark) -> RemarkJson {
        RemarkJson { found: remark.found.clone(), remedy: remark.remedy.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{MIB, outcome};
    use super::*;
    use crate::place::reprieve::Raised;
    use majorfault::Nanos;
    use serde_json::json;

    fn against_schema(document: &Value) -> Option<String> {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("run.json", schema()).unwrap();
        let index = compiler.compile("run.json", &mut schemas).unwrap();
        schemas.validate(document, index).err().map(|error| error.to_string())
    }

    #[test]
    fn the_document_has_sizes_in_bytes_and_times_in_nanoseconds() {
        let mut outcome = outcome();
        outcome.group.stalled_us = Some(5);
        outcome.group.raised = Raised { times: 3, most_bytes: 8 * MIB, lasted: Nanos(9), reclaims: 2 };

        let json = document(&outcome);

        assert_eq!(json["advised"]["fetched_bytes"], 104_857_600);
        assert_eq!((&json["stalled_ns"], &json["limit_bytes"]), (&5000.into(), &134_217_728.into()));
        let raised =
            json!({"times": 3, "most_bytes": 8 * MIB, "allowed_bytes": 48 * MIB, "lasted_ns": 9, "reclaims": 2});
        assert_eq!(json["limit_raised"], raised);
    }

    #[test]
    fn what_is_told_is_as_the_schema_says_and_what_it_does_not_know_is_not() {
        let mut json = document(&outcome());
        assert_eq!(against_schema(&json), None);

        json["places"][0]["more"] = 1.into();

        assert!(against_schema(&json).is_some());
    }

    #[test]
    fn places_are_told_with_the_most_waits_first_and_in_bytes() {
        let json = document(&outcome());

        let told = |at: usize, key: &str| json["places"][at][key].clone();
        assert_eq!(
            (told(0, "mapping"), told(0, "waits_before"), told(0, "waits_after")),
            (json!("[heap]"), json!(9), json!(2))
        );
        assert_eq!(json["places"][0]["advised"]["used_bytes"], bytes(90));
        assert_eq!(told(1, "mapping"), "anonymous mapping of 64.0 MiB");
        assert_eq!(
            (&json["functions"][0]["function"], &json["functions"][0]["waits_before"]),
            (&json!("merge_runs"), &json!(10))
        );
    }
}
