//! How long streams were that ended, and so whether one that has come so far will go on.

use super::stream::FaultStream;

/// Lengths are counted by powers of two.
const CLASSES: usize = 24;

/// Ended streams that are remembered; beyond, all counts are halved.
const REMEMBERED: f64 = 256.0;

/// Streams that are taken to have gone on before any has ended.
const TRUST: f64 = 4.0;

/// Lengths of ended streams.
#[derive(Debug, Default)]
pub(super) struct RunLengths {
    counts: [f64; CLASSES],
}

impl RunLengths {
    /// A stream has ended. One for which nothing was read in says nothing: its pages were in memory.
    pub fn note(&mut self, stream: &FaultStream) {
        if stream.is_useful() {
            self.add(stream.run());
        }
    }

    fn add(&mut self, run: i64) {
        self.counts[class(run)] += 1.0;
        if self.counts.iter().sum::<f64>() > REMEMBERED {
            self.counts.iter_mut().for_each(|count| *count /= 2.0);
        }
    }

    /// Whether most of the streams that came as far as `run` steps went on to twice as many.
    pub fn goes_on(&self, run: i64) -> bool {
        let class = class(run);
        let farther: f64 = self.counts[class + 1..].iter().sum();
        (TRUST + farther) / (TRUST + farther + self.counts[class]) > 0.5
    }
}

fn class(run: i64) -> usize {
    (run.max(1).ilog2() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_go_on_until_most_have_ended_there() {
        let mut lengths = RunLengths::default();
        assert!(lengths.goes_on(16));

        (0..5).for_each(|_| lengths.add(16));

        assert!(!lengths.goes_on(16) && !lengths.goes_on(31));
        assert!(lengths.goes_on(8) && lengths.goes_on(32));
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let mut lengths = RunLengths::default();
        (0..200).for_each(|_| lengths.add(16));
        assert!(!lengths.goes_on(16));

        (0..1000).for_each(|_| lengths.add(4096));

        assert!(lengths.goes_on(16));
    }
}
