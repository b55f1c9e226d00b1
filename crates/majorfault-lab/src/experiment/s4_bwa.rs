//! S4.bwa: the thesis's case study, an aligner of genomes beyond memory; its programs are unmodified here.

use super::claim::{Claim, Test, from, of, up_to};
use super::samples::{Found, Samples, Shown, digits, times};
use super::{Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::procedure::bwa::{Sizes, Task};
use crate::stats::Estimate;
use majorfault::params::Value;
use majorfault::{Bytes, Result};
use std::fmt::Write;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.bwa",
    title: "An unmodified aligner of genomes beyond memory",
    source: "Thesis on file access policies for data-intensive applications, chapter 5: bwa, modified by hand",
    question: "Can bwa, as it is, index and align to a genome that does not fit, and at which cost?",
    room: |scale| Bytes(Bytes::mib(1024).0 + 30 * sizes(scale).bases as u64),
    memory: |scale| Bytes(Bytes::mib(64).0 + 12 * sizes(scale).bases as u64),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: None,
    timelines: &[],
    table: None,
    rows: ROWS,
    cannot_show: "The thesis's own way is an arm (mapped: each large buffer a shared mapping of a file, read ahead of by the kernel) \
                  at 75 % of the index's peak only; elsewhere, where it says mapped, ours is the kernel's swap with advice. The human genome: ours are synthetic ones with repeats, as large as \
                  --scale says (1, 4 and 48 million bases), and E. coli. Limits are shares of the most memory that the process had without \
                  one; they count the page cache, too. In version 1 of the cgroups they give way for moments by a quarter and 16 MiB, \
                  which at the two smaller sizes is as much as is missing: those rows are not judged then.",
};

/// Genome and reads.
fn sizes(scale: Scale) -> Sizes {
    scale.of(
        Sizes { bases: 1_000_000, reads: 100 },
        Sizes { bases: 4_000_000, reads: 500 },
        Sizes { bases: 48_000_000, reads: 20_000 },
    )
}

/// The index of `mem` shall be larger than what else it needs.
const LARGER_FOR_MEM: usize = 4;

/// Shares of the peak that are a limit.
const SHARES: [u64; 3] = [100, 75, 50];

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let (mut cells, is_quick) = (Vec::new(), setting.scale == Scale::Quick);
    let mut plan = |task: Task, shares: &[u64], setting: &mut Setting<'_>| -> Result<()> {
        let dir = setting.folder()?;
        if setting.makes_files() {
            task.prepare(&dir, of_task(task, setting.scale))?;
        }
        let name = task.text();
        let mut cell = |how: &str, share: u64| {
            let cell = if how == ALONE { format!("{name}, alone") } else { format!("{name}, {how}, {share} %") };
            let planned = setting.procedure(&cell, "bwa", &format!("task={name},how={how},share={share}"), &dir)?;
            cells.push(planned);
            Ok::<(), majorfault::Error>(())
        };
        cell(ALONE, 100)?;
        for share in shares {
            if !matches!(task, Task::IndexOfSecond | Task::MemOfSecond) {
                cell("swap", *share)?;
            }
            cell("advice", *share)?;
        }
        if task == Task::Index {
            let without_swap = [("no-swap", 75), ("spill", 75), ("spill", 50), ("mapped", 75)];
            // The last is ended for the time that it takes.
            let count = if is_quick { 3 } else { 4 };
            without_swap[..count].iter().try_for_each(|(how, share)| cell(how, *share))?;
        }
        Ok(())
    };
    plan(Task::Index, &SHARES, setting)?;
    plan(Task::Mem, &[50], setting)?;
    if setting.scale > Scale::Quick {
        plan(Task::Example, &[75], setting)?;
    }
    plan(Task::IndexOfSecond, &[75], setting)?;
    plan(Task::MemOfSecond, &[75], setting)?;
    Ok(cells)
}

const ALONE: &str = "alone";

