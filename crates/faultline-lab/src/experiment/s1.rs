//! S1: a mapping that huge pages do not fit is silently slow.

use super::samples::{FAULTS, Found, counted, digits, either, own, phase_s, times, within};
use super::{Experiment, Judge, Judged, Planned, Row, Samples, Scale, Setting, Verdict};
use faultline::{Bytes, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S1",
    title: "An unaligned mapping is silently slow",
    source: "PMDK note on 2 MiB-aligned mappings of persistent memory: 10 GB written",
    question: "What does it cost when the address of a mapping does not fit huge pages, and does anybody tell?",
    room: |scale| Bytes(size(scale).0 * 5 / 4),
    memory: |scale| Bytes(size(scale).0 * 5 / 4),
    repetitions: |scale| scale.of(2, 5, 5),
    cells,
    published: &[],
    timeline: None,
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
    cells.push(setting.procedure("hint", "hint", "", &dir)?);
    Ok(cells)
}

const ROWS: &[Row] = &[
    Row {
        id: "S1.faults",
        says: "written through a misaligned mapping, a file takes many times the page faults",
        published: "81 x (1 324 482 against 16 319)",
        judge: Judge::By(|samples| either(faults(samples))),
    },
    Row {
        id: "S1.time",
        says: "and more time",
        published: "1.24 x the cycles",
        judge: Judge::By(|samples| either(time(samples))),
    },
    Row {
        id: "S1.cache",
        says: "and more cache references and misses",
        published: "4.5 x, 6.8 x",
        judge: Judge::By(|samples| either(cache(samples))),
    },
    Row {
        id: "S1.hint",
        says: "an address asked for that is occupied, or too near the end of user space, is silently not granted",
        published: "200 GB at 0x7ff700000000 falls back, 20 GB does not",
        judge: Judge::By(|samples| either(hint(samples))),
    },
    Row {
        id: "S1.silent",
        says: "our own mappings verify what they got",
        published: "none exists",
        judge: Judge::By(|samples| either(silent(samples))),
    },
    Row {
        id: "S1.offset*",
        says: "what counts is address against offset: both off by the same 4 KiB cost nothing",
        published: "–",
        judge: Judge::By(|samples| either(both(samples))),
    },
    Row {
        id: "S1.read*",
        says: "reading shows the same as writing",
        published: "–",
        judge: Judge::By(|samples| either(read(samples))),
    },
    Row {
        id: "S1.disk*",
        says: "on the disk's file system, too, a misaligned mapping faults more often (reading, cached)",
        published: "–",
        judge: Judge::By(|samples| either(disk(samples))),
    },
    Row {
        id: "S1.hugetlb*",
        says: "the kernel's pool of huge pages takes no more faults than an aligned tmpfs",
        published: "–",
        judge: Judge::By(|samples| either(hugetlb(samples))),
    },
    Row {
        id: "S1.pmem*",
        says: "the same on persistent memory",
        published: "as above",
        judge: Judge::Not("needs a DAX file system, or the guest of the kernel lab, which is not built yet"),
    },
];

fn faults(samples: &Samples<'_>) -> Found<Judged> {
    let found =
        samples.ratio("tmpfs-huge write skew=address", "tmpfs-huge write skew=none", &counted("visit", FAULTS))?;
    let count = |cell| samples.figure(cell, &counted("visit", FAULTS)).map(|it| digits(it.median));
    let huge = samples.ratio_of(
        ("tmpfs-huge write skew=none", &own("huge_bytes")),
        ("tmpfs-huge write skew=none", &own("resident_bytes")),
    )?;
    Ok(Judged::new(within(&found, [10.0, f64::INFINITY]), times(&found))
        .because(format!(
            "{} against {} faults; aligned {} % mapped huge",
            count("tmpfs-huge write skew=address")?,
            count("tmpfs-huge write skew=none")?,
            digits(100.0 * huge.median)
        ))
        .control(format!("address and offset off together: {}", both_ratio(samples)?)))
}

fn both_ratio(samples: &Samples<'_>) -> Found<String> {
    let cells = ("tmpfs-huge write skew=both", "tmpfs-huge write skew=none");
    samples.ratio(cells.0, cells.1, &counted("visit", FAULTS)).map(|found| times(&found))
}

