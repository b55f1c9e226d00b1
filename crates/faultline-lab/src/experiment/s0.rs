//! S0: many files, mapped and unmapped, against the same read into buffers; and whether the shootdowns are why.

use super::samples::{Found, counted, digits, either, milliseconds, own, phase_s, times, within};
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S0",
    title: "TLB shootdowns of mapped files against a buffer pool",
    source: "TLB shootdown demonstration in Java: 50 000 files, 12 threads, 100 values each",
    question: "Is reading many files through mappings slower than through buffers, and are TLB shootdowns why?",
    room: |scale| Bytes(files(scale) * LENGTH.0 * 5 / 4),
    memory: |_| Bytes::mib(512),
    repetitions: |scale| scale.of(2, 5, 7),
    cells,
    published: &[("mmap", 0.834_85), ("buffer", 0.656_99)],
    timeline: None,
    rows: ROWS,
    cannot_show: "Java's own costs. The files are cached, as they were there after being made; a first run from a cold \
                  device is another question (compare).",
};

/// Bytes of a file, as in the control measurements of this project's research.
const LENGTH: Bytes = Bytes::kib(16);

fn files(scale: Scale) -> u64 {
    scale.of(2_000, 20_000, 50_000)
}

const SHOOTDOWNS: &[&str] = &["tlb_shootdowns"];

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
        says: "a program makes data files of UUIDs at different offsets",
        published: "50 000 files",
        judge: Judge::Built("faultline reproduce S0 makes them: 2 000, 20 000 or 50 000 by --scale"),
    },
    Row {
        id: "S0.mmap",
        says: "12 threads map each file, read 100 values, unmap",
        published: "835 ms",
        judge: Judge::By(|samples| wall(samples, "mmap")),
    },
    Row {
        id: "S0.pool",
        says: "12 threads read each file into a buffer and 100 values from it",
        published: "657 ms",
        judge: Judge::By(|samples| wall(samples, "buffer")),
    },
    Row {
        id: "S0.faster",
        says: "reading into buffers is faster than mapping",
        published: "1.27 x",
        judge: Judge::By(|samples| either(faster(samples))),
    },
    Row {
        id: "S0.tlb",
        says: "mapping causes many times the TLB shootdowns",
        published: "321 785 against 779",
        judge: Judge::By(|samples| either(shootdowns(samples))),
    },
    Row {
        id: "S0.cause*",
        says: "the shootdowns are why it is slower: without them mapping is no slower",
        published: "implied",
        judge: Judge::By(|samples| either(cause(samples))),
    },
    Row {
        id: "S0.split*",
        says: "where the time of mapping goes",
        published: "–",
        judge: Judge::By(|samples| either(split(samples))),
    },
    Row {
        id: "S0.deferred*",
        says: "unmapping later, all at once, saves shootdowns",
        published: "–",
        judge: Judge::By(|samples| either(deferred(samples))),
    },
    Row {
        id: "S0.vectored*",
        says: "dropping many pages in one call needs less than a tenth of the shootdowns of a call each",
        published: "–",
        judge: Judge::By(|samples| either(vectored(samples))),
    },
    Row {
        id: "S0.rule",
        says: "a tool watches the TLB row of a running program",
        published: "none exists",
        judge: Judge::Built("faultline doctor PID: rule map_churn, shootdowns beside the machine's"),
    },
];

fn wall(samples: &Samples<'_>, cell: &str) -> Judged {
    match samples.figure(cell, &phase_s("visit")) {
        Ok(found) => {
            let files = samples.valid(cell).next().map_or(0, |record| record.accesses());
            Judged::new(Verdict::Measured, milliseconds(&found)).because(format!("{files} files"))
        }
        Err(cannot) => cannot,
    }
}

fn faster(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("mmap", "buffer", &phase_s("visit"))?;
    let alone = samples.ratio("mmap, 1 thread", "buffer, 1 thread", &phase_s("visit"))?;
    Ok(Judged::new(within(&found, [1.0, f64::INFINITY]), times(&found)).control(format!("1 thread: {}", times(&alone))))
}

fn total(samples: &Samples<'_>, cell: &str) -> Found<f64> {
    Ok(samples.figure(cell, &counted("visit", SHOOTDOWNS))?.median)
}

