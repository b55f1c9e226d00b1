//! One JSON document for programs: the records as they are, and everything the table says of them.
//!
//! Names and meanings stay; numbers are in base units (seconds, bytes, nanoseconds where the name says so).

use super::verdict::Standing;
use super::{ArmSummary, Group, Role, State, Summary, Trouble, derive, question, race};
use crate::record::{Buckets, FORMAT, Record};
use crate::stats::{Estimate, PairedRatio, Told};
use serde_json::{Map, Value, json};

/// `{format, summaries: [{session, trial, machine, arms, verdict, advice, …}], records}`.
///
/// Of a summary: `question` is `first_pass`, `steady_state` or null where there was one only; `heading` says it; `visits_per_block` is
/// [least, most] of the arms' medians, or null; `remark` what the figures are not of; `race` is null where each arm ran as often as
/// was asked, else `{time_ns, is_over, says}`: whether the answer was sure, and what was cut short. An arm's `stopped_after` is the number of
/// rounds after which the race stopped it, or null; its `runs_used` are then fewer, and its intervals cover what they say. Its
/// `queueing_ns` is what accesses of a queue waited as the next one until they were sent, which is no part of `latency_ns`; null
/// without a queue.
pub fn document(summary: &Summary<'_>, records: &[Record]) -> Value {
    let groups: Vec<Value> = summary.groups.iter().map(group).collect();
    json!({ "format": FORMAT, "summaries": groups, "records": records })
}

fn group(group: &Group<'_>) -> Value {
    let arms: Vec<Value> = group.arms.iter().map(arm).collect();
    json!({
        "session": group.session,
        "workload": group.trial.workload,
        "trial": group.trial,
        "machine": group.machine,
        "repetitions": group.repetitions,
        "question": group.question(),
        "heading": question::heading(group),
        "visits_per_block": question::visits(group),
        "remark": question::remark(group),
        "race": group.race.map(|race| json!({
            "time_ns": race.time_ns,
            "is_over": race::is_over(group),
            "says": race::cut_short(group),
        })),
        "valid": group.is_valid(),
        "troubles": troubles(&group.troubles),
        "noted": troubles(&group.noted),
        "arms": arms,
        "verdict": verdict(group),
        "advice": group.advice.iter().map(|advice| json!({ "says": advice.says, "because": advice.because })).collect::<Vec<_>>(),
    })
}

fn troubles(troubles: &[Trouble]) -> Value {
    let trouble = |Trouble { gate, runs, arms, first, remedy }: &Trouble| json!({ "gate": gate, "runs": runs, "arms": arms, "first": first, "remedy": remedy });
    troubles.iter().map(trouble).collect()
}

fn verdict(group: &Group<'_>) -> Value {
    let verdict = &group.verdict;
    json!({
        "standing": match verdict.standing {
            Standing::Judged => "judged",
            Standing::RunMore => "run_more",
            Standing::NotValid => "not_valid",
            Standing::Nothing => "nothing",
        },
        "best": verdict.best,
        "tied": verdict.tied,
        "runner_up": verdict.runner_up.as_ref().map(|(name, lead)| json!({ "arm": name, "lead": comparison(lead) })),
        "sentence": verdict.sentence,
        "answer": verdict.answer.says,
        "baseline": verdict.answer.baseline.as_ref().map(|(name, lead)| json!({ "arm": name, "lead": lead.as_ref().map(comparison) })),
        "evidence": verdict.evidence,
    })
}

fn arm(arm: &ArmSummary<'_>) -> Value {
    let figures: Map<String, Value> = derive::ALL
        .iter()
        .filter_map(|formula| Some((formula.name.to_owned(), estimate(&arm.figure(formula)?))))
        .collect();
    let (state, reasons) = state(&arm.state);
    json!({
        "arm": arm.name,
        "role": role(arm.role),
        "state": state,
        "reasons": reasons,
        "runs": arm.records.len(),
        "runs_used": arm.used.len(),
        "stopped_after": arm.stopped,
        "ratio_to_best": arm.ratio.as_ref().map(comparison),
        "figures": figures,
        "latency_ns": quantiles(&arm.latency),
        "queueing_ns": quantiles(&arm.queueing),
        "timeline": arm.phases,
    })
}

fn quantiles(found: &Buckets) -> Value {
    let at = |quantile| derive::percentile(found, quantile);
    json!({ "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0) })
}

fn estimate(estimate: &Estimate) -> Value {
    let Estimate { median, interval, coverage, samples } = estimate;
    json!({ "median": median, "interval": interval, "coverage": coverage, "samples": samples })
}

fn comparison(found: &PairedRatio) -> Value {
    let mut value = estimate(&found.ratio);
    value["smallest_detectable"] = json!(found.detectable);
    value["told"] = json!(match found.told() {
        Told::Apart => "apart",
        Told::Tie => "tie",
        Told::RunMore => "run_more",
    });
    value
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Control => "control",
        Role::Method => "method",
        Role::Peer => "peer",
    }
}

fn state(state: &State) -> (&'static str, Vec<String>) {
    match state {
        State::Measured(troubles) => ("measured", troubles.clone()),
        State::Invalid(troubles) => ("invalid", troubles.clone()),
        State::Missing(why) => ("missing", vec![why.clone()]),
        State::Failed(why) => ("failed", vec![why.clone()]),
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
    }
}
