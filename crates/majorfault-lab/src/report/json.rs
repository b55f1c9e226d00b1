//! One JSON document for programs: the records as they are, and everything the table says of them.
//!
//! Names and meanings stay; numbers are in base units (seconds, bytes, nanoseconds where the name says so).

use super::verdict::Standing;
use super::{ArmSummary, Group, Role, State, Summary, Trouble, derive, question, race};
use crate::record::{Buckets, FORMAT, Question, Record};
use crate::stats::{Estimate, PairedRatio, Told};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The summary and the records it was made from, as one JSON document.
pub fn document(summary: &Summary<'_>, records: &[Record]) -> Value {
    let made =
        ComparedFilesJson { format: FORMAT, summaries: summary.groups.iter().map(GroupJson::of).collect(), records };
    serde_json::to_value(made).unwrap_or_default()
}

/// The schema of the document.
pub fn schema() -> Value {
    schemars::schema_for!(ComparedFilesJson<'_>).into()
}

/// Methods compared on files. Nanoseconds, bytes, counts, accesses a second; what could not be told is null.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ComparedFilesJson<'a> {
    /// The version of records, and of this document.
    format: u32,
    /// One for each question, stage of a job file or workload.
    summaries: Vec<GroupJson<'a>>,
    /// Every run as `--records` writes it, one line each there.
    #[schemars(with = "Vec<Value>")]
    records: &'a [Record],
}

/// Arms that may be compared with each other, and what is said of them.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupJson<'a> {
    /// Name of the session, which its records have.
    session: &'a str,
    /// What was read or written, in which order, and until when.
    #[schemars(with = "Value")]
    workload: &'a crate::trial::Choice,
    /// The same with the files, the state of the cache, threads and limits; its arm and repetition mean nothing.
    #[schemars(with = "Value")]
    trial: &'a crate::trial::Trial,
    /// The machine.
    #[schemars(with = "Value")]
    machine: &'a crate::record::Machine,
    /// Turns that the arms took.
    repetitions: usize,
    /// Which of two questions this answers, where both were asked.
    #[schemars(with = "Option<String>")]
    question: Option<Question>,
    /// The question in words.
    heading: Option<String>,
    /// The fewest and the most visits of a block that was visited at all, over arms.
    visits_per_block: Option<[f64; 2]>,
    /// What is to be known of the question.
    remark: Option<String>,
    /// How the race went, where it was one.
    race: Option<RaceJson>,
    /// Whether its figures mean what they say.
    valid: bool,
    /// Conditions that spoiled runs.
    troubles: Vec<TroubleJson<'a>>,
    /// Conditions that are worth knowing of runs that stand.
    noted: Vec<TroubleJson<'a>>,
    /// Best first; then those that are not valid, those without figures, and the control.
    arms: Vec<ArmJson<'a>>,
    /// Which is best.
    verdict: VerdictJson<'a>,
    /// What to do about it.
    advice: Vec<SuggestionJson<'a>>,
}

/// A race: methods that are surely behind are stopped.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RaceJson {
    /// Time within which rounds were begun, over all questions.
    time_ns: u64,
    /// Whether it ended because the answer was sure.
    is_over: bool,
    /// What was cut short.
    says: Option<String>,
}

/// A condition that runs did not meet.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TroubleJson<'a> {
    /// Its name.
    gate: &'a str,
    /// Runs that did not meet it.
    runs: usize,
    /// Arms that these are of.
    arms: &'a [String],
    /// What it said first.
    first: &'a str,
    /// What to do about it.
    remedy: &'a str,
}

/// Which method is best.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VerdictJson<'a> {
    /// `judged`, `run_more` (too few runs), `not_valid` (runs that it needs are not), or `nothing` (no method was measured).
    standing: &'static str,
    /// The best method.
    best: Option<&'a str>,
    /// Those that cannot be told apart from it.
    tied: &'a [String],
    /// The best of the others, and how many times as fast the best is.
    runner_up: Option<LeadJson<'a>>,
    /// All of it in words.
    sentence: &'a str,
    /// What is printed first.
    answer: &'a str,
    /// What it is held against in the answer.
    baseline: Option<LeadJson<'a>>,
    /// What the counters say about the reason.
    evidence: &'a [String],
}

