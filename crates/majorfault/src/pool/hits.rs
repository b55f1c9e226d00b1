//! Pages found in memory, counted by each handle in a line of its own: a count that all threads share would move from
//! processor to processor at every pin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of the handles that live.
#[derive(Default)]
pub(super) struct HitLines(Mutex<Vec<Arc<Line>>>);

/// As long as the lines that processors fetch together, so that no two handles share one.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The count of one handle.
pub(super) struct HandleHits {
    line: Arc<Line>,
}

impl HitLines {
    /// A count for a new handle. Lines of handles that are gone are given back.
    pub(super) fn line(&self, ended: &AtomicU64) -> HandleHits {
        self.sum(ended);
        let line = Arc::<Line>::default();
        self.lines().push(Arc::clone(&line));
        HandleHits { line }
    }

    /// What the handles that live counted; those that are gone are added to `ended` once.
    pub(super) fn sum(&self, ended: &AtomicU64) -> u64 {
        let mut sum = 0;
        self.lines().retain(|line| {
            // Acquire: what a handle counted before it went is seen.
            let is_gone = Arc::strong_count(line) == 1;
            std::sync::atomic::fence(Ordering::Acquire);
            let hits = line.0.load(Ordering::Relaxed);
            match is_gone {
                true => drop(ended.fetch_add(hits, Ordering::Relaxed)),
                false => sum += hits,
            }
            !is_gone
        });
        sum
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandleHits {
    /// One more. Exclusive, so that no atomic step is needed.
    #[inline]
    pub(super) fn add(&mut self) {
        self.line.0.store(self.line.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_handles_counted_is_there_once_also_after_they_went() {
        let (lines, ended) = (HitLines::default(), AtomicU64::new(5));
        let (mut one, mut other) = (lines.line(&ended), lines.line(&ended));
        (0..3).for_each(|_| one.add());
        other.add();

        assert_eq!((lines.sum(&ended), ended.load(Ordering::Relaxed)), (4, 5));
        drop(one);
        assert_eq!((lines.sum(&ended), ended.load(Ordering::Relaxed)), (1, 8));
        assert_eq!((lines.sum(&ended), ended.load(Ordering::Relaxed)), (1, 8));
        assert_eq!(lines.lines().len(), 1, "a pool with many short-lived handles stays small");
    }
}
