//! S4.column: a database-like program that reads one column, or one row, of a table stored by rows or by columns.

use super::claim::{Claim, Test, from, of};
use super::samples::{Found, Samples, Shown, digits, milliseconds, plain, times};
use super::setting::method;
use super::{Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::trial::{Choice, Data, Limits, Trial};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.column",
    title: "One column of a row-oriented file",
    source: "Thesis on file access policies for data-intensive applications, database-like program",
    question: "What does a query over one column cost in a file stored by rows, through each access method?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |_| Bytes::mib(256),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: None,
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "A query engine's own work. Rows are 256 KiB and a value has 64 bytes, so that read-ahead cannot bridge rows.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(256), Bytes::gib(1), Bytes::gib(8))
}

/// Bytes of a row, and of one value in it.
const ROW: u64 = 256 << 10;
const VALUE: u64 = 64;

const METHODS: &[&str] = &[
    "mmap",
    "mmap:advice=random",
    "mmap:advice=sequential",
    "mmap:policy=learned",
    "mmap:policy=strided,stride=256k",
    "pread",
    "direct",
    "uring:depth=64",
    "uring:depth=64,direct=off",
    "pool:depth=64",
];

/// Those that have nothing of their own to do for a single row, and take long to find that out.
const BY_COLUMN_ONLY: &[&str] = &["mmap:advice=sequential", "mmap:policy=learned", "mmap:policy=strided,stride=256k"];

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let data = setting.data(size(setting.scale), 1)?;
    let rows = data.size_bytes / ROW;
    let whole = Limits { runtime_ns: None, accesses: None, time_based: false };
    let mut cells = Vec::new();
    for text in METHODS {
        let base = setting.reads(&data, method(text), 0.0);
        // Stored by rows: one value of every row.
        let column = Trial {
            workload: Choice::plain("strided").with("stride", Bytes(ROW)),
            block_bytes: VALUE,
            limits: whole,
            iodepth: 64,
            ..base.clone()
        };
        cells.push(Planned { name: format!("column by rows, {text}"), trial: column });
        // Stored by columns: the same values lie together.
        let together = Data { size_bytes: (rows * VALUE).next_multiple_of(4096), ..data.clone() };
        let packed = Trial {
            data: together,
            workload: Choice::plain("sequential"),
            block_bytes: 4096,
            limits: whole,
            ..base.clone()
        };
        cells.push(Planned { name: format!("column by columns, {text}"), trial: packed });
        if BY_COLUMN_ONLY.contains(text) {
            continue;
        }
        // One row, stored by rows: one extent; stored by columns: a value in each of many places.
        let row = Trial { block_bytes: ROW, limits: Limits { accesses: Some(rows / 4), ..whole }, ..base.clone() };
        cells.push(Planned { name: format!("row by rows, {text}"), trial: row });
        let scattered = Trial {
            workload: Choice::plain("gather").with("indices", ROW / VALUE),
            block_bytes: VALUE,
            limits: Limits { accesses: Some(ROW / VALUE), ..whole },
            iodepth: 64,
            ..base
        };
        cells.push(Planned { name: format!("row by columns, {text}"), trial: scattered });
    }
    Ok(cells)
}

const PLAIN: &str = "column by rows, mmap";
const RANDOM: &str = "column by rows, mmap:advice=random";
const LEARNED: &str = "column by rows, mmap:policy=learned";
const QUEUE: &str = "column by rows, uring:depth=64";

