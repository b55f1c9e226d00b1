//! S0: many files, mapped and unmapped, against the same read into buffers; and whether the shootdowns are why.

use super::claim::{Claim, Test, count, from, of, up_to};
use super::figure::SHOOTDOWNS;
use super::samples::{Found, Samples, Shown, digits, milliseconds, plain, times};
use super::{Condition, Experiment, Figure, Judge, Planned, PublishedCells, Row, RowKind, Scale, Setting};
use majorfault::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S0",
    title: "TLB shootdowns of mapped files against a buffer pool",
    source: "TLB shootdown demonstration in Java: 50 000 files, 12 threads, 100 values each",
    question: "Is reading many files through mappings slower than through buffers, and are TLB shootdowns why?",
    room: |scale| Bytes(files(scale) * LENGTH.0 * 5 / 4),
    memory: |_| Bytes::mib(512),
    repetitions: |scale| scale.of(2, 7, 7),
    cells,
    published: Some(PublishedCells {
        cells: &[("mmap", 0.834_85), ("buffer", 0.656_99)],
        of: "50 000 files",
        is_at: |scale| files(scale) == PUBLISHED_FILES,
    }),
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "Java's own costs. The length of a file: the source does not give it, 16 KiB is our assumption, so that times beside \
                  the published ones are of another amount of data. The files are cached, as they were there after being made; a first run from a cold \
                  device is another question (compare).",
};

/// Bytes of a file: an assumption of ours, the source does not say.
const LENGTH: Bytes = Bytes::kib(16);

/// As in the source.
const PUBLISHED_FILES: u64 = 50_000;

fn files(scale: Scale) -> u64 {
    scale.of(2_000, 20_000, PUBLISHED_FILES)
}

const SHOT: Figure = Figure::Counter(SHOOTDOWNS);

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let count = files(setting.scale);
    let threads = 12;
    let dir = setting.many_files(count, LENGTH)?;
    let many = |cell: &str, given: String| {
        setting.procedure(cell, "many-files", &format!("files={count},length={LENGTH},{given}"), &dir)
    };
    let dropped = setting.scale.of(8_192, 32_768, 131_072);
    let evict = |how: &str| {
        let given = format!("how={how},pages={},dropped={dropped}", dropped * 2);
        setting.procedure(&format!("evict {how}"), "evict", &given, &dir)
    };
    Ok(vec![
        many("mmap", format!("how=mmap,threads={threads}"))?,
        many("buffer", format!("how=buffer,threads={threads}"))?,
        many("mmap, 1 thread", "how=mmap,threads=1".to_owned())?,
        many("buffer, 1 thread", "how=buffer,threads=1".to_owned())?,
        many("mmap, 1 thread and company", "how=mmap,threads=1,company=on".to_owned())?,
        many("buffer, 1 thread and company", "how=buffer,threads=1,company=on".to_owned())?,
        many("mmap populated", format!("how=mmap,threads={threads},populate=on"))?,
        many("mmap, unmapped 64 at a time", format!("how=mmap,threads={threads},unmap=batch"))?,
        many("mmap, unmapped at the end", format!("how=mmap,threads={threads},unmap=end"))?,
        evict("each")?,
        evict("vectored")?,
    ])
}