fn of_task(task: Task, scale: Scale) -> Sizes {
    let Sizes { bases, reads } = sizes(scale);
    match (task, scale) {
        (Task::Mem, Scale::Quick | Scale::Standard) => Sizes { bases: bases * LARGER_FOR_MEM, reads },
        // It takes 28 bytes a base.
        (Task::IndexOfSecond | Task::MemOfSecond, _) => Sizes { bases: bases / 2, reads },
        _ => Sizes { bases, reads },
    }
}

const TIME: Figure = Figure::Own("program_ns");
const FINISHED: Figure = Figure::Own("finished");

const INDEX: &str = "index, alone";
const INDEX_ENOUGH: &str = "index, advice, 100 %";
const INDEX_75: &str = "index, advice, 75 %";
const INDEX_SWAP: &str = "index, swap, 75 %";
const INDEX_50: &str = "index, advice, 50 %";
const INDEX_SPILT: &str = "index, spill, 75 %";
const MEM: &str = "mem, advice, 50 %";
const MEM_SWAP: &str = "mem, swap, 50 %";

/// In every run the limit of a cell gave back at most half of what was missing.
const fn held(cell: &'static str) -> (Test, &'static str) {
    (Test::every_run(of(cell, Figure::Own("given_percent")), up_to(50.0)), GAVE_WAY)
}

const GAVE_WAY: &str = "the limit gave way by more than half of what was missing, as version 1 of the cgroups has to (a quarter and 16 MiB at \
                        most): --scale full has a genome for which that is little, version 2 does not do it";

const YES: [f64; 2] = [1.0, 1.0];
const NO: [f64; 2] = [0.0, 0.0];

const ROWS: &[Row] = &[
    Row {
        id: "S4.bwaindex",
        kind: RowKind::Published,
        says: "bwa index with its memory beyond (mapped files there, majorfault run here) has the same output, and is a little faster when \
               memory is enough",
        published: "1.04–1.10 x",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of(INDEX_ENOUGH, FINISHED), YES),
                    Test::ratio(of(INDEX, TIME), of(INDEX_ENOUGH, TIME), from(1.0)),
                ],
            },
            enough,
        ),
    },
    Row {
        id: "S4.bwaindex.files",
        kind: RowKind::Published,
        says: "bytes of the index for each byte of the genome's file (table 5.1)",
        published: "2.72, of it FASTA 1, bwt 0.98, sa 0.49, pac 0.24",
        rests_on: &[],
        judge: Judge::Measured(files),
    },
    Row {
        id: "S4.bwaindex.times",
        kind: RowKind::Published,
        says: "time of bwa index, as it is and with its memory beyond (table 5.2)",
        published: "13.8 MB 6.68 s, 6.14 s; 72.6 MB 68.9 s, 65.9 s; 533 MB 561 s, 510 s; 1.1 GB 1 263 s, 1 173 s; 3.0 GB 3 942 s, 3 611 s",
        rests_on: &[],
        judge: Judge::Measured(index_times),
    },
    Row {
        id: "S4.bwabig",
        kind: RowKind::Published,
        says: "a genome that could not be indexed before (it does not fit: killed at 75 % of its peak) is indexed, with the same output",
        published: "human genome, 8 GB: 3 000 s",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[held(INDEX_75)],
                tests: &[
                    Test::every_run(of("index, no-swap, 75 %", FINISHED), NO),
                    Test::every_run(of(INDEX_75, FINISHED), YES),
                ],
            },
            big,
        ),
    },
    Row {
        id: "S4.bwabig.half*",
        kind: RowKind::Control,
        says: "at half of its peak bwa index ends with advice, too",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[held(INDEX_50)], tests: &[Test::every_run(of(INDEX_50, FINISHED), YES)] },
            half,
        ),
    },
    Row {
        id: "S4.bwaindex.cost*",
        kind: RowKind::Control,
        says: "with advice bwa index at 75 % of its peak takes at most as long as with swap alone",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[held(INDEX_75), held(INDEX_SWAP)],
                tests: &[Test::ratio(of(INDEX_75, TIME), of(INDEX_SWAP, TIME), up_to(1.0))],
            },
            cost,
        ),
    },
    Row {
        id: "S4.bwaindex.spill*",
        kind: RowKind::Control,
        says: "without swap bwa index at 75 % of its peak ends with its large blocks in files, with the same output",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[held(INDEX_SPILT)], tests: &[Test::every_run(of(INDEX_SPILT, FINISHED), YES)] },
            spilt,
        ),
    },
    Row {
        id: "S4.bwaindex.ecoli*",
        kind: RowKind::Control,
        says: "E. coli is indexed at 75 % of its peak, with the same output",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[Test::every_run(of("index-ecoli, advice, 75 %", FINISHED), YES)] },
            ecoli,
        ),
    },
    Row {
        id: "S4.bwamem",
        kind: RowKind::Published,
        says: "bwa mem with an index beyond memory (mapped instead of loaded there; half of its peak here) has the same output",
        published: "works",
        rests_on: &[],
        judge: Judge::Claim(Claim { needs: &[held(MEM)], tests: &[Test::every_run(of(MEM, FINISHED), YES)] }, mem),
    },
    Row {
        id: "S4.bwamem.faster*",
        kind: RowKind::Control,
        says: "with advice bwa mem at half of its peak is faster than with swap alone",
        published: "–",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[held(MEM), held(MEM_SWAP)],
                tests: &[Test::ratio(of(MEM, TIME), of(MEM_SWAP, TIME), up_to(1.0))],
            },
            mem_faster,
        ),
    },
    Row {
        id: "S4.bwamem2",
        kind: RowKind::Published,
        says: "the same for bwa-mem2, index and mem, at 75 % of their peaks",
        published: "given up",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of("index2, advice, 75 %", FINISHED), YES),
                    Test::every_run(of("mem2, advice, 75 %", FINISHED), YES),
                ],
            },
            second,
        ),
    },
];

