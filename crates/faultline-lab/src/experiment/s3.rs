//! S3: eleven ways to prepare a file in memory before it is written through a mapping, and those that came later.

use super::samples::{Found, digits, either, milliseconds, phase_s, times, total_s, within};
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use crate::procedure::prefault::How;
use faultline::params::Value;
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S3",
    title: "Prefault and prefetch on tmpfs",
    source: "Measurements of eleven prefault methods: 256 MB mapped on tmpfs, written in blocks of 128 bytes (Linux 4.4)",
    question: "Which preparation of a mapped file makes writing it fastest, and what does it cost itself?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |scale| Bytes(size(scale).0 * 3 / 2),
    repetitions: |scale| scale.of(2, 7, 11),
    cells,
    published: PUBLISHED,
    timeline: None,
    rows: ROWS,
    cannot_show: "The other NUMA node, where there is one node. The published figures time the writing loop alone, which \
                  leaves the preparation out; what a user pays is the total, beside it here.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(64), Bytes::mib(256), Bytes::mib(256))
}

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
const MODERN: &[(&str, &str)] = &[
    ("populate-write", "tmpfs"),
    ("populate-parallel", "tmpfs"),
    ("fallocate+populate-parallel", "tmpfs"),
    ("01-plain", "tmpfs-huge"),
    ("03-populate", "tmpfs-huge"),
    ("populate-write", "tmpfs-huge"),
    ("populate-parallel", "tmpfs-huge"),
    ("01-plain", "hugetlb"),
    ("populate-write+collapse", "tmpfs"),
];

const ON_DISK: &[&str] = &["01-plain", "02-fallocate", "03-populate", "populate-write", "fallocate+populate-parallel"];

fn cell(how: &str, place: &str) -> String {
    format!("{how} on {place}")
}

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let size = size(setting.scale);
    let dir = setting.dir.to_owned();
    let numbered = How::ALL.iter().map(Value::text).filter(|how| how.starts_with(['0', '1']));
    let published = numbered.map(|how| (how, "tmpfs"));
    let later = MODERN.iter().map(|(how, place)| ((*how).to_owned(), *place));
    let disk = ON_DISK.iter().map(|how| ((*how).to_owned(), "disk"));
    let all: Vec<(String, &str)> = published.chain(later).chain(disk).collect();
    all.into_iter()
        .map(|(how, place)| {
            let given = format!("how={how},place={place},size={size}");
            setting.procedure(&cell(&how, place), "prefault", &given, &dir)
        })
        .collect()
}

macro_rules! method {
    ($id:literal, $says:literal, $published:literal, $how:literal) => {
        Row { id: $id, says: $says, published: $published, judge: Judge::By(|samples| either(one(samples, $how))) }
    };
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
        says: "after any prefault, writing takes 0.2 to 0.6 of plain mmap's time",
        published: "0.37",
        judge: Judge::By(|samples| either(prefault(samples))),
    },
    Row {
        id: "S3.fallocate",
        says: "fallocate alone saves a fifth",
        published: "0.82",
        judge: Judge::By(|samples| either(against(samples, &["02-fallocate"], [0.65, 0.95]))),
    },
    Row {
        id: "S3.hints",
        says: "hints alone do next to nothing",
        published: "0.98–0.99",
        judge: Judge::By(|samples| either(against(samples, &["08-willneed", "09-sequential"], [0.9, 1.1]))),
    },
    Row { id: "S3.numa", says: "the other node costs", published: "1.3 x", judge: Judge::By(|_| numa()) },
    Row {
        id: "S3.total*",
        says: "with the preparation counted, prefaulting is still faster than plain mmap",
        published: "left out",
        judge: Judge::By(|samples| either(total(samples))),
    },
    Row {
        id: "S3.modern*",
        says: "the best way of today is faster in total than the best of the eleven",
        published: "–",
        judge: Judge::By(|samples| either(modern(samples))),
    },
    Row {
        id: "S3.disk*",
        says: "on the disk's file system prefaulting helps the writing loop as well",
        published: "–",
        judge: Judge::By(|samples| either(on_disk(samples))),
    },
];

const PREFAULTING: &[&str] = &[
    "03-populate",
    "04-populate+willneed",
    "05-populate+sequential",
    "06-fallocate+populate",
    "07-fallocate+populate+willneed",
    "10-touch+willneed",
    "11-touch",
];

fn one(samples: &Samples<'_>, how: &str) -> Found<Judged> {
    let cell = cell(how, "tmpfs");
    let inside = samples.figure(&cell, &phase_s("visit"))?;
    let whole = samples.figure(&cell, &total_s)?;
    Ok(Judged::new(Verdict::Measured, milliseconds(&inside)).because(format!("in total {}", milliseconds(&whole))))
}

