//! S4: what the thesis built or left as future work that needs more than trials: a launcher, a patched kernel, policies.

use super::{Experiment, Judge, Planned, Row, RowKind, Setting};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.systems",
    title: "Programs beyond memory, and kernel policies",
    source: "Thesis on file access policies for data-intensive applications, chapters 3 to 5",
    question: "Can unmodified programs exceed memory through mapped files, and can the kernel prefetch a column?",
    room: |_| Bytes(0),
    memory: |_| Bytes(0),
    repetitions: |_| 1,
    cells,
    published: &[],
    timeline: None,
    rows: ROWS,
    cannot_show: "All of it: each row says what it waits for.",
};

fn cells(_: &mut Setting<'_>) -> Result<Vec<Planned>> {
    Ok(Vec::new())
}

const LAUNCHER: Judge = Judge::NotBuilt("needs the launcher, which is not built yet");

const ROWS: &[Row] = &[
    Row {
        id: "S4.bwaindex",
        kind: RowKind::Published,
        says: "bwa index on memory-mapped files: same output, a little faster when memory is enough",
        published: "1.04–1.10 x",
        rests_on: &[],
        judge: LAUNCHER,
    },
    Row {
        id: "S4.bwabig",
        kind: RowKind::Published,
        says: "the human genome is indexed on an 8 GB machine that could not do it before",
        published: "3 000 s",
        rests_on: &[],
        judge: LAUNCHER,
    },
    Row {
        id: "S4.bwamem",
        kind: RowKind::Published,
        says: "bwa mem with its index mapped instead of loaded",
        published: "works",
        rests_on: &[],
        judge: LAUNCHER,
    },
    Row {
        id: "S4.bwamem2",
        kind: RowKind::Published,
        says: "the same for bwa-mem2",
        published: "given up",
        rests_on: &[],
        judge: LAUNCHER,
    },
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
