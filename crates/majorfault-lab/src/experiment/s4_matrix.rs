//! S4.matrix: mapped files against read and write calls, over sizes, cache states and orders.

use super::claim::{Claim, Test, from, of};
use super::samples::{Found, Gap, Samples, Shown, digits};
use super::setting::method;
use super::{Condition, Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::trial::{CacheState, Choice, Direction, Limits, Trial};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.matrix",
    title: "Mapped files against read and write calls",
    source: "Thesis on file access policies for data-intensive applications, tables 4.2 and 4.3",
    question: "Is mmap faster than read(2) and write(2) when both process every byte, in each cell of a matrix?",
    room: |scale| Bytes(sizes(scale).iter().map(|size| size.0).sum::<u64>() * 5 / 4 + (512 << 20)),
    memory: |scale| Bytes(sizes(scale).iter().map(|size| size.0).max().unwrap_or(0) * 3 / 2),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: &[],
    timeline: None,
    rows: ROWS,
    cannot_show: "The thesis's machine and kernel. A cold cell whose device bytes do not match is refused, where the thesis's \
                  cold and warm figures were equal to three digits.",
};

fn sizes(scale: Scale) -> &'static [Bytes] {
    const QUICK: &[Bytes] = &[Bytes::mib(32)];
    const STANDARD: &[Bytes] = &[Bytes::mib(256)];
    const FULL: &[Bytes] = &[Bytes::mib(256), Bytes::gib(1), Bytes::gib(4)];
    scale.of(QUICK, STANDARD, FULL)
}

/// The thesis's block.
const BLOCK: u64 = 8192;

fn name(mode: &str, test: &str, size: Bytes, cache: &str, order: &str) -> String {
    format!("{mode} {test} {size} {cache} {order}")
}

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let mut cells = Vec::new();
    for size in sizes(setting.scale) {
        let data = setting.data(*size, 1)?;
        for test in ["read", "write"] {
            for cache in ["cold", "warm"] {
                for (order, workload) in [("sequential", "sequential"), ("random", "uniform")] {
                    for (mode, arm) in [("mmap", "mmap"), ("calls", "pread")] {
                        let trial = Trial {
                            workload: Choice::plain(workload),
                            direction: if test == "read" { Direction::Read } else { Direction::Write },
                            block_bytes: BLOCK,
                            // As many accesses as there are blocks, whatever the order.
                            limits: Limits { runtime_ns: None, accesses: Some(size.0 / BLOCK), time_based: false },
                            cache: if cache == "cold" { CacheState::Cold } else { CacheState::Warm },
                            ..setting.reads(&data, method(arm), 0.0)
                        };
                        cells.push(Planned { name: name(mode, test, *size, cache, order), trial });
                    }
                }
            }
        }
    }
    let big = setting.data(setting.scale.of(Bytes::mib(128), Bytes::mib(512), Bytes::gib(16)), 1)?;
    for mode in ["mmap", "pread"] {
        let trial = Trial {
            workload: Choice::plain("sequential"),
            block_bytes: BLOCK,
            limits: Limits { runtime_ns: None, accesses: None, time_based: false },
            memory_bytes: Some((big.size_bytes / 4).max(32 << 20)),
            ..setting.reads(&big, method(mode), 0.0)
        };
        cells.push(Planned { name: format!("beyond memory {mode}"), trial });
    }
    Ok(cells)
}

const ROWS: &[Row] = &[
    Row {
        id: "S4.matrix",
        kind: RowKind::Published,
        says: "all cells of mode, test, size, cache and order, every byte processed",
        published: "tables 4.2 and 4.3",
        rests_on: &[],
        judge: Judge::Measured(matrix),
    },
    Row {
        id: "S4.mmapwins",
        kind: RowKind::Published,
        says: "mmap is faster in every read cell",
        published: "1.17–4.4 x",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("mmap read *", Figure::PerSecond),
                    of("calls read *", Figure::PerSecond),
                    from(1.0),
                )],
            },
            |samples| wins(samples, "read"),
        ),
    },
    Row {
        id: "S4.writes*",
        kind: RowKind::Control,
        says: "mmap is faster in every write cell",
        published: "mixed",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("mmap write *", Figure::PerSecond),
                    of("calls write *", Figure::PerSecond),
                    from(1.0),
                )],
            },
            |samples| wins(samples, "write"),
        ),
    },
    Row {
        id: "S4.big",
        kind: RowKind::OurOwn,
        says: "files larger than memory work as well: twice the limit and more is read completely, every byte right",
        published: "not shown",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of(BIG_MAPPED, Figure::WholeAndRight), [1.0, 1.0]),
                    Test::every_run(of(BIG_CALLS, Figure::WholeAndRight), [1.0, 1.0]),
                    Test::every_run(of(BIG_MAPPED, Figure::DataOverMemory), from(2.0)),
                    Test::every_run(of(BIG_CALLS, Figure::DataOverMemory), from(2.0)),
                ],
            },
            big,
        ),
    },
];

const BIG_MAPPED: &str = "beyond memory mmap";
const BIG_CALLS: &str = "beyond memory pread";

fn matrix(samples: &Samples<'_>) -> Found<Shown> {
    let cells: Vec<&str> =
        samples.names().filter(|cell| cell.starts_with("mmap ") || cell.starts_with("calls ")).collect();
    if cells.is_empty() {
        return Err(Gap::NoRun("the matrix was not run".to_owned()));
    }
    let refused = cells.iter().filter(|cell| samples.gap(cell).is_some()).count();
    let runs: usize = cells.iter().map(|cell| samples.valid(cell).count()).sum();
    Ok(Shown::new(format!("{} cells, {runs} valid runs", cells.len() - refused))
        .because(format!("{refused} cells refused as not what they say; majorfault reproduce S4 --csv FILE has all")))
}

/// Lowest and highest ratio of mmap to calls over the cells of a test.
fn wins(samples: &Samples<'_>, test: &str) -> Found<Shown> {
    let begin = format!("mmap {test} ");
    let ratio = |cell: &'_ str| {
        let rest = cell.strip_prefix(&begin)?.to_owned();
        let found = samples.ratio(cell, &format!("calls {test} {rest}"), Figure::PerSecond).ok()?;
        Some((found.median, rest))
    };
    let mut ratios: Vec<(f64, String)> = samples.names().filter_map(ratio).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(lowest), Some(highest)) = (ratios.first(), ratios.last()) else {
        return Err(Gap::NoRun(format!("no {test} cell has figures of both")));
    };
    Ok(Shown::new(format!("{} to {} x in {} cells", digits(lowest.0), digits(highest.0), ratios.len()))
        .because(format!("lowest {}, highest {}", lowest.1, highest.1)))
}

fn big(samples: &Samples<'_>) -> Found<Shown> {
    let mapped = samples.figure(BIG_MAPPED, Figure::PerSecond)?;
    let calls = samples.figure(BIG_CALLS, Figure::PerSecond)?;
    let over = samples.figure(BIG_MAPPED, Figure::DataOverMemory)?;
    Ok(Shown::new(format!("{} x memory", digits(over.median))).because(format!(
        "{} blocks/s mapped, {} by calls",
        digits(mapped.median),
        digits(calls.median)
    )))
}