/// Each of `hows` against plain mmap, the writing loop alone: all of them must lie in the range.
fn against(samples: &Samples<'_>, hows: &[&str], range: [f64; 2]) -> Found<Judged> {
    let plain = cell("01-plain", "tmpfs");
    let found = hows
        .iter()
        .map(|how| samples.ratio(&cell(how, "tmpfs"), &plain, &phase_s("visit")))
        .collect::<Found<Vec<_>>>()?;
    let verdicts: Vec<Verdict> = found.iter().map(|found| within(found, range)).collect();
    let verdict = verdicts
        .iter()
        .find(|verdict| **verdict == Verdict::DoesNotHold)
        .or_else(|| verdicts.iter().find(|verdict| **verdict != Verdict::Holds));
    let lowest = found.iter().map(|found| found.median).fold(f64::INFINITY, f64::min);
    let highest = found.iter().map(|found| found.median).fold(0.0, f64::max);
    let ours = match found.as_slice() {
        [only] => times(only),
        _ => format!("{} to {} x", digits(lowest), digits(highest)),
    };
    Ok(Judged::new(verdict.cloned().unwrap_or(Verdict::Holds), ours).because("the writing loop alone"))
}

fn prefault(samples: &Samples<'_>) -> Found<Judged> {
    let judged = against(samples, PREFAULTING, [0.2, 0.6])?;
    let plain = samples.figure(&cell("01-plain", "tmpfs"), &phase_s("visit"))?.median;
    let ready = samples.figure(&cell("11-touch", "tmpfs"), &phase_s("visit"))?.median;
    let bytes = samples.valid(&cell("11-touch", "tmpfs")).next().map_or(0, |record| record.bytes()) as f64;
    Ok(judged.because(format!(
        "the writing loop alone; it writes {} GB/s without faults, and a fault costs {} ns",
        digits(bytes / ready / 1e9),
        digits((plain - ready) * 1e9 / (bytes / 4096.0))
    )))
}

fn numa() -> Judged {
    Judged::cannot("no second NUMA node was measured; on a machine with several, bind the memory: numactl --membind")
}

/// The fastest of `cells` by total time.
fn fastest(samples: &Samples<'_>, cells: impl Iterator<Item = String>) -> Option<(String, f64)> {
    let found = cells.filter_map(|cell| Some((cell.clone(), samples.figure(&cell, &total_s).ok()?.median)));
    found.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn total(samples: &Samples<'_>) -> Found<Judged> {
    let plain = cell("01-plain", "tmpfs");
    let nothing = || Judged::cannot("no prefaulting method has figures");
    let (best, _) = fastest(samples, PREFAULTING.iter().map(|how| cell(how, "tmpfs"))).ok_or_else(nothing)?;
    let found = samples.ratio(&best, &plain, &total_s)?;
    Ok(Judged::new(within(&found, [0.0, 1.0]), times(&found)).because(format!("the best: {best}")))
}

fn modern(samples: &Samples<'_>) -> Found<Judged> {
    let nothing = || Judged::cannot("one side has no figures");
    let eleven = PREFAULTING.iter().chain(&["01-plain", "02-fallocate", "08-willneed", "09-sequential"]);
    let (old, _) = fastest(samples, eleven.map(|how| cell(how, "tmpfs"))).ok_or_else(nothing)?;
    let (new, _) = fastest(samples, MODERN.iter().map(|(how, place)| cell(how, place))).ok_or_else(nothing)?;
    let found = samples.ratio(&new, &old, &total_s)?;
    let small =
        fastest(samples, MODERN.iter().filter(|(_, place)| *place == "tmpfs").map(|(how, place)| cell(how, place)));
    let control = match small {
        Some((small, _)) => format!("without huge pages: {small}, {}", times(&samples.ratio(&small, &old, &total_s)?)),
        None => String::new(),
    };
    Ok(Judged::new(within(&found, [0.0, 1.0]), times(&found)).because(format!("{new} against {old}")).control(control))
}

fn on_disk(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio(&cell("03-populate", "disk"), &cell("01-plain", "disk"), &phase_s("visit"))?;
    let written = samples.ratio(&cell("populate-write", "disk"), &cell("01-plain", "disk"), &phase_s("visit"))?;
    let whole = samples.ratio(&cell("populate-write", "disk"), &cell("01-plain", "disk"), &total_s)?;
    Ok(Judged::new(within(&found, [0.0, 0.8]), times(&found))
        .because(format!("MADV_POPULATE_WRITE {}", times(&written)))
        .control(format!("in total {}", times(&whole))))
}
