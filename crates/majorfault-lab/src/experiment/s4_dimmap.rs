//! S4.dimmap: a page buffer under the user's control behind plain pointers, instead of the page cache behind a mapping.

use super::claim::{Claim, Test, from, of};
use super::samples::{Found, Samples, Shown, digits, times};
use super::setting::method;
use super::{Condition, Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::trial::{Limits, Trial};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.dimmap",
    title: "A page buffer of one's own behind pointers",
    source: "Thesis on file access policies, related work: DI-MMAP (Cluster Computing 2015), UMap (MCHPC 2019)",
    question: "Does a buffer of one's own, behind pointers, serve random reads beyond memory better?",
    room: |scale| size(scale),
    memory: |scale| limit(scale),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: None,
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "Many faulting threads: one thread serves them all. Eviction from our buffer: at \
                  standard scale the pages read fit it. DI-MMAP is a kernel module and UMap a C++ library; what is measured \
                  is our method after them.",
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
    let accesses = setting.scale.of(1_000, 2_500, 20_000);
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
    kind: RowKind::Control,
    says: "a page buffer under the user's control for mapped data (DI-MMAP, UMap) reads at random beyond memory at least \
           as fast as mmap",
    published: "cited",
    rests_on: &[Condition::Memory],
    judge: Judge::Claim(
        Claim {
            needs: &[],
            tests: &[Test::ratio(of(BUFFERED, Figure::PerSecond), of("mmap", Figure::PerSecond), from(1.0))],
        },
        buffer,
    ),
}];

fn buffer(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(BUFFERED, "mmap", Figure::PerSecond)?;
    let random = samples.ratio(BUFFERED, "mmap, MADV_RANDOM", Figure::PerSecond)?;
    let pool = samples.ratio("pool", BUFFERED, Figure::PerSecond)?;
    let pages = samples.figure("mmap", Figure::PagesRead)?;
    Ok(Shown::new(times(&found))
        .because(format!("plain mmap read {} pages per page needed", digits(pages.median)))
        .control(format!("{} of MADV_RANDOM; calls instead of faults {}", times(&random), times(&pool))))
}
