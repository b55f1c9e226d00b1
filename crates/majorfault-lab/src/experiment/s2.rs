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
    room: |scale| Bytes((large_size(scale).0 + size(scale).0 * 2 + told_size(scale).0 * 5 / 4) * 21 / 20),
    memory: |scale| Bytes((size(scale).0 / 4).max(large_size(scale).0 / 8).max(1 << 30)),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: None,
    timelines: &["memory a quarter", "memory an eighth"],
    table: None,
    rows: ROWS,
    cannot_show: "The paper's machine: 128 hardware threads, 10 NVMe SSDs, 2 TB of data, Linux 5.11. Memory is limited by a \
                  cgroup, whose threads reclaim themselves, where the paper let kswapd fill and empty a whole machine. \
                  Striped files lie on one disk here. Random reads are of 20 times the memory as there, but by 2, 8 or 100 threads over \
                  1, 4 or 40 GiB by --scale, so that memory is more than twice the read-ahead of all threads, 8 MiB each. S2.flood \
                  is ours: in its small memory the read-ahead of 32 threads does not fit.",
};

fn size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(256), Bytes::gib(1), Bytes::gib(40))
}

/// Data whose twentieth part is memory enough for the read-ahead of [`reading`] threads, 8 MiB each on some disks.
fn large_size(scale: Scale) -> Bytes {
    scale.of(Bytes::gib(1), Bytes::gib(4), Bytes::gib(40))
}

/// Threads of the random reads; the paper had 100.
fn reading(scale: Scale) -> u32 {
    scale.of(2, 8, 100)
}

/// Bytes announced by MADV_WILLNEED: 256 MiB at most, as in the published case.
fn told_size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(64), Bytes::mib(256), Bytes::mib(256))
}

/// The paper's machine had 20 times as much data as page cache.
const TIMES_MEMORY: u64 = 20;

const MAPPED: &[&str] = &["normal", "random", "sequential"];

/// The files of all cells.
struct Files {
    /// Those of most cells.
    one: Data,
    /// As much, over two files.
    striped: Data,
    /// More, for the reads whose memory has room for read-ahead and for the scans that fill theirs.
    large: Data,
}

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let scale = setting.scale;
    let (one, striped) = (setting.data(size(scale), 1)?, setting.data(size(scale), 2)?);
    let large = if large_size(scale) == size(scale) { one.clone() } else { setting.data(large_size(scale), 1)? };
    let files = Files { one, striped, large };
    let mut cells = [random_reads(setting, &files), scans(setting, &files), filling_scans(setting, &files)].concat();
    cells.extend(later(setting, &files)?);
    Ok(cells)
}

fn planned(name: &str, trial: Trial) -> Planned {
    Planned { name: name.to_owned(), trial }
}

/// Random reads by many threads. Explicit I/O has one access in flight in each thread, as fio in the paper.
fn random_reads(setting: &Setting<'_>, files: &Files) -> Vec<Planned> {
    let scale = setting.scale;
    let seconds = scale.of(1.0, 3.5, 100.0);
    let random = |data: &Data, threads: u32, text: &str| Trial {
        threads,
        iodepth: 1,
        memory_bytes: Some((data.size_bytes / TIMES_MEMORY).max(32 << 20)),
        ..setting.reads(data, method(text), seconds)
    };
    let mut cells = vec![planned(FIO, random(&files.large, reading(scale), "fio:engine=psync"))];
    for advice in MAPPED {
        let trial = random(&files.large, reading(scale), &format!("mmap:advice={advice}"));
        cells.push(planned(&format!("random reads, mmap {advice}"), trial));
    }
    // Read-ahead of all threads is more than there is memory, at every scale.
    let part = Data { size_bytes: files.one.size_bytes.min(1 << 30), ..files.one.clone() };
    for advice in ["normal", "random"] {
        let trial = random(&part, scale.of(8, 32, 32), &format!("mmap:advice={advice}"));
        cells.push(planned(&format!("random mmap {advice}"), trial));
    }
    let filling = Trial {
        threads: setting.cpus,
        memory_bytes: Some((size(scale).0 / 4).max(48 << 20)),
        interval_ns: 100_000_000,
        ..setting.reads(&files.one, method("mmap:advice=random"), scale.of(2.0, 6.0, 100.0))
    };
    cells.push(planned(FILLING, filling.clone()));
    cells.push(planned(PAST, Trial { arm: method("direct"), ..filling }));
    cells
}

/// A scan in blocks of 1 MiB, 16 in flight where there is a queue.
fn scanning(setting: &Setting<'_>, data: &Data, text: &str, seconds: f64) -> Trial {
    Trial {
        workload: Choice::plain("sequential"),
        block_bytes: 1 << 20,
        iodepth: 16,
        ..setting.reads(data, method(text), seconds)
    }
}

