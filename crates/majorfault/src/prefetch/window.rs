//! A fixed number of bytes ahead of the last access, whatever the order: for programs that know that they read front to back.

use crate::error::Result;
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};
use crate::units::Bytes;

pub(super) const POLICY: Policy = Policy {
    name: "window",
    summary: "a window of bytes ahead of the last access: sequential reading, announced",
    underneath: &[("advice", "random")],
    by: By::Caller,
    budget: Ahead::Bytes(8 << 20),
    params: Window::declared,
    start: Some(start::<Window>),
};

crate::params! {
    /// How far ahead.
    #[non_exhaustive]
    pub struct Window {
        /// Bytes ahead; 4 MiB keep a fast disk busy, and more would delay other programs' reads.
        window: Bytes = Bytes::mib(4),
    }
}

struct WindowPredictor {
    bytes: u64,
    /// End of the last access.
    position: u64,
    /// End of what was wanted.
    edge: u64,
}

impl PolicyOptions for Window {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(WindowPredictor::new(self.window.0.min(scene.budget))))
    }
}

impl WindowPredictor {
    fn new(bytes: u64) -> WindowPredictor {
        WindowPredictor { bytes, position: 0, edge: 0 }
    }
}

impl Predictor for WindowPredictor {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        let end = extent.offset + extent.length as u64;
        let is_near = end + self.bytes >= self.position && end <= self.edge;
        if !is_near {
            (self.position, self.edge) = (end, end);
        }
        self.position = self.position.max(end);
        // Half a window at a time: few calls, and the device never idles.
        let until = self.position + self.bytes;
        if self.edge + self.bytes / 2 <= until && self.edge < until {
            wanted.push(Extent { offset: self.edge, length: (until - self.edge) as usize });
            self.edge = until;
        }
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        Ok(Box::new(WindowPredictor::new(self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_by_halves() {
        let mut window = WindowPredictor::new(8192);
        let mut wanted = Vec::new();

        let ends: Vec<Vec<(u64, usize)>> = (0..4)
            .map(|block| {
                window.observe(Extent { offset: block * 4096, length: 4096 }, &mut wanted);
                wanted.drain(..).map(|extent| (extent.offset, extent.length)).collect()
            })
            .collect();

        assert_eq!(ends, [vec![(4096, 8192)], vec![(12288, 4096)], vec![(16384, 4096)], vec![(20480, 4096)]]);
    }

    #[test]
    fn nothing_is_wanted_before_half_a_window_was_used() {
        let mut window = WindowPredictor::new(8192);
        let mut wanted = Vec::new();

        let ends: Vec<usize> = (0..9)
            .map(|block| {
                window.observe(Extent { offset: block * 1024, length: 1024 }, &mut wanted);
                wanted.drain(..).map(|extent| extent.length).sum()
            })
            .collect();

        assert_eq!(ends, [8192, 0, 0, 0, 4096, 0, 0, 0, 4096]);
    }

    #[test]
    fn the_same_block_again_wants_nothing_again() {
        let mut window = WindowPredictor::new(1 << 20);
        let mut wanted = Vec::new();
        window.observe(Extent { offset: 0, length: 4096 }, &mut wanted);
        wanted.clear();

        window.observe(Extent { offset: 0, length: 4096 }, &mut wanted);

        assert!(wanted.is_empty());
    }

    #[test]
    fn an_access_a_window_behind_is_near_and_one_farther_begins_anew() {
        let wanted_at = |end: u64| {
            let mut window = WindowPredictor::new(8192);
            let mut wanted = Vec::new();
            window.observe(Extent { offset: 100_000, length: 1 }, &mut wanted);
            wanted.clear();
            window.observe(Extent { offset: end - 1, length: 1 }, &mut wanted);
            wanted.iter().map(|extent| (extent.offset, extent.length)).collect::<Vec<_>>()
        };

        assert_eq!(wanted_at(100_001 - 8192), []);
        assert_eq!(wanted_at(100_000 - 8192), [(100_000 - 8192, 8192)]);
        assert_eq!(wanted_at(100_001 + 8193), [(108_194, 8192)], "past what was wanted: from there on");
    }

    #[test]
    fn threads_have_windows_of_their_own_and_an_empty_one_wants_nothing() {
        let (mut one, mut wanted) = (WindowPredictor::new(8192), Vec::new());
        one.observe(Extent { offset: 0, length: 4096 }, &mut wanted);
        wanted.clear();

        one.sibling().unwrap().observe(Extent { offset: 0, length: 4096 }, &mut wanted);
        assert_eq!(wanted, [Extent { offset: 4096, length: 8192 }]);
        wanted.clear();
        WindowPredictor::new(0).observe(Extent { offset: 0, length: 4096 }, &mut wanted);
        assert_eq!(wanted, []);
    }
}
