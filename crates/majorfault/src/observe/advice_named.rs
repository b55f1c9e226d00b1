//! Advice by the names of the man pages: madvise(2), posix_fadvise(2), readahead(2).

/// An advice, by the call that gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Named {
    /// madvise(2) with this number.
    Madvise(i32),
    /// posix_fadvise(2) with this number.
    Fadvise(i32),
    /// readahead(2), which has none.
    ReadAhead,
}

impl Named {
    /// The constant's name, as the man page has it; "another" for numbers it does not list.
    pub fn word(self) -> &'static str {
        match self {
            Named::Madvise(number) => found(MADVISE, number, "another madvise"),
            Named::Fadvise(number) => found(FADVISE, number, "another posix_fadvise"),
            Named::ReadAhead => "readahead",
        }
    }

    /// Whether it asks for pages to be read that are not cached yet.
    pub fn will_need(self) -> bool {
        matches!(
            self,
            Named::Madvise(libc::MADV_WILLNEED) | Named::Fadvise(libc::POSIX_FADV_WILLNEED) | Named::ReadAhead
        )
    }
}

const MADVISE: &[(i32, &str)] = &[
    (libc::MADV_NORMAL, "MADV_NORMAL"),
    (libc::MADV_RANDOM, "MADV_RANDOM"),
    (libc::MADV_SEQUENTIAL, "MADV_SEQUENTIAL"),
    (libc::MADV_WILLNEED, "MADV_WILLNEED"),
    (libc::MADV_DONTNEED, "MADV_DONTNEED"),
    (libc::MADV_FREE, "MADV_FREE"),
    (libc::MADV_HUGEPAGE, "MADV_HUGEPAGE"),
    (libc::MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE"),
    (libc::MADV_COLD, "MADV_COLD"),
    (libc::MADV_PAGEOUT, "MADV_PAGEOUT"),
    (libc::MADV_POPULATE_READ, "MADV_POPULATE_READ"),
    (libc::MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE"),
    (25, "MADV_COLLAPSE"),
];

const FADVISE: &[(i32, &str)] = &[
    (libc::POSIX_FADV_NORMAL, "POSIX_FADV_NORMAL"),
    (libc::POSIX_FADV_RANDOM, "POSIX_FADV_RANDOM"),
    (libc::POSIX_FADV_SEQUENTIAL, "POSIX_FADV_SEQUENTIAL"),
    (libc::POSIX_FADV_WILLNEED, "POSIX_FADV_WILLNEED"),
    (libc::POSIX_FADV_DONTNEED, "POSIX_FADV_DONTNEED"),
    (libc::POSIX_FADV_NOREUSE, "POSIX_FADV_NOREUSE"),
];

fn found(names: &[(i32, &'static str)], number: i32, other: &'static str) -> &'static str {
    names.iter().find(|(known, _)| *known == number).map_or(other, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_the_name_of_the_man_page() {
        assert_eq!(Named::Madvise(libc::MADV_WILLNEED).word(), "MADV_WILLNEED");
        assert_eq!(Named::Fadvise(libc::POSIX_FADV_RANDOM).word(), "POSIX_FADV_RANDOM");
        assert_eq!(Named::Madvise(77).word(), "another madvise");
        assert!(Named::ReadAhead.will_need() && !Named::Madvise(libc::MADV_RANDOM).will_need());
    }
}
