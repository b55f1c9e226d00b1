//! The program after its files were read from front to end.

use super::{Call, Way};

pub(super) const WAY: Way = Way {
    name: "load",
    summary: "its files are read from front to end first, inside the clock; for files that fit into memory",
    needs_files: true,
    is_usual: true,
    learns: None,
    call: |task| Ok(Call { load: task.files.clone(), command: task.program.clone() }),
};
