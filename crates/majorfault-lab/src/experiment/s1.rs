//! S1: a mapping that huge pages do not fit is silently slow.

use super::claim::{Claim, Test, from, of, up_to};
use super::samples::{Found, Samples, Shown, digits, times};
use super::{Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S1",
    title: "An unaligned mapping is silently slow",
    source: "PMDK note on 2 MiB-aligned mappings of persistent memory: 10 GB written",
    question: "What does a mapping cost whose address does not suit huge pages, and is that reported?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |scale| Bytes(size(scale).0 * 5 / 4),
    repetitions: |scale| scale.of(2, 6, 6),
    cells,
    published: None,
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "Persistent memory itself: a tmpfs of huge pages has the same page-table costs, but the speed of memory.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(128), Bytes::gib(1), Bytes::gib(10))
}

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let size = size(setting.scale);
    let dir = setting.dir.to_owned();
    let mut cells = Vec::new();
    for (place, ops) in [("tmpfs-huge", &["write", "read"][..]), ("disk", &["write", "read"]), ("hugetlb", &["write"])]
    {
        // The kernel's pool of huge pages takes aligned mappings only.
        let skews: &[&str] = if place == "hugetlb" { &["none"] } else { &["none", "address", "both"] };
        for op in ops {
            for skew in skews {
                let given = format!("place={place},op={op},skew={skew},size={size}");
                cells.push(setting.procedure(&format!("{place} {op} skew={skew}"), "write-mapped", &given, &dir)?);
            }
        }
    }
    for (cell, skew) in [(ALIGNED_COUNTED, "none"), (MISALIGNED_COUNTED, "address")] {
        let given = format!("place=tmpfs-huge,op=write,skew={skew},size={size}");
        let mut counted = setting.procedure(cell, "write-mapped", &given, &dir)?;
        counted.trial.counts_hardware = true;
        cells.push(counted);
    }
    cells.push(setting.procedure("hint", "hint", "", &dir)?);
    Ok(cells)
}

const ALIGNED: &str = "tmpfs-huge write skew=none";
const MISALIGNED: &str = "tmpfs-huge write skew=address";
/// The same with the processor's counters: runs of their own, because counting makes waits longer on some machines.
const ALIGNED_COUNTED: &str = "tmpfs-huge write skew=none counted";
const MISALIGNED_COUNTED: &str = "tmpfs-huge write skew=address counted";
const BOTH: &str = "tmpfs-huge write skew=both";

const ROWS: &[Row] = &[
    Row {
        id: "S1.faults",
        kind: RowKind::Published,
        says: "written through a misaligned mapping, a file takes at least ten times the page faults",
        published: "81 x (1 324 482 against 16 319)",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(MISALIGNED, Figure::Faults), of(ALIGNED, Figure::Faults), from(10.0))],
            },
            faults,
        ),
    },
    Row {
        id: "S1.time",
        kind: RowKind::Published,
        says: "and more time",
        published: "1.24 x the cycles",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(MISALIGNED, Figure::Seconds), of(ALIGNED, Figure::Seconds), from(1.0))],
            },
            time,
        ),
    },
    Row {
        id: "S1.cache",
        kind: RowKind::Published,
        says: "and more cache references",
        published: "4.5 x, misses 6.8 x",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(MISALIGNED_COUNTED, REFERENCES), of(ALIGNED_COUNTED, REFERENCES), from(1.0))],
            },
            cache,
        ),
    },
    Row {
        id: "S1.hint",
        kind: RowKind::OurOwn,
        says: "an address asked for that is occupied, or too near the end of user space for the length, is silently not \
               granted; the same address can be had for a tenth of the length",
        published: "200 GB at 0x7ff700000000 falls back, 20 GB does not",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of("hint", Figure::Own("occupied_granted")), [0.0, 0.0]),
                    Test::every_run(of("hint", Figure::Own("far_granted")), [0.0, 0.0]),
                    // Other mappings lie at random addresses, now and then at this one (2 % of runs).
                    Test::some_run(of("hint", Figure::Own("near_granted")), [1.0, 1.0]),
                ],
            },
            hint,
        ),
    },
    Row {
        id: "S1.silent",
        kind: RowKind::OurOwn,
        says: "our own mappings verify what they got",
        published: "none exists",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of("hint", Figure::Own("occupied_told")), [1.0, 1.0]),
                    Test::every_run(of("hint", Figure::Own("far_told")), [1.0, 1.0]),
                ],
            },
            silent,
        ),
    },
    Row {
        id: "S1.offset*",
        kind: RowKind::Control,
        says: "what counts is address against offset: both off by the same 4 KiB cost only the small pages at both ends, at \
               most 1024 faults more",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                // Each end that no huge page covers is at most 512 small pages.
                tests: &[Test::difference(of(BOTH, Figure::Faults), of(ALIGNED, Figure::Faults), up_to(1024.0))],
            },
            both,
        ),
    },
    Row {
        id: "S1.read*",
        kind: RowKind::Control,
        says: "a file that is read through a misaligned mapping also takes at least ten times the page faults",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("tmpfs-huge read skew=address", Figure::Faults),
                    of("tmpfs-huge read skew=none", Figure::Faults),
                    from(10.0),
                )],
            },
            read,
        ),
    },
    Row {
        id: "S1.disk*",
        kind: RowKind::Control,
        says: "on the disk's file system a misaligned mapping also faults at least 1.05 times as often (reading, cached)",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("disk read skew=address", Figure::Faults),
                    of("disk read skew=none", Figure::Faults),
                    from(1.05),
                )],
            },
            disk,
        ),
    },
    Row {
        id: "S1.hugetlb*",
        kind: RowKind::Control,
        says: "the kernel's pool of huge pages takes at most 1.1 times the faults of an aligned tmpfs",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of(POOL, Figure::Faults), of(ALIGNED, Figure::Faults), up_to(1.1))],
            },
            |samples| Ok(Shown::new(times(&samples.ratio(POOL, ALIGNED, Figure::Faults)?))),
        ),
    },
    Row {
        id: "S1.pmem*",
        kind: RowKind::Control,
        says: "the same on persistent memory",
        published: "as above",
        rests_on: &[],
        judge: Judge::Built(
            "majorfault reproduce S1 --place guest:disk=0,pmem=1g: its cells and rows of the disk are then of persistent memory",
            None,
        ),
    },
];

