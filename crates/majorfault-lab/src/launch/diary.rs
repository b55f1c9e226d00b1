//! What a run went through, over time: memory, waits and help in bins of equal length, and the phases that they make.
//!
//! There are never more than some hundred bins: when they are full, each two become one.

use majorfault::Nanos;

/// Length of a bin at first.
const FIRST_BIN: u64 = 10_000_000;

/// Bins that are kept at most; an even number.
const MOST_BINS: usize = 512;

/// Parts of a run that are told apart as phases.
const PARTS: usize = 40;

/// What stands there now; pages and faults are sums since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiaryEntry {
    /// Bytes in memory.
    pub usage: u64,
    /// Bytes swapped out.
    pub swapped: u64,
    /// Faults that were seen to wait.
    pub waits: u64,
    /// Pages read in ahead.
    pub fetched: u64,
    /// Of these, passed by their streams.
    pub used: u64,
}

/// What happened in a bin: the most of `usage` and `swapped`, and what the others grew by.
pub type DiaryBin = DiaryEntry;

/// What a run went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunDiary {
    began: Option<Nanos>,
    bin_ns: u64,
    bins: Vec<DiaryBin>,
    last: DiaryEntry,
}

/// How it stood with memory for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Nothing waited for swap.
    Enough,
    /// More pages came in ahead than were waited for.
    Ordered,
    /// More was waited for.
    Unordered,
    /// Some was swapped out, and nobody looked whether it was waited for.
    Unseen,
}

/// A stretch of a run in which memory stood the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPhase {
    /// Nanoseconds from the beginning of the run.
    pub from_ns: u64,
    /// See `from_ns`.
    pub to_ns: u64,
    /// How it stood.
    pub kind: PhaseKind,
    /// What happened in it.
    pub sum: DiaryBin,
}

impl PhaseKind {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            PhaseKind::Enough => "enough",
            PhaseKind::Ordered => "ordered",
            PhaseKind::Unordered => "unordered",
            PhaseKind::Unseen => "unseen",
        }
    }

    /// In words.
    pub fn says(self) -> &'static str {
        match self {
            PhaseKind::Enough => "nothing waited for swap",
            PhaseKind::Ordered => "streams, read in ahead",
            PhaseKind::Unordered => "waits for swap without an order that helped",
            PhaseKind::Unseen => "swapping; waits were not looked at",
        }
    }

    fn of(bin: &DiaryBin, sees_waits: bool) -> PhaseKind {
        match bin {
            bin if !sees_waits && bin.swapped > 0 => PhaseKind::Unseen,
            bin if bin.used > bin.waits => PhaseKind::Ordered,
            bin if bin.waits > 0 => PhaseKind::Unordered,
            _ => PhaseKind::Enough,
        }
    }
}

impl RunDiary {
    /// Notes what stands there `now`.
    pub fn note(&mut self, now: Nanos, entry: DiaryEntry) {
        let began = *self.began.get_or_insert(now);
        self.bin_ns = self.bin_ns.max(FIRST_BIN);
        while (now.0 - began.0) / self.bin_ns >= MOST_BINS as u64 {
            self.bins = self.bins.chunks(2).map(added).collect();
            self.bin_ns *= 2;
        }
        let at = ((now.0 - began.0) / self.bin_ns) as usize;
        let last = std::mem::replace(&mut self.last, entry);
        // Nobody looked in between: memory was as before.
        let quiet = DiaryBin { usage: last.usage, swapped: last.swapped, ..DiaryBin::default() };
        while self.bins.len() <= at {
            self.bins.push(quiet);
        }
        let grown = DiaryBin {
            waits: entry.waits - last.waits,
            fetched: entry.fetched - last.fetched,
            used: entry.used - last.used,
            ..entry
        };
        self.bins[at] = added(&[self.bins[at], grown]);
    }

    /// Length of a bin in nanoseconds.
    pub fn bin_ns(&self) -> u64 {
        self.bin_ns
    }

    /// What happened, in bins.
    pub fn bins(&self) -> &[DiaryBin] {
        &self.bins
    }

