//! S4: what the thesis left as future work that needs more than trials: a patched kernel, other devices.

use super::{Experiment, Judge, Planned, Row, RowKind, Setting};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.systems",
    title: "Kernel policies",
    source: "Thesis on file access policies for data-intensive applications, chapters 6 and 7",
    question: "Can the kernel prefetch a column?",
    room: |_| Bytes(0),
    memory: |_| Bytes(0),
    repetitions: |_| 1,
    cells,
    published: None,
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "All of it: each row names its command.",
};

fn cells(_: &mut Setting<'_>) -> Result<Vec<Planned>> {
    Ok(Vec::new())
}

const ROWS: &[Row] = &[
    Row {
        id: "S4.readahead",
        kind: RowKind::Published,
        says: "a kernel read-ahead policy prefetches a strided read; other programs are unchanged",
        published: "designed, never built",
        rests_on: &[],
        judge: Judge::Built("majorfault kernel test: MADV_STRIDED in a guest with kernel/series, see kernel.md", None),
    },
    Row {
        id: "S4.kernels",
        kind: RowKind::OurOwn,
        says: "the same tests on an up-to-date kernel and on other devices",
        published: "future work",
        rests_on: &[],
        judge: Judge::Built(
            "majorfault reproduce, on each machine; --place guest:kernel=NAME for other kernels and devices, see kernel.md",
            None,
        ),
    },
];