/// How many times as fast as an arm the best one is.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LeadJson<'a> {
    /// The arm.
    arm: &'a str,
    /// Null where it has no figures.
    lead: Option<RatioJson>,
}

/// What to do.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SuggestionJson<'a> {
    /// What.
    says: &'a str,
    /// The measured reason.
    because: &'a str,
}

/// A method with its parameters, a peer or the control.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArmJson<'a> {
    /// As it is typed.
    arm: &'a str,
    /// `method`, `peer` or `control`.
    role: &'static str,
    /// `measured`, `invalid`, `missing` (it cannot run here) or `failed`.
    state: &'static str,
    /// Why, and what went wrong in runs that were left out.
    reasons: Vec<&'a str>,
    /// Its runs.
    runs: usize,
    /// Those that its figures are of.
    runs_used: usize,
    /// Rounds after which a race stopped it.
    stopped_after: Option<u32>,
    /// Its accesses a second by the best method's, in pairs.
    ratio_to_best: Option<RatioJson>,
    /// By name, whose end is the unit; the end of a page (`--report`) says what each is.
    figures: BTreeMap<&'static str, EstimateJson>,
    /// Of single accesses of all runs used.
    latency_ns: LatencyJson,
    /// What accesses of a queue waited as the next one until they were sent, which is no part of `latency_ns`; nulls without a queue.
    queueing_ns: LatencyJson,
    /// What was found on its timeline.
    timeline: Option<&'a str>,
}

/// A median with its interval.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EstimateJson {
    /// Of the samples.
    median: f64,
    /// Two samples that hold the true median with the probability `coverage`; null of one sample.
    interval: Option<[f64; 2]>,
    /// 0 without an interval; below six samples less than 0.95, and the interval is their range.
    coverage: f64,
    /// How many.
    samples: usize,
}

/// A ratio of pairs.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RatioJson {
    /// Of the pairs' ratios.
    #[serde(flatten)]
    ratio: EstimateJson,
    /// The smallest effect that these pairs could have shown, as a share.
    smallest_detectable: Option<f64>,
    /// `apart`, `tie`, or `run_more` where there are too few pairs to say.
    told: &'static str,
}

/// Percentiles; null where no access was timed.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LatencyJson {
    /// Half of them took at most this.
    p50: Option<u64>,
    /// Nine of ten.
    p90: Option<u64>,
    /// 99 of 100.
    p99: Option<u64>,
    /// 999 of 1 000.
    p99_9: Option<u64>,
    /// All of them.
    max: Option<u64>,
}

impl<'a> GroupJson<'a> {
    fn of(group: &'a Group<'a>) -> GroupJson<'a> {
        let race = |race: &crate::record::Race| RaceJson {
            time_ns: race.time_ns,
            is_over: race::is_over(group),
            says: race::cut_short(group),
        };
        GroupJson {
            session: group.session,
            workload: &group.trial.workload,
            trial: group.trial,
            machine: group.machine,
            repetitions: group.repetitions,
            question: group.question(),
            heading: question::heading(group),
            visits_per_block: question::visits(group),
            remark: question::remark(group),
            race: group.race.map(race),
            valid: group.is_valid(),
            troubles: group.troubles.iter().map(TroubleJson::of).collect(),
            noted: group.noted.iter().map(TroubleJson::of).collect(),
            arms: group.arms.iter().map(ArmJson::of).collect(),
            verdict: VerdictJson::of(group),
            advice: group.advice.iter().map(|it| SuggestionJson { says: &it.says, because: &it.because }).collect(),
        }
    }
}

