//! Read calls that copy the same cached bytes again and again: a cache in front of a cache.

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};
use faultline::Bytes;

pub(super) const RULE: Rule =
    Rule { name: "double_buffering", summary: "read calls copy the same cached file again and again", look };

/// Bytes copied each second from which on it costs a good part of a processor.
const FAST: f64 = 200e6;

/// Times that the open files were read over.
const PASSES: f64 = 3.0;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let Some(calls) = evidence.calls else { return Vec::new() };
    let cached = evidence.descriptors.iter().filter(|file| !file.direct && file.size_bytes >= 4 << 20);
    let cached: Vec<_> = cached.collect();
    let bytes: u64 = cached.iter().map(|file| file.size_bytes).sum();
    let passes = calls.read_call_bytes as f64 / bytes.max(1) as f64;
    let Some(largest) = cached.iter().max_by_key(|file| file.size_bytes) else { return Vec::new() };
    if evidence.rate(calls.read_call_bytes) < FAST || passes < PASSES || calls.device_bytes * 20 > calls.read_call_bytes
    {
        return Vec::new();
    }
    vec![Finding {
        rule: RULE.name,
        severity: Severity::Note,
        scope: largest.path.clone(),
        what: "read calls copy the same cached bytes again and again".to_owned(),
        evidence: vec![
            format!("{}/s by read calls", Bytes(evidence.rate(calls.read_call_bytes) as u64).rounded()),
            format!("{passes:.0} times the {} of the open files", Bytes(bytes).rounded()),
            format!("{} from devices", Bytes(calls.device_bytes).rounded()),
        ],
        remedy:
            "map the file and read it in place; or, if the program has a cache of its own, open with O_DIRECT and make \
                 that larger (RocksDB: use_direct_reads; MySQL: innodb_flush_method=O_DIRECT)"
                .to_owned(),
        proof: format!("faultline compare {} --cache warm -m mmap -m pread", largest.path),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only};
    use super::*;
    use crate::process::files::Descriptor;

    #[test]
    fn passes_over_a_cached_file_are_found_and_a_first_read_is_not() {
        let mut evidence = healthy();
        let file = Descriptor { number: 3, path: "/data/x".to_owned(), size_bytes: 64 << 20, ..Descriptor::default() };
        evidence.descriptors = vec![file];
        evidence.calls.as_mut().unwrap().read_call_bytes = 5 << 30;
        assert!(only(&RULE, &evidence).evidence[1].contains("80 times"));

        evidence.calls.as_mut().unwrap().device_bytes = 5 << 30;
        assert!(look(&evidence).is_empty());
    }
}
