//! The program with `majorfault run --map-policy huge`: the files that it maps are told to take large pages.

use super::{Call, Way, ourselves};

pub(super) const WAY: Way = Way {
    name: "huge",
    summary: "the files that it maps are told to take large pages (MADV_HUGEPAGE), by a preloaded library",
    needs_files: false,
    is_usual: false,
    learns: None,
    call: |task| {
        let words = ["run", "--quiet", "--map-policy", "huge"].map(Into::into);
        Ok(Call { load: Vec::new(), command: ourselves(&words, task)? })
    },
};
