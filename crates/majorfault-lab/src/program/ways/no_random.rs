//! The program with `majorfault run --map-policy no-random`: the files that it maps are read ahead of as usual, whatever it asks for.

use super::{Call, Way, ourselves};

pub(super) const WAY: Way = Way {
    name: "no-random",
    summary: "its own wish for random reading (MADV_RANDOM) is not passed on, by a preloaded library",
    needs_files: false,
    is_usual: false,
    learns: None,
    call: |task| {
        let words = ["run", "--quiet", "--map-policy", "no-random"].map(Into::into);
        Ok(Call { load: Vec::new(), command: ourselves(&words, task)? })
    },
};
