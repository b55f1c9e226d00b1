//! The program with `majorfault run --map-policy hot=TRACE`: what a run before accessed is asked for as soon as it maps the files.

use super::{Call, Way, Words, ourselves};
use crate::program::Task;
use majorfault::Result;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const WAY: Way = Way {
    name: "hot",
    summary: "what a run before accessed is asked for when the program maps the files (MADV_WILLNEED), by a preloaded library",
    needs_files: false,
    is_usual: false,
    // Without read-ahead each page that is touched is a fault of its own, and so in the trace.
    learns: Some(|task| {
        let random = Task { program: with_policy("random".into(), task)?, ..task.clone() };
        ourselves(&["trace".into(), "--output".into(), path(task).into_os_string()], &random)
    }),
    call: |task| {
        let mut policy = OsString::from("hot=");
        policy.push(path(task));
        Ok(Call { load: Vec::new(), command: with_policy(policy, task)? })
    },
};

fn with_policy(policy: OsString, task: &Task) -> Result<Words> {
    ourselves(&["run".into(), "--quiet".into(), "--map-policy".into(), policy], task)
}

fn path(task: &Task) -> PathBuf {
    task.scratch.join("hot.flt")
}