    /// The phases of a run whose waits were looked at, or not.
    pub fn phases(&self, sees_waits: bool) -> Vec<RunPhase> {
        let width = self.bins.len().div_ceil(PARTS).max(1);
        let mut phases: Vec<RunPhase> = Vec::new();
        for (number, bins) in (0..).zip(self.bins.chunks(width)) {
            let sum = added(bins);
            let kind = PhaseKind::of(&sum, sees_waits);
            let from_ns = number * width as u64 * self.bin_ns;
            let to_ns = from_ns + bins.len() as u64 * self.bin_ns;
            match phases.last_mut().filter(|last| last.kind == kind) {
                Some(last) => (last.to_ns, last.sum) = (to_ns, added(&[last.sum, sum])),
                None => phases.push(RunPhase { from_ns, to_ns, kind, sum }),
            }
        }
        phases
    }
}

fn added(bins: &[DiaryBin]) -> DiaryBin {
    bins.iter().fold(DiaryBin::default(), |sum, bin| DiaryBin {
        usage: sum.usage.max(bin.usage),
        swapped: sum.swapped.max(bin.swapped),
        waits: sum.waits + bin.waits,
        fetched: sum.fetched + bin.fetched,
        used: sum.used + bin.used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A diary of a run in which such things were noted at such milliseconds.
    fn diary(notes: &[(u64, DiaryEntry)]) -> RunDiary {
        let mut diary = RunDiary::default();
        notes.iter().for_each(|(ms, entry)| diary.note(Nanos(7 + ms * MS), *entry));
        diary
    }

    fn entry(usage: u64, waits: u64, used: u64) -> DiaryEntry {
        DiaryEntry { usage, waits, used, fetched: used, ..DiaryEntry::default() }
    }

    #[test]
    fn bins_have_the_most_memory_and_what_the_sums_grew_by() {
        let diary = diary(&[(0, entry(5, 0, 0)), (3, entry(9, 1, 0)), (9, entry(6, 4, 0)), (31, entry(6, 5, 2))]);

        assert_eq!(diary.bin_ns(), 10 * MS);
        assert_eq!(diary.bins(), [entry(9, 4, 0), entry(6, 0, 0), entry(6, 0, 0), entry(6, 1, 2)]);
    }

    #[test]
    fn a_long_run_has_longer_bins_and_loses_nothing() {
        let notes: Vec<(u64, DiaryEntry)> = (0..6000).map(|at| (at * 10, entry(at, at, 0))).collect();

        let diary = diary(&notes);

        assert_eq!((diary.bin_ns(), diary.bins().len()), (160 * MS, 375));
        assert_eq!(diary.bins().iter().map(|bin| bin.waits).sum::<u64>(), 5999);
        assert_eq!(diary.bins().iter().map(|bin| bin.usage).max(), Some(5999));
    }

    #[test]
    fn phases_are_told_by_what_was_waited_for_and_what_came_in_ahead() {
        let diary = diary(&[(0, entry(1, 0, 0)), (15, entry(1, 7, 0)), (25, entry(1, 8, 9)), (35, entry(1, 9, 90))]);

        let told: Vec<_> = diary.phases(true).iter().map(|it| (it.from_ns / MS, it.to_ns / MS, it.kind)).collect();

        let [enough, unordered, ordered] = [PhaseKind::Enough, PhaseKind::Unordered, PhaseKind::Ordered];
        assert_eq!(told, [(0, 10, enough), (10, 20, unordered), (20, 40, ordered)]);
        assert_eq!(diary.phases(true)[2].sum.used, 90);
    }

    #[test]
    fn waits_that_nobody_looked_at_are_not_told_as_none() {
        let swapped = DiaryEntry { swapped: 1, ..entry(1, 0, 0) };
        let diary = diary(&[(0, entry(1, 0, 0)), (15, swapped)]);

        let kinds = |sees_waits| diary.phases(sees_waits).iter().map(|phase| phase.kind).collect::<Vec<_>>();

        assert_eq!(kinds(false), [PhaseKind::Enough, PhaseKind::Unseen]);
        assert_eq!(kinds(true), [PhaseKind::Enough]);
    }

    #[test]
    fn a_run_of_any_length_has_few_phases() {
        let flips: Vec<(u64, DiaryEntry)> =
            (0..500).map(|at| (at * 10, entry(1, at / 2, at.div_ceil(2) * 2))).collect();

        assert!(diary(&flips).phases(true).len() <= 40);
        assert!(RunDiary::default().phases(true).is_empty());
    }
}