fn time(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("tmpfs-huge write skew=address", "tmpfs-huge write skew=none", &phase_s("visit"))?;
    let both = samples.ratio("tmpfs-huge write skew=both", "tmpfs-huge write skew=none", &phase_s("visit"))?;
    Ok(Judged::new(within(&found, [1.0, f64::INFINITY]), times(&found))
        .because("wall time of writing every byte".to_owned())
        .control(format!("both off: {}", times(&both))))
}

fn cache(samples: &Samples<'_>) -> Found<Judged> {
    let counter = counted("visit", &["cache_references"]);
    let found =
        samples.ratio("tmpfs-huge write skew=address", "tmpfs-huge write skew=none", &counter).map_err(|_| {
            Judged::cannot("hardware counters: the machine shows none; use one, or a virtual machine, that does")
        })?;
    Ok(Judged::new(within(&found, [1.0, f64::INFINITY]), times(&found)))
}

fn is_one(samples: &Samples<'_>, name: &'static str) -> Found<bool> {
    Ok(samples.figure("hint", &own(name))?.median > 0.5)
}

fn hint(samples: &Samples<'_>) -> Found<Judged> {
    let [occupied, far, near] =
        [is_one(samples, "occupied_granted")?, is_one(samples, "far_granted")?, is_one(samples, "near_granted")?];
    let words = |granted| if granted { "granted" } else { "not granted" };
    let ours = format!("occupied {}, 200 GiB {}, 20 GiB {}", words(occupied), words(far), words(near));
    let verdict = if !occupied && !far { Verdict::Holds } else { Verdict::DoesNotHold };
    let congruent = is_one(samples, "far_congruent")?;
    let place = if congruent { "at an address that huge pages fit" } else { "at an address that no huge page fits" };
    Ok(Judged::new(verdict, ours).because(format!("200 GiB were mapped {place}, without an error")))
}

fn silent(samples: &Samples<'_>) -> Found<Judged> {
    let told = is_one(samples, "occupied_told")? && is_one(samples, "far_told")?;
    let verdict = if told { Verdict::Holds } else { Verdict::DoesNotHold };
    Ok(Judged::new(verdict, if told { "both were told" } else { "one was not told" })
        .because("other programs' mappings: faultline doctor --deep PID, rule misaligned_huge"))
}

fn both(samples: &Samples<'_>) -> Found<Judged> {
    let cells = ("tmpfs-huge write skew=both", "tmpfs-huge write skew=none");
    let found = samples.ratio(cells.0, cells.1, &counted("visit", FAULTS))?;
    // The two ends that no huge page covers are small pages: up to 1024 faults more.
    let more = samples.figure(cells.0, &counted("visit", FAULTS))?.median
        - samples.figure(cells.1, &counted("visit", FAULTS))?.median;
    let verdict = if more <= 1024.0 { Verdict::Holds } else { Verdict::DoesNotHold };
    Ok(Judged::new(verdict, times(&found))
        .because(format!("{} faults more, of at most 1024 at both ends", digits(more))))
}

fn read(samples: &Samples<'_>) -> Found<Judged> {
    let found =
        samples.ratio("tmpfs-huge read skew=address", "tmpfs-huge read skew=none", &counted("visit", FAULTS))?;
    let time = samples.ratio("tmpfs-huge read skew=address", "tmpfs-huge read skew=none", &phase_s("visit"))?;
    Ok(Judged::new(within(&found, [10.0, f64::INFINITY]), times(&found))
        .because(format!("faults; time {}", times(&time)))
        .control("fault-around maps 16 pages a fault when reading".to_owned()))
}

fn disk(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("disk read skew=address", "disk read skew=none", &counted("visit", FAULTS))?;
    let write = samples.ratio("disk write skew=address", "disk write skew=none", &counted("visit", FAULTS))?;
    let huge = samples.figure("disk read skew=none", &own("huge_bytes"))?.median;
    Ok(Judged::new(within(&found, [1.05, f64::INFINITY]), times(&found))
        .because(format!("{} mapped huge when aligned", Bytes(huge as u64).rounded()))
        .control(format!("writing: {}", times(&write))))
}

fn hugetlb(samples: &Samples<'_>) -> Found<Judged> {
    let found = samples.ratio("hugetlb write skew=none", "tmpfs-huge write skew=none", &counted("visit", FAULTS))?;
    Ok(Judged::new(within(&found, [0.0, 1.1]), times(&found)))
}
