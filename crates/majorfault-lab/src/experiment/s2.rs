//! S2: mmap against explicit I/O for a database's accesses (CIDR 2022).

use super::claim::{Claim, Test, count, from, of, up_to};
use super::figure::SHOOTDOWNS;
use super::samples::{Found, Samples, Shown, digits, plain, times};
use super::setting::method;
use super::{Condition, Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::trial::{CacheState, Choice, Data, Trial};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S2",
    title: "mmap in a database system",
    source: "Crotty, Leis, Pavlo: Are You Sure You Want to Use MMAP in Your DBMS? CIDR 2022, sections 4 and 6",
    question: "How do mapped files with each hint compare with explicit I/O, when the data does not fit memory?",
    room: |scale| Bytes(size(scale).0 * 3 + told_size(scale).0),
    memory: |_| Bytes::gib(1),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: &[],
    timeline: Some("memory a quarter"),
    rows: ROWS,
    cannot_show: "The paper's machine: 128 hardware threads, 10 NVMe SSDs, 2 TB of data, Linux 5.11. Memory is limited by a \
                  cgroup, whose threads reclaim themselves, where the paper let kswapd fill and empty a whole machine. \
                  Striped files lie on one disk here.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(256), Bytes::gib(1), Bytes::gib(40))
}

/// Bytes announced by MADV_WILLNEED: 256 MiB at most, as in the published case.
fn told_size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(64), Bytes::mib(256), Bytes::mib(256))
}

/// The paper's machine had 20 times as much data as page cache.
const TIMES_MEMORY: u64 = 20;

const MAPPED: &[&str] = &["normal", "random", "sequential"];

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let scale = setting.scale;
    let one = setting.data(size(scale), 1)?;
    let striped = setting.data(size(scale), 2)?;
    let limit = (size(scale).0 / TIMES_MEMORY).max(32 << 20);
    let threads = scale.of(8, 32, 100);
    let mut cells = Vec::new();
    let mut add = |name: &str, trial: Trial| cells.push(Planned { name: name.to_owned(), trial });

    // Random reads, many threads. Explicit I/O has one access in flight in each thread, as fio in the paper.
    let seconds = scale.of(1.0, 3.5, 100.0);
    let random = |text: &str| Trial {
        threads,
        iodepth: 1,
        memory_bytes: Some(limit),
        ..setting.reads(&one, method(text), seconds)
    };
    add("random fio", random("fio:engine=psync"));
    add("random direct", random("direct"));
    for advice in MAPPED {
        add(&format!("random mmap {advice}"), random(&format!("mmap:advice={advice}")));
    }
    let filling = Trial {
        threads: setting.cpus,
        memory_bytes: Some((size(scale).0 / 4).max(48 << 20)),
        interval_ns: 100_000_000,
        ..setting.reads(&one, method("mmap:advice=random"), scale.of(2.0, 6.0, 100.0))
    };
    add("random mmap random, memory a quarter", filling.clone());
    add("random direct, memory a quarter", Trial { arm: method("direct"), ..filling });

    // Scans, one device and striped.
    for (data, where_) in [(&one, "one"), (&striped, "striped")] {
        let scan = |text: &str| {
            let mut trial = setting.reads(data, method(text), scale.of(1.0, 1.5, 100.0));
            trial.workload = Choice::plain("sequential");
            trial.block_bytes = 1 << 20;
            trial.iodepth = 16;
            trial.memory_bytes = Some(limit.max(64 << 20));
            trial
        };
        add(&format!("scan {where_} fio"), scan("fio"));
        add(&format!("scan {where_} uring"), scan("uring:depth=16"));
        for advice in MAPPED {
            add(&format!("scan {where_} mmap {advice}"), scan(&format!("mmap:advice={advice}")));
        }
    }

    // What was not known then.
    let part = setting.data(told_size(scale), 1)?;
    let mut told = |cell: &str, name: &str, given: &str, (data, memory): (&Data, Option<u64>)| -> Result<()> {
        let mut planned = setting.procedure(cell, name, given, &data.files[0])?;
        planned.trial.memory_bytes = memory;
        planned.trial.data = data.clone();
        planned.trial.cache = CacheState::AsFound;
        cells.push(planned);
        Ok(())
    };
    let hot = size(scale).0 / 16;
    for advice in ["normal", "random"] {
        let given = format!("advice={advice},hot={}", Bytes(hot));
        told(
            &format!("hot set beside a stream, {advice}"),
            "stream-beside",
            &given,
            (&one, Some(hot * 2 + (32 << 20))),
        )?;
    }
    for (cell, given) in [
        ("willneed madvise", "how=madvise"),
        ("willneed fadvise", "how=fadvise"),
        ("populate", "how=populate"),
        ("populate after random", "how=populate,random=on"),
    ] {
        told(cell, "will-need", given, (&part, None))?;
    }
    Ok(cells)
}

