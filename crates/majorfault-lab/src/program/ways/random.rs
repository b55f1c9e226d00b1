//! The program with `majorfault run --map-policy random`: the files that it maps are told to be read at random.

use super::{Call, Way, ourselves};

pub(super) const WAY: Way = Way {
    name: "random",
    summary: "the files that it maps are told to be read at random (MADV_RANDOM), by a preloaded library",
    needs_files: false,
    is_usual: true,
    learns: None,
    call: |task| {
        let words = ["run", "--quiet", "--map-policy", "random"].map(Into::into);
        Ok(Call { load: Vec::new(), command: ourselves(&words, task)? })
    },
};
