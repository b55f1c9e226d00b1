//! O_DIRECT with buffers, offsets or lengths that don't fit: the calls fail, or the file system reads through the cache.

use crate::doctor::evidence::Evidence;
use crate::doctor::{Finding, Rule, Severity};
use crate::process::files::Descriptor;
use faultline::Bytes;

pub(super) const RULE: Rule = Rule {
    name: "direct_misaligned",
    summary: "a file is open with O_DIRECT, but its reads fail or go through the page cache",
    look,
};

/// Calls below which it is chance.
const FEWEST: u64 = 100;

fn look(evidence: &Evidence) -> Vec<Finding> {
    let Some(calls) = evidence.calls.filter(|calls| calls.read_calls >= FEWEST) else { return Vec::new() };
    let Some(direct) = evidence.descriptors.iter().find(|file| file.direct) else { return Vec::new() };
    let others = evidence.descriptors.iter().any(|file| !file.direct && file.size_bytes >= 1 << 20);
    let finding = |severity, what: &str, fact| Finding {
        rule: RULE.name,
        severity,
        scope: direct.path.clone(),
        what: what.to_owned(),
        evidence: vec![format!("{} read calls", calls.read_calls), fact],
        remedy: "align offset, length and buffer to 4096 bytes (posix_memalign(&buffer, 4096, length)); statx(2) with \
                 STATX_DIOALIGN tells the least that works"
            .to_owned(),
        proof: format!("strace -f -e trace=read,pread64,preadv -p {}", evidence.target.pid),
    };
    if calls.read_call_bytes < calls.read_calls / 2 {
        let fact = format!("{} returned by them", Bytes(calls.read_call_bytes).rounded());
        return vec![finding(Severity::Critical, "reads of a file opened with O_DIRECT fail", fact)];
    }
    if !others
        && is_cached(direct)
        && calls.device_bytes * 4 < calls.read_call_bytes
        && calls.read_call_bytes >= 16 << 20
    {
        let fact = format!(
            "{} returned, {} from devices",
            Bytes(calls.read_call_bytes).rounded(),
            Bytes(calls.device_bytes).rounded()
        );
        return vec![finding(Severity::Warning, "reads with O_DIRECT go through the page cache all the same", fact)];
    }
    Vec::new()
}

fn is_cached(file: &Descriptor) -> bool {
    file.cached_bytes.is_some_and(|cached| cached >= 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{healthy, only};
    use super::*;
    use crate::doctor::evidence::Calls;

    fn open() -> Evidence {
        let mut evidence = healthy();
        let path = "/data/x".to_owned();
        evidence.descriptors = vec![Descriptor { path, direct: true, size_bytes: 1 << 30, ..Descriptor::default() }];
        evidence
    }

    #[test]
    fn calls_that_return_nothing_fail() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 100_000, ..Calls::default() });

        assert_eq!(only(&RULE, &evidence).severity, Severity::Critical);
    }

    #[test]
    fn direct_reads_that_reach_the_device_are_fine() {
        let mut evidence = open();
        evidence.calls = Some(Calls { read_calls: 1000, read_call_bytes: 4 << 20, device_bytes: 4 << 20 });

        assert!(look(&evidence).is_empty());
    }
}