/// Random reads whose memory fills while they run, and the same past the page cache.
const FILLING: &str = "random mmap random, memory a quarter";
const PAST: &str = "random direct, memory a quarter";

/// Accesses a second of one cell over those of another, in a range.
const fn rate(first: &'static str, second: &'static str, range: [f64; 2]) -> Test {
    Test::ratio(of(first, Figure::PerSecond), of(second, Figure::PerSecond), range)
}

const ROWS: &[Row] = &[
    Row {
        id: "S2.random",
        kind: RowKind::Published,
        says: "random reads by fio with O_DIRECT are flat: below half of their usual rate for at most a tenth of the time",
        published: "~900 000 reads/s, 100 threads",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::figure(of("random fio", Figure::BelowHalf), up_to(0.1))] },
            flat,
        ),
    },
    Row {
        id: "S2.collapse",
        kind: RowKind::Published,
        says: "mmap with MADV_RANDOM collapses once the page cache is full (half a second at a fifth of its level or less), \
               and stays at three quarters of it or less",
        published: "near 0 for 5 s, then about half",
        rests_on: &[Condition::Shootdowns, Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::figure(of(FILLING, Figure::LevelLowest), up_to(0.2)),
                    Test::figure(of(FILLING, Figure::LevelAfter), up_to(0.75)),
                ],
            },
            collapse,
        ),
    },
    Row {
        id: "S2.hints*",
        kind: RowKind::Control,
        says: "the other hints are worse than MADV_RANDOM for random reads",
        published: "in the figure",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    rate("random mmap normal", "random mmap random", up_to(1.0)),
                    rate("random mmap sequential", "random mmap random", up_to(1.0)),
                ],
            },
            hints,
        ),
    },
    Row {
        id: "S2.tlb",
        kind: RowKind::Published,
        says: "TLB shootdowns rise with eviction, at least twofold",
        published: "rises",
        rests_on: &[Condition::Shootdowns, Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    count(FILLING, Figure::ShootdownsAfter),
                    count(FILLING, Figure::ShootdownsBefore),
                    from(2.0),
                )],
            },
            tlb,
        ),
    },
    Row {
        id: "S2.kswapd",
        kind: RowKind::Published,
        says: "eviction by one kswapd thread is bound by its processor: it is busy for at least nine tenths of the time",
        published: "one thread at 100 %",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[(
                    Test::every_run(of(FILLING, Figure::KswapdShare), from(0.5)),
                    "kswapd took less than half of the pages reclaimed: within a cgroup's limit the threads reclaim \
                     themselves; fill a whole machine",
                )],
                tests: &[Test::figure(of(FILLING, Figure::KswapdBusy), from(0.9))],
            },
            kswapd,
        ),
    },
    Row {
        id: "S2.seq1",
        kind: RowKind::Published,
        says: "scanning one device, MADV_NORMAL and MADV_SEQUENTIAL beat MADV_RANDOM, and fio beats all three",
        published: "fio 7 GB/s; mmap falls off at 17 s",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    rate("scan one mmap normal", "scan one mmap random", from(1.0)),
                    rate("scan one mmap sequential", "scan one mmap random", from(1.0)),
                    rate("scan one fio", "scan one mmap random", from(1.0)),
                    rate("scan one fio", "scan one mmap normal", from(1.0)),
                    rate("scan one fio", "scan one mmap sequential", from(1.0)),
                ],
            },
            scan,
        ),
    },
    Row {
        id: "S2.seq10",
        kind: RowKind::Published,
        says: "over several striped devices fio scans at least twice as fast as over one, and mmap at most 1.5 times",
        published: "ten devices: ~20 x between them",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[(
                    Test::every_run(of("scan striped fio", Figure::Devices), from(2.0)),
                    "the striped files were made in one directory, on one device, which cannot scale; name files on several \
                     devices to compare --stripe",
                )],
                tests: &[
                    rate("scan striped fio", "scan one fio", from(2.0)),
                    rate("scan striped mmap sequential", "scan one mmap sequential", up_to(1.5)),
                ],
            },
            striped,
        ),
    },
    Row {
        id: "S2.range",
        kind: RowKind::Published,
        says: "mmap is 2 to 20 times slower than fio once eviction starts (random reads, the best hint)",
        published: "2–20 x",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[rate("random fio", "random mmap random", [2.0, 20.0])] },
            range,
        ),
    },
    Row {
        id: "S2.advice",
        kind: RowKind::OurOwn,
        says: "when to use mmap, and when not",
        published: "a list",
        rests_on: &[],
        judge: Judge::Built("majorfault compare: the verdict and its advice, from measurement", None),
    },
    Row {
        id: "S2.devices",
        kind: RowKind::OurOwn,
        says: "several devices or files striped into one address range",
        published: "10 SSDs",
        rests_on: &[],
        judge: Judge::Built("majorfault compare FILE FILE --stripe 1m", Some(devices)),
    },
    Row {
        id: "S2.recency*",
        kind: RowKind::Control,
        says: "a hot set mapped with MADV_RANDOM is evicted by a stream that would spare it without the hint (since 6.3): at \
               least ten times the major faults",
        published: "bbolt: 0.9 s to 20 s",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::ratio(count(HOT_RANDOM, MAJOR), count(HOT_NORMAL, MAJOR), from(10.0))] },
            recency,
        ),
    },
    Row {
        id: "S2.willneed*",
        kind: RowKind::Control,
        says: "MADV_WILLNEED reads at most nine tenths of the range it is given",
        published: "8 of 256 MiB",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of("willneed madvise", RESIDENT), of("willneed madvise", TOLD), up_to(0.9))],
            },
            willneed,
        ),
    },
    Row {
        id: "S2.populate*",
        kind: RowKind::Control,
        says: "populating after MADV_RANDOM reads page by page, and takes at least twice as long",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(
                    of("populate after random", Figure::Seconds),
                    of("populate", Figure::Seconds),
                    from(2.0),
                )],
            },
            populate,
        ),
    },
    Row {
        id: "S2.flood*",
        kind: RowKind::Control,
        says: "read-ahead floods a small memory: plain mmap reads at least ten times what random accesses want",
        published: "–",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::figure(of("random mmap normal", Figure::ReadPerByte), from(10.0))] },
            flood,
        ),
    },
];