/// Scans of one device and of two files striped.
fn scans(setting: &Setting<'_>, files: &Files) -> Vec<Planned> {
    let seconds = setting.scale.of(1.0, 1.5, 100.0);
    let mut cells = Vec::new();
    for (data, place) in [(&files.one, "one"), (&files.striped, "striped")] {
        let memory_bytes = Some((data.size_bytes / TIMES_MEMORY).max(64 << 20));
        let mut add = |name: &str, text: &str| {
            let trial = Trial { memory_bytes, ..scanning(setting, data, text, seconds) };
            cells.push(planned(&format!("scan {place} {name}"), trial));
        };
        add("fio", "fio");
        add("uring", "uring:depth=16");
        for advice in MAPPED {
            add(&format!("mmap {advice}"), &format!("mmap:advice={advice}"));
        }
    }
    cells
}

/// Scans that fill their memory while they run, seen often enough to tell when: of fio the device is seen, whose rate needs
/// longer intervals.
fn filling_scans(setting: &Setting<'_>, files: &Files) -> Vec<Planned> {
    let scale = setting.scale;
    let of = |name: &str, text: &str, interval_ms: u64| {
        let seconds = scale.of(1.2, 2.5, 100.0);
        let memory_bytes = Some(files.large.size_bytes / 8);
        let interval_ns = interval_ms * 1_000_000;
        planned(name, Trial { memory_bytes, interval_ns, ..scanning(setting, &files.large, text, seconds) })
    };
    let fine_ms = scale.of(10, 25, 100);
    vec![
        of(SCAN_FIO, "fio", 100),
        of(SCAN_NORMAL, "mmap:advice=normal", fine_ms),
        of(SCAN_SEQUENTIAL, "mmap:advice=sequential", fine_ms),
    ]
}

/// What was not known then.
fn later(setting: &mut Setting<'_>, files: &Files) -> Result<Vec<Planned>> {
    let scale = setting.scale;
    let (part, small) = (setting.data(told_size(scale), 1)?, setting.data(Bytes(told_size(scale).0 / 4), 1)?);
    let mut cells = Vec::new();
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
            (&files.one, Some(hot * 2 + (32 << 20))),
        )?;
    }
    for (cell, given, data) in [
        ("willneed madvise", "how=madvise", &part),
        ("willneed fadvise", "how=fadvise", &part),
        // Page by page a large file takes minutes.
        (POPULATED, "how=populate", &small),
        (POPULATED_RANDOM, "how=populate,random=on", &small),
    ] {
        told(cell, "will-need", given, (data, None))?;
    }
    Ok(cells)
}

/// Random reads whose memory has room for the read-ahead of all threads.
const FIO: &str = "random reads, fio";
const NORMAL: &str = "random reads, mmap normal";
const RANDOM: &str = "random reads, mmap random";
const SEQUENTIAL: &str = "random reads, mmap sequential";

/// Scans that fill memory while they run.
const SCAN_FIO: &str = "scan fio, memory an eighth";
const SCAN_NORMAL: &str = "scan mmap normal, memory an eighth";
const SCAN_SEQUENTIAL: &str = "scan mmap sequential, memory an eighth";

const POPULATED: &str = "populate, a quarter of the size";
const POPULATED_RANDOM: &str = "populate after random, a quarter of the size";

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
        judge: Judge::Claim(Claim { needs: &[], tests: &[Test::figure(of(FIO, Figure::BelowHalf), up_to(0.1))] }, flat),
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
            Claim { needs: &[], tests: &[rate(NORMAL, RANDOM, up_to(1.0)), rate(SEQUENTIAL, RANDOM, up_to(1.0))] },
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
        published: "fio at the device's 7 GB/s; the hints in figure 3",
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
        id: "S2.seq1.falls",
        kind: RowKind::Published,
        says: "scanning one device, fio is steady (below half of its usual rate for at most a tenth of the time), and mmap falls to \
               three quarters of its level or less once the page cache is full",
        published: "mmap falls off at 17 s, when the cache is full",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::figure(of(SCAN_FIO, Figure::BelowHalf), up_to(0.1)),
                    Test::figure(of(SCAN_NORMAL, Figure::LevelAfter), up_to(0.75)),
                    Test::figure(of(SCAN_SEQUENTIAL, Figure::LevelAfter), up_to(0.75)),
                ],
            },
            falls,
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
                    "the striped files lie on one device, which cannot scale; name a directory on each of several with --dir",
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
        judge: Judge::Claim(Claim { needs: &[], tests: &[rate(FIO, RANDOM, [2.0, 20.0])] }, range),
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
                tests: &[Test::ratio(of(POPULATED_RANDOM, Figure::Seconds), of(POPULATED, Figure::Seconds), from(2.0))],
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
    let slow = samples.figure(FIO, Figure::BelowHalf)?;
    let reads = samples.figure(FIO, Figure::PerSecond)?;
    let threads = samples.valid(FIO).next().map_or(0, |record| record.trial.threads);
    let over = samples.figure(FIO, Figure::DataOverMemory)?;
    let ours = format!("{} reads/s; {} % of the time below half of that", plain(&reads), digits(100.0 * slow.median));
    Ok(Shown::new(ours).because(format!(
        "device_read_bytes of the timeline; {threads} threads, data {} x the memory",
        digits(over.median)
    )))
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
    let normal = samples.ratio(NORMAL, RANDOM, Figure::PerSecond)?;
    let sequential = samples.ratio(SEQUENTIAL, RANDOM, Figure::PerSecond)?;
    let ours = Shown::new(format!("normal {}, sequential {}", times(&normal), times(&sequential)));
    let small = samples.ratio("random mmap normal", "random mmap random", Figure::PerSecond);
    let small = small.map_or_else(|_| "not told".to_owned(), |found| times(&found));
    let read = samples.figure(NORMAL, Figure::ReadPerByte)?;
    Ok(ours
        .because(format!("{}; normal reads {} device bytes per byte", room(samples), digits(read.median)))
        .control(format!("normal, where the read-ahead of all threads is more than the memory: {small}")))
}

