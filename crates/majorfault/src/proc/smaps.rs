//! /proc/PID/smaps: the page sizes that mappings really have. Reading it walks the page tables and stalls the process.

use super::maps::{self, Vma};

/// Bytes of mappings by the size of their pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedSizes {
    /// Bytes that are mapped and present.
    pub resident_bytes: u64,
    /// Of the file's pages, those mapped by huge entries.
    pub file_huge_bytes: u64,
    /// Of shared memory's pages, those mapped by huge entries.
    pub shared_huge_bytes: u64,
    /// Anonymous huge pages (private changes).
    pub anonymous_huge_bytes: u64,
}

impl MappedSizes {
    /// Bytes mapped by huge entries, of whatever kind.
    pub fn huge_bytes(&self) -> u64 {
        self.file_huge_bytes.saturating_add(self.shared_huge_bytes).saturating_add(self.anonymous_huge_bytes)
    }
}

/// Adds up the mappings with a path that `wanted` accepts.
pub fn sizes(text: &str, wanted: impl Fn(&str) -> bool) -> MappedSizes {
    let mut sizes = MappedSizes::default();
    let mut counts = false;
    for line in text.split('\n') {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if !first.ends_with(':') {
            // A mapping's header: range, rights, offset, device, inode, path (which may hold spaces).
            counts = line.find('/').is_some_and(|at| wanted(&line[at..]));
            continue;
        }
        let Some(bytes) = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|_| counts) else { continue };
        let bytes = bytes.saturating_mul(1024);
        let field = match first {
            "Rss:" => &mut sizes.resident_bytes,
            "FilePmdMapped:" => &mut sizes.file_huge_bytes,
            "ShmemPmdMapped:" => &mut sizes.shared_huge_bytes,
            "AnonHugePages:" => &mut sizes.anonymous_huge_bytes,
            _ => continue,
        };
        *field = field.saturating_add(bytes);
    }
    sizes
}

/// One mapping in detail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The mapping.
    pub vma: Vma,
    /// Bytes mapped and present, and their page sizes.
    pub sizes: MappedSizes,
    /// VmFlags, two letters each: `rr` is MADV_RANDOM, `sr` MADV_SEQUENTIAL, `hg` MADV_HUGEPAGE, `dc` MADV_DONTFORK.
    pub flags: Vec<[u8; 2]>,
}

impl Detail {
    /// Whether VmFlags has these two letters.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }
}

/// Every mapping in detail.
pub fn details(text: &str) -> Vec<Detail> {
    let mut details: Vec<Detail> = Vec::new();
    for line in text.split('\n') {
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.contains(['-', ' '])) else {
            details.extend(maps::line(line).map(|vma| Detail { vma, ..Detail::default() }));
            continue;
        };
        let Some(detail) = details.last_mut() else { continue };
        let kib = value.trim().strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok());
        let bytes = kib.unwrap_or(0).saturating_mul(1024);
        match key {
            "Rss" => detail.sizes.resident_bytes = bytes,
            "FilePmdMapped" => detail.sizes.file_huge_bytes = bytes,
            "ShmemPmdMapped" => detail.sizes.shared_huge_bytes = bytes,
            "AnonHugePages" => detail.sizes.anonymous_huge_bytes = bytes,
            "VmFlags" => {
                let words = value.split_ascii_whitespace();
                detail.flags = words.filter_map(|word| word.as_bytes().try_into().ok()).collect();
            }
            _ => {}
        }
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_advice_in_force_is_in_the_flags() {
        let text = "\
7f0000000000-7f0000400000 r--s 00000000 fe:00 12 /data/a: b
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd mr mw me ms rr sd
7f1000000000-7f1000001000 r--p 00000000 fe:00 13 /lib/libc.so
VmFlags: rd
";
        let details = details(text);

        assert_eq!(details.len(), 2);
        assert_eq!((details[0].vma.path.as_str(), details[0].sizes.resident_bytes), ("/data/a: b", 4 << 20));
        assert!(details[0].has(b"rr") && !details[1].has(b"rr"));
    }

    #[test]
    fn only_the_mappings_asked_for_are_added() {
        let text = "\
7f0000000000-7f0000400000 r--s 00000000 fe:00 12 /data/my file
Rss:                4096 kB
FilePmdMapped:      2048 kB
7f1000000000-7f1000001000 r--p 00000000 fe:00 13 /lib/libc.so
Rss:                   4 kB
";
        let sizes = sizes(text, |path| path == "/data/my file");

        assert_eq!((sizes.resident_bytes, sizes.file_huge_bytes), (4 << 20, 2 << 20));
    }

    /// A text of any shape, and one of the kernel's shape with any numbers.
    fn any_smaps() -> impl Strategy<Value = String> {
        let line = "([0-9a-f]{1,12}-[0-9a-f]{1,12} r--p 0 0:1 5 +/[a-z :-]{0,8}|(Rss|FilePmdMapped|ShmemPmdMapped|AnonHugePages|VmFlags): +([0-9]{0,20} kB|[0-9a-z ]{0,20}))\n";
        prop_oneof!["\\PC*".boxed(), prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat()).boxed()]
    }

    proptest! {
        #[test]
        fn any_text_is_added_up_without_panic(text in any_smaps()) {
            let all = sizes(&text, |_| true);
            let each = details(&text);

            let _ = (all.huge_bytes(), each.iter().map(|detail| detail.sizes.huge_bytes()).max());
        }

        #[test]
        fn what_the_kernel_prints_reads_back(kib in prop::array::uniform4(0u64..1 << 40), path in "/[^\0\n]{0,12}") {
            let [resident, file, shared, anonymous] = kib;
            let text = format!(
                "7f0000000000-7f0000400000 r--s 00000000 fe:00 12                         {path}\nRss: {resident:>10} kB\n\
                 AnonHugePages: {anonymous:>10} kB\nShmemPmdMapped: {shared:>10} kB\nFilePmdMapped: {file:>10} kB\nVmFlags: rd rr\n"
            );
            let expected = MappedSizes {
                resident_bytes: resident << 10,
                file_huge_bytes: file << 10,
                shared_huge_bytes: shared << 10,
                anonymous_huge_bytes: anonymous << 10,
            };

            let (all, each) = (sizes(&text, |own| own == path), details(&text));

            prop_assert_eq!(all, expected);
            prop_assert_eq!((&each[0].sizes, each[0].has(b"rr")), (&expected, true));
        }
    }
}