const ROWS: &[Row] = &[
    Row {
        id: "S0.data",
        kind: RowKind::OurOwn,
        says: "a program makes data files of UUIDs at different offsets",
        published: "50 000 files, their length not given",
        rests_on: &[],
        judge: Judge::Built(
            "majorfault reproduce S0 makes them: 2 000, 20 000 or 50 000 by --scale, each of 16 KiB, which is our assumption",
            None,
        ),
    },
    Row {
        id: "S0.mmap",
        kind: RowKind::Published,
        says: "12 threads map each file, read 100 values, unmap",
        published: "835 ms, 50 000 files",
        rests_on: &[],
        judge: Judge::Measured(|samples| wall(samples, "mmap")),
    },
    Row {
        id: "S0.pool",
        kind: RowKind::Published,
        says: "12 threads read each file into a buffer and 100 values from it",
        published: "657 ms, 50 000 files",
        rests_on: &[],
        judge: Judge::Measured(|samples| wall(samples, "buffer")),
    },
    Row {
        id: "S0.faster",
        kind: RowKind::Published,
        says: "reading into buffers is faster than mapping",
        published: "1.27 x",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(of("mmap", Figure::Seconds), of("buffer", Figure::Seconds), from(1.0))],
            },
            faster,
        ),
    },
    Row {
        id: "S0.tlb",
        kind: RowKind::Published,
        says: "mapping causes at least ten times the TLB shootdowns",
        published: "321 785 against 779",
        rests_on: &[Condition::Shootdowns],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::ratio(count("mmap", SHOT), count("buffer", SHOT), from(10.0))] },
            shootdowns,
        ),
    },
    Row {
        id: "S0.cause*",
        kind: RowKind::Control,
        says: "the shootdowns are why it is slower: without them mapping takes at most 1.05 times as long",
        published: "implied",
        rests_on: &[Condition::Shootdowns],
        judge: Judge::Claim(
            Claim {
                // One for each twenty files of the smallest scale.
                needs: &[(
                    Test::every_run(of("mmap, 1 thread", SHOT), up_to(100.0)),
                    "a single thread caused shootdowns as well, so there is no case without them to compare with",
                )],
                tests: &[Test::ratio(
                    of("mmap, 1 thread", Figure::Seconds),
                    of("buffer, 1 thread", Figure::Seconds),
                    up_to(1.05),
                )],
            },
            cause,
        ),
    },
    Row {
        id: "S0.split*",
        kind: RowKind::Control,
        says: "where the time of mapping goes",
        published: "–",
        rests_on: &[],
        judge: Judge::Measured(split),
    },
    Row {
        id: "S0.deferred*",
        kind: RowKind::Control,
        says: "unmapping later, all at once, causes at most half of the shootdowns",
        published: "–",
        rests_on: &[Condition::Shootdowns],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[Test::ratio(count("mmap, unmapped at the end", SHOT), count("mmap", SHOT), up_to(0.5))],
            },
            deferred,
        ),
    },
    Row {
        id: "S0.vectored*",
        kind: RowKind::Control,
        says: "dropping many pages in one call needs at most a tenth of the shootdowns of a call each",
        published: "–",
        rests_on: &[Condition::Shootdowns],
        judge: Judge::Claim(
            Claim {
                needs: &[(
                    Test::every_run(of("evict each", SHOT), from(100.0)),
                    "one call each made fewer than 100 shootdowns: this machine flushes without interrupts, or has one \
                     processor",
                )],
                tests: &[Test::ratio(count("evict vectored", SHOT), count("evict each", SHOT), up_to(0.1))],
            },
            vectored,
        ),
    },
    Row {
        id: "S0.rule",
        kind: RowKind::OurOwn,
        says: "a tool watches the TLB row of a running program",
        published: "none exists",
        rests_on: &[],
        judge: Judge::Built("majorfault doctor PID: rule map_churn, shootdowns beside the machine's", None),
    },
];

/// Requests to flush, by the tracepoint: what the machine may hide of shootdowns is among them.
const ASKED: Figure = Figure::Counter("tlb_flush_remote_send_ipi");

fn asked(samples: &Samples<'_>, cell: &str) -> String {
    samples.figure(cell, ASKED).map_or_else(|_| "not counted".to_owned(), |found| digits(found.median))
}

fn wall(samples: &Samples<'_>, cell: &str) -> Found<Shown> {
    let found = samples.figure(cell, Figure::Seconds)?;
    let files = samples.valid(cell).next().map_or(0, |record| record.accesses());
    let other = if files == PUBLISHED_FILES { "" } else { " (not the published number)" };
    Ok(Shown::new(milliseconds(&found))
        .because(format!("{} files{other} of 16 KiB each, a length that we assume", digits(files as f64))))
}

fn faster(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio("mmap", "buffer", Figure::Seconds)?;
    let alone = samples.ratio("mmap, 1 thread", "buffer, 1 thread", Figure::Seconds)?;
    Ok(Shown::new(times(&found)).control(format!("1 thread: {}", times(&alone))))
}