const REFERENCES: Figure = Figure::Counter("cache_references");
const POOL: &str = "hugetlb write skew=none";

fn faults(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(MISALIGNED, ALIGNED, Figure::Faults)?;
    let count = |cell| samples.figure(cell, Figure::Faults).map(|it| digits(it.median));
    let huge = samples.ratio_of((ALIGNED, Figure::Own("huge_bytes")), (ALIGNED, Figure::Own("resident_bytes")))?;
    let both = samples.ratio(BOTH, ALIGNED, Figure::Faults)?;
    Ok(Shown::new(times(&found))
        .because(format!(
            "{} against {} faults; aligned {} % mapped huge",
            count(MISALIGNED)?,
            count(ALIGNED)?,
            digits(100.0 * huge.median)
        ))
        .control(format!("address and offset off together: {}", times(&both))))
}

fn time(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(MISALIGNED, ALIGNED, Figure::Seconds)?;
    let both = samples.ratio(BOTH, ALIGNED, Figure::Seconds)?;
    Ok(Shown::new(times(&found))
        .because("wall time of writing every byte")
        .control(format!("both off: {}", times(&both))))
}

fn cache(samples: &Samples<'_>) -> Found<Shown> {
    let found = |figure| samples.ratio(MISALIGNED_COUNTED, ALIGNED_COUNTED, figure).map(|it| times(&it));
    let (misses, cycles) = (found(Figure::Counter("cache_misses"))?, found(Figure::Counter("cycles"))?);
    Ok(Shown::new(found(REFERENCES)?).because(format!("misses {misses}, cycles {cycles}; in runs of their own")))
}

fn is_one(samples: &Samples<'_>, name: &'static str) -> Found<bool> {
    Ok(samples.figure("hint", Figure::Own(name))?.median > 0.5)
}

fn hint(samples: &Samples<'_>) -> Found<Shown> {
    let [occupied, far, near] =
        [is_one(samples, "occupied_granted")?, is_one(samples, "far_granted")?, is_one(samples, "near_granted")?];
    let words = |granted| if granted { "granted" } else { "not granted" };
    let ours = format!("occupied {}, 200 GiB {}, 20 GiB {}", words(occupied), words(far), words(near));
    let congruent = is_one(samples, "far_congruent")?;
    let place = if congruent { "at an address that huge pages fit" } else { "at an address that no huge page fits" };
    Ok(Shown::new(ours).because(format!("200 GiB were mapped {place}, without an error")))
}

fn silent(samples: &Samples<'_>) -> Found<Shown> {
    let told = is_one(samples, "occupied_told")? && is_one(samples, "far_told")?;
    Ok(Shown::new(if told { "both were told" } else { "one was not told" })
        .because("other programs' mappings: majorfault doctor --deep PID, rule misaligned_huge"))
}

fn both(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(BOTH, ALIGNED, Figure::Faults)?;
    let more = samples.figure(BOTH, Figure::Faults)?.median - samples.figure(ALIGNED, Figure::Faults)?.median;
    Ok(Shown::new(format!("{} faults more", digits(more))).because(format!("{} the faults", times(&found))))
}

fn read(samples: &Samples<'_>) -> Found<Shown> {
    let cells = ("tmpfs-huge read skew=address", "tmpfs-huge read skew=none");
    let found = samples.ratio(cells.0, cells.1, Figure::Faults)?;
    let time = samples.ratio(cells.0, cells.1, Figure::Seconds)?;
    let written = samples.ratio(MISALIGNED, ALIGNED, Figure::Faults)?;
    Ok(Shown::new(times(&found))
        .because(format!("time {}; fault-around maps 16 pages a fault when reading", times(&time)))
        .control(format!("written: {} the faults", times(&written))))
}

fn disk(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio("disk read skew=address", "disk read skew=none", Figure::Faults)?;
    let write = samples.ratio("disk write skew=address", "disk write skew=none", Figure::Faults)?;
    let huge = samples.figure("disk read skew=none", Figure::Own("huge_bytes"))?.median;
    Ok(Shown::new(times(&found))
        .because(format!("{} mapped huge when aligned", Bytes(huge as u64).rounded()))
        .control(format!("writing: {}", times(&write))))
}