const ROWS: &[Row] = &[
    Row {
        id: "S4.column",
        kind: RowKind::Published,
        says: "a column of a row-oriented file read through mmap",
        published: "a program, no figures",
        rests_on: &[],
        judge: Judge::Measured(column),
    },
    Row {
        id: "S4.userpolicy",
        kind: RowKind::Control,
        says: "data-access strategies at application level make a column at least three times as fast through mmap",
        published: "future work",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(LEARNED, Figure::PerSecond), of(PLAIN, Figure::PerSecond), from(3.0))],
            },
            policy,
        ),
    },
    Row {
        id: "S4.columnwaste*",
        kind: RowKind::Control,
        says: "through plain mmap a column of a row-oriented file reads at least ten times the pages it needs",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::figure(of(PLAIN, Figure::PagesRead), from(10.0))] },
            waste,
        ),
    },
    Row {
        id: "S4.columnbest*",
        kind: RowKind::Control,
        says: "a queue of explicit reads gets a column at least twice as fast as mmap",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(QUEUE, Figure::PerSecond), of(PLAIN, Figure::PerSecond), from(2.0))],
            },
            best,
        ),
    },
    Row {
        id: "S4.layout*",
        kind: RowKind::Control,
        says: "stored by columns, a column is at least ten times faster through mmap",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of(PLAIN, Figure::Total),
                    of("column by columns, mmap", Figure::Total),
                    from(10.0),
                )],
            },
            layout,
        ),
    },
    Row {
        id: "S4.row*",
        kind: RowKind::Control,
        says: "stored by columns, one row is slower than stored by rows",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                // A row stored by rows is one access, stored by columns as many as it has values: the bytes are the same.
                tests: &[Test::ratio(
                    of("row by columns, mmap", Figure::PerByte),
                    of("row by rows, mmap", Figure::PerByte),
                    from(1.0),
                )],
            },
            row,
        ),
    },
];

fn column(samples: &Samples<'_>) -> Found<Shown> {
    let time = samples.figure(PLAIN, Figure::Total)?;
    let faults = samples.figure(PLAIN, Figure::Counter("major_faults"))?;
    let pages = samples.figure(PLAIN, Figure::PagesRead)?;
    Ok(Shown::new(milliseconds(&time)).because(format!(
        "{} major faults, {} pages read per page needed",
        digits(faults.median),
        digits(pages.median)
    )))
}

fn policy(samples: &Samples<'_>) -> Found<Shown> {
    let learned = samples.ratio(LEARNED, PLAIN, Figure::PerSecond)?;
    let given = samples.ratio("column by rows, mmap:policy=strided,stride=256k", PLAIN, Figure::PerSecond)?;
    let limit = samples.ratio(LEARNED, QUEUE, Figure::PerSecond)?;
    let pages = samples.figure(LEARNED, Figure::PagesRead)?;
    Ok(Shown::new(format!("learned {}, given {}", times(&learned), times(&given)))
        .because(format!("{} pages read per page needed", digits(pages.median)))
        .control(format!("learned {} of a queue of 64 explicit reads", times(&limit))))
}

fn waste(samples: &Samples<'_>) -> Found<Shown> {
    let pages = samples.figure(PLAIN, Figure::PagesRead)?;
    let random = samples.figure(RANDOM, Figure::PagesRead)?;
    Ok(Shown::new(format!("{} pages per page needed", plain(&pages)))
        .control(format!("MADV_RANDOM: {}", digits(random.median))))
}

fn best(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(QUEUE, PLAIN, Figure::PerSecond)?;
    let random = samples.ratio(RANDOM, PLAIN, Figure::PerSecond)?;
    Ok(Shown::new(times(&found)).control(format!("MADV_RANDOM {}", times(&random))))
}

fn layout(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(PLAIN, "column by columns, mmap", Figure::Total)?;
    let uring = samples.ratio(QUEUE, "column by columns, uring:depth=64", Figure::Total)?;
    Ok(Shown::new(times(&found)).control(format!("io_uring {}", times(&uring))))
}

fn row(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio("row by columns, mmap", "row by rows, mmap", Figure::PerByte)?;
    let uring = samples.ratio("row by columns, uring:depth=64", "row by rows, uring:depth=64", Figure::PerByte)?;
    Ok(Shown::new(times(&found)).control(format!("io_uring {}", times(&uring))))
}
