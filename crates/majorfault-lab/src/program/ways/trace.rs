//! The program with `majorfault assist`, which reads ahead by a trace of an earlier run.

use super::{Call, Way, ourselves};
use crate::program::Task;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const WAY: Way = Way {
    name: "trace",
    summary: "majorfault assist reads ahead by a trace of a run before; for programs that read in the same order again",
    needs_files: false,
    is_usual: true,
    learns: Some(|task| ourselves(&["trace".into(), "--output".into(), path(task).into_os_string()], task)),
    call: |task| {
        let words: [OsString; 3] = ["assist".into(), "--trace".into(), path(task).into_os_string()];
        Ok(Call { load: Vec::new(), command: ourselves(&words, task)? })
    },
};

fn path(task: &Task) -> PathBuf {
    task.scratch.join("learnt.flt")
}