fn shootdowns(samples: &Samples<'_>) -> Found<Judged> {
    let [mapped, buffered, alone] =
        [total(samples, "mmap")?, total(samples, "buffer")?, total(samples, "mmap, 1 thread")?];
    let verdict = if mapped >= 10.0 * buffered.max(1.0) { Verdict::Holds } else { Verdict::DoesNotHold };
    let files = samples.valid("mmap").next().map_or(1, |record| record.accesses().max(1));
    Ok(Judged::new(verdict, format!("{} against {}", digits(mapped), digits(buffered)))
        .because(format!("{} shootdowns a file", digits(mapped / files as f64)))
        .control(format!("1 thread: {}", digits(alone))))
}

/// The gap is compared without any other thread, where nobody can be interrupted.
fn cause(samples: &Samples<'_>) -> Found<Judged> {
    let alone = samples.ratio("mmap, 1 thread", "buffer, 1 thread", &phase_s("visit"))?;
    let company = samples.ratio("mmap, 1 thread and company", "buffer, 1 thread and company", &phase_s("visit"))?;
    let [none, some] = [total(samples, "mmap, 1 thread")?, total(samples, "mmap, 1 thread and company")?];
    // What company adds to unmapping, as a share of the whole: the most that shootdowns can be blamed for.
    let added = samples.figure("mmap, 1 thread and company", &own("unmap_ns"))?.median
        - samples.figure("mmap, 1 thread", &own("unmap_ns"))?.median;
    let whole = samples.figure("mmap, 1 thread and company", &phase_s("visit"))?.median * 1e9;
    let share = 100.0 * added.max(0.0) / whole;
    Ok(Judged::new(within(&alone, [0.0, 1.05]), format!("still {} without any", times(&alone)))
        .because(format!("shootdowns are {} % of the time with a thread to interrupt", digits(share)))
        .control(format!("with company {} ({} shootdowns against {})", times(&company), digits(some), digits(none))))
}

fn split(samples: &Samples<'_>) -> Found<Judged> {
    let parts = |cell: &str| -> Found<String> {
        let names = [("open", "open_ns"), ("map", "map_ns"), ("read and fault", "read_ns"), ("unmap", "unmap_ns")];
        let values = names
            .iter()
            .map(|(_, name)| samples.figure(cell, &own(name)).map(|found| found.median))
            .collect::<Found<Vec<f64>>>()?;
        let all: f64 = values.iter().sum();
        let part = |((name, _), value): (&(&str, &str), &f64)| format!("{name} {} %", digits(100.0 * value / all));
        Ok(names.iter().zip(&values).map(part).collect::<Vec<_>>().join(", "))
    };
    Ok(Judged::new(Verdict::Measured, parts("mmap, 1 thread")?)
        .because(format!("with company: {}", parts("mmap, 1 thread and company")?))
        .control(format!("populated: {}", parts("mmap populated")?)))
}

fn deferred(samples: &Samples<'_>) -> Found<Judged> {
    let each = total(samples, "mmap")?;
    let end = total(samples, "mmap, unmapped at the end")?;
    let batch = total(samples, "mmap, unmapped 64 at a time")?;
    let wall = samples.ratio("mmap, unmapped at the end", "mmap", &phase_s("visit"))?;
    let verdict = if end < 0.5 * each { Verdict::Holds } else { Verdict::DoesNotHold };
    Ok(Judged::new(verdict, format!("{} instead of {}", digits(end), digits(each)))
        .because(format!("time {}", times(&wall)))
        .control(format!("64 at a time: {}", digits(batch))))
}

fn vectored(samples: &Samples<'_>) -> Found<Judged> {
    let time = samples.ratio("evict vectored", "evict each", &phase_s("visit"))?;
    let [each, many] = [total(samples, "evict each")?, total(samples, "evict vectored")?];
    if each < 100.0 {
        return Err(Judged::cannot(format!(
            "one call each made only {} shootdowns: this machine flushes without interrupts, or has one processor",
            digits(each)
        )));
    }
    let verdict = if many < 0.1 * each { Verdict::Holds } else { Verdict::DoesNotHold };
    Ok(Judged::new(verdict, format!("{} against {}", digits(many), digits(each)))
        .because(format!("time {}", times(&time))))
}