const MAJOR: Figure = Figure::Counter("major_faults");
const HOT_RANDOM: &str = "hot set beside a stream, random";
const HOT_NORMAL: &str = "hot set beside a stream, normal";
const RESIDENT: Figure = Figure::Own("resident_bytes");
const TOLD: Figure = Figure::Own("asked_bytes");

fn flat(samples: &Samples<'_>) -> Found<Shown> {
    // fio reports no timeline; the device below it has one.
    let slow = samples.figure("random fio", Figure::BelowHalf)?;
    let reads = samples.figure("random fio", Figure::PerSecond)?;
    let ours = format!("{} reads/s; {} % of the time below half of that", plain(&reads), digits(100.0 * slow.median));
    Ok(Shown::new(ours).because("device_read_bytes of the timeline"))
}

fn collapse(samples: &Samples<'_>) -> Found<Shown> {
    let (after, lowest) = (samples.figure(FILLING, Figure::LevelAfter)?, samples.figure(FILLING, Figure::LevelLowest)?);
    let against = samples.ratio(FILLING, PAST, Figure::PerSecond)?;
    let reclaimed = Figure::Counter("cgroup_reclaimed_pages");
    let each = samples.ratio_of((FILLING, Figure::Counter(SHOOTDOWNS)), (FILLING, reclaimed));
    let each = each.map_or_else(|_| "not counted".to_owned(), |found| digits(found.median));
    Ok(Shown::new(format!("then {} of the level before; lowest half second {}", plain(&after), plain(&lowest)))
        .because(format!("{each} shootdowns a reclaimed page"))
        .control(format!("{} O_DIRECT's", times(&against))))
}

fn hints(samples: &Samples<'_>) -> Found<Shown> {
    let normal = samples.ratio("random mmap normal", "random mmap random", Figure::PerSecond)?;
    let sequential = samples.ratio("random mmap sequential", "random mmap random", Figure::PerSecond)?;
    Ok(Shown::new(format!("normal {}, sequential {}", times(&normal), times(&sequential))))
}