fn shootdowns(samples: &Samples<'_>) -> Found<Shown> {
    let (mapped, buffered) = (samples.figure("mmap", SHOT)?, samples.figure("buffer", SHOT)?);
    let alone = samples.figure("mmap, 1 thread", SHOT)?;
    let files = samples.valid("mmap").next().map_or(1, |record| record.accesses().max(1));
    Ok(Shown::new(format!("{} against {}", plain(&mapped), plain(&buffered)))
        .because(format!(
            "{} shootdowns a file; requests to flush {} against {}",
            digits(mapped.median / files as f64),
            asked(samples, "mmap"),
            asked(samples, "buffer")
        ))
        .control(format!("1 thread: {} ({} requests)", digits(alone.median), asked(samples, "mmap, 1 thread"))))
}

/// The gap is compared without any other thread, where nobody can be interrupted.
fn cause(samples: &Samples<'_>) -> Found<Shown> {
    let (lone, joined) = ("mmap, 1 thread", "mmap, 1 thread and company");
    let alone = samples.ratio(lone, "buffer, 1 thread", Figure::Seconds)?;
    let company = samples.ratio(joined, "buffer, 1 thread and company", Figure::Seconds)?;
    let (none, some) = (samples.figure(lone, SHOT)?.median, samples.figure(joined, SHOT)?.median);
    // What company adds to unmapping, as a share of the whole: the most that shootdowns can be blamed for.
    let unmapping = Figure::Own("unmap_ns");
    let added = samples.figure(joined, unmapping)?.median - samples.figure(lone, unmapping)?.median;
    let share = 100.0 * added.max(0.0) / (samples.figure(joined, Figure::Seconds)?.median * 1e9);
    Ok(Shown::new(format!("one thread alone: {}", times(&alone)))
        .because(format!(
            "shootdowns are {} % of the time with a thread to interrupt; alone {} were counted of {} requests",
            digits(share),
            digits(none),
            asked(samples, lone)
        ))
        .control(format!("with company {} ({} shootdowns)", times(&company), digits(some))))
}

fn split(samples: &Samples<'_>) -> Found<Shown> {
    let parts = |cell: &str| -> Found<String> {
        let names = [("open", "open_ns"), ("map", "map_ns"), ("read and fault", "read_ns"), ("unmap", "unmap_ns")];
        let values = names
            .iter()
            .map(|(_, name)| samples.figure(cell, Figure::Own(name)).map(|found| found.median))
            .collect::<Found<Vec<f64>>>()?;
        let all: f64 = values.iter().sum();
        let part = |((name, _), value): (&(&str, &str), &f64)| format!("{name} {} %", digits(100.0 * value / all));
        Ok(names.iter().zip(&values).map(part).collect::<Vec<_>>().join(", "))
    };
    Ok(Shown::new(parts("mmap, 1 thread")?)
        .because(format!("with company: {}", parts("mmap, 1 thread and company")?))
        .control(format!("populated: {}", parts("mmap populated")?)))
}

fn deferred(samples: &Samples<'_>) -> Found<Shown> {
    let (end, each) = (samples.figure("mmap, unmapped at the end", SHOT)?, samples.figure("mmap", SHOT)?);
    let batch = samples.figure("mmap, unmapped 64 at a time", SHOT)?.median;
    let wall = samples.ratio("mmap, unmapped at the end", "mmap", Figure::Seconds)?;
    Ok(Shown::new(format!("{} instead of {}", plain(&end), plain(&each)))
        .because(format!(
            "time {}; requests to flush {} instead of {}",
            times(&wall),
            asked(samples, "mmap, unmapped at the end"),
            asked(samples, "mmap")
        ))
        .control(format!("64 at a time: {}", digits(batch))))
}

fn vectored(samples: &Samples<'_>) -> Found<Shown> {
    let time = samples.ratio("evict vectored", "evict each", Figure::Seconds)?;
    let (many, each) = (samples.figure("evict vectored", SHOT)?, samples.figure("evict each", SHOT)?);
    Ok(Shown::new(format!("{} against {}", plain(&many), plain(&each))).because(format!(
        "time {}; requests to flush {}",
        times(&time),
        asked(samples, "evict vectored")
    )))
}