fn seconds(found: &Estimate) -> String {
    format!("{} s", digits(found.median / 1e9))
}

/// `swap 3.2 s, advice 2.5 s`: what each way at a limit came to.
fn ways(samples: &Samples<'_>, task: &str, share: u64) -> String {
    format!("{share} %: {}, {}", way(samples, task, "swap", share), way(samples, task, "advice", share))
}

/// `swap 3.2 s`: what one way at a limit came to.
fn way(samples: &Samples<'_>, task: &str, how: &str, share: u64) -> String {
    let cell = format!("{task}, {how}, {share} %");
    let ended = samples.valid(&cell).filter(|record| FINISHED.of(record) == Some(1.0)).count();
    let all = samples.valid(&cell).count();
    let time = samples.figure(&cell, TIME).map_or_else(|_| "–".to_owned(), |found| seconds(&found));
    if ended == all { format!("{how} {time}") } else { format!("{how} {time}, {} of {all} killed", all - ended) }
}

fn megabytes(samples: &Samples<'_>, cell: &str, name: &'static str) -> Found<String> {
    Ok(format!("{} MB", digits(samples.figure(cell, Figure::Own(name))?.median / 1e6)))
}

fn enough(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(INDEX, INDEX_ENOUGH, TIME)?;
    Ok(Shown::new(times(&found)).control(ways(samples, "index", 100)))
}

fn files(samples: &Samples<'_>) -> Found<Shown> {
    let ratio = samples.ratio_of((INDEX, Figure::Own("output_bytes")), (INDEX, Figure::Own("genome_bytes")))?;
    let shown = format!("{} with the genome's own", digits(ratio.median + 1.0));
    Ok(Shown::new(shown).because(format!("a genome of {}", megabytes(samples, INDEX, "genome_bytes")?)))
}

fn index_times(samples: &Samples<'_>) -> Found<Shown> {
    let alone = samples.figure(INDEX, TIME)?;
    let mut shown = format!("{}: {}", megabytes(samples, INDEX, "genome_bytes")?, seconds(&alone));
    for share in SHARES {
        // Writing to a String cannot fail.
        let _ = write!(shown, "; {}", ways(samples, "index", share));
    }
    Ok(Shown::new(shown).because(format!("at most {} of memory", megabytes(samples, INDEX, "peak_bytes")?)))
}