/// Shootdowns a second before and after memory was full.
fn tlb(samples: &Samples<'_>) -> Found<Shown> {
    let before = samples.figure(FILLING, Figure::ShootdownsBefore)?;
    let after = samples.figure(FILLING, Figure::ShootdownsAfter)?;
    let direct = samples.figure(PAST, Figure::Counter(SHOOTDOWNS))?;
    Ok(Shown::new(format!("{}/s before, {}/s after memory was full", plain(&before), plain(&after)))
        .because("TLB row of /proc/interrupts, whole machine")
        .control(format!("O_DIRECT: {} in all", digits(direct.median))))
}

fn kswapd(samples: &Samples<'_>) -> Found<Shown> {
    let (busy, share) = (samples.figure(FILLING, Figure::KswapdBusy)?, samples.figure(FILLING, Figure::KswapdShare)?);
    Ok(Shown::new(format!("kswapd {} % of one processor", digits(100.0 * busy.median)))
        .because(format!("it took {} % of the pages reclaimed", digits(100.0 * share.median))))
}

fn scan(samples: &Samples<'_>) -> Found<Shown> {
    let ratio = |a: &str, b: &str| samples.ratio(&format!("scan one {a}"), &format!("scan one {b}"), Figure::PerSecond);
    let (normal, sequential) = (ratio("mmap normal", "mmap random")?, ratio("mmap sequential", "mmap random")?);
    let fio = ratio("fio", "mmap sequential")?;
    let uring = ratio("uring", "mmap sequential")?;
    Ok(Shown::new(format!(
        "normal {}, sequential {} of random; fio {} of sequential",
        times(&normal),
        times(&sequential),
        times(&fio)
    ))
    .because(format!("fio {} of normal", times(&ratio("fio", "mmap normal")?)))
    .control(format!("our io_uring {} of sequential", times(&uring))))
}

fn striped(samples: &Samples<'_>) -> Found<Shown> {
    let fio = samples.ratio("scan striped fio", "scan one fio", Figure::PerSecond)?;
    let mapped = samples.ratio("scan striped mmap sequential", "scan one mmap sequential", Figure::PerSecond)?;
    Ok(Shown::new(format!("striped / one: fio {}, mmap {}", times(&fio), times(&mapped))))
}

fn range(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio("random fio", "random mmap random", Figure::PerSecond)?;
    let without = samples.ratio("random fio", "random mmap normal", Figure::PerSecond)?;
    Ok(Shown::new(times(&found)).control(format!("without a hint {}", times(&without))))
}

fn devices(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.figure("scan striped mmap normal", Figure::PerSecond)?;
    Ok(Shown::new(format!("{} MiB/s", plain(&found))).because("every block had the right bytes"))
}

fn recency(samples: &Samples<'_>) -> Found<Shown> {
    let (random, normal) = (samples.figure(HOT_RANDOM, MAJOR)?, samples.figure(HOT_NORMAL, MAJOR)?);
    let touches = samples.ratio(HOT_RANDOM, HOT_NORMAL, Figure::Own("hot_touches"))?;
    let pages = samples.figure(HOT_RANDOM, Figure::Own("hot_bytes"))?.median / 4096.0;
    Ok(Shown::new(format!("{} major faults with the hint, {} without", plain(&random), plain(&normal)))
        .because(format!("of {} hot pages; touches made meanwhile {}", digits(pages), times(&touches))))
}

fn willneed(samples: &Samples<'_>) -> Found<Shown> {
    let part = |cell: &str| samples.ratio_of((cell, RESIDENT), (cell, TOLD));
    let (found, other) = (part("willneed madvise")?, part("willneed fadvise")?);
    Ok(Shown::new(format!("{} of what was asked", plain(&found)))
        .because("cachestat after 0.3 s")
        .control(format!("posix_fadvise: {}", plain(&other))))
}

fn populate(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio("populate after random", "populate", Figure::Seconds)?;
    let requests = samples.ratio("populate after random", "populate", Figure::Counter("device_reads"))?;
    Ok(Shown::new(times(&found)).because(format!("{} the device's requests", times(&requests))))
}

fn flood(samples: &Samples<'_>) -> Found<Shown> {
    let normal = samples.figure("random mmap normal", Figure::ReadPerByte)?;
    let random = samples.figure("random mmap random", Figure::ReadPerByte)?;
    let cell = "random mmap normal";
    let faults = samples.ratio_of((cell, Figure::Faults), (cell, Figure::Accesses))?;
    Ok(Shown::new(format!("{} device bytes per byte wanted", plain(&normal)))
        .because(format!("{} faults an access", digits(faults.median)))
        .control(format!("MADV_RANDOM: {}", digits(random.median))))
}
