//! The program with `majorfault run --map-policy hot=TRACE`: what a run before accessed is asked for as soon as it maps the files.

use super::{Call, Way, ourselves};
use crate::program::Task;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const WAY: Way = Way {
    name: "hot",
    summary: "what a run before accessed is asked for when the program maps the files (MADV_WILLNEED), by a preloaded library",
    needs_files: false,
    is_usual: false,
    learns: Some(|task| ourselves(&["trace".into(), "--output".into(), path(task).into_os_string()], task)),
    call: |task| {
        let mut policy = OsString::from("hot=");
        policy.push(path(task));
        let words = ["run".into(), "--quiet".into(), "--map-policy".into(), policy];
        Ok(Call { load: Vec::new(), command: ourselves(&words, task)? })
    },
};

fn path(task: &Task) -> PathBuf {
    task.scratch.join("hot.flt")
}
