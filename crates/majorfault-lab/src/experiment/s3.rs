//! S3: eleven ways to prepare a file in memory before it is written through a mapping, and those that came later.

use super::claim::{Claim, Test, from, least, of, up_to};
use super::samples::{Found, Gap, Samples, Shown, digits, milliseconds, times};
use super::{Experiment, Figure, Judge, Planned, PublishedCells, Row, RowKind, Scale, Setting};
use crate::procedure::prefault::How;
use majorfault::params::Value;
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S3",
    title: "Prefault and prefetch on tmpfs",
    source: "Measurements of eleven prefault methods: 256 MB mapped on tmpfs, written in blocks of 128 bytes (Linux 4.4)",
    question: "Which preparation of a mapped file makes writing it fastest, and what does it cost itself?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |scale| Bytes(size(scale).0 * 3 / 2),
    repetitions: |scale| scale.of(2, 7, 11),
    cells,
    published: Some(PublishedCells { cells: PUBLISHED, of: "256 MB", is_at: |scale| size(scale) == Bytes::mib(256) }),
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "The other NUMA node, where there is one node. The published figures time the writing loop alone, which \
                  leaves the preparation out; what a user pays is the total, beside it here.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(64), Bytes::mib(256), Bytes::mib(256))
}

/// What was written there.
const PUBLISHED_BYTES: u64 = Bytes::mib(256).0;

/// The writing loop on the same node, in seconds.
const PUBLISHED: &[(&str, f64)] = &[
    ("11-touch on tmpfs", 0.048_127),
    ("10-touch+willneed on tmpfs", 0.048_294),
    ("06-fallocate+populate on tmpfs", 0.048_316),
    ("03-populate on tmpfs", 0.048_421),
    ("07-fallocate+populate+willneed on tmpfs", 0.048_527),
    ("04-populate+willneed on tmpfs", 0.048_543),
    ("05-populate+sequential on tmpfs", 0.048_570),
    ("02-fallocate on tmpfs", 0.106_558),
    ("08-willneed on tmpfs", 0.127_054),
    ("09-sequential on tmpfs", 0.128_844),
    ("01-plain on tmpfs", 0.129_806),
];

/// What came after the source, and the places it can be used in.
const MODERN: &[&str] = &[
    "populate-write on tmpfs",
    "populate-parallel on tmpfs",
    "fallocate+populate-parallel on tmpfs",
    "01-plain on tmpfs-huge",
    "03-populate on tmpfs-huge",
    "populate-write on tmpfs-huge",
    "populate-parallel on tmpfs-huge",
    "01-plain on hugetlb",
    "populate-write+collapse on tmpfs",
];

/// Those of them that use small pages only.
const MODERN_SMALL: &[&str] =
    &["populate-write on tmpfs", "populate-parallel on tmpfs", "fallocate+populate-parallel on tmpfs"];

/// The same with memory of one node, and the processor's side of it.
const ON_A_NODE: &[(&str, &str)] = &[(SAME_NODE, "same"), (OTHER_NODE, "other")];
const SAME_NODE: &str = "03-populate on tmpfs, the same node";
const OTHER_NODE: &str = "03-populate on tmpfs, the other node";

const ON_DISK: &[&str] = &["01-plain", "02-fallocate", "03-populate", "populate-write", "fallocate+populate-parallel"];

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let size = size(setting.scale);
    let dir = setting.dir.to_owned();
    let numbered = How::ALL.iter().map(Value::text).filter(|how| how.starts_with(['0', '1']));
    let published = numbered.map(|how| format!("{how} on tmpfs"));
    let later = MODERN.iter().map(|cell| (*cell).to_owned());
    let disk = ON_DISK.iter().map(|how| format!("{how} on disk"));
    let mut cells = published
        .chain(later)
        .chain(disk)
        .map(|cell| {
            let (how, place) = cell.split_once(" on ").unwrap_or((&cell, "tmpfs"));
            setting.procedure(&cell, "prefault", &format!("how={how},place={place},size={size}"), &dir)
        })
        .collect::<Result<Vec<_>>>()?;
    for (cell, node) in ON_A_NODE {
        let given = format!("how=03-populate,place=tmpfs,size={size},node={node}");
        cells.push(setting.procedure(cell, "prefault", &given, &dir)?);
    }
    Ok(cells)
}

macro_rules! method {
    ($id:literal, $says:literal, $published:literal, $how:literal) => {
        Row {
            id: $id,
            kind: RowKind::Published,
            says: $says,
            published: $published,
            rests_on: &[],
            judge: Judge::Measured(|samples| one(samples, concat!($how, " on tmpfs"))),
        }
    };
}

const PLAIN: &str = "01-plain on tmpfs";

/// The writing loop alone after a preparation, over that of plain mmap.
const fn loop_of(cell: &'static str, range: [f64; 2]) -> Test {
    Test::ratio(of(cell, Figure::Seconds), of(PLAIN, Figure::Seconds), range)
}

