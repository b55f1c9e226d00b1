//! What the thesis prints of the matrix: tables 4.2 and 4.3, cell by cell.

use crate::stats::Spread;

/// A line of both tables: a state of the cache, an order, a test and a mode.
pub(super) struct TableLine {
    /// `cold` or `warm`.
    pub cache: &'static str,
    /// `sequential` or `random`.
    pub order: &'static str,
    /// `read` or `write`.
    pub test: &'static str,
    /// As our cells call it: `mmap` or `calls`.
    pub mode: &'static str,
    /// Table 4.2, the Xeon server: mean and standard deviation for each of [`SIZES`].
    xeon: [(f64, f64); 3],
    /// Table 4.3, the i7 laptop: the mean; "standard deviation omitted as it is similar".
    laptop: [f64; 3],
}

/// The published sizes, as our cells call them: 256 MB, 1 GB, 4 GB.
pub(super) const SIZES: [&str; 3] = ["256m", "1g", "4g"];

/// The tables' names.
pub(super) const TABLES: &[&str] = &["table 4.2", "4.3"];

impl TableLine {
    /// Both tables' figures of a size; nothing of other sizes.
    pub(super) fn of(&self, size: &str) -> Vec<Option<Spread>> {
        let Some(index) = SIZES.iter().position(|known| *known == size) else { return vec![None; TABLES.len()] };
        let (mean, deviation) = self.xeon[index];
        let laptop = Spread { mean: self.laptop[index], deviation: None };
        vec![Some(Spread { mean, deviation: Some(deviation) }), Some(laptop)]
    }
}

/// The line of a cell.
pub(super) fn line(mode: &str, test: &str, cache: &str, order: &str) -> Option<&'static TableLine> {
    LINES.iter().find(|line| [line.mode, line.test, line.cache, line.order] == [mode, test, cache, order])
}

const fn row([cache, order, test, mode]: [&'static str; 4], xeon: [(f64, f64); 3], laptop: [f64; 3]) -> TableLine {
    TableLine { cache, order, test, mode, xeon, laptop }
}

/// In the order of the tables, in GB/s.
#[rustfmt::skip]
pub(super) const LINES: &[TableLine] = &[
    row(["cold", "sequential", "read", "mmap"], [(0.269, 0.000), (0.227, 0.001), (0.434, 0.002)], [0.507, 0.509, 1.028]),
    row(["cold", "sequential", "read", "calls"], [(0.220, 0.005), (0.085, 0.005), (0.121, 0.002)], [0.375, 0.359, 0.352]),
    row(["cold", "sequential", "write", "mmap"], [(2.251, 0.151), (2.085, 0.151), (0.706, 0.592)], [2.791, 0.917, 0.363]),
    row(["cold", "sequential", "write", "calls"], [(2.023, 0.196), (2.009, 0.196), (0.812, 0.435)], [5.04, 0.301, 0.269]),
    row(["warm", "sequential", "read", "mmap"], [(0.269, 0.000), (0.256, 0.008), (0.500, 0.018)], [0.506, 0.507, 1.01]),
    row(["warm", "sequential", "read", "calls"], [(0.227, 0.001), (0.229, 0.000), (0.229, 0.001)], [0.39, 0.084, 0.071]),
    row(["warm", "sequential", "write", "mmap"], [(2.026, 0.116), (2.186, 0.192), (0.896, 0.508)], [3.431, 2.578, 0.49]),
    row(["warm", "sequential", "write", "calls"], [(1.835, 0.209), (1.917, 0.172), (0.958, 0.501)], [4.237, 1.031, 0.316]),
    row(["cold", "random", "read", "mmap"], [(0.267, 0.000), (0.237, 0.011), (0.465, 0.019)], [0.507, 0.511, 1.027]),
    row(["cold", "random", "read", "calls"], [(0.153, 0.004), (0.155, 0.001), (0.106, 0.003)], [0.418, 0.415, 0.417]),
    row(["cold", "random", "write", "mmap"], [(2.749, 0.303), (2.568, 0.259), (2.039, 0.177)], [2.862, 0.78, 0.368]),
    row(["cold", "random", "write", "calls"], [(1.855, 0.172), (1.711, 0.129), (1.271, 0.177)], [5.504, 0.332, 0.316]),
    row(["warm", "random", "read", "mmap"], [(0.267, 0.000), (0.247, 0.007), (0.494, 0.005)], [0.504, 0.504, 1.009]),
    row(["warm", "random", "read", "calls"], [(0.229, 0.000), (0.228, 0.001), (0.228, 0.000)], [0.415, 0.413, 0.413]),
    row(["warm", "random", "write", "mmap"], [(2.753, 0.143), (2.605, 0.203), (2.231, 0.221)], [3.765, 2.068, 0.498]),
    row(["warm", "random", "write", "calls"], [(1.879, 0.202), (1.757, 0.157), (1.448, 0.255)], [4.802, 1.088, 0.3906]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cell of a test: mmap's figure over that of the calls, in one of the tables.
    fn ratios(test: &str, table: usize) -> Vec<(String, f64)> {
        let of = |line: &TableLine, size: &str| line.of(size)[table].unwrap().mean;
        let mut found = Vec::new();
        for mapped in LINES.iter().filter(|line| line.mode == "mmap" && line.test == test) {
            let calls = line("calls", test, mapped.cache, mapped.order).unwrap();
            let cells = SIZES
                .map(|size| (format!("{size} {} {}", mapped.cache, mapped.order), of(mapped, size) / of(calls, size)));
            found.extend(cells);
        }
        found
    }

    fn ends(ratios: &[(String, f64)]) -> [String; 2] {
        let mut sorted: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
        sorted.sort_by(f64::total_cmp);
        [sorted[0], sorted[sorted.len() - 1]].map(|ratio| format!("{ratio:.2}"))
    }

    #[test]
    fn the_published_read_cells_are_all_won_by_mmap() {
        // 0.247 / 0.228, 0.465 / 0.106; 0.507 / 0.418, 1.01 / 0.071.
        assert_eq!(ends(&ratios("read", 0)), ["1.08", "4.39"]);
        assert_eq!(ends(&ratios("read", 1)), ["1.21", "14.23"]);
        assert_eq!((ratios("read", 0).len(), ratios("read", 1).len()), (12, 12));
    }

    #[test]
    fn the_published_write_cells_that_calls_win_are_4_gb_in_order_and_256_mb_on_the_laptop() {
        let lost = |table: usize| -> Vec<String> {
            ratios("write", table).into_iter().filter(|(_, ratio)| *ratio < 1.0).map(|(cell, _)| cell).collect()
        };

        assert_eq!(lost(0), ["4g cold sequential", "4g warm sequential"]);
        let small = ["256m cold sequential", "256m warm sequential", "256m cold random", "256m warm random"];
        assert_eq!(lost(1), small);
    }

    #[test]
    fn the_server_s_deviations_stand_beside_its_means_and_the_laptop_has_none() {
        let cell = line("mmap", "write", "cold", "sequential").unwrap().of("4g");

        assert_eq!(cell[0], Some(Spread { mean: 0.706, deviation: Some(0.592) }));
        assert_eq!(cell[1], Some(Spread { mean: 0.363, deviation: None }));
        assert_eq!(line("mmap", "read", "cold", "random").unwrap().of("32m"), [None, None]);
    }
}
