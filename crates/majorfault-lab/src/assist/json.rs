//! The outcome as JSON.

use super::{Assisted, AssistedFile, PAGE};
use serde_json::{Value, json};

/// The whole outcome; times in nanoseconds, sizes in bytes.
pub fn document(outcome: &Assisted) -> Value {
    json!({
        "format": "majorfault assist 1",
        "length_ns": outcome.length.as_nanos() as u64,
        "ended": outcome.ended,
        "faults": outcome.faults,
        "faults_in_files": outcome.in_files,
        "read_calls": outcome.reads,
        "read_calls_unseen": outcome.no_reads.as_ref().map(ToString::to_string),
        "samples_lost": outcome.lost,
        "threads_unfollowed": outcome.unfollowed,
        "own_cpu_ns": outcome.own_time.as_nanos() as u64,
        "program_cpu_ns": outcome.program_time.as_nanos() as u64,
        "files": outcome.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn file(file: &AssistedFile) -> Value {
    json!({
        "path": file.path,
        "faults": file.faults,
        "read_calls": file.reads,
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
        "near_rows_unread": file.near_rows.as_ref().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assist::ReadCounts;
    use std::time::Duration;

    #[test]
    fn pages_are_reported_in_bytes_and_times_in_nanoseconds() {
        let tally =
            ReadCounts { asked: 3, used: 2, trials: 4, stopped: 5, stride: Some(8192), learned: true, untold: 0 };
        let file = AssistedFile { path: "/x".to_owned(), tally, ..AssistedFile::default() };
        let outcome = Assisted {
            length: Duration::from_millis(2),
            own_time: Duration::from_micros(3),
            files: vec![file],
            ..Assisted::default()
        };

        let told = document(&outcome);

        assert_eq!((&told["length_ns"], &told["own_cpu_ns"]), (&json!(2_000_000), &json!(3000)));
        let file = &told["files"][0];
        assert_eq!((&file["read_ahead_bytes"], &file["used_bytes"]), (&json!(12_288), &json!(8192)));
        assert_eq!((&file["trials"], &file["stopped"], &file["stride_bytes"]), (&json!(4), &json!(5), &json!(8192)));
    }
}
