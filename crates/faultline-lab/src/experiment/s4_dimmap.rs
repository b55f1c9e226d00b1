//! S4.dimmap: a page buffer under the user's control behind plain pointers, instead of the page cache behind a mapping.

use super::samples::{Found, counted, digits, either, per_second, times, within};
use super::setting::method;
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting};
use crate::record::Record;
use crate::trial::{Limits, Trial};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.dimmap",
    title: "A page buffer of one's own behind pointers",
    source: "Thesis on file access policies, related work: DI-MMAP (Cluster Computing 2015), UMap (MCHPC 2019)",
    question: "Does a buffer of one's own, behind pointers, serve random reads beyond memory better?",
    room: |scale| size(scale),
    memory: |scale| limit(scale),
    repetitions: |scale| scale.of(1, 5, 5),
    cells,
    published: &[],
    timeline: None,
    rows: ROWS,
    cannot_show: "Many faulting threads: one thread serves them all. DI-MMAP is a kernel module and UMap a C++ library; what is \
                  measured is our method after them.",
};

/// Data of four times the limit; the buffer is a quarter of it.
fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(256), Bytes::gib(1), Bytes::gib(16))
}

fn limit(scale: Scale) -> Bytes {
    Bytes(size(scale).0 / 4)
}

const BUFFERED: &str = "uffd";

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let data = setting.data(size(setting.scale), 1)?;
    let limit = limit(setting.scale);
    let budget = Bytes(limit.0 / 4);
    let accesses = setting.scale.of(1_000, 4_000, 20_000);
    let arms = [
        ("mmap", "mmap".to_owned()),
        ("mmap, MADV_RANDOM", "mmap:advice=random".to_owned()),
        (BUFFERED, format!("uffd:memory={budget}")),
        ("pool", format!("pool:memory={budget},depth=1")),
    ];
    let cell = |(name, text): (&str, String)| {
        let base = setting.reads(&data, method(&text), 0.0);
        let limits = Limits { runtime_ns: None, accesses: Some(accesses), time_based: false };
        let trial = Trial { limits, iodepth: 1, memory_bytes: Some(limit.0), ..base };
        Planned { name: name.to_owned(), trial }
    };
    Ok(arms.into_iter().map(cell).collect())
}

const ROWS: &[Row] = &[Row {
    id: "S4.dimmap",
    says: "a page buffer under the user's control for mapped data (DI-MMAP, UMap) reads at random beyond memory at least \
           as fast as mmap",
    published: "cited",
    judge: Judge::By(|samples| either(buffer(samples))),
}];

fn pages_read(record: &Record) -> Option<f64> {
    Some(counted("visit", &["process_read_bytes"])(record)? / (record.accesses() as f64 * 4096.0))
}

fn buffer(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio(BUFFERED, "mmap", &per_second)?;
    let random = samples.ratio(BUFFERED, "mmap, MADV_RANDOM", &per_second)?;
    let pool = samples.ratio("pool", BUFFERED, &per_second)?;
    let pages = samples.figure("mmap", &pages_read)?;
    Ok(Judged::new(within(&found, [1.0, f64::INFINITY]), times(&found))
        .because(format!("plain mmap read {} pages per page needed", digits(pages.median)))
        .control(format!("{} of MADV_RANDOM; calls instead of faults {}", times(&random), times(&pool))))
}