fn big(samples: &Samples<'_>) -> Found<Shown> {
    let time = samples.figure(INDEX_75, TIME)?;
    let swapped = megabytes(samples, INDEX_75, "swapped_bytes")?;
    let limit = megabytes(samples, INDEX_75, "limit_bytes")?;
    let slower = samples.ratio(INDEX_75, INDEX, TIME)?;
    Ok(Shown::new(seconds(&time))
        .because(format!("limit {limit}, {swapped} swapped at most, {}", raised(samples, INDEX_75)?))
        .control(format!("{} of its time without a limit", times(&slower))))
}

/// `raised for moments by 2.1 MB at most`: version 1 of the cgroups would kill.
fn raised(samples: &Samples<'_>, cell: &str) -> Found<String> {
    Ok(format!("raised for moments by {} at most", megabytes(samples, cell, "raised_bytes")?))
}

fn half(samples: &Samples<'_>) -> Found<Shown> {
    samples.figure(INDEX_50, FINISHED)?;
    Ok(Shown::new(ways(samples, "index", 50)))
}

fn cost(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(INDEX_75, INDEX_SWAP, TIME)?;
    let faults = |cell: &str| samples.figure(cell, Figure::Own("major_faults"));
    let waited = [digits(faults(INDEX_75)?.median), digits(faults(INDEX_SWAP)?.median)];
    Ok(Shown::new(times(&found))
        .because(format!("{} faults waited instead of {}", waited[0], waited[1]))
        .control(format!("limit {}; with swap alone {}", raised(samples, INDEX_75)?, raised(samples, INDEX_SWAP)?)))
}

fn spilt(samples: &Samples<'_>) -> Found<Shown> {
    let time = samples.figure(INDEX_SPILT, TIME)?;
    let slower = samples.ratio(INDEX_SPILT, INDEX, TIME)?;
    let at = |how: &str, share: u64| format!("{share} %: {}", way(samples, "index", how, share));
    Ok(Shown::new(seconds(&time)).because(format!("{} of its time without a limit", times(&slower))).control(format!(
        "{}; {}; {}",
        at("spill", 50),
        at("mapped", 75),
        at("swap", 75)
    )))
}

fn ecoli(samples: &Samples<'_>) -> Found<Shown> {
    samples.figure("index-ecoli, advice, 75 %", TIME)?;
    Ok(Shown::new(ways(samples, "index-ecoli", 75)))
}

fn mem(samples: &Samples<'_>) -> Found<Shown> {
    samples.figure(MEM, FINISHED)?;
    let alone = samples.figure("mem, alone", TIME)?;
    Ok(Shown::new(ways(samples, "mem", 50)).control(format!("alone {}", seconds(&alone))))
}

fn mem_faster(samples: &Samples<'_>) -> Found<Shown> {
    let found = samples.ratio(MEM, MEM_SWAP, TIME)?;
    let faults = |cell: &str| samples.figure(cell, Figure::Own("major_faults"));
    Ok(Shown::new(times(&found)).because(format!(
        "{} faults waited instead of {}",
        digits(faults(MEM)?.median),
        digits(faults(MEM_SWAP)?.median)
    )))
}

fn second(samples: &Samples<'_>) -> Found<Shown> {
    let [index, mem] = ["index2, advice, 75 %", "mem2, advice, 75 %"];
    let time = |cell: &str| Ok(seconds(&samples.figure(cell, TIME)?));
    let slower = |cell: &str, alone: &str| Ok(times(&samples.ratio(cell, alone, TIME)?));
    let control =
        format!("{} and {} of the time without a limit", slower(index, "index2, alone")?, slower(mem, "mem2, alone")?);
    Ok(Shown::new(format!("index {}, mem {}", time(index)?, time(mem)?)).control(control))
}
