//! What was done, as JSON.

use super::{FileOutcome, Outcome, PAGE};
use serde_json::{Value, json};

/// The whole outcome; times in nanoseconds, sizes in bytes.
pub fn document(outcome: &Outcome) -> Value {
    json!({
        "format": "faultline assist 1",
        "length_ns": outcome.length.as_nanos() as u64,
        "ended": outcome.ended,
        "faults": outcome.faults,
        "faults_in_files": outcome.in_files,
        "samples_lost": outcome.lost,
        "threads_unfollowed": outcome.unfollowed,
        "own_cpu_ns": outcome.own_time.as_nanos() as u64,
        "program_cpu_ns": outcome.program_time.as_nanos() as u64,
        "files": outcome.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn file(file: &FileOutcome) -> Value {
    json!({
        "path": file.path,
        "faults": file.faults,
        "waits": file.waits,
        "waited_ns": file.waited_ns,
        "threads": file.threads,
        "read_ahead_bytes": file.tally.asked * PAGE,
        "used_bytes": file.tally.used * PAGE,
        "stride_bytes": file.tally.stride,
        "learned": file.tally.learned,
        "trials": file.tally.trials,
        "stopped": file.tally.stopped,
        "refused": file.refused,
    })
}
