//! The program with `majorfault assist`, which reads ahead of its faults.

use super::{Call, Way, ourselves};

pub(super) const WAY: Way = Way {
    name: "assist",
    summary: "majorfault assist reads ahead of the strides that its page faults show",
    needs_files: false,
    is_usual: true,
    learns: None,
    call: |task| Ok(Call { load: Vec::new(), command: ourselves(&["assist".into()], task)? }),
};
