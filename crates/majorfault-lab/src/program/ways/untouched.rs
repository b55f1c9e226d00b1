//! The program as it is.

use super::{Call, Way};

pub(super) const WAY: Way = Way {
    name: "untouched",
    summary: "the program as it is; what the others are compared with",
    needs_files: false,
    is_usual: true,
    learns: None,
    call: |task| Ok(Call { load: Vec::new(), command: task.program.clone() }),
};