const ROWS: &[Row] = &[
    method!("S3.11", "every byte touched in a loop first", "48.1 ms, other node 63.0", "11-touch"),
    method!("S3.10", "the same, then MADV_WILLNEED", "48.3 ms, 62.7", "10-touch+willneed"),
    method!("S3.06", "fallocate and MAP_POPULATE", "48.3 ms, 62.5", "06-fallocate+populate"),
    method!("S3.03", "MAP_POPULATE", "48.4 ms, 62.7", "03-populate"),
    method!("S3.07", "fallocate, MAP_POPULATE, MADV_WILLNEED", "48.5 ms, 63.0", "07-fallocate+populate+willneed"),
    method!("S3.04", "MAP_POPULATE and MADV_WILLNEED", "48.5 ms, 63.1", "04-populate+willneed"),
    method!("S3.05", "MAP_POPULATE and MADV_SEQUENTIAL", "48.6 ms, 63.0", "05-populate+sequential"),
    method!("S3.02", "fallocate", "106.6 ms, 152.5", "02-fallocate"),
    method!("S3.08", "MADV_WILLNEED", "127.1 ms, 174.7", "08-willneed"),
    method!("S3.09", "MADV_SEQUENTIAL", "128.8 ms, 173.9", "09-sequential"),
    method!("S3.01", "plain mmap", "129.8 ms, 174.1", "01-plain"),
    Row {
        id: "S3.prefault",
        kind: RowKind::Published,
        says: "after any prefault, writing takes at most 0.6 of plain mmap's time",
        published: "0.37",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    loop_of("03-populate on tmpfs", up_to(0.6)),
                    loop_of("04-populate+willneed on tmpfs", up_to(0.6)),
                    loop_of("05-populate+sequential on tmpfs", up_to(0.6)),
                    loop_of("06-fallocate+populate on tmpfs", up_to(0.6)),
                    loop_of("07-fallocate+populate+willneed on tmpfs", up_to(0.6)),
                    loop_of("10-touch+willneed on tmpfs", up_to(0.6)),
                    loop_of("11-touch on tmpfs", up_to(0.6)),
                ],
            },
            prefault,
        ),
    },
    Row {
        id: "S3.fallocate",
        kind: RowKind::Published,
        says: "fallocate alone saves about a fifth: writing takes 0.65 to 0.95 of plain mmap's time",
        published: "0.82",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[loop_of("02-fallocate on tmpfs", [0.65, 0.95])] },
            |samples| against(samples, &["02-fallocate on tmpfs"]),
        ),
    },
    Row {
        id: "S3.hints",
        kind: RowKind::Published,
        says: "hints alone do next to nothing: writing takes 0.9 to 1.1 of plain mmap's time",
        published: "0.98–0.99",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[loop_of("08-willneed on tmpfs", [0.9, 1.1]), loop_of("09-sequential on tmpfs", [0.9, 1.1])],
            },
            |samples| against(samples, &["08-willneed on tmpfs", "09-sequential on tmpfs"]),
        ),
    },
    Row {
        id: "S3.numa",
        kind: RowKind::Published,
        says: "memory of another node costs: after MAP_POPULATE writing takes at least 1.1 times as long there",
        published: "1.3 x",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(OTHER_NODE, Figure::Seconds), of(SAME_NODE, Figure::Seconds), from(1.1))],
            },
            |samples| Ok(Shown::new(times(&samples.ratio(OTHER_NODE, SAME_NODE, Figure::Seconds)?))),
        ),
    },
    Row {
        id: "S3.placed*",
        kind: RowKind::Control,
        says: "memory that is bound to a node lies there, every page of it",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of(SAME_NODE, Figure::Own("pages_elsewhere")), up_to(0.0)),
                    Test::every_run(of(OTHER_NODE, Figure::Own("pages_elsewhere")), up_to(0.0)),
                    Test::every_run(of(OTHER_NODE, Figure::Own("pages_on_node")), from(1.0)),
                ],
            },
            |samples| {
                let there = samples.figure(OTHER_NODE, Figure::Own("pages_on_node"))?.median;
                Ok(Shown::new(format!("{there:.0} pages on the other node, none elsewhere")))
            },
        ),
    },
    Row {
        id: "S3.total*",
        kind: RowKind::Control,
        says: "with the preparation counted, the best prefaulting is still faster than plain mmap",
        published: "left out",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(least(PREFAULTING, Figure::Total), of(PLAIN, Figure::Total), up_to(1.0))],
            },
            total,
        ),
    },
    Row {
        id: "S3.modern*",
        kind: RowKind::Control,
        says: "the best way of today is faster in total than the best of the eleven",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(least(MODERN, Figure::Total), least(ELEVEN, Figure::Total), up_to(1.0))],
            },
            modern,
        ),
    },
    Row {
        id: "S3.disk*",
        kind: RowKind::Control,
        says: "on the disk's file system the writing loop also takes at most 0.8 of plain mmap's time after MAP_POPULATE",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("03-populate on disk", Figure::Seconds),
                    of("01-plain on disk", Figure::Seconds),
                    up_to(0.8),
                )],
            },
            on_disk,
        ),
    },
];

