//! S2: mmap against explicit I/O for a database's accesses (CIDR 2022).

use super::samples::{FAULTS, Found, counted, digits, either, own, per_second, phase_s, times, within};
use super::setting::method;
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use crate::record::Record;
use crate::stats;
use crate::trial::{CacheState, Choice, Trial};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S2",
    title: "mmap in a database system",
    source: "Crotty, Leis, Pavlo: Are You Sure You Want to Use MMAP in Your DBMS? CIDR 2022, sections 4 and 6",
    question: "How do mapped files with each hint compare with explicit I/O, when the data does not fit memory?",
    room: |scale| Bytes(size(scale).0 * 3),
    memory: |_| Bytes::gib(1),
    repetitions: |scale| scale.of(1, 3, 3),
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
    let seconds = scale.of(1.0, 5.0, 100.0);
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
        ..setting.reads(&one, method("mmap:advice=random"), scale.of(2.0, 10.0, 100.0))
    };
    add("random mmap random, memory a quarter", filling.clone());
    add("random direct, memory a quarter", Trial { arm: method("direct"), ..filling });

    // Scans, one device and striped.
    for (data, where_) in [(&one, "one"), (&striped, "striped")] {
        let scan = |text: &str| {
            let mut trial = setting.reads(data, method(text), scale.of(1.0, 3.0, 100.0));
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
    let path = one.files[0].clone();
    let mut told = |cell: &str, name: &str, given: &str, memory: Option<u64>| -> Result<()> {
        let mut planned = setting.procedure(cell, name, given, &path)?;
        planned.trial.memory_bytes = memory;
        planned.trial.data = one.clone();
        planned.trial.cache = CacheState::AsFound;
        cells.push(planned);
        Ok(())
    };
    let hot = size(scale).0 / 16;
    for advice in ["normal", "random"] {
        let given = format!("advice={advice},hot={}", Bytes(hot));
        told(&format!("hot set beside a stream, {advice}"), "stream-beside", &given, Some(hot * 2 + (32 << 20)))?;
    }
    for (cell, given) in [
        ("willneed madvise", "how=madvise"),
        ("willneed fadvise", "how=fadvise"),
        ("populate", "how=populate"),
        ("populate after random", "how=populate,random=on"),
    ] {
        told(cell, "will-need", given, None)?;
    }
    Ok(cells)
}

const ROWS: &[Row] = &[
    Row {
        id: "S2.random",
        says: "random reads by fio with O_DIRECT are flat",
        published: "~900 000 reads/s, 100 threads",
        judge: Judge::By(|samples| either(flat(samples))),
    },
    Row {
        id: "S2.collapse",
        says: "mmap with MADV_RANDOM collapses once the page cache is full, and stays below its level before",
        published: "near 0 for 5 s, then about half",
        judge: Judge::By(|samples| either(collapse(samples))),
    },
    Row {
        id: "S2.hints*",
        says: "the other hints are worse than MADV_RANDOM for random reads",
        published: "in the figure",
        judge: Judge::By(|samples| either(hints(samples))),
    },
    Row {
        id: "S2.tlb",
        says: "TLB shootdowns rise with eviction",
        published: "rises",
        judge: Judge::By(|samples| either(tlb(samples))),
    },
    Row {
        id: "S2.kswapd",
        says: "eviction by one kswapd thread is bound by its processor",
        published: "one thread at 100 %",
        judge: Judge::By(|samples| either(kswapd(samples))),
    },
    Row {
        id: "S2.seq1",
        says: "scanning one device, MADV_NORMAL and MADV_SEQUENTIAL beat MADV_RANDOM, and fio beats all three",
        published: "fio 7 GB/s; mmap falls off at 17 s",
        judge: Judge::By(|samples| either(scan(samples))),
    },
    Row {
        id: "S2.seq10",
        says: "with ten striped devices fio scales and mmap does not",
        published: "~20 x",
        judge: Judge::By(|samples| either(striped(samples))),
    },
    Row {
        id: "S2.range",
        says: "mmap is 2 to 20 times slower than fio once eviction starts",
        published: "2–20 x",
        judge: Judge::By(|samples| either(range(samples))),
    },
    Row {
        id: "S2.advice",
        says: "when to use mmap, and when not",
        published: "a list",
        judge: Judge::Built("faultline compare: the verdict and its advice, from measurement"),
    },
    Row {
        id: "S2.devices",
        says: "several devices or files striped into one address range",
        published: "10 SSDs",
        judge: Judge::By(|samples| either(devices(samples))),
    },
    Row {
        id: "S2.recency*",
        says: "a hot set mapped with MADV_RANDOM is evicted by a stream that would spare it without the hint (since 6.3)",
        published: "bbolt: 0.9 s to 20 s",
        judge: Judge::By(|samples| either(recency(samples))),
    },
    Row {
        id: "S2.willneed*",
        says: "MADV_WILLNEED reads only a part of what it is told",
        published: "8 of 256 MiB",
        judge: Judge::By(|samples| either(willneed(samples))),
    },
    Row {
        id: "S2.populate*",
        says: "populating after MADV_RANDOM reads page by page, and is much slower",
        published: "–",
        judge: Judge::By(|samples| either(populate(samples))),
    },
    Row {
        id: "S2.flood*",
        says: "read-ahead floods a small memory: plain mmap reads many times what random accesses want",
        published: "–",
        judge: Judge::By(|samples| either(flood(samples))),
    },
];

/// Rates of a growing counter between the samples of a run's visit.
fn rates(record: &Record, counter: &str) -> Vec<f64> {
    let Some(values) = record.timeline.counters.get(counter) else { return Vec::new() };
    let points: Vec<(i64, u64)> =
        record.timeline.at_ns.iter().zip(values).filter_map(|(at, value)| Some((*at, (*value)?))).collect();
    let inside = points.windows(2).filter(|pair| pair[0].0 >= 0 && pair[1].0 - pair[0].0 > 50_000_000);
    inside.map(|pair| (pair[1].1.saturating_sub(pair[0].1)) as f64 * 1e9 / (pair[1].0 - pair[0].0) as f64).collect()
}

fn flat(samples: &Samples<'_>) -> Found<Judged> {
    let reads = samples.figure("random fio", &per_second)?;
    // fio tells no timeline; the device under it does. Its first and last intervals hold its start and its end.
    let series = |record: &Record| -> Option<Vec<f64>> {
        let rates = rates(record, "device_read_bytes");
        let inner = rates.get(2..rates.len().checked_sub(2)?)?.to_vec();
        (inner.len() >= 5).then_some(inner)
    };
    // Flat is a level that is kept: a phase like the paper's shows as a stretch, a hiccup of a shared disk does not.
    let slow = |record: &Record| {
        let series = series(record)?;
        let half = stats::median(&series)? / 2.0;
        Some(series.iter().filter(|rate| **rate < half).count() as f64 / series.len() as f64)
    };
    let lowest = |record: &Record| {
        let series = series(record)?;
        Some(series.iter().copied().fold(f64::INFINITY, f64::min) / stats::median(&series)?)
    };
    let Ok(slow) = samples.figure("random fio", &slow) else {
        return Err(Judged::cannot("the runs were too short for a timeline; use --scale standard"));
    };
    let ours =
        format!("{} reads/s; {} % of the time below half of that", digits(reads.median), digits(100.0 * slow.median));
    Ok(Judged::new(within(&slow, [0.0, 0.1]), ours).because(format!(
        "device_read_bytes; lowest interval {}",
        digits(samples.figure("random fio", &lowest)?.median)
    )))
}

/// Level before memory was full, level afterwards, and the lowest stretch of half a second, of accesses a second.
fn levels(record: &Record) -> Option<[f64; 3]> {
    let limit = record.trial.memory_bytes? as f64;
    let usage = record.timeline.counters.get("cgroup_usage_bytes")?;
    let full = record
        .timeline
        .at_ns
        .iter()
        .zip(usage)
        .find(|(at, bytes)| **at >= 0 && bytes.is_some_and(|bytes| bytes as f64 >= 0.95 * limit))
        .map(|(at, _)| *at as u64)?;
    let at = (full / record.timeline.interval_ns) as usize;
    // The last interval is cut short by the end of the run.
    let series: Vec<f64> = record.timeline.accesses.iter().map(|count| *count as f64).collect();
    let series = series.get(..series.len().checked_sub(1)?)?;
    let (before, after) = series.split_at_checked(at)?;
    if before.len() < 3 || after.len() < 10 {
        return None;
    }
    let stretch = (500_000_000 / record.timeline.interval_ns).max(1) as usize;
    let low =
        after.windows(stretch).map(|window| window.iter().sum::<f64>() / stretch as f64).fold(f64::INFINITY, f64::min);
    Some([stats::median(before)?, stats::median(after)?, low])
}

fn collapse(samples: &Samples<'_>) -> Found<Judged> {
    let cell = "random mmap random, memory a quarter";
    let too_short =
        || Judged::cannot("memory did not fill early enough to compare both sides; use --scale standard or full");
    let part = |which: usize| move |record: &Record| levels(record).map(|levels| levels[which] / levels[0]);
    let after = samples
        .figure(cell, &part(1))
        .map_err(|cannot| if samples.gap(cell).is_some() { cannot } else { too_short() })?;
    let low = samples.figure(cell, &part(2)).map_err(|_| too_short())?;
    let against =
        samples.ratio("random mmap random, memory a quarter", "random direct, memory a quarter", &per_second)?;
    let verdict = match (within(&low, [0.0, 0.2]), within(&after, [0.0, 0.75])) {
        (Verdict::Holds, _) | (_, Verdict::Holds) => Verdict::Holds,
        (Verdict::DoesNotHold, Verdict::DoesNotHold) => Verdict::DoesNotHold,
        (Verdict::CannotTest(why), _) | (_, Verdict::CannotTest(why)) => Verdict::CannotTest(why),
        (first, _) => first,
    };
    let shootdowns = samples.ratio_of(
        (cell, &counted("visit", &["tlb_shootdowns"])),
        (cell, &counted("visit", &["cgroup_reclaimed_pages"])),
    );
    let each = shootdowns.map_or_else(|_| "not counted".to_owned(), |found| digits(found.median));
    Ok(Judged::new(
        verdict,
        format!("then {} of the level before; lowest half second {}", digits(after.median), digits(low.median)),
    )
    .because(format!("{each} shootdowns a reclaimed page"))
    .control(format!("{} O_DIRECT's", times(&against))))
}

fn hints(samples: &Samples<'_>) -> Found<Judged> {
    let normal = samples.ratio("random mmap normal", "random mmap random", &per_second)?;
    let sequential = samples.ratio("random mmap sequential", "random mmap random", &per_second)?;
    let verdict = match (within(&normal, [0.0, 1.0]), within(&sequential, [0.0, 1.0])) {
        (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
        (Verdict::CannotTest(why), _) | (_, Verdict::CannotTest(why)) => Verdict::CannotTest(why),
        _ => Verdict::DoesNotHold,
    };
    Ok(Judged::new(verdict, format!("normal {}, sequential {}", times(&normal), times(&sequential))))
}

/// Shootdowns a second before and after memory was full.
fn tlb(samples: &Samples<'_>) -> Found<Judged> {
    let cell = "random mmap random, memory a quarter";
    let pair = |record: &Record| -> Option<[f64; 2]> {
        let limit = record.trial.memory_bytes? as f64;
        let usage = record.timeline.counters.get("cgroup_usage_bytes")?;
        let shootdowns = record.timeline.counters.get("tlb_shootdowns")?;
        let points: Vec<(i64, f64, f64)> = record
            .timeline
            .at_ns
            .iter()
            .zip(usage.iter().zip(shootdowns))
            .filter_map(|(at, (bytes, count))| Some((*at, (*bytes)? as f64, (*count)? as f64)))
            .filter(|(at, ..)| *at >= 0)
            .collect();
        let full = points.iter().position(|(_, bytes, _)| *bytes >= 0.95 * limit)?;
        let (first, middle, last) = (points.first()?, points.get(full)?, points.last()?);
        let rate = |from: &(i64, f64, f64), to: &(i64, f64, f64)| (to.2 - from.2) * 1e9 / (to.0 - from.0) as f64;
        (middle.0 > first.0 && last.0 > middle.0).then(|| [rate(first, middle), rate(middle, last)])
    };
    let before = samples.figure(cell, &|record| pair(record).map(|pair| pair[0]))?;
    let after = samples.figure(cell, &|record| pair(record).map(|pair| pair[1]))?;
    let verdict = if after.median > 2.0 * before.median.max(1.0) { Verdict::Holds } else { Verdict::DoesNotHold };
    let direct = samples.figure("random direct, memory a quarter", &counted("visit", &["tlb_shootdowns"]))?;
    Ok(Judged::new(
        verdict,
        format!("{}/s before, {}/s after memory was full", digits(before.median), digits(after.median)),
    )
    .because("TLB row of /proc/interrupts, whole machine")
    .control(format!("O_DIRECT: {} in all", digits(direct.median))))
}

fn kswapd(samples: &Samples<'_>) -> Found<Judged> {
    let cell = "random mmap random, memory a quarter";
    let share = samples
        .ratio_of((cell, &counted("visit", &["kswapd_ns"])), (cell, &|record| Some(phase_s("visit")(record)? * 1e9)))?;
    Err(Judged {
        ours: format!("kswapd {} % of one processor", digits(100.0 * share.median)),
        ..Judged::cannot(
            "within a cgroup's limit the threads reclaim themselves and kswapd has nothing to do; fill a whole machine",
        )
    })
}

fn scan(samples: &Samples<'_>) -> Found<Judged> {
    let ratio = |a: &str| samples.ratio(a, "scan one mmap random", &per_second);
    let (normal, sequential) = (ratio("scan one mmap normal")?, ratio("scan one mmap sequential")?);
    let fio = samples.ratio("scan one fio", "scan one mmap sequential", &per_second)?;
    let above = [1.0, f64::INFINITY];
    let parts = [within(&normal, above), within(&sequential, above), within(&fio, above)];
    let verdict = parts.iter().find(|part| **part != Verdict::Holds).cloned().unwrap_or(Verdict::Holds);
    let uring = samples.ratio("scan one uring", "scan one mmap sequential", &per_second)?;
    Ok(Judged::new(
        verdict,
        format!(
            "normal {}, sequential {} of random; fio {} of sequential",
            times(&normal),
            times(&sequential),
            times(&fio)
        ),
    )
    .control(format!("our io_uring {} of sequential", times(&uring))))
}

fn striped(samples: &Samples<'_>) -> Found<Judged> {
    let fio = samples.ratio("scan striped fio", "scan one fio", &per_second)?;
    let mapped = samples.ratio("scan striped mmap sequential", "scan one mmap sequential", &per_second)?;
    Err(Judged {
        ours: format!("striped / one: fio {}, mmap {}", times(&fio), times(&mapped)),
        ..Judged::cannot(
            "the striped files lie on one disk, which cannot scale; name files on several devices to compare --stripe",
        )
    })
}

fn range(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("random fio", "random mmap random", &per_second)?;
    let plain = samples.ratio("random fio", "random mmap normal", &per_second)?;
    Ok(Judged::new(within(&found, [2.0, 20.0]), times(&found))
        .because("random reads, the best hint".to_owned())
        .control(format!("without a hint {}", times(&plain))))
}

fn devices(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.figure("scan striped mmap normal", &per_second)?;
    Ok(Judged::new(
        Verdict::Built("faultline compare FILE FILE --stripe 1m".to_owned()),
        format!("{} MiB/s", digits(found.median)),
    )
    .because("every block had the right bytes"))
}

fn recency(samples: &Samples<'_>) -> Found<Judged> {
    let cells = ("hot set beside a stream, random", "hot set beside a stream, normal");
    let faults = counted("visit", &["major_faults"]);
    let (random, normal) = (samples.figure(cells.0, &faults)?, samples.figure(cells.1, &faults)?);
    let verdict = if random.median > 10.0 * normal.median.max(1.0) { Verdict::Holds } else { Verdict::DoesNotHold };
    let touches = samples.ratio(cells.0, cells.1, &own("hot_touches"))?;
    let pages = samples.figure(cells.0, &own("hot_bytes"))?.median / 4096.0;
    Ok(Judged::new(
        verdict,
        format!("{} major faults with the hint, {} without", digits(random.median), digits(normal.median)),
    )
    .because(format!("of {} hot pages; touches made meanwhile {}", digits(pages), times(&touches))))
}

fn willneed(samples: &Samples<'_>) -> Found<Judged> {
    let part = |cell: &str| samples.ratio_of((cell, &own("resident_bytes")), (cell, &own("asked_bytes")));
    let (found, other) = (part("willneed madvise")?, part("willneed fadvise")?);
    Ok(Judged::new(within(&found, [0.0, 0.9]), format!("{} % of what was asked", digits(100.0 * found.median)))
        .because("cachestat after 0.3 s")
        .control(format!("posix_fadvise: {} %", digits(100.0 * other.median))))
}

fn populate(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("populate after random", "populate", &phase_s("visit"))?;
    let requests = samples.ratio("populate after random", "populate", &counted("visit", &["device_reads"]))?;
    Ok(Judged::new(within(&found, [2.0, f64::INFINITY]), times(&found))
        .because(format!("{} the device's requests", times(&requests))))
}

fn flood(samples: &Samples<'_>) -> Found<Judged> {
    let amplification =
        |record: &Record| Some(counted("visit", &["process_read_bytes"])(record)? / record.bytes() as f64);
    let normal = samples.figure("random mmap normal", &amplification)?;
    let random = samples.figure("random mmap random", &amplification)?;
    let faults = samples
        .figure("random mmap normal", &|record| Some(counted("visit", FAULTS)(record)? / record.accesses() as f64))?;
    Ok(Judged::new(
        within(&normal, [10.0, f64::INFINITY]),
        format!("{} device bytes per byte wanted", digits(normal.median)),
    )
    .because(format!("{} faults an access", digits(faults.median)))
    .control(format!("MADV_RANDOM: {}", digits(random.median))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    #[test]
    fn levels_are_told_on_both_sides_of_full_memory() {
        let usage: Vec<u64> = (1..=30).map(|step| (step * 10).min(100) << 20).collect();
        let accesses: Vec<u64> = (0..30)
            .map(|step| {
                if step < 9 {
                    1000
                } else if step < 12 {
                    10
                } else {
                    500
                }
            })
            .collect();
        let record = Run::of("mmap advice=random")
            .memory(100 << 20)
            .timeline(&accesses)
            .sampled("cgroup_usage_bytes", &usage)
            .record();

        let [before, after, low] = levels(&record).unwrap();

        assert_eq!((before, after), (1000.0, 500.0));
        assert!(low < 100.0, "{low}");
    }
}
