//! Files that were written under the tool's former name: they are ours as well.

/// The tool's name until version 0.1.
const FORMER: &str = "faultline";

/// What a file says of the tool, as the tool writes it under its name of today.
pub(crate) fn renamed(text: &str) -> String {
    text.replace(FORMER, "majorfault")
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, records};

    #[test]
    fn files_written_under_the_former_name_are_recognised() {
        let heads = [
            (Kind::Page, "<!doctype html><title>faultline doctor</title>"),
            (Kind::Metrics, "# HELP faultline_faults Faults."),
            (Kind::Trace, "faultline trace 2\n"),
            (Kind::Records, r#"{"format":1,"tool":"faultline 0.1.0"}"#),
        ];
        for (kind, head) in heads {
            assert!(kind.is_told_by(head.as_bytes(), head.as_bytes()), "{kind:?}");
            let stranger = head.replace("faultline", "another");
            assert!(!kind.is_told_by(stranger.as_bytes(), stranger.as_bytes()), "{kind:?}");
        }
        assert!(records::is_one(br#"{"format":1,"tool":"faultline 0.1.0 (a1dc676)"}"#));
    }
}
