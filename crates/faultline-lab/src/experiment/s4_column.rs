//! S4.column: a database-like program that reads one column, or one row, of a table stored by rows or by columns.

use super::samples::{Found, counted, digits, either, per_second, times, within};
use super::setting::method;
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use crate::record::Record;
use crate::trial::{Choice, Data, Limits, Trial};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.column",
    title: "One column of a row-oriented file",
    source: "Thesis on file access policies for data-intensive applications, database-like program",
    question: "What does a query over one column cost in a file stored by rows, through each access method?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |_| Bytes::mib(256),
    repetitions: |scale| scale.of(1, 5, 5),
    cells,
    published: &[],
    timeline: None,
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

const ROWS: &[Row] = &[
    Row {
        id: "S4.column",
        says: "a column of a row-oriented file read through mmap",
        published: "a program, no figures",
        judge: Judge::By(|samples| either(column(samples))),
    },
    Row {
        id: "S4.userpolicy",
        says: "data-access strategies at application level make a column at least three times as fast through mmap",
        published: "future work",
        judge: Judge::By(|samples| either(policy(samples))),
    },
    Row {
        id: "S4.columnwaste*",
        says: "through plain mmap a column of a row-oriented file reads at least ten times the pages it needs",
        published: "–",
        judge: Judge::By(|samples| either(waste(samples))),
    },
    Row {
        id: "S4.columnbest*",
        says: "a queue of explicit reads gets a column at least twice as fast as mmap",
        published: "–",
        judge: Judge::By(|samples| either(best(samples))),
    },
    Row {
        id: "S4.layout*",
        says: "stored by columns, a column is at least ten times faster through mmap",
        published: "–",
        judge: Judge::By(|samples| either(layout(samples))),
    },
    Row {
        id: "S4.row*",
        says: "stored by columns, one row is slower than stored by rows",
        published: "–",
        judge: Judge::By(|samples| either(row(samples))),
    },
];

/// Pages that the device gave for each page that holds a value.
fn pages_read(record: &Record) -> Option<f64> {
    let read = counted("visit", &["process_read_bytes"])(record)?;
    Some(read / (record.accesses() as f64 * 4096.0))
}

fn seconds(record: &Record) -> Option<f64> {
    super::samples::total_s(record)
}

fn column(samples: &Samples<'_>) -> Found<Judged> {
    let time = samples.figure("column by rows, mmap", &seconds)?;
    let faults = samples.figure("column by rows, mmap", &counted("visit", &["major_faults"]))?;
    let pages = samples.figure("column by rows, mmap", &pages_read)?;
    Ok(Judged::new(Verdict::Measured, super::samples::milliseconds(&time)).because(format!(
        "{} major faults, {} pages read per page needed",
        digits(faults.median),
        digits(pages.median)
    )))
}

fn policy(samples: &Samples<'_>) -> Found<Judged> {
    let plain = "column by rows, mmap";
    let learned = samples.ratio("column by rows, mmap:policy=learned", plain, &per_second)?;
    let given = samples.ratio("column by rows, mmap:policy=strided,stride=256k", plain, &per_second)?;
    let limit = samples.ratio("column by rows, mmap:policy=learned", "column by rows, uring:depth=64", &per_second)?;
    let pages = samples.figure("column by rows, mmap:policy=learned", &pages_read)?;
    Ok(Judged::new(
        within(&learned, [3.0, f64::INFINITY]),
        format!("learned {}, given {}", times(&learned), times(&given)),
    )
    .because(format!("{} pages read per page needed", digits(pages.median)))
    .control(format!("learned {} of a queue of 64 explicit reads", times(&limit))))
}

fn waste(samples: &Samples<'_>) -> Found<Judged> {
    let plain = samples.figure("column by rows, mmap", &pages_read)?;
    let random = samples.figure("column by rows, mmap:advice=random", &pages_read)?;
    Ok(Judged::new(within(&plain, [10.0, f64::INFINITY]), format!("{} pages per page needed", digits(plain.median)))
        .control(format!("MADV_RANDOM: {}", digits(random.median))))
}

fn best(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("column by rows, uring:depth=64", "column by rows, mmap", &per_second)?;
    let random = samples.ratio("column by rows, mmap:advice=random", "column by rows, mmap", &per_second)?;
    Ok(Judged::new(within(&found, [2.0, f64::INFINITY]), times(&found))
        .control(format!("MADV_RANDOM {}", times(&random))))
}

fn layout(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("column by rows, mmap", "column by columns, mmap", &seconds)?;
    let uring = samples.ratio("column by rows, uring:depth=64", "column by columns, uring:depth=64", &seconds)?;
    Ok(Judged::new(within(&found, [10.0, f64::INFINITY]), times(&found)).control(format!("io_uring {}", times(&uring))))
}

fn row(samples: &Samples<'_>) -> Found<Judged> {
    // A row stored by rows is one access, stored by columns as many as it has values.
    let one_row = |record: &Record| {
        let rows = if record.trial.block_bytes == ROW { record.accesses() as f64 } else { 1.0 };
        Some(seconds(record)? / rows)
    };
    let found = samples.ratio("row by columns, mmap", "row by rows, mmap", &one_row)?;
    let uring = samples.ratio("row by columns, uring:depth=64", "row by rows, uring:depth=64", &one_row)?;
    Ok(Judged::new(within(&found, [1.0, f64::INFINITY]), times(&found)).control(format!("io_uring {}", times(&uring))))
}