impl<'a> TroubleJson<'a> {
    fn of(trouble: &'a Trouble) -> TroubleJson<'a> {
        let Trouble { gate, runs, arms, first, remedy } = trouble;
        TroubleJson { gate, runs: *runs, arms, first, remedy }
    }
}

impl<'a> VerdictJson<'a> {
    fn of(group: &'a Group<'a>) -> VerdictJson<'a> {
        let verdict = &group.verdict;
        let runner_up = |(arm, lead): &'a (String, PairedRatio)| LeadJson { arm, lead: Some(RatioJson::of(lead)) };
        let baseline =
            |(arm, lead): &'a (String, Option<PairedRatio>)| LeadJson { arm, lead: lead.as_ref().map(RatioJson::of) };
        VerdictJson {
            standing: match verdict.standing {
                Standing::Judged => "judged",
                Standing::RunMore => "run_more",
                Standing::NotValid => "not_valid",
                Standing::Nothing => "nothing",
            },
            best: verdict.best.as_deref(),
            tied: &verdict.tied,
            runner_up: verdict.runner_up.as_ref().map(runner_up),
            sentence: &verdict.sentence,
            answer: &verdict.answer.says,
            baseline: verdict.answer.baseline.as_ref().map(baseline),
            evidence: &verdict.evidence,
        }
    }
}

impl<'a> ArmJson<'a> {
    fn of(arm: &'a ArmSummary<'a>) -> ArmJson<'a> {
        let figures =
            derive::ALL.iter().filter_map(|formula| Some((formula.name, EstimateJson::of(&arm.figure(formula)?))));
        let (state, reasons) = state(&arm.state);
        ArmJson {
            arm: &arm.name,
            role: role(arm.role),
            state,
            reasons,
            runs: arm.records.len(),
            runs_used: arm.used.len(),
            stopped_after: arm.stopped,
            ratio_to_best: arm.ratio.as_ref().map(RatioJson::of),
            figures: figures.collect(),
            latency_ns: LatencyJson::of(&arm.latency),
            queueing_ns: LatencyJson::of(&arm.queueing),
            timeline: arm.phases.as_deref(),
        }
    }
}

impl LatencyJson {
    fn of(found: &Buckets) -> LatencyJson {
        let at = |quantile| derive::percentile(found, quantile);
        LatencyJson { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max: at(1.0) }
    }
}

impl EstimateJson {
    /// An estimate, for a document.
    pub(crate) fn of(estimate: &Estimate) -> EstimateJson {
        let Estimate { median, interval, coverage, samples } = *estimate;
        EstimateJson { median, interval, coverage, samples }
    }
}

impl RatioJson {
    fn of(found: &PairedRatio) -> RatioJson {
        let told = match found.told() {
            Told::Apart => "apart",
            Told::Tie => "tie",
            Told::RunMore => "run_more",
        };
        RatioJson { ratio: EstimateJson::of(&found.ratio), smallest_detectable: found.detectable, told }
    }
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Control => "control",
        Role::Method => "method",
        Role::Peer => "peer",
    }
}

fn state(state: &State) -> (&'static str, Vec<&str>) {
    match state {
        State::Measured(troubles) => ("measured", troubles.iter().map(String::as_str).collect()),
        State::Invalid(troubles) => ("invalid", troubles.iter().map(String::as_str).collect()),
        State::Missing(why) => ("missing", vec![why]),
        State::Failed(why) => ("failed", vec![why]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::repeated;

    #[test]
    fn the_document_holds_the_records_and_what_was_made_of_them() {
        let records = [repeated("direct", 40_000, 6), repeated("mmap", 20_000, 6)].concat();

        let document = document(&Summary::of(&records), &records);

        let first = &document["summaries"][0];
        assert_eq!(document["records"].as_array().unwrap().len(), 12);
        assert_eq!(first["verdict"]["best"], "direct");
        assert_eq!(first["arms"][1]["figures"]["throughput_per_s"]["samples"], 6);
        assert_eq!(first["arms"][1]["ratio_to_best"]["told"], "apart");
        let back: Vec<Record> = serde_json::from_value(document["records"].clone()).unwrap();
        assert_eq!(back, records);
        assert_eq!(against_schema(&document), None);
    }

    #[test]
    fn a_document_with_another_field_is_none_of_the_schema() {
        let records = repeated("direct", 40_000, 6);
        let mut document = document(&Summary::of(&records), &records);
        document["summaries"][0]["verdict"]["more"] = 1.into();

        assert!(against_schema(&document).unwrap().contains("more"));
    }

    fn against_schema(document: &Value) -> Option<String> {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("compare.json", schema()).unwrap();
        let index = compiler.compile("compare.json", &mut schemas).unwrap();
        schemas.validate(document, index).err().map(|error| format!("{error:#}"))
    }
}