const PREFAULTING: &[&str] = &[
    "03-populate on tmpfs",
    "04-populate+willneed on tmpfs",
    "05-populate+sequential on tmpfs",
    "06-fallocate+populate on tmpfs",
    "07-fallocate+populate+willneed on tmpfs",
    "10-touch+willneed on tmpfs",
    "11-touch on tmpfs",
];

const ELEVEN: &[&str] = &[
    "01-plain on tmpfs",
    "02-fallocate on tmpfs",
    "03-populate on tmpfs",
    "04-populate+willneed on tmpfs",
    "05-populate+sequential on tmpfs",
    "06-fallocate+populate on tmpfs",
    "07-fallocate+populate+willneed on tmpfs",
    "08-willneed on tmpfs",
    "09-sequential on tmpfs",
    "10-touch+willneed on tmpfs",
    "11-touch on tmpfs",
];

fn one(samples: &Samples<'_>, cell: &str) -> Found<Shown> {
    let inside = samples.figure(cell, Figure::Seconds)?;
    let whole = samples.figure(cell, Figure::Total)?;
    let bytes = samples.valid(cell).next().map_or(0, |record| record.bytes());
    let written = match bytes {
        PUBLISHED_BYTES => String::new(),
        other => format!("of {}, where the published are of 256 MB; ", Bytes(other).rounded()),
    };
    Ok(Shown::new(milliseconds(&inside)).because(format!("{written}in total {}", milliseconds(&whole))))
}

/// Each of `cells` against plain mmap, the writing loop alone.
fn against(samples: &Samples<'_>, cells: &[&str]) -> Found<Shown> {
    let found = cells.iter().map(|cell| samples.ratio(cell, PLAIN, Figure::Seconds)).collect::<Found<Vec<_>>>()?;
    let lowest = found.iter().map(|found| found.median).fold(f64::INFINITY, f64::min);
    let highest = found.iter().map(|found| found.median).fold(0.0, f64::max);
    let ours = match found.as_slice() {
        [only] => times(only),
        _ => format!("{} to {} x", digits(lowest), digits(highest)),
    };
    Ok(Shown::new(ours).because("the writing loop alone"))
}

fn prefault(samples: &Samples<'_>) -> Found<Shown> {
    let shown = against(samples, PREFAULTING)?;
    let plain = samples.figure(PLAIN, Figure::Seconds)?.median;
    let ready = samples.figure("11-touch on tmpfs", Figure::Seconds)?.median;
    let bytes = samples.valid("11-touch on tmpfs").next().map_or(0, |record| record.bytes()) as f64;
    Ok(shown.because(format!(
        "the writing loop alone; it writes {} GB/s without faults, and a fault costs {} ns",
        digits(bytes / ready / 1e9),
        digits((plain - ready) * 1e9 / (bytes / 4096.0))
    )))
}

/// The fastest of `cells` by total time.
fn fastest<'c>(samples: &Samples<'_>, cells: &[&'c str]) -> Found<&'c str> {
    let found = cells.iter().filter_map(|cell| Some((*cell, samples.figure(cell, Figure::Total).ok()?.median)));
    let least = found.min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(cell, _)| cell).ok_or_else(|| Gap::NoRun("one side has no figures".to_owned()))
}

fn total(samples: &Samples<'_>) -> Found<Shown> {
    let best = fastest(samples, PREFAULTING)?;
    let found = samples.ratio(best, PLAIN, Figure::Total)?;
    Ok(Shown::new(times(&found))
        .because(format!("the best in all: {best}; judged by the best of the other repetitions")))
}

fn modern(samples: &Samples<'_>) -> Found<Shown> {
    let (new, old) = (fastest(samples, MODERN)?, fastest(samples, ELEVEN)?);
    let found = samples.ratio(new, old, Figure::Total)?;
    let small = fastest(samples, MODERN_SMALL)?;
    let without = samples.ratio(small, old, Figure::Total)?;
    Ok(Shown::new(times(&found))
        .because(format!("{new} against {old}"))
        .control(format!("without huge pages: {small}, {}", times(&without))))
}

fn on_disk(samples: &Samples<'_>) -> Found<Shown> {
    let plain = "01-plain on disk";
    let found = samples.ratio("03-populate on disk", plain, Figure::Seconds)?;
    let written = samples.ratio("populate-write on disk", plain, Figure::Seconds)?;
    let whole = samples.ratio("populate-write on disk", plain, Figure::Total)?;
    Ok(Shown::new(times(&found))
        .because(format!("MADV_POPULATE_WRITE {}", times(&written)))
        .control(format!("in total {}", times(&whole))))
}
