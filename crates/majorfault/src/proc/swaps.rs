//! /proc/swaps: what the kernel swaps to.

use super::mounts;
use std::path::PathBuf;

/// A file or device that is swapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// Its path, as the kernel knows it.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Bytes in use.
    pub used: u64,
}

/// Reads /proc/swaps; its sizes are in KiB.
pub fn parse(text: &str) -> impl Iterator<Item = SwapArea> + '_ {
    text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (path, _kind) = (fields.next()?, fields.next()?);
        let mut bytes = || fields.next()?.parse::<u64>().ok()?.checked_mul(1024);
        Some(SwapArea { path: mounts::path(path), size: bytes()?, used: bytes()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SWAPS: &str = "\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/var/tmp/a\\040b                         file\t\t1048572\t\t12\t\t-2
/dev/zram0                              partition\t4194300\t\t0\t\t100
";

    #[test]
    fn areas_are_read_with_their_sizes() {
        let areas: Vec<SwapArea> = parse(SWAPS).collect();

        assert_eq!(areas[0], SwapArea { path: "/var/tmp/a b".into(), size: 1_073_737_728, used: 12_288 });
        assert_eq!((areas[1].path.to_str(), areas.len()), (Some("/dev/zram0"), 2));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in "\\PC*|(x\n/[a-z]{0,3} file [0-9]{0,22} [0-9]{0,22}\n){0,4}") {
            parse(&text).count();
        }
    }
}
