//! The findings for programs: base units, stable names.

use crate::doctor::Finding;
use crate::watch::evidence::{AdviceSeen, Evidence, MappedFile};
use majorfault::observe::pattern::Pattern;
use serde_json::{Value, json};

/// One document of everything.
pub fn document(evidence: &Evidence, findings: &[Finding]) -> Value {
    let Evidence { target, watched, process, calls, faults, machine, .. } = evidence;
    json!({
        "format": "majorfault-doctor-1",
        "target": { "pid": target.pid, "name": target.name, "command": target.command, "ended": evidence.ended },
        "watched_ns": watched.as_nanos() as u64,
        "rules": super::describe::document(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "process": {
            "threads": process.threads, "resident_bytes": process.resident_bytes,
            "anonymous_bytes": process.anonymous_bytes, "page_table_bytes": process.page_table_bytes,
            "mappings": process.mappings,
        },
        "calls": calls.map(|it| json!({
            "read_call_bytes": it.read_call_bytes, "read_calls": it.read_calls, "device_bytes": it.device_bytes,
        })),
        "faults": faults.as_ref().map(|it| json!({
            "seen": it.seen, "major": it.major, "waits": it.waits, "waited_ns": it.waited_ns, "in_files": it.in_files,
            "anonymous": it.anonymous, "unresolved": it.unresolved, "lost": it.lost, "forks": it.forks,
            "mapped": it.mapped, "mapped_files": it.mapped_files, "threads": it.threads,
            "unfollowed_threads": it.unfollowed, "sampled_share": it.sampled, "seen_error_share": it.error,
        })),
        "advice_calls": evidence.advice.as_ref().map(advice_calls),
        "files": evidence.files.iter().map(file).collect::<Vec<_>>(),
        "counters": evidence.counters.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>(),
        "cgroup": evidence.group.as_ref().map(|it| json!({ "path": it.path, "limit_bytes": it.limit_bytes })),
        "machine": {
            "kernel": [machine.kernel.0, machine.kernel.1], "memory_bytes": machine.memory_bytes,
            "available_bytes": machine.available_bytes, "huge_pages": machine.huge_pages,
            "max_map_count": machine.most_mappings,
        },
        "missing": evidence.missing.iter().map(|it| json!({
            "what": it.what, "reason": it.reason, "remedy": it.remedy,
        })).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    let Finding { rule, severity, scope, file: _, what, evidence, remedy, proof, replay, gain_at_most } = finding;
    json!({
        "rule": rule, "severity": severity.word(), "scope": scope, "what": what, "evidence": evidence,
        "remedy": remedy, "proof": proof, "gain_at_most": gain_at_most,
        "replay": replay.as_ref().map(|it| json!({ "now": it.arms[0], "remedy": it.arms[1] })),
    })
}

fn advice_calls(seen: &AdviceSeen) -> Value {
    let will_need = seen.will_need.iter().map(|it| {
        json!({
            "path": it.path, "advice": it.advice, "calls": it.calls, "longest_bytes": it.longest_bytes,
            "median_bytes": it.median_bytes, "cap_bytes": it.cap_bytes(), "calls_beyond_cap": it.beyond_cap,
            "read_ahead_kb": it.read_ahead_kb, "max_sectors_kb": it.largest_request_kb, "size_bytes": it.size_bytes,
            "cached_bytes": it.cached_bytes,
        })
    });
    let calls = seen.calls.iter().map(|(word, count)| ((*word).to_owned(), json!(count)));
    json!({
        "calls": calls.collect::<serde_json::Map<_, _>>(), "will_need": will_need.collect::<Vec<_>>(),
        "unresolved": seen.unresolved, "lost": seen.lost, "unfollowed_threads": seen.unfollowed,
    })
}

fn file(file: &MappedFile) -> Value {
    json!({
        "path": file.path, "deleted": file.deleted, "size_bytes": file.size_bytes,
        "cached_bytes": file.cached_bytes, "came_bytes": file.came_bytes, "mapped_bytes": file.mapped_bytes(), "mappings": file.mappings.len(),
        "filesystem": file.filesystem, "read_ahead_kb": file.read_ahead_kb, "faults": file.faults,
        "major_faults": file.major, "waits": file.waits, "waited_ns": file.waited_ns, "touched_pages": file.touched_pages,
        "order": file.order.map(|order| json!({
            "pattern": pattern(order.pattern), "confidence": order.confidence, "threads": order.threads,
            "repeats": order.repeats,
        })),
        "advice": advice(file), "advice_seen": file.advised,
        "populate_calls": file.populate_calls,
    })
}

fn pattern(pattern: Pattern) -> Value {
    match pattern {
        Pattern::Sequential => json!({ "name": "sequential" }),
        Pattern::Backward => json!({ "name": "backward" }),
        Pattern::Strided(bytes) => json!({ "name": "strided", "stride_bytes": bytes }),
        Pattern::Interleaved { streams, stride } => {
            json!({ "name": "interleaved", "streams": streams, "stride_bytes": stride })
        }
        Pattern::Random => json!({ "name": "random" }),
        Pattern::HotSet { bytes } => json!({ "name": "hot set", "hot_bytes": bytes }),
        Pattern::Unknown => json!({ "name": "unknown" }),
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