/// How much memory there is beside the read-ahead of all threads, in words.
fn room(samples: &Samples<'_>) -> String {
    let Some(record) = samples.valid(NORMAL).next() else { return String::new() };
    let (threads, memory) = (record.trial.threads, Bytes(record.trial.memory_bytes.unwrap_or(0)).rounded());
    match record.machine.read_ahead_kb {
        Some(kb) => format!("{threads} threads, read-ahead of {} each, in {memory}", Bytes::kib(kb).rounded()),
        None => format!("{threads} threads in {memory}"),
    }
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

fn falls(samples: &Samples<'_>) -> Found<Shown> {
    let after = |cell: &str| samples.figure(cell, Figure::LevelAfter);
    let (normal, sequential) = (after(SCAN_NORMAL)?, after(SCAN_SEQUENTIAL)?);
    let slow = samples.figure(SCAN_FIO, Figure::BelowHalf)?;
    let fio = samples.ratio(SCAN_FIO, SCAN_NORMAL, Figure::PerSecond)?;
    Ok(Shown::new(format!("then {} of the level before (normal), {} (sequential)", plain(&normal), plain(&sequential)))
        .because(format!("fio {} of normal over the whole run", times(&fio)))
        .control(format!("fio: {} % of the time below half of its usual rate", digits(100.0 * slow.median))))
}

fn striped(samples: &Samples<'_>) -> Found<Shown> {
    let fio = samples.ratio("scan striped fio", "scan one fio", Figure::PerSecond)?;
    let mapped = samples.ratio("scan striped mmap sequential", "scan one mmap sequential", Figure::PerSecond)?;
    Ok(Shown::new(format!("striped / one: fio {}, mmap {}", times(&fio), times(&mapped))))
}

fn range(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(FIO, RANDOM, Figure::PerSecond)?;
    let without = samples.ratio(FIO, NORMAL, Figure::PerSecond)?;
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
    let found = samples.ratio(POPULATED_RANDOM, POPULATED, Figure::Seconds)?;
    let requests = samples.ratio(POPULATED_RANDOM, POPULATED, Figure::Counter("device_reads"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Making, Store};
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    fn trial(scale: Scale, cell: &str) -> Trial {
        let (stop, mut store, making) = (AtomicBool::new(false), Store::default(), Making::Nothing);
        let mut setting =
            Setting { scale, cpus: 2, dir: Path::new("/nowhere"), others: &[], stop: &stop, store: &mut store, making };
        cells(&mut setting).unwrap().into_iter().find(|it| it.name == cell).unwrap().trial
    }

    #[test]
    fn random_reads_are_of_twenty_times_a_memory_that_holds_the_read_ahead_of_all_threads_twice() {
        for scale in Scale::ALL {
            for cell in [FIO, NORMAL, RANDOM, SEQUENTIAL] {
                let found = trial(*scale, cell);
                let (data, memory) = (found.data.size_bytes, found.memory_bytes.unwrap());

                assert_eq!(data / memory, 20, "{cell} at {}", scale.name());
                assert!(memory > 2 * u64::from(found.threads) * (8 << 20), "{cell} at {}", scale.name());
            }
        }
        assert_eq!(trial(Scale::Full, FIO).threads, 100);
    }

    #[test]
    fn the_memory_of_the_flood_is_less_than_the_read_ahead_of_all_threads() {
        for scale in Scale::ALL {
            let found = trial(*scale, "random mmap normal");

            assert!(found.memory_bytes.unwrap() < u64::from(found.threads) * (8 << 20), "at {}", scale.name());
        }
    }
}
