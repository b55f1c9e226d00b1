//! The order of accesses in words.

use majorfault::Bytes;
use majorfault::observe::pattern::Pattern;

/// A pattern in words.
pub fn words(pattern: Pattern) -> String {
    let distance = |bytes: i64| {
        let direction = if bytes < 0 { " backward" } else { "" };
        format!("{}{direction}", Bytes(bytes.unsigned_abs()).rounded())
    };
    match pattern {
        Pattern::Sequential => "sequential".to_owned(),
        Pattern::Backward => "sequential backward".to_owned(),
        Pattern::Strided(stride) => format!("stride {}", distance(stride)),
        Pattern::Interleaved { streams, stride } => format!("{streams} streams, stride {}", distance(stride)),
        Pattern::Random => "random".to_owned(),
        Pattern::HotSet { bytes } => format!("hot set of {}", Bytes(bytes).rounded()),
        Pattern::Unknown => "too few to tell".to_owned(),
    }
}
