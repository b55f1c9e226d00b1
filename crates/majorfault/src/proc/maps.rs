//! /proc/PID/maps: the mappings of a process.

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Permissions, as four letters: `r-xp`, `rw-s`.
    pub rights: [u8; 4],
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Device of the file, major and minor number; (0, 0) for anonymous memory and some file systems.
    pub device: (u32, u32),
    /// Inode of the file; 0 where there is none.
    pub inode: u64,
    /// Path as the kernel prints it, without ` (deleted)`; `[heap]` and the like; empty for anonymous memory.
    pub path: String,
    /// Whether the file no longer has a name.
    pub deleted: bool,
}

impl Vma {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a file is mapped (shared memory without a name counts as well).
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether the process may write.
    pub fn is_writable(&self) -> bool {
        self.rights[1] == b'w'
    }

    /// Whether changes stay in the process.
    pub fn is_private(&self) -> bool {
        self.rights[3] == b'p'
    }
}

/// Reads the whole text; lines that are not mappings are left out.
pub fn all(text: &str) -> Vec<Vma> {
    text.split('\n').filter_map(line).collect()
}

/// Reads one line: `start-end rights offset major:minor inode path`. Headers in smaps have the same form.
pub fn line(line: &str) -> Option<Vma> {
    let mut rest = line;
    let mut next = || {
        rest = rest.trim_start_matches(' ');
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = next().split_once('-')?;
    let rights = next().as_bytes().try_into().ok()?;
    let offset = hex(next())?;
    let (major, minor) = next().split_once(':')?;
    let number = |word: &str| u32::from_str_radix(word, 16).ok();
    let device = (number(major)?, number(minor)?);
    let inode = next().parse().ok()?;
    let path = rest.trim_start_matches(' ');
    let (path, deleted) = path.strip_suffix(" (deleted)").map_or((path, false), |path| (path, true));
    Some(Vma { start: hex(start)?, end: hex(end)?, rights, offset, device, inode, path: unescaped(path), deleted })
}

/// The kernel writes a line feed in a path as `\012`.
fn unescaped(path: &str) -> String {
    path.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = include_str!("data/maps-6.18");

    #[test]
    fn a_path_may_hold_spaces_and_be_deleted() {
        let text = "7f00-7f0000 rw-s 00001000 fe:10 1234                       /data/my file (deleted)";

        let vma = line(text).unwrap();

        assert_eq!((vma.start, vma.end, vma.offset), (0x7f00, 0x7f_0000, 0x1000));
        assert_eq!((vma.device, vma.inode), ((0xfe, 0x10), 1234));
        assert_eq!((vma.path.as_str(), vma.deleted), ("/data/my file", true));
        assert!(vma.is_writable() && !vma.is_private() && vma.is_file());
    }

    #[test]
    fn the_maps_of_a_real_process_are_read_whole() {
        let vmas = all(MAPS);

        assert_eq!(vmas.len(), MAPS.lines().count());
        assert!(vmas.iter().any(|vma| vma.path == "[heap]" && !vma.is_file()));
        assert!(vmas.is_sorted_by_key(|vma| vma.start));
    }

    proptest! {
        #[test]
        fn any_line_is_taken_without_panic(text in "\\PC*|[0-9a-f]{1,17}-[0-9a-f]{1,17} r-xp [0-9a-f]{1,17} fe:0 [0-9]{1,20} .*") {
            let _ = line(&text);
        }
    }
}
