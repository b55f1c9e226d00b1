//! S4.matrix: mapped files against read and write calls, over sizes, cache states and orders.

use super::samples::{Found, digits, either, per_second, within};
use super::setting::method;
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use crate::record::Record;
use crate::trial::{CacheState, Choice, Direction, Limits, Trial};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.matrix",
    title: "Mapped files against read and write calls",
    source: "Thesis on file access policies for data-intensive applications, tables 4.2 and 4.3",
    question: "Is mmap faster than read(2) and write(2) when both process every byte, in each cell of a matrix?",
    room: |scale| Bytes(sizes(scale).iter().map(|size| size.0).sum::<u64>() * 5 / 4 + (512 << 20)),
    memory: |scale| Bytes(sizes(scale).iter().map(|size| size.0).max().unwrap_or(0) * 3 / 2),
    repetitions: |scale| scale.of(1, 5, 5),
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
        says: "all cells of mode, test, size, cache and order, every byte processed",
        published: "tables 4.2 and 4.3",
        judge: Judge::By(|samples| either(matrix(samples))),
    },
    Row {
        id: "S4.mmapwins",
        says: "mmap is faster in every read cell",
        published: "1.17–4.4 x",
        judge: Judge::By(|samples| either(wins(samples, "read"))),
    },
    Row {
        id: "S4.writes*",
        says: "mmap is faster in every write cell",
        published: "mixed",
        judge: Judge::By(|samples| either(wins(samples, "write"))),
    },
    Row {
        id: "S4.big",
        says: "files larger than memory work, too",
        published: "not shown",
        judge: Judge::By(|samples| either(big(samples))),
    },
];

/// The cells of a test as pairs of mmap and calls.
fn pairs<'a>(samples: &Samples<'a>, test: &str) -> Vec<(&'a str, String)> {
    let begin = format!("mmap {test} ");
    let pair = |cell: &'a str| Some((cell, cell.strip_prefix("mmap ").map(|rest| format!("calls {rest}"))?));
    samples.names().filter(|cell| cell.starts_with(&begin)).filter_map(pair).collect()
}

fn matrix(samples: &Samples<'_>) -> Found<Judged> {
    let cells: Vec<&str> =
        samples.names().filter(|cell| cell.starts_with("mmap ") || cell.starts_with("calls ")).collect();
    if cells.is_empty() {
        return Err(Judged::cannot("the matrix was not run"));
    }
    let refused = cells.iter().filter(|cell| samples.gap(cell).is_some()).count();
    let runs: usize = cells.iter().map(|cell| samples.valid(cell).count()).sum();
    Ok(Judged::new(Verdict::Measured, format!("{} cells, {runs} valid runs", cells.len() - refused))
        .because(format!("{refused} cells refused as not what they say; faultline reproduce S4 --csv FILE has all")))
}

fn wins(samples: &Samples<'_>, test: &str) -> Found<Judged> {
    let mut won = 0;
    let mut undecided = 0;
    let mut ratios = Vec::new();
    for (mapped, calls) in pairs(samples, test) {
        let Ok(found) = samples.ratio(mapped, &calls, &per_second) else { continue };
        match within(&found, [1.0, f64::INFINITY]) {
            Verdict::Holds => won += 1,
            Verdict::DoesNotHold => {}
            _ => undecided += 1,
        }
        ratios.push((found.median, mapped.trim_start_matches("mmap ")));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(lowest), Some(highest)) = (ratios.first(), ratios.last()) else {
        return Err(Judged::cannot(format!("no {test} cell has figures of both")));
    };
    let lost = ratios.len() - won - undecided;
    let verdict = match (lost, undecided) {
        (0, 0) => Verdict::Holds,
        (0, _) => Verdict::CannotTest(format!("{undecided} of {} cells cannot be told apart; run more", ratios.len())),
        _ => Verdict::DoesNotHold,
    };
    Ok(Judged::new(
        verdict,
        format!("{} to {} x; {won} won, {lost} lost, {undecided} undecided", digits(lowest.0), digits(highest.0)),
    )
    .because(format!("lowest {}, highest {}", lowest.1, highest.1)))
}

fn big(samples: &Samples<'_>) -> Found<Judged> {
    let mapped = samples.figure("beyond memory mmap", &per_second)?;
    let calls = samples.figure("beyond memory pread", &per_second)?;
    let record: Option<&Record> = samples.valid("beyond memory mmap").next();
    let times = record
        .map_or(0.0, |record| record.trial.data.size_bytes as f64 / record.trial.memory_bytes.unwrap_or(1) as f64);
    Ok(Judged::new(Verdict::Holds, format!("{} x memory was read whole, every byte right", digits(times)))
        .because(format!("{} blocks/s mapped, {} by calls", digits(mapped.median), digits(calls.median))))
}
