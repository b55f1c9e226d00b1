//! The ledger, its claims and the agreement of sessions as JSON documents.

use super::ledger::{agreeing, beside, claims, is_decided};
use super::ledger_head::Head;
use super::ledger_table::{LedgerTable, tables};
use crate::experiment::{Cells, Entry, InSession, Judge, MachineSessions, Of, Test, What};
use crate::record::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of these documents; raised when a reader of the old one would misread the new one.
const FORMAT: u32 = 2;

/// Every row with its figures and verdict, in all sessions and in each.
pub fn document(entries: &[Entry], records: &[Record]) -> Value {
    let head = Head::of(entries, records);
    let counts: BTreeMap<&str, &BTreeMap<&str, usize>> =
        head.counts.iter().map(|(kind, counts)| (kind.words(), counts)).collect();
    json!({
        "format": FORMAT,
        "counts": counts,
        "sessions": head.sessions,
        "tools": head.tools,
        "machines": head.machines,
        "conditions": head.conditions,
        "claims": entries.iter().map(claim).collect::<Vec<_>>(),
        "tables": tables(entries, records).iter().map(LedgerTable::json).collect::<Vec<_>>(),
    })
}

fn claim(entry: &Entry) -> Value {
    let judged = &entry.judged;
    json!({
        "id": entry.row.id,
        "kind": entry.row.kind.words(),
        "experiment": entry.experiment.id,
        "says": entry.row.says,
        "published": entry.row.published,
        "ours": judged.shown.ours,
        "n": judged.n,
        "runs": judged.runs.made,
        "refused": judged.runs.refused,
        "refusals": judged.runs.reasons,
        "noted": judged.runs.noted,
        "limits": entry.conditions(),
        "verdict": judged.verdict.words(),
        "reason": judged.verdict.reason(),
        "beside": beside(entry),
        "sessions": entry.sessions.iter().map(in_session).collect::<Vec<_>>(),
        "agree": entry.agreement().agree,
        "of": entry.agreement().of,
        "by_machine": by_machine(entry),
    })
}

/// `machine` is the letter of one of the machines of the head; empty where there is one.
fn in_session(it: &InSession) -> Value {
    let InSession { name, machine, judged } = it;
    json!({
        "session": name,
        "machine": machine,
        "run": judged.verdict.was_run(),
        "verdict": judged.verdict.words(),
        "reason": judged.verdict.reason(),
        "ours": judged.shown.ours,
        "n": judged.n,
    })
}

/// Each verdict with the sessions of each machine that gave it.
fn by_machine(entry: &Entry) -> Vec<Value> {
    let on = |it: &MachineSessions| {
        let each = it.machines.iter();
        let each = each.map(|(letter, found)| json!({ "machine": letter, "agree": found.agree, "of": found.of }));
        json!({ "verdict": it.verdict, "machines": each.collect::<Vec<_>>() })
    };
    entry.by_machine().iter().map(on).collect()
}

/// Every row with the tests that judge it, for programs that judge the records themselves.
pub fn rows(entries: &[Entry]) -> Value {
    let row = |entry: &Entry| {
        let (judge, needs, tests) = match &entry.row.judge {
            Judge::Claim(claim, _) => ("claim", needs(claim.needs), claim.tests.iter().map(test).collect()),
            Judge::Measured(_) => ("measured", Vec::new(), Vec::new()),
            Judge::Built(..) => ("built", Vec::new(), Vec::new()),
            Judge::NotBuilt(_) => ("not built", Vec::new(), Vec::new()),
        };
        json!({
            "id": entry.row.id,
            "kind": entry.row.kind.words(),
            "experiment": entry.experiment.id,
            "says": entry.row.says,
            "published": entry.row.published,
            "rests_on": entry.row.rests_on.iter().map(|condition| condition.name()).collect::<Vec<_>>(),
            "judge": judge,
            "needs": needs,
            "tests": tests,
        })
    };
    json!({ "format": FORMAT, "rows": entries.iter().map(row).collect::<Vec<_>>() })
}

fn needs(needs: &[(Test, &str)]) -> Vec<Value> {
    let need = |(need, reason): &(Test, &str)| {
        let mut said = test(need);
        said["otherwise"] = json!(reason);
        said
    };
    needs.iter().map(need).collect()
}

/// A side of the range that is open is null.
fn test(test: &Test) -> Value {
    let (what, first, second) = match &test.what {
        What::EveryRun(only) => ("every run", only, None),
        What::SomeRun(only) => ("some run", only, None),
        What::Figure(only) => ("figure", only, None),
        What::Difference(first, second) => ("difference", first, Some(second)),
        What::Ratio(first, second) => ("ratio", first, Some(second)),
    };
    let [low, high] = test.range.map(finite);
    let (first, second) = (side(first), second.map(side));
    json!({ "what": what, "first": first, "second": second, "low": low, "high": high, "except": test.except })
}

/// Several cells: the least of them.
fn side(of: &Of) -> Value {
    let cells: Vec<&str> = match of.cells {
        Cells::One(name) => vec![name],
        Cells::Least(names) => names.to_vec(),
    };
    json!({
        "cells": cells,
        "figure": of.figure.name(),
        "at_least": finite(of.at_least),
        "may_be_hidden": of.figure.may_be_hidden(),
        "is_time": of.figure.is_time(),
    })
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

/// The verdict of each session on each claim, and how many are the same in all.
pub fn agreement(entries: &[Entry], records: &[Record]) -> Value {
    let row = |entry: &Entry| {
        let found = entry.agreement();
        json!({
            "id": entry.row.id,
            "kind": entry.row.kind.words(),
            "verdict": entry.judged.verdict.words(),
            "sessions": entry.sessions.iter().map(in_session).collect::<Vec<_>>(),
            "agree": found.agree,
            "of": found.of,
            "by_machine": by_machine(entry),
        })
    };
    let ((same, all), (decided_same, decided)) = (agreeing(entries, |_| true), agreeing(entries, is_decided));
    let head = Head::of(entries, records);
    json!({
        "format": FORMAT,
        "sessions": head.sessions,
        "machines": head.machines,
        "rows": claims(entries).map(row).collect::<Vec<_>>(),
        "agreeing": same,
        "compared": all,
        "decided": { "agreeing": decided_same, "compared": decided },
    })
}
